"""Heads in torch modules: scaled in place, read, written, put back bit for bit, also sharded."""

import copy
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import levelhead as lh
from levelhead.heads.adjust import rescale_
from levelhead.heads.torch import read, write

from .chosen import tuned_for
from .nets import COUNTS, FACTORS, Net, Teacher, bits, scaled, unchanged


def test_only_the_head_changes_and_parameters_stay_the_same_objects(x):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(x).sum().backward()
    optimizer.step()
    weight, gradient, body = model.fc.weight, model.fc.weight.grad, bits(model.body)
    rescale_(model, COUNTS, gamma=0.5)
    assert model.fc.weight is weight
    assert weight.grad is gradient
    assert weight.requires_grad
    assert optimizer.state[weight]["momentum_buffer"] is not None
    assert unchanged(model.body, body)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_restore_and_leaving_the_block_give_every_bit_back(dtype):
    model = Teacher("head", "head_dist").to(dtype)
    before = bits(model)
    adjusted = rescale_(model, [1000, 30, 7], gamma=0.37)
    assert not unchanged(model, before)
    adjusted.restore()
    assert unchanged(model, before)
    with rescale_(model, [1000, 30, 7], gamma=0.37):
        assert not unchanged(model, before)
    assert unchanged(model, before)


def assigned(model):
    model.load_state_dict(
        {key: value.clone() for key, value in model.state_dict().items()}, assign=True
    )


def converted(model):
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def replaced(model):
    model.fc = nn.Linear(8, 3)


@pytest.mark.parametrize("replace", [assigned, converted, replaced])
def test_restore_says_that_the_parameters_were_replaced_and_changes_nothing(replace):
    model = Net()
    adjusted = rescale_(model, COUNTS, gamma=0.5)
    replace(model)
    now = bits(model)
    with pytest.raises(
        ValueError, match=r"cannot restore fc: its weight was replaced since .*load the weights"
    ):
        adjusted.restore()
    assert unchanged(model, now)


def test_restore_follows_parameters_that_moved_or_changed_their_type():
    model = Net()
    before = bits(model)
    adjusted = rescale_(model, COUNTS, gamma=0.5)
    model.double().fc = nn.Sequential(model.fc)  # as a wrapper around the layer has it
    adjusted.restore()
    assert torch.equal(model.fc[0].weight, before["fc.weight"].double())


def test_rescale_agrees_with_the_pure_function():
    model = Net()
    for bias in ("scale", "keep"):
        by = lh.Adjustment.scaling(FACTORS)
        expected = replace(by, bias=bias).head(read(model))
        with rescale_(model, COUNTS, gamma=0.5, bias=bias):
            assert torch.equal(model.fc.weight, expected.weight)
            assert torch.equal(model.fc.bias, expected.bias)


def test_second_scaling_must_be_asked_for():
    model = Net()
    adjusted = rescale_(model, COUNTS, gamma=0.5)
    with pytest.raises(
        ValueError,
        match=r"fc was adjusted already \(rescale, strength 0.5\); restore it first; pass again to",
    ):
        rescale_(model, COUNTS, gamma=0.2)
    rescale_(model, COUNTS, gamma=0.2, again=True).restore()
    adjusted.restore()
    rescale_(model, COUNTS, gamma=0.2)
    model.load_state_dict(Net().state_dict())
    rescale_(model, COUNTS, gamma=0.2)


def test_scaling_that_changes_nothing_does_not_count():
    model = Net()
    rescale_(model, COUNTS, gamma=0.0)
    with pytest.warns(
        lh.warnings.CountsWarning, match="all equal: rescaling by them changes nothing"
    ):
        rescale_(model, [7, 7, 7], gamma=0.5)
    rescale_(model, COUNTS, gamma=0.5)
    rescale_(model, COUNTS, gamma=0.0, again=True)
    with pytest.raises(ValueError, match=r"fc was adjusted already \(rescale, strength 0.5\)"):
        rescale_(model, COUNTS, gamma=0.5)


