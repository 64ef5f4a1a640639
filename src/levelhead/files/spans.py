"""Where in a file a head's numbers lie: a head as byte ranges. What safetensors, ONNX and state dicts share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..core.choices import LabelTask
from ..core.errors import LevelheadError
from ..core.head import Head, check_finite
from ..core.regular_file import Stamp
from ..heads.notes import NOTE_KEY, digests_in, is_note, note_in_version
from ..io.safetensors_file import ITEM_BYTES, NUMPY_DTYPES, widen_bfloat16
from ..io.text import parse_json
from ..io.text import read as read_text
from ..rules.checks import PROBLEM_TYPES
from ..rules.rule import RULES
from .edits import Edit

HEAD_DTYPES = ("F64", "F32", "F16", "BF16")  # the dtypes that a head may have in a file


@dataclass(frozen=True)
class Span:
    """An array of numbers in a file: little-endian, one after another."""

    key: str
    file: Path
    offset: int
    dtype: str  # one of HEAD_DTYPES for numbers we can scale; other names are kept for messages
    shape: tuple[int, ...]  # as the file has it
    transposed: bool = False  # the file has [d, K] where a head has [K, d]
    reach: int = 0  # bytes from the first to behind the last number, where they do not lie one after another
    tag: int | None = None  # a byte that stands before each number, as in a list of protobuf

    @property
    def logical(self) -> tuple[int, ...]:
        """The shape as the model sees it: [K, d]."""
        return self.shape[::-1] if self.transposed else self.shape

    @property
    def nbytes(self) -> int:
        return (ITEM_BYTES[self.dtype] + (self.tag is not None)) * prod(self.shape)

    def part(self, index: int, shape: tuple[int, ...]) -> "Span":
        """Return one of the equal parts, of this shape, that the numbers have one after another."""
        part = replace(self, shape=shape)
        return replace(part, offset=self.offset + index * part.nbytes)

    def unpack(self, data: bytes) -> bytes:
        """Return the numbers alone, out of the file's bytes."""
        if self.tag is None:
            return data
        return np.frombuffer(data, np.uint8).reshape(prod(self.shape), -1)[:, 1:].tobytes()

    def pack(self, numbers: bytes) -> bytes:
        """Return the file's bytes for the numbers alone."""
        if self.tag is None:
            return numbers
        items = np.frombuffer(numbers, np.uint8).reshape(prod(self.shape), -1)
        return np.insert(items, 0, self.tag, axis=1).tobytes()

    def bytes(self) -> bytes:
        """Return the numbers, as the file has them."""
        with self.file.open("rb") as file:
            file.seek(self.offset)
            data = file.read(self.nbytes)
        if len(data) != self.nbytes:
            raise LevelheadError(f"{self.file}: cut short in {self.key!r}; copy or download it again")
        return self.unpack(data)


@dataclass(frozen=True)
class LayerSpans:
    """One linear layer: its name in the file, weight [K, d] (or [K, d, 1, 1]) and bias [K]."""

    key: str
    weight: Span
    bias: Span | None = None
    plain: bool = True  # the logits are W x + b, and not alpha W x + beta b, in the layer or by what follows it
    task: LabelTask | None = None  # where it is known from what follows the layer: a Sigmoid, or a softmax
    opposite: "LayerSpans | None" = None  # where the file has the one row again, with the other sign

    @property
    def classes(self) -> int:
        return self.weight.logical[0]

    @property
    def shape(self) -> tuple[int, int]:
        return self.classes, prod(self.weight.shape) // self.classes

    @property
    def spans(self) -> tuple[Span, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)


