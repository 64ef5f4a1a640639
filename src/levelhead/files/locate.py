"""The table of file formats, and the head in a file of any of them."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from ..core.class_names import check_names
from ..heads.notes import NOTE_KEY, Note, digests_in, is_note, multiplied, note_in_version
from ..support.errors import LevelheadError
from ..support.regular_file import bytes_at, check_regular_file
from . import keras, onnx, safetensors, state_dict
from .find import NoHead
from .format import Format
from .spans import LocatedHead, json_of

MODEL_FORMATS = (
    safetensors.FORMAT,
    onnx.FORMAT,
    state_dict.FORMAT,
    keras.FORMAT,
    keras.WEIGHTS_FORMAT,
)
MODEL_SUFFIXES = ", ".join(suffix for one in MODEL_FORMATS for suffix in one.suffixes)

RUNS_CODE = "opening it would run whatever code it holds"
BEFORE = (
    "adjust it before converting: lh.adjust_(model, tuned) in Python, or its safetensors, ONNX or state dict; or "
    "adjust its scores (levelhead.hosts.predictor.AdjustedPredictor)"
)
OLD_KERAS = (
    "a model in Keras's old format; save it as .keras or .weights.h5, as by "
    "keras.models.load_model('m.h5', compile=False).save('m.keras') in Python, or use lh.adjust_(model, tuned) there"
)
OPENVINO, FASTTEXT = f"an OpenVINO model; {BEFORE}", f"a fastText model; {BEFORE}"
FASTTEXT_START = (793712314).to_bytes(4, "little")  # the number that its files begin with
REFUSED = {  # suffixes: why it is never opened, and what to do instead
    (".pt2",): f"a torch.export archive: {RUNS_CODE}; {BEFORE}",
    (".torchscript", ".ptl"): f"a TorchScript archive: {RUNS_CODE}; {BEFORE}",
    (".h5", ".hdf5"): OLD_KERAS,
    (".pb",): f"a TensorFlow graph; {BEFORE}",
    (".tflite",): f"a TensorFlow Lite model; {BEFORE}",
    (".mlmodel", ".mlpackage"): f"a Core ML model; {BEFORE}",
    (".xml",): OPENVINO,
    (".gguf",): f"a GGUF model; {BEFORE}",
    (".ftz",): FASTTEXT,
    (".engine",): f"a TensorRT engine; {BEFORE}",
    (".ort",): f"a model in onnxruntime's own format; {BEFORE}",
    (
        ".pkl",
        ".pickle",
    ): f"a pickle: {RUNS_CODE}; save model.state_dict(), or use lh.adjust_(model, tuned) in Python",
    (
        ".joblib",
    ): f"a joblib pickle: {RUNS_CODE}; use levelhead.hosts.sklearn.AdjustedClassifier in Python",
    (
        ".bin.index.json",
    ): "an index of pickled shards; save the model as safetensors (save_pretrained does)",
}


def format_of(path: str | Path) -> Format:
    """Return the format of a model's file by its name, without opening it."""
    path = Path(path)
    name = path.name.lower()
    for suffixes, reason in REFUSED.items():
        if name.endswith(suffixes) and not name.endswith(keras.WEIGHTS_FORMAT.suffixes):
            raise LevelheadError(f"{path}: {reason}")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file; expected a model as {MODEL_SUFFIXES}")
    if path.is_dir():
        return safetensors.FORMAT
    for one in MODEL_FORMATS:
        if name.endswith(one.suffixes):
            check_regular_file(path, "a model")
            if name.endswith(".bin"):  # OpenVINO and fastText call theirs so, too
                if (start := bytes_at(path, 0, len(FASTTEXT_START))) == FASTTEXT_START:
                    raise LevelheadError(f"{path}: {FASTTEXT}")
                if not start.startswith(b"PK") and path.with_suffix(".xml").exists():
                    raise LevelheadError(f"{path}: {OPENVINO}")
            return one
    raise LevelheadError(
        f"{path}: expected a model as {MODEL_SUFFIXES}, got {path.suffix or 'no suffix'}"
    )


def locate_head(
    path: str | Path,
    *,
    head: str | None = None,
    classes: int | None = None,
    names: Sequence[str] | None = None,
) -> LocatedHead:
    """Find the head in a model's file. A likely number of classes helps to tell it apart; so does an earlier note."""
    path, one = Path(path), format_of(path)
    try:
        found = one.find(path, named=head, classes=classes)
    except ValueError as error:
        noted = (one.note(path) or {}).get("head") if head is None else None
        if not noted and (classes is None or not isinstance(error, NoHead)):
            raise
        # Without a note, counts are wrong in number, or are labels: that is reported when K is known.
        found = one.find(path, named=",".join(noted) if noted else head)
    known = (
        None if names is None else check_names(names, max(2, found.classes))
    )  # one logit is of two classes
    return (
        replace(found, given_names=tuple(known))
        if known is not None and found.classes > 1
        else found
    )


def earlier_note(found: LocatedHead) -> Note | None:
    """Return what was done to a head before: in a file, by its note; in memory, by that of a config next to it."""
    version = json_of(found.path.parent / "adapter_config.json").get("peft_version")
    for note in (
        (found.config.get(NOTE_KEY), note_in_version(version)) if found.note is None else ()
    ):
        if is_note(note):  # it counts if the head is as that adjustment left it
            weights = multiplied(note)
            spans = [layer.weight if weights else layer.bias for layer in found.layers]
            if {sha256(span.bytes()).hexdigest() for span in spans if span is not None} & {
                *digests_in(note)
            }:
                return note
    return found.note


def output_path(path: Path, out: Path, folder: bool) -> Path:
    """Return where to write: a folder for a folder (or the index in it), a file of the same format for a file."""
    if folder:
        return with_name(out.parent if out.name.endswith(safetensors.INDEX) else out)
    if not out.name.lower().endswith(format_of(path).suffixes):
        raise LevelheadError(
            f"{out}: expected an output that ends in {path.suffix}, as the input does"
        )
    return out


def with_name(folder: Path) -> Path:
    """Return the same folder by its name, which `.` and `..` do not have: a file next to it is called after it."""
    return folder.resolve() if folder.name in ("", "..") else folder
