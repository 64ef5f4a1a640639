"""Layers of a head's shape that are not the head: never run, not last, scaled elsewhere, or bent after it."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

# Not installed with the tests alone, as its wheels ask for CUDA.
squeezenet1_1 = pytest.importorskip("torchvision.models").squeezenet1_1
fcn_resnet50 = pytest.importorskip("torchvision.models.segmentation").fcn_resnet50

K = 5
COUNTS = [400, 200, 100, 20, 10]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.initial = nn.Conv2d(3, 8, 3)
        self.layers = nn.Conv2d(8, 16, 3)
        self.output_conv = nn.Conv2d(16, K, 1)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ConvTranspose2d(16, 8, 3)
        self.output_conv = nn.ConvTranspose2d(8, K, 2, stride=2)


class ERFNet(nn.Module):
    """A segmentation network; the encoder's output is used only where it is trained alone."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()


class TemporalBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv1d(inputs, outputs, 3)
        self.conv2 = nn.Conv1d(outputs, outputs, 3)
        self.downsample = nn.Conv1d(inputs, outputs, 1)


class TCN(nn.Module):
    """A temporal network whose last block gives the scores."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(TemporalBlock(3, 8), TemporalBlock(8, K))


class GCNConv(nn.Module):
    """A graph convolution as PyTorch Geometric has it: the bias is not that of its linear layer."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(outputs))
        self.lin = nn.Linear(inputs, outputs, bias=False)


class GATConv(nn.Module):
    """A graph attention without a bias: the attention is computed from the outputs of its linear layer."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.att_src = nn.Parameter(torch.randn(1, 1, outputs))
        self.att_dst = nn.Parameter(torch.randn(1, 1, outputs))
        self.lin = nn.Linear(inputs, outputs, bias=False)


class Graph(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.conv1 = kind(8, 16)
        self.conv2 = kind(16, K)


class Cosine(nn.Module):
    """A classifier that compares directions: it normalizes the rows of its weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(K, 8))

    def forward(self, x):
        return F.linear(F.normalize(x), F.normalize(self.weight))


REFUSED = {
    "ERFNet": (ERFNet, r"encoder\.output_conv .*decoder\.output_conv.*head"),
    "TCN": (TCN, r"no head found"),
    "GCN": (lambda: Graph(GCNConv), r"conv2\.lin is not the head alone.*conv2\.bias"),
    "GAT": (lambda: Graph(GATConv), r"conv2\.lin is not the head alone.*conv2\.att_"),
    "a bare matrix": (Cosine, r"weight \[5, 8\].*head"),
}


def saved(model, path):
    state = model.state_dict()
    if path.suffix == ".pt":
        torch.save(state, path)
    else:
        save_file(state, path)
    return path


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("name", REFUSED)
def test_layer_that_is_not_the_head_is_refused(tmp_path, name, suffix):
    make, reason = REFUSED[name]
    model = saved(make(), tmp_path / f"model.{suffix}")
    out = tmp_path / f"out.{suffix}"
    with pytest.raises(lh.LevelheadError, match=reason):
        adjust_file(model, out, lh.rules.Rescale(0.5), COUNTS)
    assert not out.exists()


@pytest.mark.parametrize("name", ["GCN", "GAT"])
def test_layer_whose_block_adds_or_attends_is_refused_also_by_its_name(tmp_path, name):
    make, reason = REFUSED[name]
    model = saved(make(), tmp_path / "model.pt")
    with pytest.raises(lh.LevelheadError, match=reason):
        adjust_file(model, tmp_path / "out.pt", lh.rules.Rescale(0.5), COUNTS, head="conv2.lin")


@pytest.mark.parametrize("name", ["proj_skip", "conv_shortcut", "blocks.3.short_cut.0"])
def test_layer_that_leads_past_others_is_not_the_head(tmp_path, name):
    state = {"body.weight": torch.randn(16, 8), "body.bias": torch.randn(16)}
    state |= {f"{name}.weight": torch.randn(K, 8), f"{name}.bias": torch.randn(K)}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(lh.LevelheadError):
        adjust_file(tmp_path / "model.pt", tmp_path / "out.pt", lh.rules.Rescale(0.5), COUNTS)
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize("name", ["class_scale", "logit_scales", "temperatures"])
def test_head_next_to_a_scale_for_each_class_is_refused(tmp_path, name):
    state = nn.ModuleDict({"body": nn.Linear(8, 8), "fc": nn.Linear(8, K)}).state_dict()
    torch.save({**state, name: torch.ones(K)}, tmp_path / "model.pt")
    with pytest.raises(lh.LevelheadError, match=f"fc looks like the head, but there is a {name}"):
        adjust_file(tmp_path / "model.pt", tmp_path / "out.pt", lh.rules.Rescale(0.5), COUNTS)


