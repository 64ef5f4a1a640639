"""The trainings that each table of the paper needs, the most valuable first.

A table is a list of cells, column and method (`_cells`). Each becomes one training or several (`_hold_outs`): methods
that are repeated have three seeds, and one more network, the companion, that holds a tenth of its training images out
to choose gamma on. `reproduce` trains those without a record; `Training.name` is the name of the record.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, get_args

from levelhead.core import counts
from levelhead.support.errors import LevelheadError

from ..lab.choices import PaperTable, TrainingDtype
from ..methods import METHODS
from ..runs.spec import Spec
from .tables import (
    DATA_SIZES,
    REPEATED,
    SAME_WHEN_BALANCED,
    readings,
    repeated_methods,
    source_cells,
    tables,
)

TABLES: tuple[PaperTable, ...] = get_args(PaperTable)
HOLD_OUT = 0.1
DTYPE: TrainingDtype = "bfloat16"  # of all records in results/
# The columns of `wvn-released`.
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
        """The name of its record: what is trained on what, and a hash of everything that decides its numbers."""
        return f"{self.spec.title}{'-held' if self.spec.hold_out else ''}-{self.spec.key}"

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

    Args:
        table: such as `table1`.
        root: the folder of the data sets; None where nothing is trained.
        seeds: of the methods that are repeated.
        only: cells or columns, if not all: `cifar10:100:wvn`, `cifar10:*`.
        dtype: the precision to train in.
        unofficial: accept data files with another md5.
    """
    planned = []
    for seed in range(seeds):  # the first seed of every cell comes before the second of any
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


def _cells(table: PaperTable) -> list[tuple[str, str]]:
    """Return column and method of every cell of a table, repeated methods first."""
    if table in ("strong", "frontier", "frontier-long"):
        cells = _product(repeated_methods(table), tables()[table]["columns"])
    elif table == "readings":
        cells = [one.place(column) for one in readings() for column in one.columns]
    elif table == "sources":
        places = [source_cells(row).values() for row in tables()[table]["rows"]]
        cells = [place[:2] for row in places for place in row]
    elif table in ("table2-sources", "table2-readings"):
        cells = _product(tables()[table]["rows"], tables()[table]["columns"])
    elif table == "table3":  # its columns end in the network: cifar10:100:wvn
        columns = [column.rpartition(":")[0] for column in tables()[table]["columns"]]
        cells = _product(REPEATED, columns)
    else:
        cells = _cells_of_the_paper(table)
    repeated = repeated_methods(table)
    return sorted(dict.fromkeys(cells), key=lambda cell: cell[1] not in repeated)


def _product(methods: Sequence[str], columns: Sequence[str]) -> list[tuple[str, str]]:
    return [(column, method) for method in methods for column in columns]


def _cells_of_the_paper(table: PaperTable) -> list[tuple[str, str]]:
    """Return the cells of Table 1 or 2 that are trained: RS is not, nor what equals another row."""
    methods = []
    for row in tables()[table]["rows"]:
        methods.append(METHODS[row["method"]].trained_as or row["method"])
    methods += [row["also"] for row in tables()[table]["rows"] if "also" in row]
    if table == "table1":
        methods.append("ldam-drw")
    cells = _product(methods, tables()[table]["columns"])
    cells = [
        (column, method)
        for column, method in cells
        if not column.endswith(":1") or method not in SAME_WHEN_BALANCED
    ]
    if table == "table1":
        cells += _product(["wvn-released"], RELEASED_COLUMNS)
    return cells


def _hold_outs(table: PaperTable, column: str, method: str, seed: int) -> Sequence[float]:
    """Return the shares to hold out in trainings of a cell with this seed; none where it is not trained."""
    repeated = method in repeated_methods(table)
    one_seed = column.endswith(":1") or column in tables()["table2"]["columns"]
    if seed > 0:
        if repeated and not one_seed:
            return (0.0,)
        return ()
    by_source = column.split("/")[0] in tables()["sources"]["specs"]
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
    """Return the spec of a column's name: RECIPE/DATA:PROFILE:RATIO, without what is usual."""
    recipe, _, rest = column.rpartition("/")
    data, *named_profile, ratio = rest.split(":")
    profile: Any = "long-tail"
    if ratio == "1":
        profile = "given"
    elif named_profile:
        profile = named_profile[0]
    ours: dict[str, Any] = {
        "recipe": recipe or None,
        **tables()["sources"]["specs"].get(recipe, {}),
    }
    # What the paper leaves open for Table 2 and we chose: recipe, stem and epochs.
    if data == "tiny-imagenet":
        table = tables()["table2"]
        ours = {**table["ours"], "epochs": table["epochs"][table["columns"].index(column)]}
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
        **ours,
    )


def _matches(training: Training, cell: str) -> bool:
    return fnmatchcase(training.column, cell) or fnmatchcase(
        f"{training.column}:{training.spec.method}", cell
    )
