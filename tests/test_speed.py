"""The page about speed is what its command writes from results/."""

from pathlib import Path

from bench.speed.page import page_text

ROOT = Path(__file__).parents[1]


def test_the_page_is_that_of_the_results():
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert page == page_text(ROOT / "results"), "run python -m bench.speed --page"
