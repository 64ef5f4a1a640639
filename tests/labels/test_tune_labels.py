"""Several labels per sample: one exact shift for each label, against brute force over all thresholds."""

import json
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

import levelhead as lh
from levelhead.labels.cuts import LabelCuts, cross_fitted_gain, draw_label_gains
from levelhead.labels.tune_labels import TunedLabels, tune_labels
from levelhead.path.curve import METRICS
from levelhead.support.warnings import quiet

from .test_label_cuts import COST, by_hand, thresholds


def samples(n=60, rates=(0.5, 0.2, 0.1), seed=0, ties=True, apart=1.5):
    """Logits [N, K] of labels of these rates, lower the rarer they are, with ties if asked; labels [N, K]."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, len(rates))) < rates).astype(int)
    labels[0], labels[1] = 1, 0
    logits = apart * labels + np.log(rates) + 0.5 + rng.normal(size=labels.shape)
    return (np.round(2 * logits) / 2 if ties else logits), labels


def tune(logits, labels, counts: Any = None, **options) -> Any:
    return lh.tune_labels(logits, labels, counts, **options)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("ties", [True, False], ids=["ties", "no ties"])
@pytest.mark.parametrize("floors", [None, 0.8, [0.0, 1.0, 0.5], {"rare": 0.9, "0": 0.3}], ids=str)
def test_each_label_is_as_good_as_its_best_threshold(metric, ties, floors):
    cost = (
        np.stack([COST, COST.T[::-1, ::-1], np.array([[0, 1.0], [30, 0]])])
        if metric == "cost"
        else None
    )
    least = {None: [0, 0, 0], 0.8: [0.8] * 3}.get(
        floors if not isinstance(floors, list | dict) else "", floors
    )
    least = [0.3, 0, 0.9] if isinstance(floors, dict) else least
    logits, labels = samples(ties=ties, seed=METRICS.index(metric))
    names = ["0", "1", "rare"]
    tuned = tune(logits, labels, metric=metric, cost=cost, floors=floors, bootstrap=0, names=names)
    predicted = (logits + tuned.offset > 0).astype(int)
    found = []
    for k in range(3):
        costs = COST if cost is None else cost[k]
        tried = [(logits[:, k] > t).astype(int) for t in thresholds(logits[:, k])]
        allowed = [one for one in tried if one[labels[:, k] == 1].mean() >= least[k] - 1e-12]
        best = min(by_hand(metric, labels[:, k], one, costs) for one in allowed)
        found.append(by_hand(metric, labels[:, k], predicted[:, k], costs))
        assert found[k] == pytest.approx(best, abs=1e-9)
        assert predicted[labels[:, k] == 1, k].mean() >= least[k] - 1e-12
    value = np.mean(found) if metric in ("error", "balanced_error", "cost") else 1 - np.mean(found)
    assert tuned.value == pytest.approx(value)
    assert tuned.error == pytest.approx((predicted != labels).mean())
    assert tuned.curve.at(1.0) == pytest.approx(tuned.value)
    assert tuned.curve.at(0.0) == pytest.approx(tuned.value_at_zero)


def test_one_cost_matrix_is_of_all_labels():
    logits, labels = samples()
    tuned = tune(logits, labels, cost=COST, bootstrap=0)
    assert tuned.metric == "cost"
    assert tuned.offset == tune(logits, labels, cost=np.stack([COST] * 3), bootstrap=0).offset


def test_the_curve_is_the_metric_at_any_share_of_the_offsets():
    logits, labels = samples(200, ties=False)
    tuned = tune(logits, labels, metric="macro_f1", bootstrap=0)
    for share in np.linspace(0, 1, 23):
        predicted = logits + share * np.array(tuned.offset) > 0
        assert tuned.curve.at(share) == pytest.approx(
            sk.f1_score(labels, predicted, average="macro")
        )


def test_the_mean_f1_is_that_of_scikit_learn():
    logits, labels = samples(300)
    tuned = tune(logits, labels, metric="macro_f1")
    assert tuned.value_at_zero == pytest.approx(sk.f1_score(labels, logits > 0, average="macro"))
    assert tuned.value == pytest.approx(
        sk.f1_score(labels, logits + tuned.offset > 0, average="macro")
    )


def test_a_label_without_a_positive_or_a_negative_is_left_alone_and_named():
    logits, labels = samples(rates=(0.5, 0.2, 0.1, 0.3))
    labels[:, 1], labels[:, 3] = 0, 1
    with pytest.warns(
        lh.warnings.MissingClassWarning, match=r"label 1 \(b\), 3 \(d\) \(no negative\): left alone"
    ):
        tuned = tune(logits, labels, names=list("abcd"), floors=0.5, bootstrap=50)
    assert (tuned.offset[1], tuned.offset[3], tuned.missing) == (0, 0, (1, 3))
    kept = tune(logits[:, [0, 2]], labels[:, [0, 2]], floors=0.5, bootstrap=50)
    assert (tuned.offset[0], tuned.offset[2]) == kept.offset
    assert (tuned.value, tuned.value_at_zero) == (kept.value, kept.value_at_zero)
    assert tuned.to_dict()["recall"][1] is None


def test_floors_that_the_model_does_not_meet_are_worth_moving_for():
    tuned = tune(*samples(300, ties=False), floors={"2": 0.9}, bootstrap=100)
    assert tuned.floors_met_at_zero is False
    assert tuned.worthwhile
    assert "recall of at least 90.0% for class 2: met, which the model as it is does not" in str(
        tuned
    )


def test_a_label_with_two_positives_has_a_gain_in_doubt():
    rng = np.random.default_rng(1)
    labels = np.zeros((500, 1), int)
    labels[:2] = 1
    tuned = tune(2 * labels - 2.5 + rng.normal(size=labels.shape), labels)
    assert tuned.labels[0].interval[0] < 0 < tuned.labels[0].interval[1]
    assert (tuned.worthwhile, tuned.certain) == (False, False)


def test_scores_that_say_nothing_are_rarely_called_worth_moving():
    """By balanced error: for F1, a label that nothing is known of is best predicted everywhere."""
    called, gains = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores, truth = rng.normal(size=(200, 5)), rng.integers(2, size=(200, 5))
        tuned = tune(scores, truth, metric="balanced_error", bootstrap=200)
        called.append(tuned.worthwhile)
        gains.append(tuned.gain)
    assert np.mean(called) <= 0.1
    assert abs(np.mean(gains)) < 0.01


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("apart", [0.0, 0.4, 1.5])
def test_verdict_gain_and_worthwhile_agree(apart, level):
    said = set()
    for seed in range(8):
        tuned = tune(
            *samples(120, seed=seed, apart=apart),
            metric="balanced_error",
            bootstrap=100,
            level=level,
        )
        said.add(str(tuned.verdict))
        assert tuned.expected_gain == tuned.gain
        assert (
            tuned.worthwhile == (tuned.gain > 0) == (tuned.verdict in ("better", "probably better"))
        )
        assert tuned.certain == (tuned.gain_interval[0] > 0) == (tuned.verdict == "better")
    assert said & {"better" if apart == 1.5 else "no difference seen"}


def test_the_default_metric_is_macro_f1_which_keeps_the_precision():
    """By balanced error, rare labels are predicted nearly everywhere; precision stands beside recall in the report."""
    logits, labels = samples(400, (0.03,) * 12, ties=False)
    by_f1, balanced = (
        tune(logits, labels, bootstrap=50),
        tune(logits, labels, metric="balanced_error", bootstrap=50),
    )
    assert by_f1.metric == "macro_f1"
    precision = [
        sk.precision_score(labels, logits + one.offset > 0, average=None)
        for one in (by_f1, balanced)
    ]
    assert [label.precision for label in by_f1.labels] == pytest.approx(precision[0])
    assert precision[0].mean() > 2 * precision[1].mean()
    before = sk.precision_score(labels, logits > 0, average=None, zero_division=np.nan)
    found = [
        np.nan if one.precision_at_zero is None else one.precision_at_zero for one in by_f1.labels
    ]
    assert found == pytest.approx(before, nan_ok=True)
    both = np.isfinite(before)
    assert f"mean precision {before[both].mean():.1%} -> {precision[0][both].mean():.1%}" in str(
        by_f1
    )
    assert "precision" in by_f1.report().partition("\n")[0]


def test_what_is_right_is_left_alone():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=(300, 4))
    tuned = tune(
        np.where(labels == 1, 2.0, -2.0) + rng.normal(size=labels.shape) / 9, labels, bootstrap=100
    )
    assert (tuned.offset, tuned.gain, tuned.worthwhile) == ((0,) * 4, pytest.approx(0), False)
    assert "every label is best as it is" in tuned.report()


def test_the_gain_is_what_new_samples_show():
    """Over many draws, the expected gain is on average that on many other samples, and its interval mostly holds it."""
    rates = (0.5, 0.2, 0.1, 0.05)
    new = samples(10_000, rates, seed=99, ties=False)

    def on_new(offset):
        predicted = new[0] + offset > 0
        return np.mean(
            [1 - sk.balanced_accuracy_score(new[1][:, k], predicted[:, k]) for k in range(4)]
        )

    before, gaps, inside = on_new((0, 0, 0, 0)), [], []
    for seed in range(25):
        tuned = tune(
            *samples(200, rates, seed=seed, ties=False), metric="balanced_error", bootstrap=200
        )
        real = before - on_new(tuned.offset)
        gaps.append(tuned.gain - real)
        inside.append(tuned.gain_interval[0] <= real <= tuned.gain_interval[1])
    assert abs(np.mean(gaps)) < 0.02
    assert np.mean(inside) >= 0.8


def test_replicates_are_those_of_naive_weights():
    """The shares of each replicate, by a sum over the samples, with one more predicted before and one after."""
    logits, labels = samples(30)
    z, y = logits[:, 2], labels[:, 2].astype(bool)
    objective = LabelCuts.of(z, y, "kappa")
    gains = draw_label_gains([objective], 40, np.random.default_rng(5))[0]
    rng = np.random.default_rng(5)
    weights = rng.exponential(size=(30, 40))
    more = {part: rng.exponential(size=(2, 40)) for part in (False, True)}
    for b in range(40):
        losses = []
        for i, offset in enumerate((0, objective.offset)):
            alarms, recall = (
                (weights[(y == part) & (z + offset > 0), b].sum() + more[part][i, b])
                / (weights[y == part, b].sum() + more[part][:, b].sum())
                for part in (False, True)
            )
            losses.append(objective.loss(recall, alarms))
        assert gains[b] == pytest.approx(losses[0] - losses[1])


def test_the_cross_fitted_gain_is_of_decisions_made_without_the_sample():
    """Leave one out, by hand: as many folds as samples of a kind, so that every fold has at most one of each."""
    logits, labels = samples(12, (0.5,), ties=False)
    z, y = logits[:, 0], labels[:, 0].astype(bool)
    objective = LabelCuts.of(z, y, "error")
    n = max(y.sum(), (~y).sum())
    gain = cross_fitted_gain(objective, z, y, np.random.default_rng(0), folds=int(n))
    rng, fold = np.random.default_rng(0), np.empty(12, int)
    for part in (y, ~y):
        fold[part] = rng.permutation(part.sum())
    wrong = 0
    for i in range(n):
        rest = fold != i
        offset = -min(thresholds(z[rest]), key=lambda t: (((z[rest] > t) != y[rest]).sum(), abs(t)))
        exact = tune(z[rest, None], y[rest, None], metric="error", bootstrap=0).offset[0]
        assert ((z[rest] + exact > 0) != y[rest]).sum() == ((z[rest] + offset > 0) != y[rest]).sum()
        wrong += ((z[~rest] + exact > 0) != y[~rest]).sum()
    assert gain == pytest.approx(((z > 0) != y).mean() - wrong / 12)


def test_probabilities_are_the_same_as_their_logits():
    logits, labels = samples(100, ties=False)
    probabilities = 1 / (1 + np.exp(-logits))
    expected = np.array(tune(logits, labels, bootstrap=100).offset)
    np.testing.assert_allclose(
        tune(probabilities, labels, kind="probabilities", bootstrap=100).offset, expected
    )
    extreme = np.where(probabilities > 0.9, 1.0, np.where(probabilities < 0.1, 0.0, probabilities))
    assert np.isfinite(tune(extreme, labels, kind="probabilities", bootstrap=0).offset).all()


def test_torch_tensors_and_booleans_are_taken():
    torch = pytest.importorskip("torch")
    logits, labels = samples()
    expected = tune(logits, labels, bootstrap=0).offset
    for truth in (
        torch.tensor(labels),
        torch.tensor(labels).float(),
        labels.astype(bool),
        labels.tolist(),
    ):
        assert tune(torch.tensor(logits), truth, bootstrap=0).offset == expected


def test_the_record_is_a_tuned_that_json_can_hold():
    logits, labels = samples(200)
    tuned = tune(logits, labels, [90, 40, 20], names=["a", "b", "c"])
    assert isinstance(tuned, lh.Tuned)
    assert isinstance(tuned, TunedLabels)
    found = json.loads(json.dumps(tuned.to_dict(), allow_nan=False))
    assert (found["task"], found["rule"], found["counts"]) == ("multilabel", "shift", [90, 40, 20])
    assert found["offset"] == list(tuned.offset)
    assert [label["offset"] for label in found["labels"]] == found["offset"]
    assert "class 2 (c)" in tuned.report()
    assert "labels moved" in repr(tuned)
    assert "offsets" in tuned._repr_html_()
    assert tune(logits, labels).counts == tuple(labels.sum(axis=0))


LOGITS, LABELS = samples()
MISTAKES = {
    "classes as labels": (
        {"labels": LABELS.argmax(axis=1)},
        r"labels: .* \[N, K\], got one value per sample",
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
        {"cost": np.ones((3, 3))},
        r"cost: expected numbers \[2, 2\] or \[3, 2, 2\].* got shape \[3, 3\]",
    ),
    "a NaN cost": ({"cost": [[0, np.nan], [1, 0]]}, "cost: expected finite numbers"),
    "no cost": ({"metric": "cost"}, "metric: 'cost' needs a cost matrix"),
    "a floor of 2": ({"floors": 2}, "floors: expected recalls from 0 to 1, got 2"),
    "two floors": (
        {"floors": [0.5, 0.5]},
        "floors: expected a recall, or one for each of 3 labels, got 2",
    ),
    "an unknown floor": (
        {"floors": {"x": 0.5}, "names": list("abc")},
        "floors: unknown class name 'x'",
    ),
    "a word": ({"floors": "high"}, "floors: expected a recall"),
    "an unknown metric": (
        {"metric": "f1"},
        "metric: expected 'error', 'balanced_error', 'macro_f1'",
    ),
    "two names": ({"names": ["a", "b"]}, "names: expected 3, one per label, got 2"),
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
    "bootstrap": (
        {"bootstrap": -1},
        "bootstrap: expected a number of replicates, 0 or more, got -1",
    ),
    "level": ({"level": 1}, "level: expected a number between 0 and 1, got 1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_bad_input_is_one_line(name):
    changes, message = MISTAKES[name]
    given = {"logits": LOGITS, "labels": LABELS, "counts": None} | changes
    with pytest.raises(lh.LevelheadError, match=message) as error, quiet():
        lh.tune_labels(**given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rule": "rescale"},
            "rule: the rule 'rescale' cannot level several labels .* sign of a logit; leave it",
        ),
        ({"rule": "tau", "norms": np.ones(3)}, "rule: the rule 'tau' cannot level several labels"),
        ({"target": [0.3, 0.3, 0.4]}, "target: not for several labels per sample"),
        ({"unlabelled": LOGITS}, "unlabelled: not for several labels per sample"),
    ],
)
def test_what_is_for_classes_is_refused_where_labels_went_before(options, message):
    with (
        pytest.warns(DeprecationWarning, match="moved to lh.tune_labels"),
        pytest.raises(lh.LevelheadError, match=message) as error,
    ):
        lh.tune(LOGITS, LABELS, None, task="multilabel", **options)
    assert "\n" not in str(error.value)
    with pytest.raises(
        lh.LevelheadError, match="task: expected 'multiclass' or 'multilabel', got 'multi'"
    ):
        lh.tune(LOGITS, LABELS, None, task="multi")


def test_a_floor_of_a_label_without_positives_is_refused_if_it_is_named():
    labels = LABELS.copy()
    labels[:, 1] = 0
    with pytest.raises(lh.LevelheadError, match=r"floors: class 1 has no positive sample here"):
        tune(LOGITS, labels, floors={"1": 0.5})


def test_several_labels_given_as_classes_are_refused_with_the_way_out():
    for labels, message in (
        (LABELS, "task='multilabel'"),
        (np.eye(3, dtype=int)[LABELS.argmax(axis=1)], "argmax"),
    ):
        with pytest.raises(
            lh.LevelheadError, match=rf"one class per sample, \[N\], got a table .*{message}"
        ) as error:
            lh.tune(LOGITS, labels, [50, 20, 10])
        assert "\n" not in str(error.value)
    for call in (lh.compare, lh.gamma_path, lambda *fold: lh.cross_fit([fold])):
        with pytest.raises(
            lh.LevelheadError,
            match=r"labels \[N\], got shape \[60, 3\]; .*several .* lh\.tune_labels",
        ):
            call(LOGITS, LABELS, [50, 20, 10])


def test_a_choice_of_labels_reaches_no_rule_of_classes():
    tuned = tune(LOGITS, LABELS, bootstrap=0)
    head = lh.Head(np.eye(3))
    for call in (
        lambda: lh.shift_logits(head, tuned.counts, tuned),
        lambda: lh.rescale(head, tuned.counts, gamma=tuned),
        lambda: lh.tau_normalize(head, tuned),
    ):
        with pytest.raises(
            lh.LevelheadError, match=r"chosen for several labels per sample; use lh\.adjust"
        ):
            call()
    np.testing.assert_allclose(lh.adjust(head, tuned).bias, tuned.offset)


def test_the_direct_call_is_the_same():
    assert tune_labels(LOGITS, LABELS, rng=3).offset == tune(LOGITS, LABELS, rng=3).offset