@pytest.mark.parametrize("head", ["weight", "fc"])
def test_bare_matrix_is_taken_by_its_name(tmp_path, head):
    key = "weight" if head == "weight" else "fc.weight"
    save_file({key: torch.randn(K, 8)}, tmp_path / "model.safetensors")
    out = tmp_path / "out.safetensors"
    adjust_file(tmp_path / "model.safetensors", out, lh.rules.Rescale(0.5), COUNTS, head=head)
    assert out.exists()


def test_linear_layer_saved_alone_is_a_head(tmp_path):
    seen = inspect_file(saved(nn.Linear(8, K), tmp_path / "model.pt"))
    assert [layer.weight for layer in seen.layers] == ["weight"]


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_squeezenet_is_scaled_and_takes_no_offset(tmp_path, suffix):
    """A ReLU follows its classifier, and what is added before it is not added to the logits."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = squeezenet1_1(num_classes=K).eval()
        images = torch.randn(2, 3, 64, 64)
    path = saved(model, tmp_path / f"model.{suffix}")
    out = tmp_path / f"out.{suffix}"
    for head in (None, "classifier.1"):
        with pytest.raises(lh.LevelheadError, match=r"bent by a Relu.*rule scales"):
            adjust_file(path, out, lh.rules.Shift(1.0), COUNTS, head=head)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    before = model(images).detach()
    model.load_state_dict(load_file(out) if suffix == "safetensors" else torch.load(out))
    factors = (400 / torch.tensor(COUNTS)) ** 0.5
    assert torch.allclose(model(images), before * factors, atol=1e-5)


def test_convolution_at_the_end_of_a_classifier_takes_an_offset(tmp_path):
    model = fcn_resnet50(weights=None, weights_backbone=None, num_classes=K)
    path = saved(model, tmp_path / "model.pt")
    done = adjust_file(path, tmp_path / "out.pt", lh.rules.Shift(1.0), COUNTS)
    assert done.head == ("classifier.4",)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_hidden_layers_that_cannot_follow_are_no_doubt(tmp_path, suffix):
    """The first convolution has as many channels as there are classes, and its neighbor takes them."""
    names = ("conv1", "conv2", "fc1", "fc2")
    layers = (nn.Conv2d(1, K, 5), nn.Conv2d(K, 20, 5), nn.Linear(320, 50), nn.Linear(50, K))
    model = nn.ModuleDict(dict(zip(names, layers, strict=True)))
    seen = inspect_file(saved(model, tmp_path / f"model.{suffix}"), counts=COUNTS)
    assert [layer.key for layer in seen.layers] == ["fc2"]


@pytest.mark.parametrize("rule", [lh.rules.Rescale(0.5), lh.rules.Shift(0.5)])
def test_convolution_over_several_places_is_adjusted_by_its_name(tmp_path, rule):
    # Residues of a protein, each classed with its neighbors: [N, d, length, 1].
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(6, 8, (7, 1), padding=(3, 0)), nn.Conv2d(8, K, (7, 1)))
    path = tmp_path / "m.pt"
    torch.save(model.state_dict(), path)
    x = torch.randn(2, 6, 20, 1)
    with torch.no_grad():
        before = model(x)
        adjusted = adjust_file(path, tmp_path / "out.pt", rule, COUNTS, head="1")
        model.load_state_dict(torch.load(tmp_path / "out.pt", weights_only=True))
        after = model(x)
    scale = torch.as_tensor(adjusted.scale, dtype=torch.float32).reshape(K, 1, 1)
    offset = torch.as_tensor(adjusted.offset, dtype=torch.float32).reshape(K, 1, 1)
    torch.testing.assert_close(after, before * scale + offset)
    assert undo_file(tmp_path / "out.pt", tmp_path / "back.pt").exact
    assert (tmp_path / "back.pt").read_bytes() == path.read_bytes()
