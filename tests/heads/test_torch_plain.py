"""Heads in torch modules that cannot be changed are refused with the reason."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import levelhead as lh
from levelhead.heads.adjust import rescale_

from .nets import COUNTS, Net, Teacher, bits, scaled, unchanged


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


def test_a_parametrized_head_is_refused_as_such_whatever_its_name():
    with pytest.raises(ValueError, match="cannot change answers: its weight is parametrized"):
        rescale_(Net("answers", weight_norm_new()), COUNTS, gamma=0.5)
    later = Net("answers", nn.Linear(8, 3))
    later.mixes = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 3, 3))
    with pytest.raises(ValueError, match=r"answers .* is not the last layer \(mixes is\)"):
        rescale_(later, COUNTS, gamma=0.5)


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
