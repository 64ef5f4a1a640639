"""The trainings that each table of the paper needs, the most valuable first.

A table is a list of cells, column and method (`_cells`). Each becomes one training or several (`_hold_outs`): methods
that are repeated have three seeds, and one more network, the companion, that holds a tenth of its training images out
to choose gamma on. `reproduce` trains those without a record; `Training.name` is the name of the record.

The road: `trainings` -> `_cells` (what a table shows) -> `_hold_outs` (how often each cell is trained) -> `_spec` (the
name of a column as settings). Nothing is trained here, and no data are read: a list of all trainings is there in
milliseconds, for `--dry-run` and for the page that says what is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import cast, get_args

from levelhead.core import counts
from levelhead.support.errors import LevelheadError

from ..lab.choices import PaperTable, Profile, TrainingDtype
from ..methods import METHODS
from ..runs.spec import Spec
from .table_fields import OwnTable, Place, SpecFields
from .tables import (
    DATA_SIZES,
    REPEATED,
    SAME_WHEN_BALANCED,
    readings,
    readings_of_table2,
    repeated_methods,
    source_cells,
    table_named,
    tables,
    without_recipe,
)

TABLES: tuple[PaperTable, ...] = get_args(PaperTable)
HOLD_OUT = 0.1
DTYPE: TrainingDtype = "bfloat16"  # of all records in results/
# The columns of `wvn-released`, WVN with the order of steps of the released code.
RELEASED_COLUMNS = (
    "cifar10:100",
    "cifar10:10",
    "cifar100:100",
    "cifar100:10",
)


@dataclass(frozen=True)
class Training:
    """One network to train for a table."""

    table: PaperTable  # one that needs it; others may need it too
    column: str  # of that table: data and ratio, such as `cifar10:100`, after `RECIPE/` if not by the usual recipe
    spec: Spec

    @property
    def name(self) -> str:
        """The name of its record: what is trained on what, and a hash of everything that decides its numbers.

        The hash leaves the table out, so that tables share networks: Table 3 needs none that Table 1 has not trained.
        """
        held = ""
        if self.spec.hold_out:
            held = "-held"
        return f"{self.spec.title}{held}-{self.spec.key}"

    @property
    def command(self) -> str:
        """What to type to train it, with the networks of the same cell before it; DIR has the official files."""
        cell = f"{self.column}:{self.spec.method}"
        words = f"levelhead reproduce {self.table} --root DIR --only {cell} --seeds {self.spec.seed + 1}"
        if self.spec.dtype != DTYPE:
            words += f" --dtype {self.spec.dtype}"
        return words

    @property
    def images(self) -> int:
        """The training images it goes through, which is what it costs."""
        if self.spec.profile == "step":
            profile = counts.step
        else:
            profile = counts.long_tail
        per_class = profile(*DATA_SIZES[self.spec.data], self.spec.ratio)
        samples = per_class.sum()
        # These methods draw another number of images an epoch than the set has.
        if self.spec.method in ("under-sample", "under-sample-once"):
            samples = per_class.min() * len(per_class)
        elif self.spec.method == "over-sample-largest":
            samples = per_class.max() * len(per_class)
        return int(samples * (1 - self.spec.hold_out)) * self.spec.resolve_recipe().epochs


def trainings(
    table: PaperTable,
    *,
    root: str | None = None,
    seeds: int = 3,
    only: Sequence[str] = (),
    dtype: TrainingDtype = DTYPE,
    unofficial: bool = False,
) -> list[Training]:
    """Return every training of a table, once.

    The first seed of every cell comes before the second of any, and repeated methods before others: whoever stops
    half-way has the cells that most of the page needs.

    Args:
        table: such as `table1`.
        root: the folder of the data sets; None where nothing is trained.
        seeds: of the methods that are repeated.
        only: cells or columns, if not all: `cifar10:100:wvn`, `cifar10:*`.
        dtype: the precision to train in.
        unofficial: accept data files with another md5.

    Raises:
        LevelheadError: if one of `only` matches no cell of the table.

    >>> [training.command for training in trainings("table1", seeds=1, only=["cifar10:100:focal"])]
    ['levelhead reproduce table1 --root DIR --only cifar10:100:focal --seeds 1']
    """
    planned = []
    for seed in range(seeds):
        for column, method in _cells(table):
            for hold_out in _hold_outs(table, column, method, seed):
                spec = _spec(column, method, seed, hold_out, root, dtype)
                planned.append(Training(table, column, replace(spec, unofficial=unofficial)))
    for cell in only:
        if not any(_matches(training, cell) for training in planned):
            columns = dict.fromkeys(training.column for training in planned)
            methods = dict.fromkeys(training.spec.method for training in planned)
            raise LevelheadError(
                f"no cell {cell!r}; a cell is COLUMN or COLUMN:METHOD, and * matches anything; the "
                f"columns are {', '.join(columns)}; the methods are {', '.join(methods)}",
                parameter="only",
            )
    if not only:
        return planned
    return [t for t in planned if any(_matches(t, cell) for cell in only)]


def _cells(table: PaperTable) -> list[Place]:
    """Return column and method of every cell of a table once, repeated methods first.

    Tables of ours say in tables.toml what is trained; those of the paper also have rows that are not.
    """
    if table in ("strong", "frontier", "frontier-long"):
        cells = _product(repeated_methods(table), table_named(table)["columns"])
    elif table == "readings":
        cells = []
        for reading in readings():
            cells += [reading.place(column) for column in reading.columns]
    elif table == "sources":
        cells = []
        for row in tables()["sources"]["rows"]:
            cells += [source.place for source in source_cells(row).values()]
    elif table == "table2-sources":
        cells = _product(tables()[table]["rows"], tables()[table]["columns"])
    elif table == "table2-readings":
        readings_of_it = tables()["table2-readings"]
        cells = _product(readings_of_it["rows"], readings_of_it["columns"])
        # Plain training has no class weights: where only these change, its network is there already.
        for recipe in readings_of_it["weights_only"]:
            cells = [c for c in cells if not (c[0].startswith(f"{recipe}/") and c[1] == "baseline")]
        first = without_recipe(tables()["table2-sources"]["columns"][0])
        cells += [_recipe_and_method(words, first) for words in readings_of_it["losses"]]
        for reading in readings_of_table2():
            cells += reading.places
    elif table == "table3":  # its columns end in the network: cifar10:100:wvn
        columns = [column.rpartition(":")[0] for column in tables()["table3"]["columns"]]
        cells = _product(REPEATED, columns)
    elif table == "table1" or table == "table2":
        cells = _cells_of_the_paper(table)
    repeated = repeated_methods(table)
    # Sorting is stable: within both groups the order of the table stays.
    return sorted(dict.fromkeys(cells), key=lambda cell: cell[1] not in repeated)


def _recipe_and_method(words: str, column: str) -> Place:
    """Return the cell that a recipe and a method have in a column.

    >>> _recipe_and_method("cao2019-64/ldam", "tiny-imagenet-sorted:step:10")
    ('cao2019-64/tiny-imagenet-sorted:step:10', 'ldam')
    """
    recipe, _, method = words.partition("/")
    return f"{recipe}/{column}", method


def _product(methods: Sequence[str], columns: Sequence[str]) -> list[Place]:
    """Return every method in every column, row by row."""
    return [(column, method) for method in methods for column in columns]


def _cells_of_the_paper(table: OwnTable) -> list[Place]:
    """Return the cells of Table 1 or 2 that are trained.

    A row after RS is not: it is read from the network before it. Nor are rows in balanced columns that equal another
    one there. Added are methods that the paper does not name as it trains them: `ldam-drw`, which its row LDAM is,
    `also`, and WVN as in the released code.
    """
    rows = tables()[table]["rows"]
    methods = [METHODS[row["method"]].trained_as or row["method"] for row in rows]
    if table == "table1":
        methods.append("ldam-drw")
    else:
        methods += [row["also"] for row in tables()["table2"]["rows"] if "also" in row]
    cells = []
    for column, method in _product(methods, tables()[table]["columns"]):
        if not column.endswith(":1") or method not in SAME_WHEN_BALANCED:
            cells.append((column, method))
    if table == "table1":
        cells += _product(["wvn-released"], RELEASED_COLUMNS)
    return cells


def _hold_outs(table: PaperTable, column: str, method: str, seed: int) -> Sequence[float]:
    """Return the shares to hold out in trainings of a cell with this seed; none where it is not trained.

    Only repeated methods have more than the first seed, and not where that would tell little or cost most: in balanced
    columns and in Table 2 by our recipe. The companion has the first seed. There is none in balanced columns, where RS
    is the identity, and none by the recipes of sources, whose rows are compared as trained.

    >>> [_hold_outs("table1", "cifar10:100", "wvn", seed) for seed in (0, 1)]
    [(0.0, 0.1), (0.0,)]
    >>> [_hold_outs("table1", "cifar10:100", "focal", seed) for seed in (0, 1)]
    [(0.0,), ()]
    """
    repeated = method in repeated_methods(table)
    one_seed = column.endswith(":1") or column in tables()["table2"]["columns"]
    if seed > 0:
        if repeated and not one_seed:
            return (0.0,)
        return ()
    by_source = table in ("sources", "table2-sources")
    companion = repeated and not column.endswith(":1") and not by_source
    if companion:
        return (0.0, HOLD_OUT)
    return (0.0,)


def _spec(
    column: str,
    method: str,
    seed: int,
    hold_out: float,
    root: str | None,
    dtype: TrainingDtype,
) -> Spec:
    """Return the spec of a column's name: RECIPE/DATA:PROFILE:RATIO, without what is usual.

    >>> spec = _spec("strong/cifar10:100", "wvn", 0, 0.0, None, "bfloat16")
    >>> spec.data, spec.profile, spec.ratio, spec.recipe
    ('cifar10', 'long-tail', 100.0, 'strong')
    """
    data, *named_profile, ratio = without_recipe(column).split(":")
    profile: Profile = "long-tail"
    if ratio == "1":
        profile = "given"
    elif named_profile:
        profile = cast(Profile, named_profile[0])  # `Spec` checks it
    return Spec(
        data,
        root=root,
        method=method,
        profile=profile,
        ratio=float(ratio),
        hold_out=hold_out,
        seed=seed,
        engine="fast",
        dtype=dtype,
        **_fields_of(column),
    )


def _fields_of(column: str) -> SpecFields:
    """Return what a column says of the training beside data and profile: its recipe, and what belongs to it."""
    recipe, _, rest = column.rpartition("/")
    # What the paper leaves open for Table 2 and we chose: recipe, stem and epochs.
    if rest.startswith("tiny-imagenet:"):
        table2 = tables()["table2"]
        return {**table2["ours"], "epochs": table2["epochs"][table2["columns"].index(column)]}
    fields: SpecFields = {"recipe": recipe or None}
    fields.update(tables()["sources"]["specs"].get(recipe, {}))
    return fields


def _matches(training: Training, cell: str) -> bool:
    """Say whether a training belongs to a cell or a column as `only` names them, with `*` for anything."""
    column_and_method = f"{training.column}:{training.spec.method}"
    return fnmatchcase(training.column, cell) or fnmatchcase(column_and_method, cell)
