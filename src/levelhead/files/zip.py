"""A zip file, changed in place: stored records with their checksums, and a note as a record.

    record    header (LOCAL), name, data; then perhaps its checksum and sizes (DESCRIBED)
    ...
    list      an entry (CENTRAL) and a name for each record: checksum, sizes, offset
    end       END64 and LOCATOR where numbers are large, then END: where the list is

State dicts of torch, Keras models and weights of MLX are zips whose records are stored as they are,
so that a head is a byte range of the file. `Archive` checks the structure when it is opened.
`Archive.complete` adds to the edits of such ranges what must change with them: the checksum in
front of (or behind) the data and in the list, and the note, as a record that goes where the list
was, with the list behind it. No record is moved, so that all offsets stay.

Programs differ in what they make of a zip that is not quite sound: which of two records of one name
they take, where they look for the list. A file that two of them may read differently is refused.

Reference: PKWARE, .ZIP File Format Specification (APPNOTE.TXT).
"""

import json
import lzma
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from ..heads.notes import Note, note_from_json
from ..support.errors import LevelheadError, visible
from ..support.regular_file import bytes_at
from .edits import BLOCK_BYTES, Edit, edited_blocks

RECORD = "levelhead.json"  # the note of an adjustment

# The header of a record: signature, version, flags, method, time, date, checksum, 2 sizes, 2
# lengths.
LOCAL = struct.Struct("<4s5H3I2H")
CHECKSUM_AT = 14  # bytes from the start of a header to the checksum in it
# Its entry in the list: the same with another version, then the length of a comment, disk,
# attributes and offset.
CENTRAL = struct.Struct("<4s6H3I5H2I")
# The end: signature, 2 disks, records on this disk and in all, length and offset of the list,
# length of a comment.
END = struct.Struct("<4s4H2IH")
# The same for numbers too large for END, and what says where that is. They stand before END, in
# this order.
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
IN_END64 = 0xFFFFFFFF  # a number of END that stands in END64 instead

LONGEST_RECORD = 100_000_000  # bytes of a note: more than one on a million classes has
LONGEST_UNPACKED = 10_000_000  # bytes of a compressed record; torch stores records as they are
MOST_COMPRESSED = 100  # times its size that a long record may unpack to: numbers shrink far less
UNREADABLE = (ValueError, RuntimeError, EOFError, zlib.error, lzma.LZMAError, OSError)

# Flags of a record.
NOT_AS_IT_IS = 0x01 | 0x20 | 0x40 | 0x2000  # encrypted, a patch of other data, strongly, its header
DESCRIBED = 0x08  # the checksum follows the data
UTF8 = 0x800  # its name is in UTF-8
FOLDER = 0x10  # attribute of MS-DOS


class _Entry(NamedTuple):
    """An entry of the list of records."""

    record: ZipInfo
    at: int  # where it begins in the tail
    size: int  # its length in bytes


