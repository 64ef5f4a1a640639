"""An example input and a model of several outputs: the one with as many columns as classes is taken, of two none."""

import pytest
import torch
from torch import nn

from levelhead.heads.adjust import rescale_
from levelhead.heads.torch_find import find_head
from levelhead.hosts.torch import WVN


class Outputs(nn.Module):
    """Two heads on the same features, put together as `form` says."""

    def __init__(self, form, second=3):
        super().__init__()
        self.form, self.one, self.two = form, nn.Linear(6, 3), nn.Linear(6, second)

    def forward(self, x):
        return self.form(self.one(x), self.two(x))


@pytest.fixture
def x():
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("form", "names"),
    [
        (lambda a, b: (a, b), ("0", "1")),
        (lambda a, b: [b, a], ("1", "0")),
        (lambda a, b: {"main": a, "aux": b}, ("main", "aux")),
        (lambda a, b: {"main": (a,), "aux": b}, (r"main\.0", "aux")),
    ],
)
def test_two_outputs_of_k_columns_are_listed_and_none_is_taken(form, names, x):
    model = Outputs(form)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with pytest.raises(ValueError, match="2 outputs of 3 columns") as error:
        rescale_(model, [100, 25, 4], gamma=0.5, example=x)
    listed = str(error.value)
    for name, layer in zip(names, ("one", "two"), strict=True):
        assert f"{name.replace(chr(92), '')} (from {layer})" in listed
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())


@pytest.mark.parametrize("layer", ["one", "two"])
def test_named_layer_is_proved_by_the_output_it_feeds(layer, x):
    assert list(find_head(Outputs(lambda a, b: (a, b)), layer=layer, example=x)) == [layer]


def test_output_with_as_many_columns_as_classes_is_the_one_meant(x):
    model = Outputs(lambda a, b: (a, b), second=4)
    assert list(find_head(model, example=x, classes=4)) == ["two"]
    assert (
        list(find_head(model, example=x, classes=3)) == list(find_head(model, example=x)) == ["one"]
    )
    assert rescale_(model, [90, 50, 9, 4], gamma=0.5, example=x).layers == ("two",)


@pytest.mark.parametrize(
    "form",
    [
        lambda a, b: (a, a.softmax(1)),  # probabilities of the same head
        lambda a, b: (a, a * 2),
        lambda a, b: (a, a.sum(), b[:, :2]),
        lambda a, b: {"logits": a, "aux_logits": b},  # its name says which it is
    ],
)
def test_second_output_of_the_same_head_or_of_another_shape_is_no_doubt(form, x):
    assert list(find_head(Outputs(form), example=x)) == ["one"]


def test_second_output_whose_head_cannot_be_proved_is_a_doubt(x):
    with pytest.raises(
        ValueError, match=r"2 outputs of 3 columns: 0 \(from one\), 1 \(from no layer alone\)"
    ):
        find_head(Outputs(lambda a, b: (a, b.softmax(1))), example=x)


def test_wvn_takes_classes_and_an_example(x):
    model = Outputs(lambda a, b: (a, b), second=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for options in ({"classes": 4}, {"example": x, "classes": 4}):
        hook = WVN(optimizer, model, **options)
        assert list(hook.weights) == ["two.weight"]
        hook.remove()
    assert list(WVN(optimizer, model, example=x).weights) == ["one.weight"]
    with pytest.raises(ValueError, match=r"expected a layer or a model.*classes"):
        WVN(optimizer, model.two.weight, classes=4)


@pytest.mark.slow
def test_exported_program_is_refused_with_the_way_out(x):
    exported = torch.export.export(nn.Sequential(nn.Linear(6, 3)), (x,))
    with pytest.raises(ValueError, match="adjust the module before"):
        rescale_(exported, [100, 25, 4], gamma=0.5)
