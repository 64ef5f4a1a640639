"""Changes of predictions: the same in float32 and float64, and the shares that follow from them."""

import numpy as np
import pytest

from levelhead import gamma_path
from levelhead.core.gamma_path import find_path_rule
from levelhead.path.walk import compute_envelope


@pytest.mark.parametrize("seed", range(12))
def test_float32_logits_change_where_the_same_numbers_in_float64_do(seed):
    rng = np.random.default_rng(seed)
    for _ in range(12):
        classes = int(rng.integers(2, 60))
        logits = rng.normal(size=(20, classes)) * 10 ** rng.uniform(-2, 2) + rng.normal()
        logits = logits.astype(np.float32)
        logits[:3] = [[0], [1], [-1]]
        logits = np.round(logits) if seed % 3 == 0 else logits
        counts = rng.integers(1, 1000, classes)
        if seed % 2:
            counts = rng.choice([1, 5, 25, 125, 1000, 7, 10**5], classes)
        direction = find_path_rule(("rescale", "shift")[seed // 2 % 2]).direction(counts)
        reach = ((0.0, 2.0), (-1.0, 1.0), (0.5, 4.0))[seed % 3]
        narrow, wide = (
            compute_envelope(x, direction, reach) for x in (logits, logits.astype(np.float64))
        )
        assert np.array_equal(narrow.start, wide.start)
        tables = [np.stack([x.gamma, x.sample, x.new_class, x.old_class]) for x in (narrow, wide)]
        narrow_table, wide_table = (table[:, np.lexsort(table[::-1])] for table in tables)
        assert np.array_equal(narrow_table, wide_table)


@pytest.mark.parametrize("seed", range(8))
def test_the_mismatch_is_that_of_the_predictions_at_every_gamma(seed):
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 9))
    logits = np.round(2 * rng.normal(size=(60, classes)), 1 if seed % 2 else 9)  # ties, or none
    direction = find_path_rule("shift").direction(rng.integers(1, 100, classes))
    changes = compute_envelope(logits, direction, (0.0, 2.0))
    prior = rng.dirichlet(np.ones(classes))
    for target in (prior, None):
        curve = changes.mismatch(target)
        wanted = np.full(classes, 1 / classes) if target is None else target
        assert set(changes.gamma) <= set(curve.gammas)
        for gamma in curve.gammas:
            shares = np.bincount(changes.predictions(gamma), minlength=classes) / 60
            assert curve.at(gamma) == pytest.approx(np.abs(shares - wanted).sum() / 2, abs=1e-12)


def test_without_a_change_the_mismatch_is_that_at_the_start():
    direction = find_path_rule("rescale").direction(np.array([5, 5]))
    changes = compute_envelope(np.array([[2.0, 1.0], [3.0, 1.0]]), direction, (0.0, 2.0))
    assert len(changes.gamma) == 0
    curve = changes.mismatch()
    assert (curve.gammas.tolist(), curve.values.tolist()) == ([0.0], [0.5])


@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_of_two_classes_of_equal_counts_the_larger_logit_leads_by_however_little(rule):
    # Both cross the first class's line at the same float, and neither ever overtakes the other.
    logits = np.array([[4.0, 0.1, np.nextafter(0.1, 1)], [4.0, 1e-20, 2e-20], [4.0, 0.1, 0.1]])
    path = gamma_path(logits, [0, 0, 0], [100, 1, 1], rule=rule, range=(0.0, 60.0))
    changes = path.changes
    assert changes.new_class[np.argsort(changes.sample)].tolist() == [2, 2, 1]


def test_four_lines_that_meet_at_once_have_their_first_class_there_and_the_steepest_after():
    sizes = np.array([4.0, 2.0, 8.0, 1.0])
    changes = compute_envelope(sizes[None], find_path_rule("rescale").direction(sizes), (0.0, 2.0))
    assert changes.start.tolist() == [2]
    assert changes.gamma.tolist() == [1.0, np.nextafter(1.0, 2.0)]
    assert changes.old_class.tolist() == [2, 0]
    assert changes.new_class.tolist() == [0, 3]


@pytest.mark.parametrize("rule", ["shift", "rescale"])
@pytest.mark.parametrize("seed", range(10))
def test_each_change_begins_where_the_one_before_it_ends(rule, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(200, 6)) + 1
    logits = np.round(2 * logits) / 2 if seed % 2 else logits  # ties, also of three lines at once
    direction = find_path_rule(rule).direction(np.array([64, 64, 16, 8, 2, 1]))
    for range_ in ((0.0, 2.0), (-1.0, 3.0)):
        changes = compute_envelope(logits, direction, range_)
        now = changes.start.copy()
        assert (np.diff(changes.gamma) >= 0).all()
        for sample, old, new in zip(
            changes.sample, changes.old_class, changes.new_class, strict=True
        ):
            assert now[sample] == old != new
            now[sample] = new
        assert np.array_equal(now, changes.predictions(range_[1]))
