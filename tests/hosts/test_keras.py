"""Keras callbacks: what the kernel is after every step of a real fit, and what is left when it ends."""

import os

import numpy as np
import pytest

import levelhead as lh

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="Keras is not installed: pip install keras h5py")
from levelhead.hosts.keras import LevelCallback, RescaleCallback, WVNCallback  # noqa: E402

L = keras.layers
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation"),
]  # Keras's own, of torch

RNG = np.random.default_rng(0)
Y = RNG.choice(3, size=96, p=[0.8, 0.15, 0.05])
X = (RNG.normal(size=(96, 8)) + Y[:, None]).astype(np.float32)
COUNTS = np.bincount(Y)


def network(**compiled):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((8,)), L.Dense(5, activation="relu"), L.Dense(3, name="top")]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, **compiled)
    return model


class Norms(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        getattr(
            self.model, "jax_state_sync", list
        )()  # on JAX, a step's weights are elsewhere until asked for
        self.seen.append(np.linalg.norm(self.model.get_layer("top").kernel.numpy(), axis=0))


def fit(model, *callbacks, epochs=2):
    model.fit(
        X, Y, batch_size=32, epochs=epochs, callbacks=list(callbacks), verbose=0, shuffle=False
    )
    return model


def kernel(model):
    return model.get_layer("top").kernel.numpy().copy()


def test_weight_vectors_have_unit_length_after_every_step_and_features_are_trained():
    norms, model = Norms(), network()
    start = model.layers[0].kernel.numpy().copy()
    fit(model, WVNCallback(), norms)
    assert len(norms.seen) == 6
    assert np.allclose(norms.seen, 1, atol=1e-6)
    assert not np.allclose(model.layers[0].kernel.numpy(), start)
    assert not np.allclose(fit(network(), norms) and norms.seen[-1], 1, atol=1e-3)


def test_steps_are_those_of_projected_gradient_descent_in_numpy():
    """One linear layer and plain SGD: every step is w - lr grad, then columns of unit length."""
    model = keras.Sequential([keras.Input((8,)), L.Dense(3, name="top", use_bias=False)])
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    w = kernel(model).astype(np.float64)
    w /= np.linalg.norm(w, axis=0)
    fit(model, WVNCallback(), epochs=1)
    for x, y in zip(np.split(X, 3), np.split(Y, 3), strict=True):
        p = np.exp(x @ w)
        p /= p.sum(axis=1, keepdims=True)
        w -= 0.1 * x.T @ (p - np.eye(3)[y]) / len(x)
        w /= np.linalg.norm(w, axis=0)
    assert np.allclose(kernel(model), w, atol=1e-5)


def test_head_is_leveled_when_fit_ends_and_as_trained_when_the_next_begins():
    plain, leveled = network(), network()
    callback = RescaleCallback(COUNTS, gamma=0.5)
    fit(plain)
    fit(leveled, callback)
    factors = (COUNTS.max() / COUNTS) ** 0.5
    assert np.allclose(kernel(leveled), kernel(plain) * factors, rtol=1e-5)
    assert callback.adjusted is not None
    assert callback.adjusted.layers == ("top",)
    fit(plain)
    fit(leveled, callback)
    assert np.allclose(kernel(leveled), kernel(plain) * factors, rtol=1e-4)


def test_weights_loaded_since_stay():
    model, callback = network(), RescaleCallback(COUNTS, gamma=0.5)
    fit(model, callback)
    model.get_layer("top").kernel.assign(np.ones((5, 3)))
    callback.on_train_begin()
    assert (kernel(model) == 1).all()


@pytest.mark.filterwarnings(
    "ignore::levelhead.support.warnings.NeverPredictedWarning"
)  # after a fit this short
def test_choice_is_applied_whatever_its_rule():
    plain, leveled = network(), network()
    fit(plain)
    logits = keras.ops.convert_to_numpy(plain(X))
    tuned = lh.match_prior(logits, COUNTS, rule="shift", bootstrap=0)
    fit(leveled, LevelCallback(tuned))
    shift = tuned.gamma * np.log(COUNTS.max() / COUNTS)
    assert np.allclose(keras.ops.convert_to_numpy(leveled(X)), logits + shift, atol=1e-4)


def test_what_does_not_fit_is_refused_before_the_first_step():
    model = network()
    before = kernel(model)
    with pytest.raises(ValueError, match="expected 3 counts"):
        fit(model, RescaleCallback([5, 4], gamma=0.5))
    with pytest.raises(ValueError, match="steps_per_execution"):
        fit(network(steps_per_execution=2), WVNCallback())
    with pytest.raises(ValueError, match="called 'nowhere'"):
        fit(model, WVNCallback("nowhere"))
    assert np.array_equal(kernel(model), before)
