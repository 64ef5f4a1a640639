"""The lock of a run's folder, with the system's locks and without them."""

import os
import platform
import subprocess
import sys
import textwrap
import time

import pytest

from levelhead_lab.runs.lock import BusyError, lock_folder

HOLD = """
import sys, time
from pathlib import Path
if {without}:
    sys.modules["fcntl"] = None
from levelhead_lab.runs.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=[False, True], ids=["fcntl", "without"])
def without(request, monkeypatch):
    if request.param:
        monkeypatch.setitem(sys.modules, "fcntl", None)
    return request.param


def test_second_lock_is_refused_and_released_with_the_first(tmp_path, without):
    busy = pytest.raises(BusyError, match="another process is training this run")
    with lock_folder(tmp_path / "run"), busy, lock_folder(tmp_path / "run"):
        pass
    with lock_folder(tmp_path / "run"), lock_folder(tmp_path / "other"):
        assert (tmp_path / "run" / "lock.holder").exists() == without
    assert not (tmp_path / "run" / "lock.holder").exists()


def test_process_that_does_not_write_needs_no_lock(tmp_path, without):
    with lock_folder(tmp_path), lock_folder(tmp_path, writes=False):
        pass


def test_lock_is_released_when_its_block_fails(tmp_path, without):
    with pytest.raises(KeyError), lock_folder(tmp_path):
        raise KeyError
    with lock_folder(tmp_path):
        pass


def test_lock_of_another_process_holds_until_it_is_killed(tmp_path, without):
    code = textwrap.dedent(HOLD.format(without=without))
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True
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


@pytest.mark.parametrize(
    "holder", ["elsewhere 1", "", "text without a number", f"{platform.node()} {os.getppid()}"]
)
def test_lock_whose_holder_may_be_running_is_not_taken_over(tmp_path, monkeypatch, holder):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    (tmp_path / "lock.holder").write_text(holder)
    with (
        pytest.raises(BusyError, match=r"if there is none, delete .*lock\.holder"),
        lock_folder(tmp_path),
    ):
        pass
    assert (tmp_path / "lock.holder").read_text() == holder
