"""What speaks against a choice: each doubt is a warning where it is due, kept in the result, and nowhere else."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import levelhead as lh
from levelhead.core.doubts import doubt_accuracy, doubt_equal_counts, doubt_reversed_counts
from levelhead.core.judge import Outcomes
from levelhead.core.rules import RULES

from .made import COUNTS, calibrated


def tune_quietly(*samples, **options) -> lh.Tuned:
    """Tune; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return lh.tune(*samples, **options)


def outcomes_of(logits: np.ndarray, labels: np.ndarray) -> Outcomes:
    predicted = logits.argmax(axis=1)
    return Outcomes.of(labels, predicted, predicted, logits.shape[1])


# -- Counts --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    """Long-tailed digits in a random order of the classes: training samples, held-out samples, counts."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(3)
    sizes = rng.permutation(lh.counts.long_tail(110, 10, 50))
    train, rest = [], []
    for k in range(10):
        rows = rng.permutation(np.flatnonzero(y == k))
        train.extend(rows[: sizes[k]])
        rest.extend(rows[120:])
    return x[train] / 16, y[train], x[rest] / 16, y[rest], sizes


def reverse(counts):
    """Give the largest count to the class with the smallest, and so on."""
    reverse = np.empty_like(counts)
    reverse[np.argsort(counts)] = np.sort(counts)[::-1]
    return reverse


@pytest.mark.parametrize("weights", [None, "balanced", "exaggerated"])
def test_reversed_counts_of_a_plain_model_warn_and_right_ones_never(digits, weights):
    x, y, held, labels, counts = digits
    exaggerated = {k: float((counts.max() / counts[k]) ** 1.5) for k in range(10)}
    how = exaggerated if weights == "exaggerated" else weights
    logits = LogisticRegression(max_iter=500, class_weight=how).fit(x, y).decision_function(held)
    outcomes = outcomes_of(logits, labels)
    assert doubt_reversed_counts(outcomes, counts) is None
    if weights is None:
        said = str(doubt_reversed_counts(outcomes, reverse(counts)))
        assert "in reverse or of another order" in said


def test_few_samples_are_no_ground_for_doubt():
    logits, labels = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 2.0]]), np.array([0, 0, 1])
    assert doubt_reversed_counts(outcomes_of(logits, labels), np.array([900, 30])) is None


def test_tune_warns_of_equal_and_of_reversed_counts_and_keeps_the_words():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 100)
    logits = 3 + 2 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + [2, 0, -2]
    with pytest.warns(lh.warnings.CountsWarning, match="the counts are equal"):
        tuned = lh.tune(logits, labels, [50, 50, 50], rule="shift")
    assert any(line.startswith("CountsWarning: the counts are equal") for line in tuned.warnings)
    assert any("warning: CountsWarning" in line for line in tuned.summary().splitlines())
    tune_quietly(logits, labels, [50, 50, 50])  # offsets need no counts
    with pytest.warns(lh.warnings.CountsWarning, match="the classes with the fewest counts"):
        lh.tune(logits, labels, [20, 100, 500])
    tune_quietly(logits, labels, [500, 100, 20])
    tune_quietly(logits, labels)  # those of the labels are in their order


@pytest.mark.parametrize("rule", ["shift", "rescale"])
def test_counts_that_differ_by_a_few_are_almost_equal(rule):
    said = str(doubt_equal_counts(np.array([98, 103, 100]), RULES[rule]))
    assert f"almost equal (98 to 103 per class), so the rule {rule} does nothing" in said
    assert doubt_equal_counts(np.array([98, 120, 100]), RULES[rule]) is None
    for free in ("offsets", "scales", "vector", "tau"):
        assert doubt_equal_counts(np.array([98, 103, 100]), RULES[free]) is None


