"""Arrays from files: every format gives what was written, and errors are one line that names the file."""

from __future__ import annotations

import csv
import json
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from levelhead import LevelheadError
from levelhead.io import numpy_file
from levelhead.io.array_formats import FORMATS
from levelhead.io.arrays import read
from levelhead.io.table import TABLE_SUFFIXES
from levelhead.io.table_columns import find_columns
from levelhead.io.table_file import read_table

LOGITS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def column_titles(path):
    return find_columns(read_table(path)).names if path.suffix in TABLE_SUFFIXES else None


def write(path, values):
    """`values` in the format of the path's suffix, by another library than the one that reads it."""
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, logits=values, labels=np.arange(len(values)))
    elif path.suffix == ".safetensors":
        save_file({"logits": values, "labels": np.arange(len(values))}, path)
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="") as file:
            separator = "\t" if path.suffix == ".tsv" else ","
            csv.writer(file, delimiter=separator).writerows(
                [["cat", "dog", "owl"], *values.tolist()]
            )
    elif path.suffix in (".pt", ".pth"):
        torch = pytest.importorskip("torch")
        torch.save({"logits": torch.tensor(values), "labels": torch.arange(len(values))}, path)
    elif path.suffix == ".txt":
        np.savetxt(path, values)
    elif path.suffix == ".json":
        path.write_text(json.dumps(values.tolist()))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(
            pyarrow.table(dict(zip(["cat", "dog", "owl"], values.T, strict=True))), path
        )
    return path


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_back_what_was_written(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}", LOGITS)
    np.testing.assert_array_equal(np.asarray(read(path), np.float32), LOGITS)
    assert column_titles(path) == (["cat", "dog", "owl"] if suffix in TABLE_SUFFIXES else None)


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_large_files_are_mapped_not_read(tmp_path, suffix, monkeypatch):
    path = write(tmp_path / f"x{suffix}", LOGITS)
    assert not isinstance(read(path), np.memmap)
    monkeypatch.setattr(numpy_file, "LARGEST_READ", LOGITS.nbytes - 1)
    assert isinstance(read(path), np.memmap)
    np.testing.assert_array_equal(read(path), LOGITS)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_one_array_of_several_is_named_with_a_colon(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}", LOGITS)
    np.testing.assert_array_equal(read(f"{path}:labels"), np.arange(7))
    np.testing.assert_array_equal(read(path, wanted="labels"), np.arange(7))
    with pytest.raises(
        ValueError, match=r"no array 'scores'; the file has (logits, labels|labels, logits)"
    ):
        read(f"{path}:scores")
    with pytest.raises(ValueError, match=f"name it: x{suffix}:KEY"):
        read(path, wanted="norms")


def test_columns_of_a_table_are_named_with_a_colon(tmp_path):
    path = write(tmp_path / "x.csv", LOGITS)
    np.testing.assert_allclose(read(f"{path}:dog"), LOGITS[:, 1])
    with pytest.raises(ValueError, match="no column 'cow'; the file has cat, dog, owl"):
        read(f"{path}:cow")


def test_bfloat16_is_widened(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    values = torch.tensor(LOGITS).bfloat16()
    save_torch({"logits": values}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(read(tmp_path / "x.safetensors"), values.float().numpy())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0\n2\n1\n", [0, 2, 1]),
        ("labels\n0\n2\n", [0, 2]),
        ("label\n0\n2\n", [0, 2]),
        ("cat\ndog\n", ["cat", "dog"]),
        ("labels\ncat\ndog\n", ["cat", "dog"]),
    ],
)
def test_a_column_of_labels_may_be_numbers_or_names_with_a_title_or_without(
    tmp_path, text, expected
):
    (tmp_path / "y.csv").write_text(text)
    assert read(tmp_path / "y.csv", wanted="labels").tolist() == expected


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_numbers_that_pandas_wrote_as_titles_are_not_a_sample(tmp_path, index, separator):
    path = tmp_path / "x.csv"
    pd.DataFrame(LOGITS).to_csv(path, index=index, sep=separator)
    np.testing.assert_array_equal(read(path).astype(np.float32), LOGITS)
    assert column_titles(path) is None
    np.testing.assert_array_equal(read(f"{path}:2").astype(np.float32), LOGITS[:, 2])


def test_a_first_sample_of_whole_numbers_is_a_sample(tmp_path):
    (tmp_path / "x.csv").write_text("1,0,2\n0.5,1,2\n")
    assert read(tmp_path / "x.csv").tolist() == [[1, 0, 2], [0.5, 1, 2]]


def test_the_title_0_over_one_column_of_fractions_is_not_a_value(tmp_path):
    pd.Series([1.5, 2.0]).to_csv(tmp_path / "norms.csv", index=False)
    assert read(tmp_path / "norms.csv", wanted="norms").tolist() == [1.5, 2.0]


