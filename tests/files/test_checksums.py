"""A zip whose checksums do not fit its records is damaged: a copy must not make it look sound."""

import os
import zipfile
from itertools import product
from warnings import catch_warnings

import numpy as np
import pytest
import torch

import levelhead as lh
from levelhead.files.locate import ModelFile
from levelhead.files.model import adjust_file

os.environ.setdefault("KERAS_BACKEND", "torch")
COUNTS = [16, 4, 1]
BODY = np.arange(64, dtype=np.float32).reshape(8, 8)


def save_keras(path):
    keras = pytest.importorskip("keras")
    layers = [keras.layers.Dense(8, name="body"), keras.layers.Dense(3, name="top")]
    model = keras.Sequential([keras.Input((8,)), *layers])
    layers[0].set_weights([BODY, np.zeros(8, np.float32)])
    with catch_warnings(action="ignore", category=DeprecationWarning):  # Keras's own, of torch
        model.save(path)


def save_torch(path):
    head = {"fc.weight": torch.ones(3, 8), "fc.bias": torch.ones(3)}
    torch.save({"body.weight": torch.from_numpy(BODY), **head}, path)


SAVE = {".keras": save_keras, ".pt": save_torch}


def flip_a_bit(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def bad_record(path):
    with zipfile.ZipFile(path) as archive:
        return archive.testzip()


@pytest.mark.parametrize("suffix", SAVE)
def test_a_bit_flipped_in_another_layer_is_noticed_and_nothing_is_written(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    SAVE[suffix](path)
    flip_a_bit(path, path.read_bytes().index(BODY.tobytes()) + 100)
    record = bad_record(path)
    assert record is not None
    with pytest.raises(
        ValueError, match=rf"damaged: its record {record} does not fit its checksum"
    ):
        adjust_file(path, tmp_path / f"out{suffix}", lh.rules.Rescale(0.5), COUNTS)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SAVE)
def test_a_bit_flipped_in_the_head_is_noticed_too(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    SAVE[suffix](path)
    flip_a_bit(path, ModelFile.at(path).locate_head().layers[0].weight.offset)
    with pytest.raises(ValueError, match="does not fit its checksum; copy or download it again"):
        adjust_file(path, tmp_path / f"out{suffix}", lh.rules.Rescale(0.5), COUNTS)


def test_a_compressed_record_is_checked_as_well(tmp_path):
    path, out = tmp_path / "m.pt", tmp_path / "out.pt"
    save_torch(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("m/extra", b"anything else" * 50, compress_type=zipfile.ZIP_DEFLATED)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    assert bad_record(out) is None
    with zipfile.ZipFile(path) as archive:
        record = archive.getinfo("m/extra")
    flip_a_bit(path, record.header_offset + 30 + len(record.filename) + record.compress_size // 2)
    with pytest.raises(ValueError, match=r"m\.pt: damaged: its record m/extra"):
        adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, force=True)


def test_a_record_that_unpacks_to_far_more_than_the_file_is_refused(tmp_path):
    save_torch(tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt", "a") as archive:
        archive.writestr("m/extra", bytes(20_000_000), compress_type=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="its record m/extra is compressed and too long"):
        adjust_file(tmp_path / "m.pt", tmp_path / "out.pt", lh.rules.Rescale(0.5), COUNTS)


@pytest.mark.parametrize("suffix", SAVE)
def test_a_record_that_is_called_otherwise_before_its_data_is_damaged(suffix, tmp_path):
    path = tmp_path / f"m{suffix}"
    SAVE[suffix](path)
    with zipfile.ZipFile(path) as archive:
        record = archive.infolist()[0 if suffix == ".keras" else -1]
    flip_a_bit(path, record.header_offset + 30 + len(record.filename) - 1)
    assert bad_record(path) == record.filename
    with pytest.raises(ValueError, match=f"damaged: its record {record.filename}"):
        adjust_file(path, tmp_path / f"out{suffix}", lh.rules.Rescale(0.5), COUNTS)


def test_an_entry_that_would_swallow_what_follows_is_refused(tmp_path):
    """The last entry of the list has a comment that is longer than the list: the note would become part of it."""
    path = tmp_path / "m.keras"
    save_keras(path)
    data = bytearray(path.read_bytes())
    last = data.rfind(b"PK\x01\x02")
    data[last + 32] = 200  # the length of its comment
    path.write_bytes(data)
    with pytest.raises(ValueError, match="its list of records is not as long as it says"):
        adjust_file(path, tmp_path / "out.keras", lh.rules.Rescale(0.5), COUNTS)


@pytest.mark.slow
def test_whatever_bit_of_the_list_or_the_end_is_flipped_torch_reads_what_is_written(tmp_path):
    """Python passes over disks, sizes and counts by which torch goes."""
    path, bad, out = tmp_path / "m.pt", tmp_path / "bad.pt", tmp_path / "out.pt"
    save_torch(path)
    sound = path.read_bytes()
    written = 0
    # The first and the last entry, which are like all others, and the end.
    entries = [i for i in range(len(sound)) if sound.startswith(b"PK\x01\x02", i)]
    places = [*range(entries[0], entries[1]), *range(entries[-1], len(sound))]
    for at, bit in product(places, range(8)):
        data = bytearray(sound)
        data[at] ^= 1 << bit
        bad.write_bytes(data)
        try:
            adjust_file(bad, out, lh.rules.Rescale(0.5), COUNTS, force=True)
        except ValueError:
            continue
        written += 1
        for file in (bad, out):  # a damaged file is not made to look sound
            torch.load(file, weights_only=True)
    assert written > 100  # such as dates, which are copied


def test_a_name_of_two_lines_is_said_in_one(tmp_path):
    save_torch(tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt", "a") as archive:
        archive.writestr("m/two\nlines", b"some text")
    flip_a_bit(tmp_path / "m.pt", (tmp_path / "m.pt").read_bytes().index(b"some text"))
    with pytest.raises(ValueError, match=r"its record m/two\\nlines does not fit"):
        adjust_file(tmp_path / "m.pt", tmp_path / "out.pt", lh.rules.Rescale(0.5), COUNTS)
