"""Tables of predictions: the logits, the labels and the rest are told apart by titles and values."""

import datetime

import numpy as np
import pandas as pd
import pytest

from levelhead import LevelheadError
from levelhead.io.parts import read_parts
from levelhead.io.samples_file import read
from levelhead.io.table import Table
from levelhead.io.table_columns import Layout, find_columns
from levelhead.io.table_file import read_table

LOGITS = np.random.default_rng(0).normal(size=(6, 3))
LABELS = np.array([0, 1, 2, 0, 1, 2])
NAMES = ["cat", "dog", "owl"]
COUNTS = "60,30,10"


def save(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def heard(path, **options):
    lines = []
    return read(path, None, COUNTS, say=lines.append, **options), lines


def check(samples, names):
    np.testing.assert_allclose(samples.logits, LOGITS)
    np.testing.assert_array_equal(samples.labels, LABELS)
    assert samples.names == names


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("label", ["label", "y", "Target"])
@pytest.mark.parametrize("as_text", [False, True])
def test_labels_and_ids_next_to_logits_are_found_and_said(tmp_path, suffix, label, as_text):
    frame = pd.DataFrame(LOGITS, columns=NAMES)
    frame.insert(0, "id", np.arange(100, 106))
    frame.insert(2, label, [NAMES[y] for y in LABELS] if as_text else LABELS)
    frame["file"] = [f"{i}.png" for i in range(6)]
    path = save(frame, tmp_path / f"x{suffix}")
    samples, lines = heard(path)
    check(samples, NAMES)
    assert lines == [
        f"labels are the column {label!r} of {path}",
        f"{path}: id, file are not classes and are ignored; its classes are cat, dog, owl",
    ]
    assert str(samples.files["labels"]) == f"{path}:{label}"
    again = read(path, samples.files["labels"], COUNTS)
    check(again, NAMES)


@pytest.mark.parametrize("form", ["logit_{}", "logits.{}", "score {}", "logit[{}]", "prob_{}"])
@pytest.mark.parametrize("names", [NAMES, ["2", "0", "1"]])
def test_columns_with_a_common_word_are_the_logits(tmp_path, form, names):
    order = [0, 1, 2] if names == NAMES else [2, 0, 1]
    frame = pd.DataFrame(LOGITS[:, order], columns=[form.format(name) for name in names])
    frame["confidence"], frame["y_true"] = 0.25, LABELS
    samples, _ = heard(save(frame, tmp_path / "x.csv"))
    check(samples, NAMES if names == NAMES else None)


def test_columns_that_pandas_numbered_may_have_labels_next_to_them(tmp_path):
    frame = pd.DataFrame(LOGITS)
    frame["label"] = LABELS
    check(heard(save(frame, tmp_path / "x.csv"))[0], None)


def test_names_pick_the_columns_in_their_order_whatever_else_is_there(tmp_path):
    frame = pd.DataFrame(
        {"owl": LOGITS[:, 2], "x": 0.5, "cat": LOGITS[:, 0], "dog": LOGITS[:, 1], "label": LABELS}
    )
    samples, lines = heard(save(frame, tmp_path / "x.csv"), names=NAMES)
    check(samples, NAMES)
    assert lines[1].endswith("x is not a class and is ignored; its classes are cat, dog, owl")


@pytest.mark.parametrize(
    "titles",
    [
        ["dog", "cat", "fox"],
        ["DOG", "CAT", "OWL"],
        ["logit_dog", "logit_Cat", "logit_owl"],
        ["cat", "OWL", "dog"],
    ],
)
def test_a_title_of_another_class_is_refused_and_not_taken_by_its_place(tmp_path, titles):
    path = save(pd.DataFrame(LOGITS, columns=titles), tmp_path / "x.csv")
    with pytest.raises(LevelheadError, match=r"in the place of class [01]"):
        heard(path, names=NAMES)
    if titles[0] != "cat":
        with pytest.raises(LevelheadError, match=r"x.csv: the column .* in the place of class 0"):
            read_parts(path, 3, NAMES)


@pytest.mark.parametrize("titles", [["CAT", "Dog", "OWL"], ["a", "b", "c"], ["cat", "b", "CAT"]])
def test_titles_that_no_other_class_has_may_be_written_otherwise(tmp_path, titles):
    path = save(pd.DataFrame(LOGITS, columns=titles), tmp_path / "x.csv")
    assert heard(path, names=NAMES)[0].names == NAMES
    assert read_parts(path, 3, NAMES).names == tuple(titles)


def test_the_classes_of_named_counts_pick_the_columns_too(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=NAMES).assign(x=0.5, label=LABELS)
    samples = read(save(frame, tmp_path / "x.csv"), None, "dog=30,owl=10,cat=60")
    assert dict(zip(samples.names, samples.counts.tolist(), strict=True)) == {
        "cat": 60,
        "dog": 30,
        "owl": 10,
    }
    for name, column in zip(samples.names, samples.logits.T, strict=True):
        np.testing.assert_allclose(column, frame[name])
    assert [samples.names[y] for y in samples.labels] == [NAMES[y] for y in LABELS]


def test_classes_called_like_labels_or_ids_stay_classes(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=["x", "y", "index"])
    samples, lines = heard(save(frame, tmp_path / "x.csv"))
    np.testing.assert_allclose(samples.logits, LOGITS)
    assert (samples.labels, lines, samples.names) == (None, [], ["x", "y", "index"])


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([1, 2, 3, 3], "they seem to count from 1: subtract 1"),
        ([-1, 1, 1, -1], "got -1 at position 0"),
        ([0, 1, -100, 2], "leave those samples out"),
    ],
)
def test_a_column_of_labels_that_are_no_classes_is_refused_and_no_class_more(
    tmp_path, labels, reason
):
    frame = pd.DataFrame(LOGITS[:4], columns=NAMES).assign(label=labels)
    with pytest.raises(LevelheadError, match=reason):
        heard(save(frame, tmp_path / "x.csv"))


