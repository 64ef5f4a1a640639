"""A choice made on probabilities, or on their logarithms: only what it adds fits a head."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file
from torch import nn

import levelhead as lh
from levelhead.files.model import adjust_file

from .chosen import tuned_for

COUNTS = [400, 100, 50, 10]
RNG = np.random.default_rng(0)
LABELS = RNG.integers(4, size=600)
LOGITS = RNG.normal(size=(600, 4)) * 1.5 + 0.8 * np.log(COUNTS) + 3 * np.eye(4)[LABELS]
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
GIVEN = {"probabilities": PROBABILITIES, "log-probabilities": np.log(PROBABILITIES)}


def head():
    return lh.Head(np.eye(4), np.zeros(4))


@pytest.mark.parametrize("rule", ["rescale", "tau", "scales", "vector"])
@pytest.mark.parametrize("kind", GIVEN)
def test_what_multiplies_probabilities_reaches_no_head(kind, rule, tmp_path):
    tuned = replace(tuned_for(rule), kind=kind)
    tuned.save(tmp_path / "tuned.json")
    path, out = tmp_path / "model.safetensors", tmp_path / "out.safetensors"
    save_file({"fc.weight": np.eye(4), "fc.bias": np.zeros(4)}, path)
    for choice in (tuned, tmp_path / "tuned.json"):
        for apply in (
            lambda: lh.adjust(head(), choice),  # noqa: B023
            lambda: lh.adjust_(nn.Linear(4, 4), choice),  # noqa: B023
            lambda: adjust_file(path, out, choice),  # noqa: B023
        ):
            with pytest.raises(lh.LevelheadError, match=r"no meaning for .*; use 'offsets'"):
                apply()
    assert not out.exists()


@pytest.mark.parametrize("rule", ["offsets", "shift"])
@pytest.mark.parametrize("given", GIVEN)
def test_what_is_added_to_probabilities_is_added_to_the_head(given, rule):
    kind = "probabilities" if given == "probabilities" else "logits"
    tuned = lh.tune(GIVEN[given], LABELS, COUNTS, kind=kind, rule=rule)
    assert tuned.kind == given
    wanted = tuned.apply(GIVEN[given]).argmax(1)
    assert (wanted != GIVEN[given].argmax(1)).any()
    assert (lh.adjust(head(), tuned).logits(LOGITS).argmax(1) == wanted).all()
