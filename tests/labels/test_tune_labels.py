"""Several labels per sample: one exact threshold for each, against brute force over all of them."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import metrics as sk

import levelhead as lh
from levelhead.core.metrics import METRICS, Metric
from levelhead.core.samples import FOLDS, deal
from levelhead.labels.check import check_label_table
from levelhead.labels.cuts import Cuts
from levelhead.labels.judge import judge_labels
from levelhead.support.warnings import MissingClassWarning, quiet

from .test_cuts import COST, by_hand, thresholds


def samples(n=60, rates=(0.5, 0.2, 0.1), seed=0, ties=True, apart=1.5):
    """Logits [N, K] of labels of these rates, lower the rarer they are; and labels [N, K]."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, len(rates))) < rates).astype(int)
    labels[0], labels[1] = 1, 0
    logits = apart * labels + np.log(rates) + 0.5 + rng.normal(size=labels.shape)
    return (np.round(2 * logits) / 2 if ties else logits), labels


def tune(logits, labels, counts: Any = None, **options) -> Any:
    return lh.tune_labels(logits, labels, counts, **options)


def with_floors(floors, certainty=0.9) -> lh.Goal:
    return lh.Goal("macro_f1", floors=floors, certainty=certainty)


def right_for(floor, n):
    """How many of n positives must be right: the threshold is below the m-th, an order statistic."""
    if floor == 0:
        return 0
    enough = [m for m in range(1, n + 1) if stats.beta(m, n - m + 1).sf(floor) >= 0.9]
    return enough[0] if enough else 1 + math.ceil(floor * (n - 1) - 1e-9)


