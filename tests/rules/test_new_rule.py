"""A rule of one's own is one class: tuned, applied, reported and undone like those that are here."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import levelhead as lh
from levelhead import report
from levelhead.choice.tuned_json import write_tuned
from levelhead.core.rules import RULES, OneStrength
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

COUNTS = [1000, 200, 40]


@dataclass(frozen=True, eq=False)
class EffectiveNumber(OneStrength):
    """``w_k <- (E_max / E_k)^gamma w_k``, with the effective number ``E = (1 - b^n) / (1 - b)``, b = 0.99."""

    name = "effective-number"
    title = "effective number"
    sentence = (
        "each class's weight vector is multiplied by (largest effective number / its own)^gamma"
    )
    multiplies = True

    def ratios(self, counts, norms):
        effective = (1 - 0.99**counts) / (1 - 0.99)
        return effective.max() / effective


@pytest.fixture(autouse=True)
def new_rule(monkeypatch):
    monkeypatch.setitem(RULES, EffectiveNumber.name, EffectiveNumber())


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    return (2 + rng.normal(size=(600, 3)) + 2 * np.eye(3)[labels]) * [1.0, 0.7, 0.4], labels


def by_hand(logits, gamma):
    effective = (1 - 0.99 ** np.array(COUNTS)) / (1 - 0.99)
    return logits * (effective.max() / effective) ** gamma


def test_it_is_tuned_and_tried_by_auto(samples):
    tuned = lh.tune(*samples, COUNTS, rule=EffectiveNumber(range=(0, 3)), bootstrap=0)
    logits, labels = samples
    errors = [np.mean(by_hand(logits, g).argmax(axis=1) != labels) for g in np.linspace(0, 3, 301)]
    assert tuned.rule == "effective-number"
    assert tuned.error == pytest.approx(
        np.mean(by_hand(logits, tuned.gamma).argmax(axis=1) != labels)
    )
    assert tuned.error < min(errors) + 0.01
    assert "effective-number" in {
        one.rule for one in lh.tune(*samples, COUNTS, bootstrap=0).candidates
    }


def test_it_is_applied_to_a_model_and_taken_back(samples):
    tuned = lh.tune(*samples, COUNTS, rule="effective-number", bootstrap=0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    before, x = [p.detach().clone() for p in model.parameters()], torch.randn(5, 3)
    logits = model(x).detach().numpy()
    done = lh.adjust_(model, tuned)
    np.testing.assert_allclose(
        model(x).detach().numpy(), by_hand(logits, tuned.gamma), rtol=1e-5, atol=1e-6
    )
    done.restore()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_it_is_applied_to_a_file_and_undone(samples, tmp_path):
    tuned = lh.tune(*samples, COUNTS, rule="effective-number", bootstrap=0)
    write_tuned(tuned, tmp_path / "tuned.json")
    save_file({"fc.weight": np.eye(3, dtype=np.float32)}, tmp_path / "m.safetensors")
    adjust_file(tmp_path / "m.safetensors", tmp_path / "o.safetensors", tmp_path / "tuned.json")
    scaled = load_file(tmp_path / "o.safetensors")["fc.weight"]
    np.testing.assert_allclose(np.diag(scaled), by_hand(np.ones(3), tuned.gamma), rtol=1e-6)
    undo_file(tmp_path / "o.safetensors", tmp_path / "back.safetensors")
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def test_its_page_has_its_title_and_sentence(samples, tmp_path):
    tuned = lh.tune(*samples, COUNTS, rule="effective-number", bootstrap=0)
    page = report.write(tmp_path / "page.html", [report.of_logits(*samples, COUNTS, tuned=tuned)])
    text = page.read_text(encoding="utf-8")
    assert "Effective number" in text
    assert "largest effective number / its own" in text
