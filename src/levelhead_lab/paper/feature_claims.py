"""The paper's claims about features and recall by class that records decide: Figures 4 and 6.

Features are looked at as directions: `sigma` is the angular spread of a class's features around their center, and the
gap is the angle between the centers of training and test features (`geometry`). Both are in degrees, and in a record
for each class. Most claims are that such a value rises or falls with the counts: `claims.rank_finding` judges them.
"""

from collections.abc import Sequence
from statistics import mean

import numpy as np

from .cells import Record, full_runs
from .claims import Finding, outcome_for, rank_finding
from .tables import column_title, table1_columns


def train_clusters_grow(records: Sequence[Record]) -> Finding | None:
    """Judge the left panel of Figure 4: the claim is that sigma of the training features rises with the counts.

    Records of networks whose training features were not kept have no sigma, and do not count.
    """
    says = "At training time, clusters of more frequent classes are wider."
    return rank_finding(records, says, lambda record: record["geometry"].get("sigma_train"), sign=1)


def train_clusters_saturate(records: Sequence[Record]) -> Finding | None:
    """Judge by the mean width of the rarest third, of the middle and of the most frequent third of the classes.

    Widths saturate if the second step, from the middle to the frequent, is at most half of the first. Thirds, and not
    single classes, because classes differ in themselves.
    """
    first_rises = []  # of the width, from the rarest third to the middle, in degrees
    second_rises = []  # from the middle to the most frequent third
    for column in table1_columns(imbalanced=True):
        for run in full_runs(records, column, "baseline"):
            widths = run["geometry"].get("sigma_train")
            if widths is None or None in widths:
                continue
            # From the rarest class to the most frequent.
            by_count = np.asarray(widths, float)[np.argsort(run["counts"], kind="stable")]
            third = len(by_count) // 3
            rare = by_count[:third].mean()
            middle = by_count[third:-third].mean()
            frequent = by_count[-third:].mean()
            first_rises.append(float(middle - rare))
            second_rises.append(float(frequent - middle))
    if not first_rises:
        return None
    first = mean(first_rises)
    second = mean(second_rises)
    share = float("inf")  # widths that do not even rise at first do not saturate
    if first > 0:
        share = second / first
    return Finding(
        "The size of a training cluster saturates where a class has enough samples.",
        share,
        f"from the rarest third of the classes to the middle clusters widen by {first:.1f} "
        f"degrees, from there to the most frequent third by {second:.1f}",
        outcome_for(-share, -0.5, -0.999),  # a low share is what is claimed
        "the second at most half of the first; partly: less",
    )


def rare_test_clusters_are_wider(records: Sequence[Record]) -> Finding | None:
    """Judge the middle panel of Figure 4: the claim is that sigma falls with the counts.

    Every record has it, as the features of the test images are always kept.
    """
    says = "At test time, features of less frequent classes form wider clusters."
    return rank_finding(records, says, lambda record: record["geometry"].get("sigma_test"), sign=-1)


def centers_drift_apart(records: Sequence[Record]) -> Finding | None:
    """Judge the right panel of Figure 4: the claim is that the gap falls with the counts.

    The gap is the angle between the centers of a class's training and test features.
    """
    says = "The rarer a class, the farther apart the centers of its train and test features."
    return rank_finding(records, says, lambda record: record["geometry"].get("center_gap"), sign=-1)


def rare_centers_are_far_apart(records: Sequence[Record]) -> Finding | None:
    """Judge the one angle that the paper states, at ratio 100; ratio 200 stands beside it.

    "Nearly 40 degrees" is met from 35 on, and partly from 20 on.
    """
    gaps = {}
    for column in ("cifar10:100", "cifar10:200"):
        of_rarest = []
        for run in full_runs(records, column, "baseline"):
            gap_by_class = run["geometry"].get("center_gap")
            if gap_by_class:
                of_rarest.append(gap_by_class[int(np.argmin(run["counts"]))])
        if of_rarest:
            gaps[column] = mean(of_rarest)
    if "cifar10:100" not in gaps:
        return None
    parts = [f"{gap:.1f} degrees on {column_title(column)}" for column, gap in gaps.items()]
    return Finding(
        "The rarest class's train and test centers are nearly 40 degrees apart.",
        gaps["cifar10:100"],
        "; ".join(parts),
        outcome_for(gaps["cifar10:100"], 35.0, 20.0),
        "35 degrees at ratio 100; partly: 20",
    )


def recall_follows_frequency(records: Sequence[Record]) -> Finding | None:
    """Judge the diagonal of Figure 6 (a): the recall of each class.

    As trained, that is: RS is there to undo just this.
    """
    says = "The diagonal of the baseline's confusion matrix fades: recall grows with the number of samples."
    return rank_finding(records, says, lambda record: record.get("recall"), sign=1)
