"""Without an example, a model's own forward tells whether a change of its head arrives in the logits."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import levelhead as lh

# Not installed with the tests alone, as its wheels ask for CUDA.
resnet18 = pytest.importorskip("torchvision.models").resnet18
squeezenet1_1 = pytest.importorskip("torchvision.models").squeezenet1_1
fcn_resnet50 = pytest.importorskip("torchvision.models.segmentation").fcn_resnet50

COUNTS = [400, 100, 50, 10]
K = len(COUNTS)
FACTORS = (400 / torch.tensor(COUNTS)) ** 0.5
OFFSETS = torch.log(400 / torch.tensor(COUNTS))
SCALE, SHIFT = lh.rules.Rescale(0.5), lh.rules.Shift(1.0)
X = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A hidden layer, a head of four classes and what is done to its outputs."""

    def __init__(self, then=lambda model, z: z, **parameters):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.fc = nn.Linear(8, K)
        self.then = then
        for name, values in parameters.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(values)))

    def forward(self, x):
        return self.then(self, self.fc(self.body(x).relu()))


class Unused(Net):
    """Prototypes give the scores, and the linear layer of a known name is a leftover."""

    def __init__(self):
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(K, 8))

    def forward(self, x):
        return self.body(x).relu() @ self.prototypes.T


class GraphConvolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(outputs))
        self.lin = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x):
        return self.lin(x) + self.bias


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GraphConvolution(6, 8)
        self.conv2 = GraphConvolution(8, K)

    def forward(self, x):
        return self.conv2(self.conv1(x).relu())


class ERFNet(nn.Module):
    """The encoder has an output of its own, which is used only where it is trained alone."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Conv2d(3, 6, 3)
        self.output_conv = nn.Conv2d(6, K, 1)
        self.decoder = nn.ConvTranspose2d(6, K, 2, stride=2)

    def forward(self, x, only_encode=False):
        features = self.encoder(x)
        return self.output_conv(features) if only_encode else self.decoder(features)


class TemporalBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, 3, padding=1)
        self.downsample = nn.Conv1d(inputs, outputs, 1)

    def forward(self, x):
        return (self.conv(x).relu() + self.downsample(x)).relu()


WRONG = {
    "a layer that is not run": (Unused, SCALE, r"forward does not use it.*example"),
    "a layer that is not run, where something is added": (Unused, SHIFT, r"forward does not use it"),
    "a learned temperature": (
        lambda: Net(lambda m, z: z / m.sharpness, sharpness=2.5), SHIFT, r"by the model's forward.*rule scales",
    ),
    "a learned scale for each class": (
        lambda: Net(lambda m, z: z * m.gains, gains=[1.0, 2.0, 0.5, 3.0]),
        SHIFT,
        r"by the model's forward.*rule scales",
    ),
    "a Hardtanh": (lambda: Net(lambda m, z: F.hardtanh(z)), SCALE, "does not scale the model's logits"),
    "a flip": (lambda: Net(lambda m, z: z.flip(1)), SCALE, "does not scale the model's logits"),
    "a temperature before a softmax": (
        lambda: Net(lambda m, z: (z / m.sharpness).softmax(-1), sharpness=2.5),
        SHIFT,
        r"by the model's forward.*rule scales",
    ),
    "a flip before a log-softmax": (
        lambda: Net(lambda m, z: F.log_softmax(z.flip(1), -1)), SCALE, "does not scale the model's logits",
    ),
    "a minus": (lambda: Net(lambda m, z: -z), SHIFT, r"by the model's forward.*rule scales"),
    "a bias after it": (
        lambda: Net(lambda m, z: z + m.more, more=[1.0, 2.0, 3.0, 4.0]), SCALE, "does not scale the model's logits",
    ),
    "a graph convolution": (Graph, SCALE, r"conv2\.lin is not the head alone.*bias of its block.*example"),
    "an encoder's output": (ERFNet, SCALE, r"output_conv has 4 outputs but is not the last layer \(decoder is\)"),
    "a downsample": (
        lambda: nn.Sequential(TemporalBlock(3, 8), TemporalBlock(8, K)), SCALE, r"no layer has 4 outputs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_change_that_does_not_arrive_in_the_logits_is_refused(name):
    make, rule, reason = WRONG[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(lh.LevelheadError, match=reason):
        lh.adjust_(model, rule, COUNTS)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_layer_that_is_run_only_if_asked_for_is_taken_with_an_example():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ERFNet()
        images = torch.randn(2, 3, 9, 9)
    for named in (None, "output_conv"):
        with pytest.raises(lh.LevelheadError, match=r"not the (head|last)"):
            lh.adjust_(model, SCALE, COUNTS, layer=named)
    before = model(images, True).detach()
    with lh.adjust_(model, SCALE, COUNTS, example=(images, True)) as adjusted:
        assert adjusted.layers == ("output_conv",)
        assert torch.allclose(model(images, True), before * FACTORS[:, None, None], atol=1e-5)


def test_turned_sign_and_temperature_are_scaled_all_the_same():
    for name in ("a learned temperature", "a learned scale for each class", "a minus"):
        model = WRONG[name][0]()
        before = model(X).detach()
        with lh.adjust_(model, SCALE, COUNTS) as adjusted:
            assert adjusted.checked == "forward"
            assert torch.allclose(model(X), before * FACTORS, atol=1e-5)


class Shaped(nn.Module):
    """A head on pixels, whose logits are brought to the size of the image."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 6, 3, stride=2)
        self.head = nn.Conv2d(6, K, 1)

    def forward(self, x, *, more=None):
        size = x.shape[-2:]
        return {"out": F.interpolate(self.head(self.body(x)), size=size, mode="bilinear"), "aux": x}


