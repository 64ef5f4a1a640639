"""What follows a head in a Keras graph: judged alike in memory and in a `.keras` file."""

import numpy as np
import pytest

import levelhead as lh
from levelhead.files.model import adjust_file

from ..keras_library import MARKS, L, keras

pytestmark = MARKS

COUNTS = [100, 25, 4]
LOGITS = np.array([[4.0, 2, 0], [4, 1, 2], [4, 3, 1], [4, 1.5, 3]])


def after(*more, shape=(4, 8), head=None):
    """Return a model of a head of 3 classes and what follows it."""
    x = i = keras.Input(shape)
    for layer in (head or L.Dense(3, name="top"), *more):
        x = layer(x)
    return keras.Model(i, x)


def in_sequence(*more):
    return keras.Sequential([keras.Input((4, 8)), L.Dense(3, name="top"), *more])


def twice(join):
    i, top = keras.Input((8,)), L.Dense(3, name="top")
    return keras.Model(i, join(top(i), top(L.Dense(8, activation="relu")(i))))


def inside_before():
    i, top = keras.Input((8,)), L.Dense(3, name="top")
    body = keras.Model(i, L.ReLU()(top(i)), name="body")
    j = keras.Input((8,))
    return keras.Model(j, top(L.Dense(8)(body(j))))


def inside():
    i, top = keras.Input((8,)), L.Dense(3, name="top")
    body = keras.Model(i, L.Dropout(0.1)(top(i)), name="body")
    j = keras.Input((8,))
    return keras.Model(j, L.Average()([top(j), body(j)]))


def model_applied_twice():
    body = keras.Sequential([keras.Input((8,)), L.Dense(3, name="top")], name="body")
    i = keras.Input((8,))
    return keras.Model(i, L.Average()([body(i), body(L.Dense(8)(i))]))


def turned(top):
    i = keras.Input((3, 8))
    x = top(i)
    return keras.Model(i, L.Average()([x, L.Permute((2, 1))(x)]))


def mean_of_two():
    i = keras.Input((8,))
    return keras.Model(i, L.Average()([L.Dense(3, activation="softmax")(i) for _ in range(2)]))


def beside_an_unknown():
    i = keras.Input((8,))
    scores = L.LayerNormalization()(L.Dense(3)(i))
    return keras.Model(i, [scores, L.Dense(3, name="auxiliary")(i)])


def residual():
    i = keras.Input((8,))
    top = L.Dense(3, name="top")(i)
    more = L.Dense(3)(L.Dense(8, activation="relu")(top))
    return keras.Model(i, L.Add()([top, more]))


class Halved(L.Softmax):
    def call(self, x):
        return x / 2


