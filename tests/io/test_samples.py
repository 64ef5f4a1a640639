"""Logits, labels and counts, from one file or from several."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from levelhead.io.samples_file import describe_sources, read

COUNTS = np.array([100, 30, 9])
LABELS = np.array([0, 1, 2, 0])
NAMES = ["cat", "dog", "owl"]
LOGITS = np.random.default_rng(0).normal(size=(4, 3))


@pytest.fixture(params=["npz", "safetensors"])
def everything(request, tmp_path, monkeypatch):
    """A file of logits, labels and counts."""
    monkeypatch.chdir(tmp_path)
    arrays = {"logits": LOGITS, "labels": LABELS, "counts": COUNTS}
    if request.param == "npz":
        np.savez("all.npz", **arrays)
    else:
        save_file(arrays, "all.safetensors")
    return f"all.{request.param}"


def heard(*files):
    lines = []
    return read(*files, say=lines.append), lines


def test_arrays_next_to_the_logits_are_used_and_reported(everything):
    samples, lines = heard(everything)
    np.testing.assert_array_equal(samples.labels, LABELS)
    np.testing.assert_array_equal(samples.counts, COUNTS)
    assert lines == [
        f"labels and counts are those in {everything}; to leave them out, name the logits alone: {everything}:logits"
    ]
    assert {what: str(file) for what, file in samples.files.items()} == {
        "logits": everything,
        "labels": f"{everything}:labels",
        "counts": f"{everything}:counts",
    }


def test_the_names_of_the_files_lead_back_to_the_same_arrays_silently(everything):
    first, _ = heard(everything)
    again, lines = heard(*(first.files[what] for what in ("logits", "labels", "counts")))
    assert lines == []
    for what in ("logits", "labels", "counts"):
        np.testing.assert_array_equal(getattr(again, what), getattr(first, what))


def test_an_array_named_by_its_key_stands_alone(everything):
    alone = read(f"{everything}:logits")
    assert (alone.labels, alone.counts) == (None, None)
    samples, lines = heard(f"{everything}:logits", None, f"{everything}:counts")
    assert (samples.labels, lines) == (None, [])


def test_equal_arrays_given_twice_are_accepted(everything):
    np.save("y.npy", LABELS.astype(np.int32))
    Path("c.json").write_text(json.dumps({"2": 9, "0": 100, "1": 30}))
    samples, lines = heard(everything, "y.npy", "c.json")
    assert lines == []
    assert (samples.files["labels"], samples.files["counts"]) == ("y.npy", "c.json")


@pytest.mark.parametrize(
    ("what", "given"), [("labels", LABELS[::-1]), ("labels", LABELS[:2]), ("counts", [100, 30, 10])]
)
def test_arrays_that_differ_are_named_with_both_files(everything, what, given):
    np.save("other.npy", given)
    files = {"labels": None, "counts": None} | {what: "other.npy"}
    says = (
        f"{everything}: holds {what} too, and other.npy differs from them; leave out other.npy, or name the logits "
        f"alone: {everything}:logits"
    )
    with pytest.raises(ValueError, match=re.escape(says)):
        read(everything, files["labels"], files["counts"])


def test_unusable_counts_differ_from_those_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", logits=LOGITS, counts=[3, 0, 1])
    np.save("c.npy", COUNTS)
    with pytest.raises(ValueError, match=r"all\.npz: holds counts too, and c\.npy differs"):
        read("all.npz", None, "c.npy")


def test_a_file_of_one_array_has_nothing_next_to_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("one.npz", labels=LOGITS)
    np.save("c.npy", COUNTS)
    assert heard("one.npz", None, "c.npy")[1] == []


@pytest.mark.parametrize("names", [["a", "b"], []])
def test_labels_that_are_names_need_column_titles(tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", logits=LOGITS, labels=np.array(names, dtype=str), counts=COUNTS)
    with pytest.raises(ValueError, match=r"all\.npz:labels: (labels are names|expected a label)"):
        read("all.npz")


def test_labels_by_name_need_distinct_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", [[1.0, 2.0, 3.0]])
    Path("y.csv").write_text("cat\n")
    np.save("c.npy", COUNTS)
    with pytest.raises(
        ValueError, match=r"y\.csv: labels are names, but two classes are called 'cat'"
    ):
        read("x.npy", "y.csv", "c.npy", names=["cat", "dog", "cat"])


def test_logits_without_samples_are_refused_by_the_name_of_their_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", LOGITS[:0])
    np.save("c.npy", COUNTS)
    with pytest.raises(
        ValueError, match=r"x\.npy: expected logits \[N, K\] .*, got shape \[0, 3\]"
    ):
        read("x.npy", None, "c.npy")


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Logits with the names of their classes, without, and counts."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(LOGITS).to_csv("x.csv", index=False)
    pd.DataFrame(LOGITS, columns=NAMES).to_csv("named.csv", index=False)
    np.save("c.npy", COUNTS)


@pytest.mark.parametrize("index", [False, True])
def test_what_pandas_writes_is_what_is_read(saved, index):
    pd.DataFrame(LOGITS).to_csv("x.csv", index=index)
    pd.Series(LABELS).to_csv("y.csv", index=index)
    pd.Series(COUNTS).to_csv("c.csv")
    samples, lines = heard("x.csv", "y.csv", "c.csv")
    np.testing.assert_array_equal(samples.logits, LOGITS)
    np.testing.assert_array_equal(samples.labels, LABELS)
    np.testing.assert_array_equal(samples.counts, COUNTS)
    assert lines == (
        []
        if index
        else ["y.csv: the first line, 0, is read as a title, because x.csv has one row less (4)"]
    )


def test_a_first_label_of_0_is_a_label_where_there_is_a_row_for_it(saved):
    Path("y.csv").write_text("0\n1\n2\n0\n")
    samples, lines = heard("x.csv", "y.csv", "c.npy")
    np.testing.assert_array_equal(samples.labels, LABELS)
    assert lines == []


@pytest.mark.parametrize(
    "labels", ["1\n0\n1\n2\n0\n", "labels\n0\n0\n1\n2\n0\n", "y\n0\n0\n1\n2\n0\n"]
)
def test_a_label_too_many_that_cannot_be_a_title_is_refused(saved, labels):
    Path("y.csv").write_text(labels)
    with pytest.raises(
        ValueError, match=r"y\.csv: expected 4 labels, one per row of x\.csv, got 5"
    ):
        read("x.csv", "y.csv", "c.npy")


@pytest.mark.parametrize("title", ["label", "labels", "target", "0"])
def test_a_title_over_labels_that_are_names_is_not_a_label(saved, title):
    pd.Series([NAMES[y] for y in LABELS], name=title).to_csv("y.csv", index=False)
    np.testing.assert_array_equal(read("named.csv", "y.csv", "c.npy").labels, LABELS)


def test_a_misspelled_first_label_is_not_a_title(saved):
    Path("y.csv").write_text("Cat\ndog\nowl\ncat\n")
    with pytest.raises(
        ValueError, match=r"y\.csv: unknown labels 'Cat'; the classes are cat, dog, owl"
    ):
        read("named.csv", "y.csv", "c.npy")


def test_counts_for_fewer_classes_than_columns_name_both_files(saved):
    pd.DataFrame(np.c_[LOGITS, LOGITS[:, :1]]).to_csv("wide.csv", index=False)
    with pytest.raises(
        ValueError, match=r"c\.npy: expected 4 counts, .* got 3; wide\.csv has 4 columns$"
    ):
        read("wide.csv", None, "c.npy")
    pd.DataFrame(LOGITS).to_csv("wide.csv", header=False)
    with pytest.raises(
        ValueError, match=r"4 columns, of which the first is 0, 1, 2, \.\.\.: is it an index\?$"
    ):
        read("wide.csv", None, "c.npy")


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_one_score_per_sample_is_refused_with_the_pair_to_give_instead(saved, shape):
    np.save("z.npy", LOGITS[:, 0].reshape(shape))
    with pytest.raises(
        ValueError,
        match=r"z\.npy: .*; for one score z per sample, stack \(0, z\), of a probability p \(1 - p, p\), and use "
        r"a rule that adds, such as offsets$",
    ):
        read("z.npy", None, "c.npy")


def test_counts_may_be_unknown(saved):
    np.save("y.npy", LABELS)
    samples = read("named.csv", "y.npy")
    assert samples.counts is None
    assert (samples.classes, samples.names) == (3, NAMES)
    assert samples.files == {"logits": "named.csv", "labels": "y.npy"}


def test_sources_are_files_with_their_sha256(saved):
    sources = describe_sources({"logits": "x.csv", "counts": "c.npy", "norms": None})
    assert sources["files"] == {"logits": "x.csv", "counts": "c.npy"}
    digest = hashlib.sha256(Path("x.csv").read_bytes()).hexdigest()
    assert sources["sha256"]["logits"] == digest
    assert sources["sha256"].keys() == sources["files"].keys()
