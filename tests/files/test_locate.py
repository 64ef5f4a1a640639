"""Formats by the names of files; what is not a file is never opened."""

import os

import pytest

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file
from levelhead.support.errors import LevelheadError


@pytest.mark.parametrize(
    "suffix", [".pt", ".bin", ".onnx", ".safetensors", ".safetensors.index.json"]
)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, suffix):
    path = tmp_path / f"m{suffix}"
    os.mkfifo(path)
    for look in (
        inspect_file,
        lambda path: adjust_file(path, tmp_path / f"o{suffix}", lh.rules.Rescale(1), [2, 1]),
    ):
        with pytest.raises(LevelheadError, match="a pipe; expected a regular file"):
            look(path)
    with pytest.raises(LevelheadError, match="a pipe; expected a regular file"):
        undo_file(path, tmp_path / f"o{suffix}")
    assert os.listdir(tmp_path) == [path.name]