def test_norms_against_the_counts_are_warned_of_where_the_strength_was_not_tuned():
    def made(*norms):
        model = Net()
        with torch.no_grad():
            model.fc.weight.copy_(torch.eye(3, model.fc.in_features) * torch.tensor(norms)[:, None])
        return model

    with pytest.warns(
        lh.warnings.NormWarning, match=r"rank correlation -1.00.*compare with the rule shift"
    ):
        rescale_(made(1.0, 2.0, 3.0), COUNTS, gamma=0.5)
    tuned = lh.tune_unlabelled(torch.randn(200, 3).abs(), counts=COUNTS, rule="rescale")
    with warnings.catch_warnings(action="error"):
        rescale_(made(3.0, 2.0, 1.0), COUNTS, gamma=0.5)
        rescale_(made(1.0, 2.0, 3.0), COUNTS, gamma=0.0)
        lh.adjust_(made(1.0, 2.0, 3.0), tuned)


def test_copy_of_a_scaled_model_is_known_as_scaled_and_its_state_dict_is_plain():
    model = Net()
    keys = list(model.state_dict())
    rescale_(model, COUNTS, gamma=0.5)
    assert list(model.state_dict()) == keys
    twin = copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"fc was adjusted already \(rescale, strength 0.5\)"):
        rescale_(twin, COUNTS, gamma=0.5)
    twin.load_state_dict(Net().state_dict())
    rescale_(twin, COUNTS, gamma=0.5)
    with pytest.raises(ValueError, match=r"fc was adjusted already \(rescale, strength 0.5\)"):
        rescale_(model.half(), COUNTS, gamma=0.5)


def test_report_says_what_was_done():
    model = Net()
    with torch.no_grad():
        model.fc.weight.copy_(torch.eye(3, 8))
    adjusted = rescale_(model, COUNTS, gamma=0.5)
    assert repr(adjusted) == "Adjusted(rescale, strength 0.5, 3 classes; fc: norms 1..1 -> 1..5)"
    assert adjusted.adjustment.scale.tolist() == FACTORS.tolist()


