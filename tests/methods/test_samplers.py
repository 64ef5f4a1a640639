"""The samples that an epoch is made of."""

import numpy as np
import pytest

from levelhead.core.counts import long_tail
from levelhead_lab.methods import METHODS
from levelhead_lab.methods.over_sample import over_sample

SAMPLERS = {name: method.sample for name, method in METHODS.items() if method.sample}
COUNTS = long_tail(200, 7, 50)


@pytest.fixture
def labels():
    return np.random.default_rng(5).permutation(np.repeat(np.arange(7), COUNTS))


def test_over_sampling_takes_as_many_samples_as_there_are_and_every_class_equally_often(labels):
    drawn = over_sample(labels, np.random.default_rng(0))
    per_class = np.bincount(labels[drawn])
    assert len(drawn) == len(labels)
    assert per_class.max() - per_class.min() <= 1


def test_over_sampling_up_to_the_largest_leaves_no_sample_out(labels):
    drawn = over_sample(labels, np.random.default_rng(0), epoch="largest")
    assert np.bincount(labels[drawn]).tolist() == [200] * 7
    assert set(drawn) == set(range(len(labels)))


def test_over_sampling_repeats_the_samples_of_a_class_evenly(labels):
    times = np.bincount(
        over_sample(labels, np.random.default_rng(0), epoch="largest"), minlength=len(labels)
    )
    for k in range(7):
        assert np.ptp(times[labels == k]) <= 1


def test_over_sampling_favors_no_class_when_classes_do_not_divide_the_epoch():
    labels = np.repeat(np.arange(3), [4, 4, 3])
    draw = np.random.default_rng(0)
    extra = sum(np.bincount(labels[over_sample(labels, draw)]) - 3 for _ in range(300))
    assert extra.sum() == 600
    assert (np.abs(extra - 200) < 40).all()


def test_under_sampling_takes_of_each_class_as_many_as_the_rarest_has_and_none_twice(labels):
    drawn = METHODS["under-sample"].sample(labels, np.random.default_rng(0), 0.0)
    assert np.bincount(labels[drawn]).tolist() == [COUNTS.min()] * 7
    assert len(set(drawn)) == len(drawn)


def test_under_sampling_draws_anew_every_epoch(labels):
    draw = np.random.default_rng(0)
    first, second = (set(METHODS["under-sample"].sample(labels, draw, 0.0)) for _ in range(2))
    assert first != second


@pytest.mark.parametrize("name", ["under-sample-once", "under-sample-long"])
def test_under_sampling_once_keeps_the_same_samples_in_every_epoch(name, labels):
    draw = np.random.default_rng(0)
    first, second = (SAMPLERS[name](labels, draw, 0.0) for _ in range(2))
    assert set(first) == set(second)
    assert first.tolist() != second.tolist()
    assert np.bincount(labels[np.unique(first)]).tolist() == [COUNTS.min()] * 7
    assert len(first) == (len(labels) if name == "under-sample-long" else 7 * COUNTS.min())


@pytest.mark.parametrize("name", SAMPLERS)
def test_with_equal_counts_samplers_are_plain_shuffles(name):
    labels = np.random.default_rng(5).permutation(np.repeat(np.arange(7), 11))
    drawn = SAMPLERS[name](labels, np.random.default_rng(0), 0.0)
    assert sorted(drawn) == list(range(77))
    assert drawn.tolist() != sorted(drawn)


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_depend_on_nothing_but_labels_and_generator(name, labels):
    first, second = (SAMPLERS[name](labels, np.random.default_rng(3), 0.0) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert first.tolist() != SAMPLERS[name](labels, np.random.default_rng(4), 0.0).tolist()


@pytest.mark.parametrize("name", SAMPLERS)
def test_classes_are_mixed_in_every_stretch_of_an_epoch(name, labels):
    """Batches come from the draw in order: one in class order would give batches of one class."""
    drawn = labels[SAMPLERS[name](labels, np.random.default_rng(0), 0.0)]
    assert len(set(drawn[: len(drawn) // 2])) >= 6  # of 7: the shortest epoch has 28 samples


def test_classes_absent_from_the_labels_are_not_drawn():
    labels = np.array([0, 0, 0, 4])
    assert np.bincount(labels[over_sample(labels, np.random.default_rng(0))]).tolist() == [
        2,
        0,
        0,
        0,
        2,
    ]


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_labels_is_an_error(name):
    with pytest.raises(
        ValueError, match="labels: expected at least one label to sample from, got none"
    ):
        SAMPLERS[name](np.array([], dtype=int), np.random.default_rng(0), 0.0)


def test_an_unknown_epoch_is_refused(labels):
    with pytest.raises(ValueError, match="epoch: expected 'same' or 'largest', got 'all'"):
        over_sample(labels, np.random.default_rng(0), epoch="all")