class Tokens(Net):
    def forward(self, x):
        tokens = self.body(x[:, None].expand(-1, 3, -1))
        return self.fc(tokens).mean(1)


RIGHT = {
    "logits": Net,
    "a softmax": lambda: Net(lambda m, z: F.softmax(z, dim=1)),
    "a log-softmax": lambda: Net(lambda m, z: z.log_softmax(-1)),
    "a pair": lambda: Net(lambda m, z: (z, z.argmax(1))),
    "named logits": lambda: Net(lambda m, z: {"loss": None, "logits": z}),
    "tokens": Tokens,
    "pixels": Shaped,
    "a sequence": lambda: nn.Sequential(nn.Conv2d(3, K, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "one pixel": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, K, 1), nn.Flatten()),
    "a network of torchvision": lambda: resnet18(num_classes=K),
    "a segmentation of torchvision": lambda: fcn_resnet50(weights_backbone=None, num_classes=K),
}


@pytest.mark.parametrize("rule", [SCALE, SHIFT], ids=["rescale", "shift"])
@pytest.mark.parametrize("name", RIGHT)
def test_change_that_arrives_in_the_logits_is_known_to(name, rule):
    adjusted = lh.adjust_(RIGHT[name](), rule, COUNTS)
    assert adjusted.checked == "forward"
    assert "not checked" not in repr(adjusted)


def test_squeezenet_is_scaled_and_takes_no_offset():
    model = squeezenet1_1(num_classes=K)
    assert lh.adjust_(model, SCALE, COUNTS).checked == "forward"
    with pytest.raises(lh.LevelheadError, match="a ReLU follows"):
        lh.adjust_(model, SHIFT, COUNTS, again=True)


class Features(Net):
    """Its forward gives features, and another method the logits, as in steps of a Lightning module."""

    def forward(self, x):
        return self.body(x).relu()

    def validation_step(self, x):
        return self.fc(self(x))


def test_head_that_another_method_runs_is_adjusted_and_said_not_to_be_checked():
    model = Features()
    before = model.validation_step(X).detach()
    assert lh.adjust_(model, SHIFT, COUNTS).checked is None
    assert torch.allclose(model.validation_step(X), before + OFFSETS, atol=1e-5)


class Branching(Net):
    """Its forward looks at numbers, which no trace has."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


def test_model_that_cannot_be_traced_is_adjusted_and_said_not_to_be_checked():
    model = Branching()
    before = model(X).detach()
    adjusted = lh.adjust_(model, SHIFT, COUNTS)
    assert adjusted.checked is None
    assert "not checked" in repr(adjusted)
    assert "not checked" in adjusted._repr_html_()
    assert torch.allclose(model(X), before + OFFSETS, atol=1e-5)
    adjusted.restore()
    adjusted = lh.adjust_(model, SHIFT, COUNTS, example=X)
    assert adjusted.checked == "example"
    assert "not checked" not in repr(adjusted)


class Remembering(Net):
    """Its forward changes the model and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.last = self.body(x).relu()
        self.calls += 1
        return self.fc(self.last) + 0 * torch.rand(1)


class Noting(Net):
    def forward(self, x):
        self.last = self.body(x)
        self.noise = torch.rand(1)
        return self.fc(self.last)


