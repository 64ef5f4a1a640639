"""Files of formats that are known and not opened: one line names each, and says what works."""

import json
import warnings

import numpy as np
import pytest

from levelhead.files.inspect import inspect_file

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.repeat([0, 1, 2], 20)
PREDICTOR = r"levelhead\.hosts\.predictor\.AdjustedPredictor"


def refusal(path):
    with pytest.raises(ValueError, match=path.name) as error:
        inspect_file(path)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.filterwarnings("ignore:.*UBJSON format as default")
@pytest.mark.parametrize("suffix", [".json", ".ubj", ".model"])
def test_a_model_of_xgboost_is_named(suffix, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    path = tmp_path / f"m{suffix}"
    xgboost.XGBClassifier(n_estimators=2).fit(X, Y).save_model(path)
    message = refusal(path)
    assert "an XGBoost model: trees have no head" in message
    assert "AdjustedPredictor(model, tuned)" in message


@pytest.mark.parametrize("suffix", [".txt", ".model"])
def test_a_model_of_lightgbm_is_named(suffix, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    path = tmp_path / f"m{suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, Y)
    model.booster_.save_model(path)
    assert "a LightGBM model: trees have no head; adjust the scores" in refusal(path)


@pytest.mark.parametrize("name", ["notes.txt", "counts.json"])
def test_other_text_is_not_taken_for_a_booster(name, tmp_path):
    (tmp_path / name).write_text(json.dumps({"a": 1}), encoding="utf-8")
    assert "expected a model as .safetensors" in refusal(tmp_path / name)


NAMED = {
    "m.cbm": ("a CatBoost model", PREDICTOR),
    "m.pte": ("an ExecuTorch program", r"lh\.adjust_\(model, tuned\)"),
    "m.pdparams": ("a Paddle model", PREDICTOR),
    "m.pdmodel": ("a Paddle model", PREDICTOR),
    "m.pdiparams": ("a Paddle model", PREDICTOR),
    "flax_model.msgpack": ("Flax weights as msgpack", r"safetensors\.flax\.save_file"),
    "m.jit": ("a TorchScript archive", r"lh\.adjust_\(model, tuned\)"),
    "m.skops": ("a scikit-learn model as skops", r"levelhead\.hosts\.sklearn\.AdjustedClassifier"),
    "M.JIT": ("a TorchScript archive", r"lh\.adjust_\(model, tuned\)"),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_format_that_is_not_opened_is_named_with_what_works(name, tmp_path):
    kind, instead = NAMED[name]
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(ValueError, match=rf"{name}: {kind}.*{instead}"):
        inspect_file(tmp_path / name)


def test_the_longest_end_of_a_name_says_what_it_is(tmp_path):
    (tmp_path / "m.weights.h5").write_bytes(b"x")
    with pytest.raises(ValueError, match="not HDF5 as Keras writes it"):
        inspect_file(tmp_path / "m.weights.h5")
    (tmp_path / "pytorch_model.bin.index.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="an index of pickled shards"):
        inspect_file(tmp_path / "pytorch_model.bin.index.json")