FLOORS = {
    "none": (None, [0, 0, 0]),
    "for all": (0.8, [0.8, 0.8, 0.8]),
    "for each": ({0: 0.0, 1: 1.0, 2: 0.5}, [0.0, 1.0, 0.5]),
    "by name": ({"rare": 0.9, "0": 0.3}, [0.3, 0, 0.9]),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("ties", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("floors", FLOORS)
def test_each_label_is_as_good_as_its_best_threshold(metric, ties, floors):
    cost = None
    if metric == "cost":
        cost = np.stack([COST, COST.T[::-1, ::-1], np.array([[0, 1.0], [30, 0]])])
    asked, least = FLOORS[floors]
    logits, labels = samples(ties=ties, seed=list(METRICS).index(metric))
    goal = lh.Goal(metric, cost=cost, floors=asked)
    tuned = tune(logits, labels, metric=goal, names=["0", "1", "rare"])
    predicted = (tuned.apply(logits) > 0).astype(int)
    for k in range(3):
        positive = labels[:, k] == 1
        needed = right_for(least[k], int(positive.sum()))
        costs = COST if cost is None else cost[k]
        tried = [(logits[:, k] > t).astype(int) for t in thresholds(logits[:, k])]
        allowed = [decisions for decisions in tried if decisions[positive].sum() >= needed]
        best = min(by_hand(metric, labels[:, k], decisions, costs) for decisions in allowed)
        loss = by_hand(metric, labels[:, k], predicted[:, k], costs)
        assert loss == pytest.approx(best, abs=1e-9)
        assert predicted[positive, k].sum() >= needed


def decided_without_the_fold(logits, labels, metric, rng):
    """What thresholds decide that were fitted without each fold, by hand."""
    generator, decided = np.random.default_rng(rng), np.empty(labels.shape, bool)
    for k in range(labels.shape[1]):
        fold = deal(labels[:, k], generator)
        for f in range(FOLDS):
            rest = fold != f
            cuts = Cuts.of(logits[rest, k], labels[rest, k] == 1)
            offset = cuts.best_offset(METRICS[metric].for_labels())
            decided[~rest, k] = logits[~rest, k] + offset > 0
    return decided.astype(int)


@pytest.mark.parametrize("metric", [name for name in METRICS if name != "cost"])
def test_the_gain_is_of_decisions_made_without_the_sample(metric):
    logits, labels = samples(200, ties=False)
    tuned = tune(logits, labels, metric=metric, rng=5)
    decided = decided_without_the_fold(logits, labels, metric, 5)
    plain = (logits > 0).astype(int)
    losses = [
        np.mean([by_hand(metric, labels[:, k], decisions[:, k]) for k in range(3)])
        for decisions in (plain, decided)
    ]
    assert tuned.gain == pytest.approx(losses[0] - losses[1])
    evidence = tuned.evidence
    assert evidence.value_before == pytest.approx(METRICS[metric].shown(losses[0]))
    assert evidence.value == pytest.approx(METRICS[metric].shown(losses[1]))
    assert evidence.changed == (plain != decided).sum()
    for tables, decisions in ((evidence.before, plain), (evidence.after, decided)):
        wanted = sk.multilabel_confusion_matrix(labels, decisions)
        np.testing.assert_array_equal(tables.right, [np.diag(matrix) for matrix in wanted])
        np.testing.assert_array_equal(tables.predicted, wanted.sum(axis=1))
        np.testing.assert_array_equal(tables.sizes, wanted.sum(axis=2))
    before, after = tuned.tables
    np.testing.assert_allclose(before.recall, sk.recall_score(labels, plain, average=None))
    np.testing.assert_allclose(after.precision, sk.precision_score(labels, decided, average=None))


def test_the_mean_f1_is_that_of_scikit_learn():
    logits, labels = samples(300)
    tuned = tune(logits, labels)
    assert tuned.metric == "macro_f1"
    decided = decided_without_the_fold(logits, labels, "macro_f1", 0)
    evidence = tuned.evidence
    assert evidence.value_before == pytest.approx(sk.f1_score(labels, logits > 0, average="macro"))
    assert evidence.value == pytest.approx(sk.f1_score(labels, decided, average="macro"))
    assert f"macro f1{evidence.value_before:20.1%} -> {evidence.value:6.1%}" in tuned.summary()


@pytest.mark.parametrize("metric", ["macro_f1", "balanced_error", "mcc"])
def test_the_standard_error_is_that_of_a_bootstrap_of_samples_with_all_their_labels(metric):
    """Twelve labels that are nearly the same one: taken for independent, it would be far too small."""
    rng = np.random.default_rng(0)
    one_label = samples(600, (0.3,), seed=1, ties=False)
    labels = np.repeat(one_label[1], 12, axis=1)
    logits = np.repeat(one_label[0], 12, axis=1) + 0.05 * rng.normal(size=labels.shape)
    tuned = tune(logits, labels, metric=metric)
    plain = (logits > 0).astype(int)
    decided = decided_without_the_fold(logits, labels, metric, 0)
    gains = []
    for _ in range(300):
        rows = rng.integers(600, size=600)
        losses = [
            np.mean([by_hand(metric, labels[rows, k], decisions[rows, k]) for k in range(12)])
            for decisions in (plain, decided)
        ]
        gains.append(losses[0] - losses[1])
    assert tuned.evidence.standard_error == pytest.approx(np.std(gains), rel=0.2)


def test_one_cost_matrix_is_of_all_labels():
    logits, labels = samples()
    tuned = tune(logits, labels, metric=lh.Goal(cost=COST))
    assert tuned.metric == "cost"
    each = tune(logits, labels, metric=lh.Goal(cost=np.stack([COST] * 3)))
    np.testing.assert_array_equal(tuned.adjustment.offset, each.adjustment.offset)


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e9])
def test_the_unit_of_costs_does_not_matter(unit):
    logits, labels = samples(200, ties=False)
    plain = tune(logits, labels, metric=lh.Goal(cost=COST))
    assert plain.adjustment.adds
    other = tune(logits, labels, metric=lh.Goal(cost=unit * COST))
    np.testing.assert_allclose(other.adjustment.offset, plain.adjustment.offset)
    assert other.gain == pytest.approx(unit * plain.gain)


