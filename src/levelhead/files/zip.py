"""A zip file, changed in place: bytes of stored records with their checksums, and a record of our own at the end."""

import struct
import zlib
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from ..core.errors import LevelheadError
from .edits import Edit

LOCAL = struct.Struct("<4s5H3I2H")  # signature, version, flags, method, time, date, crc, 2 sizes, 2 lengths
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
LONGEST_RECORD = 100_000_000  # bytes of a record of our own: more than a note on a million classes has
DESCRIBED = 0x08  # flag: the checksum follows the data
UTF8 = 0x800


class Archive:
    """The records of a zip file, and the edits that change them; anything else raises BadZipFile."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, path.stat().st_size
        with ZipFile(path) as zip_file, path.open("rb") as file:
            self.records = zip_file.infolist()
            self.start = zip_file.start_dir
            if zip_file.comment:
                raise BadZipFile("it has a comment")
            self.data_at = {one.filename: _data_at(file, one) for one in self.records}
            file.seek(self.start)
            self.tail = file.read()

    @property
    def names(self) -> list[str]:
        return [one.filename for one in self.records]

    def record_at(self, offset: int) -> ZipInfo | None:
        """Return the stored record whose data this byte of the file belongs to."""
        for one in self.records:
            first = self.data_at[one.filename]
            if first <= offset < first + max(1, one.file_size) and one.compress_type == ZIP_STORED:
                return one
        return None

    def read(self, name: str) -> bytes | None:
        """Read a record of our own, by its name without the folder that torch puts everything in; None if not there."""
        one = next((one for one in self.records if one.filename.partition("/")[2] == name), None)
        if one is None:
            return None
        if one.compress_type != ZIP_STORED or one.file_size > LONGEST_RECORD:  # a few bytes may stand for gigabytes
            reason = f"its record {name} is compressed or too long, so it is not ours"
            raise LevelheadError(f"{self.path}: {reason}; save the model again without it")
        with self.path.open("rb") as file:
            file.seek(self.data_at[one.filename])
            return file.read(one.file_size)

    def patched(self, edits: list[Edit], record: tuple[str, bytes | None] | None) -> list[Edit]:
        """Add to edits of records' data the checksums and our own record (None as its data takes it out)."""
        extra, sums = [], {}
        for one in {id(one): one for edit in edits if (one := self.record_at(edit.offset))}.values():
            sums[one.header_offset] = crc = self._crc(one, edits)
            behind = self.data_at[one.filename] + one.file_size + 4
            place = behind if one.flag_bits & DESCRIBED else one.header_offset + 14
            extra.append(Edit(place, 4, struct.pack("<I", crc)))
        if not sums and record is None:
            return edits
        return [*edits, *extra, Edit(self.start, self.size - self.start, self._new_tail(sums, record))]

    def _crc(self, one: ZipInfo, edits: list[Edit]) -> int:
        """Return the checksum of a record once edited."""
        first = self.data_at[one.filename]
        with self.path.open("rb") as file:
            file.seek(first)
            data = bytearray(file.read(one.file_size))
        for edit in edits:
            if first <= edit.offset < first + one.file_size:
                data[edit.offset - first : edit.offset - first + edit.length] = edit.data
        return zlib.crc32(data)

    def _new_tail(self, sums: dict[int, int], record: tuple[str, bytes | None] | None) -> bytes:
        """Return the list of records that ends a zip, with new checksums, and our record before it."""
        entries, at, ours = [], 0, None if record is None else record[0]
        for one in self.records:
            fields = list(CENTRAL.unpack_from(self.tail, at))
            size = CENTRAL.size + sum(fields[10:13])
            fields[7] = sums.get(one.header_offset, fields[7])
            if one.filename.partition("/")[2] != ours:
                entries.append(CENTRAL.pack(*fields) + self.tail[at + CENTRAL.size : at + size])
            at += size
        if record is None:
            return b"".join(entries) + self.tail[at:]
        body = b""
        if record[1] is not None:
            folder = self.records[0].filename.partition("/")[0]
            body, entry = _stored(f"{folder}/{record[0]}".encode(), record[1], self.start)
            entries.append(entry)
        listed, start = b"".join(entries), self.start + len(body)
        ends = END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, len(entries), len(entries), len(listed), start)
        ends += LOCATOR.pack(b"PK\x06\x07", 0, start + len(listed), 1)
        small = min(len(entries), 0xFFFF), min(len(listed), 0xFFFFFFFF), min(start, 0xFFFFFFFF)
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
    crc, size, date, wide = zlib.crc32(data), len(data), 0x21, offset >= 0xFFFFFFFF
    local = LOCAL.pack(b"PK\x03\x04", 20, UTF8, 0, 0, date, crc, size, size, len(name), 0) + name + data
    extra = struct.pack("<2HQ", 1, 8, offset) if wide else b""
    lengths, place = (size, size, len(name), len(extra), 0), 0xFFFFFFFF if wide else offset
    entry = CENTRAL.pack(b"PK\x01\x02", 20, 20, UTF8, 0, 0, date, crc, *lengths, 0, 0, 0, place)
    return local, entry + name + extra
