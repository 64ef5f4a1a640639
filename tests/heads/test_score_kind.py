"""A choice made on probabilities, or on their logarithms, multiplies what no head gives: only its shift fits a head."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn

import levelhead as lh
from levelhead.choice.tuned_json import write_tuned
from levelhead.files.model import adjust_file
from levelhead.hosts.predictor import RescaledPredictor

COUNTS = [400, 100, 50, 10]
RNG = np.random.default_rng(0)
LABELS = RNG.integers(4, size=600)
LOGITS = RNG.normal(size=(600, 4)) * 1.5 + 0.8 * np.log(COUNTS) + 3 * np.eye(4)[LABELS]
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
GIVEN = {"probabilities": PROBABILITIES, "log-probabilities": np.log(PROBABILITIES)}


def tune(given, rule):
    kind = "probabilities" if given == "probabilities" else "logits"
    return lh.tune(GIVEN[given], LABELS, COUNTS, kind=kind, rule=rule, bootstrap=0)


def head():
    return lh.Head(np.eye(4), np.zeros(4))


@pytest.mark.parametrize("given", GIVEN)
def test_numbers_for_probabilities_reach_no_head(given, tmp_path):
    tuned = tune(given, "vector")
    scores = tuned.scale * np.log(PROBABILITIES) + tuned.offset
    assert (
        (tuned.scale * LOGITS + tuned.offset).argmax(1) != scores.argmax(1)
    ).any()  # what would be wrong
    write_tuned(tuned, tmp_path / "tuned.json")
    save_file({"fc.weight": np.eye(4), "fc.bias": np.zeros(4)}, tmp_path / "model.safetensors")
    model = nn.Linear(4, 4)
    for choice in (tuned, tmp_path / "tuned.json"):
        for apply in (
            lambda: lh.adjust(head(), choice),  # noqa: B023
            lambda: lh.adjust_(model, choice),  # noqa: B023
            lambda: adjust_file(
                tmp_path / "model.safetensors",
                tmp_path / "out.safetensors",
                choice,  # noqa: B023
            ),
        ):
            with pytest.raises(lh.LevelheadError, match=r"chosen on probabilities.*tune.*shift"):
                apply()
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("given", GIVEN)
def test_shift_of_probabilities_is_that_of_the_head(given):
    tuned = tune(given, "shift")
    rarity = np.log(np.max(COUNTS) / COUNTS)
    wanted = (np.log(PROBABILITIES) + tuned.gamma * rarity).argmax(1)
    assert (lh.adjust(head(), tuned).logits(LOGITS).argmax(1) == wanted).all()


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NegativeLogitsWarning")
def test_factors_for_log_probabilities_reach_no_head(tmp_path):
    tuned = tune("log-probabilities", "rescale")
    matched = lh.match_prior(np.log(PROBABILITIES), COUNTS, rule="rescale", bootstrap=0)
    for choice in (tuned, matched):
        for apply in (
            lambda: lh.adjust(head(), choice),  # noqa: B023
            lambda: lh.rescale(head(), COUNTS, gamma=choice),  # noqa: B023
            lambda: lh.rescale_(nn.Linear(4, 4), COUNTS, gamma=choice),  # noqa: B023
        ):
            with pytest.raises(lh.LevelheadError, match=r"chosen on probabilities.*tune.*shift"):
                apply()
    write_tuned(tuned, tmp_path / "tuned.json")
    save_file({"fc.weight": np.eye(4)}, tmp_path / "model.safetensors")
    with pytest.raises(lh.LevelheadError, match=r"chosen on probabilities"):
        adjust_file(
            tmp_path / "model.safetensors", tmp_path / "out.safetensors", tmp_path / "tuned.json"
        )


def test_auto_does_not_multiply_log_probabilities():
    tried = {one.rule for one in tune("log-probabilities", "auto").candidates}
    assert not tried & {"rescale", "rescale+shift"}
    assert {one.rule for one in lh.tune(LOGITS, LABELS, COUNTS, bootstrap=0).candidates} >= {
        "rescale",
        "rescale+shift",
    }


def test_half_precision_log_probabilities_are_known_as_such():
    for dtype in (torch.float16, torch.bfloat16):
        rounded = torch.log_softmax(torch.tensor(LOGITS), 1).to(dtype)
        assert lh.tune(rounded, LABELS, COUNTS, rule="shift", bootstrap=0).kind == "probabilities"
    assert lh.tune(LOGITS, LABELS, COUNTS, rule="shift", bootstrap=0).kind == "logits"


def test_choice_of_an_older_file_has_the_kind_of_its_sources(tmp_path):
    content = tune("probabilities", "vector").to_dict()
    del content["kind"]
    sources = {
        "files": {"logits": "p.npy"},
        "sha256": {"logits": "0"},
        "kind": "probabilities",
        "target": None,
    }
    (tmp_path / "tuned.json").write_text(
        json.dumps(content | {"sources": sources | {"counts": COUNTS}})
    )
    with pytest.raises(lh.LevelheadError, match="chosen on probabilities"):
        lh.adjust(head(), tmp_path / "tuned.json")


def test_predictor_of_probabilities_refuses_what_multiplies_logits():
    tuned = lh.tune(LOGITS, LABELS, COUNTS, rule="rescale", bootstrap=0)
    with pytest.raises(lh.LevelheadError, match=r"chosen on logits.*kind"):
        RescaledPredictor(lambda rows: PROBABILITIES[rows], tuned=tuned)
    wanted = (LOGITS * (np.max(COUNTS) / np.array(COUNTS)) ** tuned.gamma).argmax(1)
    model = RescaledPredictor(lambda rows: LOGITS[rows], tuned=tuned, kind="logits")
    assert (model.predict(range(600)) == wanted).all()
    vector = tune("probabilities", "vector")
    wanted = (vector.scale * np.log(PROBABILITIES) + vector.offset).argmax(1)
    assert (
        RescaledPredictor(lambda rows: PROBABILITIES[rows], tuned=vector).predict(range(600))
        == wanted
    ).all()


@pytest.mark.parametrize("given", GIVEN)
def test_chunks_of_probabilities_are_shifted_only(given):
    kind = "probabilities" if given == "probabilities" else "logits"
    chunks = [(GIVEN[given][i::3], LABELS[i::3]) for i in range(3)]
    rule = lh.rules.Auto(norms=[4.0, 3.0, 2.0, 1.0])
    tuned = lh.tune_chunks(chunks, COUNTS, kind=kind, rule=rule, bootstrap=0)
    assert (tuned.rule, tuned.kind) == ("shift", "probabilities")
    assert not {one.rule for one in tuned.candidates} & {"rescale", "tau"}


@pytest.mark.parametrize(
    ("last", "kind"), [(nn.Softmax(1), "probabilities"), (nn.LogSoftmax(1), "logits")]
)
def test_model_that_ends_in_a_softmax_is_tuned_by_what_its_head_can_take(last, kind):
    features = torch.tensor(LOGITS * [2.0, 1.0, 0.6, 0.4])
    model = nn.Sequential(nn.Linear(4, 4, dtype=torch.float64), last)
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4))
        model[0].bias.zero_()
        scores = model(features)
    labels = torch.tensor(LABELS)
    assert (
        lh.tune(scores, labels, COUNTS, kind=kind, bootstrap=0).rule == "vector"
    )  # which a head cannot take
    batches = [(features[i::3], labels[i::3]) for i in range(3)]
    with pytest.warns(DeprecationWarning, match="moved to lh.tune"):
        tuned = lh.tune(model, batches, COUNTS, kind=kind, bootstrap=0)
    with lh.adjust_(model, tuned), torch.no_grad():
        wanted = features + tuned.gamma * torch.log(max(COUNTS) / torch.tensor(COUNTS))
        assert (model(features).argmax(1) == wanted.argmax(1)).all()
