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
from levelhead.core.tuned import write_tuned
from levelhead.heads.adjust import check_adjust
from levelhead.heads.torch import read, write

from .chosen import OFFSET, SCALE, own_rule, tuned_for

COUNTS = np.array([400, 100, 25, 4])
RULES = ("offsets", "shift", "rescale", "tau", "scales", "vector")
X = np.random.default_rng(0).standard_normal((500, 8))


def made(bias=True, rows=4, seed=0) -> lh.Head:
    rng = np.random.default_rng(seed)
    return lh.Head(rng.standard_normal((rows, 8)), rng.standard_normal(rows) if bias else None)


def by_hand(logits, rule, strength, norms, counts=COUNTS):
    """The equations, on logits [N, K]."""
    scale, offset = SCALE[:4], OFFSET[:4]
    return {
        "rescale": lambda: logits * (counts.max() / counts) ** strength,
        "tau": lambda: logits / norms**strength,
        "shift": lambda: logits + strength * np.log(counts.max() / counts),
        "offsets": lambda: logits + offset,
        "scales": lambda: logits * scale,
        "vector": lambda: logits * scale + offset,
    }[rule]()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("rule", RULES)
def test_the_rule_that_was_tuned_is_applied_to_a_head(rule, bias, tmp_path):
    head = made(bias)
    norms = np.linalg.norm(head.weight, axis=1)
    tuned = tuned_for(rule, norms=norms)
    expected = by_hand(head.logits(X), rule, 0.4, norms)
    np.testing.assert_allclose(lh.adjust(head, tuned).logits(X), expected)
    write_tuned(tuned, tmp_path / "tuned.json")
    for path in (tmp_path / "tuned.json", str(tmp_path / "tuned.json")):
        np.testing.assert_allclose(lh.adjust(head, path).logits(X), expected)
    assert (head.bias is None) is not bias  # the argument is left as it is


@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_a_rule_at_a_strength_of_ones_own_is_applied_to_a_head_and_a_model(rule):
    head = made()
    expected = by_hand(head.logits(X), rule, 0.4, np.linalg.norm(head.weight, axis=1))
    counts = None if rule == "tau" else COUNTS
    np.testing.assert_allclose(lh.adjust(head, own_rule(rule, 0.4), counts).logits(X), expected)
    layer = nn.Linear(8, 4, dtype=torch.float64)
    write(layer, head)
    with lh.adjust_(layer, own_rule(rule, 0.4), counts) as done:
        np.testing.assert_allclose(layer(torch.tensor(X)).detach(), expected)
        assert (done.rule, done.strength) == (rule, 0.4)
        assert (done.counts is None) == (rule == "tau")
        logits = done.adjustment.scores(head.logits(X))
        np.testing.assert_allclose(logits, expected)


def test_counts_by_name_and_labels_to_count_are_taken_as_elsewhere():
    head = replace(made(), names=list("abcd"))
    expected = lh.adjust(head, lh.rules.Shift(1.0), COUNTS)
    for counts in (
        dict(zip("dcba", COUNTS[::-1].tolist(), strict=True)),
        np.repeat(np.arange(4), COUNTS),
    ):
        assert np.array_equal(lh.adjust(head, lh.rules.Shift(1.0), counts).bias, expected.bias)


def test_offsets_change_only_the_bias():
    layer = nn.Linear(8, 4)
    weight = layer.weight.detach().clone()
    done = lh.adjust_(layer, tuned_for("offsets"))
    assert torch.equal(layer.weight, weight)
    assert repr(done) == "Adjusted(offsets, 4 classes; head: bias -0.3..+1)"


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
    assert (adjusted.rule, adjusted.layers) == (rule, ("1",))
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


def test_a_bias_that_a_layer_gets_in_inference_mode_can_be_trained_and_taken_back():
    model = nn.Sequential(nn.Linear(8, 4, bias=False))
    with torch.inference_mode():
        adjusted = lh.adjust_(model, tuned_for("shift"))
    model(torch.tensor(X, dtype=torch.float32)).sum().backward()
    assert model[0].bias.grad is not None
    adjusted.restore()
    assert model[0].bias is None


def test_a_moved_layer_loses_its_new_bias_too():
    model = nn.Sequential(nn.Linear(8, 4, bias=False))
    adjusted = lh.adjust_(model, tuned_for("shift"))
    model[0] = nn.Sequential(model[0])
    adjusted.restore()
    assert model[0][0].bias is None


@given(st.sampled_from(RULES), st.floats(-1, 2), st.booleans(), st.integers(0, 9))
def test_restore_gives_every_bit_back(rule, strength, bias, seed):
    torch.manual_seed(seed)
    layer = nn.Linear(8, 4, bias=bias)
    before = copy.deepcopy(layer.state_dict())
    with lh.adjust_(layer, tuned_for(rule, strength)):
        pass
    assert list(before) == list(layer.state_dict())
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


