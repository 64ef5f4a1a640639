"""Logits [N, K] as they come: checked once, where they enter, and told from probabilities.

`check_logits` is the whole check: numbers, of the right shape, finite (but for -inf, which masks a
class), and not probabilities or percentages by mistake. Large logits are checked part by part
(support/read.py), by `numeric_logits` and `lower_masked`.

Why probabilities are refused: to multiply a probability by a number for each class is another rule
than to multiply a logit, and adding to it yet another. With `kind="probabilities"` their logarithms
are taken, which are logits up to a constant in each row that no prediction sees.
"""

from collections.abc import Sequence

import numpy as np

from .arrays import Array, described, is_torch, to_numpy, widen
from .backend import row_max, row_min
from .errors import Advice, LevelheadError, check_choice
from .types import Kind

LARGEST_PROBABILITY = 1 + 1e-3  # a softmax in half precision rounds up
_FAR = 1e3  # only masks are so far below the largest score of their row (`raise_masked`)
_INFINITE = -1e35  # what `lower_masked` makes of -inf is less, even after it was scaled
_FIRST_ROWS = 1000  # by which kinds of scores are told apart
_MANY_ROWS = 20  # of which none has all of its numbers from 0 to 1 by accident
_PERCENTAGES = "got what looks like percentages: rows from 0 to 100 that sum to 100"


def check_logits(logits: Array, *, kind: Kind = "logits", first: int = 0) -> np.ndarray:
    """Return logits [N, K], checked: floats, finite but for -inf, which masks.

    Probabilities become their logarithms (`log_of_shares`), in float32 or better.

    Args:
        logits: [N, K].
        kind: what they are, `logits` or `probabilities`; probabilities given as logits are refused.
        first: the number of their first row, for messages, where they are part of a larger array.

    Raises:
        LevelheadError: not [N, K] numbers, not finite, or of another kind than they are said to be.

    >>> check_logits([[0.5, 0.5], [0.25, 0.75]], kind="probabilities").round(2)
    array([[-0.69, -0.69],
           [-1.39, -0.29]])
    """
    check_choice("kind", kind, ("logits", "probabilities"))
    # First what holds for either kind: numbers, finite or masked.
    values = numeric_logits(logits)
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    values = lower_masked(values, first)
    if kind == "probabilities":
        _check_probabilities(values, first)
        return log_of_shares(values)
    # They may be probabilities all the same. Percentages are asked for first, with their own
    # advice.
    if look_like_percentages(values):
        advice = Advice("kind", "probabilities", "after dividing them by 100")
        raise LevelheadError(f"expected logits, {_PERCENTAGES}", advice=advice)
    if looks_like_probabilities(values):
        got = "got what looks like probabilities: rows in [0, 1] that sum to 1"
        advice = Advice("kind", "probabilities", "to adjust their logarithms")
        raise LevelheadError(
            f"expected logits, {got}; save the values before the softmax", advice=advice
        )
    return values


def _check_probabilities(values: np.ndarray, first: int) -> None:
    """Raise LevelheadError for the first row with a number below 0 or above 1.

    Rows need not sum to 1: scores of several labels do not.
    """
    outside = np.flatnonzero(((values < 0) | (values > LARGEST_PROBABILITY)).any(axis=1))
    if not len(outside):
        return
    # Percentages have an advice of their own; else the number that is furthest out is named.
    refuse_percentages(values)
    row = values[outside[0]]
    worst = row.max()
    if row.min() < 0:
        worst = row.min()
    reason = f"expected probabilities, from 0 to 1, got {worst:g} in row {first + outside[0]}"
    raise LevelheadError(reason, advice=Advice("kind", "logits", "if these are logits"))


def read_as(kind: Kind) -> Kind:
    """Return how scores of a kind are read: `probabilities` by their logarithms, others as `logits`.

    Log-probabilities stay as they are, so that to whoever reads them they are logits.

    >>> read_as("log-probabilities"), read_as("probabilities")
    ('logits', 'probabilities')
    """
    if kind == "probabilities":
        return "probabilities"
    return "logits"


# ---- Shape -------------------------------------------------------------------------------------


