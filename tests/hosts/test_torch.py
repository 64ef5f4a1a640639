"""WVN next to an optimizer: unit length after every real step, however the step is taken."""

import copy
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn

import levelhead as lh
from levelhead.hosts.torch import WVN, unit_

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(16) % 3


def build(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def loss(model):
    return nn.functional.cross_entropy(model(X), Y)


def train(model, optimizer, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


def lengths(layer):
    return layer.weight.detach().flatten(1).double().norm(dim=1)


def is_unit(layer, atol=1e-6):
    return torch.allclose(lengths(layer), torch.ones(3, dtype=torch.float64), atol=atol)


def by_hand(steps=3, order="algorithm", **options):
    """Algorithm 1 written out, with no hook: the truth."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, **options)

    def project():
        with torch.no_grad():
            model[2].weight.copy_(model[2].weight / model[2].weight.norm(dim=1, keepdim=True))

    project()
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()
        if order == "released":
            project()
        optimizer.step()
        if order == "algorithm":
            project()
    return model


@pytest.mark.parametrize("order", ["algorithm", "released"])
def test_hook_is_the_algorithm_written_out(order):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01)
    WVN(optimizer, model[2], order=order)
    train(model, optimizer)
    truth = by_hand(3, order, momentum=0.9, weight_decay=0.01)
    for mine, expected in zip(model.parameters(), truth.parameters(), strict=True):
        assert torch.allclose(mine, expected, atol=1e-6)
    assert is_unit(model[2]) == (order == "algorithm")


def test_weights_are_normalized_at_once_and_the_bias_is_left_alone():
    model = build()
    bias, direction = (
        model[2].bias.detach().clone(),
        nn.functional.normalize(model[2].weight.detach()),
    )
    WVN(torch.optim.SGD(model.parameters(), lr=0.5), model[2])
    assert is_unit(model[2])
    assert torch.allclose(model[2].weight, direction, atol=1e-6)
    assert torch.equal(model[2].bias, bias)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize(
    "how", [{"foreach": True}, {"fused": True}, {"foreach": False}, {"compiled": True}]
)
@pytest.mark.filterwarnings(
    "ignore:.*torch.jit:DeprecationWarning"
)  # torch's own, inside torch.compile
def test_every_way_to_step_ends_at_unit_length(kind, how):
    model = build()
    optimizer = kind(
        model.parameters(), lr=0.1, **{k: v for k, v in how.items() if k != "compiled"}
    )
    weight = model[2].weight
    WVN(optimizer, model[2])
    if "compiled" in how:
        optimizer.step = torch.compile(optimizer.step, backend="eager")
    before = model[2].weight.detach().clone()
    train(model, optimizer)
    assert is_unit(model[2])
    assert not torch.allclose(weight, before)
    assert model[2].weight is weight


def test_accumulated_gradients_are_normalized_once_per_step():
    model, whole = build(), build()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (model, whole)]
    for m, optimizer in zip((model, whole), optimizers, strict=True):
        WVN(optimizer, m[2])
    for _ in range(3):
        for part in range(4):
            rows = slice(4 * part, 4 * part + 4)
            (nn.functional.cross_entropy(model(X[rows]), Y[rows]) / 4).backward()
            weight = model[2].weight.detach().clone()
        assert torch.equal(model[2].weight, weight)
        optimizers[0].step()
        optimizers[0].zero_grad()
    train(whole, optimizers[1])
    assert is_unit(model[2])
    assert torch.allclose(model[2].weight, whole[2].weight, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_step_that_the_gradient_scaler_skips_changes_nothing(fused):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, fused=fused)
    calls = []
    WVN(optimizer, model[2])
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    for overflow in (False, True, False):
        optimizer.zero_grad()
        scaler.scale(loss(model)).backward()
        if overflow:
            model[2].weight.grad[0, 0] = torch.inf
        before = model[2].weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        assert is_unit(model[2])
        assert torch.allclose(model[2].weight, before, atol=1e-6) == overflow
    assert len(calls) == (3 if fused else 2)


def test_released_order_is_one_step_off_unit_length_at_evaluation():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    WVN(optimizer, model[2], order="released")
    train(model, optimizer, 1)
    assert 1e-3 < (lengths(model[2]) - 1).abs().max() < 0.5


def test_removed_hook_stops_normalizing():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    hook = WVN(optimizer, model[2])
    hook.remove()
    train(model, optimizer)
    assert not is_unit(model[2])


def test_deep_copied_optimizer_has_no_hook_as_the_documentation_says():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    WVN(optimizer, model[2])
    pair = copy.deepcopy((model, optimizer))
    train(*pair)
    assert not is_unit(pair[0][2])
    assert "hook" not in str(optimizer.state_dict())


def test_model_parameter_and_convolution_are_taken_too():
    model = build()
    for layer in (model, model[2].weight, nn.DataParallel(model)):
        nn.init.normal_(model[2].weight)
        WVN(torch.optim.SGD(model.parameters(), lr=0.5), layer)
        assert is_unit(model[2])
    conv = nn.Conv2d(5, 3, 1)
    assert "weight [3, 5, 1, 1]" in repr(WVN(torch.optim.SGD(conv.parameters(), lr=0.5), conv))
    assert is_unit(conv)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_half_precision_is_normalized_in_float32(dtype):
    torch.manual_seed(0)
    weight = (3 * torch.randn(5, 40_000)).to(
        dtype
    )  # the sum of squares, 360000, is more than float16 holds
    expected = nn.functional.normalize(weight.double()).to(dtype)
    unit_(weight)
    assert torch.allclose(
        weight, expected, rtol=2e-2 if dtype is torch.bfloat16 else 2e-3, atol=1e-6
    )


def test_accelerate_and_its_wrapped_optimizer():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = build()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.5))
    WVN(optimizer, model[2])
    for _ in range(4):
        with accelerator.accumulate(model):
            accelerator.backward(loss(model))
            optimizer.step()
            optimizer.zero_grad()
    assert is_unit(model[2])


class Lookahead(torch.optim.Optimizer):
    """Every second step moves the weights back half of the way, after the step of the optimizer inside."""

    def __init__(self, optimizer):  # as those in use, without torch's own
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups
        self.steps = 0
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        value = self.optimizer.step(closure)
        self.steps += 1
        if self.steps % 2 == 0:
            fast = [p for group in self.param_groups for p in group["params"]]
            with torch.no_grad():
                for parameter, slow in zip(fast, self.slow, strict=True):
                    parameter.copy_(slow.lerp_(parameter, 0.5))
        return value


def test_a_wrapper_that_moves_the_weights_after_its_optimizer_is_followed():
    model = build()
    optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.5))
    optimizer._optimizer_step_pre_hooks = OrderedDict()
    optimizer._optimizer_step_post_hooks = OrderedDict()
    WVN(optimizer, model[2])
    train(model, optimizer, steps=4)
    assert is_unit(model[2])


def test_a_wrapper_whose_step_calls_no_hooks_is_refused():
    model = build()
    before = model[2].weight.detach().clone()
    optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.5))
    with pytest.raises(
        ValueError, match=r"optimizer: the step of Lookahead calls no hooks; call .*normalize_"
    ):
        WVN(optimizer, model[2])
    assert torch.equal(model[2].weight, before)


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_row_with_no_direction_is_refused_by_name(bad):
    model = build()
    with torch.no_grad():
        model[2].weight[1] = bad
    before = model[2].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with pytest.raises(ValueError, match=r"cannot normalize weight: the .*class 1"):
        WVN(optimizer, model[2])
    assert torch.equal(model[2].weight[[0, 2]], before[[0, 2]])


def test_layer_that_the_optimizer_does_not_own_is_refused():
    model = build()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.5)
    before = model[2].weight.detach().clone()
    with pytest.raises(ValueError, match=r"optimizer: does not own weight \[3, 6\]"):
        WVN(optimizer, model[2])
    assert torch.equal(model[2].weight, before)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), "parametrized"),
        (nn.ReLU(), "no linear layer"),
        (torch.zeros(3, 4), "expected a layer, its weight"),
        (nn.Parameter(torch.zeros(3)), "expected a layer, its weight"),
    ],
)
def test_an_argument_that_is_not_a_layer_is_refused(layer, message):
    with pytest.raises(ValueError, match=message):
        WVN(torch.optim.SGD(build().parameters(), lr=0.5), layer)


def test_an_argument_that_is_not_an_optimizer_or_order_is_refused():
    model = build()
    with pytest.raises(ValueError, match="optimizer: expected a torch optimizer, got Linear"):
        WVN(model[2], model[2])
    with pytest.raises(ValueError, match="order: expected 'algorithm' or 'released', got 'before'"):
        lh.WVN(torch.optim.SGD(model.parameters(), lr=0.5), model[2], order="before")


@pytest.mark.slow
def test_two_processes_under_ddp_and_fsdp2_train_as_one_does(in_two_processes):
    in_two_processes(Path(__file__).with_name("two_processes.py"))
