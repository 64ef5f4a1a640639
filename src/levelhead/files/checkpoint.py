"""A checkpoint of torch, opened as torch's `weights_only` does, without its numbers.

The file is a zip, as torch writes it since 1.6:

    NAME/data.pkl       a pickle of dicts, lists and tensors; a tensor names its storage
    NAME/data/0, 1...   a record for each storage of numbers, stored as it is
    NAME/byteorder      "little", of later versions
    NAME/version

`open_checkpoint` opens the zip and refuses what may hold code. `load_checkpoint` has torch unpickle
it onto the device `meta`, which holds no numbers, and returns with it which record each storage is:
that is where the numbers of a tensor lie. So no code of the file is run, and a checkpoint of
gigabytes takes no more memory than its names. Classes that are no tensors become stand-ins
(checkpoint_data.py).
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple
from warnings import catch_warnings
from zipfile import BadZipFile, ZipFile, ZipInfo

from ..io.pickle_check import check_pickle
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing
from ..support.regular_file import bytes_at
from .checkpoint_data import STAND_INS
from .zip import Archive

HOW_TO_SAVE = "save model.state_dict() with torch.save"
# How torch's files began before they were zip archives: a pickle of the number
# 0x1950a86a20f9469cfc6c.
OLD_TORCH = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")


class Checkpoint(NamedTuple):
    """What a checkpoint holds: its content as torch would return it, and where the numbers are."""

    content: object  # dicts, lists and tensors on `meta`
    # The record of each storage, by the number that torch keeps in a storage as
    # `_checkpoint_offset`.
    storages: dict[int, ZipInfo]


def open_checkpoint(path: Path) -> Archive:
    """Open the zip that a checkpoint is; refuse what is older, or holds code.

    Raises:
        LevelheadError: it is no zip, a plain pickle, torch's format before 1.6, or an archive of
            TorchScript or torch.export; the message says what to save instead.
    """
    try:
        archive = Archive(path)
    except BadZipFile as error:
        beginning = bytes_at(path, 0, len(OLD_TORCH))
        if beginning == OLD_TORCH:
            old, new = str(path), str(path.with_name(f"new-{path.name}"))
            again = f"torch.save(torch.load({old!r}, weights_only=True), {new!r})"
            reason = f"torch's format before 1.6; save it again, as by {again}"
            raise LevelheadError(f"{path}: {reason} in Python, which runs no code") from None
        reason = f"cut short, or not a state dict ({error})"
        # How a pickle of protocols 2 to 5 begins.
        if beginning[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            reason = "a pickle, which may hold code"
        raise LevelheadError(f"{path}: {reason}; {HOW_TO_SAVE}") from None
    # TorchScript keeps its code beside the weights, and torch.export a model.json.
    for name in archive.by_name:
        if name.endswith(("/constants.pkl", "/model.json")) or "/code/" in name:
            instead = f"{HOW_TO_SAVE}, or adjust the model before converting it"
            raise LevelheadError(
                f"{path}: a TorchScript or export archive, which holds code; {instead}"
            )
    return archive


def load_checkpoint(archive: Archive) -> Checkpoint:
    """Return what torch would load from a checkpoint, without its numbers.

    `check_pickle` looks at the pickle before torch does: `weights_only` runs no code of a file, but
    builds whatever it says, which may overflow the stack or take all memory.

    Args:
        archive: as `open_checkpoint` returned it.

    Raises:
        LevelheadError: the pickle needs a class that `weights_only` does not open, is damaged, of a
            big-endian machine, or holds quantized tensors.
        ImportError: torch is not installed; the message says how it is.
    """
    path = archive.path
    with naming_what_is_missing(f"reading {path.suffix}"):
        import torch
    try:
        pickled = archive.unpack("data.pkl")
        check_pickle(pickled)
        if archive.find("byteorder") and archive.unpack("byteorder", 10) != b"little":
            raise LevelheadError(
                "expected little-endian numbers, got a file of a big-endian machine"
            )
    except (BadZipFile, LevelheadError) as error:
        raise LevelheadError(
            f"{path}: cut short, or not a state dict ({error}); {HOW_TO_SAVE}"
        ) from None
    # Which of the two ways: from 2.11 on, torch says where the numbers of a storage begin.
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
        needs = "cannot be opened by weights_only"
        if kind:
            needs = f"needs {kind[1]} to open"
        raise LevelheadError(f"{path}: {needs}, which would run its code; {HOW_TO_SAVE}") from None
    except NotImplementedError:  # raised by meta tensors, which hold no data
        raise LevelheadError(
            f"{path}: holds quantized tensors; adjust the model before quantizing"
        ) from None
    # Of any kind, as a damaged pickle calls torch's functions with any arguments.
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise LevelheadError(
            f"{path}: cut short, or not a state dict ({reason}); {HOW_TO_SAVE}"
        ) from None


def _load_skeleton(archive: Archive, pickled: bytes) -> Checkpoint:
    """Return what torch, from 2.11 on, loads from the archive, with empty storages.

    torch then keeps in each storage where its numbers begin in the file (`_checkpoint_offset`). So
    it gets a zip with the same pickle and records without numbers: where each begins tells which it
    is. Nothing else is given to it: a compressed record, or one that is called as torch would not,
    never reaches its own reader of zips.
    """
    import torch

    skeleton = io.BytesIO()
    storages = {}
    with ZipFile(skeleton, "w") as zip_file:
        zip_file.writestr("archive/data.pkl", pickled)
        for record in archive.records:
            name = record.filename.removeprefix(archive.prefix)
            if name.startswith("data/"):
                zip_file.writestr(f"archive/{name}", b"")
                # An empty record ends where its data would begin.
                storages[zip_file.start_dir] = record
        zip_file.writestr("archive/version", b"3\n")
    skeleton.seek(0)
    content = torch.load(skeleton, weights_only=True, map_location="meta")
    return Checkpoint(content, storages)


def _load_pickle(archive: Archive, pickled: bytes) -> Checkpoint:
    """Return the same with an older torch, which does not say where storages lie.

    Its unpickler asks for each storage by the name of its record, so that the answer can keep it:
    as `_checkpoint_offset`, the offset of the record's header, where later versions have that of
    the data.

    These are private parts of torch, which stay as they are in versions that are out.
    """
    import torch
    from torch._utils import _sparse_tensors_to_validate
    from torch._weights_only_unpickler import Unpickler

    storages = {record.header_offset: record for record in archive.records}

    def storage_of(saved: tuple) -> object:
        """Return an empty storage for what the pickle names: ("storage", type, key, device, count).

        Its numbers are in the record `data/KEY`, whose offset it takes along.
        """
        _, kind, key, _, count = saved
        record = archive.find(f"data/{key}")
        if record is None:
            # In the words of later versions.
            raise RuntimeError(f"locating file data/{key}: not found")
        dtype = torch.uint8
        if kind is not torch.UntypedStorage:
            dtype = kind.dtype
        storage = torch.UntypedStorage(count * dtype.itemsize, device="meta")
        storage._checkpoint_offset = record.header_offset  # pyright: ignore[reportAttributeAccessIssue]  as torch calls it
        return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    unpickler: Any = Unpickler(io.BytesIO(pickled), encoding="utf-8")  # torch gives it no types
    local = torch.serialization._serialization_tls
    unpickler.persistent_load = storage_of
    local.map_location = "meta"
    try:
        return Checkpoint(unpickler.load(), storages)
    finally:
        local.map_location = None
        _sparse_tensors_to_validate.clear()
