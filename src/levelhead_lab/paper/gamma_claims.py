"""The paper's claims about the error over gamma: Figure 7.

How sensitive an error is to gamma is measured by a width: how much of the range of gammas is within a point of the best
(`near_best_width`). A wide range means that a gamma which is a bit off costs little. Curves come from records, at the
201 gammas of `cells.GRID`.
"""

from collections.abc import Sequence
from statistics import mean

import numpy as np

from ..methods import METHODS
from .cells import GRID, Record, cell, full_runs
from .claims import Finding, outcome_for, outcome_if
from .tables import table1_columns

WITHIN = 0.01  # a gamma is good if its error is at most this far above the best


def near_best_width(curve: Sequence[float]) -> float:
    """Return the width of the range of gammas within a point of the best.

    Gammas that are good count wherever they are: the range may have gaps.

    Args:
        curve: error at each gamma of `cells.GRID`, shares.

    Returns:
        A width in units of gamma, from 0.01 (one point of the grid) to 2.01 (all 201 of them).

    >>> near_best_width([0.3] * 50 + [0.2] * 151)
    1.51
    """
    # Each point of the grid stands for as much of the axis as lies between two of them.
    good = np.asarray(curve) <= min(curve) + WITHIN
    return round(float(good.sum() * (GRID[1] - GRID[0])), 6)


def _mean_width(records: Sequence[Record], column: str, method: str) -> float | None:
    """Return `near_best_width` of a cell, mean over its seeds; None without a run.

    The mean of the widths, and not the width of the mean curve, in which the best gammas of different seeds would blur.
    """
    widths = [near_best_width(run["curve"]) for run in full_runs(records, column, method)]
    if not widths:
        return None
    return mean(widths)


def wvn_flattens_the_curve(records: Sequence[Record]) -> Finding | None:
    """Judge by how much wider the range of good gammas is with WVN, column by column.

    The number is the geometric mean of the ratios of both widths.
    """
    ratios = []
    for column in table1_columns(imbalanced=True):
        wvn = _mean_width(records, column, "wvn")
        plain = _mean_width(records, column, "baseline")
        if wvn is not None and plain is not None:
            ratios.append(wvn / plain)
    if not ratios:
        return None
    wider = sum(ratio > 1 for ratio in ratios)
    number = float(np.exp(np.mean(np.log(ratios))))  # half and twice as wide cancel each other
    return Finding(
        "WVN flattens the curve of the error over gamma.",
        number,
        f"gammas within {100 * WITHIN:g} point of the best span {number:.1f} times as much (geometric mean), more in "
        f"{wider} of {len(ratios)} columns",
        outcome_if(number >= 1.5 and wider == len(ratios), number > 1),
        "1.5 times, and more in every column; partly: more on average",
    )


def cifar100_is_more_sensitive(records: Sequence[Record]) -> Finding | None:
    """Judge by the widths at equal ratio and method, on CIFAR-10 and on CIFAR-100.

    The number is the share of pairs in which the range of good gammas is narrower on CIFAR-100.
    """
    # Both methods count: a narrower range on CIFAR-100 should not depend on WVN.
    pairs = []
    for column in table1_columns("cifar10", imbalanced=True):
        for method in ("baseline", "wvn"):
            ten = _mean_width(records, column, method)
            hundred = _mean_width(records, column.replace("cifar10:", "cifar100:"), method)
            if ten is not None and hundred is not None:
                pairs.append((ten, hundred))
    if not pairs:
        return None
    narrower = sum(ten > hundred for ten, hundred in pairs)
    return Finding(
        "The error is more sensitive to gamma on CIFAR-100 than on CIFAR-10.",
        narrower / len(pairs),
        f"gammas within {100 * WITHIN:g} point of the best span less in {narrower} of {len(pairs)} pairs of columns",
        outcome_for(narrower / len(pairs), 1.0, 0.8),
        "every pair; partly: four of five",
    )


def every_gamma_helps(records: Sequence[Record]) -> Finding | None:
    """Judge by the share of gammas up to 1 at which the mean curve of the seeds is below the baseline's error.

    Gamma 0 is left out, where RS changes nothing. So are gammas from 1 to 2, which records have as well: far past the
    best one, any curve rises again.
    """
    better: dict[str, list[float]] = {"wvn": [], "baseline": []}  # that share, by column
    spans = []  # largest minus smallest error of WVN+RS over these gammas
    for column in table1_columns(imbalanced=True):
        plain = cell(records, column, "baseline").errors
        for method, shares in better.items():
            # 0.01 to 1.
            curves = [run["curve"][1:101] for run in full_runs(records, column, method)]
            if not plain or not curves:
                continue
            curve = 100 * np.mean(curves, axis=0)
            shares.append(float((curve < mean(plain)).mean()))
            if method == "wvn":
                spans.append(float(np.ptp(curve)))
    if not better["wvn"]:
        return None
    seen = []
    for method, shares in better.items():
        if shares:
            seen.append(f"{METHODS[method].title}+RS {min(shares):.0%} to {max(shares):.0%}")
    return Finding(
        "On CIFAR-10 WVN+RS beats the baseline at every gamma, and varies marginally with it.",
        min(better["wvn"]),
        f"of the gammas up to 1 are better: {', '.join(seen)}; WVN+RS varies by {min(spans):.1f} "
        f"to {max(spans):.1f} points",
        outcome_for(min(better["wvn"]), 1.0, 0.8),
        "at all, in every column; partly: four of five",
    )
