"""The numbers of a head in a file: decoded into a `Head`, encoded back, and checked on the way.

    load: a layer's byte ranges -> decode -> `Head`, weight [K, d] and bias [K]
    store: another `Head` -> encode -> edits of the same byte ranges
    check_rows: rows before and after -> their lengths, if the file can hold them

Half precision is widened to float32, which is exact, and rounded when it is stored; what rounding
would turn into infinity or a row of zeros is refused before anything is written. A layer that was
loaded and stored without a change gives the same bytes.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core.class_names import title
from ..core.head import Head, check_finite
from ..io.safetensors_file import NUMPY_DTYPES, widen_bfloat16
from ..support.arrays import row_norms
from ..support.errors import LevelheadError
from .edits import Edit, FileRange
from .spans import LayerSpans

SMALLER = ": use a smaller strength, or save the model in float32 first"
NEARER = "use a strength nearer to 0, or save it in float32 first"


def decode(data: bytes, dtype: str) -> np.ndarray:
    """Return numbers of a file as float64 or float32; half precision is widened, which is exact.

    Args:
        data: their bytes, little-endian.
        dtype: as safetensors calls it, one of HEAD_DTYPES.

    Returns:
        An array of one axis. Of F64 and F32 it is a view of `data`, and cannot be written to.

    >>> decode(encode(np.array([1.5, -2.0]), "BF16"), "BF16")
    array([ 1.5, -2. ], dtype=float32)
    """
    values = np.frombuffer(data, NUMPY_DTYPES[dtype])
    if dtype == "BF16":
        return widen_bfloat16(values)
    with np.errstate(invalid="ignore"):  # a signaling NaN: `load` reports it
        if dtype == "F16":
            return values.astype(np.float32)
        return values


def encode(values: np.ndarray, dtype: str) -> bytes:
    """Return numbers as a file has them; half precision is rounded to nearest, ties to even.

    Args:
        values: of any shape; they are written row by row.
        dtype: as in `decode`. BF16 is made from float32, as torch makes it, so that float64 is
            rounded twice.
    """
    if dtype == "BF16":
        # The upper half of a float32. Adding just below half a unit of it, and the bit that says
        # whether the upper half is odd, carries into the upper half exactly where rounding goes up.
        bits = np.ascontiguousarray(values, "<f4").view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    # A number too large for its dtype becomes infinite: `store` reports it.
    with np.errstate(over="ignore"):
        return values.astype(NUMPY_DTYPES[dtype]).tobytes()


def load(layer: LayerSpans, names: Sequence[str] | None = None) -> Head:
    """Read a layer as a head in float32 or better, and check that its numbers and norms are finite.

    Args:
        layer: where it is.
        names: of the classes, which the head then has.

    Raises:
        LevelheadError: a number is NaN or infinite, or a row so long that its norm is.
    """
    data = [span.bytes() for span in layer.spans]
    head = check_finite(_decode_head(layer, data, names), layer.where)
    with np.errstate(over="ignore"):
        overflows = ~np.isfinite(head.norms)
    if overflows.any():
        name = head.name(int(np.argmax(overflows)))
        raise LevelheadError(
            f"{layer.weight.file}: the weight vector of {name} in {layer.key} is too long to measure"
        )
    return head


def store(layer: LayerSpans, head: Head, rows: FileRange | None = None) -> list[tuple[Path, Edit]]:
    """Return the edits that put a head into a layer, each with its file.

    Args:
        layer: where it goes.
        head: the new one, of the layer's shape, and with a bias exactly if the layer has one.
        rows: its weights as the file will have them, where they are too large to be held; the
            weights of `head` are then not looked at.

    Raises:
        LevelheadError: the head is of another shape, or a number is not finite in the file's dtype.
    """
    _check_fits(layer, head, rows)
    head = head.numpy()
    bias = None
    if layer.bias is not None and head.bias is not None:
        bias = encode(head.bias, layer.bias.dtype)
    # The numbers as the file will have them: weight first, then bias, as `layer.spans` are.
    data: list[bytes | FileRange]
    if rows is None:
        weight = head.weight.T if layer.weight.transposed else head.weight
        data = [encode(weight, layer.weight.dtype)]
    else:
        data = [rows]
    if bias is not None:
        data.append(bias)
    # What the file will hold: rounded, and perhaps no longer finite. Rows too large to be held were
    # checked already.
    if rows is None:
        written = _decode_head(
            layer, [part for part in data if isinstance(part, bytes)], head.names
        )
    else:
        written = Head(np.ones((layer.classes, 1)))
        if bias is not None and layer.bias is not None:
            written = Head(written.weight, decode(bias, layer.bias.dtype))
    check_finite(written, f"{layer.where}, in {layer.weight.dtype},", advice=SMALLER)
    edits = []
    for span, part in zip(layer.spans, data, strict=True):
        edits += span.edits(part)
    # Where the file has a row and its negative, the caller sees one logit: the negative follows it.
    if layer.opposite is not None:
        opposite_bias = None
        if head.bias is not None:
            opposite_bias = -head.bias
        edits += store(layer.opposite, Head(-head.weight, opposite_bias))
    return edits


def _check_fits(layer: LayerSpans, head: Head, rows: FileRange | None) -> None:
    """Raise if a head is not of a layer's shape, or only one of the two has a bias.

    Args:
        layer, head: the two.
        rows: where the weights are not those of `head`: then its shape says nothing.
    """
    shape = layer.shape
    if rows is None:
        shape = np.shape(head.weight)
    if shape == layer.shape and (head.bias is None) == (layer.bias is None):
        return
    want = f"{list(layer.shape)} with {'no' if layer.bias is None else 'a'} bias"
    came = f"{list(shape)} with {'no' if head.bias is None else 'a'} bias"
    raise LevelheadError(f"{layer.where} is {want}; a head of {came} does not fit it")


def _decode_head(layer: LayerSpans, data: Sequence[bytes], names: Sequence[str] | None) -> Head:
    """Return the head that the bytes of a layer's weight and bias hold: weight [K, d], bias [K].

    Args:
        layer: says dtypes, shapes, and whether the file has [d, K].
        data: of the weight and, where there is one, the bias.
        names: of the classes.
    """
    weight = decode(data[0], layer.weight.dtype)
    if layer.weight.transposed:
        weight = weight.reshape(-1, layer.classes).T
    else:
        weight = weight.reshape(layer.classes, -1)
    bias = None
    if layer.bias is not None:
        bias = decode(data[1], layer.bias.dtype).ravel()
    return Head(np.ascontiguousarray(weight), bias, names)


def check_rows(
    layer: LayerSpans,
    before: np.ndarray,
    after: np.ndarray,
    names: Sequence[str] | None,
    first: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Measure rows of weights, before and after, and check that the file can hold them.

    Args:
        layer: the layer that they are of.
        before, after: [n, d].
        names: of the classes, where known.
        first: the class of the first row, where these are not all: of a large head, blocks come one
            after another.

    Returns:
        The lengths of the rows [n] before and after, the latter before they are rounded.

    Raises:
        LevelheadError: numbers are not finite, or a row would be rounded to zeros; the message
            names the first class that it is so of.
    """
    span = layer.weight
    # What the file will hold: rounded to its dtype.
    kept = decode(encode(after, span.dtype), span.dtype).reshape(before.shape)
    lengths_before = row_norms(before).astype(np.float64)
    lengths_after = row_norms(after).astype(np.float64)
    in_dtype = f"{layer.where}, in {span.dtype},"
    # Each problem with the rows [n] that have it.
    problems = {
        f"{layer.where} has NaN or infinite weight values in %s": ~np.isfinite(before).all(axis=1),
        f"{span.file}: the weight vector of %s in {layer.key} is too long to measure": (
            ~np.isfinite(lengths_before)
        ),
        f"{in_dtype} has NaN or infinite weight values in %s{SMALLER}": (
            ~np.isfinite(kept).all(axis=1)
        ),
        f"{in_dtype} would become 0 in %s: {NEARER}": before.any(axis=1) & ~kept.any(axis=1),
    }
    for problem, rows in problems.items():
        if rows.any():
            raise LevelheadError(problem % title(first + int(np.argmax(rows)), names))
    return lengths_before, lengths_after