@pytest.mark.parametrize("kind", [Remembering, Noting])
def test_trace_leaves_the_model_as_it_was(kind):
    model = kind().train()
    model.body.eval()
    torch.manual_seed(5)
    lh.adjust_(model, SCALE, COUNTS)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    assert not hasattr(model, "last")
    assert model.training
    assert not model.body.training
    if kind is Remembering:
        assert model.calls == 0


def test_model_with_hooks_is_not_traced():
    model = Net()
    seen = []
    model.body.register_forward_hook(lambda *call: seen.append(call))
    assert lh.adjust_(model, SCALE, COUNTS).checked is None
    assert not seen


class Bag(Net):
    """Several instances of each sample; the class of the sample is a mean of theirs."""

    def forward(self, x):
        instances = self.body(torch.stack([x, x.flip(1), -x], dim=1))
        return self.then(self, self.fc(instances.relu()))


REWORKED = {
    "a mean of a softmax": lambda: Bag(lambda m, z: z.softmax(-1).mean(1)),
    "a softmax of a softmax": lambda: Net(lambda m, z: z.softmax(1).softmax(1)),
    "a mean of a softmax, reshaped": lambda: Bag(lambda m, z: z.softmax(-1).mean(1).flatten(1)),
    "a pool over pixels of a softmax": lambda: nn.Sequential(
        nn.Conv2d(3, K, 1), nn.Softmax(1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", [SCALE, SHIFT], ids=["rescale", "shift"])
@pytest.mark.parametrize("name", REWORKED)
def test_what_becomes_of_probabilities_is_said_not_to_be_checked(name, rule):
    assert lh.adjust_(REWORKED[name](), rule, COUNTS).checked is None


@pytest.mark.parametrize(
    "then",
    [
        lambda m, z: z[:, :, None].softmax(1).squeeze(-1),
        lambda m, z: (z, z.softmax(-1).amax(-1)),
        lambda m, z: torch.flatten(torch.softmax(z, -1), 1),
    ],
)
def test_reshaped_probabilities_and_logits_beside_their_largest_are_checked(then):
    assert lh.adjust_(Net(then), SHIFT, COUNTS).checked == "forward"


class Beside(Net):
    """Another output comes first; that of the layer with a head's name may be an auxiliary one."""

    def __init__(self, other):
        super().__init__()
        self.other = other
        self.prototypes = nn.Parameter(torch.randn(K, 8))
        self.wide = nn.Conv2d(8, K, 3, padding=1)
        self.boxes = nn.Linear(8, 2)

    def forward(self, x):
        features = self.body(x).relu()
        return self.other(self, x, features), self.fc(features)


@pytest.mark.parametrize(
    "then",
    [
        lambda m, z: (z.tanh(), z),
        lambda m, z: (z[:, None].softmax(-1).mean(1), z),
    ],
)
def test_change_that_arrives_in_one_of_several_outputs_is_said_not_to_be_checked(then):
    assert lh.adjust_(Net(then), SCALE, COUNTS).checked is None


OTHER_LOGITS = {
    "prototypes": lambda m, x, h: h @ m.prototypes.T,
    "a wide convolution": lambda m, x, h: m.wide(h[:, :, None, None]),
}
NO_LOGITS = {
    "the input": lambda m, x, h: x,
    "what the head takes": lambda m, x, h: h,
    "boxes": lambda m, x, h: m.boxes(h),
}


@pytest.mark.parametrize("rule", [SCALE, SHIFT], ids=["rescale", "shift"])
@pytest.mark.parametrize("name", OTHER_LOGITS)
def test_head_beside_another_output_that_may_be_the_logits_is_said_not_to_be_checked(name, rule):
    adjusted = lh.adjust_(Beside(OTHER_LOGITS[name]), rule, COUNTS)
    assert adjusted.checked is None
    named = lh.adjust_(Beside(OTHER_LOGITS[name]), rule, COUNTS, layer="fc")
    assert named.checked == "forward"


@pytest.mark.parametrize("name", NO_LOGITS)
def test_head_beside_an_output_of_another_width_is_checked(name):
    assert lh.adjust_(Beside(NO_LOGITS[name]), SHIFT, COUNTS).checked == "forward"


class Cosine(Net):
    """It compares directions, by the weight of a layer that it never runs."""

    def __init__(self, bias):
        super().__init__()
        self.fc = nn.Linear(8, K, bias=bias)

    def forward(self, x):
        return 10 * F.linear(F.normalize(self.body(x)), F.normalize(self.fc.weight))


class Penalized(Features):
    """Its forward takes the weight of the head for a penalty; another method runs the head."""

    def forward(self, x):
        return super().forward(x) + 0 * self.fc.weight.norm()


def test_head_whose_weight_the_forward_takes_and_that_another_method_runs_takes_an_offset():
    model = Penalized()
    before = model.validation_step(X).detach()
    assert lh.adjust_(model, SHIFT, COUNTS).checked is None
    assert torch.allclose(model.validation_step(X), before + OFFSETS, atol=1e-5)


class ByHand(Net):
    def forward(self, x):
        return F.linear(self.body(x).relu(), self.fc.weight, self.fc.bias)


@pytest.mark.parametrize("bias", [True, False])
def test_bias_that_the_forward_never_reads_takes_no_offset(bias):
    model = Cosine(bias)
    with pytest.raises(lh.LevelheadError, match=r"takes the weight of fc, and no bias"):
        lh.adjust_(model, SHIFT, COUNTS)
    assert (model.fc.bias is not None) == bias
    assert lh.adjust_(Cosine(bias), SCALE, COUNTS).checked is None


def test_bias_that_the_forward_reads_by_itself_takes_an_offset():
    model = ByHand()
    before = model(X).detach()
    assert lh.adjust_(model, SHIFT, COUNTS).checked is None
    assert torch.allclose(model(X), before + OFFSETS, atol=1e-5)


class Refined(Net):
    """A second layer adds to the logits what it makes of them."""

    def __init__(self):
        super().__init__()
        self.fc2 = nn.Linear(K, K)

    def forward(self, x):
        logits = self.fc(self.body(x))
        return logits + self.fc2(logits.relu())


def test_head_that_feeds_another_head_is_said_not_to_be_checked():
    assert lh.adjust_(Refined(), SCALE, COUNTS, layer=["fc", "fc2"]).checked is None


# Half precision

HALVES = [torch.bfloat16, torch.float16]
MODELS = {
    "a network": Net,
    "a sequence": lambda: nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, K)),
    "tokens": Tokens,
    "a layer norm before": lambda: nn.Sequential(nn.Linear(6, 64), nn.LayerNorm(64), nn.Linear(64, K)),
    "many features": lambda: nn.Sequential(nn.Linear(6, 2000), nn.ReLU(), nn.Linear(2000, K)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rule", [SCALE, SHIFT], ids=["rescale", "shift"])
@pytest.mark.parametrize("name", MODELS)
def test_half_precision_is_checked_within_its_rounding(name, rule, dtype):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODELS[name]().to(dtype)
    for example, how in ((X.to(dtype), "example"), (None, "forward")):
        with lh.adjust_(model, rule, COUNTS, example=example) as adjusted:
            assert adjusted.checked == how


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rule", [SCALE, SHIFT], ids=["rescale", "shift"])
def test_autocast_is_checked_within_its_rounding(rule, dtype):
    model = Net(lambda m, z: z.float())
    with torch.autocast("cpu", dtype):
        assert lh.adjust_(model, rule, COUNTS, example=X).checked == "example"
    bent = Net(lambda m, z: z.float() / 1.25)
    with (
        torch.autocast("cpu", dtype),
        pytest.raises(lh.LevelheadError, match="is not added to the model's logits"),
    ):
        lh.adjust_(bent, SHIFT, COUNTS, example=X)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_temperature_is_seen_in_half_precision_too(dtype):
    model = Net(lambda m, z: z / 1.25).to(dtype)
    for example in (X.to(dtype), None):
        with pytest.raises(lh.LevelheadError, match="is not added to the model's logits"):
            lh.adjust_(model, SHIFT, COUNTS, example=example)


@pytest.mark.slow  # transformers takes seconds to import
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_transformers_are_checked_on_inputs_of_their_own(dtype):
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        LlamaConfig,
        LlamaForSequenceClassification,
        ViTConfig,
        ViTForImageClassification,
    )

    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "num_labels": K,
    }
    for network, config, rule in (
        (BertForSequenceClassification, BertConfig(**sizes, vocab_size=20), SHIFT),
        (LlamaForSequenceClassification, LlamaConfig(**sizes, vocab_size=20), SCALE),
        (ViTForImageClassification, ViTConfig(**sizes, image_size=32), SHIFT),
    ):
        model = network(config).to(dtype)
        assert lh.adjust_(model, rule, COUNTS).checked == "own inputs"
