"""Doubts about counts: whether they are those of the training set, and in the order of the classes.

Each function returns a warning or None, by the rule in its docstring, as in `diagnostics`.
"""

import numpy as np

from ..core.array import Array
from ..core.kept_rows import KeptRows
from ..core.measure import predict
from ..core.warnings import CountsWarning
from ..rules.rule import Rule

EQUAL = 1.1  # counts are called equal if the largest is at most so many times the smallest
LEANING = -0.2  # how far predictions may lean toward classes with few counts
_SAMPLES = 20_000  # are enough to tell


def diagnose_counts(logits: Array, labels: np.ndarray, counts: np.ndarray, rule: Rule) -> list[CountsWarning | None]:
    """Return the doubts about the counts of a rule that uses them.

    >>> from levelhead.rules import RULES
    >>> diagnose_counts(np.eye(2), np.arange(2), np.array([400, 100]), RULES["shift"])
    [None, None]
    """
    if not rule.follows_counts:
        return []
    return [diagnose_equal_counts(counts), diagnose_reversed_counts(logits, labels, counts)]


def diagnose_equal_counts(counts: np.ndarray) -> CountsWarning | None:
    """Warn if counts are equal, or all within a tenth of each other: rules that use them then change nothing.

    Args:
        counts: [K].

    Returns:
        The warning, or None.

    >>> str(diagnose_equal_counts(np.array([100, 100])))[:71]
    'the counts are equal (100 in each class), so there is nothing to level;'
    >>> diagnose_equal_counts(np.array([400, 100]))
    """
    low, high = counts.min(), counts.max()
    if high > EQUAL * low:
        return None
    how = (
        f"equal ({low:g} in each class), so there is nothing"
        if low == high
        else (f"almost equal ({low:g} to {high:g} per class), so there is next to nothing")
    )
    return CountsWarning(
        f"the counts are {how} to level; if the model was trained on imbalanced data, give the counts of its training "
        "set, not of a balanced hold-out"
    )


def diagnose_reversed_counts(logits: Array, labels: np.ndarray, counts: np.ndarray) -> CountsWarning | None:
    """Warn if predictions lean clearly toward the classes with few counts.

    ``lean = mean over classes j of E[z_predicted - z_j | label j]``, with z the logarithms of the counts, standardized.
    A model that was trained plainly leans toward frequent classes, lean > 0. One that was trained with class weights
    or over-sampling leans to neither side. The warning asks for a lean below -0.2, and below -0.1 by three standard
    errors. On long-tailed digits with ratios 5, 20 and 100 (8 models, with and without weights, also exaggerated ones;
    4 seeds; balanced and long-tailed hold-outs) and on the two networks of the package, the right counts gave -0.14 or
    more; reversed ones gave -0.15 or less for all plainly trained models with ratios of 20 and 100.

    Args:
        logits, labels, counts: [N, K], [N] and [K].

    Returns:
        The warning, or None.

    >>> logits = np.tile([[3.0, 1.0]], (50, 1)) + np.arange(50)[:, None] % 2 * [0.0, 0.5]
    >>> labels = np.arange(50) % 2
    >>> diagnose_reversed_counts(logits, labels, np.array([900, 30]))
    >>> type(diagnose_reversed_counts(logits, labels, np.array([30, 900]))).__name__
    'CountsWarning'
    """
    if counts.max() < 2 * counts.min():
        return None
    step = -(-len(labels) // _SAMPLES)
    predicted = logits.winners[::step] if isinstance(logits, KeptRows) else predict(logits[::step])
    labels = labels[::step]
    z = np.log(counts)
    z = (z - z.mean()) / z.std()
    sizes = np.bincount(labels, minlength=len(z))
    present = sizes > 0
    leans = z[predicted] - z[labels]
    means = np.bincount(labels, leans, len(z))[present] / sizes[present]
    squares = np.bincount(labels, leans**2, len(z))[present] / sizes[present]
    lean = float(means.mean())
    error = float(np.sqrt(((squares - means**2).clip(0) / sizes[present]).sum()) / present.sum())
    if lean >= LEANING or lean + 3 * error >= LEANING / 2:
        return None
    rare = counts <= np.median(counts)
    shares = [
        float((np.bincount(labels, rare[each], len(z))[present] / sizes[present]).mean())
        for each in (predicted, labels)
    ]
    return CountsWarning(
        f"the classes with the fewest counts are predicted too often ({shares[0]:.0%} of the predictions, "
        f"{shares[1]:.0%} of the samples, every class weighing the same), as if the counts were in reverse or of "
        "another order of the classes; check that order, unless the model was trained with strong weights for rare "
        "classes"
    )
