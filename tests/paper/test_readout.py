"""Cells are held against records written by hand."""

import pytest

from levelhead.paper.readout import Cell, at_gamma, cell, companion_gamma, fill, table1
from levelhead.paper.record import GRID


def made(method: str, seed: int, error: float, held_out: dict | None = None, column: str = "cifar10:100") -> dict:
    """A record whose curve falls from its error by 0.1 a unit of gamma."""
    return {"column": column, "method": method, "seed": seed, "hold_out": 0.1 if held_out else 0.0, "error": error,
            "best_epoch": {"epoch": 3, "error": error - 0.01}, "held_out": held_out,
            "match_prior": {"gamma": 0.4, "error": error - 0.04}, "best_on_test": {"gamma": 2.0, "error": error - 0.2},
            "curve": [error - 0.1 * gamma for gamma in GRID]}


RECORDS = [made("baseline", 0, 0.30), made("baseline", 1, 0.28), made("wvn", 0, 0.31),
           made("baseline", 0, 0.33, held_out={"rescale": {"gamma": 0.5012}})]


def test_a_cell_is_the_runs_on_the_whole_training_set():
    assert cell(RECORDS, "cifar10:100", "baseline").errors == pytest.approx((30.0, 28.0))
    assert cell(RECORDS, "cifar10:100", "baseline").text == "29.00 ± 1.41"
    assert cell(RECORDS, "cifar10:100", "wvn").text == "31.00"
    assert cell(RECORDS, "cifar10:50", "wvn") == Cell(())


def test_gamma_of_a_column_comes_from_its_companion_and_is_read_off_each_curve():
    assert companion_gamma(RECORDS, "cifar10:100", "baseline") == 0.5012
    assert companion_gamma(RECORDS, "cifar10:100", "wvn") is None
    assert at_gamma(RECORDS[0], 0.5012) == pytest.approx(0.30 - 0.1 * 0.5)
    found = cell(RECORDS, "cifar10:100", "baseline", "RS, gamma from a hold-out")
    assert found.errors == pytest.approx((25.0, 23.0))
    assert cell(RECORDS, "cifar10:100", "wvn", "RS, gamma from a hold-out") == Cell(())


def test_rows_that_are_the_baseline_on_balanced_data_are_read_from_it():
    balanced = [made("baseline", 0, 0.07, column="cifar10:1")]
    assert cell(balanced, "cifar10:1", "over-sample").text == "7.00"
    assert cell(balanced, "cifar10:1", "focal") == Cell(())


def test_a_table_has_our_cells_and_the_published_ones():
    text = table1(RECORDS, "cifar10")
    assert "| Baseline |  | 29.00 ± 1.41 |  |  |  |  |" in text
    assert "| *Baseline, published* | *35.67* | *29.71* |" in text
    assert "| Baseline+RS (best gamma on test) |  | 9.00 ± 1.41 |" in text
    assert "LDAM |" not in text.replace("*", "").replace("LDAM, published", "")


def test_a_page_is_filled_between_its_marks_and_only_there(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x -->\nold\n<!-- end of x -->\nb\n")
    fill(page, "x", "new")
    assert page.read_text() == "a\n<!-- x -->\nnew\n<!-- end of x -->\nb\n"
    with pytest.raises(ValueError, match="no place for 'y'"):
        fill(page, "y", "new")
