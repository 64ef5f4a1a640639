"""`Adjustment`: what is done to each class, on scores and on a head; and checks of what rules are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..support.arrays import Array, described, is_torch, like, narrow, scale_rows, to_numpy, widen
from ..support.errors import Advice, LevelheadError, check_choice
from ..support.types import BiasPolicy, LabelTask
from .class_names import as_mapping, in_order

if TYPE_CHECKING:
    from .head import Head


PROBLEM_TYPES: dict[object, tuple[LabelTask, str]] = {  # of a Hugging Face config
    "multi_label_classification": ("multilabel", "its config says multi_label_classification"),
    "single_label_classification": ("multiclass", "its config says single_label_classification"),
}


def check_range(range: Any, *, holds_zero: bool = False) -> tuple[float, float]:
    """Return a range of gamma as two floats. With `holds_zero`, it must contain 0."""
    try:
        low, high = map(float, range)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not -np.inf < low < high < np.inf:
        raise LevelheadError(
            f"expected (from, to), two finite gammas such as (0, 2), got {range!r}",
            parameter="range",
        )
    if holds_zero and not low <= 0 < high:
        raise LevelheadError(
            f"expected a range that holds 0, such as (0, 2), got {range!r}", parameter="range"
        )
    return low, high


def target_prior(target: Any, size: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Return a target [K], in class order or {class: share}, as shares that sum to 1; uniform if None."""
    if target is None:
        return np.full(size, 1 / size)
    mapping = as_mapping(target)
    values = check_vector(
        target if mapping is None else in_order(mapping, size, names, what="share"), size, "target"
    )
    if (values < 0).any() or not values.any():
        raise LevelheadError("expected shares, none negative and not all 0", parameter="target")
    return values / values.sum()


def check_vector(
    values: Sequence[float] | Any, size: int, parameter: str, *, positive: bool = False
) -> np.ndarray:
    """Return a parameter's numbers [K], one per class and all finite, in float64."""
    numbers = to_numpy(values)
    if numbers.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(numbers)}", parameter=parameter)
    numbers = numbers.astype(np.float64)
    if numbers.shape != (size,):
        got = f"got shape {list(numbers.shape)}"
        raise LevelheadError(
            f"expected numbers [{size}], one per class, {got}", parameter=parameter
        )
    for at in np.flatnonzero(~np.isfinite(numbers) | (positive & (numbers <= 0)))[:1]:
        kind = "positive" if np.isfinite(numbers[at]) else "finite"
        raise LevelheadError(
            f"expected {kind} numbers, got {numbers[at]:g} for class {at}", parameter=parameter
        )
    return numbers


def finite_number(parameter: str, value: float) -> float:
    """Return a number, which may be a tensor, as a float; raise LevelheadError if it is not one."""
    if is_torch(value):
        value = float(value)
    if not (isinstance(value, int | float | np.floating | np.integer) and np.isfinite(value)):
        raise LevelheadError(f"expected a finite number, got {value!r}", parameter=parameter)
    return float(value)


def check_label_task(
    where: str,
    known: tuple[LabelTask, str] | None,
    task: LabelTask,
    if_they_compete: Advice | None = None,
) -> None:
    """Raise LevelheadError if a head, called `where`, is known, and how, to be for another task."""
    if known is None or known[0] == task:
        return
    reason = f"{where} gives one class per sample ({known[1]}), but several labels were tuned"
    if task == "multilabel":
        raise LevelheadError(f"{reason}; tune with the task multiclass")
    alone = (
        "which do not compete, so no rule of classes adjusts them, and scaling changes no decision"
    )
    reason = f"{where} gives several labels per sample ({known[1]}), {alone}"
    instead = "tune with the task multilabel, and adjust by what that chooses"
    raise LevelheadError(f"{reason}; {instead}", advice=if_they_compete)


_LOG_OF_ZERO = -87.0  # what `check_logits` makes of a probability of 0 is less, in any precision
_LEAST_VOTE = 1e-4
_BLOCK = 1 << 15  # numbers that fit in the cache


