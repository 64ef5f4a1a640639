"""Other metrics, costs and floors on the path, against the metrics of the predictions at every gamma."""

from __future__ import annotations

import html
import json
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

import levelhead as lh
from levelhead.core.rules import Tau, find_path_rule, rule_with
from levelhead.path.curve import METRICS
from levelhead.support.warnings import quiet

from . import textbook

RULES = ("rescale", "shift", "tau")
cross_fit = partial(lh.cross_fit, rule="rescale")
NORMS = np.array([4.0, 2.0, 1.0, 0.5])
COUNTS = np.array([64, 16, 4, 1])
COST = np.array(
    [[0.0, 1.0, 2.0, 1.0], [3.0, 0.0, 1.0, 1.0], [5.0, 4.0, 0.5, 2.0], [9.0, 8.0, 7.0, 0.0]]
)


def tune(*data, rule="rescale", metric="balanced_error", **options) -> lh.Tuned:
    """Tune with the parts of a goal and of a rule among the options."""
    goal, of_rule = (
        {name: options.pop(name) for name in names if name in options}
        for names in (("cost", "floors", "criterion"), ("range", "norms", "bias"))
    )
    return lh.tune(
        *data,
        metric=lh.Goal(metric, **goal),
        rule=rule_with(rule, **of_rule) if of_rule else rule,
        **options,
    )