@pytest.mark.parametrize("head", [nn.Linear(8, 3), nn.Linear(8, 3, bias=False), nn.Conv1d(8, 3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_read_then_write_changes_no_bit(head, dtype):
    head = copy.deepcopy(head).to(dtype)
    before = bits(head)
    write(head, read(head))
    write(head, read(head).numpy())
    assert unchanged(head, before)


def test_a_scaled_model_that_is_saved_whole_needs_no_levelhead_to_be_loaded(tmp_path):
    model = nn.Sequential(nn.Linear(8, 3))
    rescale_(model, [1000, 30, 7], gamma=0.5)
    torch.save(model, tmp_path / "model.pt")
    # Beside tensors, torch takes the classes that are named here and no others.
    with torch.serialization.safe_globals([nn.Sequential, nn.Linear, set]):
        loaded = torch.load(tmp_path / "model.pt", weights_only=True)
    assert torch.equal(loaded[0].weight, model[0].weight)
    with pytest.raises(lh.LevelheadError, match="was adjusted already"):
        rescale_(loaded, [1000, 30, 7], gamma=0.5)


def test_torch_may_make_tensors_on_another_device_by_default(x):
    hooked = Net()
    hooked.fc.register_forward_hook(lambda *_: None)
    for model, example in ((Net(), None), (Net(), x), (hooked, x), (Teacher(), x)):
        before = model(x)
        with torch.device("meta"):
            adjusted = rescale_(model, COUNTS, gamma=0.5, example=example)
        assert adjusted.checked == ("forward" if example is None else "example")
        assert scaled(model, x, before)
    model = Net()
    before = model(x)
    with torch.device("meta"):
        adjusted = lh.adjust_(model, lh.rules.Shift(0.5), COUNTS, example=x)
    assert torch.allclose(model(x), before + FACTORS.log(), atol=1e-5)


def test_read_gives_a_copy_and_write_checks_what_it_gets():
    model = Net()
    head = read(model)
    head.weight.zero_()
    assert model.fc.weight.any()
    for bad, message in (
        (
            lh.Head(torch.zeros(3, 5), torch.zeros(3)),
            r"expected weight \[3, 8\] for fc, got \[3, 5\]",
        ),
        (lh.Head(torch.zeros(3, 8)), "fc has a bias, but the head has none"),
        (lh.Head(torch.full((3, 8), torch.nan), torch.zeros(3)), "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            write(model, bad)
    with pytest.raises(
        ValueError, match="2 heads feed the one output: head, head_dist; pass layer to name"
    ):
        read(Teacher("head", "head_dist"))


def test_counts_by_name_follow_the_config(x):
    model = Net()
    model.config = type(
        "Config", (), {"id2label": {2: "owl", 0: "cat", 1: "dog"}, "num_labels": 3}
    )()
    logits = model(x).detach()
    rescale_(model, {"owl": 4, "cat": 100, "dog": 25}, gamma=0.5)
    assert scaled(model, x, logits)
    model.config.id2label = {i: f"LABEL_{i}" for i in range(3)}
    assert read(model).names is None


def test_half_precision_counts_the_predictions_that_rounding_could_flip():
    model = Net().bfloat16()
    sure, unsure = (
        [[9.0, 0.0, 0.0]],
        [[1.0, 0.5001, 0.0], [0.0, 1.0, 0.399]],
    )  # scaled by 1, 2 and 5
    assert rescale_(model, COUNTS, gamma=0.5, logits=np.array(sure)).flips == 0
    model.load_state_dict(Net().state_dict())
    with pytest.warns(
        lh.warnings.PrecisionWarning, match="torch.bfloat16 could flip 1 of 3 predictions"
    ):
        assert rescale_(model, COUNTS, gamma=0.5, logits=np.array(sure + unsure)).flips == 1
    assert rescale_(Net(), COUNTS, gamma=0.5, logits=np.array(sure + unsure)).flips is None


@pytest.mark.parametrize(
    ("dtype", "bias"), [(torch.bfloat16, True), (torch.float16, True), (torch.bfloat16, False)]
)
def test_half_precision_counts_the_predictions_that_a_rounded_bias_flips(dtype, bias):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3, bias=bias)).to(dtype)
    if bias:
        model[0].bias.data += 5
    features = torch.randn(20_000, 6)

    def exact_logits():
        weight, bias = model[0].weight.float(), model[0].bias
        return F.linear(features, weight, None if bias is None else bias.float()).detach().numpy()

    tuned = tuned_for("offsets", counts=COUNTS)
    logits = exact_logits()
    with pytest.warns(lh.warnings.PrecisionWarning, match="rounding the adjusted weights"):
        adjusted = lh.adjust_(model, tuned, logits=logits)
    wanted = tuned.apply(logits).argmax(1)
    assert adjusted.flips == (exact_logits().argmax(1) != wanted).sum() > 0


def test_half_precision_counts_what_scales_and_offsets_could_flip():
    logits = np.array([[1.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    tuned = tuned_for("vector", counts=COUNTS)
    scale, offset = tuned.adjustment.scale, tuned.adjustment.offset
    tied = (logits[0] * scale + offset).max()
    logits[0] = (tied + 1 - offset) / scale  # all tied, once adjusted
    with pytest.warns(lh.warnings.PrecisionWarning, match="could flip 1 of 2 predictions"):
        assert lh.adjust_(Net().bfloat16(), tuned, logits=logits).flips == 1


def test_half_precision_counts_what_a_rounded_bias_flips_of_one_logit():
    model = nn.Sequential(nn.Linear(2, 1)).bfloat16()
    with torch.no_grad():
        model[0].bias.fill_(16.0)
    offset = np.log(COUNTS[0] / COUNTS[1])  # 1.386, of which a bias of 16 takes 1.375
    z = np.array([-1.38, -1.37, -1.39, 1.0])
    with pytest.warns(lh.warnings.PrecisionWarning, match="could flip 1 of 4 predictions"):
        adjusted = lh.adjust_(
            model, tuned_for("shift", 1.0, COUNTS[:2]), logits=np.stack([0 * z, z], 1)
        )
    assert adjusted.flips == 1
    assert model[0].bias.item() - 16 == 1.375 < offset


@pytest.mark.slow
def test_sharded_head_is_rescaled_and_restored_in_two_processes(in_two_processes):
    """FSDP2 on real processes: rows shared out unevenly, before and after a forward pass that gathers them."""
    in_two_processes(Path(__file__).with_name("two_processes.py"))
