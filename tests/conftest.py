"""Fixtures that several rooms share."""

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from levelhead.cli import main

# What the tests hold, they hold on every machine: a GPU is hidden. `fast/check_kernels.py` holds what runs on one.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

TWO_RANKS = Path(__file__).parents[1] / "tools" / "two_ranks.py"

# Words of Python that no line of the command line may contain: an argument, a dtype, a codec, an option of numpy.
PYTHON = re.compile(
    r"\b(?!reduction)\w+='|\b\w+=[ ;,)\n]|<U\d|codec|allow_pickle|\barray\(|np\.\w|\bNoneType\b|Errno"
)


@pytest.fixture
def levelhead(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: (exit status, stdout, stderr). No error may contain words of Python."""

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["levelhead", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        status, out, err = int(ended.value.code or 0), *capfd.readouterr()
        assert not (status and PYTHON.search(err)), err
        return status, out, err

    return command


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Collect no garbage: in the middle of `ast.parse` another thread may parse then, a SystemError on Python 3.11."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def start_ray() -> Callable[[Callable[[], object]], object]:
    """Start Ray by a function: once more where its node was not there within the 30 s that Ray gives a busy machine."""

    def start(begin: Callable[[], object]) -> object:
        try:
            return begin()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            import ray

            ray.shutdown()
            return begin()

    return start


@pytest.fixture
def in_two_processes(tmp_path) -> Callable[[Path], None]:
    """Run a script in two processes, given their rank and a file to meet at. Both must end with 0."""

    def run(script: Path) -> None:
        done = subprocess.run(
            [sys.executable, TWO_RANKS, script, tmp_path / "meet"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout.decode()

    return run
