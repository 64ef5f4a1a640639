"""The scoreboard: what a row of it is, how long it may take, and its page.

A module of this room has a `ROW`: a promise to users, and a function that attacks it within a
`Budget` and returns what it `Found`. `describe` makes of both an entry of results/trust.json, and
`write_page` a page of all entries: docs/trust.md. Rows that several processes can share are started
by `workers`, which adds up what each found.
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

Profile = Literal["quick", "full"]
SHOWN = 20  # failures listed per row


class Budget:
    """What a row may use: a profile, and the seconds after which it stops early and says so.

    Where several processes share a row, this one does part `index` of `parts`. It keeps inputs that something failed
    with in the folder `keep`, and `note` writes what it has found so far.
    """

    def __init__(
        self,
        profile: Profile,
        seconds: float = 1e9,
        *,
        part: int = 0,
        parts: int = 1,
        keep: Path | None = None,
        write: "Callable[[Found], object] | None" = None,
    ) -> None:
        self.profile: Profile = profile
        self.seconds = seconds
        self.began = time.monotonic()
        self.index = part
        self.parts = parts
        self.keep = keep
        self.write = write
        self.noted = self.began
        self.round = int(os.environ.get("TRUST_ROUND", "0"))  # another number gives other seeds

    def size(self, quick: int, full: int) -> int:
        """Return how many of something are wanted: the first number for `quick`, the second for
        `full`.
        """
        return quick if self.profile == "quick" else full

    def own(self, wanted: int) -> int:
        """Return this process's share of a number.

        >>> [Budget("full", part=i, parts=3).own(10) for i in range(3)]
        [4, 3, 3]
        """
        return len(range(self.index, wanted, self.parts))

    @property
    def spent(self) -> bool:
        """Whether the time is up: what is begun is finished, and nothing more is begun."""
        return self.passed > self.seconds

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def part(self, share: float) -> "Budget":
        """Return a budget that begins now and has a share of what is left."""
        seconds = max(0.0, self.seconds - self.passed) * share
        return Budget(
            self.profile,
            seconds,
            part=self.index,
            parts=self.parts,
            keep=self.keep,
            write=self.write,
        )

    def note(self, findings: "Found") -> None:
        """Write what was found so far, if that was not done in the last ten seconds."""
        if self.write is not None and time.monotonic() - self.noted > 10:
            self.write(findings)
            self.noted = time.monotonic()


@dataclass
class Found:
    """What a row did and what went wrong. `lacks` says in numbers what is missing to the target, if anything is."""

    done: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    lacks: str = ""


@dataclass(frozen=True)
class Row:
    """A promise, how it is shown, its target, and the function that shows it.

    A row that many processes can share has `lacks`, which says from all that was done what is missing; `same` are the
    numbers that are the same in all of them.
    """

    promise: str
    how: str
    target: str
    check: Callable[[Budget], Found]
    lacks: Callable[[dict[str, Any]], str] | None = None
    same: tuple[str, ...] = ()
    alone: bool = False  # must begin in a new process


def lacking(done: int, target: int, what: str) -> str:
    """Return how many are missing to a target, or nothing.

    >>> lacking(60, 500, "kills")
    '60 of 500 kills'
    >>> lacking(500, 500, "kills")
    ''
    """
    if done >= target:
        return ""
    return f"{done:,} of {target:,} {what}"


def run_row(row: Row, budget: Budget) -> dict[str, Any]:
    """Run a row here; return it as results/trust.json holds it."""
    return describe(row, budget, row.check(budget))


def describe(row: Row, budget: Budget, findings: Found) -> dict[str, Any]:
    """Return a row and what was found as results/trust.json holds it."""
    return {
        "promise": row.promise,
        "how": row.how,
        "target": row.target,
        "profile": budget.profile,
        "done": findings.done,
        "failures": len(findings.failures),
        "failed": findings.failures[:SHOWN],
        "shortfall": findings.lacks,
        "seconds": round(budget.passed, 1),
        "when": time.strftime("%Y-%m-%d"),
        "on": machine(),
    }


def machine() -> dict[str, str]:
    """Return the versions and the machine that a result belongs to."""
    versions = {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    for name in ("levelhead", "numpy", "torch", "safetensors", "onnx", "onnxruntime"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        ).stdout
    except OSError:  # no git
        commit = ""
    if versions["levelhead"] == "not installed":
        from levelhead import __version__

        versions["levelhead"] = __version__
    return versions | {"commit": commit.strip() or os.environ.get("LEVELHEAD_COMMIT", "unknown")}


def verdict(result: Mapping[str, Any]) -> str:
    """Return one or two words for the state of a row."""
    if result["failures"]:
        return f"**{result['failures']} failed**"
    if result["shortfall"]:
        return "short of the target"
    return "met"


def write_page(results: Mapping[str, Mapping[str, Any]], page: Path) -> None:
    """Write docs/trust.md from the results of all rows that were run."""
    rows = ["| promise | shown by | target | state |", "|---|---|---|---|"]
    runs = []
    for result in results.values():
        promise = result["promise"]
        rows.append(f"| {promise} | {result['how']} | {result['target']} | {verdict(result)} |")
        done = []
        for name, value in result["done"].items():
            if not isinstance(value, dict):  # counts by command or reader: in the results
                done.append(f"{name}: {_text(value)}")
        lines = [f"- **{promise[:1].upper()}{promise[1:]}.** {'; '.join(done)}."]
        if result["shortfall"]:
            lines.append(f"Shortfall: {result['shortfall']}.")
        if result["failures"]:
            lines.append(f"Failures: {result['failures']}.")
        on = result["on"]
        where = f"{result['seconds']:,.0f} s on {on['machine']}, {result['when']}, commit {on['commit']}"
        runs.append(" ".join([*lines, f"*{result['profile'].capitalize()}, {where}.*"]))
    page.write_text("\n".join([HEAD, *rows, "", MIDDLE, *runs, ""]), encoding="utf-8")


HEAD = """# Trust: what is promised, attacked, measured

<!-- `make trust` writes this page from results/trust.json; edit bench/trust/board.py, not this file. -->

Each promise is attacked by a program in `bench/trust/`. `make trust` runs all of them and writes this page (the full
profile, hours); `make trust PROFILE=quick` takes minutes, and `make test` holds the same checks with small numbers. How
to report what breaks one of these promises: `SECURITY.md`.
"""

MIDDLE = """*Met*: the target is reached without a failure. *Short of the target*: nothing failed, but less was
done than the target asks for. *N failed*: that run found so many failures; what became of them is stated below.

## What was run

Counts by command and reader, the first failures, survivors and the versions of each run are in `results/trust.json`.
"""


def _text(value: Any) -> str:
    """Return a value for the page: a number with commas, of a list how many."""
    if isinstance(value, list):  # listed in the results
        return f"{len(value):,}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}"


def read_results(path: Path) -> dict[str, Any]:
    """Return what results/trust.json holds; nothing if it is not there."""
    if not path.is_file():
        return {}
    return json.loads(path.read_text(encoding="utf-8"))


def write_results(results: Mapping[str, Any], path: Path) -> None:
    """Write results/trust.json whole."""
    new = path.with_name(f"{path.name}.new")  # a process may be killed while it writes
    new.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)
