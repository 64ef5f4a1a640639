"""Progress bars: drawn on a terminal's stderr, and nowhere else."""

import pytest

from levelhead.support import progress

both = pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])


@both
def test_bytes_are_shown_for_large_files(terminal, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    (tmp_path / "model.safetensors").write_bytes(bytes(2000))
    with progress.copy_progress(tmp_path / "model.safetensors") as advance:
        assert advance is None
    monkeypatch.setattr(progress, "LARGE_FILE", 1000)
    with progress.copy_progress(tmp_path / "model.safetensors") as advance:
        assert (advance is not None) == terminal
        if advance is not None:
            advance(1000)
    assert ("copying" in capsys.readouterr().err) == terminal


@both
def test_stages_are_shown_for_large_logits(terminal, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with progress.stage_progress(progress.LARGE_LOGITS - 1) as update:
        assert update is None
    with progress.stage_progress(progress.LARGE_LOGITS) as update:
        assert (update is not None) == terminal
        for stage in ("path", "bootstrap") * (update is not None):
            update(stage, 1, 2)
    err = capsys.readouterr().err
    assert ("path" in err and "bootstrap" in err) == terminal
