"""The demo, and the real networks that come with the package."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from levelhead import gamma_path
from levelhead.cli import demo
from levelhead.lab.recipe import find_recipe
from levelhead.paper.cells import load_records
from levelhead.paper.record import shipped_snapshots

RECORDS = Path(__file__).parents[2] / "results" / "records"
ROWS = {
    "cifar10": ["Baseline", "Baseline+RS", "Baseline+shift", "WVN", "WVN+RS", "WVN+shift"],
    "digits": ["Baseline", "Baseline+RS", "WVN", "WVN+RS"],
}


@pytest.mark.slow
def test_the_demo_levels_real_networks_trains_its_own_and_names_its_page(levelhead, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "find_recipe", lambda name: find_recipe(name).stretched_to(12))
    status, out, err = levelhead("demo", "--json", "--report", tmp_path / "page.html")
    assert (status, err) == (0, "")
    result = json.loads(out)
    for part in ("cifar10", "digits"):
        rows = result[part]["rows"]
        assert [row["method"] for row in rows] == ROWS[part]
        assert rows[1]["gamma"] > 0
        assert rows[1]["error"] < rows[0]["error"]
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert demo.demo_text(result).splitlines()[-1] == f"Look at it: {tmp_path / 'page.html'}"
    assert [line.split()[0] for line in demo.demo_text(result).splitlines()[-6:-2]] == ROWS["digits"]
    wvn = {row["method"]: row["error"] for row in result["cifar10"]["rows"]}
    assert wvn["WVN+shift"] < wvn["WVN+RS"] - 0.02  # what the demo advises for such a head


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_trained(levelhead, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "find_recipe", lambda name: pytest.fail("training began"))
    status, out, err = levelhead("demo", "--report", tmp_path / "nowhere" / "page.html")
    assert (status, out) == (2, "")
    assert "nowhere: no such folder to write page.html into" in err


def test_the_shipped_networks_are_those_of_their_records():
    for method, snapshot in shipped_snapshots().items():
        record = next(r for r in load_records(RECORDS) if r["name"] == snapshot.meta["record"])
        path = gamma_path(snapshot.logits("test"), snapshot.labels["test"], snapshot.counts)
        assert (record["method"], record["column"]) == (method, "cifar10:100")
        assert record["counts"] == snapshot.counts.tolist()
        assert path.at(0.0).error == pytest.approx(record["error"], abs=1e-6)
        assert path.best("error").error == pytest.approx(record["best_on_test"]["error"], abs=1e-6)


def test_the_shipped_networks_fit_in_six_megabytes():
    folder = files("levelhead.paper")
    sizes = [len(folder.joinpath(f"cifar10-100-{method}.safetensors").read_bytes()) for method in shipped_snapshots()]
    assert sum(sizes) <= 6_000_000
