"""Ctrl-C as a terminal sends it, to every process of a command; and SIGTERM, to the first of them."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec
from tools import layouts

RESUME = "run the same command again to resume"
WORK = """
import os, signal, sys, time
from levelhead_lab.runs.signals import graceful_stop
from levelhead_lab.runs.workers import run_tasks

if sys.argv[1] == "importing" and __name__ != "__main__":
    os.kill(os.getpid(), signal.SIGINT)  # must not be heard
    os.write(1, b"there\\n")
    time.sleep(60)

TASK = '''
import os, time
from pathlib import Path
try:
    os.write(1, b"there\\\\n")
    time.sleep(60)
finally:
    Path({!r}).write_text("in order")
'''

if __name__ == "__main__":
    with graceful_stop(lambda: "some of it is done", print):
        list(run_tasks([TASK.format(name) for name in sys.argv[2:]], exec, where="processes", workers=2))
"""


@pytest.fixture
def begin(tmp_path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Start commands as a shell does, each in its own process group, with both streams in one."""
    begun: list[subprocess.Popen] = []

    def command(*words: object) -> subprocess.Popen:
        begun.append(
            subprocess.Popen(
                [sys.executable, *map(str, words)],
                cwd=tmp_path,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                text=True,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
        return begun[-1]

    yield command
    for process in begun:
        if members(process):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def members(process: subprocess.Popen) -> list[int]:
    """Return the processes of its group that still run."""
    processes = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == process.pid and state != "Z":
            processes.append(int(stat.parent.name))
    return processes


def until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def tell(process: subprocess.Popen, number: int) -> str:
    """Return what it prints after Ctrl-C or SIGTERM; it must end by itself, with all of its processes."""
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    said, _ = process.communicate(timeout=50)
    assert process.returncode == 128 + number
    until(lambda: not members(process), 50)
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["importing", "working"])
def test_stopping_prints_one_line_and_the_workers_clean_up(begin, tmp_path, when, number):
    (tmp_path / "work.py").write_text(WORK)
    process = begin("work.py", when, "a", "b")
    assert [process.stdout.readline() for _ in range(2)] == ["there\n"] * 2
    assert tell(process, number) == f"levelhead: stopped; some of it is done; {RESUME}\n"
    left = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert left - {"work.py"} == ({"a", "b"} if when == "working" else set())


def test_workers_end_with_the_process_that_started_them(begin, tmp_path):
    (tmp_path / "work.py").write_text(WORK)
    process = begin("work.py", "working", "a", "b")
    assert [process.stdout.readline() for _ in range(2)] == ["there\n"] * 2
    process.kill()
    process.wait()
    until(lambda: not members(process), 50)


@pytest.fixture
def spec(tmp_path) -> Iterator[Spec]:
    """A training of three classes for about a second, in one thread."""
    layouts.write_small_npz(tmp_path, epochs=20)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Spec("small.npz", method="wvn", net="digits", recipe="short.toml", hold_out=0.1)
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_stopped_sweep_resumes_to_the_same_network(begin, spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(
        'data = "small.npz"\nmethod = "wvn"\nnet = "digits"\nrecipe = "short.toml"\nhold_out = 0.1\nseed = [0, 1]\n'
    )
    process = begin("-m", "levelhead", "sweep", "grid.toml", "--workers", "1")
    until(lambda: list(tmp_path.glob("runs/*/checkpoint-*")))
    assert (
        tell(process, signal.SIGINT) == f"levelhead: stopped; 0 of 2 runs are finished; {RESUME}\n"
    )
    assert not list(tmp_path.glob("runs/*/*.tmp"))
    parts, whole = (run(spec, runs).path / "model.safetensors" for runs in ("runs", "whole"))
    assert parts.read_bytes() == whole.read_bytes()


@pytest.mark.slow
def test_a_training_that_is_stopped_says_what_it_keeps(begin, spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = begin(
        "-m",
        "levelhead",
        "train",
        "--data",
        "small.npz",
        "--net",
        "digits",
        "--recipe",
        "short.toml",
        "--threads",
        "1",
    )
    until(lambda: list(tmp_path.glob("runs/*/checkpoint-*")))
    said = tell(process, signal.SIGTERM)
    there = Run.of(spec, "runs")
    kept = re.fullmatch(
        f"levelhead: stopped; {there.path} keeps (.*) of 20 epochs; {RESUME}\n", said
    )
    assert kept is not None
    assert 0 <= len(there.log) - int(kept[1]) <= 1  # an epoch is logged, then saved
    assert not list(there.path.glob("*.tmp"))
