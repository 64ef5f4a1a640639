"""Rules of one strength: each fit against plain argmax at every strength at which a prediction changes."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import levelhead as lh
from levelhead.core.floors import needed_right
from levelhead.core.metrics import METRICS
from levelhead.core.rules import find_rule
from levelhead.core.samples import FOLDS, Given

from .made import COST, calibrated, loss_by_hand

COUNTS = np.array([64, 16, 4, 1])
NORMS = np.array([4.0, 2.0, 1.0, 0.5])
TARGET = np.array([0.1, 0.2, 0.3, 0.4])
RANGE = (0.0, 2.0)
RULES = {
    "shift": lh.rules.Shift(range=RANGE),
    "rescale": lh.rules.Rescale(range=RANGE),
    "tau": lh.rules.Tau(range=RANGE, norms=NORMS),
}


def scores(rule: str, logits: np.ndarray, strength: float, target=None) -> np.ndarray:
    """Return the scores at a strength, as the rule is written."""
    if rule == "tau":
        return logits / NORMS**strength
    if rule == "rescale":
        return logits * (64 / COUNTS) ** strength
    shares = np.ones(4) if target is None else target
    return logits + strength * np.log(shares / COUNTS)


def problem(seed: int, n: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.append(np.arange(4).repeat(2), rng.choice(4, n - 8, p=[0.5, 0.25, 0.15, 0.1]))
    logits = 2 + rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[labels]
    return logits * [1.0, 0.7, 0.5, 0.4], labels


def crossings(rule: str, logits: np.ndarray, target=None) -> np.ndarray:
    """Return every strength at which two classes of a sample have the same score."""
    strengths = [np.array(RANGE)]
    for a, b in combinations(range(4), 2):
        one, other = logits[:, a], logits[:, b]
        if rule == "shift":
            slope = np.diff(scores(rule, np.zeros((1, 4)), 1.0, target)[0, [a, b]])[0]
            strengths.append((one - other) / slope)
        else:
            base = np.log(scores(rule, np.ones((1, 4)), 1.0)[0, [a, b]])
            same_sign = one * other > 0
            strengths.append(np.log((one / other)[same_sign]) / (base[1] - base[0]))
    every = np.unique(np.concatenate(strengths))
    return every[(every >= RANGE[0]) & (every <= RANGE[1])]


def best_by_hand(rule, metric, logits, labels, *, target=None, floors=None):
    """Return the least loss of all strengths whose predictions meet the floors; None if none does.

    With a margin for new samples, of the certainty that is usual, or of less where none has that.
    """
    if floors is not None:
        sizes = np.bincount(labels)
        bare = np.array([floors.get(k, np.nan) for k in range(4)])
        for certainty in (0.9, 0.75, 0.5, 0.0):
            needed = needed_right(bare, sizes, certainty) / sizes
            best = _best_by_hand(
                rule, metric, logits, labels, target, {k: needed[k] for k in floors}
            )
            if best is not None:
                return best
    return _best_by_hand(rule, metric, logits, labels, target, floors)


def _best_by_hand(rule, metric, logits, labels, target, floors):
    weights = None if target is None else (target / np.bincount(labels))[labels]
    name = "error" if target is not None and metric == "balanced_error" else metric
    losses = []
    for low, high in pairwise(crossings(rule, logits, target)):
        predicted = scores(rule, logits, (low + high) / 2, target).argmax(axis=1)
        recalls = [np.mean(predicted[labels == k] == k) for k in range(4)]
        if floors is None or all(recalls[k] >= least - 1e-12 for k, least in floors.items()):
            losses.append(loss_by_hand(name, labels, predicted, weights=weights))
    return min(losses) if losses else None


def loss_of(tuned: lh.Tuned, metric, logits, labels, target=None) -> float:
    weights = None if target is None else (target / np.bincount(labels))[labels]
    name = "error" if target is not None and metric == "balanced_error" else metric
    predicted = tuned.apply(logits).argmax(axis=1)
    return loss_by_hand(name, labels, predicted, weights=weights)


def goal_of(metric, floors=None) -> lh.Goal:
    return lh.Goal(metric, cost=COST if metric == "cost" else None, floors=floors)


pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(2))
def test_no_strength_is_better_than_the_one_chosen(rule, metric, seed):
    logits, labels = problem(seed)
    tuned = lh.tune(logits, labels, COUNTS, metric=goal_of(metric), rule=RULES[rule])
    best = best_by_hand(rule, metric, logits, labels)
    assert loss_of(tuned, metric, logits, labels) == pytest.approx(best, abs=1e-9)
    np.testing.assert_allclose(
        tuned.apply(logits).argmax(1), scores(rule, logits, tuned.strength).argmax(1)
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1", "mcc", "kappa", "cost"])
def test_no_strength_is_better_toward_a_target(rule, metric):
    logits, labels = problem(3)
    goal = goal_of(metric)
    tuned = lh.tune(logits, labels, COUNTS, metric=goal, rule=RULES[rule], target=TARGET)
    best = best_by_hand(rule, metric, logits, labels, target=TARGET)
    assert loss_of(tuned, metric, logits, labels, TARGET) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("floor", [0.7, 0.75, 0.8])
def test_floors_hold_on_new_samples_as_surely_as_is_asked_for(rule, floor):
    logits, labels = problem(5, 400)
    goal = lh.Goal(floors={3: floor}, certainty=0.99)
    tuned = lh.tune(logits, labels, COUNTS, metric=goal, rule=RULES[rule])
    assert tuned.floors[0].probability >= 0.99


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", ["balanced_error", "error", "macro_f1", "cost"])
@pytest.mark.parametrize("floors", [{3: 0.5}, {0: 0.8, 2: 0.3}])
def test_of_the_strengths_that_meet_floors_none_is_better(rule, metric, floors):
    logits, labels = problem(4, 60)
    best = best_by_hand(rule, metric, logits, labels, floors=floors)
    assert best is not None
    tuned = lh.tune(logits, labels, COUNTS, metric=goal_of(metric, floors), rule=RULES[rule])
    predicted = tuned.apply(logits).argmax(axis=1)
    for k, least in floors.items():
        assert np.mean(predicted[labels == k] == k) >= least
    assert loss_of(tuned, metric, logits, labels) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1"])
def test_the_fit_without_a_fold_is_the_fit_of_the_other_samples(rule, metric):
    """Judged are predictions of fits that have not seen a sample: each is as good as can be without it."""
    logits, labels = problem(5, 120)
    samples = Given.of(logits, labels, COUNTS).samples(None, np.random.default_rng(0))
    goal = lh.Goal(metric).on(labels, 4, None)
    fits = RULES[rule].fit(samples, goal)
    assert len(fits.without) == FOLDS
    for fold, adjustment in zip(samples.folds, fits.without, strict=True):
        kept = samples.fold != fold
        predicted = adjustment.predict(logits[kept])
        loss = loss_by_hand(metric, labels[kept], predicted)
        best = best_by_hand(rule, metric, logits[kept], labels[kept])
        assert loss == pytest.approx(best, abs=1e-9)


def test_the_strength_is_the_middle_of_the_widest_best_stretch():
    # Class 1 is found from 0.5 and from 1 on, class 0 until 0.6: balanced error 1/2, 1/4, 3/4, 1/2.
    logits = np.array([[4.0, 2.0], [4.0, 1.0], [4.0, 4.0 / 4**0.6]])
    logits, labels = logits.repeat(2, axis=0), np.array([1, 1, 1, 1, 0, 0])
    tuned = lh.tune(logits, labels, [400, 100], rule="rescale")
    assert tuned.strength == pytest.approx(0.55)


def test_where_no_strength_changes_anything_it_is_0():
    logits, labels = calibrated(0, 50)
    tuned = lh.tune(logits, labels, [7, 7, 7, 7], rule="shift")
    assert (tuned.strength, tuned.gain, tuned.verdict) == (0, 0, "changes nothing")


@given(st.integers(0, 10_000))
@settings(max_examples=15)
def test_scores_of_which_many_are_equal_are_chosen_with_as_argmax_has_them(seed):
    rng = np.random.default_rng(seed)
    labels = np.append(np.arange(4).repeat(2), rng.integers(4, size=32))
    logits = rng.choice([0.5, 1.0, 2.0, 4.0], size=(40, 4)) * (1 + np.eye(4)[labels])
    tuned = lh.tune(logits, labels, COUNTS, rule=RULES["rescale"])
    middles = [(a + b) / 2 for a, b in pairwise(crossings("rescale", logits)) if b - a > 1e-9]
    losses = [
        loss_by_hand("balanced_error", labels, scores("rescale", logits, s).argmax(axis=1))
        for s in (0.0, *middles)
    ]
    assert loss_of(tuned, "balanced_error", logits, labels) == pytest.approx(min(losses))


def test_many_changes_are_looked_at_around_the_best_place():
    logits, labels = calibrated(1, 30_000, np.array([1000, 300, 90, 30]), shares=np.full(4, 0.25))
    tuned = lh.tune(logits, labels, [1000, 300, 90, 30], rule=lh.rules.Shift(range=RANGE))
    path = lh.gamma_path(logits, labels, [1000, 300, 90, 30], rule="shift", range=RANGE)
    assert len(path.changes.gamma) > 10_000
    predicted = tuned.apply(logits).argmax(axis=1)
    loss = loss_by_hand("balanced_error", labels, predicted)
    assert loss == pytest.approx(path.best().value, abs=2e-4)
    assert tuned.strength == pytest.approx(1, abs=0.1)  # the model is calibrated


@pytest.mark.parametrize("seed", range(3))
def test_of_more_changes_than_are_looked_at_the_best_place_is_among_these(seed, monkeypatch):
    monkeypatch.setattr("levelhead.core.one_strength.MOST_STRENGTHS", 64)
    counts = np.array([1000, 300, 90, 30])
    logits, labels = calibrated(seed, 20_000, counts, shares=np.full(4, 0.25))
    tuned = lh.tune(logits, labels, counts, rule=lh.rules.Shift(range=RANGE))
    # What is looked at first are as many strengths, evenly spaced among the changes.
    changes = lh.gamma_path(logits, labels, counts, rule="shift", range=RANGE).changes.gamma
    first = np.quantile(np.unique(changes), np.linspace(0, 1, 64), method="lower") + 1e-9
    losses = []
    for strength in (*first, tuned.strength):
        predicted = (logits + strength * np.log(1000 / counts)).argmax(axis=1)
        losses.append(loss_by_hand("balanced_error", labels, predicted))
    assert losses[-1] <= min(losses) + 1e-12


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e9])
def test_the_unit_of_costs_does_not_matter(unit):
    logits, labels = problem(7, 300)
    for floors in (None, {3: 0.6}):
        plain, other = (lh.Goal(cost=factor * COST, floors=floors) for factor in (1, unit))
        for rule in RULES.values():
            tuned = lh.tune(logits, labels, COUNTS, metric=plain, rule=rule)
            again = lh.tune(logits, labels, COUNTS, metric=other, rule=rule)
            assert again.strength == pytest.approx(tuned.strength, rel=1e-12)
            assert again.gain == pytest.approx(unit * tuned.gain)
        path = lh.gamma_path(logits, labels, COUNTS, rule="shift")
        assert path.best(other).plateau == pytest.approx(path.best(plain).plateau)


def test_a_strength_of_ones_own_is_judged_and_not_chosen():
    logits, labels = problem(6)
    tuned = lh.tune(logits, labels, COUNTS, rule=lh.rules.Shift(0.7))
    assert tuned.strength == 0.7
    np.testing.assert_allclose(tuned.adjustment.offset, 0.7 * np.log(64 / COUNTS))
    predicted = scores("shift", logits, 0.7).argmax(axis=1)
    assert tuned.evidence.value == pytest.approx(loss_by_hand("balanced_error", labels, predicted))


@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0])
def test_the_range_of_the_shift_follows_the_scale_of_the_scores(scale):
    """Scores that are too large by a factor need a shift that is larger by it."""
    logits, labels = calibrated(2, 4000, np.array([1000, 300, 90, 30]))
    tuned = lh.tune(scale * logits, labels, rule="shift")
    assert tuned.strength == pytest.approx(scale, rel=0.35)


def test_a_range_that_is_given_is_kept():
    logits, labels = calibrated(3, 300, np.array([1000, 300, 90, 30]))
    low = lh.tune(logits, labels, [1000, 300, 90, 30], rule=lh.rules.Shift(range=(-1, 0.25)))
    assert -1 <= low.strength <= 0.25
    assert find_rule("shift").range is None
