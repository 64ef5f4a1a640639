"""Damaged state dicts: what is written, torch reads as the input with its head scaled and nothing
else.

A .pt file is a zip of a pickle and the bytes of its storages. Views, transposed tensors, half
precision and an optimizer beside the model are among the sound ones, each as torch writes it and as
another zip library would.
"""

import io
import random
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import torch

from levelhead.core.rules import Rescale
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from .harness import Contradiction, drive, main
from .mutators import damage_bytes, damage_zip, read_zip, write_zip

COUNTS = [16, 4, 1]


def saved(value: Any) -> bytes:
    """Return what torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def sound() -> list[bytes]:
    """Return the files that are damaged."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        OrderedDict(a=torch.nn.Linear(4, 5), bn=torch.nn.BatchNorm1d(5), fc=torch.nn.Linear(5, 3))
    )
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(4, 4)).sum().backward()
    optimizer.step()
    flat = torch.arange(40.0)
    values = [
        net.state_dict(),
        {
            "model": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "epoch": 3,
            "set": {1, 2},
            "bytes": b"abc",
        },
        {
            "x.weight": flat[:20].view(4, 5),
            "fc.weight": flat[20:35].view(5, 3).t(),
            "fc.bias": flat[35:38].half(),
        },
        {"fc.weight": torch.nn.Parameter(torch.randn(3, 2).bfloat16())},
    ]
    files = [saved(value) for value in values]
    return files + [write_zip(read_zip(data)) for data in files]


SOUND = sound()


def tensors(
    value: Any, place: tuple[object, ...] = (), depth: int = 0
) -> dict[tuple[object, ...], bytes]:
    """Return the bytes of every tensor in what torch loaded, by the keys that lead to it."""
    bytes_of: dict[tuple[object, ...], bytes] = {}
    if depth > 6:
        return bytes_of
    pairs: Iterable[tuple[object, Any]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list | tuple):
        pairs = enumerate(value)
    for key, inner in pairs:
        if isinstance(inner, torch.Tensor):
            bytes_of[(*place, key)] = _bytes_of(inner.detach())
        else:
            bytes_of |= tensors(inner, (*place, key), depth + 1)
    return bytes_of


def _bytes_of(tensor: torch.Tensor) -> bytes:
    """Return the numbers of a small tensor in memory; the same word for any other."""
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
    if plain and tensor.ndim and tensor.numel() < 10_000:
        return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return b"other"


def case(rng: random.Random, folder: Path) -> None:
    """Adjust a damaged file and undo that; raise Contradiction if torch loads other tensors than the
    head's changed.

    Three times in ten it is only inspected.
    """
    path, out, back = (folder / f"{name}.pt" for name in "mob")
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
    with catch_warnings(action="ignore"):
        try:
            before = tensors(torch.load(path, weights_only=True))
        # torch does not load the input, by a checksum or a record that is not the head's.
        except Exception:
            return
        after = tensors(torch.load(out, weights_only=True))
    changed = {key for key in before if before[key] != after.get(key)}
    # Of a damaged key, the leaf may be another: the layer is what counts.
    layers = {str(place[-1]).rpartition(".")[0] for place in changed}
    if before.keys() != after.keys() or not all(
        name.endswith(layer) for name in done.head for layer in layers
    ):
        raise Contradiction(f"changed {changed} for {done.head}")


def run(**how: Any) -> dict[str, Any]:
    """Run cases, as `drive` takes them."""
    return drive(case, **how)


if __name__ == "__main__":
    main("state dict", run)
