"""A head too large to be held several times in memory: its rows are scaled block by block.

The result is the same to the bit as that of the usual way. Only a single layer of a safetensors
file can be so large here, as an output layer over hundreds of thousands of classes is.

    is_large: tells it by its bytes and how they lie, without reading them
    thin_head: stands for it where a head is asked for, with its real bias and one number per row
    scale_large: reads every block once, to check it and to measure the rows -> `ScaledRows`
    ScaledRows: becomes the data of an `Edit`; each block is read and scaled again when written

Nothing may be written before all rows are known to fit the file, so that they are read twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..core.head import Head, check_finite
from ..io.safetensors_file import ITEM_BYTES
from ..support.arrays import scale_rows
from .edits import BLOCK_BYTES, LARGE, FileRange
from .located import LocatedHead
from .numbers import check_rows, decode, encode
from .spans import LayerSpans


class RowBlock(NamedTuple):
    """Some rows of a head, one after another."""

    first: int  # the class of the first of them
    before: np.ndarray  # [n, d], as they are
    after: np.ndarray  # [n, d], as they become


@dataclass(frozen=True, eq=False)
class ScaledRows(FileRange):
    """Rows of numbers in a file, each times its factor, as the file will have them.

    As a `FileRange` it goes into an `Edit` like any other bytes; its `blocks` are computed.

    Args:
        path, offset, length: the bytes of the rows as they are.
        dtype: of the numbers, one of HEAD_DTYPES; they are written in the same.
        width: how many numbers a row has: d.
        factors: [K], float64.
    """

    dtype: str
    width: int
    factors: np.ndarray

    def rows(self) -> Iterator[RowBlock]:
        """Yield the rows block by block, as they are and as they become.

        A block has whole rows: as many as fit `BLOCK_BYTES`, and at least one.
        """
        row_bytes = self.width * ITEM_BYTES[self.dtype]
        step = max(1, BLOCK_BYTES // row_bytes)  # rows in a block
        for i, data in enumerate(self.read(step * row_bytes)):
            first = i * step
            before = decode(data, self.dtype).reshape(-1, self.width)
            after = scale_rows(before, self.factors[first : first + len(before)])
            yield RowBlock(first, before, after)

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes that will be written."""
        for block in self.rows():
            yield encode(block.after, self.dtype)


class LargeRows(NamedTuple):
    """The rows of a large head, scaled and checked."""

    rows: ScaledRows
    before: np.ndarray  # [K], their lengths as they are
    after: np.ndarray  # [K], their lengths as they become


def is_large(located: LocatedHead) -> bool:
    """Return whether a head is too large to be held several times, and can be scaled in blocks.

    That is a single layer of a safetensors file, of at least `LARGE` bytes. Heads of one or two
    rows are left out, as two may be two opposite rows, which only their numbers tell.
    """
    layer, *others = located.layers
    # One layer, of which every row is a class of its own.
    single = not others and layer.opposite is None and layer.classes > 2
    # Its rows lie one after another, and nothing lies between their numbers.
    in_rows = all(
        span.tag is None and not span.reach and not span.transposed for span in layer.spans
    )
    in_safetensors = layer.weight.file.suffix == ".safetensors"
    return single and in_rows and in_safetensors and layer.weight.nbytes >= LARGE


def thin_head(layer: LayerSpans, names: Sequence[str] | None) -> Head:
    """Return a head with the classes and the bias of a large one, and weights [K, 1] of length 1.

    Its norms say nothing. It serves rules that only need the number of classes and the bias.
    """
    bias = None
    if layer.bias is not None:
        bias = decode(layer.bias.bytes(), layer.bias.dtype).ravel()
    return check_finite(Head(np.ones((layer.classes, 1), np.float32), bias, names), layer.where)


def load_norms(layer: LayerSpans, names: Sequence[str] | None) -> Head:
    """Return a head with the bias of a large one, whose weights [K, 1] are the lengths of its rows.

    To look at: its norms are those of the real head, and all rows were checked to be finite.
    """
    lengths = scale_large(layer, None, names).before
    return replace(thin_head(layer, names), weight=lengths[:, None])


def scale_large(
    layer: LayerSpans, factors: np.ndarray | None, names: Sequence[str] | None
) -> LargeRows:
    """Scale the rows of a large head, and check and measure all of them, block by block.

    Args:
        layer: the layer, of which `is_large` said so.
        factors: [K], or None for 1.
        names: of the classes, for messages.

    Raises:
        LevelheadError: as `check_rows` does.
    """
    if factors is None:
        factors = np.ones(layer.classes)
    span = layer.weight
    scaled = ScaledRows(
        path=span.file,
        offset=span.offset,
        length=span.nbytes,
        dtype=span.dtype,
        width=layer.shape[1],
        factors=np.asarray(factors, np.float64),
    )
    before = []
    after = []
    for block in scaled.rows():
        # A whole head is checked row by row in the same words, so that a refusal reads the same.
        lengths = check_rows(layer, block.before, block.after, names, block.first)
        before.append(lengths[0])
        after.append(lengths[1])
    return LargeRows(scaled, np.concatenate(before), np.concatenate(after))
