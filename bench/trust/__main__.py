"""Run rows of the scoreboard, and write results/trust.json and docs/trust.md.

python -m bench.trust [--profile quick|full] [--only ROW ...] [--minutes M] [--workers N --folder DIR]
"""

import argparse
import importlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from .board import Budget, read_results, run_row, verdict, write_page, write_results
from .workers import run_split

# In the order of the page.
ROWS = [
    "kills",
    "failing_disk",
    "hostile_files",
    "malformed",
    "bad_input",
    "right_numbers",
    "what_arrives",
    "mutation",
    "same_results",
    "no_network",
    "many_at_once",
    "supply_chain",
]
ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run each row in turn; return 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", choices=["quick", "full"], default="full")
    parser.add_argument(
        "--only", nargs="*", choices=ROWS, default=ROWS, metavar="ROW", help=", ".join(ROWS)
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=1e9,
        help="stop each row after this many, and say what it lacks",
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="processes that share a row, where it can be shared"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="for what the workers write, and inputs that something failed with",
    )
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "trust.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "trust.md")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends the workers too
    failed = 0
    for name in given.only:
        row = importlib.import_module(f".{name}", __package__).ROW
        budget = Budget(given.profile, 60 * given.minutes)

        def save(found: dict[str, Any], name: str = name) -> None:
            results = read_results(given.results) | {name: found}
            write_results({one: results[one] for one in ROWS if one in results}, given.results)

        # A row is run here, unless several processes share it or it must begin in a new one.
        if row.lacks is not None and (given.workers > 1 or given.folder or row.alone):
            folder = given.folder or Path(tempfile.mkdtemp(prefix="trust-"))
            found = run_split(name, row, budget, given.workers, folder, save)
        else:
            found = run_row(row, budget)
        failed += found["failures"]
        save(found)
        state = "; ".join(
            part for part in (verdict(found), found["shortfall"], *found["failed"][:3]) if part
        )
        print(f"{name}: {state} ({found['seconds']} s)", file=sys.stderr, flush=True)
    write_page(read_results(given.results), given.page)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
