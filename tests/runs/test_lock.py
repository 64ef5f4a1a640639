"""The lock of a run's folder."""

import subprocess
import sys
import time

import pytest

from levelhead_lab.runs.lock import BusyError, lock_folder

HOLD = """
import sys, time
from pathlib import Path
from levelhead_lab.runs.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_lock_is_refused_and_released_with_the_first(tmp_path):
    busy = pytest.raises(BusyError, match="another process is training this run")
    with lock_folder(tmp_path / "run"), busy, lock_folder(tmp_path / "run"):
        pass
    with lock_folder(tmp_path / "run"), lock_folder(tmp_path / "other"):
        pass


def test_process_that_does_not_write_needs_no_lock(tmp_path):
    with lock_folder(tmp_path), lock_folder(tmp_path, writes=False):
        pass


def test_lock_is_released_when_its_block_fails(tmp_path):
    with pytest.raises(KeyError), lock_folder(tmp_path):
        raise KeyError
    with lock_folder(tmp_path):
        pass


def test_lock_of_another_process_holds_until_it_is_killed(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout.readline() == "held\n"
            with (
                pytest.raises(BusyError, match="another process is training"),
                lock_folder(tmp_path),
            ):
                pass
        finally:
            other.kill()
            other.wait()
    time.sleep(0.01)
    with lock_folder(tmp_path):  # it could not remove its file
        pass
