"""The paper's claims about the norms of weight vectors: Figures 1 and 2, and both figures of the supplement.

A weight vector's norm scales all logits of its class, so that norms which follow the counts favor frequent classes: on
that the paper builds both of its methods. Each function takes all records and judges one sentence, by the baseline
unless it says otherwise. What a claim shares with others is in `claims`.
"""

from collections.abc import Sequence
from statistics import mean

import numpy as np

from ..methods import METHODS
from .cells import Record, full_runs
from .claims import STRONG, Finding, count_correlation, outcome_for, outcome_if, rank_finding
from .geometry import rank_correlation
from .tables import DATA_TITLES, table1_columns

STEP_COLUMNS = ("tiny-imagenet:step:100", "tiny-imagenet:step:10")


def norms_align_late(records: Sequence[Record], column: str = "cifar10:100") -> Finding | None:
    """Judge by the rank correlation of norms with counts after the first epoch that a record has, and at the end.

    "Late" has two halves: norms follow the counts at the end (without that it is not reproduced), and not yet at first.
    """
    # The correlation takes two epochs to compare.
    runs = []
    for run in full_runs(records, column, "baseline"):
        if len(run["norms_over_epochs"]["epochs"]) > 1:
            runs.append(run)
    if not runs:
        return None
    first = mean(count_correlation(run, run["norms_over_epochs"]["norms"][0]) for run in runs)
    last = mean(count_correlation(run, run["norms_over_epochs"]["norms"][-1]) for run in runs)
    epoch = runs[0]["norms_over_epochs"]["epochs"][0]
    return Finding(
        "Early in training norms do not follow the sample frequency; later they do.",
        last,
        f"rank correlation {first:.2f} after epoch {epoch}, {last:.2f} at the end",
        outcome_if(first < STRONG <= last, last >= STRONG),
        f"below {STRONG:g} at first, {STRONG:g} at the end; partly: the latter",
    )


def norm_follows_frequency(records: Sequence[Record]) -> Finding | None:
    """Judge the paper's first finding, in every imbalanced column of Table 1.

    It is what both methods start from: if norms did not follow the counts, there would be nothing for RS to undo.
    """
    says = "The norm of a class's weight vector follows its sample frequency."
    return rank_finding(records, says, lambda record: record["norms"], sign=1)


def balanced_norms_are_uniform(records: Sequence[Record]) -> Finding | None:
    """Judge by the standard deviation of norms over their mean, beside the mildest imbalance of Table 1.

    "Relatively uniform" has no number in the paper; half the spread at ratio 10 is ours.
    """
    parts = []
    shares = []  # spread on balanced data over that at ratio 10
    for data in ("cifar10", "cifar100"):
        balanced = [_spread(run) for run in full_runs(records, f"{data}:1", "baseline")]
        mildest = [_spread(run) for run in full_runs(records, f"{data}:10", "baseline")]
        if balanced and mildest:
            shares.append(mean(balanced) / mean(mildest))
            parts.append(f"{mean(balanced):.1%} on {DATA_TITLES[data]} ({mean(mildest):.1%})")
    if not shares:
        return None
    return Finding(
        "On balanced data the norms are relatively uniform.",
        max(shares),
        f"standard deviation of the norms over their mean, at ratio 10 in parentheses: {', '.join(parts)}",
        # A low share is what is claimed, and partly is anything below 1.
        outcome_for(-max(shares), -0.5, -0.999),
        "half of that at ratio 10 on every set; partly: less",
    )


def norms_part_with_ratio(records: Sequence[Record]) -> Finding | None:
    """Judge how far apart the norms lie, largest over smallest, by its rank correlation with the ratio.

    Beside it: in how many networks the most frequent class has the largest norm, and the rarest the smallest. Balanced
    data count for the correlation, as ratio 1, but have no such ends.
    """
    ranks = []
    ends: dict[str, list[bool]] = {}  # by data set: whether both ends are right, of each network
    for data in ("cifar10", "cifar100"):
        columns = [c for c in table1_columns(data) if full_runs(records, c, "baseline")]
        if len(columns) < 3:  # a rank correlation of two points is 1 or -1, whatever they are
            continue
        apart = []  # largest norm over the smallest, of each column, mean over seeds
        extreme = []  # of each network of an imbalanced column
        for column in columns:
            runs = full_runs(records, column, "baseline")
            apart.append(mean(max(run["norms"]) / min(run["norms"]) for run in runs))
            if not column.endswith(":1"):
                extreme += [_ends_are_extreme(run) for run in runs]
        ratios = [int(column.split(":")[1]) for column in columns]
        ranks.append(rank_correlation(np.array(apart), np.array(ratios)))
        ends[data] = extreme
    if not ranks:
        return None
    number = min(ranks)  # so that both data sets have to show it
    right = []
    for data, extreme in ends.items():
        right.append(f"{sum(extreme)} of {len(extreme)} networks of {DATA_TITLES[data]}")
    every = all(all(extreme) for extreme in ends.values())
    return Finding(
        "The most frequent class has the largest norm, the rarest the smallest, the more so the larger the ratio.",
        number,
        f"rank correlation with the ratio {number:.2f}; both ends right in {', '.join(right)}",
        outcome_if(number >= STRONG and every, number >= STRONG),
        f"{STRONG:g}, and both ends in every network; partly: the former",
    )


