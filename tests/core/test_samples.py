"""What `tune` takes and refuses: every mistake is one line, counts are optional, positions are flattened."""

import numpy as np
import pytest
import torch

import levelhead as lh
from levelhead.core.samples import FOLDS, Given, deal, draw_class_by_class

from .made import COST, COUNTS, calibrated

LOGITS, LABELS = calibrated(0, 160)
NAMES = ["ant", "cat", "elk", "fox"]


def softmax(logits):
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def tune(logits=LOGITS, labels=LABELS, counts=COUNTS, **options) -> lh.Tuned:
    return lh.tune(logits, labels, counts, **options)


def with_value(value, row=3):
    spoilt = LOGITS.copy()
    spoilt[row, 1] = value
    return spoilt


MISTAKES = {
    "no labels": (lambda: tune(labels=None), "labels: expected labels .* use tune_unlabelled"),
    "labels and counts swapped": (lambda: lh.tune(LOGITS, COUNTS, LABELS), "are swapped"),
    "too few labels": (lambda: tune(labels=LABELS[:-1]), "one label per row of logits, got 159"),
    "a label beyond": (
        lambda: tune(labels=np.append(LABELS[:-1], 4)),
        "expected labels from 0 to 3, got 4 at position 159",
    ),
    "a label beyond, without counts": (
        lambda: tune(labels=np.append(LABELS[:-1], 4), counts=None),
        "expected labels from 0 to 3, got 4 at position 159",
    ),
    "labels from 1": (lambda: tune(labels=LABELS + 1), "seem to count from 1: subtract 1"),
    "labels with a fraction": (lambda: tune(labels=LABELS + 0.5), "expected integer labels"),
    "labels in a column": (lambda: tune(labels=LABELS[:, None]), r"give labels\.ravel\(\)"),
    "one-hot labels": (lambda: tune(labels=np.eye(4)[LABELS]), r"labels\.argmax\(axis=1\)"),
    "a table of labels": (
        lambda: tune(labels=np.ones((160, 4), int)),
        "labels: expected one class per sample",
    ),
    "three counts": (lambda: tune(counts=[3, 2, 1]), "expected 4 counts, one per class, got 3"),
    "a count of 0": (lambda: tune(counts=[3, 2, 1, 0]), "class 3 has no samples"),
    "a negative count": (lambda: tune(counts=[3, 2, 1, -1]), r"class 3 is negative \(-1\)"),
    "shares for counts": (lambda: tune(counts=[0.4, 0.3, 0.2, 0.1]), "give samples, not shares"),
    "NaN": (lambda: tune(with_value(np.nan)), "NaN or infinite values, first in row 3"),
    "infinity": (lambda: tune(with_value(np.inf)), "NaN or infinite values, first in row 3"),
    "words for logits": (
        lambda: tune([["a", "b"]] * 3, [0, 1, 0], [2, 1]),
        "floating-point numbers",
    ),
    "many words for logits": (
        lambda: tune([["a", "b"]] * 30, [0, 1, 0] * 10, [20, 10]),
        "floating-point numbers",
    ),
    "one class": (lambda: tune(np.ones((3, 1)), [0, 0, 0], [5]), "at least 1 sample and 2 classes"),
    "one dimension": (lambda: tune(np.ones(4), [0], [5]), "at least 1 sample and 2 classes"),
    "no sample": (lambda: tune(LOGITS[:0], LABELS[:0]), "at least 1 sample and 2 classes"),
    "one sample per class": (
        lambda: tune(np.eye(4) * 3, np.arange(4)),
        "labels: expected a class with at least two samples",
    ),
    "ragged logits": (lambda: tune([[1.0, 2.0], [3.0]], [0, 1], [2, 1]), "different lengths"),
    "sparse logits": (
        lambda: tune(torch.tensor(LOGITS).to_sparse()),
        r"got a sparse tensor; pass x\.to_dense\(\)",
    ),
    "sparse labels": (
        lambda: lh.tune_labels(LOGITS, torch.eye(4)[LABELS].to_sparse()),
        r"labels: expected an array, got a sparse tensor; pass x\.to_dense\(\)",
    ),
    "ragged tensors": (
        lambda: tune([torch.ones(4), torch.ones(3)], [0, 1]),
        "expected tensors of one shape, on one device",
    ),
    "tensors and numbers": (
        lambda: tune([torch.ones(4, requires_grad=True), [1.0, 2.0, 3.0, 4.0]], [0, 1]),
        "expected an array of numbers, got a list that numpy cannot read",
    ),
    "probabilities": (lambda: tune(softmax(LOGITS)), "looks like probabilities"),
    "one probability beside 0": (
        lambda: tune(np.stack([0 * LABELS, softmax(LOGITS)[:, 1]], axis=1), LABELS % 2, None),
        r"got \(0, p\), every p from 0 to 1, as probabilities are; give \(1 - p, p\)",
    ),
    "logits for probabilities": (lambda: tune(kind="probabilities"), "expected probabilities"),
    "an unknown kind": (lambda: tune(kind="odds"), "kind: expected"),
    "probabilities to multiply": (
        lambda: tune(softmax(LOGITS), kind="probabilities", rule="rescale"),
        "rule: 'rescale' multiplies logits, .* use 'offsets'",
    ),
    "log-probabilities to multiply": (
        lambda: tune(np.log(softmax(LOGITS)), rule="rescale"),
        "rule: 'rescale' multiplies logits, .* use 'offsets'",
    ),
    "an unknown rule": (lambda: tune(rule="auto"), "rule: expected 'offsets', 'shift', 'rescale'"),
    "tau without norms": (lambda: tune(rule="tau"), "rule: 'tau' needs the weight norms"),
    "three norms": (
        lambda: tune(rule=lh.rules.Tau(norms=[1, 2, 3])),
        r"norms: expected numbers \[4\], one per class, got shape \[3\]",
    ),
    "a norm of 0": (
        lambda: tune(rule=lh.rules.Tau(norms=[1, 2, 3, 0])),
        "norms: expected positive numbers, got 0 for class 3",
    ),
    "a range in one number": (lambda: lh.rules.Shift(range=2.0), r"range: expected \(from, to\)"),
    "a range without 0": (lambda: lh.rules.Shift(range=(0.5, 2)), "range: .* that holds 0"),
    "a strength in words": (lambda: lh.rules.Shift("much"), "strength: expected a finite number"),
    "an unknown metric": (lambda: tune(metric="auc"), "metric: expected error, balanced_error"),
    "a cost without a matrix": (lambda: tune(metric="cost"), "metric: 'cost' needs a cost matrix"),
    "a cost and a metric": (lambda: lh.Goal("mcc", cost=COST), "cost: expected no other metric"),
    "a cost of three classes": (
        lambda: tune(metric=lh.Goal(cost=np.eye(3))),
        r"cost: expected numbers \[4, 4\], row true",
    ),
    "a cost of NaN": (
        lambda: tune(metric=lh.Goal(cost=np.full((4, 4), np.nan))),
        "cost: expected finite numbers, got nan in row 0, column 0",
    ),
    "a cost of words": (
        lambda: tune(metric=lh.Goal(cost=[["a"] * 4] * 4)),
        "cost: expected numbers",
    ),
    "a negative cost": (
        lambda: tune(metric=lh.Goal(cost=-np.eye(4))),
        "cost: expected 0 or more, got -1 in row 0, column 0",
    ),
    "a cost that rewards errors": (
        lambda: tune(metric=lh.Goal(cost=np.eye(4))),
        "cost: expected an error to cost no less than a right",
    ),
    "a floor in percent": (
        lambda: tune(metric=lh.Goal(floors=60)),
        "floors: expected recalls from 0 to 1, got 60",
    ),
    "a floor of no class": (
        lambda: tune(metric=lh.Goal(floors={7: 0.5})),
        "floors: unknown class 7",
    ),
    "a floor by an unknown name": (
        lambda: tune(metric=lh.Goal(floors={"owl": 0.5}), names=NAMES),
        "floors: unknown class name 'owl'",
    ),
    "a floor in words": (lambda: tune(metric=lh.Goal(floors="high")), "floors: expected a recall"),
    "a floor of an absent class": (
        lambda: tune(LOGITS[LABELS < 3], LABELS[LABELS < 3], metric=lh.Goal(floors={3: 0.5})),
        "floors: class 3 has no sample here",
    ),
    "a certainty of 1": (lambda: lh.Goal(certainty=1), "certainty: expected a probability"),
    "two shares": (
        lambda: tune(target=[1, 1]),
        r"target: expected numbers \[4\], one per class, got shape \[2\]",
    ),
    "a negative share": (
        lambda: tune(target=[1, -1, 1, 1]),
        "target: expected shares, none negative",
    ),
    "a target in words": (
        lambda: tune(target="uniform"),
        "target: expected a share for each class, or 'estimate', got 'uniform'",
    ),
    "a target of absent classes": (
        lambda: tune(LOGITS[LABELS < 3], LABELS[LABELS < 3], target=[0, 0, 0, 1]),
        "target: expected a share above 0 for some class that has a sample here",
    ),
    "a target for recalls": (
        lambda: tune(metric="g_mean", target=[1, 1, 1, 1]),
        "target: the metric g_mean weighs classes the same",
    ),
    "an estimate of nothing": (
        lambda: tune(target="estimate"),
        "target: 'estimate' needs unlabelled samples",
    ),
    "unlabelled samples for nothing": (lambda: tune(unlabelled=LOGITS), "unlabelled: "),
    "training of other classes": (
        lambda: tune(training=np.ones((3, 7))),
        r"training: expected logits \[M, 4\], got shape \[3, 7\]",
    ),
    "a level in percent": (lambda: tune(level=95), "level: expected a number between 0 and 1"),
    "a source that is none": (lambda: tune(chosen_on=None), "chosen_on: expected text"),
    "two names": (lambda: tune(names=["a", "b"]), "expected 4 class names, got 2"),
    "scales of a background": (
        lambda: tune(counts=lh.counts.with_background(COUNTS, 0), rule="scales"),
        "background: the rule scales changes every class",
    ),
    "one dimension beside a background": (
        lambda: tune(LOGITS[:, 0], counts=lh.counts.with_background(COUNTS, 0)),
        "at least 1 sample and 2 classes",
    ),
    "a background that is none": (
        lambda: tune(counts=lh.counts.with_background(COUNTS, 9)),
        "background: expected the index or the name of one class",
    ),
    "a background by a name that is not known": (
        lambda: tune(counts=lh.counts.with_background(COUNTS, "none")),
        r"one class \(got the class name 'none', but class names are not known here; give its index\); "
        "pass names to say which class is which$",
    ),
    "a background that may be two": (
        lambda: tune(counts=lh.counts.with_background(COUNTS, "1"), names=["a", "b", "c", "1"]),
        r"\('1' may be class 1 or the class called so, class 3; give its index\)$",
    ),
    "a background of which there are two": (
        lambda: tune(counts=lh.counts.with_background(COUNTS, "a"), names=["a", "b", "c", "a"]),
        r"\(two classes are called 'a'; give its index\)$",
    ),
    "folds without counts": (lambda: lh.tune_folds([(LOGITS, LABELS)]), "folds: expected at least"),
    "a label": (lambda: tune(labels=3), r"labels: expected labels \[N\], got 3"),
    "a number for folds": (lambda: lh.tune_folds(5), "folds: expected at least one fold"),
    "no folds": (lambda: lh.tune_folds([]), "folds: expected at least one fold"),
    "folds of other classes": (
        lambda: lh.tune_folds([(LOGITS, LABELS, None), (LOGITS[:, :3], LABELS % 3, None)]),
        "folds: expected the same classes in every fold, got folds of 3, 4 classes",
    ),
}


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_in_one_line(mistake):
    call, message = MISTAKES[mistake]
    with pytest.raises(lh.LevelheadError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


# -- Counts --------------------------------------------------------------------------------------


def test_a_goal_takes_no_target_which_is_for_tune_to_set():
    with pytest.raises(TypeError, match="unexpected keyword argument 'target'"):
        lh.Goal("error", target=[0.5, 0.25, 0.15, 0.1])  # type: ignore[call-arg]


def test_without_counts_those_of_the_labels_stand_in_and_it_is_said():
    of_labels = np.bincount(LABELS)
    tuned, same = tune(counts=None), tune(counts=of_labels)
    assert (tuned.counted, same.counted) == (True, False)
    assert tuned.counts == same.counts == tuple(of_labels)
    np.testing.assert_allclose(tuned.adjustment.offset, same.adjustment.offset)
    assert tuned.gain == same.gain
    assert "counts are those of the held-out labels" in str(tuned)
    assert "counts" not in same.facts()


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.MissingClassWarning")
def test_without_counts_a_class_without_a_label_counts_as_one_sample():
    rows = LABELS < 3
    assert tune(LOGITS[rows], LABELS[rows], None).counts == (*np.bincount(LABELS)[:3], 1.0)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, np.float32])
