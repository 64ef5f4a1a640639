"""Where in a file a head's numbers lie: a head, as byte ranges. What safetensors, ONNX and state dicts share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.adjust import RULES
from ..core.errors import LevelheadError
from ..core.head import Head, check_finite
from .edits import Edit

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # the dtypes a head may have in a file, in bytes
TEXTS = ("version", "rule", "bias", "sha256")
# A note's entries in a file's metadata: {name there: field}. Others that begin so, as a snapshot's, are none of them.
NOTE = {f"levelhead.{field}": field for field in (*TEXTS, "gamma", "counts", "head", "factors", "before")}


@dataclass(frozen=True)
class Span:
    """An array of numbers in a file: little-endian, one after another.

    Args:
        key: its name in the file.
        file: the file.
        offset: of its first byte.
        dtype: a key of SIZES for numbers we can scale; other names are kept for messages.
        shape: as the file has it.
        transposed: the file has [d, K] where a head has [K, d].
    """

    key: str
    file: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]
    transposed: bool = False

    @property
    def logical(self) -> tuple[int, ...]:
        """The shape as the model sees it: [K, d]."""
        return self.shape[::-1] if self.transposed else self.shape

    @property
    def nbytes(self) -> int:
        return SIZES[self.dtype] * int(np.prod(self.shape))

    def bytes(self) -> bytes:
        with self.file.open("rb") as file:
            file.seek(self.offset)
            data = file.read(self.nbytes)
        if len(data) != self.nbytes:
            raise LevelheadError(f"{self.file}: cut short in {self.key!r}; copy or download it again")
        return data


@dataclass(frozen=True)
class Place:
    """One linear layer.

    Args:
        key: its name in the file.
        weight: [K, d]; a 1x1 convolution's trailing ones are dropped.
        bias: [K] or None.
        plain: the logits are ``W x + b``, and not ``alpha W x + beta b``, in the layer or by what follows it.
    """

    key: str
    weight: Span
    bias: Span | None = None
    plain: bool = True

    @property
    def classes(self) -> int:
        return self.weight.logical[0]

    @property
    def shape(self) -> tuple[int, int]:
        return self.classes, int(np.prod(self.weight.shape)) // self.classes

    @property
    def spans(self) -> tuple[Span, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


@dataclass(frozen=True)
class Found:
    """What was found in a model's file.

    Args:
        path: the file that stands for the model.
        places: the head; more than one layer where several feed one output.
        files: all files the model consists of, `path` first.
        names: class names, where known.
        note: what an earlier `rescale` recorded in the file, or None.
        folder: whether the model is a folder of files and is written as one.
        detail: whatever the format needs to write the file again.
    """

    path: Path
    places: tuple[Place, ...]
    files: tuple[Path, ...]
    names: tuple[str, ...] | None = None
    note: dict[str, Any] | None = None
    folder: bool = False
    detail: Any = None


def decode(data: bytes, dtype: str) -> np.ndarray:
    """Numbers of a file as float64 or float32; half precision is widened, which is exact.

    >>> decode(bytes([0x80, 0x3F, 0x49, 0x40]), "BF16")
    array([1. , 3.140625], dtype=float32)
    """
    if dtype == "BF16":  # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype == "F16":
        with np.errstate(invalid="ignore"):  # a NaN of the kind that signals: named later, by `load`
            return np.frombuffer(data, "<f2").astype(np.float32)
    return np.frombuffer(data, {"F64": "<f8", "F32": "<f4"}[dtype])


def encode(values: np.ndarray, dtype: str) -> bytes:
    """Numbers as a file has them; half precision is rounded to nearest, ties to even.

    >>> encode(np.array([1, 3.14159], np.float32), "BF16").hex()
    '803f4940'
    """
    if dtype == "BF16":
        bits = np.ascontiguousarray(values, "<f4").view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    with np.errstate(over="ignore"):  # a number too large for its dtype becomes infinite, and is named by `store`
        return values.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def load(place: Place, names: Sequence[str] | None = None) -> Head:
    """The head at a place, in float32 or better; a ValueError if its numbers or norms are NaN or infinite."""
    head = _head(place, [span.bytes() for span in place.spans], names)
    check_finite(head, f"{place.weight.file}: {place.key}")
    with np.errstate(over="ignore"):
        endless = ~np.isfinite(head.norms)
    if endless.any():
        raise LevelheadError(f"{place.weight.file}: {place.key} has a weight vector too long for a number, in "
                         f"{head.name(int(np.argmax(endless)))}")
    return head


def store(place: Place, head: Head) -> list[tuple[Path, Edit]]:
    """The edits that put a head in its place, each with its file, in the dtypes that the file has."""
    if np.shape(head.weight) != place.shape or (head.bias is None) != (place.bias is None):
        want, came = ("no bias" if missing else "a bias" for missing in (place.bias is None, head.bias is None))
        raise LevelheadError(
            f"{place.weight.file}: {place.key} is {list(place.shape)} with {want}; a head of "
            f"{list(np.shape(head.weight))} with {came} does not fit it"
        )
    head = head.numpy()
    data = [encode(head.weight.T if place.weight.transposed else head.weight, place.weight.dtype)]
    if place.bias is not None and head.bias is not None:
        data.append(encode(head.bias, place.bias.dtype))
    try:
        check_finite(_head(place, data, head.names), f"{place.weight.file}: {place.key}, in {place.weight.dtype},")
    except ValueError as error:
        raise LevelheadError(f"{error}: use a smaller gamma, or save the model in float32 first") from None
    return [(span.file, Edit(span.offset, span.nbytes, new)) for span, new in zip(place.spans, data, strict=True)]


def _head(place: Place, data: list[bytes], names: Sequence[str] | None) -> Head:
    weight, *bias = (decode(part, span.dtype) for part, span in zip(data, place.spans, strict=True))
    weight = weight.reshape(-1, place.classes).T if place.weight.transposed else weight.reshape(place.classes, -1)
    return Head(np.ascontiguousarray(weight), bias[0].ravel() if bias else None, names)


def note_entries(note: Mapping[str, Any]) -> dict[str, str]:
    """A note as the strings that metadata can hold: texts as they are, everything else as JSON."""
    return {key: note[field] if field in TEXTS else json.dumps(note[field]) for key, field in NOTE.items()
            if field in note}


def note_from(entries: Mapping[str, str], file: Path) -> dict[str, Any] | None:
    """The note among a file's metadata; None if there is none."""
    ours = {field: entries[key] for key, field in NOTE.items() if key in entries}
    if "rule" not in ours:
        return None
    try:
        note = {key: text if key in TEXTS else json.loads(text) for key, text in ours.items()}
    except (ValueError, RecursionError):
        note = None
    return check_note(note, file)


def check_note(note: Any, file: Path) -> dict[str, Any]:
    """The same note, if it is one that `rescale` wrote: others may write into a file's metadata too."""
    try:
        by = np.array(note["factors"], np.float64)
        sound = (
            note["rule"] in RULES
            and np.isfinite([*by, float(note["gamma"])]).all()
            and (note["rule"] == "shift" or by.all())
            and note["bias"] in ("scale", "keep")
            and all(isinstance(text, str) for text in (note["version"], *note["head"]))
            and ("before" not in note or bool(check_note(note["before"], file)))
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise LevelheadError(f"{file}: its record of an earlier adjustment is damaged; save the model again without it")
    return note


def names_beside(path: Path, classes: int) -> tuple[str, ...] | None:
    """Class names from `id2label` in a config.json in the same folder, if it lists this many."""
    try:
        labels = json.loads((path.parent / "config.json").read_text(encoding="utf-8"))["id2label"]
        names = tuple(str(labels[str(i)]) for i in range(len(labels)))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return names if len(names) == classes else None
