"""Heads in safetensors files, single or sharded: only the head and the metadata change.

    8 bytes, little-endian: the length of the header
    the header: {"__metadata__": {text: text}, tensor: {"dtype", "shape", "data_offsets"}, ...}
    the numbers

io/safetensors_file.py reads the header, after the format's own library found it sound. The head is
found among the tensors by name and shape (find.py). The note of an adjustment goes into
`__metadata__`; since offsets count from the header's end, the tensors need no other entry when the
header becomes longer. A sharded model is an index that lists its shards (shards.py); that stays as
it is, as names, shapes and sizes of all tensors do.

Reference: https://github.com/huggingface/safetensors#format
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ..core.class_names import listed
from ..heads.notes import NOTE, Note, note_entries, note_from
from ..io.safetensors_file import SHARD_INDEX, Header, read_header
from ..support.errors import LevelheadError
from ..support.regular_file import check_regular_file
from .edits import Edit
from .find import find_layers
from .format import Reader
from .located import LocatedHead
from .shards import check_head_is_whole, indexes_of, read_weight_map
from .spans import LayerSpans, Span


def _is_folder(path: Path) -> bool:
    """Return whether a path means a folder of files: the folder itself, or the index in it.

    The same as the line of the table says (`Format.is_folder`).
    """
    return path.is_dir() or path.name.endswith(SHARD_INDEX)


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head in a `.safetensors` file, an index of shards, or a folder with one of the two.

    Args:
        path, named, classes: as in `FindHead`.

    Raises:
        LevelheadError: also if two shards have a tensor of the same name: which of them is loaded
            depends on who loads them; and if the file is a shard without the whole head.
    """
    files = _files(path)
    # What each file is now, before anything of it is read.
    stamps = {file: check_regular_file(file, "a safetensors model") for file in files}
    headers = _read(path)
    spans = {}
    for file, header in headers.items():
        for key, tensor in header.tensors.items():
            if key in spans:
                raise LevelheadError(
                    f"{files[0]}: {key} is in two of its shards; save the model again"
                )
            spans[key] = Span(key, file, tensor.offset, tensor.dtype, tensor.shape)
    layers = find_layers(files[0], spans, named=named, classes=classes)
    if not _is_folder(path):
        _check_shard(path, layers, named, classes)
    return LocatedHead(
        files[0], layers, stamps, partial(_complete, headers), _note(headers), _is_folder(path)
    )


def _check_shard(
    path: Path, layers: Sequence[LayerSpans], named: str | None, classes: int | None
) -> None:
    """Check that a file that is a shard, given alone, has the whole head of its model.

    Args:
        path: the file.
        layers: what looks like the head in it.
        named, classes: as they were found by.

    Raises:
        LevelheadError: a part of it, or the head itself, is in another shard.
    """
    instead = "give the index or the folder"
    check_head_is_whole(path, layers, SHARD_INDEX, instead=instead)
    for index, _ in indexes_of(path, SHARD_INDEX):
        try:
            whole = _find(index, named=named, classes=classes)
        except FileNotFoundError:  # another shard, which then cannot be looked at
            continue
        for layer in whole.layers:
            if layer.weight.file != path:
                head = f"the head {layer.key} is in {layer.weight.file.name}"
                raise LevelheadError(f"{path}: a shard of {index.name}, and {head}; {instead}")


