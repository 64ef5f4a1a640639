"""Weights of MLX, as MLX itself wrote those in mlx_0_32 (tools/make_mlx_0_32.py)."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.locate import ModelFile
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from .head_in_file import read_head

FILES = Path(__file__).parent / "mlx_0_32"
COUNTS = [100, 25, 4]
FACTORS = np.array([1, 2, 5], np.float32)
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def arrays(path):
    with np.load(path) as stored:
        return {key: stored[key] for key in stored.files}


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_the_head_changes_and_it_is_undone_byte_for_byte(dtype, tmp_path):
    path, out, back = FILES / f"{dtype}.npz", tmp_path / "out.npz", tmp_path / "back.npz"
    assert inspect_file(path).layers[0].dtype == DTYPES[dtype]
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    before, after = arrays(path), arrays(out)
    assert before.keys() == after.keys()
    for key in ("body.weight", "body.bias"):
        assert before[key].tobytes() == after[key].tobytes()
    old, new = read_head(path), read_head(out)
    np.testing.assert_allclose(new.weight, old.weight * FACTORS[:, None], rtol=1e-2)
    np.testing.assert_allclose(new.bias, old.bias * FACTORS, rtol=1e-2)
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


def test_the_note_is_no_array(tmp_path):
    """MLX takes every record for an array, and refuses parameters that the model does not have."""
    out, twice = tmp_path / "out.npz", tmp_path / "twice.npz"
    adjust_file(FILES / "float32.npz", out, lh.rules.Rescale(0.5), COUNTS)
    adjust_file(out, twice, lh.rules.Shift(0.5), COUNTS, again=True)
    names = zipfile.ZipFile(FILES / "float32.npz").namelist()
    for path in (out, twice):
        with zipfile.ZipFile(path) as archive:
            assert archive.namelist() == names
            assert archive.testzip() is None
            assert archive.comment == b""
    assert ModelFile.at(twice).locate_head().note["before"] == ModelFile.at(out).locate_head().note
    sizes = [path.stat().st_size for path in (out, twice)]
    assert sizes[1] < 2 * sizes[0]  # the old note is not kept beside the new one


def test_without_what_was_kept_it_is_undone_by_the_note(tmp_path):
    path, out, back = FILES / "float32.npz", tmp_path / "out.npz", tmp_path / "back.npz"
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, original=False)
    assert not undo_file(out, back).exact
    assert ModelFile.at(back).locate_head().note is None
    np.testing.assert_allclose(read_head(back).weight, read_head(path).weight, rtol=1e-6)


REFUSED = {
    "compressed": "head.bias is compressed; save the weights by save_weights or savez",
    "quantized": "is quantized; adjust the model before quantizing it",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_changed_is_refused(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        inspect_file(FILES / f"{name}.npz", head="head")


def test_scores_are_not_taken_for_weights(tmp_path):
    np.savez(tmp_path / "scores.npz", logits=np.ones((9, 3)), labels=np.ones(9, int))
    with pytest.raises(ValueError, match="no head found"):
        inspect_file(tmp_path / "scores.npz")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"not a zip", "not weights of MLX"),
        (b"PK\x05\x06" + bytes(18), "not weights of MLX"),
    ],
)
def test_another_file_is_refused(data, reason, tmp_path):
    (tmp_path / "m.npz").write_bytes(data)
    with pytest.raises(ValueError, match=rf"m\.npz: .*{reason}"):
        inspect_file(tmp_path / "m.npz")


@pytest.mark.parametrize(
    "header",
    [
        b"no array at all",
        b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}",
        b"\x93NUMPY\x01\x00\x46\x00" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 9), }".ljust(69) + b"\n",
    ],
    ids=["no magic", "half a header", "fewer numbers"],
)  # fmt: skip
def test_a_damaged_array_is_refused(header, tmp_path):
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("fc.weight.npy", header)
    with pytest.raises(ValueError, match=r"m\.npz: "):
        inspect_file(tmp_path / "m.npz")


def test_mlx_itself_loads_what_was_written(tmp_path):
    nn = pytest.importorskip("mlx.nn", reason="MLX is not installed: pip install 'mlx[cpu]'")
    out = tmp_path / "out.npz"
    adjust_file(FILES / "float32.npz", out, lh.rules.Rescale(0.5), COUNTS)
    network = nn.Module()
    network.body, network.head = nn.Linear(8, 64), nn.Linear(64, 3)
    network.load_weights(str(out))
    np.testing.assert_allclose(np.array(network.head.weight), read_head(out).weight)
