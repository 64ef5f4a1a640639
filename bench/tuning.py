"""Quality of each way to choose gamma: regret against the best gamma on a very large test set, and coverage.

    python bench/tuning.py                            # the study -> results/tuning.json
    python bench/tuning.py --snapshots A.safetensors  # the same on real networks, added to the file
    python bench/tuning.py --docs --plot              # tables and pictures of docs/regret.md from the file

Regret is error(chosen gamma) - error(best gamma) on unseen, balanced data, in points.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from _tuning_cases import FAMILIES, Case, snapshot
from _tuning_page import STRENGTHS, write

from levelhead import gamma_path, tune
from levelhead.choice.objective import Grid, Objective, ShareMismatch
from levelhead.core.rules import find_path_rule
from levelhead.path.envelope import Envelope, compute_envelope
from levelhead.support import atomic

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "tuning.json"


def holdouts(counts: np.ndarray, room: np.ndarray | None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the hold-outs of a case: of a long tail as many per class as there are; balanced ones only if complete."""
    size = len(counts)
    for share in (10, 30):
        wanted = np.maximum(1, counts * share // 100)
        yield f"{share} % of the long tail", wanted if room is None else np.minimum(wanted, room)
    yield from (
        (f"{n:,} balanced", np.full(size, n // size)) for n in (200, 1000, 5000) if n >= size
    )


def match_shares(changes: Envelope, prior: np.ndarray) -> float:
    """Return what `match_prior` chooses."""
    mismatch = ShareMismatch(changes, prior, Grid.between(changes.gamma, changes.range))
    return mismatch.grid.choose(mismatch.values())[0]


def study_case(seed: int, make: Callable[[int], Case]) -> dict[str, dict[str, float]]:
    """Return the regret in points of every choice at every hold-out; for the first 40 seeds, the coverage too."""
    case = make(seed)
    classes = len(case.counts)
    uniform = np.full(classes, 1 / classes)
    truth = Objective(gamma_path(case.logits, case.labels, case.counts), uniform)
    curve = truth.grid.curve(truth.error())
    lowest, best = curve.values.min(), curve.plateau()
    error = lambda gamma: float(curve.at(gamma))  # noqa: E731
    result: dict[str, dict[str, float]] = {}
    for name, sizes in holdouts(case.counts, case.room):
        try:
            logits, labels = case.draw(sizes)
            free, _ = case.draw(np.full(classes, min(1000, len(case.labels) // 4) // classes))
        except LookupError:
            continue
        path = gamma_path(logits, labels, case.counts)
        own = Objective(path, uniform, path.envelope)
        changes = compute_envelope(
            free, find_path_rule("rescale").direction(case.counts), (0.0, 2.0)
        )
        other = Objective(path, uniform, changes, unlabelled=True)
        wrong = own.error()
        chosen = {
            f"strength {s:g}": own.grid.choose(own.values(wrong, strength=s))[0] for s in STRENGTHS
        }
        chosen["11-point grid"] = min(
            np.linspace(0, 1, 11), key=lambda g: float(own.grid.curve(wrong).at(g))
        )
        chosen["match_prior, hold-out"] = match_shares(path.envelope, sizes / sizes.sum())
        chosen["match_prior, unlabelled"] = match_shares(changes, uniform)
        chosen["default + unlabelled"] = other.grid.choose(other.values(other.error()))[0]
        chosen["gamma = 0"] = 0.0
        found = {key: 100 * (error(gamma) - lowest) for key, gamma in chosen.items()}
        if seed < 40:
            tuned = tune(logits, labels, case.counts, bootstrap=200, rng=seed)
            gain = error(0.0) - error(tuned.gamma)
            assert tuned.interval is not None
            assert tuned.gain_interval is not None
            assert tuned.gain is not None
            assert tuned.balanced_error is not None
            assert tuned.balanced_error_at_zero is not None
            found["gamma in interval"] = float(
                tuned.interval[0] <= best[1] and best[0] <= tuned.interval[1]
            )
            found["gain in interval"] = float(
                tuned.gain_interval[0] <= gain <= tuned.gain_interval[1]
            )
            found["bias of gain"] = 100 * (tuned.gain - gain)
            found["bias of naive gain"] = 100 * (
                tuned.balanced_error_at_zero - tuned.balanced_error - gain
            )
        result[name] = found
    return result


def study(make: Callable[[int], Case], draws: int, jobs: int) -> dict[str, dict[str, list[float]]]:
    """Return {hold-out: {choice: [mean, standard error]}} over the draws."""
    with ProcessPoolExecutor(jobs, initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
        every = list(pool.map(partial(study_case, make=make), range(draws)))
    summary: dict[str, dict[str, list[float]]] = {}
    for name in every[0]:
        table = {
            key: np.array([found[name][key] for found in every if key in found[name]])
            for key in every[0][name]
        }
        summary[name] = {
            key: [round(float(x.mean()), 4), round(float(x.std(ddof=1) / np.sqrt(len(x))), 4)]
            for key, x in table.items()
        }
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--snapshots", nargs="+", default=[], help="snapshot files with a `test` split"
    )
    parser.add_argument("--draws", type=int, help="instead of each family's own number")
    parser.add_argument("--only", default="", help="families whose name holds this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--docs", action="store_true", help="write the tables of docs/regret.md from the results"
    )
    parser.add_argument("--plot", action="store_true", help="draw its pictures")
    options = parser.parse_args()
    if options.docs or options.plot:
        write(json.loads(RESULTS.read_text()), pictures=options.plot, tables=options.docs)
        return
    families = (
        FAMILIES
        if not options.snapshots
        else {Path(path).stem: (partial(snapshot, path=path), 40) for path in options.snapshots}
    )
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, (make, draws) in families.items():
        if options.only not in name:
            continue
        started = time.perf_counter()
        draws = options.draws or draws
        found = study(make, draws, options.jobs)
        results[name] = {
            "draws": draws,
            "seconds": round(time.perf_counter() - started, 1),
            "jobs": options.jobs,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "numpy": np.__version__,
            "command": " ".join(["python", "bench/tuning.py", *sys.argv[1:]]),
            "regret": found,
        }
        RESULTS.parent.mkdir(exist_ok=True)
        atomic.write(RESULTS, json.dumps(results, indent=1) + "\n")
        print(name, f"{draws} draws, {results[name]['seconds']} s")
        for hold, table in found.items():
            print(
                f"  {hold:24}",
                "  ".join(f"{key} {mean:.2f}±{se:.2f}" for key, (mean, se) in table.items()),
            )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
