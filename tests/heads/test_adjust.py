"""What was tuned, applied to heads in memory by its own rule, or refused in one line with nothing changed."""

import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import levelhead as lh
from levelhead.choice.tuned_json import write_tuned
from levelhead.heads.torch import read
from levelhead.support.warnings import quiet

COUNTS = np.array([400, 100, 25, 4])
RULES = ("rescale", "tau", "shift", "rescale+shift", "vector", "offsets")
PARTS = {
    "scale": (1.0, 1.4, 2.0, 3.1),
    "offset": (-0.3, 0.0, 0.5, 2.0),
}  # of the rules with numbers for each class
X = np.random.default_rng(0).standard_normal((500, 8))


def made(bias=True, rows=4, seed=0) -> lh.Head:
    rng = np.random.default_rng(seed)
    return lh.Head(rng.standard_normal((rows, 8)), rng.standard_normal(rows) if bias else None)


def tuned_for(rule, gamma=0.4, counts=COUNTS, **changes) -> lh.Tuned:
    """A choice of this rule with a gamma of ours: `match_prior` of a few logits, whatever it finds."""
    path_rule = rule if rule in RULES[:3] else "shift"
    path_rule = lh.rules.Tau(norms=np.ones(len(counts))) if rule == "tau" else path_rule
    with quiet():
        found = lh.match_prior(np.eye(len(counts)) + 1, counts, rule=path_rule, bootstrap=0)
    parts = (
        {}
        if rule in RULES[:3]
        else {
            name: values if gamma else (float(name == "scale"),) * 4
            for name, values in PARTS.items()
        }
    )
    parts |= {"scale": (1.0,) * 4} if rule == "offsets" else {}
    return replace(found, **({"gamma": gamma, "rule": rule} | parts | changes))


def by_hand(logits, rule, gamma, norms, counts=COUNTS):
    """The equations, on logits [N, K]."""
    return {
        "rescale": lambda: logits * (counts.max() / counts) ** gamma,
        "tau": lambda: logits / norms**gamma,
        "shift": lambda: logits + gamma * np.log(counts.max() / counts),
        "offsets": lambda: logits + PARTS["offset"],
    }.get(rule, lambda: logits * PARTS["scale"] + PARTS["offset"])()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("rule", RULES)
def test_the_rule_that_was_tuned_is_applied_to_a_head(rule, bias, tmp_path):
    head, tuned = made(bias), tuned_for(rule)
    expected = by_hand(head.logits(X), rule, 0.4, np.linalg.norm(head.weight, axis=1))
    np.testing.assert_allclose(lh.adjust(head, tuned).logits(X), expected)
    write_tuned(tuned, tmp_path / "tuned.json")
    for path in (tmp_path / "tuned.json", str(tmp_path / "tuned.json")):
        np.testing.assert_allclose(lh.adjust(head, path).logits(X), expected)
    assert (head.bias is None) is not bias  # the argument is left as it is


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(8, 4),
        nn.Linear(8, 4, bias=False),
        nn.Conv1d(8, 4, 1),
        nn.Conv2d(8, 4, 1, bias=False),
        nn.Linear(8, 4, bias=False, dtype=torch.bfloat16),
        nn.Linear(8, 4, dtype=torch.float64),
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", RULES)
def test_a_model_gets_what_its_head_gets_and_is_restored_bit_for_bit(rule, layer):
    model = nn.Sequential(nn.Identity(), copy.deepcopy(layer))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weight, expected = model[1].weight, lh.adjust(read(model), tuned_for(rule))
    adjusted = lh.adjust_(model, tuned_for(rule))
    now = read(model)
    assert torch.equal(now.weight, expected.weight)
    assert expected.bias is None or torch.equal(now.bias, expected.bias)
    assert (adjusted.rule, adjusted.gamma, adjusted.layers) == (rule, 0.4, ("1",))
    assert model[1].weight is weight
    for _ in range(2):  # a second time changes nothing
        adjusted.restore()
        assert list(model.state_dict()) == list(before)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (model[1].bias is None) == (layer.bias is None)


def test_a_new_bias_is_trained_if_the_weight_is_and_works_in_a_compiled_or_copied_model():
    model = nn.Sequential(nn.Linear(8, 4, bias=False)).requires_grad_(False)
    logits = model(torch.tensor(X, dtype=torch.float32))
    with lh.adjust_(model, tuned_for("shift")):
        assert model[0].bias.requires_grad is False
        expected = logits + 0.4 * torch.tensor(np.log(400 / COUNTS), dtype=torch.float32)
        assert torch.allclose(
            copy.deepcopy(model)(torch.tensor(X, dtype=torch.float32)), expected, atol=1e-5
        )
        assert "bias" in dict(model[0].named_parameters())
    layer = nn.Linear(8, 4, bias=False)
    lh.adjust_(layer, tuned_for("shift"))
    assert layer.bias.requires_grad


