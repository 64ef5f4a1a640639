"""Heads in Keras 3 models (`.keras`), without Keras: a zip with the weights as HDF5 and the graph as JSON.

The head is proved by the graph in config.json, which is read as data; no layer is built, and no Lambda is run. The
kernel is changed where it lies in the file, with the checksum of its record, and the note becomes one more record of
the zip, which Keras does not look at.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from ..core.errors import LevelheadError, in_file
from ..core.regular_file import check_regular_file
from ..io.text import parse_json
from .format import Format
from .hdf5 import hdf5_arrays
from .keras_config import head_in_config
from .keras_weights import find_keras_layers
from .spans import LocatedHead, Span
from .zip import Archive, complete_zip, note_in_zip

WEIGHTS, CONFIG = "model.weights.h5", "config.json"


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head of a Keras model: by its graph or, of a subclassed model, which has none, among its arrays."""
    stamp = check_regular_file(path, "a Keras model")
    archive = _open(path)
    arrays, names = _arrays(archive)
    task = None
    if named is None:
        with in_file(path):
            head = head_in_config(_config(archive), classes)
        if head is not None:
            places, task = _places(names), head.task
            named = ",".join(_place_of(path, one, places) for one in head.paths)
    layers = find_keras_layers(path, arrays, names, named=named, classes=classes)
    return LocatedHead(
        path=path,
        layers=tuple(replace(layer, task=task) for layer in layers),
        files=(path,),
        stamps={path: stamp},
        note=note_in_zip(archive),
        detail=archive,
    )


def _arrays(archive: Archive) -> tuple[dict[str, Span], dict[str, str]]:
    record = archive.find(WEIGHTS)
    if record is None:
        raise LevelheadError(f"{archive.path}: no {WEIGHTS} in it; save the model again with Keras 3")
    if not archive.is_plain(record):
        raise LevelheadError(f"{archive.path}: its weights are compressed; save the model again with Keras itself")
    return hdf5_arrays(archive.path, archive.data_at[record.filename], record.file_size)


def _config(archive: Archive) -> Any:
    try:
        return parse_json(archive.unpack(CONFIG).decode())
    except (BadZipFile, UnicodeDecodeError) as error:
        raise LevelheadError(f"cut short, or not a Keras model ({error}); save the model again") from None


def _places(names: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Return {names that lead to a layer: its place in the file}: each group states the name of its layer."""
    stated = {key.removesuffix("vars").rstrip("/"): name for key, name in names.items() if key.endswith("vars")}
    found = {}
    for place in stated:
        parts = place.split("/")
        around = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        found[tuple(stated[one] for one in around if one in stated)] = place
    return found


def _place_of(path: Path, names: tuple[str, ...], places: Mapping[tuple[str, ...], str]) -> str:
    if names not in places:
        raise LevelheadError(f"{path}: its weights have no layer {'/'.join(names)}; save the model again with Keras 3")
    return places[names]


def _open(path: Path) -> Archive:
    try:
        return Archive(path, in_folder=False)
    except BadZipFile as error:
        raise LevelheadError(f"{path}: cut short, or not a Keras 3 model ({error}); save the model again") from None


FORMAT = Format(
    name="Keras",
    suffixes=(".keras",),
    find=_find,
    files=lambda path: (path,),
    complete=complete_zip,
    check=lambda path: _arrays(_open(path)),
    note=lambda path: note_in_zip(_open(path)),
)
