"""Heads in Keras models: kernels [d, K] found by the graph, adjusted in place, judged by what the logits do."""

import numpy as np
import pytest

import levelhead as lh
from levelhead.core.head import normalize
from levelhead.heads.keras import read, write

from ..keras_library import MARKS, L, keras

pytestmark = MARKS

COUNTS = [100, 25, 4]
FACTORS = np.array([1.0, 2.0, 5.0])  # (100 / n)^0.5
X = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def same_weights_each_time():
    keras.utils.set_random_seed(0)


class Subclassed(keras.Model):
    def __init__(self, activation=None, body=3):
        super().__init__()
        self.fc, self.top = L.Dense(body, activation="tanh"), L.Dense(3, activation=activation)

    def call(self, x):
        return self.top(self.fc(x))


def functional():
    x = i = keras.Input((8,))
    body = keras.Model(i, L.Dense(3, activation="relu", name="inner")(x), name="body")
    i = keras.Input((8,))
    return keras.Model(i, L.Dropout(0.5)(L.Dense(3, name="predictions")(body(i))))


def pixels():
    i = keras.Input((4, 2, 1))
    return keras.Model(
        i, L.GlobalAveragePooling2D()(L.Conv2D(3, 1, name="top")(L.Conv2D(5, 3, padding="same")(i)))
    )


def averaged():
    i = keras.Input((8,))
    return keras.Model(
        i, L.Average()([L.Dense(3, name="a")(i), L.Dense(3, name="b")(L.Dense(4)(i))])
    )


def subclassed(**options):
    model = Subclassed(**options)
    model(X)
    return model


def sequential(*more, **options):
    return keras.Sequential(
        [keras.Input((8,)), L.Dense(5, activation="relu"), L.Dense(3, name="top", **options), *more]
    )


def logits(model, x=X):
    out = keras.ops.convert_to_numpy(
        model(x.reshape(-1, *model.input_shape[1:])) if model.inputs else model(x)
    )
    return out.astype(np.float64)


