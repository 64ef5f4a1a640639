"""Keras callbacks: what the kernel is after every step of a real fit, and what is left when it ends."""

import numpy as np
import pytest

import levelhead as lh

from ..keras_library import MARKS, L, keras

# isort: split
from levelhead.hosts.keras import AdjustCallback, WVNCallback  # imports Keras

pytestmark = MARKS

RNG = np.random.default_rng(0)
Y = RNG.choice(3, size=96, p=[0.8, 0.15, 0.05])
X = (RNG.normal(size=(96, 8)) + Y[:, None]).astype(np.float32)
COUNTS = np.bincount(Y)
# Backends draw other weights from one seed. With few units some networks have none that is on for
# half of the samples, and then no direction that a head without a bias could take offsets along.
WIDTH = 32


def network(activation=None, bias=True, **compiled):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8,)),
            L.Dense(WIDTH, activation="relu"),
            L.Dense(3, name="top", activation=activation, use_bias=bias),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=activation is None)
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


def test_averages_that_the_optimizer_leaves_have_unit_length():
    model = network()
    model.optimizer.use_ema = True
    model.optimizer.ema_momentum = 0.9
    fit(model, WVNCallback())
    assert np.allclose(np.linalg.norm(kernel(model), axis=0), 1, atol=1e-6)


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
    callback = AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS)
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
    model, callback = network(), AdjustCallback(lh.rules.Rescale(0.5), counts=COUNTS)
    fit(model, callback)
    model.get_layer("top").kernel.assign(np.ones((WIDTH, 3)))
    callback.on_train_begin()
    assert (kernel(model) == 1).all()


def held_out(counts=(60, 60, 60)):
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], counts)
    return (rng.normal(size=(len(y), 8)) + y[:, None]).astype(np.float32), y


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NegativeLogitsWarning")
def test_choice_is_applied_whatever_its_rule():
    plain = fit(network())
    x, y = held_out()
    logits = keras.ops.convert_to_numpy(plain(x))
    for rule in ("offsets", "vector"):
        tuned = lh.tune(logits, y, COUNTS, rule=rule)
        fit(leveled := network(), AdjustCallback(tuned))
        adjusted = keras.ops.convert_to_numpy(leveled(x))
        assert np.allclose(adjusted, tuned.apply(logits), atol=1e-4)


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_it_is_tuned_on_validation_data(activation, capfd):
    plain, leveled, validation = network(activation), network(activation), held_out()
    fit(plain, epochs=10)
    callback = AdjustCallback(validation=validation, counts=COUNTS)
    fit(leveled, callback, epochs=10)
    outputs = plain.predict(validation[0], verbose=0)
    kind = "logits" if activation is None else "probabilities"
    tuned = lh.tune(outputs, validation[1], COUNTS, kind=kind)
    assert callback.tuned.kind == kind
    assert callback.tuned.worthwhile
    assert np.allclose(callback.tuned.adjustment.offset, tuned.adjustment.offset, atol=1e-3)
    bias = plain.get_layer("top").bias.numpy() + tuned.adjustment.offset
    assert np.allclose(leveled.get_layer("top").bias.numpy(), bias, atol=1e-3)
    assert np.allclose(kernel(leveled), kernel(plain), atol=1e-6)
    assert "applied to top" in capfd.readouterr().err
    assert "applied to top" in callback.verdict


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_a_head_without_a_bias_takes_offsets_into_its_kernel(activation, tmp_path, capfd):
    model, (x, y) = network(activation, bias=False), held_out()
    callback = AdjustCallback(validation=(x, y), counts=COUNTS, anyway=True)
    fit(model, callback, epochs=10)
    assert callback.adjusted.rule == "offsets"
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    after = loaded.predict(x, verbose=0)
    assert "of each offset" in capfd.readouterr().err
    callback.adjusted.restore()
    before = model.predict(x, verbose=0)
    features = keras.ops.convert_to_numpy(model.layers[0](x))
    kind = "logits" if activation is None else "probabilities"
    by_hand = lh.tune(before, y, COUNTS, kind=kind, features=features)
    assert callback.tuned.reach == pytest.approx(by_hand.reach, abs=1e-4)
    assert callback.tuned.gain == pytest.approx(by_hand.gain, abs=1e-6)
    moved = np.outer(features @ callback.adjusted.along.direction, by_hand.adjustment.offset)
    if activation is None:
        assert np.allclose(after, before + moved, atol=1e-4)
    else:
        wanted = before * np.exp(moved)
        assert np.allclose(after, wanted / wanted.sum(axis=1, keepdims=True), atol=1e-4)


def test_given_offsets_go_into_the_kernel_of_a_head_without_a_bias():
    model, (x, _) = network(bias=False), held_out()
    shift = lh.rules.Shift(1.0)
    callback = AdjustCallback(shift, counts=COUNTS, validation=(x, None))
    fit(model, callback, epochs=10)
    after = model.predict(x, verbose=0)
    callback.adjusted.restore()
    before = model.predict(x, verbose=0)
    features = keras.ops.convert_to_numpy(model.layers[0](x))
    reach = features @ callback.adjusted.along.direction
    assert np.allclose(after, before + np.outer(reach, np.log(COUNTS.max() / COUNTS)), atol=1e-4)
    with pytest.raises(lh.LevelheadError, match=r"cannot give top a bias.*pass validation"):
        fit(network(bias=False), AdjustCallback(shift, counts=COUNTS))
    for rule in (shift, lh.rules.Rescale(0.5)):
        with pytest.raises(lh.LevelheadError, match="validation: used beside by only"):
            fit(network(), AdjustCallback(rule, counts=COUNTS, validation=(x, None)))


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.NegativeLogitsWarning")
def test_a_head_without_a_bias_and_without_a_graph_is_scaled():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.body = L.Dense(5, activation="relu")
            self.top = L.Dense(3, name="top", use_bias=False)

        def call(self, x):
            return self.top(self.body(x))

    keras.utils.set_random_seed(0)
    model = Own()
    model(X)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    callback = AdjustCallback(validation=held_out(), counts=COUNTS, anyway=True, layer="top")
    with pytest.warns(
        lh.warnings.LevelheadWarning, match="scaled: features: the graph of the model"
    ):
        fit(model, callback)
    assert callback.adjusted.rule == "scales"


