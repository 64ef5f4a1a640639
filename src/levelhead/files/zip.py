"""A zip file, changed in place: bytes of stored records with their checksums, and a note as a record at the end."""

import json
import lzma
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from ..heads.notes import Note, note_from_json
from ..support.errors import LevelheadError, visible
from ..support.regular_file import bytes_at
from .edits import BLOCK_BYTES, Edit, edited_blocks

RECORD = "levelhead.json"  # the note of an adjustment
# Signature, version, flags, method, time, date, crc, 2 sizes, 2 lengths.
LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
LONGEST_RECORD = (
    100_000_000  # bytes of a record of our own: more than a note on a million classes has
)
LONGEST_UNPACKED = (
    10_000_000  # bytes of a compressed record of torch, which itself stores records as they are
)
MOST_COMPRESSED = 100  # times its size that a long record may unpack to: numbers shrink far less
UNREADABLE = (ValueError, RuntimeError, EOFError, zlib.error, lzma.LZMAError, OSError)
# Flags: encrypted, a patch of other data, strongly encrypted.
NOT_AS_IT_IS = 0x01 | 0x20 | 0x40
DESCRIBED = 0x08  # flag: the checksum follows the data
UTF8 = 0x800
FOLDER = 0x10  # attribute of MS-DOS


class Archive:
    """The records of a zip file, and the edits that change them; what is not such a file raises BadZipFile."""

    def __init__(self, path: Path, *, in_folder: bool = True) -> None:
        self.path, self.size = path, path.stat().st_size
        self.sums_checked = False
        try:
            with ZipFile(path) as zip_file, path.open("rb") as file:
                self.records = zip_file.infolist()
                self.start = zip_file.start_dir
                if zip_file.comment:
                    raise BadZipFile("it has a comment")
                if not all(0 <= one.header_offset <= self.size for one in self.records):
                    raise BadZipFile("a record lies outside the file")
                self.data_at = {one.filename: _data_at(file, one) for one in self.records}
                file.seek(self.start)
                self.tail = file.read()
            self.by_name = {one.filename: one for one in self.records}
            self._check(in_folder)
        except (ValueError, NotImplementedError, OverflowError, struct.error) as error:
            raise BadZipFile(str(error)) from None
        if in_folder:
            self.prefix = f"{self.records[0].filename.partition('/')[0]}/"
        else:
            self.prefix = ""

    def _check(self, in_folder: bool) -> None:
        """Check the names of records, that each ends before the next begins, and that offsets count from byte 0."""
        if not self.records or (
            in_folder and not all("/" in n.strip("/") or n.endswith("/") for n in self.by_name)
        ):
            raise BadZipFile("its records are not in a folder")
        seen: set[str] = set()
        for one in self.records:
            if one.filename.lower() in seen:
                raise BadZipFile(f"two records are called {one.filename}")
            if one.external_attr & FOLDER and one.file_size:  # torch would not read it
                raise BadZipFile(f"its record {one.filename} is marked as a folder")
            if one.filename != one.orig_filename:
                raise BadZipFile(f"a record is called {one.orig_filename!r}")
            seen.add(one.filename.lower())
        *_, listed, listed_at, _ = END.unpack(self.tail[-END.size :])
        if listed_at == 0xFFFFFFFF:
            *_, listed, listed_at = END64.unpack(
                self.tail[-END.size - LOCATOR.size - END64.size : -END.size - LOCATOR.size]
            )
        if sum(size for *_, size in self._entries()) != listed:
            raise BadZipFile("its list of records is not as long as it says")
        # Checksum and sizes.
        behind = {one.filename: 12 if one.flag_bits & DESCRIBED else 0 for one in self.records}
        ends = {
            name: self.data_at[name] + one.compress_size + behind[name]
            for name, one in self.by_name.items()
        }
        ranges = sorted((one.header_offset, ends[one.filename]) for one in self.records)
        if ranges[0][0] != 0 or listed_at != self.start:
            raise BadZipFile("something precedes its first record")
        if any(end > start for (_, end), (start, _) in pairwise([*ranges, (self.start, 0)])):
            raise BadZipFile("two records share bytes")

    def find(self, name: str) -> ZipInfo | None:
        """Return a record by its name without the folder that torch puts everything in, or None."""
        return self.by_name.get(f"{self.prefix}{name}")

    def is_plain(self, one: ZipInfo) -> bool:
        """Return whether a record's data lie in the file as they are."""
        return (
            one.compress_type == ZIP_STORED
            and not one.flag_bits & NOT_AS_IT_IS
            and one.file_size == one.compress_size
        )

    def record_at(self, offset: int) -> ZipInfo | None:
        """Return the stored record whose data this byte of the file belongs to."""
        plain = ((one, self.data_at[one.filename]) for one in self.records if self.is_plain(one))
        return next(
            (one for one, first in plain if first <= offset < first + max(1, one.file_size)), None
        )

    @property
    def note(self) -> dict[str, Any] | None:
        """The note in the archive's record of ours, or None."""
        if (one := self.find(RECORD)) is None:
            return None
        # A few bytes may stand for gigabytes.
        if not self.is_plain(one) or one.file_size > LONGEST_RECORD:
            reason = f"its record {RECORD} is compressed or too long, so it is not ours"
            raise LevelheadError(f"{self.path}: {reason}; save the model again without it")
        return note_from_json(
            bytes_at(self.path, self.data_at[one.filename], one.file_size), self.path
        )

    def unpack(self, name: str, longest: int = LONGEST_UNPACKED) -> bytes:
        """Read a record that another program may have compressed, unless it unpacks to more bytes than `longest`."""
        if (one := self.find(name)) is None:
            raise BadZipFile(f"no record {name}")
        if not self.is_plain(one) and one.file_size > longest:
            raise LevelheadError(
                f"{self.path}: its record {name} is compressed and too long ({one.file_size} bytes)"
            )
        try:
            with ZipFile(self.path) as zip_file, zip_file.open(one) as record:
                return record.read(one.file_size + 1)  # more bytes than it states are not read
        except UNREADABLE as error:
            raise BadZipFile(f"its record {name} cannot be read: {error}") from None

    def complete(
        self, source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
    ) -> list[Edit]:
        """Return the edits with the checksums they need, and the note as a record of the zip; an empty note is none."""
        if edits or note is not None:
            self._check_sums()
        extra, sums = [], {}
        for one in {
            id(one): one for edit in edits if (one := self.record_at(edit.offset))
        }.values():
            start = self.data_at[one.filename]
            end = start + one.file_size
            place = one.header_offset + 14
            inside = sorted(
                (edit for edit in edits if start <= edit.offset < end), key=lambda edit: edit.offset
            )
            sums[one.header_offset] = crc = self._crc(one, inside)
            # After the data, where most programs put a signature before it.
            if one.flag_bits & DESCRIBED:
                place = end + (4 if bytes_at(self.path, end, 4) == b"PK\x07\x08" else 0)
            extra.append(Edit(place, 4, struct.pack("<I", crc)))
        if note is None:
            if not sums:
                return edits
            tail = self._listed(sums) + self._end_of_list
            at = self.start
        else:
            tail = self._new_tail(sums, note)
            at = self.tail_at
        return [*edits, *extra, Edit(at, self.size - at, tail)]

    def _check_sums(self) -> None:
        """Raise if a record does not fit its checksum: a copy would make a damaged file look sound."""
        if self.sums_checked:
            return
        for one in self.records:
            if self.is_plain(one):
                fits = self._crc(one) == one.CRC and self._is_called_the_same(one)
            else:
                fits = self._unpacks(one)
            if not fits:
                damaged = f"its record {visible(one.filename)} does not fit its checksum"
                raise LevelheadError(f"{self.path}: damaged: {damaged}; copy or download it again")
        self.sums_checked = True

    def _crc(self, one: ZipInfo, edits: Sequence[Edit] = ()) -> int:
        """Return the checksum of a stored record with edits, which are in order."""
        start = self.data_at[one.filename]
        crc = 0
        for block in edited_blocks(self.path, start, start + one.file_size, edits):
            crc = zlib.crc32(block, crc)
        return crc

    def _is_called_the_same(self, one: ZipInfo) -> bool:
        """Return whether a record has the name before its data that the list gives it."""
        encoding = "utf-8" if one.flag_bits & UTF8 else "cp437"
        name = one.orig_filename.encode(encoding, "surrogateescape")
        return bytes_at(self.path, one.header_offset + LOCAL.size, len(name)) == name

    def _unpacks(self, one: ZipInfo) -> bool:
        """Return whether a compressed record can be unpacked, and fits its checksum then."""
        if one.file_size > max(LONGEST_UNPACKED, MOST_COMPRESSED * one.compress_size):
            size = f"{one.file_size} bytes"
            reason = f"its record {visible(one.filename)} is compressed and too long ({size})"
            raise LevelheadError(f"{self.path}: {reason}; save the model again")
        try:
            with ZipFile(self.path) as zip_file, zip_file.open(one) as record:
                while record.read(BLOCK_BYTES):
                    pass
        except (BadZipFile, *UNREADABLE):
            return False
        return True

    @property
    def tail_at(self) -> int:
        """Where the file changes if it gets a note: from here to its end."""
        return self.start

    def encode_note(self, note: Note, at: int) -> tuple[bytes, bytes]:
        """Return a note as a record that begins at this byte, and its entry in the list."""
        if not note:
            return b"", b""
        return _stored(f"{self.prefix}{RECORD}".encode(), json.dumps(note).encode(), at)

    def _listed(self, sums: Mapping[int, int], without: str | None = None) -> bytes:
        """Return the entries of the list that ends a zip, with new checksums, without a record of ours."""
        entries = []
        for one, at, size in self._entries():
            if one.filename.removeprefix(self.prefix) != without:
                fields = list(CENTRAL.unpack_from(self.tail, at))
                fields[7] = sums.get(one.header_offset, fields[7])
                entries.append(CENTRAL.pack(*fields) + self.tail[at + CENTRAL.size : at + size])
        return b"".join(entries)

    def _entries(self) -> Iterator[tuple[ZipInfo, int, int]]:
        """Yield each record with where its entry is in the tail, and how long."""
        at = 0
        for one in self.records:
            size = CENTRAL.size + sum(CENTRAL.unpack_from(self.tail, at)[10:13])
            yield one, at, size
            at += size

    @property
    def _end_of_list(self) -> bytes:
        return self.tail[sum(size for *_, size in self._entries()) :]

    def _new_tail(self, sums: Mapping[int, int], note: Note) -> bytes:
        """Return a note and the list of records behind it, with new checksums."""
        body, entry = self.encode_note(note, self.tail_at)
        listed = self._listed(sums, without=RECORD) + entry
        start = self.tail_at + len(body)
        names = [one.filename.removeprefix(self.prefix) for one in self.records]
        count = len(names) - names.count(RECORD) + bool(entry)
        ends = END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(listed), start)
        ends += LOCATOR.pack(b"PK\x06\x07", 0, start + len(listed), 1)
        small = min(count, 0xFFFF), min(len(listed), 0xFFFFFFFF), min(start, 0xFFFFFFFF)
        return body + listed + ends + END.pack(b"PK\x05\x06", 0, 0, small[0], *small, 0)


