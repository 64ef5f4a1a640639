"""Inputs that are damaged, hostile, endless or changing: one line each, and nothing is run."""

import json
import os
import pickle
import random
import subprocess
import sys
import time
import tracemalloc
import zipfile
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bench.trust import fuzz_data
from levelhead import LevelheadError
from levelhead.core.counts import resolve
from levelhead.core.tuned import read_tuned
from levelhead.io import arrays, numpy_file, table_parquet
from levelhead.io.arrays import read_counts, read_names
from levelhead.io.pickle_check import check_pickle
from levelhead.io.samples_file import read
from levelhead.io.table_file import table_parts
from levelhead.support import text

LOGITS = np.random.default_rng(0).normal(size=(6, 3))


def test_damaged_files_are_read_or_refused_in_one_line():
    summary = fuzz_data.run(executions=1500, seed=3)
    assert summary["wrong"] == {}
    assert summary["documented errors"] > 300
    assert summary["read"] > 150


def test_an_entry_of_a_safetensors_header_may_be_a_list_as_its_library_reads_it(tmp_path):
    path = tmp_path / "x.safetensors"
    values = LOGITS.astype(np.float32)
    header = json.dumps({"logits": ["F32", [6, 3], [0, 72]]}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    np.testing.assert_array_equal(load_file(path)["logits"], values)
    np.testing.assert_array_equal(arrays.read(path), values)


@pytest.mark.parametrize("titled", [False, True])
def test_a_row_of_millions_of_cells_is_refused_at_once(tmp_path, titled):
    cells = 2_000_000
    titles = ",".join(f"c{i}" for i in range(cells)) if titled else ",".join(["1.5"] * cells)
    (tmp_path / "x.csv").write_text(titles + "\n" + ",".join(["1.5"] * cells) + "\n")
    for reader in (arrays.read, read, read_counts, lambda path: next(table_parts(path, 100))):
        began = time.process_time()
        with pytest.raises(LevelheadError, match=r"a row of 2000000 cells; .* save it as \.npy"):
            reader(tmp_path / "x.csv")
        assert time.process_time() - began < 2  # it was 20 s


def write_two_line_dtype(path):
    """Write a safetensors file whose header calls a kind of number by two lines."""
    header = json.dumps(
        {"logits": {"dtype": "F\n32", "shape": [1], "data_offsets": [0, 4]}}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


def test_what_a_header_calls_a_kind_of_number_breaks_no_line(tmp_path):
    write_two_line_dtype(tmp_path / "x.safetensors")
    with pytest.raises(LevelheadError, match=r"x\.safetensors: .*`F\\n32`[^\n]*$"):
        arrays.read(tmp_path / "x.safetensors")


@pytest.mark.parametrize("reader", [read_counts, read_names, read_tuned, arrays.read])
def test_json_nested_ever_deeper_is_refused(tmp_path, reader):
    for content in ("[" * 100_000, "[" * 900 + "]" * 900, '{"a":' * 100_000):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(LevelheadError, match=r"x\.json.*nested more than 100 levels deep"):
            reader(tmp_path / "x.json")


def test_json_at_the_deepest_level_is_read_and_one_deeper_is_not():
    assert text.parse_json("[" * 100 + "]" * 100)
    with pytest.raises(LevelheadError, match="100 levels"):
        text.parse_json("[" * 101 + "]" * 101)


@pytest.mark.parametrize("suffix", list(arrays.FORMATS))
@pytest.mark.parametrize("reader", [arrays.read, read_counts, read_names])
def test_pipes_folders_and_devices_are_refused_before_they_are_opened(tmp_path, suffix, reader):
    pipe, folder, link = (tmp_path / f"{name}{suffix}" for name in ("pipe", "folder", "link"))
    os.mkfifo(pipe)
    folder.mkdir()
    link.symlink_to("/dev/zero")
    for path, kind, error in (
        (pipe, "a pipe", LevelheadError),
        (folder, "a folder", OSError),
        (link, "a device", ValueError),
    ):
        with pytest.raises(error, match=kind):
            reader(path)


def test_pipes_are_refused_as_choice_and_samples(tmp_path):
    for name in ("t.json", "x.npz", "x.csv"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(LevelheadError, match="a pipe"):
        read_tuned(tmp_path / "t.json")
    for name in ("x.npz", "x.csv"):
        with pytest.raises(LevelheadError, match="a pipe"):
            read(tmp_path / name, None, "9,5,2")


def test_a_compressed_bomb_is_refused_by_its_size_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(
        numpy_file, "LARGEST_EXPANSION", 1 << 20
    )  # of 1 << 30: the test would take 20 seconds
    np.savez_compressed(tmp_path / "x.npz", logits=np.zeros((1 << 20, 2), np.int8))
    with pytest.raises(
        LevelheadError,
        match=r"x\.npz: \d+ compressed bytes claim to hold 2097280, which is refused",
    ):
        arrays.read(tmp_path / "x.npz")
    np.savez_compressed(
        tmp_path / "y.npz", logits=np.random.default_rng(0).normal(size=(1 << 17, 2))
    )
    assert arrays.read(tmp_path / "y.npz").shape == (1 << 17, 2)


def test_a_torch_file_of_deflated_records_is_refused_by_its_size(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.zeros(3 << 20, 2), tmp_path / "x.pt")
    with (
        zipfile.ZipFile(tmp_path / "x.pt") as old,
        zipfile.ZipFile(tmp_path / "y.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    assert arrays.read(tmp_path / "x.pt").shape == (3 << 20, 2)
    with pytest.raises(
        LevelheadError,
        match=r"y\.pt: \d+ compressed bytes claim to hold 25165824, which is refused",
    ):
        arrays.read(tmp_path / "y.pt")


def test_well_compressed_arrays_of_a_usual_size_are_read(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", labels=np.zeros(1_000_000, np.int64))
    assert arrays.read(tmp_path / "x.npz", wanted="labels").sum() == 0


class Runs:
    def __reduce__(self):
        return os.mkdir, ("it-ran",)


def test_a_pickle_of_tuples_in_tuples_is_refused():
    with pytest.raises(LevelheadError, match="too deep"):
        check_pickle(b"(" + b"(t" * 2 + b"\x85" * 100 + b".")


@pytest.mark.parametrize("name", ["x.pt", "x.npy", "x.npz"])
def test_no_pickle_is_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    if name == "x.pt":
        torch = pytest.importorskip("torch")
        torch.save({"logits": torch.ones(2, 2), "other": Runs()}, name)
    else:
        save = np.save if name == "x.npy" else np.savez
        save(name, np.array([Runs()], dtype=object))
    with pytest.raises(LevelheadError, match=r"opening it would run code|holds Python objects"):
        arrays.read(name)
    Path(name).write_bytes(pickle.dumps(Runs()))
    with pytest.raises(LevelheadError):
        arrays.read(name)
    assert not Path("it-ran").exists()


def test_a_file_that_changes_under_its_reader_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "c.json"
    path.write_text("[1, 2]")
    plain = Path.read_text

    def slow_read(self, *args, **options):
        content = plain(self, *args, **options)
        self.write_text("[1, 2, 3]")
        return content

    monkeypatch.setattr(Path, "read_text", slow_read)
    with pytest.raises(LevelheadError, match=r"c\.json: changed while it was read"):
        read_counts(path)


def test_samples_know_that_a_mapped_file_has_changed(tmp_path):
    np.save(tmp_path / "x.npy", LOGITS)
    samples = read(tmp_path / "x.npy", None, "9,5,2")
    samples.check_unchanged()
    np.save(tmp_path / "x.npy", LOGITS + 1)
    os.utime(tmp_path / "x.npy", (1, 1))
    with pytest.raises(LevelheadError, match=r"x\.npy: changed while it was read"):
        samples.check_unchanged()


def test_numbers_beyond_any_float_are_refused(tmp_path):
    for value in ([10**400, 1, 1], {"0": 10**400, "1": 1, "2": 1}):
        (tmp_path / "c.json").write_text(json.dumps(value))
        np.save(tmp_path / "x.npy", LOGITS)
        with pytest.raises(LevelheadError, match=r"c\.json: .*(expected|count)"):
            read(tmp_path / "x.npy", None, tmp_path / "c.json")


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_an_array_outlives_its_file_becoming_shorter(tmp_path, suffix):
    path = tmp_path / f"L{suffix}"
    _write_array(path, LOGITS)
    values = arrays.read(path)
    os.truncate(path, 60)
    assert np.array_equal(values, LOGITS)  # a map of the file would end the process here


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_a_large_file_that_becomes_shorter_is_refused_in_one_line(tmp_path, suffix):
    path = tmp_path / f"L{suffix}"
    _write_array(path, np.ones((5 << 20, 2)))  # 80 MiB, two chunks
    code = f"""
import os, numpy as np
from levelhead import LevelheadError
from levelhead.core.counts import resolve
from levelhead.support.read import read_chunks
from levelhead.io import arrays
values = arrays.read({str(path)!r})
assert isinstance(values, np.memmap)
try:
    for first, part in read_chunks(values):
        os.truncate({str(path)!r}, 1000)
except LevelheadError as error:
    print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    expected = f"{path}: became shorter while it was read; try again when nothing writes to it\n"
    assert (ended.returncode, ended.stdout) == (0, expected), ended.stderr


def _write_array(path, values):
    from safetensors.numpy import save_file

    if path.suffix == ".npy":
        np.save(path, values)
    else:
        save_file({"logits": values}, path)


def test_names_with_line_breaks_stay_on_one_line(tmp_path):
    np.savez(tmp_path / "x.npz", **{"log\nits": LOGITS, "labels": np.arange(6)})
    (tmp_path / "x.csv").write_text('"a\nb","c"\n1,2\n3,4\n')
    for name in ("x.npz", "x.csv"):
        with pytest.raises(LevelheadError) as refused:
            arrays.read(tmp_path / name, wanted="labels" if name == "x.csv" else "logits")
        assert "\n" not in str(refused.value)


@contextmanager
def in_memory_of(most):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


ONE_LONG = ["x" * 100_000, *(f"n{i}" for i in range(20_000))]  # an array of them has 8 GB


def test_a_column_of_text_that_nobody_reads_takes_its_size(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    columns = {"text": ONE_LONG, "logit_0": [1.5] * len(ONE_LONG), "logit_1": [2.5] * len(ONE_LONG)}
    parquet.write_table(table(columns), tmp_path / "x.parquet")
    rows = "\n".join(f"{text},1.5,2.5" for text in ONE_LONG)
    (tmp_path / "x.csv").write_text(f"text,logit_0,logit_1\n{rows}\n")
    for name in ("x.csv", "x.parquet"):
        with in_memory_of(50 << 20):
            samples = read(tmp_path / name, None, [9, 1])
        assert samples.logits.shape == (len(ONE_LONG), 2)
        with (
            in_memory_of(50 << 20),
            pytest.raises(LevelheadError, match="a text of 100000 letters among 20001"),
        ):
            arrays.read(f"{tmp_path / name}:text", wanted="labels")


@pytest.mark.parametrize("suffix", [".txt", ".json", ".csv", ".pt"])
def test_names_among_which_one_is_endless_are_refused(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    if suffix == ".pt":
        torch = pytest.importorskip("torch")
        torch.save({"labels": ONE_LONG, "logits": torch.zeros(1, 2)}, path)
    else:
        path.write_text(json.dumps([ONE_LONG]) if suffix == ".json" else "\n".join(ONE_LONG))
    with (
        in_memory_of(50 << 20),
        pytest.raises(LevelheadError, match="a text of 100000 letters among 20001"),
    ):
        arrays.read(path, wanted="labels")
    if suffix in (".txt", ".csv"):
        with (
            in_memory_of(50 << 20),
            pytest.raises(LevelheadError, match="a text of 100000 letters"),
        ):
            read_counts(path)


def test_lists_in_a_parquet_file_are_counted_before_they_are_read(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    columns = {"logits": [[0.0] * 1000] * 1000}
    parquet.write_table(table(columns), tmp_path / "x.parquet", compression="zstd")
    assert arrays.read(tmp_path / "x.parquet").shape == (1000, 1000)
    monkeypatch.setattr(table_parquet, "ALWAYS_ALLOWED", 1 << 20)
    with pytest.raises(LevelheadError, match=r"x\.parquet: .*claim to hold 8000000"):
        arrays.read(tmp_path / "x.parquet")


@pytest.mark.parametrize("column", [["y"], ["y" * 1000], [0.0], [True]])
def test_a_small_parquet_file_does_not_fill_the_memory(tmp_path, column):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = 80_000 if len(str(column[0])) == 1000 else 1_000_000
    values = arrow.array(column * rows)
    table = arrow.table({f"logit_{i}": values for i in range(10)})
    how = {"compression": "zstd", "use_dictionary": rows == 1_000_000}
    parquet.write_table(table, tmp_path / "x.parquet", **how)
    del table, values
    size = (tmp_path / "x.parquet").stat().st_size
    assert size < 1 << 20
    for reader in (arrays.read, read_counts, lambda path: next(table_parts(path, 100))):
        with (
            in_memory_of(60 << 20),
            pytest.raises(LevelheadError, match=f"{size} compressed bytes claim to hold"),
        ):
            reader(tmp_path / "x.parquet")


def test_a_footer_that_claims_endless_lists_is_refused_at_once(tmp_path):
    endless = bytes([0x19, 0xF7, 0x80, 0x80, 0x80, 0x80, 0x01])  # a list of 2^28 doubles
    content = b"PAR1" + endless + len(endless).to_bytes(4, "little") + b"PAR1"
    (tmp_path / "x.parquet").write_bytes(content)
    with in_memory_of(10 << 20), pytest.raises(LevelheadError, match="its footer is broken"):
        table_parquet.read_claims(tmp_path / "x.parquet")


def test_a_header_of_an_array_with_a_second_line_is_refused(tmp_path):
    """Python 3.12 has a SystemError for it."""
    np.save(tmp_path / "x.npy", np.arange(5))
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data.replace(b" " * 20 + b"\n", b"\n" + b" " * 18 + b"w\n"))
    with pytest.raises(LevelheadError, match=r"x\.npy: its header is broken"):
        arrays.read(tmp_path / "x.npy")


def test_a_damaged_parquet_footer_does_not_end_the_process(tmp_path):
    """As pyarrow does where it is asked for a column's metadata, on one of some hundred such files."""
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    path, rng = tmp_path / "x.parquet", random.Random(0)
    parquet.write_table(table({"logit_0": [1.0, 2.0], "logit_1": [2.0, 1.0]}), path)
    sound, refused = path.read_bytes(), 0
    first = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    for _ in range(700):
        damaged = bytearray(sound)
        damaged[rng.randrange(first, len(sound) - 8)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            arrays.read(path)
        except LevelheadError:
            refused += 1
    assert 50 < refused < 650
    path.write_bytes(sound[:-4] + b"PARE")
    with pytest.raises(LevelheadError, match=r"x\.parquet: not a sound \.parquet file"):
        arrays.read(path)


def test_the_values_of_a_parquet_file_are_counted_as_pyarrow_counts_them(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    path = tmp_path / "x.parquet"
    columns = {
        "a": [[1, 2], [3], None],
        "b": [1.0, 2.0, 3.0],
        "c": ["x", "y", None],
        "d": [True, None, False],
    }
    for how in (
        {},
        {"compression": "zstd", "row_group_size": 1},
        {"version": "1.0"},
        {"write_page_index": True},
    ):
        parquet.write_table(table(columns).replace_schema_metadata({"key": "value"}), path, **how)
        metadata = parquet.read_metadata(path)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        assert (
            table_parquet.read_claims(path).values
            == sum(group.column(i).num_values for group in groups for i in range(4))
            == 13
        )
        sizes = [group.column(i).total_uncompressed_size for group in groups for i in range(4)]
        assert table_parquet.read_claims(path).bytes == sum(sizes)


@pytest.mark.parametrize("values", [
    [[1.0], [1.0, 2.0]], [["a"], ["b"]], [[[1.0]], [[2.0]]], [{"a": 1}, {"a": 2}], [[{"a": 1}]], [b"\xff", b"a"],
    [[None, 1.0]], [datetime(2000, 1, 1)], [[]], [Decimal("1.5")], [[Decimal("1.5")]], [timedelta(1)], [True, False],
])  # fmt: skip
def test_parquet_columns_of_any_kind_are_read_or_refused(tmp_path, values):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    parquet.write_table(
        table({"x": values, "logit_0": [1.0] * len(values), "logit_1": [2.0] * len(values)}),
        tmp_path / "x.parquet",
    )
    for source, reader in product(
        [tmp_path / "x.parquet", f"{tmp_path}/x.parquet:x"], [arrays.read, read_counts, read]
    ):
        with suppress(LevelheadError):
            reader(source, **({"counts": [9, 1]} if reader is read else {}))


def test_a_class_that_is_almost_a_number_is_refused_as_a_class(tmp_path):
    (tmp_path / "c.csv").write_text("class,n\n--1,3\n1,4\n")
    counts = read_counts(tmp_path / "c.csv")
    with pytest.raises(LevelheadError, match="--1"):
        resolve(counts, 2)


@pytest.mark.parametrize("text", ["0", "-64", "x", ""])
def test_a_torch_file_with_an_alignment_that_cannot_be_is_refused(tmp_path, text):
    import torch

    torch.save(torch.tensor(LOGITS), tmp_path / "L.pt")
    with zipfile.ZipFile(tmp_path / "L.pt") as old, zipfile.ZipFile(tmp_path / "x.pt", "w") as new:
        written = {name: old.read(name) for name in old.namelist()}
        written["L/.storage_alignment"] = text.encode()  # older versions of torch write none
        for name, content in written.items():
            new.writestr(name, content)
    with pytest.raises(
        LevelheadError, match=r"x\.pt: .*storage_alignment is not a positive number"
    ):
        arrays.read(tmp_path / "x.pt")
