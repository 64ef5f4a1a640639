from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from levelhead_lab.lab.data import Data, Split
from levelhead_lab.lab.epoch_plan import draw_plan
from levelhead_lab.lab.nets import Net, build
from levelhead_lab.lab.preprocess import Preprocess
from levelhead_lab.lab.recipe import Recipe
from levelhead_lab.lab.train import fit, process_share
from levelhead_lab.methods import METHODS

RECIPE = Recipe(
    "small",
    epochs=8,
    batch=10,
    lr=0.1,
    momentum=0.9,
    weight_decay=1e-3,
    milestones=(4,),
    pad=1,
    flip=True,
)
WORKER = Path(__file__).with_name("ddp_worker.py")


def data(n: int = 64, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    labels = np.sort(np.append(rng.choice(3, n - 3, p=[0.6, 0.3, 0.1]), [0, 1, 2]))
    images = rng.integers(0, 256, (n, 1, 4, 4)).astype(np.uint8)
    images[np.arange(n), 0, labels] = 255
    part = Split(images, labels)
    return Data("small", ("a", "b", "c"), part, part)


def linear_net(seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net(
        nn.Sequential(nn.Flatten(), nn.Linear(16, 5, bias=False)), nn.Linear(5, 3, bias=False)
    ).double()


def naive(x, y, theta, w, recipe, batches, order):
    """Algorithm 1 in numpy: f = theta x, logits = W f, cross entropy, SGD with momentum and weight decay."""
    velocity = [np.zeros_like(theta), np.zeros_like(w)]
    for lr, batch in batches:
        features = x[batch] @ theta.T
        scores = np.exp(features @ w.T)
        error = scores / scores.sum(axis=1, keepdims=True) - np.eye(3)[y[batch]]
        gradients = [(error @ w).T @ x[batch] / len(batch), error.T @ features / len(batch)]
        if order == "before":
            w = w / np.linalg.norm(w, axis=1, keepdims=True)
        for v, gradient, weight in zip(velocity, gradients, (theta, w), strict=True):
            v[:] = recipe.momentum * v + gradient + recipe.weight_decay * weight
        theta, w = theta - lr * velocity[0], w - lr * velocity[1]
        if order == "after":
            w = w / np.linalg.norm(w, axis=1, keepdims=True)
    return theta, w


@pytest.mark.parametrize(
    ("method", "order"), [("wvn", "after"), ("wvn-released", "before"), ("baseline", "never")]
)
def test_fifty_steps_of_algorithm_1_equal_fifteen_lines_of_numpy(method, order):
    recipe, small, net = replace(RECIPE, pad=0, flip=False), data(), linear_net()
    theta, w = net.body[1].weight.detach().numpy().copy(), net.head.weight.detach().numpy().copy()
    fit(net, small, recipe, METHODS[method], seed=3)
    mean, std = small.mean_std
    x = ((small.train.images / 255 - mean[0]) / std[0]).reshape(64, -1)
    plans = [
        draw_plan(small.train.labels, METHODS[method], recipe, seed=3, epoch=e, progress=e / 8)
        for e in range(8)
    ]
    batches = [
        (recipe.lr_at(e), batch.indices)
        for e, plan in enumerate(plans)
        for batch in plan.batches(10)
    ]
    assert len(batches) == 56
    theta, w = naive(x, small.train.labels, theta, w, recipe, batches, order)
    np.testing.assert_allclose(net.body[1].weight.detach().numpy(), theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(net.head.weight.detach().numpy(), w, rtol=0, atol=1e-12)


def test_wvn_rows_have_unit_length_after_every_step():
    net, lengths = build("digits", 3, shape=(1, 4, 4)), []
    fit(
        net,
        data(),
        RECIPE,
        METHODS["wvn"],
        on_step=lambda now: lengths.append(net.head.weight.detach().norm(dim=1)),
    )
    assert len(lengths) == 56
    torch.testing.assert_close(torch.stack(lengths), torch.ones(56, 3), rtol=0, atol=1e-6)


class Dropping(nn.Module):
    """A body with dropout: randomness beyond batches and crops."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5)
        )

    def forward(self, x):
        return self.layers(x)


def dropping_net() -> Net:
    torch.manual_seed(0)
    return Net(Dropping(), nn.Linear(8, 3, bias=False))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["wvn", "over-sample", "ldam-drw", "crt"])
def test_resuming_from_any_step_ends_with_the_same_bits(method):
    states = []
    end = fit(
        dropping_net(),
        data(63),
        RECIPE,
        METHODS[method],
        seed=1,
        on_step=lambda now: states.append(now()),
        on_epoch=lambda state, record: states.append(state),
    )
    for at in (0, 6, 7, 20, len(states) // 2, len(states) - 9, len(states) - 8, len(states) - 2):
        torch.manual_seed(at)  # the state of the global generator does not matter
        again = fit(dropping_net(), data(63), RECIPE, METHODS[method], seed=1, start=states[at])
        assert all(torch.equal(again.weights[name], end.weights[name]) for name in end.weights), at


def test_retraining_leaves_all_but_the_head_as_it_was():
    at_border = {}
    first = build("digits", 3, shape=(1, 4, 4))

    def keep(state, record):
        if state.epoch == RECIPE.epochs:
            at_border.update(state.weights)

    end = fit(first, data(), RECIPE, METHODS["crt"], on_epoch=keep)
    assert end.epoch == 9  # 8, and a ninth of them
    same = [name for name in end.weights if torch.equal(end.weights[name], at_border[name])]
    assert set(end.weights) - set(same) == {"head.weight"}
    plain = fit(build("digits", 3, shape=(1, 4, 4)), data(), RECIPE, METHODS["baseline"])
    assert all(torch.equal(plain.weights[name], at_border[name]) for name in at_border)


def test_a_plan_is_a_function_of_seed_and_epoch():
    labels = data().train.labels

    def draw(method="baseline", seed=0, epoch=0):
        return draw_plan(labels, METHODS[method], RECIPE, seed=seed, epoch=epoch, progress=0.0)

    a, b = draw(), draw()
    assert all(
        np.array_equal(getattr(a, key), getattr(b, key)) for key in ("indices", "offsets", "flips")
    )
    assert sorted(a.indices) == list(range(64))
    assert set(np.unique(a.offsets)) == {0, 1, 2}
    assert 0 < a.flips.double().mean() < 1
    for other in (draw(seed=1), draw(epoch=1)):
        assert not np.array_equal(a.indices, other.indices)
        assert not np.array_equal(a.offsets, other.offsets)
    assert np.ptp(np.bincount(labels[draw("over-sample").indices])) <= 1
    cut = draw_plan(
        labels, METHODS["baseline"], replace(RECIPE, cutout=2), seed=0, epoch=0, progress=0.0
    )
    assert all(
        torch.equal(x, y) for x, y in zip(a.tensors[:3], cut.tensors[:3], strict=True)
    )  # other draws stay
    assert torch.unique(cut.centers).numel() == 128
    assert not a.centers.any()


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_shares_of_a_batch_average_to_its_mean(world):
    values = np.random.default_rng(0).normal(size=64)
    whole = draw_plan(data().train.labels, METHODS["baseline"], RECIPE, seed=0, epoch=0, progress=0)
    for batch in whole.batches(10):
        parts = [process_share(batch, rank, world) for rank in range(world)]
        average = np.mean([weight * values[part.indices].sum() for part, weight in parts])
        np.testing.assert_allclose(average, values[batch.indices].mean())
        assert all(len(part) for part, _ in parts)


@pytest.mark.slow
def test_two_processes_take_the_same_steps_as_one_and_resume_inside_an_epoch(
    tmp_path, in_two_processes
):
    in_two_processes(WORKER)
    net = linear_net()
    records = []
    fit(
        net,
        data(61),
        RECIPE,
        METHODS["wvn"],
        seed=1,
        on_epoch=lambda state, record: records.append(record),
    )
    last = [records[-1]["loss"], records[-1]["train_error"]]
    for rank in range(2):
        trained = load_file(tmp_path / f"{rank}.safetensors")
        torch.testing.assert_close(trained["head.weight"], net.head.weight.data, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            trained["body.1.weight"], net.body[1].weight.data, rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(trained["last_rows"], [last] * 2, atol=1e-12)


def test_a_training_that_diverges_stops_with_an_error():
    with pytest.raises(ValueError, match="the training has diverged; lower the learning rate"):
        fit(linear_net(), data(), replace(RECIPE, lr=1e200), METHODS["baseline"])


def test_a_mean_of_three_channels_does_not_fit_gray_images():
    with pytest.raises(ValueError, match="a mean and std for 3 channels, but the images have 1"):
        Preprocess(replace(RECIPE, mean=(0.5,) * 3, std=(0.2,) * 3), data())
