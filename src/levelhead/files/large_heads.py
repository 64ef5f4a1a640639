"""Heads that are too large to be held in memory several times: adjusted block by block, from file to file.

What is written is the same to the bit as of a head that is held whole. The rows are read twice, once to check them and
once to write them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from ..core.array import row_norms, scale_rows
from ..core.errors import LevelheadError
from ..core.head import Head, check_finite
from ..core.per_class import title
from ..io.safetensors_file import ITEM_BYTES
from .blocks import BLOCK_BYTES, LARGE, FileRange
from .edits import Edit
from .spans import LayerSpans, LocatedHead, decode, encode


@dataclass(frozen=True, eq=False)
class ScaledRows(FileRange):
    """Rows of numbers in a file, each times its factor, as the file will have them."""

    dtype: str
    width: int
    factors: np.ndarray

    def rows(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield the first row, the rows [n, d] as they are, and as they become, of each block."""
        step = max(1, BLOCK_BYTES // self._row_bytes)
        for i, data in enumerate(self.read(step * self._row_bytes)):
            before = decode(data, self.dtype).reshape(-1, self.width)
            yield i * step, before, scale_rows(before, self.factors[i * step : i * step + len(before)])

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes that will be written."""
        for _, _, after in self.rows():
            yield encode(after, self.dtype)

    @property
    def _row_bytes(self) -> int:
        return self.width * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, eq=False)
class LargeHead:
    """An adjusted head whose weights are in a file.

    Args:
        weight: the rows, and what each is multiplied by.
        bias: [K], adjusted; None if there is none.
        before, after: [K], lengths of the weight vectors.
    """

    weight: ScaledRows
    bias: np.ndarray | None
    before: np.ndarray
    after: np.ndarray

    def edits(self, layer: LayerSpans) -> list[tuple[Path, Edit]]:
        """Return the edits that put the head into its layer, each with its file."""
        found = [(layer.weight.file, Edit(layer.weight.offset, layer.weight.nbytes, self.weight))]
        if layer.bias is not None and self.bias is not None:
            span, data = layer.bias, encode(self.bias, layer.bias.dtype)
            _check_bias(decode(data, span.dtype), layer, f", in {span.dtype},", _SMALLER)
            found.append((span.file, Edit(span.offset, span.nbytes, data)))
        return found


_SMALLER = ": use a smaller gamma, or save the model in float32 first"


def is_large(found: LocatedHead) -> bool:
    """Return whether a head is a single layer of a safetensors file that is too large to be held several times."""
    layer, *others = found.layers
    spans = layer.spans
    simple = not others and layer.opposite is None and layer.classes > 2
    plain = all(span.tag is None and not span.reach and not span.transposed for span in spans)
    return simple and plain and layer.weight.file.suffix == ".safetensors" and layer.weight.nbytes >= LARGE


def thin_head(layer: LayerSpans, names: Sequence[str] | None) -> Head:
    """Return a head with the classes and the bias of a large one, and weights of length 1."""
    bias = None if layer.bias is None else decode(layer.bias.bytes(), layer.bias.dtype).ravel()
    if bias is not None:
        _check_bias(bias, layer, "", "")
    return Head(np.ones((layer.classes, 1), np.float32), bias, names)


def load_norms(layer: LayerSpans, names: Sequence[str] | None) -> Head:
    """Return a head whose weight vectors have one number each, their length, and the bias of a large one."""
    thin = thin_head(layer, names)
    return replace(thin, weight=adjust_large(layer, None, None, names).before[:, None])


def adjust_large(
    layer: LayerSpans, factors: np.ndarray | None, bias: np.ndarray | None, names: Sequence[str] | None
) -> LargeHead:
    """Return a large head with its rows multiplied, once every row is checked before and after.

    Args:
        layer, names: where it lies; its class names.
        factors: [K]; None for rows that stay.
        bias: [K], already adjusted, or None.
    """
    span, where = layer.weight, f"{layer.weight.file}: {layer.key}"
    by = np.ones(layer.classes) if factors is None else np.asarray(factors, np.float64)
    weight = ScaledRows(span.file, span.offset, span.nbytes, span.dtype, prod(span.shape) // layer.classes, by)
    norms: list[list[np.ndarray]] = [[], []]
    for first, before, after in weight.rows():
        kept = decode(encode(after, span.dtype), span.dtype).reshape(before.shape)
        lengths = row_norms(before), row_norms(after)
        problems = {
            f"{where} has NaN or infinite weight values in %s": ~np.isfinite(before).all(axis=1),
            f"{span.file}: the weight vector of %s in {layer.key} is too long to measure": ~np.isfinite(lengths[0]),
            f"{where}, in {span.dtype}, has NaN or infinite weight values in %s{_SMALLER}": ~np.isfinite(kept).all(
                axis=1
            ),
            f"{where}, in {span.dtype}, would become 0 in %s: use a gamma nearer to 0, or save it in float32 first": (
                before.any(axis=1) & ~kept.any(axis=1)
            ),
        }
        for problem, rows in problems.items():
            if rows.any():
                raise LevelheadError(problem % title(first + int(np.argmax(rows)), names))
        for known, found in zip(norms, lengths, strict=True):
            known.append(found.astype(np.float64))
    return LargeHead(weight, bias, *(np.concatenate(parts) for parts in norms))


def _check_bias(bias: np.ndarray, layer: LayerSpans, form: str, advice: str) -> None:
    check_finite(Head(np.ones((len(bias), 1)), bias), f"{layer.weight.file}: {layer.key}{form}", advice=advice)
