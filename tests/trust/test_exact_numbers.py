"""A quick profile of `exact_numbers.py`: every family, every engine, in a few seconds."""

import numpy as np
import pytest

from bench.trust.exact_numbers import FAMILIES, check_family, compare_exactly


def test_there_are_families_enough():
    assert len(FAMILIES) >= 20


@pytest.mark.slow
def test_no_engine_differs_from_exact_arithmetic():
    rng, pairs, wrong = (
        np.random.default_rng(1),
        0,
        {},
    )  # seed 1 found a tie at 0 among logits of 1e-323
    for name in FAMILIES:
        counted = check_family(name, rng, rows=60, gammas=12)
        pairs += counted["pairs"]
        wrong |= {f"{name}: {key}": n for key, n in counted.items() if key.startswith("wrong: ")}
    assert not wrong
    assert pairs > 500 * len(FAMILIES)


def test_the_comparison_itself_is_right_where_it_is_known():
    assert compare_exactly(4.0, 2.0, 1.0, 4.0, 0.5, True) == 0  # 4 = 2 * 4^0.5
    assert compare_exactly(4.0, 2.0, 1.0, 4.0, 0.5000001, True) == -1
    assert compare_exactly(-4.0, -2.0, 1.0, 4.0, 0.4999999, True) == -1
    assert compare_exactly(3.0, 1.0, 0.0, 2.0, 1.0, False) == 0
    assert compare_exactly(3.0, 1.0, 0.0, 2.0, 0.999, False) == 1
    assert compare_exactly(1.0, np.nextafter(1.0, 2), 1.0, 3.0, 0.0, True) == -1
