"""Tables read from files, whole or so many rows at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from .table import Table
from .table_parquet import parquet_parts, read_parquet
from .table_text import read_text_table, text_table_parts


def read_table(path: Path, *, titles: Sequence[str | None] = ()) -> Table:
    """Read a table; a single column of text may be titled as in `titles`."""
    if path.suffix.lower() == ".parquet":
        return read_parquet(path)
    return read_text_table(path, titles)


def table_parts(path: Path, rows: int) -> Iterator[Table]:
    """Read a table so many rows at a time.

    Titles and an index are looked for in the first of them.
    """
    if path.suffix.lower() == ".parquet":
        return parquet_parts(path, rows)
    return text_table_parts(path, rows)
