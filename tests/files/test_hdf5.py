"""Our reader of HDF5 next to the HDF5 library's own, on files of that library; damaged files end in a refusal."""

import tracemalloc
from struct import pack

import numpy as np
import pytest

import levelhead as lh
from levelhead.files.hdf5 import hdf5_arrays

h5py = pytest.importorskip("h5py", reason="h5py is not installed; it comes with Keras")
DTYPES = {"<f4": "F32", "<f8": "F64", "<f2": "F16"}


def make(path, layers=3, **options):
    rng = np.random.default_rng(0)
    with h5py.File(path, "w", **options) as file:
        for i in range(layers):
            group = file.create_group(f"layers/dense_{i}/vars")
            group.attrs["name"] = f"name of {i}, \u00e4"
            for j, dtype in enumerate(DTYPES):
                shape = tuple(rng.integers(1, 9, size=rng.integers(0, 5)).tolist())
                group.create_dataset(str(j), data=rng.normal(size=shape).astype(dtype))
    return path


def by_library(path):
    arrays, names = {}, {}

    def visit(key, entry):
        if isinstance(entry, h5py.Dataset):
            arrays[key] = (entry.id.get_offset(), DTYPES[entry.dtype.str], entry.shape)
        if "name" in entry.attrs:
            names[key] = entry.attrs["name"]

    with h5py.File(path) as file:
        file.visititems(visit)
    return arrays, names


@pytest.mark.parametrize("layers", [1, 3, 40, 120])  # more than one node of a tree has
def test_arrays_and_names_are_where_the_library_has_them(layers, tmp_path):
    path = make(tmp_path / "m.h5", layers)
    spans, names = hdf5_arrays(path)
    arrays = {key: (span.offset, span.dtype, span.shape) for key, span in spans.items()}
    assert (arrays, names) == by_library(path)
    inside = tmp_path / "inside"
    inside.write_bytes(b"x" * 100 + path.read_bytes() + b"y" * 50)
    moved, same = hdf5_arrays(inside, 100, path.stat().st_size)
    assert same == names
    assert {key: span.offset - 100 for key, span in moved.items()} == {
        key: s.offset for key, s in spans.items()
    }
    assert {key: moved[key].bytes() for key in moved} == {key: spans[key].bytes() for key in spans}


def test_what_is_not_plain_numbers_in_one_piece_is_called_so(tmp_path):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("packed", data=np.ones((8, 8)), compression="gzip")
        file.create_dataset("whole", data=np.ones((2, 2), np.int8))
        file.create_dataset("big", data=np.ones(2, ">f4"))
        file.create_dataset("empty", shape=(0, 3), dtype="f4")
        file.create_dataset("texts", data=[b"a", b"bc"])
        file["soft"] = h5py.SoftLink("/whole")
    dtypes = {key: span.dtype for key, span in hdf5_arrays(tmp_path / "m.h5")[0].items()}
    assert dtypes == {
        "packed": "F64, not in one piece", "whole": "int8", "big": "big-endian floats", "empty": "F32, without data",
        "texts": "numbers of class 9",
    }  # fmt: skip


def test_group_with_a_link_to_another_file_is_refused(tmp_path):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["top/vars/0"] = h5py.ExternalLink(str(tmp_path / "elsewhere.h5"), "/x")
    with pytest.raises(lh.LevelheadError, match="top/vars is neither an array nor a group"):
        hdf5_arrays(tmp_path / "m.h5")


def test_file_of_the_newest_format_is_refused(tmp_path):
    path = make(tmp_path / "m.h5", libver="latest")
    with pytest.raises(lh.LevelheadError, match="superblock of version 0"):
        hdf5_arrays(path)


def message(kind, body):
    return pack("<HHB3x", kind, len(body), 0) + body


def header(count, messages):
    return pack("<BBHII4x", 1, 0, count, 1, len(messages)) + messages


def in_hdf5(content):
    """Return a file whose root is the object header at 96, where the content begins."""
    start = b"\x89HDF\r\n\x1a\n" + pack("<B4s2s9x", 0, bytes(4), b"\x08\x08")
    return start + pack("<6Q", 0, 0, 96 + len(content), 0, 0, 96) + bytes(24) + content


def continued_by_itself():
    first = header(2000, message(0x10, pack("<2Q", 136, 24 + 65540)))
    return in_hdf5(
        first + message(0x10, pack("<2Q", 136, 24 + 65540)) + message(0xC, bytes(65528)) + bytes(4)
    )


def with_names_inside_one_another(length, count):
    """Return a group of so many members, whose names are all of one text from some letter on."""
    table, heap = 136, 136 + 8 + 40 * count
    members = b"".join(pack("<2QI20x", i, heap + 32 + length + 24 * i, 0) for i in range(count))
    node = b"SNOD" + pack("<BBH", 1, 0, count) + members
    names = b"HEAP" + pack("<I3Q", 0, length, 0, heap + 32) + b"a" * (length - 1) + b"\0"
    arrays = b"".join(header(1, message(1, b"")) for _ in range(count))
    return in_hdf5(header(1, message(0x11, pack("<2Q", table, heap))) + node + names + arrays)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (continued_by_itself(), "there twice"),
        (with_names_inside_one_another(4000, 500), "overlap"),
        (with_names_inside_one_another(200_000, 500), "no name at 0"),
    ],
)
def test_file_that_leads_to_itself_takes_no_more_memory_than_a_file_of_its_size(
    data, why, tmp_path
):
    (tmp_path / "m.h5").write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(lh.LevelheadError, match=why):
            hdf5_arrays(tmp_path / "m.h5")
        assert tracemalloc.get_traced_memory()[1] < 20 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_damage_of_any_kind_is_refused_or_harmless(tmp_path):
    """Bytes of the first 3,000 and lengths; the library itself loops forever on some such files."""
    path, rng = make(tmp_path / "m.h5", 2), np.random.default_rng(0)
    whole, bad = path.read_bytes(), tmp_path / "bad.h5"
    cut = [whole[:length] for length in range(0, len(whole), 397)]
    places = zip(range(0, 3000, 7), rng.integers(256, size=3000).tolist(), strict=False)
    changed = [whole[:i] + bytes([value]) + whole[i + 1 :] for i, value in places]
    refused = 0
    for data in [*cut, *changed]:
        bad.write_bytes(data)
        try:
            for span in hdf5_arrays(bad)[0].values():
                assert 0 <= span.offset <= len(data)
        except lh.LevelheadError:
            refused += 1
    assert refused > 50
