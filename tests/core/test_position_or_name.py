"""A number is a position everywhere; it is a name everywhere where class names are given and all are numbers."""

import enum

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import levelhead as lh
from levelhead.core.class_labels import Positions
from levelhead.core.class_names import as_names, find_classes, in_order
from levelhead.io.samples_file import read
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


@pytest.mark.parametrize(
    "form", ["{}", "logit_{}", "class_{}", "p[{}]", "class {}", "y_{}_PREDICTION", "{}.0"]
)
@pytest.mark.parametrize("as_mapping", [False, True])
def test_columns_of_a_frame_are_put_in_the_order_of_their_numbers(form, as_mapping):
    counts = {str(k): int(n) for k, n in enumerate(COUNTS)} if as_mapping else COUNTS
    tuned = lh.tune(sorted_as_text(form), LABELS, counts)
    np.testing.assert_array_equal(tuned.adjustment.offset, DIRECT.adjustment.offset)
    assert tuned.gain == DIRECT.gain
    np.testing.assert_array_equal(tuned.apply(sorted_as_text(form)), DIRECT.apply(LOGITS))


def test_tables_of_arrow_and_titles_of_several_levels_are_ordered_too():
    frame = sorted_as_text("logit_{}")
    levels = frame.copy()
    levels.columns = pd.MultiIndex.from_tuples([tuple(title.split("_")) for title in frame])
    for table in (pa.Table.from_pandas(frame), levels):
        tuned = lh.tune(table, LABELS, COUNTS)
        np.testing.assert_array_equal(tuned.adjustment.offset, DIRECT.adjustment.offset)


def test_numbers_of_columns_that_are_not_0_1_2_are_the_names_of_classes():
    frame = sorted_as_text("{}", first=1)
    counts = {k + 1: int(n) for k, n in enumerate(COUNTS)}
    tuned = lh.tune(frame, LABELS + 1, counts)
    np.testing.assert_array_equal(tuned.adjustment.offset, DIRECT.adjustment.offset)
    assert tuned.names == tuple(str(k + 1) for k in range(CLASSES))
    with pytest.raises(ValueError, match=r"unknown labels 0; the classes are 1, 2, "):
        lh.tune(frame, LABELS, counts)


@pytest.mark.parametrize("form", ["logit_{}", "scores[{}]", "p{}"])
def test_scores_numbered_from_1_are_read_as_the_same_table_in_a_file_is(form, tmp_path):
    frame = sorted_as_text(form, first=1)
    frame.assign(label=LABELS + 1).to_csv(tmp_path / "scores.csv", index=False)
    file = read(str(tmp_path / "scores.csv"), counts=str(COUNTS.tolist())[1:-1])
    tuned = lh.tune(frame, LABELS + 1, COUNTS)
    assert tuned.names == tuple(file.names) == tuple(str(k + 1) for k in range(CLASSES))
    np.testing.assert_array_equal(LOGITS, file.logits)
    np.testing.assert_array_equal(tuned.adjustment.offset, DIRECT.adjustment.offset)
    np.testing.assert_array_equal(tuned.apply(frame), DIRECT.apply(LOGITS))
    with pytest.raises(ValueError, match=r"unknown labels 0; the classes are 1, 2, "):
        lh.tune(frame, LABELS, COUNTS)