def numeric_logits(logits: Array) -> np.ndarray:
    """Return logits [N, K], checked to be numbers and of that shape."""
    values = to_numpy(logits)
    check_shape(values.shape)
    if values.dtype.kind not in "fiu":
        raise LevelheadError(f"expected logits as floating-point numbers, got {described(values)}")
    return values


def check_shape(shape: Sequence[int], labels: int | None = None) -> None:
    """Check that logits [N, K] have at least one sample and two classes.

    Args:
        shape: of the logits.
        labels: how many there are: logits with as many columns, and another number of rows, are
            refused, as they seem to be transposed.

    Raises:
        LevelheadError: another shape. One score for each sample, as of a binary classifier, is told
            how to become two.

    >>> check_shape([50, 2], labels=50)  # says nothing: it fits
    """
    if len(shape) != 2 or shape[0] < 1 or shape[1] < 2:
        has_one_score = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
        aside = ""
        if has_one_score:
            pair = "; for one score z per sample, stack (0, z), of a probability p (1 - p, p)"
            aside = f"{pair}, and use a rule that adds, such as offsets"
        size = "[N, K] of at least 1 sample and 2 classes"
        raise LevelheadError(f"expected logits {size}, got shape {list(shape)}{aside}")
    if labels == shape[1] != shape[0]:
        got = f"got shape {list(shape)} and {labels} labels"
        raise LevelheadError(
            f"expected logits [N, K], one row per label, {got}; transpose the logits"
        )


def check_columns(logits: Array, classes: int, parameter: str) -> None:
    """Check that other logits than those tuned on have a column for each class.

    Args:
        logits: [M, K].
        classes: K.
        parameter: of the caller, that the message names.
    """
    if logits.ndim != 2 or logits.shape[1] != classes:
        raise LevelheadError(
            f"expected logits [M, {classes}], got shape {list(logits.shape)}", parameter=parameter
        )


# ---- Finite, or masked -------------------------------------------------------------------------


