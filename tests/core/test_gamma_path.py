"""The exact path over one strength: its curves and its best points against plain argmax at every gamma."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import cohen_kappa_score, f1_score, matthews_corrcoef

import levelhead as lh
from levelhead import gamma_path, measure
from levelhead.core.metrics import METRICS
from levelhead.support.logits import are_log_probabilities

from .made import COST, LOSSES, loss_by_hand

GRID = np.linspace(0, 2, 41)
NORMS = np.array([4.0, 2.0, 1.0, 0.5])
COUNTS = np.array([64, 16, 4, 1])
RULES = {"rescale": "rescale", "shift": "shift", "tau": lh.rules.Tau(norms=NORMS)}


def scores(rule: str, logits, gamma: float, counts=COUNTS, norms=NORMS) -> np.ndarray:
    """Return the scores at gamma, as the rule is written."""
    ratio = counts.max() / counts
    if rule == "shift":
        return logits + gamma * np.log(ratio)
    return logits.astype(np.float64) * (ratio if rule == "rescale" else 1 / norms) ** gamma


@st.composite
def cases(draw, ties=True):
    """Return logits, labels and counts; with ties, or of random values that have none."""
    classes, n = draw(st.integers(2, 7)), draw(st.integers(1, 12))
    if ties:
        elements = st.floats(-4, 4, width=16)
        logits = draw(hnp.arrays(np.float32, (n, classes), elements=elements))
        # Else they may look like probabilities or logarithms of these, which are refused.
        assume((logits < 0).any() or (logits > 1).any())
        assume(not are_log_probabilities(logits))
    else:
        logits = np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=(n, classes))
    labels = draw(hnp.arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    return logits, labels, draw(hnp.arrays(np.int64, classes, elements=st.integers(1, 300)))


def problem(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels of four classes, of which the last may have no sample."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3 + seed % 2, n)
    logits = 2 + rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[labels]
    return logits * [1.0, 0.7, 0.5, 0.4], labels


def middles(path: lh.GammaPath) -> list[float]:
    """Return the middle of every stretch between changes that differ by more than rounding."""
    edges = np.unique(np.concatenate([path.changes.gamma, path.range]))
    return [float((a + b) / 2) for a, b in pairwise(edges) if b - a > 1e-9]


# -- Curves --------------------------------------------------------------------------------------


@given(cases(ties=False))
@settings(max_examples=30)
def test_the_curves_equal_the_grid_wherever_the_grid_is(case):
    logits, labels, counts = case
    path = gamma_path(logits, labels, counts)
    for gamma in GRID:
        at = scores("rescale", logits, gamma, counts)
        assert path.error_curve.at(gamma) == pytest.approx(measure.error(at, labels), abs=1e-12)
        balanced = measure.balanced_error(at, labels)
        assert path.balanced_error_curve.at(gamma) == pytest.approx(balanced, abs=1e-12)
        np.testing.assert_allclose(path.class_accuracy(gamma), measure.recall(at, labels))
        assert np.array_equal(path.predictions(gamma), at.argmax(axis=1))
        assert np.array_equal(path.right(gamma), at.argmax(axis=1) == labels)
        assert np.array_equal(path.confusion(gamma), measure.confusion(at, labels))


@given(cases())
@settings(max_examples=30)
def test_every_breakpoint_is_one_and_nothing_changes_between_them(case):
    path = gamma_path(*case)
    inner = path.gammas[1:]
    for before, at in zip(np.nextafter(inner, -np.inf), inner, strict=True):
        assert path.error_curve.at(before) != path.error_curve.at(at) or not np.array_equal(
            path.right(before), path.right(at)
        )
    for a, b in pairwise(np.append(path.gammas, 2.0)):
        last = b if b == 2.0 else np.nextafter(b, -np.inf)
        assert np.array_equal(path.right(a), path.right(max(a, last)))


@given(cases(ties=False), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_permuting_classes_or_samples_changes_nothing(case, random):
    logits, labels, counts = case
    path = gamma_path(logits, labels, counts)
    classes, rows = (np.array(random.sample(range(n), n)) for n in (len(counts), len(labels)))
    of_classes = gamma_path(logits[:, classes], np.argsort(classes)[labels], counts[classes])
    of_samples = gamma_path(logits[rows], labels[rows], counts)
    for other in (of_classes, of_samples):
        for gamma in GRID:
            for name in ("error_curve", "balanced_error_curve"):
                value, wanted = (getattr(each, name).at(gamma) for each in (other, path))
                assert value == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(2))
def test_the_curve_of_a_metric_is_that_of_the_predictions_at_every_gamma(rule, metric, seed):
    logits, labels = problem(seed)
    path = gamma_path(logits, labels, COUNTS, rule=RULES[rule])
    curve = path.curve_of(metric, cost=COST if metric == "cost" else None)
    for gamma in [0.0, *middles(path)]:
        predicted = scores(rule, logits, gamma).argmax(axis=1)
        loss = loss_by_hand(metric, labels, predicted)
        value = loss if metric in LOSSES else 1 - loss
        assert curve.at(gamma) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(4))
def test_the_curve_is_the_metric_at_the_breakpoints_themselves_where_scores_tie(metric, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 30)
    logits = rng.choice([-2.0, -1.0, 0.5, 1.0, 2.0, 4.0], size=(30, 4))
    logits[0] = [4.0, 2.0, 1.0, 0.5]  # at 0.5, all four are equal
    curve = gamma_path(logits, labels, COUNTS).curve_of(
        metric, cost=COST if metric == "cost" else None
    )
    for gamma in (0.0, 0.5, 1.0, 1.5, 2.0):  # powers of two: scores have no rounding
        loss = loss_by_hand(metric, labels, scores("rescale", logits, gamma).argmax(axis=1))
        value = loss if metric in LOSSES else 1 - loss
        assert curve.at(gamma) == pytest.approx(value, abs=1e-9)


def test_many_changes_are_counted_in_parts(monkeypatch):
    logits, labels = problem(1, 300)
    path = gamma_path(logits, labels, COUNTS, rule="shift")
    for metric in METRICS:
        cost = COST if metric == "cost" else None
        whole = path.curve_of(metric, cost=cost)
        monkeypatch.setattr("levelhead.core.gamma_path._MOST_NUMBERS", 40)
        parts = path.curve_of(metric, cost=cost)
        monkeypatch.undo()
        np.testing.assert_array_equal(whole.gammas, parts.gammas)
        np.testing.assert_allclose(whole.values, parts.values, atol=1e-12)


def test_a_target_weighs_the_classes():
    logits, labels = problem(1, 300)
    target = np.array([6, 1, 1, 0.0])
    path = gamma_path(logits, labels, COUNTS, target=target)
    recall = measure.recall(scores("rescale", logits, 0.4), labels)
    assert path.balanced_error_curve.at(0.4) == pytest.approx(1 - target / 8 @ recall)
    by_class = gamma_path(logits, labels, COUNTS, target={3: 0, 1: 1, 0: 6, 2: 1})
    np.testing.assert_array_equal(by_class.balanced_error, path.balanced_error)
    best = min(path.balanced_error_curve.at(gamma) for gamma in middles(path))
    assert path.best().value == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("metric", ["error", "macro_f1", "mcc", "kappa", "cost"])
def test_a_target_weighs_the_classes_of_every_metric_that_depends_on_their_mix(metric):
    logits, labels = problem(1, 300)
    target = np.array([0.6, 0.2, 0.15, 0.05])
    goal = lh.Goal(cost=1 - np.eye(4)) if metric == "cost" else lh.Goal(metric)
    path = gamma_path(logits, labels, COUNTS, target=target)
    weights = (target / np.bincount(labels, minlength=4))[labels]
    reference = {
        "error": lambda p: weights @ (p != labels) / weights.sum(),
        "macro_f1": lambda p: f1_score(labels, p, average="macro", sample_weight=weights),
        "mcc": lambda p: matthews_corrcoef(labels, p, sample_weight=weights),
        "kappa": lambda p: cohen_kappa_score(labels, p, sample_weight=weights),
        "cost": lambda p: weights @ (p != labels),
    }[metric]
    for gamma in (0.0, 0.3, 1.1):
        expected = reference(path.predictions(gamma))
        assert path.curve_of(goal).at(gamma) == pytest.approx(expected)
    best = path.best(goal)
    assert best.value == pytest.approx(reference(path.predictions(best.gamma)))
    # The plain curve of the error weighs samples as they come, target or not.
    plain = gamma_path(logits, labels, COUNTS)
    np.testing.assert_array_equal(path.error_curve.values, plain.error_curve.values)


@pytest.mark.parametrize("rule", RULES)
def test_a_path_goes_toward_a_target_as_tune_does(rule):
    logits, labels = problem(1, 300)
    tuned = lh.tune(logits, labels, COUNTS, rule=RULES[rule], target=[0.1, 0.1, 0.2, 0.6])
    assert tuned.strength is not None
    limits = (0.0, 2 * tuned.strength + 1)
    path = gamma_path(
        logits, labels, COUNTS, rule=RULES[rule], target=[0.1, 0.1, 0.2, 0.6], range=limits
    )
    predicted = tuned.apply(logits).argmax(axis=1)
    np.testing.assert_array_equal(path.predictions(tuned.strength), predicted)


def test_a_class_without_samples_is_left_out():
    logits, labels = problem(0, 300)  # none of class 3
    path = gamma_path(logits, labels, COUNTS)
    point = path.at(0.4)
    assert np.isnan(point.class_accuracy[3])
    wanted = measure.balanced_error(scores("rescale", logits, 0.4), labels)
    assert point.balanced_error == pytest.approx(wanted)
    assert np.isnan(path.class_curve(3).at([0.0, 1.0, 2.0])).all()


def test_class_curves_agree_with_the_points():
    path = gamma_path(*problem(1, 300), COUNTS)
    for gamma in (0.0, 0.33, 1.2):
        accuracies = [path.class_curve(i).at(gamma) for i in range(4)]
        assert accuracies == pytest.approx(path.at(gamma).class_accuracy.tolist())


# -- The best ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("floors", [None, 0.3, {0: 0.5, 2: 0.2}], ids=["free", "each", "two"])
def test_the_best_gamma_is_the_best_of_all_that_meet_the_floors(rule, metric, floors):
    logits, labels = problem(0)
    path = gamma_path(logits, labels, COUNTS, rule=RULES[rule])
    wanted = floors or {}
    if isinstance(floors, float):
        wanted = dict.fromkeys(np.unique(labels).tolist(), floors)
    losses = []
    for gamma in [0.0, *middles(path)]:
        predicted = scores(rule, logits, gamma).argmax(axis=1)
        recalls = {k: (predicted[labels == k] == k).mean() for k in wanted}
        if all(recalls[k] >= least - 1e-12 for k, least in wanted.items()):
            losses.append(loss_by_hand(metric, labels, predicted))
    goal = lh.Goal(metric, cost=COST if metric == "cost" else None, floors=floors)
    if not losses:
        with pytest.raises(lh.LevelheadError, match="floors: no gamma meets them"):
            path.best(goal)
        return
    best = path.best(goal)
    loss = loss_by_hand(metric, labels, path.predictions(best.gamma))
    assert loss == pytest.approx(min(losses), abs=1e-9)
    assert best.value == pytest.approx(loss if metric in LOSSES else 1 - loss, abs=1e-9)
    assert best.metric == metric


def test_floors_by_name_are_of_the_classes_called_so():
    logits, labels = problem(1)
    path = gamma_path(logits, labels, COUNTS, rule="shift")
    wanted = path.best(lh.Goal("error", floors={2: 0.6})).gamma
    assert wanted != path.best("error").gamma
    number = np.array([3, 0, 1, 2])  # each class is called by the number of another
    for names, of_samples, floors in (
        (number.astype(str), number[labels], {1: 0.6}),
        (["ant", "cat", "elk", "fox"], labels, {"elk": 0.6}),
    ):
        named = gamma_path(logits, of_samples, COUNTS, rule="shift", names=names)
        assert named.best(lh.Goal("error", floors=floors)).gamma == wanted


@pytest.mark.parametrize("form", ["log-probabilities", "probabilities", "votes"])
def test_a_path_of_probabilities_predicts_at_a_strength_as_tune_does(form):
    logits, labels = problem(3, 400)
    values = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    kind = form
    if form == "log-probabilities":
        values = np.log(values)
    elif form == "votes":
        rng = np.random.default_rng(0)
        values = np.stack([rng.multinomial(10, row) for row in values]) / 10
        kind = "probabilities"
    tuned = lh.tune(values, labels, COUNTS, rule="shift", kind=kind)
    path = gamma_path(values, labels, COUNTS, rule="shift", kind=kind)
    assert path.error_curve.values[0] != path.best("error").error
    assert np.array_equal(path.predictions(tuned.strength), tuned.apply(values).argmax(axis=1))
    by_rule = replace(tuned.adjustment, offset=3.5 * np.log(COUNTS.max() / COUNTS))
    wanted = replace(tuned, adjustment=by_rule).apply(values).argmax(axis=1)
    assert np.array_equal(path.predictions(3.5), wanted)  # beyond the range


def test_floors_that_no_gamma_meets_are_refused():
    path = gamma_path(*problem(1), COUNTS)
    with pytest.raises(lh.LevelheadError, match="floors: no gamma meets them; lower the floors"):
        path.best(lh.Goal(floors=0.999))


def test_the_best_point_is_the_middle_of_the_widest_best_plateau():
    path = gamma_path(*problem(1, 400), COUNTS)
    for metric in ("error", "balanced_error"):
        best = path.best(metric)
        low, high = best.plateau
        assert best.gamma == pytest.approx((low + high) / 2)
        curve = getattr(path, f"{metric}_curve")
        assert best.value <= curve.at(np.linspace(0, 2, 2001)).min() + 1e-12
        inside = curve.at(np.linspace(low, np.nextafter(high, 0), 50))
        assert inside == pytest.approx(best.value)
        for outside in (np.nextafter(low, -1), high):
            assert not 0 <= outside <= 2 or curve.at(outside) > best.value + 1e-13
    with pytest.raises(lh.LevelheadError, match="metric: expected"):
        path.best("auc")


def test_a_plateau_of_one_float_is_not_taken():
    """Class 0 wins where all three tie, at gamma = log 2 / log ratio: rounding decides there."""
    for ratio in (3, 5, 6, 7):
        path = gamma_path([[1.0, 0.5, 2.0]], [0], [ratio, 1, ratio**2])
        best = path.best("error")
        assert best.error == path.at(best.gamma).error == 1
        assert best.plateau == (0, 2)


def test_a_binary_head_of_opposite_logits_never_changes_its_mind():
    z = np.random.default_rng(0).normal(size=(50, 1))
    labels = np.arange(50) % 2
    assert gamma_path(np.hstack([-z, z]), labels, [90, 10]).gammas.tolist() == [0.0]
    assert len(gamma_path(np.hstack([-z, z]), labels, [90, 10], rule="shift").gammas) > 10


# -- What it takes -------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [-np.inf, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rule", ["rescale", "shift"])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_masked_scores_win_nowhere_on_the_path(mask, dtype, rule, kind):
    logits, labels = problem(1, 300)
    masked = np.random.default_rng(1).random(logits.shape) < 0.25
    masked[:, 1] &= ~masked.all(axis=1)
    given_logits = kind(np.where(masked, mask, logits).astype(dtype))
    path = gamma_path(given_logits, labels, COUNTS, rule=rule)
    for gamma in [0.0, 0.31, 0.77, 1.234, 1.99]:
        adjusted = scores(rule, logits.astype(dtype), gamma)
        winners = np.where(masked, -np.inf, adjusted).argmax(axis=1)
        assert np.array_equal(path.predictions(gamma), winners)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_other_values_that_are_not_finite_are_refused(bad):
    logits, labels = problem(1)
    logits[7, 2] = bad
    for kind in (np.asarray, torch.as_tensor):
        with pytest.raises(lh.LevelheadError, match="NaN or infinite values, first in row 7"):
            gamma_path(kind(logits), labels, COUNTS)


def test_outside_the_range_predictions_need_the_logits():
    logits, labels = problem(1)
    path = gamma_path(logits, labels, COUNTS, range=(0, 1))
    assert np.array_equal(path.predictions(1.7), scores("rescale", logits, 1.7).argmax(axis=1))
    with pytest.raises(
        lh.LevelheadError, match=r"gamma: expected a value within \[0, 1\], got 1.7"
    ):
        path.right(1.7)


def test_progress_is_reported():
    seen = []
    gamma_path(*problem(0), COUNTS, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (60, 60)


def test_a_path_says_what_it_is_of():
    path = gamma_path(*problem(0), COUNTS, rule="shift", range=(-1, 3))
    assert repr(path) == "GammaPath(60 samples, 4 classes, rule shift, gamma -1 to 3)"
    assert "balanced error" in path._repr_html_()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "offsets"}, "rule: expected 'shift', 'rescale' or 'tau', got 'offsets'"),
        ({"rule": "tau"}, "rule: 'tau' needs the weight norms"),
        ({"range": (1, 0)}, r"range: expected \(from, to\)"),
        ({"range": 2.0}, r"range: expected \(from, to\)"),
        ({"target": [1, 1]}, r"target: expected numbers \[4\]"),
        ({"kind": "probabilities"}, "rule: 'rescale' multiplies logits"),
        ({"kind": "log-probabilities"}, "rule: 'rescale' multiplies logits"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(options, message):
    with pytest.raises(lh.LevelheadError, match=message) as caught:
        gamma_path(*problem(0), COUNTS, **options)
    assert "\n" not in str(caught.value)


def test_a_class_that_is_not_there_and_a_gamma_that_is_none_are_refused():
    path = gamma_path(*problem(0), COUNTS)
    with pytest.raises(lh.LevelheadError, match="expected a class from 0 to 3, got 4"):
        path.class_curve(4)
    with pytest.raises(lh.LevelheadError, match="gamma: expected a finite number, got nan"):
        path.predictions(np.nan)
