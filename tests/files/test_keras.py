"""Keras files: .keras and .weights.h5, adjusted without Keras, judged by what real Keras does with them."""

import json
import zipfile

import numpy as np
import pytest

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from ..keras_library import MARKS, L, keras

h5py = pytest.importorskip("h5py")

pytestmark = MARKS

COUNTS = [100, 25, 4]
FACTORS = np.array([1.0, 2.0, 5.0])  # (100 / n)^0.5
X = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


def sequential(*more, **options):
    return keras.Sequential(
        [keras.Input((8,)), L.Dense(3, activation="relu"), L.Dense(3, name="top", **options), *more]
    )


def nested():
    i = keras.Input((8,))
    body = keras.Sequential(
        [keras.Input((8,)), L.Dense(3, name="top")], name="body"
    )  # the same name as the head's
    return keras.Model(i, L.Dropout(0.5)(L.Dense(3, name="top")(L.ReLU()(body(i)))))


def model_inside():
    i = keras.Input((8,))
    return keras.Model(
        i, keras.Sequential([keras.Input((8,)), L.Dense(3), L.Dense(3, name="top")])(L.Dense(8)(i))
    )


def averaged():
    i = keras.Input((8,))
    return keras.Model(
        i, L.Average()([L.Dense(3, name="a")(i), L.Dense(3, name="b")(L.Dense(3)(i))])
    )


def pixels():
    i = keras.Input((4, 2, 1))
    return keras.Model(
        i, L.GlobalAveragePooling2D()(L.Conv2D(3, 1, name="top")(L.Conv2D(5, 3, padding="same")(i)))
    )


def steps():
    i = keras.Input((4, 2))
    return keras.Model(i, L.GlobalAveragePooling1D()(L.TimeDistributed(L.Dense(3, name="top"))(i)))


MODELS = {  # how to make it, and what names its head among the weights alone
    "sequential": (sequential, "top"),
    "nested": (nested, "layers/dense"),
    "model inside": (model_inside, "top"),
    "averaged": (averaged, "a,b"),
    "1x1 convolution": (pixels, "top"),
    "time distributed": (steps, "top"),
    "no bias": (lambda: sequential(use_bias=False), "layers.dense_1"),
    "float64": (lambda: sequential(dtype="float64"), "top"),
    "softmax": (lambda: sequential(L.Softmax()), "top"),
}


def trained(make):
    network, rng = make(), np.random.default_rng(1)
    for weight in network.weights:
        weight.assign(rng.normal(size=tuple(weight.shape)))
    network.compile("adam", "mse")
    inputs = X.reshape(-1, *network.input_shape[1:])
    network.fit(
        inputs, np.ones((6, 3)), verbose=0
    )  # the optimizer's variables have the kernels' shapes
    return network


def logits(model):
    out = keras.ops.convert_to_numpy(model(X.reshape(-1, *model.input_shape[1:]))).astype(
        np.float64
    )
    return np.log(out) if isinstance(model.layers[-1], L.Softmax) else out


def same(a, b, model):
    """Return whether two are equal; log-probabilities up to a constant per row."""
    if isinstance(model.layers[-1], L.Softmax):
        a, b = (x - x.mean(axis=1, keepdims=True) for x in (a, b))
    return np.allclose(a, b, atol=1e-4)


def scaled(model):
    """Return the logits that the head should give, from a model without what follows it."""
    if isinstance(model.layers[-1], L.Softmax):
        return logits_before_softmax(model) * FACTORS
    return logits(model) * FACTORS


def logits_before_softmax(model):
    return keras.ops.convert_to_numpy(model.get_layer("top")(model.layers[0](X))).astype(np.float64)


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
@pytest.mark.parametrize("kind", MODELS)
def test_real_keras_gives_the_scaled_logits_and_undo_the_same_bytes(kind, suffix, tmp_path):
    path, out, back = (tmp_path / f"{name}{suffix}" for name in ("m", "out", "back"))
    make, name = MODELS[kind]
    model = trained(make)
    expected = scaled(model)
    if suffix == ".keras":
        model.save(path)
        adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
        changed = keras.models.load_model(out)
    else:
        model.save_weights(path)
        adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS, head=name)
        changed = keras.models.clone_model(model)
        changed.load_weights(out)
    assert same(logits(changed), expected, model)
    assert (inspect_file(out).adjusted or {})["strength"] == 0.5
    with pytest.raises(ValueError, match="was adjusted before"):
        adjust_file(out, tmp_path / f"twice{suffix}", lh.rules.Rescale(0.5), COUNTS)
    assert undo_file(out, back).exact
    assert back.read_bytes() == path.read_bytes()
    out.with_name(f"{out.name}.original").unlink()
    assert not undo_file(out, back, force=True).exact
    assert inspect_file(back, head=None if suffix == ".keras" else name).adjusted is None


