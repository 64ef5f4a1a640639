"""Heads in torch modules are found by every road, or the candidates are listed."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from levelhead.heads.adjust import rescale_
from levelhead.heads.torch import read
from levelhead.heads.torch_find import find_head

from .nets import COUNTS, Net, Teacher, bits, scaled, unchanged


@pytest.mark.parametrize(
    "name", ["fc", "classifier", "head", "score", "last_linear", "logits_proj", "nobody_knows_it"]
)
def test_head_is_found_by_name_or_as_the_only_layer_of_its_shape(name, x):
    model = Net(name)
    logits = model(x).detach()
    assert rescale_(model, COUNTS, gamma=0.5).layers == (name,)
    assert scaled(model, x, logits)


@pytest.mark.parametrize("pick", ["body", lambda m: m.body, ["body"], lambda m: [m.body]])
def test_layer_the_caller_names_wins_whatever_its_name(pick):
    model = Net()
    assert list(find_head(model, layer=pick(model) if callable(pick) else pick)) == ["body"]


def test_last_layer_of_a_plain_sequence_is_the_head():
    model = nn.Sequential(
        nn.Linear(6, 5), nn.Sequential(nn.ReLU(), nn.Linear(5, 3)), nn.Dropout(0.1)
    )
    assert list(find_head(model)) == ["1.1"]


def test_block_that_ends_in_the_head_may_be_named():
    model = Net(
        "classifier", nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3), nn.Softmax(dim=1))
    )
    assert list(find_head(model)) == list(find_head(model, layer="classifier")) == ["classifier.2"]


def test_get_classifier_comes_before_names():
    model = Net("odd")
    model.fc = nn.Linear(8, 5)
    model.get_classifier = lambda: model.odd
    assert list(find_head(model)) == ["odd"]


def test_declared_classifier_may_be_lists_of_lists(x):
    model = Teacher()
    model.get_classifier = lambda: (nn.ModuleList([model.one]), [model.two])
    assert list(find_head(model)) == ["one", "two"]


def test_every_head_that_feeds_the_output_is_scaled(x):
    for model, example in ((Teacher("head", "head_dist"), None), (Teacher(), x)):
        logits = model(x).detach()
        assert len(rescale_(model, COUNTS, gamma=0.5, example=example).layers) == 2
        assert scaled(model, x, logits)


def test_convolution_head_is_scaled_like_a_linear_one():
    head = nn.Conv2d(4, 3, 1)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), head, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    image = torch.randn(2, 2, 8, 8)
    logits = model(image).detach()
    assert read(model, classes=3).weight.shape == (3, 4)
    assert rescale_(model, COUNTS, gamma=0.5).layers == ("1",)
    assert scaled(model, image, logits)


def test_example_finds_a_head_that_names_and_shapes_cannot(x):
    model = Net("deep", nn.Linear(8, 3))
    model.body2 = nn.Linear(3, 3)  # the same shape, later, and not used
    with pytest.raises(
        ValueError,
        match=r"more than one layer has 3 outputs: deep \[3, 8\], body2 \[3, 3\]; .*layer",
    ):
        rescale_(model, COUNTS, gamma=0.5)
    assert list(find_head(model, example=x)) == list(find_head(model, example={"x": x})) == ["deep"]


def test_example_leaves_the_model_as_it_was(x):
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    model[1].eval()
    before = bits(model)
    find_head(model, example=x)
    assert unchanged(model, before)
    assert model[0].training
    assert not model[1].training


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on a processor that has no bfloat16
def test_example_works_on_a_head_that_starts_at_zero_and_in_bfloat16(x):
    model = Net().bfloat16()
    nn.init.zeros_(model.fc.weight)
    nn.init.zeros_(model.fc.bias)
    assert list(find_head(model, example=x.bfloat16())) == ["fc"]


@pytest.mark.parametrize(
    "after",
    [
        lambda z: z.softmax(1),
        lambda z: z + 1,
        lambda z: z @ torch.ones(3, 3),
        lambda z: F.normalize(z),
        lambda z: z**2,
    ],
)
def test_example_refuses_what_does_not_scale_the_output_row_by_row(after, x):
    model = Net(after=after)
    with pytest.raises(ValueError, match=r"no layer's rows are the model's logits.*fc"):
        find_head(model, example=x)
    with pytest.raises(ValueError, match="scaling the rows of fc does not scale"):
        find_head(model, layer="fc", example=x)


def test_second_layer_of_the_same_size_is_never_ignored(x):
    model = Net("head", after=lambda z: z)
    model.aux_head = nn.Linear(8, 3)
    with pytest.raises(
        ValueError, match=r"head looks like the head, but aux_head \[3, 8\] may feed the output"
    ):
        rescale_(model, COUNTS, gamma=0.5)
    assert rescale_(model, COUNTS, gamma=0.5, example=x).layers == ("head",)


def test_hidden_layer_as_wide_as_there_are_classes_is_not_a_rival():
    model = Net("fc")
    model.body = nn.Sequential(nn.Linear(6, 3), nn.LayerNorm(3), nn.Linear(3, 8))
    assert list(find_head(model, classes=3)) == ["fc"]


def test_last_layer_of_a_sequence_that_refines_the_logits_is_a_rival():
    model = Net("fc")
    model.refine = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3))
    with pytest.raises(
        ValueError, match=r"fc looks like the head, but refine\.2 \[3, 32\] may feed the output"
    ):
        find_head(model, classes=3)


class Normed(nn.Module):
    """A head and a norm, registered in the order given; the norm after the head or, of the features, before it."""

    def __init__(self, norm, *, head=None, first=False, after=True):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head_last = after
        for name in ("norm", "fc") if first else ("fc", "norm"):
            setattr(self, name, norm if name == "norm" else head or nn.Linear(8, 3))

    def forward(self, x):
        h = self.body(x).relu()
        return self.norm(self.fc(h)) if self.head_last else self.fc(self.norm(h))


@pytest.mark.parametrize(
    "norm",
    [
        nn.LayerNorm(3),
        nn.LayerNorm(3, elementwise_affine=False),
        nn.BatchNorm1d(3),
        nn.RMSNorm(3),
        nn.GroupNorm(1, 3),
        nn.PReLU(3),
    ],
)
@pytest.mark.parametrize("layer", [None, "fc"])
def test_norm_registered_after_the_head_is_seen_in_any_model(norm, layer):
    for model in (Normed(norm), Normed(norm, head=nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 3)))):
        with pytest.raises(
            ValueError, match=rf"fc.* is not the head: a {type(norm).__name__} of its 3 outputs"
        ):
            rescale_(model, COUNTS, gamma=0.5, layer=layer)


def test_norm_of_another_width_or_elsewhere_refuses_nothing(x):
    for model in (
        Normed(nn.LayerNorm(8), after=False),
        Normed(nn.LayerNorm(8), after=False, first=True),
    ):
        logits = model(x).detach()
        rescale_(model, COUNTS, gamma=0.5)
        assert scaled(model, x, logits)
    model = Normed(
        nn.LayerNorm(3), head=nn.Linear(3, 3), after=False
    )  # K is the features' width: it may stand before
    model.body = nn.Linear(6, 3)
    logits = model(x).detach()
    rescale_(model, COUNTS, gamma=0.5, layer="fc")
    assert scaled(model, x, logits)


def test_example_shows_that_a_norm_registered_after_the_head_does_not_follow(x):
    model = Net()
    model.norm = nn.LayerNorm(3)  # never called
    with pytest.raises(ValueError, match=r"after it; .*pass an example input if it does not"):
        find_head(model)
    assert (
        list(find_head(model, example=x)) == list(find_head(model, layer="fc", example=x)) == ["fc"]
    )


def test_head_under_two_names_is_one_head():
    model = Net("fc")
    model.classifier = model.fc
    model.wrapped = nn.Sequential(nn.Flatten(), model.fc)
    assert rescale_(model, COUNTS, gamma=0.5).layers == ("fc",)


def test_two_well_known_names_are_listed():
    model = Net("fc")
    model.classifier = nn.Linear(8, 3)
    with pytest.raises(ValueError, match=r"more than one layer could be the head: fc .*classifier"):
        find_head(model, classes=3)


def test_known_name_on_a_hidden_layer_is_not_a_head():
    model = nn.Module()
    model.fc, model.final = nn.Linear(6, 5), nn.Linear(5, 3)
    assert list(find_head(model, classes=3)) == ["final"]
    with pytest.raises(
        ValueError, match=r"could not tell which layer is the head: fc \[5, 6\], final \[3, 5\];"
    ):
        find_head(model)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ReLU(), "no linear layer or 1x1 convolution in ReLU"),
        (
            nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)),
            "0 is not the head: a BatchNorm1d follows",
        ),
        (
            nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 4)),
            "0 has 3 outputs but is not the last layer",
        ),
        (Net("fc", nn.Linear(8, 7)), "expected 7 counts, one per class, got 3"),
    ],
)
def test_model_without_a_fitting_head_is_refused(model, message):
    with pytest.raises(ValueError, match=message):
        rescale_(model, COUNTS, gamma=0.5)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("nope", r"no layer 'nope' in the model; it has body \[8, 6\], fc \[3, 8\]"),
        (nn.Linear(2, 3), "Linear that is not part of the model"),
        (3, "layer: expected the path of a layer or the layer itself, got 3"),
        ([], "at least one layer"),
    ],
)
def test_layer_that_is_not_there_is_refused(layer, message):
    with pytest.raises(ValueError, match=message):
        find_head(Net(), layer=layer)


def test_wrappers_are_looked_through(x):
    model = Net()
    assert rescale_(
        nn.DataParallel(torch.compile(model, backend="eager")), COUNTS, gamma=0.5
    ).layers == ("fc",)
