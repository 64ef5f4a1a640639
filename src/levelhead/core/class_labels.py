"""Labels of samples: positions of classes, or their names, which are looked up; positions of tokens and pixels."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..support.arrays import Array, as_array, described, is_torch, to_numpy
from ..support.columns import whole_number
from ..support.errors import Advice, LevelheadError
from .class_names import are_numbers, as_mapping, check_names, first_repeated, listed

IGNORED = -100  # the label that torch's and Hugging Face's losses leave out


class Positions(np.ndarray):
    """Labels [N] that are positions of classes, whatever their names: looked up by whoever made this view."""


def as_positions(labels: Any) -> Positions:
    """Return labels that are known to be positions of classes as such: numbers in them are no names."""
    return to_numpy(labels).view(Positions)


def check_labels(labels: Any, classes: int | None = None) -> np.ndarray:
    """Return labels as int64 [N], after checking that they are class indices.

    Args:
        labels, classes: [N], integers or floats without a fraction; K, without which any label from 0 on is one.
    """
    labels = to_numpy(labels)
    if labels.ndim != 1:
        table = "of one-hot labels give labels.argmax(axis=1); several labels per sample are for lh.tune_labels"
        if labels.ndim == 2 and 1 in labels.shape:
            aside = "; give labels.ravel()"
        else:
            aside = f"; {table}"
        raise LevelheadError(f"expected labels [N], got shape {list(labels.shape)}{aside}")
    whole = (
        labels.dtype.kind == "f"
        and np.isfinite(labels).all()
        and np.all(labels == np.floor(labels))
    )
    if labels.dtype.kind not in "iub" and not whole:
        raise LevelheadError(f"expected integer labels, got {described(labels)}")
    labels = labels.astype(np.int64)
    if classes is None:
        wrong = labels < 0
    else:
        wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        at = int(np.argmax(wrong))
        top = "" if classes is None else f" to {classes - 1}"
        advice = ""
        if labels[at] == -100:
            advice = "; leave those samples out (torch's ignore_index)"
        if labels.min() == 1 and labels.max() == classes:
            advice = "; they seem to count from 1: subtract 1"
        raise LevelheadError(
            f"expected labels from 0{top}, got {labels[at]} at position {at}{advice}"
        )
    return labels


def are_names(labels: Any) -> bool:
    """Return whether labels are text, and not numbers, which may be written out."""
    values = to_numpy(labels)
    if values.dtype.kind == "O" and not any(isinstance(y, str) for y in values.flat):
        return False
    return values.dtype.kind in "UTO" and _whole_numbers(values) is None


def _whole_numbers(values: np.ndarray) -> np.ndarray | None:
    """Return labels as int64 if all are whole numbers, also those that are written out; else None."""
    if values.dtype.kind in "iuf":
        small = (np.abs(values.astype(np.float64)) < 2**53).all()  # False for NaN, too
        if small and (values == np.floor(values)).all():
            return values.astype(np.int64)
        return None
    if values.dtype.kind not in "UTO":
        return None
    unique, inverse = np.unique(values.astype(str), return_inverse=True)
    numbers = [whole_number(word) for word in unique.tolist()]
    if not numbers or any(number is None or abs(number) >= 2**63 for number in numbers):
        return None
    return np.array(numbers, np.int64)[inverse.reshape(values.shape)]


def find_labels(labels: Any, names: Sequence[str], known: str = "the classes") -> Any:
    """Return labels as positions: names are looked up, and so are numbers if all names are numbers.

    Args:
        labels: [N], or what has been looked up already.
        names: the K class names in order.
        known: what the names are of, for messages.

    >>> find_labels([20, 3, 3], ["3", "20"]).tolist(), find_labels(["1"], ["cat", "dog"]).tolist()
    ([1, 0, 0], [1])
    """
    if isinstance(labels, Positions):
        return labels
    if are_names(labels):
        words = to_numpy(labels).astype(str)
        return _look_up(words, [str(name) for name in names], names, known)
    numbers = _whole_numbers(to_numpy(labels))
    if numbers is None or not are_numbers(names):
        return labels if numbers is None else numbers  # `check_labels` says what is wrong with them
    return _look_up(numbers, [whole_number(str(name)) for name in names], names, known)


def _look_up(
    labels: np.ndarray, keys: Sequence[Any], names: Sequence[str], known: str
) -> np.ndarray:
    """Return the place of each label in keys, [N]; raise LevelheadError that lists the unknown ones."""
    if labels.ndim != 1:
        raise LevelheadError(f"expected labels [N], got shape {list(labels.shape)}")
    if (repeated := first_repeated(keys)) is not None:
        raise LevelheadError(
            f"labels are names, but two classes are called {repeated!r}; give class indices"
        )
    unique, inverse = np.unique(labels, return_inverse=True)
    index = {key: i for i, key in enumerate(keys)}
    if unknown := [repr(label) for label in unique.tolist() if label not in index]:
        classes = f"{known} are {listed(list(names))}"
        if labels.dtype.kind == "i":
            classes += ", and a number is a name where all of these are numbers"
        raise LevelheadError(f"unknown labels {listed(unknown)}; {classes}")
    places = np.array([index[label] for label in unique.tolist()], np.int64)
    return places[inverse.reshape(-1)].view(Positions)


def resolve_labels(
    logits: Array, labels: Any, counts: Any, names: Sequence[str] | None = None
) -> tuple[Any, Sequence[str] | None]:
    """Return labels as class indices, and the names of the classes where they are known."""
    # Names are looked up in `names` or, without them, in the keys of counts given as {class: n}, whose order is then
    # that of the logits' columns.
    if isinstance(labels, Positions):
        return labels, names
    if names is not None:
        return find_labels(labels, names), names
    if not are_names(labels):
        numbers = _whole_numbers(to_numpy(labels))
        return labels if numbers is None else numbers, None
    shape = as_array(logits).shape
    mapping = None
    if len(shape) == 2:
        mapping = as_mapping(counts, shape[1])
    if mapping is None or not all(isinstance(key, str) for key in mapping):
        first = next(str(label) for label in to_numpy(labels).flat if isinstance(label, str))
        unknown = f"labels are names ({first!r}, ...), but the order of the classes is not known"
        reason = f"{unknown}; give counts as {{name: n}} in the order of the logits' columns"
        advice = Advice("names", None, "to list the classes in that order")
        raise LevelheadError(reason, parameter="labels", advice=advice)
    names = check_names(list(mapping))
    indices = find_labels(labels, names, "the classes in counts")
    # Most encoders of labels sort names, and pandas' `value_counts` sorts by count. So the order of the counts is
    # doubted if alphabetical order makes more of the predictions right.
    order = sorted(names)
    if order != names and len(indices) == len(logits):
        predicted = to_numpy(logits).argmax(axis=1)
        true = np.array(names)[indices]
        right, sorted_right = (
            int((np.array(each)[predicted] == true).sum()) for each in (names, order)
        )
        if sorted_right > right:
            given = f"in the order of the counts ({listed(names)}) {right} of {len(indices)} predictions are right"
            reason = f"{given}, in alphabetical order {sorted_right}; the order of the logits' columns is in doubt"
            advice = Advice(
                "names", None, "to list the classes in the order of the logits' columns"
            )
            raise LevelheadError(reason, parameter="counts", advice=advice)
    return indices, names


def flatten_positions(
    logits: Array, labels: Any, weights: Any = None, *, ignore_index: int = IGNORED
) -> tuple[Array, Any, Any]:
    """Return logits [M, K] and labels [M] of positions, without those that are ignored; [N, K] is left as it is."""
    # Classes are the last axis, as of tokens, or the second, as torch has them for pixels; the labels [N, ...] tell
    # which. Logits are copied if classes are second or a label is ignored, also out of a memory-mapped file.
    logits = as_array(logits)
    if logits.ndim < 3:
        return logits, labels, weights
    looked_up = isinstance(labels, Positions)
    labels = to_numpy(labels)
    shape = tuple(logits.shape)
    last = shape[:-1] == labels.shape
    second = (shape[0], *shape[2:]) == labels.shape
    if last == second:
        both = "either axis could be that of the classes; make it the last and reshape both to [M, K] and [M]"
        fits = f"expected {list(shape[:-1])}, or {[shape[0], *shape[2:]]} if classes are the second axis"
        what = f"logits {list(shape)} and labels {list(labels.shape)} do not say what is what"
        raise LevelheadError(f"{what}: {both if last else fits}", parameter="labels")
    if second:
        if is_torch(logits):
            logits = logits.movedim(1, -1)
        else:
            logits = np.moveaxis(logits, 1, -1)
    logits = logits.reshape(-1, logits.shape[-1])
    labels = labels.reshape(-1)
    if looked_up:
        labels = labels.view(Positions)
    if weights is not None:
        weights = to_numpy(weights).reshape(-1)
    counted = labels != ignore_index
    if not counted.any():
        raise LevelheadError(
            f"every position has the label {ignore_index}, which is ignored", parameter="labels"
        )
    if counted.all():
        return logits, labels, weights
    if weights is not None and len(weights) == len(labels):
        weights = weights[counted]
    return logits[np.flatnonzero(counted)], labels[counted], weights


def refuse_swapped(logits: Any, labels: Any, counts: Any = None) -> None:
    """Raise LevelheadError if logits, which are a table, stand where labels or counts belong."""
    if len(getattr(logits, "shape", ())) > 1 or isinstance(logits, Mapping):
        return
    values = to_numpy(logits)
    if values.ndim != 1 or _whole_numbers(values) is None:
        return
    expected = "expected logits [N, K], labels [N], counts [K]"
    for name, other in (("labels", labels), ("counts", counts)):
        shape = getattr(other, "shape", ())
        if len(shape) == 2 and shape[1] > 1:
            raise LevelheadError(f"logits and {name} are swapped: {expected}")


def refuse_label_table(labels: Any) -> None:
    """Raise LevelheadError if labels are a table [N, K]: those of several labels per sample, or one-hot."""
    found = to_numpy(labels)
    if found.ndim != 2 or found.shape[1] < 2:
        return
    one_hot = found.dtype.kind in "biuf" and ((found != 0).sum(axis=1) == 1).all()
    aside = ""
    if one_hot:
        aside = "; if they are one-hot, pass labels.argmax(axis=1)"
    expected = f"expected one class per sample, [N], got a table {list(found.shape)}{aside}"
    several = "several labels per sample are for lh.tune_labels, or the task multilabel"
    raise LevelheadError(f"{expected}; {several}", parameter="labels")
