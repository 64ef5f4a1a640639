"""The tables on the page about the strength and its regret equal those in results/."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "regret.md").read_text()
RESULTS = json.loads((ROOT / "results" / "tuning.json").read_text())


def test_tables_are_those_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import _tuning_page

    for make in (_tuning_page.regret, _tuning_page.strength, _tuning_page.coverage):
        name = make.__name__
        shown = re.search(rf"<!-- {name} -->(.*?)<!-- /{name} -->", PAGE, flags=re.S)
        assert shown is not None
        assert shown[1].strip() == make(RESULTS), (
            f"the table {name} is not that of results/: bench/tuning.py --docs"
        )


def test_the_default_is_lowest_or_within_noise_of_it_on_every_synthetic_hold_out():
    for family, result in RESULTS.items():
        if not family.startswith("Gaussians"):
            continue
        for hold_out, found in result["regret"].items():
            ours, error = found["strength 20"]
            for other in ("strength 0", "11-point grid", "match_prior, hold-out"):
                mean, spread = found[other]
                assert ours <= mean + 2 * np.hypot(error, spread), (family, hold_out, other)


def test_the_pictures_are_there():
    for name in re.findall(
        r"\]\((images/[^)]+)\)", PAGE + (ROOT / "docs" / "which-gamma.md").read_text()
    ):
        assert (ROOT / "docs" / name).stat().st_size > 10_000
