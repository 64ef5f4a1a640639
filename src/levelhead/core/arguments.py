"""Checks of small arguments: numbers for each class, a range of strengths, a target, a level.

Each takes a value in the forms that people have it in, returns it as floats, and raises a LevelheadError that
names the parameter, what was expected, what came and of which class; those that begin with `check_` and return
nothing only look. They are called where a value enters (`tune`, `Goal.on`, the constructors of rules); after that
nobody asks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..support.arrays import Array, described, is_torch, to_numpy
from ..support.columns import whole_number
from ..support.errors import LevelheadError
from .class_names import as_mapping, in_order


def check_range(range: Sequence[float], *, holds_zero: bool = False) -> tuple[float, float]:
    """Return a range of strengths as two floats.

    Args:
        range: from and to, two finite numbers that ascend.
        holds_zero: whether it must contain 0, the model as it is: a choice that cannot be "leave it"
            would always change something.

    >>> check_range([0, 2])
    (0.0, 2.0)
    """
    try:
        low, high = map(float, range)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan  # which the next test refuses
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


def check_vector(
    values: Array | Sequence[float], size: int, parameter: str, *, positive: bool = False
) -> np.ndarray:
    """Return a parameter's numbers [K], one per class and all finite, in float64.

    Args:
        values: an array, a tensor or a list.
        size: K.
        parameter: its name, for a message.
        positive: whether each must be above 0.

    Raises:
        LevelheadError: another shape, or the first class whose number will not do.

    >>> check_vector([1, 2.5], 2, "norms", positive=True)
    array([1. , 2.5])
    """
    numbers = to_numpy(values)
    if numbers.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(numbers)}", parameter=parameter)
    numbers = numbers.astype(np.float64)
    if numbers.shape != (size,):
        shape_text = f"got shape {list(numbers.shape)}"
        raise LevelheadError(
            f"expected numbers [{size}], one per class, {shape_text}", parameter=parameter
        )
    # Class by class, so that the message can name the first.
    for k, number in enumerate(numbers.tolist()):
        if not np.isfinite(number):
            flaw = "finite"
        elif positive and number <= 0:
            flaw = "positive"
        else:
            continue
        raise LevelheadError(
            f"expected {flaw} numbers, got {number:g} for class {k}", parameter=parameter
        )
    return numbers


def finite_number(parameter: str, value: float) -> float:
    """Return a number, which may be a tensor, as a float.

    Raises:
        LevelheadError: text, None, NaN or an infinity, under the name of the parameter.

    >>> finite_number("strength", np.float32(0.5))
    0.5
    """
    if is_torch(value):
        value = float(value)
    if not (isinstance(value, int | float | np.floating | np.integer) and np.isfinite(value)):
        raise LevelheadError(f"expected a finite number, got {value!r}", parameter=parameter)
    return float(value)


def check_whole(parameter: str, value: int) -> int:
    """Return a whole number above 0 as an int.

    >>> check_whole("bins", np.int64(15))
    15
    """
    number = whole_number(value)
    if number is None or number < 1:
        raise LevelheadError(f"expected a whole number above 0, got {value!r}", parameter=parameter)
    return number


def check_level(level: float) -> float:
    """Return the level of an interval, above 0 and below 1, as a float: it goes into a file.

    >>> check_level(np.float32(0.5))
    0.5
    """
    number = finite_number("level", level)
    if not 0 < number < 1:
        raise LevelheadError(f"expected a number between 0 and 1, got {level}", parameter="level")
    return number


def check_chosen_on(chosen_on: str) -> None:
    """Raise LevelheadError unless it is text: what the samples are, for the record."""
    if not isinstance(chosen_on, str):
        message = f"expected text, such as 'held-out', got {chosen_on!r}"
        raise LevelheadError(message, parameter="chosen_on")


def target_prior(
    target: Array | Mapping[object, float] | None, size: int, names: Sequence[str] | None = None
) -> np.ndarray:
    """Return how often each class is to occur, [K], as shares that sum to 1.

    Args:
        target: [K] in class order, or {class: share}; in any unit, such as samples. Uniform if None.
        size: K.
        names: of the classes, where they are known.

    Raises:
        LevelheadError: a share that is negative or not finite, all of them 0, another number of them
            than classes, or a class that is not known.

    >>> target_prior({"cat": 3, "dog": 1}, 2, ["dog", "cat"])
    array([0.25, 0.75])
    """
    if target is None:
        return np.full(size, 1 / size)
    # By name or in class order; shares, percentages or counts, as only proportions matter.
    mapping = as_mapping(target)
    if mapping is not None:
        target = in_order(mapping, size, names, what="share")
    values = check_vector(target, size, "target")
    if (values < 0).any() or not values.any():
        raise LevelheadError("expected shares, none negative and not all 0", parameter="target")
    return values / values.sum()
