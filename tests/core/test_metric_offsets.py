"""How far a goal asks to go: one strength by the metric, against tables that are counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax

import levelhead as lh
from levelhead.core import metric_offsets
from levelhead.core.adjustment import Adjustment, Fits
from levelhead.core.metric_offsets import BELIEF, PULL, STRENGTHS, move_along, move_for_goal
from levelhead.core.metrics import METRICS
from levelhead.core.per_class import Mask, fit_per_class
from levelhead.core.samples import Given

from .made import COST, COUNTS, calibrated, loss_by_hand

TARGET = np.array([0.1, 0.2, 0.3, 0.4])
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")


def fitted(seed: int, n: int, **options):
    samples = Given.of(*calibrated(seed, n, **options), COUNTS).samples(
        None, np.random.default_rng(0)
    )
    fits, temperature = fit_per_class(samples, Mask(scales=False, offsets=True))
    return samples, fits, temperature


def goal_of(metric, samples, target=None) -> lh.Goal:
    goal = lh.Goal(metric, cost=COST if metric == "cost" else None)
    return goal.on(samples.labels, 4, None, target)


def strength_of(moved: Adjustment, fit: Adjustment, along: np.ndarray) -> float:
    """Return how far an adjustment was moved."""
    far = int(np.argmax(np.abs(along)))
    return float((moved.offset - fit.offset)[far] / along[far])


def best_by_hand(samples, fits, temperature, goal, along, rows) -> float:
    """Return the strength of least loss, sample by sample: each counts partly as what is believed."""
    n = len(samples.labels)
    scores = samples.scores + fits.whole.offset
    believed = softmax(scores / temperature + np.log(samples.sizes / samples.counts), axis=1)
    share = BELIEF / (n + BELIEF)
    truth = (1 - share) * np.eye(4)[samples.labels] + share * believed
    if goal.target is not None:
        truth = truth * goal.target / samples.sizes

    def losses_of(rows) -> np.ndarray:
        losses = []
        for strength in STRENGTHS:
            predicted = (scores + strength * along).argmax(axis=1)
            confusion = np.zeros((4, 4))
            for row in rows:
                confusion[:, predicted[row]] += truth[row]
            paid = (confusion * COST).sum() if goal.cost is not None else None
            tables = lh.Tables(
                np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1), np.asarray(paid)
            )
            losses.append(float(goal.loss(tables)))
        return np.array(losses)

    unit = losses_of(np.arange(n)).mean() if goal.cost is not None else 1.0
    pull = unit * PULL * (STRENGTHS - goal.metric.usual) ** 2 / len(rows)
    return STRENGTHS[int(np.argmin(losses_of(rows) + pull))]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("target", [None, TARGET], ids=["alike", "target"])
def test_each_fit_moves_by_the_strength_that_is_best_without_its_fold(metric, target):
    if metric in ("error", "g_mean", "worst_recall"):
        target = None  # these weigh classes by themselves
    samples, fits, temperature = fitted(0, 200)
    goal = goal_of(metric, samples, target)
    along = temperature * samples.toward(goal)
    moved = move_along(fits, samples, goal, temperature)
    if not along.any():
        assert moved is fits
        return
    every = np.arange(200)
    wanted = best_by_hand(samples, fits, temperature, goal, along, every)
    assert strength_of(moved.whole, fits.whole, along) == pytest.approx(wanted)
    for fold, after, before in zip(samples.folds, moved.without, fits.without, strict=True):
        kept = every[samples.fold != fold]
        wanted = best_by_hand(samples, fits, temperature, goal, along, kept)
        assert strength_of(after, before, along) == pytest.approx(wanted)


def test_what_is_added_goes_along_what_the_goal_asks_for():
    samples, fits, temperature = fitted(1, 500)
    for target, needed in ((None, np.log(1000 / COUNTS)), (TARGET, np.log(TARGET / COUNTS))):
        goal = goal_of("balanced_error", samples, target)
        moved = move_along(fits, samples, goal, temperature).whole.offset - fits.whole.offset
        needed = needed - needed[0]
        np.testing.assert_allclose(moved / moved[3], needed / needed[3], atol=1e-9)


def test_metrics_for_which_classes_come_as_in_training_need_no_move():
    """The mix of samples that are drawn like the training set is what log loss is right for."""
    samples, fits, temperature = fitted(2, 3000)
    goal = goal_of("error", samples)
    counted = replace(samples, counts=samples.sizes.astype(float))
    assert not counted.toward(goal).any()
    assert move_along(fits, counted, goal, temperature) is fits


@pytest.mark.parametrize(
    ("metric", "usual"), [("balanced_error", 1.0), ("macro_f1", 0.5), ("g_mean", 1.0)]
)
def test_the_strength_of_a_calibrated_model_is_about_what_is_usual(metric, usual):
    strengths = []
    for seed in range(4):
        samples, fits, temperature = fitted(seed, 3000)
        goal = goal_of(metric, samples)
        along = temperature * samples.toward(goal)
        strengths.append(
            strength_of(move_along(fits, samples, goal, temperature).whole, fits.whole, along)
        )
    assert METRICS[metric].usual == usual
    assert np.mean(strengths) == pytest.approx(usual, abs=0.25)


def test_few_samples_stay_nearer_to_what_is_usual():
    spread = []
    for n in (30, 1500):
        strengths = []
        for seed in range(10):
            samples, fits, temperature = fitted(seed, n)
            goal = goal_of("balanced_error", samples)
            along = temperature * samples.toward(goal)
            moved = move_along(fits, samples, goal, temperature)
            strengths.append(strength_of(moved.whole, fits.whole, along))
        spread.append(np.abs(np.array(strengths) - 1).max())
    assert spread[0] < 0.4
    assert spread[1] < 0.4


@pytest.mark.parametrize("metric", ["macro_f1", "cost"])
def test_tensors_are_moved_as_arrays_are(metric):
    samples, fits, temperature = fitted(3, 400)
    goal = goal_of(metric, samples)
    moved = move_along(fits, samples, goal, temperature).whole.offset
    tensors = replace(samples, scores=torch.tensor(samples.scores))
    np.testing.assert_allclose(move_along(fits, tensors, goal, temperature).whole.offset, moved)


def test_of_many_samples_a_part_tells_the_strength(monkeypatch):
    samples, fits, temperature = fitted(4, 8000)
    goal = goal_of("macro_f1", samples)
    along = temperature * samples.toward(goal)
    whole = move_along(fits, samples, goal, temperature).whole
    monkeypatch.setattr(metric_offsets, "_MOST_NUMBERS", 4 * 3000)
    part = move_along(fits, samples, goal, temperature).whole
    of_all, other = (strength_of(each, fits.whole, along) for each in (whole, part))
    assert of_all == pytest.approx(other, abs=0.3)


def test_of_very_many_classes_every_fold_keeps_samples(monkeypatch):
    """The part is of so many numbers: of many classes that would be a row or two, and no fold at all."""
    monkeypatch.setattr(metric_offsets, "_MOST_NUMBERS", 100)
    labels = np.arange(600) % 300
    logits = 3 * np.eye(300)[labels] + np.random.default_rng(0).normal(size=(600, 300))
    tuned = lh.tune(logits, labels, np.arange(310, 10, -1))
    assert tuned.evidence is not None
    assert tuned.evidence.n == 600


def test_the_most_frequent_class_stays_where_it_is():
    samples, fits, temperature = fitted(5, 300)
    moved = move_for_goal(fits, samples, goal_of("balanced_error", samples), temperature)
    assert all(fit.offset[0] == 0 for fit in (moved.whole, *moved.without))
    alone = replace(samples, background=2)
    moved = move_for_goal(fits, alone, goal_of("balanced_error", samples), temperature)
    assert all(fit.offset[2] == 0 for fit in (moved.whole, *moved.without))


def test_floors_raise_each_fit_on_the_samples_it_has_seen():
    samples, fits, temperature = fitted(6, 800)
    goal = lh.Goal("error", floors={3: 0.6}, certainty=0.5).on(samples.labels, 4, None)
    moved = move_for_goal(fits, samples, goal, temperature)
    pairs = [(np.ones(800, bool), moved.whole)]
    pairs += [(samples.fold != f, fit) for f, fit in zip(samples.folds, moved.without, strict=True)]
    for kept, adjustment in pairs:
        predicted = adjustment.predict(samples.scores[kept])
        rare = samples.labels[kept] == 3
        assert (predicted[rare] == 3).mean() >= 0.6


def test_a_move_is_better_for_its_metric_on_new_samples_than_none():
    new, truth = calibrated(999, 20_000)
    samples, fits, temperature = fitted(7, 2000)
    for metric in ("balanced_error", "macro_f1", "mcc", "g_mean", "worst_recall", "cost"):
        moved = move_along(fits, samples, goal_of(metric, samples), temperature).whole
        after, before = (
            loss_by_hand(metric, truth, adjustment.predict(new))
            for adjustment in (moved, fits.whole)
        )
        assert after < before + 0.005


def test_a_strength_that_no_sample_asks_for_is_the_usual_one():
    """Scores so far apart that nothing changes within the range: only the pull is left."""
    logits = 1000 * np.eye(4)[np.repeat(np.arange(4), 10)]
    labels = np.repeat(np.arange(4), 10)
    samples = Given.of(logits, labels, COUNTS).samples(None, np.random.default_rng(0))
    nothing = Adjustment.adding(np.zeros(4))
    fits = Fits([nothing] * len(samples.folds), nothing)
    goal = goal_of("macro_f1", samples)
    moved = move_along(fits, samples, goal, 1.0)
    assert strength_of(moved.whole, nothing, samples.toward(goal)) == pytest.approx(0.5)


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_unit_of_costs_does_not_matter(unit):
    logits, labels = calibrated(3, 300)
    cost = np.array([[0, 1, 3, 2], [5, 0, 1, 1], [9, 4, 0, 2], [40, 30, 10, 0]])
    cheap = lh.tune(logits, labels, COUNTS, metric=lh.Goal(cost=unit * cost))
    plain = lh.tune(logits, labels, COUNTS, metric=lh.Goal(cost=cost))
    np.testing.assert_allclose(cheap.adjustment.offset, plain.adjustment.offset, rtol=1e-9)
    assert cheap.gain == pytest.approx(unit * plain.gain)
