"""Checks of what rules are given: ranges, shares and one number per class."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.array import described, to_numpy
from ..core.errors import LevelheadError
from ..core.per_class import as_mapping, in_order


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
        raise LevelheadError(
            f"expected numbers [{size}], one per class, got shape {list(found.shape)}", parameter=parameter
        )
    wrong = ~np.isfinite(found) | (positive & (found <= 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise LevelheadError(
            f"expected {'positive' if np.isfinite(found[at]) else 'finite'} numbers, got {found[at]:g} for class {at}",
            parameter=parameter,
        )
    return found
