"""A number is a position everywhere; it is a name everywhere where class names are given and all are numbers."""

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from levelhead.core.class_labels import Positions
from levelhead.core.class_names import find_classes, in_order
from levelhead.support.columns import number_order

CLASSES = 12
COUNTS = lh.counts.long_tail(3000, CLASSES, 60)
LABELS = np.repeat(np.arange(CLASSES), np.maximum(COUNTS // 30, 8))
LOGITS = (
    3 * np.eye(CLASSES)[LABELS]
    + np.random.default_rng(0).normal(size=(len(LABELS), CLASSES))
    + np.log(COUNTS)
)
AS_TEXT = sorted(range(CLASSES), key=str)  # 0, 1, 10, 11, 2, ...
DIRECT = lh.tune(LOGITS, LABELS, COUNTS)


def sorted_as_text(form: str, first: int = 0) -> pd.DataFrame:
    """The logits as a data frame whose columns are in the order of their titles as text."""
    frame = pd.DataFrame(LOGITS, columns=[form.format(k + first) for k in range(CLASSES)])
    return frame[sorted(frame.columns)]


@pytest.mark.parametrize("form", ["{}", "logit_{}", "class_{}", "p[{}]", "class {}"])
@pytest.mark.parametrize("as_mapping", [False, True])
def test_columns_of_a_frame_are_put_in_the_order_of_their_numbers(form, as_mapping):
    counts = {str(k): int(n) for k, n in enumerate(COUNTS)} if as_mapping else COUNTS
    tuned = lh.tune(sorted_as_text(form), LABELS, counts)
    np.testing.assert_array_equal(tuned.adjustment.offset, DIRECT.adjustment.offset)
    assert tuned.gain == DIRECT.gain
    np.testing.assert_array_equal(tuned.apply(sorted_as_text(form)), DIRECT.apply(LOGITS))


def test_numbers_of_columns_that_are_not_0_1_2_are_the_names_of_classes():
    frame = sorted_as_text("{}", first=1)
    counts = {k + 1: int(n) for k, n in enumerate(COUNTS)}
    tuned = lh.tune(frame, LABELS + 1, counts)
    np.testing.assert_array_equal(tuned.adjustment.offset, DIRECT.adjustment.offset)
    assert tuned.names == tuple(str(k + 1) for k in range(CLASSES))
    with pytest.raises(ValueError, match=r"unknown labels 0; the classes are 1, 2, "):
        lh.tune(frame, LABELS, counts)


def test_other_frames_keep_the_order_of_their_columns():
    for titles in (["type2", "type1", "type3"], ["b", "a", "c"], ["a0", "b1", "c2"], ["x", "1"]):
        assert number_order(titles) is None
    assert number_order(["2", "10", "1"]) == [2, 0, 1]
    assert number_order([2, 0, 1]) == [1, 2, 0]
    assert number_order(["c2", "c0", "c1"]) == [1, 2, 0]
    assert number_order(["1", "01"]) is None
    assert number_order(["-1", "1"]) is None  # they are in order


@pytest.mark.parametrize("as_text", [False, True])
def test_numbers_are_names_everywhere_if_all_names_are_numbers(as_text):
    names = ["30", "10", "20"]
    counts = [600, 200, 60]
    truth = np.repeat([0, 1, 2], [60, 30, 20])
    logits = np.random.default_rng(1).normal(size=(110, 3)) + 2 * np.eye(3)[truth]
    labels = np.array([30, 10, 20])[truth]
    direct = lh.tune(logits, truth, counts, target=[0.5, 0.2, 0.3], metric=lh.Goal(floors={1: 0.7}))
    given = lh.tune(
        logits,
        labels.astype(str) if as_text else labels,
        {20: 60, 30: 600, 10: 200},
        names=names,
        target={10: 0.2, "20": 0.3, 30: 0.5},
        metric=lh.Goal(floors={10: 0.7}),
    )
    np.testing.assert_array_equal(given.adjustment.offset, direct.adjustment.offset)
    assert given.counts == direct.counts
    assert [floor.index for floor in given.floors] == [1]
    with pytest.raises(ValueError, match=r"unknown class name '1'; the classes are 30, 10, 20"):
        lh.tune(logits, labels, counts, names=names, metric=lh.Goal(floors={1: 0.7}))
    reason = "unknown labels 0, 1, 2; the classes are 30, 10, 20, and a number is a name where all"
    with pytest.raises(ValueError, match=reason):
        lh.tune(logits, truth, counts, names=names)
    counted = lh.tune(logits, labels, np.repeat([10, 20, 30], [200, 60, 600]), names=names)
    assert counted.counts == direct.counts
    background = lh.tune(logits, labels, lh.counts.with_background(counts, 10), names=names)
    assert background.background == 1


def test_numbers_are_positions_everywhere_if_names_are_words():
    names = ["cat", "dog", "owl"]
    assert in_order({0: 5, "1": 6, "owl": 7}, 3, names).tolist() == [5, 6, 7]
    truth = np.repeat([0, 1, 2], [60, 30, 20])
    logits = np.random.default_rng(1).normal(size=(110, 3)) + 2 * np.eye(3)[truth]
    direct = lh.tune(logits, truth, names=names)
    for labels in (truth.astype(str), truth.astype(float), np.array(names)[truth]):
        tuned = lh.tune(logits, labels, names=names)
        np.testing.assert_array_equal(tuned.adjustment.offset, direct.adjustment.offset)


def test_labels_that_are_numbers_as_text_are_positions_whatever_the_order_of_the_counts():
    counts = {str(k): int(COUNTS[k]) for k in AS_TEXT}
    tuned = lh.tune(LOGITS, LABELS.astype(str), counts)
    np.testing.assert_array_equal(tuned.adjustment.offset, DIRECT.adjustment.offset)
    assert tuned.names is None


def test_a_number_that_is_the_name_of_one_class_and_the_position_of_another_is_refused():
    for key in ("0", 0):
        with pytest.raises(ValueError, match="'0' may be class 0 or the class called so, class 2"):
            find_classes([key], 3, ["cat", "dog", "0"])
    assert find_classes(["2", "cat"], 3, ["cat", "dog", "2"]) == [2, 0]


def test_what_was_looked_up_already_is_not_looked_up_again():
    names = [str(k + 1) for k in range(CLASSES)]
    tuned = lh.tune(LOGITS, LABELS.view(Positions), COUNTS, names=names)
    np.testing.assert_array_equal(tuned.adjustment.offset, DIRECT.adjustment.offset)
    chunks = [(LOGITS[::2], LABELS[::2] + 1), (LOGITS[1::2], LABELS[1::2] + 1)]
    named = lh.tune_chunks(chunks, COUNTS, names=names)
    plain = lh.tune_chunks([(x, y - 1) for x, y in chunks], COUNTS)
    np.testing.assert_array_equal(named.adjustment.offset, plain.adjustment.offset)


def test_paths_and_measures_take_numbers_as_tune_does():
    names = [str(k + 1) for k in range(CLASSES)]
    counts = {k + 1: int(n) for k, n in enumerate(COUNTS)}
    path = lh.gamma_path(LOGITS, LABELS + 1, counts, rule="shift", names=names)
    direct = lh.gamma_path(LOGITS, LABELS, COUNTS, rule="shift")
    assert path.best().gamma == direct.best().gamma
    frame = lh.gamma_path(sorted_as_text("logit_{}"), LABELS, COUNTS, rule="shift")
    assert frame.best().gamma == direct.best().gamma
    measured = lh.measure.measure(LOGITS, LABELS + 1, counts, names=names)
    assert measured.error == lh.measure.measure(LOGITS, LABELS, COUNTS).error
    unlabelled = lh.tune_unlabelled(sorted_as_text("{}"), target={str(k): 1 for k in AS_TEXT})
    expected = lh.tune_unlabelled(LOGITS)
    np.testing.assert_array_equal(unlabelled.adjustment.offset, expected.adjustment.offset)
