"""A curve of steps, against a naive reading of its numbers."""

import numpy as np
import pytest

from levelhead.path.curve import (
    SLIVER,
    Curve,
    accumulate,
    ascending,
    stable_order,
)
from levelhead.support.errors import LevelheadError


def curve(gammas, values, end) -> Curve:
    return Curve(np.array(gammas, float), np.array(values, float), end)


def random_curve(seed: int) -> Curve:
    """A curve from -1 to 2 with few different values, whose steps are wide."""
    rng = np.random.default_rng(seed)
    gammas = np.sort(rng.choice(np.arange(-99, 200), 12, replace=False)) / 100
    return curve([-1, *gammas], rng.integers(0, 3, 13) / 10, 2.0)


def naive_stretches(steps: Curve) -> list[tuple[float, float]]:
    """The stretches on which the curve is lowest, step by step."""
    stretches: list[tuple[float, float]] = []
    ends = [*steps.gammas[1:].tolist(), steps.end]
    for a, b, value in zip(steps.gammas.tolist(), ends, steps.values.tolist(), strict=True):
        if value > steps.values.min():
            continue
        if stretches and stretches[-1][1] == a:
            a = stretches.pop()[0]
        stretches.append((a, b))
    return stretches


@pytest.mark.parametrize("seed", range(20))
def test_a_value_is_that_of_the_last_step_at_or_before_a_gamma(seed):
    random = random_curve(seed)
    for gamma in (*random.gammas, *np.linspace(-1, 2, 31)):
        value = next(
            v for g, v in zip(random.gammas[::-1], random.values[::-1], strict=True) if g <= gamma
        )
        assert random.at(gamma) == value
    np.testing.assert_array_equal(random.at([-1.0, 2.0]), random.values[[0, -1]])


@pytest.mark.parametrize("gamma", [-1.01, 2.01, np.nan, [0.0, 2.01], [-1.01, 0.0], [0.0, np.nan]])
def test_a_gamma_outside_of_the_range_is_refused(gamma):
    with pytest.raises(LevelheadError, match=r"expected a value within \[-1, 2\], got ") as caught:
        random_curve(0).at(gamma)
    assert caught.value.parameter == "gamma"


@pytest.mark.parametrize("seed", range(30))
def test_the_plateau_is_the_first_of_the_widest_lowest_stretches(seed):
    random = random_curve(seed)
    stretches = naive_stretches(random)
    widest = max(b - a for a, b in stretches)
    assert random.plateau() == next((a, b) for a, b in stretches if b - a > widest - 1e-12)
    assert random.plateau(tolerance=0) == random.plateau()


@pytest.mark.parametrize(
    ("at_zero", "expected"),
    [
        (curve([0], [0.2], 2.0), (0.0, 2.0)),
        (curve([-1], [0.2], 1.0), (-1.0, 1.0)),
        (curve([-1, 0.5], [0.2, 0.3], 1.0), None),  # higher elsewhere: a choice to be made
        (curve([-1, 0.5], [0.3, 0.2], 1.0), None),  # lower elsewhere
        (curve([-1, 0.5, 0.5 + SLIVER / 2], [0.2, 0.3, 0.2], 1.0), (-1.0, 0.5)),
        (curve([-1, -0.5, -0.5 + SLIVER / 2], [0.2, 0.3, 0.2], 1.0), (-0.5 + SLIVER / 2, 1.0)),
        (curve([0.5], [0.2], 1.0), None),  # 0 is not on it
    ],
)
def test_the_plateau_at_zero_is_there_only_if_nothing_is_to_be_gained_or_lost(at_zero, expected):
    assert at_zero.plateau_at_zero() == expected


def test_a_sliver_that_ends_at_zero_does_not_hold_zero():
    assert curve([-1, -SLIVER / 9, 0], [0.3, 0.1, 0.2], 1.0).plateau() == (-SLIVER / 9, 1.0)


def test_a_range_as_narrow_as_a_sliver_has_a_plateau():
    assert curve([0.5], [0.2], 0.5 + SLIVER / 2).plateau() == (0.5, 0.5 + SLIVER / 2)


def test_on_a_sliver_the_gamma_to_choose_is_zero_if_it_is_there_and_else_where_it_begins():
    flat = curve([-1], [0.2], 1.0)
    assert flat.middle((-SLIVER / 9, SLIVER / 9)) == 0.0
    assert flat.middle((0.0, SLIVER)) == 0.0
    assert flat.middle((0.5, 0.5 + SLIVER / 2)) == 0.5


def test_a_change_is_at_the_middle_if_it_is_within_half_a_sliver_of_it():
    near, far = (curve([0, 0.5 + share * SLIVER], [0.2, 0.2], 1.0) for share in (0.4, 0.6))
    assert near.middle((0.0, 1.0)) == pytest.approx(0.25)
    assert far.middle((0.0, 1.0)) == 0.5


def test_steps_at_one_gamma_are_one_step():
    gammas, steps = np.array([0.2, 0.2, 0.2, 0.5, 0.9, 0.9]), np.array([1.0, 2, 4, 8, 16, 32])
    sums = accumulate(100.0, gammas, steps, (0.0, 1.0))
    assert sums.gammas.tolist() == [0.0, 0.2, 0.5, 0.9]
    assert sums.values.tolist() == [100.0, 107.0, 115.0, 163.0]
    assert accumulate(1.0, np.array([0.0]), np.array([2.0]), (0.0, 1.0)).values.tolist() == [3.0]


@pytest.mark.parametrize("kind", ["any", "last bits", "negative", "equal", "one", "none"])
def test_gammas_are_put_in_order_whatever_they_are(kind):
    rng = np.random.default_rng(0)
    gammas = {
        "any": rng.random(1000),
        "last bits": 1 + rng.integers(0, 64, 1000) * np.finfo(float).eps,
        "negative": rng.normal(size=1000),
        "equal": np.ones(7),
        "one": np.ones(1),
        "none": np.ones(0),
    }[kind]
    order = ascending(gammas)
    assert sorted(order.tolist()) == list(range(len(gammas)))
    np.testing.assert_array_equal(gammas[order], np.sort(gammas))


@pytest.mark.parametrize("most", [1, 100, 1 << 16, 1 << 40, 1 << 60])
def test_whole_numbers_are_put_in_order_and_equal_ones_stay_in_theirs(most):
    values = np.random.default_rng(0).integers(most, size=500)
    values[::3] = values[0]
    np.testing.assert_array_equal(stable_order(values), np.argsort(values, kind="stable"))
