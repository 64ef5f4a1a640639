"""A scale or temperature next to the head: what follows is not known by names, so that nothing is guessed."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

COUNTS = [100, 25, 4]
FACTORS = torch.tensor([1.0, 2.0, 5.0])
X = torch.randn(9, 8, generator=torch.Generator().manual_seed(0))


class Scaled(nn.Module):
    """Logits times a number of the model's own; as a cosine head, of normalized weights."""

    def __init__(self, name="logit_scale", *, cosine=False, buffer=False):
        super().__init__()
        self.body, self.fc, self.name, self.cosine = nn.Linear(8, 6), nn.Linear(6, 3), name, cosine
        if buffer:
            self.register_buffer(name, torch.tensor([4.0]))
        else:
            self.register_parameter(name, nn.Parameter(torch.tensor(4.0)))

    def forward(self, x):
        x = self.body(x)
        logits = F.normalize(x) @ F.normalize(self.fc.weight).T if self.cosine else self.fc(x)
        return logits * getattr(self, self.name)


@pytest.mark.parametrize(
    "name", ["logit_scale", "scale", "temperature", "tau", "s", "class_scale", "logits_temperature"]
)
@pytest.mark.parametrize("buffer", [False, True])
def test_head_next_to_a_scale_needs_an_example_or_its_name(name, buffer):
    model = Scaled(name, buffer=buffer)
    with pytest.raises(
        lh.LevelheadError, match=rf"fc looks like the head.* a {name}: .*example.*layer"
    ):
        lh.rescale_(model, COUNTS, gamma=0.5)
    before = model(X).detach()
    for how in ({"example": X[:2]}, {"layer": "fc"}):
        with lh.rescale_(model, COUNTS, gamma=0.5, **how):
            assert torch.allclose(model(X), before * FACTORS, atol=1e-5)


@pytest.mark.parametrize("name", ["scale", "temperature", "s", "T"])
def test_a_plain_number_is_a_scale_too(name):
    model = Scaled("unrelated")
    setattr(model, name, 30.0)
    with pytest.raises(lh.LevelheadError, match=rf"fc looks like the head.* a {name}: "):
        lh.rescale_(model, COUNTS, gamma=0.5)
    setattr(model, name, 1.0)
    lh.rescale_(model, COUNTS, gamma=0.5).restore()
    for other in (True, "auto") if name != "T" else (128,):  # steps, not a temperature
        setattr(model, name, other)
        lh.rescale_(model, COUNTS, gamma=0.5).restore()


def test_what_is_added_next_to_a_scale_needs_an_example_even_if_the_head_is_named():
    logits, labels = (
        torch.randn(60, 3, generator=torch.Generator().manual_seed(1)),
        torch.arange(60) % 3,
    )
    tuned = lh.tune(logits + 2 * torch.eye(3)[labels], labels, COUNTS, rule="shift")
    model = Scaled("temperature")
    with pytest.raises(lh.LevelheadError, match=r"a temperature.*example.*rule scales"):
        lh.adjust_(model, tuned, layer="fc")
    with torch.no_grad():
        model.temperature.fill_(1.0)
    before = model(X).detach()
    with lh.adjust_(model, tuned, layer="fc", example=X[:2]) as adjusted:
        assert torch.allclose(
            model(X), before + torch.tensor(adjusted.adjustment.offset).float(), atol=1e-5
        )


def test_a_scale_for_each_class_is_one_too(tmp_path):
    model = Scaled("unrelated")
    model.register_parameter("logit_scale", nn.Parameter(torch.ones(3)))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    for find in (
        lambda: lh.rescale_(model, COUNTS, gamma=0.5),
        lambda: inspect_file(tmp_path / "model.safetensors"),
    ):
        with pytest.raises(lh.LevelheadError, match="a logit_scale"):
            find()


def test_cosine_head_in_a_model_s_own_forward_is_not_scaled_in_vain():
    model = Scaled(cosine=True)
    for how in ({}, {"example": X[:2]}):
        with pytest.raises(lh.LevelheadError):
            lh.rescale_(model, COUNTS, gamma=0.5, **how)


def test_file_with_a_scale_next_to_the_head_needs_the_head_s_name(tmp_path):
    path, out, back = (tmp_path / f"{name}.safetensors" for name in ("model", "out", "back"))
    save_file(Scaled().state_dict(), path)
    for look in (
        lambda: inspect_file(path),
        lambda: adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS),
    ):
        with pytest.raises(
            lh.LevelheadError, match=r"fc looks like the head.* a logit_scale: .*head"
        ):
            look()
    assert not out.exists()
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, head="fc")
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


def test_numbers_of_other_blocks_and_of_several_values_say_nothing(tmp_path):
    model = Scaled("unrelated")
    model.body.register_parameter("scale", nn.Parameter(torch.tensor(2.0)))
    model.register_parameter("sigma", nn.Parameter(torch.ones(6)))
    assert lh.rescale_(model, COUNTS, gamma=0.5).layers == ("fc",)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    assert inspect_file(tmp_path / "model.safetensors", counts=COUNTS).layers[0].key == "fc"
