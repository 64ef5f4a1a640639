"""Systems without locks and signal masks, such as Windows: training and all else works there too."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from levelhead.core.head import Head
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper.train_groups import train_missing
from levelhead_lab.runs.signals import interrupts_blocked
from tools import layouts

RECORDS = Path(__file__).parents[2] / "results" / "records"
WINDOWS = """
import signal, sys
sys.modules["fcntl"] = None
del signal.pthread_sigmask
from levelhead.cli import main
main()
"""


def on_windows(folder: Path, *words: object) -> tuple[int, str]:
    """Run a command without fcntl; return its exit status and what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS, *map(str, words)],
        cwd=folder,
        text=True,
        timeout=100,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout


def test_a_run_is_evaluated_without_locks(tmp_path):
    labels = np.arange(20) % 2
    left = Snapshot(
        Head(3 * np.eye(2)), np.array([90, 10]), {"test": np.eye(2)[labels]}, {"test": labels}
    )
    left.save(tmp_path / "snapshot.safetensors")
    for name in ("spec.json", "done.json"):
        (tmp_path / name).write_text("{}")
    status, said = on_windows(tmp_path, "evaluate", tmp_path, "--strength", "0.5")
    assert status == 0, said
    assert "balanced error" in said


def test_a_run_is_read_without_torch():
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, levelhead.report as _; assert 'torch' not in sys.modules",
        ],
        check=True,
        timeout=100,
    )


@pytest.mark.slow
def test_what_a_table_lacks_is_listed(tmp_path):
    status, said = on_windows(tmp_path, "reproduce", "table1", "--dry-run", "--results", RECORDS)
    assert status == 0, said
    assert "networks have a record" in said


@pytest.mark.slow
def test_training_needs_no_locks_of_the_system(tmp_path):
    layouts.write_small_npz(tmp_path, epochs=1)
    words = ["train", "--data", "small.npz", "--net", "digits", "--recipe", "short.toml"]
    status, said = on_windows(tmp_path, *words)
    assert status == 0, said
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "done.json").is_file()


def test_workers_start_where_signals_cannot_be_masked(monkeypatch):
    monkeypatch.delattr("signal.pthread_sigmask")
    with interrupts_blocked():
        begun = True
    assert begun


def test_cores_are_counted_where_a_process_has_no_affinity(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert train_missing([], tmp_path / "records", tmp_path / "runs", device="cpu") == 0
