"""The names of the package, and what people pass in: it works, or is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import levelhead as lh
from levelhead import Head

COUNTS = [1000, 300, 90, 30]
rng = np.random.default_rng(0)
LABELS = rng.integers(4, size=160)
LOGITS = ((2 + rng.normal(size=(160, 4)) + 2 * np.eye(4)[LABELS]) * [1.0, 0.8, 0.6, 0.4]).astype(
    np.float32
)
TARGET = np.array([0.4, 0.3, 0.2, 0.1])


def offsets(logits=LOGITS, labels=LABELS, counts=COUNTS, **options) -> list[float]:
    return lh.tune(logits, labels, counts, **options).adjustment.offset.round(6).tolist()


def path(**options) -> lh.GammaPath:
    return lh.gamma_path(LOGITS, LABELS, COUNTS, **options)


# -- names ---------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_listed():
    for name in lh.__all__:
        assert getattr(lh, name) is not None
        assert name in dir(lh)
    assert len(lh.__all__) == len(set(lh.__all__))


PROMISED = """
    tune tune_labels tune_chunks tune_folds tune_unlabelled compare collect
    Tuned Goal Adjustment Evidence Tables Metric Comparison GammaPath Head Adjusted
    adjust adjust_ rescale_ find_head gamma_path WVN
    rules counts measure priors warnings LevelheadError