def test_only_the_head_changes(tmp_path):
    model = trained(nested)
    model.save(tmp_path / "m.keras")
    adjust_file(tmp_path / "m.keras", tmp_path / "out.keras", lh.rules.Rescale(0.5), COUNTS)
    changed = keras.models.load_model(tmp_path / "out.keras")
    head = {id(w) for w in model.layers[-2].weights}
    for old, new in zip(model.weights, changed.weights, strict=True):
        by = FACTORS if id(old) in head else 1
        assert np.allclose(new.numpy(), old.numpy() * by)
    for old, new in zip(model.optimizer.variables, changed.optimizer.variables, strict=True):
        assert np.array_equal(old.numpy(), new.numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_stays_half(dtype, tmp_path):
    model = sequential(dtype=dtype)
    model.save(tmp_path / "m.keras")
    adjust_file(tmp_path / "m.keras", tmp_path / "out.keras", lh.rules.Rescale(0.5), COUNTS)
    changed = keras.models.load_model(tmp_path / "out.keras").get_layer("top").kernel
    old = keras.ops.convert_to_numpy(keras.ops.cast(model.get_layer("top").kernel, "float32"))
    assert changed.dtype == dtype
    assert np.allclose(
        keras.ops.convert_to_numpy(keras.ops.cast(changed, "float32")), old * FACTORS, rtol=2**-8
    )


def test_tuned_shift_is_added_to_the_bias(tmp_path):
    model = trained(sequential)
    before = logits(model)
    model.save(tmp_path / "m.keras")
    tuned = lh.tune_unlabelled(before, counts=COUNTS, rule="shift")
    done = adjust_file(tmp_path / "m.keras", tmp_path / "out.keras", tuned)
    assert np.allclose(
        logits(keras.models.load_model(tmp_path / "out.keras")), before + done.offset, atol=1e-4
    )


class Subclassed(keras.Model):
    def __init__(self, body=5):
        super().__init__()
        self.fc, self.head = L.Dense(body), L.Dense(3)

    def call(self, x):
        return self.head(self.fc(x))


def test_subclassed_model_is_read_by_names_and_shapes(tmp_path):
    model = Subclassed()
    model(X)
    model.save(tmp_path / "m.keras")
    assert [layer.key for layer in inspect_file(tmp_path / "m.keras", counts=COUNTS).layers] == [
        "head"
    ]
    before = keras.ops.convert_to_numpy(model(X))
    model.save_weights(tmp_path / "m.weights.h5")
    adjust_file(
        tmp_path / "m.weights.h5", tmp_path / "out.weights.h5", lh.rules.Rescale(0.5), COUNTS
    )
    model.load_weights(tmp_path / "out.weights.h5")
    assert np.allclose(keras.ops.convert_to_numpy(model(X)), before * FACTORS, atol=1e-5)


class Normed(Subclassed):
    def __init__(self):
        super().__init__()
        self.norm = L.LayerNormalization()

    def call(self, x):
        return self.norm(self.head(self.fc(x)))


class NormedAfter(Subclassed):
    def __init__(self):
        super().__init__()
        self.after = L.LayerNormalization()

    def call(self, x):
        return self.after(self.head(self.fc(x)))


@pytest.mark.parametrize("kind", [Normed, NormedAfter])  # behind and before `layers`, by name
def test_norm_behind_the_head_of_a_subclassed_model_is_seen(kind, tmp_path):
    model = kind()
    model(X)
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="of its 3 outputs seems to follow"):
        adjust_file(tmp_path / "m.keras", tmp_path / "o.keras", lh.rules.Shift(0.5), COUNTS)


def test_lambda_is_never_run(tmp_path):
    ran = tmp_path / "ran"
    i = keras.Input((8,))
    model = keras.Model(
        i,
        L.Dense(3, name="top")(L.Lambda(lambda x, ran=str(ran): [open(ran, "w").close(), x][1])(i)),
    )
    model.save(tmp_path / "m.keras")
    ran.unlink(missing_ok=True)
    assert inspect_file(tmp_path / "m.keras").layers[0].shape == (8, 3)
    adjust_file(tmp_path / "m.keras", tmp_path / "out.keras", lh.rules.Rescale(0.5), COUNTS)
    undo_file(tmp_path / "out.keras", tmp_path / "back.keras")
    assert not ran.exists()


def two_outputs():
    i = keras.Input((8,))
    return keras.Model(i, [L.Dense(3, name="a")(i), L.Dense(3, name="b")(i)])


def quantized():
    model = sequential()
    model.get_layer("top").quantize("int8")
    return model


