"""Heads in state dicts that torch saved (`.pt`, `.pth`, `.bin`, `.ckpt`).

They are opened by torch's `weights_only` and nothing else.

    open_checkpoint, load_checkpoint (checkpoint.py): the file, unpickled without its numbers
    _state: the state dicts in it, which may lie among other things -> {key: tensor on `meta`}
    _span: a tensor -> where its numbers lie, in the record of its storage
    find_layers (find.py): among those, the head by name and shape
    _check_is_alone: nothing else in the checkpoint has the same bytes

zip.py then keeps checksums right, and puts the note into a record that torch does not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard
from zipfile import ZipInfo

from ..core.class_names import listed
from ..support.errors import LevelheadError
from ..support.regular_file import check_regular_file
from .checkpoint import HOW_TO_SAVE, load_checkpoint, open_checkpoint
from .find import find_layers
from .find_checks import overlap
from .format import Reader
from .located import LocatedHead
from .shards import check_head_is_whole
from .spans import Span
from .tensors import STATE_DICT
from .zip import Archive

if TYPE_CHECKING:
    from torch import Tensor

TORCH_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
DEEPEST_CHECKPOINT = 100  # dicts and lists inside each other


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head in a state dict, or in one that lies under a usual name in a checkpoint.

    Args:
        path, named, classes: as in `FindHead`.
    """
    stamp = check_regular_file(path, "a state dict")
    archive = open_checkpoint(path)
    content, storages = load_checkpoint(archive)
    # All tensors, for bytes that are shared; and those of state dicts, for the head.
    everything = list(_tensors_in(content, path))
    state = dict(_state(content, path, "", {id(content)}))
    spans = {key: _span(archive, storages, key, tensor) for key, tensor in state.items()}
    # Beside a state dict under another name there may be a tensor by itself, such as a step.
    elsewhere = _under_other_names(content)
    if elsewhere and not any(tensor.ndim > 1 for tensor in state.values()):
        reason = f"has its tensors under {listed(elsewhere)}, which says nothing to us"
        raise LevelheadError(f"{path}: {reason}; {HOW_TO_SAVE}")
    if not spans:
        raise LevelheadError(f"{path}: holds no state dict of tensors; {HOW_TO_SAVE}")
    layers = find_layers(path, spans, named=named, classes=classes, ordered=True)
    instead = "save the model as safetensors (save_pretrained does), and give its index"
    check_head_is_whole(path, layers, f"{path.suffix}.index.json", instead=instead)
    # Tensors outside of the state dict, such as a second copy of the weights, may share its bytes.
    others = [
        _span(archive, storages, key, tensor) for key, tensor in everything if key not in spans
    ]
    for layer in layers:
        for span in layer.spans:
            _check_is_alone(archive, span, others)
    return LocatedHead(path, layers, {path: stamp}, archive.complete, archive.note)


def _check_is_alone(archive: Archive, span: Span, others: Iterable[Span]) -> None:
    """Check that a tensor of the head shares no bytes with others, and lies in a record as it is.

    Args:
        archive: the file.
        span: of the head.
        others: all tensors outside of the state dict; those in it were compared by
            `check_not_tied`.
    """
    for other in others:
        if overlap(span, other):
            reason = f"{span.key} is tied to {other.key}, and scaling it would change both"
            raise LevelheadError(f"{archive.path}: {reason}; {HOW_TO_SAVE}")
    if archive.record_at(span.offset) is None:
        raise LevelheadError(
            f"{archive.path}: {span.key} is not stored as plain bytes; {HOW_TO_SAVE}"
        )


def _is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a tensor, by what it has: torch need not be imported to ask."""
    return hasattr(value, "untyped_storage")


def _state(
    content: object, path: Path, prefix: str, seen: set[int]
) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a state dict with its key.

    A key begins with the name of the state dict in the checkpoint, such as `model.fc.weight`: so
    those of a model and of its moving average are told apart.

    Args:
        content: a state dict, or what has some.
        path: the file, for messages.
        prefix: of keys.
        seen: the dicts that were looked at, by id: a pickle may lead back to where it came from.
    """
    if not isinstance(content, Mapping):
        return
    for key, inner in content.items():
        if isinstance(inner, Mapping) and _is_state_dict(key):
            if id(inner) in seen:  # perhaps it holds itself
                raise LevelheadError(f"{path}: {prefix}{key} is there twice; {HOW_TO_SAVE}")
            seen.add(id(inner))
            yield from _state(inner, path, f"{prefix}{key}.", seen)
        elif _is_tensor(inner) and isinstance(key, str):
            yield prefix + key, inner


