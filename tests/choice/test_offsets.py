"""Offsets: exact line searches, floors, and the rule in `tune`."""

import functools
import itertools
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.metrics import (
    balanced_accuracy_score,
    cohen_kappa_score,
    f1_score,
    matthews_corrcoef,
    recall_score,
)

import levelhead as lh
from levelhead.choice.floors import least_conflict, meet_floors, most_right, needed_right
from levelhead.choice.offsets import OffsetGoal, choose_pull, fit_offsets
from levelhead.choice.tuned_json import write_tuned
from levelhead.core.rules import RULES, Strengths
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

COST = np.array([[0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [9.0, 3.0, 0.0]])
LOSSES = {
    "balanced_error": lambda y, p: 1 - balanced_accuracy_score(y, p),
    "error": lambda y, p: np.mean(y != p),
    "macro_f1": lambda y, p: (
        1 - f1_score(y, p, average="macro", labels=np.unique(y), zero_division=0)
    ),
    "worst_recall": lambda y, p: (
        1 - recall_score(y, p, average=None, labels=np.unique(y), zero_division=0).min()
    ),
    "g_mean": lambda y, p: (
        1
        - np.prod(recall_score(y, p, average=None, labels=np.unique(y))) ** (1 / len(np.unique(y)))
    ),
    "mcc": lambda y, p: 1 - matthews_corrcoef(y, p),
    "kappa": lambda y, p: 1 - cohen_kappa_score(y, p),
    "cost": lambda y, p: COST[y, p].mean(),
}


def goal_of(labels, metric, classes, floors=None):
    sizes = np.bincount(labels, minlength=classes)
    weights = 1 / sizes[labels] if metric == "balanced_error" else np.ones(len(labels))
    cost = COST[:classes, :classes] if metric == "cost" else None
    return OffsetGoal(
        labels,
        weights,
        classes,
        metric,
        cost,
        None if floors is None else np.asarray(floors, float),
    )


def few_samples(seed, n=9):
    rng = np.random.default_rng(seed)
    labels = np.append(np.arange(3), rng.choice(3, n - 3, p=[0.6, 0.3, 0.1]))
    return rng.normal(size=(n, 3)) + np.eye(3)[labels] + [1.5, 0.5, 0.0], labels


@functools.cache
def every_prediction_of(seed):
    return list(every_prediction(few_samples(seed)[0]))


def every_prediction(scores):
    """Yield the predictions of every pair of offsets of three classes, once each, by their definition."""
    n, found = len(scores), set()
    diff = {(a, b): scores[:, a] - scores[:, b] for a, b in itertools.permutations(range(3), 2)}
    first = np.unique(np.concatenate([diff[0, 1], (diff[0, 2][:, None] + diff[2, 1]).ravel()]))
    for one in np.concatenate([[first[0] - 1], (first[1:] + first[:-1]) / 2, [first[-1] + 1]]):
        second = np.unique(np.maximum(scores[:, 0], scores[:, 1] + one) - scores[:, 2])
        for two in np.concatenate(
            [[second[0] - 1], (second[1:] + second[:-1]) / 2, [second[-1] + 1]]
        ):
            predicted = tuple((scores + [0.0, one, two]).argmax(axis=1).tolist())
            if predicted not in found:
                found.add(predicted)
                yield np.array(predicted)
    assert len(found) > n


@pytest.mark.parametrize("metric", LOSSES)
@pytest.mark.parametrize("seed", range(2))
def test_no_pair_of_offsets_is_better(metric, seed):
    scores, labels = few_samples(seed)
    found = fit_offsets(scores, goal_of(labels, metric, 3), thorough=True)
    assert found.loss == pytest.approx(
        LOSSES[metric](labels, (scores + found.offset).argmax(axis=1))
    )
    assert found.loss == pytest.approx(
        min(LOSSES[metric](labels, row) for row in every_prediction_of(seed))
    )


@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1", "cost"])
@pytest.mark.parametrize(
    "floors", [(np.nan, 1.0, np.nan), (0.5, np.nan, 1.0), (0.6, 0.6, 0.5), (0.9, 0.9, 0.9)]
)
@pytest.mark.parametrize("seed", range(3))
def test_floors_are_met_at_the_least_loss_or_no_pair_of_offsets_meets_them(metric, floors, seed):
    scores, labels = few_samples(seed)
    found = fit_offsets(scores, goal_of(labels, metric, 3, floors), thorough=True)

    def meets(predicted):
        recall = recall_score(labels, predicted, average=None, labels=range(3))
        return all(not r < f - 1e-9 for r, f in zip(recall, floors, strict=True))

    able = [LOSSES[metric](labels, row) for row in every_prediction_of(seed) if meets(row)]
    assert found.floors.met == bool(able)
    if able:
        assert meets((scores + found.offset).argmax(axis=1))
        assert found.loss == pytest.approx(min(able))
    else:
        assert len(found.floors.conflict) >= 2


def many_samples(n=2000, seed=0, counts=(1000, 300, 100, 30, 10)):
    rng, counts = np.random.default_rng(seed), np.array(counts)
    size = len(counts)
    labels = np.append(
        np.repeat(np.arange(size), 10), rng.choice(size, n - 10 * size, p=counts / counts.sum())
    )
    return 1.5 * rng.normal(size=(n, size)) + 3 * np.eye(size)[labels] + np.log(counts), labels


@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1", "worst_recall", "g_mean", "mcc"])
@pytest.mark.parametrize("pull", [0.0, 1.0, np.inf])
def test_the_loss_is_never_above_that_of_the_start_and_an_infinite_pull_is_the_start(metric, pull):
    scores, labels = many_samples(600)
    goal = goal_of(labels, metric, 5)
    found = fit_offsets(scores, goal, pull=pull)
    assert found.loss == pytest.approx(goal.loss((scores + found.offset).argmax(axis=1)))
    assert found.loss <= goal.loss(scores.argmax(axis=1))
    assert (found.offset.any()) == np.isfinite(pull)


@pytest.mark.parametrize(
    "metric", ["balanced_error", "macro_f1", "worst_recall", "g_mean", "mcc", "kappa", "error"]
)
def test_the_line_of_a_class_is_the_loss_at_every_value_of_its_offset(metric):
    scores, labels = many_samples(200)
    goal = goal_of(labels, metric, 5)
    others = scores.copy()
    others[:, 3] = -np.inf
    rival = others.argmax(axis=1)
    at = others.max(axis=1) - scores[:, 3]
    order = np.argsort(at)
    edges = at[order]
    losses = goal.line(order, rival, 3)
    for i in range(0, len(edges) - 1, 7):
        moved = scores + (edges[i] + edges[i + 1]) / 2 * np.eye(5)[3]
        assert losses[i + 1] == pytest.approx(LOSSES[metric](labels, moved.argmax(axis=1)))


def test_fewer_samples_are_pulled_more_and_a_pull_is_chosen_where_it_helps():
    scores, labels = many_samples(4000)
    goal = goal_of(labels, "balanced_error", 5)
    assert choose_pull(scores, goal)[0] < np.inf  # the counts' shift is missing here
    few = np.arange(0, 4000, 40)
    shifted = scores - np.log([1000, 300, 100, 30, 10])  # and not here: what is left is noise
    assert choose_pull(shifted[few], goal.take(few))[0] > choose_pull(scores, goal)[0]


def test_floors_are_met_by_the_least_offsets():
    scores, labels = many_samples()
    need = needed_right(np.array([np.nan, np.nan, np.nan, 0.7, 0.8]), labels)
    found = meet_floors(scores.T, labels, need, np.zeros(5))
    assert found.met
    right = np.bincount(labels[(scores + found.offset).argmax(axis=1) == labels], minlength=5)
    assert (right >= need).all()
    for k in (3, 4):  # a little less of either does not meet them
        less = (scores + found.offset - 1e-3 * np.eye(5)[k]).argmax(axis=1)
        assert (np.bincount(labels[less == labels], minlength=5) < need).any()


def test_a_conflict_is_proven_for_the_classes_that_have_it():
    scores, labels = many_samples()
    scores[:, 2] = scores[:, 1] + np.random.default_rng(1).normal(
        size=len(scores)
    )  # not to be told apart
    need = needed_right(np.array([0.1, 0.9, 0.9, np.nan, 0.1]), labels)
    found = meet_floors(scores.T, labels, need, np.zeros(5))
    assert not found.met
    assert least_conflict(scores.T, labels, need, found.conflict) == (1, 2)
    best = most_right(scores.T, labels, need, 2)
    reached = int(((scores + best.offset).argmax(axis=1) == labels)[labels == 2].sum())
    # By hand: of the differences of the two classes, the one that leaves class 1 what it needs.
    lead = np.sort(scores[labels == 1, 1] - scores[labels == 1, 2])[::-1][need[1] - 1]
    assert reached <= (scores[labels == 2, 2] - scores[labels == 2, 1] > -lead).sum() < need[2]


def test_scores_of_minus_infinity_are_beyond_every_offset():
    scores, labels = many_samples(200)
    scores[labels == 4, 4] = -np.inf
    need = needed_right(np.array([np.nan] * 4 + [0.5]), labels)
    found = meet_floors(scores.T, labels, need, np.zeros(5))
    assert (found.met, found.conflict) == (False, (4,))


COUNTS = [1000, 300, 100, 30, 10]


def low_class(seed=0):
    """Return samples of which a frequent class scores too low: no strength of a rule by counts can raise it alone."""
    scores, labels = many_samples(seed=seed)
    return scores - 4 * np.eye(5)[1], labels


def test_auto_meets_a_floor_that_no_strength_meets():
    scores, labels = low_class()
    goal = lh.Goal(floors={1: 0.8, 4: 0.6})
    with pytest.raises(lh.LevelheadError, match="no gamma from"):
        lh.tune(scores, labels, COUNTS, metric=goal, rule="shift", bootstrap=0)
    tuned = lh.tune(scores, labels, COUNTS, metric=goal, bootstrap=0)
    adjusted = scores * tuned.scale + tuned.offset
    assert tuned.floors_met_at_zero is False
    recall = recall_score(labels, adjusted.argmax(axis=1), average=None)
    assert recall[1] >= 0.8
    assert recall[4] >= 0.6
    assert tuned.recall == pytest.approx(recall)
    alone = lh.tune(scores, labels, COUNTS, metric=goal, rule="offsets", bootstrap=0)
    assert (alone.rule, alone.scale) == ("offsets", (1.0,) * 5)
    assert {one.rule for one in tuned.candidates} >= {"shift", "offsets"}


@pytest.mark.parametrize("rule", ["shift", "rescale", "rescale+shift", "vector"])
def test_a_rule_that_cannot_meet_the_floors_points_to_offsets_that_can(rule):
    scores, labels = low_class()
    scores -= scores.min()
    easy = (
        lh.Goal(floors={1: 0.8, 4: 0.6})
        if rule != "vector"
        else lh.Goal(floors=dict.fromkeys(range(5), 0.78))
    )
    with pytest.raises(
        lh.LevelheadError, match=r"floor of \d\d.0%; pass rule='offsets' to meet them"
    ):
        lh.tune(scores, labels, COUNTS, metric=easy, rule=rule, bootstrap=0)
    with pytest.raises(lh.LevelheadError, match=r"floor of 99.0%; lower the floors"):
        lh.tune(scores, labels, COUNTS, metric=lh.Goal(floors=0.99), rule=rule, bootstrap=0)


def test_floors_that_conflict_are_named_with_what_each_can_reach():
    scores, labels = many_samples()
    goal = lh.Goal(floors={0: 0.97, 1: 0.97, 4: 0.1})
    with pytest.raises(lh.LevelheadError, match=r"class 0.*class 1") as error:
        lh.tune(scores, labels, COUNTS, metric=goal, bootstrap=0)
    assert error.value.parameter == "floors"
    said = str(error.value)
    assert "class 4" not in said
    reached = [float(share) / 100 for share in re.findall(r"reaches ([\d.]+)% at most", said)]
    assert len(reached) == 2
    # By hand: with all other classes out of the way, what class 0 has where class 1 keeps its floor.
    lead = scores[:, 0] - scores[:, 1]
    first, second = np.sort(lead[labels == 0]), np.sort(lead[labels == 1])
    bound = second[needed_right(np.array([0, 0.97, 0, 0, 0]), labels)[1] - 1]
    assert reached[0] == pytest.approx((first > bound).mean(), abs=0.0006)


def test_auto_tries_offsets_only_where_the_goal_names_classes():
    scores, labels = low_class()
    for metric, tried in (
        ("balanced_error", False),
        ("mcc", False),
        ("macro_f1", True),
        (lh.Goal(floors=0.01), True),
    ):
        tuned = lh.tune(scores, labels, COUNTS, metric=metric, bootstrap=0)
        assert ("offsets" in {one.rule for one in tuned.candidates}) == tried


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_macro_f1_is_not_worse_on_the_samples_than_with_the_shift(kind):
    scores, labels = low_class()
    given = (
        scores if kind == "logits" else np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    )
    tuned, shift = (
        lh.tune(given, labels, COUNTS, metric="macro_f1", rule=rule, kind=kind, bootstrap=0)
        for rule in ("offsets", "shift")
    )
    predicted = (scores + tuned.offset).argmax(axis=1)
    assert tuned.value == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert tuned.value > shift.value
    assert tuned.gain > 0
    again = lh.tune(
        given, labels, COUNTS, metric="macro_f1", rule="offsets", kind=kind, bootstrap=0
    )
    assert again.offset == tuned.offset


def test_offsets_are_written_to_a_file_and_undone(tmp_path):
    scores, labels = low_class()
    tuned = lh.tune(scores, labels, COUNTS, metric="macro_f1", rule="offsets", bootstrap=0)
    write_tuned(tuned, tmp_path / "tuned.json")
    weight, bias = np.eye(5, dtype=np.float32), np.arange(5, dtype=np.float32)
    save_file({"fc.weight": weight, "fc.bias": bias}, tmp_path / "m.safetensors")
    adjust_file(tmp_path / "m.safetensors", tmp_path / "o.safetensors", tmp_path / "tuned.json")
    adjusted = load_file(tmp_path / "o.safetensors")
    assert np.array_equal(adjusted["fc.weight"], weight)
    np.testing.assert_allclose(adjusted["fc.bias"], bias + tuned.offset, rtol=1e-5)
    undo_file(tmp_path / "o.safetensors", tmp_path / "back.safetensors")
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def test_a_head_with_one_logit_is_moved_by_the_difference():
    adjustment = RULES["offsets"].amounts(
        lh.Head(np.ones((1, 2))), np.array([90, 10]), Strengths(1.0, offset=(0.5, 2))
    )
    assert adjustment.scale is None
    assert adjustment.offset.tolist() == [1.5]
