"""Damaged parts of files, alone: a safetensors header, FILE.original, a pickle, a zip's directory, a
protobuf message.

What the format's own library says decides: a header that it refuses is refused; one that it reads
is read, but for keys that stand twice. The fields that are found in a message are those that
protobuf's own parser finds.

The other fuzzers adjust whole models and undo that. Here only the parser of one part runs, so that
there is time for many more files.
"""

import json
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import onnx
from safetensors import SafetensorError, deserialize

from levelhead.files.originals import load_originals
from levelhead.files.protobuf import WireFile
from levelhead.files.zip import Archive
from levelhead.io.pickle_check import check_pickle
from levelhead.io.safetensors_file import read_header
from levelhead.support.errors import LevelheadError

from .fuzz_onnx import SOUND as ONNX
from .fuzz_safetensors import damaged as damaged_safetensors
from .fuzz_state_dict import SOUND as STATE_DICTS
from .fuzz_undo import ADJUSTED
from .harness import Contradiction, drive_readers, main
from .mutators import damage_bytes, damage_json, damage_message, read_zip

PICKLES = [
    next(data for name, data in read_zip(state_dict) if name.endswith("data.pkl"))
    for state_dict in STATE_DICTS[:4]
]
PICKLES += [
    pickle.dumps({"epoch": 7, "names": ["a"] * 3, "x": (1.5, b"ab")}, protocol)
    for protocol in range(6)
]
ORIGINALS = [kept for *_, kept in ADJUSTED]
# As often as it stands here: the header is read by our own code from the first byte on.
KINDS = ["header", "header", "original", "pickle", "archive", "message"]


def damaged(rng: random.Random) -> tuple[str, bytes]:
    """Return a kind of part, and the bytes of a damaged one."""
    kind = rng.choice(KINDS)
    if kind == "header":
        return kind, damaged_safetensors(rng)
    if kind == "original":
        kept = rng.choice(ORIGINALS)
        if rng.random() < 0.5:
            return kind, damage_bytes(rng, kept, ORIGINALS)
        line, _, rest = kept.partition(b"\n")
        text = damage_json(rng, json.loads(line)).replace("\n", "")
        return kind, text.encode("utf-8", "surrogatepass") + b"\n" + rest
    if kind == "pickle":
        return kind, damage_bytes(rng, rng.choice(PICKLES), PICKLES)
    if kind == "archive":
        data = rng.choice(STATE_DICTS)
        tail = max(0, data.rfind(b"PK\x05\x06") - rng.choice((0, 100, 1000)))
        return kind, data[:tail] + damage_bytes(rng, data[tail:])
    sound = rng.choice(ONNX)
    return kind, damage_message(rng, sound) if rng.random() < 0.3 else damage_bytes(
        rng, sound, ONNX
    )


def read_as_library(path: Path) -> None:
    """Read a safetensors header; what the format's own library says must be said."""
    data = path.read_bytes()
    try:
        deserialize(data)
        theirs = ""
    except SafetensorError as error:
        theirs = str(error)
    try:
        read_header(path)
    except LevelheadError as error:
        if not theirs and "is repeated" not in str(error):
            raise Contradiction(f"the format's own library reads it; we: {error}") from None
        raise
    if theirs:
        raise Contradiction(f"the format's own library refuses it: {theirs}")


def read_archive(path: Path) -> None:
    """Read the directory of a zip, and the note in it."""
    try:
        _ = Archive(path).note
    # Documented; the state-dict reader gives it the name of the file.
    except zipfile.BadZipFile as error:
        raise LevelheadError(f"{path}: {error}") from None


def read_message(path: Path) -> None:
    """Find the fields of a message; a parser that accepts the message must find as many graphs in it."""
    data = path.read_bytes()
    try:
        model = onnx.ModelProto.FromString(data)
    except Exception:
        return  # protobuf refuses it, which the ONNX reader asks first
    try:
        file = WireFile.of(path)
        numbers = [field.number for field in file.fields(0, file.size)]
    except LevelheadError as error:  # of a group, which no ONNX file has
        raise LevelheadError(f"{path}: {error}") from None
    try:
        ours = file.locate([(7, None)]) != (0, 0)
    except LevelheadError:  # of two graphs, protobuf makes one
        ours = numbers.count(7) > 1
    if ours != model.HasField("graph"):
        raise Contradiction(f"fields {numbers}, and a graph: {model.HasField('graph')}")


def read_pickle(path: Path) -> None:
    """Follow a pickle without building it."""
    data = path.read_bytes()
    try:
        check_pickle(data)
    except LevelheadError as error:
        raise LevelheadError(f"{path}: {error}") from None


READERS: dict[str, dict[str, Any]] = {
    "header": {"header": read_as_library},
    "original": {"original": load_originals},
    "pickle": {"pickle": read_pickle},
    "archive": {"archive": read_archive},
    "message": {"message": read_message},
}


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive_readers` takes them."""
    return drive_readers(damaged, READERS, **how)


if __name__ == "__main__":
    main("parts", run)
