"""Heads in Keras 3 models (`.keras`), proved by the graph in config.json, and their `.weights.h5`, without Keras."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from ..heads.notes import Note
from ..support.errors import LevelheadError, in_file, reported_as
from ..support.regular_file import check_regular_file
from ..support.text import parse_json
from .edits import Edit
from .find import find_layers
from .format import Format
from .hdf5 import hdf5_arrays
from .keras_config import (
    KERAS_2_LAYERS,
    NAME_HEAD_LAYER,
    head_in_config,
    layers_in,
    places_of_keras_2,
)
from .note_behind import encode_note, find_note, read_note
from .spans import LayerSpans, LocatedHead, Span
from .zip import Archive

WEIGHTS, CONFIG = "model.weights.h5", "config.json"
VARIABLE = re.compile(r"(?:(.*)/)?vars/(\d+)")


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
    layers = _find_layers(path, arrays, names, named, classes)
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


def _find_in_weights(
    path: Path, *, named: str | None = None, classes: int | None = None
) -> LocatedHead:
    """Find the head in a file of weights: by the name of its layer or of its place, or as the only one that fits."""
    stamps = {path: check_regular_file(path, "weights of Keras")}
    layers = _find_layers(path, *hdf5_arrays(path), named, classes)
    return LocatedHead(path, layers, stamps, _complete_weights, _note_behind(path))


def _find_layers(
    path: Path,
    arrays: Mapping[str, Span],
    names: Mapping[str, str],
    named: str | None,
    classes: int | None,
) -> tuple[LayerSpans, ...]:
    """Find the head among the arrays of a Keras model; it is named as in the model, or by its place in the file."""
    places = []
    for one in [] if named is None else named.split(","):
        keys = [
            key.removesuffix("/vars").removesuffix("vars")
            for key, name in names.items()
            if name == one
        ]
        if len(keys) > 1:
            raise LevelheadError(
                f"{path}: more than one layer is called {one!r}; name its place: {', '.join(keys)}"
            )
        places += keys or [one.replace(".", "/")]
    return find_layers(
        path, _name_variables(arrays), named=",".join(places) or None, classes=classes
    )


def _name_variables(arrays: Mapping[str, Span]) -> dict[str, Span]:
    """Return arrays by what they are in their layer: kernel and bias, or the numbers of a norm; not an optimizer's."""
    layers: dict[str, list[Span]] = defaultdict(list)
    found = {}
    for key, span in arrays.items():
        if (match := VARIABLE.fullmatch(key)) and key.partition("/")[0] != "optimizer":
            layers[match[1] or ""].append(span)
        elif not match:
            found[key] = span
    for layer, group in layers.items():
        ordered = sorted(group, key=lambda span: int(span.key.rpartition("/")[2]))
        first, *rest = (span.shape for span in ordered)
        titles = [f"vars/{i}" for i in range(len(ordered))]
        if len(first) > 1 and rest in ([], [first[-1:]]):
            titles = ["kernel", "bias"]
        elif len(first) == 1 and rest in ([first], [first] * 3):
            titles = ["scale", "bias", "running_mean", "running_var"]
        for title, span in zip(titles, ordered, strict=False):
            key = f"{layer}/{title}" if layer else title
            found[key] = replace(span, key=key)
    return found


def _note_behind(path: Path) -> dict[str, Any] | None:
    return read_note(path, find_note(path, path.stat().st_size))


def _complete_weights(
    source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits with the note behind the end of the HDF5 file."""
    if note is None:
        return edits
    old = find_note(source, source.stat().st_size)
    data = encode_note(note)
    if not data and old.start == old.end:
        return edits
    return [*edits, Edit(old.start, old.end - old.start, data)]


FORMAT = Format(
    "Keras",
    (".keras",),
    _find,
    lambda path: _open(path).note,
    check=lambda path: _arrays(_open(path)),
)
WEIGHTS_FORMAT = Format(
    "Keras weights", (".weights.h5",), _find_in_weights, _note_behind, check=hdf5_arrays
)
