"""How many training samples each class has: counted, profiled, grouped and checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..support.arrays import Array, as_array, check_shape, described, is_torch, to_numpy
from ..support.errors import Advice, LevelheadError, check_choice
from ..support.types import Missing
from .class_names import (
    as_mapping,
    check_names,
    find_classes,
    first_repeated,
    in_order,
    listed,
    title,
)

__all__ = ["check_labels", "groups", "long_tail", "of", "resolve", "step", "with_background"]

IGNORED = -100  # the label that torch's and Hugging Face's losses leave out
Counts = Any  # a list, an array, {class: n}, or the labels themselves


def of(
    labels: Any, *, classes: int | None = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Return how many labels each class has, [K].

    Args:
        labels: [N] class indices, or names if `names` lists them.
        classes: K; one more than the largest label if not given.
        names: the K class names in order.

    >>> of([0, 0, 2, 1, 0])
    array([3, 1, 1])
    """
    labels = to_numpy(labels)
    if classes is None and names is not None:
        classes = len(names)
    if names is not None and labels.dtype.kind in "UO":
        index, labels = (
            {str(name): i for i, name in enumerate(names)},
            [str(label) for label in labels.tolist()],
        )
        if unknown := sorted(set(labels) - index.keys()):
            raise LevelheadError(
                f"unknown class name {unknown[0]!r}; the classes are {listed(names)}"
            )
        labels = [index[label] for label in labels]
    return np.bincount(check_labels(labels, classes), minlength=classes or 0)


def check_labels(labels: Any, classes: int | None = None) -> np.ndarray:
    """Return labels as int64 [N], after checking that they are class indices.

    Args:
        labels, classes: [N], integers or floats without a fraction; K, without which any label from 0 on is one.
    """
    labels = to_numpy(labels)
    if labels.ndim != 1:
        table = "of one-hot labels give labels.argmax(axis=1); several labels per sample are for lh.tune_labels"
        aside = "; give labels.ravel()" if labels.ndim == 2 and 1 in labels.shape else f"; {table}"
        raise LevelheadError(f"expected labels [N], got shape {list(labels.shape)}{aside}")
    whole = (
        labels.dtype.kind == "f"
        and np.isfinite(labels).all()
        and np.all(labels == np.floor(labels))
    )
    if labels.dtype.kind not in "iub" and not whole:
        raise LevelheadError(f"expected integer labels, got {described(labels)}")
    labels = labels.astype(np.int64)
    wrong = (labels < 0) if classes is None else (labels < 0) | (labels >= classes)
    if wrong.any():
        at, top = int(np.argmax(wrong)), "" if classes is None else f" to {classes - 1}"
        advice = "; leave those samples out (torch's ignore_index)" if labels[at] == -100 else ""
        if labels.min() == 1 and labels.max() == classes:
            advice = "; they seem to count from 1: subtract 1"
        raise LevelheadError(
            f"expected labels from 0{top}, got {labels[at]} at position {at}{advice}"
        )
    return labels


