import hashlib
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelhead.files.edits import Edit, copy, file_sha256, rewrite, staged


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
    rewrite(out, back, lambda _: list(back_edits))
    assert back.read_bytes() == data


def test_edits_may_hold_the_digest_of_the_source(tmp_path):
    source, out = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"x" * 100)
    rewrite(source, out, lambda digest: [Edit(50, 0, digest.encode())])
    assert out.read_bytes() == b"x" * 50 + file_sha256(source).encode() + b"x" * 50


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
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"out": b"new", "out.original": b"new"}


def test_a_folder_that_a_killed_run_left_does_no_harm(tmp_path):
    (tmp_path / f".out.{os.getpid()}.tmp").mkdir()
    with staged(tmp_path / "out", force=False) as stage:
        assert stage.stat().st_mode & 0o777 == 0o700
        (stage / "out").write_bytes(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"


def test_progress_tells_every_byte(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100_000))
    done = []
    copy(tmp_path / "a", tmp_path / "b", done.append)
    assert sum(done) == 100_000
    assert (tmp_path / "b").read_bytes() == bytes(100_000)