def test_counts_labels_and_names_come_in_any_form(kind):
    counts = (
        kind(COUNTS.tolist()) if kind is not np.float32 else dict(zip(NAMES, COUNTS, strict=True))
    )
    names = NAMES if kind is np.float32 else None
    tuned = tune(counts=counts, names=names)
    np.testing.assert_array_equal(tuned.adjustment.offset, tune().adjustment.offset)
    assert tuned.names == (None if names is None else tuple(NAMES))
    as_names = tune(labels=np.array(NAMES)[LABELS], counts=dict(zip(NAMES, COUNTS, strict=True)))
    np.testing.assert_array_equal(as_names.adjustment.offset, tune().adjustment.offset)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_list_of_tensors_is_stacked(dtype):
    rows = torch.tensor(LOGITS, dtype=dtype, requires_grad=True)
    labels = list(torch.tensor(LABELS))
    for logits in (list(rows), tuple(rows)):
        assert tune(logits, labels).to_dict() == tune(rows, LABELS).to_dict()


def test_training_labels_serve_as_counts():
    training = np.repeat(np.arange(4), COUNTS)
    assert tune(counts=training).counts == tuple(COUNTS)


@pytest.mark.parametrize("rule", ["offsets", "shift", "rescale"])
@pytest.mark.parametrize("named", [False, True])
def test_a_background_is_left_alone(rule, named):
    logits, labels = calibrated(1, 400)
    background = "ant" if named else 0
    counts = lh.counts.with_background(COUNTS, background)
    tuned = lh.tune(logits + 3, labels, counts, rule=rule, names=NAMES if named else None)
    assert tuned.background == 0
    assert (tuned.adjustment.scale[0], tuned.adjustment.offset[0]) == (1, 0)
    assert tuned.adjustment.changes
    assert tuned.counts == (300, 300, 90, 30)  # it is no largest count
    assert tuned.worthwhile


