"""The help: a newcomer finds what to type, and what it shows runs."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.main import get_command
from typer.models import OptionInfo

from levelhead import cli
from levelhead.core.counts import long_tail

GROUPS = {  # each in the order of their use
    "Your model": ["inspect", "adjust", "undo"],
    "Your scores": ["tune", "compare", "apply", "report"],
}
COMMANDS = [name for names in GROUPS.values() for name in names]


def examples(name: str) -> list[list[str]]:
    """Return the words of each example that the help of a command shows."""
    text = get_command(cli.app).commands[name].epilog or ""  # type: ignore[attr-defined]
    return [
        shlex.split(line)[1:] for line in text.splitlines() if line.strip().startswith("levelhead ")
    ]


def test_the_commands_come_in_groups_in_the_order_of_their_use(levelhead):
    shown = levelhead("--help")[1].partition("\nTraining and study:\n")[0]
    parts = re.split(rf"^({'|'.join(GROUPS)}):$", shown, flags=re.MULTILINE)[1:]
    titles, listed = (
        parts[::2],
        [re.findall(r"^  (\w+)  +[A-Z]", part, re.MULTILINE) for part in parts[1::2]],
    )
    assert dict(zip(titles, listed, strict=True)) == GROUPS
    assert "Commands:" not in shown


def test_the_help_says_what_to_type_first(levelhead):
    shown = levelhead("--help")[1]
    assert "labels:\n    levelhead tune --logits" in shown
    assert "levelhead COMMAND --help" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_an_example_of_it(levelhead, name):
    shown = levelhead(name, "--help")[1]
    assert examples(name)
    for words in examples(name):
        assert words[0] == name
        assert f"    levelhead {shlex.join(words)}\n" in shown  # on a line of its own, to copy


@pytest.mark.parametrize("name", get_command(cli.app).commands)  # type: ignore[attr-defined]
def test_what_to_put_in_is_named_in_words_and_not_by_types_of_python(levelhead, name):
    shown = levelhead(name, "--help")[1]
    assert re.findall(r"<[^>]*>|\{[^}]*\}", shown) == []  # such as <list[Path]>, or {model}
    usage, _, rest = shown.partition("\n\n")
    words = re.findall(r"[A-Z]+(?:\.\.\.)?", usage.partition("[OPTIONS]")[2])
    described = re.findall(r"^  ([A-Z]+(?:\.\.\.)?)  ", rest.partition("Arguments:\n")[2], re.M)
    assert words == described
    typed = re.findall(r"^  (?:-\w, )?--[\w-]+ (\S+)", shown, re.M)
    assert all(re.fullmatch(r"[A-Z]+|\[[\w|-]+\]", word) for word in typed if word != "/"), typed


@pytest.fixture
def files(tmp_path, monkeypatch) -> None:
    """The files that the examples name, of three classes."""
    monkeypatch.chdir(tmp_path)
    rng, counts = np.random.default_rng(0), long_tail(5000, 3, 100)
    labels = np.repeat(np.arange(3), 60)
    weight = (np.eye(3, 8) * (counts[:, None] / 5000) ** 0.2).astype(np.float32)
    features = (2 * np.eye(3, 8)[labels] + 0.9 * rng.normal(size=(180, 8)) + 1).astype(np.float32)
    bias = np.zeros(3, np.float32)
    save_file({"classifier.weight": weight, "classifier.bias": bias}, "model.safetensors")
    np.save("logits.npy", features @ weight.T)
    np.save("labels.npy", labels)
    Path("counts.json").write_text(json.dumps(counts.tolist()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
def test_the_examples_run_one_after_the_other(levelhead, files):
    for name in ("inspect", "tune", "compare", "apply", "adjust", "undo", "report"):
        for words in examples(name):
            status, _, err = levelhead(*words)
            assert status == 0, (words, err)


def test_the_list_of_commands_is_shown_without_loading_the_library():
    code = (
        "import sys; sys.argv = ['levelhead', '--help']\n"
        "from levelhead.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'rich', 'torch', 'levelhead.core.rules'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_option_whose_value_is_called_like_it_says_its_own_name():
    # typer 0.27 takes the value's word for the name of the option, and --counts becomes --COUNTS.
    for command in cli.app.registered_commands:
        assert command.callback is not None
        hints = get_type_hints(command.callback, include_extras=True)
        for name, hint in hints.items():
            for option in getattr(hint, "__metadata__", ()):
                if isinstance(option, OptionInfo) and (option.metavar or "").lower() == name:
                    # typer keeps the first name of an annotated option as its default.
                    assert option.default == f"--{name}", (command.callback.__name__, name)
