"""A head as byte ranges of a file: a `Span` for an array, a `LayerSpans` for a weight and a bias.

Nothing here reads more than it is asked for: a span knows where its numbers lie, of which dtype and
shape they are, and turns other numbers into edits of these bytes. That is all that formats have in
common, and all that writing needs: readers make spans, whatever their file looks like around them.
numbers.py reads a layer as a `Head`, and large.py does so for one that is too large to be held.

Two cases are not one plain range. Numbers in a list of protobuf may have a byte before each
(`Span.tag`). And classifiers of one row per class, as one-against-the-rest models have, lie all
over the file: `join_rows` makes one layer of them, whose spans are `JoinedSpan`s.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from ..io.safetensors_file import ITEM_BYTES
from ..support.errors import LevelheadError
from ..support.regular_file import bytes_at
from ..support.types import LabelTask, TwoScores
from .edits import Edit, FileRange

HEAD_DTYPES = ("F64", "F32", "F16", "BF16")  # the dtypes that a head may have in a file


@dataclass(frozen=True)
class Span:
    """An array of numbers in a file: little-endian, one after another.

    Args:
        key: what the file calls it.
        file, offset: where its first number begins.
        dtype: one of HEAD_DTYPES for numbers that can be changed; other names are for messages.
        shape: as the file has it.
        transposed: whether the file has [d, K] where a head has [K, d].
        reach: bytes from the first to behind the last number, where they do not lie one after
            another; 0 where they do.
        tag: a byte that stands before each number, as in a list of protobuf.

    >>> kernel = Span("dense/kernel", Path("model.h5"), 4096, "F32", (64, 10), transposed=True)
    >>> kernel.logical, kernel.nbytes
    ((10, 64), 2560)
    """

    key: str
    file: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]
    transposed: bool = False
    reach: int = 0
    tag: int | None = None

    @property
    def logical(self) -> tuple[int, ...]:
        """The shape as the model sees it: [K, d]."""
        if self.transposed:
            return self.shape[::-1]
        return self.shape

    @property
    def nbytes(self) -> int:
        """How many bytes of the file it takes, tags included."""
        item = ITEM_BYTES[self.dtype]
        if self.tag is not None:
            item += 1
        return item * prod(self.shape)

    def part(self, index: int, shape: tuple[int, ...]) -> "Span":
        """Return one of the equal parts that the numbers have one after another.

        Args:
            index: which, from 0 on.
            shape: of the part; `part(0, shape)` of the same size is the span in another shape.
        """
        part = replace(self, shape=shape)
        return replace(part, offset=self.offset + index * part.nbytes)

    def pack(self, numbers: bytes) -> bytes:
        """Return the file's bytes for plain numbers: with a tag before each, where it has tags.

        Args:
            numbers: the encoded numbers, one after another.
        """
        if self.tag is None:
            return numbers
        # A row for each number, into which its tag is put as the first byte.
        items = np.frombuffer(numbers, np.uint8).reshape(prod(self.shape), -1)
        return np.insert(items, 0, self.tag, axis=1).tobytes()

    def edits(self, numbers: "bytes | FileRange") -> list[tuple[Path, Edit]]:
        """Return the edits that put other numbers there, each with its file.

        Args:
            numbers: the encoded numbers, or what stands for so many that they are not held; those
                have no tags, as only plain rows may be so large.
        """
        data = numbers
        if not isinstance(numbers, FileRange):
            data = self.pack(numbers)
        return [(self.file, Edit(self.offset, self.nbytes, data))]

    def bytes(self) -> bytes:
        """Read the numbers alone, without tags, as the file has them.

        Raises:
            LevelheadError: the file ends before they do.
        """
        data = bytes_at(self.file, self.offset, self.nbytes)
        if len(data) != self.nbytes:
            raise LevelheadError(
                f"{self.file}: cut short in {self.key!r}; copy or download it again"
            )
        if self.tag is None:
            return data
        return np.frombuffer(data, np.uint8).reshape(prod(self.shape), -1)[:, 1:].tobytes()


@dataclass(frozen=True)
class JoinedSpan(Span):
    """Arrays of one row each, in places of their own, that are read and written as one.

    Its offset is that of the first part; the shape is the whole's.

    Args:
        parts: the rows, in the order of the classes.
    """

    parts: tuple[Span, ...] = ()

    def edits(self, numbers: "bytes | FileRange") -> list[tuple[Path, Edit]]:
        """Return the edits that put other numbers there, row by row."""
        assert isinstance(numbers, bytes), "joined rows are never too large to be held"
        size = len(numbers) // len(self.parts)
        edits = []
        for i, part in enumerate(self.parts):
            edits += part.edits(numbers[i * size : (i + 1) * size])
        return edits

    def bytes(self) -> bytes:
        """Read the numbers of all rows, one after another."""
        return b"".join(part.bytes() for part in self.parts)


def _join(spans: Sequence[Span], shape: tuple[int, ...]) -> JoinedSpan:
    """Return spans of one row each as one of this shape; at least one span, all of one dtype."""
    first = spans[0]
    key = f"{first.key}...{spans[-1].key}"
    return JoinedSpan(key, first.file, first.offset, first.dtype, shape, parts=tuple(spans))


@dataclass(frozen=True)
class LayerSpans:
    """One linear layer in a file.

    Args:
        key: its name in the file.
        weight: [K, d], or [K, d, 1, 1] of a 1x1 convolution.
        bias: [K], where it has one.
        plain: whether its outputs are the logits ``W x + b``. They are not where the layer, or what
            follows it, makes them ``alpha W x + beta b``, or bends them as a Relu does. Then
            multiplying a row still multiplies its logit by as much, but what is added to a bias
            arrives as something else: rules that add are refused.
        task: whether classes compete or each label is by itself, where what follows the layer, a
            softmax or a Sigmoid, tells.
        names: of the classes, where the layer itself has them.
        opposite: of one row, the same row with the other sign, where the file has both.
        pair: of one row, whether the file gives (-z, z) as two scores, or their softmax: what is
            added to z arrives in their difference twice.
        sigmoids: whether each score is a sigmoid. Of several that compete, what is added to a logit
            arrives in none as a factor, as it does in a softmax.
    """

    key: str
    weight: Span
    bias: Span | None = None
    plain: bool = True
    task: LabelTask | None = None
    names: tuple[str, ...] | None = None
    opposite: "LayerSpans | None" = None
    pair: TwoScores | None = None
    sigmoids: bool = False

    @property
    def where(self) -> str:
        """What to call it in a message."""
        return f"{self.weight.file}: {self.key or '(the model itself)'}"

    @property
    def classes(self) -> int:
        """How many rows it has: K."""
        return self.weight.logical[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Of its weight as a matrix: (K, d)."""
        return self.classes, prod(self.weight.shape) // self.classes

    @property
    def spans(self) -> tuple[Span, ...]:
        """Its weight and, where it has one, its bias."""
        if self.bias is None:
            return (self.weight,)
        return (self.weight, self.bias)


