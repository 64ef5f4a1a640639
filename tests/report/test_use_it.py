"""The page's code, pasted and run: it changes the model it speaks of, by what was chosen."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

import levelhead as lh
from levelhead.report import Applied, of_file, of_tuned
from levelhead.report.use_it import code_to_use

from . import made

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
COUNTS = np.array([400, 120, 50, 20, 8])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a model and with scores."""
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    logits, labels = made.logits_of(COUNTS, 60, noise=1.3)
    np.save("scores.npy", logits)
    torch.manual_seed(0)
    save_file({"fc.weight": torch.randn(5, 4), "fc.bias": torch.randn(5)}, "my model.safetensors")
    return logits, labels


def model() -> torch.nn.Module:
    from safetensors.torch import load_file

    network = torch.nn.Sequential()
    network.add_module("fc", torch.nn.Linear(4, 5))
    network.load_state_dict(load_file("my model.safetensors"))
    return network


def run(levelhead, shell: str) -> None:
    for line in shell.splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "levelhead"
            status, _, err = levelhead(*words[1:])
            assert status == 0, err


@pytest.mark.parametrize("rule", ["offsets", "shift", "rescale", "vector"])
def test_a_choice_is_applied_to_files_to_scores_and_in_memory(here, levelhead, rule):
    from safetensors.torch import load_file

    logits, labels = here
    tuned = lh.tune(logits, labels, COUNTS, rule=rule)
    tuned.save("my 'tuned'.json")
    subject = of_file("my 'tuned'.json", model="my model.safetensors")
    code = code_to_use(subject)
    scope = {"model": model(), "logits": logits}
    exec(code.python, scope)
    run(levelhead, code.shell)
    before = lh.Head(model().fc.weight.detach().numpy(), model().fc.bias.detach().numpy())
    expected = lh.adjust(before, tuned)
    changed = np.abs(expected.weight - before.weight).max()
    changed += np.abs(expected.bias - before.bias).max()
    assert changed > 0.01
    network = scope["model"].fc
    file = load_file("adjusted.safetensors")
    for weight, bias in (
        (network.weight.detach().numpy(), network.bias.detach().numpy()),
        (file["fc.weight"].numpy(), file["fc.bias"].numpy()),
    ):
        assert weight == pytest.approx(expected.weight, abs=1e-5)
        assert bias == pytest.approx(expected.bias, abs=1e-5)
    assert scope["scores"] == pytest.approx(tuned.apply(logits))
    assert np.load("adjusted.npy") == pytest.approx(tuned.apply(logits), abs=1e-4)


def test_a_choice_that_is_not_worthwhile_is_applied_only_if_told(here, levelhead):
    logits, labels = made.balanced_already(10)
    tuned = lh.tune(logits, labels, COUNTS, rule=lh.rules.Shift(1.0))
    assert tuned.worthwhile is False
    tuned.save("tuned.json")
    code = code_to_use(of_file("tuned.json", model="my model.safetensors"))
    for line in code.shell.splitlines()[1:]:
        assert line.endswith(" --anyway")
        assert levelhead(*shlex.split(line.removesuffix(" --anyway"))[1:])[0] == 3
    run(levelhead, code.shell)


def test_no_file_is_replaced(here):
    logits, labels = here
    tuned = lh.tune(logits, labels, COUNTS)
    subject = of_tuned(tuned, model="my model.safetensors")
    assert "-o adjusted.safetensors" in code_to_use(subject).shell
    open("adjusted.safetensors", "w").close()
    assert "-o adjusted-2.safetensors" in code_to_use(subject).shell


def test_labels_are_applied_like_classes(here, levelhead):
    logits, labels = made.label_samples()
    tuned = lh.tune_labels(logits, labels)
    tuned.save("tuned.json")
    network = torch.nn.Linear(3, 4)
    before = network.bias.detach().numpy().copy()
    exec(code_to_use(of_file("tuned.json")).python, {"model": network, "logits": logits})
    moved = network.bias.detach().numpy() - before
    assert moved == pytest.approx(tuned.adjustment.offset, abs=1e-5)


def test_what_was_tuned_on_probabilities_is_applied_to_probabilities(here):
    logits, labels = here
    shares = np.exp(lh.measure.log_softmax(logits))
    tuned = lh.tune(shares, labels, COUNTS, kind="probabilities")
    tuned.save("tuned.json")
    scope = {"model": model(), "probabilities": shares}
    exec(code_to_use(of_file("tuned.json")).python, scope)
    assert scope["scores"] == pytest.approx(tuned.apply(shares))


def test_an_estimator_needs_nothing_more():
    applied = Applied("By AdjustedClassifierCV, in every prediction", "model.predict(X)")
    assert code_to_use(of_tuned(made.two().tuned, applied=applied)) == ("", "model.predict(X)")