def long_tail(largest: int, classes: int, ratio: float) -> np.ndarray:
    """Return the counts [K] of an exponential long tail: ``n_i = int(n_1 (1 / ratio)^(i / (K - 1)))``, at least 1.

    Args:
        largest, classes, ratio: n_1, the count of the first class; K, where i is 0 .. K - 1; of the first to the last.

    >>> long_tail(5000, 10, 100).tolist()
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    _check_profile(largest, classes, ratio)
    return np.array(
        [max(1, int(largest * (1 / ratio) ** (i / max(1, classes - 1)))) for i in range(classes)]
    )


def step(largest: int, classes: int, ratio: float) -> np.ndarray:
    """Return the counts [K] of a step: the first half keeps n_1, the last half gets ``int(n_1 / ratio)``, at least 1.

    Args:
        largest, classes, ratio: n_1; K; of the large counts to the small ones.
    """
    _check_profile(largest, classes, ratio)
    return np.where(
        np.arange(classes) < classes - classes // 2, largest, max(1, int(largest / ratio))
    )


def groups(counts: Counts, *, many: int = 100, few: int = 20) -> dict[str, np.ndarray]:
    """Return {group: class indices}: many-shot (n > 100), medium-shot (20 to 100), few-shot (n < 20), none empty.

    Args:
        counts, many, few: of each class; those with more than `many` are many-shot, with fewer than `few` few-shot.

    >>> {name: members.tolist() for name, members in groups([500, 100, 7, 20]).items()}
    {'many': [0], 'medium': [1, 3], 'few': [2]}

    Reference: Liu et al., Large-Scale Long-Tailed Recognition in an Open World, 2019.
    """
    n = _values(counts, None, None)
    masks = {"many": n > many, "medium": (n <= many) & (n >= few), "few": n < few}
    return {name: np.flatnonzero(mask) for name, mask in masks.items() if mask.any()}


@dataclass(frozen=True, eq=False)
class WithBackground:
    """Counts with a class that every rule leaves alone: what `with_background` returns."""

    counts: Counts
    background: int | str


def with_background(counts: Counts, background: int | str) -> WithBackground:
    """Return counts for `tune` with a class that every rule leaves alone, such as "no object" in detection.

    Its scores stay as they are, and its count is no n_max. It is a class of the metric like the others.

    Args:
        counts, background: training samples of each class; the class, by index or known name.

    >>> resolve(with_background([900000, 70, 30], 0)).tolist()
    [70, 70, 30]
    """
    return WithBackground(counts, background)


def resolve(
    counts: Counts,
    classes: int | None = None,
    *,
    names: Sequence[str] | None = None,
    missing: Missing | None = None,
    background: int | str | None = None,
) -> np.ndarray:
    """Return counts [K], int64 and all positive, from whatever form the user has them in.

    Args:
        counts: what the training loss saw: samples after resampling, or times the class weights. K counts in class
            order; {class: n} or a pandas Series, by index or known name; or labels to count.
            More than K integers are labels if all are classes, and either every class occurs or there are more than
            2 K; otherwise they are counts.
        classes, names: K and the K class names, where they are known.
        missing: what to do with a class without samples: `error`, or `neutral`, which gives it the largest count. None
            is `error` for functions without such a parameter: the message then does not name it.
        background: a class that every rule leaves alone, by index or known name, such as "no object" in detection: it
            gets the largest count of the others, whatever its own, which may be 0.

    >>> resolve({"1": 30, "0": 70}, 2).tolist()
    [70, 30]
    """
    if isinstance(counts, WithBackground):
        counts, background = counts.counts, counts.background
    if missing is not None:
        check_choice("missing", missing, ("error", "neutral"))
    if names is not None:
        names = list(names)
        classes = len(names) if classes is None else classes
        if len(names) != classes:
            raise LevelheadError(f"expected {classes} class names, got {len(names)}")
    values = _values(counts, classes, names)
    if classes is not None and len(values) != classes:
        titled = (
            len(values) == classes + 1 and values[0] == 0
        )  # pandas writes 0 over a column without a name
        aside = (
            "; if the first, 0, is a title, leave it out: header=False in pandas" if titled else ""
        )
        raise LevelheadError(f"expected {classes} counts, one per class, got {len(values)}{aside}")
    if len(values) == 0:
        raise LevelheadError("expected one count per class, got none")
    if background is not None:
        alone = find_background(background, len(values), names)
        if len(values) == 1:
            raise LevelheadError(
                "expected a class next to the background, got none", parameter="background"
            )
        values = np.where(
            np.arange(len(values)) == alone, np.delete(values, alone).max(), values
        )  # no rule moves that
    with np.errstate(invalid="ignore"):
        valid = (values > 0) & (values <= 2**53) & (values == np.floor(values))
    for i in np.flatnonzero(~valid).tolist():
        if missing != "neutral" or values[i] != 0:
            raise _count_error(values[i].item(), title(i, names), missing)
    values = values.astype(np.int64)
    if not values.any():
        raise LevelheadError("every class has a count of 0")
    return np.where(values == 0, values.max(), values)


def likely_classes(counts: Counts | None) -> int | None:
    """Return how many classes counts are likely to be of; None if that cannot be told."""
    if isinstance(counts, WithBackground):
        counts = counts.counts
    sized = hasattr(counts, "__len__") and getattr(counts, "shape", None) != ()
    return len(counts) if sized else None  # type: ignore[arg-type]


def check_left_alone(
    scale: np.ndarray,
    offset: np.ndarray,
    background: int | str | None,
    names: Sequence[str] | None,
) -> None:
    """Raise LevelheadError if an adjustment by a scale and an offset, [K], would change the background."""
    if background is None:
        return
    alone = find_background(background, len(scale), names)
    if scale[alone] != 1 or offset[alone] != 0:
        change = f"{title(alone, names)} would change: the choice was made without a background"
        raise LevelheadError(f"{change}; tune with it", parameter="background")


def find_background(background: int | str, classes: int, names: Sequence[str] | None) -> int:
    """Return the index of the background, which is given by index or by known name."""
    try:
        if isinstance(background, bool):
            raise LevelheadError(f"got {background}")
        return find_classes([background], classes, names, what="class")[0]
    except LevelheadError as error:
        raise LevelheadError(
            f"expected the index or the name of one class ({error})", parameter="background"
        ) from None


def _count_error(n: float, name: str, missing: Missing | None) -> LevelheadError:
    if n == 0:
        aside = (
            "; leave it out, or give it the largest count, which leaves it as it is"
            if missing is None
            else ""
        )
        advice = None if missing is None else Advice("missing", "neutral", "to leave it as it is")
        return LevelheadError(f"{name} has no samples{aside}", advice=advice)
    flaw = f"negative ({n:g})" if n < 0 else f"fractional ({n:g}); give samples, not shares"
    if not np.isfinite(n) or n > 2**53:  # beyond, a float64 does not hold every whole number
        flaw = f"{n}; expected a whole number of samples"
    return LevelheadError(f"the count of {name} is {flaw}")


def _values(counts: Counts, classes: int | None, names: Sequence[str] | None) -> np.ndarray:
    """Return counts as float64 [K], not yet checked; labels are counted."""
    if (mapping := as_mapping(counts, classes)) is not None:
        return in_order(mapping, classes, names)
    if isinstance(counts, str | Path):
        raise LevelheadError(f"expected counts, got the text {str(counts)!r}; read the file first")
    try:
        values = to_numpy(counts)
    except ValueError:
        raise LevelheadError(
            "expected one count per class, got rows of different lengths"
        ) from None
    if values.ndim != 1:
        raise LevelheadError(f"expected one count per class, got shape {list(values.shape)}")
    if values.dtype.kind in "UO" and len(values) and isinstance(values[0], str):
        if names is not None:
            return of(values, names=names).astype(np.float64)
        if classes is not None and len(values) > classes:
            order = "to list the classes in the order of the logits' columns"
            unknown = f"training labels are names ({str(values[0])!r}), but class names are not known here"
            raise LevelheadError(unknown, advice=Advice("names", None, order))
    if values.dtype.kind not in "iubf":
        for i, value in enumerate(values.tolist()):
            try:
                float(value)
            except (TypeError, ValueError, OverflowError) as error:
                got = (
                    f"a number of {len(str(value))} digits"
                    if isinstance(error, OverflowError)
                    else repr(value)
                )
                raise LevelheadError(
                    f"expected counts as numbers, got {got} for class {i}"
                ) from None
        raise LevelheadError(f"expected counts as numbers, got {described(values)}")
    if classes is not None and len(values) > classes and values.dtype.kind in "iu":
        inside = (values >= 0) & (values < classes)
        if inside.all() and (len(np.unique(values)) == classes or len(values) > 2 * classes):
            return np.bincount(values.astype(np.int64), minlength=classes).astype(np.float64)
    return values.astype(np.float64)


def _check_profile(largest: int, classes: int, ratio: float) -> None:
    if not (np.isfinite(ratio) and ratio >= 1):
        raise LevelheadError(
            f"expected an imbalance ratio of at least 1, got {ratio}", parameter="ratio"
        )
    if largest < 1 or classes < 1:
        raise LevelheadError(
            f"expected at least one class and one sample, got {classes} classes of {largest}"
        )


def are_names(labels: Any) -> bool:
    """Return whether labels are text, not class indices."""
    values = to_numpy(labels)
    return values.dtype.kind in "UT" or (
        values.dtype.kind == "O" and any(isinstance(y, str) for y in values.flat)
    )


def index_labels(labels: Any, names: Sequence[str], known: str = "the classes") -> np.ndarray:
    """Return the class index of each label that is a name, [N]; raise LevelheadError that lists the unknown ones."""
    values = to_numpy(labels)
    if values.ndim != 1:
        raise LevelheadError(f"expected labels [N], got shape {list(values.shape)}")
    unique, inverse = np.unique(
        np.array([str(label) for label in values.tolist()]), return_inverse=True
    )
    if (repeated := first_repeated(map(str, names))) is not None:
        raise LevelheadError(
            f"labels are names, but two classes are called {repeated!r}; give class indices"
        )
    index = {str(name): i for i, name in enumerate(names)}
    if unknown := [repr(str(label)) for label in unique if label not in index]:
        raise LevelheadError(f"unknown labels {listed(unknown)}; {known} are {listed(list(names))}")
    return np.array([index[label] for label in unique], np.int64)[inverse.reshape(-1)]


def resolve_labels(
    logits: Array, labels: Any, counts: Any, names: Sequence[str] | None = None
) -> tuple[Any, Sequence[str] | None]:
    """Return labels as class indices, and the names of the classes where they are known."""
    # Names are looked up in `names` or, without them, in the keys of counts given as {class: n}, whose order is then
    # that of the logits' columns.
    shape = as_array(logits).shape
    mapping = as_mapping(counts, shape[1]) if len(shape) == 2 else None
    if names is not None or not are_names(labels):
        return (
            index_labels(labels, names) if names is not None and are_names(labels) else labels
        ), names
    if mapping is None or not all(isinstance(key, str) for key in mapping):
        first = next(str(label) for label in to_numpy(labels).flat if isinstance(label, str))
        unknown = f"labels are names ({first!r}, ...), but the order of the classes is not known"
        reason = f"{unknown}; give counts as {{name: n}} in the order of the logits' columns"
        advice = Advice("names", None, "to list the classes in that order")
        raise LevelheadError(reason, parameter="labels", advice=advice)
    names = check_names(list(mapping))
    indices = index_labels(labels, names, "the classes in counts")
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
    labels, shape = to_numpy(labels), tuple(logits.shape)
    last, second = shape[:-1] == labels.shape, (shape[0], *shape[2:]) == labels.shape
    if last == second:
        both = "either axis could be that of the classes; make it the last and reshape both to [M, K] and [M]"
        fits = f"expected {list(shape[:-1])}, or {[shape[0], *shape[2:]]} if classes are the second axis"
        what = f"logits {list(shape)} and labels {list(labels.shape)} do not say what is what"
        raise LevelheadError(f"{what}: {both if last else fits}", parameter="labels")
    if second:
        logits = logits.movedim(1, -1) if is_torch(logits) else np.moveaxis(logits, 1, -1)
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    weights = None if weights is None else to_numpy(weights).reshape(-1)
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


def refuse_label_table(labels: Any) -> None:
    """Raise LevelheadError if labels are a table [N, K]: those of several labels per sample, or one-hot."""
    found = to_numpy(labels)
    if found.ndim != 2 or found.shape[1] < 2:
        return
    one_hot = found.dtype.kind in "biuf" and ((found != 0).sum(axis=1) == 1).all()
    aside = "; if they are one-hot, pass labels.argmax(axis=1)" if one_hot else ""
    expected = f"expected one class per sample, [N], got a table {list(found.shape)}{aside}"
    several = "several labels per sample are for lh.tune_labels, or the task multilabel"
    raise LevelheadError(f"{expected}; {several}", parameter="labels")


def check_samples(
    logits: Array, labels: Array, counts: Counts, names: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels [N] and counts [K] that fit logits [N, K], checked; the logits' numbers are not read here."""
    turned = len(logits.shape) == 2 and (len(labels), np.size(counts)) == tuple(logits.shape[::-1])
    if turned and logits.shape[0] > logits.shape[1]:  # else it is the logits that are transposed
        raise LevelheadError(
            "labels and counts are swapped: expected logits [N, K], labels [N], counts [K]"
        )
    check_shape(logits.shape, len(labels))
    n = resolve(counts, logits.shape[1], names=names)
    found = check_labels(labels, len(n))
    if len(found) != len(logits):
        raise LevelheadError(
            f"expected one label per row of logits, got {len(found)} labels and {len(logits)} rows"
        )
    return found, n
