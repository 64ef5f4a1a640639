"""The best threshold of one label, against every threshold tried by hand with scikit-learn's metrics."""

import math

import numpy as np
import pytest
from sklearn import metrics as sk

from levelhead.core.metrics import METRICS
from levelhead.labels.cuts import Cuts

COST = np.array([[0.5, 2.0], [7.0, 1.0]])


def by_hand(metric, truth, predicted, cost=COST):
    """The loss of 0/1 predictions, by the textbook, from the table of what is true and what is predicted."""
    (tn, fp), (fn, tp) = np.bincount(2 * truth + predicted, minlength=4).reshape(2, 2).tolist()
    n, recalls = tn + fp + fn + tp, (tp / (tp + fn), tn / (tn + fp))
    chance = ((tp + fp) * (tp + fn) + (tn + fn) * (tn + fp)) / n**2
    spread = (tp + fp) * (tn + fn) * (tp + fn) * (tn + fp)
    return {
        "error": (fp + fn) / n,
        "balanced_error": 1 - sum(recalls) / 2,
        "macro_f1": 1 - 2 * tp / (2 * tp + fp + fn),
        "mcc": 1 - ((tp * tn - fp * fn) / spread**0.5 if spread else 0),
        "kappa": 1 - ((tp + tn) / n - chance) / (1 - chance),
        "g_mean": 1 - (recalls[0] * recalls[1]) ** 0.5,
        "worst_recall": 1 - min(recalls),
        "cost": (np.array([[tn, fp], [fn, tp]]) * cost).sum() / n,
    }[metric]


def test_the_textbook_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(10):
        truth, predicted = np.append(rng.integers(2, size=(2, 30)), [[0, 1], [1, 1]], axis=1)
        for metric, score in {
            "error": sk.accuracy_score,
            "balanced_error": sk.balanced_accuracy_score,
            "macro_f1": sk.f1_score,
            "mcc": sk.matthews_corrcoef,
            "kappa": sk.cohen_kappa_score,
        }.items():
            assert by_hand(metric, truth, predicted) == pytest.approx(1 - score(truth, predicted))


def thresholds(z):
    """One threshold of every kind: between neighbors, above all and below all."""
    values = np.unique(z)
    return np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1] + 1]])


def sample(seed, n=40, ties=True):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    y[:2] = True, False
    z = 1.5 * y + rng.normal(size=n) - 2
    return (np.round(2 * z) / 2 if ties else z), y.astype(int)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("ties", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("floor", [0.0, 0.7, 1.0])
def test_the_offset_is_as_good_as_the_best_of_all_thresholds(metric, ties, floor):
    for seed in range(8):
        z, y = sample(seed, ties=ties)
        of_label = METRICS[metric].for_labels()
        cuts = Cuts.of(z, y.astype(bool), COST)
        offset = cuts.best_offset(of_label, math.ceil(floor * y.sum() - 1e-9))
        tried = [
            (by_hand(metric, y, (z > t).astype(int)), (z > t)[y == 1].mean()) for t in thresholds(z)
        ]
        best = min(loss for loss, recall in tried if recall >= floor - 1e-12)
        predicted = (z + offset > 0).astype(int)
        assert by_hand(metric, y, predicted) == pytest.approx(best, abs=1e-9)
        assert predicted[y == 1].mean() >= floor - 1e-12
        assert of_label.loss(cuts.tables)[cuts.at(offset)] == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("ties", [True, False], ids=["ties", "no ties"])
def test_the_tables_of_every_cut_are_those_of_its_threshold(ties):
    z, y = sample(3, ties=ties)
    cuts = Cuts.of(z, y.astype(bool), COST)
    assert len(cuts.values) == len(np.unique(z))
    for t in thresholds(z):
        predicted = (z > t).astype(int)
        tables = cuts.tables[cuts.at(-t)]
        wanted = sk.confusion_matrix(y, predicted, labels=[0, 1])
        np.testing.assert_array_equal(tables.right, np.diag(wanted))
        np.testing.assert_array_equal(tables.predicted, wanted.sum(axis=0))
        np.testing.assert_array_equal(tables.sizes, wanted.sum(axis=1))
        assert tables.paid == pytest.approx((wanted * COST).sum())


def test_an_offset_that_gains_nothing_is_0():
    cuts = Cuts.of(np.array([3.0, 1.0, -1.0]), np.array([True, True, False]))
    assert cuts.best_offset(METRICS["error"]) == 0


def test_the_offset_is_the_middle_of_the_widest_range():
    z, y = np.array([-1.0, -2.0, -6.0, -7.0]), np.array([True, False, True, False])
    cuts = Cuts.of(z, y)
    np.testing.assert_allclose(
        METRICS["balanced_error"].loss(cuts.tables), [0.5, 0.25, 0.5, 0.25, 0.5]
    )
    assert cuts.best_offset(METRICS["balanced_error"]) == 1.5  # both ranges are 1 wide: the first
    assert cuts.offset_of_least(np.array([1, 1, 0, 0, 1])) == 4.5  # -2 to -7
    assert cuts.offset_of_least(np.array([0, 1, 1, 1, 1])) == 0  # as it is: nothing is predicted
    # Below all: as far as they are apart, halved.
    assert cuts.offset_of_least(np.array([1, 1, 1, 1, 0])) == 8


def test_neighboring_floats_are_separated():
    low = -1.0
    high = np.nextafter(low, 0)
    cuts = Cuts.of(np.array([high, low]), np.array([True, False]))
    offset = cuts.offset_of_least(np.array([1.0, 0.0, 1.0]))
    assert high + offset > 0
    assert not low + offset > 0
