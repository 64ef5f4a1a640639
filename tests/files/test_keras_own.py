"""Keras models with layers of one's own: what they do is not known, but what follows them is."""

import os

import numpy as np
import pytest

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.keras_config import head_in_config
from levelhead.files.model import adjust_file

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="Keras is not installed: pip install keras h5py")

L = keras.layers
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras's own, of torch
COUNTS = [100, 25, 4]
FACTORS = np.array([1, 2, 5])


@keras.saving.register_keras_serializable("test")
class Nameless(L.Layer):
    """A layer whose config is only its own."""

    def __init__(self, units=8, **how):
        super().__init__(**how)
        self.units, self.dense = units, L.Dense(units)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)

    def get_config(self):
        return {"units": self.units}


@keras.saving.register_keras_serializable("test")
class WithSettings(L.Layer):
    """A layer whose config has entries of the names that Keras has, and other things in them."""

    def __init__(self, layer=None, activation=None, **how):
        super().__init__(**how)
        self.settings = {"layer": {"width": 3}, "activation": {"alpha": 0.1}}

    def call(self, x):
        return x * 2

    def get_config(self):
        return {**super().get_config(), **self.settings}


@keras.saving.register_keras_serializable("test")
class OwnModel(keras.Model):
    """A functional model that is a class of one's own."""

    def __init__(self, **how):
        inputs = keras.Input((8,))
        super().__init__(inputs, L.Dense(3, name="top")(inputs), **how)

    def get_config(self):
        return {}


def functional(*layers):
    x = inputs = keras.Input((8,))
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, x)


def sequential(*layers):
    return keras.Sequential([keras.Input((8,)), *layers])


BEFORE = {
    "one without a name in its config": lambda make: make(Nameless(), L.Dense(3, name="top")),
    "two of them": lambda make: make(Nameless(), Nameless(), L.Dense(3, name="top"), L.Softmax()),
    "one with settings of its own": lambda make: make(WithSettings(), L.Dense(3, name="top")),
}


@pytest.mark.parametrize("make", [functional, sequential])
@pytest.mark.parametrize("kind", BEFORE)
def test_a_head_behind_layers_of_ones_own_is_found(kind, make, tmp_path):
    model = BEFORE[kind](make)
    path, out = tmp_path / "m.keras", tmp_path / "out.keras"
    model.save(path)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    before, after = (
        keras.models.load_model(file).get_layer("top").get_weights()[0] for file in (path, out)
    )
    np.testing.assert_allclose(after, before * FACTORS, rtol=1e-6)


AFTER = {
    "without a name": (lambda: sequential(Nameless(3)), "layers.nameless.dense"),
    "with settings of its own": (
        lambda: sequential(L.Dense(3, name="top"), WithSettings()),
        "layers.dense",
    ),
    "a model of one's own": (
        lambda: functional(OwnModel()),
        "layers.own_model.layers.dense",
    ),
}


@pytest.mark.parametrize("kind", AFTER)
def test_an_end_of_ones_own_is_named_and_its_layer_can_be(kind, tmp_path):
    make, key = AFTER[kind]
    path = tmp_path / "m.keras"
    make().save(path)
    with pytest.raises(ValueError, match=r"the output comes from .*not from a Dense.*pass head"):
        inspect_file(path)
    assert inspect_file(path, head=key).layers[0].key == key


def test_a_config_of_another_kind_says_that_naming_helps():
    config = {"module": "keras", "class_name": "Functional", "config": {"layers": 3}}
    with pytest.raises(ValueError, match=r"not as Keras writes it.*pass head to name the layer"):
        head_in_config(config, None)
