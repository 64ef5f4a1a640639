"""The header of a safetensors file: 8 bytes of length, then JSON that says where each tensor lies. Needs no torch."""

import json
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite, prod
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import LevelheadError
from ..core.regular_file import check_regular_file

# The numbers that are read, as numpy has them. BF16 is the upper half of a float32: see `widen_bfloat16`.
NUMPY_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"}
NUMPY_DTYPES |= {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1"}
NUMPY_DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1"}
ITEM_BYTES = {"C64": 8} | {dtype: np.dtype(name).itemsize for dtype, name in NUMPY_DTYPES.items()}
# All dtypes that the format's own library knows; several numbers of 4 or 6 bits share a byte.
ITEM_BITS = {dtype: 8 * size for dtype, size in ITEM_BYTES.items()} | {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
ITEM_BITS |= dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8)
DEEPEST_HEADER = 127  # levels of JSON, as there
LONGEST_HEADER = 100_000_000  # bytes, as in the format's own library


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file."""

    dtype: str  # as the format calls it
    shape: tuple[int, ...]
    offset: int  # of its first byte in the file


@dataclass(frozen=True)
class Header:
    """A safetensors header."""

    text: str  # the JSON as it stands in the file
    length: int  # of that JSON, in bytes
    metadata: dict[str, str]
    tensors: dict[str, StoredTensor]


def read_header(path: Path) -> Header:
    """Read a file's header and check that it is sound, as the format's own library does, and fits the file."""
    check_regular_file(path, "safetensors")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > LONGEST_HEADER or 8 + length > size:
            raise LevelheadError(f"{path}: cut short, or not a safetensors file; copy or download it again")
        raw = file.read(length)
    try:
        text = raw.decode()
        entries = _parse(text)
        metadata = entries.pop("__metadata__", None)
        metadata = {} if metadata is None else metadata
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise LevelheadError("its metadata are not all text")
        tensors = {key: _stored_tensor(key, entry, 8 + length) for key, entry in entries.items()}
        end = 0
        for begin, after, key in sorted((*entry["data_offsets"], key) for key, entry in entries.items()):
            if begin != end:
                raise LevelheadError(f"{key!r} begins at byte {begin} of the data, expected {end}")
            end = after
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LevelheadError(f"{path}: not a safetensors file, its header is broken ({error})") from None
    if (expected := 8 + length + end) != size:
        problem = "cut short" if expected > size else "too long"
        raise LevelheadError(f"{path}: {problem}, expected {expected} bytes, got {size}; copy or download it again")
    return Header(text, length, metadata, tensors)


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return bfloat16 numbers, given as uint16, in float32, which holds them exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _parse(text: str) -> dict[str, Any]:
    """Return the JSON object that a header is, as strictly as the format's own library takes it."""
    entries = json.loads(
        text,
        object_pairs_hook=_without_repeated_keys,
        parse_constant=_finite_float,
        parse_float=_finite_float,
        parse_int=lambda digits: -0.0 if digits == "-0" else int(digits) if len(digits) < 21 else _finite_float(digits),
    )
    if not isinstance(entries, dict):
        raise LevelheadError("expected a JSON object")
    level: list[Any] = [entries]
    for _ in range(DEEPEST_HEADER):  # a lone surrogate cannot be encoded
        "".join(value for value in level if isinstance(value, str)).encode()
        inside = [[*value, *value.values()] if isinstance(value, dict) else value for value in level]
        level = [value for part in inside if isinstance(part, list) for value in part]
        if not level:
            break
    if any(isinstance(value, dict | list) for value in level):
        raise LevelheadError("its values lie too deep in one another")
    return entries


def _finite_float(digits: str) -> float:
    """Return a number; whole ones of more than 64 bits are floats too, as the format's own library has it."""
    if not isfinite(value := float(digits)):
        raise LevelheadError(f"expected a number, got {digits[:20]}")
    return value


def _stored_tensor(key: str, entry: dict[str, Any], start: int) -> StoredTensor:
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2:
        raise LevelheadError(f"{key!r} has no shape, or no two offsets")
    begin, end = offsets
    if not all(type(n) is int and 0 <= n < 1 << 64 for n in (*shape, begin, end)):
        raise LevelheadError(f"{key!r} has the shape {shape} at bytes {begin} to {end}")
    if not isinstance(dtype, str) or dtype not in ITEM_BITS:
        raise LevelheadError(f"{key!r} has the unknown type {dtype!r}")
    if any(n >= 1 << 64 for n in accumulate(shape, mul, initial=1)):
        raise LevelheadError(f"{key!r} has the shape {shape}, more numbers than can be counted")
    if end < begin or 8 * (end - begin) != ITEM_BITS[dtype] * prod(shape):
        raise LevelheadError(f"{key!r} has {end - begin} bytes for {dtype} {shape}")
    return StoredTensor(dtype, tuple(shape), start + begin)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise LevelheadError("a key is repeated")
    return entries