def test_other_frames_keep_the_order_of_their_columns():
    for titles in (
        ["type2", "type1", "type3"],
        ["b", "a", "c"],
        ["a0", "b1", "c2"],
        ["x", "1"],
        ["a1_x0", "a0_x1"],
        ["logit_a2", "logit_a1"],
        ["logit_3", "logit_1"],
    ):
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
    by_name = lh.tune(
        logits,
        labels.astype(str) if as_text else labels,
        {20: 60, 30: 600, 10: 200},
        names=names,
        target={10: 0.2, "20": 0.3, 30: 0.5},
        metric=lh.Goal(floors={10: 0.7}),
    )
    np.testing.assert_array_equal(by_name.adjustment.offset, direct.adjustment.offset)
    assert by_name.counts == direct.counts
    assert [floor.index for floor in by_name.floors] == [1]
    with pytest.raises(ValueError, match=r"unknown class name '1'; the classes are 30, 10, 20"):
        lh.tune(logits, labels, counts, names=names, metric=lh.Goal(floors={1: 0.7}))
    reason = "unknown labels 0, 1, 2; the classes are 30, 10, 20, and a number is a name where all"
    with pytest.raises(ValueError, match=reason):
        lh.tune(logits, truth, counts, names=names)
    counted = lh.tune(logits, labels, np.repeat([10, 20, 30], [200, 60, 600]), names=names)
    assert counted.counts == direct.counts
    background = lh.tune(logits, labels, lh.counts.with_background(counts, 10), names=names)
    assert background.background == 1


@pytest.mark.parametrize("classes", [[2, 1, 0], [1, 2, 3], [30, 10, 20]])
def test_whole_numbers_kept_as_floats_are_the_names_that_they_are_as_integers(classes):
    truth = np.repeat([0, 1, 2], [60, 30, 20])
    logits = np.random.default_rng(1).normal(size=(110, 3)) + 2 * np.eye(3)[truth]
    labels = np.array(classes)[truth]
    direct = lh.tune(logits, truth, [60, 30, 20])
    floors = lh.Goal(floors={float(classes[1]): 0.7})
    for dtype in (float, np.float32, int, object):
        names = np.array(classes, dtype)
        for given_labels in (labels, labels.astype(float)):
            counts = pd.Series(given_labels).value_counts()
            tuned = lh.tune(logits, given_labels, counts, names=names)
            assert tuned.names == tuple(map(str, classes))
            np.testing.assert_array_equal(tuned.adjustment.offset, direct.adjustment.offset)
        assert lh.tune(logits, labels, metric=floors, names=names).floors[0].index == 1
    assert find_classes([10.0], 2, np.array([20.0, 10.0])) == [1]


class Size(enum.Enum):
    LARGE, SMALL = "large", "small"


@pytest.mark.parametrize("classes", [[True, False], [False, True], [0.5, -1.5], list(Size)])
def test_bools_fractions_and_members_of_an_enum_are_names_like_any_other(classes):
    truth = np.repeat([0, 1], [60, 30])
    logits = np.random.default_rng(1).normal(size=(90, 2)) + 2 * np.eye(2)[truth]
    labels = [classes[i] for i in truth]
    direct = lh.tune(logits, truth, [600, 300], metric=lh.Goal(floors={1: 0.7}))
    floors = lh.Goal(floors={classes[1]: 0.7})
    for given_labels in (labels, np.array(labels), np.array(labels, object)):
        by_name = {classes[1]: 300, classes[0]: 600}
        tuned = lh.tune(logits, given_labels, by_name, names=classes, metric=floors)
        np.testing.assert_array_equal(tuned.adjustment.offset, direct.adjustment.offset)
        assert tuned.counts == (600, 300)
        assert tuned.floors == direct.floors


@pytest.mark.parametrize("names", [[True, False], ["true", "false"], [1, 0]])
def test_bools_are_the_labels_of_a_training_too(names):
    truth = np.repeat([1, 0], [60, 30])
    logits = np.random.default_rng(1).normal(size=(90, 2)) + 2 * np.eye(2)[1 - truth]
    training = np.repeat([True, False], [600, 300])
    tuned = lh.tune(logits, truth == 1, training, names=names)
    direct = lh.tune(logits, 1 - truth, [600, 300])
    assert tuned.counts == direct.counts == (600, 300)
    np.testing.assert_array_equal(tuned.adjustment.offset, direct.adjustment.offset)
    positions = lh.tune(logits[:, ::-1], truth == 1, training)
    assert positions.counts == (300, 600)


