"""What tests of several parts share."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from levelhead.cli import main


@pytest.fixture
def levelhead(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process: exit status, stdout, stderr."""

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["levelhead", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capfd.readouterr())

    return command


@pytest.fixture
def in_two_processes(tmp_path) -> Callable[[Path], None]:
    """Run a script twice at once, as RANK and a file to meet at tell it; both must end well."""

    def run(script: Path) -> None:
        workers = [subprocess.Popen([sys.executable, script, str(rank), tmp_path / "meet"], text=True,
                                    env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT) for rank in range(2)]
        for worker in workers:
            output, _ = worker.communicate(timeout=120)
            assert worker.returncode == 0, output

    return run
