"""Labels of samples: positions of classes, or their names, which are looked up; labels of tokens and pixels.

The road of labels as users give them: `flatten_positions` makes rows of tokens and pixels, `resolve_labels`
looks up names (`find_labels`) in the class names or in the keys of the counts, and `check_labels` checks that
what came of it are positions of classes. `refuse_swapped` and `refuse_label_table` recognize usual mistakes
before that.

What was looked up once must not be looked up again: where all names are numbers, position 1 may be the class
called "7", and a second look-up would take 1 for a name. So looked-up labels are a view of a type of their own,
`Positions`, which every function here lets through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..support.arrays import Array, as_array, described, move_axis, to_numpy
from ..support.columns import whole_number
from ..support.errors import Advice, LevelheadError
from .class_names import are_numbers, as_mapping, as_names, check_names, first_repeated, listed

# What whoever gives a table of labels may have wanted; the command line has the task as an option.
SEVERAL_LABELS = "several labels per sample are for lh.tune_labels, or the task multilabel"
MOST_CLASSES = 100_000_000  # where nobody says how many: a number for each of them takes 800 MB
IGNORED = -100  # the label that torch's and Hugging Face's losses leave out


class Positions(np.ndarray):
    """Labels [N] that are positions of classes, whatever their names: looked up by whoever made this view."""


def as_positions(labels: Array) -> Positions:
    """Return labels that are known to be positions of classes as such: numbers in them are no names."""
    return to_numpy(labels).view(Positions)


def check_labels(labels: Array, classes: int | None = None) -> np.ndarray:
    """Return labels as int64 [N], after checking that they are positions of classes.

    Args:
        labels: [N], integers, or floats without a fraction.
        classes: K; any label from 0 on is one if None, below `MOST_CLASSES`.

    Raises:
        LevelheadError: the first label that is no class, with its position; or another shape. Usual
            reasons are recognized: one-hot labels, labels that count from 1, torch's ignore_index.

    >>> check_labels([0.0, 2.0], 3)
    array([0, 2])
    """
    # A vector of whole numbers, whatever type they are kept in.
    labels = to_numpy(labels)
    if labels.ndim != 1:
        instead = "of one-hot labels give labels.argmax(axis=1)"
        instead += f"; {SEVERAL_LABELS}"
        if labels.ndim == 2 and 1 in labels.shape:
            instead = "give labels.ravel()"
        raise LevelheadError(f"expected labels [N], got shape {list(labels.shape)}; {instead}")
    whole = labels.dtype.kind in "iub"
    if labels.dtype.kind == "f":
        labels = labels.astype(np.float64)
        whole = bool(np.isfinite(labels).all() and (labels == np.floor(labels)).all())
    if not whole:
        raise LevelheadError(f"expected integer labels, got {described(labels)}")
    # Each is one of the classes: seen before they become int64, which does not hold every number.
    most = MOST_CLASSES
    if classes is not None:
        most = classes
    wrong = (labels < 0) | (labels >= most)
    if wrong.any():
        raise _label_error(labels, int(np.argmax(wrong)), classes)
    return labels.astype(np.int64)


def check_one_per_row(labels: np.ndarray, rows: int) -> None:
    """Raise LevelheadError unless there is a label for each row of the logits, and none more.

    Args:
        labels: [N], checked.
        rows: of the logits.

    >>> check_one_per_row(np.array([0, 1]), 3)
    Traceback (most recent call last):
    levelhead.support.errors.LevelheadError: expected one label per row of logits, got 2 labels and 3 rows
    """
    if len(labels) != rows:
        lengths_text = f"got {len(labels)} labels and {rows} rows"
        raise LevelheadError(f"expected one label per row of logits, {lengths_text}")


def _label_error(labels: np.ndarray, at: int, classes: int | None) -> LevelheadError:
    """Return what is wrong with the label at a position, which is no class, and a likely reason.

    Args:
        labels: [N], whole numbers.
        at: the position of the first that is none.
        classes: K, where it is known.
    """
    last = ""
    if classes is not None:
        last = f" to {classes - 1}"
    elif labels[at] > 0:
        last = f" to {MOST_CLASSES - 1}"
    advice = ""
    if labels[at] == IGNORED:
        advice = "; leave those samples out (torch's ignore_index)"
    if labels.min() == 1 and labels.max() == classes:
        advice = "; they seem to count from 1: subtract 1"
    return LevelheadError(
        f"expected labels from 0{last}, got {int(labels[at])} at position {at}{advice}"
    )


def are_names(labels: Array) -> bool:
    """Return whether labels are text, and not numbers, which may be written out.

    A CSV has numbers as text; they are positions all the same, unless class names say otherwise.

    >>> are_names(["cat", "dog"]), are_names(["0", "1"]), are_names([0, 1])
    (True, False, False)
    """
    values = to_numpy(labels)
    if values.dtype.kind == "O" and not any(isinstance(y, str) for y in values.flat):
        return False
    return values.dtype.kind in "UTO" and _whole_numbers(values) is None


def _whole_numbers(values: np.ndarray) -> np.ndarray | None:
    """Return labels as int64 if all are whole numbers, also those that are written out; else None.

    Labels that are bools are 0 and 1.
    """
    if values.dtype.kind == "b":
        return values.astype(np.int64)
    if values.dtype.kind in "iuf":
        # Beyond 2^53 a float64 does not hold every whole number. False for NaN, too.
        small = (np.abs(values.astype(np.float64)) < 2**53).all()
        if small and (values == np.floor(values)).all():
            return values.astype(np.int64)
        return None
    if values.dtype.kind not in "UTO":
        return None
    # Each word is looked at once, however often it occurs.
    unique, inverse = np.unique(values.astype(str), return_inverse=True)
    numbers = [whole_number(word) for word in unique.tolist()]
    if not numbers or any(number is None or abs(number) >= 2**63 for number in numbers):
        return None
    return np.array(numbers, np.int64)[inverse.reshape(values.shape)]


def find_labels(labels: Array, names: Sequence[str], source: str = "the classes") -> Array:
    """Return labels as positions: names are looked up, and so are numbers if all names are numbers.

    Bools, fractions and members of an Enum are names if all of them are written as the names are.

    Args:
        labels: [N], or what has been looked up already.
        names: the K class names in order.
        source: what the names are of, for messages.

    Returns:
        `Positions` [N] of what was looked up; numbers that are positions already, as int64; and what is
        neither as it came, for `check_labels` to refuse.

    Raises:
        LevelheadError: labels that are none of the names, or two classes of one name.

    >>> find_labels([20, 3, 3], ["3", "20"]).tolist(), find_labels(["1"], ["cat", "dog"]).tolist()
    ([1, 0, 0], [1])
    """
    if isinstance(labels, Positions):
        return labels
    values = to_numpy(labels)
    words = [str(name) for name in names]
    if are_names(values):
        return _look_up(values.astype(str), words, names, source)
    if values.dtype.kind == "b":  # True in Python is true in JSON and in tables
        words = [word.capitalize() for word in words]
    numbers = _whole_numbers(values)
    if (numbers is None or values.dtype.kind == "b") and _are_written_as(values, words):
        return _look_up(values.astype(str), words, names, source)
    if numbers is None:
        return labels  # `check_labels` says what is wrong with them
    if not are_numbers(names):
        return numbers
    return _look_up(numbers, [whole_number(str(name)) for name in names], names, source)


def _are_written_as(values: np.ndarray, words: Sequence[str]) -> bool:
    """Return whether labels, such as bools or members of an Enum, are written as some of the words."""
    if values.dtype.kind == "O":  # what is in them need not have an order
        values = values.astype(str)
    return set(np.unique(values).astype(str).tolist()) <= set(words)


def _look_up(
    labels: np.ndarray, keys: Sequence[str | int | None], names: Sequence[str], source: str
) -> Positions:
    """Return the place of each label in keys, [N]; raise LevelheadError that lists the unknown ones.

    Args:
        labels: [N], words or numbers.
        keys: the K class names, in the same form.
        names: the K class names as they were given, for a message.
        source: what the names are of, for a message.
    """
    if labels.ndim != 1:
        raise LevelheadError(f"expected labels [N], got shape {list(labels.shape)}")
    repeated = first_repeated(keys)
    if repeated is not None:
        raise LevelheadError(
            f"labels are names, but two classes are called {repeated!r}; give class indices"
        )
    # Each distinct label is looked up once, however many samples have it.
    unique, inverse = np.unique(labels, return_inverse=True)
    index = {key: i for i, key in enumerate(keys)}
    unknown = [repr(label) for label in unique.tolist() if label not in index]
    if unknown:
        classes = f"{source} are {listed(list(names))}"
        if labels.dtype.kind == "i":
            classes += ", and a number is a name where all of these are numbers"
        raise LevelheadError(f"unknown labels {listed(unknown)}; {classes}")
    places = np.array([index[label] for label in unique.tolist()], np.int64)
    return places[inverse.reshape(-1)].view(Positions)


def resolve_labels(
    logits: Array, labels: Array, counts: object, names: Sequence[str] | None = None
) -> tuple[Array, Sequence[str] | None]:
    """Return labels as positions of classes, and the names of the classes where they are known.

    Names are looked up in `names` or, without them, in the keys of counts given as {class: n}, whose
    order is then that of the logits' columns.

    Args:
        logits: [N, K].
        labels: [N], positions or names. Positions are not checked yet.
        counts: training counts in any form.
        names: the K class names in order.

    Raises:
        LevelheadError: labels are names, and nothing says which column of the logits each is; or the
            order of the counts seems not to be that of the columns (`_doubt_order`).
    """
    if isinstance(labels, Positions):
        return labels, names
    if names is not None:
        names = as_names(names)
        return find_labels(labels, names), names
    if not are_names(labels):
        numbers = _whole_numbers(to_numpy(labels))
        if numbers is None:
            return labels, None
        return numbers, None

    # Labels are names, and only the counts may say which class is which.
    shape = as_array(logits).shape
    mapping = None
    if len(shape) == 2:
        mapping = as_mapping(counts, shape[1])
    keys = [key for key in mapping or () if isinstance(key, str)]
    if mapping is None or len(keys) < len(mapping):
        first = next(str(label) for label in to_numpy(labels).flat if isinstance(label, str))
        unknown = f"labels are names ({first!r}, ...), but the order of the classes is not known"
        reason = f"{unknown}; give counts as {{name: n}} in the order of the logits' columns"
        advice = Advice("names", None, "to list the classes in that order")
        raise LevelheadError(reason, parameter="labels", advice=advice)
    names = check_names(keys)
    positions = find_labels(labels, names, "the classes in counts")
    if len(positions) == len(logits):
        _doubt_order(logits, positions, names)
    return positions, names


def _doubt_order(logits: Array, labels: np.ndarray, names: list[str]) -> None:
    """Raise LevelheadError if alphabetical order of the classes makes more predictions right.

    Most encoders of labels sort names, and pandas' `value_counts` sorts by count: counts in that
    order then say nothing about the columns of the logits.

    Args:
        logits: [N, K].
        labels: [N], positions among the names.
        names: of the classes, in the order of the counts.
    """
    alphabetical = sorted(names)
    if alphabetical == names:
        return
    # The same predictions, by what each column would be called in either order.
    predicted = to_numpy(logits).argmax(axis=1)
    true = np.array(names)[labels]
    right = int((np.array(names)[predicted] == true).sum())
    sorted_right = int((np.array(alphabetical)[predicted] == true).sum())
    if sorted_right <= right:
        return
    as_counted = f"in the order of the counts ({listed(names)}) {right} of {len(labels)} predictions are right"
    doubt = f"in alphabetical order {sorted_right}; the order of the logits' columns is in doubt"
    advice = Advice("names", None, "to list the classes in the order of the logits' columns")
    raise LevelheadError(f"{as_counted}, {doubt}", parameter="counts", advice=advice)


def flatten_positions(
    logits: Array, labels: Array, weights: Array = None, *, ignore_index: int = IGNORED
) -> tuple[Array, Array, Array]:
    """Return logits [M, K] and labels [M] of tokens or pixels, without those that are ignored.

    Logits are copied if classes are second or a label is ignored, also out of a memory-mapped file.

    Args:
        logits: [N, ..., K], as of tokens, or [N, K, ...], as torch has them for pixels; the labels
            tell which. [N, K] is left as it is.
        labels: [N, ...].
        weights: [N, ...], of the positions, or None.
        ignore_index: the label that is left out.

    Returns:
        Logits [M, K], labels [M] and weights [M], or None.

    Raises:
        LevelheadError: shapes that do not say which axis is that of the classes, or nothing but ignored
            labels.

    >>> logits, labels, _ = flatten_positions(np.zeros((2, 3, 5)), np.array([[0, 1, -100], [2, -100, 4]]))
    >>> logits.shape, labels
    ((4, 5), array([0, 1, 2, 4]))
    """
    # [N, K] is what all else expects; what is wrong with other shapes is said there.
    logits = as_array(logits)
    if logits.ndim < 3:
        return logits, labels, weights
    looked_up = isinstance(labels, Positions)
    labels = to_numpy(labels)
    if _classes_are_second(tuple(logits.shape), labels.shape):
        logits = move_axis(logits, 1, -1)
    logits = logits.reshape(-1, logits.shape[-1])
    labels = labels.reshape(-1)
    if looked_up:
        labels = labels.view(Positions)
    if weights is not None:
        weights = to_numpy(weights).reshape(-1)

    # Without what is ignored, such as padding.
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


def _classes_are_second(logits: tuple[int, ...], labels: tuple[int, ...]) -> bool:
    """Return whether the second axis of logits is that of the classes, and not the last, by both shapes.

    Labels have all axes of the logits but that of the classes. If both axes fit, as of [2, 5, 5] with
    labels [2, 5], it is refused: a wrong guess would look like a bad model.

    Args:
        logits, labels: their shapes.
    """
    if_last = logits[:-1]
    if_second = (logits[0], *logits[2:])
    fits_last = if_last == labels
    fits_second = if_second == labels
    if fits_last != fits_second:
        return fits_second
    instead = f"expected {list(if_last)}, or {list(if_second)} if classes are the second axis"
    if fits_last:
        instead = "either axis could be that of the classes; make it the last and reshape both to [M, K] and [M]"
    unclear = f"logits {list(logits)} and labels {list(labels)} do not say what is what"
    raise LevelheadError(f"{unclear}: {instead}", parameter="labels")


def refuse_swapped(logits: Array, labels: Array, counts: object = None) -> None:
    """Raise LevelheadError if logits, which are a table, stand where labels or counts belong.

    That is seen by whole numbers [N] in the place of the logits, and a table in another place.
    """
    if len(getattr(logits, "shape", ())) > 1 or isinstance(logits, Mapping):
        return
    # A vector of whole numbers may be labels or counts, but never logits.
    values = to_numpy(logits)
    if values.ndim != 1 or _whole_numbers(values) is None:
        return
    expected = "expected logits [N, K], labels [N], counts [K]"
    for name, other in (("labels", labels), ("counts", counts)):
        shape = getattr(other, "shape", ())
        if len(shape) == 2 and shape[1] > 1:
            raise LevelheadError(f"logits and {name} are swapped: {expected}")


def refuse_label_table(labels: Array) -> None:
    """Raise LevelheadError if labels are a table [N, K]: those of several labels per sample, or one-hot.

    A column [N, 1] is no such table; `check_labels` says what to do with it.
    """
    table = to_numpy(labels)
    if table.ndim != 2 or table.shape[1] < 2:
        return
    one_hot = table.dtype.kind in "biuf" and ((table != 0).sum(axis=1) == 1).all()
    aside = ""
    if one_hot:
        aside = "; if they are one-hot, pass labels.argmax(axis=1)"
    expected = f"expected one class per sample, [N], got a table {list(table.shape)}{aside}"
    raise LevelheadError(f"{expected}; {SEVERAL_LABELS}", parameter="labels")