def test_a_choice_that_changes_nothing_changes_nothing():
    for rule in RULES:
        layer = nn.Linear(8, 4, bias=False)
        lh.adjust_(layer, tuned_for(rule, 0.0))
        assert layer.bias is None
        lh.adjust_(layer, tuned_for(rule, 0.0))  # which does not count as a first time


# One logit


def test_one_logit_moves_as_the_second_of_two_does():
    counts, strength = np.array([900, 100]), 0.7
    head, tuned = made(rows=1), tuned_for("shift", strength, counts)
    z = head.logits(X)[:, 0]
    pair = by_hand(np.stack([np.zeros_like(z), z], axis=1), "shift", strength, None, counts)
    adjusted = lh.adjust(head, tuned).logits(X)[:, 0]
    np.testing.assert_allclose(adjusted, z + strength * np.log(9))
    np.testing.assert_array_equal(adjusted > 0, pair[:, 1] > pair[:, 0])
    for bias in (True, False):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1, bias=bias))
        before = model(torch.ones(1, 8)).item()
        with lh.adjust_(model, tuned) as done:
            assert model(torch.ones(1, 8)).item() == pytest.approx(
                before + strength * np.log(9), rel=1e-5
            )
            to = "bias" if bias else "new bias"
            assert repr(done) == f"Adjusted(shift, strength 0.7, 2 classes; 2: {to} +1.54)"
            assert f"added to the {to}" in done._repr_html_()
            assert "2, of 900 to 100 training samples" in done._repr_html_()
        assert model(torch.ones(1, 8)).item() == before


def test_one_logit_takes_what_is_added_to_the_second_class_less_that_to_the_first():
    tuned = tuned_for("offsets", counts=[900, 100])
    moved = lh.adjust(made(rows=1), tuned).bias - made(rows=1).bias
    np.testing.assert_allclose(moved, OFFSET[1] - OFFSET[0])
    with lh.adjust_(nn.Linear(8, 1, bias=False), lh.rules.Shift(1.0), [900, 100]) as done:
        np.testing.assert_allclose(done.adjustment.offset, np.log(9))


@pytest.mark.parametrize("rule", ["rescale", "tau", "scales", "vector"])
def test_one_logit_cannot_be_scaled(rule):
    tuned = tuned_for(rule, counts=[90, 10])
    calls = [
        lambda: lh.adjust(made(rows=1), tuned),
        lambda: lh.adjust_(nn.Linear(8, 1), tuned),
    ]
    if rule in ("rescale", "tau"):
        calls.append(lambda: lh.adjust(made(rows=1), own_rule(rule, 1.0), [90, 10]))
        calls.append(lambda: lh.adjust_(nn.Linear(8, 1), own_rule(rule, 1.0), [90, 10]))
    for call in calls:
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
            ValueError, match=r"was adjusted already \(shift, strength 0.4\); restore it first"
        ):
            call()
    scaled = lh.rescale_(layer, COUNTS, gamma=0.1, again=True)
    with pytest.raises(ValueError, match=r"was adjusted already \(rescale, strength 0.1\)"):
        lh.adjust_(layer, tuned_for("shift"))
    scaled.restore()
    with pytest.raises(ValueError, match=r"was adjusted already \(shift, strength 0.4\)"):
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
        "has 5 classes, but it was tuned on 4 classes",
    ),
    "one logit of four classes": (
        nn.Linear(8, 1),
        tuned_for("shift"),
        "gives a single logit, but it was tuned",
    ),
    "classes in another order": (
        Named(8, 4),
        tuned_for("shift", names=tuple("abcd")),
        r"in another order \(d, c, b, a\) than the scores it was tuned on \(a, b",
    ),
    "some classes in another order": (
        Named(8, 4),
        tuned_for("shift", names=("d", "b", "c", "x")),
        r"in another order \(d, c, b, a\) than the scores it was tuned on \(d, b, c, x",
    ),
    "a forward without a bias": (
        Blind(8, 4, bias=False),
        tuned_for("shift"),
        "its forward does not add one; .*; pass features .* to put offsets into the weights",
    ),
    "two heads, shifted": (
        Pair(),
        tuned_for("shift"),
        "head, head_dist feed one output, and what the rule shift adds is for one layer",
    ),
    "two heads, tau": (
        Pair(),
        lh.rules.Tau(0.5),
        "several layers feed one output, and the rule tau would scale their rows by different",
    ),
    "a number": (
        nn.Linear(8, 4),
        0.5,
        r"tuned: expected what `tune` returned, .* or a rule such as lh\.rules\.Rescale\(0\.5\), got float",
    ),
    "a strength that overflows": (
        nn.Linear(8, 4).half(),
        tuned_for("rescale", 9.0),
        r"\(in torch.float16\) has NaN",
    ),
    "a shift that overflows": (
        nn.Linear(8, 4).half(),
        tuned_for("shift", 1e6),
        "the shifted head has NaN or infinite",
    ),
    "a rule without counts": (
        nn.Linear(8, 4),
        lh.rules.Shift(1.0),
        "counts: the rule shift needs counts",
    ),
    "a rule without a strength": (
        nn.Linear(8, 4),
        lh.rules.Tau(),
        r"rule: expected a strength, such as lh\.rules\.Tau\(0\.5\)",
    ),
    "a rule that is fitted": (
        nn.Linear(8, 4),
        lh.rules.Offsets(),
        r"the rule offsets is fitted on held-out samples; give what lh\.tune returns",
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
        lh.LevelheadError, match="the head has 3 classes, but it was tuned on 4 classes"
    ):
        lh.adjust(made(rows=3), tuned_for("rescale"))
    with pytest.raises(
        FileNotFoundError,
        match=r"gone\.json: no such file; expected one that `levelhead tune` wrote",
    ):
        lh.adjust(made(), "gone.json")
    with pytest.raises(lh.LevelheadError, match="expected a Head, got Linear"):
        lh.adjust(nn.Linear(8, 4), tuned_for("rescale"))


