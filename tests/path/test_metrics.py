"""Metrics, costs and floors along the path, against those of the predictions at every gamma."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

import levelhead as lh
from levelhead.core.metrics import METRICS, Metric
from levelhead.core.rules import Tau

from . import textbook

NORMS = np.array([4.0, 2.0, 1.0, 0.5])
RULES = {"rescale": "rescale", "shift": "shift", "tau": Tau(norms=NORMS)}
COUNTS = np.array([64, 16, 4, 1])
COST = np.array(
    [[0.0, 1.0, 2.0, 1.0], [3.0, 0.0, 1.0, 1.0], [5.0, 4.0, 0.5, 2.0], [9.0, 8.0, 7.0, 0.0]]
)


def problem(seed: int, *, tied: bool, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of four classes, of which the last may have no sample; with ties, or none."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3 + seed % 2, n)
    if tied:
        logits = rng.choice([-2.0, -1.0, 0.5, 1.0, 2.0, 4.0], size=(n, 4))
        logits[0] = [4.0, 2.0, 1.0, 0.5]  # at 0.5, all four are equal under rescale
        return logits, labels
    return (2 + rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[labels]) * [1.0, 0.7, 0.5, 0.4], labels


def expected(metric: str, labels: np.ndarray, predicted: np.ndarray) -> float:
    return textbook.score(metric, labels, predicted, COST)


@pytest.mark.parametrize("seed", range(12))
def test_the_textbook_is_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3 + seed % 2, 30)
    predicted = np.full(30, seed % 3) if seed < 3 else rng.integers(0, 4, 30)
    if seed == 3:
        labels = predicted = np.zeros(30, int)  # nothing for a correlation to see
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        have = np.unique(labels)
        recall = sk.recall_score(labels, predicted, labels=have, average=None)
        theirs = {
            "error": sk.zero_one_loss(labels, predicted),
            "balanced_error": 1 - sk.balanced_accuracy_score(labels, predicted),
            "macro_f1": sk.f1_score(labels, predicted, labels=have, average="macro"),
            "mcc": sk.matthews_corrcoef(labels, predicted),
            "kappa": np.nan_to_num(sk.cohen_kappa_score(labels, predicted)),
            "g_mean": np.prod(recall) ** (1 / len(recall)),
            "worst_recall": recall.min(),
            "cost": np.average(COST[labels, predicted]),
        }
    assert set(theirs) == set(METRICS)
    for metric, value in theirs.items():
        assert expected(metric, labels, predicted) == pytest.approx(value, abs=1e-12), metric


def path_of(logits, labels, rule, **options):
    return lh.gamma_path(logits, labels, COUNTS, rule=RULES[rule], **options)


def cost_for(metric: str) -> np.ndarray | None:
    return COST if metric == "cost" else None


def cells(*curves) -> list[float]:
    """The middle of every stretch between breakpoints that differ by more than rounding."""
    edges = np.unique(np.concatenate([*(curve.gammas for curve in curves), [curves[0].end]]))
    return [float((a + b) / 2) for a, b in pairwise(edges) if b - a > 1e-9]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", METRICS)
@given(st.integers(0, 10_000), st.booleans())
@example(1092, False)  # predictions of one class alone, whose shares do not add up exactly
@settings(max_examples=12, deadline=None)
def test_the_curve_is_the_metric_of_the_predictions_at_every_gamma(rule, metric, seed, tied):
    logits, labels = problem(seed, tied=tied)
    path = path_of(logits, labels, rule)
    curve = path.curve_of(metric, cost=cost_for(metric))
    gammas = [0.0, *cells(curve, path.balanced_error_curve)]
    truth = [expected(metric, labels, path.rule.scores(logits, g).argmax(axis=1)) for g in gammas]
    np.testing.assert_allclose([curve.at(gamma) for gamma in gammas], truth, rtol=0, atol=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(6))
def test_the_curve_is_the_metric_at_the_breakpoints_themselves_where_scores_tie(metric, seed):
    # Powers of two, so scores at these gammas have no rounding.
    logits, labels = problem(seed, tied=True)
    path = path_of(logits, labels, "rescale")
    curve = path.curve_of(metric, cost=cost_for(metric))
    for gamma in (0.0, 0.5, 1.0, 1.5, 2.0):
        predicted = (logits * (64 / COUNTS) ** gamma).argmax(axis=1)
        assert curve.at(gamma) == pytest.approx(expected(metric, labels, predicted), abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "floor", [None, 0.3, {0: 0.5, 2: 0.2}], ids=["free", "every class", "two classes"]
)
@pytest.mark.parametrize("seed", [0, 3])  # three classes, and four with ties
def test_the_best_gamma_is_the_best_of_all_gammas_that_meet_the_floors(rule, metric, floor, seed):
    logits, labels = problem(seed, tied=seed > 1, n=60)
    path = path_of(logits, labels, rule)
    sign = 1 if METRICS[metric].is_loss else -1
    wanted = {int(c): floor for c in np.unique(labels)} if isinstance(floor, float) else floor or {}
    truth = {}
    for gamma in [0.0, *cells(path.curve_of("macro_f1"), path.error_curve)]:
        predicted = path.rule.scores(logits, gamma).argmax(axis=1)
        if all(
            (predicted[labels == c] == c).mean() >= least - 1e-12 for c, least in wanted.items()
        ):
            truth[gamma] = sign * expected(metric, labels, predicted)
    goal = lh.Goal(metric, cost=cost_for(metric), floors=floor)
    if not truth:
        if seed <= 1:  # with ties, a single gamma may meet them
            with pytest.raises(lh.LevelheadError, match="floors: no gamma"):
                path.best(goal)
        return
    best = path.best(goal)
    assert best.metric == metric
    assert sign * best.value == pytest.approx(min(truth.values()), abs=1e-9)
    assert best.value == pytest.approx(
        expected(metric, labels, path.predictions(best.gamma)), abs=1e-9
    )


def test_a_metric_of_ones_own_has_a_curve():
    logits, labels = problem(0, tied=False)
    path = path_of(logits, labels, "shift")
    rarest = Metric(
        "rarest", "precision of class 2", lambda t: t.predicted[..., 2] - t.right[..., 2]
    )
    curve = path.curve_of(rarest)
    for gamma in cells(curve):
        predicted = path.predictions(gamma)
        assert curve.at(gamma) == pytest.approx(1 - ((predicted == 2) & (labels != 2)).sum())


REFUSED = {
    "an unknown metric": ({"metric": "auc"}, "metric: expected error, balanced_error, macro_f1"),
    "a cost without a matrix": ({"metric": "cost"}, "metric: 'cost' needs a cost matrix"),
    "a cost and a metric": ({"metric": "mcc", "cost": COST}, "cost: expected no other metric"),
    "a cost of another shape": ({"cost": np.eye(3)}, r"cost: expected numbers \[4, 4\], row true"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_one_line_that_says_why(case):
    options, words = REFUSED[case]
    logits, labels = problem(1, tied=False)
    path = path_of(logits, labels, "rescale")
    with pytest.raises(lh.LevelheadError, match=words) as caught:
        path.best(**options)
    assert "\n" not in str(caught.value)