def check_finite_rows(values: np.ndarray, first: int = 0) -> None:
    """Check that logits [n, K] are finite. Rows are numbered from `first` in the message.

    One sum tells for nearly all arrays: it is finite only if every number is.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # Twice as fast as values.sum(), which rounds better.
        if np.isfinite(np.einsum("ij->", values)):
            return
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():  # a sum of finite numbers may overflow
        raise not_finite(first + int(np.argmin(finite)))


def lower_masked(values: np.ndarray, first: int = 0) -> np.ndarray:
    """Return logits [n, K], checked to be finite; -inf, a masked score, becomes the lowest number.

    Networks mask classes by -inf. A finite number can be multiplied by 0 and compared with its
    like, where -inf would become NaN.

    Args:
        values: floats.
        first: the number of their first row, for messages.

    Raises:
        LevelheadError: NaN or +inf is there, or a row in which every class is masked.

    >>> lower_masked(np.array([[1.0, -np.inf]], np.float32))
    array([[ 1.0000000e+00, -3.4028235e+38]], dtype=float32)
    """
    try:
        check_finite_rows(values, first)
    except LevelheadError:
        masked = np.isneginf(values)
        # NaN and +inf are refused, and so is a row that is masked altogether: no class is left.
        refused = (~np.isfinite(values) & ~masked).any(axis=1) | masked.all(axis=1)
        if refused.any():
            raise not_finite(first + int(np.argmax(refused))) from None
        wide = widen(values)
        return np.where(masked, np.finfo(wide.dtype).min, wide)
    return values


def not_finite(row: int) -> LevelheadError:
    """Return the error for logits that are not finite, first in a row."""
    first = f"the logits hold NaN or infinite values, first in row {row}"
    return LevelheadError(f"{first}; leave such rows out, or compute them in float32")


def raise_masked(logits: Array) -> Array:
    """Return logits [N, K] without scores far below any that matter, as masks are.

    A score is a mask if it is more than 1000 below the largest of its row, and more than 1000 times
    as far below it as the second largest usually is (`usual_distance`). Masks are raised to ten times the
    distance of other scores, or to the farthest of these. They win nowhere, before or after. Left as
    they are, they would set the scale: means and temperatures would be those of the masks.

    Args:
        logits: [N, K], finite floats, an array or a tensor.

    Returns:
        The same array where nothing is so far below; else a new one, in the same precision.

    >>> raise_masked(np.array([[3.0, 1.0, -1e9], [1.0, -1e9, 5.0]]))
    array([[  3.,   1., -57.],
           [  1., -55.,   5.]])
    """
    with np.errstate(over="ignore"):
        largest = row_max(logits)
        widest = float((largest - row_min(logits)).max())
        if widest <= _FAR:
            return logits
        usual = max(usual_distance(logits), 1.0)
        if widest <= _FAR * usual:
            return logits
        # What is no mask is left where it is, as far as 1000 rows or so can tell.
        rows = to_numpy(_some_rows(logits)).astype(np.float64)
        distances = rows.max(axis=1, keepdims=True) - rows
    kept = distances[(distances > 0) & (distances <= _FAR * usual)]
    reach = 30 * usual
    if len(kept):
        reach = max(reach, 10 * float(np.median(kept)), float(kept.max()))
    return logits.clip(largest - reach)


def usual_distance(logits: Array) -> float:
    """Return how far the second largest score of a row usually is below the largest; 0 if it never is.

    The lower quartile over about 1000 rows. However many classes are masked, the second largest score is
    no mask, but in rows that have all classes masked but one. Three quarters of the rows may be such.

    Args:
        logits: [N, K], finite floats, an array or a tensor.

    >>> usual_distance(np.array([[3.0, 1.0, -1e9], [1.0, -1e9, 5.0], [7.0, -1e9, -1e9]]))
    2.0
    """
    largest, second = _two_largest(_some_rows(logits))
    with np.errstate(over="ignore"):
        nearest = largest - second
    # Equal scores tell nothing of the scale, nor does what was -inf.
    nearest = nearest[(nearest > 0) & (second > _INFINITE)]
    if not len(nearest):
        return 0.0
    return float(np.quantile(nearest, 0.25, method="lower"))


def _some_rows(logits: Array) -> Array:
    """Return about 1000 of the rows, evenly spaced."""
    return logits[:: max(1, len(logits) // 1000)]


def _two_largest(rows: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest number of each row and the one below it, [N] each, on the host in float64.

    Those of a tensor are found where it is: two numbers a row are sooner there than all of them are here.
    """
    if is_torch(rows):
        both = to_numpy(widen(rows).topk(2, dim=1).values)[:, ::-1]
    else:
        both = np.partition(rows, -2, axis=1)[:, -2:]
    both = both.astype(np.float64)
    return both[:, 1], both[:, 0]


# ---- Probabilities -----------------------------------------------------------------------------


def log_softmax(logits: Array) -> np.ndarray:
    """Return log-probabilities [N, K], in float64.

    ``log p_k = z_k - max(z) - log sum_j exp(z_j - max(z))``: without the largest, exp would
    overflow.

    Args:
        logits: [N, K], an array, a tensor or lists.

    >>> np.exp(log_softmax([[1000.0, 1000.0]]))
    array([[0.5, 0.5]])
    """
    scores = to_numpy(logits).astype(np.float64)
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def log_of_shares(values: Array) -> Array:
    """Return the logarithms of numbers from 0 to 1, in float32 or better.

    0 becomes the smallest normal number, whose logarithm is finite. Half precision is widened first:
    its smallest is 6e-5, which offsets of a usual size raise above all other classes.

    Args:
        values: [..., K], an array or a tensor, of floats or whole numbers.

    >>> log_of_shares(np.array([1.0, 0.0], np.float16)).round(2)
    array([  0.  , -87.34], dtype=float32)
    """
    wide = widen(values)
    if is_torch(wide):
        import torch

        return wide.clamp(min=torch.finfo(wide.dtype).tiny).log()
    return np.log(np.maximum(wide, np.finfo(wide.dtype).tiny))