def test_names_in_a_tensor_are_the_numbers_that_it_holds():
    assert as_names(torch.tensor([2, 0, 1])) == ["2", "0", "1"]
    assert as_names([torch.tensor(2.0), torch.tensor(7)]) == ["2", "7"]


def test_names_without_an_order_are_refused():
    for names in ({"dog", "cat"}, frozenset(["dog", "cat"])):
        with pytest.raises(ValueError, match=r"names: expected a list .*, got (frozen)?set, which"):
            lh.tune(np.eye(2) + 2, [0, 1], names=names)
    assert as_names({"dog": 1, "cat": 2}.keys()) == ["dog", "cat"]  # which has one


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


WORDS = ["dog", "cat", "owl"]
WORD_LABELS = np.repeat([0, 1, 2], [60, 30, 20])
WORD_LOGITS = np.random.default_rng(1).normal(size=(110, 3)) + 2 * np.eye(3)[WORD_LABELS]


@pytest.mark.parametrize("form", ["{}", "logit_{}"])
def test_columns_that_are_titled_with_the_classes_in_another_order_are_refused(form):
    frame = pd.DataFrame(WORD_LOGITS, columns=[form.format(word) for word in WORDS])
    turned = frame[frame.columns[[2, 0, 1]]]
    names = np.array(WORDS)[WORD_LABELS]
    counts = [600, 300, 200]
    tuned = lh.tune(frame, names, counts, names=WORDS)
    np.testing.assert_array_equal(tuned.apply(frame), tuned.apply(WORD_LOGITS))
    np.testing.assert_array_equal(tuned.apply(frame.iloc[0]), tuned.apply(WORD_LOGITS[0]))
    reason = r"columns are titled with the classes in another order \(owl, dog, cat\) than .*\(dog, cat, owl\)"
    for call in (
        lambda: tuned.apply(turned),
        lambda: tuned.apply(turned.iloc[0]),
        lambda: lh.tune(turned, names, counts, names=WORDS),
        lambda: lh.tune(frame, names, names=WORDS, target="estimate", unlabelled=turned),
        lambda: lh.priors.estimate_prior(turned, counts, names=WORDS),
        lambda: lh.tune_chunks([(turned, names)], counts, names=WORDS),
        lambda: lh.tune_folds([(turned, names, counts)], names=WORDS),
        lambda: lh.compare(turned, names, counts, names=WORDS),
        lambda: lh.gamma_path(turned, names, counts, names=WORDS),
        lambda: lh.tune_unlabelled(turned, counts=counts, names=WORDS),
    ):
        with pytest.raises(ValueError, match=reason):
            call()


@pytest.mark.parametrize("form", ["{}", "logit_{}", "proba_{}"])
def test_titles_of_columns_are_the_names_of_the_classes(form):
    frame = pd.DataFrame(WORD_LOGITS, columns=[form.format(word) for word in WORDS])
    turned = frame[frame.columns[[2, 0, 1]]]
    by_name = np.array(WORDS)[WORD_LABELS]
    direct = lh.tune(WORD_LOGITS, WORD_LABELS, [600, 300, 200])
    for labels in (WORD_LABELS, WORD_LABELS.astype(str), by_name):
        for counts in (
            [600, 300, 200],
            {"owl": 200, "dog": 600, "cat": 300},
            {1: 300, 0: 600, 2: 200},
        ):
            tuned = lh.tune(frame, labels, counts)
            assert tuned.names == tuple(WORDS)
            np.testing.assert_allclose(tuned.adjustment.offset, direct.adjustment.offset)
    floors = lh.Goal(floors={"cat": 0.5})
    assert lh.tune(frame, WORD_LABELS, metric=floors).floors[0].index == 1
    assert lh.tune_unlabelled(frame).names == tuple(WORDS)
    path = lh.gamma_path(frame, WORD_LABELS, [600, 300, 200], rule="shift")
    assert path.names == WORDS
    for call in (
        lambda: tuned.apply(turned),
        lambda: lh.tune(frame, WORD_LABELS, target="estimate", unlabelled=turned),
    ):
        with pytest.raises(
            ValueError, match=r"another order \(owl, dog, cat\) than .*\(dog, cat, owl\)"
        ):
            call()