@pytest.mark.parametrize(
    "options",
    [
        {"rule": lh.rules.Tau(norms=[3.0, 2.0, 1.5, 1.0])},
        {"rule": lh.rules.Tau(0.7, norms=[3.0, 2.0, 1.5, 1.0])},
        {"rule": "shift", "metric": "error", "target": [0.2, 0.05, 0.35, 0.4]},
    ],
    ids=str,
)
@pytest.mark.parametrize("background", [0, 2])
def test_a_background_stays_and_predictions_are_those_without_one(options, background):
    """What is done to all scores of a sample changes no prediction, so any class can be left as it is."""
    logits, labels = calibrated(1, 400)
    counts = lh.counts.with_background(COUNTS, background)
    resolved = lh.counts.resolve(counts)
    tuned, plain = (lh.tune(logits + 8, labels, of, **options) for of in (counts, resolved))
    by = tuned.adjustment
    assert (by.scale[background], by.offset[background]) == (1, 0)
    assert plain.adjustment.scale[background] != 1 or plain.adjustment.offset[background] != 0
    np.testing.assert_array_equal(by.predict(logits + 8), plain.adjustment.predict(logits + 8))
    assert tuned.strength == plain.strength
    assert tuned.gain == plain.gain


def test_comparisons_leave_a_background_alone():
    logits, labels = calibrated(1, 400)
    counts = lh.counts.with_background(COUNTS, 2)
    compared = lh.compare(logits + 8, labels, counts, norms=[3.0, 2.0, 1.5, 1.0])
    assert set(compared) == {"offsets", "shift", "rescale", "tau"}
    for tuned in compared.values():
        assert (tuned.adjustment.scale[2], tuned.adjustment.offset[2]) == (1, 0)


