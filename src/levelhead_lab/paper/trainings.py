"""The trainings that each table of the paper needs, the most valuable first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, get_args

from levelhead.core import counts
from levelhead.support.errors import LevelheadError

from ..lab.choices import PaperTable
from ..methods import METHODS
from ..runs.spec import Spec
from .tables import (
    DATA_SIZES,
    REPEATED,
    SAME_WHEN_BALANCED,
    nearer_readings,
    repeated_methods,
    source_cells,
    table1_columns,
    tables,
)

TABLES: tuple[PaperTable, ...] = get_args(PaperTable)
HOLD_OUT = 0.1
RELEASED_COLUMNS = (
    "cifar10:100",
    "cifar10:10",
    "cifar100:100",
    "cifar100:10",
)  # the columns of `wvn-released`


@dataclass(frozen=True)
class Training:
    """One network to train for a table: its spec and its column."""

    column: str
    spec: Spec

    @property
    def name(self) -> str:
        return f"{self.spec.title}{'-held' if self.spec.hold_out else ''}-{self.spec.key}"

    @property
    def images(self) -> int:
        """The training images it goes through, which is what it costs."""
        profile = counts.step if self.spec.profile == "step" else counts.long_tail
        n = profile(*DATA_SIZES[self.spec.data], self.spec.ratio)
        balanced = {
            "under-sample": n.min(),
            "under-sample-once": n.min(),
            "over-sample-largest": n.max(),
        }
        per_epoch = balanced[self.spec.method] * len(n) if self.spec.method in balanced else n.sum()
        return int(per_epoch * (1 - self.spec.hold_out)) * self.spec.resolve_recipe().epochs


def trainings(
    table: PaperTable,
    *,
    root: str | None = None,
    seeds: int = 3,
    only: Sequence[str] = (),
    dtype: str = "bfloat16",
    unofficial: bool = False,
) -> list[Training]:
    """Return every training of a table, once; `only` are cells or columns: `cifar10:100:wvn`, `cifar10:*`."""
    (columns, rows), repeated = _columns_and_rows(table), repeated_methods(table)
    found = [
        Training(
            column, replace(_spec(column, row, seed, hold_out, root, dtype), unofficial=unofficial)
        )
        for seed in range(seeds)
        for row in sorted(rows, key=lambda row: row not in repeated)
        for column in columns
        for hold_out in ((0.0, HOLD_OUT) if row in repeated and seed == 0 else (0.0,))
        if _needed(column, row, seed, hold_out, repeated)
    ]
    for cell in only:
        if not any(_matches(training, cell) for training in found):
            columns = dict.fromkeys(training.column for training in found)
            methods = dict.fromkeys(training.spec.method for training in found)
            raise LevelheadError(
                f"no cell {cell!r}; a cell is COLUMN or COLUMN:METHOD, and * matches anything; the "
                f"columns are {', '.join(columns)}; the methods are {', '.join(methods)}",
                parameter="only",
            )
    return [t for t in found if not only or any(_matches(t, cell) for cell in only)]


def _columns_and_rows(table: PaperTable) -> tuple[list[str], list[str]]:
    if table in ("strong", "frontier", "frontier-long"):
        return tables()[table]["columns"], list(repeated_methods(table))
    if table == "readings":
        rows = [name for row in tables()[table]["rows"] for name in row["readings"]]
        return table1_columns(imbalanced=True), rows
    if table == "sources":
        cells = [cell for row in tables()[table]["rows"] for cell in source_cells(row).values()]
        return list(dict.fromkeys(c for c, _, _ in cells)), list(
            dict.fromkeys(method for _, method, _ in cells)
        )
    if table == "table2-sources":
        return tables()[table]["columns"], tables()[table]["rows"]
    if table == "table3":  # its columns end in the network: cifar10:100:wvn
        return list(
            dict.fromkeys(column.rpartition(":")[0] for column in tables()[table]["columns"])
        ), list(REPEATED)
    rows = dict.fromkeys(
        METHODS[row["method"]].trained_as or row["method"] for row in tables()[table]["rows"]
    )
    rows |= dict.fromkeys(row["also"] for row in tables()[table]["rows"] if "also" in row)
    return tables()[table]["columns"], [
        *rows,
        *(("ldam-drw", "wvn-released") if table == "table1" else ()),
    ]


def _needed(column: str, row: str, seed: int, hold_out: float, repeated: Sequence[str]) -> bool:
    if column.split("/")[0] in tables()["sources"]["specs"]:
        cells = [
            cell[:2] for one in tables()["sources"]["rows"] for cell in source_cells(one).values()
        ]
        return (seed == 0 or row in repeated) and not hold_out and (column, row) in cells
    if column not in _columns_of(row, column):
        return False
    if column.endswith(":1"):
        return row not in SAME_WHEN_BALANCED and seed == 0 and not hold_out
    return seed == 0 or (row in repeated and column not in tables()["table2"]["columns"])


def _columns_of(row: str, column: str) -> Sequence[str]:
    """Return the columns in which a row is trained: some of Table 1's, or any."""
    if row == "wvn-released":
        return RELEASED_COLUMNS
    readings = [name for one in tables()["readings"]["rows"] for name in one["readings"]]
    in_table1 = [one["method"] for one in tables()["table1"]["rows"]]
    if row in readings and row not in (*in_table1, *nearer_readings().values()):
        return tables()["readings"]["columns"]
    return [column]


def _spec(
    column: str, method: str, seed: int, hold_out: float, root: str | None, dtype: str
) -> Spec:
    recipe, _, rest = column.rpartition("/")
    data, *profile, ratio = rest.split(":")
    shape: Any = profile[0] if profile else "long-tail"
    ours: dict[str, Any] = {
        "recipe": recipe or None,
        **tables()["sources"]["specs"].get(recipe, {}),
    }
    if (
        data == "tiny-imagenet"
    ):  # what the paper leaves open for Table 2 and we chose: recipe, stem and epochs
        table = tables()["table2"]
        ours = {**table["ours"], "epochs": table["epochs"][table["columns"].index(column)]}
    return Spec(
        data,
        root=root,
        method=method,
        profile="given" if ratio == "1" else shape,
        ratio=float(ratio),
        hold_out=hold_out,
        seed=seed,
        engine="fast",
        dtype=dtype,  # type: ignore[arg-type]
        **ours,
    )


def _matches(training: Training, cell: str) -> bool:
    return fnmatchcase(training.column, cell) or fnmatchcase(
        f"{training.column}:{training.spec.method}", cell
    )
