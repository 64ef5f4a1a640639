"""Heads in state dicts that torch saved (`.pt`, `.pth`, `.bin`, `.ckpt`), opened by `weights_only` and nothing else.

Such a file is a zip of uncompressed storages. The head's storages are changed where they lie, with their checksums, and
the note becomes one more record of the zip, which torch does not look at.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from warnings import catch_warnings
from zipfile import BadZipFile

from ..core.errors import LevelheadError
from .edits import Edit
from .find import find_layers
from .format import Format
from .note import Note, check_note
from .spans import LocatedHead, Span
from .zip import Archive

RECORD = "levelhead.json"
TORCH_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
# Where training scripts keep a state dict among other things. Optimizers' states, which have the same shapes, are not
# among them.
INSIDE = ("state_dict", "model", "model_state_dict", "net", "network", "module", "model_ema", "state_dict_ema", "ema")
HOW_TO_SAVE = "save model.state_dict() with torch.save"


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head in a state dict, or in one that lies under a usual name in a checkpoint."""
    archive = _open(path)
    spans = dict(_spans(path, _load(path)))
    if not spans:
        raise LevelheadError(f"{path}: holds no state dict of tensors; {HOW_TO_SAVE}")
    layers = find_layers(path, spans, named=named, classes=classes)
    for span in (span for layer in layers for span in layer.spans):
        if archive.record_at(span.offset) is None:
            raise LevelheadError(f"{path}: {span.key} is not stored as plain bytes; {HOW_TO_SAVE}")
    return LocatedHead(path=path, layers=layers, files=(path,), note=_note(archive), detail=archive)


def _complete(
    found: LocatedHead, source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
) -> list[Edit]:
    """Return the edits with the checksums they need, and the note as a record of the zip."""
    record = None if note is None else (RECORD, json.dumps(note).encode() if note else None)
    return found.detail.patched(edits, record)


def _note(archive: Archive) -> dict[str, Any] | None:
    data = archive.read(RECORD)
    if not data:
        return None
    try:
        note = json.loads(data)
    except (ValueError, RecursionError):
        note = None
    return check_note(note, archive.path)


def _spans(path: Path, value: Any, prefix: str = "") -> Iterator[tuple[str, Span]]:
    """Yield every tensor of a state dict with its key, which begins with the name of a state dict in a checkpoint."""
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        if isinstance(inner, Mapping) and key in INSIDE:
            yield from _spans(path, inner, f"{prefix}{key}.")
        elif hasattr(inner, "untyped_storage") and isinstance(key, str):
            yield prefix + key, _span(path, prefix + key, inner)


def _span(path: Path, key: str, tensor: Any) -> Span:
    dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    if str(tensor.layout) != "torch.strided":
        return Span(key, path, 0, f"{dtype}, sparse", shape)
    start = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    if start is None:
        raise LevelheadError(f"{path}: this torch does not say where a file's tensors are; use torch 2.7 or newer")
    turned = len(shape) == 2 and tensor.stride() == (1, shape[0]) and not tensor.is_contiguous()
    stored = TORCH_DTYPES.get(dtype, dtype) if tensor.is_contiguous() or turned else f"{dtype}, not contiguous"
    offset = start + tensor.storage_offset() * tensor.element_size()
    return Span(key, path, offset, stored, shape[::-1] if turned else shape, turned)


def _load(path: Path) -> Any:
    """Open a file as torch would, but load no data of it and run no code."""
    try:
        import torch
    except ImportError:
        raise ImportError(f"reading {path.suffix} needs torch: pip install 'levelhead[torch]'") from None
    try:
        with catch_warnings(action="ignore", category=UserWarning):  # torch's, of its own deprecated storages
            return torch.load(path, weights_only=True, map_location="meta")
    except UnpicklingError as error:
        kind = re.search(r"(?:Unsupported global: GLOBAL|Unsupported class|GLOBAL) ([\w.]+)", str(error))
        what = f"needs {kind[1]} to open" if kind else "cannot be opened by weights_only"
        raise LevelheadError(f"{path}: {what}, which would run its code; {HOW_TO_SAVE}") from None
    except NotImplementedError:  # raised by meta tensors, which hold no data
        raise LevelheadError(f"{path}: holds quantized tensors; adjust the model before quantizing") from None
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        raise LevelheadError(f"{path}: cut short, or not a state dict ({reason}); {HOW_TO_SAVE}") from None


def _open(path: Path) -> Archive:
    try:
        archive = Archive(path)
    except BadZipFile:
        with path.open("rb") as file:
            start = file.read(2)
        old = start in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
        what = "a pickle or torch's format before 1.6" if old else "cut short, or not a state dict"
        raise LevelheadError(f"{path}: {what}; {HOW_TO_SAVE}") from None
    if any(name.endswith(("/constants.pkl", "/model.json")) or "/code/" in name for name in archive.names):
        raise LevelheadError(f"{path}: a TorchScript or export archive, which holds code; {HOW_TO_SAVE}")
    return archive


FORMAT = Format(
    name="state dict",
    suffixes=(".pt", ".pth", ".bin", ".ckpt"),
    find=_find,
    files=lambda path: (path,),
    complete=_complete,
    check=_load,
    note=lambda path: _note(_open(path)),
)
