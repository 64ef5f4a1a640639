"""Heads in safetensors files, single or sharded: only the head's bytes and the metadata change.

The header (8 bytes of length, then JSON) is read and written here, so that a file of any size is streamed, the other
tensors keep their bytes and their order, and no torch is needed. Of a sharded model only its own files are copied, the
index and the shards: no config, no tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import LevelheadError
from .edits import Edit
from .find import find_layers
from .format import Format, Note
from .spans import NOTE, SIZES, Found, Span, names_beside, note_entries, note_from

INDEX = ".safetensors.index.json"
LONGEST = 100_000_000  # bytes of header, as the format's own library has it
WIDTHS = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4, "I64": 8, "U64": 8, "C64": 8, **SIZES}


@dataclass(frozen=True)
class Header:
    """A safetensors header: its text as it stands in the file, and what it says."""

    text: str
    length: int
    metadata: dict[str, str]
    spans: dict[str, Span]


def find(path: Path, *, named: str | None = None, classes: int | None = None) -> Found:
    """The head in a `.safetensors` file, an index of shards, or a folder that holds one of the two."""
    main, *shards = files(path)
    headers = {file: read_header(file) for file in (shards or [main])}
    spans = {key: span for header in headers.values() for key, span in header.spans.items()}
    places = find_layers(main, spans, named=named, classes=classes)
    note = _note(headers)
    names = names_beside(main, places[0].classes)
    return Found(main, places, (main, *shards), names, note, folder=is_folder(path), detail=headers)


def is_folder(path: Path) -> bool:
    """Whether a path means a folder of files: the folder itself, or the index in it."""
    return path.is_dir() or path.name.endswith(INDEX)


def files(path: Path) -> tuple[Path, ...]:
    """The model's own files: the one given or, of a folder, its index and shards or its only safetensors file."""
    if path.is_dir():
        inside = sorted(path.glob(f"*{INDEX}")) or sorted(path.glob("*.safetensors"))
        if len(inside) != 1:
            listed = ", ".join(file.name for file in inside[:6]) or "none"
            raise LevelheadError(f"{path}: expected one safetensors model in it, found {listed}; give the file itself")
        path = inside[0]
    return (path, *_shards(path)) if path.name.endswith(INDEX) else (path,)


def complete(found: Found, source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]) -> list[Edit]:
    """The edits of a file that changes, with the note in its metadata."""
    if note is None or not edits:
        return edits
    header: Header = found.detail[source]
    return [Edit(0, 8 + header.length, _new_header(header, note_entries(note))), *edits]


def note_in(path: Path) -> Note | None:
    """What an earlier adjustment recorded."""
    main, *shards = files(path)
    return _note({file: read_header(file) for file in (shards or [main])})


def check(path: Path) -> None:
    for file in files(path):
        if not file.name.endswith(INDEX):
            read_header(file)


def read_header(path: Path) -> Header:
    """Parse and check a file's header: a ValueError says what is wrong with it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > LONGEST or 8 + length > size:
            raise LevelheadError(f"{path}: cut short, or no safetensors file; copy or download it again")
        raw = file.read(length)
    try:
        text = raw.decode()
        entries: dict[str, Any] = json.loads(text, object_pairs_hook=_without_twins)
        metadata = entries.pop("__metadata__", None) or {}
        if not all(isinstance(value, str) for value in metadata.values()):
            raise LevelheadError("its metadata are not all text")
        spans = {key: _span(path, key, entry, 8 + length) for key, entry in entries.items()}
        at = 0
        for begin, end, key in sorted((*entry["data_offsets"], key) for key, entry in entries.items()):
            if begin != at:
                raise LevelheadError(f"{key!r} begins at byte {begin} of the data, expected {at}")
            at = end
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LevelheadError(f"{path}: no safetensors file, its header is broken ({error})") from None
    if 8 + length + at != size:
        problem = "cut short" if 8 + length + at > size else "longer than it should be"
        raise LevelheadError(f"{path}: {problem}, {size} bytes and not {8 + length + at}; copy or download it again")
    return Header(text, length, metadata, spans)


def _note(headers: Mapping[Path, Header]) -> dict[str, Any] | None:
    return next((note for file, header in headers.items() if (note := note_from(header.metadata, file))), None)


def _span(path: Path, key: str, entry: dict[str, Any], start: int) -> Span:
    (begin, end), dtype, shape = entry["data_offsets"], entry["dtype"], tuple(entry["shape"])
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, begin, end)):
        raise LevelheadError(f"{key!r} has the shape {list(shape)} at bytes {begin} to {end}")
    if dtype in WIDTHS and end - begin != WIDTHS[dtype] * int(np.prod(shape, dtype=object)):
        raise LevelheadError(f"{key!r} has {end - begin} bytes for {dtype} {list(shape)}")
    return Span(key, path, start + begin, dtype, shape)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise LevelheadError("a key is there twice")
    return entries


def _shards(index: Path) -> list[Path]:
    try:
        names = dict.fromkeys(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        shards = [index.parent / name for name in names]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LevelheadError(f"{index}: no index of shards ({error})") from None
    if not shards:
        raise LevelheadError(f"{index}: no index of shards (it lists none)")
    for shard in shards:
        if shard.parent != index.parent or not shard.is_file():
            raise LevelheadError(f"{index}: its shard {shard.name} is not beside it; download it again")
    return shards


def _new_header(header: Header, entries: Mapping[str, str]) -> bytes:
    """The header with our entries in its metadata; all other text stays, up to the padding."""
    kept = {key: value for key, value in header.metadata.items() if key not in NOTE}
    field = '"__metadata__":' + json.dumps({**kept, **entries}, separators=(",", ":"), ensure_ascii=False)
    start, end = _metadata_at(header.text)
    after = header.text[end:].rstrip(" ")
    comma = "," if start == end and after.lstrip() != "}" else ""
    data = (header.text[:start] + field + comma + after).encode()
    data += b" " * (-len(data) % 8)
    return len(data).to_bytes(8, "little") + data


def _metadata_at(text: str) -> tuple[int, int]:
    """Where `"__metadata__": {...}` stands in a header's text; if nowhere, the empty place after its brace.

    >>> text = '{"a":{}, "__metadata__":{"format":"pt"}}'
    >>> text[slice(*_metadata_at(text))]
    '"__metadata__":{"format":"pt"}'
    """
    decoder, between, colon = json.JSONDecoder(), re.compile(r"[\s,]*"), re.compile(r"\s*:\s*")
    first = at = text.index("{") + 1
    while text[at := between.match(text, at).end()] != "}":  # type: ignore[union-attr]
        key, end = decoder.raw_decode(text, at)
        _, end = decoder.raw_decode(text, colon.match(text, end).end())  # type: ignore[union-attr]
        if key == "__metadata__":
            return at, end
        at = end
    return first, first


FORMAT = Format("safetensors", (".safetensors", INDEX), find, files, note_in, complete, check)
read, write = FORMAT.read, FORMAT.write