def test_titles_that_are_no_names_leave_everything_to_positions_and_counts():
    by_name = np.array(WORDS)[WORD_LABELS]
    counts = {"dog": 600, "cat": 300, "owl": 200}
    direct = lh.tune(WORD_LOGITS, WORD_LABELS, [600, 300, 200])
    for titles in (
        ["x", "y", "z"],
        ["x", "x", "y"],
        ["x", "2", "0"],
        [0, 1, 2],
        ["c0", "c1", "c2"],
    ):
        frame = pd.DataFrame(WORD_LOGITS, columns=titles)
        tuned = lh.tune(frame, by_name, counts)
        assert tuned.names == tuple(WORDS)
        assert lh.tune(frame, WORD_LABELS, {0: 600, 2: 200, 1: 300}).gain == direct.gain
        assert lh.tune(frame, WORD_LABELS, metric=lh.Goal(floors={1: 0.5})).gain is not None
        np.testing.assert_allclose(tuned.apply(frame), direct.apply(WORD_LOGITS))


def test_costs_of_a_frame_are_of_the_classes_that_its_rows_and_columns_are_titled_with():
    cost = np.array([[0.0, 1, 2], [9, 0, 4], [5, 1, 0]])

    def offsets(matrix, **options):
        metric = lh.Goal(cost=matrix)
        return lh.tune(WORD_LOGITS, WORD_LABELS, metric=metric, **options).adjustment.offset

    wanted = offsets(cost)
    by_word = pd.DataFrame(cost, index=WORDS, columns=WORDS)
    by_number = pd.DataFrame(cost)
    for matrix in (by_word, by_number, by_number.iloc[[2, 0, 1], [2, 0, 1]], by_number.iloc[::-1]):
        np.testing.assert_array_equal(offsets(matrix), wanted)
        np.testing.assert_array_equal(offsets(matrix, names=WORDS), wanted)
    turned = ["owl", "dog", "cat"]
    for matrix, what in (
        (by_word.loc[turned, turned], "columns"),
        (by_word[turned], "columns"),
        (by_word.loc[turned], "rows"),
    ):
        with pytest.raises(ValueError, match=f"^cost: {what} are titled .* in another order"):
            offsets(matrix, names=WORDS)
    with pytest.raises(ValueError, match=r"^cost: rows are titled .* in another order"):
        offsets(by_word.loc[turned])  # by its columns


def test_names_that_contradict_numbered_columns_are_refused():
    # The columns are read as c0, c1, c2: by these names, the first of them would be called c2.
    frame = pd.DataFrame(WORD_LOGITS, columns=["c2", "c0", "c1"])
    orders = r"in another order \(c0, c1, c2\) than .*\(c2, c0, c1\)"
    with pytest.raises(ValueError, match=f"{orders}; columns are read in the order of the numbers"):
        lh.tune(frame, WORD_LABELS, names=["c2", "c0", "c1"])
    # Plain positions are no names, whatever the classes are called.
    lh.tune(pd.DataFrame(WORD_LOGITS), WORD_LABELS.astype(str), names=["0", "1", "2"])
    lh.tune(pd.DataFrame(WORD_LOGITS), 2 - WORD_LABELS, names=["2", "1", "0"])


def test_a_row_of_a_frame_is_read_in_the_order_of_its_numbers_as_the_frame_is():
    frame = sorted_as_text("logit_{}")
    np.testing.assert_array_equal(DIRECT.apply(frame.iloc[5]), DIRECT.apply(LOGITS[5]))
