"""Damage to files: of bytes, of JSON, of the records of a zip, of the fields of a protobuf message.

What damages one layer leaves the layers around it sound, with their lengths and checksums, so that damage gets deep.
A flipped byte in a zip is noticed by its checksum and never reaches the pickle inside; here the pickle is damaged,
and the zip written anew around it.

Everything is drawn from the generator that is given, in the same order each time: the number of a case is its seed,
and gives the same file again. So a change here, even of the order in which something is drawn, makes other files of
all the numbers in results/trust.json.
"""

import io
import json
import random
import warnings
import zipfile
from contextlib import suppress
from copy import deepcopy

# The values at which lengths, offsets and counts go wrong: the ends of every integer type, and one beyond.
NUMBERS = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    64,
    127,
    128,
    255,
    256,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 32,
]
NUMBERS += [(1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -1, -8, 10**30]
# What readers trip over: nothing, null bytes, invalid UTF-8, half of a surrogate pair, JSON that is too deep or
# that Python alone reads, paths that lead elsewhere, numbers of too many digits, opcodes of a pickle.
WORDS = [
    b"",
    b"\x00",
    b"\xff" * 8,
    b"[" * 3000,
    b"{",
    b'"',
    b"NaN",
    b"-0",
    b"1e999",
    b"\\ud800",
    b"\xed\xa0\x80",
    b"PK",
]
WORDS += [
    b"../x",
    b"/etc/passwd",
    b"\xc3\x28",
    b"9" * 5000,
    b"null",
    b"true",
    b"R",
    b"\x85" * 200,
    b"hex",
    b"\x81",
]


def damage_bytes(rng: random.Random, data: bytes, others: list[bytes] | None = None) -> bytes:
    """Return bytes with one to four changes: flipped, set, cut, repeated, overwritten, taken from another file.

    Args:
        rng: draws everything.
        data: of a sound file.
        others: of the same kind, to take pieces from.
    """
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice((1, 1, 2, 4, 8, 16, 100)))
        how = rng.randrange(8)
        if how == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif how == 1 and changed:
            changed[at % len(changed)] = rng.randrange(256)
        elif how == 2:
            del changed[at:end]
        elif how == 3:
            changed[at:at] = changed[at:end] * rng.choice((1, 2, 50))
        elif how == 4:
            changed[at : at + rng.choice((0, 1, 8))] = rng.choice(WORDS)
        elif how == 5:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice(NUMBERS) % (1 << 8 * size)
            changed[at : at + size] = number.to_bytes(size, "little")
        elif how == 6 and rng.random() < 0.3:
            del changed[at:]
        elif others:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            changed[at:end] = other[start : start + rng.choice((1, 4, 16, 100))]
    return bytes(changed)


def damage_json(rng: random.Random, value: object) -> str:
    """Return JSON text of a value with one to three changes in its tree, sometimes with changes of its text too.

    Changes of the tree get past the parser, to the code that looks at the values.
    """
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _damage_tree(rng, value)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, None, 1)))
    if rng.random() < 0.3:
        at = rng.randrange(len(text) + 1)
        words = [word.decode("utf-8", "ignore") for word in WORDS]
        word = rng.choice([*words, " ", ",", ":", "0", "}", "]", "\t", ".0"])
        text = text[:at] + word + text[at + rng.randrange(3) :]
    if rng.random() < 0.1 and ":" in text:
        text = _repeat_first_entry(text)
    return text


def _repeat_first_entry(text: str) -> str:
    """Return JSON text with its first entry twice, as far as that can be told without parsing it."""
    colon = text.index(":")
    key_end = 0  # the closing quote of the first key
    if '"' in text[:colon]:
        key_end = text.rindex('"', 0, colon)
    entry_end = key_end
    if "," in text:
        entry_end = text.index(",") + 1
    return text[:1] + text[1:key_end] + text[key_end:entry_end] + text[1:]


def _damage_tree(rng: random.Random, value: object) -> object:
    """Return a value with one change, mostly far down: of a key, an item, or a leaf made another value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        changed = dict(value)
        key = rng.choice(list(value))
        how = rng.randrange(8)
        if how == 0:
            del changed[key]
        elif how == 1:
            content = changed[key]
            odd = "x"
            if rng.random() < 0.3:
                odd = "\ud800"
            changed[rng.choice(["", "__metadata__", "a", "dtype", odd, key * 2])] = content
        elif how == 2:
            changed = {key: changed.pop(key), **changed}
        else:
            changed[key] = _damage_tree(rng, changed[key])
        return changed
    if isinstance(value, list) and value and rng.random() < 0.85:
        changed = list(value)
        at = rng.randrange(len(value))
        how = rng.randrange(6)
        if how == 0:
            del changed[at]
        elif how == 1:
            changed.insert(at, changed[at])
        else:
            changed[at] = _damage_tree(rng, changed[at])
        return changed
    if isinstance(value, int) and rng.random() < 0.6:
        return value + rng.choice((-8, -4, -1, 1, 4, 8))
    words = [
        "",
        "F32",
        "F64",
        "BOOL",
        "F4",
        "F6_E2M3",
        "F8_E5M2",
        "U8",
        "x" * 300,
        "\x00",
        "é",
        "fc",
        "shift",
    ]
    return rng.choice(
        [None, True, 1.5, float("nan"), -0.0, [], {}, [[]], {"a": 1}, *NUMBERS, *words]
    )


def read_zip(data: bytes) -> list[tuple[str, bytes]]:
    """Return (name, content) of each record, in the order of the archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return [(record.filename, file.read(record)) for record in file.infolist()]


