"""The commands of the study in the help: a group of their own, each with an example that runs."""

import re
import shlex
from pathlib import Path

import pytest

from levelhead_lab.lab.choices import RECIPES
from levelhead_lab.lab.load import OFFICIAL
from levelhead_lab.lab.recipe import presets

from ..cli.test_help import examples

COMMANDS = ["demo", "methods", "train", "evaluate", "sweep", "reproduce"]  # in the order of use


def test_the_commands_are_the_last_group(levelhead):
    group = levelhead("--help")[1].partition("\nTraining and study:\n")[2]
    assert re.findall(r"^  (\w+)  +[A-Z]", group, re.MULTILINE) == COMMANDS


def test_the_help_says_that_the_demo_needs_nothing(levelhead):
    assert "with nothing at hand:\n    levelhead demo\n" in levelhead("--help")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_an_example_of_it(levelhead, name):
    shown = levelhead(name, "--help")[1]
    assert examples(name)
    for words in examples(name):
        assert words[0] == name
        assert f"    levelhead {shlex.join(words)}\n" in shown  # on a line of its own, to copy
    assert "<list[str]>" not in shown  # words of Python


def test_the_help_of_train_names_every_data_set_and_recipe(levelhead):
    shown = " ".join(levelhead("train", "--help")[1].split()).replace("- ", "-")
    assert list(RECIPES) == list(presets())
    assert f"{', '.join(RECIPES)} or a .toml" in shown
    assert all(f" {name}, " in shown for name in (*OFFICIAL, "digits"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
def test_the_examples_run_one_after_the_other(levelhead, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "methods",
        "train",
        "evaluate",
        "reproduce",
    ):  # demo and sweep are tested elsewhere
        for words in examples(name):
            run = [str(path) for path in Path("runs").glob("*") if path.is_dir()][:1]
            few = ["--epochs", "1"] if name == "train" else []
            status, _, err = levelhead(
                *(run[0] if word == "runs/NAME" else word for word in words), *few
            )
            assert status == 0, (words, err)