def test_a_moved_layer_loses_its_new_bias_too():
    model = nn.Sequential(nn.Linear(8, 4, bias=False))
    adjusted = lh.adjust_(model, tuned_for("shift"))
    model[0] = nn.Sequential(model[0])
    adjusted.restore()
    assert model[0][0].bias is None


@given(st.sampled_from(RULES), st.floats(-1, 2), st.booleans(), st.integers(0, 9))
def test_restore_gives_every_bit_back(rule, gamma, bias, seed):
    torch.manual_seed(seed)
    layer = nn.Linear(8, 4, bias=bias)
    before = copy.deepcopy(layer.state_dict())
    with lh.adjust_(layer, tuned_for(rule, gamma)):
        pass
    assert list(before) == list(layer.state_dict())
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


def test_a_choice_of_gamma_zero_changes_nothing():
    for rule in RULES:
        layer = nn.Linear(8, 4, bias=False)
        lh.adjust_(layer, tuned_for(rule, 0.0))
        assert layer.bias is None
        lh.adjust_(layer, tuned_for(rule, 0.0))  # which does not count as a first time


# One logit


def test_one_logit_moves_as_the_second_of_two_does():
    counts, gamma = np.array([900, 100]), 0.7
    head, tuned = made(rows=1), tuned_for("shift", gamma, counts)
    z = head.logits(X)[:, 0]
    pair = by_hand(np.stack([np.zeros_like(z), z], axis=1), "shift", gamma, None, counts)
    adjusted = lh.adjust(head, tuned).logits(X)[:, 0]
    np.testing.assert_allclose(adjusted, z + gamma * np.log(9))
    np.testing.assert_array_equal(adjusted > 0, pair[:, 1] > pair[:, 0])
    for bias in (True, False):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1, bias=bias))
        before = model(torch.ones(1, 8)).item()
        with lh.adjust_(model, tuned) as done:
            assert model(torch.ones(1, 8)).item() == pytest.approx(
                before + gamma * np.log(9), rel=1e-5
            )
            assert repr(done) == "Adjusted(shift, gamma=0.7, 2 classes; 2: bias +1.54)"
            assert "2, of 900 to 100 training samples" in done._repr_html_()
        assert model(torch.ones(1, 8)).item() == before


@pytest.mark.parametrize("rule", ["rescale", "tau"])
def test_one_logit_cannot_be_scaled(rule):
    tuned = tuned_for(rule, counts=np.array([90, 10]))
    for call in (
        lambda: lh.adjust(made(rows=1), tuned),
        lambda: lh.adjust_(nn.Linear(8, 1), tuned),
    ):
        with pytest.raises(
            lh.LevelheadError, match=r"a single logit.* scaling never moves its sign; use the rule"
        ):
            call()


# Twice


def test_a_second_adjustment_must_be_asked_for_whichever_came_first():
    layer = nn.Linear(8, 4, bias=False)
    shifted = lh.adjust_(layer, tuned_for("shift"))
    for call in (
        lambda **o: lh.adjust_(layer, tuned_for("shift"), **o),
        lambda **o: lh.adjust_(copy.deepcopy(layer), tuned_for("tau"), **o),
        lambda **o: lh.rescale_(layer, COUNTS, gamma=0.1, **o),
    ):
        with pytest.raises(
            ValueError, match=r"was adjusted already \(logit shift, gamma 0.4\); restore it first"
        ):
            call()
    scaled = lh.rescale_(layer, COUNTS, gamma=0.1, again=True)
    with pytest.raises(ValueError, match=r"was adjusted already \(RS, gamma 0.1\)"):
        lh.adjust_(layer, tuned_for("shift"))
    scaled.restore()
    with pytest.raises(ValueError, match=r"was adjusted already \(logit shift, gamma 0.4\)"):
        lh.adjust_(layer, tuned_for("shift"))
    shifted.restore()
    lh.adjust_(layer, tuned_for("shift"))


# Refused


class Blind(nn.Linear):
    """A layer whose forward does not look at its bias."""

    def forward(self, x):
        return F.linear(x, self.weight)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.head_dist = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        return (self.head(x) + self.head_dist(x)) / 2


class Named(nn.Linear):
    """A layer with class names, as transformers keeps them."""

    config = SimpleNamespace(id2label=dict(enumerate("dcba")))


