"""Mistakes in the commands of the study: one line that says what to do. Values that their help shows are accepted."""

import numpy as np
import pytest
from typer.main import get_command

from levelhead import cli

from ..cli.test_files import check_named_where_missing


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files that do not hold what their names say."""
    monkeypatch.chdir(tmp_path)
    np.save("L.npy", np.eye(3))
    (tmp_path / "latin.toml").write_bytes(b"caf\xe9,1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["sweep", "L.npy"], "L.npy: not TOML: not valid UTF-8; save the file as UTF-8"),
        (
            ["train", "--data", "digits", "--recipe", "latin.toml"],
            "latin.toml: not a TOML file (not valid UTF-8; save the file as UTF-8)",
        ),
        # what would fail for every network fails at once
        (
            ["reproduce", "table1", "--root", "nowhere"],
            "nowhere: no such folder; expected the folder of the data sets",
        ),
        (
            ["reproduce", "table1", "--root", ".", "--slots", "0"],
            "--slots: expected at least 1, got 0",
        ),
    ],
)
def test_a_mistake_is_reported_in_one_line_that_says_what_to_do(folder, levelhead, words, line):
    assert levelhead(*words, "--json") == (2, "", f"levelhead: {line}\n")


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (["methods"], "wvn+rs"),
        (["reproduce", "table1", "--dry-run", "--root", ".", "--only"], "cifar10:100:wvn"),
        (["reproduce", "table1", "--dry-run", "--root", ".", "--only"], "cifar10:*"),
    ],
)
def test_the_examples_of_the_help_run(folder, levelhead, words, example):
    command = get_command(cli.app).commands[words[0]]  # type: ignore[attr-defined]
    helps = [str(getattr(parameter, "help", "")) for parameter in command.params]
    assert any(example in text for text in helps)
    assert levelhead(*words, example)[0] == 0


def test_training_without_torch_says_what_to_install(tmp_path):
    check_named_where_missing("torch", ["train", "--data", "digits"], tmp_path)