def test_a_goal_says_its_metric_costs_and_floors_as_it_does_to_tune():
    logits, labels = samples(200, ties=False)
    assert tune(logits, labels).metric == "macro_f1"
    by_goal = tune(logits, labels, metric=lh.Goal("mcc"))
    np.testing.assert_array_equal(
        by_goal.adjustment.offset, tune(logits, labels, metric="mcc").adjustment.offset
    )
    tuned = tune(logits, labels, metric=lh.Goal(floors={2: 0.9}, certainty=0.75))
    assert tuned.metric == "balanced_error"  # that of any goal which names no other
    assert (tuned.floors[0].index, tuned.floors[0].least) == (2, 0.9)
    right = int((tuned.apply(logits)[labels[:, 2] == 1, 2] > 0).sum())
    n = int(labels[:, 2].sum())
    assert tuned.floors[0].probability == pytest.approx(stats.beta(right, n - right + 1).sf(0.9))


def test_a_metric_of_ones_own_is_taken():
    jaccard = Metric(
        "jaccard",
        "Jaccard",
        lambda t: 1 - t.right[..., 1] / (t.sizes[..., 1] + t.predicted[..., 1] - t.right[..., 1]),
    )
    logits, labels = samples(200, ties=False)
    tuned = tune(logits, labels, metric=jaccard)
    predicted = tuned.apply(logits) > 0
    for k in range(3):
        best = max(
            sk.jaccard_score(labels[:, k], logits[:, k] > t) for t in thresholds(logits[:, k])
        )
        assert sk.jaccard_score(labels[:, k], predicted[:, k]) == pytest.approx(best)
    assert "Jaccard" in str(tuned)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda t: 1 - t.precision[..., 1], "is NaN or infinite for some predictions"),
        (lambda t: 1 - t.recall.mean(), r"of tables \[.*2\] has shape \[\]"),
    ],
)
def test_a_metric_of_ones_own_that_says_nothing_of_some_cuts_is_refused(loss, reason):
    with pytest.raises(lh.LevelheadError, match=f"^metric: the loss of 'mine' {reason}"):
        tune(*samples(), metric=Metric("mine", "mine", loss))


def test_a_label_without_a_positive_or_a_negative_is_left_alone_and_named():
    logits, labels = samples(rates=(0.5, 0.2, 0.1, 0.3))
    labels[:, 1], labels[:, 3] = 0, 1
    message = r"label 1 \(b\), 3 \(d\) \(no negative\): left alone"
    with pytest.warns(lh.warnings.MissingClassWarning, match=message):
        tuned = tune(logits, labels, names=list("abcd"), metric=with_floors(0.5))
    assert tuned.adjustment.offset[[1, 3]].tolist() == [0, 0]
    kept = tune(logits[:, [0, 2]], labels[:, [0, 2]], metric=with_floors(0.5))
    np.testing.assert_array_equal(tuned.adjustment.offset[[0, 2]], kept.adjustment.offset)
    for name in ("value", "value_before", "gain", "standard_error"):
        assert getattr(tuned.evidence, name) == pytest.approx(getattr(kept.evidence, name))
    before, after = tuned.tables
    assert np.isnan(before.recall[1])
    assert np.isnan(after.recall[1])
    assert len(tuned.warnings) == 1


def test_floors_that_the_model_does_not_meet_are_worth_moving_for():
    logits, labels = samples(300, ties=False)
    tuned = tune(logits, labels, metric=with_floors({"2": 0.9}))
    assert [(floor.index, floor.least, floor.held_before) for floor in tuned.floors] == [
        (2, 0.9, False)
    ]
    assert tuned.worthwhile
    assert (tuned.apply(logits)[labels[:, 2] == 1, 2] > 0).mean() >= 0.9
    assert "class 2: recall of at least 90.0% with" in str(tuned)


