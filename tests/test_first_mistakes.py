"""What newcomers do wrong first: each message says what came and what to do, in one line."""

import re

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy import sparse

import levelhead as lh

COUNTS = [400, 100, 25, 4]
LABELS = np.repeat(np.arange(4), [12, 8, 6, 4])
LOGITS = 5 + 2 * np.eye(4)[LABELS] + np.random.default_rng(0).normal(size=(30, 4))
PERCENT = 100 * np.exp(lh.measure.log_softmax(LOGITS))
WITH_NAN = np.where(np.isin(LOGITS, LOGITS[7, 1]), np.nan, LOGITS)
MISTAKES = {
    "transposed": (
        lambda: lh.tune(LOGITS.T, LABELS, COUNTS),
        "expected logits [N, K], one row per label, got shape [4, 30] and 30 labels; transpose the logits",
    ),
    "transposed, for a path": (
        lambda: lh.gamma_path(LOGITS.T, LABELS, COUNTS),
        "transpose the logits",
    ),
    "NaN": (
        lambda: lh.tune(WITH_NAN, LABELS, COUNTS),
        "the logits hold NaN or infinite values, first in row 7; leave such rows out, or compute them in float32",
    ),
    "labels from 1": (
        lambda: lh.tune(LOGITS, LABELS + 1, COUNTS),
        "expected labels from 0 to 3, got 4 at position 26; they seem to count from 1: subtract 1",
    ),
    "one-hot labels, counted": (
        lambda: lh.counts.check_labels(np.eye(4)[LABELS]),
        "expected labels [N], got shape [30, 4]; of one-hot labels give labels.argmax(axis=1)",
    ),
    "one-hot labels": (
        lambda: lh.tune(LOGITS, np.eye(4)[LABELS], COUNTS),
        "got a table [30, 4]; if they are one-hot, pass labels.argmax(axis=1)",
    ),
    "one-hot labels, for a path": (
        lambda: lh.gamma_path(LOGITS, np.eye(4)[LABELS], COUNTS),
        "got a table [30, 4]; if they are one-hot, pass labels.argmax(axis=1)",
    ),
    "one-hot labels as counts": (
        lambda: lh.tune(LOGITS, LABELS, np.eye(4)[LABELS]),
        "expected one count per class, got shape [30, 4]; of one-hot labels pass labels.sum(axis=0)",
    ),
    "a sparse matrix": (
        lambda: lh.tune(sparse.csr_matrix(LOGITS), LABELS, COUNTS),
        "expected an array, got a sparse matrix; pass x.toarray()",
    ),
    "sparse labels": (
        lambda: lh.tune(LOGITS, sparse.csr_array(np.eye(4)[LABELS]), COUNTS),
        "expected an array, got a sparse matrix; pass x.toarray()",
    ),
    "a sparse matrix without labels": (
        lambda: lh.tune_unlabelled(sparse.csr_array(LOGITS)),
        "got a sparse matrix; pass x.toarray()",
    ),
    "a sparse matrix to adjust": (
        lambda: lh.tune(LOGITS, LABELS, COUNTS).apply(sparse.csr_matrix(LOGITS)),
        "got a sparse matrix; pass x.toarray()",
    ),
    "what a model returns": (
        lambda: lh.tune({"logits": LOGITS}, LABELS, COUNTS),
        "expected an array, got a mapping; pass x['logits']",
    ),
    "what a model returns, to adjust": (
        lambda: lh.tune(LOGITS, LABELS, COUNTS).apply({"loss": 1.0, "logits": LOGITS}),
        "expected an array, got a mapping; pass x['loss'] or x['logits']",
    ),
    "labels in a mapping": (
        lambda: lh.tune(LOGITS, {"labels": LABELS}, COUNTS),
        "expected an array, got a mapping; pass x['labels']",
    ),
    "logits and labels swapped": (
        lambda: lh.tune(LABELS, LOGITS, COUNTS),
        "logits and labels are swapped: expected logits [N, K], labels [N], counts [K]",
    ),
    "logits and labels swapped, without counts": (
        lambda: lh.tune(LABELS, LOGITS),
        "logits and labels are swapped",
    ),
    "logits and labels swapped, for a path": (
        lambda: lh.gamma_path(LABELS, LOGITS, COUNTS),
        "logits and labels are swapped",
    ),
    "logits and labels swapped, measured": (
        lambda: lh.measure.measure(LABELS, LOGITS),
        "logits and labels are swapped",
    ),
    "logits and counts swapped": (
        lambda: lh.tune(COUNTS, LABELS, LOGITS),
        "logits and counts are swapped",
    ),
    "labels and counts swapped": (
        lambda: lh.tune(LOGITS, COUNTS, LABELS),
        "labels and counts are swapped",
    ),
    "percentages": (
        lambda: lh.tune(PERCENT, LABELS, COUNTS),
        "expected logits, got what looks like percentages: rows from 0 to 100 that sum to 100; "
        "pass kind='probabilities' after dividing them by 100",
    ),
    "percentages, rounded": (
        lambda: lh.tune(PERCENT.round(), LABELS, COUNTS),
        "got what looks like percentages",
    ),
    "percentages without labels": (
        lambda: lh.tune_unlabelled(PERCENT),
        "got what looks like percentages",
    ),
    "percentages as probabilities": (
        lambda: lh.tune(PERCENT, LABELS, COUNTS, kind="probabilities"),
        "got what looks like percentages: rows from 0 to 100 that sum to 100; divide them by 100",
    ),
    "percentages to adjust": (
        lambda: lh.tune(PERCENT / 100, LABELS, COUNTS, kind="probabilities").apply(PERCENT),
        "got what looks like percentages: rows from 0 to 100 that sum to 100; divide them by 100",
    ),
    "a floor in percent": (
        lambda: lh.tune(LOGITS, LABELS, COUNTS, metric=lh.Goal(floors=60)),
        "floors: expected recalls from 0 to 1, got 60; 60 % is 0.6",
    ),
    "a path of a rule that has no strength": (
        lambda: lh.gamma_path(LOGITS, LABELS, COUNTS, rule=lh.rules.Offsets()),
        "rule: expected 'shift', 'rescale' or 'tau', got Offsets()",
    ),
    "masked counts": (
        lambda: lh.tune(LOGITS, LABELS, np.ma.masked_less(COUNTS, 10)),
        "some values are masked, and would be used all the same; fill them or leave them out",
    ),
    "sparse counts": (
        lambda: lh.counts.resolve(sparse.csr_matrix(COUNTS), 4),
        "expected an array, got a sparse matrix; pass x.toarray()",
    ),
    "names in a mapping, as id2label": (
        lambda: lh.tune(LOGITS, LABELS, names=dict(enumerate("abcd"))),
        "names: expected a list of class names, got dict",
    ),
    "names in one text": (
        lambda: lh.tune(LOGITS, LABELS, COUNTS, names="abcd"),
        "names: expected a list of class names, got str",
    ),
    "names in one text, for a path": (
        lambda: lh.gamma_path(LOGITS, LABELS, COUNTS, names="abcd"),
        "names: expected a list of class names, got str",
    ),
    "names in one text, measured": (
        lambda: lh.measure.measure(LOGITS, LABELS, names="abcd"),
        "names: expected a list of class names, got str",
    ),
    "names in one text, in chunks": (
        lambda: lh.tune_chunks([(LOGITS, LABELS)], names="abcd"),
        "names: expected a list of class names, got str",
    ),
    "names in one text, of labels": (
        lambda: lh.tune_labels(LOGITS, np.eye(4)[LABELS], names="abcd"),
        "names: expected a list of class names, got str",
    ),
    "a number as names": (
        lambda: lh.tune(LOGITS, LABELS, names=4),
        "names: expected a list of class names, got int",
    ),
    "too few names": (
        lambda: lh.tune(LOGITS, LABELS, names=["a", "b"]),
        "names: expected 4 class names, got 2",
    ),
    "a level in words": (
        lambda: lh.tune(LOGITS, LABELS, level="95%"),
        "level: expected a finite number, got '95%'",
    ),
    "a level in words, of shares": (
        lambda: lh.priors.estimate_prior(LOGITS, COUNTS, level="95%"),
        "level: expected a finite number, got '95%'",
    ),
    "a certainty in words": (
        lambda: lh.Goal(floors=0.5, certainty="90%"),
        "certainty: expected a finite number, got '90%'",
    ),
    "no text of what it is chosen on": (
        lambda: lh.tune(LOGITS, LABELS, chosen_on=None),
        "chosen_on: expected text, such as 'held-out', got None",
    ),
    "no text of what chunks are chosen on": (
        lambda: lh.tune_chunks([(LOGITS, LABELS)], chosen_on=None),
        "chosen_on: expected text, such as 'held-out', got None",
    ),
    "no text of what labels are chosen on": (
        lambda: lh.tune_labels(LOGITS, np.eye(4)[LABELS], chosen_on=None),
        "chosen_on: expected text, such as 'held-out', got None",
    ),
    "groups that overlap": (
        lambda: lh.counts.groups(COUNTS, many=20, few=100),
        "few: expected at most 20, as `many` is, got 100",
    ),
    "a class by name, of a path": (
        lambda: lh.gamma_path(LOGITS, LABELS, COUNTS).class_curve("cat"),
        "expected a class from 0 to 3, got 'cat'",
    ),
    "weights of other samples": (
        lambda: lh.measure.fit_temperature(LOGITS, LABELS, weights=[1.0, 2.0]),
        "weights: expected numbers [30], one per sample, got shape [2]",
    ),
    "weights of other samples, for a likelihood": (
        lambda: lh.measure.negative_log_likelihood(LOGITS, LABELS, weights=[1.0, 2.0]),
        "weights: expected numbers [30], one per sample, got shape [2]",
    ),
    "no bins": (
        lambda: lh.measure.calibration_error(LOGITS, LABELS, bins=0),
        "bins: expected a whole number above 0, got 0",
    ),
    "none of the best classes": (
        lambda: lh.measure.error(LOGITS, LABELS, k=0),
        "k: expected a whole number above 0, got 0",
    ),
    "temperatures that descend": (
        lambda: lh.measure.fit_temperature(LOGITS, LABELS, low=3, high=1),
        "low, high: expected two numbers above 0 that ascend, got 3 and 1",
    ),
    "too few names, without labels": (
        lambda: lh.tune_unlabelled(LOGITS, names=["a", "b"]),
        "names: expected 4 class names, got 2",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_python_is_answered_with_what_to_do(name):
    do, expected = MISTAKES[name]
    with pytest.raises((ValueError, KeyError), match=re.escape(expected)) as caught:
        do()
    assert "\n" not in str(caught.value)


def test_logits_that_sum_to_about_100_are_logits():
    rng = np.random.default_rng(0)
    large = rng.uniform(0, 50, size=(30, 4))
    many = rng.exponential(size=(30, 100))  # each row has a sum of 100, give or take 10
    for logits in (large, many, np.round(large)):
        lh.support.logits.check_logits(logits)


def test_labels_that_lack_class_0_are_not_taken_for_labels_from_1():
    with pytest.raises(ValueError, match=r"got 9 at position 29$"):
        lh.counts.check_labels([1] * 29 + [9], 4)


def test_what_is_not_a_module_is_told_where_it_belongs():
    torch, linear = pytest.importorskip("torch"), pytest.importorskip("sklearn.linear_model")
    tuned = lh.tune(LOGITS, LABELS, COUNTS)
    for model, place in (
        ("model.safetensors", "levelhead.files.model.adjust_file"),
        (torch.nn.Linear(8, 4).state_dict(), "load it into its model"),
        (linear.LogisticRegression(), "levelhead.hosts.sklearn"),
    ):
        with pytest.raises(TypeError, match=re.escape(place)):
            lh.adjust_(model, tuned)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("T.npy", LOGITS.T)
    np.save("L.npy", LOGITS)
    np.save("Y.npy", LABELS)
    np.save("from1.npy", LABELS + 1)
    rng = np.random.default_rng(0)
    save_file(
        {"body.weight": rng.normal(size=(8, 3, 3, 3)), "regressor.weight": rng.normal(size=(1, 8))},
        "regression.safetensors",
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "tune --logits T.npy --labels Y.npy --counts 400,100,25,4",
            "T.npy is [4, 30]: transpose it, to [N, K]",
        ),
        (
            "tune --logits L.npy --labels from1.npy --counts 400,100,25,4",
            "they seem to count from 1: subtract 1",
        ),
        (
            "inspect regression.safetensors",
            "regressor [1, 8] gives one number, as for a regression; a head has a row per class",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_answered_with_what_to_do(
    folder, levelhead, words, expected
):
    status, _, err = levelhead(*words.split())
    assert status == 2
    assert expected in err
    assert err.count("\n") == 1
