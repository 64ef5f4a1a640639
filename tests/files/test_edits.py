import hashlib
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelhead.files.edits import Edit, copy, load_originals, rewrite, save_originals, sha256, staged


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
        original = rewrite(source, out, lambda _: edits)
    assert out.read_bytes() == spliced(data, edits)
    assert original.sha256 == hashlib.sha256(data).hexdigest()
    rewrite(out, back, lambda _: list(original.edits))
    assert back.read_bytes() == data


def test_edits_may_hold_the_digest_of_the_source(tmp_path):
    source, out = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"x" * 100)
    rewrite(source, out, lambda digest: [Edit(50, 0, digest.encode())])
    assert out.read_bytes() == b"x" * 50 + sha256(source).encode() + b"x" * 50


def test_originals_survive_a_file_and_a_cut_file_is_refused(tmp_path):
    source = tmp_path / "a"
    source.write_bytes(b"0123456789")
    kept = {"b": rewrite(source, tmp_path / "b", lambda _: [Edit(2, 3, b"new"), Edit(7, 0, b"!")])}
    save_originals(tmp_path / "b.original", kept)
    assert load_originals(tmp_path / "b.original") == kept
    whole = (tmp_path / "b.original").read_bytes()
    (tmp_path / "b.original").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="cut short"):
        load_originals(tmp_path / "b.original")


@pytest.mark.parametrize("edits", [[[-5, 3, 0]], [[10, 20, 0], [15, 5, 0]], [["a", 5, 0]], [[1, 2]], [[0, -1, 0]], 5])
def test_originals_whose_edits_cannot_be_are_refused(tmp_path, edits):
    facts = {"levelhead": "original", "files": {"b": {"name": "x", "sha256": "", "edits": edits}}}
    (tmp_path / "o").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not a file that `levelhead rescale` kept"):
        load_originals(tmp_path / "o")


def test_originals_that_name_another_folder_are_refused(tmp_path):
    (tmp_path / "o").write_text(
        '{"levelhead": "original", "files": {"b": {"name": "../x", "sha256": "", "edits": []}}}\n', encoding="utf-8"
    )
    with pytest.raises(ValueError, match="not the name of a file"):
        load_originals(tmp_path / "o")


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
    with pytest.raises(ValueError, match=r"out\.original exists"):
        write(force=False)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"out.original": b"old"}
    write(force=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"out": b"new", "out.original": b"new"}


def test_what_a_killed_run_left_is_in_nobodys_way(tmp_path):
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
