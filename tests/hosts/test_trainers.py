"""The pages about trainers show these files; each is run here, where its trainer is installed."""

import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import levelhead as lh

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of other people's libraries
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NormWarning"),
]

DOCS = Path(__file__).parents[2] / "docs"
FILES = sorted((DOCS / "trainers").glob("with_*.py"))
LIBRARY = {"huggingface": "transformers"}
NAMES = [path.stem.removeprefix("with_") for path in FILES]


@pytest.mark.parametrize("name", NAMES)
def test_trainer_levels_what_it_trained(name, tmp_path, monkeypatch):
    library = LIBRARY.get(name, name)
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install {library}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(DOCS / "trainers"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    script = runpy.run_path(str(DOCS / "trainers" / f"with_{name}.py"))
    x, y = sys.modules["long_tail_digits"].held_out.tensors
    shaped = {
        "timm": script.get("as_images", torch.Tensor),
        "huggingface": lambda part: part.view(-1, 1, 8, 8),
    }
    with torch.no_grad():
        output = script["model"].eval()(shaped.get(name, lambda part: part)(x))
    predicted = getattr(output, "logits", output).argmax(1).numpy()
    recall = [np.mean(predicted[y.numpy() == k] == k) for k in range(10)]
    tuned = script["tuned"]
    assert tuned.worthwhile
    assert tuned.counts == tuple(lh.counts.long_tail(120, 10, 30))
    balanced_error = 1 - np.mean(recall)  # by the fit on all samples, which the evidence is not
    assert balanced_error == pytest.approx(tuned.evidence.value, abs=0.05)
    assert balanced_error < tuned.evidence.value_before - 0.01


def test_page_shows_every_file():
    page = (DOCS / "training.md").read_text(encoding="utf-8")
    inline = re.findall(
        r"a test runs trainers/(\w+)\.py, which this is -->\n```python\n(.*?)```", page, re.S
    )
    assert [name for name, _ in inline] == ["with_huggingface", "with_lightning"]
    for name, code in inline:
        assert code == (DOCS / "trainers" / f"{name}.py").read_text(encoding="utf-8")
    linked = re.findall(r"^\[(\w+)\.py\]\(trainers/\1\.py\)$", page, re.M)
    shown = re.findall(r"^<!-- shown: trainers/(\w+)\.py -->$", page, re.M)
    assert linked == shown
    names = sorted(linked + [name for name, _ in inline])
    assert names == sorted(path.stem for path in (DOCS / "trainers").glob("*.py"))
