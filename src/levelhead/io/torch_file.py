"""Tensors that `torch.save` wrote, opened by `weights_only` once what their pickle would build is known to be small."""

from collections.abc import Iterable, Mapping
from encodings import normalize_encoding
from pathlib import Path
from pickle import UnpicklingError
from pickletools import genops
from typing import Any, NamedTuple
from warnings import catch_warnings
from zipfile import ZipFile

import numpy as np

from ..support.arrays import to_numpy
from ..support.errors import LevelheadError, reported_as
from ..support.extras import install_command
from .numpy_file import BROKEN_ZIP, check_expansion, text_array

HOW_TO_SAVE_TENSORS = (
    "save tensors with torch.save(logits, ...) or torch.save({'logits': logits, ...}, ...)"
)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file by name, and lists of text as arrays; a tensor alone has the name ''."""
    sizes = _record_sizes(path)
    tensors, texts = _by_name(_load(path))
    return {key: _values(key, tensor, sizes) for key, tensor in tensors.items()} | texts


def names_of_tensors(path: Path) -> list[str]:
    """Return the names that `read_tensors` gives, without reading a number."""
    _record_sizes(path)
    return [name for named in _by_name(_load(path, mmap=True)) for name in named]


def _by_name(value: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if isinstance(value, list | tuple):
        value = {str(i): item for i, item in enumerate(value)}
    if isinstance(value, Mapping):
        named = {str(key): item for key, item in value.items()}
    else:
        named = {"": value}
    tensors = {key: item for key, item in named.items() if hasattr(item, "untyped_storage")}
    lists = {
        key: item for key, item in named.items() if isinstance(item, list | tuple) and len(item)
    }
    texts = {
        key: text_array(item)
        for key, item in lists.items()
        if all(isinstance(each, str) for each in item)
    }
    if not tensors:
        held = "no tensor"
        if not isinstance(value, Mapping):
            held = type(value).__name__
        raise LevelheadError(
            f"expected a tensor, or a dict of tensors, got {held}; {HOW_TO_SAVE_TENSORS}"
        )
    return tensors, texts


def _record_sizes(path: Path) -> set[int]:
    """Return the sizes of the storages in a file, after checking that they are those of tensors and fit the memory."""
    damaged = f"cut short, or not a file of torch.save; {HOW_TO_SAVE_TENSORS}"
    with reported_as(damaged, *BROKEN_ZIP), ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            if member.compress_type:  # torch stores its records as they are
                check_expansion(member.file_size, member.compress_size, most=1 << 24)
            if member.filename.endswith("/data.pkl"):
                check_pickle(archive.read(member))
        alignment = [archive.read(m) for m in members if m.filename.endswith("/.storage_alignment")]
    if any("/code/" in one.filename or one.filename.endswith("/constants.pkl") for one in members):
        raise LevelheadError(f"a TorchScript archive, which holds code; {HOW_TO_SAVE_TENSORS}")
    if any(not text.isdigit() or not int(text) for text in alignment):
        raise LevelheadError("broken: its .storage_alignment is not a positive number")
    return {member.file_size for member in members}


def _load(path: Path, *, mmap: bool = False) -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"{path}: reading {path.suffix} needs torch; {install_command('torch')}"
        ) from None
    try:
        # Torch's, of its own deprecated storages.
        with catch_warnings(action="ignore", category=UserWarning):
            return torch.load(path, weights_only=True, map_location="cpu", mmap=mmap)
    except UnpicklingError:
        raise LevelheadError(
            f"opening it would run code that it holds; {HOW_TO_SAVE_TENSORS}"
        ) from None
    except MemoryError:
        raise
    except (
        Exception
    ) as error:  # a damaged pickle reaches any call inside torch, with any of its errors
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise LevelheadError(
            f"cut short, or not a file of tensors ({reason}); {HOW_TO_SAVE_TENSORS}"
        ) from None


def _values(key: str, tensor: Any, sizes: set[int]) -> np.ndarray:
    name = repr(key) if key else "the tensor"
    if tensor.is_sparse or tensor.is_quantized or str(tensor.layout) != "torch.strided":
        raise LevelheadError(f"{name} is sparse or quantized; save it as a dense tensor of floats")
    stored = tensor.untyped_storage().nbytes()
    if tensor.device.type != "cpu" or (stored and stored not in sizes):
        raise LevelheadError(f"{name} has no data of its own in the file; {HOW_TO_SAVE_TENSORS}")
    check_expansion(tensor.numel() * tensor.element_size(), stored)
    with reported_as(
        f"{name} is {tensor.dtype}; expected floating-point or integer numbers",
        TypeError,
        RuntimeError,
    ):
        return to_numpy(tensor.resolve_conj().resolve_neg())


MOST_LEVELS = 60  # tuples and calls inside one another; a tensor in a checkpoint has about 8
MOST_PARTS = 1_000_000  # parts of one tuple, counted again wherever one is shared
# Codecs that turn bytes into bytes, most of them longer: by calling them again and again, a few bytes become gigabytes.
TRANSFORMS = {
    "hex",
    "hex_codec",
    "base64",
    "base_64",
    "base64_codec",
    "zip",
    "zlib",
    "zlib_codec",
    "bz2",
    "bz2_codec",
}
TRANSFORMS |= {"uu", "uu_codec", "quopri", "quoted_printable", "quotedprintable", "quopri_codec"}
CONSTANTS = (
    "NONE",
    "NEWTRUE",
    "NEWFALSE",
    "BINFLOAT",
    "EMPTY_TUPLE",
    "EMPTY_LIST",
    "EMPTY_DICT",
    "EMPTY_SET",
)
# What is put on the stack: the text of a constant. How many values are taken from it, to be parts of one, or dropped.
PUTS = dict.fromkeys(CONSTANTS, "") | dict.fromkeys(
    ("BININT", "BININT1", "BININT2", "LONG1"), "number"
)
JOINS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "BINPERSID": 1}
DROPS = {"BUILD": 1, "APPEND": 1, "SETITEM": 2}


def check_pickle(data: bytes) -> None:
    """Check that a pickle builds no more than a checkpoint does. What torch refuses by itself is left to torch."""
    # Its `weights_only` runs no code, but builds what a file says: tuples in tuples, until hashing overflows the stack.
    try:
        # Of escapes in damaged text.
        with catch_warnings(action="ignore", category=DeprecationWarning):
            _follow((opcode.name, argument) for opcode, argument, _ in genops(data))
    except LevelheadError:
        raise
    except (
        LookupError,
        ValueError,
        AttributeError,
    ):  # nothing on the stack, no such operation, cut short
        return


class _Value(NamedTuple):
    """What is known of a value: its parts, how deep they lie, and a constant's text."""

    size: int = 1
    depth: int = 0
    text: str = ""


