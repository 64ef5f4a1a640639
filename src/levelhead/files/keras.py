"""Heads in Keras 3 models (`.keras`), proved by the graph in config.json, without Keras.

The file is a zip:

    config.json         the model: its layers with their settings, and which takes what
    model.weights.h5    an HDF5 file with an array for each variable, stored as it is
    metadata.json       which Keras wrote it; not read

    _arrays: the HDF5 file inside -> {key: Span}, and the names of layers that it states (hdf5.py)
    head_in_config: the graph -> the layers of the head (keras_config.py)
    _places: layers -> where their weights are in the HDF5 file (keras_layers.py)
    find_among_arrays: those places -> kernel and bias (keras_weights.py)

A subclassed model has no graph in its config; there the head is found among the arrays by shape, or
by its name. Keras is neither needed nor run: loading a model with it may call code of the file.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

from ..support.errors import LevelheadError, in_file, reported_as
from ..support.regular_file import check_regular_file
from ..support.text import parse_json
from .format import Reader
from .hdf5 import hdf5_arrays
from .keras_config import NAME_HEAD_LAYER, head_in_config
from .keras_layers import KERAS_2_LAYERS, Config, LayerPath, layers_in, places_of_keras_2
from .keras_weights import find_among_arrays
from .located import LocatedHead
from .spans import Span
from .zip import Archive

WEIGHTS_RECORD = "model.weights.h5"
CONFIG_RECORD = "config.json"


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head of a Keras model: by its graph or, of a subclassed model, among its arrays.

    Args:
        path, named, classes: as in `FindHead`. A layer that is named is taken without the graph.

    Raises:
        LevelheadError: the graph ends in something else than a head, or does not fit the weights.
    """
    stamp = check_regular_file(path, "a Keras model")
    archive = _open(path)
    arrays, names = _arrays(archive)
    head = None
    if named is None:
        damaged = "cut short, or not a Keras model ({}); save the model again"
        with in_file(path), reported_as(damaged, BadZipFile, UnicodeDecodeError):
            config = parse_json(archive.unpack(CONFIG_RECORD).decode())
            head = head_in_config(config, classes)
        if head is not None:
            # The graph says which layer; its weights are wherever the Keras that wrote the file put
            # them.
            places = _places(config, arrays, names)
            lacking = [layer for layer in head.layers if layer not in places]
            if lacking:
                reason = f"its weights have no layer {'/'.join(lacking[0])}"
                raise LevelheadError(
                    f"{path}: {reason}; save the model again with Keras 3", advice=NAME_HEAD_LAYER
                )
            named = ",".join(places[layer] for layer in head.layers)
    layers = find_among_arrays(path, arrays, names, named, classes)
    if head is not None:
        # The two records may be of two models, or a place that was made from classes and numbers
        # the wrong one: sizes tell.
        if any(layer.classes != head.units for layer in layers):
            raise LevelheadError(
                f"{path}: its weights do not fit its config.json; save the model again with Keras 3"
            )
        sigmoids = head.units > 1 and "sigmoid" in head.follows
        layers = tuple(
            replace(layer, task=head.task, plain=head.plain, sigmoids=sigmoids) for layer in layers
        )
    return LocatedHead(path, layers, {path: stamp}, archive.complete, archive.note)


def _arrays(archive: Archive) -> tuple[dict[str, Span], dict[str, str]]:
    """Return the arrays of a model, and the names of layers that they state, as `hdf5_arrays` does.

    Raises:
        LevelheadError: the record is missing, compressed (somebody packed the file anew), or
            damaged.
    """
    record = archive.find(WEIGHTS_RECORD)
    if record is None:
        raise LevelheadError(
            f"{archive.path}: no {WEIGHTS_RECORD} in it; save the model again with Keras 3"
        )
    if not archive.is_plain(record):
        raise LevelheadError(
            f"{archive.path}: its weights are compressed; save the model again with Keras itself"
        )
    return hdf5_arrays(archive.path, archive.data_at[record.filename], record.file_size)


def _places(
    config: Config, arrays: Mapping[str, Span], names: Mapping[str, str]
) -> dict[LayerPath, str]:
    """Return {names that lead to a layer: its place in the file}.

    A place is the group that a layer's variables are in. How it is called depends on the Keras that
    wrote the file, which is told by what is there.

    Args:
        config: of the model.
        arrays: of its file, by key.
        names: of layers, by the group that states them.
    """
    # Since Keras 3.4, the group `vars` of each layer states its name.
    stated = {
        key.removesuffix("vars").rstrip("/"): name
        for key, name in names.items()
        if key.endswith("vars")
    }
    if stated:
        places = {}
        for place in stated:
            # The groups around it that are layers: models, and wrappers.
            parts = place.split("/")
            groups = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
            path = tuple(stated[group] for group in groups if group in stated)
            places[path] = place
        return places
    # Earlier, places are made from the classes of layers: in one way by Keras 2.12 to 2.15, and in
    # another by 3.0 to 3.3.
    if any(key.startswith(KERAS_2_LAYERS) for key in arrays):
        return places_of_keras_2(config, arrays)
    return {configured.path: configured.place for configured in layers_in(config)}


def _open(path: Path) -> Archive:
    with (
        in_file(path),
        reported_as("cut short, or not a Keras 3 model ({}); save the model again", BadZipFile),
    ):
        return Archive(path, in_folder=False)


READER = Reader(_find, note=lambda path: _open(path).note, check=lambda path: _arrays(_open(path)))
