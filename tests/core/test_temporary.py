"""Temporary files and folders: gone when they are done with, and what a killed process left goes with the next."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from levelhead.support import atomic as scratch

HELD = """
import sys
from pathlib import Path
from levelhead.support.atomic import scratch
with scratch(Path(sys.argv[1]), folder=sys.argv[2] == "folder") as place:
    if place.is_dir():
        (place / "half").write_bytes(b"half")
    print(place, flush=True)
    sys.stdin.read()
"""

INTERRUPTED = """
import atexit, multiprocessing.util, os, sys
from pathlib import Path
from levelhead.support import atomic

steps = 0

def interrupt_before(last):
    def trace(frame, event, _):
        global steps
        if frame.f_code.co_filename.endswith(("atomic.py", "contextlib.py")):
            frame.f_trace_opcodes = True
            steps += event == "opcode"
            if steps == last:
                raise KeyboardInterrupt
        return trace
    return trace

# Python 3.12 traces opcodes only if a frame asked for them before tracing began.
sys._getframe().f_trace_opcodes = True
folder, last, left = Path(sys.argv[1]), 0, []
while True:
    last += 1
    child = os.fork()
    if not child:
        sys.settrace(interrupt_before(last))
        try:
            with atomic.scratch(folder / "model", folder=sys.argv[2] == "folder"):
                pass
        except KeyboardInterrupt as stop:
            kept = stop  # with its frames, as an error that is shown keeps them
        sys.settrace(None)
        atexit._run_exitfuncs()
        os._exit(steps < last)
    _, status = os.waitpid(child, 0)
    left += [(last, name) for name in os.listdir(folder)]
    if status:
        break
print(last, left)
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(scratch, "_seen", set())


def hold(path, kind):
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, path, kind], stdin=-1, stdout=-1, text=True
    )
    place = process.stdout.readline().strip()
    assert os.path.exists(place)
    return process, place


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not(tmp_path, kind):
    (living, used), (dying, left) = hold(tmp_path / "a", kind), hold(tmp_path / "b", kind)
    dying.send_signal(signal.SIGKILL)
    dying.communicate()
    assert os.path.exists(left)
    with scratch.scratch(tmp_path / "c"):
        assert os.path.exists(used)
        assert not os.path.exists(left)
    living.communicate("")
    assert living.returncode == 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_interrupt_between_any_two_steps_leaves_nothing(tmp_path, kind):
    run = [sys.executable, "-c", INTERRUPTED, tmp_path, kind]
    steps, left = subprocess.check_output(run, text=True).split(maxsplit=1)
    assert int(steps) > 100  # at each of which one process was interrupted
    assert left == "[]\n"


def test_only_what_is_ours_is_removed(tmp_path):
    ours = tmp_path / f"a.{scratch._machine()}{'0' * 8}.tmp"
    others = [
        tmp_path / name
        for name in ("a.tmp", f"a.{'f' * 16}.tmp", "a.0123456789abcdef", ".a.x7_1kj2_.tmp")
    ]
    for path in (ours, *others):
        path.write_bytes(b"x")
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_bytes(b"x")
    link = tmp_path / f"b.{scratch._machine()}{'0' * 8}.tmp"
    link.symlink_to(target)
    scratch.remove_leftovers(tmp_path)
    assert not ours.exists()
    assert all(path.exists() for path in (*others, link, target / "file"))


def test_a_pipe_of_our_name_is_removed_without_being_waited_for(tmp_path):
    os.mkfifo(tmp_path / f"a.{scratch._machine()}{'0' * 8}.tmp")
    scratch.remove_leftovers(tmp_path)  # to open it would take for ever
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_one_that_is_taken_for_a_leftover_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch, kind
):
    taken, real = [], scratch.fcntl.flock

    def late(descriptor, how):
        if not taken:
            taken.extend(tmp_path.iterdir())
            scratch._remove(taken[0])
        real(descriptor, how)

    monkeypatch.setattr(scratch.fcntl, "flock", late)
    with scratch.scratch(tmp_path / "a", folder=kind == "folder") as place:
        assert place.exists()
        assert place != taken[0]


def test_a_folder_that_another_process_takes_for_a_leftover_is_made_again(tmp_path, monkeypatch):
    taken = []

    def take_first(path, flags, mode=0o777, real=os.open):
        if not taken and str(path).endswith(".tmp"):
            taken.append(path)
            os.rmdir(path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", take_first)
    with scratch.scratch(tmp_path / "a", folder=True) as place:
        assert place.is_dir()
        assert place != taken[0]


def test_a_folder_that_cannot_be_listed_once_is_removed_all_the_same(tmp_path, monkeypatch):
    failed, listed = [], os.open

    def fail_once(path, *rest, **options):
        if not failed:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error", path)
        return listed(path, *rest, **options)

    with scratch.scratch(tmp_path / "model", folder=True) as place:
        (place / "part").write_bytes(b"part")
        monkeypatch.setattr(os, "open", fail_once)
    assert failed == [place]
    assert not list(tmp_path.iterdir())
