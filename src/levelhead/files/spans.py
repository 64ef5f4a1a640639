"""A head as byte ranges of a file. One too large to be held is adjusted block by block: the same to the bit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..core.class_names import title
from ..core.head import Head, check_finite
from ..core.label_task import PROBLEM_TYPES
from ..heads.notes import Note
from ..io.safetensors_file import ITEM_BYTES, NUMPY_DTYPES, widen_bfloat16
from ..support import text
from ..support.arrays import Array, row_norms, scale_rows
from ..support.errors import LevelheadError
from ..support.regular_file import Stamp, bytes_at
from ..support.types import LabelTask
from .edits import BLOCK_BYTES, LARGE, Edit, FileRange

HEAD_DTYPES = ("F64", "F32", "F16", "BF16")  # the dtypes that a head may have in a file
SMALLER = ": use a smaller strength, or save the model in float32 first"
NEARER = "use a strength nearer to 0, or save it in float32 first"


@dataclass(frozen=True)
class Span:
    """An array of numbers in a file: little-endian, one after another."""

    key: str
    file: Path
    offset: int
    dtype: str  # one of HEAD_DTYPES for numbers we can scale; other names are kept for messages
    shape: tuple[int, ...]  # as the file has it
    transposed: bool = False  # the file has [d, K] where a head has [K, d]
    reach: int = (
        0  # bytes from the first to behind the last number, where they do not lie one after another
    )
    tag: int | None = None  # a byte that stands before each number, as in a list of protobuf

    @property
    def logical(self) -> tuple[int, ...]:
        """The shape as the model sees it: [K, d]."""
        if self.transposed:
            return self.shape[::-1]
        return self.shape

    @property
    def nbytes(self) -> int:
        return (ITEM_BYTES[self.dtype] + (self.tag is not None)) * prod(self.shape)

    def part(self, index: int, shape: tuple[int, ...]) -> "Span":
        """Return one of the equal parts, of this shape, that the numbers have one after another."""
        part = replace(self, shape=shape)
        return replace(part, offset=self.offset + index * part.nbytes)

    def pack(self, numbers: bytes) -> bytes:
        """Return the file's bytes for the numbers alone."""
        if self.tag is None:
            return numbers
        items = np.frombuffer(numbers, np.uint8).reshape(prod(self.shape), -1)
        return np.insert(items, 0, self.tag, axis=1).tobytes()

    def edits(self, numbers: "bytes | FileRange") -> list[tuple[Path, Edit]]:
        """Return the edits that put other numbers there, each with its file."""
        data = numbers
        if not isinstance(numbers, FileRange):
            data = self.pack(numbers)
        return [(self.file, Edit(self.offset, self.nbytes, data))]

    def bytes(self) -> bytes:
        """Return the numbers alone, as the file has them."""
        data = bytes_at(self.file, self.offset, self.nbytes)
        if len(data) != self.nbytes:
            raise LevelheadError(
                f"{self.file}: cut short in {self.key!r}; copy or download it again"
            )
        tagged = self.tag is not None
        if tagged:
            return np.frombuffer(data, np.uint8).reshape(prod(self.shape), -1)[:, 1:].tobytes()
        return data


@dataclass(frozen=True)
class JoinedSpan(Span):
    """Arrays of one row each, in places of their own, that are read and written as one."""

    parts: tuple[Span, ...] = ()

    def edits(self, numbers: "bytes | FileRange") -> list[tuple[Path, Edit]]:
        assert isinstance(numbers, bytes), "joined rows are never too large to be held"
        size = len(numbers) // len(self.parts)
        rows = (numbers[i * size : (i + 1) * size] for i in range(len(self.parts)))
        return [
            edit for part, row in zip(self.parts, rows, strict=True) for edit in part.edits(row)
        ]

    def bytes(self) -> bytes:
        return b"".join(part.bytes() for part in self.parts)


def _join(spans: Sequence[Span], shape: tuple[int, ...]) -> JoinedSpan:
    first = spans[0]
    key = f"{first.key}...{spans[-1].key}"
    return JoinedSpan(key, first.file, first.offset, first.dtype, shape, parts=tuple(spans))


@dataclass(frozen=True)
class LayerSpans:
    """One linear layer: its name in the file, weight [K, d] (or [K, d, 1, 1]) and bias [K]."""

    key: str
    weight: Span
    bias: Span | None = None
    plain: bool = True  # the logits are W x + b, and not alpha W x + beta b, in the layer or by what follows it
    task: LabelTask | None = (
        None  # where it is known from what follows the layer: a Sigmoid, or a softmax
    )
    names: tuple[str, ...] | None = None  # of the classes, where the layer itself has them
    opposite: "LayerSpans | None" = (
        None  # where the file has the one row again, with the other sign
    )

    @property
    def where(self) -> str:
        return f"{self.weight.file}: {self.key}"

    @property
    def classes(self) -> int:
        return self.weight.logical[0]

    @property
    def shape(self) -> tuple[int, int]:
        return self.classes, prod(self.weight.shape) // self.classes

    @property
    def spans(self) -> tuple[Span, ...]:
        if self.bias is None:
            return (self.weight,)
        return (self.weight, self.bias)


