"""`.keras` files of Keras 2.13, made by tools/make_keras_2_13.py: their layers have other places than in Keras 3."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

import levelhead as lh
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

FILES = Path(__file__).parent / "keras_2_13"
COUNTS = [100, 25, 4]
FACTORS = np.array([1, 2, 5], np.float32)


def arrays(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        weights = io.BytesIO(archive.read("model.weights.h5"))
    values_of = {}
    with h5py.File(weights) as file:
        file.visititems(
            lambda key, one: values_of.update({key: one[()]}) if hasattr(one, "shape") else None
        )
    return values_of


@pytest.mark.parametrize(("name", "place"), [("functional", "dense_4"), ("sequential", "dense_2")])
def test_the_last_layer_is_found_and_only_its_numbers_change(name, place, tmp_path):
    path, out, back = FILES / f"{name}.keras", tmp_path / "out.keras", tmp_path / "back.keras"
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    before, after = arrays(path), arrays(out)
    top = f"_layer_checkpoint_dependencies/{place}/vars"
    assert before.keys() == after.keys()
    for key, old in before.items():
        by = FACTORS if key in (f"{top}/0", f"{top}/1") else np.float32(1)
        np.testing.assert_array_equal(after[key], old * by, err_msg=key)
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


def test_a_layer_among_others_of_its_class_and_size_is_told_apart():
    (layer,) = inspect_file(FILES / "functional.keras").layers
    assert layer.key == "_layer_checkpoint_dependencies.dense_4"


def test_places_that_cannot_be_told_apart_are_refused_unless_the_layer_is_named():
    with pytest.raises(ValueError, match=r"its weights have no layer last.*pass head to name"):
        inspect_file(FILES / "shared.keras")
    named = inspect_file(FILES / "shared.keras", head="_layer_checkpoint_dependencies.dense_2")
    assert named.layers[0].key == "_layer_checkpoint_dependencies.dense_2"


@pytest.mark.parametrize("around", ["", "model_weights/"])
def test_weights_in_the_old_format_are_called_so(around, tmp_path):
    # As Keras 2 wrote them, under the name that Keras 3 asks for.
    path = tmp_path / "m.weights.h5"
    with h5py.File(path, "w") as file:
        file[f"{around}dense/dense/kernel:0"] = np.ones((4, 3), np.float32)
        file[f"{around}dense/dense/bias:0"] = np.ones(3, np.float32)
    with pytest.raises(lh.LevelheadError, match=r"Keras's old format.*save it again with Keras 3"):
        adjust_file(path, tmp_path / "out.weights.h5", lh.rules.Rescale(0.5), COUNTS)
