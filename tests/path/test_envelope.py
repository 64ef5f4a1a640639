"""Changes of predictions: the same in float32 and float64, and of some samples as of all."""

from dataclasses import replace

import numpy as np
import pytest

from levelhead import gamma_path
from levelhead.core.rules import find_path_rule
from levelhead.path.curve import SLIVER
from levelhead.path.engines import find_right
from levelhead.path.envelope import compute_envelope


@pytest.mark.parametrize("seed", range(12))
def test_float32_logits_change_where_the_same_numbers_in_float64_do(seed):
    rng = np.random.default_rng(seed)
    for _ in range(12):
        classes = int(rng.integers(2, 60))
        logits = (rng.normal(size=(20, classes)) * 10 ** rng.uniform(-2, 2) + rng.normal()).astype(
            np.float32
        )
        logits[:3] = [[0], [1], [-1]]
        logits = np.round(logits) if seed % 3 == 0 else logits
        counts = (
            rng.choice([1, 5, 25, 125, 1000, 7, 10**5], classes)
            if seed % 2
            else rng.integers(1, 1000, classes)
        )
        rule, reach = (
            find_path_rule(("rescale", "shift")[seed // 2 % 2]).direction(counts),
            ((0.0, 2.0), (-1.0, 1.0), (0.5, 4.0))[seed % 3],
        )
        narrow, wide = (
            compute_envelope(x, rule, reach) for x in (logits, logits.astype(np.float64))
        )
        assert np.array_equal(narrow.start, wide.start)
        tables = [np.stack([x.gamma, x.sample, x.new_class, x.old_class]) for x in (narrow, wide)]
        narrow_table, wide_table = (table[:, np.lexsort(table[::-1])] for table in tables)
        assert np.array_equal(narrow_table, wide_table)


@pytest.mark.parametrize("seed", range(8))
def test_changes_of_some_samples_give_their_mismatch(seed):
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 9))
    logits = np.round(2 * rng.normal(size=(60, classes)), 1 if seed % 2 else 9)  # ties, or none
    whole = compute_envelope(
        logits, find_path_rule("shift").direction(rng.integers(1, 100, classes)), (0.0, 2.0)
    )
    rows = np.flatnonzero(rng.random(60) < 0.7)
    some = whole.take(rows)
    weights, prior = rng.random(len(rows)), rng.dirichlet(np.ones(classes))
    for changes in (some, replace(some)):  # with what was sorted for all samples, and sorted anew
        curve = changes.mismatch(prior, weights)
        for gamma in curve.gammas:
            shares = np.bincount(whole.predictions(gamma)[rows], weights / weights.sum(), classes)
            assert curve.at(gamma) == pytest.approx(np.abs(shares - prior).sum() / 2, abs=1e-12)


@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_of_two_classes_of_equal_counts_the_larger_logit_leads_by_however_little(rule):
    # Both cross the first class's line at the same float, and neither ever overtakes the other.
    logits = np.array([[4.0, 0.1, np.nextafter(0.1, 1)], [4.0, 1e-20, 2e-20], [4.0, 0.1, 0.1]])
    path = gamma_path(logits, [0, 0, 0], [100, 1, 1], rule=rule, range=(0.0, 60.0))
    changes = path.envelope
    assert changes.new_class[np.argsort(changes.sample)].tolist() == [2, 2, 1]
    assert all(
        np.array_equal(changes.predictions(gamma), path.predictions(gamma))
        for gamma in changes.gamma
    )


@pytest.mark.parametrize("rule", ["shift", "rescale"])
@pytest.mark.parametrize("seed", range(20))
def test_changes_tell_where_each_sample_is_right(rule, seed):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(200, 6)) + 1, rng.integers(6, size=200)
    logits = np.round(2 * logits) / 2 if seed % 2 else logits  # ties, also of three lines at once
    made = find_path_rule(rule).direction(np.array([64, 64, 16, 8, 2, 1]))
    for range_ in ((0.0, 2.0), (-1.0, 3.0)):
        _, lo, hi = find_right(logits, labels, made, range_)
        changes = compute_envelope(logits, made, range_)
        found = changes.where_right(labels)
        for gamma in changes.gamma[::7]:  # at the very change
            right = (found[0] <= gamma) & (gamma <= found[1])
            np.testing.assert_array_equal(right, changes.predictions(gamma) == labels)
        long = (
            np.minimum(hi, range_[1]) - np.maximum(lo, range_[0]) > SLIVER
        )  # three lines may cross at two floats
        np.testing.assert_array_equal(found[1] - found[0] > SLIVER, long)
        for mine, theirs in zip(
            found, (np.maximum(lo, range_[0]), np.minimum(hi, range_[1])), strict=True
        ):
            np.testing.assert_allclose(mine[long], theirs[long], rtol=1e-14, atol=1e-300)
