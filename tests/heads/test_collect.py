"""`scores(model, loader)`: the same choice as from logits that were collected by hand."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

import levelhead as lh

COUNTS = [400, 80, 20]
DRAW = torch.Generator().manual_seed(0)
Y = torch.arange(150) % 3
X = torch.randn(150, 8, generator=DRAW) + 2 * nn.functional.one_hot(Y, 8)
FAST = {"rule": "shift", "bootstrap": 0}


@pytest.fixture
def model():
    """A network with a dropout and batch norm, half of it in training mode, biased to the frequent classes."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3)
    ).train()
    net[1].eval()
    with torch.no_grad():
        net[3].bias.copy_(torch.tensor([3.0, 1.0, 0.0]))
    return net


def loader(*, size=40, data=(X, Y), **options):
    return DataLoader(TensorDataset(*data), batch_size=size, **options)


def tune(model, batches, counts, *, progress=None, **options):
    return lh.tune(*lh.scores(model, batches, progress=progress), counts, **options)


def by_hand(model):
    copied = nn.Sequential(*model).eval()
    with torch.no_grad():
        found = copied(X)
    model.train()
    model[1].eval()
    return found


def same(found, truth):
    """Return whether two choices are equal, but for the last bits of a product: those depend on the size of a batch."""
    gammas = np.linspace(0.003, 1.997, 101)
    curves = [one.curve.at(gammas) for one in (found, truth)]
    return (
        found.n == truth.n
        and np.allclose(found.gamma, truth.gamma, atol=1e-6)
        and np.allclose(*curves, atol=1e-9)
    )


def test_choice_is_that_of_logits_collected_by_hand(model):
    truth = lh.tune(by_hand(model), Y, COUNTS, **FAST)
    assert truth.gamma > 0.1
    assert same(tune(model, loader(), COUNTS, **FAST), truth)
    with pytest.warns(DeprecationWarning, match="moved to lh.tune"):
        assert same(lh.tune(model, loader(), counts=COUNTS, **FAST), truth)


def test_modes_gradients_and_statistics_are_as_before(model):
    modes = [module.training for module in model.modules()]
    running = model[1].running_mean.clone()
    tune(model, loader(), COUNTS, **FAST)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model[1].running_mean, running)
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(RuntimeError, match="shape"):
        tune(model, [(X[:, :3], Y)], COUNTS)
    assert [module.training for module in model.modules()] == modes