def test_floors_hold_on_new_samples_about_as_often_as_is_said():
    logits, labels = samples(400, rates=np.full(60, 0.3), ties=False)
    new_logits, new_labels = samples(20_000, rates=np.full(60, 0.3), ties=False, seed=1)
    for floor, certainty in ((0.9, 0.9), (0.8, 0.9), (0.9, 0.6)):
        tuned = tune(logits, labels, metric=with_floors(floor, certainty))
        found = ((tuned.apply(new_logits) > 0) & (new_labels == 1)).sum(axis=0)
        holds = (found / new_labels.sum(axis=0) >= floor).mean()
        said = [asked.probability for asked in tuned.floors]
        assert min(said) >= certainty
        assert holds == pytest.approx(np.mean(said), abs=0.12)


def test_a_floor_that_few_positives_cannot_make_certain_is_met_on_them():
    logits, labels = samples(60, ties=False, apart=0.5)
    tuned = tune(logits, labels, metric=with_floors({2: 0.9}))
    positive = labels[:, 2] == 1
    n = int(positive.sum())
    assert n < 20  # for a floor of 90 % with 90 %, 22 are needed: 0.9^22 is 10 %
    assert (tuned.apply(logits)[positive, 2] > 0).sum() >= math.ceil(0.9 * n)
    assert tuned.floors[0].probability < 0.9


def test_a_floor_that_a_label_left_alone_misses_is_not_listed_as_kept():
    rng = np.random.default_rng(0)
    labels = rng.random((300, 2)) < [1.0, 0.3]  # every sample has the first, so it is left alone
    logits = 3 * (labels - 0.5) + rng.normal(size=(300, 2)) - 1
    with pytest.warns(MissingClassWarning, match="left alone"):
        tuned = lh.tune_labels(logits, labels, metric=with_floors({0: 0.9, 1: 0.8}))
    recall = (logits[:, 0] > 0).mean()
    assert recall < 0.8
    assert tuned.floors[0].probability < 0.01
    assert "class 0: recall of at least 90.0% is unlikely (0%)" in str(tuned)
    assert "class 1: recall of at least 80.0% with" in str(tuned)


def test_a_label_with_two_positives_has_a_gain_in_doubt():
    moved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = np.zeros((500, 1), int)
        labels[:2] = 1
        tuned = tune(2 * labels - 3.5 + rng.normal(size=labels.shape), labels)
        moved += tuned.evidence.changed > 0
        assert tuned.verdict != "better"
    assert moved > 10


def test_scores_that_say_nothing_are_rarely_called_better():
    """By balanced error: for F1, a label that nothing is known of is best predicted everywhere."""
    verdicts, gains = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores, truth = rng.normal(size=(200, 5)), rng.integers(2, size=(200, 5))
        tuned = tune(scores, truth, metric="balanced_error")
        verdicts.append(tuned.verdict)
        gains.append(tuned.gain)
    assert verdicts.count("better") <= 4
    assert abs(np.mean(gains)) < 0.01


def test_the_gain_is_what_new_samples_show():
    """Over many draws, the gain is on average that on many other samples; its interval holds it."""
    rates = (0.5, 0.2, 0.1, 0.05)
    new_logits, new_labels = samples(10_000, rates, seed=99, ties=False)
    gaps, inside = [], []
    for seed in range(25):
        tuned = tune(*samples(200, rates, seed=seed, ties=False), metric="balanced_error")
        real = judge_labels(tuned, new_logits, check_label_table(new_labels)).gain
        assert real is not None
        low, high = tuned.gain_interval
        gaps.append(tuned.gain - real)
        inside.append(low <= real <= high)
    assert abs(np.mean(gaps)) < 0.02
    assert np.mean(inside) >= 0.8


@pytest.mark.parametrize("metric", ["macro_f1", "balanced_error", "kappa"])
def test_other_samples_are_judged_by_the_choice_as_it_is(metric):
    logits, labels = samples(300, ties=False)
    new_logits, new_labels = samples(400, seed=7, ties=False)
    tuned = tune(logits, labels, metric=metric, level=0.8)
    judged = judge_labels(tuned, new_logits, check_label_table(new_labels))
    losses = [
        np.mean([by_hand(metric, new_labels[:, k], decisions[:, k]) for k in range(3)])
        for decisions in ((new_logits > 0).astype(int), (tuned.apply(new_logits) > 0).astype(int))
    ]
    assert judged.gain == pytest.approx(losses[0] - losses[1])
    assert judged.evidence is not None
    assert judged.evidence.level == 0.8
    by_cost = tune(logits, labels, metric=lh.Goal(cost=COST))
    costly = judge_labels(by_cost, new_logits, check_label_table(new_labels))
    assert costly.metric == "macro_f1"
    assert "costs are not kept" in costly.warnings[-1]