@dataclass(frozen=True, eq=False)
class Adjustment:
    """What is done to each class: ``score_k = scale_k logit_k + offset_k``.

    Args:
        scale, offset: [K] in float64; all scales are 1 for rules that only add, all offsets 0 for
            rules that only multiply.
        smoothing: what is added to probabilities before their logarithm; 0 for logits.
        bias: whether the bias of a head is scaled with its weight vector, or kept.

    >>> Adjustment.scaling([1.0, 2.0]).scores(np.array([[3.0, 2.0]]))
    array([[3., 4.]])
    """

    scale: np.ndarray
    offset: np.ndarray
    smoothing: float = 0.0
    bias: BiasPolicy = "scale"

    @staticmethod
    def scaling(scale: Any) -> Adjustment:
        """Return what multiplies each class by a number, [K]."""
        scale = np.asarray(scale, np.float64)
        return Adjustment(scale, np.zeros(len(scale)))

    @staticmethod
    def adding(offset: Any) -> Adjustment:
        """Return what adds a number to each class, [K]."""
        offset = np.asarray(offset, np.float64)
        return Adjustment(np.ones(len(offset)), offset)

    @property
    def classes(self) -> int:
        """K."""
        return len(self.scale)

    @property
    def multiplies(self) -> bool:
        """Whether any class is multiplied by another number than 1."""
        return bool((self.scale != 1).any())

    @property
    def adds(self) -> bool:
        """Whether anything is added to any class."""
        return bool(self.offset.any())

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return self.multiplies or self.adds

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores [..., K] of logits or of logarithms of probabilities, in float64."""
        wide = smooth_votes(logits.astype(np.float64), self.smoothing)[0]
        with np.errstate(over="ignore"):  # of masked scores, which stay the lowest
            return wide * self.scale + self.offset

    def predict(self, logits: Array) -> np.ndarray:
        """Return the class of the largest score of each row, [N]; of equals, the first."""
        if is_torch(logits) and logits.is_cuda:
            return to_numpy(self.narrow_scores(logits).argmax(1))
        logits = to_numpy(logits)
        predicted = np.empty(len(logits), np.int64)
        step = max(1, _BLOCK // logits.shape[1])
        for first in range(0, len(logits), step):  # fresh memory costs more than what is done in it
            rows = slice(first, first + step)
            predicted[rows] = self.scores(logits[rows]).argmax(axis=1)
        return predicted

    @np.errstate(over="ignore")  # of masked scores, which stay the lowest
    def narrow_scores(self, logits: Array) -> Array:
        """Return the scores in the precision of the logits, float32 at least, within its range."""
        held = np.finfo(np.float64 if logits.itemsize > 4 else np.float32)
        if is_torch(logits):
            wide = logits.double() * like(self.scale, logits.double())
            wide = wide + like(self.offset, wide)
            return narrow(wide.clamp(float(held.min), float(held.max)), widen(logits))
        adjusted = np.empty(logits.shape, held.dtype)
        rows_of = np.atleast_2d(adjusted)
        given = np.atleast_2d(logits)
        step = max(1, _BLOCK // given.shape[1])
        for first in range(0, len(given), step):
            rows = slice(first, first + step)
            scores = self.scores(given[rows])
            np.clip(scores, held.min, held.max, out=rows_of[rows], casting="same_kind")
        return adjusted

    def for_rows(self, rows: int) -> Adjustment:
        """Return it for a head of so many rows: itself, unless two classes share one logit.

        Of two classes that share one logit z, scores are (0, z): a head [1, d] takes what is added
        to the second class less what is added to the first.
        """
        if rows != 1 or self.classes != 2:
            return self
        if self.multiplies:
            raise LevelheadError(
                "a head with a single logit cannot be scaled: that never moves its sign; "
                "use the rule offsets or shift"
            )
        return replace(self, scale=np.ones(1), offset=self.offset[1:] - self.offset[:1])

    def head(self, head: Head) -> Head:
        """Return a head whose logits are the scores of this one's; it gets a bias if one is needed."""
        by = self.for_rows(head.classes)
        if by.multiplies:
            head = scale_head(head, by.scale, bias=self.bias)
        if not by.adds:
            return head
        head = head.checked()
        if head.bias is None:
            old = head.weight[:, 0] * 0
        else:
            old = head.bias
        wide = widen(old)
        shifted = replace(head, bias=narrow(scale_rows(wide * 0 + 1, by.offset) + wide, old))
        return shifted.checked("the shifted head", advice="; use a strength nearer to 0")

    def inverse(self) -> Adjustment:
        """Return what takes the scores back: ``logit_k = score_k / scale_k - offset_k / scale_k``.

        >>> Adjustment(np.array([2.0]), np.array([1.0])).inverse().scores(np.array([[7.0]]))
        array([[3.]])
        """
        return replace(self, scale=1 / self.scale, offset=-self.offset / self.scale + 0.0)


class Fits(NamedTuple):
    """What a rule fitted: without each fold, and on all samples."""

    without: list[Adjustment]
    whole: Adjustment
    strength: float | None = None  # of a rule that has one: the one of `whole`


def scale_head(head: Head, by: np.ndarray, *, bias: BiasPolicy = "scale") -> Head:
    """Multiply row i of the head by by[i]; raise LevelheadError if that is 0."""
    head.checked()
    if (vanished := np.flatnonzero(np.asarray(by) == 0)).size:
        name = head.name(int(vanished[0]))
        raise LevelheadError(
            f"the factor of {name} would be 0, which removes the class; use a strength nearer to 0"
        )
    check_choice("bias", bias, ("scale", "keep"))
    if head.bias is not None and bias == "scale":
        scaled = scale_rows(head.bias, by)
    else:
        scaled = head.bias
    scaled_head = replace(head, weight=scale_rows(head.weight, by), bias=scaled)
    return scaled_head.checked(
        f"the scaled head (in {head.weight.dtype})", advice="; use a strength nearer to 0"
    )


def smooth_votes(logs: np.ndarray, smoothing: float | None = None) -> tuple[np.ndarray, float]:
    """Return ``log(p + smoothing)`` of logarithms of probabilities, and the smoothing.

    Votes of an ensemble are often 0, which says "fewer than one vote", and whose logarithm no
    offset can use. If not given, the smoothing is the least positive probability, at least 0.0001,
    if there are zeros, and 0 otherwise.
    """
    if smoothing is None:
        zero = logs <= _LOG_OF_ZERO
        if not zero.any():
            return logs, 0.0
        smoothing = max(_LEAST_VOTE, float(np.exp(logs[~zero].min())))
    return (np.logaddexp(logs, np.log(smoothing)) if smoothing else logs), smoothing
