"""The page "Which gamma?" does what it says: its examples run, its numbers are those of the results."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from levelhead.cli import main
from levelhead.counts import long_tail

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "which-gamma.md").read_text()
RESULTS = json.loads((ROOT / "results" / "tuning.json").read_text())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with the files that the page speaks of."""
    rng = np.random.default_rng(0)
    counts = long_tail(5000, 10, 100)
    head = rng.normal(size=(10, 16)) * (counts / 5000)[:, None] ** 0.2
    labels = np.repeat(np.arange(10), np.maximum(2, counts // 20))
    features = np.abs(rng.normal(size=(len(labels), 16))) + 2 * np.maximum(head, 0)[labels]
    np.save(tmp_path / "logits.npy", features @ head.T)
    np.save(tmp_path / "labels.npy", labels)
    np.save(tmp_path / "unlabelled.npy", (features @ head.T)[::3])
    (tmp_path / "counts.json").write_text(json.dumps(counts.tolist()))
    save_file({"fc.weight": head}, tmp_path / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore::levelhead.NegativeLogitsWarning")
def test_python_examples_run_one_after_the_other(folder):
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    assert len(blocks) == 3
    for block in blocks:
        exec(block, names)
    assert {"tuned", "blind"} <= names.keys()


def test_commands_run_one_after_the_other(folder, monkeypatch):
    lines = re.findall(r"^\$ (levelhead .*)$", PAGE, flags=re.M)
    assert len(lines) == 2
    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    assert (folder / "curve.png").exists()
    assert (folder / "leveled.safetensors").exists()


def test_tables_are_those_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import tuning_page

    for make in (tuning_page.regret, tuning_page.strength, tuning_page.coverage):
        name = make.__name__
        shown = re.search(rf"<!-- {name} -->(.*?)<!-- /{name} -->", PAGE, flags=re.S)
        assert shown is not None
        assert shown[1].strip() == make(RESULTS), f"the table {name} is not that of results/: bench/tuning.py --docs"


def test_the_default_is_lowest_or_within_noise_of_it_on_every_synthetic_hold_out():
    for family, result in RESULTS.items():
        if not family.startswith("Gaussians"):
            continue
        for hold_out, found in result["regret"].items():
            ours, error = found["strength 20"]
            for other in ("strength 0", "11-point grid"):
                mean, spread = found[other]
                assert ours <= mean + 2 * np.hypot(error, spread), (family, hold_out, other)


def test_the_pictures_are_there():
    for name in re.findall(r"\]\((images/[^)]+)\)", PAGE):
        assert (ROOT / "docs" / name).stat().st_size > 10_000