MISTAKES = {
    "other classes": (
        nn.Linear(8, 5),
        tuned_for("shift"),
        "has 5 classes, but gamma was tuned on 4 classes",
    ),
    "one logit of four classes": (
        nn.Linear(8, 1),
        tuned_for("shift"),
        "gives a single logit, but gamma was tuned",
    ),
    "classes in another order": (
        Named(8, 4),
        tuned_for("shift", names=tuple("abcd")),
        r"in another order \(d, c, b, a\) than the logits that gamma was tuned on \(a, b",
    ),
    "some classes in another order": (
        Named(8, 4),
        tuned_for("shift", names=("d", "b", "c", "x")),
        r"in another order \(d, c, b, a\) than the logits that gamma was tuned on \(d, b, c, x",
    ),
    "a forward without a bias": (
        Blind(8, 4, bias=False),
        tuned_for("shift"),
        "its forward does not add one; tune",
    ),
    "two heads, shifted": (
        Pair(),
        tuned_for("shift"),
        "head, head_dist feed one output, and the rule shift is of one",
    ),
    "two heads, tau": (
        Pair(),
        tuned_for("tau"),
        "head, head_dist feed one output, and the rule tau is of one",
    ),
    "a number": (
        nn.Linear(8, 4),
        0.5,
        "tuned: expected what `tune` returned, or the path .* got float",
    ),
    "a gamma that overflows": (
        nn.Linear(8, 4).half(),
        tuned_for("rescale", 9.0),
        r"\(in torch.float16\) has NaN",
    ),
    "a shift that overflows": (
        nn.Linear(8, 4).half(),
        tuned_for("shift", 1e6),
        "the shifted head has NaN or infinite",
    ),
    "no counts": (
        nn.Linear(8, 4),
        replace(tuned_for("shift"), counts=()),
        "does not say which counts gamma was",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_does_not_fit_is_refused_in_one_line_with_nothing_changed(name):
    model, tuned, message = MISTAKES[name]
    before, keys = copy.deepcopy(model.state_dict()), list(model.state_dict())
    with pytest.raises(lh.LevelheadError, match=message) as error:
        lh.adjust_(model, tuned)
    assert "\n" not in str(error.value)
    assert list(model.state_dict()) == keys
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_a_head_of_other_classes_is_refused():
    with pytest.raises(
        lh.LevelheadError, match="the head has 3 classes, but gamma was tuned on 4 classes"
    ):
        lh.adjust(made(rows=3), tuned_for("rescale"))
    with pytest.raises(
        FileNotFoundError,
        match=r"gone\.json: no such file; expected one that `levelhead tune` wrote",
    ):
        lh.adjust(made(), "gone.json")
    with pytest.raises(lh.LevelheadError, match="expected a Head, got Linear"):
        lh.adjust(nn.Linear(8, 4), tuned_for("rescale"))


# A choice as gamma


def test_rescale_takes_a_choice_only_for_its_own_rule_and_counts():
    head, own = made(), tuned_for("rescale")
    expected = lh.rescale(head, COUNTS, gamma=0.4)
    assert np.array_equal(lh.rescale(head, 3 * COUNTS, gamma=own).weight, expected.weight)
    np.testing.assert_array_equal(lh.factors(COUNTS, own), lh.factors(COUNTS, 0.4))
    np.testing.assert_array_equal(
        lh.tau_normalize(head, tuned_for("tau")).weight, lh.tau_normalize(head, 0.4).weight
    )
    np.testing.assert_array_equal(
        lh.shift_logits(head, COUNTS, tuned_for("shift")).bias,
        lh.shift_logits(head, COUNTS, 0.4).bias,
    )
    layer = nn.Linear(8, 4)
    with lh.rescale_(layer, COUNTS, gamma=own) as adjusted:
        assert adjusted.gamma == 0.4
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(
        lh.LevelheadError,
        match=r"^gamma: chosen for rule 'shift'; use lh\.adjust_\(model, tuned\)$",
    ):
        lh.rescale_(layer, COUNTS, gamma=tuned_for("shift"))
    with pytest.raises(
        lh.LevelheadError, match=r"^gamma: chosen for rule 'shift'; use lh\.adjust\(head, tuned\)$"
    ):
        lh.rescale(head, COUNTS, gamma=tuned_for("shift"))
    with pytest.raises(
        lh.LevelheadError, match=r"gamma: chosen with counts of other proportions; use lh\.adjust_"
    ):
        lh.rescale_(layer, COUNTS[::-1], gamma=own)
    with pytest.raises(lh.LevelheadError, match="tau: chosen for rule 'rescale'"):
        lh.shift_logits(head, COUNTS, own)
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())


def test_a_kept_bias_is_kept():
    head = made()
    adjusted = lh.adjust(head, tuned_for("rescale", bias="keep"))
    assert np.array_equal(adjusted.bias, head.bias)
    assert np.array_equal(adjusted.weight, lh.rescale(head, COUNTS, gamma=0.4, bias="keep").weight)


def test_a_choice_of_an_older_file_is_applied(tmp_path):
    sources = {
        "files": {"logits": "L", "counts": "C"},
        "sha256": {"logits": "0", "counts": "1"},
        "kind": "logits",
        "target": None,
        "counts": COUNTS.tolist(),
    }
    old = {"gamma": 0.4, "rule": "shift", "chosen_on": "held-out", "classes": 4, "sources": sources}
    (tmp_path / "old.json").write_text(json.dumps(old))
    layer = nn.Linear(8, 4)
    expected = lh.adjust(read(layer), tuned_for("shift"))
    lh.adjust_(layer, tmp_path / "old.json")
    assert torch.equal(layer.bias, expected.bias)
