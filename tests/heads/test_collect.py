"""`collect(model, loader)`: the logits and labels of all batches, as one would collect them by hand."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import levelhead as lh

COUNTS = [400, 80, 20]
DRAW = torch.Generator().manual_seed(0)
Y = torch.arange(150) % 3
X = torch.randn(150, 8, generator=DRAW) + 2 * nn.functional.one_hot(Y, 8)


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


def by_hand(model):
    copied = nn.Sequential(*model).eval()
    with torch.no_grad():
        inputs = copied(X)
    model.train()
    model[1].eval()
    return inputs


def check(collected, logits, labels=Y):
    """Compare what was collected, but for the last bits of a product: those depend on the size of a batch."""
    assert torch.allclose(collected[0], logits, atol=1e-5)
    assert torch.equal(collected[1], labels)


def test_logits_are_those_collected_by_hand(model):
    check(lh.collect(model, loader()), by_hand(model))


def test_modes_gradients_and_statistics_are_as_before(model):
    modes = [module.training for module in model.modules()]
    running = model[1].running_mean.clone()
    lh.collect(model, loader())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model[1].running_mean, running)
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(RuntimeError, match="shape"):
        lh.collect(model, [(X[:, :3], Y)])
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
    truth = by_hand(model)
    check(lh.collect(Named(model), batches), truth)
    check(lh.collect(model, batches), truth)  # one input, whatever its name
    pairs = (
        ({"pixel_values": batch["pixel_values"]}, batch[label]) for batch in batches
    )  # read once
    check(lh.collect(Named(model), pairs), truth)


@pytest.mark.parametrize("wrapper", [nn.DataParallel, partial(torch.compile, backend="eager")])
def test_a_wrapped_model_takes_batches_as_the_model_does(model, wrapper):
    batches = [{"image": X[:40], "label": Y[:40]}]
    assert torch.allclose(lh.collect(wrapper(model), batches)[0], lh.collect(model, batches)[0])
    with pytest.raises(lh.LevelheadError, match="does not take image, size; it takes input"):
        lh.collect(wrapper(model), [{"image": X[:40], "size": X[:40], "label": Y[:40]}])


def test_batches_may_have_several_inputs(model):
    ones = torch.ones(150, 1)
    check(lh.collect(Named(model), loader(data=(X, ones, Y))), by_hand(model))


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
    kept = torch.cat([labels[0][:, :3].reshape(-1), labels[1][:, 1:].reshape(-1)])
    check(lh.collect(model, [(first, labels[0]), third, (second, labels[1])]), flat, kept)


def test_one_logit_is_tuned_as_two_and_fits_its_head():
    torch.manual_seed(0)
    model, labels = nn.Sequential(nn.Linear(8, 1)), Y.clamp(max=1)
    with torch.no_grad():
        z = model(X)
    logits, kept = lh.collect(model, loader(data=(X, labels.float())))
    check((logits, kept), torch.cat([torch.zeros_like(z), z], 1), labels)
    tuned = lh.tune(logits, kept, [400, 40])
    lh.adjust_(model, tuned)
    with torch.no_grad():
        predicted = (model(X)[:, 0] > 0).long()
    assert torch.equal(predicted, tuned.apply(logits).argmax(1))


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
@pytest.mark.parametrize("last", [nn.LogSoftmax(1), nn.Softmax(1)], ids=["logarithms", "softmax"])
def test_model_that_ends_in_a_softmax_is_adjusted_by_what_was_tuned_on_its_output(last):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 3), last)
    kind = "probabilities" if isinstance(last, nn.Softmax) else "logits"
    scores, labels = lh.collect(model, loader())
    tuned = lh.tune(scores, labels, COUNTS, kind=kind)
    assert tuned.adjustment.changes
    with lh.adjust_(model, tuned), torch.no_grad():
        assert torch.equal(model(X).argmax(1), tuned.apply(scores).argmax(1))


@pytest.mark.parametrize(
    "truth", [Y.clamp(max=1).float(), Y.clamp(max=1).bool()], ids=["0.", "bool"]
)
def test_one_sigmoid_is_tuned_as_two_probabilities_and_fits_its_head(truth):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())
    p = model(X).detach()
    scores, labels = lh.collect(model, loader(data=(X, truth)))
    check((scores, labels), torch.cat([1 - p, p], 1), truth.long())
    with pytest.raises(lh.LevelheadError, match="pass kind='probabilities'"):
        lh.tune(scores, labels, [400, 40])
    tuned = lh.tune(scores, labels, [400, 40], kind="probabilities")
    assert tuned.adjustment.changes
    with lh.adjust_(model, tuned), torch.no_grad():
        assert torch.equal((model(X)[:, 0] > 0.5).long(), tuned.apply(scores).argmax(1))


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(X, Y, strict=True)


def test_a_stream_is_collected_as_a_data_set_is(model):
    told = []
    logits, labels = lh.collect(
        model, DataLoader(Stream(), 40), progress=lambda *done: told.append(done)
    )
    truth = lh.collect(model, loader())
    assert torch.equal(logits, truth[0])
    assert torch.equal(labels, truth[1])
    assert told == []  # nobody knows how many there are


def compiled_in_place(model):
    model.compile(backend="eager")
    return model


def compiled_forward(model):
    model.forward = torch.compile(model.forward, backend="eager")
    return model


@pytest.mark.parametrize(
    "compiled", [partial(torch.compile, backend="eager"), compiled_in_place, compiled_forward]
)
def test_features_and_checks_of_a_compiled_model_are_those_of_the_model(compiled):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    truth = lh.collect(model, loader(), features=True)
    tuned = lh.tune(*truth)
    model = compiled(model)
    model(X)
    collected = lh.collect(model, loader(), features=True)
    assert torch.equal(collected.features, truth.features)
    assert torch.equal(collected[0], truth[0])
    with lh.adjust_(model, tuned, example=X) as adjusted:
        assert adjusted.checked == "example"
        offsets = torch.tensor(tuned.adjustment.offset).float()
        assert torch.allclose(model(X), truth[0] + offsets, atol=1e-5)


def test_progress_is_told_batch_by_batch(model):
    seen = []
    lh.collect(model, loader(), progress=lambda *one: seen.append(one))
    assert seen == [("logits", i, 4) for i in (1, 2, 3, 4)]


def test_loader_of_training_data_is_refused(model):
    with pytest.raises(ValueError, match=r"loader: .*training data.*shuffle=False"):
        lh.collect(model, loader(shuffle=True, drop_last=True))
    weighted = WeightedRandomSampler(torch.ones(150), 150)
    by_batches = DataLoader(TensorDataset(X, Y), batch_sampler=BatchSampler(weighted, 40, False))
    for drawn in (loader(sampler=weighted), by_batches):
        with pytest.raises(ValueError, match="draws some samples twice"):
            lh.collect(model, drawn)
    shuffled = BatchSampler(RandomSampler(X), 40, drop_last=True)
    with pytest.raises(ValueError, match="shuffles and drops its last batch"):
        lh.collect(model, DataLoader(TensorDataset(X, Y), batch_sampler=shuffled))


def test_loader_that_shuffles_is_doubted(model):
    with pytest.warns(lh.warnings.LeakageWarning, match="shuffles") as warned:
        lh.collect(model, loader(sampler=RandomSampler(X)))
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "no batch"),
        ([X], "expected batches"),
        ([{"x": X}], "'labels'"),
        ([{"x": X, "more": X, "labels": Y}], "does not take more, x"),
        ([(X, Y[:3])], "150 samples.*3 labels"),
        ([(X, ["ant"] * 150)], "loader: expected labels that are numbers"),
        ([{"x": X, "labels": None}], "loader: expected labels that are numbers"),
        ([(X, Y), (X, nn.functional.one_hot(Y))], r"got \[150\] in the first batch and \[150, 3\]"),
        (Y, "loader: expected a loader"),
    ],
)
def test_what_is_not_a_batch_is_refused(model, batches, message):
    with pytest.raises(ValueError, match=message):
        lh.collect(Named(model), batches)


def test_a_batch_of_one_may_have_its_logit_as_a_single_number():
    """As the last batch of a model that ends in `squeeze()` has."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 1)

    class Squeezed(nn.Module):
        def forward(self, x):
            return layer(x).squeeze()

    wanted = lh.collect(layer, loader(size=149))
    check(lh.collect(Squeezed(), loader(size=149)), *wanted)


def test_model_that_begins_with_its_loss_is_refused():
    class WithLoss(nn.Module):
        def forward(self, x):
            return x.sum(), x

    with pytest.raises(lh.LevelheadError, match=r"model: expected logits .* as a loss is"):
        lh.collect(WithLoss(), loader())


def test_samples_that_are_in_no_batch_are_refused():
    with pytest.raises(lh.LevelheadError, match="loader: expected batches, got a sample by itself"):
        lh.collect(nn.Linear(8, 3), loader(size=None))


def test_models_whose_logits_differ_in_number_are_refused():
    batches = [(X, Y), (X[:, :3], Y)]
    with pytest.raises(lh.LevelheadError, match="got 8 in the first batch and 3 in another"):
        lh.collect(nn.Identity(), batches)


def test_model_whose_output_is_not_logits_is_refused():
    class Text(nn.Module):
        def forward(self, x):
            return {"loss": x.sum()}

    with pytest.raises(ValueError, match=r"expected logits.*got dict with loss"):
        lh.collect(Text(), loader())
