"""The demo, and the real networks that come with the package."""

import html
import json
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from levelhead import gamma_path
from levelhead.support.extras import install_command
from levelhead_lab import demo
from levelhead_lab.lab.recipe import find_recipe
from levelhead_lab.paper.cells import load_records
from levelhead_lab.paper.record import shipped_snapshots, whole_snapshots

RECORDS = Path(__file__).parents[2] / "results" / "records"
ROWS = {
    part: ["Baseline", "Baseline+offsets", "Baseline+RS", "WVN", "WVN+offsets", "WVN+RS"]
    for part in ("cifar10", "digits")
}


@pytest.mark.slow
def test_the_demo_levels_real_networks_trains_its_own_and_names_its_page(
    levelhead, monkeypatch, tmp_path
):
    monkeypatch.setattr(demo, "find_recipe", lambda name: find_recipe(name).stretched_to(12))
    status, out, err = levelhead("demo", "--json", "--report", tmp_path / "page.html")
    assert (status, err) == (0, "")
    result = json.loads(out)
    for part in ("cifar10", "digits"):
        rows = result[part]["rows"]
        assert [row["method"] for row in rows] == ROWS[part]
        assert [row["rule"] for row in rows[:3]] == [None, "offsets", "rescale"]
        assert rows[1]["balanced_error"] < rows[0]["balanced_error"]
    plain, leveled = result["cifar10"]["rows"][:2]
    assert leveled["error_as_in_training"] > plain["error_as_in_training"]  # the price
    assert "precision" in result["cifar10"]["summary"]
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert demo.demo_text(result).splitlines()[-1] == f"Look at it: {tmp_path / 'page.html'}"
    assert [line.split()[0] for line in demo.demo_text(result).splitlines()[-8:-2]] == ROWS[
        "digits"
    ]


def test_the_demo_holds_out_images_like_those_of_the_training_and_measures_on_others():
    whole = shipped_snapshots()["baseline"]
    split = demo.hold_out_like_training(whole)
    held = np.bincount(split.labels["held-out"])
    np.testing.assert_allclose(held, whole.counts / 10, atol=0.5)
    assert set(np.bincount(split.labels["test"])) == {500}
    rows = np.concatenate([split.features["held-out"], split.features["test"]])
    assert len(np.unique(rows, axis=0)) == len(rows)  # no image is in both


def test_the_page_quotes_the_name_in_the_command_that_makes_it_again(tmp_path):
    page = tmp_path / "my page.html"
    demo.level_shipped(page)
    text = html.unescape(page.read_text(encoding="utf-8"))
    assert f"levelhead demo --report {shlex.quote(str(page))}" in text


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_trained(
    levelhead, monkeypatch, tmp_path
):
    monkeypatch.setattr(demo, "find_recipe", lambda name: pytest.fail("training began"))
    status, out, err = levelhead("demo", "--report", tmp_path / "nowhere" / "page.html")
    assert (status, out) == (2, "")
    assert "nowhere: no such folder to write page.html into" in err


def test_only_a_page_of_an_earlier_demo_is_replaced(levelhead, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    pages = []
    monkeypatch.setattr(demo, "run_demo", lambda page, **_: pages.append(str(page)) or {})
    monkeypatch.setattr(demo, "demo_text", lambda _: "")
    earlier = '<!doctype html><meta name="generator" content="levelhead 0.1.0">'
    (tmp_path / "page.html").write_text(earlier)
    (tmp_path / "levelhead-demo.html").write_text("mine")
    for name, words in (("levelhead-demo.html", []), ("page.html", ["--report", "page.html"])):
        status, _, err = levelhead("demo", *words)
        assert status == 2
        assert f"{name} exists; pass --force to replace it" in err
    (tmp_path / "levelhead-demo.html").write_text(earlier)
    assert levelhead("demo")[0] == 0
    assert levelhead("demo", "--report", "page.html", "--force")[0] == 0
    assert pages == ["levelhead-demo.html", "page.html"]


def test_the_shipped_networks_are_those_of_their_records():
    for method, snapshot in shipped_snapshots().items():
        record = next(r for r in load_records(RECORDS) if r["name"] == snapshot.meta["record"])
        path = gamma_path(snapshot.logits("test"), snapshot.labels["test"], snapshot.counts)
        assert (record["method"], record["column"]) == (method, "cifar10:100")
        assert record["counts"] == snapshot.counts.tolist()
        assert path.at(0.0).error == pytest.approx(record["error"], abs=1e-6)
        assert path.best("error").error == pytest.approx(record["best_on_test"]["error"], abs=1e-6)


def test_the_shipped_networks_fit_in_one_megabyte():
    folder = files("levelhead_lab.paper")
    sizes = [
        len(folder.joinpath(f"cifar10-100-{method}.safetensors").read_bytes())
        for method in shipped_snapshots()
    ]
    assert sum(sizes) <= 1_000_000


@pytest.mark.parametrize("method", ["baseline", "wvn"])
def test_the_shipped_networks_predict_as_the_whole_ones_at_every_strength(method):
    whole, small = whole_snapshots(RECORDS.parent / "networks")[method], shipped_snapshots()[method]
    before, after = whole.logits("test"), small.logits("test")
    assert (small.meta, small.head.names) == (whole.meta, whole.head.names)
    np.testing.assert_array_equal(small.counts, whole.counts)
    np.testing.assert_array_equal(small.labels["test"], whole.labels["test"])
    np.testing.assert_allclose(after, before, atol=2e-5)
    np.testing.assert_allclose(small.head.norms, whole.head.norms, rtol=1e-6)
    log_share = np.log(whole.counts / whole.counts.max())
    for gamma in np.linspace(0, 2, 9):
        scale = np.exp(-gamma * log_share).astype(np.float32)
        np.testing.assert_array_equal(
            (after * scale).argmax(axis=1), (before * scale).argmax(axis=1)
        )
        shift = 2 * gamma * log_share.astype(np.float32)
        np.testing.assert_array_equal(
            (after - shift).argmax(axis=1), (before - shift).argmax(axis=1)
        )


@pytest.mark.slow
def test_without_torch_the_demo_levels_the_shipped_networks_and_says_what_to_install(tmp_path):
    code = (
        "import sys\nfrom importlib import util\nfound = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'torch' else found(name, *more)\n"
        "sys.modules['torch'] = None\nsys.argv = ['levelhead', 'demo']\nfrom levelhead.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(method in done.stdout for method in ROWS["cifar10"])
    assert f"as well:\n  {install_command('torch')}\n" in done.stdout
    assert (tmp_path / "levelhead-demo.html").is_file()
