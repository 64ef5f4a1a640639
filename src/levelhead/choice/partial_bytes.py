"""A `Partial` as bytes: a mark, a version, a fixed header, compressed tables of numbers, and a checksum. No code in it.

8 bytes   mark            b"lhpartl\\n"
1 byte    version         1
1 byte    rule            its place in RULES
1 byte    kind            0 logits, 1 probabilities
1 byte    0
4 bytes   classes K, 4 bytes cells G, 8 bytes samples N, 8 + 8 bytes range, 8 bytes length of what follows
...       zlib: counts [K] and ratios [K] in float64, then the tables in int64, all little-endian
32 bytes  sha256 of all before
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from ..core.errors import LevelheadError
from ..rules.checks import check_range
from ..rules.direction import Direction
from ..rules.rule import find_path_rule
from .frame import MOST_BINS, Frame

_MARK, _VERSION = b"lhpartl\n", 1
_HEADER = struct.Struct("<8sBBBBIIqddQ")
_RULES = ("rescale", "tau", "shift")  # by their numbers in the bytes
_KINDS = ("logits", "probabilities")
_DIGEST = 32
_MOST_NUMBERS = 1 << 33  # of all tables: a header that asks for more is not ours


def pack(frame: Frame, samples: int, tables: Sequence[np.ndarray]) -> bytes:
    """Return a frame and its tables as bytes."""
    press = zlib.compressobj(1)
    floats, whole = (frame.counts, frame.rule.ratios), tables
    parts = [press.compress(values.astype("<f8").tobytes()) for values in floats]
    parts += [press.compress(values.astype("<i8").tobytes()) for values in whole]
    body = b"".join([*parts, press.flush()])
    kind = _KINDS.index(frame.kind)
    head = _HEADER.pack(
        _MARK,
        _VERSION,
        _RULES.index(frame.rule.name),
        kind,
        frame.shares,
        frame.classes,
        frame.bins,
        samples,
        *frame.range,
        len(body),
    )
    return head + body + hashlib.sha256(head + body).digest()


def unpack(
    data: bytes, shapes: Callable[[int, int, bool], Mapping[str, tuple[int, ...]]]
) -> tuple[Frame, int, dict[str, np.ndarray]]:
    """Return the frame, the number of samples and the tables, whose shapes follow from K, G and shares or not."""
    if len(data) < _HEADER.size + _DIGEST or data[:8] != _MARK:
        raise LevelheadError("not a partial; expected what Partial.to_bytes gives")
    _, version, rule, kind, shares, classes, bins, samples, low, high, length = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise LevelheadError(f"a partial of version {version}, but this release reads {_VERSION}; update levelhead")
    if len(data) != _HEADER.size + length + _DIGEST or hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise LevelheadError("a damaged partial: it is cut short or was changed; make it again")
    sizes = shapes(classes, bins, bool(shares))
    numbers = 2 * classes + sum(map(prod, sizes.values()))
    if not (rule < len(_RULES) and kind < len(_KINDS) and shares < 2 and classes >= 2 and 2 <= bins <= MOST_BINS):
        raise LevelheadError("not a partial: its header is of no rule, kind, classes or cells that there are")
    if numbers > _MOST_NUMBERS:
        raise LevelheadError(f"not a partial: its header asks for {numbers} numbers")
    body = _inflate(data[_HEADER.size : -_DIGEST], 8 * numbers)
    counts, ratios = (np.frombuffer(body, "<f8", classes, 8 * classes * i).astype(np.float64) for i in (0, 1))
    if not all((np.isfinite(values) & (values > 0)).all() for values in (counts, ratios)):
        raise LevelheadError("not a partial: its counts and factors are not positive numbers")
    frame = Frame(
        Direction(_RULES[rule], ratios, find_path_rule(_RULES[rule]).multiplies),
        counts,
        check_range((low, high), holds_zero=True),
        bins,
        _KINDS[kind],  # type: ignore[arg-type]
        bool(shares),
    )
    tables, at = {}, 16 * classes
    for name, shape in sizes.items():
        tables[name] = np.frombuffer(body, "<i8", prod(shape), at).reshape(shape).astype(np.int64)
        at += 8 * prod(shape)
    return frame, samples, tables


def _inflate(data: bytes, size: int) -> bytes:
    """Return what was compressed, which must be of this size."""
    try:
        stream = zlib.decompressobj()
        found = stream.decompress(data, size + 1)
    except zlib.error as error:
        raise LevelheadError(f"a damaged partial ({error}); make it again") from None
    if len(found) != size or not stream.eof or stream.unused_data:
        raise LevelheadError("a damaged partial: its tables are not as large as its header says; make it again")
    return found
