from pathlib import Path

import pytest

from levelhead.heads.notes import check_note, note_from

NOTE = {
    "version": "1.0",
    "rule": "rescale",
    "gamma": 0.5,
    "bias": "scale",
    "counts": [4, 1],
    "head": ["fc"],
    "factors": [1.0, 2.0],
}


@pytest.mark.parametrize(
    "change",
    [
        {"gamma": 10**400},
        {"factors": [1, 10**400]},
        {"gamma": float("inf")},
        {"factors": [1, 0]},
        {"factors": "1"},
        {"rule": "twist"},
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
    for sound in (NOTE, NOTE | {"before": NOTE}):
        assert check_note(sound, Path("m.pt")) == sound
    with pytest.raises(ValueError, match=r"m\.pt: its record of an earlier adjustment is damaged"):
        check_note(NOTE | change, Path("m.pt"))


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "half"])
def test_metadata_that_are_not_a_note_are_refused_in_a_line(text):
    with pytest.raises(ValueError, match=r"m\.onnx: its record of an earlier adjustment is damaged"):
        note_from({"levelhead.rule": "rescale", "levelhead.gamma": text}, Path("m.onnx"))