def write_zip(records: list[tuple[str, bytes]], rng: random.Random | None = None) -> bytes:
    """Return a zip of records; with a generator, some are compressed, or written as to a stream."""
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w") as archive:
        for name, data in records:
            compression = None
            if rng is not None and rng.random() < 0.02:
                compression = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
            archive.writestr(name, data, compression)
    return file.getvalue()


def damage_zip(rng: random.Random, data: bytes, damage_record=damage_bytes) -> bytes:
    """Return a zip with a record damaged, renamed, repeated, dropped or moved, or with damage to the zip itself.

    Args:
        rng: draws everything.
        data: of a sound zip.
        damage_record: damages the content of a record; the pickle's, more often than not, where there is one.
    """
    if rng.random() < 0.25:
        # The directory is at the end: damage there is read first.
        directory = max(0, data.rfind(b"PK\x05\x06") - 1000)
        start = 0
        if rng.random() < 0.7:
            start = directory
        return data[:start] + damage_bytes(rng, data[start:])
    records = read_zip(data)
    how = rng.randrange(10)
    at = rng.randrange(len(records))
    name, content = records[at]
    if how == 0:
        del records[at]
    elif how == 1:
        records.append(records[at])
    elif how == 2:
        rng.shuffle(records)
    elif how == 3:
        other = rng.choice(records)[0]
        without_folder = name.partition("/")[2] or "x"
        names = (name.upper(), name + "\x00", f"x/{name}", without_folder, other)
        records[at] = (rng.choice(names), content)
    else:
        pickles = [i for i, (title, _) in enumerate(records) if title.endswith(".pkl")]
        if pickles and rng.random() < 0.6:
            at = rng.choice(pickles)
        name, content = records[at]
        records[at] = (name, damage_record(rng, content))
    return write_zip(records, rng)


# A protobuf message as a tree: [number, wire type, value], where a value is a number, bytes, or a list of such fields.
# A field is a varint `number << 3 | wire type`, then its value: type 0 a varint, 1 and 5 eight and four bytes, 2 a
# length and so many bytes. Only the schema says whether these bytes are text or a message: both are tried.
# https://protobuf.dev/programming-guides/encoding/
FIXED_SIZES = {1: 8, 5: 4}  # bytes of a value, by wire type


def parse_message(data: bytes, depth: int = 0) -> list:
    """Return the fields of a message; bytes that are a message themselves become one.

    Field 9 stays bytes: it is `raw_data` of an ONNX tensor, whose numbers could be taken for a message by chance.

    Raises:
        ValueError, IndexError: if the bytes are no message.
    """
    fields = []
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number = tag >> 3
        kind = tag & 7
        value = None
        if kind == 0:
            value, at = _read_varint(data, at)
        elif kind in FIXED_SIZES:
            size = FIXED_SIZES[kind]
            value = data[at : at + size]
            at += size
        elif kind == 2:
            length, at = _read_varint(data, at)
            value = data[at : at + length]
            at += length
            if len(value) != length:
                raise ValueError("cut short")
            if depth < 8 and value and number != 9:
                with suppress(ValueError, IndexError):
                    value = parse_message(value, depth + 1)
        if value is None or at > len(data) or not number:
            raise ValueError("no message")
        fields.append([number, kind, value])
    return fields


def write_message(fields: list) -> bytes:
    """Return the bytes of a tree of fields, with the lengths that it has now."""
    out = b""
    for number, kind, value in fields:
        out += _varint(number << 3 | kind)
        if isinstance(value, int):
            out += _varint(value)
            continue
        data = value
        if isinstance(value, list):
            data = write_message(value)
        if kind == 2:
            out += _varint(len(data))
        out += data
    return out


def damage_message(rng: random.Random, data: bytes) -> bytes:
    """Return a message with one to three fields, at any depth, changed, repeated, dropped, moved or exchanged."""
    tree = parse_message(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        inner = [field[2] for field in _walk(tree) if isinstance(field[2], list)]
        messages = [message for message in (tree, *inner) if message]
        if not messages:
            break
        parent = rng.choice(messages)
        at = rng.randrange(len(parent))
        how = rng.randrange(9)
        field = parent[at]
        number, kind, value = field
        alike = []  # of the same wire type
        if how == 4:
            alike = [other for other in _walk(tree) if other[1] == kind]
        if how == 0:
            del parent[at]
        elif how == 1:
            parent.insert(rng.randrange(len(parent) + 1), deepcopy(field))
        elif how == 2:
            rng.shuffle(parent)
        elif how == 3:
            parent[at] = [rng.choice((number, *range(1, 21))), kind, value]
        elif alike:
            parent[at] = [number, kind, deepcopy(rng.choice(alike)[2])]
        elif isinstance(value, int):
            other_number = rng.choice((*NUMBERS, value + 1, value - 1))
            parent[at] = [number, kind, other_number % (1 << 64)]
        elif isinstance(value, bytes):
            content = damage_bytes(rng, value)
            if kind != 2:  # its size is fixed
                content = content[: len(value)].ljust(len(value), b"\x00")
            parent[at] = [number, kind, content]
    out = write_message(tree)
    if rng.random() < 0.1:
        return damage_bytes(rng, out)
    return out


def _walk(fields: list):
    """Yield every field of a tree, at any depth."""
    for field in fields:
        yield field
        if isinstance(field[2], list):
            yield from _walk(field[2])


def _varint(value: int) -> bytes:
    """Return a number as seven bits a byte, the lowest first; all but the last byte have the highest bit set."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place after it; at most ten bytes, as in protobuf."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("too long")
