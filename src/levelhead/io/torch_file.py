"""Tensors that `torch.save` wrote, opened by torch's `weights_only`.

Before, what their pickle would build is known to be small.

The file is a zip archive of a pickle, data.pkl, and the bytes of each storage, data/0, data/1, ...
The pickle says of each tensor which storage it is in, at which offset, with which shape and
strides. `_record_sizes` checks both before torch sees them: what members would expand to, and what
the pickle would build (pickle_check.py). `_load` opens the file, and `_values` takes only numbers
that are in it. Files of torch before 1.6, which are no archives, are refused.

These are logits and labels, of which all numbers are wanted. Models are read elsewhere
(files/checkpoint.py), which asks torch only where the numbers lie.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple, TypeAlias, TypeGuard
from warnings import catch_warnings
from zipfile import ZipFile

import numpy as np

from ..support.arrays import to_numpy
from ..support.errors import LevelheadError, reported_as
from ..support.extras import install_command
from .numpy_file import BROKEN_ZIP, check_expansion, text_array
from .pickle_check import check_pickle

Tensor: TypeAlias = Any  # torch's, which is imported only where a file needs it

HOW_TO_SAVE_TENSORS = (
    "save tensors with torch.save(logits, ...) or torch.save({'logits': logits, ...}, ...)"
)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file by name, and lists of text as arrays.

    A tensor alone has the name ''. Tensors deeper inside, in a dict in a dict, are passed over.

    Raises:
        LevelheadError: no tensor, code in the file, damage, or a tensor that is sparse, quantized
            or not in the file.
        ImportError: torch is not installed.
    """
    sizes = _record_sizes(path)
    named = _by_name(_load(path))
    numbers = {key: _values(key, tensor, sizes) for key, tensor in named.tensors.items()}
    return numbers | named.texts


def names_of_tensors(path: Path) -> list[str]:
    """Return the names that `read_tensors` gives, without reading a number.

    torch maps the storages, so that only the pickle is read.
    """
    _record_sizes(path)
    named = _by_name(_load(path, mmap=True))
    return [*named.tensors, *named.texts]


class _Named(NamedTuple):
    """What a file holds, by name."""

    tensors: dict[str, Tensor]
    texts: dict[str, np.ndarray]


def _by_name(value: object) -> _Named:
    """Return the tensors and lists of text in what a file holds.

    Items of a list are called 0, 1, 2, ... What is neither, such as an epoch or an optimizer, is
    passed over.
    """
    if isinstance(value, list | tuple):
        value = {str(i): item for i, item in enumerate(value)}
    items: dict[str, object] = {"": value}
    if isinstance(value, Mapping):
        items = {str(key): item for key, item in value.items()}
    tensors = {}
    texts = {}
    for key, item in items.items():
        # By what it can do: torch need not be imported to ask.
        if hasattr(item, "untyped_storage"):
            tensors[key] = item
        elif _is_list_of_text(item):
            texts[key] = text_array(item)
    if not tensors:
        got = "no tensor"
        if not isinstance(value, Mapping):
            got = type(value).__name__
        raise LevelheadError(
            f"expected a tensor, or a dict of tensors, got {got}; {HOW_TO_SAVE_TENSORS}"
        )
    return _Named(tensors, texts)


def _is_list_of_text(value: object) -> TypeGuard[Sequence[str]]:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(item, str) for item in value)


def _record_sizes(path: Path) -> set[int]:
    """Return the sizes of the storages in a file.

    They are checked to be those of tensors, and to fit the memory. torch stores its records as they
    are: a compressed one was made by somebody else, and may become only 16 MiB, or 100 times its
    size.
    """
    damaged = f"cut short, or not a file of torch.save; {HOW_TO_SAVE_TENSORS}"
    with reported_as(damaged, *BROKEN_ZIP), ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            if member.compress_type:  # torch stores its records as they are
                check_expansion(member.file_size, member.compress_size, most=1 << 24)
            if member.filename.endswith("/data.pkl"):
                check_pickle(archive.read(member))
        alignment = [archive.read(m) for m in members if m.filename.endswith("/.storage_alignment")]
    for name in archive.namelist():
        if "/code/" in name or name.endswith("/constants.pkl"):
            raise LevelheadError(f"a TorchScript archive, which holds code; {HOW_TO_SAVE_TENSORS}")
    # torch divides by it.
    if any(not text.isdigit() or not int(text) for text in alignment):
        raise LevelheadError("broken: its .storage_alignment is not a positive number")
    return {member.file_size for member in members}


def _load(path: Path, *, mmap: bool = False) -> object:
    """Return what a file holds, by torch's loader that runs no code of it.

    What is wrong with it is said in one line.

    Args:
        path: a file whose pickle was checked.
        mmap: whether to map the storages instead of reading them.
    """
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
    # A damaged pickle reaches any call inside torch, with any of its errors.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise LevelheadError(
            f"cut short, or not a file of tensors ({reason}); {HOW_TO_SAVE_TENSORS}"
        ) from None


def _values(key: str, tensor: Tensor, sizes: set[int]) -> np.ndarray:
    """Return the numbers of a tensor, after checking that they are plain and in the file.

    Args:
        key: its name, "" if it is alone.
        tensor: as torch loaded it; strides may make it larger than its storage.
        sizes: of the storages in the file.

    Raises:
        LevelheadError: it is sparse or quantized, has no bytes in the file (as one on the device
            `meta`), is far larger than its storage, or is of a dtype that numpy has not.
    """
    name = repr(key) if key else "the tensor"
    if tensor.is_sparse or tensor.is_quantized or str(tensor.layout) != "torch.strided":
        raise LevelheadError(f"{name} is sparse or quantized; save it as a dense tensor of floats")
    # A pickle can describe a tensor of any size over a storage that the file does not have.
    stored = tensor.untyped_storage().nbytes()
    if tensor.device.type != "cpu" or (stored and stored not in sizes):
        raise LevelheadError(f"{name} has no data of its own in the file; {HOW_TO_SAVE_TENSORS}")
    # A stride of 0 repeats one number: `torch.zeros(1).expand(10**9)` is four bytes in the file.
    check_expansion(tensor.numel() * tensor.element_size(), stored)
    expected = "expected floating-point or integer numbers"
    with reported_as(f"{name} is {tensor.dtype}; {expected}", TypeError, RuntimeError):
        return to_numpy(tensor.resolve_conj().resolve_neg())
