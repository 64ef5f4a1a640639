"""Counts that are not those of the training set, or not in the order of the classes, are doubted in words."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import levelhead as lh
from levelhead.choice.diagnostics import diagnose_equal_counts, diagnose_reversed_counts
from levelhead_lab.paper.record import shipped_snapshots


@pytest.fixture(scope="module")
def digits():
    """Long-tailed digits in a random order of the classes: training samples, held-out samples, counts."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(3)
    sizes = rng.permutation(lh.counts.long_tail(110, 10, 50))
    train, rest = [], []
    for k in range(10):
        rows = rng.permutation(np.flatnonzero(y == k))
        train.extend(rows[: sizes[k]])
        rest.extend(rows[120:])
    return x[train] / 16, y[train], x[rest] / 16, y[rest], sizes


def reverse(counts):
    """Give the largest count to the class with the smallest, and so on."""
    reverse = np.empty_like(counts)
    reverse[np.argsort(counts)] = np.sort(counts)[::-1]
    return reverse


@pytest.mark.parametrize("weights", [None, "balanced", "exaggerated"])
def test_reversed_counts_of_a_plain_model_warn_and_right_ones_never(digits, weights):
    x, y, held, labels, counts = digits
    exaggerated = {k: float((counts.max() / counts[k]) ** 1.5) for k in range(10)}
    how = exaggerated if weights == "exaggerated" else weights
    logits = LogisticRegression(max_iter=500, class_weight=how).fit(x, y).decision_function(held)
    assert diagnose_reversed_counts(logits, labels, counts) is None
    if weights is None:
        assert "in reverse or of another order" in str(
            diagnose_reversed_counts(logits, labels, reverse(counts))
        )


def test_the_shipped_networks_doubt_only_reversed_counts():
    for network in shipped_snapshots().values():
        for split in network.features:
            given = network.logits(split), network.labels[split]
            assert diagnose_reversed_counts(*given, network.counts) is None
        assert (
            diagnose_reversed_counts(
                network.logits("test"), network.labels["test"], network.counts[::-1]
            )
            is not None
        )


def test_few_samples_are_no_ground_for_doubt():
    logits, labels = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 2.0]]), np.array([0, 0, 1])
    assert diagnose_reversed_counts(logits, labels, np.array([900, 30])) is None


def test_tune_warns_of_equal_and_of_reversed_counts_and_keeps_the_words():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 100)
    logits = 3 + 2 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + [2, 0, -2]
    with pytest.warns(lh.warnings.CountsWarning, match="the counts are equal"):
        tuned = lh.tune(logits, labels, [50, 50, 50], rule="rescale", bootstrap=0)
    assert any(line.startswith("CountsWarning: the counts are equal") for line in tuned.warnings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lh.tune(logits, labels, [20, 100, 500], rule="rescale", bootstrap=0)
    assert next(
        str(one.message) for one in caught if one.category is lh.warnings.CountsWarning
    ).startswith("the classes with the fewest")
    with warnings.catch_warnings():
        warnings.simplefilter("error", lh.warnings.CountsWarning)
        lh.tune(logits, labels, [500, 100, 20], rule="rescale", bootstrap=0)


def test_counts_that_differ_by_a_few_are_almost_equal():
    assert "almost equal (98 to 103 per class)" in str(
        diagnose_equal_counts(np.array([98, 103, 100]))
    )
    assert diagnose_equal_counts(np.array([98, 120, 100])) is None


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.RangeWarning")
def test_a_model_below_chance_has_its_columns_in_another_order():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 50)
    logits = rng.normal(size=(200, 4)) + 3 * np.eye(4)[labels]
    with pytest.warns(lh.warnings.CountsWarning, match="below chance"):
        lh.tune(logits[:, [1, 2, 3, 0]], labels, [400, 200, 100, 50], rule="shift", bootstrap=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", lh.warnings.CountsWarning)
        lh.tune(logits, labels, [400, 200, 100, 50], rule="shift", bootstrap=0)