def problem(seed: int, *, tied: bool, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of four classes, of which the last may have no sample; with ties, few different logits."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3 + seed % 2, n)
    if tied:
        logits = rng.choice([-2.0, -1.0, 0.5, 1.0, 2.0, 4.0], size=(n, 4))
        logits[0] = [4.0, 2.0, 1.0, 0.5]  # at 0.5, all four are equal under rescale
        return logits, labels
    return (2 + rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[labels]) * [1.0, 0.7, 0.5, 0.4], labels


def expected(
    metric: str, labels: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None = None
) -> float:
    return textbook.score(metric, labels, predicted, COST, weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_textbook_is_scikit_learns(seed, weighted):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3 + seed % 2, 30)
    predicted = np.full(30, seed % 3) if seed < 3 else rng.integers(0, 4, 30)
    if seed == 3:
        labels = predicted = np.zeros(30, int)  # nothing for a correlation to see
    weights = rng.integers(1, 5, 30) / 7 if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recall = sk.recall_score(
            labels, predicted, labels=np.unique(labels), average=None, sample_weight=weights
        )
        theirs = {
            "error": sk.zero_one_loss(labels, predicted, sample_weight=weights),
            "balanced_error": 1
            - sk.balanced_accuracy_score(labels, predicted, sample_weight=weights),
            "macro_f1": sk.f1_score(
                labels, predicted, labels=np.unique(labels), average="macro", sample_weight=weights
            ),
            "mcc": sk.matthews_corrcoef(labels, predicted, sample_weight=weights),
            "kappa": np.nan_to_num(sk.cohen_kappa_score(labels, predicted, sample_weight=weights)),
            "g_mean": np.prod(recall) ** (1 / len(recall)),
            "worst_recall": recall.min(),
            "cost": np.average(COST[labels, predicted], weights=weights),
        }
    assert set(theirs) == set(METRICS)
    for metric, value in theirs.items():
        assert expected(metric, labels, predicted, weights) == pytest.approx(value, abs=1e-12), (
            metric
        )


def path_of(logits, labels, rule, **options):
    return lh.gamma_path(
        logits, labels, COUNTS, rule=Tau(norms=NORMS) if rule == "tau" else rule, **options
    )


def cost_for(metric: str) -> np.ndarray | None:
    return COST if metric == "cost" else None


def cells(*curves) -> list[float]:
    """The middle of every stretch between breakpoints that differ by more than rounding."""
    edges = np.unique(np.concatenate([*(curve.gammas for curve in curves), [curves[0].end]]))
    return [float((a + b) / 2) for a, b in pairwise(edges) if b - a > 1e-9]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", METRICS)
@given(st.integers(0, 10_000), st.booleans(), st.booleans())
@example(1092, False, True)  # predictions of one class alone, whose shares do not add up exactly
@settings(max_examples=12, deadline=None)
def test_the_curve_is_the_metric_of_the_predictions_at_every_gamma(
    rule, metric, seed, tied, weighted
):
    logits, labels = problem(seed, tied=tied)
    weights = np.random.default_rng(seed).integers(1, 5, len(labels)) / 7 if weighted else None
    path = path_of(logits, labels, rule, weights=weights)
    curve = path.curve_of(metric, cost=cost_for(metric))
    gammas = [0.0, *cells(curve, path.balanced_error_curve)]
    truth = [
        expected(metric, labels, path.rule.scores(logits, g).argmax(axis=1), weights)
        for g in gammas
    ]
    np.testing.assert_allclose([curve.at(gamma) for gamma in gammas], truth, rtol=0, atol=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(6))
def test_the_curve_is_the_metric_at_the_breakpoints_themselves_where_scores_tie(metric, seed):
    logits, labels = problem(
        seed, tied=True
    )  # powers of two, so scores at these gammas have no rounding
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
    sign = 1 if metric in ("error", "balanced_error", "cost") else -1
    wanted = {int(c): floor for c in np.unique(labels)} if isinstance(floor, float) else floor or {}
    truth = {}
    for gamma in [0.0, *cells(path.curve_of("macro_f1"), path.error_curve)]:
        predicted = path.rule.scores(logits, gamma).argmax(axis=1)
        if all(
            (predicted[labels == c] == c).mean() >= least - 1e-12 for c, least in wanted.items()
        ):
            truth[gamma] = sign * expected(metric, labels, predicted)
    options = {"cost": cost_for(metric), "floors": floor}
    if not truth:
        with pytest.raises(lh.LevelheadError, match="floors: no gamma"), quiet():
            tune(
                logits,
                labels,
                COUNTS,
                metric=metric,
                rule=rule,
                bootstrap=0,
                **options,
                norms=NORMS if rule == "tau" else None,
            )
        if seed <= 1:  # without ties
            with pytest.raises(lh.LevelheadError, match="floors: no gamma"):
                path.best(metric, **options)
        return
    best = path.best(metric, **options)
    assert best.metric == metric
    assert sign * best.value == pytest.approx(min(truth.values()), abs=1e-9)
    assert best.value == pytest.approx(
        expected(metric, labels, path.predictions(best.gamma)), abs=1e-9
    )
    with quiet():
        tuned = tune(
            logits,
            labels,
            COUNTS,
            metric=metric,
            rule=rule,
            range=path.range,
            criterion="balanced_error",
            bootstrap=0,
            norms=NORMS if rule == "tau" else None,
            **options,
        )
    assert tuned.value == pytest.approx(
        expected(metric, labels, path.predictions(tuned.gamma)), abs=1e-9
    )
    assert sign * tuned.value == pytest.approx(min(truth.values()), abs=1e-9)
    assert tuned.metric == metric
    assert tuned.value is not None
    assert tuned.value_at_zero is not None
    assert tuned.gain == pytest.approx(sign * (tuned.value_at_zero - tuned.value), abs=1e-9)


def bent(seed: int = 0, sizes=(80, 40, 20, 10)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), sizes)
    return (5 + rng.normal(size=(len(labels), 4)) + 2 * np.eye(4)[labels]) * (
        COUNTS / 64
    ) ** 0.3, labels


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_intervals_of_gamma_and_gain_and_a_report(metric):
    logits, labels = bent()
    tuned = tune(logits, labels, COUNTS, metric=metric, cost=cost_for(metric), bootstrap=200)
    assert tuned.interval is not None
    assert tuned.interval[0] <= tuned.gamma <= tuned.interval[1]
    assert tuned.gain_interval is not None
    assert tuned.gain is not None
    assert tuned.gain_interval[0] <= tuned.gain <= tuned.gain_interval[1]
    assert tuned.title in tuned.report()
    assert tuned.curve.at(tuned.gamma) == pytest.approx(tuned.value)
    loaded = json.loads(json.dumps(tuned.to_dict()))
    assert loaded["metric"] == metric
    assert loaded["value"] == pytest.approx(tuned.value)
    assert tuned.title in repr(tuned)
    assert html.escape(tuned.title) in tuned._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["macro_f1", "cost"])
