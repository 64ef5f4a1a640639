"""The header of a safetensors file, read without torch.

It is 8 bytes of length, then JSON that says where each tensor lies.

    length     8 bytes, little-endian
    header     that many bytes: {"fc.weight": {"dtype": "F32", "shape": [10, 64],
               "data_offsets": [0, 2560]}, "__metadata__": {"format": "pt"}}
    data       the numbers; offsets count from here

The format's library checks it all (sizes, overlaps, that nothing is left over), but tells neither
where a tensor lies in the file nor how the header was written, which whoever changes a file in
place needs (files/safetensors.py). So it is asked to check, and the JSON is then read again.

Specified at https://huggingface.co/docs/safetensors (Format).
"""

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open

from ..core.class_names import first_repeated
from ..support.errors import LevelheadError, visible
from ..support.regular_file import check_regular_file

Entry: TypeAlias = Any  # of the header, as JSON has it; the format's library checked it
SHARD_INDEX = ".safetensors.index.json"  # how the name of an index of shards ends

# The numbers that are read, as numpy has them. BF16 is the upper half of a float32: see
# `widen_bfloat16`.
NUMPY_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1",
}  # fmt: skip
# Bytes of one number. C64 is complex: no reader of ours takes it, but a file that has it can be
# copied.
ITEM_BYTES = {"C64": 8} | {dtype: np.dtype(name).itemsize for dtype, name in NUMPY_DTYPES.items()}


class StoredTensor(NamedTuple):
    """A tensor in a file.

    Args:
        dtype: as the format calls it: F32, BF16, I64, ...
        shape: of the tensor; () of a single number.
        offset: of its first byte in the file, not in the data.
    """

    dtype: str  # as the format calls it
    shape: tuple[int, ...]
    offset: int  # of its first byte in the file


class Header(NamedTuple):
    """A safetensors header.

    Args:
        text: the JSON as it stands in the file, with its blanks and order.
        length: of that JSON, in bytes.
        metadata: what the file says of itself; texts under texts.
        tensors: by name, in the order of the header.
    """

    text: str  # the JSON as it stands in the file
    length: int  # of that JSON, in bytes
    metadata: dict[str, str]
    tensors: dict[str, StoredTensor]


def read_header(path: Path) -> Header:
    """Read a file's header.

    The format's own library must find it sound and as long as the file.

    Raises:
        LevelheadError: it does not, or a name is there twice.
    """
    check_regular_file(path, "safetensors")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            # Opening it is the whole check; it reads the header alone.
            with safe_open(path, "numpy"):
                raw = file.read(length)
        except (SafetensorError, OSError) as error:  # an empty file cannot be mapped
            reason = "not a safetensors file, its header is broken"
            if "ncomplete" in str(error) or 8 + length > path.stat().st_size:
                reason = "cut short, or not a safetensors file"
            raise LevelheadError(
                f"{path}: {reason} ({visible(str(error))}); copy or download it again"
            ) from None
    text = raw.decode()
    entries = json.loads(text, object_pairs_hook=partial(_unrepeated, path))
    metadata = entries.pop("__metadata__", None) or {}
    tensors = {key: _stored_tensor(entry, 8 + length) for key, entry in entries.items()}
    return Header(text, length, metadata, tensors)


def _stored_tensor(entry: Entry, first: int) -> StoredTensor:
    """Return what an entry of the header says.

    It is an object, or a list (dtype, shape, offsets), which the library reads as well: Rust's
    serde takes a struct in either form. The data of the file begin at `first`.
    """
    if isinstance(entry, list):
        dtype, shape, (offset, _) = entry
    else:
        dtype = entry["dtype"]
        shape = entry["shape"]
        offset, _ = entry["data_offsets"]
    return StoredTensor(dtype, tuple(shape), first + offset)


def _unrepeated(path: Path, pairs: list[tuple[str, Entry]]) -> dict[str, Entry]:
    """Return an object of the header, in which no name may be there twice.

    The library would take the last of them. Another reader may take the first, and one file would
    be two models.
    """
    name = first_repeated(name for name, _ in pairs)
    if name is not None:
        reason = f"not a safetensors file, its header is broken ({name!r} is there twice)"
        raise LevelheadError(f"{path}: {reason}; copy or download it again")
    return dict(pairs)


def widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return bfloat16 numbers, given as uint16, in float32, which holds them exactly.

    A bfloat16 is the upper half of a float32, so that a shift by 16 bits is all.

    >>> widen_bfloat16(np.array([0x3F80, 0xC000], np.uint16))
    array([ 1., -2.], dtype=float32)
    """
    return (bits.astype(np.uint32) << 16).view(np.float32)
