"""The scores that a choice is applied to: which of their axes is the classes', and whether they are of its kind.

`Tuned.apply` asks both. Scores that come weeks after the choice may be probabilities where it was tuned on
logits, or have their columns in another order; what is added to them would then decide every prediction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..support.arrays import Array, as_array, is_torch, to_numpy, widen
from ..support.errors import LevelheadError
from ..support.logits import look_like_sigmoids, looks_like_probabilities, lower_masked
from ..support.types import Kind
from .class_names import check_titles, is_series

_CERTAIN = 20  # rows that all look like probabilities, from which on they are probabilities and no accident


def classes_are_second(shape: tuple[int, ...], classes: int) -> bool:
    """Return whether scores have their classes second, as torch has them for pixels, and not last.

    Of three axes the last is taken if both may be, as tokens come in any number.

    Raises:
        LevelheadError: of more axes, both may be: an image is as wide as there are classes.

    >>> classes_are_second((8, 3, 32, 32), 3), classes_are_second((8, 32, 3), 3)
    (True, False)
    """
    if len(shape) < 3 or shape[1] != classes:
        return False
    if shape[-1] == classes and len(shape) > 3:
        reason = f"axis 1 and the last of {list(shape)} may both be the {classes} classes"
        raise LevelheadError(f"{reason}; give rows [M, {classes}]", parameter="scores")
    return shape[-1] != classes


def check_scores(
    scores: Array,
    classes: int,
    names: Sequence[str] | None,
    *,
    kind: Kind,
    multilabel: bool,
) -> Array:
    """Return scores [..., K] as floats, after checking their shape and that they are numbers.

    Args:
        scores: an array, a tensor, a data frame or a row of one.
        classes: K.
        names: of the classes, where they are known.
        kind: of the scores that it was tuned on.
        multilabel: whether samples may have several labels.

    Raises:
        LevelheadError: another number of classes or order of them, no numbers, or another kind.
    """
    # A row of a data frame is read as the frame is, by its titles.
    is_row = is_series(scores)
    if is_row:
        scores = scores.to_frame().T
    if names is not None:
        check_titles(scores, names)
    # Of tensors only the shape: to ask whether all numbers are finite would wait for their device.
    values = as_array(scores)
    if is_row:
        values = values[0]
    on_torch = is_torch(values)
    if not on_torch:
        values = _as_floats(values)
    if values.ndim < 1 or values.shape[-1] != classes:
        expected = f"expected [..., {classes}], a score for each class"
        raise LevelheadError(f"{expected}, got shape {list(values.shape)}", parameter="scores")
    if on_torch or values.size == 0:
        return values
    rows = values.reshape(-1, classes)
    if kind != "probabilities" and len(rows) >= _CERTAIN:
        _refuse_probabilities(rows, kind, multilabel)
    # A masked score, -inf, becomes the lowest number: an infinite one cannot be adjusted.
    return lower_masked(rows).reshape(values.shape)


def _refuse_probabilities(rows: np.ndarray, kind: Kind, multilabel: bool) -> None:
    """Raise LevelheadError if many rows are probabilities, and it was tuned on their logits.

    Beside numbers from 0 to 1, offsets of a few units would decide every prediction. Few rows
    may add up to 1 by accident, so it takes `_CERTAIN` of them. Those of several labels need not.
    """
    if multilabel:
        are_probabilities = look_like_sigmoids(rows)
        instead = "give the scores before the sigmoid"
    else:
        are_probabilities = looks_like_probabilities(rows)
        instead = "give the scores before the softmax"
    if are_probabilities:
        reason = f"it was tuned on {kind}, and these are probabilities"
        raise LevelheadError(f"{reason}; {instead}", parameter="scores")


def _as_floats(values: Array) -> np.ndarray:
    """Return numbers in float32 or better."""
    numbers = to_numpy(values)
    if numbers.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {numbers.dtype}", parameter="scores")
    if numbers.dtype.kind == "f":
        return widen(numbers)
    return numbers.astype(np.float64)
