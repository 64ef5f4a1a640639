"""Snapshots, grids, recipes and images that are damaged or hostile: one line each, and nothing large is unpacked."""

import os

import numpy as np
import pytest

from levelhead import LevelheadError
from levelhead_lab.lab.load import npz
from levelhead_lab.lab.recipe import find_recipe
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.runs.sweep import read_grid

from ..io.test_hostile_files import in_memory_of, write_two_line_dtype


def test_what_a_header_calls_a_kind_of_number_breaks_no_line(tmp_path):
    write_two_line_dtype(tmp_path / "x.safetensors")
    with pytest.raises(LevelheadError, match=r"x\.safetensors: .*`F\\n32`[^\n]*$"):
        Snapshot.load(tmp_path / "x.safetensors")


def test_a_pipe_is_refused_as_a_snapshot(tmp_path):
    os.mkfifo(tmp_path / "s.safetensors")
    with pytest.raises(LevelheadError, match="a pipe"):
        Snapshot.load(tmp_path / "s.safetensors")


def test_toml_nested_ever_deeper_is_refused_as_grid_and_recipe(tmp_path):
    (tmp_path / "x.toml").write_text("a = " + "[" * 100_000)
    for reader in (read_grid, find_recipe):
        with pytest.raises(LevelheadError, match=r"x\.toml: not .*nested too deep"):
            reader(str(tmp_path / "x.toml"))


def test_arrays_of_an_npz_that_training_does_not_use_are_not_unpacked(tmp_path):
    images, labels = np.zeros((20, 4, 4), np.uint8), np.arange(20) % 2
    np.savez_compressed(
        tmp_path / "x.npz", images=images, labels=labels, other=np.zeros(100 << 20, np.uint8)
    )
    with in_memory_of(10 << 20):
        assert npz(tmp_path / "x.npz").names == ("0", "1")