class Archive:
    """The records of a zip file, and the edits that change them; no such file raises BadZipFile.

    `zipfile` reads the list. What is checked besides, and all that is written, is here.

    Args:
        path: the file.
        in_folder: whether all records are in one folder, as torch writes them; `find` then takes
            names without it.

    Its `records` are in the order of the list, which begins at `start`; `data_at` has the offset of
    each record's data by its name, `tail` the bytes of list and end, `prefix` the folder with its
    slash.
    """

    def __init__(self, path: Path, *, in_folder: bool = True) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.sums_checked = False
        try:
            # zipfile reads the list; where the data of each record begin, only the record itself
            # says.
            with ZipFile(path) as zip_file, path.open("rb") as file:
                self.records = zip_file.infolist()
                self.start = zip_file.start_dir  # of the list of records
                if zip_file.comment:
                    raise BadZipFile("it has a comment")
                if not all(0 <= record.header_offset <= self.size for record in self.records):
                    raise BadZipFile("a record lies outside the file")
                self.data_at = {record.filename: _data_at(file, record) for record in self.records}
                file.seek(self.start)
                self.tail = file.read()  # the list and the end
            # Then what zipfile does not mind, and others do.
            self.by_name = {record.filename: record for record in self.records}
            self._check_names(in_folder)
            self._check_list()
            self._check_end()
            self._check_ranges()
        except (ValueError, NotImplementedError, OverflowError, struct.error) as error:
            raise BadZipFile(str(error)) from None
        self.prefix = ""
        if in_folder:
            self.prefix = f"{self.records[0].filename.partition('/')[0]}/"

    def _check_names(self, in_folder: bool) -> None:
        """Check that each record has a name of its own, which every program reads as the same.

        Raises:
            BadZipFile: there is no record, or a name is there twice, cut, or of a folder with data
                in it.
        """
        if not self.records or (
            in_folder
            and not all("/" in name.strip("/") or name.endswith("/") for name in self.by_name)
        ):
            raise BadZipFile("its records are not in a folder")
        seen: set[str] = set()
        for record in self.records:
            # Some programs, torch among them, do not tell A from a.
            if record.filename.lower() in seen:
                raise BadZipFile(f"two records are called {visible(record.filename)}")
            if record.external_attr & FOLDER and record.file_size:  # torch would not read it
                raise BadZipFile(f"its record {visible(record.filename)} is marked as a folder")
            if record.filename != record.orig_filename:  # cut at a zero byte
                raise BadZipFile(f"a record is called {record.orig_filename!r}")
            seen.add(record.filename.lower())

    def _check_list(self) -> None:
        """Check what the entries of the list say, which Python passes over and torch goes by.

        Raises:
            BadZipFile: a record is encrypted, on another disk, or stored with two sizes.
        """
        for record in self.records:
            if record.flag_bits & NOT_AS_IT_IS:
                raise BadZipFile(f"its record {visible(record.filename)} is encrypted")
            if record.compress_type == ZIP_STORED and record.file_size != record.compress_size:
                raise BadZipFile(
                    f"its record {visible(record.filename)} is stored, and has two sizes"
                )
            if record.volume:
                raise BadZipFile(f"its record {visible(record.filename)} is on another disk")

    def _check_end(self) -> None:
        """Check that the end says of the list what is so: programs differ in what of it they go by.

        Raises:
            BadZipFile: a number of it is another, or something else stands there.
        """
        behind = self._end_of_list
        count = len(self.records)
        exact = (0, 0, count, count, len(self.tail) - len(behind), self.start)
        if len(behind) < END.size or behind[-END.size :][:4] != b"PK\x05\x06":
            raise BadZipFile("its list of records is not as long as it says")
        _, *numbers, comment = END.unpack(behind[-END.size :])
        fits = (*numbers,) == exact
        if len(behind) > END.size:
            # Numbers too large for END are as large as can be, and in END64.
            largest = (0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, IN_END64, IN_END64)
            allowed = zip(exact, largest, strict=True)
            fits = all(number in pair for number, pair in zip(numbers, allowed, strict=True))
            fits = fits and self._fits_end64(behind[: -END.size], exact)
        if comment or not fits:
            raise BadZipFile("its end does not fit its list of records")

    def _fits_end64(self, ends: bytes, exact: tuple[int, ...]) -> bool:
        """Return whether END64 and LOCATOR, and nothing else, say what is so.

        Args:
            ends: the bytes between the list and END.
            exact: two disks, two numbers of records, length and offset of the list.
        """
        if len(ends) != END64.size + LOCATOR.size:
            return False
        signature, size, _, _, *numbers = END64.unpack(ends[: END64.size])
        after_list = exact[-1] + exact[-2]
        return (
            (signature, size) == (b"PK\x06\x06", END64.size - 12)
            and (*numbers,) == exact
            and LOCATOR.unpack(ends[END64.size :]) == (b"PK\x06\x07", 0, after_list, 1)
        )

    def _check_ranges(self) -> None:
        """Check that records share no bytes, and that nothing precedes them.

        An edit of a byte that two records share would change both. And what precedes the first
        record may be a program.

        Raises:
            BadZipFile: one of these is so.
        """
        ranges = []
        for record in self.records:
            end = self.data_at[record.filename] + record.compress_size
            if record.flag_bits & DESCRIBED:
                end += 12  # the checksum and two sizes
            ranges.append((record.header_offset, end))
        ranges.sort()
        if ranges[0][0] != 0:
            raise BadZipFile("something precedes its first record")
        if any(end > start for (_, end), (start, _) in pairwise([*ranges, (self.start, 0)])):
            raise BadZipFile("two records share bytes")

    def find(self, name: str) -> ZipInfo | None:
        """Return a record by its name without the folder that torch puts everything in, or None."""
        return self.by_name.get(f"{self.prefix}{name}")

    def is_plain(self, record: ZipInfo) -> bool:
        """Return whether a record's data lie in the file as they are, and not compressed."""
        return record.compress_type == ZIP_STORED

    def record_at(self, offset: int) -> ZipInfo | None:
        """Return the stored record whose data this byte of the file belongs to; None if none does.

        A record without data counts as one byte long, so that an empty tensor has a record, too.
        """
        for record in self.records:
            first = self.data_at[record.filename]
            if self.is_plain(record) and first <= offset < first + max(1, record.file_size):
                return record
        return None

    @property
    def note(self) -> dict[str, Any] | None:
        """The note in the archive's record of ours, or None.

        Raises:
            LevelheadError: the record is not as we write it, or holds something else.
        """
        record = self.find(RECORD)
        if record is None:
            return None
        # A few bytes may stand for gigabytes.
        if not self.is_plain(record) or record.file_size > LONGEST_RECORD:
            reason = f"its record {RECORD} is compressed or too long, so it is not ours"
            raise LevelheadError(f"{self.path}: {reason}; save the model again without it")
        data = bytes_at(self.path, self.data_at[record.filename], record.file_size)
        return note_from_json(data, self.path)

    def unpack(self, name: str, longest: int = LONGEST_UNPACKED) -> bytes:
        """Read a record that another program may have compressed.

        Args:
            name: without the folder.
            longest: bytes that a compressed one may unpack to: some hundred can stand for
                gigabytes. A stored one has no more bytes than the file.

        Raises:
            BadZipFile: there is no such record, or it is damaged.
            LevelheadError: it is too long.
        """
        record = self.find(name)
        if record is None:
            raise BadZipFile(f"no record {name}")
        if not self.is_plain(record) and record.file_size > longest:
            size = f"{record.file_size} bytes"
            raise LevelheadError(
                f"{self.path}: its record {name} is compressed and too long ({size})"
            )
        try:
            with ZipFile(self.path) as zip_file, zip_file.open(record) as file:
                return file.read(record.file_size + 1)  # more bytes than it states are not read
        except UNREADABLE as error:
            raise BadZipFile(f"its record {name} cannot be read: {error}") from None

    def complete(
        self, source: Path, edits: list[Edit], note: Note | None, names: Mapping[Path, str]
    ) -> list[Edit]:
        """Return the edits with the checksums they need, and the note as a record of the zip.

        Args:
            source, edits: the file, and changes of data in its stored records.
            note: what to record; an empty one takes an earlier record out, None leaves it.
            names: of files as they will be; a zip refers to no other.

        Raises:
            LevelheadError: a record does not fit its checksum now.
        """
        # Before anything is written anew: is the file sound?
        if edits or note is not None:
            self._check_sums()
        # Then the checksum of each record that changes: it stands before or behind the data, and in
        # the list.
        checksum_edits = []
        sums = {}  # by the offset of the record
        for record in self._edited(edits):
            start = self.data_at[record.filename]
            end = start + record.file_size
            inside = [edit for edit in edits if start <= edit.offset < end]
            crc = self._crc(record, sorted(inside, key=lambda edit: edit.offset))
            sums[record.header_offset] = crc
            place = record.header_offset + CHECKSUM_AT
            if record.flag_bits & DESCRIBED:
                # After the data, where most programs put a signature before it.
                place = end
                if bytes_at(self.path, end, 4) == b"PK\x07\x08":
                    place += 4
            checksum_edits.append(Edit(place, 4, struct.pack("<I", crc)))
        if note is not None:
            # With a note, or without one that was there, the list moves; else only checksums in it
            # change.
            tail = self._new_tail(sums, note)
            at = self.tail_at
        elif sums:
            tail = self._listed(sums) + self._end_of_list
            at = self.start
        else:
            return edits
        return [*edits, *checksum_edits, Edit(at, self.size - at, tail)]

    def _edited(self, edits: Sequence[Edit]) -> list[ZipInfo]:
        """Return the stored records in which there are edits, each once."""
        records = []
        for edit in edits:
            record = self.record_at(edit.offset)
            if record is not None and record not in records:
                records.append(record)
        return records

    def _check_sums(self) -> None:
        """Raise if a record does not fit its checksum: a new one would make damage look sound.

        All records are looked at, as the whole file is copied. Once: `complete` is called twice for
        each file.
        """
        if self.sums_checked:
            return
        for record in self.records:
            if self.is_plain(record):
                fits = self._crc(record) == record.CRC and self._is_called_the_same(record)
            else:
                fits = self._unpacks(record)
            if not fits:
                damaged = f"its record {visible(record.filename)} does not fit its checksum"
                raise LevelheadError(f"{self.path}: damaged: {damaged}; copy or download it again")
        self.sums_checked = True

    def _crc(self, record: ZipInfo, edits: Sequence[Edit] = ()) -> int:
        """Return the checksum of a stored record with edits, which are in order."""
        start = self.data_at[record.filename]
        crc = 0
        for block in edited_blocks(self.path, start, start + record.file_size, edits):
            crc = zlib.crc32(block, crc)
        return crc

    def _is_called_the_same(self, record: ZipInfo) -> bool:
        """Return whether a record has the name before its data that the list gives it.

        Some programs go by the one, some by the other.
        """
        encoding = "utf-8" if record.flag_bits & UTF8 else "cp437"
        name = record.orig_filename.encode(encoding, "surrogateescape")
        return bytes_at(self.path, record.header_offset + LOCAL.size, len(name)) == name

    def _unpacks(self, record: ZipInfo) -> bool:
        """Return whether a compressed record can be unpacked, and fits its checksum then.

        It is read to its end and dropped, block by block; `zipfile` compares the checksum there.

        Raises:
            LevelheadError: it claims to unpack to far more than such data do.
        """
        if record.file_size > max(LONGEST_UNPACKED, MOST_COMPRESSED * record.compress_size):
            size = f"{record.file_size} bytes"
            reason = f"its record {visible(record.filename)} is compressed and too long ({size})"
            raise LevelheadError(f"{self.path}: {reason}; save the model again")
        try:
            with ZipFile(self.path) as zip_file, zip_file.open(record) as file:
                while file.read(BLOCK_BYTES):
                    pass
        except (BadZipFile, *UNREADABLE):
            return False
        return True

    @property
    def tail_at(self) -> int:
        """Where the file changes if it gets a note: from here to its end."""
        return self.start

    def encode_note(self, note: Note, at: int) -> tuple[bytes, bytes]:
        """Return a note as a record that begins at this byte, and its entry in the list.

        Both are empty if the note is.
        """
        if not note:
            return b"", b""
        return _stored(f"{self.prefix}{RECORD}".encode(), json.dumps(note).encode(), at)

    def _listed(self, sums: Mapping[int, int], without: str | None = None) -> bytes:
        """Return the entries of the list, as they are but for new checksums.

        Args:
            sums: new checksums, by the offset of their record.
            without: the name of a record that is left out.
        """
        entries = []
        for record, at, size in self._entries():
            if record.filename.removeprefix(self.prefix) == without:
                continue
            fields = list(CENTRAL.unpack_from(self.tail, at))
            fields[7] = sums.get(record.header_offset, fields[7])  # the checksum
            entries.append(CENTRAL.pack(*fields) + self.tail[at + CENTRAL.size : at + size])
        return b"".join(entries)

    def _entries(self) -> Iterator[_Entry]:
        """Yield the entries of the list: zipfile has what they say, but not where they are.

        They follow one another from the start of the tail on, in the order in which zipfile has
        them.
        """
        at = 0
        for record in self.records:
            # A name, other fields and a comment follow, whose lengths are in the entry.
            size = CENTRAL.size + sum(CENTRAL.unpack_from(self.tail, at)[10:13])
            yield _Entry(record, at, size)
            at += size

    @property
    def _end_of_list(self) -> bytes:
        return self.tail[sum(entry.size for entry in self._entries()) :]

    def _new_tail(self, sums: Mapping[int, int], note: Note) -> bytes:
        """Return a note, the list of records behind it, with new checksums, and the end.

        END64 is always there, as in files of torch: one layout for files of any size.

        Args:
            sums: new checksums, by the offset of their record.
            note: what to record, in place of an earlier one.
        """
        body, entry = self.encode_note(note, self.tail_at)
        listed = self._listed(sums, without=RECORD) + entry
        start = self.tail_at + len(body)
        names = [record.filename.removeprefix(self.prefix) for record in self.records]
        count = len(names) - names.count(RECORD) + bool(entry)
        ends = END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(listed), start)
        ends += LOCATOR.pack(b"PK\x06\x07", 0, start + len(listed), 1)
        # Numbers that do not fit are as large as can be, which means: see END64.
        count = min(count, 0xFFFF)
        length = min(len(listed), IN_END64)
        start = min(start, IN_END64)
        return body + listed + ends + END.pack(b"PK\x05\x06", 0, 0, count, count, length, start, 0)


