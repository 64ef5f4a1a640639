"""Fit heads again on the features of the stored networks, and write their test errors.

python -m bench.paper.refit_heads [results]

Gamma of RS is that of the companion run, which holds out a tenth of the training images. Seconds on a CPU.
"""

import json
import sys
from pathlib import Path

from levelhead.support import atomic
from levelhead.support.warnings import quiet
from levelhead_lab.paper.cells import companion_gamma, load_records
from levelhead_lab.paper.record import SHIPPED_COLUMN, whole_snapshots
from levelhead_lab.paper.refit import WEIGHT_DECAY, halves_errors, refitted_errors


def measure(results: Path) -> dict:
    """Return what `results/heads.json` holds: by method, each fit's test error and what halves of the test give."""
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


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    atomic.write(folder / "heads.json", json.dumps(measure(folder), indent=1) + "\n")