def test_an_index_that_pandas_wrote_is_not_a_class(tmp_path):
    pd.DataFrame(LOGITS, columns=["cat", "dog", "owl"]).to_csv(tmp_path / "x.csv")
    np.testing.assert_array_equal(read(tmp_path / "x.csv").astype(np.float32), LOGITS)
    assert column_titles(tmp_path / "x.csv") == ["cat", "dog", "owl"]
    pd.Series([2, 0, 1]).to_csv(tmp_path / "y.csv")
    assert read(tmp_path / "y.csv", wanted="labels").tolist() == [2, 0, 1]


def test_numbers_with_blanks_between_them_are_a_row(tmp_path):
    np.savetxt(tmp_path / "x.csv", LOGITS)
    np.testing.assert_array_equal(read(tmp_path / "x.csv").astype(np.float32), LOGITS)


def test_names_may_contain_other_separators(tmp_path):
    (tmp_path / "x.csv").write_text('"cat; big","dog"\n0.5,1.5\n')
    assert column_titles(tmp_path / "x.csv") == ["cat; big", "dog"]
    (tmp_path / "y.csv").write_text("sea lion\nred panda\n")
    assert read(tmp_path / "y.csv", wanted="labels").tolist() == ["sea lion", "red panda"]


def test_a_byte_order_mark_is_not_part_of_the_first_title(tmp_path):
    (tmp_path / "x.csv").write_text("cat,dog\n1,2\n", encoding="utf-8-sig")
    assert column_titles(tmp_path / "x.csv") == ["cat", "dog"]
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
            np.lib.format.write_array_header_1_0(
                member, {"descr": "<f8", "fortran_order": False, "shape": shape}
            )
        if said is not None:
            file.filelist[0].file_size = said


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        (
            "x.pkl",
            lambda path: path.write_bytes(b"x"),
            ".npz, .safetensors, .csv, .tsv, .parquet, .pt, .pth, .txt, .json, got .pkl",
        ),
        ("x.npy", lambda path: None, "no such file; expected logits"),
        ("x.npy", lambda path: path.write_bytes(b""), "the file is empty"),
        ("x.npy", _pickled, "the file holds Python objects"),
        ("x.npy", _truncated, "cut short: x.npy, float32 [7, 3], needs 212 bytes, got 192"),
        (
            "x.npz",
            lambda path: path.write_bytes(b"PK broken"),
            "a damaged .npz file (File is not a zip file)",
        ),
        (
            "x.npz",
            lambda path: _under_another_name(path, np.save),
            "this is an .npy file; rename it to end in .npy",
        ),
        (
            "x.npy",
            lambda path: _under_another_name(path, np.savez),
            "this is an .npz file; rename it to end in .npz",
        ),
        (
            "x.npz",
            lambda path: _claiming(path, (10**12, 10)),
            "cut short: 'logits', float64 [1000000000000, 10], needs 80000000000128 bytes, got 128",
        ),
        (
            "x.npz",
            lambda path: _claiming(path, (10**13, 10), said=10**15),
            "128 compressed bytes claim to hold 1000000000000000, which is refused; save them uncompressed",
        ),
        ("x.npz", _text_in_a_zip, "'logits' is not an array of numpy"),
        (
            "x.safetensors",
            lambda path: path.write_bytes(struct.pack("<Q", 99) + b"{}"),
            "cut short, or not a safetensors file",
        ),
        ("x.csv", lambda path: path.write_text(""), "the file is empty"),
        ("x.csv", lambda path: path.write_text("a,b\n"), "titles but no data"),
        (
            "x.csv",
            lambda path: path.write_text("1,2\n3\n"),
            "data row 1 has 1 values, but the first has 2",
        ),
        (
            "x.csv",
            lambda path: path.write_text("1,2\n3,high\n"),
            "data row 1 holds 'high'; expected a number",
        ),
        (
            "x.csv",
            lambda path: path.write_text("0,1\n1,0\n"),
            "the first row, 0,1, may be titles or a sample",
        ),
        (
            "x.csv",
            lambda path: path.write_text("3,5\n0.5,1.5\n"),
            "the first row, 3,5, may be titles or a sample",
        ),
        (
            "x.csv",
            lambda path: path.write_text("a,b\n1,2,3\n"),
            "data row 0 has 3 values, but there are 2 titles",
        ),
        (
            "x.csv",
            lambda path: path.write_text("1,2\n3,\n"),
            "data row 1 has an empty cell; expected a number",
        ),
        (
            "x.csv",
            lambda path: path.write_text("a;b\n0,5;1,5\n"),
            "data row 0 holds '0,5'; save decimals with a point",
        ),
        (
            "x.csv",
            lambda path: path.write_text("0,5;1,5\n2,5;3\n"),
            "data row 0 holds '0,5'; save decimals with a point",
        ),
        (
            "x.csv",
            lambda path: path.write_text('"0,5"\n"1,5"\n'),
            "data row 0 holds '0,5'; save decimals with a point",
        ),
        (
            "x.csv",
            lambda path: pd.DataFrame(LOGITS, index=[3, 1, 5, 0, 2, 4, 6]).to_csv(path),
            "first column has no title and is not 0, 1, 2, ...; if it is an index, save the table without it "
            "(index=False in "
            "pandas)",
        ),
        (
            "x.csv",
            lambda path: path.write_text("name,0,1\n2,0.5,1.5\n"),
            "x.csv: the first row holds 'name' next to numbers; expected only names or only numbers",
        ),
        (
            "x.csv",
            lambda path: path.write_text("a" * 200_000),
            "x.csv: field larger than field limit",
        ),
        ("x.parquet", lambda path: path.write_bytes(b"nothing"), "not a sound .parquet file"),
    ],
)
def test_an_unreadable_file_is_named_with_what_is_wrong(tmp_path, name, make, message):
    make(tmp_path / name)
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message)) as caught:
        read(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '9\n""\n3\n',
            "data row 1 is empty; give its label, or leave that sample out of the logits too",
        ),
        ("9\n\n3\n", "data row 1 is empty; give its label"),
        ('label\n9\n""\n', "data row 1 is empty; give its label"),
        ("cat\n\ndog\n", "data row 1 is empty; give its label"),
        (
            "id,name\n7,cat\n",
            "expected one column of labels, got 2 (id, name); name it: y.csv:TITLE",
        ),
        (
            "0,3\n1,2\n",
            "expected one column of labels, got 2; save it alone (index=False in pandas)",
        ),
    ],
)
def test_wrong_labels_are_described_as_labels(tmp_path, text, message):
    (tmp_path / "y.csv").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path / "y.csv", wanted="labels")