def test_the_default_metric_is_macro_f1_which_keeps_the_precision():
    """By balanced error, rare labels are predicted nearly everywhere."""
    logits, labels = samples(400, (0.03,) * 12, ties=False)
    by_f1 = tune(logits, labels)
    balanced = tune(logits, labels, metric="balanced_error")
    precision = [
        sk.precision_score(labels, tuned.apply(logits) > 0, average="macro")
        for tuned in (by_f1, balanced)
    ]
    assert precision[0] > 2 * precision[1]


def test_what_is_right_is_left_alone():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=(300, 4))
    tuned = tune(np.where(labels == 1, 2.0, -2.0) + rng.normal(size=labels.shape) / 9, labels)
    assert tuned.adjustment.offset.tolist() == [0] * 4
    assert (tuned.gain, tuned.worthwhile, tuned.verdict) == (0, False, "changes nothing")
    assert tuned.gain_interval == (0, 0)


def test_probabilities_are_the_same_as_their_logits():
    logits, labels = samples(100, ties=False)
    probabilities = 1 / (1 + np.exp(-logits))
    expected = tune(logits, labels)
    tuned = tune(probabilities, labels, kind="probabilities")
    np.testing.assert_allclose(tuned.adjustment.offset, expected.adjustment.offset)
    np.testing.assert_allclose(tuned.apply(probabilities), expected.apply(logits), atol=1e-9)
    np.testing.assert_allclose(tuned.apply(probabilities[3]), tuned.apply(probabilities)[3])
    with pytest.raises(lh.LevelheadError, match="expected probabilities, from 0 to 1"):
        tuned.apply(logits)
    # A few logits may all be from 0 to 1 by accident.
    with pytest.raises(lh.LevelheadError, match="give the scores before the sigmoid"):
        expected.apply(probabilities)
    few = expected.apply(probabilities[:3])
    np.testing.assert_allclose(few, probabilities[:3] + expected.adjustment.offset)


def test_probabilities_of_0_and_1_are_decided_as_they_were_when_it_was_tuned():
    torch = pytest.importorskip("torch")
    logits, labels = samples(200, ties=False)
    values = (1 / (1 + np.exp(-logits))).astype(np.float32)
    values = np.where(values > 0.9, 1, np.where(values < 0.1, 0, values)).astype(np.float32)
    goal = with_floors(1.0)  # which needs those of 0, too
    tuned = tune(values, labels, kind="probabilities", metric=goal)
    assert np.isfinite(tuned.adjustment.offset).all()
    predicted = tuned.apply(values) > 0
    assert predicted[labels == 1].all()
    assert np.array_equal((tuned.apply(torch.tensor(values)) > 0).numpy(), predicted)


def test_torch_tensors_and_booleans_are_taken():
    torch = pytest.importorskip("torch")
    logits, labels = samples()
    expected = tune(logits, labels).adjustment.offset.tolist()
    tables = (
        torch.tensor(labels),
        torch.tensor(labels).float(),
        labels.astype(bool),
        labels.tolist(),
    )
    for truth in tables:
        assert tune(torch.tensor(logits), truth).adjustment.offset.tolist() == expected


