"""A table of predictions: columns of numbers or text, of a .csv, .tsv or .parquet file.

table_text.py and table_parquet.py make a `Table`, table_columns.py says what its columns are. Cells
stay as they are until a column is asked for: a column of long texts that nobody reads costs what it
takes in the file, where an array of texts would give each as much room as the longest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.class_names import listed
from ..show.style import short
from ..support.errors import LevelheadError
from ..support.text import is_decimal_comma, is_number
from .numpy_file import text_array

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
# What a column of labels is called, in small letters; of several the first of these.
LABEL_TITLES = (
    "label", "labels", "y", "target", "targets", "y_true", "true_label", "ground_truth", "gt",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of numbers or text, all of one length.

    Args:
        titles: of the columns, where the file has any.
        columns: [N] each: floats, other numbers, or objects that are texts; [N, K] of lists.
        written: the same, as they are written in a text file that is read in parts; else None.
    """

    titles: list[str] | None  # of the columns, where the file has any
    columns: Sequence[np.ndarray]  # [N] each: floats, other numbers, or objects that are texts
    written: Sequence[Sequence[str]] | None = None  # the same, as they are written in a text file

    def column(self, title: str) -> np.ndarray:
        """Return the column with a title.

        Raises:
            LevelheadError: there is none, and the message lists the titles; or there are two.
        """
        if self.titles is None or title not in self.titles:
            raise LevelheadError(f"no column {title!r}; the file has {self._titles_listed()}")
        if self.titles.count(title) > 1:
            raise LevelheadError(f"two columns are titled {title!r}; rename or drop one of them")
        return self.at(self.titles.index(title))

    def without(self, title: str) -> "Table":
        """Return the table without the column with a title, which must be there."""
        self.column(title)
        kept = [i for i, other in enumerate(self.titles or ()) if other != title]
        return Table([(self.titles or [])[i] for i in kept], [self.columns[i] for i in kept])

    def at(self, i: int) -> np.ndarray:
        """Return the column at a place, texts as an array of texts.

        Only then: columns that nobody reads may hold very long ones.
        """
        values = self.columns[i]
        if values.dtype.kind == "O":
            return text_array(list(map(str, values.tolist())))
        return values

    def numbers(self, at: Sequence[int]) -> np.ndarray:
        """Return the columns at these places, [N, K], after checking that they are numbers.

        Args:
            at: places, in the order that the columns are to have; or that of one column of lists.

        Raises:
            LevelheadError: no place, or a column of text; the message says in which row the first
                cell is that is no number. Or lists in one of several columns.
        """
        if not len(at):
            first = listed([short(str(column[0]), 20) for column in self.columns])
            columns = f"the file has {self._titles_listed()}, and in its first row {first}"
            raise LevelheadError(f"no column holds logits; {columns}")
        for i in at:
            if self.columns[i].dtype.kind not in "iufb":
                where = ""
                if self.titles:
                    where = f" of {self.titles[i]!r}"
                raise _not_numbers(self.columns[i], where)
        lists = [i for i in at if self.columns[i].ndim == 2]
        if len(at) == 1 and lists:
            return self.columns[at[0]]
        if lists:
            of_lists = listed([(self.titles or [])[i] for i in lists])
            reason = f"lists of numbers ({of_lists}) among {len(at)} columns that may be logits"
            raise LevelheadError(f"{reason}; call the column of lists that holds them 'logits'")
        return np.column_stack([self.columns[i] for i in at])

    def _titles_listed(self) -> str:
        return listed(self.titles or []) or "no titles"


def _not_numbers(cells: np.ndarray, where: str) -> LevelheadError:
    """Return the error for the first cell of a column that is not a number.

    Rows are counted from 0 and without titles, as those of the array would be.
    """
    for at, cell in enumerate(map(str, cells.tolist())):
        if is_decimal_comma(cell):
            return LevelheadError(f"data row {at} holds {cell!r}; save decimals with a point")
        if not is_number(cell):
            problem = f"holds {cell!r}" if cell else "has an empty cell"
            return LevelheadError(f"data row {at}{where} {problem}; expected a number")
    kind = "text" if cells.dtype.kind == "O" else cells.dtype
    return LevelheadError(f"expected numbers, got {kind}{where}")