def join_rows(key: str, layers: Sequence[LayerSpans]) -> LayerSpans:
    """Return layers of one row each, one for each class, as one layer."""
    for layer in layers:
        first = layers[0]
        if layer.shape != (1, first.shape[1]) or layer.weight.dtype != first.weight.dtype:
            got = f"{layer.key} {list(layer.shape)} {layer.weight.dtype}"
            expected = f"expected one row of {first.shape[1]} numbers for each class"
            raise LevelheadError(f"{layer.weight.file}: {expected}, got {got}")
    opposites = [layer.opposite for layer in layers if layer.opposite is not None]
    if opposites and len(opposites) < len(layers):
        raise LevelheadError(
            f"{layers[0].where}: some of its classes have two rows, and others one"
        )
    return LayerSpans(
        key,
        _join([layer.weight for layer in layers], (len(layers), layers[0].shape[1])),
        _join([layer.bias for layer in layers if layer.bias is not None], (len(layers),)),
        opposite=join_rows(key, opposites) if opposites else None,
    )


# (file, its edits, note, new names of files) -> the edits with all else that must change
Complete = Callable[[Path, list[Edit], Note | None, Mapping[Path, str]], list[Edit]]


@dataclass(frozen=True)
class LocatedHead:
    """The head in a model's file."""

    path: Path  # the file that stands for the model
    layers: tuple[LayerSpans, ...]  # more than one where several feed one output
    # All files of the model, `path` first: what each was when it was read.
    stamps: Mapping[Path, Stamp]
    complete: Complete
    note: Note | None = None  # what an earlier adjustment recorded in the file
    folder: bool = False  # whether the model is a folder of files and is written as one
    # (layer, its bias [K]) -> edits that give a layer without a bias one; None if its files cannot hold it
    add_bias: Callable[[LayerSpans, Array], list[Edit]] | None = None
    given_names: tuple[str, ...] | None = None  # of the classes, where the user says them
    given_task: LabelTask | None = None  # where the user says it

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self.stamps)

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
            labels = self.config["id2label"]
            names = tuple(str(labels[str(i)]) for i in range(len(labels)))
        except (KeyError, TypeError):
            return None
        if len(names) == self.classes:
            return names
        return None

    @property
    def task(self) -> tuple[LabelTask, str] | None:
        """One class or several labels, and how that is known: by what follows in a graph, or by a config.json."""
        if self.given_task is not None:
            return self.given_task, "as was said"
        follows = {
            "multilabel": "a Sigmoid follows it",
            "multiclass": "a softmax or argmax follows it",
        }
        task = self.layers[0].task if self.classes > 1 else None
        if task is None:
            return PROBLEM_TYPES.get(str(self.config.get("problem_type")))
        return (task, follows[task])

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of a config.json in the same folder; empty without one."""
        return json_of(self.path.parent / "config.json")


def json_of(path: Path) -> dict[str, Any]:
    """Return what a file of JSON holds; nothing if it cannot be read."""
    try:
        found = text.parse_json(text.read(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def decode(data: bytes, dtype: str) -> np.ndarray:
    """Return numbers of a file as float64 or float32; half precision is widened, which is exact."""
    values = np.frombuffer(data, NUMPY_DTYPES[dtype])
    if dtype == "BF16":
        return widen_bfloat16(values)
    with np.errstate(invalid="ignore"):  # a signaling NaN: `load` reports it
        if dtype == "F16":
            return values.astype(np.float32)
        return values


def encode(values: np.ndarray, dtype: str) -> bytes:
    """Return numbers as a file has them; half precision is rounded to nearest, ties to even."""
    if dtype == "BF16":
        bits = np.ascontiguousarray(values, "<f4").view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    # A number too large for its dtype becomes infinite: `store` reports it.
    with np.errstate(over="ignore"):
        return values.astype(NUMPY_DTYPES[dtype]).tobytes()


def load(layer: LayerSpans, names: Sequence[str] | None = None) -> Head:
    """Read a layer as a head in float32 or better, and check that its numbers and norms are finite."""
    head = check_finite(
        _decode_head(layer, [span.bytes() for span in layer.spans], names), layer.where
    )
    with np.errstate(over="ignore"):
        overflows = ~np.isfinite(head.norms)
    if overflows.any():
        name = head.name(int(np.argmax(overflows)))
        raise LevelheadError(
            f"{layer.weight.file}: the weight vector of {name} in {layer.key} is too long to measure"
        )
    return head


def store(
    layer: LayerSpans, head: Head, rows: "ScaledRows | None" = None
) -> list[tuple[Path, Edit]]:
    """Return the edits that put a head into a layer, each with its file; its weights are `rows` if they are given."""
    if rows is None:
        given = np.shape(head.weight)
    else:
        given = layer.shape
    if given != layer.shape or (head.bias is None) != (layer.bias is None):
        both = (layer.shape, layer.bias), (given, head.bias)
        want, came = (
            f"{list(shape)} with {'no' if bias is None else 'a'} bias" for shape, bias in both
        )
        raise LevelheadError(f"{layer.where} is {want}; a head of {came} does not fit it")
    head = head.numpy()
    if layer.bias is None or head.bias is None:
        bias = []
    else:
        bias = [encode(head.bias, layer.bias.dtype)]
    if rows is None:
        data = [
            encode(head.weight.T if layer.weight.transposed else head.weight, layer.weight.dtype),
            *bias,
        ]
        written = _decode_head(layer, data, head.names)
    else:  # they are checked already
        data = [rows, *bias]
        written = Head(
            np.ones((layer.classes, 1)), decode(bias[0], layer.spans[1].dtype) if bias else None
        )
    check_finite(written, f"{layer.where}, in {layer.weight.dtype},", advice=SMALLER)
    parts = zip(layer.spans, data, strict=True)
    edits = [edit for span, new in parts for edit in span.edits(new)]
    if layer.opposite is not None:
        edits += store(
            layer.opposite, Head(-head.weight, None if head.bias is None else -head.bias)
        )
    return edits


def _decode_head(layer: LayerSpans, data: list[bytes], names: Sequence[str] | None) -> Head:
    weight, *bias = (decode(part, span.dtype) for part, span in zip(data, layer.spans, strict=True))
    if layer.weight.transposed:
        weight = weight.reshape(-1, layer.classes).T
    else:
        weight = weight.reshape(layer.classes, -1)
    return Head(np.ascontiguousarray(weight), bias[0].ravel() if bias else None, names)


@dataclass(frozen=True, eq=False)
class ScaledRows(FileRange):
    """Rows of numbers in a file, each times its factor, as the file will have them."""

    dtype: str
    width: int
    factors: np.ndarray

    def rows(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield the first row, the rows [n, d] as they are, and as they become, of each block."""
        row_bytes = self.width * ITEM_BYTES[self.dtype]
        step = max(1, BLOCK_BYTES // row_bytes)
        for i, data in enumerate(self.read(step * row_bytes)):
            before = decode(data, self.dtype).reshape(-1, self.width)
            yield (
                i * step,
                before,
                scale_rows(before, self.factors[i * step : i * step + len(before)]),
            )

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes that will be written."""
        for _, _, after in self.rows():
            yield encode(after, self.dtype)


def is_large(found: LocatedHead) -> bool:
    """Return whether a head is a single layer of a safetensors file that is too large to be held several times."""
    layer, *others = found.layers
    simple = not others and layer.opposite is None and layer.classes > 2
    plain = all(span.tag is None and not span.reach and not span.transposed for span in layer.spans)
    return (
        simple
        and plain
        and layer.weight.file.suffix == ".safetensors"
        and layer.weight.nbytes >= LARGE
    )


def thin_head(layer: LayerSpans, names: Sequence[str] | None) -> Head:
    """Return a head with the classes and the bias of a large one, and weights of length 1."""
    bias = None
    if layer.bias is not None:
        bias = decode(layer.bias.bytes(), layer.bias.dtype).ravel()
    return check_finite(Head(np.ones((layer.classes, 1), np.float32), bias, names), layer.where)


def load_norms(layer: LayerSpans, names: Sequence[str] | None) -> Head:
    """Return a head whose weight vectors have one number each, their length, and the bias of a large one."""
    return replace(thin_head(layer, names), weight=scale_large(layer, None, names)[1][:, None])


def scale_large(
    layer: LayerSpans, factors: np.ndarray | None, names: Sequence[str] | None
) -> tuple[ScaledRows, np.ndarray, np.ndarray]:
    """Return a large head's rows times factors [K], if any, all of them checked, and their lengths before and after."""
    span = layer.weight
    if factors is None:
        by = np.ones(layer.classes)
    else:
        by = np.asarray(factors, np.float64)
    scaled = ScaledRows(
        span.file, span.offset, span.nbytes, span.dtype, prod(span.shape) // layer.classes, by
    )
    norms = [
        check_rows(layer, before, after, names, first) for first, before, after in scaled.rows()
    ]
    before, after = map(np.concatenate, zip(*norms, strict=True))
    return scaled, before, after


def check_rows(
    layer: LayerSpans,
    before: np.ndarray,
    after: np.ndarray,
    names: Sequence[str] | None,
    first: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of rows of weights; raise if some are not finite, or too small for the file's numbers."""
    span, where = layer.weight, layer.where
    kept = decode(encode(after, span.dtype), span.dtype).reshape(before.shape)
    lengths = row_norms(before).astype(np.float64), row_norms(after).astype(np.float64)
    problems = {
        f"{where} has NaN or infinite weight values in %s": ~np.isfinite(before).all(axis=1),
        f"{span.file}: the weight vector of %s in {layer.key} is too long to measure": ~np.isfinite(
            lengths[0]
        ),
        f"{where}, in {span.dtype}, has NaN or infinite weight values in %s{SMALLER}": ~np.isfinite(
            kept
        ).all(axis=1),
        f"{where}, in {span.dtype}, would become 0 in %s: {NEARER}": before.any(axis=1)
        & ~kept.any(axis=1),
    }
    for problem, rows in problems.items():
        if rows.any():
            raise LevelheadError(problem % title(first + int(np.argmax(rows)), names))
    return lengths