def test_it_is_a_tuned_that_a_file_holds(tmp_path):
    logits, labels = samples(200)
    goals = [{"metric": goal} for goal in (lh.Goal(cost=COST), with_floors(0.5))]
    for options in ({}, *goals, {"kind": "probabilities"}):
        scores = 1 / (1 + np.exp(-logits)) if "kind" in options else logits
        tuned = tune(scores, labels, [90, 40, 20], names=["a", "b", "c"], **options)
        assert type(tuned) is lh.Tuned
        assert (tuned.task, tuned.rule, tuned.counts) == ("multilabel", "offsets", (90, 40, 20))
        json.dumps(tuned.to_dict(), allow_nan=False)
        tuned.save(tmp_path / "tuned.json")
        again = lh.Tuned.load(tmp_path / "tuned.json")
        assert again.summary() == tuned.summary()
        assert "class 2 (c)" in again.summary()
        np.testing.assert_array_equal(again.apply(scores), tuned.apply(scores))
    assert tune(logits, labels).counts == tuple(labels.sum(axis=0))
    assert tune(logits, labels).counted


def test_each_label_is_reported_as_it_is_fitted():
    told = []
    tune(*samples(), progress=lambda *stage: told.append(stage))
    assert told == [("fit", 1, 3), ("fit", 2, 3), ("fit", 3, 3)]


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_rows_of_the_training_data_are_named(kind):
    logits, labels = samples(100, ties=False)
    scores = logits if kind == "logits" else 1 / (1 + np.exp(-logits))
    with pytest.warns(lh.warnings.LeakageWarning, match="100 of 100 held-out rows"):
        tune(scores, labels, kind=kind, training=scores)


def test_the_seed_deals_the_folds_and_not_the_choice():
    logits, labels = samples(100, ties=False)
    first, same, other = (tune(logits, labels, rng=seed) for seed in (3, 3, 4))
    assert first.gain == same.gain
    assert first.gain != other.gain
    np.testing.assert_array_equal(first.adjustment.offset, other.adjustment.offset)