def _tensor(dtype="F32", shape=(1, 2), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("entries", "data"),
    [
        ({"x": _tensor(offsets=(8, 16))}, 16),
        ({"x": _tensor(), "y": _tensor(offsets=(4, 12))}, 12),
        ({"x": _tensor(), "y": _tensor(offsets=(12, 20))}, 20),
        ({"x": _tensor()}, 4),
        ({"x": _tensor()}, 12),
        ({"x": _tensor(offsets=(8, 0))}, 8),
        ({"x": _tensor(), "y": _tensor("X9", offsets=(8, 0))}, 8),
        ({"x": _tensor(offsets=(-8, 0))}, 8),
        ({"x": _tensor(offsets=(False, 8))}, 8),
        ({"x": _tensor(shape=(True, 2))}, 8),
        ({"x": _tensor(shape=(1, 3))}, 8),
        ({"x": _tensor(shape=(2**62, 4), offsets=(0, 0))}, 0),
        ({"x": _tensor(), "y": _tensor(shape=(2**70, 0), offsets=(8, 8))}, 8),
        ({"x": _tensor(), "y": _tensor("X9", (2,), (8, 16))}, 16),
        ({"x": _tensor(), "y": _tensor(3, (2,), (8, 16))}, 16),
        ({"x": _tensor(), "y": _tensor("F8_E4M3", (4,), (8, 10))}, 10),
        ({"x": _tensor(), "y": _tensor("F4", (3,), (8, 10))}, 10),
        ({"x": _tensor(), "__metadata__": []}, 8),
        ({"x": _tensor(), "__metadata__": {"n": 1}}, 8),
    ],
    ids=[
        "late",
        "overlap",
        "hole",
        "cut short",
        "bytes left over",
        "backwards",
        "backwards and unknown",
        "negative",
        "boolean offset",
        "boolean shape",
        "too few bytes",
        "overflow",
        "beyond 64 bits",
        "unknown dtype",
        "number as dtype",
        "8 bits",
        "half a byte",
        "list as metadata",
        "number in metadata",
    ],
)
def test_a_safetensors_file_that_its_library_refuses_is_refused_in_one_line(
    tmp_path, entries, data
):
    text, path = json.dumps(entries).encode(), tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    with pytest.raises(SafetensorError), safe_open(str(path), framework="numpy"):
        pass
    with pytest.raises(LevelheadError) as caught:
        read(f"{path}:x")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "size"), [("F4", 4), ("F6_E2M3", 6), ("F8_E4M3", 8), ("BOOL", 8), ("C64", 64)]
)
def test_a_tensor_of_a_dtype_that_numpy_lacks_may_stand_next_to_the_one_read(tmp_path, dtype, size):
    entries = {"x": _tensor(), "y": _tensor(dtype, (8,), (8, 8 + size))}
    text, path = json.dumps(entries).encode(), tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8 + size))
    with safe_open(str(path), framework="numpy") as file:
        assert sorted(file.keys()) == ["x", "y"]
    np.testing.assert_array_equal(read(f"{path}:x"), [[0, 0]])


NAMES = """
import sys
from pathlib import Path
from levelhead.io.arrays import array_next_to, read
def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
values = read(sys.argv[1], wanted="logits")
before = peak()
print(array_next_to(sys.argv[1], "labels"))
assert peak() - before < values.nbytes / 4, (peak() - before, values.nbytes)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_what_else_a_torch_file_holds_is_told_without_reading_it_again(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(
        {"logits": torch.ones(1 << 21, 8), "labels": torch.zeros(1 << 21)}, tmp_path / "a.pt"
    )
    command = [sys.executable, "-c", NAMES, tmp_path / "a.pt"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"{tmp_path}/a.pt:labels\n"), ended.stderr
