"""The table of model formats, one line for each; and of those that are known, but never opened.

`format_of` tells the format of a file by the end of its name, and refuses by it what would run code
when opened, or what has no head that could be changed. Only then is the module of that one format
loaded. A new format is a module with a `READER` and a line of `MODEL_FORMATS`; no other file names
it, as help texts, messages and the command line read the table.

What is refused is a table as well (`REFUSED`), because "unknown suffix" would help nobody: whoever
comes with a pickle, a TensorFlow graph or a booster learns what to do instead. Some suffixes, such
as `.bin` and `.json`, belong to many programs: there the first bytes tell (`_BY_CONTENT`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..io.safetensors_file import SHARD_INDEX
from ..support.errors import LevelheadError
from ..support.regular_file import bytes_at, check_regular_file
from .format import Format

MODEL_FORMATS = {
    line.name: line
    for line in (
        Format(
            "safetensors",
            (".safetensors", SHARD_INDEX),
            "levelhead.files.safetensors",
            index=SHARD_INDEX,
        ),
        Format("ONNX", (".onnx",), "levelhead.files.onnx"),
        Format(
            "state dict",
            (".pt", ".pth", ".bin", ".ckpt", ".pth.tar"),
            "levelhead.files.state_dict",
        ),
        Format("Keras", (".keras",), "levelhead.files.keras"),
        Format("Keras weights", (".weights.h5",), "levelhead.files.keras_weights"),
        Format("MLX weights", (".npz",), "levelhead.files.mlx"),
    )
}

# Reasons not to open a file, and what to do instead, in words that several of them share.
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
_OPENVINO = f"an OpenVINO model; {_BEFORE}"
_FASTTEXT = f"a fastText model; {_BEFORE}"
_XGBOOST = f"an XGBoost model: {_BOOSTER}"
_LIGHTGBM = f"a LightGBM model: {_BOOSTER}"
_PICKLE = (
    f"a pickle: {_RUNS_CODE}; save model.state_dict(), or use lh.adjust_(model, tuned) in Python"
)
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
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".joblib": f"a joblib pickle: {_RUNS_CODE}; {_SKLEARN}",
    ".bin.index.json": "an index of pickled shards; save the model as safetensors (save_pretrained does)",
}  # fmt: skip


class _Content(NamedTuple):
    """A kind of file that is never opened, known by its first bytes: its suffix is one of many."""

    suffix: str
    is_it: Callable[[Path, bytes], bool]  # given the path and the first bytes
    reason: str


_FASTTEXT_START = (793712314).to_bytes(4, "little")  # the number that its files begin with
_BY_CONTENT = (
    _Content(".bin", lambda path, start: start.startswith(_FASTTEXT_START), _FASTTEXT),
    # OpenVINO keeps the weights of net.xml in net.bin. A state dict is a zip, which begins with PK.
    _Content(
        ".bin",
        lambda path, start: not start.startswith(b"PK") and path.with_suffix(".xml").exists(),
        _OPENVINO,
    ),
    _Content(".json", lambda path, start: b'"learner"' in start, _XGBOOST),
    _Content(".txt", lambda path, start: start.startswith(b"tree\nversion="), _LIGHTGBM),
    # Both write what they are asked to, whatever it is called; .model is a usual name.
    _Content(".model", lambda path, start: start.startswith(b"tree\nversion="), _LIGHTGBM),
    _Content(".model", lambda path, start: b"learner" in start, _XGBOOST),
)

# Other weights and the state of a training: a second copy of a model in its folder would not be
# adjusted.
_OTHER_WEIGHTS = (
    ".index.json", ".h5", ".msgpack", ".onnx_data", ".gguf", ".tflite", ".pkl", ".pickle", ".joblib", ".original",
)  # fmt: skip


def model_suffixes() -> tuple[str, ...]:
    """Return how the names of all files that are read end, in the order of the table."""
    return tuple(_by_suffix())


def left_out_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that are not copied with a model from its folder.

    A folder of Hugging Face often has the same weights in several formats. A copy of those would
    hold the head as it was before, beside the adjusted one, and whoever loads the folder might get
    either.
    """
    return (*model_suffixes(), *_OTHER_WEIGHTS)


def formats_text() -> str:
    """Return all formats with their suffixes, as in "ONNX (.onnx), Keras (.keras)", for help."""
    return ", ".join(f"{line.name} ({' '.join(line.suffixes)})" for line in MODEL_FORMATS.values())


def suffix_of(path: str | Path) -> str:
    """Return the end of a model's name by which its format is known; or its last suffix.

    >>> suffix_of("net.weights.h5"), suffix_of("Net.ONNX"), suffix_of("notes.v2.txt")
    ('.weights.h5', '.onnx', '.txt')
    """
    name = Path(path).name.lower()
    endings = [suffix for suffix in model_suffixes() if name.endswith(suffix)]
    return max(endings, key=len, default=Path(path).suffix)


def format_of(path: str | Path) -> Format:
    """Tell the format of a model by the name of its file, opening no more than its first bytes.

    Args:
        path: of a file or, of a sharded model, of its folder or index.

    Raises:
        LevelheadError: the file is of no format that is read, or of one that would run code; the
            message says what to do instead.
        FileNotFoundError: there is no such file. A suffix that is refused is refused before that.
    """
    path = Path(path)
    by_suffix = _by_suffix()
    # Of several ends of a name, the longest says what it is: .weights.h5, and not .h5.
    name = path.name.lower()
    endings = [suffix for suffix in (*by_suffix, *REFUSED) if name.endswith(suffix)]
    suffix = max(endings, key=len, default="")
    if suffix in REFUSED:
        raise LevelheadError(f"{path}: {REFUSED[suffix]}")
    expected = f"expected a model as {', '.join(by_suffix)}"
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; {expected}")
    # A folder has no suffix; its format is the one whose models may be folders.
    for line in MODEL_FORMATS.values():
        if line.is_folder(path):
            return line
    check_regular_file(path, "a model")
    start = bytes_at(path, 0, 1 << 12)
    # Before the suffix is believed: a `.bin` may be a state dict, fastText's or OpenVINO's.
    for content in _BY_CONTENT:
        if name.endswith(content.suffix) and content.is_it(path, start):
            raise LevelheadError(f"{path}: {content.reason}")
    if suffix in by_suffix:
        return by_suffix[suffix]
    raise LevelheadError(f"{path}: {expected}, got {path.suffix or 'no suffix'}")


def _by_suffix() -> dict[str, Format]:
    return {suffix: line for line in MODEL_FORMATS.values() for suffix in line.suffixes}