# -- Kinds ---------------------------------------------------------------------------------------


def test_log_probabilities_are_recognized_and_chosen_with_as_logits_are():
    logs = np.log(softmax(LOGITS))
    tuned, plain = tune(logs), tune()
    assert (tuned.kind, plain.kind) == ("log-probabilities", "logits")
    np.testing.assert_allclose(tuned.adjustment.offset, plain.adjustment.offset, atol=1e-6)
    assert tuned.gain == pytest.approx(plain.gain)


@pytest.mark.parametrize("rule", ["offsets", "shift"])
def test_probabilities_are_chosen_with_as_their_logits_are(rule):
    tuned, plain = tune(softmax(LOGITS), kind="probabilities", rule=rule), tune(rule=rule)
    assert tuned.kind == "probabilities"
    np.testing.assert_allclose(tuned.adjustment.offset, plain.adjustment.offset, atol=1e-6)
    assert tuned.gain == pytest.approx(plain.gain)


def test_small_probabilities_of_a_sure_model_are_no_votes_of_zero():
    sure = 30 * LOGITS
    probabilities = softmax(sure)
    assert 0 < probabilities.min() < 1e-45  # less than float32 holds
    tuned, plain = tune(probabilities, kind="probabilities"), tune(sure)
    assert tuned.adjustment.smoothing == 0
    np.testing.assert_allclose(tuned.adjustment.offset, plain.adjustment.offset, atol=1e-5)
    assert tune(probabilities.astype(np.float32), kind="probabilities").adjustment.smoothing == 1e-4


