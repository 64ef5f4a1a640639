"""The figures beyond the paper show what was measured, and say what is missing."""

import json
from pathlib import Path

import pytest

from levelhead.show.plot import pyplot
from levelhead_lab.paper import figure_beyond
from levelhead_lab.paper.beyond_tables import shift_cell
from levelhead_lab.paper.cells import cell, load_records
from levelhead_lab.paper.figure_style import MissingSource
from levelhead_lab.paper.tables import tables

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(autouse=True)
def _closed():
    """No figure is left open for another test to find."""
    yield
    pyplot().close("all")


def heights(panel, marker: str) -> list[float]:
    """Return where the markers of one kind stand, from the left."""
    marks = [
        line for line in panel.lines if line.get_marker() == marker and len(line.get_xdata()) == 1
    ]
    return [
        float(line.get_ydata()[0]) for line in sorted(marks, key=lambda line: line.get_xdata()[0])
    ]


@pytest.mark.slow
def test_every_mark_of_the_frontier_stands_at_its_cell():
    records, table = load_records(RESULTS / "records"), tables()["frontier"]
    drawn, by = figure_beyond.draw_frontier(records), "gamma from a hold-out"
    assert "(72 networks)" in drawn.caption
    # The page lists a lower one, of a network that was trained on other images before.
    dashed = [
        line.get_ydata()[0]
        for panel in drawn.figure.axes
        for line in panel.lines
        if line.get_linestyle() == "--" and len(line.get_xdata()) == 2
    ]
    assert dashed == [13.71, 45.8]
    assert table["pretrained"]["cifar100"] < 45.8
    assert "lowest published error of a ResNet-32 trained from scratch" in drawn.caption
    for panel, data in zip(drawn.figure.axes, ("cifar10", "cifar100"), strict=True):
        cells = [
            (column, method)
            for column in table["columns"]
            if f"/{data}:" in column
            for method in table["methods"]
        ]
        wanted = [
            sum(of_seeds) / 3 for of_seeds in (cell(records, *place, by).errors for place in cells)
        ]
        assert heights(panel, "_") == pytest.approx(wanted)
        alone, shifted = (
            (cell(records, *place).errors for place in cells),
            (shift_cell(records, *place, by).errors for place in cells),
        )
        both = [sum(errors) / 3 for pair in zip(alone, shifted, strict=True) for errors in pair]
        assert heights(panel, "o") == pytest.approx(both)


@pytest.mark.slow
def test_the_epochs_are_drawn_as_measured():
    runs = json.loads((RESULTS / "epochs.json").read_text(encoding="utf-8"))
    figure = figure_beyond.draw_epochs(runs).figure
    left = [panel for panel in figure.axes if panel.get_ylabel().startswith("ratio")]
    wvn = {run["ratio"]: run["epochs"] for run in runs if run["method"] == "wvn"}
    assert [panel.get_ylabel() for panel in left] == ["ratio 100\nerror, %", "ratio 10\nerror, %"]
    for panel, epochs in zip(left, (wvn[100], wvn[10]), strict=True):
        assert list(panel.lines[1].get_ydata()) == pytest.approx(
            [100 * row["rescale"]["error"] for row in epochs]
        )
        assert panel.get_ylim()[0] < min(100 * row["shift"]["error"] for row in epochs)
    assert [float(panel.lines[4].get_ydata()[0]) for panel in left] == [
        20.17,
        10.71,
    ]  # as published


def test_what_is_missing_is_said():
    with pytest.raises(MissingSource, match="no network of the recipe frontier has a record"):
        figure_beyond.draw_frontier([])
    with pytest.raises(MissingSource, match="WVN was not measured epoch by epoch"):
        figure_beyond.draw_epochs([])