@dataclass(frozen=True)
class LocatedHead:
    """The head in a model's file."""

    path: Path  # the file that stands for the model
    layers: tuple[LayerSpans, ...]  # more than one where several feed one output
    files: tuple[Path, ...]  # all files of the model, `path` first
    stamps: Mapping[Path, Stamp] = field(default_factory=dict)  # what each file was when it was read
    note: dict[str, Any] | None = None  # what an earlier `rescale` recorded in the file
    folder: bool = False  # whether the model is a folder of files and is written as one
    detail: Any = None  # whatever the format needs to write the file again
    given_names: tuple[str, ...] | None = None  # of the classes, where the user says them

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(layer.key for layer in self.layers)

    @property
    def classes(self) -> int:
        return self.layers[0].classes

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The class names given or, from a config.json in the same folder, `id2label`, if it lists one per class."""
        if self.given_names is not None:
            return self.given_names
        try:
            labels = self._config["id2label"]
            names = tuple(str(labels[str(i)]) for i in range(len(labels)))
        except (KeyError, TypeError):
            return None
        return names if len(names) == self.classes else None

    @property
    def task(self) -> tuple[LabelTask, str] | None:
        """Whether samples have one of the classes or several labels, and how that is known; None if it is not.

        It is by what follows the head in an ONNX graph, or by `problem_type` in a config.json in the same folder.
        """
        follows = {"multilabel": "a Sigmoid follows it", "multiclass": "a softmax or argmax follows it"}
        task = self.layers[0].task if self.classes > 1 else None
        return PROBLEM_TYPES.get(self._config.get("problem_type")) if task is None else (task, follows[task])

    @cached_property
    def earlier(self) -> Mapping[str, Any] | None:
        """What was done to the head before: in a file, by its note; in memory, by that of a config in the same folder.

        The note of a config counts if the head is as that adjustment left it.
        """
        version = _json_of(self.path.parent / "adapter_config.json").get("peft_version")
        for note in (self._config.get(NOTE_KEY), note_in_version(version)) if self.note is None else ():
            if is_note(note):
                spans = [layer.weight if RULES[note["rule"]].multiplies else layer.bias for layer in self.layers]
                if {sha256(span.bytes()).hexdigest() for span in spans if span is not None} & {*digests_in(note)}:
                    return note
        return self.note

    @cached_property
    def _config(self) -> dict[str, Any]:
        """The content of a config.json in the same folder; empty without one."""
        return _json_of(self.path.parent / "config.json")


def _json_of(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_text(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def decode(data: bytes, dtype: str) -> np.ndarray:
    """Return numbers of a file as float64 or float32; half precision is widened, which is exact.

    >>> decode(bytes([0x80, 0x3F, 0x49, 0x40]), "BF16")
    array([1. , 3.140625], dtype=float32)
    """
    values = np.frombuffer(data, NUMPY_DTYPES[dtype])
    if dtype == "BF16":
        return widen_bfloat16(values)
    with np.errstate(invalid="ignore"):  # a signaling NaN: `load` reports it
        return values.astype(np.float32) if dtype == "F16" else values


def encode(values: np.ndarray, dtype: str) -> bytes:
    """Return numbers as a file has them; half precision is rounded to nearest, ties to even.

    >>> encode(np.array([1, 3.14159], np.float32), "BF16").hex()
    '803f4940'
    """
    if dtype == "BF16":
        bits = np.ascontiguousarray(values, "<f4").view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    with np.errstate(over="ignore"):  # a number too large for its dtype becomes infinite: `store` reports it
        return values.astype(NUMPY_DTYPES[dtype]).tobytes()


def load(layer: LayerSpans, names: Sequence[str] | None = None) -> Head:
    """Read a layer as a head in float32 or better, and check that its numbers and norms are finite."""
    head = _decode_head(layer, [span.bytes() for span in layer.spans], names)
    check_finite(head, f"{layer.weight.file}: {layer.key}")
    with np.errstate(over="ignore"):
        overflows = ~np.isfinite(head.norms)
    if overflows.any():
        name = head.name(int(np.argmax(overflows)))
        raise LevelheadError(f"{layer.weight.file}: the weight vector of {name} in {layer.key} is too long to measure")
    return head


def store(layer: LayerSpans, head: Head) -> list[tuple[Path, Edit]]:
    """Return the edits that put a head into a layer, each with its file, in the dtypes that the file has."""
    if np.shape(head.weight) != layer.shape or (head.bias is None) != (layer.bias is None):
        want, came = (
            f"{list(shape)} with {'no' if bias is None else 'a'} bias"
            for shape, bias in ((layer.shape, layer.bias), (np.shape(head.weight), head.bias))
        )
        raise LevelheadError(f"{layer.weight.file}: {layer.key} is {want}; a head of {came} does not fit it")
    head = head.numpy()
    data = [encode(head.weight.T if layer.weight.transposed else head.weight, layer.weight.dtype)]
    if layer.bias is not None and head.bias is not None:
        data.append(encode(head.bias, layer.bias.dtype))
    check_finite(
        _decode_head(layer, data, head.names),
        f"{layer.weight.file}: {layer.key}, in {layer.weight.dtype},",
        advice=": use a smaller gamma, or save the model in float32 first",
    )
    edits = [
        (span.file, Edit(span.offset, span.nbytes, span.pack(new))) for span, new in zip(layer.spans, data, strict=True)
    ]
    if layer.opposite is not None:
        edits += store(layer.opposite, Head(-head.weight, None if head.bias is None else -head.bias))
    return edits


def _decode_head(layer: LayerSpans, data: list[bytes], names: Sequence[str] | None) -> Head:
    weight, *bias = (decode(part, span.dtype) for part, span in zip(data, layer.spans, strict=True))
    weight = weight.reshape(-1, layer.classes).T if layer.weight.transposed else weight.reshape(layer.classes, -1)
    return Head(np.ascontiguousarray(weight), bias[0].ravel() if bias else None, names)
