"""Heads in state dicts that torch saved (`.pt`, `.pth`, `.bin`, `.ckpt`), opened by `weights_only` and nothing else."""

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from warnings import catch_warnings
from zipfile import BadZipFile, ZipFile, ZipInfo

from ..core.class_names import listed
from ..io.pickle_check import check_pickle
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing
from ..support.regular_file import bytes_at, check_regular_file
from .checkpoint_data import STAND_INS
from .find import find_layers
from .find_checks import overlap
from .format import Reader
from .located import LocatedHead
from .spans import Span
from .tensors import STATE_DICT
from .zip import Archive

TORCH_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
DEEPEST_CHECKPOINT = 100  # dicts and lists inside each other
HOW_TO_SAVE = "save model.state_dict() with torch.save"


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head in a state dict, or in one that lies under a usual name in a checkpoint."""
    stamp = check_regular_file(path, "a state dict")
    archive = _open(path)
    value, storages = _load(archive)
    everything = list(_tensors_in(value, path))
    state = dict(_state(value, path, "", {id(value)}))
    spans = {key: _span(archive, storages, key, tensor) for key, tensor in state.items()}
    if not spans:
        raise LevelheadError(f"{path}: {_why_no_state(value)}; {HOW_TO_SAVE}")
    layers = find_layers(path, spans, named=named, classes=classes, ordered=True)
    others = [
        _span(archive, storages, key, tensor) for key, tensor in everything if key not in spans
    ]
    for span in (span for layer in layers for span in layer.spans):
        if (tied := next((other for other in others if overlap(span, other)), None)) is not None:
            reason = f"{span.key} is tied to {tied.key}, and scaling it would change both"
            raise LevelheadError(f"{path}: {reason}; {HOW_TO_SAVE}")
        if archive.record_at(span.offset) is None:
            raise LevelheadError(f"{path}: {span.key} is not stored as plain bytes; {HOW_TO_SAVE}")
    return LocatedHead(path, layers, {path: stamp}, archive.complete, archive.note)


def _state(value: Any, path: Path, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield every tensor of a state dict with its key, which begins with the name of a state dict in a checkpoint."""
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        if isinstance(inner, Mapping) and _is_state_dict(key):
            if id(inner) in seen:  # perhaps it holds itself
                raise LevelheadError(f"{path}: {prefix}{key} is there twice; {HOW_TO_SAVE}")
            seen.add(id(inner))
            yield from _state(inner, path, f"{prefix}{key}.", seen)
        elif hasattr(inner, "untyped_storage") and isinstance(key, str):
            yield prefix + key, inner


def _is_state_dict(key: Any) -> bool:
    return isinstance(key, str) and re.fullmatch(STATE_DICT, key) is not None


def _why_no_state(value: Any) -> str:
    """Return why no state dict was found: there is none, or it lies under a name of one's own."""
    if not isinstance(value, Mapping):
        return "holds no state dict of tensors"
    named = [
        key
        for key, inner in value.items()
        if isinstance(inner, Mapping)
        and any(hasattr(tensor, "untyped_storage") for tensor in inner.values())
    ]
    if not named:
        return "holds no state dict of tensors"
    return f"has its tensors under {listed([str(key) for key in named])}, which says nothing to us"