RIGHT = {
    "sequential": (sequential, {"top"}),
    "no bias": (lambda: sequential(use_bias=False), {"top"}),
    "nested": (functional, {"predictions"}),
    "model inside": (lambda: keras.Sequential([keras.Input((8,)), functional()]), {"predictions"}),
    "1x1 convolution": (pixels, {"top"}),
    "two that are averaged": (averaged, {"a", "b"}),
    "dropout after": (lambda: sequential(L.Dropout(0.3)), {"top"}),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_every_logit_is_scaled_by_its_factor_and_restored(kind):
    make, expected = RIGHT[kind]
    model = make()
    for weight in model.weights:
        weight.assign(np.random.default_rng(1).normal(size=tuple(weight.shape)))
    before = logits(model)
    for counts in (COUNTS, {0: 100, 1: 25, 2: 4}):
        adjusted = lh.rescale_(model, counts, gamma=0.5)
        assert set(adjusted.layers) == expected
        assert np.allclose(logits(model), before * FACTORS, atol=1e-5)
        adjusted.restore()
        assert np.array_equal(logits(model), before)


@pytest.mark.parametrize("activation", ["softmax", "linear"])
def test_probabilities_after_a_softmax_are_those_of_scaled_logits(activation):
    last = [] if activation == "softmax" else [L.Activation("softmax")]
    model = sequential(*last, activation=activation)
    head = read(model)
    features = keras.ops.convert_to_numpy(model.layers[0](X))
    lh.rescale_(model, COUNTS, gamma=0.5)
    scores = np.exp((features @ head.weight.T + head.bias) * FACTORS)
    assert np.allclose(logits(model), scores / scores.sum(axis=1, keepdims=True), atol=1e-5)


def test_tuned_shift_is_added_to_the_bias():
    model = sequential()
    before = logits(model)
    tuned = lh.tune_unlabelled(X[:, :3] + np.float32([2, 1, 0]), counts=COUNTS, rule="shift")
    assert tuned.adjustment.adds  # else there is nothing to add
    with lh.adjust_(model, tuned) as done:
        assert np.allclose(logits(model), before + done.adjustment.offset, atol=1e-5)
    assert np.array_equal(logits(model), before)
    with pytest.raises(ValueError, match=r"use_bias=True"):
        lh.adjust_(sequential(use_bias=False), tuned)


def test_head_of_a_subclassed_model_is_proved_by_an_example():
    model = subclassed(activation="softmax")
    with pytest.raises(ValueError, match=r"not certain: dense.* \[3\].*example"):
        lh.rescale_(model, COUNTS, gamma=0.5)
    weights = [w.numpy().copy() for w in model.weights]
    done = lh.rescale_(model, COUNTS, gamma=0.5, example=X[:2])
    assert done.layers == (model.top.name,)
    assert np.array_equal(model.fc.kernel.numpy(), weights[0])
    assert np.allclose(model.top.kernel.numpy(), weights[2] * FACTORS)
    assert model.top.activation is keras.activations.softmax
    assert lh.rescale_(subclassed(body=7), COUNTS, gamma=0.5).layers[0].startswith("dense")


def test_read_and_write_are_of_the_transposed_kernel():
    model = sequential()
    head = read(model)
    assert head.weight.shape == (3, 5)
    write(model, normalize(head))
    assert np.allclose(np.linalg.norm(model.get_layer("top").kernel.numpy(), axis=0), 1)
    with pytest.raises(ValueError, match=r"expected weight \[3, 5\] for top"):
        write(model, lh.Head(np.ones((3, 4)), np.ones(3)))


def test_half_precision_is_adjusted_in_its_own_dtype():
    model = sequential(dtype="bfloat16")
    before = read(model).weight
    done = lh.rescale_(model, COUNTS, gamma=0.5)
    assert model.get_layer("top").kernel.dtype == "bfloat16"
    assert np.allclose(read(model).weight, before * FACTORS[:, None], rtol=2**-8)
    done.restore()
    assert np.array_equal(read(model).weight, before)


def test_second_adjustment_is_noticed():
    model = sequential()
    done = lh.rescale_(model, COUNTS, gamma=0.5)
    with pytest.raises(ValueError, match="adjusted already"):
        lh.rescale_(model, COUNTS, gamma=0.5)
    done.restore()
    lh.rescale_(model, COUNTS, gamma=0.5)


class Cosine(L.Dense):
    def call(self, x):
        return x @ keras.ops.normalize(self.kernel, axis=0)


def quantized():
    model = sequential()
    model.get_layer("top").quantize("int8")
    return model


def two_outputs():
    i = keras.Input((8,))
    return keras.Model(i, [L.Dense(3, name="a")(i), L.Dense(3, name="b")(i)])


REFUSED = {
    "two outputs": (two_outputs, r"more than one head: a \[3\], b \[3\]"),
    "quantized": (quantized, "quantized"),
    "own call": (lambda: keras.Sequential([keras.Input((8,)), Cosine(3)]), "call of its own"),
    "norm after": (
        lambda: sequential(L.BatchNormalization()),
        r"comes from batch_norm.*BatchNormalization",
    ),
    "relu head": (lambda: sequential(activation="relu"), "its activation is relu"),
    "lambda after": (lambda: sequential(L.Lambda(lambda x: x)), "Lambda"),
    "sigmoid": (lambda: sequential(activation="sigmoid"), "several labels per sample"),
    "one logit": (lambda: keras.Sequential([keras.Input((8,)), L.Dense(1)]), "single logit"),
    "no linear layer": (
        lambda: keras.Sequential([keras.Input((8,)), L.Dropout(0.1)]),
        "InputLayer",
    ),
    "not built": (lambda: keras.Sequential([L.Dense(3)]), "not built"),
    "wrong number": (
        lambda: keras.Sequential([keras.Input((8,)), L.Dense(7)]),
        "expected 7 counts",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_adjusted_is_refused_and_left_as_it_was(kind):
    make, reason = REFUSED[kind]
    model = make()
    before = [np.array(keras.ops.convert_to_numpy(w)) for w in model.weights]
    with pytest.raises(ValueError, match=reason):
        lh.rescale_(model, COUNTS if kind != "one logit" else [9, 1], gamma=0.5)
    for weight, values in zip(model.weights, before, strict=True):
        assert np.array_equal(keras.ops.convert_to_numpy(weight), values)


def test_layer_may_be_named_or_given():
    model = two_outputs()
    assert lh.rescale_(model, COUNTS, gamma=0.5, layer="a").layers == ("a",)
    assert lh.rescale_(model, COUNTS, gamma=0.5, layer=model.get_layer("b")).layers == ("b",)
    with pytest.raises(ValueError, match=r"called 'c'; the model has a \[3\], b \[3\]"):
        lh.rescale_(model, COUNTS, gamma=0.5, layer="c")


def followed_by(after, kind):
    """A model of `top`, whose outputs are turned into others."""
    if kind == "functional":
        i = keras.Input((8,))
        return keras.Model(i, after(L.Dense(3, name="top")(i)))

    class Followed(keras.Model):
        def __init__(self):
            super().__init__()
            self.top = L.Dense(3, name="top")

        def call(self, x):
            return after(self.top(x))

    model = Followed()
    model(X)
    return model


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_an_example_shows_whether_a_change_of_the_layer_named_arrives(kind):
    def adjust(after, rule):
        model = followed_by(after, kind)
        before = model.predict(X, verbose=0)
        done = lh.adjust_(model, rule, COUNTS, layer="top", example=X[:2])
        assert done.checked == "example"
        return before, model.predict(X, verbose=0), done.adjustment

    before, after, by = adjust(lambda z: z, lh.rules.Shift(1.0))
    assert np.allclose(after, before + by.offset, atol=1e-5)
    before, after, by = adjust(lambda z: 3 * z, lh.rules.Rescale(0.5))
    assert np.allclose(after, before * by.scale, atol=1e-4)
    with pytest.raises(ValueError, match="what is added to the bias of top is not added to the"):
        adjust(lambda z: 3 * z, lh.rules.Shift(1.0))
    for rule in (lh.rules.Shift(1.0), lh.rules.Rescale(0.5)):
        with pytest.raises(ValueError, match="does not scale the model's logits one by one"):
            adjust(lambda z: keras.ops.flip(z, axis=1), rule)


def test_an_example_shows_it_of_layers_in_a_mean_and_of_one_of_two_outputs():
    model = averaged()
    before = logits(model)
    done = lh.adjust_(model, lh.rules.Rescale(0.5), COUNTS, layer=["a", "b"], example=X[:2])
    assert done.checked == "example"
    assert np.allclose(logits(model), before * FACTORS, atol=1e-5)
    with pytest.raises(ValueError, match="scaling the columns of a does not scale"):
        lh.rescale_(averaged(), COUNTS, gamma=0.5, layer="a", example=X[:2])
    assert lh.rescale_(two_outputs(), COUNTS, gamma=0.5, layer="a", example=X[:2]).checked


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_example_shows_it_through_the_rounding_of_half_precision(dtype):
    model = sequential(dtype=dtype)
    rule = lh.rules.Shift(1.0)
    assert lh.adjust_(model, rule, COUNTS, layer="top", example=X[:2]).checked == "example"


class Reversed(L.Layer):
    def __init__(self, dense):
        super().__init__()
        self.shared = dense.kernel

    def call(self, x):
        return x @ keras.ops.transpose(self.shared)


def test_weights_that_another_layer_holds_are_refused():
    i, top = keras.Input((8,)), L.Dense(3, name="top")
    top.build((None, 8))
    model = keras.Model(i, top(Reversed(top)(L.Dense(3)(i))))
    with pytest.raises(ValueError, match="tied to reversed"):
        lh.rescale_(model, COUNTS, gamma=0.5)