def test_votes_of_zero_are_smoothed_by_the_least_vote():
    rng = np.random.default_rng(0)
    votes = np.stack([rng.multinomial(20, row) for row in softmax(LOGITS)]) / 20
    tuned = tune(votes, kind="probabilities")
    assert tuned.adjustment.smoothing == pytest.approx(0.05)
    by_hand = np.log(np.maximum(votes, 1e-300) + 0.05) + tuned.adjustment.offset
    np.testing.assert_allclose(tuned.apply(votes), by_hand, atol=1e-6)


def test_probabilities_that_are_all_zero_tell_nothing():
    assert tune(np.zeros_like(LOGITS), kind="probabilities").gain == 0


# -- Positions -----------------------------------------------------------------------------------


def positions(*shape, seed=0):
    """Return logits [..., K] of positions, and labels of which a third is ignored."""
    logits, labels = calibrated(seed, int(np.prod(shape)))
    ignored = np.random.default_rng(seed).random(shape) < 1 / 3
    return logits.reshape(*shape, 4), np.where(ignored, -100, labels.reshape(shape))


FORMS = {
    "tokens": (positions(20, 15), lambda z: z),
    "tokens, classes second": (positions(20, 15), lambda z: np.moveaxis(z, -1, 1)),
    "pixels": (positions(5, 8, 7), lambda z: np.moveaxis(z, -1, 1)),
    "pixels, classes last": (positions(5, 8, 7), lambda z: z),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_tokens_and_pixels_are_chosen_with_as_flattened_by_hand(form, kind):
    (logits, labels), turned = FORMS[form]
    pairs = [(logits[at], label) for at, label in np.ndenumerate(labels) if label != -100]
    flat, kept = (np.array(part) for part in zip(*pairs, strict=True))
    samples = kind(np.ascontiguousarray(turned(logits))), kind(labels)
    tuned = lh.tune(*samples, COUNTS)
    assert tuned.to_dict() == lh.tune(kind(flat), kept, COUNTS).to_dict()
    assert tuned.n == len(kept)


def test_rows_of_one_label_each_may_not_be_ignored():
    labels = np.where(np.arange(160) == 5, -100, LABELS)
    with pytest.raises(lh.LevelheadError, match="got -100 at position 5; leave those samples out"):
        tune(labels=labels)


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        ((4, 3, 3), (4, 3), r"\[4, 3, 3\] and labels \[4, 3\] .*either axis could be that of the"),
        ((4, 5, 3), (4, 6), r"expected \[4, 5\], or \[4, 3\] if classes are the second axis"),
        ((4, 5, 3), (20,), r"labels \[20\]"),
    ],
)
def test_a_shape_that_could_be_two_things_or_none_is_refused(shape, labels, message):
    for function in (lh.tune, lh.compare, lh.gamma_path):
        with pytest.raises(lh.LevelheadError, match=message):
            function(np.ones(shape), np.zeros(labels, int), [3, 2, 1])


def test_positions_that_are_all_ignored_are_refused():
    with pytest.raises(lh.LevelheadError, match="every position has the label -100"):
        lh.tune(np.ones((2, 5, 3)), np.full((2, 5), -100), [3, 2, 1])


# -- Folds and parts -----------------------------------------------------------------------------


def test_every_class_is_dealt_evenly_into_the_folds():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [23, FOLDS, 1]))
    for seed in range(5):
        fold = deal(labels, np.random.default_rng(seed))
        assert np.ptp(np.bincount(fold[labels == 0], minlength=FOLDS)) == 1
        assert np.bincount(fold[labels == 1], minlength=FOLDS).tolist() == [1] * FOLDS
    dealt = [deal(labels, np.random.default_rng(seed))[labels == 2][0] for seed in range(50)]
    assert len(set(dealt)) == FOLDS  # the fold that a class begins with is drawn


def test_a_part_has_the_same_share_of_each_class_and_all_of_a_small_one():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [40_000, 4000, 150]))
    rows = draw_class_by_class(labels, 10_000, np.random.default_rng(0))
    assert np.array_equal(rows, np.unique(rows))
    sizes = np.bincount(labels[rows])
    share = 10_000 / 44_150
    assert sizes.tolist() == [np.ceil(40_000 * share), np.ceil(4000 * share), 150]


def test_only_samples_beyond_what_is_fitted_on_are_left_out(monkeypatch):
    given = Given.of(LOGITS, LABELS, COUNTS)
    monkeypatch.setattr("levelhead.core.samples.MOST_NUMBERS", 640)
    assert given.part(np.random.default_rng(0)) is None
    monkeypatch.setattr("levelhead.core.samples.MOST_NUMBERS", 639)
    monkeypatch.setattr("levelhead.core.samples.PART_NUMBERS", 400)
    assert given.part(np.random.default_rng(0)) is not None
