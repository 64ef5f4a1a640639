"""A head too large to be held several times in memory: its rows are scaled block by block, the same to the bit.

Only a single layer of a safetensors file can be so large here, as an output layer over hundreds of
thousands of classes is. `thin_head` stands for it where a head is asked for, with its real bias and
one number for each row. `scale_large` reads every block once, to check it and to measure the rows;
the `ScaledRows` that it returns are read again, and scaled again, while the file is written.
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

    Args:
        path, offset, length: the bytes of the rows as they are.
        dtype: of the numbers.
        width: how many numbers a row has: d.
        factors: [K].
    """

    dtype: str
    width: int
    factors: np.ndarray

    def rows(self) -> Iterator[RowBlock]:
        """Yield the rows block by block, as they are and as they become."""
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
    """Return whether a head is a single layer of a safetensors file that is too large to be held several times."""
    layer, *others = located.layers
    single = not others and layer.opposite is None and layer.classes > 2
    # Its rows lie one after another, and nothing lies between their numbers.
    in_rows = all(
        span.tag is None and not span.reach and not span.transposed for span in layer.spans
    )
    in_safetensors = layer.weight.file.suffix == ".safetensors"
    return single and in_rows and in_safetensors and layer.weight.nbytes >= LARGE


def thin_head(layer: LayerSpans, names: Sequence[str] | None) -> Head:
    """Return a head with the classes and the bias of a large one, and weights [K, 1] of length 1."""
    bias = None
    if layer.bias is not None:
        bias = decode(layer.bias.bytes(), layer.bias.dtype).ravel()
    return check_finite(Head(np.ones((layer.classes, 1), np.float32), bias, names), layer.where)


def load_norms(layer: LayerSpans, names: Sequence[str] | None) -> Head:
    """Return a head with the bias of a large one, whose weights [K, 1] are the lengths of its rows."""
    lengths = scale_large(layer, None, names).before
    return replace(thin_head(layer, names), weight=lengths[:, None])


def scale_large(
    layer: LayerSpans, factors: np.ndarray | None, names: Sequence[str] | None
) -> LargeRows:
    """Scale the rows of a large head by factors [K], or by 1, and check and measure all of them."""
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
        lengths = check_rows(layer, block.before, block.after, names, block.first)
        before.append(lengths[0])
        after.append(lengths[1])
    return LargeRows(scaled, np.concatenate(before), np.concatenate(after))
