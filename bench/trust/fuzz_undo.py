"""Damaged adjusted models and FILE.original: undo gives the input back, byte for byte, or says why it
cannot.

FILE.original is a line of JSON, which says what it belongs to, and the bytes that were replaced.
Damaged is it, its first line, or the model; or the model, with nothing beside it.
"""

import io
import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from levelhead.core.rules import Rescale
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from .fuzz_onnx import SOUND as ONNX
from .harness import Contradiction, drive, main
from .mutators import damage_bytes, damage_json

WEIGHT = np.arange(1, 13, dtype=np.float32).reshape(3, 4)


def adjusted() -> list[tuple[str, bytes, bytes, bytes]]:
    """Return (suffix, model, adjusted model, what was kept of it) for each format."""
    file = io.BytesIO()
    torch.save({"fc.weight": torch.tensor(WEIGHT)}, file)
    models = []
    with TemporaryDirectory() as folder:
        for suffix, data in (
            (".safetensors", save({"fc.weight": WEIGHT})),
            (".pt", file.getvalue()),
            (".onnx", ONNX[0]),
        ):
            path, out = Path(folder, f"m{suffix}"), Path(folder, f"o{suffix}")
            path.write_bytes(data)
            adjust_file(path, out, Rescale(0.5), [16, 4, 1])
            models.append(
                (suffix, data, out.read_bytes(), out.with_name(f"{out.name}.original").read_bytes())
            )
    return models


ADJUSTED = adjusted()


def case(rng: random.Random, folder: Path) -> None:
    """Damage one of the two files and undo; raise Contradiction if that says it is exact and is not."""
    suffix, before, after, kept = rng.choice(ADJUSTED)
    path, back, what = folder / f"o{suffix}", folder / f"b{suffix}", rng.randrange(4)
    if what == 0:
        kept = damage_bytes(rng, kept)
    elif what == 1:
        line, _, rest = kept.partition(b"\n")
        kept = (
            damage_json(rng, json.loads(line)).replace("\n", "").encode("utf-8", "surrogatepass")
            + b"\n"
            + rest
        )
    else:
        after = damage_bytes(rng, after)
    path.write_bytes(after)
    if what < 3:
        (folder / f"o{suffix}.original").write_bytes(kept)
    done = undo_file(path, back)
    # A changed first line may describe another input: that is not held against it.
    if done.exact and back.read_bytes() != before and what != 1:
        raise Contradiction("undo says it is exact and gives another file")


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive` takes them."""
    return drive(case, **how)


if __name__ == "__main__":
    main("undo", run)
