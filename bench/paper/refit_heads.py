"""Fit heads again on the features of stored networks, and write their test errors.

python -m bench.paper.refit_heads [--results DIR] [--companions RUN.safetensors ...]

Gamma of RS is that of the companion run, which holds out a tenth of the training images. Companions are snapshots of
such runs, as `levelhead reproduce` and `levelhead train --hold-out 0.1` leave them: what is fitted on their hold-out
is measured, too. They are too large for results/, so without them what was measured before is kept. Seconds on a CPU.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from levelhead.support import atomic
from levelhead.support.warnings import quiet
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper.cells import companion_gamma, load_records
from levelhead_lab.paper.record import SHIPPED_COLUMN, whole_snapshots
from levelhead_lab.paper.refit import (
    WEIGHT_DECAY,
    companion_errors,
    halves_errors,
    refitted_errors,
)


def measure(results: Path) -> dict[str, Any]:
    """Return, by method of the stored networks, each fit's test error and what halves of the test give."""
    records = load_records(results / "records")
    networks = {}
    for method, snapshot in whole_snapshots(results / "networks").items():
        gamma = companion_gamma(records, SHIPPED_COLUMN, method)
        if gamma is None:
            raise SystemExit(f"no record of {SHIPPED_COLUMN}:{method} with a hold-out")
        with quiet():
            networks[method] = {
                "gamma": gamma,
                "errors": refitted_errors(snapshot, gamma),
                "unlabelled": halves_errors(snapshot),
            }
    return {
        "command": "python -m bench.paper.refit_heads",
        "column": SHIPPED_COLUMN,
        "weight_decay": WEIGHT_DECAY,
        "errors": "in % on test",
        "networks": networks,
    }


def measure_companions(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return column, method and test errors of each companion."""
    companions = []
    for path in paths:
        snapshot = Snapshot.load(path)
        spec = snapshot.meta["spec"]
        with quiet():
            errors = companion_errors(snapshot)
        column = f"{spec['data']}:{spec['ratio']:g}"
        companions.append({"column": column, "method": spec["method"], "errors": errors})
    return companions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--companions", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    place = args.results / "heads.json"
    before = {}
    if place.is_file():
        before = json.loads(place.read_text())
    heads = measure(args.results)
    companions = measure_companions(args.companions) or before.get("companions", [])
    heads["companions"] = companions
    atomic.write(place, json.dumps(heads, indent=1) + "\n")


if __name__ == "__main__":
    main()
