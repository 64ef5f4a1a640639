"""The paper's tables as published: columns, rows and numbers, from tables.toml.

A column is named by its data: `cifar10:100` is CIFAR-10 with a long tail of ratio 100, `tiny-imagenet:step:10` has
another profile, and `cao2019/cifar10:100` is trained by another recipe than that of its table. A row is a method of
`METHODS`. Some rows are copied from other papers (`sources`: by their own recipes), and some can be read in several
ways (`readings`).
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ..methods import METHODS

DATA_TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet"}
# Largest count, classes.
DATA_SIZES = {
    "cifar10": (5000, 10),
    "cifar100": (500, 100),
    "tiny-imagenet": (500, 200),
}
DATA_SIZES["tiny-imagenet-sorted"] = DATA_SIZES["tiny-imagenet"]
# Rows with several seeds, and a companion run that holds out 10 % to choose gamma.
REPEATED = (
    "baseline",
    "wvn",
)
SAME_WHEN_BALANCED = {  # rows that depend on the counts alone, and the row each equals where all counts are equal
    **dict.fromkeys(("over-sample", "under-sample", "re-weighting", "class-balanced"), "baseline"),
    "ldam-drw": "ldam",
}


@cache
def tables() -> dict[str, Any]:
    """Return all of tables.toml, by the name of the table."""
    content = files("levelhead_lab.paper").joinpath("tables.toml").read_text(encoding="utf-8")
    return tomllib.loads(content)


def table1_columns(data: str | None = None, *, imbalanced: bool = False) -> list[str]:
    """Return Table 1's columns, such as `cifar10:100`, of one data set or both, with or without the balanced ones."""
    columns = []
    for column in tables()["table1"]["columns"]:
        of_data = data in (None, column.split(":")[0])
        left_out = imbalanced and column.endswith(":1")
        if of_data and not left_out:
            columns.append(column)
    return columns


def published_errors(method: str, table: str = "table1") -> dict[str, float]:
    """Return the published top-1 errors of a row, in percent, by column."""
    (row,) = [row for row in tables()[table]["rows"] if row["method"] == method]
    errors = {}
    for column, error in zip(tables()[table]["columns"], row["published"], strict=True):
        if isinstance(error, list):  # top-1 and top-5
            errors[column] = error[0]
        else:
            errors[column] = error
    return errors


@dataclass(frozen=True)
class Reading:
    """One reading of a row of Table 1 that the paper leaves open."""

    row: str  # the method of the row
    method: str  # what is trained
    recipe: str  # by which it is trained; empty for that of the table
    columns: tuple[str, ...]  # of Table 1, in which it is trained
    in_table1: bool  # whether it stands below the row

    @property
    def title(self) -> str:
        title = METHODS[self.method].title
        if self.recipe:
            return f"{title}, {tables()['readings']['titles'][self.recipe]}"
        return title

    def place(self, column: str) -> tuple[str, str]:
        """Return the column and the method of the networks that are trained for a column of Table 1."""
        if self.recipe:
            column = f"{self.recipe}/{column}"
        return column, self.method


def readings() -> list[Reading]:
    """Return every reading of every row that has several, the row itself first."""
    found = []
    for row in tables()["readings"]["rows"]:
        for name in row["readings"]:
            recipe, _, method = name.rpartition("/")
            in_table1 = name == row["in_table1"]
            everywhere = in_table1 or name == row["method"]
            if everywhere:
                columns = table1_columns(imbalanced=True)
            else:
                columns = tables()["readings"]["columns"]
            found.append(Reading(row["method"], method, recipe, tuple(columns), in_table1))
    return found


def reading_below(row: str) -> Reading | None:
    """Return the reading that stands below a row of Table 1."""
    return next((one for one in readings() if one.row == row and one.in_table1), None)


def repeated_methods(table: str) -> Sequence[str]:
    """Return the methods of a table that are trained with several seeds, and with a companion that holds out."""
    return tables()[table].get("methods", REPEATED)


def source_cells(row: dict[str, Any]) -> dict[str, tuple[str, str, float]]:
    """Return, by the column of Table 1, column, method and published error of a row of `sources`."""
    published = published_errors(row["beside"])
    cells = {}
    for i, column in enumerate(tables()["sources"]["columns"]):
        if row["trained"][i]:
            recipe, method = row["trained"][i].split("/")
            if "published" in row:
                error = row["published"][i]
            else:
                error = published[column]
            cells[column] = (f"{recipe}/{column}", method, error)
    return cells


def column_title(column: str) -> str:
    """Return a column of CIFAR as a title: `CIFAR-10, ratio 100`."""
    data, ratio = column.split(":")
    return f"{DATA_TITLES[data]}, ratio {ratio}"


def column_words(column: str) -> str:
    """Return a column of CIFAR, by whatever recipe, as a sentence has it: `CIFAR-10 at ratio 100`."""
    data, ratio = column.rpartition("/")[2].split(":")
    return f"{DATA_TITLES[data]} at ratio {ratio}"


def official_sha256(column: str, hold_out: float) -> dict[str, str] | None:
    """Return the sha256 of each split of a column, as the official files give it; None where it is not known."""
    return tables()["sha256"].get(sha256_key(column, hold_out))


def sha256_key(column: str, hold_out: float) -> str:
    """Return what names the data of a column: no recipe, unless it draws other images."""
    recipe, _, data = column.rpartition("/")
    draws = "subset" in tables()["sources"]["specs"].get(recipe, {})
    return f"{column if draws else data}{'/held' if hold_out else ''}"
