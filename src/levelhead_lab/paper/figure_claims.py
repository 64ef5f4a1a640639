"""The claims that the paper makes about each figure, beyond its main claims, judged by our records."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np

from levelhead.choice.snapshot import Snapshot
from levelhead.core.head import Head
from levelhead.core.measure import recall
from levelhead.rules.adjust import rescale

from .cells import Record, full_runs
from .claims import STRONG, Finding, count_correlation, outcome_for, rank_finding
from .geometry import angular_sigma, boundary_angles, center_gap, rank_correlation
from .tables import column_title, table1_columns

STEP_COLUMNS = ("tiny-imagenet:step:100", "tiny-imagenet:step:10")


def norms_align_late(records: Sequence[Record], column: str = "cifar10:100") -> Finding | None:
    """Judge Figure 1: the rank correlation of norms with counts, at the first and the last epoch recorded."""
    logs = [r for r in full_runs(records, column, "baseline") if len(r["norms_over_epochs"]["epochs"]) > 1]
    if not logs:
        return None
    first, last = (mean(count_correlation(r, r["norms_over_epochs"]["norms"][at]) for r in logs) for at in (0, -1))
    grown = mean(
        np.mean(np.greater(r["norms_over_epochs"]["norms"][-1], r["norms_over_epochs"]["norms"][0])) for r in logs
    )
    aligned, runs = last >= STRONG, f"mean of {len(logs)} runs" if len(logs) > 1 else "one run"
    return Finding(
        "Early in training the norms show no clear correlation with the sample frequency; later they align with it.",
        last,
        f"rank correlation {first:.2f} after epoch {logs[0]['norms_over_epochs']['epochs'][0]}, {last:.2f} at "
        f"the end ({runs}); {grown:.0%} of the norms are larger at the end",
        "reproduced" if aligned and first < STRONG else "partly" if aligned else "not reproduced",
        f"reproduced if it is below {STRONG:g} at first and at least {STRONG:g} at the end, partly if only the latter",
    )


def norms_part_with_ratio(records: Sequence[Record]) -> Finding | None:
    """Judge Figure 2: the largest norm over the smallest grows with the ratio, and both are the right classes'."""
    columns = [c for c in table1_columns() if full_runs(records, c, "baseline")]
    sets = [[c for c in columns if c.startswith(f"{data}:")] for data in ("cifar10", "cifar100")]
    sets = [found for found in sets if len(found) > 2]
    if not sets:
        return None
    parted = {c: mean(max(r["norms"]) / min(r["norms"]) for r in full_runs(records, c, "baseline")) for c in columns}
    ranks = [
        rank_correlation(np.array([parted[c] for c in found]), np.array([int(c.split(":")[1]) for c in found]))
        for found in sets
    ]
    ends = [_ends_are_extreme(r) for c in columns if not c.endswith(":1") for r in full_runs(records, c, "baseline")]
    number, spread = min(ranks), ", ".join(f"{parted[c]:.2f} ({column_title(c)})" for found in sets for c in found)
    strong = number >= STRONG
    return Finding(
        "Except at ratio 1, the most frequent class has the largest norm and the least frequent one the smallest; the "
        "larger the ratio, the larger the discrepancy.",
        number,
        f"largest over smallest norm: {spread}; in {sum(ends)} of {len(ends)} networks the largest and the "
        "smallest norm are those of the most and the least frequent class",
        "reproduced" if strong and all(ends) else "partly" if strong else "not reproduced",
        f"reproduced if the discrepancy follows the ratio (rank correlation of at least {STRONG:g} on each set) and "
        "both ends are right in every network, partly if only the first holds",
    )


def train_clusters_grow(records: Sequence[Record]) -> Finding | None:
    """Judge Figure 4: the rank correlation of sigma-train with counts."""
    says = "At training time, clusters of more frequent classes are wider."
    return rank_finding(records, says, lambda r: r["geometry"].get("sigma_train"), "of sigma-train with count", sign=1)


def boundary_leans(two_features: dict[str, Any]) -> Finding:
    """Judge Figure 3: the angles from the rarest and the most frequent class's weight vector to their boundary."""
    n = np.asarray(two_features["counts"])
    most, least = int(n.argmax()), int(n.argmin())
    angles = {
        m: [boundary_angles(Head(np.array(w)), most, least) for w in two_features[m]["weights"]]
        for m in ("baseline", "wvn")
    }
    leaning = [rare < frequent for frequent, rare in angles["baseline"]]
    middle, share = max(abs(frequent - rare) for frequent, rare in angles["wvn"]), float(np.mean(leaning))
    frequent, rare = (mean(pair[i] for pair in angles["baseline"]) for i in (0, 1))
    return Finding(
        "The boundary leans toward the class whose weight vector is shorter, the rarer one; with equal norms it lies "
        "in the middle.",
        share,
        f"in {sum(leaning)} of {len(leaning)} networks it leans toward the rarest class ({rare:.0f} degrees "
        f"from its weight vector, {frequent:.0f} from that of the most frequent, on average); with WVN the two "
        f"angles differ by at most {middle:.1f} degrees",
        outcome_for(share, 0.8, 0.5),
        "reproduced if in 4 of 5 networks, partly if in half of them",
    )


