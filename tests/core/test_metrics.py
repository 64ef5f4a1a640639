"""Metrics of tables against scikit-learn's metrics of predictions; tables add up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

import levelhead as lh
from levelhead.core.metrics import METRICS, find_metric

from .made import COST, LOSSES, loss_by_hand, loss_by_scikit_learn, value_by_scikit_learn


def predictions(seed: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and predictions of 4 classes; of some seeds, without a class or all the same."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3 + seed % 2, n)
    predicted = np.where(rng.random(n) < 0.5, labels, rng.integers(0, 4, n))
    if seed % 7 == 1:
        predicted = np.full(n, seed % 4)
    if seed % 7 == 2:
        labels = np.full(n, seed % 4)
    return labels, predicted


def tables_of(labels, predicted, weights=None) -> lh.Tables:
    return lh.Tables.of(labels, predicted, 4, weights, COST)


def test_every_metric_has_a_truth_in_scikit_learn():
    assert all(np.isfinite(value_by_scikit_learn(name, *predictions(0))) for name in METRICS)
    assert {name for name, metric in METRICS.items() if metric.is_loss} == set(LOSSES)


@pytest.mark.parametrize("metric", METRICS)
@given(st.integers(0, 100_000), st.booleans())
@settings(max_examples=40)
def test_a_metric_of_tables_is_scikit_learns_of_the_predictions(metric, seed, weighted):
    labels, predicted = predictions(seed)
    weights = np.random.default_rng(seed).integers(1, 9, len(labels)) / 7 if weighted else None
    value = METRICS[metric].value(tables_of(labels, predicted, weights))
    truth = value_by_scikit_learn(metric, labels, predicted, COST, weights)
    assert value == pytest.approx(truth, abs=1e-10)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(10))
def test_what_other_tests_do_by_hand_is_scikit_learns(metric, seed):
    labels, predicted = predictions(seed)
    weights = np.random.default_rng(seed).random(len(labels)) if seed % 2 else None
    by_hand, truth = (
        function(metric, labels, predicted, COST, weights)
        for function in (loss_by_hand, loss_by_scikit_learn)
    )
    assert by_hand == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_a_batch_of_tables_has_the_losses_of_each(metric):
    each = [tables_of(*predictions(seed)) for seed in range(30)]
    batch = lh.Tables(
        np.stack([tables.right for tables in each]),
        np.stack([tables.predicted for tables in each]),
        np.stack([tables.sizes for tables in each]),
        np.stack([tables.paid for tables in each]),
    )
    one_by_one = [float(METRICS[metric].loss(tables)) for tables in each]
    np.testing.assert_allclose(METRICS[metric].loss(batch), one_by_one, atol=1e-12)
    grid = lh.Tables(
        *(part.reshape(5, 6, -1) for part in (batch.right, batch.predicted, batch.sizes))
    )
    if metric != "cost":
        np.testing.assert_allclose(METRICS[metric].loss(grid).ravel(), one_by_one, atol=1e-12)


@given(st.integers(0, 100_000), st.integers(1, 39))
@settings(max_examples=40)
def test_tables_of_parts_add_up_to_those_of_the_whole_and_subtract_again(seed, cut):
    labels, predicted = predictions(seed)
    weights = np.random.default_rng(seed).random(len(labels))
    whole = tables_of(labels, predicted, weights)
    first, second = (
        tables_of(labels[part], predicted[part], weights[part])
        for part in (slice(cut), slice(cut, None))
    )
    for tables, truth in ((first + second, whole), (whole - second, first)):
        for name in ("right", "predicted", "sizes", "paid"):
            np.testing.assert_allclose(getattr(tables, name), getattr(truth, name), atol=1e-12)
    assert (first + lh.Tables.of(labels, predicted, 4)).paid is None  # one was not priced


def test_recall_precision_share_and_accuracy_are_scikit_learns():
    labels, predicted = predictions(3, 200)
    tables = tables_of(labels, predicted)
    np.testing.assert_allclose(tables.recall, sk.recall_score(labels, predicted, average=None))
    np.testing.assert_allclose(
        tables.precision, sk.precision_score(labels, predicted, average=None)
    )
    np.testing.assert_allclose(tables.share, np.bincount(predicted, minlength=4) / 200)
    assert tables.accuracy == pytest.approx(sk.accuracy_score(labels, predicted))
    assert tables.balanced_accuracy == pytest.approx(sk.balanced_accuracy_score(labels, predicted))
    assert tables.macro_f1 == pytest.approx(sk.f1_score(labels, predicted, average="macro"))


def test_a_class_without_samples_or_predictions_has_no_recall_or_precision():
    tables = lh.Tables.of(np.array([0, 0, 1]), np.array([0, 0, 0]), 3)
    np.testing.assert_array_equal(tables.recall, [1, 0, np.nan])
    np.testing.assert_allclose(tables.precision, [2 / 3, np.nan, np.nan])
    assert tables.balanced_accuracy == pytest.approx(0.5)


@pytest.mark.parametrize(
    "metric", [m for m in METRICS if m not in ("error", "g_mean", "worst_recall")]
)
def test_toward_a_target_a_metric_is_that_of_samples_weighted_by_it(metric):
    labels, predicted = predictions(5, 300)
    target = np.array([0.1, 0.2, 0.3, 0.4])
    goal = lh.Goal(metric, cost=COST if metric == "cost" else None).on(labels, 4, None, target)
    weights = (target / np.bincount(labels))[labels]
    truth = value_by_scikit_learn(
        "error" if metric == "balanced_error" else metric, labels, predicted, COST, weights
    )
    value = goal.metric.shown(goal.loss(goal.tables(labels, predicted, 4)))
    assert float(value) == pytest.approx(truth)


def test_a_metric_is_found_by_its_name_its_alias_or_as_it_is():
    for name, metric in METRICS.items():
        for alias in (name, *metric.aliases, metric):
            assert find_metric(alias) is metric
    assert find_metric("f1_macro").name == "macro_f1"
    assert find_metric("balanced_accuracy").name == "balanced_error"


@pytest.mark.parametrize("unknown", ["auc", None, 3, ["error"]])
def test_an_unknown_metric_is_refused_with_all_names_and_aliases(unknown):
    with pytest.raises(lh.LevelheadError) as caught:
        find_metric(unknown)
    for metric in METRICS.values():
        assert all(word in str(caught.value) for word in (metric.name, *metric.aliases))
    assert str(caught.value).startswith("metric: expected error, balanced_error")
    assert "\n" not in str(caught.value)


def test_no_two_metrics_share_a_word():
    words = [word for metric in METRICS.values() for word in (metric.name, *metric.aliases)]
    assert len(words) == len(set(words))


def test_values_and_gains_are_told_in_percent_and_points_or_as_numbers():
    assert METRICS["macro_f1"].value_text(0.12345) == "12.35%"
    assert METRICS["mcc"].value_text(-0.00001) == "0.000"
    assert METRICS["macro_f1"].gain_text(-0.000001) == "0.00 points"
    assert METRICS["macro_f1"].gain_text(0.1, (0.05, 0.15)) == "10.00 points (5.00 to 15.00)"
    assert METRICS["kappa"].gain_text(0.1, (0.05, 0.15)) == "0.100 (0.050 to 0.150)"
    assert METRICS["cost"].value_text(12.5) == "12.5"


def test_only_many_samples_carry_two_decimals():
    assert METRICS["error"].value_text(0.12345, 9_999) == "12.3%"
    assert METRICS["error"].value_text(0.12345, 10_000) == "12.35%"
    assert METRICS["error"].gain_text(0.1, (0.05, 0.15), 9_999) == "10.0 points (5.0 to 15.0)"
    assert METRICS["mcc"].value_text(0.12345, 50) == "0.123"


def test_a_cost_needs_a_matrix():
    with pytest.raises(lh.LevelheadError, match="'cost' needs a cost matrix"):
        METRICS["cost"].loss(lh.Tables.of(np.array([0]), np.array([0]), 2))


def test_a_function_as_a_metric_is_answered_by_how_to_make_it_one():
    labels = np.repeat([0, 1], 20)
    with pytest.raises(lh.LevelheadError, match=r"metric: expected a name, or lh\.Metric\(name,"):
        lh.tune(np.eye(2)[labels] * 2 - 1, labels, metric=lambda truth, predicted: 0.0)
