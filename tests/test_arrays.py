"""Arrays from files: every format gives what was written, and what is wrong is said in one line."""

from __future__ import annotations

import csv
import re
import struct
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from levelhead.arrays import FORMATS, read, titles

LOGITS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def write(path, values):
    """`values` in the format of the path's suffix, by another library than the one that reads it."""
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, logits=values, labels=np.arange(len(values)))
    elif path.suffix == ".safetensors":
        save_file({"logits": values, "labels": np.arange(len(values))}, path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["cat", "dog", "owl"], *values.tolist()])
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(dict(zip(["cat", "dog", "owl"], values.T, strict=True))), path)
    return path


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_back_what_was_written(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}", LOGITS)
    np.testing.assert_array_equal(np.asarray(read(path), np.float32), LOGITS)
    assert titles(path) == (["cat", "dog", "owl"] if suffix in (".csv", ".parquet") else None)


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_large_files_are_mapped_not_read(tmp_path, suffix):
    assert isinstance(read(write(tmp_path / f"x{suffix}", LOGITS)), np.memmap)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_one_array_of_several_is_named_with_a_colon(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}", LOGITS)
    np.testing.assert_array_equal(read(f"{path}:labels"), np.arange(7))
    np.testing.assert_array_equal(read(path, wanted="labels"), np.arange(7))
    with pytest.raises(ValueError, match=r"no array 'scores'; it has (logits, labels|labels, logits)"):
        read(f"{path}:scores")
    with pytest.raises(ValueError, match=f"name it: x{suffix}:KEY"):
        read(path, wanted="norms")


def test_columns_of_a_table_are_named_with_a_colon(tmp_path):
    path = write(tmp_path / "x.csv", LOGITS)
    np.testing.assert_allclose(read(f"{path}:dog"), LOGITS[:, 1])
    with pytest.raises(ValueError, match="no column 'cow'; it has cat, dog, owl"):
        read(f"{path}:cow")


def test_bfloat16_is_widened(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    values = torch.tensor(LOGITS).bfloat16()
    save_torch({"logits": values}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(read(tmp_path / "x.safetensors"), values.float().numpy())


@pytest.mark.parametrize(("text", "expected"), [
    ("0\n2\n1\n", [0, 2, 1]),
    ("labels\n0\n2\n", [0, 2]),
    ("label\n0\n2\n", [0, 2]),
    ("cat\ndog\n", ["cat", "dog"]),
    ("labels\ncat\ndog\n", ["cat", "dog"]),
])
def test_a_column_of_labels_may_be_numbers_or_names_with_a_title_or_without(tmp_path, text, expected):
    (tmp_path / "y.csv").write_text(text)
    assert read(tmp_path / "y.csv", wanted="labels").tolist() == expected


def test_the_mark_of_a_spreadsheet_is_no_part_of_the_first_title(tmp_path):
    (tmp_path / "x.csv").write_text("cat,dog\n1,2\n", encoding="utf-8-sig")
    assert titles(tmp_path / "x.csv") == ["cat", "dog"]
    (tmp_path / "y.csv").write_text("0\n1\n", encoding="utf-8-sig")
    assert read(tmp_path / "y.csv", wanted="labels").tolist() == [0, 1]


def test_a_column_of_lists_is_a_matrix(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"logits": LOGITS.tolist()}), tmp_path / "x.parquet")
    np.testing.assert_allclose(read(tmp_path / "x.parquet"), LOGITS)


def _pickled(path):
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def _under_another_name(path, save):
    with path.open("wb") as file:
        save(file, LOGITS)


def _truncated(path):
    np.save(path, LOGITS)
    path.write_bytes(path.read_bytes()[:-20])


def _text_in_a_zip(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("logits", "text")


def _claiming(path, shape, said=None):
    """An .npz whose array has a header of that shape and no numbers; its list of members may say how many bytes."""
    with zipfile.ZipFile(path, "w") as file:
        with file.open("logits.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": shape})
        if said is not None:
            file.filelist[0].file_size = said


@pytest.mark.parametrize(("name", "make", "message"), [
    ("x.pkl", lambda path: path.write_bytes(b"x"), "as .npy, .npz, .safetensors, .csv, .parquet, got .pkl"),
    ("x.npy", lambda path: None, "no such file; expected logits"),
    ("x.npy", lambda path: path.write_bytes(b""), "not a file of logits"),
    ("x.npy", _pickled, "not a file of logits"),
    ("x.npy", _truncated, "not a file of logits"),
    ("x.npz", lambda path: path.write_bytes(b"PK broken"), "not a file of logits"),
    ("x.npz", lambda path: _under_another_name(path, np.save), "not a file of logits (it is an .npy; call it so)"),
    ("x.npy", lambda path: _under_another_name(path, np.savez), "not a file of logits (it is an .npz; call it so)"),
    ("x.npz", lambda path: _claiming(path, (10**12, 10)),
     "not a file of logits ('logits' is [1000000000000, 10] of float64, 80000000000128 bytes, and has 128)"),
    ("x.npz", lambda path: _claiming(path, (10**13, 10), said=10**15), "too large for the memory of this machine"),
    ("x.npz", _text_in_a_zip, "not a file of logits"),
    ("x.safetensors", lambda path: path.write_bytes(struct.pack("<Q", 99) + b"{}"), "not a whole safetensors file"),
    ("x.csv", lambda path: path.write_text(""), "it is empty"),
    ("x.csv", lambda path: path.write_text("a,b\n"), "titles and no data"),
    ("x.csv", lambda path: path.write_text("1,2\n3\n"), "data row 1 has 1 values, the first has 2"),
    ("x.csv", lambda path: path.write_text("1,2\n3,high\n"), "data row 1 holds 'high'; expected a number"),
    ("x.parquet", lambda path: path.write_bytes(b"nothing"), "not a file of logits"),
])
def test_what_is_wrong_is_said_in_one_line_that_names_the_file(tmp_path, name, make, message):
    make(tmp_path / name)
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message)) as caught:
        read(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
