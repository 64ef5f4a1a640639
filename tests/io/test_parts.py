"""Scores read and written a part at a time: the same numbers as at once, in every format."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from levelhead import LevelheadError
from levelhead.io.arrays import read
from levelhead.io.parts import read_parts
from levelhead.io.parts_written import WRITERS, write_parts
from levelhead.io.samples_file import read as read_samples

NAMES = ["cat", "dog", "owl"]
SCORES = np.random.default_rng(0).normal(size=(250, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64])
def test_what_is_written_in_parts_is_read_at_once(suffix, dtype):
    values = (100 * SCORES).astype(dtype)
    with write_parts(Path(f"x{suffix}"), key="scores", titles=NAMES) as writer:
        for rows in np.array_split(values, 7):
            writer.write(rows, {})
    whole = read(f"x{suffix}")
    np.testing.assert_array_equal(whole.astype(dtype), values)
    if suffix not in (".csv", ".tsv"):
        assert whole.dtype == dtype


def test_numpy_reads_what_is_written():
    for path in (Path("x.npy"), Path("x.npz")):
        with write_parts(path, key="scores", titles=NAMES) as writer:
            writer.write(SCORES[:3], {})
            writer.write(SCORES[3:], {})
    np.testing.assert_array_equal(np.load("x.npy"), SCORES)
    np.testing.assert_array_equal(np.load("x.npz")["scores"], SCORES)


@pytest.mark.parametrize("suffix", WRITERS)
def test_nothing_appears_if_a_part_fails(suffix):
    def write():
        with write_parts(Path(f"x{suffix}"), key="scores", titles=NAMES) as writer:
            writer.write(SCORES, {})
            raise LevelheadError("the second part is broken")

    with pytest.raises(LevelheadError, match="second part"):
        write()
    assert not list(Path().iterdir())


def test_a_new_file_replaces_none():
    Path("x.npy").write_text("mine")
    with (
        pytest.raises(LevelheadError, match=r"x\.npy exists"),
        write_parts(Path("x.npy"), key="scores", titles=NAMES, new=True) as writer,
    ):
        writer.write(SCORES, {})
    assert Path("x.npy").read_text() == "mine"


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_text_that_pandas_wrote_is_read_in_parts(index, separator):
    pd.DataFrame(SCORES, columns=NAMES).to_csv("x.csv", index=index, sep=separator)
    table = read_parts("x.csv", 3, size=300)
    parts = list(table.parts)
    assert (table.classes, table.names, len(parts)) == (3, tuple(NAMES), 3)
    np.testing.assert_array_equal(
        np.concatenate([part.scores for part in parts]).astype(np.float32), SCORES
    )


def test_text_without_titles_is_read_in_parts():
    np.savetxt("x.csv", SCORES, delimiter=",")
    table = read_parts("x.csv", 3, size=300)
    assert table.names is None
    assert sum(len(part.scores) for part in table.parts) == 250


@pytest.mark.parametrize("title", ["logit_{}", "{}"])
@pytest.mark.parametrize("names", [None, NAMES])
def test_columns_by_number_are_put_in_the_order_of_the_numbers(title, names):
    frame = pd.DataFrame(SCORES[:, ::-1], columns=[title.format(i) for i in (2, 1, 0)])
    frame.to_parquet("x.parquet")
    parts = read_parts("x.parquet", 3, names).parts
    np.testing.assert_array_equal(next(parts).scores, SCORES)
    np.testing.assert_array_equal(read_samples("x.parquet", names=names).logits, SCORES)


def test_names_are_those_of_the_file_in_its_order():
    frame = pd.DataFrame(SCORES, columns=["logit_dog", "logit_cat", "logit_owl"])
    frame.assign(id=range(250), label="cat").to_csv("x.csv", index=False)
    table = read_parts("x.csv", 3, NAMES)
    assert table.names == ("dog", "cat", "owl")
    assert list(next(table.parts).others) == ["id", "label"]


def test_lists_in_a_column_are_rows():
    pd.DataFrame({"logits": SCORES.tolist()}).to_parquet("x.parquet")
    table = read_parts("x.parquet", 3, size=300)
    assert table.classes == 3
    np.testing.assert_allclose(np.concatenate([part.scores for part in table.parts]), SCORES)


def test_lists_beside_the_scores_are_copied():
    embedding = np.arange(500).reshape(250, 2)
    frame = pd.DataFrame({"scores": SCORES.tolist(), "embedding": embedding.tolist()})
    frame.to_parquet("x.parquet")
    with write_parts(Path("y.parquet"), key="scores", titles=NAMES) as file:
        for part in read_parts("x.parquet", 3, size=300).parts:
            file.write(part.scores, part.others)
    copied = pd.read_parquet("y.parquet")
    assert list(copied) == ["embedding", *NAMES]
    assert np.array_equal(np.stack(copied["embedding"].to_numpy()), embedding)
    np.testing.assert_allclose(copied[NAMES], SCORES)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1,2,3"] * 150 + ["1,2"], "x.csv: data row 150 has 2 values, but those before it have 3"),
        (["1,2,3"] * 150 + ["1,2,"], "has an empty cell; expected a number"),
        (["1,2,3"] * 150 + ["1,2,high"], "holds 'high'; expected a number"),
        (["0.5,2"] * 150, "x.csv: expected 3 columns of scores, got 2"),
    ],
)
def test_a_wrong_row_is_told_wherever_it_is(rows, message):
    Path("x.csv").write_text("\n".join(["cat,dog,owl"[: 3 * len(rows[0].split(",")) + 1], *rows]))
    with pytest.raises(LevelheadError) as error:
        list(read_parts("x.csv", 3, size=300).parts)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"caf\xe9,1\n", "not valid UTF-8"),
        (b"cat,dog,owl\n", "titles but no data"),
    ],
)
def test_a_file_that_is_no_table_is_told_so(content, message):
    Path("x.csv").write_bytes(content)
    with pytest.raises(LevelheadError, match=message):
        list(read_parts("x.csv", 3).parts)


def test_two_columns_of_one_title_are_refused():
    with (
        pytest.raises(LevelheadError, match="two columns would be called 'cat'"),
        write_parts(Path("x.csv"), key="scores", titles=NAMES) as writer,
    ):
        writer.write(SCORES, {"cat": np.arange(250)})


def test_text_round_trips_with_commas_and_quotes():
    titles = ['big, "cat"', "dog\n", "owl"]
    with write_parts(Path("x.csv"), key="scores", titles=titles) as writer:
        writer.write(SCORES, {})
    frame = pd.read_csv(io.StringIO(Path("x.csv").read_text()))
    assert list(frame) == titles
