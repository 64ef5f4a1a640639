"""The criterion against plain argmax at single gammas, and against sums worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelhead.choice.cross_fit import draw_replicates
from levelhead.choice.gamma_path import gamma_path
from levelhead.choice.objective import Objective, Pull
from levelhead.choice.resample import SAME_VALUE
from levelhead.core.rules import Tau, find_path_rule
from levelhead.path.envelope import compute_envelope

COUNTS = np.array([500, 120, 40, 9])
UNIFORM = np.full(4, 0.25)


def sample(seed: int, n: int = 120, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate(
        [np.arange(classes), rng.choice(classes, n - classes, p=[0.6, 0.2, 0.15, 0.05])]
    )
    return rng.normal(1.0, 1.5, size=(n, classes)) + 1.5 * np.eye(classes)[labels], labels


def scores(logits: np.ndarray, gamma: float, rule: str, norms: np.ndarray) -> np.ndarray:
    ratio = COUNTS.max() / COUNTS
    if rule == "shift":
        return logits + gamma * np.log(ratio)
    return logits * ratio**gamma if rule == "rescale" else logits / norms**gamma


@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_error_and_mismatch_are_those_of_argmax_under_any_weights(rule):
    norms = np.array([3.0, 2.0, 1.2, 0.7])
    for seed in range(8):
        logits, labels = sample(seed)
        rng = np.random.default_rng(seed)
        times = rng.integers(0, 3, size=len(labels)).astype(float)
        prior = rng.dirichlet(np.ones(4))
        path = gamma_path(logits, labels, COUNTS, rule=Tau(norms=norms) if rule == "tau" else rule)
        objective = Objective(path, prior, path.envelope)
        error, mismatch = objective.error(times), objective.mismatch.values(times)
        weight = times * (prior / np.bincount(labels))[labels]
        for i in rng.integers(len(error), size=30):
            gamma = (objective.grid.edges[i] + objective.grid.edges[i + 1]) / 2
            predicted = scores(logits, gamma, rule, norms).argmax(axis=1)
            assert error[i] == pytest.approx(1 - weight[predicted == labels].sum(), abs=1e-12)
            shares = np.bincount(predicted, weight, 4) / weight.sum()
            assert mismatch[i] == pytest.approx(np.abs(shares - prior).sum() / 2, abs=1e-12)


def test_shares_of_unlabelled_samples_weigh_each_sample_the_same():
    logits, labels = sample(0)
    others, _ = sample(1, n=50)
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    path = gamma_path(logits, labels, COUNTS)
    changes = compute_envelope(others, find_path_rule("rescale").direction(COUNTS), (0.0, 2.0))
    objective = Objective(path, prior, changes, unlabelled=True)
    mismatch = objective.grid.curve(objective.mismatch.values())
    for gamma in (0.011, 0.35, 0.9, 1.7):
        shares = (
            np.bincount(scores(others, gamma, "rescale", COUNTS).argmax(axis=1), minlength=4) / 50
        )
        assert mismatch.at(gamma) == pytest.approx(np.abs(shares - prior).sum() / 2, abs=1e-12)


def test_standard_error_is_the_hand_worked_one():
    # class 0: 2 of 3 right, class 1: 0 of 1 right, at gamma = 0
    logits = np.array([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0], [3.0, 1.0]])
    objective = Objective(gamma_path(logits, [0, 0, 0, 1], [10, 10]), np.array([0.5, 0.5]))
    first, second = 3 / 5, 1 / 3
    expected = np.sqrt(0.25 * first * (1 - first) / 5 + 0.25 * second * (1 - second) / 3)
    assert objective.standard_error(0.0) == pytest.approx(expected, rel=1e-12)


def test_criterion_is_error_plus_the_capped_weight_times_mismatch():
    logits, labels = sample(3)
    path = gamma_path(logits, labels, COUNTS)
    objective = Objective(path, UNIFORM, path.envelope)
    error, mismatch = objective.error(), objective.mismatch.values()
    best = error.argmin()
    s = objective.standard_error(objective.grid.curve(error).plateau()[0] + 1e-9)
    assert error[best] == pytest.approx(
        1 - objective.weights @ path.right(objective.grid.choose(error)[0]), abs=1e-12
    )
    assert 20 * s > 1 > 3 * s  # so both sides of the cap are met
    np.testing.assert_allclose(objective.values(error), error + mismatch, atol=1e-12)
    np.testing.assert_allclose(
        objective.values(error, strength=3), error + 3 * s * mismatch, atol=1e-12
    )
    np.testing.assert_array_equal(objective.values(error, strength=0), error)


def test_choice_is_the_middle_of_the_widest_of_the_best_plateaus():
    # class 1 is found from 0.5 and from 1 on, class 0 until 0.6: balanced error 1/2, 1/4, 3/4, 1/2
    logits = np.array([[4.0, 2.0], [4.0, 1.0], [4.0, 4.0 / 4**0.6]])
    objective = Objective(gamma_path(logits, [1, 1, 0], [400, 100]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(objective.grid.edges, [0, 0.5, 0.6, 1, 2], atol=1e-9)
    np.testing.assert_allclose(objective.error(), [0.5, 0.25, 0.75, 0.5])
    assert objective.grid.choose(objective.error())[0] == pytest.approx(0.55)
    assert objective.grid.choose(np.array([0.1, 0.2, 0.1, 0.1]))[1] == pytest.approx((0.6, 2.0))


def test_choice_is_zero_where_gamma_changes_nothing():
    logits, labels = sample(0)
    objective = Objective(gamma_path(logits, labels, [7, 7, 7, 7]), UNIFORM)
    assert objective.grid.choose(objective.error()) == (0.0, (0.0, 2.0))


def test_a_class_without_samples_is_neutral():
    logits, labels = sample(0)
    kept = labels != 2
    path = gamma_path(logits[kept], labels[kept], COUNTS)
    objective = Objective(path, UNIFORM, path.envelope)
    assert objective.prior.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])
    curve = objective.grid.curve(objective.error())
    for gamma in (0.1, 0.7, 1.9):
        assert curve.at(gamma) == pytest.approx(
            float(path.balanced_error_curve.at(gamma)), abs=1e-12
        )


def test_few_intervals_hold_the_values_at_their_middles():
    logits, labels = sample(5)
    path = gamma_path(logits, labels, COUNTS)
    exact = Objective(path, UNIFORM, path.envelope)
    coarse = replace(exact, most=16)
    middles = (coarse.grid.edges[1:] + coarse.grid.edges[:-1]) / 2
    assert len(middles) == 16 < len(exact.grid.edges)
    np.testing.assert_allclose(
        coarse.error(), exact.grid.curve(exact.error()).at(middles), atol=1e-12
    )
    mismatch = exact.grid.curve(exact.mismatch.values())
    np.testing.assert_allclose(coarse.mismatch.values(), mismatch.at(middles), atol=1e-12)


def test_replicates_spread_even_where_a_class_has_a_single_sample():
    # one sample a class: every resample is the data itself, and yet nothing is certain
    logits = np.array([[4.0, 1.0], [4.0, 2.0]])
    objective = Objective(gamma_path(logits, [0, 1], [400, 100]), np.array([0.5, 0.5]))
    drawn = draw_replicates(objective, 0.75, 0.0, 2000, np.random.default_rng(0))
    # class 0: no change of 1, class 1: one gain of 1; with one gain and one loss more: 2/3, and (3 - 1/3) / 3
    expected = 0.25 * ((2 / 3) / 3 + (1 - 1 / 9) / 3)
    assert np.unique(drawn.gammas).size == 1
    assert drawn.gains.var() == pytest.approx(expected, rel=0.15)
    assert drawn.gains.mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_predictions_along_the_envelope_are_argmax_even_where_lines_meet(rule):
    norms = np.array([4.0, 2.0, 1.0, 0.5])
    counts = np.array([64, 16, 4, 1])
    rng = np.random.default_rng(0)
    for logits in (
        2.0 ** rng.integers(-3, 4, size=(300, 4)),
        rng.integers(-2, 3, size=(300, 4)) * 1.0,
        -(2.0 ** rng.integers(-2, 3, size=(300, 4))),
        rng.normal(size=(300, 4)),
    ):
        made = find_path_rule(rule).direction(counts, norms=norms if rule == "tau" else None)
        changes = compute_envelope(logits, made, (0.0, 2.0))
        for gamma in (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, *rng.uniform(0, 2, size=20)):
            ratio = 64 / counts if rule != "tau" else 1 / norms
            moved = logits + gamma * np.log(ratio) if rule == "shift" else logits * ratio**gamma
            np.testing.assert_array_equal(changes.predictions(gamma), moved.argmax(axis=1))


@pytest.mark.parametrize("metric", ["balanced_error", "error"])
@pytest.mark.parametrize("unlabelled", [False, True])
def test_the_objective_of_some_samples_is_that_of_a_path_of_them_alone(metric, unlabelled):
    rng = np.random.default_rng(3)
    for _ in range(20):
        logits, labels = sample(int(rng.integers(100)))
        logits = np.round(logits) if rng.random() < 0.5 else logits  # ties
        rows = np.flatnonzero(rng.random(len(labels)) < 0.6)
        rows = rows[labels[rows] != rng.integers(8)]  # a class may be missing
        path, alone = (
            gamma_path(logits, labels, COUNTS),
            gamma_path(logits[rows], labels[rows], COUNTS),
        )
        changes = [compute_envelope(rng.normal(size=(40, 4)), path.rule, path.range)] * 2
        changes = changes if unlabelled else [path.envelope, alone.envelope]
        pull = Pull(0.4, 0.5) if rng.random() < 0.5 else None
        target = (
            UNIFORM
            if metric == "balanced_error"
            else np.bincount(labels[rows], minlength=4) / len(rows)
        )
        options = {"unlabelled": unlabelled, "metric": metric, "pull": pull}
        whole = Objective(path, UNIFORM, changes[0], **options)
        some, truth = (
            whole.on(np.isin(np.arange(len(labels)), rows), target),
            Objective(alone, target, changes[1], **options),
        )
        error, expected, middles = some.error(), truth.error(), truth.grid.middles
        np.testing.assert_allclose(some.grid.curve(error).at(middles), expected, atol=1e-12)
        plain, alike = (
            replace(one, pull=None) for one in (some, truth)
        )  # it is that of the middle of an interval
        np.testing.assert_allclose(
            some.grid.curve(plain.values(error)).at(middles), alike.values(expected), atol=1e-12
        )
        assert (
            some.grid.choose(plain.values(error))[1] == truth.grid.choose(alike.values(expected))[1]
        )
        if pull is not None:
            s = [
                one.standard_error(one.grid.curve(e).middle(one.grid.curve(e).plateau(SAME_VALUE)))
                for one, e in ((some, error), (truth, expected))
            ]
            assert s[0] == pytest.approx(s[1], rel=1e-12)
            added = some.values(error) - plain.values(error)
            np.testing.assert_allclose(added, pull.values(some.grid.middles, s[0]), atol=1e-12)
        assert some.choose() == some.grid.choose(some.values(error))
