"""A rule that adds to the logits: an example proves that what is added to the bias arrives there."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import levelhead as lh

from .chosen import tuned_for

COUNTS = [400, 100, 50, 10]
X = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))


class Then(nn.Module):
    """A head with something after it."""

    def __init__(self, then, *, bias=True):
        super().__init__()
        self.fc, self.then = nn.Linear(6, 4, bias=bias), then

    def forward(self, x):
        return self.then(self.fc(x))


class Pixels(nn.Module):
    def __init__(self, then):
        super().__init__()
        self.head, self.then = nn.Conv2d(6, 4, 1), then

    def forward(self, x):
        return self.then(self.head(x[:, :, None, None].expand(-1, -1, 2, 2)))


def tuned_on(model, rule):
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logits = model(X).numpy()
        labels = (logits + np.random.default_rng(1).normal(size=logits.shape)).argmax(1)
        return lh.tune(logits, labels, COUNTS, rule=rule), logits


with torch.random.fork_rng():
    torch.manual_seed(0)
    ADDS = {
        "nothing": Then(lambda z: z),
        "a layer without a bias": Then(lambda z: z, bias=False),
        "dropout": Then(nn.Dropout()).eval(),
        "a mean over pixels": Pixels(lambda z: z.mean((2, 3))),
        "a maximum over pixels": Pixels(lambda z: z.amax((2, 3))),
    }
    BENDS = {
        "a temperature": Then(lambda z: z / 5),
        "a ReLU": Then(torch.relu),
        "a ReLU in a sequence": nn.Sequential(nn.Linear(6, 4), nn.ReLU()),
        "an absolute value": Then(torch.abs),
        "a sum over pixels": Pixels(lambda z: z.sum((2, 3))),
    }


@pytest.mark.parametrize("rule", ["offsets", "shift", "vector"])
@pytest.mark.parametrize("after", ADDS)
def test_what_is_added_to_the_bias_is_added_to_the_logits(after, rule):
    tuned, logits = tuned_on(ADDS[after], rule)
    with lh.adjust_(ADDS[after], tuned, example=X[:3]), torch.no_grad():
        assert np.allclose(ADDS[after](X), tuned.apply(logits), atol=1e-5)
    with torch.no_grad():
        assert np.array_equal(ADDS[after](X), logits)


@pytest.mark.parametrize("rule", ["offsets", "shift", "vector"])
@pytest.mark.parametrize("after", BENDS)
def test_head_after_which_logits_are_bent_takes_no_offset(after, rule):
    logits = BENDS[after](X).detach().numpy()
    tuned = tuned_for(rule, counts=COUNTS)
    with pytest.raises(lh.LevelheadError, match=r"added.*tune with the rule scales"):
        lh.adjust_(BENDS[after], tuned, example=X[:3])
    with torch.no_grad():
        assert np.array_equal(BENDS[after](X), logits)


@pytest.mark.parametrize("after", BENDS)
@pytest.mark.parametrize("rule", ["rescale", "scales"])
def test_such_a_head_is_scaled_all_the_same(after, rule):
    tuned, logits = tuned_on(BENDS[after], rule)
    with lh.adjust_(BENDS[after], tuned, example=X[:3]), torch.no_grad():
        assert np.allclose(BENDS[after](X), tuned.apply(logits), atol=1e-5)


def test_a_relu_in_a_sequence_is_seen_without_an_example():
    model = BENDS["a ReLU in a sequence"]
    with pytest.raises(lh.LevelheadError, match=r"a ReLU follows 0.*rule scales"):
        lh.adjust_(model, tuned_for("shift", counts=COUNTS))


@pytest.mark.slow  # Keras takes seconds to import
@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_keras_is_proved_by_an_example_too(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")

    class Model(keras.Model):
        def __init__(self, by):
            super().__init__()
            self.top, self.by = keras.layers.Dense(4), by

        def call(self, x):
            return self.top(x) * self.by

    x = X.numpy()
    for by in (1.0, 0.2):
        model = Model(by)
        logits = np.array(keras.ops.convert_to_numpy(model(x)))
        labels = (logits + np.random.default_rng(1).normal(size=logits.shape)).argmax(1)
        tuned = lh.tune(logits, labels, COUNTS, rule="shift")
        if by != 1:
            with pytest.raises(lh.LevelheadError, match=r"added.*tune with the rule scales"):
                lh.adjust_(model, tuned, example=x[:3])
            continue
        lh.adjust_(model, tuned, example=x[:3])
        assert np.allclose(keras.ops.convert_to_numpy(model(x)), tuned.apply(logits), atol=1e-5)
