"""The table of model formats, one line for each; and of those that are known, but never opened."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..support.errors import LevelheadError
from ..support.regular_file import bytes_at, check_regular_file
from . import keras, mlx, onnx, safetensors, state_dict
from .format import Format

MODEL_FORMATS = {
    one.name: one
    for one in (
        safetensors.FORMAT,
        onnx.FORMAT,
        state_dict.FORMAT,
        keras.FORMAT,
        keras.WEIGHTS_FORMAT,
        mlx.FORMAT,
    )
}

_RUNS_CODE = "opening it would run whatever code it holds"
_PREDICTOR = "levelhead.hosts.predictor.AdjustedPredictor"
_SCORES = f"adjust its scores ({_PREDICTOR})"
_BEFORE = (
    "adjust it before converting: lh.adjust_(model, tuned) in Python, or its safetensors, ONNX or "
    f"state dict; or {_SCORES}"
)
_BOOSTER = (
    "trees have no head; adjust the scores, by "
    f"{_PREDICTOR}(model, tuned) in Python or `levelhead apply`"
)
_SKLEARN = "use levelhead.hosts.sklearn.AdjustedClassifier in Python"
_TORCHSCRIPT = f"a TorchScript archive: {_RUNS_CODE}; {_BEFORE}"
_OLD_KERAS = (
    "a model in Keras's old format; save it as .keras or .weights.h5, as by "
    "keras.models.load_model('m.h5', compile=False).save('m.keras') in Python, or use "
    "lh.adjust_(model, tuned) there"
)
_OPENVINO, _FASTTEXT = f"an OpenVINO model; {_BEFORE}", f"a fastText model; {_BEFORE}"
_XGBOOST, _LIGHTGBM = f"an XGBoost model: {_BOOSTER}", f"a LightGBM model: {_BOOSTER}"
_PADDLE = f"a Paddle model; {_BEFORE}"

# By suffix, why a file is never opened, and what to do instead.
REFUSED = {
    ".pt2": f"a torch.export archive: {_RUNS_CODE}; {_BEFORE}",
    ".torchscript": _TORCHSCRIPT,
    ".ptl": _TORCHSCRIPT,
    ".jit": _TORCHSCRIPT,
    ".pte": f"an ExecuTorch program; {_BEFORE}",
    ".h5": _OLD_KERAS,
    ".hdf5": _OLD_KERAS,
    ".pb": f"a TensorFlow graph; {_BEFORE}",
    ".tflite": f"a TensorFlow Lite model; {_BEFORE}",
    ".mlmodel": f"a Core ML model; {_BEFORE}",
    ".mlpackage": f"a Core ML model; {_BEFORE}",
    ".xml": _OPENVINO,
    ".gguf": f"a GGUF model; {_BEFORE}",
    ".ftz": _FASTTEXT,
    ".engine": f"a TensorRT engine; {_BEFORE}",
    ".ort": f"a model in onnxruntime's own format; {_BEFORE}",
    ".pdparams": _PADDLE,
    ".pdmodel": _PADDLE,
    ".pdiparams": _PADDLE,
    ".msgpack": "Flax weights as msgpack; save them as safetensors, as by "
    "safetensors.flax.save_file or save_pretrained, and adjust that file",
    ".ubj": _XGBOOST,
    ".cbm": f"a CatBoost model: {_BOOSTER}",
    ".skops": f"a scikit-learn model as skops; {_SKLEARN}",
    ".pkl": f"a pickle: {_RUNS_CODE}; save model.state_dict(), or use lh.adjust_(model, tuned) in Python",
    ".pickle": f"a pickle: {_RUNS_CODE}; save model.state_dict(), or use lh.adjust_(model, tuned) in Python",
    ".joblib": f"a joblib pickle: {_RUNS_CODE}; {_SKLEARN}",
    ".bin.index.json": "an index of pickled shards; save the model as safetensors (save_pretrained does)",
}  # fmt: skip


class _Content(NamedTuple):
    """What a file of a common suffix is, by its first bytes."""

    suffix: str
    is_it: Callable[[Path, bytes], bool]
    reason: str


_FASTTEXT_START = (793712314).to_bytes(4, "little")  # the number that its files begin with
_BY_CONTENT = (
    _Content(".bin", lambda path, start: start.startswith(_FASTTEXT_START), _FASTTEXT),
    _Content(
        ".bin",
        lambda path, start: not start.startswith(b"PK") and path.with_suffix(".xml").exists(),
        _OPENVINO,
    ),
    _Content(".json", lambda path, start: b'"learner"' in start, _XGBOOST),
    _Content(".txt", lambda path, start: start.startswith(b"tree\nversion="), _LIGHTGBM),
)

# Other weights and the state of a training: a second copy of a model in its folder would not be adjusted.
_OTHER_WEIGHTS = (
    ".index.json", ".h5", ".msgpack", ".onnx_data", ".gguf", ".tflite", ".pkl", ".pickle", ".joblib", ".original",
)  # fmt: skip


def model_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all formats that are read."""
    return tuple(suffix for one in MODEL_FORMATS.values() for suffix in one.suffixes)


def left_out_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that are not copied with a model from its folder."""
    return (*model_suffixes(), *_OTHER_WEIGHTS)


def formats_text() -> str:
    """Return all formats with their suffixes, for a help text."""
    return ", ".join(f"{one.name} ({' '.join(one.suffixes)})" for one in MODEL_FORMATS.values())


def suffix_of(path: str | Path) -> str:
    """Return the end of a model's name by which its format is known, such as `.weights.h5`; or its last suffix."""
    name = Path(path).name.lower()
    known = [suffix for suffix in model_suffixes() if name.endswith(suffix)]
    return max(known, key=len, default=Path(path).suffix)


def format_of(path: str | Path) -> Format:
    """Return the format of a model's file by its name, without opening more than its first bytes."""
    path = Path(path)
    known = {suffix: one for one in MODEL_FORMATS.values() for suffix in one.suffixes}
    # Of several ends of a name, the longest says what it is: .weights.h5, and not .h5.
    ends = [suffix for suffix in (*known, *REFUSED) if path.name.lower().endswith(suffix)]
    suffix = max(ends, key=len, default="")
    if suffix in REFUSED:
        raise LevelheadError(f"{path}: {REFUSED[suffix]}")
    expected = f"expected a model as {', '.join(model_suffixes())}"
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; {expected}")
    for one in MODEL_FORMATS.values():
        if one.is_folder(path):
            return one
    check_regular_file(path, "a model")
    start = bytes_at(path, 0, 1 << 12)
    for content in _BY_CONTENT:
        if path.name.lower().endswith(content.suffix) and content.is_it(path, start):
            raise LevelheadError(f"{path}: {content.reason}")
    if suffix in known:
        return known[suffix]
    raise LevelheadError(f"{path}: {expected}, got {path.suffix or 'no suffix'}")
