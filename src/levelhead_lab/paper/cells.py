"""The cells of the paper's tables, read from records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from levelhead.support.errors import LevelheadError
from levelhead.support.text import parse_json
from levelhead.support.text import read as read_text

from .tables import SAME_WHEN_BALANCED, official_sha256, tables

Record = dict[str, Any]
# What the tables, claims and figures read of every record.
RECORD_KEYS = (
    "best_epoch", "best_on_test", "column", "counts", "curve", "device", "error", "geometry", "held_out", "hold_out",
    "identity", "match_prior", "method", "norms", "norms_over_epochs", "oracle", "seconds", "seed", "top", "versions",
)  # fmt: skip
_REMOVE = "remove it, and train its network again"
GRID = np.linspace(0.0, 2.0, 201)  # the gammas of every curve in a record


@dataclass(frozen=True)
class Cell:
    """The errors, in percent, of the runs behind one cell."""

    errors: tuple[float, ...]

    @property
    def text(self) -> str:
        """The mean and, for several runs, the standard deviation; empty without a run."""
        if not self.errors:
            return ""
        spread = f" ± {stdev(self.errors):.2f}" if len(self.errors) > 1 else ""
        return f"{mean(self.errors):.2f}{spread}"

    def against(self, published: float) -> str:
        return f"{self.text}, *{published:.2f}*" if self.errors else f"*{published:.2f}*"


def load_records(results: str | Path) -> list[Record]:
    """Read every record in a folder; refuse what is no record, two of one network, or one of other data."""
    networks: dict[tuple[Any, ...], Path] = {}
    found = []
    for path in sorted(Path(results).glob("*.json")):
        record = _read_record(path)
        network = tuple(record[key] for key in ("column", "method", "seed", "hold_out"))
        if (first := networks.setdefault(network, path)) != path:
            raise LevelheadError(
                f"{path.parent}: {first.name} and {path.name} are records of one network ({record['column']}, "
                f"{record['method']}, seed {record['seed']}); remove one of them"
            )
        _check_data(path, record)
        found.append(record)
    return found


def _read_record(path: Path) -> Record:
    try:
        record = parse_json(read_text(path))
    except ValueError as error:
        raise LevelheadError(f"{path}: not a record ({error}); {_REMOVE}") from None
    if not isinstance(record, dict):
        raise LevelheadError(f"{path}: not a record, expected a JSON object; {_REMOVE}")
    if missing := [key for key in RECORD_KEYS if key not in record]:
        raise LevelheadError(f"{path}: not a record, it has no {', '.join(missing)}; {_REMOVE}")
    return record


def _check_data(path: Path, record: Record) -> None:
    official, own = official_sha256(record["column"], record["hold_out"]), record.get("data_sha256")
    if own and official and own != official:
        split = next(
            title for title in {**official, **own} if own.get(title) != official.get(title)
        )
        raise LevelheadError(
            f"{path.name}: its {split} images or labels are not those of the official files for {record['column']}; "
            "remove the record and train it again on those files"
        )


def companion_gamma(records: Sequence[Record], column: str, method: str) -> float | None:
    if column.endswith(":1"):  # on a balanced set, RS is the identity
        return 0.0
    record = companion(records, column, method)
    return None if record is None else record["held_out"]["rescale"]["gamma"]


def value_at(curve: Sequence[float], gamma: float, grid: np.ndarray = GRID) -> float:
    return curve[int(np.abs(grid[: len(curve)] - gamma).argmin())]


# The sources of gamma: (all records, one of them) -> gamma, or None where it is not known.
GAMMAS: dict[str, Callable[[Sequence[Record], Record], float | None]] = {
    "gamma from a hold-out": lambda records, record: companion_gamma(
        records, record["column"], record["method"]
    ),
    "gamma from unlabelled images": lambda _, record: record["match_prior"]["gamma"],
    "best gamma on test": lambda _, record: record["best_on_test"]["gamma"],
}
PAPER_GAMMA = "gamma of the paper"  # stated for Table 2 alone
# The other readings of a cell: one record -> error, or None where it is not known.
READINGS: dict[str, Callable[[Record], float | None]] = {
    "last epoch": lambda record: record["error"],
    "best epoch on test": lambda record: (  # the last epoch is measured again, in full precision
        min(record["best_epoch"]["error"], record["error"]) if record["best_epoch"] else None
    ),
    "oracle": lambda record: (record["oracle"] or {}).get("error"),
}


def full_runs(records: Sequence[Record], column: str, method: str) -> list[Record]:
    """Return the runs of a cell that were trained on the whole training set, ordered by seed."""
    trained = SAME_WHEN_BALANCED.get(method, method) if column.endswith(":1") else method
    found = [
        r for r in records if r["column"] == column and r["method"] == trained and not r["hold_out"]
    ]
    return sorted(found, key=lambda record: record["seed"])


def cell(records: Sequence[Record], column: str, method: str, reading: str = "last epoch") -> Cell:
    """Return a cell by one reading: a key of `READINGS` or, after RS, a source of gamma."""
    errors = [
        READINGS[reading](record)
        if reading in READINGS
        else _error_after_rs(records, record, reading)
        for record in full_runs(records, column, method)
    ]
    return Cell(tuple(100 * error for error in errors if error is not None))


def top5_cell(
    records: Sequence[Record], column: str, method: str, gamma: str | None = None
) -> Cell:
    found = [
        (record["top"], _gamma(records, record, gamma) if gamma else 0.0)
        for record in full_runs(records, column, method)
    ]
    return Cell(
        tuple(100 * value_at(top["curve"], at) for top, at in found if top and at is not None)
    )


def companion(records: Sequence[Record], column: str, method: str) -> Record | None:
    return next(
        (r for r in records if (r["column"], r["method"]) == (column, method) and r["held_out"]),
        None,
    )


def share_of_gap(before: float, after: float, oracle: float) -> float | None:
    return None if before <= oracle else (before - after) / (before - oracle)


def _error_after_rs(records: Sequence[Record], record: Record, gamma: str) -> float | None:
    """Return the exact error where the record has it, or else the one at the nearest point of its curve."""
    exact = {"gamma from unlabelled images": "match_prior", "best gamma on test": "best_on_test"}
    if gamma in exact:
        return record[exact[gamma]]["error"]
    chosen = _gamma(records, record, gamma)
    return None if chosen is None else value_at(record["curve"], chosen)


def _gamma(records: Sequence[Record], record: Record, name: str) -> float | None:
    return tables()["table2"]["gamma"] if name == PAPER_GAMMA else GAMMAS[name](records, record)
