"""What `levelhead sweep` does: every training of a grid, once each, and a table of what came of them.

The grid is a TOML file whose keys are those of a `Spec`; a list stands for each of its values in turn:

    data = "digits"
    method = ["baseline", "wvn", "ldam-drw"]
    ratio = [10, 50]
    seed = [0, 1, 2]
    hold_out = 0.1
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any, cast

from ..io.text import read as read_text
from .evaluate import evaluate, rule_of
from .run_folder import Run
from .spec import Spec
from .signals import graceful_stop
from .sweep import Executor, Outcome, sweep
from ..core.errors import LevelheadError


def read(path: str | Path) -> list[Spec]:
    """The specs of a grid, the last key turning fastest. A ratio is of a long tail unless a profile says otherwise."""
    try:
        grid = tomllib.loads(read_text(path))
    except ValueError as error:
        raise LevelheadError(f"{path}: not TOML: {error}") from None
    known = [field.name for field in fields(Spec) if field.name != "counts"]
    for key in grid:
        if key not in known:
            raise LevelheadError(f"{path}: unknown key {key!r}; the keys are {', '.join(known)}")
    if "data" not in grid:
        raise LevelheadError(f"{path}: expected data = ..., such as \"digits\" or a folder of images")
    if "ratio" in grid:
        grid.setdefault("profile", "long-tail")
    for key, value in grid.items():
        if value == []:
            raise LevelheadError(f"{path}: {key} has no values; give one, or leave it out")
    values = [value if isinstance(value, list) else [value] for value in grid.values()]
    try:
        return [Spec(**dict(zip(grid, one, strict=True))) for one in product(*values)]
    except ValueError as error:
        raise LevelheadError(f"{path}: {error}") from None


def command(
    path: Path, runs: Path, *, executor: str, workers: int, say: Callable[[str], None]
) -> tuple[dict[str, Any], str]:
    """Train what is not trained yet, then judge all of it; a ValueError at the end if some could not be trained."""
    specs = read(path)
    for spec in specs:
        rule_of(spec.resolve_method())
    done = 0

    def report(spec: Spec, what: str) -> None:
        nonlocal done
        done += what != "lost"
        say(f"{spec.title}: {what} ({done} of at most {len(specs)})")

    def standing() -> str:
        places = {Run.of(spec, runs) for spec in specs}
        return f"{sum(place.finished for place in places)} of {len(places)} runs are finished"

    with graceful_stop(standing, say):
        found = sweep(specs, runs, executor=cast(Executor, executor), workers=workers, report=report)
    failed = [outcome for outcome in found if outcome.error]
    for outcome in failed:
        say(f"{outcome.spec.title}: {outcome.error}")
    if len(failed) == len(found):
        raise LevelheadError(f"none of the {len(found)} runs could be trained; the first: {failed[0].error}")
    rows = [judged(outcome) for outcome in found if not outcome.error]
    return {"rows": rows, "failed": [outcome.spec.title for outcome in failed]}, text(rows)


def judged(outcome: Outcome) -> dict[str, Any]:
    """A finished run's errors on its test set: as trained and, where it held something out for gamma, leveled."""
    snapshot = outcome.run.snapshot
    found = evaluate(snapshot, gamma=None if "held-out" in snapshot.features else 0.0,
                     rule=rule_of(outcome.spec.resolve_method()))
    leveled = None if found.tuned is None else found.after.error
    return {"run": str(outcome.run.path), "method": outcome.spec.method, "ratio": outcome.spec.ratio,
            "seed": outcome.spec.seed, "error": found.before.error, "gamma": found.gamma, "leveled_error": leveled}


def text(rows: list[dict[str, Any]]) -> str:
    """A line for each run."""
    width = max(len(row["run"]) for row in rows)
    lines = [f"{'run':{width}}{'as trained':>13}{'gamma':>8}{'leveled':>11}"]
    for row in rows:
        after = "" if row["leveled_error"] is None else f"{row['gamma']:>8.2f}{100 * row['leveled_error']:>9.1f} %"
        lines.append(f"{row['run']:{width}}{100 * row['error']:>11.1f} %{after}")
    return "\n".join(lines)
