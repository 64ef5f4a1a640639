import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from levelhead.files.inspect import inspect_file
from levelhead.files.locate import ModelFile
from levelhead.heads.notes import check_note, note_from
from levelhead.support.errors import LevelheadError

NOTE = {
    "version": "1.0",
    "rule": "rescale",
    "strength": 0.5,
    "scale": [1.0, 2.0],
    "offset": [0.0, 0.0],
    "bias": "scale",
    "counts": [4, 1],
    "head": ["fc"],
}


@pytest.mark.parametrize(
    "change",
    [
        {"strength": 10**400},
        {"scale": [1, 10**400]},
        {"strength": float("inf")},
        {"strength": "1"},
        {"scale": [1, 0]},
        {"scale": [1, float("nan")]},
        {"scale": "1"},
        {"offset": "1"},
        {"offset": [1.0]},
        {"offset": [1.0, float("nan")]},
        {"rule": ["rescale"]},
        {"bias": None},
        {"head": [1]},
        {"head": None},
        {"version": None},
        {"before": 5},
        {"before": {"rule": "tau"}},
    ],
)
def test_an_invalid_note_is_refused_in_a_line(change):
    fitted = {key: value for key, value in NOTE.items() if key != "strength"}
    for sound in (NOTE, NOTE | {"before": NOTE}, fitted, NOTE | {"rule": "one's own"}):
        assert check_note(sound, Path("m.pt")) == sound
    with pytest.raises(ValueError, match=r"m\.pt: its record of an earlier adjustment is damaged"):
        check_note(NOTE | change, Path("m.pt"))


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "half"])
def test_metadata_that_are_not_a_note_are_refused_in_a_line(text):
    with pytest.raises(
        ValueError, match=r"m\.onnx: its record of an earlier adjustment is damaged"
    ):
        note_from({"levelhead.rule": "rescale", "levelhead.strength": text}, Path("m.onnx"))


def test_note_nested_ever_deeper_is_refused(tmp_path):
    note = {
        "version": "0",
        "rule": "rescale",
        "bias": "keep",
        "strength": 1.0,
        "head": ["fc"],
        "scale": [1.0, 2.0],
        "offset": [0.0, 0.0],
    }
    before = "null"
    for _ in range(990):
        before = json.dumps(note)[:-1] + f', "before": {before}}}'
    entries = {
        f"levelhead.{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in note.items()
    }
    save_file(
        {"fc.weight": np.eye(2, dtype=np.float32)},
        tmp_path / "m.safetensors",
        entries | {"levelhead.before": before},
    )
    with pytest.raises(LevelheadError, match="its record of an earlier adjustment is damaged"):
        inspect_file(tmp_path / "m.safetensors")


@pytest.mark.parametrize("kind", [[], {}, 3, None])
def test_config_with_a_problem_type_of_another_kind_says_nothing(kind, tmp_path):
    save_file({"fc.weight": np.eye(2, dtype=np.float32)}, tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"problem_type": kind}))
    assert ModelFile.at(tmp_path / "m.safetensors").locate_head().task is None
