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
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends the workers too
    failed = 0
    for name in options.only:
        row = importlib.import_module(f".{name}", __package__).ROW
        budget = Budget(options.profile, 60 * options.minutes)

        def save(entry: dict[str, Any], name: str = name) -> None:
            results = read_results(options.results) | {name: entry}
            write_results(
                {row_name: results[row_name] for row_name in ROWS if row_name in results},
                options.results,
            )

        # A row is run here, unless several processes share it or it must begin in a new one.
        if row.lacks is not None and (options.workers > 1 or options.folder or row.alone):
            folder = options.folder or Path(tempfile.mkdtemp(prefix="trust-"))
            results_of_row = run_split(name, row, budget, options.workers, folder, save)
        else:
            results_of_row = run_row(row, budget)
        failed += results_of_row["failures"]
        save(results_of_row)
        state = "; ".join(
            part
            for part in (
                verdict(results_of_row),
                results_of_row["shortfall"],
                *results_of_row["failed"][:3],
            )
            if part
        )
        print(f"{name}: {state} ({results_of_row['seconds']} s)", file=sys.stderr, flush=True)
    write_page(read_results(options.results), options.page)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
