"""From records to the cells of the paper's tables: what we measured, beside what was published."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from .plan import SAME_WHEN_BALANCED, tables
from .record import GRID

Record = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """Errors in percent of the runs behind one cell."""

    errors: tuple[float, ...]

    @property
    def text(self) -> str:
        """Mean and, of several runs, their standard deviation; empty where nothing was measured."""
        if not self.errors:
            return ""
        spread = f" ± {stdev(self.errors):.2f}" if len(self.errors) > 1 else ""
        return f"{mean(self.errors):.2f}{spread}"


def load(results: str | Path) -> list[Record]:
    """Every record in a folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(results).glob("*.json"))]


def companion_gamma(records: Sequence[Record], column: str, method: str) -> float | None:
    """Gamma of a column and network, chosen on the 10 % its companion run held out; None if there is no such run."""
    for record in records:
        if record["column"] == column and record["method"] == method and record["held_out"]:
            return record["held_out"]["rescale"]["gamma"]
    return None


def at_gamma(record: Record, gamma: float) -> float:
    """A network's test error at gamma, from the curve in its record: that of the nearest of its 201 points."""
    return record["curve"][int(np.abs(GRID - gamma).argmin())]


# What can stand in a cell, by name: (records, column, one record of that cell) -> error, None where it is not known.
READINGS: dict[str, Callable[[Sequence[Record], Record], float | None]] = {
    "last epoch": lambda _, record: record["error"],
    "best epoch on test": lambda _, record: (record["best_epoch"] or {}).get("error"),
    "RS, gamma from a hold-out": lambda records, record: _held_out(records, record),
    "RS, gamma from unlabelled images": lambda _, record: record["match_prior"]["error"],
    "RS, best gamma on test": lambda _, record: record["best_on_test"]["error"],
}


def cell(records: Sequence[Record], column: str, method: str, reading: str = "last epoch") -> Cell:
    """All runs of a method in a column that were trained on the whole training set, read one way."""
    trained = "baseline" if column.endswith(":1") and method in SAME_WHEN_BALANCED else method
    found = [r for r in records if r["column"] == column and r["method"] == trained and not r["hold_out"]]
    errors = [READINGS[reading](records, record) for record in sorted(found, key=lambda record: record["seed"])]
    return Cell(tuple(100 * error for error in errors if error is not None))


def table1(records: Sequence[Record], data: str) -> str:
    """Table 1's half on one data set, as Markdown: our mean over seeds ± standard deviation, then the published."""
    table = tables()["table1"]
    columns = [column for column in table["columns"] if column.startswith(f"{data}:")]
    lines = [f"| ratio | {' | '.join(column.split(':')[1] for column in columns)} |", f"|---|{'---|' * len(columns)}"]
    for row in table["rows"]:
        published = dict(zip(table["columns"], row["published"], strict=True))
        method = row["method"].removesuffix("+rs")
        readings = [name for name in READINGS if name.startswith("RS")] if method != row["method"] else ["last epoch"]
        for reading in readings:
            cells = [cell(records, column, method, reading) for column in columns]
            if any(one.errors for one in cells):
                note = f" ({reading.removeprefix('RS, ')})" if len(readings) > 1 else ""
                lines.append(f"| {row['title']}{note} | {' | '.join(one.text for one in cells)} |")
        lines.append(f"| *{row['title']}, published* | {' | '.join(f'*{published[c]:.2f}*' for c in columns)} |")
    return "\n".join(lines)


def fill(page: Path, name: str, content: str) -> None:
    """Put generated text between `<!-- name -->` and `<!-- end of name -->` of a page."""
    text = page.read_text(encoding="utf-8")
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if start not in text or end not in text:
        raise ValueError(f"{page}: no place for {name!r}; expected {start} and {end}")
    before, after = text.split(start)[0], text.split(end)[1]
    page.write_text(f"{before}{start}\n{content}\n{end}{after}", encoding="utf-8")


def _held_out(records: Sequence[Record], record: Record) -> float | None:
    gamma = companion_gamma(records, record["column"], record["method"])
    return None if gamma is None else at_gamma(record, gamma)