REFUSED = {
    "two outputs": (two_outputs, r"more than one layer could be the head: a \[3\], b \[3\]"),
    "quantized": (quantized, "it is quantized.*before quantizing"),
    "norm after": (
        lambda: sequential(L.BatchNormalization()),
        "comes from batch_normalization.*name the layer",
    ),
    "lambda after": (lambda: sequential(L.Lambda(lambda x: x)), r"comes from lambda.*Lambda"),
    "relu head": (lambda: sequential(activation="relu"), "activation is relu"),
    "relu after": (
        lambda: sequential(L.Activation("relu")),
        "activation relu of activation.* follows the head",
    ),
    "sigmoid": (lambda: sequential(activation="sigmoid"), "several labels per sample"),
    "one logit": (lambda: keras.Sequential([keras.Input((8,)), L.Dense(1)]), "single logit"),
    "wrong number": (
        lambda: keras.Sequential([keras.Input((8,)), L.Dense(7)]),
        "expected 7 counts",
    ),
}


@pytest.mark.filterwarnings("ignore")  # quantize builds layers in a way that Keras warns of
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_adjusted_is_refused_and_nothing_is_written(kind, tmp_path):
    make, reason = REFUSED[kind]
    keras.utils.clear_session()
    make().save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match=reason):
        adjust_file(
            tmp_path / "m.keras",
            tmp_path / "out.keras",
            lh.rules.Rescale(0.5),
            COUNTS if kind != "one logit" else [9, 1],
        )
    assert [file.name for file in tmp_path.iterdir()] == ["m.keras"]


def test_norm_after_the_head_is_seen_among_weights_alone(tmp_path):
    i = keras.Input((8,))
    keras.Model(i, L.BatchNormalization()(L.Dense(3)(i))).save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(ValueError, match="batch_normalization of its 3 outputs"):
        inspect_file(tmp_path / "m.weights.h5")


def test_several_matrices_of_weights_alone_are_listed(tmp_path):
    sequential().save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(
        ValueError, match=r"more than one.*layers.dense \[3, 8\], layers.dense_1 \[3, 3\]"
    ):
        inspect_file(tmp_path / "m.weights.h5")
    assert inspect_file(tmp_path / "m.weights.h5", head="top").layers[0].key == "layers.dense_1"


def rezip(path, out, **records):
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, records.get(name.partition(".")[0], old.read(name)))


@pytest.mark.parametrize(
    "config",
    [
        b"{", b"[]", b"3", b'{"class_name": "Functional"}',
        b'{"module": "keras", "class_name": "Functional", "config": 5}',
        b'{"module": "keras", "class_name": "Sequential", "config": {"layers": []}}', b"\xff\xfe",
        b'{"module": "keras", "class_name": "Functional", "config": {"layers": [], "output_layers": ["x", 0, 0]}}',
        b'{"module": "keras", "class_name": "Functional", "config": {"layers": [], "output_layers": "word"}}',
        b'{"module": "keras", "class_name": "Functional", "config": {"layers": [], "output_layers": ["x", 1e999, 0]}}',
        b'{"module": "keras", "class_name": "Functional", "config": {"layers": [{"module": "keras", "class_name": '
        b'"Dropout", "config": {"name": "a"}, "inbound_nodes": [{"args": [{"class_name": "__keras_tensor__", "config": '
        b'{"keras_history": ["a", 0, 0]}}]}]}], "output_layers": ["a", 0, 0]}}',
    ],
)  # fmt: skip
def test_damaged_config_is_refused(config, tmp_path):
    sequential().save(tmp_path / "m.keras")
    rezip(tmp_path / "m.keras", tmp_path / "bad.keras", config=config)
    with pytest.raises(lh.LevelheadError):
        inspect_file(tmp_path / "bad.keras")


def test_a_graph_of_many_forks_is_walked_once(tmp_path):
    """Each of 60 sums doubles the number of ways from the output to the head."""
    i = keras.Input((8,))
    x = L.Dense(3, name="top")(i)
    for _ in range(60):
        x = L.Average()([x, x])
    model = keras.Model(i, L.Softmax()(x))
    model.save(tmp_path / "m.keras")
    adjust_file(tmp_path / "m.keras", tmp_path / "o.keras", lh.rules.Rescale(0.5), [100, 25, 1])
    lh.rescale_(model, [100, 25, 1], gamma=0.5)
    written = keras.saving.load_model(tmp_path / "o.keras")
    np.testing.assert_array_equal(written.get_layer("top").kernel, model.get_layer("top").kernel)


def test_layer_of_another_package_called_dense_is_not_a_head(tmp_path):
    sequential().save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as saved:
        config = json.loads(saved.read("config.json"))
    config["config"]["layers"][-1] |= {"module": "mine", "registered_name": "mine>Dense"}
    rezip(tmp_path / "m.keras", tmp_path / "own.keras", config=json.dumps(config).encode())
    with pytest.raises(ValueError, match=r"comes from top \(Dense\), not"):
        inspect_file(tmp_path / "own.keras")