def _tensors_in(value: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield every tensor of a checkpoint and where it is: what is shared is there once."""
    waiting, seen = [("", value, 0)], set()
    while waiting:
        key, found, depth = waiting.pop()
        if depth > DEEPEST_CHECKPOINT:
            raise LevelheadError(
                f"{path}: nested more than {DEEPEST_CHECKPOINT} levels deep; {HOW_TO_SAVE}"
            )
        if hasattr(found, "untyped_storage"):
            yield key, found
        elif id(found) not in seen and isinstance(found, Mapping | list | tuple):
            seen.add(id(found))
            if isinstance(found, Mapping):
                pairs = found.items()
            else:
                pairs = enumerate(found)
            waiting += [
                (f"{key}.{name}" if key else str(name), inner, depth + 1) for name, inner in pairs
            ]


def _span(archive: Archive, storages: Mapping[int, ZipInfo], key: str, tensor: Any) -> Span:
    """Return where the numbers of a tensor are: in the record of its storage, which must have the storage's size."""
    path = archive.path
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    if str(tensor.layout) != "torch.strided":
        return Span(key, path, 0, f"{dtype}, sparse", shape)
    storage = tensor.untyped_storage()
    if (record := storages.get(getattr(storage, "_checkpoint_offset", -1))) is None:
        return Span(key, path, 0, f"{dtype}, without data", shape)
    if record.file_size != (size := storage.nbytes()):
        name = record.filename.removeprefix(archive.prefix)
        what = f"expected {size} bytes in its record {name}, got {record.file_size}"
        raise LevelheadError(f"{path}: {key}: {what}; {HOW_TO_SAVE}")
    turned = len(shape) == 2 and tensor.stride() == (1, shape[0]) and not tensor.is_contiguous()
    if tensor.is_contiguous() or turned:
        stored = TORCH_DTYPES.get(dtype, dtype)
    else:
        stored = f"{dtype}, not contiguous"
    offset = archive.data_at[record.filename] + tensor.storage_offset() * tensor.element_size()
    last = sum((n - 1) * step for n, step in zip(shape, tensor.stride(), strict=True))
    reach = 0
    if tensor.numel():
        reach = (last + 1) * tensor.element_size()
    return Span(key, path, offset, stored, shape[::-1] if turned else shape, turned, reach)


def _load(archive: Archive) -> tuple[Any, dict[int, ZipInfo]]:
    """Return what torch would load, on `meta`, running no code, and the record of each storage by its offset there."""
    path = archive.path
    with naming_what_is_missing(f"reading {path.suffix}"):
        import torch
    try:
        pickled = archive.unpack("data.pkl")
        order = archive.find("byteorder") and archive.unpack("byteorder", 10)
        check_pickle(pickled)
        if order not in (None, b"little"):
            raise LevelheadError(
                "expected little-endian numbers, got a file of a big-endian machine"
            )
    except (BadZipFile, LevelheadError) as error:
        raise LevelheadError(
            f"{path}: cut short, or not a state dict ({error}); {HOW_TO_SAVE}"
        ) from None
    load = _load_pickle
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 11):
        load = _load_skeleton
    try:
        with (
            catch_warnings(action="ignore"),  # torch's, of deprecated storages and of protocols
            torch.serialization.safe_globals(STAND_INS),
        ):
            return load(archive, pickled)
    except UnpicklingError as error:
        kind = re.search(
            r"(?:Unsupported global: GLOBAL|Unsupported class|GLOBAL) ([\w.]+)", str(error)
        )
        what = "cannot be opened by weights_only"
        if kind:
            what = f"needs {kind[1]} to open"
        raise LevelheadError(f"{path}: {what}, which would run its code; {HOW_TO_SAVE}") from None
    except NotImplementedError:  # raised by meta tensors, which hold no data
        raise LevelheadError(
            f"{path}: holds quantized tensors; adjust the model before quantizing"
        ) from None
    except (
        Exception
    ) as error:  # of any kind, as a damaged pickle calls torch's functions with any arguments
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise LevelheadError(
            f"{path}: cut short, or not a state dict ({reason}); {HOW_TO_SAVE}"
        ) from None


def _load_skeleton(archive: Archive, pickled: bytes) -> tuple[Any, dict[int, ZipInfo]]:
    """Return what torch, from 2.11 on, loads from the archive with empty storages, and the record of each."""
    import torch

    file, storages = io.BytesIO(), {}
    with ZipFile(file, "w") as made:
        made.writestr("archive/data.pkl", pickled)
        for record in archive.records:
            if (name := record.filename.removeprefix(archive.prefix)).startswith("data/"):
                made.writestr(f"archive/{name}", b"")
                storages[made.start_dir] = record  # an empty record ends where its data would begin
        made.writestr("archive/version", b"3\n")
    file.seek(0)
    return torch.load(file, weights_only=True, map_location="meta"), storages


def _load_pickle(archive: Archive, pickled: bytes) -> tuple[Any, dict[int, ZipInfo]]:
    """Return the same with an older torch, which does not say where storages lie."""
    import torch
    from torch._utils import _sparse_tensors_to_validate
    from torch._weights_only_unpickler import Unpickler

    storages = {record.header_offset: record for record in archive.records}

    def storage_of(saved: tuple) -> Any:
        _, kind, key, _, count = saved
        if (record := archive.find(f"data/{key}")) is None:
            # In the words of later versions.
            raise RuntimeError(f"locating file data/{key}: not found")
        if kind is torch.UntypedStorage:
            dtype = torch.uint8
        else:
            dtype = kind.dtype
        storage = torch.UntypedStorage(count * dtype.itemsize, device="meta")
        storage._checkpoint_offset = record.header_offset  # pyright: ignore[reportAttributeAccessIssue]  as torch calls it
        return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    unpickler: Any = Unpickler(io.BytesIO(pickled), encoding="utf-8")
    local = torch.serialization._serialization_tls
    unpickler.persistent_load = storage_of
    local.map_location = "meta"
    try:
        return unpickler.load(), storages
    finally:
        local.map_location = None
        _sparse_tensors_to_validate.clear()


def _open(path: Path) -> Archive:
    try:
        archive = Archive(path)
    except BadZipFile as error:
        old = bytes_at(path, 0, 2) in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
        what = "a pickle or torch's format before 1.6"
        if not old:
            what = f"cut short, or not a state dict ({error})"
        raise LevelheadError(f"{path}: {what}; {HOW_TO_SAVE}") from None
    if any(
        name.endswith(("/constants.pkl", "/model.json")) or "/code/" in name
        for name in archive.by_name
    ):
        instead = f"{HOW_TO_SAVE}, or adjust the model before converting it"
        raise LevelheadError(
            f"{path}: a TorchScript or export archive, which holds code; {instead}"
        )
    return archive


READER = Reader(_find, note=lambda path: _open(path).note, check=lambda path: _load(_open(path)))
