"""Completion in the shell: what the command answers a shell that asks, and real shells that press Tab."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from levelhead.core.metrics import METRICS
from levelhead.core.rules import RULES

LEVELHEAD = Path(sys.executable).with_name("levelhead")

pytestmark = pytest.mark.skipif(
    not LEVELHEAD.exists(), reason="the command is not installed in this environment"
)


def ask_bash(*words: str) -> list[str]:
    """Return the completions of the last word, asked as the function of bash does."""
    env = {
        "_LEVELHEAD_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["levelhead", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [LEVELHEAD], env=os.environ | env, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def ask_zsh(line: str) -> str:
    """Return what zsh is told to evaluate after this line."""
    env = {"_LEVELHEAD_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    return subprocess.run(
        [LEVELHEAD], env=os.environ | env, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ap"], ["apply"]),
        (["tune", "--chos"], ["--chosen-on"]),
        (["tune", "--rule", ""], list(RULES)),
        (["tune", "--metric", ""], list(METRICS)),
        (["compare", "--metric", "b"], ["balanced_error"]),
        (["tune", "--kind", "p"], ["probabilities"]),
        (["adjust", "--rule", ""], ["shift", "rescale", "tau"]),
        (["adjust", "--bias", ""], ["scale", "keep"]),
        (["tune", "--logits", ""], []),  # the shell completes files
    ],
)
def test_bash_is_answered(words, expected):
    assert ask_bash(*words) == expected


def test_zsh_is_answered_with_explanations():
    assert '"offsets"\n"shift"\n"rescale"' in ask_zsh("levelhead tune --rule ")
    assert "balanced_error" in ask_zsh("levelhead tune --metr")
    assert ask_zsh("levelhead tune --logits ") == "_files\n"


def press_tab(command: list[str], line: str, expected: str, home: Path) -> str:
    """Type a line and Tab in an interactive shell; return what the terminal shows once that contains `expected`."""
    env = os.environ | {
        "HOME": str(home),
        "PATH": f"{LEVELHEAD.parent}:{os.environ['PATH']}",
        "TERM": "dumb",
    }
    main, terminal = pty.openpty()
    shell = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=env,
        cwd=home,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        shown = _read_until(main, "READY>")
        os.write(main, line.encode())
        for _ in range(60):  # the first Tab in zsh only loads the function
            if expected not in shown:
                os.write(main, b"\t")
                shown += _read_until(main, expected, seconds=1)
    finally:
        shell.kill()
        shell.wait()
        os.close(main)
    return shown


def _read_until(terminal: int, expected: str, seconds: float = 60) -> str:
    shown, end = "", time.monotonic() + seconds
    while expected not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 1 << 16).decode(errors="replace")
    return shown


@pytest.mark.slow
@pytest.mark.parametrize(("shell", "rc"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_a_real_shell_completes_once_it_is_installed(shell, rc, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    env = os.environ | {"HOME": str(tmp_path)}
    show, install = (
        subprocess.run(
            [shell, "-c", f"{LEVELHEAD} --{what}-completion; true"],
            env=env,
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        for what in ("show", "install")
    )
    assert "_LEVELHEAD_COMPLETE" in show
    assert f"{shell} completion installed in {tmp_path}" in install
    with (tmp_path / rc).open("a") as file:
        file.write("\nPS1='READY>'\n")
    shown = press_tab([shell, "-i"], "levelhead tune --metric b", "alanced_error", tmp_path)
    assert "levelhead tune --metric balanced_error" in shown.replace("\a", "")