def step_norms_part(records: Sequence[Record]) -> Finding | None:
    """Judge the supplement's first figure: half of the classes are frequent, half are rare.

    The gap is the difference of the two means, in standard deviations within a group (`_group_gap`). Both ratios of
    Table 2 have to be there, and the smaller gap decides.
    """
    gaps = {}
    for column in STEP_COLUMNS:
        runs = full_runs(records, column, "baseline")
        if not runs:
            return None
        gaps[column] = mean(_group_gap(run) for run in runs)
    shown = [f"{gap:.1f} at ratio {column.rsplit(':', 1)[1]}" for column, gap in gaps.items()]
    return Finding(
        "Under step imbalance norms vary less within the two groups than between them.",
        min(gaps.values()),
        f"mean norms lie {', '.join(shown)} standard deviations apart",
        outcome_for(min(gaps.values()), 2.0, 1.0),
        "2 at both ratios; partly: 1",
    )


def over_sampling_levels(records: Sequence[Record], column: str = "cifar10:100") -> Finding | None:
    """Judge the supplement's second figure; of two readings, over-sampling to the largest decides.

    What an epoch of over-sampling holds is not said in the paper. Drawn until every class has as many samples as the
    largest, it comes nearer to the published errors (`tables.readings`), so that this reading is the first; the other
    stands beside it.
    """
    plain = full_runs(records, column, "baseline")
    if not plain:
        return None
    before = _norm_excess(plain)
    seen = []
    outcomes = []
    shares = []  # of the baseline's excess that is left
    # The reading that decides comes first; if it is not trained, the other one does.
    for method in ("over-sample-largest", "over-sample"):
        repeated = full_runs(records, column, method)
        if not repeated:
            continue
        after = _norm_excess(repeated)
        still = mean(count_correlation(run, run["norms"]) for run in repeated)
        halved = after <= before / 2
        follows = still >= STRONG
        outcomes.append(outcome_if(halved and follows, halved or follows))
        shares.append(after / before)
        seen.append(f"{METHODS[method].title} +{after:.0%}, rank correlation {still:.2f}")
    if not seen:
        return None
    return Finding(
        "Over-sampling makes norms far more alike, yet they still follow the frequency.",
        shares[0],
        f"largest norm over the smallest: Baseline +{before:.0%}; {'; '.join(seen)}",
        outcomes[0],
        f"half the discrepancy and a correlation of {STRONG:g}; partly: one of them",
    )


def _norm_excess(records: Sequence[Record]) -> float:
    """Return by which share the largest norm exceeds the smallest, mean over the records.

    >>> _norm_excess([{"norms": [1.0, 1.5]}, {"norms": [2.0, 2.0]}])
    0.25
    """
    return mean(max(record["norms"]) / min(record["norms"]) - 1 for record in records)


def _spread(record: Record) -> float:
    """Return the standard deviation of the norms over their mean, which does not depend on how large they are.

    >>> _spread({"norms": [1.0, 3.0]}), _spread({"norms": [10.0, 30.0]})
    (0.5, 0.5)
    """
    norms = np.asarray(record["norms"])
    return float(norms.std() / norms.mean())


def _ends_are_extreme(record: Record) -> bool:
    """Say whether a most frequent class has the largest norm, and a rarest one the smallest.

    Of classes with equal counts, as a long tail of many classes has at its end, any may be the extreme one.

    >>> _ends_are_extreme({"norms": [2.0, 1.0, 0.9], "counts": [90, 10, 10]})
    True
    """
    norms = np.asarray(record["norms"])
    counts = np.asarray(record["counts"])
    largest = counts[norms.argmax()]
    smallest = counts[norms.argmin()]
    return bool(largest == counts.max() and smallest == counts.min())


def _group_gap(record: Record) -> float:
    """Return the distance of the mean norms of frequent and rare classes, in standard deviations.

    Both groups have equally many classes, so that the variance within a group is the mean of the two.

    >>> round(_group_gap({"norms": [2.0, 2.2, 1.0, 1.2], "counts": [90, 90, 10, 10]}), 6)
    10.0
    """
    norms = np.asarray(record["norms"])
    counts = np.asarray(record["counts"])
    frequent = norms[counts == counts.max()]
    rare = norms[counts == counts.min()]
    return float((frequent.mean() - rare.mean()) / np.sqrt((frequent.var() + rare.var()) / 2))
