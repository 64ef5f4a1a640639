"""How many values the columns of a .parquet file claim to hold, read from its footer without pyarrow.

pyarrow's own way to ask for them ends the process on some damaged footers, where reading the columns raises an error.
The footer is a struct in Thrift's compact protocol: row groups (4) -> columns (1) -> metadata (3) -> values (5).
"""

from pathlib import Path
from typing import Any

from ..core.errors import LevelheadError, reported_as

_BOOLEANS, _BYTE, _WHOLE, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12


def claimed_values(path: Path) -> int:
    """Return the sum over all columns and row groups."""
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(0, size - 8))
        length, mark = int.from_bytes(file.read(4), "little"), file.read(4)
        if mark != b"PAR1" or length > size - 12:
            raise LevelheadError("not a sound .parquet file (it has no footer)")
        file.seek(size - 8 - length)
        footer = _Reader(file.read(length))
    broken = "not a sound .parquet file (its footer is broken)"
    with reported_as(broken, LookupError, TypeError, RecursionError, ValueError):
        return sum(column[3][5] for group in footer.read(_STRUCT)[4] for column in group[1])


class _Reader:
    """Values one after another: a struct as {field: value}, a list as a list, texts and maps as None."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read(self, kind: int) -> Any:
        if kind in (*_BOOLEANS, _BYTE):
            return self._byte()
        if kind in _WHOLE:
            number = self._varint()
            return number >> 1 ^ -(number & 1)
        if kind in (_DOUBLE, _BINARY):
            length = 8 if kind == _DOUBLE else self._varint()
            self.at += length
            return None
        if kind in _LISTS:
            size, inner = divmod(self._byte(), 16)
            return [self.read(inner) for _ in range(self._varint() if size == 15 else size)]
        if kind == _MAP:
            pairs = self._varint()
            kinds = divmod(self._byte(), 16) if pairs else ()
            for _ in range(pairs):
                for one in kinds:
                    self.read(one)
            return None
        if kind != _STRUCT:
            raise ValueError(kind)
        found, field = {}, 0
        while head := self._byte():
            step, inner = divmod(head, 16)
            field = field + step if step else self.read(_WHOLE[0])
            found[field] = None if inner in _BOOLEANS else self.read(inner)
        return found

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number of more than 64 bits")
