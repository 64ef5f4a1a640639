"""Auxiliary heads, which a model runs in training alone: its head is found beside them, and they stay as they are."""

import pytest
import torch
from torch import nn

import levelhead as lh

# Not installed with the tests alone, as its wheels ask for CUDA.
googlenet = pytest.importorskip("torchvision.models").googlenet
inception_v3 = pytest.importorskip("torchvision.models").inception_v3

COUNTS = [400, 100, 50, 10]
K = len(COUNTS)
FACTORS = (400 / torch.tensor(COUNTS)) ** 0.5
OFFSETS = torch.log(400 / torch.tensor(COUNTS))
SCALE, SHIFT = lh.rules.Rescale(0.5), lh.rules.Shift(1.0)
X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


class Supervised(nn.Module):
    """A hidden layer with a head of its own, whose logits only the loss of training sees."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.auxiliary = nn.Linear(8, K)
        self.fc = nn.Linear(8, K)

    def forward(self, x):
        features = self.body(x).relu()
        logits = self.fc(features)
        if self.training:
            return logits, self.auxiliary(features)
        return logits


class Averaged(Supervised):
    """Both heads are run in evaluation mode, too."""

    def forward(self, x):
        features = self.body(x).relu()
        return self.fc(features) + self.auxiliary(features)


class Asked(Supervised):
    """The second head is of another task, which the caller asks for."""

    def forward(self, x, task="first"):
        features = self.body(x).relu()
        return self.fc(features) if task == "first" else self.auxiliary(features)


class Branching(Supervised):
    """Its forward looks at numbers, which no trace has."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


class Elsewhere(Supervised):
    """Its forward gives features, and another method the logits of either head."""

    def forward(self, x):
        features = self.body(x).relu()
        if self.training:
            return features, self.auxiliary(features)
        return features

    def predict_step(self, x):
        return self.fc(self(x))


class Swapped(Supervised):
    """The layer with the name of a head is the auxiliary one."""

    def forward(self, x):
        features = self.body(x).relu()
        logits = self.auxiliary(features)
        if self.training:
            return logits, self.fc(features)
        return logits


MODELS = {
    "googlenet": (lambda: googlenet(num_classes=K, init_weights=False), 64, ("aux1.fc2", "aux2.fc2")),
    "inception": (lambda: inception_v3(num_classes=K, init_weights=False), 96, ("AuxLogits.fc",)),
}  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_head_of_torchvision_is_found_beside_auxiliary_heads(name, training):
    make, size, auxiliary = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().train(training)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    assert list(lh.find_head(model)) == ["fc"]
    model.eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        plain = model(images)
        model.train(training)
        adjusted = lh.adjust_(model, SHIFT, COUNTS)
        assert model.training is training
        moved = model.eval()(images)
    assert torch.allclose(moved, plain + OFFSETS, atol=1e-4)
    assert adjusted.layers == ("fc",)
    assert adjusted.checked == "forward"
    assert adjusted.left_alone == auxiliary
    changed = [key for key, value in model.state_dict().items() if not value.equal(before[key])]
    assert changed == ["fc.bias"]


def test_result_says_which_heads_are_left_as_they_are():
    model = Supervised()
    adjusted = lh.adjust_(model, SCALE, COUNTS)
    says = "auxiliary is run in training only and left as it is"
    assert says in repr(adjusted)
    assert says in adjusted._repr_html_()
    model = Supervised()
    by_example = lh.adjust_(model, SCALE, COUNTS, example=X)
    assert by_example.left_alone == ("auxiliary",)


def test_result_of_a_model_without_auxiliary_heads_says_nothing_of_them():
    model = nn.Sequential(nn.Linear(6, K), nn.ReLU(), nn.Linear(K, K))
    adjusted = lh.adjust_(model, SCALE, COUNTS, layer="2")
    assert adjusted.left_alone == ()
    assert "training only" not in repr(adjusted)


def test_logits_and_features_are_collected_beside_auxiliary_heads():
    model = Supervised().train()
    labels = torch.zeros(len(X), dtype=torch.long)
    collected = lh.collect(model, [(X, labels)], features=True)
    with torch.no_grad():
        assert torch.equal(collected.features, model.body(X).relu())
        assert torch.equal(collected[0], model.eval()(X))


@pytest.mark.parametrize("kind", [Averaged, Asked, Branching, Elsewhere, Swapped])
def test_head_beside_another_one_that_may_be_run_is_not_guessed(kind):
    model = kind()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(
        lh.LevelheadError,
        match=r"fc looks like the head, but auxiliary \[4, 8\] may feed the output",
    ):
        lh.adjust_(model, SCALE, COUNTS)
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())