def _data_at(file: BinaryIO, one: ZipInfo) -> int:
    """Return the offset of a record's data, after its header."""
    file.seek(one.header_offset)
    header = file.read(LOCAL.size)
    if len(header) < LOCAL.size or header[:4] != b"PK\x03\x04":
        raise BadZipFile(f"no record at byte {one.header_offset}")
    *_, name, extra = LOCAL.unpack(header)
    return one.header_offset + LOCAL.size + name + extra


def _stored(name: bytes, data: bytes, offset: int) -> tuple[bytes, bytes]:
    """Return a record and its entry in the list, dated 1980-01-01, the first day that zip knows."""
    crc = zlib.crc32(data)
    size = len(data)
    date = 0x21
    wide = offset >= 0xFFFFFFFF
    local = (
        LOCAL.pack(b"PK\x03\x04", 20, UTF8, 0, 0, date, crc, size, size, len(name), 0) + name + data
    )
    extra = struct.pack("<2HQ", 1, 8, offset) if wide else b""
    lengths = (size, size, len(name), len(extra), 0)
    place = 0xFFFFFFFF if wide else offset
    entry = CENTRAL.pack(b"PK\x01\x02", 20, 20, UTF8, 0, 0, date, crc, *lengths, 0, 0, 0, place)
    return local, entry + name + extra