def join_rows(key: str, layers: Sequence[LayerSpans]) -> LayerSpans:
    """Return layers of one row each, one for each class, as one layer [K, d].

    Args:
        key: what the joined layer is called.
        layers: in the order of the classes, each with a bias.

    Raises:
        LevelheadError: they differ in width or dtype, or only some have a row of the other sign.
    """
    first = layers[0]
    width = first.shape[1]
    for layer in layers:
        if layer.shape != (1, width) or layer.weight.dtype != first.weight.dtype:
            got = f"{layer.key} {list(layer.shape)} {layer.weight.dtype}"
            expected = f"expected one row of {width} numbers for each class"
            raise LevelheadError(f"{layer.weight.file}: {expected}, got {got}")
    # Each class may have its row and the negative of it, as a binary classifier does: those are
    # joined, too, and become the opposite of the whole.
    opposites = [layer.opposite for layer in layers if layer.opposite is not None]
    if opposites and len(opposites) < len(layers):
        raise LevelheadError(f"{first.where}: some of its classes have two rows, and others one")
    opposite = None
    if opposites:
        opposite = join_rows(key, opposites)
    return LayerSpans(
        key,
        _join([layer.weight for layer in layers], (len(layers), width)),
        _join([layer.bias for layer in layers if layer.bias is not None], (len(layers),)),
        opposite=opposite,
    )
