import errno
import hashlib
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import levelhead as lh
from levelhead.files import staging
from levelhead.files.edits import Edit, copy, file_sha256, restore, rewrite
from levelhead.files.model import adjust_file
from levelhead.files.staging import staged
from levelhead.support.errors import LevelheadError


@st.composite
def files_with_edits(draw):
    data = draw(st.binary(min_size=0, max_size=200))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    ranges = list(zip(cuts[::2], cuts[1::2], strict=False))
    return data, [Edit(a, b - a, draw(st.binary(max_size=20))) for a, b in ranges]


def spliced(data: bytes, edits: list[Edit]) -> bytes:
    for edit in sorted(edits, key=lambda e: -e.offset):
        data = data[: edit.offset] + edit.data + data[edit.offset + edit.length :]
    return data


def distinct(edits):
    return len({e.offset for e in edits}) == len(edits)


@settings(max_examples=60, deadline=None)
@given(files_with_edits().filter(lambda case: distinct(case[1])), st.booleans())
def test_rewrite_is_a_splice_and_its_originals_are_the_way_back(tmp_path_factory, case, in_kernel):
    folder = tmp_path_factory.mktemp("patch")
    (source, out, back), (data, edits) = (folder / name for name in "abc"), case
    source.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        if not in_kernel:
            patch.delattr(os, "copy_file_range", raising=False)
        digest, back_edits = rewrite(source, out, lambda _: edits)
    assert out.read_bytes() == spliced(data, edits)
    assert digest == hashlib.sha256(data).hexdigest()
    assert restore(out, back, back_edits) == digest
    assert back.read_bytes() == data


def test_edits_may_hold_the_digest_of_the_source(tmp_path):
    source, out = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"x" * 100)
    rewrite(source, out, lambda digest: [Edit(50, 0, digest.encode())])
    assert out.read_bytes() == b"x" * 50 + file_sha256(source).encode() + b"x" * 50


def test_a_large_file_is_hashed_by_another_thread_while_it_is_copied(tmp_path):
    source, out, back = (tmp_path / name for name in "abc")
    data = np.random.default_rng(0).bytes(
        (5 << 22) + 12345
    )  # more blocks than wait at a time, and a part of one
    source.write_bytes(data)
    edits = [
        Edit(7, 100, b"header"),
        Edit(6 << 20, 1 << 20, bytes(1 << 20)),
        Edit(len(data) - 5, 5, b"the end"),
    ]
    seen = []
    digest, back_edits = rewrite(source, out, lambda _: edits, seen.append)
    assert digest == hashlib.sha256(data).hexdigest()
    assert out.read_bytes() == spliced(data, edits)
    assert sum(seen) == len(data) - 105 - (1 << 20)
    assert restore(out, back, back_edits) == digest
    assert back.read_bytes() == data


@pytest.mark.parametrize("size", [100, 20 << 20])
def test_a_file_that_becomes_shorter_stops_the_copy_and_its_thread(tmp_path, size):
    source, before = tmp_path / "a", threading.active_count()
    source.write_bytes(bytes(size))

    def shorten(_):
        os.truncate(source, 60)
        return [Edit(50, 0, b"x")]

    with pytest.raises(ValueError, match="became shorter"):
        rewrite(source, tmp_path / "b", shorten, lambda done: os.truncate(source, 55))
    assert threading.active_count() == before


@pytest.mark.parametrize("interruption", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_nothing_behind(tmp_path, interruption):
    def write():
        with staged(tmp_path / "out", force=False) as stage:
            (stage / "out").write_bytes(b"half")
            raise interruption

    with pytest.raises(interruption):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_replaced_only_by_force_and_all_at_once(tmp_path):
    def write(force):
        with staged(tmp_path / "out", force=force) as stage:
            (stage / "out").write_bytes(b"new")
            (stage / "out.original").write_bytes(b"new")

    (tmp_path / "out.original").write_bytes(b"old")
    with pytest.raises(FileExistsError, match=r"out\.original exists; pass force to replace it"):
        write(force=False)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"out.original": b"old"}
    write(force=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {
        "out": b"new",
        "out.original": b"new",
    }


def test_the_folder_that_others_may_not_enter(tmp_path):
    with staged(tmp_path / "out", force=False) as stage:
        assert stage.stat().st_mode & 0o777 == 0o700
        (stage / "out").write_bytes(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"


def write_two(out, *, force=False):
    with staged(out, force=force) as stage:
        for name in ("out", "out.original"):
            (stage / name).write_bytes(b"new")


def fail_at(monkeypatch, name, times, number=errno.EIO):
    """Let a function of os fail at its n-th call."""
    real, calls = getattr(os, name), iter(range(100))

    def failing(*args, **how):
        if next(calls) == times:
            raise OSError(number, os.strerror(number), *([args[0]] if name == "replace" else []))
        return real(*args, **how)

    monkeypatch.setattr(os, name, failing)


@pytest.mark.parametrize("times", [0, 1])
@pytest.mark.parametrize(
    "old", [{}, {"out": b"old"}, {"out.original": b"old"}, {"out": b"old", "out.original": b"old"}]
)
def test_after_a_rename_that_fails_all_is_as_it_was(tmp_path, monkeypatch, times, old):
    for name, data in old.items():
        (tmp_path / name).write_bytes(data)
    fail_at(monkeypatch, "replace", times)
    with pytest.raises(OSError, match="Input/output error") as error:
        write_two(tmp_path / "out", force=True)
    assert error.value.filename == str(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old


def test_the_file_that_stands_for_the_model_appears_last(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "link", lambda a, b, real=os.link: (real(a, b), seen.append(b.name)))
    write_two(tmp_path / "out")
    assert seen == ["out.original", "out"]


def test_of_two_writers_without_force_one_is_told_that_the_file_exists(tmp_path, monkeypatch):
    monkeypatch.setattr(
        staging, "_check_free", lambda target, force: None
    )  # the other appears after the last look

    def write_as_another_does():
        with staged(tmp_path / "out", force=False) as stage:
            (stage / "out").write_bytes(b"ours")
            (tmp_path / "out").write_bytes(b"of the other")

    with pytest.raises(FileExistsError):
        write_as_another_does()
    assert (tmp_path / "out").read_bytes() == b"of the other"
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_one_of_the_file_that_was_to_be_written(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(bytes(1000))
    monkeypatch.delattr(os, "copy_file_range", raising=False)

    def write():
        with staged(tmp_path / "out", force=False) as stage, (stage / "out").open("wb"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as error:
        write()
    assert error.value.filename == str(tmp_path / "out")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("size", [100, 50])
def test_an_input_that_changes_while_it_is_read_is_refused_and_nothing_written(tmp_path, size):
    path, data = tmp_path / "m.safetensors", np.eye(3, dtype=np.float32)
    save_file({"fc.weight": data, "x": np.zeros(1000, np.float32)}, path)
    whole = path.read_bytes()

    def change(done):
        path.write_bytes(whole[: len(whole) * size // 100])
        os.utime(path, ns=(0, 0))

    with pytest.raises(LevelheadError, match=r"m\.safetensors: changed while it was read"):
        adjust_file(
            path, tmp_path / "o.safetensors", lh.rules.Rescale(1), [4, 2, 1], progress=change
        )
    assert os.listdir(tmp_path) == ["m.safetensors"]


def test_progress_tells_every_byte(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100_000))
    done = []
    copy(tmp_path / "a", tmp_path / "b", done.append)
    assert sum(done) == 100_000
    assert (tmp_path / "b").read_bytes() == bytes(100_000)