def _follow(operations: Iterable[tuple[str, Any]]) -> None:
    """Run the program that a pickle is, with the values' sizes in place of the values, until torch stops."""
    stack: list[_Value] = []
    below: list[list[_Value]] = []  # the stacks under each mark
    memo: dict[int, _Value] = {}
    encodes = transforms = False
    for name, argument in operations:
        if name == "MARK":
            below.append(stack)
            stack = []
        elif name in ("TUPLE", "APPENDS", "SETITEMS"):
            parts, stack = stack, below.pop()
            if name == "TUPLE":
                stack.append(_together(parts))
        elif name in JOINS:
            stack[-JOINS[name] :] = [_together(stack[-JOINS[name] :])]
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, function = stack.pop(), stack.pop()
            if function.text.endswith(("bytearray", "Storage")) and arguments.text == "number":
                raise LevelheadError("it asks for an array without giving its bytes")
            stack.append(_together([arguments]))
        elif name in DROPS:
            del stack[-DROPS[name] :]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name == "GLOBAL":
            encodes |= argument == "_codecs encode"
            stack.append(_Value(text=argument))
        elif name in ("BINUNICODE", "SHORT_BINSTRING"):
            transforms |= len(argument) < 100 and normalize_encoding(argument).lower() in TRANSFORMS
            stack.append(_Value())
        elif name in PUTS:
            stack.append(_Value(text=PUTS[name]))
        elif name != "PROTO":
            return
        if encodes and transforms:
            raise LevelheadError("it encodes bytes as bytes, by which a few become gigabytes")


def _together(parts: list[_Value]) -> _Value:
    size = 1 + sum(one.size for one in parts)
    depth = 1 + max((one.depth for one in parts), default=0)
    if depth > MOST_LEVELS or size > MOST_PARTS:
        raise LevelheadError("its values lie too deep in one another")
    return _Value(
        size, depth, parts[0].text if len(parts) == 1 and parts[0].text == "number" else ""
    )
