"""The digest that is computed by a thread, and begun before all else by the command line: always of the bytes there."""

import hashlib
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from levelhead import cli
from levelhead.cli import begin_early_digest
from levelhead.files import edits as module
from levelhead.files.edits import (
    LARGE_INPUT,
    Digest,
    Edit,
    begin_early,
    digest_meanwhile,
    file_sha256,
)

from ..heads.chosen import tuned_for


@pytest.fixture(autouse=True)
def no_digest_begun(monkeypatch):
    monkeypatch.setattr(module, "_early", {})


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(np.random.default_rng(0).bytes(LARGE_INPUT + 5_000_001))
    return path


@pytest.mark.parametrize("size", [0, 1, LARGE_INPUT - 1, LARGE_INPUT + 12_345])
def test_a_digest_is_that_of_the_bytes(tmp_path, size):
    content = np.random.default_rng(size).bytes(size)
    (tmp_path / "a").write_bytes(content)
    assert (
        Digest(tmp_path / "a")()
        == file_sha256(tmp_path / "a")
        == hashlib.sha256(content).hexdigest()
    )


def test_a_digest_with_edits_is_that_of_the_edited_bytes(large):
    content = large.read_bytes()
    middle = 5_000_000
    edits = [Edit(0, 3, b"longer than before"), Edit(middle, 4, b""), Edit(len(content), 0, b"end")]
    edited = b"longer than before" + content[3:middle] + content[middle + 4 :] + b"end"
    with digest_meanwhile(large, edits) as digest:
        assert digest() == hashlib.sha256(edited).hexdigest()
    assert not digest.thread.is_alive()


def test_a_digest_begun_early_is_waited_for_once(large):
    begin_early(large)
    begun = module._early[str(large.resolve())]
    with digest_meanwhile(large) as digest:
        assert digest is begun
    with digest_meanwhile(large) as again:
        assert again is not begun
    assert digest() == again() == file_sha256(large)


def test_a_digest_begun_early_is_dropped_if_the_file_changed_or_edits_differ(large):
    begin_early(large)
    with large.open("r+b") as file:
        file.write(b"other")
    with digest_meanwhile(large) as digest:
        assert digest() == hashlib.sha256(large.read_bytes()).hexdigest()
    begin_early(large)
    with digest_meanwhile(large, [Edit(0, 0, b"more")]) as digest:
        assert digest() == hashlib.sha256(b"more" + large.read_bytes()).hexdigest()


def test_a_file_that_cannot_be_read_is_said_by_who_asks(large):
    begin_early(large)
    large.unlink()
    with pytest.raises(FileNotFoundError), digest_meanwhile(large):
        pass


def test_the_command_line_begins_the_digest_of_its_input(large, tmp_path):
    small, out = tmp_path / "counts.json", tmp_path / "out"
    small.write_text("[1, 2]")
    out.write_bytes(large.read_bytes())
    begin_early_digest(
        "adjust", "--counts", str(small), "-o", str(out), str(large), "--strength", "1"
    )
    assert list(module._early) == [str(large.resolve())]
    begin_early_digest("adjust", "missing", "\0")
    begin_early_digest("undo", str(large))  # nothing was kept of it
    assert list(module._early) == [str(large.resolve())]


def test_a_large_file_goes_there_and_back_by_the_command_line(tmp_path, monkeypatch, capsys):
    source, out, back = (tmp_path / f"{name}.safetensors" for name in ("model", "leveled", "back"))
    rng = np.random.default_rng(0)
    parts = {
        "body": rng.standard_normal((1 << 11, 1 << 11), np.float32),
        "fc.weight": rng.random((4, 8), np.float32),
    }
    save_file(parts, source)
    tuned_for("scales", counts=[40, 30, 20, 10]).save(tmp_path / "t.json")
    waited = []
    monkeypatch.setattr(
        Digest, "wait", lambda self, wait=Digest.wait: (waited.append(self), wait(self))
    )
    for words in (
        ["adjust", source, "--tuned", tmp_path / "t.json", "-o", out],
        ["undo", out, "-o", back],
    ):
        monkeypatch.setattr(sys, "argv", ["levelhead", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code in (0, None), capsys.readouterr().err
    assert back.read_bytes() == source.read_bytes()
    assert len({id(digest) for digest in waited}) == 2, "each file is hashed once"
    assert not module._early
