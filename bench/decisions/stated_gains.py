"""Is the stated gain the gain that comes? Worlds drawn by a program, where the truth is known.

    python -m bench.decisions.stated_gains --draws 400   # the study -> results/stated-gains.json, docs/decisions.md
    python -m bench.decisions.stated_gains               # the table alone, from the results

A world has a normal distribution for each class, training counts with a long tail, and a classifier that knows both but
for a small error of its own in each class. Of each world some samples are held out, `tune` states a gain, and many new
samples tell what it is. Classes that no held-out sample has are left out of both, as nobody can state anything of them.
Next to it a shift that is not fitted is judged on the held-out samples: what it is off by is due to the samples alone.
"""

import argparse
import json
import platform
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import levelhead as lh
from levelhead.core.metrics import METRICS as METRICS_OF_TABLES
from levelhead.support import atomic
from levelhead_lab.paper.markdown import fill, markdown_table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "stated-gains.json"
PAGE = ROOT / "docs" / "decisions.md"
METRICS = {"balanced_error": "balanced accuracy", "macro_f1": "macro-F1"}
SIZES = (100, 300, 1000)  # held-out samples
TEST = 20_000


class World(NamedTuple):
    """How hard a problem is."""

    classes: int
    ratio: float  # of the largest class to the smallest, in training
    separation: float  # of the classes' means, in standard deviations


WORLDS = (World(5, 20, 0.8), World(10, 100, 0.7))


class Outcome(NamedTuple):
    """One draw: what was stated and what came, in points."""

    stated: float
    came: float
    covered: bool  # by the interval of 95 %
    unfitted: float  # stated minus what came, of a shift that no sample has a say in


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--draws", type=int, help="worlds of each kind; only the table if not given"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes")
    options = parser.parse_args()
    if options.draws is not None:
        results = study(options.draws, options.workers)
        with atomic.atomic_open(RESULTS) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    fill(PAGE, "worlds", table(results))
    print(table(results))


def study(draws: int, workers: int) -> dict[str, Any]:
    """Measure every cell; return them with what they were measured on."""
    cells = []
    with ProcessPoolExecutor(workers) as pool:
        for metric in METRICS:
            for world in WORLDS:
                for size in SIZES:
                    run = partial(draw_one, world, size, metric)
                    outcomes = [
                        outcome for outcome in pool.map(run, range(draws)) if outcome is not None
                    ]
                    cells.append(summarize(metric, world, size, outcomes))
                    print(cells[-1], flush=True)
    machine = {"machine": platform.machine(), "numpy": np.__version__}
    return {"draws": draws, "on": machine, "cells": cells}


def draw_one(world: World, size: int, metric: str, seed: int) -> Outcome | None:
    """Return what was stated and what came of one world; None if it holds a single class out."""
    rng = np.random.default_rng(seed)
    steps = np.arange(world.classes) / (world.classes - 1)
    counts = np.maximum(2, 2000 * world.ratio**-steps).astype(int)
    means = rng.normal(size=(world.classes, world.classes)) * world.separation
    mistakes = 0.3 * rng.normal(size=world.classes)  # of the classifier, in each class's score

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.choice(world.classes, n, p=counts / counts.sum())
        x = means[labels] + rng.normal(size=(n, world.classes))
        return x @ means.T - 0.5 * (means**2).sum(1) + np.log(counts) + mistakes, labels

    logits, labels = draw(size)
    if len(np.unique(labels)) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes without a held-out sample, among others
        tuned = lh.tune(logits, labels, counts, metric=metric)
    new_logits, new_labels = draw(TEST)
    classes = np.unique(labels)
    class_is_known = np.isin(new_labels, classes)
    new_logits, new_labels = new_logits[class_is_known], new_labels[class_is_known]

    def gain(x: np.ndarray, y: np.ndarray, offset: np.ndarray) -> float:
        before = score(metric, y, x.argmax(axis=1), classes)
        return score(metric, y, (x + offset).argmax(axis=1), classes) - before

    came = gain(new_logits, new_labels, tuned.adjustment.offset)
    shift = METRICS_OF_TABLES[metric].usual * np.log(counts.max() / counts)
    unfitted = gain(logits, labels, shift) - gain(new_logits, new_labels, shift)
    assert tuned.evidence is not None  # there were labels
    assert tuned.gain is not None
    low, high = (100 * bound for bound in tuned.gain_interval or (0.0, 0.0))
    if not tuned.evidence.changed:  # it states 0, without an interval
        low, high = -2.0, 2.0
    return Outcome(100 * tuned.gain, came, low <= came <= high, unfitted)


def score(metric: str, labels: np.ndarray, predicted: np.ndarray, classes: np.ndarray) -> float:
    """Return balanced accuracy or macro-F1 over some classes, in percent, in plain numpy."""
    size = max(labels.max(), predicted.max()) + 1
    right = np.bincount(labels[labels == predicted], minlength=size)[classes]
    samples_of = np.bincount(labels, minlength=size)[classes]
    predicted_as = np.bincount(predicted, minlength=size)[classes]
    if metric == "balanced_error":
        return 100 * float((right / samples_of).mean())
    return 100 * float((2 * right / (samples_of + predicted_as)).mean())


def summarize(metric: str, world: World, size: int, outcomes: list[Outcome]) -> dict[str, Any]:
    """Return a cell: how far stated gains are off on average, and how often their intervals hold."""
    off = np.array([outcome.stated - outcome.came for outcome in outcomes])
    unfitted = np.array([outcome.unfitted for outcome in outcomes])
    return {
        "metric": metric,
        "classes": world.classes,
        "ratio": world.ratio,
        "held out": size,
        "came": round(float(np.mean([outcome.came for outcome in outcomes])), 2),
        "bias": round(float(off.mean()), 2),
        "error": round(_error(off), 2),
        "unfitted": round(float(unfitted.mean()), 2),
        "fitting": round(float((off - unfitted).mean()), 2),
        "error of fitting": round(_error(off - unfitted), 2),
        "covered": round(100 * float(np.mean([outcome.covered for outcome in outcomes])), 1),
    }


def _error(values: np.ndarray) -> float:
    """Return the standard error of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def table(results: dict[str, Any]) -> str:
    """Return the table of the page: a row for each metric, world and size."""
    rows = []
    for cell in results["cells"]:
        title = (
            f"{METRICS[cell['metric']]}, {cell['classes']} classes, ratio {cell['ratio']:g}, "
            f"{cell['held out']:,} held out"
        )
        bias = f"{cell['bias']:+.2f} ± {cell['error']:.2f}"
        fitting = f"{cell['fitting']:+.2f} ± {cell['error of fitting']:.2f}"
        covered = f"{cell['covered']:.0f} %"
        rows.append((title, [f"{cell['came']:.1f}", bias, fitting, covered]))
    head = [
        "",
        "gain that comes",
        "stated minus that",
        "less an unfitted shift's",
        "interval holds",
    ]
    return f"{markdown_table(head, rows)}\n\n{results['draws']} worlds a line, in points; intervals of 95 %."


if __name__ == "__main__":
    main()
