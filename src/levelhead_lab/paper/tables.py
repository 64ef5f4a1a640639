"""The paper's tables as published: columns, rows and numbers, from tables.toml.

A column is named by its data: `cifar10:100` is CIFAR-10 with a long tail of ratio 100, `tiny-imagenet:step:10` has
another profile, and `cao2019/cifar10:100` is trained by another recipe than that of its table. A row is a method of
`METHODS`. Some rows are copied from other papers (`sources`: by their own recipes), and some can be read in several
ways (`readings`).

`tables` reads the file, whose parts are described in `table_fields`. The other functions answer what is asked again and
again: which columns, which published errors (`published_errors`), where the networks of a copied row (`source_cells`)
or of a reading (`readings`) are. Nothing here knows of networks that were trained: that is `cells`, for the numbers,
and `trainings`, for what there is to train.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple, cast

from ..methods import METHODS
from .table_fields import OwnTable, PaperTables, Place, SourceRow, Table

DATA_TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet"}
# Largest count, classes.
DATA_SIZES = {
    "cifar10": (5000, 10),
    "cifar100": (500, 100),
    "tiny-imagenet": (500, 200),
}
# The same images; only the order of the classes differs.
DATA_SIZES["tiny-imagenet-sorted"] = DATA_SIZES["tiny-imagenet"]
# Rows with several seeds, and a companion run that holds out 10 % to choose gamma.
REPEATED = (
    "baseline",
    "wvn",
)
# Rows that depend on the counts alone, and the row each equals where all counts are equal. They are not trained there.
SAME_WHEN_BALANCED = {
    **dict.fromkeys(("over-sample", "under-sample", "re-weighting", "class-balanced"), "baseline"),
    "ldam-drw": "ldam",
}


@cache
def tables() -> PaperTables:
    """Return all of tables.toml, by the name of the table. It is read once; do not change what is returned."""
    content = files("levelhead_lab.paper").joinpath("tables.toml").read_text(encoding="utf-8")
    return cast(PaperTables, tomllib.loads(content))


def table_named(name: str) -> Table:
    """Return a table whose name is known only at run time, with what all tables have."""
    return cast(Mapping[str, Table], tables())[name]


def table1_columns(data: str | None = None, *, imbalanced: bool = False) -> list[str]:
    """Return Table 1's columns, such as `cifar10:100`, in the order of the paper.

    Args:
        data: those of one data set, `cifar10` or `cifar100`; both if None.
        imbalanced: leave the balanced ones out, where RS is the identity and has nothing to show.

    >>> table1_columns("cifar10", imbalanced=True)
    ['cifar10:200', 'cifar10:100', 'cifar10:50', 'cifar10:20', 'cifar10:10']
    """
    columns = []
    for column in tables()["table1"]["columns"]:
        of_data = data in (None, column.split(":")[0])
        left_out = imbalanced and column.endswith(":1")
        if of_data and not left_out:
            columns.append(column)
    return columns


def published_errors(method: str, table: OwnTable = "table1") -> dict[str, float]:
    """Return the published top-1 errors of a row, in percent, by column.

    Args:
        method: that of the row; with `+rs` for the rows after RS.
        table: the table of the paper.

    >>> published_errors("wvn+rs")["cifar10:100"]
    20.17
    """
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
    """One reading of a row of Table 1 that the paper leaves open.

    "Over-sample" could draw as many images an epoch as there are, or as many as the largest class has, times the
    classes: both are trained, and the page shows which of them comes nearer to what is published.
    """

    row: str  # the method of the row
    method: str  # what is trained
    recipe: str  # by which it is trained; empty for that of the table
    columns: tuple[str, ...]  # of Table 1, in which it is trained
    in_table1: bool  # whether it stands below the row

    @property
    def title(self) -> str:
        """What a table calls it: its method and, where that is another one, what its recipe changes."""
        title = METHODS[self.method].title
        if self.recipe:
            return f"{title}, {tables()['readings']['titles'][self.recipe]}"
        return title

    def place(self, column: str) -> Place:
        """Return the column and the method of the networks that are trained for a column of Table 1."""
        if self.recipe:
            column = f"{self.recipe}/{column}"
        return column, self.method


def readings() -> list[Reading]:
    """Return every reading of every row that has several, the row itself first.

    >>> [reading.title for reading in readings() if reading.row == "over-sample"]
    ['Over-sample', 'Over-sample to the largest']
    """
    every_reading = []
    for row in tables()["readings"]["rows"]:
        for name in row["readings"]:
            recipe, _, method = name.rpartition("/")
            # The row itself and the reading below it fill Table 1; the others are tried in a few columns alone.
            in_table1 = name == row["in_table1"]
            everywhere = in_table1 or name == row["method"]
            if everywhere:
                columns = table1_columns(imbalanced=True)
            else:
                columns = tables()["readings"]["columns"]
            every_reading.append(Reading(row["method"], method, recipe, tuple(columns), in_table1))
    return every_reading


def reading_below(row: str) -> Reading | None:
    """Return the reading that stands below a row of Table 1; None if the row has only one.

    >>> reading_below("over-sample").place("cifar10:100"), reading_below("focal")
    (('cifar10:100', 'over-sample-largest'), None)
    """
    for reading in readings():
        if reading.row == row and reading.in_table1:
            return reading
    return None


class Table2Reading(NamedTuple):
    """A reading of a copied row of Table 2 that is trained in every column.

    The recipe of its source is only described: `table2_readings` has what it could also have been.
    """

    row: str  # the method of the row
    title: str  # what it changes in the recipe, in words
    places: tuple[Place, ...]  # of its networks, in the order of the columns of Table 2


def readings_of_table2() -> list[Table2Reading]:
    """Return the readings of Table 2 that are trained in every column.

    >>> of_classes, decay, margins = readings_of_table2()
    >>> margins.row, margins.title
    ('ldam-drw', 'a linear head, and weight decay 5e-4')
    >>> of_classes.places[-1]
    ('cao2019-64-class/tiny-imagenet-sorted:step:10', 'class-balanced')
    """
    described = tables()["table2-readings"]
    every_reading = []
    for reading in described["everywhere"]:
        recipe, _, method = reading["trained"].partition("/")
        title = described["losses"].get(reading["trained"]) or described["titles"][recipe]
        columns = map(without_recipe, tables()["table2-sources"]["columns"])
        places = tuple((f"{recipe}/{column}", method) for column in columns)
        every_reading.append(Table2Reading(reading["row"], title, places))
    return every_reading


def repeated_methods(table: str) -> Sequence[str]:
    """Return the methods of a table that are trained with several seeds, and with a companion that holds out."""
    return table_named(table).get("methods", REPEATED)


class ComparedCell(NamedTuple):
    """A cell that stands beside a published error: where its networks are, and that error."""

    column: str  # with the recipe of its source: `cao2019/cifar10:100`
    method: str
    published: float  # error in percent

    @property
    def place(self) -> Place:
        return self.column, self.method


def source_cells(row: SourceRow) -> dict[str, ComparedCell]:
    """Return the cells of a row of `sources` by the column of Table 1, of the columns in which it is trained.

    >>> (ldam,) = [row for row in tables()["sources"]["rows"] if row["beside"] == "ldam"]
    >>> source_cells(ldam)["cifar10:100"]
    ComparedCell(column='cao2019/cifar10:100', method='ldam-drw', published=22.97)
    """
    in_table1 = published_errors(row["beside"])
    cells = {}
    for i, column in enumerate(tables()["sources"]["columns"]):
        if row["trained"][i]:
            recipe, method = row["trained"][i].split("/")
            # The control, cross entropy, has other numbers in its own paper than the row Baseline of Table 1.
            if "published" in row:
                error = row["published"][i]
            else:
                error = in_table1[column]
            cells[column] = ComparedCell(f"{recipe}/{column}", method, error)
    return cells


def column_title(column: str) -> str:
    """Return a column of CIFAR as a title.

    >>> column_title("cifar10:100")
    'CIFAR-10, ratio 100'
    """
    data, ratio = column.split(":")
    return f"{DATA_TITLES[data]}, ratio {ratio}"


def column_words(column: str) -> str:
    """Return a column of CIFAR, by whatever recipe, as a sentence has it.

    >>> column_words("strong/cifar10:100")
    'CIFAR-10 at ratio 100'
    """
    data, ratio = without_recipe(column).split(":")
    return f"{DATA_TITLES[data]} at ratio {ratio}"


def profile_title(column: str) -> str:
    """Return the profile and the ratio of a column of Table 2, which has one data set.

    >>> profile_title("cao2019-64/tiny-imagenet-sorted:step:10")
    'step, ratio 10'
    """
    *profile, ratio = without_recipe(column).split(":")[1:]
    return ", ".join([*profile, f"ratio {ratio}"])


def without_recipe(column: str) -> str:
    """Return the data and the ratio of a column, without the recipe before the slash.

    >>> without_recipe("strong/cifar10:100"), without_recipe("cifar10:100")
    ('cifar10:100', 'cifar10:100')
    """
    return column.rpartition("/")[2]


def official_sha256(column: str, hold_out: float) -> dict[str, str] | None:
    """Return the sha256 of each split of a column, as the official files give it; None where it is not known.

    Args:
        column: with or without a recipe.
        hold_out: the share held out; its split is a part of the training images, so that their digest differs.
    """
    return tables()["sha256"].get(sha256_key(column, hold_out))


def sha256_key(column: str, hold_out: float) -> str:
    """Return what names the data of a column: no recipe, unless it draws other images.

    >>> sha256_key("strong/cifar10:100", 0.1), sha256_key("cao2019-images/cifar10:100", 0.0)
    ('cifar10:100/held', 'cao2019-images/cifar10:100')
    """
    recipe, _, data = column.rpartition("/")
    key = data
    if "subset" in tables()["sources"]["specs"].get(recipe, {}):
        key = column
    if hold_out:
        key += "/held"
    return key