LOGITS, LABELS = samples()
MISTAKES = {
    "classes as labels": (
        {"labels": LABELS.argmax(axis=1)},
        r"labels: .* \[N, K\], got one value per sample, \[60\]; .* use lh.tune",
    ),
    "a 2": ({"labels": LABELS + 1}, "labels: expected 0 or 1, got 2 in row 0"),
    "ragged": ({"labels": [[1, 0], [1]]}, "labels: .* different lengths"),
    "other labels": (
        {"labels": LABELS[:, :2]},
        r"logits: expected one score .* \[60, 2\], got shape \[60, 3\]",
    ),
    "probabilities": (
        {"logits": 1 / (1 + np.exp(-LOGITS))},
        "looks like .* pass kind='probabilities'",
    ),
    "logits": ({"kind": "probabilities"}, "from 0 to 1, got .* pass kind='logits'"),
    "NaN": ({"logits": LOGITS * np.nan}, "NaN or infinite values, first in row 0"),
    "K x K costs": (
        {"metric": lh.Goal(cost=np.ones((3, 3)))},
        r"cost: expected numbers \[2, 2\] or \[3, 2, 2\].* got shape \[3, 3\]",
    ),
    "a NaN cost": (
        {"metric": lh.Goal(cost=[[0, np.nan], [1, 0]])},
        "cost: expected finite numbers",
    ),
    "no cost": ({"metric": "cost"}, "metric: 'cost' needs a cost matrix"),
    "a floor of 2": (
        {"metric": lh.Goal(floors=2)},
        "floors: expected recalls from 0 to 1, got 2; 2 % is 0.02",
    ),
    "two floors": (
        {"metric": lh.Goal(floors=[0.5, 0.5])},
        r"floors: expected a recall, or a recall for each class named, got \[0.5, 0.5\]",
    ),
    "an unknown floor": (
        {"metric": lh.Goal(floors={"x": 0.5}), "names": list("abc")},
        "floors: unknown class name 'x'",
    ),
    "a word": ({"metric": lh.Goal(floors="high")}, "floors: expected a recall"),
    "an unknown metric": ({"metric": "f1"}, "metric: expected error, balanced_error, macro_f1"),
    "two names": ({"names": ["a", "b"]}, "names: expected 3 class names, got 2"),
    "names in a word": ({"names": "abc"}, "names: expected a list of class names, got str"),
    "negative counts": (
        {"counts": [3, 2, -1]},
        "counts: expected 0 or more samples of class 2, got -1",
    ),
    "two counts": (
        {"counts": [3, 2]},
        "counts: expected 3, the training samples that have each label",
    ),
    "no label with both": (
        {"labels": LABELS * 0},
        "labels: expected a label with positive and negative samples",
    ),
    "level": ({"level": 1}, "level: expected a number between 0 and 1, got 1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_bad_input_is_one_line(name):
    changes, message = MISTAKES[name]
    arguments = {"logits": LOGITS, "labels": LABELS, "counts": None} | changes
    with pytest.raises(lh.LevelheadError, match=message) as error, quiet():
        lh.tune_labels(**arguments)
    assert "\n" not in str(error.value)


WORDS = ["ant", "bee", "cat"]
SCORE_FRAME = pd.DataFrame(LOGITS, columns=[f"logit_{word}" for word in WORDS])
LABEL_FRAME = pd.DataFrame(LABELS, columns=WORDS)


def test_titles_of_scores_and_of_labels_are_the_names_of_the_labels():
    direct = tune(LOGITS, LABELS, metric=with_floors({1: 0.9}))
    for logits, labels in (
        (SCORE_FRAME, LABEL_FRAME),
        (SCORE_FRAME, LABELS),
        (LOGITS, LABEL_FRAME),
        (SCORE_FRAME, LABEL_FRAME.set_axis([f"true_{word}" for word in WORDS], axis=1)),
    ):
        tuned = tune(logits, labels, metric=with_floors({"bee": 0.9}))
        assert tuned.names == tuple(WORDS)
        assert tuned.gain == direct.gain
        np.testing.assert_allclose(tuned.adjustment.offset, direct.adjustment.offset)
    # Titles that are positions contradict no names.
    numbered = pd.DataFrame(LABELS)
    assert tune(SCORE_FRAME, numbered).gain == tune(LOGITS, numbered, names=WORDS).gain


@pytest.mark.parametrize("names", [None, WORDS])
@pytest.mark.parametrize("parameter", ["logits", "labels", "counts"])
def test_tables_that_are_titled_with_the_labels_in_another_order_are_refused(parameter, names):
    tables = {"logits": SCORE_FRAME, "labels": LABEL_FRAME, "counts": LABEL_FRAME}
    tables[parameter] = tables[parameter].iloc[:, [2, 0, 1]]
    with pytest.raises(lh.LevelheadError, match="are titled with the classes in another order"):
        lh.tune_labels(**tables, names=names)


def test_a_cost_matrix_is_read_by_its_titles():
    cost = pd.DataFrame([[0.0, 1.0], [5.0, 0.0]])
    direct = tune(LOGITS, LABELS, metric=lh.Goal(cost=cost.to_numpy()))
    tuned = tune(LOGITS, LABELS, metric=lh.Goal(cost=cost.loc[[1, 0], [1, 0]]))
    np.testing.assert_array_equal(tuned.adjustment.offset, direct.adjustment.offset)


def test_a_floor_of_a_label_without_positives_is_refused_if_it_is_named():
    labels = LABELS.copy()
    labels[:, 1] = 0
    with pytest.raises(lh.LevelheadError, match=r"floors: class 1 has no sample here"):
        tune(LOGITS, labels, metric=with_floors({"1": 0.5}))


def test_several_labels_given_as_classes_are_refused_with_the_way_out():
    for call in (lh.tune, lh.compare, lh.gamma_path, lambda *fold: lh.tune_folds([fold])):
        with pytest.raises(lh.LevelheadError, match=r"several .* lh\.tune_labels") as error:
            call(LOGITS, LABELS, [50, 20, 10])
        assert "\n" not in str(error.value)


def test_a_head_takes_the_offsets_as_biases():
    tuned = tune(LOGITS, LABELS)
    np.testing.assert_allclose(lh.adjust(lh.Head(np.eye(3)), tuned).bias, tuned.adjustment.offset)