# Counts and strengths


def test_two_layers_that_feed_one_output_are_scaled_alike():
    model = Pair()
    x = torch.tensor(X, dtype=torch.float32)
    before = model(x)
    with lh.adjust_(model, tuned_for("scales")) as done:
        assert done.layers == ("head", "head_dist")
        expected = before * torch.tensor(SCALE[:4], dtype=torch.float32)
        assert torch.allclose(model(x), expected, atol=1e-5)
    with lh.adjust_(model, tuned_for("tau")):  # by the numbers that were tuned on its logits
        pass


def test_what_was_tuned_has_counts_of_its_own():
    for call in (
        lambda: lh.adjust(made(), tuned_for("shift"), COUNTS),
        lambda: lh.adjust_(nn.Linear(8, 4), tuned_for("shift"), COUNTS),
    ):
        with pytest.raises(lh.LevelheadError, match="counts: what was tuned has counts of its own"):
            call()


def test_a_choice_without_counts_is_applied():
    layer = nn.Linear(8, 4)
    before = layer.bias.detach().clone()
    done = lh.adjust_(layer, replace(tuned_for("offsets"), counts=()))
    assert done.counts is None
    assert torch.allclose(layer.bias, before + torch.tensor(OFFSET[:4], dtype=torch.float32))


def test_rescale_is_the_rule_at_a_number():
    head, layer = made(), nn.Linear(8, 4, dtype=torch.float64)
    write(layer, head)
    with lh.rescale_(layer, COUNTS, gamma=0.4) as done:
        expected = lh.adjust(head, lh.rules.Rescale(0.4), COUNTS)
        assert np.array_equal(read(layer).weight, expected.weight)
        assert (done.rule, done.strength) == ("rescale", 0.4)
    with pytest.raises(lh.LevelheadError, match=r"^gamma: expected a number; .*lh\.adjust_\(model"):
        lh.rescale_(layer, COUNTS, gamma=tuned_for("rescale"))
    with pytest.raises(lh.LevelheadError, match=r"^gamma: expected a finite number"):
        lh.rescale_(layer, COUNTS, gamma=float("nan"))


def test_a_kept_bias_is_kept():
    layer = nn.Linear(8, 4)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    lh.rescale_(layer, COUNTS, gamma=0.5, bias="keep")
    assert torch.equal(layer.bias, bias)
    assert torch.allclose(layer.weight, weight * torch.tensor([1.0, 2.0, 4.0, 10.0])[:, None])


def test_a_choice_of_an_older_file_is_refused_in_one_line(tmp_path):
    old = {"gamma": 0.4, "rule": "shift", "chosen_on": "held-out", "classes": 4}
    (tmp_path / "old.json").write_text(json.dumps(old))
    with pytest.raises(lh.LevelheadError, match="an older levelhead wrote it"):
        lh.adjust_(nn.Linear(8, 4), tmp_path / "old.json")


def test_the_name_of_a_rule_where_a_choice_is_expected_says_how_to_tune_with_it():
    with pytest.raises(FileNotFoundError, match=r"call `tune` with rule='rescale'"):
        lh.adjust_(nn.Linear(8, 4), "rescale", COUNTS)


def test_an_adjustment_is_checked_before_a_training_that_would_end_with_it():
    check_adjust(nn.Linear(8, 4), tuned_for("offsets"))
    check_adjust(nn.Linear(8, 4), lh.rules.Rescale(0.5), COUNTS)
    for tuned, counts, message in (
        (tuned_for("offsets", counts=[3, 2, 1]), None, "it was tuned on 3 classes"),
        (lh.rules.Rescale(), COUNTS, "expected a strength"),
        (lh.rules.Rescale(0.5), None, "needs counts"),
        (lh.rules.Rescale(0.5), [3, 2, 1], "expected 4 counts"),
    ):
        with pytest.raises(lh.LevelheadError, match=message):
            check_adjust(nn.Linear(8, 4), tuned, counts)