def test_a_model_below_chance_has_its_columns_in_another_order():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 50)
    logits = rng.normal(size=(200, 4)) + 3 * np.eye(4)[labels]
    with pytest.warns(lh.warnings.CountsWarning, match="below chance"):
        lh.tune(logits[:, [1, 2, 3, 0]], labels, [400, 200, 100, 50])
    tune_quietly(logits, labels, [400, 200, 100, 50])


@pytest.mark.parametrize("metric", ["error", "macro_f1", "mcc"])
def test_a_mix_that_is_not_that_of_training_is_doubted_where_the_metric_depends_on_it(metric):
    logits, labels = calibrated(0, 1000, shares=np.full(4, 0.25))
    with pytest.warns(lh.warnings.CountsWarning, match="another mix of classes .* as the target$"):
        lh.tune(logits, labels, COUNTS, metric=metric)
    tune_quietly(logits, labels, COUNTS)  # recalls are the same in any mix
    tune_quietly(logits, labels, metric=metric)  # the mix of the samples is all that is known
    same_mix, same_labels = calibrated(0, 1000)
    tune_quietly(same_mix, same_labels, COUNTS, metric=metric)
    if metric != "error":
        tune_quietly(logits, labels, COUNTS, metric=metric, target=COUNTS / COUNTS.sum())


# -- Leakage -------------------------------------------------------------------------------------


def test_data_that_are_too_good_to_be_unseen_are_named():
    labels = np.repeat(np.arange(4), 100)
    logits = 9 * np.eye(4)[labels] + np.random.default_rng(0).normal(size=(400, 4))
    with pytest.warns(lh.warnings.LeakageWarning, match="only 0 of 400 samples are wrong"):
        tuned = lh.tune(logits, labels, COUNTS)
    assert tuned.warnings[0].startswith("LeakageWarning: only 0 of 400")
    tune_quietly(logits[::2], labels[::2], COUNTS)  # none wrong of 200 may be luck


@pytest.mark.parametrize(("found", "named"), [(0, False), (11, False), (22, True), (23, True)])
def test_of_one_sample_in_a_thousand_nine_in_ten_have_to_be_found_as_well(found, named):
    labels = np.repeat([0, 1], [20_000, 23])
    before = np.zeros(len(labels), int)
    before[len(labels) - found :] = 1  # the rest of the model is that of always saying 0
    doubt = doubt_accuracy(Outcomes.of(labels, before, before, 2))
    assert isinstance(doubt, lh.warnings.LeakageWarning) == named


@pytest.mark.parametrize(
    ("n", "wrong", "named"), [(299, 0, False), (300, 0, True), (501, 1, True), (500, 1, False)]
)
def test_too_good_is_fewer_than_one_in_500_of_at_least_300(n, wrong, named):
    labels = np.arange(n) % 2
    predicted = np.where(np.arange(n) < wrong, 1 - labels, labels)
    doubt = doubt_accuracy(Outcomes.of(labels, predicted, predicted, 2))
    assert isinstance(doubt, lh.warnings.LeakageWarning) == named


def test_held_out_rows_among_the_training_rows_are_named():
    logits, labels = calibrated(0, 120)
    training = np.concatenate([calibrated(1, 200)[0], logits[:60]])
    with pytest.warns(lh.warnings.LeakageWarning, match="60 of 120 held-out rows are also in"):
        lh.tune(logits, labels, COUNTS, training=training)
    tune_quietly(logits, labels, COUNTS, training=training[:200])
    tune_quietly(
        logits, labels, COUNTS, training=training[:211]
    )  # 11 of 120 are fewer than a tenth


# -- What does not suit a rule -------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["rescale", "scales", "vector"])
def test_many_negative_true_class_logits_speak_against_multiplying(rule):
    logits, labels = calibrated(0, 400)
    with pytest.warns(lh.warnings.NegativeLogitsWarning, match="use the rule offsets"):
        lh.tune(logits - 6, labels, COUNTS, rule=rule)
    for adds in ("offsets", "shift"):
        tune_quietly(logits - 6, labels, COUNTS, rule=adds)
    tune_quietly(logits + 9, labels, COUNTS, rule=rule)