def _is_state_dict(key: object) -> bool:
    """Return whether something under this key in a checkpoint is taken for a state dict."""
    return isinstance(key, str) and re.fullmatch(STATE_DICT, key) is not None


def _under_other_names(content: object) -> list[str]:
    """Return the names under which tensors lie in a checkpoint that are not those of state dicts.

    Only usual names are taken, as the states of an optimizer have the same shapes as the weights.
    """
    if not isinstance(content, Mapping):
        return []
    return [
        str(key)
        for key, inner in content.items()
        if isinstance(inner, Mapping)
        and not _is_state_dict(key)
        and any(map(_is_tensor, inner.values()))
    ]


def _tensors_in(content: object, path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a checkpoint and where it is; what is shared is there once.

    Unlike `_state`, also those of optimizers, settings and lists: some of them may be the head's
    own bytes. Not by recursion, as a pickle may be nested as deep as it likes.
    """
    waiting = [("", content, 0)]  # key, value, how deep it lies
    seen = set()
    while waiting:
        key, value, depth = waiting.pop()
        if depth > DEEPEST_CHECKPOINT:
            raise LevelheadError(
                f"{path}: nested more than {DEEPEST_CHECKPOINT} levels deep; {HOW_TO_SAVE}"
            )
        if _is_tensor(value):
            yield key, value
            continue
        if id(value) in seen or not isinstance(value, Mapping | list | tuple):
            continue
        seen.add(id(value))
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, inner in pairs:
            waiting.append((f"{key}.{name}" if key else str(name), inner, depth + 1))


def _span(archive: Archive, storages: Mapping[int, ZipInfo], key: str, tensor: Tensor) -> Span:
    """Return where the numbers of a tensor are, in the record of its storage.

    A tensor whose numbers cannot be changed in place has a dtype that says why, such as "float32,
    not contiguous": it is refused only if it is the head.

    Args:
        archive: the file.
        storages: the record of each storage, by the number that torch keeps in it.
        key, tensor: its name, and the tensor on `meta`, which has shape, strides and offset.

    Raises:
        LevelheadError: the record is not as long as the storage.
    """
    path = archive.path
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    if str(tensor.layout) != "torch.strided":
        return Span(key, path, 0, f"{dtype}, sparse", shape)
    # Sparse ones aside, a tensor is a view of its storage, which torch numbered when it was loaded.
    storage = tensor.untyped_storage()
    record = storages.get(getattr(storage, "_checkpoint_offset", -1))
    if record is None:
        return Span(key, path, 0, f"{dtype}, without data", shape)
    size = storage.nbytes()
    if record.file_size != size:
        name = record.filename.removeprefix(archive.prefix)
        expected = f"expected {size} bytes in its record {name}, got {record.file_size}"
        raise LevelheadError(f"{path}: {key}: {expected}; {HOW_TO_SAVE}")
    # A matrix may be saved as the transposed of another: its numbers lie one after another, column
    # by column.
    turned = len(shape) == 2 and tensor.stride() == (1, shape[0]) and not tensor.is_contiguous()
    if tensor.is_contiguous() or turned:
        stored = TORCH_DTYPES.get(dtype, dtype)
    else:
        stored = f"{dtype}, not contiguous"
    if turned:
        shape = shape[::-1]
    # A tensor may begin anywhere in its storage, as a part of a larger one does.
    item = tensor.element_size()
    offset = archive.data_at[record.filename] + int(tensor.storage_offset()) * item
    return Span(key, path, offset, stored, shape, turned, _reach(tensor))


def _reach(tensor: Tensor) -> int:
    """Return how many bytes a tensor reaches from its first number to behind its last.

    Of a view with gaps these are more than its numbers have. `overlap` goes by it.
    """
    if not tensor.numel():
        return 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


READER = Reader(
    _find,
    note=lambda path: open_checkpoint(path).note,
    check=lambda path: load_checkpoint(open_checkpoint(path)),
)
