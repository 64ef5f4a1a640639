"""Damaged Keras models: what is written differs from the input in the bytes of its head, the checksum
and the note.

A .keras file is a zip of config.json, metadata.json and model.weights.h5. The config decides which
layer is the head, and HDF5 where its numbers are: either may be damaged.
"""

import json
import os
import random
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from warnings import catch_warnings

from levelhead.core.rules import Rescale
from levelhead.files.inspect import inspect_file
from levelhead.files.locate import ModelFile
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from .harness import Contradiction, drive, main
from .mutators import damage_bytes, damage_json, damage_zip

COUNTS = [16, 4, 1]
OLD = Path(__file__).parents[2] / "tests" / "files" / "keras_2_13"
CONFIG, WEIGHTS, NOTE = "config.json", "model.weights.h5", "levelhead.json"


def sound() -> list[bytes]:
    """Return models of Keras 2.13, and of the Keras that is installed."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(5, activation="relu")(inputs)
    top = keras.layers.Dense(3, name="top")(keras.layers.Dropout(0.1)(hidden))
    models = [
        keras.Model(inputs, top),
        keras.Model(inputs, keras.layers.Softmax()(top)),
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.keras")
        files = []
        for model in models:
            with catch_warnings(action="ignore"):  # Keras's own, of torch
                model.save(path)
            files.append(path.read_bytes())
    return files + [path.read_bytes() for path in sorted(OLD.glob("*.keras"))]


SOUND = sound()


def damage_record(rng: random.Random, content: bytes) -> bytes:
    """Damage a config as JSON, and other records as bytes."""
    if content.startswith(b"{") and rng.random() < 0.8:
        return damage_json(rng, json.loads(content)).encode("utf-8", "surrogatepass")
    return damage_bytes(rng, content)


def records(path: Path) -> dict[str, bytes]:
    """Return the content of each record of a zip, whose checksums are checked."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def case(rng: random.Random, folder: Path) -> None:
    """Adjust a damaged model and undo that; raise Contradiction if bytes outside of its head differ.

    Three times in ten it is only inspected.
    """
    path, out, back = (folder / f"{name}.keras" for name in "mob")
    data = rng.choice(SOUND)
    if rng.random() < 0.85:
        data = damage_zip(rng, data, damage_record)
    else:
        data = damage_bytes(rng, data, SOUND)
    path.write_bytes(data)
    if rng.random() < 0.3:
        inspect_file(path)
        return
    adjust_file(path, out, Rescale(0.5), COUNTS)
    undo_file(out, back)
    if back.read_bytes() != data:
        raise Contradiction("undo gives another file")
    before, after = records(path), records(out)  # each fits its checksum, or this raises
    if NOTE in before:
        return
    after.pop(NOTE)
    differs = {name for name in before if before[name] != after.get(name)}
    if before.keys() != after.keys() or differs - {WEIGHTS}:
        raise Contradiction(f"changed {differs}")
    head = ModelFile.at(path).locate_head()
    spans = [span for layer in head.layers for span in layer.spans]
    # Byte by byte: what lies outside of the head must be as it was.
    allowed = {at for span in spans for at in range(span.offset, span.offset + span.nbytes)}
    start = data.index(before[WEIGHTS])
    pairs = zip(before[WEIGHTS], after[WEIGHTS], strict=True)
    changed = {start + i for i, (old, new) in enumerate(pairs) if old != new}
    if not changed <= allowed:
        raise Contradiction("bytes outside of the head changed")


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive` takes them."""
    return drive(case, **how)


if __name__ == "__main__":
    main("keras", run)
