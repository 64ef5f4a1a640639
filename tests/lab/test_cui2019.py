"""The losses of Cui et al. against torch and the formula, and what their recipe does to a training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from levelhead_lab.lab.cui2019 import CUI_METHODS
from levelhead_lab.lab.epoch_plan import draw_plan
from levelhead_lab.lab.nets import Net, build, head_of
from levelhead_lab.lab.recipe import find_recipe
from levelhead_lab.lab.stages import stages
from levelhead_lab.lab.train import fit
from levelhead_lab.methods import METHODS
from levelhead_lab.methods.class_balanced import class_balanced_weights

from .test_train import RECIPE, data

COUNTS = [5000, 2997, 83, 7]


@pytest.fixture
def batch():
    draw = torch.Generator().manual_seed(0)
    return 3 * torch.randn(32, 4, generator=draw, dtype=torch.float64), torch.randint(
        0, 4, (32,), generator=draw
    )


def test_sigmoid_is_torchs_binary_cross_entropy_summed_over_classes(batch):
    logits, labels = batch
    theirs = F.binary_cross_entropy_with_logits(
        logits, F.one_hot(labels, 4).double(), reduction="none"
    ).sum(1)
    torch.testing.assert_close(CUI_METHODS["cui-sigmoid"].loss(COUNTS)(logits, labels), theirs)
    weighted = CUI_METHODS["cui-sigmoid-0.999"].loss(COUNTS)(logits, labels)
    torch.testing.assert_close(
        weighted, theirs * torch.tensor(class_balanced_weights(COUNTS, 0.999))[labels]
    )


@pytest.mark.parametrize("focus", [0.5, 1.0, 2.0])
def test_sigmoid_focal_is_the_formula(batch, focus):
    logits, labels = batch
    p = 1 / (1 + np.exp(np.where(F.one_hot(labels, 4).numpy(), -logits.numpy(), logits.numpy())))
    theirs = (-((1 - p) ** focus) * np.log(p)).sum(axis=1)
    np.testing.assert_allclose(
        CUI_METHODS[f"cui-focal-{focus:g}"].loss(COUNTS)(*batch), theirs, rtol=1e-10
    )


def test_softmax_is_class_balanced_and_every_gradient_is_finite(batch):
    ours = CUI_METHODS["cui-softmax-0.9999"].loss(COUNTS)(*batch)
    assert torch.equal(ours, METHODS["class-balanced"].loss(COUNTS)(*batch))
    for scale in (0.0, 1e-6, 300.0):
        for method in CUI_METHODS.values():
            logits = (scale * batch[0]).float().requires_grad_()
            method.loss(COUNTS)(logits, batch[1]).sum().backward()
            assert torch.isfinite(logits.grad).all(), (method.name, scale)


def test_presets_are_those_of_the_papers():
    cao, cui, sigmoid = (find_recipe(name) for name in ("cao2019", "cui2019", "cui2019-sigmoid"))
    assert (cao.weights, cao.deferred, cao.bias) == ("batch", True, "zero")
    assert cui == replace(
        cao, name="cui2019", weights="class", deferred=False, mean=cui.mean, std=cui.std
    )
    assert sigmoid == replace(cui, name="cui2019-sigmoid", bias="rare")
    x = torch.tensor([0.0, 128.0, 255.0])
    torch.testing.assert_close((x / 255 - cui.mean[0]) / cui.std[0], x / 128 - 1, atol=1e-6, rtol=0)


def test_a_head_begins_with_the_bias_that_the_recipe_names():
    plain, zero, rare = (
        build("digits", 5, shape=(1, 8, 8), bias=bias) for bias in ("none", "zero", "rare")
    )
    assert plain.head.bias is None
    assert not zero.head.bias.any()
    torch.testing.assert_close(rare.head.bias.sigmoid(), torch.full((5,), 0.2))
    assert torch.equal(plain.head.weight, rare.head.weight)
    x = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(
        torch.as_tensor(head_of(rare.eval()).logits(rare.features(x).detach())), rare(x).detach()
    )


@pytest.mark.parametrize("bias", ["zero", "rare"])
def test_weights_of_a_batch_and_a_bias_train_as_a_loop_written_in_torch(bias):
    torch.manual_seed(0)
    net = Net(nn.Sequential(nn.Flatten(), nn.Linear(16, 5, bias=False)), nn.Linear(5, 3)).double()
    twin = nn.Sequential(nn.Flatten(), nn.Linear(16, 5, bias=False), nn.Linear(5, 3)).double()
    twin.load_state_dict(
        dict(zip(twin.state_dict(), (x.clone() for x in net.state_dict().values()), strict=True))
    )
    small, how = data(), replace(RECIPE, pad=0, flip=False, weights="batch", bias=bias)
    fit(net, small, how, METHODS["re-weighting"], seed=3)
    decay = {id(twin[2].bias): 0.0} if bias == "rare" else {}
    groups = [
        {"params": [p], "weight_decay": decay.get(id(p), how.weight_decay)}
        for p in twin.parameters()
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=how.momentum)
    mean, std = small.mean_std
    x = torch.tensor((small.train.images / 255 - mean[0]) / std[0])
    y, inverse = torch.tensor(small.train.labels), torch.tensor(1 / small.counts)
    for epoch in range(how.epochs):
        plan = draw_plan(
            small.train.labels,
            METHODS["re-weighting"],
            how,
            seed=3,
            epoch=epoch,
            progress=epoch / 8,
        )
        for part in plan.batches(how.batch):
            for group in optimizer.param_groups:
                group["lr"] = how.lr_at(epoch)
            optimizer.zero_grad()
            F.cross_entropy(twin(x[part.indices]), y[part.indices], weight=inverse).backward()
            optimizer.step()
    for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("deferred", "first"), [(True, 4), (False, 7)])
def test_deferred_weights_begin_with_the_drop_of_the_rate(deferred, first):
    how = replace(
        RECIPE, deferred=deferred
    )  # 8 epochs, the rate falls at the fourth; 0.8 of them is 6.4
    method = stages(how, METHODS["ldam-drw"])[0].method
    found = [type(method.loss(COUNTS, epoch / how.epochs)).__name__ for epoch in range(how.epochs)]
    assert found == ["LDAMLoss"] * first + ["WeightedLoss"] * (how.epochs - first)
    assert [sum(epoch / how.epochs >= s for s in method.stages) for epoch in range(8)] == [
        0
    ] * first + [1] * (8 - first)
    assert method.loss(COUNTS, 7 / 8).in_batch is False
    assert (
        stages(replace(how, weights="batch"), METHODS["ldam-drw"])[0]
        .method.loss(COUNTS, 7 / 8)
        .in_batch
    )