def test_the_interval_of_the_gain_is_that_of_a_bootstrap_by_hand(metric):
    logits, labels = bent(1, (400, 300, 200, 100))
    tuned = tune(logits, labels, COUNTS, metric=metric, cost=cost_for(metric), bootstrap=2000)
    rng, sign = np.random.default_rng(1), 1 if metric == "cost" else -1
    before, after = (
        lh.gamma_path(logits, labels, COUNTS).predictions(at) for at in (0.0, tuned.gamma)
    )
    gains = []
    for _ in range(2000):
        rows = np.concatenate(
            [rng.choice(np.flatnonzero(labels == c), (labels == c).sum()) for c in range(4)]
        )
        was, is_now = (
            expected(metric, labels[rows], predicted[rows]) for predicted in (before, after)
        )
        gains.append(sign * (was - is_now))
    assert tuned.gain_interval is not None
    width = tuned.gain_interval[1] - tuned.gain_interval[0]
    assert width == pytest.approx(np.diff(np.quantile(gains, [0.025, 0.975]))[0], rel=0.15)
    assert tuned.gain == pytest.approx(np.mean(gains), abs=0.25 * width)


def test_a_target_weighs_the_classes_in_a_metric():
    logits, labels = bent(2)
    target = np.array([0.1, 0.2, 0.3, 0.4])
    tuned = tune(logits, labels, COUNTS, metric="macro_f1", target=target, bootstrap=0)
    weights = (target / np.bincount(labels))[labels]
    path = lh.gamma_path(logits, labels, COUNTS)
    assert tuned.value == pytest.approx(
        expected("macro_f1", labels, path.predictions(tuned.gamma), weights)
    )
    best = max(
        expected("macro_f1", labels, path.predictions(g), weights)
        for g in cells(path.curve_of("macro_f1"))
    )
    assert tuned.value == pytest.approx(best)


def test_folds_are_pooled_for_other_metrics_too():
    folds = [(*bent(seed), COUNTS * (1 + seed)) for seed in range(2)]
    logits, labels = (np.concatenate([fold[i] for fold in folds]) for i in range(2))
    one = tune(logits, labels, COUNTS, metric="mcc", bootstrap=0)
    pooled = cross_fit(folds, metric="mcc", bootstrap=0)
    assert (pooled.gamma, pooled.value) == pytest.approx((one.gamma, one.value))


@pytest.mark.slow
def test_a_kept_bias_can_be_tuned_by_another_metric():
    logits, labels = bent(3)
    bias = np.array([0.5, 0.2, -0.1, 0.0])
    rule = find_path_rule("rescale").direction(COUNTS, bias=bias)
    tuned = tune(logits, labels, COUNTS, metric="macro_f1", bias=bias, bootstrap=20)
    grid = [
        expected("macro_f1", labels, rule.scores(logits, g).argmax(axis=1))
        for g in np.linspace(0, 2, 401)
    ]
    assert tuned.value == pytest.approx(max(grid), abs=0.01)
    assert tuned.value == pytest.approx(
        expected("macro_f1", labels, rule.scores(logits, tuned.gamma).argmax(axis=1)), abs=1e-9
    )


def test_a_bootstrap_of_another_metric_repeats_its_curve():
    logits, labels = bent(4)
    path = lh.gamma_path(logits, labels, COUNTS)
    every = path.bootstrap(5, 0, metric="macro_f1")
    assert every.shape == (5, len(path.curve_of("macro_f1").gammas))
    at = path.bootstrap(300, 0, metric="macro_f1", gammas=np.array([0.1, 0.3]))
    assert at.mean(axis=0) == pytest.approx(
        [path.curve_of("macro_f1").at(g) for g in (0.1, 0.3)], abs=0.02
    )