def _data_at(file: BinaryIO, record: ZipInfo) -> int:
    """Return the offset of a record's data, after its header, its name and other fields.

    The lengths of these are in the header before the data, and may differ from those in the list:
    torch pads the data to 64 bytes by a field there.
    """
    file.seek(record.header_offset)
    header = file.read(LOCAL.size)
    if len(header) < LOCAL.size or header[:4] != b"PK\x03\x04":
        raise BadZipFile(f"no record at byte {record.header_offset}")
    *_, name_length, extra_length = LOCAL.unpack(header)
    return record.header_offset + LOCAL.size + name_length + extra_length


def _stored(name: bytes, data: bytes, offset: int) -> tuple[bytes, bytes]:
    """Return a record that is stored as it is, and its entry in the list.

    Args:
        name, data: of the record.
        offset: where in the file it begins, which the entry says.
    """
    crc = zlib.crc32(data)
    size = len(data)
    date = 0x21  # 1980-01-01, the first day that zip knows: the same note gives the same bytes
    header = LOCAL.pack(b"PK\x03\x04", 20, UTF8, 0, 0, date, crc, size, size, len(name), 0)
    # An offset of more than 32 bits stands in a field of its own, behind the name.
    extra = b""
    place = offset
    if offset >= IN_END64:
        extra = struct.pack("<2HQ", 1, 8, offset)
        place = IN_END64
    lengths = (size, size, len(name), len(extra), 0)
    entry = CENTRAL.pack(b"PK\x01\x02", 20, 20, UTF8, 0, 0, date, crc, *lengths, 0, 0, 0, place)
    return header + name + data, entry + name + extra
