"""Tables read from files, whole or so many rows at a time.

Which reader it is goes by the suffix: .parquet, or else text. Both give a `Table`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from .table import Table
from .table_parquet import parquet_parts, read_parquet
from .table_text import read_text_table, text_table_parts


def read_table(path: Path, *, titles: Sequence[str | None] = ()) -> Table:
    """Read a table; a single column of text may be titled as in `titles`.

    Args:
        path: of a suffix in `TABLE_SUFFIXES`.
        titles: words by which a first row of text is known to be titles, such as "labels", which
            could also be the name of a class; None among them is passed over. A .parquet file says
            itself.
    """
    if path.suffix.lower() == ".parquet":
        return read_parquet(path)
    return read_text_table(path, titles)


def table_parts(path: Path, rows: int) -> Iterator[Table]:
    """Read a table so many rows at a time.

    Titles and an index are looked for in the first of them. Whether a column is numbers is told for
    each part by itself: a later part may have a text where the first had none.
    """
    if path.suffix.lower() == ".parquet":
        return parquet_parts(path, rows)
    return text_table_parts(path, rows)