def test_arrays_that_are_compressed_linked_or_cut_are_refused(tmp_path):
    sequential().save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "packed.weights.h5", "w") as file:
        file.create_dataset("top/vars/0", data=np.ones((8, 3), np.float32), compression="gzip")
    with pytest.raises(ValueError, match="not in one piece"):
        inspect_file(tmp_path / "packed.weights.h5")
    with h5py.File(tmp_path / "linked.weights.h5", "w") as file:
        file["top/vars/0"] = h5py.ExternalLink(
            str(tmp_path / "m.weights.h5"), "layers/dense_1/vars/0"
        )
    with pytest.raises(ValueError, match="neither an array nor a group"):
        inspect_file(tmp_path / "linked.weights.h5")
    whole = (tmp_path / "m.weights.h5").read_bytes()
    for length in (0, 8, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.weights.h5").write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut short|outside"):
            inspect_file(tmp_path / "cut.weights.h5", head="top")


@pytest.mark.parametrize(
    "kind", ["nested", "model inside", "averaged", "1x1 convolution", "time distributed"]
)
def test_weights_of_keras_before_3_4_state_no_names_and_are_found_by_their_classes(kind, tmp_path):
    model = trained(MODELS[kind][0])
    expected = scaled(model)
    model.save(tmp_path / "new.keras")
    with zipfile.ZipFile(tmp_path / "new.keras") as saved:
        (tmp_path / "w.h5").write_bytes(saved.read("model.weights.h5"))
    with h5py.File(tmp_path / "w.h5", "r+") as file:
        groups = [file]
        file.visititems(lambda _, found: groups.append(found))
        for group in groups:
            group.attrs.pop("name", None)
    rezip(tmp_path / "new.keras", tmp_path / "m.keras", model=(tmp_path / "w.h5").read_bytes())
    adjust_file(tmp_path / "m.keras", tmp_path / "o.keras", lh.rules.Rescale(0.5), COUNTS)
    assert same(logits(keras.models.load_model(tmp_path / "o.keras")), expected, model)


def test_operations_of_keras_before_3_4_have_their_names_beside_their_configs(tmp_path):
    i = keras.Input((8,))
    x = L.Dense(3, name="top")(i)
    keras.Model(i, [x, keras.ops.argmax(x, axis=-1)]).save(tmp_path / "new.keras")
    with zipfile.ZipFile(tmp_path / "new.keras") as saved:
        config = json.loads(saved.read("config.json"))
    del config["config"]["layers"][-1]["config"]["name"]
    rezip(tmp_path / "new.keras", tmp_path / "m.keras", config=json.dumps(config).encode())
    adjust_file(tmp_path / "m.keras", tmp_path / "o.keras", lh.rules.Rescale(0.5), COUNTS)
    adjust_file(tmp_path / "new.keras", tmp_path / "n.keras", lh.rules.Rescale(0.5), COUNTS)
    files = [keras.models.load_model(tmp_path / name) for name in ("new.keras", "n.keras")]
    before, after = (keras.ops.convert_to_numpy(model.get_layer("top").kernel) for model in files)
    assert np.allclose(after, before * FACTORS)
    with (
        zipfile.ZipFile(tmp_path / "o.keras") as ours,
        zipfile.ZipFile(tmp_path / "n.keras") as same,
    ):
        assert ours.read("model.weights.h5") == same.read("model.weights.h5")


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path):
    sequential().save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as saved:
        config = json.loads(saved.read("config.json"))
    config["config"]["layers"][-1]["config"]["units"] = 4
    rezip(tmp_path / "m.keras", tmp_path / "bad.keras", config=json.dumps(config).encode())
    with pytest.raises(ValueError, match=r"weights do not fit its config\.json"):
        inspect_file(tmp_path / "bad.keras")


def test_old_format_says_how_to_convert_it(tmp_path):
    with pytest.raises(
        ValueError, match=r"old format; save it as .keras or .weights.h5, as by keras.* in Python"
    ) as told:
        inspect_file(tmp_path / "m.h5")
    model = trained(sequential)
    path, new = str(tmp_path / "m.h5"), str(tmp_path / "m.keras")
    model.save(path)
    command = str(told.value).partition("as by ")[2].partition(" in Python")[0]
    exec(command.replace("'m.h5'", repr(path)).replace("'m.keras'", repr(new)), {"keras": keras})
    adjust_file(new, tmp_path / "o.keras", lh.rules.Rescale(0.5), COUNTS)
    assert same(logits(keras.models.load_model(tmp_path / "o.keras")), scaled(model), model)
