"""Atomic files: replaced in one step or not at all, with the permissions of what they replace."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from levelhead.support import atomic


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("bits", [0o600, 0o640, 0o444, 0o666])
def test_a_replaced_file_keeps_its_permissions_from_the_first_byte_on(tmp_path, bits):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(bits)
    with atomic.atomic_open(path) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == bits
        file.write(b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", bits)


def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path):
    atomic.write(tmp_path / "a", "text")
    assert mode(tmp_path / "a") == 0o644


def test_permissions_are_those_that_all_files_grant(tmp_path):
    for name, bits in (("a", 0o4755), ("b", 0o640)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(bits)
    assert atomic.permissions(tmp_path / "a") == 0o755
    assert atomic.permissions(tmp_path / "a", tmp_path / "b") == 0o640


def test_of_two_writers_at_once_the_last_to_finish_stays(tmp_path):
    path = tmp_path / "a"
    with atomic.atomic_open(path) as slow:
        slow.write(b"slow")
        with atomic.atomic_open(path) as quick:
            assert (
                len(list(tmp_path.glob("a.*.tmp"))) == 2
            )  # by which leftovers of what was killed are known
            quick.write(b"quick")
        assert (path.read_bytes(), mode(path)) == (b"quick", 0o644)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a": b"slow"}


def test_a_new_file_replaces_none_that_appears_meanwhile(tmp_path):
    def write_as_another_does():
        with atomic.atomic_open(tmp_path / "a", new=True) as file:
            file.write(b"ours")
            (tmp_path / "a").write_bytes(b"of the other")

    with pytest.raises(FileExistsError, match="exists"):
        write_as_another_does()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"of the other"}
    atomic.write(tmp_path / "b", "new", new=True)
    assert (tmp_path / "b").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2


def test_threads_may_write_one_path(tmp_path):
    def write(i):
        for _ in range(30):
            atomic.write(tmp_path / "a", bytes([i]) * 50_000)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, (1, 2)))
    content = (tmp_path / "a").read_bytes()
    assert (len(content), len(set(content))) == (50_000, 1)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_stops_halfway_leaves_the_old_file(tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def write():
        with atomic.atomic_open(tmp_path / "a") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


def test_a_full_disk_is_one_of_the_file_that_was_to_be_written(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        atomic.write(tmp_path / "a", "text")
    assert error.value.filename == str(tmp_path / "a")
    assert not list(tmp_path.iterdir())
