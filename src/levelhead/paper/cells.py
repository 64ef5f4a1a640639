"""From records to the cells of the paper's tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from .record import GRID
from .trainings import SAME_WHEN_BALANCED, tables

Record = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """Errors in percent of the runs behind one cell."""

    errors: tuple[float, ...]

    @property
    def text(self) -> str:
        """Mean and, of several runs, their standard deviation and number; empty where nothing was measured."""
        if not self.errors:
            return ""
        spread = f" ± {stdev(self.errors):.2f} ({len(self.errors)})" if len(self.errors) > 1 else ""
        return f"{mean(self.errors):.2f}{spread}"

    def against(self, published: float) -> str:
        """The published number and, where there is one of ours, by how much ours differs."""
        return f"*{published:.2f}*" + (f" ({mean(self.errors) - published:+.2f})" if self.errors else "")


def load_records(results: str | Path) -> list[Record]:
    """Every record in a folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(results).glob("*.json"))]


def companion_gamma(records: Sequence[Record], column: str, method: str) -> float | None:
    """Gamma of a column and network, chosen on the 10 % its companion run held out; None if there is no such run.

    0 on a balanced set: there RS is the identity, and nothing is chosen.
    """
    if column.endswith(":1"):
        return 0.0
    record = companion(records, column, method)
    return None if record is None else record["held_out"]["rescale"]["gamma"]


def value_at(curve: Sequence[float], gamma: float) -> float:
    """The value at gamma of a curve in a record: that of the nearest of its points."""
    return curve[int(np.abs(GRID[:len(curve)] - gamma).argmin())]


# Gamma of one record, by where it comes from: (all records, one of them) -> gamma, None where it is not known.
GAMMAS: dict[str, Callable[[Sequence[Record], Record], float | None]] = {
    "gamma from a hold-out": lambda records, record: companion_gamma(records, record["column"], record["method"]),
    "gamma from unlabelled images": lambda _, record: record["match_prior"]["gamma"],
    "best gamma on test": lambda _, record: record["best_on_test"]["gamma"],
}
PAPER_GAMMA = "gamma of the paper"  # which states one for Table 2 alone
# What else can stand in a cell: one record -> error, None where it is not known.
READINGS: dict[str, Callable[[Record], float | None]] = {
    "last epoch": lambda record: record["error"],
    "best epoch on test": lambda record: _best_epoch(record),
    "oracle": lambda record: (record["oracle"] or {}).get("error"),
}


def full_runs(records: Sequence[Record], column: str, method: str) -> list[Record]:
    """All runs of a method in a column that were trained on the whole training set, by seed."""
    trained = SAME_WHEN_BALANCED.get(method, method) if column.endswith(":1") else method
    found = [r for r in records if r["column"] == column and r["method"] == trained and not r["hold_out"]]
    return sorted(found, key=lambda record: record["seed"])


def cell(records: Sequence[Record], column: str, method: str, reading: str = "last epoch") -> Cell:
    """The runs of a method in a column, read one way: as `READINGS` has it, or after RS with a gamma of `GAMMAS`,
    or the paper's."""
    found = full_runs(records, column, method)
    if reading in READINGS:
        errors = [READINGS[reading](record) for record in found]
    else:
        errors = [_leveled(records, record, reading) for record in found]
    return Cell(tuple(100 * error for error in errors if error is not None))


def top5_cell(records: Sequence[Record], column: str, method: str, gamma: str | None = None) -> Cell:
    """Top-5 errors of the network, or after RS with a gamma of `GAMMAS`, or the paper's."""
    found = [(record["top"], _gamma(records, record, gamma) if gamma else 0.0)
             for record in full_runs(records, column, method)]
    return Cell(tuple(100 * value_at(top["curve"], at) for top, at in found if top and at is not None))


def companion(records: Sequence[Record], column: str, method: str) -> Record | None:
    """The run of a column and method that held 10 % of the training set out to choose on."""
    found = [r for r in records if (r["column"], r["method"]) == (column, method) and r["held_out"]]
    return found[0] if found else None


def share_of_gap(before: float, after: float, oracle: float) -> float | None:
    """How much of the way from a network's own error to the oracle's an adjustment goes; None where there is no way."""
    return None if before <= oracle else (before - after) / (before - oracle)


def _best_epoch(record: Record) -> float | None:
    """The last epoch is one too; while training goes on errors are measured in the precision of training."""
    return min(record["best_epoch"]["error"], record["error"]) if record["best_epoch"] else None


def _leveled(records: Sequence[Record], record: Record, gamma: str) -> float | None:
    """What the record itself says where it was chosen from it, else read off its curve."""
    exact = {"gamma from unlabelled images": "match_prior", "best gamma on test": "best_on_test"}
    if gamma in exact:
        return record[exact[gamma]]["error"]
    chosen = _gamma(records, record, gamma)
    return None if chosen is None else value_at(record["curve"], chosen)


def _gamma(records: Sequence[Record], record: Record, name: str) -> float | None:
    return tables()["table2"]["gamma"] if name == PAPER_GAMMA else GAMMAS[name](records, record)
