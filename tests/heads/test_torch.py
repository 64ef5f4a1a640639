"""Heads in torch modules: found by every road or refused with the reason, scaled in place, put back bit for bit."""

import copy
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import levelhead as lh
from levelhead.heads.apply import rescale_
from levelhead.heads.torch import read, write
from levelhead.heads.torch_find import find_head

COUNTS = [100, 25, 4]
FACTORS = torch.tensor([1.0, 2.0, 5.0])  # (100 / n)^0.5


class Net(nn.Module):
    """Features and a head under a name of choice, the head's output passed on as `after` says."""

    def __init__(self, name="fc", head=None, after=lambda z: z):
        super().__init__()
        self.body = nn.Linear(6, 8)
        setattr(self, name, nn.Linear(8, 3) if head is None else head)
        self.name, self.after = name, after

    def forward(self, x):
        return self.after(getattr(self, self.name)(self.body(x).relu()))


class Teacher(nn.Module):
    """Two heads whose logits are averaged, under names that nobody knows."""

    def __init__(self, one="one", two="two"):
        super().__init__()
        self.one_name, self.two_name = one, two
        setattr(self, one, nn.Linear(6, 3))
        setattr(self, two, nn.Linear(6, 3))

    def forward(self, x):
        return (getattr(self, self.one_name)(x) + getattr(self, self.two_name)(x)) / 2


@pytest.fixture
def x():
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def bits(model):
    return {name: p.detach().clone() for name, p in model.state_dict().items()}


def unchanged(model, before):
    return all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def scaled(model, x, before, atol=1e-5):
    return torch.allclose(model(x), before * FACTORS, atol=atol)


# Finding


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


# Refusing


class Cosine(nn.Linear):
    def forward(self, input):
        return F.linear(F.normalize(input), F.normalize(self.weight), self.bias)


class Cast(nn.Linear):
    def forward(self, input):
        return F.linear(
            input,
            self.weight.to(input.dtype),
            None if self.bias is None else self.bias.to(input.dtype),
        )


class LoraLinear(nn.Module):
    """The layout of peft's LoRA layers."""

    def __init__(self):
        super().__init__()
        self.base_layer = nn.Linear(8, 3)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(8, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 3, bias=False)})

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


class Int8Linear(nn.Module):
    """The layout of weight-only quantized layers: bitsandbytes, and torchao's int8."""

    def __init__(self):
        super().__init__()
        self.in_features, self.out_features = 8, 3
        self.weight = nn.Parameter(torch.ones(3, 8, dtype=torch.int8), requires_grad=False)

    def forward(self, x):
        return x @ self.weight.to(x.dtype).T


def weight_norm_new():
    return nn.utils.parametrizations.weight_norm(nn.Linear(8, 3))


def weight_norm_old():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(8, 3))


def quantized():
    engine = torch.backends.quantized.engine
    torch.backends.quantized.engine = "qnnpack"  # the one that every processor has
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.ao.nn.quantized.dynamic.Linear(8, 3)
    finally:
        torch.backends.quantized.engine = engine


def inference():
    with torch.inference_mode():
        return nn.Linear(8, 3)