def test_floors_that_no_gamma_meets_say_how_near_one_comes():
    logits, labels = bent(5)
    path = lh.gamma_path(logits, labels, COUNTS)
    nearest = max(cells(path.error_curve), key=lambda g: np.nanmin(path.class_accuracy(g)))
    recall = path.class_accuracy(nearest)
    with pytest.raises(lh.LevelheadError) as caught:
        tune(logits, labels, COUNTS, floors=1.0, bootstrap=0, names=["cat", "dog", "owl", "ant"])
    worst = int(np.argmin(recall))
    assert caught.value.parameter == "floors"
    assert f"class {worst} ({['cat', 'dog', 'owl', 'ant'][worst]})" in str(caught.value)
    assert f"{recall.min():.1%}" in str(caught.value)


def test_floors_hold_what_the_metric_alone_would_give_up():
    logits, labels = bent(6)
    free = tune(logits, labels, COUNTS, metric="error", criterion="balanced_error", bootstrap=0)
    path = lh.gamma_path(logits, labels, COUNTS)
    least = float(path.class_accuracy(free.gamma)[3]) + 0.05
    tuned = tune(
        logits,
        labels,
        COUNTS,
        metric="error",
        floors={"ant": least},
        names=["cat", "dog", "owl", "ant"],
        bootstrap=100,
    )
    assert path.class_accuracy(tuned.gamma)[3] >= least
    assert tuned.floors == (0.0, 0.0, 0.0, least)
    assert tuned.floors_met_at_zero is False
    assert tuned.worthwhile  # whatever it costs in error, gamma = 0 is not what was asked for
    assert f"{least:.1%}" in tuned.facts()["floors"]


REFUSED = {
    "an unknown metric": ({"metric": "auc"}, "metric: expected error, balanced_error, macro_f1"),
    "a cost without a matrix": ({"metric": "cost"}, "metric: 'cost' needs a cost matrix"),
    "a cost and a metric": ({"metric": "mcc", "cost": COST}, "cost: expected no other metric"),
    "a cost of another shape": ({"cost": np.eye(3)}, r"cost: expected numbers \[4, 4\], row true"),
    "a cost with NaN": (
        {"cost": np.full((4, 4), np.nan)},
        "cost: expected finite numbers, got nan in row 0, column 0",
    ),
    "a cost of words": ({"cost": [["a"] * 4] * 4}, "cost: expected numbers"),
    "a negative cost": (
        {"cost": -np.eye(4)},
        "cost: expected 0 or more, got -1 in row 0, column 0",
    ),
    "a cost that rewards errors": (
        {"cost": np.eye(4)},
        "cost: expected an error to cost no less than a right",
    ),
    "a floor in percent": ({"floors": 60}, "floors: expected recalls from 0 to 1, got 60"),
    "a floor for a class that is not there": ({"floors": {7: 0.5}}, "floors: unknown class 7"),
    "a floor by an unknown name": ({"floors": {"cat": 0.5}}, "floors: got the class name 'cat'"),
    "a floor that is not a number": (
        {"floors": "high"},
        "floors: expected a recall, or a recall for each class named",
    ),
    "a target that cannot weigh recalls": (
        {"metric": "g_mean", "target": [1, 1, 1, 1]},
        "target: the metric g_mean",
    ),
    "unlabelled shares that guide nothing": (
        {"metric": "mcc", "unlabelled": np.eye(4)},
        "unlabelled: ",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_one_line_that_says_why(case):
    options, words = REFUSED[case]
    logits, labels = bent()
    with pytest.raises(lh.LevelheadError, match=words) as caught:
        tune(logits, labels, COUNTS, bootstrap=0, **options)
    assert "\n" not in str(caught.value)


def test_a_floor_for_a_class_without_a_sample_is_refused():
    logits, labels = bent()
    with pytest.raises(lh.LevelheadError, match="class 3 has no sample"), quiet():
        tune(logits[labels < 3], labels[labels < 3], COUNTS, floors={3: 0.5}, bootstrap=0)


def test_a_path_of_top_k_has_no_predictions_to_score():
    logits, labels = bent()
    with pytest.raises(lh.LevelheadError, match="top-1"):
        lh.gamma_path(logits, labels, COUNTS, k=2).curve_of("macro_f1")
