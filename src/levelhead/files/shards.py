"""Shards of a model, and the index beside them that says which tensor is in which.

    model.safetensors.index.json: {"weight_map": {"fc.weight": "model-1.safetensors", ...}}

A shard that is given alone may have one half of the head, such as the weight without its bias:
`check_head_is_whole` refuses that half.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..support.errors import LevelheadError, in_file, reported_as
from ..support.regular_file import check_regular_file
from .spans import LayerSpans


def read_weight_map(index: Path) -> dict[str, str]:
    """Return which tensor is in which file, {key: name of the file}, as an index lists them.

    Raises:
        LevelheadError: it is damaged, or no index.
    """
    check_regular_file(index, "an index of shards")
    broken = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
    # {"weight_map": {tensor: shard}}; anything else that the JSON may be is damage.
    with in_file(index), reported_as("not an index of shards ({})", *broken):
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {key: os.fspath(name) for key, name in weight_map.items()}


def indexes_of(shard: Path, ending: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield each index beside a file that lists it as a shard, with what is in which file.

    Args:
        shard: the file, which need not be one.
        ending: how the names of its format's indexes end.
    """
    for index in sorted(shard.parent.glob(f"*{ending}")):
        weight_map = read_weight_map(index)
        if shard.name in weight_map.values():
            yield index, weight_map


def check_head_is_whole(
    shard: Path, layers: Sequence[LayerSpans], ending: str, *, instead: str
) -> None:
    """Check that no tensor of the head is in another shard than the one that is given alone.

    Args:
        shard: the file that the head was found in.
        layers: of the head.
        ending: as in `indexes_of`.
        instead: what to do if the head is in several.

    Raises:
        LevelheadError: a part of the head is elsewhere.
    """
    head = {layer.key for layer in layers}
    for index, weight_map in indexes_of(shard, ending):
        for key, name in weight_map.items():
            layer = key.replace("/", ".").rpartition(".")[0]
            if layer in head and name != shard.name:
                part = f"a shard of {index.name}, and {key} is in {name}"
                raise LevelheadError(f"{shard}: {part}; {instead}")
