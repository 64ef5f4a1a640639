"""How many training samples each class has: counted, profiled, grouped and checked.

Users give counts in many forms. `resolve` turns each into numbers [K], all positive: `_values` finds what was
meant (a list, {class: n}, or labels to be counted), and the rest checks it. `check_samples` checks logits,
labels and counts against each other. `long_tail` and `step` make counts of imbalanced sets.

Counts are n_k everywhere in the library: what the training loss saw of each class. The largest of them is n_1 of
the paper, whatever the order of the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..support.arrays import Array, described, to_numpy
from ..support.errors import Advice, LevelheadError, check_choice
from ..support.logits import check_shape
from ..support.types import Missing
from .class_labels import are_names, check_labels, check_one_per_row, find_labels
from .class_names import are_numbers, as_mapping, as_names, find_classes, in_order, title

__all__ = ["check_labels", "groups", "long_tail", "of", "resolve", "step", "with_background"]

# A list, an array, a tensor, {class: n}, a pandas Series, the labels themselves, or `WithBackground`.
Counts = Any


_LARGEST_COUNT = 2**53  # beyond, a float64 does not hold every whole number


def of(
    labels: Array, *, classes: int | None = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Return how many labels each class has, [K].

    Args:
        labels: [N], positions, or names if `names` lists them.
        classes: K; one more than the largest label if not given.
        names: the K class names in order.

    >>> of([0, 0, 2, 1, 0])
    array([3, 1, 1])
    """
    if names is not None:
        names = as_names(names, classes)
        classes = len(names)
        labels = find_labels(labels, names)
    return np.bincount(check_labels(labels, classes), minlength=classes or 0)


