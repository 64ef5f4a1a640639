"""Heads in Keras 3 models (`.keras`), proved by the graph in config.json, without Keras."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from ..support.errors import LevelheadError, in_file, reported_as
from ..support.regular_file import check_regular_file
from ..support.text import parse_json
from .format import Reader
from .hdf5 import hdf5_arrays
from .keras_config import (
    KERAS_2_LAYERS,
    NAME_HEAD_LAYER,
    head_in_config,
    layers_in,
    places_of_keras_2,
)
from .keras_weights import find_among_arrays
from .located import LocatedHead
from .spans import Span
from .zip import Archive

WEIGHTS, CONFIG = "model.weights.h5", "config.json"


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head of a Keras model: by its graph or, of a subclassed model, which has none, among its arrays."""
    stamp = check_regular_file(path, "a Keras model")
    archive = _open(path)
    arrays, names = _arrays(archive)
    task, plain, units = None, True, None
    if named is None:
        damaged = "cut short, or not a Keras model ({}); save the model again"
        with in_file(path), reported_as(damaged, BadZipFile, UnicodeDecodeError):
            config = parse_json(archive.unpack(CONFIG).decode())
            head = head_in_config(config, classes)
        if head is not None:
            task, plain = head.task, head.plain
            places = _places(config, arrays, names)
            if lacking := [one for one in head.layers if one not in places]:
                reason = f"its weights have no layer {'/'.join(lacking[0])}"
                raise LevelheadError(
                    f"{path}: {reason}; save the model again with Keras 3", advice=NAME_HEAD_LAYER
                )
            named = ",".join(places[one] for one in head.layers)
            units = head.units
    layers = find_among_arrays(path, arrays, names, named, classes)
    if units is not None and any(layer.classes != units for layer in layers):
        raise LevelheadError(
            f"{path}: its weights do not fit its config.json; save the model again with Keras 3"
        )
    layers = tuple(replace(layer, task=task, plain=plain) for layer in layers)
    return LocatedHead(path, layers, {path: stamp}, archive.complete, archive.note)


def _arrays(archive: Archive) -> tuple[dict[str, Span], dict[str, str]]:
    if (record := archive.find(WEIGHTS)) is None:
        raise LevelheadError(
            f"{archive.path}: no {WEIGHTS} in it; save the model again with Keras 3"
        )
    if not archive.is_plain(record):
        raise LevelheadError(
            f"{archive.path}: its weights are compressed; save the model again with Keras itself"
        )
    return hdf5_arrays(archive.path, archive.data_at[record.filename], record.file_size)


def _places(
    config: Mapping[str, Any], arrays: Mapping[str, Span], names: Mapping[str, str]
) -> dict[tuple[str, ...], str]:
    """Return {names that lead to a layer: its place in the file}."""
    stated = {
        key.removesuffix("vars").rstrip("/"): name
        for key, name in names.items()
        if key.endswith("vars")
    }
    if stated:  # since Keras 3.4, each group states the name of its layer
        found = {}
        for place in stated:
            parts = place.split("/")
            around = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
            found[tuple(stated[one] for one in around if one in stated)] = place
        return found
    if any(key.startswith(KERAS_2_LAYERS) for key in arrays):
        return places_of_keras_2(config, arrays)
    return {one.path: one.place for one in layers_in(config)}


def _open(path: Path) -> Archive:
    with (
        in_file(path),
        reported_as("cut short, or not a Keras 3 model ({}); save the model again", BadZipFile),
    ):
        return Archive(path, in_folder=False)


READER = Reader(_find, note=lambda path: _open(path).note, check=lambda path: _arrays(_open(path)))