class Named(nn.Module):
    """A model with named inputs and outputs, as Hugging Face's are, which computes a loss if it gets labels."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values, mask=None, labels=None):
        assert labels is None
        return {"loss": None, "logits": self.inner(pixel_values * (1 if mask is None else mask))}


@pytest.mark.parametrize("label", ["labels", "label", "target"])
def test_batches_may_be_dicts(model, label):
    batches = [{"pixel_values": X[a : a + 40], label: Y[a : a + 40]} for a in range(0, 150, 40)]
    truth = lh.tune(by_hand(model), Y, COUNTS, **FAST)
    assert same(tune(Named(model), batches, COUNTS, **FAST), truth)
    assert same(tune(model, batches, COUNTS, **FAST), truth)  # one input, whatever its name
    pairs = (({"pixel_values": one["pixel_values"]}, one[label]) for one in batches)  # read once
    assert same(tune(Named(model), pairs, COUNTS, **FAST), truth)


def test_batches_may_have_several_inputs(model):
    ones = torch.ones(150, 1)
    truth = lh.tune(by_hand(model), Y, COUNTS, **FAST)
    assert same(tune(Named(model), loader(data=(X, ones, Y)), COUNTS, **FAST), truth)


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.CountsWarning")
def test_tokens_of_batches_of_different_lengths():
    torch.manual_seed(0)
    model = nn.Linear(8, 3)
    first, second = torch.randn(4, 5, 8), torch.randn(6, 7, 8)
    labels = torch.randint(3, (4, 5)), torch.randint(3, (6, 7))
    labels[0][:, 3:] = labels[1][:, 0] = -100
    third = torch.randn(2, 3, 8), torch.full((2, 3), -100)  # nothing but padding
    flat = torch.cat(
        [model(first)[:, :3].reshape(-1, 3), model(second)[:, 1:].reshape(-1, 3)]
    ).detach()
    truth = lh.tune(
        flat,
        torch.cat([labels[0][:, :3].reshape(-1), labels[1][:, 1:].reshape(-1)]),
        COUNTS,
        **FAST,
    )
    assert same(
        tune(model, [(first, labels[0]), third, (second, labels[1])], COUNTS, **FAST), truth
    )


def test_one_logit_is_tuned_as_two_and_fits_its_head():
    torch.manual_seed(0)
    model, labels = nn.Sequential(nn.Linear(8, 1)), Y.clamp(max=1)
    with torch.no_grad():
        z = model(X)
    with pytest.warns(DeprecationWarning, match="moved to lh.tune"):
        tuned = lh.tune(model, loader(data=(X, labels.float())), [400, 40], bootstrap=0)
    pair = torch.cat([torch.zeros_like(z), z], 1)
    assert same(tuned, lh.tune(pair, labels, [400, 40], rule="shift", bootstrap=0))
    lh.adjust_(model, tuned)


@pytest.mark.filterwarnings(
    "ignore::levelhead.support.warnings.CountsWarning"
)  # of a model that was not trained
def test_model_that_gives_log_probabilities_is_tuned_so_that_it_can_be_adjusted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 3), nn.LogSoftmax(1))
    with torch.no_grad():
        before = model(X)
    with pytest.warns(DeprecationWarning, match="moved to lh.tune"):
        tuned = lh.tune(model, loader(), COUNTS, bootstrap=0)
    assert (tuned.rule, tuned.kind) == ("shift", "probabilities")
    lh.adjust_(model, tuned)
    shifted = before + tuned.gamma * torch.log(max(COUNTS) / torch.tensor(COUNTS))
    with torch.no_grad():
        assert torch.allclose(model(X), shifted.log_softmax(1), atol=1e-5)


def test_names_of_a_config_order_counts_given_by_name(model):
    model.config = type("Config", (), {"id2label": {0: "often", 1: "seldom", 2: "rare"}})()
    with pytest.warns(DeprecationWarning, match="moved to lh.tune"):
        tuned = lh.tune(model, loader(), {"rare": 20, "often": 400, "seldom": 80}, **FAST)
    assert tuned.counts == (400, 80, 20)
    assert tuned.names == ("often", "seldom", "rare")


def test_progress_is_told_batch_by_batch(model):
    seen = []
    tune(model, loader(), COUNTS, progress=lambda *one: seen.append(one), **FAST)
    assert seen[:4] == [("logits", i, 4) for i in (1, 2, 3, 4)]


def test_loader_of_training_data_is_refused(model):
    with pytest.raises(ValueError, match=r"labels: .*training data.*shuffle=False"):
        tune(model, loader(shuffle=True, drop_last=True), COUNTS)
    weighted = WeightedRandomSampler(torch.ones(150), 150)
    with pytest.raises(ValueError, match="draws some samples twice"):
        tune(model, loader(sampler=weighted), COUNTS)


def test_loader_that_shuffles_is_doubted(model):
    with pytest.warns(lh.warnings.LeakageWarning, match="shuffles") as found:
        tune(model, loader(sampler=RandomSampler(X)), COUNTS, **FAST)
    assert found[0].filename == __file__


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "no batch"),
        ([X], "expected batches"),
        ([{"x": X}], "'labels'"),
        ([{"x": X, "more": X, "labels": Y}], "does not take more, x"),
        ([(X, Y[:3])], "150 samples.*3 labels"),
        (Y, "labels: expected a loader"),
    ],
)
def test_what_is_not_a_batch_is_refused(model, batches, message):
    with pytest.raises(ValueError, match=message):
        tune(Named(model), batches, COUNTS)


def test_model_whose_output_is_not_logits_is_refused():
    class Text(nn.Module):
        def forward(self, x):
            return {"loss": x.sum()}

    with pytest.raises(ValueError, match=r"expected logits.*got dict with loss"):
        tune(Text(), loader(), COUNTS)


def test_counts_are_asked_for(model):
    for given in (lh.scores(model, loader()), ([[2.0, 1.0], [1.0, 2.0]], [0, 1])):
        with pytest.raises(
            ValueError, match="counts: expected the training samples of each class, got none"
        ):
            lh.tune(*given)
