"""What tables.toml holds, as types: the published tables, and the tables of ours that stand beside them.

`tables.tables` reads the file; the classes here say which keys each of its parts has, so that a misspelled one is found
by the type checker and not by a reader of the page. The file itself says where its numbers come from.

Each part of the file is a `Table`: it has columns, such as `cifar10:100`. What its rows are differs. In the paper's own
tables they are records with published errors; in those of ours (`table2-sources`, `table2-readings`) they are only
names of methods.
"""

from typing import Literal, NotRequired, TypedDict

OwnTable = Literal["table1", "table2"]  # those of the paper that have a row for each method
Place = tuple[str, str]  # column and method of the networks behind a cell


class Table(TypedDict):
    """What every table has, of the paper or of ours: `tables.table_named` returns no more than this."""

    columns: list[str]
    methods: NotRequired[
        list[str]
    ]  # trained with several seeds; without this key, `tables.REPEATED`


# `is` is a word of Python, and no name for a field of a class.
_TrainedAs = TypedDict("_TrainedAs", {"is": NotRequired[str]})


class PaperRow(_TrainedAs):
    """A row of Table 1, 2 or 3. `is` is the method that it really shows, where its title in the paper is another's."""

    method: str  # of `METHODS`, with `+rs` after RS; of Table 3 `rs` and `oracle`
    title: str  # as printed
    copied: NotRequired[str]  # the paper and the table that its numbers are from


class TopOneRow(PaperRow):
    """A row of Table 1 or 3."""

    published: list[float]  # error in percent, by column


class TopFiveRow(PaperRow):
    """A row of Table 2."""

    published: list[list[float]]  # top-1 and top-5 error in percent, by column
    also: NotRequired[str]  # another method that its title could mean


class Table1(Table):
    """Table 1: long-tailed CIFAR."""

    rows: list[TopOneRow]
    notes: list[str]


class SpecFields(TypedDict, total=False):
    """Fields of a `Spec` that belong to a recipe or a column: what else has to be said to train like its source."""

    recipe: str | None
    shortcut: Literal["A", "B", "pool"]
    stem: Literal["small", "half", "imagenet"]
    subset: str
    epochs: int


class Table2(Table):
    """Table 2: Tiny ImageNet."""

    rows: list[TopFiveRow]
    notes: list[str]
    gamma: float  # of RS, the same in every column
    ours: SpecFields  # what the paper leaves open, as we chose it
    epochs: list[int]  # by column


class Table3(Table):
    """Table 3: RS beside the oracle head; its columns end in the method."""

    rows: list[TopOneRow]
    notes: list[str]


class ReadingsRow(TypedDict):
    """A row of Table 1 that can be read in several ways."""

    method: str
    readings: list[str]  # METHOD or RECIPE/METHOD, the row itself first
    in_table1: str  # the reading that is trained in every column


class Readings(Table):
    """Other readings of the rows of Table 1 that differ most from the published numbers."""

    titles: dict[str, str]  # in words, what a recipe changes
    rows: list[ReadingsRow]


class SourceRow(TypedDict):
    """A row that is trained by the recipe of the paper which it was copied from."""

    title: str
    beside: str  # method of the row of Table 1 below which it stands
    trained: list[str]  # RECIPE/METHOD, by column; empty where it is not trained
    published: NotRequired[list[float]]  # in its own paper; without this key, what Table 1 has
    within: NotRequired[float]  # points that count as reproduced
    counted_only: NotRequired[bool]  # stands in the table of distances and not in Table 1


class SourceTable(Table):
    """Rows of Table 1 by the recipes of the papers that they were copied from."""

    rows: list[SourceRow]
    specs: dict[str, SpecFields]  # by what stands before the slash of a column


class RowsOfMethods(Table):
    """A table of ours whose rows are methods."""

    rows: list[str]


class ReadingEverywhere(TypedDict):
    """A reading of a row of Table 2 that is trained in every column."""

    row: str  # its method
    trained: str  # RECIPE/METHOD


class RecipeReadings(RowsOfMethods):
    """Other readings of a recipe that is only described."""

    titles: dict[str, str]  # in words, what each recipe changes
    losses: dict[str, str]  # in words, what RECIPE/METHOD changes in LDAM-DRW
    everywhere: list[ReadingEverywhere]
    weights_only: list[str]  # recipes that change class weights and nothing else
    again: list[str]  # what became of it elsewhere


class BestKnown(TypedDict):
    """The lowest published error of an adjustment after training that we know of, in one column."""

    column: str
    error: float
    by: str
    link: str


class Strong(Table):
    """The networks of Table 1 under the recipe `strong`."""

    title: str
    best_known: BestKnown


class PublishedElsewhere(TypedDict):
    """What others published at ratio 100, error in percent, by recipes of their own."""

    title: str
    by: str
    link: str
    cifar10: NotRequired[float]
    cifar100: NotRequired[float]
    again: NotRequired[str]  # what others got who ran it again


class Pretrained(TypedDict):
    """What was published with a network that is not trained from scratch."""

    title: str
    by: str
    link: str
    backbone: str
    cifar100: float


class Frontier(Table):
    """The networks of Table 1 under the recipe `frontier`, and what others published."""

    title: str
    published: list[PublishedElsewhere]
    pretrained: Pretrained


_PaperTables = TypedDict(
    "_PaperTables",
    {
        "table2-sources": RowsOfMethods,
        "table2-readings": RecipeReadings,
        "frontier-long": Table,
    },
)


class PaperTables(_PaperTables):
    """All of tables.toml."""

    table1: Table1
    table2: Table2
    table3: Table3
    references: dict[str, str]  # the papers that rows are copied from: who, and the title
    readings: Readings
    sources: SourceTable
    strong: Strong
    frontier: Frontier
    sha256: dict[str, dict[str, str]]  # of each split, by `tables.sha256_key`