@pytest.mark.parametrize(("first", "message"), [(-1.0, "opposite"), (0.0, "always 0")])
def test_binary_logits_that_scaling_cannot_change_point_to_offsets(first, message):
    z = np.random.default_rng(0).normal(size=60) + np.repeat([-1, 1], 30)
    labels, logits = np.repeat([0, 1], 30), np.stack([first * z, z], axis=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tuned = lh.tune(logits, labels, [90, 10], rule="rescale")
    binary = [str(w.message) for w in caught if w.category is lh.warnings.BinaryHeadWarning]
    assert len(binary) == 1
    assert message in binary[0]
    assert "use the rule offsets" in binary[0]
    assert tuned.verdict == "changes nothing"
    tune_quietly(logits, labels, [90, 10])


def test_norms_that_fall_as_counts_grow_are_named():
    logits, labels = calibrated(0, 200)
    with pytest.warns(lh.warnings.NormWarning, match=r"rank correlation -1.00"):
        lh.tune(logits + 9, labels, COUNTS, rule=lh.rules.Tau(norms=[1.0, 2.0, 3.0, 4.0]))
    tune_quietly(logits + 9, labels, COUNTS, rule=lh.rules.Tau(norms=[4.0, 3.0, 2.0, 1.0]))


def test_norms_may_be_those_of_parameters_that_are_trained():
    torch = pytest.importorskip("torch")
    logits, labels = calibrated(0, 200)
    weight = torch.nn.Parameter(torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0])))
    of_head = lh.rules.Tau(norms=lh.Head(weight).norms)
    of_list = lh.rules.Tau(norms=[4.0, 3.0, 2.0, 1.0])
    tuned = [lh.tune(logits + 9, labels, COUNTS, rule=rule) for rule in (of_head, of_list)]
    np.testing.assert_allclose(tuned[0].adjustment.scale, tuned[1].adjustment.scale)


def test_a_class_without_a_sample_is_named():
    logits, labels = calibrated(0, 400)
    rows = labels != 2
    with pytest.warns(lh.warnings.MissingClassWarning, match=r"no sample here of class 2 \(owl\)"):
        lh.tune(logits[rows], labels[rows], COUNTS, names=["cat", "dog", "owl", "ant"])


def test_without_counts_a_class_without_a_sample_is_said_to_be_moved_as_if_it_had_one():
    logits, labels = calibrated(0, 400)
    rows = labels != 2
    sizes = np.bincount(labels[rows], minlength=4)
    said = "class 2: taken to be as rare as a class of one sample.*; give the counts"
    with pytest.warns(lh.warnings.MissingClassWarning, match=said):
        tuned = lh.tune(logits[rows], labels[rows])
    with pytest.warns(lh.warnings.MissingClassWarning, match="class 2: it goes by its training"):
        with_one = lh.tune(logits[rows], labels[rows], np.maximum(sizes, 1))
    np.testing.assert_allclose(tuned.adjustment.offset, with_one.adjustment.offset)
    assert tuned.adjustment.offset.argmax() == 2


def test_warnings_point_at_the_line_that_called():
    """Or else they are shown once for all callers, and filters by module miss them."""
    logits, labels = calibrated(0, 400)
    part = logits[labels < 3], labels[labels < 3], COUNTS
    sure = np.random.default_rng(0).normal(size=(400, 6)) + [9, 9, 9, 3, 2, 1]
    calls = [
        lambda: lh.tune(*part),
        lambda: lh.tune_folds([part]),
        lambda: lh.tune_chunks([part[:2]], COUNTS),
        lambda: lh.tune_unlabelled(sure),
    ]
    for call in calls:
        with pytest.warns(lh.warnings.LevelheadWarning) as caught:
            call()
        assert {(warning.filename, warning.lineno) for warning in caught} == {
            (__file__, call.__code__.co_firstlineno)
        }
