"""Heads in the weights of Keras 3 (`.weights.h5`): kernels [d, K] changed where they lie, in HDF5 that stays as it is.

The note stands behind the end of the HDF5 file, which its readers do not look at.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import LevelheadError
from ..core.regular_file import check_regular_file
from ..heads.notes import Note, note_from_json
from .edits import Edit
from .find import find_layers
from .format import Format
from .hdf5 import hdf5_arrays
from .spans import LayerSpans, LocatedHead, Span

MAGIC = b"\nlevelhead note\n"  # the last bytes of a file with a note; before them its length, and the note itself
LONGEST_NOTE = 100_000_000
VARIABLE = re.compile(r"(?:(.*)/)?vars/(\d+)")


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head in a file of weights: by the name of its layer or of its place, or as the only one that fits."""
    stamp = check_regular_file(path, "weights of Keras")
    layers = find_keras_layers(path, *hdf5_arrays(path), named=named, classes=classes)
    return LocatedHead(path=path, layers=layers, files=(path,), stamps={path: stamp}, note=_note(path))


def find_keras_layers(
    path: Path, arrays: Mapping[str, Span], names: Mapping[str, str], *, named: str | None, classes: int | None
) -> tuple[LayerSpans, ...]:
    """Find the head among the arrays of a Keras model, which do not say what they are: only their order does.

    Args:
        path, arrays, names: the file, its arrays by key, and the names of its groups.
        named: a layer by its name (`predictions`) or its place (`layers/dense_1`); `a,b` if they feed one output.
        classes: K, if known.
    """
    spans = name_variables(arrays)
    places = [] if named is None else [_place(path, one, names) for one in named.split(",")]
    return find_layers(path, spans, named=",".join(places) or None, classes=classes)


def name_variables(arrays: Mapping[str, Span]) -> dict[str, Span]:
    """Return arrays by what they are in their layer: kernel and bias, or the numbers of a norm; not an optimizer's."""
    layers: dict[str, list[Span]] = defaultdict(list)
    found = {}
    for key, span in arrays.items():
        match = VARIABLE.fullmatch(key)
        if match and key.partition("/")[0] != "optimizer":
            layers[match[1] or ""].append(span)
        elif not match:
            found[key] = span
    for layer, group in layers.items():
        ordered = sorted(group, key=lambda span: int(span.key.rpartition("/")[2]))
        for title, span in zip(_titles(ordered), ordered, strict=True):
            key = f"{layer}/{title}" if layer else title
            found[key] = Span(key, span.file, span.offset, span.dtype, span.shape, reach=span.reach)
    return found


def _titles(spans: list[Span]) -> list[str]:
    """Return what the variables of a layer are, by their shapes, in Keras's order."""
    first, *rest = (span.shape for span in spans)
    if len(first) > 1 and rest in ([], [first[-1:]]):
        return ["kernel", "bias"][: len(spans)]
    if len(first) == 1 and rest == [first]:
        return ["scale", "bias"]
    if len(first) == 1 and rest == [first] * 3:
        return ["scale", "bias", "running_mean", "running_var"]
    return [f"vars/{i}" for i in range(len(spans))]


def _place(path: Path, named: str, names: Mapping[str, str]) -> str:
    """Return where in the file a layer is that was named as in the model, or by its place there."""
    found = [key.removesuffix("/vars").removesuffix("vars") for key, name in names.items() if name == named]
    if len(found) > 1:
        places = ", ".join(found)
        raise LevelheadError(f"{path}: more than one layer is called {named!r}; name its place: {places}")
    return found[0] if found else named.replace(".", "/")


def _note_range(path: Path) -> tuple[int, int, int]:
    """Return where a note begins and ends, and where the file does: the first two are its end if there is none."""
    end = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, end - len(MAGIC) - 8))
        tail = file.read()
    if len(tail) != len(MAGIC) + 8 or not tail.endswith(MAGIC):
        return end, end, end
    length = int.from_bytes(tail[:8], "little")
    start = end - len(tail) - length
    return (start, end - len(tail), end) if start > 0 and length <= LONGEST_NOTE else (end, end, end)


def _note(path: Path) -> dict[str, Any] | None:
    start, stop, _ = _note_range(path)
    if start == stop:
        return None
    with path.open("rb") as file:
        file.seek(start)
        return note_from_json(file.read(stop - start), path)


def _complete(
    found: LocatedHead, source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits with the note behind the end of the HDF5 file."""
    if note is None:
        return edits
    start, _, end = _note_range(source)
    data = json.dumps(note).encode() if note else b""
    if not data and start == end:
        return edits
    return [*edits, Edit(start, end - start, data + len(data).to_bytes(8, "little") + MAGIC if data else b"")]


FORMAT = Format(
    name="Keras weights",
    suffixes=(".weights.h5",),
    find=_find,
    files=lambda path: (path,),
    complete=_complete,
    check=hdf5_arrays,
    note=_note,
)
