"""Inputs that a fuzzer once found a mistake with: each is read rightly or refused in one line."""

import warnings
from pathlib import Path

import pytest

from bench.trust.fuzz_data import READERS
from bench.trust.fuzz_parts import read_message
from levelhead.core.rules import Rescale
from levelhead.files.model import adjust_file
from levelhead.support.errors import LevelheadError

KEPT = sorted((Path(__file__).parent / "corpus").iterdir())


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_what_was_once_wrong_is_right(path, tmp_path):
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow")
    if ".model" in path.name:
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes())
        readers = [
            lambda _: adjust_file(copy, tmp_path / f"o{path.suffix}", Rescale(0.5), [16, 4, 1])
        ]
    else:
        readers = (
            [read_message] if path.suffix == ".message" else list(READERS[path.suffix].values())
        )
    for reader in readers:
        message = ""
        try:
            with warnings.catch_warnings(action="ignore"):
                reader(path)
        except (LevelheadError, FileNotFoundError) as error:
            message = str(error).strip()
        assert "\n" not in message
        assert not message or ".model" not in path.name or path.name in message