def test_votes_of_a_class_called_target_stay_votes(tmp_path):
    votes = pd.DataFrame({"cat": [7, 3], "dog": [2, 3], "target": [1, 4]})
    assert heard(save(votes, tmp_path / "x.csv"))[0].logits.shape == (2, 3)


@pytest.mark.parametrize("classes", [None, 2])
def test_one_score_beside_a_label_is_no_table_of_two_classes(tmp_path, classes):
    frame = pd.DataFrame({"score": [0.1, 0.7, 0.4], "label": [0, 1, 0]})
    path = save(frame, tmp_path / "x.csv")
    layout = find_columns(read_table(path), classes=classes)
    assert layout == Layout([0], ["score"], "label")
    with pytest.raises(LevelheadError, match=r"got shape \[3, 1\]; for one score z per sample"):
        read(path, names=["no", "yes"][: classes or 0] or None)
    scores = pd.DataFrame({"n": [0.1, 0.7, 0.4], "y": [0.9, 0.3, 0.6]})
    assert find_columns(read_table(save(scores, path))) == Layout([0, 1], ["n", "y"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_beside_ids_are_found_by_their_title(tmp_path, suffix):
    frame = pd.DataFrame({"id": np.arange(100, 106), "label": LABELS})
    path = save(frame, tmp_path / f"y{suffix}")
    np.save(tmp_path / "z.npy", LOGITS)
    samples = read(tmp_path / "z.npy", path, path)
    np.testing.assert_array_equal(samples.labels, LABELS)
    np.testing.assert_array_equal(samples.counts, [2, 2, 2])


def test_a_label_column_may_be_named(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=NAMES).assign(diagnosis=LABELS)
    path = save(frame, tmp_path / "x.csv")
    check(heard(path, label_column="diagnosis")[0], NAMES)
    with pytest.raises(
        LevelheadError, match="no column 'z'; the file has cat, dog, owl, diagnosis"
    ):
        heard(path, label_column="z")
    with pytest.raises(LevelheadError, match="got both"):
        read(path, path, COUNTS, label_column="diagnosis")
    np.save(tmp_path / "x.npy", LOGITS)
    with pytest.raises(LevelheadError, match=r"label_column: expected logits in a table"):
        heard(tmp_path / "x.npy", label_column="diagnosis")


def test_a_class_with_one_cell_of_text_is_not_taken_for_an_id(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=NAMES).astype(object)
    frame.loc[3, "dog"] = "high"
    with pytest.raises(LevelheadError, match="data row 3 of 'dog' holds 'high'; expected a number"):
        heard(save(frame, tmp_path / "x.csv"))


def test_labels_that_are_no_column_are_listed(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=NAMES).assign(
        label=["cat", "cow", "owl", "elk", "cow", "dog"]
    )
    with pytest.raises(
        LevelheadError, match="unknown labels 'cow', 'elk'; the classes are cat, dog, owl"
    ):
        heard(save(frame, tmp_path / "x.csv"))


def test_empty_cells_of_a_parquet_file_are_refused(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=NAMES).assign(
        label=["cat", None, "owl", "cat", "dog", "owl"]
    )
    with pytest.raises(LevelheadError, match="the column 'label' has 1 empty cells"):
        heard(save(frame, tmp_path / "x.parquet"))


@pytest.mark.parametrize(
    ("title", "texts"),
    [
        ("id", ["12", "007", "3", "44", "51", "a6"]),
        ("hash", ["a1", "007", "c3", "44", "e5", "f6"]),
    ],
)
def test_ids_of_text_may_look_like_numbers(tmp_path, title, texts):
    path = save(pd.DataFrame(LOGITS, columns=NAMES).assign(label=LABELS), tmp_path / "x.csv")
    frame = pd.read_csv(path)
    frame.insert(0, title, texts)
    save(frame, path)
    samples, lines = heard(path)
    check(samples, NAMES)
    assert f"{title} is not a class and is ignored" in lines[1]


def listed_frame(**columns):
    return pd.DataFrame({"logits": LOGITS.tolist(), **columns})


@pytest.mark.parametrize(
    "columns",
    [
        {"label": LABELS},
        {"id": range(6), "text": ["a"] * 6, "label": [NAMES[y] for y in LABELS]},
        {"length": range(6), "embedding": np.eye(6).tolist(), "label": LABELS},
    ],
)
def test_lists_of_logits_have_labels_beside_them(tmp_path, columns):
    path = save(listed_frame(**columns), tmp_path / "x.parquet")
    samples, lines = heard(path, names=NAMES)
    check(samples, NAMES)
    assert lines[0] == f"labels are the column 'label' of {path}"
    if len(columns) > 1:
        assert lines[1].endswith("its classes are the 3 numbers of each list in logits")
    (part,) = read_parts(path, 3, NAMES).parts
    np.testing.assert_allclose(part.scores, LOGITS)
    assert list(part.others) == list(columns)


def test_lists_of_another_title_are_logits_where_nothing_else_could_be(tmp_path):
    frame = listed_frame(id=range(6), label=LABELS).rename(columns={"logits": "output_of_model"})
    check(heard(save(frame, tmp_path / "x.parquet"))[0], None)
    frame["length"] = range(6)
    with pytest.raises(
        LevelheadError, match=r"lists of numbers \(output_of_model\) among 2 columns"
    ):
        heard(save(frame, tmp_path / "y.parquet"))
    frame[["cat", "dog", "owl"]] = LOGITS
    check(heard(save(frame, tmp_path / "z.parquet"), names=NAMES)[0], NAMES)


def test_categories_and_numbers_of_a_parquet_file_are_read_as_pandas_has_them(tmp_path):
    frame = pd.DataFrame({"a": pd.Categorical(["x", "y", "x"]), "b": np.array([1, 2, 3], np.int8)})
    table = read_table(save(frame, tmp_path / "x.parquet"))
    assert [column.tolist() for column in table.columns] == [["x", "y", "x"], [1, 2, 3]]


def test_columns_that_cannot_be_scores_are_ignored_and_said(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=NAMES).assign(label=LABELS)
    beside = {
        "right": [True, False] * 3,
        "meta": [{"page": i} for i in range(6)],
        "time": [datetime.time(i) for i in range(6)],
        "words": [["a"] * i for i in range(6)],
        "tokens": [[7] * i for i in range(6)],
    }
    for title, values in beside.items():
        frame[title] = values
    path = save(frame, tmp_path / "x.parquet")
    samples, lines = heard(path)
    check(samples, NAMES)
    ignored = "right, meta, time, words, tokens are not classes and are ignored"
    assert lines[1] == f"{path}: {ignored}; its classes are cat, dog, owl"
    parts = list(read_parts(path, 3, NAMES).parts)
    copied = {title: values.tolist() for title, values in parts[0].others.items()}
    assert [*copied] == ["label", *beside]
    assert [list(words) for words in copied.pop("words")] == beside["words"]
    assert [list(tokens) for tokens in copied.pop("tokens")] == beside["tokens"]
    assert all(copied[title] == beside[title] for title in ("right", "meta", "time"))


def test_a_missing_number_among_numbered_logits_is_refused(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=["logit_0", "logit_1", "logit_3"]).assign(label=LABELS)
    with pytest.raises(
        LevelheadError, match="a column of logits for each class, got those numbered 0, 1, 3"
    ):
        heard(save(frame, tmp_path / "x.csv"))


def test_named_counts_do_not_name_columns_that_have_no_names(tmp_path):
    path = save(pd.DataFrame(LOGITS), tmp_path / "x.csv")
    with pytest.raises(
        LevelheadError, match="got the class name 'dog', but class names are not known here"
    ):
        read(path, None, "dog=30,owl=10,cat=60")


def test_a_table_without_numbers_has_no_logits(tmp_path):
    (tmp_path / "x.csv").write_text("id,label\na,cat\nb,dog\n")
    with pytest.raises(
        LevelheadError, match=r"x\.csv: no column holds logits; the file has id, label"
    ):
        heard(tmp_path / "x.csv")


def test_a_table_of_shares_with_percent_signs_is_told_what_it_holds(tmp_path):
    (tmp_path / "x.csv").write_text("text,cat,dog\n" + 50 * "long " + ",90.5%,9.5%\na,20%,80%\n")
    with pytest.raises(LevelheadError) as error:
        heard(tmp_path / "x.csv")
    has = "the file has text, cat, dog, and in its first row long long long long…, 90.5%, 9.5%"
    assert str(error.value) == f"{tmp_path / 'x.csv'}: no column holds logits; {has}"


@pytest.mark.parametrize("titles", [["p1", "p2", "x"], ["label", "y", "target"]])
def test_a_table_of_as_many_columns_as_classes_holds_only_logits(titles):
    table = Table(titles, [np.arange(3.0)] * 3)
    assert find_columns(table, classes=3).logits == [0, 1, 2]
    assert find_columns(table, ["cat", "dog", "owl"]) == Layout([0, 1, 2], ["cat", "dog", "owl"])
