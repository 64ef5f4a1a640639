"""Equal scores: one rule for the path and every choice on it. The first of equal classes wins, there."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

import levelhead as lh
from levelhead import gamma_path
from levelhead.core.gamma_path import find_path_rule
from levelhead.core.metrics import METRICS
from levelhead.core.rules import Rescale, Shift, Tau
from levelhead.path.curve import Curve
from levelhead.path.walk import compute_envelope
from levelhead.path.winners import winners_at

from . import textbook

CLASSES = 4
COUNTS = np.array([64, 16, 4, 4])
NORMS = np.array([4.0, 2.0, 1.0, 1.0])
TIED = {
    "int8": lambda rng, n: rng.integers(-5, 6, (n, CLASSES)).astype(np.int8),
    "positive int4": lambda rng, n: rng.integers(1, 16, (n, CLASSES)),
    "bfloat16 steps": lambda rng, n: (1 + rng.integers(0, 8, (n, CLASSES)) / 8).astype(np.float32),
    "float16": lambda rng, n: rng.normal(size=(n, CLASSES)).round(1).astype(np.float16),
    "equal rows": lambda rng, n: rng.integers(1, 5, (n, 1)) * np.ones(CLASSES),
    "powers of two": lambda rng, n: 2.0 ** rng.integers(-2, 3, (n, CLASSES)),
    "negative": lambda rng, n: -(2.0 ** rng.integers(-2, 3, (n, CLASSES))),
}
COST = np.array([[0.0, 1, 2, 3], [1, 0, 1, 2], [4, 2, 0, 1], [5, 3, 1, 0]])
RULES = {"rescale": "rescale", "tau": Tau(norms=NORMS), "shift": "shift"}


def adjusted(logits, gamma, rule):
    """The adjusted logits, in float64."""
    wide, ratio = np.asarray(logits, np.float64), COUNTS.max() / COUNTS
    if rule == "shift":
        return wide + gamma * np.log(ratio)
    return wide * (ratio if rule == "rescale" else 1 / NORMS) ** gamma


def score(metric, labels, predicted):
    return textbook.score(metric, labels, predicted, COST)


def case(family, seed, n=60):
    rng = np.random.default_rng(seed)
    logits, labels = TIED[family](rng, n), rng.integers(0, CLASSES, n)
    labels[:CLASSES] = range(CLASSES)
    return logits, labels


@pytest.mark.parametrize("family", TIED)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("reach", [(0.0, 2.0), (-1.0, 2.0)], ids=str)
def test_no_gamma_does_better_than_the_best_one_and_its_value_is_that_of_argmax(
    family, rule, reach
):
    """Between any two changes no scores are equal, so float64 decides there; at 0 they are the logits."""
    for seed, metric in enumerate(METRICS):
        logits, labels = case(family, seed)
        cost = COST if metric == "cost" else None
        path = gamma_path(logits, labels, COUNTS, rule=RULES[rule], range=reach)
        curve = path.curve_of(metric, cost=cost)
        edges = curve.gammas
        middles = (edges + np.append(edges[1:], reach[1])) / 2
        tries = [0.0, *middles[np.diff(edges, append=reach[1]) > 1e-9]]
        values = [
            score(metric, labels, adjusted(logits, gamma, rule).argmax(axis=1)) for gamma in tries
        ]
        np.testing.assert_allclose(curve.at(tries), values, atol=1e-9)
        best = min(values) if METRICS[metric].is_loss else max(values)
        point = path.best(metric, cost=cost)
        predicted = adjusted(logits, point.gamma, rule).argmax(axis=1)
        assert point.value == pytest.approx(best, abs=1e-9), metric
        assert score(metric, labels, predicted) == pytest.approx(best, abs=1e-9), metric
        assert point.error == pytest.approx(score("error", labels, predicted))
        assert point.balanced_error == pytest.approx(score("balanced_error", labels, predicted))


@pytest.mark.parametrize("family", TIED)
@pytest.mark.parametrize("rule", RULES)
def test_what_tune_chooses_predicts_what_the_path_does(family, rule):
    for seed in range(4):
        logits, labels = case(family, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tuned = lh.tune(logits, labels, COUNTS, rule=RULES[rule])
        assert tuned.strength is not None
        top = max(4.0, tuned.strength)
        path = gamma_path(logits, labels, COUNTS, rule=RULES[rule], range=(0.0, top))
        assert np.array_equal(path.predictions(tuned.strength), tuned.apply(logits).argmax(axis=1))


def first_of_largest(row, slopes, gamma):
    """The class that wins by the rule shift, in fractions."""
    scores = [
        Fraction(float(value)) + gamma * Fraction(float(slope))
        for value, slope in zip(row, slopes, strict=True)
    ]
    return scores.index(max(scores))


@pytest.mark.parametrize("seed", range(4))
def test_curves_hold_at_the_very_gamma_at_which_scores_are_equal(seed):
    """Powers of two times log 4 tie at many gammas; every curve has the value of fractions there."""
    rng = np.random.default_rng(seed)
    logits = rng.choice([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0], (40, CLASSES)) * np.log(4)
    labels = rng.permutation(np.arange(40) % CLASSES)
    path = gamma_path(logits, labels, COUNTS, rule="shift")
    slopes = np.log(COUNTS.max() / COUNTS)
    shares = path.changes.mismatch()
    round_numbers = (0.0, 0.5, 1.0, 1.5, 2.0)
    next_to_them = (np.nextafter(0, 1), np.nextafter(1, 0), np.nextafter(1, 2))
    for gamma in (*round_numbers, *next_to_them, 0.7):
        exact = np.array([first_of_largest(row, slopes, Fraction(float(gamma))) for row in logits])
        assert np.array_equal(path.right(gamma), exact == labels), gamma
        assert np.array_equal(path.predictions(gamma), exact), gamma
        for metric in METRICS:
            curve = path.curve_of(metric, cost=COST if metric == "cost" else None)
            assert curve.at(gamma) == pytest.approx(score(metric, labels, exact)), (metric, gamma)
        off = np.bincount(exact, minlength=CLASSES) / 40 - 1 / CLASSES
        assert shares.at(gamma) == pytest.approx(np.abs(off).sum() / 2), gamma


@pytest.mark.parametrize("rule", [Shift(), Rescale()], ids=["shift", "rescale"])
def test_equal_rows_are_not_left_at_the_one_gamma_that_is_wrong(rule):
    logits = np.full((20, 2), 5.0)
    path = gamma_path(logits, np.ones(20, int), [90, 10], rule=rule)
    assert (path.at(0.0).error, path.best("error").error) == pytest.approx((1.0, 0.0))
    assert path.best("error").gamma > 0
    kept = gamma_path(logits, np.zeros(20, int), [90, 10], rule=rule).best("error")
    assert (kept.gamma, kept.error) == pytest.approx((0.0, 0.0))  # right at 0 alone


def test_a_sliver_is_chosen_only_at_zero():
    a, b = 0.5, float(np.nextafter(0.5, 1))
    assert Curve(np.array([0.0, a, b]), np.array([0.3, 0.1, 0.2]), 1.0).plateau() == (a, 1.0)
    assert Curve(np.array([0.0, a, b]), np.array([0.2, 0.1, 0.3]), 1.0).plateau() == (0.0, b)
    assert Curve(np.array([0.0, 5e-324]), np.array([0.1, 0.2]), 1.0).plateau() == (0.0, 5e-324)
    assert Curve(np.array([0.0, 5e-324]), np.array([0.1, 0.2]), 1.0).middle((0.0, 5e-324)) == 0.0


def test_the_middle_of_a_plateau_is_not_at_a_change():
    """Two samples change there, and cancel: rounding could let one change without the other."""
    curve = Curve(np.array([0.0, 0.2, 0.5, 0.8]), np.array([0.3, 0.1, 0.1, 0.3]), 1.0)
    assert curve.plateau() == (0.2, 0.8)
    assert curve.middle((0.2, 0.8)) == pytest.approx(0.65)


def test_the_largest_logit_wins_at_zero_however_small_the_logits_are():
    rng, smallest = np.random.default_rng(0), 5e-324
    for _ in range(40):
        counts = rng.integers(1, 5000, 10)
        logits = rng.choice([-1.0, 1.0], (60, 10)) * rng.integers(0, 9, (60, 10)) * smallest
        changes = compute_envelope(logits, find_path_rule("shift").direction(counts), (-1.0, 2.0))
        assert np.array_equal(changes.predictions(0.0), logits.argmax(axis=1))
        far = changes.predictions(-0.5), changes.predictions(1.5)
        assert np.array_equal(far[0], np.full(60, counts.argmax()))
        assert np.array_equal(far[1], np.full(60, counts.argmin()))
        # Each change begins at the one before.
        gains = np.bincount(changes.sample, changes.new_class - changes.old_class, minlength=60)
        assert np.array_equal(changes.start + gains, changes.predictions(2.0))


def test_tiny_logits_next_to_huge_ones_change_nothing():
    logits = np.array([[1e250, 1e-310, -1e-320], [-1e250, 2e-323, 1e-323], [-4.0, 0.0, -5e-324]])
    slopes = [Fraction(x) for x in np.log([1.0, 10.0, 100.0]).tolist()]
    direction = find_path_rule("shift").direction(np.array([100, 10, 1]))
    changes = compute_envelope(logits, direction, (-1.0, 2.0))
    for gamma in (-1.0, 0.0, 2.0):
        moves = [Fraction(gamma) * slope for slope in slopes]
        scores = [
            [Fraction(x) + move for x, move in zip(row, moves, strict=True)]
            for row in logits.tolist()
        ]
        assert changes.predictions(gamma).tolist() == [row.index(max(row)) for row in scores]


EXTREME = {
    "huge": lambda rng, n: rng.uniform(-1.79, 1.79, (n, CLASSES)) * 1e308,
    "hugely positive": lambda rng, n: rng.uniform(0.1, 1.79, (n, CLASSES)) * 1e308,
    "denormal": lambda rng, n: rng.integers(-5, 6, (n, CLASSES)) * 5e-324,
    "of every size": lambda rng, n: (
        rng.choice([-1, 1], (n, CLASSES)) * 10.0 ** rng.uniform(-320, 308, (n, CLASSES))
    ),
    "floats apart": lambda rng, n: 1 + rng.integers(-3, 4, (n, CLASSES)) * 2.0**-52,
    "masked": lambda rng, n: np.where(
        rng.random((n, CLASSES)) < [0, 0.3, 0.3, 0.3],
        np.finfo(np.float64).min,
        rng.normal(size=(n, 4)),
    ),
}


@pytest.mark.parametrize("family", TIED | EXTREME)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("reach", [(0.0, 2.0), (-1.0, 2.0), (-900.0, 900.0)], ids=str)
def test_the_walk_says_at_every_change_and_next_to_it_what_one_gamma_alone_does(
    family, rule, reach
):
    """`winners_at` knows nothing of changes: it compares the scores of one gamma, pair by pair."""
    if rule == "shift" and family == "denormal":
        pytest.skip("there a crossing lies between two floats next to 0")
    rng = np.random.default_rng(0)
    logits = (TIED | EXTREME)[family](rng, 60)
    direction = find_path_rule(RULES[rule]).direction(COUNTS)
    changes = compute_envelope(logits, direction, reach)
    at = changes.gamma
    near = np.concatenate(
        [at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf), rng.uniform(*reach, 10), reach]
    )
    wide = np.asarray(logits, np.float64)
    for gamma in np.unique(np.clip(near, *reach)).tolist():
        assert np.array_equal(changes.predictions(gamma), winners_at(wide, direction, gamma)), gamma