def looks_like_probabilities(values: np.ndarray) -> bool:
    """Return whether rows lie within [0, 1] and each sum to 1, to rounding, as after a softmax.

    Args:
        values: [N, K], of which the first 1000 rows are looked at.

    >>> looks_like_probabilities(np.array([[0.2, 0.8]])), looks_like_probabilities(np.eye(2) - 1)
    (True, False)
    >>> looks_like_probabilities(np.array([[0.33, 0.33, 0.33], [0.67, 0.17, 0.17]]))
    True
    """
    rows = np.asarray(values[:_FIRST_ROWS], np.float64)
    if not ((rows >= 0).all() and (rows <= 1).all()):
        return False
    off = 0.02  # of bfloat16, a softmax computed in it
    for decimals in (1, 2):  # as people round them; each may be off by half of the last one
        if np.allclose(rows, rows.round(decimals), rtol=0, atol=1e-6):
            off = max(off, min(0.5 * 10.0**-decimals * rows.shape[1], 0.2) + 1e-6)
    return np.allclose(rows.sum(axis=1), 1, rtol=0, atol=off)


def look_like_sigmoids(values: np.ndarray) -> bool:
    """Return whether scores of several labels [N, K] lie within [0, 1], as after a sigmoid.

    Logits are hardly ever all from 0 to 1. If all are 0 or 1 they tell nothing.

    >>> look_like_sigmoids(np.array([[0.2, 0.9]])), look_like_sigmoids(np.eye(2))
    (True, False)
    """
    inside = (values >= 0) & (values <= LARGEST_PROBABILITY)
    return bool(inside.all() and ((values > 0) & (values < 1)).any())


def refuse_one_probability(logits: Array) -> None:
    """Raise LevelheadError for (0, p) [N, 2]: a probability, stacked as a logit z is, to (0, z).

    The first class would never be predicted, and the gain be one over a model that there is not.
    About 1000 rows are looked at.

    >>> refuse_one_probability(np.array([[0, 0.2], [0, -0.7]] * 10))
    >>> refuse_one_probability(np.array([[0, 0.2], [0, 0.7]] * 10))
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: expected scores of both classes, got (0, p), ...
    """
    # `check_logits` says what is wrong with words.
    if logits.shape[1] != 2 or len(logits) < _MANY_ROWS or to_numpy(logits[:1]).dtype.kind in "USO":
        return
    rows = to_numpy(_some_rows(logits)).astype(np.float64)
    if not rows[:, 0].any() and look_like_sigmoids(rows[:, 1]):
        reason = "got (0, p), every p from 0 to 1, as probabilities are"
        instead = "give (1 - p, p), and say that they are probabilities"
        raise LevelheadError(f"expected scores of both classes, {reason}; {instead}")


def look_like_percentages(values: Array) -> bool:
    """Return whether rows [N, K] lie within [0, 100] and each sum to 100, to rounding.

    The first 1000 rows are looked at.
    """
    rows = to_numpy(values[:_FIRST_ROWS]).astype(np.float64)
    if rows.ndim != 2 or not len(rows) or not ((rows >= 0).all() and (rows <= 100).all()):
        return False
    off = 0.2
    if (rows == np.floor(rows)).all():  # whole percents may each be off by a half
        off = 2.0
    return bool((np.abs(rows.sum(axis=1) - 100) <= off).all())


def refuse_percentages(values: Array) -> None:
    """Raise LevelheadError if what should be probabilities are percentages."""
    if look_like_percentages(values):
        raise LevelheadError(f"expected probabilities, {_PERCENTAGES}; divide them by 100")


def are_log_probabilities(logits: Array) -> bool:
    """Return whether scores are logarithms of probabilities, whose sums are 1.

    Args:
        logits: [N, K]. At most 1000 rows are looked at, and their sums may be off by 0.02.

    >>> scores = np.log([[0.7, 0.3], [0.5, 0.5]])
    >>> are_log_probabilities(scores), are_log_probabilities(scores + 1)
    (True, False)
    """
    most = max(10, min(1000, 4_000_000 // logits.shape[1]))  # some millions of numbers at most
    for count in (10, most):  # most often, a few rows tell
        rows = to_numpy(logits[:count])
        if rows.dtype.kind not in "fiu":  # `check_logits` says what is wrong with them
            return False
        rows = rows.astype(np.float64)
        if not len(rows) or not (rows <= LARGEST_PROBABILITY - 1).all():
            return False
        if not (np.abs(np.exp(rows).sum(axis=1) - 1) < 0.02).all():
            return False
    return True
