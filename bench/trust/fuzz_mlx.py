"""Damaged weights of MLX: what is written, numpy reads as the input with its head scaled and nothing else."""

import io
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from levelhead.core.rules import Rescale
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from .harness import Contradiction, drive, main
from .mutators import damage_bytes, damage_zip

COUNTS = [16, 4, 1]
RNG = np.random.default_rng(0)


def saved(**arrays: np.ndarray) -> bytes:
    """Return arrays as an .npz, as MLX writes its weights."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def numbers(*shape: int, dtype: str = "<f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


# With a bias and without, in half precision, in bfloat16 (two bytes of no type of numpy), in column
# order.
SOUND = [
    saved(**{"body.weight": numbers(5, 4), "fc.weight": numbers(3, 5), "fc.bias": numbers(3)}),
    saved(**{"fc.weight": numbers(3, 5, dtype="<f2"), "fc.bias": numbers(3, dtype="<f2")}),
    saved(**{"fc.weight": numbers(3, 5).view("<V2")[:, :5].copy(), "step": np.array(3)}),
    saved(**{"fc.weight": np.asfortranarray(numbers(3, 5)), "x.weight": numbers(3, 5)}),
]


def arrays(path: Path) -> dict[str, bytes]:
    """Return the bytes of every array, as numpy reads them."""
    with np.load(path, allow_pickle=False) as stored:
        return {key: stored[key].tobytes() for key in stored.files}


def case(rng: random.Random, folder: Path) -> None:
    """Adjust a damaged file and undo that; raise Contradiction if numpy reads other numbers than those
    of the head changed.

    Three times in ten it is only inspected.
    """
    path, out, back = (folder / f"{name}.npz" for name in "mob")
    sound = rng.choice(SOUND)
    data = damage_zip(rng, sound) if rng.random() < 0.85 else damage_bytes(rng, sound, SOUND)
    path.write_bytes(data)
    if rng.random() < 0.3:
        inspect_file(path)
        return
    done = adjust_file(path, out, Rescale(0.5), COUNTS)
    undo_file(out, back)
    if back.read_bytes() != data:
        raise Contradiction("undo gives another file")
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise Contradiction("a damaged file was written anew")
    before, after = arrays(path), arrays(out)
    changed = {key for key in before if before[key] != after.get(key)}
    heads = {f"{layer}.{part}" for layer in done.head for part in ("weight", "bias")}
    if before.keys() != after.keys() or not changed <= {name.lstrip(".") for name in heads}:
        raise Contradiction(f"changed {changed} for {done.head}")


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive` takes them."""
    return drive(case, **how)


if __name__ == "__main__":
    main("mlx", run)