CHANNELS_FIRST = {"data_format": "channels_first"}
REFUSED = {
    "one layer applied twice": (
        lambda: twice(lambda a, b: L.Add()([a, b])),
        "top is applied 2 times",
    ),
    "applied twice, one of them unseen": (lambda: twice(lambda a, b: [a, L.ReLU()(b)][0]), None),
    "applied in a model inside before": (
        inside_before,
        "top is applied 2 times|its weights have no layer top",
    ),
    "applied in a model inside": (inside, "top is applied 2 times"),
    "model inside applied twice": (model_applied_twice, "top is applied 2 times"),
    "softmax over steps": (lambda: after(L.Softmax(axis=1)), "another axis"),
    "softmax over steps in a sequence": (lambda: in_sequence(L.Softmax(axis=1)), "another axis"),
    "softmax over steps from the end": (lambda: in_sequence(L.Softmax(axis=-2)), "another axis"),
    "softmax over all axes": (lambda: after(L.Softmax(axis=[1, 2])), "another axis"),
    "permuted before softmax": (lambda: after(L.Permute((2, 1)), L.Softmax()), "another axis"),
    "permuted before an activation": (
        lambda: in_sequence(L.Permute((2, 1)), L.Activation("softmax")),
        "another axis",
    ),
    "flattened before softmax": (lambda: after(L.Flatten(), L.Softmax()), "another axis"),
    "channels first, softmax of pixels": (
        lambda: after(shape=(8, 4, 4), head=L.Conv2D(3, 1, activation="softmax", **CHANNELS_FIRST)),
        "another axis",
    ),
    "pooled over classes": (
        lambda: after(L.GlobalAveragePooling1D(**CHANNELS_FIRST)),
        "may mix the classes",
    ),
    "added to itself, turned": (
        lambda: turned(L.Dense(3, name="top")),
        "classes along different axes",
    ),
    "permuted before pooling": (
        lambda: after(L.Permute((2, 1)), L.GlobalAveragePooling1D()),
        "may mix the classes",
    ),
    "two places": (
        lambda: after(L.Reshape((2, 3)), L.Softmax(), shape=(8,), head=L.Dense(6)),
        "6 outputs of the head into 2 places with 3 classes each",
    ),
    "another output's head": (beside_an_unknown, "not from a Dense layer"),
    "a mean of probabilities": (
        lambda: after(L.Softmax(), L.GlobalAveragePooling1D()),
        "follows the probabilities of the head",
    ),
    "probabilities between pixels": (
        lambda: after(
            L.UpSampling2D(interpolation="bilinear"),
            shape=(4, 4, 8),
            head=L.Conv2D(3, 1, activation="softmax"),
        ),
        "follows the probabilities of the head",
    ),
    "two softmaxes": (
        lambda: after(L.Softmax(), L.Softmax()),
        "follows the probabilities of the head",
    ),
    "a softmax of sigmoids": (
        lambda: after(L.Softmax(), head=L.Dense(3, activation="sigmoid")),
        "follows the probabilities of the head",
    ),
    "a mean of two models": (mean_of_two, "follows the probabilities of the head"),
    "a layer on what the head gives": (residual, "takes what it gives"),
    "a softmax of one's own": (lambda: after(Halved()), "not from a Dense layer"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_moves_the_classes_elsewhere_is_refused_in_memory_and_in_the_file(kind, tmp_path):
    make, reason = REFUSED[kind]
    model = make()
    model.save(tmp_path / "m.keras")
    if reason is None:  # the second call is not in the model
        lh.rescale_(model, COUNTS, gamma=0.5)
        adjust_file(tmp_path / "m.keras", tmp_path / "o.keras", lh.rules.Rescale(0.5), COUNTS)
        return
    with pytest.raises(ValueError, match=reason):
        lh.rescale_(model, COUNTS, gamma=0.5)
    with pytest.raises(ValueError, match=reason):
        adjust_file(tmp_path / "m.keras", tmp_path / "o.keras", lh.rules.Rescale(0.5), COUNTS)


RIGHT = {  # what follows the head, and the axis of the classes in the end
    "softmax by a positive axis": (lambda: after(L.Softmax(axis=2)), -1),
    "softmax by a positive axis in a sequence": (lambda: in_sequence(L.Softmax(axis=2)), -1),
    "softmax over what was permuted": (lambda: after(L.Permute((2, 1)), L.Softmax(axis=1)), 1),
    "permuted there and back": (
        lambda: after(L.Permute((2, 1)), L.Permute((2, 1)), L.Softmax()),
        -1,
    ),
    "single steps, flattened": (lambda: after(L.Flatten(), L.Softmax(), shape=(1, 8)), -1),
    "reshaped steps": (lambda: after(L.Reshape((2, 2, 3)), L.Softmax()), -1),
    "channels first": (
        lambda: after(
            L.GlobalAveragePooling2D(**CHANNELS_FIRST),
            L.Softmax(),
            shape=(8, 4, 4),
            head=L.Conv2D(3, 1, **CHANNELS_FIRST),
        ),
        -1,
    ),
    "pixels, copied": (
        lambda: after(L.UpSampling2D(), shape=(4, 4, 8), head=L.Conv2D(3, 1, activation="softmax")),
        -1,
    ),
    "each step by itself": (lambda: after(L.TimeDistributed(L.Activation("softmax"))), -1),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_probabilities_are_those_of_scaled_logits(kind, tmp_path):
    make, axis = RIGHT[kind]
    model = make()
    x = np.random.default_rng(0).normal(size=(5, *model.input_shape[1:])).astype(np.float32)
    model.save(tmp_path / "m.keras")
    before = keras.ops.convert_to_numpy(model(x)).astype(np.float64)
    tuned = lh.tune_unlabelled(LOGITS, counts=COUNTS, rule="shift")
    done = adjust_file(tmp_path / "m.keras", tmp_path / "o.keras", tuned)
    expected = np.exp(np.moveaxis(np.log(before), axis, -1) + done.offset)
    expected = np.moveaxis(expected / expected.sum(-1, keepdims=True), -1, axis)
    with lh.adjust_(model, tuned):
        np.testing.assert_allclose(keras.ops.convert_to_numpy(model(x)), expected, atol=1e-5)
    written = keras.models.load_model(tmp_path / "o.keras")
    np.testing.assert_allclose(keras.ops.convert_to_numpy(written(x)), expected, atol=1e-5)


@pytest.mark.parametrize(
    "join",
    [lambda x: L.Add()([x, x]), lambda x: L.Average()([x, L.Add()([x, x])])],
    ids=["alone", "beside the head"],
)
def test_a_sum_of_a_head_with_itself_is_not_shifted_twice(join, tmp_path):
    i = keras.Input((8,))
    model = keras.Model(i, join(L.Dense(3, name="top")(i)))
    model.save(tmp_path / "m.keras")
    shift, rescale = (
        lh.tune_unlabelled(LOGITS, counts=COUNTS, rule=rule) for rule in ("shift", "rescale")
    )
    for adjust in (
        lambda tuned: lh.adjust_(model, tuned),
        lambda tuned: adjust_file(tmp_path / "m.keras", tmp_path / "o.keras", tuned),
    ):
        with pytest.raises(ValueError, match="is scaled by a constant"):
            adjust(shift)
        adjust(rescale)