"""


def test_the_package_has_the_names_of_its_design_and_no_others():
    assert set(lh.__all__) == set(PROMISED.split())


def test_a_tuned_has_what_its_design_promises_and_nothing_older():
    tuned = lh.tune(LOGITS, LABELS, COUNTS)
    for name in (
        "rule",
        "strength",
        "adjustment",
        "gain",
        "gain_interval",
        "verdict",
        "worthwhile",
    ):
        assert hasattr(tuned, name)
    for name in ("gamma", "interval", "plateau", "curve", "candidates", "why", "second", "certain"):
        assert not hasattr(tuned, name)


# -- tables --------------------------------------------------------------------------------------


def test_a_series_of_counts_goes_by_its_index_as_value_counts_has_it():
    pandas = pytest.importorskip("pandas")
    by_frequency = pandas.Series(np.repeat([3, 0, 2, 1], [9, 5, 4, 2])).value_counts()
    assert lh.counts.resolve(by_frequency, 4).tolist() == [5, 2, 4, 9]
    assert lh.counts.resolve(by_frequency).tolist() == [5, 2, 4, 9]
    assert lh.counts.groups(by_frequency, many=8, few=3)["many"].tolist() == [3]
    named = pandas.Series({"elk": 1, "ant": 4, "cat": 2})
    head = Head(np.eye(3), names=["ant", "cat", "elk"])
    assert lh.adjust(head, lh.rules.Rescale(1.0), named).norms.tolist() == [1, 2, 4]
    with pytest.raises(ValueError, match="got the class name 'elk'"):
        lh.counts.resolve(named, 3)
    with pytest.raises(ValueError, match="class 1 is listed twice"):
        lh.counts.resolve(pandas.Series([3, 4], index=[1, 1]), 2)


def test_a_series_of_labels_is_counted_whatever_its_index():
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series(np.repeat([0, 1, 2], [5, 3, 2]), index=rng.permutation(10))
    assert lh.counts.resolve(labels, 3).tolist() == [5, 3, 2]
    assert lh.counts.of(labels).tolist() == [5, 3, 2]


def test_tables_of_logits_are_as_good_as_arrays():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(LOGITS, index=[f"row {i}" for i in range(160)])
    labels = pandas.Series(LABELS)
    assert offsets(table, labels) == offsets()
    assert lh.tune_folds([(table, labels, COUNTS)]).gain == lh.tune(LOGITS, LABELS, COUNTS).gain
    by_table, wanted = (lh.tune_unlabelled(logits, counts=COUNTS) for logits in (table, LOGITS))
    np.testing.assert_allclose(by_table.adjustment.offset, wanted.adjustment.offset)
    message = r"expected weight \[K, d\], a numpy array or a tensor, got DataFrame"
    with pytest.raises(ValueError, match=message):
        Head(pandas.DataFrame(np.eye(2)))


def test_lists_are_as_good_as_arrays():
    assert offsets(LOGITS.tolist(), LABELS.tolist()) == offsets()
    assert Head(np.eye(2)).logits([[1, 2]]).tolist() == [[1, 2]]


# -- targets and names ---------------------------------------------------------------------------


def test_a_target_by_class_is_that_target_in_order():
    pandas = pytest.importorskip("pandas")
    by_class = {3: 0.1, 1: 0.3, 0: 0.4, 2: 0.2}
    assert offsets(target=by_class) == offsets(target=TARGET)
    assert offsets(target=pandas.Series(TARGET[::-1], index=[3, 2, 1, 0])) == offsets(target=TARGET)
    assert path(target=by_class).best().balanced_error == path(target=TARGET).best().balanced_error
    with pytest.raises(ValueError, match="class 2 has no share; expected 4 shares, one per class"):
        offsets(target={0: 1, 1: 1, 3: 1})


@pytest.mark.parametrize("names", [np.array(list("abcd")), tuple("abcd")], ids=["array", "tuple"])
def test_names_come_in_any_sequence(names):
    counts = dict(zip("dcba", COUNTS[::-1], strict=True))
    assert offsets(counts=counts, names=names) == offsets()


# -- mistakes in one line each -------------------------------------------------------------------

MISTAKES = {
    "a model for logits": (lambda: lh.tune(object(), LABELS, COUNTS), "expected logits"),
    "names of other classes": (lambda: offsets(names=["a", "b"]), "expected 4 class names, got 2"),
    "three ends of a range": (lambda: path(range=(0, 1, 2)), r"range: expected \(from, to\)"),
    "a class that is not": (lambda: path().class_curve(4), "expected a class from 0 to 3, got 4"),
    "a model for a head": (
        lambda: lh.adjust(nn.Linear(2, 4), lh.rules.Rescale(1.0), COUNTS),
        "expected a Head, got Linear",
    ),
    "an array for a head": (
        lambda: lh.adjust(np.eye(4), lh.rules.Shift(1.0), COUNTS),
        "expected a Head, got ndarray",
    ),
    "a bias of whole numbers": (
        lambda: Head(np.eye(2), np.array([1, 3])),
        "expected a floating-point bias",
    ),
    "a bias of another kind": (
        lambda: Head(np.eye(2), torch.zeros(2)),
        "bias of the same kind as the weight, numpy",
    ),
    "features of another kind": (
        lambda: Head(torch.eye(2)).logits(np.eye(2)),
        r"head.numpy\(\) converts the head",
    ),
    "features too wide": (
        lambda: Head(np.eye(2)).logits(np.ones((3, 5))),
        r"expected features \[N, 2\], got shape",
    ),
    "one logit a sample": (
        lambda: lh.measure.error(LOGITS[:, 0], LABELS),
        r"expected logits \[N, K\]",
    ),
    "no sample": (
        lambda: lh.measure.balanced_error(LOGITS[:0], LABELS[:0]),
        "at least 1 sample",
    ),
    "words for logits": (
        lambda: lh.measure.recall([["a", "b"]], [0]),
        "expected logits as floating-point numbers",
    ),
    "temperature 0": (
        lambda: lh.measure.calibration_error(LOGITS, LABELS, temperature=0),
        "a positive number",
    ),
    "probabilities to calibrate": (
        lambda: lh.measure.fit_temperature(np.full((9, 2), 0.5), [0] * 9),
        "probabilities",
    ),
    "NaN to calibrate": (
        lambda: lh.measure.fit_temperature(np.full((9, 2), np.nan), [0] * 9),
        "NaN or infinite",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_in_one_line(name):
    call, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_features_of_a_better_dtype_than_the_head_keep_it():
    logits = Head(torch.eye(2)).logits(torch.eye(2, dtype=torch.float64))
    assert logits.dtype == torch.float64
