"""A model format of one's own is one file and one line of the table: it is found wherever those that are here are."""

import json
import re
import shlex

import numpy as np
import pytest
from safetensors.numpy import save_file

import levelhead as lh
from levelhead.files.edits import Edit
from levelhead.files.find import find_layers
from levelhead.files.format import Format, Reader
from levelhead.files.formats import MODEL_FORMATS
from levelhead.files.inspect import inspect_file
from levelhead.files.located import LocatedHead
from levelhead.files.model import adjust_file
from levelhead.files.note_behind import encode_note, find_note, read_note
from levelhead.files.spans import Span
from levelhead.files.undo import undo_file
from levelhead.support.errors import LevelheadError
from levelhead.support.regular_file import bytes_at, check_regular_file

from ..core.made import COUNTS, calibrated
from ..heads.chosen import tuned_for
from .head_in_file import read_head

# What the file of a format would hold: a line of JSON that says which arrays follow, all in float32.
SUFFIX = ".toy.bin"  # as .bin alone is a state dict


def read_arrays(path):
    head = bytes_at(path, 0, 10_000).partition(b"\n")[0]
    if not head.startswith(b"{"):
        raise LevelheadError(f"{path}: expected a toy model, got something else; save it again")
    at, spans = len(head) + 1, {}
    for key, shape in json.loads(head).items():
        spans[key] = Span(key, path, at, "F32", tuple(shape))
        at += spans[key].nbytes
    return spans


def find(path, *, named=None, classes=None):
    stamps = {path: check_regular_file(path, "a toy model")}
    layers = find_layers(path, read_arrays(path), named=named, classes=classes)
    return LocatedHead(path, layers, stamps, complete, read_note_of(path))


def read_note_of(path):
    return read_note(path, find_note(path, path.stat().st_size))


def complete(source, edits, note, names):
    if note is None:
        return edits
    old = find_note(source, source.stat().st_size)
    return [*edits, Edit(old.start, old.end - old.start, encode_note(note))]


READER = Reader(find, note=read_note_of, check=read_arrays)
TOY = Format("toy", (SUFFIX,), __name__)  # the line of the table


def save(path, arrays):
    shapes = {key: array.shape for key, array in arrays.items()}
    numbers = b"".join(array.astype("<f4").tobytes() for array in arrays.values())
    path.write_bytes(json.dumps(shapes).encode() + b"\n" + numbers)
    return path


RNG = np.random.default_rng(0)
ARRAYS = {
    "body.weight": RNG.normal(size=(7, 5)),
    "fc.weight": RNG.normal(size=(4, 7)),
    "fc.bias": RNG.normal(size=4),
}
FACTORS = (COUNTS.max() / COUNTS) ** 0.5


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setitem(MODEL_FORMATS, TOY.name, TOY)


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / f"m{SUFFIX}", ARRAYS)


def test_it_is_adjusted_inspected_and_undone(model, tmp_path):
    out, back = tmp_path / f"out{SUFFIX}", tmp_path / f"back{SUFFIX}"
    assert inspect_file(model).format == "toy"
    adjust_file(model, out, lh.rules.Rescale(0.5), COUNTS)
    np.testing.assert_allclose(
        read_head(out).weight, ARRAYS["fc.weight"] * FACTORS[:, None], rtol=1e-5
    )
    np.testing.assert_allclose(read_head(out).bias, ARRAYS["fc.bias"] * FACTORS, rtol=1e-5)
    assert inspect_file(out).adjusted["rule"] == "rescale"
    undo_file(out, back)
    assert back.read_bytes() == model.read_bytes()


def test_without_what_was_kept_it_is_undone_by_its_note(model, tmp_path):
    out, back = tmp_path / f"out{SUFFIX}", tmp_path / f"back{SUFFIX}"
    adjust_file(model, out, lh.rules.Rescale(0.5), COUNTS, original=False)
    undo_file(out, back)
    np.testing.assert_allclose(read_head(back).weight, ARRAYS["fc.weight"], rtol=1e-5)


def run(levelhead, *words, status=0):
    ended, out, err = levelhead(*words)
    assert ended == status, err
    return out + err


def test_the_command_line_takes_it(levelhead, model, tmp_path):
    tuned_for("shift", 0.5, COUNTS).save(tmp_path / "tuned.json")
    out, back = tmp_path / f"out{SUFFIX}", tmp_path / f"back{SUFFIX}"
    assert "(toy)" in run(levelhead, "inspect", model)
    run(levelhead, "adjust", model, "--tuned", tmp_path / "tuned.json", "-o", out)
    run(levelhead, "undo", out, "-o", back)
    assert back.read_bytes() == model.read_bytes()
    swapped = run(
        levelhead, "adjust", tmp_path / "tuned.json", "--tuned", model, "-o", out, status=2
    )
    assert "is not a model; give the model first" in swapped
    other = run(levelhead, "adjust", model, "--rule", "shift", "--strength", "1", "--counts", "4,3,2,1",
                "-o", tmp_path / "out.bin", status=2)  # fmt: skip
    assert f"expected an output that ends in {SUFFIX}" in other


@pytest.mark.parametrize("command", ["inspect", "adjust"])
def test_the_help_names_it_with_its_suffix(levelhead, command):
    text = re.sub(r"[\s│]+", " ", run(levelhead, command, "--help"))
    for model_format in MODEL_FORMATS.values():
        assert f"{model_format.name} ({' '.join(model_format.suffixes)})" in text


def test_what_is_no_model_is_refused_with_its_suffix_among_those_expected(tmp_path):
    (tmp_path / "m.what").write_bytes(b"")
    with pytest.raises(ValueError, match=re.escape(SUFFIX)):
        inspect_file(tmp_path / "m.what")


def test_the_page_shows_a_command_that_runs(levelhead, model, tmp_path, monkeypatch):
    from levelhead.report.subject import Subject
    from levelhead.report.use_it import code_to_use

    logits, labels = calibrated(0, 300)
    tuned = lh.tune(logits, labels, COUNTS)
    tuned.save(tmp_path / "tuned.json")
    monkeypatch.chdir(tmp_path)
    subject = Subject("a model", tuned, model=model.name, tuned_file="tuned.json")
    shown = next(line for line in code_to_use(subject).shell.splitlines() if " adjust " in line)
    run(levelhead, *shlex.split(shown)[1:])
    assert read_head(tmp_path / f"adjusted{SUFFIX}").classes == 4


def test_a_copy_of_it_in_a_folder_is_left_behind(model, tmp_path):
    folder, out = tmp_path / "folder", tmp_path / "out"
    folder.mkdir()
    save(folder / f"copy{SUFFIX}", ARRAYS)
    (folder / "tokenizer.txt").write_text("a", encoding="utf-8")
    save_file({"fc.weight": np.eye(4, 7, dtype=np.float32)}, folder / "model.safetensors")
    adjust_file(folder, out, lh.rules.Rescale(0.5), COUNTS)
    assert sorted(path.name for path in out.iterdir()) == ["model.safetensors", "tokenizer.txt"]
