"""Damaged safetensors models, single and sharded: what the format's own library refuses is refused,
the rest scaled.

A file is the length of its header in eight bytes, little-endian, the header as JSON, and the bytes
of all tensors. Three times in ten any of these bytes are damaged; else only the header, whose
length is then set right.
"""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from levelhead.core.rules import Rescale
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file
from levelhead.io.safetensors_file import read_header

from .harness import Contradiction, drive, main
from .mutators import damage_bytes, damage_json

COUNTS, FACTORS = [16, 4, 1], np.array([[1], [2], [4]], np.float32)
VALUES = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
TENSORS = {
    "a.weight": VALUES[:2, :3].copy(),
    "fc.weight": VALUES,
    "fc.bias": VALUES[:, 0].copy(),
    "n": np.zeros(2, bool),
}
INDEX = {
    "metadata": {"total_size": 96},
    "weight_map": {"fc.weight": "a.safetensors", "a.weight": "b.safetensors"},
}


def parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of a file and the bytes after it."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def whole(header: bytes, body: bytes) -> bytes:
    """Return a file of a header and the bytes after it, with the length that the header has."""
    return len(header).to_bytes(8, "little") + header + body


SOUND = [
    save(TENSORS),
    save(TENSORS, {"author": "somebody"}),
    save({"fc.weight": VALUES}),
    save({}),
]


def damaged(rng: random.Random) -> bytes:
    """Return the bytes of a damaged file."""
    data = rng.choice(SOUND)
    if rng.random() < 0.3:
        return damage_bytes(rng, data, SOUND)
    header, body = parts(data)
    if rng.random() < 0.1:
        body = damage_bytes(rng, body)
    return whole(damage_json(rng, header).encode("utf-8", "surrogatepass"), body)


def accepted(data: bytes) -> dict[str, dict[str, Any]] | None:
    """Return what the format's own library reads; None if it refuses."""
    try:
        return dict(deserialize(data))
    except SafetensorError:
        return None


def refusal(data: bytes) -> str:
    """Return why the format's own library refuses a file; nothing if it reads it."""
    try:
        deserialize(data)
    except SafetensorError as error:
        return str(error)
    return ""


def one_file(rng: random.Random, folder: Path) -> None:
    """Adjust a damaged file and undo that; raise Contradiction if the format's own library disagrees.

    It must read what we read, read what we wrote, and see at most two tensors changed: weight and
    bias of the head.
    """
    path, out, back = (folder / f"{name}.safetensors" for name in "mob")
    data = damaged(rng)
    path.write_bytes(data)
    official = accepted(data)
    read_header(path)
    if official is None:
        raise Contradiction(f"the format's own library refuses it: {refusal(data)}")
    adjust_file(path, out, Rescale(0.5), COUNTS, head=rng.choice((None, None, "fc")))
    after = accepted(out.read_bytes())
    if after is None:
        raise Contradiction("the format's own library refuses the output")
    changed = {key for key in after if after[key] != official[key]}
    if set(after) != set(official) or len(changed) > 2:
        raise Contradiction(f"changed {changed}")
    undo_file(out, back)
    if back.read_bytes() != data:
        raise Contradiction("undo gives another file")


def shards(rng: random.Random, folder: Path) -> None:
    """Inspect a folder of two sound files whose index is damaged."""
    index = folder / "model.safetensors.index.json"
    for name in "ab":
        (folder / f"{name}.safetensors").write_bytes(
            save({"fc.weight" if name == "a" else "a.weight": VALUES})
        )
    text = (
        damage_json(rng, INDEX)
        if rng.random() < 0.8
        else damage_bytes(rng, json.dumps(INDEX).encode()).decode("latin1")
    )
    index.write_bytes(text.encode("utf-8", "surrogatepass"))
    inspect_file(folder, head="fc")


def case(rng: random.Random, folder: Path) -> None:
    """Run one case: mostly of one file."""
    (one_file if rng.random() < 0.85 else shards)(rng, folder)


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive` takes them."""
    return drive(case, **how)


if __name__ == "__main__":
    main("safetensors", run)