def test_validation_data_that_cannot_be_predicted_leave_the_head_as_trained():
    model = network()
    x, y = held_out()
    callback = AdjustCallback(validation=(x[:, :5], y))
    with pytest.warns(lh.warnings.LevelheadWarning, match="stays as it was trained, as tuning on"):
        fit(model, callback)
    assert callback.adjusted is None
    with pytest.raises(ValueError, match="by: expected one of these"):
        AdjustCallback()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"counts": [5, 4]}, "counts: expected 3 counts, one per class, got 2"),
        ({"counts": {"ant": 5, "bee": 4, "cat": 3}}, "counts: .*in class order$"),
        ({"y": lambda y: y[:-1]}, r"validation: .*got \d+ labels and \d+ rows"),
        ({"y": lambda y: np.eye(3)[y]}, "validation: .*one-hot"),
        ({"y": lambda y: y + 1}, "validation: .*subtract 1"),
        ({"y": lambda y: None}, "validation: expected .x, y., got no labels"),
        ({"activation": "softmax", "rule": "tau"}, "rule: 'tau' multiplies logits"),
        ({"rule": "auto"}, "rule: expected 'offsets'"),
        ({"activation": "sigmoid"}, "top gives several labels per sample"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_the_first_step(given, message):
    x, y = held_out()
    labels = given.pop("y", lambda y: y)(y)
    model = network(given.pop("activation", None))
    before = kernel(model)
    with pytest.raises(lh.LevelheadError, match=message):
        fit(model, AdjustCallback(validation=(x, labels), **given))
    assert np.array_equal(kernel(model), before)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("outputs", [3, 1])
def test_probabilities_that_round_to_0_or_1_are_no_votes(dtype, outputs):
    """A softmax or sigmoid is chosen for as by the logits before it, here the inputs themselves."""
    classes = max(outputs, 2)
    labels = np.repeat(np.arange(classes), [200, 60, 20][:classes])
    logits = np.random.default_rng(0).normal(size=(len(labels), classes)).astype(np.float32)
    logits += np.eye(classes, dtype=np.float32)[labels] + np.float32([2, 1, 0][:classes])
    logits[::20] = 200 * np.eye(classes)[labels[::20]]  # of these it is certain
    x = logits
    if outputs == 1:
        x = logits[:, 1:] - logits[:, :1]
    activation = "softmax" if outputs > 1 else "sigmoid"
    top = L.Dense(outputs, activation=activation, kernel_initializer="identity", dtype=dtype)
    model = keras.Sequential([keras.Input((outputs,)), top])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    probabilities = model.predict(x, verbose=0)
    assert (probabilities == 1).any()
    callback = AdjustCallback(validation=(x, labels), anyway=True)
    model.fit(x, probabilities, verbose=0, callbacks=[callback])
    assert callback.adjusted is not None
    offset = lh.tune(logits, labels).adjustment.offset
    assert callback.tuned.adjustment.offset == pytest.approx(offset, abs=0.1)


def test_a_model_of_several_outputs_is_refused_before_the_first_step():
    inputs = keras.Input((8,))
    model = keras.Model(inputs, {"top": L.Dense(3, name="top")(inputs), "size": L.Dense(1)(inputs)})
    model.compile("sgd", {"top": "mse", "size": "mse"})
    before = kernel(model)
    with pytest.raises(lh.LevelheadError, match="needs one output, and it has 2"):
        model.fit(
            X,
            {"top": np.eye(3)[Y], "size": X[:, :1]},
            verbose=0,
            callbacks=[AdjustCallback(validation=held_out(), layer="top")],
        )
    assert np.array_equal(kernel(model), before)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return (held_out()[0][60 * i : 60 * i + 60],)


def test_labels_may_be_the_names_of_counts_and_inputs_a_data_set():
    x, y = held_out()
    names = np.array(["cat", "ant", "bee"])
    counts = dict(zip(names.tolist(), COUNTS.tolist(), strict=True))
    for inputs in (x, Batches()):
        callback = AdjustCallback(validation=(inputs, names[y]), counts=counts)
        # Long enough that it knows its classes from any first weights: else their order is in doubt.
        fit(network(), callback, epochs=10)
        assert callback.tuned.names == tuple(names)


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
def test_tau_goes_by_the_norms_of_the_kernel_as_trained():
    callback = AdjustCallback(validation=held_out(), counts=COUNTS, rule="tau", anyway=True)
    model = fit(network(), callback)
    scale = callback.tuned.adjustment.scale
    callback.adjusted.restore()
    norms = np.linalg.norm(kernel(model), axis=0)
    assert np.allclose(scale, norms**-callback.tuned.strength, rtol=1e-4)


def test_what_does_not_fit_is_refused_before_the_first_step():
    model = network()
    before = kernel(model)
    with pytest.raises(ValueError, match="expected 3 counts"):
        fit(model, AdjustCallback(lh.rules.Rescale(0.5), counts=[5, 4]))
    with pytest.raises(ValueError, match="steps_per_execution"):
        fit(network(steps_per_execution=2), WVNCallback())
    with pytest.raises(ValueError, match="called 'nowhere'"):
        fit(model, WVNCallback("nowhere"))
    assert np.array_equal(kernel(model), before)
