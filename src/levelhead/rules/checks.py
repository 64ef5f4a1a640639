"""Checks of what rules are given: strengths, ranges, shares, one number per class, and heads of several labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.array import described, is_torch, to_numpy
from ..core.choices import LabelTask
from ..core.errors import LevelheadError
from ..core.per_class import as_mapping, in_order

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
        raise LevelheadError(f"expected (from, to), two finite gammas such as (0, 2), got {range!r}", parameter="range")
    if holds_zero and not low <= 0 < high:
        raise LevelheadError(f"expected a range that holds 0, such as (0, 2), got {range!r}", parameter="range")
    return low, high


def toward(counts: np.ndarray, target: np.ndarray | None) -> np.ndarray:
    """Return counts [K] by which a shift of strength 1 moves a calibrated model to a target prior: n_k / target_k.

    Without a target they are the counts themselves, for classes that occur alike. A share near 0 counts as 0.001 of an
    even one.

    >>> toward(np.array([30.0, 10.0]), np.array([0.75, 0.25]))  # as in training: nothing is to be moved
    array([40., 40.])
    """
    return counts if target is None else counts / np.maximum(target, 1e-3 / len(target))


def target_prior(target: Any, size: int, names: Sequence[str] | None = None) -> np.ndarray:
    """Return a target [K], in class order or {class: share}, as shares that sum to 1; uniform if None."""
    if target is None:
        return np.full(size, 1 / size)
    mapping = as_mapping(target)
    values = check_vector(target if mapping is None else in_order(mapping, size, names, what="share"), size, "target")
    if (values < 0).any() or not values.any():
        raise LevelheadError("expected shares, none negative and not all 0", parameter="target")
    return values / values.sum()


def check_vector(values: Sequence[float] | Any, size: int, parameter: str, *, positive: bool = False) -> np.ndarray:
    """Return a parameter's numbers [K], one per class and all finite, in float64."""
    found = to_numpy(values)
    if found.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(found)}", parameter=parameter)
    found = found.astype(np.float64)
    if found.shape != (size,):
        got = f"got shape {list(found.shape)}"
        raise LevelheadError(f"expected numbers [{size}], one per class, {got}", parameter=parameter)
    for at in np.flatnonzero(~np.isfinite(found) | (positive & (found <= 0)))[:1]:
        kind = "positive" if np.isfinite(found[at]) else "finite"
        raise LevelheadError(f"expected {kind} numbers, got {found[at]:g} for class {at}", parameter=parameter)
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
        alone = "which do not compete, so no rule of classes levels them, and scaling changes no decision"
        reason = f"{where} gives several labels per sample ({known[1]}), {alone}"
        advice = "tune with the task multilabel, and adjust by what that chooses"
    raise LevelheadError(f"{reason}; {advice}")
