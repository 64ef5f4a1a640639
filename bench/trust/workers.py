"""Rows of the scoreboard in many processes: each does a part, with its own seeds, and writes what it found as it goes.

    python -m bench.trust.workers ROW PART PARTS PROFILE SECONDS FOLDER

is one of those processes. It writes FOLDER/ROW-PART.json every few seconds, so that nothing is lost if it is killed,
and what a failure was found with to FOLDER/kept-PART.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .board import Budget, Found, Row, describe

ROOT = Path(__file__).parents[2]
EVERY = 10.0  # seconds between two writings
GRACE = 60.0  # seconds after the last one, beyond which a process is stopped


def run_split(
    name: str,
    row: Row,
    budget: Budget,
    parts: int,
    folder: Path,
    tell: Callable[[dict[str, Any]], object],
) -> dict[str, Any]:
    """Run a row in so many processes and add up what they find.

    Args:
        name: the row's module.
        row: the row itself.
        budget: its profile and seconds.
        parts: processes.
        folder: for what they write.
        tell: called with the result so far, every few seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob(f"{name}-*.json"), *folder.glob("*.cov")]:
        old.unlink()
    # A process each, and not a pool: a row may fork, limit its memory, or be killed, and takes
    # nobody with it.
    words = [budget.profile, str(budget.seconds), str(folder)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.trust.workers", name, str(i), str(parts), *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(folder / f"{name}-{i}.err").open("wb"),
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "MKL_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
            start_new_session=True,
        )
        for i in range(parts)
    ]
    try:
        while any(process.poll() is None for process in processes):
            time.sleep(0.2 if budget.passed < EVERY else 2.0)
            if budget.passed % EVERY < 2:
                tell(describe(row, budget, merge(row, _parts(folder, name))))
            if budget.passed > budget.seconds + GRACE:
                break
    finally:
        for process in processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    findings = merge(row, _parts(folder, name))
    for i, process in enumerate(processes):
        if process.returncode and budget.passed <= budget.seconds + GRACE:
            last = (folder / f"{name}-{i}.err").read_text(errors="replace").strip()[-300:]
            findings.failures.append(f"process {i} ended with {process.returncode}: {last}")
    return describe(row, budget, findings)


def _parts(folder: Path, name: str) -> list[Found]:
    """Return what each process has written last."""
    return [
        Found(**json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob(f"{name}-*.json"))
    ]


def merge(row: Row, parts: list[Found]) -> Found:
    """Return what all processes found together: numbers and texts of several are added up, but for `row.same`."""
    total = Found()
    for part in parts:
        total.done = _add(total.done, part.done, row.same)
        total.failures += part.failures
    total.lacks = (
        row.lacks(total.done)
        if row.lacks is not None and parts
        else "; ".join({p.lacks for p in parts})
    )
    return total


def _add(a: dict[str, Any], b: dict[str, Any], same: tuple[str, ...]) -> dict[str, Any]:
    """Return the sums of two accounts.

    >>> _add({"n": 1, "by": {"x": 2}, "of": 9, "list": ["a"]}, {"n": 2, "by": {"x": 1, "y": 1}, "of": 9}, ("of",))
    {'n': 3, 'by': {'x': 3, 'y': 1}, 'of': 9, 'list': ['a']}
    """
    total = dict(a)
    for key, value in b.items():
        if key not in total or key in same or isinstance(value, str | bool):
            total[key] = value
        elif isinstance(value, dict):
            total[key] = _add(total[key], value, same)
        else:
            total[key] = total[key] + value
    return total


def main() -> None:
    """Do one part of a row."""
    name, part, parts, profile, seconds, place = sys.argv[1:]
    row: Row = importlib.import_module(f".{name}", __package__).ROW
    folder = Path(place)
    keep = folder / f"kept-{part}"
    keep.mkdir(parents=True, exist_ok=True)

    def write(findings: Found) -> None:
        new = folder / f"{name}-{part}.new"
        new.write_text(json.dumps(asdict(findings)), encoding="utf-8")
        new.replace(folder / f"{name}-{part}.json")

    budget = Budget(
        profile, float(seconds), part=int(part), parts=int(parts), keep=keep, write=write
    )  # type: ignore[arg-type]
    write(row.check(budget))


if __name__ == "__main__":
    main()
