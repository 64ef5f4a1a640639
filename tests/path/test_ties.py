"""Equal scores: one rule for path, objective and choice. The first of equal classes wins, at that very gamma."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from levelhead import gamma_path, match_prior, tune
from levelhead.choice.objective import Grid, Objective
from levelhead.choice.path_metrics import shown
from levelhead.core.rules import Tau, find_path_rule
from levelhead.path.curve import METRICS, Curve
from levelhead.path.envelope import compute_envelope

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


def adjusted(logits, gamma, rule):
    """The adjusted logits, in float64."""
    wide, ratio = np.asarray(logits, np.float64), COUNTS.max() / COUNTS
    if rule == "shift":
        return wide + gamma * np.log(ratio)
    return wide * (ratio if rule == "rescale" else 1 / NORMS) ** gamma


def score(metric, labels, predicted):
    return textbook.score(metric, labels, predicted, COST)


def chosen(logits, labels, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tune(logits, labels, COUNTS, bootstrap=0, **options)


def case(family, seed, n=60):
    rng = np.random.default_rng(seed)
    logits, labels = TIED[family](rng, n), rng.integers(0, CLASSES, n)
    labels[:CLASSES] = range(CLASSES)
    return logits, labels


@pytest.mark.parametrize("family", TIED)
@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
@pytest.mark.parametrize("reach", [(0.0, 2.0), (-1.0, 2.0)], ids=str)
def test_the_value_reported_is_that_of_argmax_at_the_chosen_gamma(family, rule, reach):
    for seed, metric in enumerate(METRICS):
        logits, labels = case(family, seed)
        for criterion in ("guided", "balanced_error"):
            tuned = chosen(
                logits,
                labels,
                rule=rule,
                range=reach,
                metric=metric,
                criterion=criterion,
                cost=COST if metric == "cost" else None,
                norms=NORMS if rule == "tau" else None,
            )
            at_gamma = adjusted(logits, tuned.gamma, rule).argmax(axis=1)
            at_zero = np.asarray(logits).argmax(axis=1)
            assert tuned.value == pytest.approx(score(metric, labels, at_gamma), abs=1e-9), metric
            assert tuned.value_at_zero == pytest.approx(score(metric, labels, at_zero), abs=1e-9), (
                metric
            )
            assert tuned.error == pytest.approx(score("error", labels, at_gamma))
            assert tuned.balanced_error == pytest.approx(score("balanced_error", labels, at_gamma))
            assert tuned.balanced_error_at_zero == pytest.approx(
                score("balanced_error", labels, at_zero)
            )
            assert tuned.curve.at(0.0) == pytest.approx(tuned.value_at_zero, abs=1e-9), metric
            assert tuned.curve.at(tuned.gamma) == pytest.approx(tuned.value, abs=1e-9), metric


@pytest.mark.parametrize("family", TIED)
@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_no_gamma_does_better_than_the_chosen_one(family, rule):
    """Between any two events no scores are equal, so float64 decides there; and at 0 they are the logits."""
    for seed, metric in enumerate(METRICS):
        logits, labels = case(family, seed)
        cost = COST if metric == "cost" else None
        path = gamma_path(logits, labels, COUNTS, rule=Tau(norms=NORMS) if rule == "tau" else rule)
        prior = (
            np.full(CLASSES, 0.25)
            if metric == "balanced_error"
            else np.bincount(labels) / len(labels)
        )
        objective = Objective(path, prior, path.envelope, metric=metric, cost=cost)
        gamma, _ = objective.grid.choose(objective.error())
        curve = objective.grid.curve(shown(metric, objective.error()))
        edges = curve.gammas
        middles = (edges + np.append(edges[1:], 2.0)) / 2
        tries = [0.0, *middles[np.diff(edges, append=2.0) > 1e-9]]
        values = [
            score(metric, labels, adjusted(logits, gamma, rule).argmax(axis=1)) for gamma in tries
        ]
        best = min(values) if metric in ("error", "balanced_error", "cost") else max(values)
        assert score(metric, labels, adjusted(logits, gamma, rule).argmax(axis=1)) == pytest.approx(
            best, abs=1e-9
        )
        np.testing.assert_allclose(curve.at(tries), values, atol=1e-9)
        point = path.best(metric, cost=cost)
        predicted = adjusted(logits, point.gamma, rule).argmax(axis=1)
        assert point.value == pytest.approx(best, abs=1e-9), metric
        assert point.error == pytest.approx(score("error", labels, predicted))


def first_of_largest(row, slopes, gamma):
    """The class that wins by the rule shift, in fractions."""
    scores = [
        Fraction(float(value)) + gamma * Fraction(float(slope))
        for value, slope in zip(row, slopes, strict=True)
    ]
    return scores.index(max(scores))


@pytest.mark.parametrize("seed", range(4))
def test_curves_hold_at_the_very_gamma_at_which_scores_are_equal(seed):
    """Logits that are powers of two times log 4 tie at many gammas; every curve has the value of fractions there."""
    rng = np.random.default_rng(seed)
    logits = rng.choice([-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0], (40, CLASSES)) * np.log(4)
    labels = rng.permutation(np.arange(40) % CLASSES)
    path = gamma_path(logits, labels, COUNTS, rule="shift")
    slopes = np.log(COUNTS.max() / COUNTS)
    objective = Objective(path, np.full(CLASSES, 1 / CLASSES), path.envelope)
    error = objective.grid.curve(objective.error())
    shares = objective.grid.curve(objective.mismatch.values())
    for gamma in (
        0.0,
        0.5,
        1.0,
        1.5,
        2.0,
        np.nextafter(0, 1),
        np.nextafter(1, 0),
        np.nextafter(1, 2),
        0.7,
    ):
        exact = np.array([first_of_largest(row, slopes, Fraction(float(gamma))) for row in logits])
        assert np.array_equal(path.right(gamma), exact == labels), gamma
        assert np.array_equal(path.envelope.predictions(gamma), exact), gamma
        assert error.at(gamma) == pytest.approx(score("balanced_error", labels, exact)), gamma
        off = np.bincount(exact, objective.weights, CLASSES) - objective.prior
        assert shares.at(gamma) == pytest.approx(np.abs(off).sum() / 2), gamma


def test_equal_rows_are_not_left_at_the_one_gamma_that_is_wrong():
    logits, labels = np.full((20, 2), 0.5), np.ones(20, int)
    tuned = chosen_binary(logits, labels)
    assert (tuned.error, tuned.error_at_zero, tuned.curve.at(0.0)) == (0.0, 1.0, 1.0)
    assert tuned.gamma > 0
    kept = chosen_binary(logits, np.zeros(20, int))  # right at 0 alone
    assert (kept.gamma, kept.error, kept.error_at_zero) == (0.0, 0.0, 0.0)


def chosen_binary(logits, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tune(logits, labels, [90, 10], rule="shift", kind="probabilities", bootstrap=50)


def test_shares_without_labels_are_those_of_argmax_at_zero_and_at_gamma():
    logits = np.random.default_rng(0).integers(-5, 6, (200, CLASSES)) * 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned = match_prior(logits, COUNTS, bootstrap=0)
    for gamma, told in ((0.0, tuned.mismatch_at_zero), (tuned.gamma, tuned.mismatch)):
        shares = (
            np.bincount(adjusted(logits, gamma, "rescale").argmax(axis=1), minlength=CLASSES) / 200
        )
        assert told == pytest.approx(np.abs(shares - 1 / CLASSES).sum() / 2)


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


def test_few_intervals_hold_the_value_at_zero_too():
    grid = Grid.between(np.array([5e-324, *np.linspace(0.01, 1.9, 50)]), (0.0, 2.0), most=16)
    assert grid.middles[0] == 0.0
    assert len(grid.middles) == 17
    assert grid.bins(np.array([0.0, 5e-324])).tolist() == [0, 1]


@pytest.mark.parametrize("most", [None, 7, 20])
def test_each_event_opens_the_first_interval_by_whose_middle_it_has_happened(most):
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 20, 21, 300):
        events = np.sort(rng.choice([0.0, 2.0, *rng.uniform(0, 2, n)], n))
        grid = Grid.between(events, (0.0, 2.0), most)
        others = np.sort(
            rng.uniform(0, 2, len(grid.middles) - 1)
        )  # as many as there are edges within, and not there
        for some in (events, events[::2], events[:1], others):
            np.testing.assert_array_equal(grid.bins(some), np.searchsorted(grid.middles, some))


def test_a_choice_is_zero_where_only_slivers_differ():
    a = 0.5
    grid = Grid.between(np.array([a, np.nextafter(a, 1)]), (0.0, 2.0))
    assert grid.choose(np.array([0.2, 0.3, 0.2]))[0] == 0.0
    assert grid.choose(np.array([0.2, 0.1, 0.2]))[0] == 0.0


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
        gains = np.bincount(changes.sample, changes.new_class - changes.old_class, minlength=60)
        assert np.array_equal(
            changes.start + gains, changes.predictions(2.0)
        )  # each change begins at the one before


def test_tiny_logits_next_to_huge_ones_change_nothing():
    logits = np.array([[1e250, 1e-310, -1e-320], [-1e250, 2e-323, 1e-323], [-4.0, 0.0, -5e-324]])
    slopes = [Fraction(x) for x in np.log([1.0, 10.0, 100.0]).tolist()]
    changes = compute_envelope(
        logits, find_path_rule("shift").direction(np.array([100, 10, 1])), (-1.0, 2.0)
    )
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
        rng.random((n, CLASSES)) < [0, 0.3, 0.3, 0.3], -np.inf, rng.normal(size=(n, 4))
    ),
}


@pytest.mark.parametrize("family", TIED | EXTREME)
@pytest.mark.parametrize(
    "rule", ["rescale", Tau(norms=NORMS), "shift"], ids=["rescale", "tau", "shift"]
)
@pytest.mark.parametrize("reach", [(0.0, 2.0), (-1.0, 2.0), (-900.0, 900.0)], ids=str)
def test_predictions_are_those_of_the_path_at_every_change_and_next_to_it(family, rule, reach):
    rng = np.random.default_rng(0)
    logits, labels = (TIED | EXTREME)[family](rng, 60), rng.integers(0, CLASSES, 60)
    path = gamma_path(logits, labels, COUNTS, rule=rule, range=reach)
    at = np.concatenate([path.gammas, path.envelope.gamma])
    near = np.concatenate(
        [at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf), rng.uniform(*reach, 10), reach]
    )
    for gamma in np.unique(np.clip(near, *reach)):
        predicted = path.predictions(float(gamma))
        assert np.array_equal(predicted == labels, path.right(gamma)), gamma
        if not (
            rule == "shift" and family == "denormal"
        ):  # there a crossing lies between two floats next to 0
            assert np.array_equal(predicted, path.envelope.predictions(gamma)), gamma
