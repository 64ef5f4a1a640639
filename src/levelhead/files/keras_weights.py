"""Heads in weights of Keras 3 (`.weights.h5`): an HDF5 file, as every `.keras` has one inside.

    layers/dense/vars/0    the kernel [d, K] of a layer
    layers/dense/vars/1    its bias [K]
    layers/dense/vars      the group of both; since Keras 3.4 it states the name of the layer
    optimizer/vars/0 ...   the state of an optimizer, of a model that was saved with it

A variable has a number and no name, so that `_name_variables` tells by the shapes what each is;
then the head is found by name and shape as in any file without a graph (find.py). The note of an
adjustment goes behind the end of the file, where HDF5 does not look (note_behind.py).
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..heads.notes import Note
from ..support.errors import LevelheadError
from ..support.regular_file import check_regular_file
from .edits import Edit
from .find import find_layers
from .format import Reader
from .hdf5 import hdf5_arrays
from .located import LocatedHead
from .note_behind import encode_note, find_note, read_note
from .spans import LayerSpans, Span

# A variable of a layer: the layer, and the number of the variable.
VARIABLE = re.compile(r"(?:(.*)/)?vars/(\d+)")


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head in a file of weights: by the name of its layer or place, or by its shape.

    Args:
        path, named, classes: as in `FindHead`.
    """
    stamps = {path: check_regular_file(path, "weights of Keras")}
    arrays, names = hdf5_arrays(path)
    # Keras 2 named its variables as TensorFlow does, `dense/kernel:0`, whatever the file was
    # called.
    if any(key.endswith(":0") for key in arrays):
        reason = "weights in Keras's old format"
        raise LevelheadError(
            f"{path}: {reason}; load them into their model and save it again with Keras 3"
        )
    layers = find_among_arrays(path, arrays, names, named, classes)
    return LocatedHead(path, layers, stamps, _complete, _note(path))


def find_among_arrays(
    path: Path,
    arrays: Mapping[str, Span],
    names: Mapping[str, str],
    named: str | None,
    classes: int | None,
) -> tuple[LayerSpans, ...]:
    """Find the head among the arrays of a Keras model.

    keras.py calls it, too, with the places that the graph led to.

    Args:
        path, arrays, names: the file, its arrays, and the names of layers, as `hdf5_arrays` gives
            them.
        named: the layer, as the model calls it or by its place in the file; several are divided by
            commas.
        classes: K, where it is known.

    Raises:
        LevelheadError: as `find_layers`; also if several layers have that name.
    """
    places = []
    if named is not None:
        for name in named.split(","):
            places.append(_place_of(path, names, name))
    return find_layers(
        path, _name_variables(arrays), named=",".join(places) or None, classes=classes
    )


def _place_of(path: Path, names: Mapping[str, str], name: str) -> str:
    """Return the place of the layer of this name or, if none is called that, the name as a place.

    Models inside a model may have layers of the same name: then only a place is clear.
    """
    places = [
        key.removesuffix("/vars").removesuffix("vars")
        for key, stated in names.items()
        if stated == name
    ]
    if len(places) > 1:
        raise LevelheadError(
            f"{path}: more than one layer is called {name!r}; name its place: {', '.join(places)}"
        )
    if places:
        return places[0]
    return name.replace(".", "/")


def _name_variables(arrays: Mapping[str, Span]) -> dict[str, Span]:
    """Return arrays by what they are in their layer: kernel and bias, or the numbers of a norm.

    Keras only counts the variables of a layer, `dense/vars/0`. Their shapes tell which is which: a
    matrix, perhaps with as many numbers as it has columns, is linear; two or four vectors of one
    size are a norm. Others keep their numbers, and are no head. An optimizer's, which have the same
    shapes, are left out.
    """
    named = {}
    layers: dict[str, list[Span]] = defaultdict(list)
    for key, span in arrays.items():
        match = VARIABLE.fullmatch(key)
        if match is None:
            named[key] = span
        elif key.partition("/")[0] != "optimizer":
            layers[match[1] or ""].append(span)
    for layer, spans in layers.items():
        # By number: in the file they are sorted as texts, and 10 comes before 2.
        ordered = sorted(spans, key=lambda span: int(span.key.rpartition("/")[2]))
        first, *others = (span.shape for span in ordered)
        # A kernel alone or with a bias; scale and shift of a norm, perhaps with its running mean
        # and variance; or something else.
        titles = [f"vars/{i}" for i in range(len(ordered))]
        if len(first) > 1 and others in ([], [first[-1:]]):
            titles = ["kernel", "bias"]
        elif len(first) == 1 and others in ([first], [first] * 3):
            titles = ["scale", "bias", "running_mean", "running_var"]
        for title, span in zip(titles, ordered, strict=False):
            key = f"{layer}/{title}" if layer else title
            named[key] = replace(span, key=key)
    return named


def _note(path: Path) -> dict[str, Any] | None:
    return read_note(path, find_note(path, path.stat().st_size))


def _complete(
    source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits with the note behind the end of the HDF5 file.

    HDF5 has no checksums in the version that h5py writes, so that nothing else changes with a head.

    Args:
        source, edits: the file, and what changes in its arrays.
        note: what to record; an empty one takes an earlier record out, None leaves it.
        names: of files as they will be; this one refers to no other.
    """
    if note is None:
        return edits
    old = find_note(source, source.stat().st_size)
    data = encode_note(note)
    if not data and old.start == old.end:
        return edits
    return [*edits, Edit(old.start, old.end - old.start, data)]


READER = Reader(_find, note=_note, check=hdf5_arrays)
