"""The page's code, pasted and run: it changes the model it speaks of, by what was chosen."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import levelhead as lh
from levelhead import tune
from levelhead.choice.tuned_json import write_tuned
from levelhead.report import of_file, of_logits
from levelhead.report.use_it import code_at_gamma, code_to_use

from . import made

torch = pytest.importorskip("torch")
COUNTS = np.array([400, 120, 50, 20, 8])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a model, and with files whose names need quotes."""
    from safetensors.torch import save_file

    monkeypatch.chdir(tmp_path)
    logits, labels = made.logits_of(COUNTS, 60, noise=1.3)
    np.save("my logits.npy", logits)
    np.save("labels.npy", labels)
    (tmp_path / "counts.json").write_text(json.dumps(COUNTS.tolist()))
    torch.manual_seed(0)
    save_file({"fc.weight": torch.randn(5, 4), "fc.bias": torch.randn(5)}, "model.safetensors")
    return logits, labels


def model() -> torch.nn.Module:
    from safetensors.torch import load_file

    made_ = torch.nn.Sequential()
    made_.add_module("fc", torch.nn.Linear(4, 5))
    made_.load_state_dict(load_file("model.safetensors"))
    return made_


def run(levelhead, command: str) -> None:
    for line in command.splitlines():
        name, *words = shlex.split(line)
        assert name == "levelhead"
        status, _, err = levelhead(*words)
        assert status == 0, err


def agree(net: torch.nn.Module, tuned) -> None:
    """Check the model in memory and adjusted.safetensors against the choice, applied by hand."""
    from safetensors.torch import load_file

    before = lh.Head(model().fc.weight.detach().numpy(), model().fc.bias.detach().numpy())
    expected = lh.adjust(before, tuned)
    assert (
        np.abs(expected.weight - before.weight).max() + np.abs(expected.bias - before.bias).max()
        > 0.01
    )
    for weight, bias in (
        (net.fc.weight.detach().numpy(), net.fc.bias.detach().numpy()),
        (found := {key: value.numpy() for key, value in load_file("adjusted.safetensors").items()})
        and (found["fc.weight"], found["fc.bias"]),
    ):
        assert weight == pytest.approx(expected.weight, abs=1e-5)
        assert bias == pytest.approx(expected.bias, abs=1e-5)


@pytest.mark.parametrize("rule", ["shift", "rescale", "rescale+shift", "vector", "offsets"])
def test_a_tuned_file_is_applied_to_files_and_in_memory(here, levelhead, rule):
    logits, labels = here
    tuned = tune(logits, labels, COUNTS, rule=rule, bootstrap=30)
    write_tuned(tuned, "my tuned.json")
    code = code_to_use(of_file("my tuned.json"))
    net = model()
    exec(code["python"], {"model": net})
    run(levelhead, code["command"])
    agree(net, tuned)


def test_a_choice_without_an_expected_gain_is_applied_only_if_told(here, levelhead):
    logits, labels = made.balanced_already(10)
    tuned = tune(logits, labels, COUNTS, rule="shift", bootstrap=100)
    assert tuned.worthwhile is False
    assert tuned.gamma > 0
    write_tuned(tuned, "tuned.json")
    code = code_to_use(of_file("tuned.json"))
    assert "--anyway" in code["command"]
    assert levelhead(*shlex.split(code["command"].replace(" --anyway", ""))[1:])[0] != 0
    run(levelhead, code["command"])
    net = model()
    exec(code["python"], {"model": net})
    agree(net, tuned)


