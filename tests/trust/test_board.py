"""The scoreboard with small numbers: every promise is attacked and nothing fails."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.trust.__main__ import ROWS
from bench.trust.board import Budget, Found, Row, run_row, verdict, write_page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the quick profile finds, in a process of its own: it forks."""
    place = tmp_path_factory.mktemp("trust")
    words = [
        "--profile",
        "quick",
        "--results",
        str(place / "r.json"),
        "--page",
        str(place / "p.md"),
    ]
    command = [sys.executable, "-m", "bench.trust", *words]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "CI": "1"},
        check=False,
    )
    assert (place / "r.json").exists(), ended.stderr
    return json.loads((place / "r.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_no_promise_is_broken(results, name):
    if name == "failing_disk" and shutil.which("strace") is None:
        pytest.skip("no strace")
    assert results[name]["failed"] == []
    assert any(isinstance(value, int) and value for value in results[name]["done"].values())
    assert name != "mutation" or results[name]["done"]["killed"] >= 3


def test_the_page_says_what_failed_and_what_is_short(tmp_path):
    rows = {
        "good": Row("a", "b", "c", lambda budget: Found({"cases": 1234})),
        "short": Row("d", "e", "f", lambda budget: Found({"cases": 5}, lacks="5 of 9 cases")),
        "bad": Row("g", "h", "i", lambda budget: Found({"cases": budget.size(1, 2)}, ["it broke"])),
    }
    entries = {name: run_row(row, Budget("full")) for name, row in rows.items()}
    assert [verdict(entry) for entry in entries.values()] == [
        "met",
        "short of the target",
        "**1 failed**",
    ]
    write_page(entries, tmp_path / "p.md")
    text = (tmp_path / "p.md").read_text()
    for words in (
        "| a | b | c | met |",
        "cases: 1,234.",
        "Shortfall: 5 of 9 cases.",
        "cases: 2. Failures: 1.",
    ):
        assert words in text


def test_the_results_of_the_repository_have_every_row():
    results = json.loads((ROOT / "results" / "trust.json").read_text())
    assert list(results) == ROWS
    assert "# Trust" in (ROOT / "docs" / "trust.md").read_text()