def rare_class_is_scattered(snapshot: Snapshot) -> Finding:
    """Judge Figure 5 by angles between features, which t-SNE does not keep: the most and the least frequent class."""
    pair = int(snapshot.counts.argmax()), int(snapshot.counts.argmin())
    train, test = ((snapshot.features[s], snapshot.labels[s]) for s in ("train", "test"))
    gap = center_gap(train, test, snapshot.head.classes)
    sigma = angular_sigma(*test, snapshot.head.classes) / angular_sigma(*train, snapshot.head.classes)
    frequent, rare = (float(gap[k]) for k in pair)
    return Finding(
        "The most frequent class is distributed alike at training and test time, the least frequent one far apart.",
        rare / frequent,
        f"its centers are {rare:.1f} degrees apart, those of the most frequent class {frequent:.1f}; "
        f"its test cluster is {sigma[pair[1]]:.1f} times as wide as its training cluster, that of the most frequent "
        f"class {sigma[pair[0]]:.1f} times",
        outcome_for(rare / frequent, 2.0, 1.0),
        "reproduced if the rare class's centers are twice as far apart, partly if farther apart",
    )


def rare_classes_gain(baseline: Snapshot, wvn: Snapshot, gamma: float) -> Finding:
    """Judge Figure 6: the recall of the rarest and the most frequent third of the classes, baseline and WVN+RS."""
    third = max(1, baseline.head.classes // 3)
    order = np.argsort(baseline.counts, kind="stable")
    before = recall(baseline.logits("test"), baseline.labels["test"])
    after = recall(wvn.logits("test", rescale(wvn.head, wvn.counts, gamma=gamma)), wvn.labels["test"])
    change = 100 * (after - before)
    rare, frequent = float(change[order[:third]].mean()), float(change[order[-third:]].mean())
    return Finding(
        "WVN+RS improves the infrequent classes while preserving the performance on frequent ones.",
        rare,
        f"recall of the {third} rarest classes {rare:+.1f} points, of the {third} most frequent ones "
        f"{frequent:+.1f} points",
        "not reproduced" if rare <= 0 else "reproduced" if frequent >= -2 else "partly",
        "reproduced if the rare gain and the frequent lose at most 2 points, partly if the rare gain",
    )


def step_norms_part(records: Sequence[Record]) -> Finding | None:
    """Judge the supplement's first figure: the gap between two groups' mean norms over the spread within a group."""
    found = {column: [_group_gap(r) for r in full_runs(records, column, "baseline")] for column in STEP_COLUMNS}
    if not all(found.values()):
        return None
    gaps = {column: mean(each) for column, each in found.items()}
    shown = ", ".join(f"{gap:.1f} at ratio {column.rsplit(':', 1)[1]}" for column, gap in gaps.items())
    return Finding(
        "Under step imbalance too, norms vary far less within frequent and infrequent classes than between them.",
        min(gaps.values()),
        f"the two groups' mean norms lie {shown} standard deviations of a group apart",
        outcome_for(min(gaps.values()), 2.0, 1.0),
        "reproduced at 2 or more at both ratios, partly at 1 or more",
    )


def over_sampling_levels(records: Sequence[Record], column: str = "cifar10:100") -> Finding | None:
    """Judge the supplement's second figure: how much of the norms' discrepancy over-sampling leaves."""
    plain, repeated = (full_runs(records, column, method) for method in ("baseline", "over-sample"))
    if not plain or not repeated:
        return None
    parted = [mean(max(r["norms"]) / min(r["norms"]) - 1 for r in rs) for rs in (plain, repeated)]
    left, still = parted[1] / parted[0], mean(count_correlation(r, r["norms"]) for r in repeated)
    halved, follows = left <= 0.5, still >= STRONG
    return Finding(
        "Over-sampling remarkably decreases the discrepancy of the norms, yet they still increase with the sample "
        "frequency.",
        left,
        f"the longest weight vector exceeds the shortest by {parted[1]:.0%}, without over-sampling by "
        f"{parted[0]:.0%}; rank correlation of norm with count {still:.2f}",
        "reproduced" if halved and follows else "partly" if halved or follows else "not reproduced",
        f"reproduced if at most half of the discrepancy is left and the correlation is at least {STRONG:g}; partly if "
        "one of the two",
    )


def _ends_are_extreme(record: Record) -> bool:
    norms, n = np.asarray(record["norms"]), np.asarray(record["counts"])
    return bool(n[norms.argmax()] == n.max() and n[norms.argmin()] == n.min())


def _group_gap(record: Record) -> float:
    norms, n = np.asarray(record["norms"]), np.asarray(record["counts"])
    frequent, rare = norms[n == n.max()], norms[n == n.min()]
    return float((frequent.mean() - rare.mean()) / np.sqrt((frequent.var() + rare.var()) / 2))