def test_a_choice_that_is_probably_better_is_applied_without_more_words(here):
    logits, labels = here
    some = np.arange(0, 300, 12)
    tuned = tune(logits[some], labels[some], np.ones(5) + COUNTS // 40, rule="shift", bootstrap=100)
    assert tuned.verdict == "probably better"
    write_tuned(tuned, "tuned.json")
    assert "--anyway" not in code_to_use(of_file("tuned.json"))["command"]


@pytest.mark.slow
def test_without_a_tuned_file_the_page_tunes_again_on_the_same_files(here, levelhead):
    logits, labels = here
    subject = of_file(
        "my logits.npy", labels=Path("labels.npy"), counts_file=Path("counts.json"), bootstrap=30
    )
    code = code_to_use(subject)
    assert "'my logits.npy'" in code["command"]
    net = model()
    exec(code["python"], {"model": net, "logits": logits, "labels": labels})
    run(levelhead, code["command"])
    agree(net, tune(logits, labels, COUNTS))


@pytest.mark.parametrize("rule", ["rescale", "shift", "tau"])
def test_a_gamma_of_ones_own_is_applied(here, levelhead, rule):
    logits, labels = here
    norms = np.ones(5) if rule == "tau" else None
    subject = of_logits(logits, labels, COUNTS, gamma=0.3, rule=rule, norms=norms)
    assert {
        name: text.replace("{gamma}", "0.3") for name, text in code_at_gamma(subject).items()
    } == code_to_use(subject)
    net = model()
    exec(code_to_use(subject)["python"], {"model": net})
    run(levelhead, code_to_use(subject)["command"])
    from safetensors.torch import load_file

    found = load_file("adjusted.safetensors")
    assert net.fc.weight.detach().numpy() == pytest.approx(found["fc.weight"].numpy(), abs=1e-6)
    assert net.fc.bias.detach().numpy() == pytest.approx(found["fc.bias"].numpy(), abs=1e-6)
    assert not torch.equal(net.fc.weight, model().fc.weight) or not torch.equal(
        net.fc.bias, model().fc.bias
    )


def test_a_snapshot_is_tuned_again_on_its_held_out_samples(tmp_path, monkeypatch, levelhead):
    monkeypatch.chdir(tmp_path)
    made.training().save("my snapshot.safetensors")
    subject = of_file("my snapshot.safetensors", bootstrap=30)
    net = torch.nn.Linear(12, 4)
    before = net.bias.detach().numpy().copy()
    exec(code_to_use(subject)["python"], {"model": net})
    rarity = np.log(500 / np.array([500, 200, 80, 30]))
    assert subject.choice["rule"] == "shift"
    assert net.bias.detach().numpy() - before == pytest.approx(subject.gamma * rarity, abs=1e-5)


def test_an_estimator_needs_nothing_more():
    code = code_to_use(replace(made.two(), fitted="TunedRescaledClassifierCV"))
    assert code["command"] == ""
    assert code["python"].endswith("model.predict(X)")


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("rule", ["shift", "vector"])
def test_what_was_chosen_on_probabilities_is_tuned_again_as_such(here, levelhead, rule):
    """A shift goes into the head; numbers that multiply log-probabilities go to the scores."""
    logits, labels = here
    np.save("p.npy", softmax(logits))
    tuned = tune(np.load("p.npy"), labels, COUNTS, rule=rule, kind="probabilities", bootstrap=0)
    page = of_logits(np.load("p.npy"), labels, COUNTS, tuned=tuned, kind="probabilities")
    page = replace(page, files={"logits": "p.npy", "labels": "labels.npy", "counts": "counts.json"})
    code = code_to_use(page)
    run(levelhead, code["command"].splitlines()[0] + " --bootstrap 0")
    assert (
        lh.adjust_(model(), "tuned.json").gamma == pytest.approx(tuned.gamma)
        if rule == "shift"
        else True
    )
    scope = {
        "model": model(),
        "predict_proba": np.load,
        "X": "p.npy",
        "logits": np.load("p.npy"),
        "labels": labels,
    }
    exec(code["python"], scope)
    if rule == "vector":
        assert "adjust" not in code["command"]
        wanted = (np.log(softmax(logits)) * tuned.scale + tuned.offset).argmax(axis=1)
        assert np.array_equal(scope["adjusted"].predict("p.npy"), wanted)
    else:
        assert scope["adjusted"].gamma == pytest.approx(
            tuned.gamma, abs=0.2
        )  # with a bootstrap of its own


@pytest.mark.slow
def test_a_target_is_part_of_the_code(here, levelhead):
    logits, labels = here
    files = {"logits": "my logits.npy", "labels": "labels.npy", "counts": "counts.json"}
    shares = [0.96, 0.01, 0.01, 0.01, 0.01]
    page = replace(of_logits(logits, labels, COUNTS, rule="shift", target=shares), files=files)
    code, net = code_to_use(page), model()
    exec(code["python"], {"model": net, "logits": logits, "labels": labels})
    run(levelhead, code["command"])
    tuned = tune(logits, labels, COUNTS, rule="shift", target=shares)
    assert tuned.gamma < tune(logits, labels, COUNTS, rule="shift").gamma
    agree(net, tuned)
