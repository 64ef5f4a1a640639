"""`Adjustment`: what a rule does to each class, on scores and on a head; and the checks of what rules are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..support.arrays import Array, described, is_torch, like, narrow, scale_rows, to_numpy, widen
from ..support.errors import LevelheadError, check_choice
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


def toward(counts: np.ndarray, target: np.ndarray | None) -> np.ndarray:
    """Return counts [K] by which a shift of 1 moves a calibrated model to a target prior: n_k / target_k."""
    # Without a target, the counts themselves, for classes that occur alike. A share near 0 counts as 0.001 of an even
    # one.
    return counts if target is None else counts / np.maximum(target, 1e-3 / len(target))


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
    found = to_numpy(values)
    if found.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(found)}", parameter=parameter)
    found = found.astype(np.float64)
    if found.shape != (size,):
        got = f"got shape {list(found.shape)}"
        raise LevelheadError(
            f"expected numbers [{size}], one per class, {got}", parameter=parameter
        )
    for at in np.flatnonzero(~np.isfinite(found) | (positive & (found <= 0)))[:1]:
        kind = "positive" if np.isfinite(found[at]) else "finite"
        raise LevelheadError(
            f"expected {kind} numbers, got {found[at]:g} for class {at}", parameter=parameter
        )
    return found


def finite_number(parameter: str, value: float) -> float:
    """Return a number, which may be a tensor, as a float; raise LevelheadError if it is not one."""
    if is_torch(value):
        value = float(value)
    if not (isinstance(value, int | float | np.floating | np.integer) and np.isfinite(value)):
        raise LevelheadError(f"expected a finite number, got {value!r}", parameter=parameter)
    return float(value)


def check_label_task(where: str, known: tuple[LabelTask, str] | None, task: LabelTask) -> None:
    """Raise LevelheadError if a head, called `where`, is known, and how, to be for another task."""
    if known is None or known[0] == task:
        return
    reason = f"{where} gives one class per sample ({known[1]}), but several labels were tuned"
    advice = "tune with the task multiclass"
    if task == "multiclass":
        alone = "which do not compete, so no rule of classes adjusts them, and scaling changes no decision"
        reason = f"{where} gives several labels per sample ({known[1]}), {alone}"
        advice = "tune with the task multilabel, and adjust by what that chooses"
    raise LevelheadError(f"{reason}; {advice}")


_LOG_OF_ZERO = (
    -87.0
)  # what `check_logits` makes of a probability of 0, in float32 or float64, is less
_LEAST_VOTE = 1e-4
_BLOCK = 1 << 15  # numbers that fit in the cache


@dataclass(frozen=True, eq=False)
class Adjustment:
    """What an adjustment does to each class: ``score_k = scale_k logit_k + offset_k``.

    >>> Adjustment(scale=np.array([1.0, 2.0])).scores(np.array([[3.0, 2.0]]))
    array([[3., 4.]])
    """

    scale: np.ndarray | None = None  #: [K] in float64; None where nothing is multiplied
    offset: np.ndarray | None = None  #: [K] in float64; None where nothing is added
    smoothing: float = 0.0  #: what is added to probabilities before their logarithm; 0 for logits
    bias: BiasPolicy = (
        "scale"  #: whether the bias of a head is scaled with its weight vector, or kept
    )

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        scaled = self.scale is not None and (self.scale != 1).any()
        return bool(scaled or (self.offset is not None and self.offset.any()))

    @property
    def first(self) -> np.ndarray:
        """What each weight vector is multiplied by or, where none is, what is added to each bias, [K]."""
        found = self.offset if self.scale is None else self.scale
        assert found is not None
        return found

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores [N, K] of logits [N, K] or, with smoothing, of logarithms of probabilities; in float64."""
        wide = smooth_votes(logits.astype(np.float64), self.smoothing)[0]
        if self.scale is not None:
            wide = wide * self.scale
        return wide if self.offset is None else wide + self.offset

    @np.errstate(over="ignore")  # of masked scores, which stay the lowest
    def narrow_scores(self, logits: Array) -> Array:
        """Return the scores in the precision of the logits, float32 at least, within what it holds."""
        held = np.finfo(np.float64 if logits.itemsize > 4 else np.float32)
        if is_torch(logits):
            wide = logits.double()
            wide = wide if self.scale is None else wide * like(self.scale, wide)
            wide = wide if self.offset is None else wide + like(self.offset, wide)
            return narrow(wide.clamp(float(held.min), float(held.max)), widen(logits))
        found, step = np.empty(logits.shape, held.dtype), max(1, _BLOCK // logits.shape[1])
        for first in range(
            0, len(logits), step
        ):  # fresh memory costs more than what is done with it
            part = slice(first, first + step)
            np.clip(
                self.scores(logits[part]), held.min, held.max, out=found[part], casting="same_kind"
            )
        return found

    def head(self, head: Head) -> Head:
        """Return a head whose logits are the scores of this one's; it gets a bias if it needs one."""
        if self.scale is not None:
            head = scale_head(head, self.scale, bias=self.bias)
        if self.offset is None:
            return head
        head = head.checked()
        old = head.weight[:, 0] * 0 if head.bias is None else head.bias
        wide = widen(old)
        shifted = replace(head, bias=narrow(scale_rows(wide * 0 + 1, self.offset) + wide, old))
        return shifted.checked("the shifted head", advice="; use a strength nearer to 0")

    def inverse(self) -> Adjustment:
        """Return what takes the scores back: ``logit_k = score_k / scale_k - offset_k / scale_k``.

        >>> Adjustment(np.array([2.0]), np.array([1.0])).inverse().scores(np.array([[7.0]]))
        array([[3.]])
        """
        scale = None if self.scale is None else 1 / self.scale
        offset = (
            None if self.offset is None else -self.offset if scale is None else -self.offset * scale
        )
        return replace(self, scale=scale, offset=offset)


def scale_head(head: Head, by: np.ndarray, *, bias: BiasPolicy = "scale") -> Head:
    """Multiply row i of the head by by[i]; raise LevelheadError if that is 0."""
    head.checked()
    if (vanished := np.flatnonzero(np.asarray(by) == 0)).size:
        name = head.name(int(vanished[0]))
        raise LevelheadError(
            f"the factor of {name} would be 0, which removes the class; use a strength nearer to 0"
        )
    check_choice("bias", bias, ("scale", "keep"))
    scaled = scale_rows(head.bias, by) if head.bias is not None and bias == "scale" else head.bias
    found = replace(head, weight=scale_rows(head.weight, by), bias=scaled)
    return found.checked(
        f"the scaled head (in {head.weight.dtype})", advice="; use a strength nearer to 0"
    )


def smooth_votes(logs: np.ndarray, smoothing: float | None = None) -> tuple[np.ndarray, float]:
    """Return ``log(p + smoothing)`` [N, K] of logarithms of probabilities, and the smoothing."""
    # Votes of an ensemble are often 0, which says "fewer than one vote", and whose logarithm no scale and offset can
    # use. If not given, the smoothing is the least positive probability, at least 0.0001, if there are zeros, and 0
    # otherwise.
    if smoothing is None:
        zero = logs <= _LOG_OF_ZERO
        smoothing = max(_LEAST_VOTE, float(np.exp(logs[~zero].min()))) if zero.any() else 0.0
    return (np.logaddexp(logs, np.log(smoothing)) if smoothing else logs), smoothing
