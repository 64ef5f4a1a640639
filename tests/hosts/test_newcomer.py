"""The recipe of docs/places.md that the tests of the docs leave out, as its library is not always installed."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "places.md"


@pytest.mark.slow
def test_recipe_for_xgboost_runs_as_it_stands(capsys):
    pytest.importorskip("xgboost", reason="xgboost is not installed")
    found = re.search(r"^```python\n(from xgboost.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    assert found is not None
    y = np.where(np.arange(400) % 20 > 2, 0, np.arange(400) % 20)
    x = np.random.default_rng(0).normal(size=(400, 8))
    x[:, 0] += y
    namespace = {"X": x, "y": y}
    exec(found[1], namespace)
    assert set(namespace["model"].predict(x)) <= {0, 1, 2}
    assert capsys.readouterr().out
