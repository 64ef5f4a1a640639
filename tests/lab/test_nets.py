"""The networks: their sizes as published, their initial weights, and the split into features and head."""

import math
import sys

import numpy as np
import pytest
import torch
from torch import nn

from levelhead_lab.lab import nets

OURS = [("resnet32", (3, 32, 32)), ("resnet18-64", (3, 64, 64)), ("digits", (1, 8, 8))]


def test_resnet32_has_the_parameters_of_the_released_network():
    assert nets.parameter_count(nets.build("resnet32", 10)) == 466_896


def test_shortcut_a_has_no_parameters():
    # He et al.'s 0.46 M network: 464,154 with a bias of 10 numbers, which ours leaves out
    assert nets.parameter_count(nets.build("resnet32", 10, shortcut="A")) == 464_154 - 10


def test_resnet18_has_the_parameters_of_the_well_known_one():
    # torchvision's resnet18 has 11,689,512 with its bias of 1000
    assert (
        nets.parameter_count(nets.build("resnet18-64", 1000, stem="imagenet")) == 11_689_512 - 1000
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), OURS)
@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_logits_are_the_head_of_the_features(name, shape, head):
    net = nets.build(name, 7, head=head, shape=shape).eval()
    x = torch.randn(2, *shape)
    with torch.no_grad():
        assert torch.equal(net(x), net.head(net.features(x)))
        value = nets.head_of(net).logits(nets.head_inputs(net, x))
        torch.testing.assert_close(value, net(x))
    assert net(x).shape == (2, 7)


def test_cosine_logits_are_cosines():
    net = nets.build("digits", 5, head="cosine", shape=(1, 8, 8)).eval()
    with torch.no_grad():
        net.head.weight.mul_(torch.tensor([1.0, 2, 3, 4, 5])[:, None])
        x = torch.randn(3, 1, 8, 8)
        f, w = net.features(x).double().numpy(), net.head.weight.double().numpy()
        cosine = f @ w.T / np.linalg.norm(f, axis=1)[:, None] / np.linalg.norm(w, axis=1)
        np.testing.assert_allclose(net(x), cosine, atol=1e-6)


def test_shortcut_a_halves_the_image_and_centers_the_channels():
    x = torch.arange(2 * 4 * 4.0).reshape(1, 2, 4, 4)
    y = nets.PadShortcut(2, 4, 2)(x)
    assert torch.equal(y[:, 1:3], x[:, :, ::2, ::2])
    assert not y[:, [0, 3]].any()


def test_the_pooled_shortcut_is_average_pooling():
    x = torch.randn(2, 2, 4, 4)
    y = nets.PadShortcut(2, 4, 2, pool=True)(x)
    torch.testing.assert_close(y[:, 1:3], torch.nn.functional.avg_pool2d(x, 2))
    assert not y[:, [0, 3]].any()


def test_the_stem_decides_how_far_the_image_shrinks():
    x = torch.zeros(1, 3, 64, 64)
    for stem, size in (("small", 8), ("half", 4), ("imagenet", 2)):
        body = nets.build("resnet18-64", 200, stem=stem).body
        assert body[:-1](x).shape == (1, 512, size, size)


def test_convolutions_start_with_the_released_spread():
    net = nets.build("resnet18-64", 10)
    for conv in (m for m in net.modules() if isinstance(m, nn.Conv2d)):
        expected = math.sqrt(2 / (conv.kernel_size[0] ** 2 * conv.out_channels))
        n = conv.weight.numel()
        assert abs(conv.weight.std().item() / expected - 1) < 5 / math.sqrt(2 * n)
        assert abs(conv.weight.mean().item()) < 5 * expected / math.sqrt(n)


def test_a_seed_is_a_network_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (nets.build("digits", 10, shape=(1, 8, 8), seed=s) for s in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.ndim < 2 or not torch.equal(a, c)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"net": "resnet20"},
            "net: expected resnet32, resnet18-64, digits or timm:NAME, got 'resnet20'",
        ),
        ({"head": "arc"}, "head: expected 'linear' or 'cosine', got 'arc'"),
        ({"shortcut": "C"}, "shortcut: expected 'A', 'B' or 'pool', got 'C'"),
        ({"stem": "big"}, "stem: expected 'small', 'half' or 'imagenet', got 'big'"),
        ({"classes": 1}, "classes: expected at least 2, got 1"),
    ],
)
def test_unknown_options_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        nets.build(**{"net": "digits", "classes": 10, **change})


@pytest.fixture(scope="module")
def timm():
    return pytest.importorskip("timm")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape"), [("resnet10t", (1, 32, 32)), ("vit_tiny_patch16_224", (3, 32, 32))]
)
def test_any_timm_model_gives_features_and_a_head(timm, name, shape):
    net = nets.build(f"timm:{name}", 6, shape=shape)
    assert all(module.training for module in net.modules())
    net.eval()
    x = torch.randn(2, *shape)
    with torch.no_grad():
        reference = timm.create_model(
            name,
            num_classes=6,
            in_chans=shape[0],
            **({"img_size": shape[1:]} if "vit" in name else {}),
        ).eval()
        reference.load_state_dict(net.body.state_dict(), strict=False)
        expected = reference.forward_head(reference.forward_features(x), pre_logits=True)
        torch.testing.assert_close(net.features(x), expected)
    assert net(x).shape == (2, 6)


def test_an_unknown_timm_model_is_named_with_its_neighbors(timm):
    with pytest.raises(ValueError, match=r"has no model 'resnet33x'; similar ones are .*resnet"):
        nets.build("timm:resnet33x", 10)


def test_a_timm_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text(
        'raise RuntimeError("operator torchvision::nms does not exist")'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    message = r"timm:resnet18 needs timm, which cannot be imported here \(operator torchvision::nms does not exist\); "
    with pytest.raises(ImportError, match=message):
        nets.build("timm:resnet18", 3)


def test_initial_weights_by_the_number_of_inputs_have_that_size_in_the_head_too():
    net = nets.build("resnet32", 100, shortcut="A", bias="zero", init="fan-in")
    wide, head = [m for m in net.modules() if isinstance(m, nn.Conv2d)][-1], net.head
    assert wide.weight.std().item() == pytest.approx((2 / 576) ** 0.5, rel=0.03)
    assert head.weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.05)
    assert nets.build("resnet32", 100, shortcut="A").head.weight.std().item() < 0.1
