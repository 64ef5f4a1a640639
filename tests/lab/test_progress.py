"""The bar of a training: drawn on a terminal's stderr, and nowhere else."""

import re

import pytest

from levelhead_lab.lab.progress import epoch_progress


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("show", [True, False])
def test_epochs_are_shown_with_their_errors(terminal, show, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "120")
    with epoch_progress(show=show) as update:
        update({"epoch": 3, "of": 4, "loss": 0.5, "test_error": 0.25, "train_error": None})
    err = capsys.readouterr().err
    assert ("3/4" in err and "error test 25.0 %; loss 0.500" in err) == (terminal and show)
    assert bool(err) == (terminal and show)


def lines_drawn(capsys):
    """Return what stands on the line after each redraw, without the codes that move the cursor."""
    return [
        line
        for line in re.split(
            r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
        )
        if line
    ]


def test_bar_moves_inside_an_epoch_and_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    with epoch_progress() as update:
        update({"epoch": 1, "of": 200, "batch": 30, "batches": 391})
    first = lines_drawn(capsys)
    assert "0/200 epochs" in first[-1]
    assert "batch 30 of 391" in first[-1]
    with epoch_progress() as update:
        done = {
            "epoch": 199,
            "of": 200,
            "loss": 0.5,
            "train_error": 0.4,
            "test_error": 0.25,
            "held-out_error": 0.241,
        }
        update(done)
        update({"epoch": 200, "of": 200, "batch": 195, "batches": 390})
    second = lines_drawn(capsys)
    assert "199/200 epochs" in second[-1]
    assert "error held-out 24.1 %" in second[-1]
    assert max(map(len, first + second)) <= 80