def long_tail(largest: int, classes: int, ratio: float) -> np.ndarray:
    """Return the counts [K] of an exponential long tail.

    ``n_i = int(n_1 (1 / ratio)^(i / (K - 1)))`` for i from 0 to K - 1, at least 1.

    Args:
        largest: n_1, the count of the first class.
        classes: K.
        ratio: of the first count to the last, at least 1.

    Raises:
        LevelheadError: a ratio below 1, or no class or sample.

    >>> long_tail(5000, 10, 100).tolist()
    [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    _check_profile(largest, classes, ratio)
    counts = []
    for i in range(classes):
        share = (1 / ratio) ** (i / max(1, classes - 1))
        counts.append(max(1, int(largest * share)))
    return np.array(counts)


def step(largest: int, classes: int, ratio: float) -> np.ndarray:
    """Return the counts [K] of a step: one half keeps n_1, the other gets ``int(n_1 / ratio)``.

    The other profile of imbalanced benchmarks: half of the classes frequent, half rare, none between.

    Args:
        largest: n_1, the count of the first half, which has one class more if K is odd.
        classes: K.
        ratio: of the large counts to the small ones, which are at least 1.

    >>> step(100, 5, 10).tolist()
    [100, 100, 100, 10, 10]
    """
    _check_profile(largest, classes, ratio)
    smallest = max(1, int(largest / ratio))
    return np.where(np.arange(classes) < classes - classes // 2, largest, smallest)


def groups(counts: Counts, *, many: int = 100, few: int = 20) -> dict[str, np.ndarray]:
    """Return {group: positions of its classes} of many-, medium- and few-shot classes, none empty.

    Args:
        counts: of each class.
        many: classes with more samples are `many`.
        few: classes with fewer are `few`, at most as many; all others are `medium`.

    >>> {name: members.tolist() for name, members in groups([500, 100, 7, 20]).items()}
    {'many': [0], 'medium': [1, 3], 'few': [2]}

    Reference: Liu et al., Large-Scale Long-Tailed Recognition in an Open World, 2019.
    """
    if few > many:
        reason = f"expected at most {many}, as `many` is, got {few}"
        raise LevelheadError(reason, parameter="few")
    n = _values(counts, None, None)
    masks = {"many": n > many, "medium": (n <= many) & (n >= few), "few": n < few}
    return {name: np.flatnonzero(mask) for name, mask in masks.items() if mask.any()}


@dataclass(frozen=True, eq=False)
class WithBackground:
    """Counts with a class that every rule leaves alone: what `with_background` returns."""

    counts: Counts  # of all classes, with that one
    background: int | str  # its position, or its name


def with_background(counts: Counts, background: int | str) -> WithBackground:
    """Return counts for `tune` with a class that every rule leaves alone, such as "no object".

    Its scores stay as they are, and its count is no n_max. It is a class of the metric like the
    others. Fits to samples go by its own count, as the model was trained on it; where that is not
    known, say 0, and the largest of the others stands in.

    Args:
        counts: training samples of each class.
        background: the class, by position or known name.

    >>> resolve(with_background([900000, 70, 30], 0)).tolist()
    [70, 70, 30]
    """
    return WithBackground(counts, background)


@dataclass(frozen=True, eq=False)
class CountsFrom:
    """Counts with where they are from, which errors about them name.

    For whoever hands them on to a function that knows nothing of files.
    """

    counts: Counts
    file: str | None  # None if they were given themselves: then the parameter is named

    def blamed(self, error: LevelheadError) -> LevelheadError:
        """Return an error about these counts with their file, or the parameter, before it."""
        if self.file is None:
            return LevelheadError(error.message, parameter="counts", advice=error.advice)
        return LevelheadError(f"{self.file}: {error.message}", advice=error.advice)


def resolve(
    counts: Counts,
    classes: int | None = None,
    *,
    names: Sequence[str] | None = None,
    missing: Missing | None = None,
    background: int | str | None = None,
) -> np.ndarray:
    """Return counts [K], all positive, from whatever form the user has them in.

    Args:
        counts: what the training loss saw: samples after resampling, or times the class weights. K
            counts in class order; {class: n} or a pandas Series, by position or known name; or
            labels to count. More than K integers or bools are labels if all are classes, and either
            every class occurs or there are more than 2 K; otherwise they are counts.
        classes: K, where it is known.
        names: the K class names, where they are known.
        missing: what to do with a class without samples: `error`, or `neutral`, which gives it the
            largest count. None is `error` for functions without such a parameter: the message then
            does not name it.
        background: a class that every rule leaves alone, by position or known name, such as "no
            object" in detection: it gets the largest count of the others, whatever its own, which
            may be 0.

    Returns:
        [K], in int64, or in float64 if some are fractions. Where a class has no samples of its own,
        or is the background, its number is the largest count, so that a rule by counts leaves it as
        it is.

    Raises:
        LevelheadError: counts of another number, a class without samples (unless `neutral`), or a count
            that is negative, a share or no number; it names the class.

    >>> resolve({"1": 30, "0": 70}, 2).tolist(), resolve([0, 1, 0, 0, 0, 1], 2).tolist()
    ([70, 30], [4, 2])
    """
    if isinstance(counts, CountsFrom):
        try:
            return resolve(
                counts.counts, classes, names=names, missing=missing, background=background
            )
        except LevelheadError as error:
            if error.parameter is not None:  # such as the background
                raise
            raise counts.blamed(error) from None
    if isinstance(counts, WithBackground):
        background = counts.background
        counts = counts.counts
    if missing is not None:
        check_choice("missing", missing, ("error", "neutral"))

    # What was meant, and whether there is one number for each class.
    if names is not None:
        names = as_names(names, classes)
        classes = len(names)
    values = _values(counts, classes, names)
    if classes is not None and len(values) != classes:
        aside = ""
        if len(values) == classes + 1 and values[0] == 0:
            # Pandas writes 0 over a column without a name.
            aside = "; if the first, 0, is a title, leave it out: header=False in pandas"
        raise LevelheadError(f"expected {classes} counts, one per class, got {len(values)}{aside}")
    if len(values) == 0:
        raise LevelheadError("expected one count per class, got none")

    # The background gets the largest count of the others: no rule moves that.
    if background is not None:
        alone = find_background(background, len(values), names)
        if len(values) == 1:
            raise LevelheadError(
                "expected a class next to the background, got none", parameter="background"
            )
        values = level_background(values, alone)

    # Above 0; or 0, if a missing class is to stay as it is: by the largest count, too. Times class
    # weights they may be fractions; only where none is above 1, these are shares.
    with np.errstate(invalid="ignore"):
        valid = (values > 0) & (values <= _LARGEST_COUNT)
        whole = values == np.floor(values)
        if (values <= 1).all():
            valid &= whole
    for i in np.flatnonzero(~valid).tolist():
        if missing != "neutral" or values[i] != 0:
            raise _count_error(values[i].item(), title(i, names), missing)
    if not values.any():
        raise LevelheadError("every class has a count of 0")
    if whole.all():
        values = values.astype(np.int64)
    return np.where(values == 0, values.max(), values)


def resolve_as_trained(
    counts: Counts, classes: int, *, names: Sequence[str] | None = None
) -> np.ndarray:
    """Return counts [K] as `resolve` does, with the own count of a background where that is not 0.

    It is what made the scores as they are, so that fits and estimates go by it; `level_background`
    makes of it what rules by counts go by.
    """
    resolved = resolve(counts, classes, names=names)
    if isinstance(counts, WithBackground):
        return resolve(counts.counts, classes, names=names, missing="neutral")
    return resolved


def level_background(counts: np.ndarray, background: int | None) -> np.ndarray:
    """Return counts [K] in which the background, if there is one, has the largest of the others.

    >>> level_background(np.array([900000, 70, 30]), 0)
    array([70, 70, 30])
    """
    if background is None:
        return counts
    leveled = counts.copy()
    leveled[background] = np.delete(counts, background).max()
    return leveled


def likely_classes(counts: Counts | None) -> int | None:
    """Return how many classes counts are likely to be of; None if that cannot be told.

    A guess for whoever looks for a head among layers of many sizes. Labels to be counted are taken for
    counts here, so that it may be too large.
    """
    if isinstance(counts, WithBackground | CountsFrom):
        counts = counts.counts
    # A number, also one in an array without axes, says nothing of the classes.
    if counts is None or not hasattr(counts, "__len__") or getattr(counts, "shape", None) == ():
        return None
    return len(counts)


def check_left_alone(
    scale: np.ndarray,
    offset: np.ndarray,
    background: int | str | None,
    names: Sequence[str] | None,
) -> None:
    """Raise LevelheadError if an adjustment would change the background.

    Args:
        scale, offset: [K], what each class is multiplied by, and what is added.
        background: the class that is to stay, by position or known name; None if there is none.
        names: of the classes, where they are known.
    """
    if background is None:
        return
    alone = find_background(background, len(scale), names)
    if scale[alone] != 1 or offset[alone] != 0:
        change = f"{title(alone, names)} would change: the choice was made without a background"
        raise LevelheadError(f"{change}; tune with it", parameter="background")


def find_background(background: int | str, classes: int, names: Sequence[str] | None) -> int:
    """Return the index of the background, which is given by index or by known name.

    Args:
        background: an index from 0 on, or a name.
        classes: K.
        names: of the classes, where they are known.
    """
    try:
        if isinstance(background, bool):  # which would pass for 0 or 1
            raise LevelheadError(f"got {background}")
        return find_classes([background], classes, names, what=None)[0]
    except LevelheadError as error:
        reason = f"expected the index or the name of one class ({error.message})"
        raise LevelheadError(reason, parameter="background", advice=error.advice) from None


def _count_error(n: float, name: str, missing: Missing | None) -> LevelheadError:
    """Return what is wrong with the count n of a class, and what to do.

    Args:
        n: which is 0, negative, a share, too large or not finite.
        name: of the class, for the message.
        missing: as in `resolve`: None if the caller has no such parameter to point to.
    """
    if n == 0:
        aside = ""
        if missing is None:
            aside = "; leave it out, or give it the largest count, which leaves it as it is"
        advice = None
        if missing is not None:
            advice = Advice("missing", "neutral", "to leave it as it is")
        return LevelheadError(f"{name} has no samples{aside}", advice=advice)
    if not np.isfinite(n) or n > _LARGEST_COUNT:
        flaw = f"{n}; expected a whole number of samples"
    elif n < 0:
        flaw = f"negative ({n:g})"
    else:
        flaw = f"fractional ({n}); give samples, not shares"
    return LevelheadError(f"the count of {name} is {flaw}")


def _values(counts: Counts, classes: int | None, names: Sequence[str] | None) -> np.ndarray:
    """Return counts as float64 [K], not yet checked; labels are counted.

    Args:
        counts: in any form but `WithBackground`.
        classes: K, where it is known; without it, a list is of counts.
        names: of the classes, where they are known.
    """
    mapping = as_mapping(counts, classes)
    if mapping is not None:
        return in_order(mapping, classes, names)
    if isinstance(counts, str | Path):
        raise LevelheadError(f"expected counts, got the text {str(counts)!r}; read the file first")
    values = to_numpy(counts)
    if values.ndim != 1:
        of_table = ""
        if values.ndim == 2:
            of_table = "; of one-hot labels pass labels.sum(axis=0)"
        shape_text = f"got shape {list(values.shape)}{of_table}"
        raise LevelheadError(f"expected one count per class, {shape_text}")

    # Text: the labels, by name.
    if are_names(values):
        if names is not None:
            return of(values, names=names).astype(np.float64)
        if classes is not None and len(values) > classes:
            order = "to list the classes in the order of the logits' columns"
            unknown = f"training labels are names ({str(values[0])!r}), but class names are not known here"
            raise LevelheadError(unknown, advice=Advice("names", None, order))
    if values.dtype.kind not in "iubf":
        raise _not_numbers(values)

    # More whole numbers than classes: labels, or too many counts, which is said later.
    if classes is not None and len(values) > classes and values.dtype.kind in "iub":
        if are_numbers(names) or (names is not None and values.dtype.kind == "b"):
            return of(values, names=names).astype(np.float64)
        inside = (values >= 0) & (values < classes)
        if inside.all() and (len(np.unique(values)) == classes or len(values) > 2 * classes):
            return np.bincount(values.astype(np.int64), minlength=classes).astype(np.float64)
    return values.astype(np.float64)


def _not_numbers(values: np.ndarray) -> LevelheadError:
    """Return which of the values [K] is no number, or what they are instead.

    A list of mixed things is an array of objects: each is tried, so that the first bad one can be named.
    """
    for i, value in enumerate(values.tolist()):
        try:
            float(value)
        except OverflowError:
            value_text = f"a number of {len(str(value))} digits"
        except (TypeError, ValueError):
            value_text = repr(value)
        else:
            continue
        return LevelheadError(f"expected counts as numbers, got {value_text} for class {i}")
    return LevelheadError(f"expected counts as numbers, got {described(values)}")


def _check_profile(largest: int, classes: int, ratio: float) -> None:
    if not (np.isfinite(ratio) and ratio >= 1):
        raise LevelheadError(
            f"expected an imbalance ratio of at least 1, got {ratio}", parameter="ratio"
        )
    if largest < 1 or classes < 1:
        raise LevelheadError(
            f"expected at least one class and one sample, got {classes} classes of {largest}"
        )


def check_samples(
    logits: Array, labels: Array, counts: Counts, names: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels [N] and counts [K] that fit logits, checked.

    Args:
        logits: [N, K], whose numbers are not read here.
        labels: [N].
        counts: in any form that `resolve` takes.
        names: of the classes, where they are known.
    """
    if np.ndim(labels) == 0:
        raise LevelheadError(f"expected labels [N], got {labels}", parameter="labels")
    # K labels and N counts. With more classes than samples, the logits would be transposed.
    turned = len(logits.shape) == 2 and (len(labels), np.size(counts)) == tuple(logits.shape[::-1])
    if turned and logits.shape[0] > logits.shape[1]:
        raise LevelheadError(
            "labels and counts are swapped: expected logits [N, K], labels [N], counts [K]"
        )
    check_shape(logits.shape, len(labels))
    n = resolve(counts, logits.shape[1], names=names)
    checked_labels = check_labels(labels, len(n))
    check_one_per_row(checked_labels, len(logits))
    return checked_labels, n