def scripted(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript itself
        return torch.jit.script(model)


def traced(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(model, torch.zeros(1, 6))


class Wrapped(torch.Tensor):
    """Stands where torchao's quantized tensors do: a subclass that computes by rules of its own."""


def subclass():
    layer = nn.Linear(8, 3)
    layer.weight = nn.Parameter(torch.randn(3, 8).as_subclass(Wrapped))
    return layer


REFUSED = {
    "weight_norm": (weight_norm_new, "weight is parametrized"),
    "weight_norm, old": (weight_norm_old, "weight is parametrized"),
    "pruned": (lambda: prune.identity(nn.Linear(8, 3), "weight"), "weight is parametrized"),
    "quantized": (quantized, r"it is quantized \(torch.ao.nn.quantized.dynamic"),
    "int8": (Int8Linear, r"it is quantized \(Int8Linear in torch.int8\)"),
    "float8": (lambda: nn.Linear(8, 3).to(torch.float8_e4m3fn), "it is quantized"),
    "subclass": (subclass, "its weight is a Wrapped, not a plain tensor"),
    "LoRA": (LoraLinear, "it is wrapped by LoRA"),
    "lazy": (lambda: nn.LazyLinear(3), "it is not initialized yet; run the model once"),
    "meta": (lambda: nn.Linear(8, 3, device="meta"), "on the meta device"),
    "inference": (inference, "made in inference mode"),
    "cosine": (lambda: Cosine(8, 3), "a Cosine does more than W x"),
    "scripted": (
        lambda: scripted(nn.Linear(8, 3)),
        "it is compiled to TorchScript; adjust the model before that",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_head_that_cannot_be_changed_is_refused_with_the_reason(kind):
    make, message = REFUSED[kind]
    with pytest.raises(ValueError, match=f"cannot change fc: .*{message}"):
        rescale_(Net("fc", make()), COUNTS, gamma=0.5)


@pytest.mark.parametrize("compiled", [scripted, traced])
@pytest.mark.parametrize("layer", [None, "2"])
def test_a_model_in_torchscript_is_refused_with_the_way_out(compiled, layer):
    model = compiled(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    with pytest.raises(
        ValueError, match=r"the model is compiled to TorchScript.*adjust it before torch\.jit"
    ):
        rescale_(model, COUNTS, gamma=0.5, layer=layer)


def test_linear_layer_with_a_forward_of_its_own_works_if_it_is_still_linear(x):
    model = Net("fc", Cast(8, 3))
    logits = model(x).detach()
    rescale_(model, COUNTS, gamma=0.5)
    assert scaled(model, x, logits)


def test_tied_head_is_refused_whether_by_parameter_or_by_memory():
    for share in (
        lambda w: w,
        lambda w: nn.Parameter(w.detach()),
        lambda w: nn.Parameter(w.detach()[1:]),
    ):
        model = Net("fc", nn.Linear(8, 3))
        model.embedding = nn.Embedding(3, 8)
        model.embedding.weight = share(model.fc.weight)
        with pytest.raises(
            ValueError, match=r"cannot change fc: its weights are tied to embedding.weight"
        ):
            rescale_(model, COUNTS, gamma=0.5)


def test_head_that_shares_memory_with_a_buffer_or_with_itself_is_refused():
    model = Net()
    model.register_buffer("prototypes", model.fc.weight.data)
    with pytest.raises(
        ValueError, match=r"cannot change fc: its weights are tied to prototypes, which"
    ):
        rescale_(model, COUNTS, gamma=0.5)
    model, flat = Net(), torch.randn(30)
    model.fc.weight, model.fc.bias = nn.Parameter(flat[:24].view(3, 8)), nn.Parameter(flat[22:25])
    with pytest.raises(ValueError, match=r"cannot change fc: its weights are tied to fc.bias"):
        rescale_(model, COUNTS, gamma=0.5)


def test_buffers_of_their_own_tie_nothing(x):
    model = Net()
    model.register_buffer("prototypes", model.fc.weight.detach().clone())
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("none", None)
    logits = model(x).detach()
    rescale_(model, COUNTS, gamma=0.5)
    assert scaled(model, x, logits)


@pytest.mark.parametrize(
    "hook",
    [
        lambda layer, args, out: F.normalize(out),
        lambda layer, args, out: out**2,
        lambda layer, args, out: (out,),
        lambda layer, args, out: out[:, :, :, 0],
    ],
)
def test_hook_that_makes_the_head_another_function_is_refused(hook):
    model = Net()
    model.fc.register_forward_hook(hook)
    with pytest.raises(
        ValueError,
        match=r"cannot change fc: with its hooks it does more than W x \+ b.*remove them",
    ):
        rescale_(model, COUNTS, gamma=0.5)


def test_hook_that_changes_the_features_is_refused():
    model = Net()
    model.fc.register_forward_pre_hook(lambda layer, args: (F.normalize(args[0]),))
    with pytest.raises(ValueError, match="cannot change fc: with its hooks"):
        rescale_(model, COUNTS, gamma=0.5)


def test_hook_that_only_observes_is_accepted(x):
    model, seen = Net(), []
    model.fc.register_forward_hook(lambda layer, args, out: seen.append(out.shape))
    model.fc.register_forward_pre_hook(lambda layer, args, kwargs: (args, kwargs), with_kwargs=True)
    logits = model(x).detach()
    rescale_(model, COUNTS, gamma=0.5)
    assert scaled(model, x, logits)


def test_parameters_side_by_side_in_one_buffer_are_not_tied(x):
    flat, model = torch.randn(3 * 8 + 8 * 6), Net()
    model.fc.weight = nn.Parameter(flat[: 3 * 8].view(3, 8))
    model.body.weight = nn.Parameter(flat[3 * 8 :].view(8, 6))
    body = model.body.weight.detach().clone()
    rescale_(model, COUNTS, gamma=0.5)
    assert torch.equal(model.body.weight, body)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_of_several_heads_all_change_or_none(bad):
    model = Teacher("head", "head_dist")
    with torch.no_grad():
        model.head_dist.weight[1, 2] = bad
    before = model.head.weight.detach().clone()
    with pytest.raises(ValueError, match="head_dist has NaN or infinite weight values in class 1"):
        rescale_(model, COUNTS, gamma=0.5)
    assert torch.equal(model.head.weight, before)


@pytest.mark.parametrize(
    ("counts", "gamma", "message"),
    [
        ([100, 25], 0.5, "expected 3 counts"),
        ([100, 25, 0], 0.5, "class 2 has no samples"),
        (COUNTS, float("nan"), "gamma: expected a finite number"),
        ({"cat": 3, "dog": 4, "owl": 5}, 0.5, "cat"),
    ],
)
def test_bad_counts_and_gamma_change_nothing(counts, gamma, message):
    model = Net()
    before = bits(model)
    with pytest.raises(ValueError, match=message):
        rescale_(model, counts, gamma=gamma)
    assert unchanged(model, before)


@pytest.mark.parametrize("not_a_module", [None, {"fc.weight": torch.eye(3)}, "model.pt"])
def test_what_is_not_a_module_is_named(not_a_module):
    with pytest.raises(
        TypeError, match=f"expected a torch module, got {type(not_a_module).__name__}; "
    ):
        rescale_(not_a_module, COUNTS, gamma=0.5)


def test_overflow_of_half_precision_changes_nothing():
    model = Net().half()
    before = bits(model)
    with pytest.raises(
        ValueError, match=r"the scaled head \(in torch.float16\) has NaN or infinite"
    ):
        rescale_(model, [10**9, 1, 1], gamma=1.0)
    assert unchanged(model, before)


def test_single_logit_is_refused_and_two_opposite_rows_are_warned_of(x):
    for name, example in (("fc", None), ("fc", x), ("deep", x)):
        with pytest.raises(
            ValueError, match=rf"{name} gives a single logit.*the rule offsets or shift"
        ):
            rescale_(Net(name, nn.Linear(8, 1)), [90, 10], gamma=0.5, example=example)
    model = Net("fc", nn.Linear(8, 2))
    rescale_(
        model, [90, 10], gamma=0.5
    )  # two rows that are not opposite: RS acts, and nothing is said
    with torch.no_grad():
        model.fc.weight[1], model.fc.bias[1] = -model.fc.weight[0], -model.fc.bias[0]
    with pytest.warns(lh.warnings.BinaryHeadWarning, match="never changes a prediction"):
        rescale_(model, [90, 10], gamma=0.5)


# Changing


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


# Sharded


@pytest.mark.slow
def test_sharded_head_is_rescaled_and_restored_in_two_processes(in_two_processes):
    """FSDP2 on real processes: rows shared out unevenly, before and after a forward pass that gathers them."""
    in_two_processes(Path(__file__).with_name("two_processes.py"))