def _files(path: Path) -> tuple[Path, ...]:
    """Return the model's own files: the one given or, of a folder, its index and shards.

    A folder without an index has its only safetensors file.

    Raises:
        LevelheadError: a folder has no model or several, or an index is damaged, or lists files
            elsewhere: what is in another folder is nobody's model.
        FileNotFoundError: a shard is not there.
    """
    if path.is_dir():
        inside = sorted(path.glob(f"*{SHARD_INDEX}")) or sorted(path.glob("*.safetensors"))
        if len(inside) != 1:
            names = listed([file.name for file in inside]) or "none"
            raise LevelheadError(
                f"{path}: expected one safetensors model in it, found {names}; give the file itself"
            )
        path = inside[0]
    if not path.name.endswith(SHARD_INDEX):
        return (path,)
    names = list(dict.fromkeys(read_weight_map(path).values()))
    if not names:
        raise LevelheadError(f"{path}: not an index of shards (it lists none)")
    for name in names:
        if Path(name).name != name or name.endswith(SHARD_INDEX):
            raise LevelheadError(f"{path}: expected shards in the same folder, got {name!r}")
        if not os.path.isfile(path.parent / name):  # False for a name that cannot be, too
            wanted = f"expected a shard of {path.name}; download it again"
            raise FileNotFoundError(f"{path.parent / name!s}: no such file; {wanted}")
    return (path, *(path.parent / name for name in names))


def _read(path: Path) -> dict[Path, Header]:
    """Return the header of each file of a model that has tensors."""
    return {file: read_header(file) for file in _files(path) if not file.name.endswith(SHARD_INDEX)}


def _complete(
    headers: Mapping[Path, Header],
    source: Path,
    edits: list[Edit],
    note: Note | None,
    names: Mapping[Path, str],
) -> list[Edit]:
    """Return the edits of a file that changes, with the note in its metadata.

    All other text of the header stays as it is, in its order and with its spaces: whoever wrote the
    file finds it again, and an undo gives it back to the byte.

    Args:
        headers: of all files of the model.
        source, edits: the file, and what changes in its numbers. Shards without the head have no
            edits, and get no note.
        note: what to record; an empty one takes an earlier record out, None leaves it.
        names: of files as they will be; shards keep theirs.
    """
    if note is None or not edits:
        return edits
    header = headers[source]
    # What others keep in the metadata, such as the framework, stays.
    others = {key: value for key, value in header.metadata.items() if key not in NOTE}
    entries = others | note_entries(note)
    metadata = '"__metadata__":' + json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    start, end = _metadata_range(header.text)
    after = header.text[end:].rstrip(" ")  # without its padding
    if start == end and after.lstrip() != "}":  # there was none, and tensors follow
        metadata += ","
    data = (header.text[:start] + metadata + after).encode()
    # Spaces are the padding that the format has for its header.
    data += b" " * (-len(data) % 8)  # the numbers begin at a multiple of 8 bytes
    return [Edit(0, 8 + header.length, len(data).to_bytes(8, "little") + data), *edits]


def _note(headers: Mapping[Path, Header]) -> Note | None:
    """Return the note of an earlier adjustment: in the file that the head is in.

    Args:
        headers: of all files of the model, of which at most those with the head have one.
    """
    for file, header in headers.items():
        note = note_from(header.metadata, file)
        if note:
            return note
    return None


def _metadata_range(text: str) -> tuple[int, int]:
    """Return where `"__metadata__": {...}` stands in a header's text, as (start, end).

    The empty range after the header's brace, if it has none. `json` parses the pieces, one key and
    one value at a time, and says where each ends: a search for the word would also find a tensor of
    that name, or text in the metadata.

    The library found the header sound before, so that the text is an object, and the patterns
    match.
    """
    decoder = json.JSONDecoder()
    between = re.compile(r"[\s,]*")
    colon = re.compile(r"\s*:\s*")
    first = text.index("{") + 1
    at = first
    while True:
        # To the next key: past commas and spaces. Then past the key, the colon and its value.
        at = between.match(text, at).end()  # type: ignore[union-attr]
        if text[at] == "}":
            return first, first
        key, end = decoder.raw_decode(text, at)
        _, end = decoder.raw_decode(text, colon.match(text, end).end())  # type: ignore[union-attr]
        if key == "__metadata__":
            return at, end
        at = end


READER = Reader(_find, note=lambda path: _note(_read(path)), check=_read, files=_files)
