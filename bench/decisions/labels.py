"""Does it pay to leave labels in doubt alone, and do floors hold? Chosen on few samples, measured on many others.

Compared are the model as it is, every label at its offset (what `tune_labels` does), and only labels whose own measured
gain is above 0. Floors are asked for of all labels at once. Models are one-vs-rest logistic regressions.

    python -m bench.decisions.labels --seeds 4 -o results/multilabel.json   # and the tables of docs/labels.md
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import betabinom
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import levelhead as lh
from levelhead.core.metrics import METRICS
from levelhead.labels.judge import judge_labels
from levelhead.support.warnings import quiet
from levelhead_lab.paper.markdown import fill, markdown_table

from .real_gains import floors_table

ROOT = Path(__file__).parents[2]
RECORD = Path("results/multilabel.json")
PAGE = ROOT / "docs" / "labels.md"
COMPARED = {"balanced_error": "balanced error", "macro_f1": "100 - macro F1", "error": "error"}
POLICIES = ("as it is", "every label", "own gain above 0")
HELD_OUT = (100, 400)  # samples that offsets are chosen on
FLOORS = (0.5, 0.7, 0.9)  # recalls


def data_sets(seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield name, features, labels: two made sets, and twelve properties of noisy digits."""
    for labels, per_sample, length in ((20, 3, 50), (40, 2, 30)):
        features, table = make_multilabel_classification(
            6000,
            labels + 10,
            n_classes=labels,
            n_labels=per_sample,
            length=length,
            random_state=seed,
        )
        yield f"made, {labels} labels", np.asarray(features), np.asarray(table)
    pixels, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    is_digit = digits[:, None] == np.arange(10)
    even = digits % 2 == 0
    prime = np.isin(digits, [2, 3, 5, 7])
    noisy = pixels + rng.normal(scale=6.0, size=pixels.shape)
    yield "noisy digits, 12 labels", noisy, np.column_stack([is_digit, even, prime]).astype(int)


def losses_of(tuned: lh.Tuned, logits: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """Return the loss on new samples of each policy."""
    assert tuned.evidence is not None
    metric = METRICS[tuned.evidence.metric.name].for_labels()
    gain = metric.loss(tuned.evidence.before) - metric.loss(tuned.evidence.after)
    offset = np.where(gain > 0, tuned.adjustment.offset, 0.0)
    # The same choice, with the labels whose own gain is not above 0 left as they are.
    only_gains = replace(tuned, adjustment=lh.Adjustment.adding(offset))
    every_label = judge_labels(tuned, logits, labels).evidence
    some_labels = judge_labels(only_gains, logits, labels).evidence
    assert every_label is not None
    assert some_labels is not None
    tables = (every_label.before, every_label.after, some_labels.after)
    return tuple(float(np.mean(metric.loss(table))) for table in tables)


def scored_sets(seed: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield name, logits and labels of samples that a model was not trained on."""
    for name, x, y in data_sets(seed):
        order = np.random.default_rng(seed).permutation(len(x))
        train = order[: len(x) // 3]
        rest = order[len(x) // 3 :]
        scale = x.std()
        model = OneVsRestClassifier(LogisticRegression(max_iter=300))
        model.fit(x[train] / scale, y[train])
        yield name, model.decision_function(x[rest] / scale), y[rest]


def measure(logits: np.ndarray, labels: np.ndarray) -> Iterator[tuple[int, str, tuple[float, ...]]]:
    """Yield (held-out samples, metric, loss of each policy)."""
    # All sizes are measured on the same samples, those after the largest.
    new = slice(max(HELD_OUT), None)
    for held in HELD_OUT:
        for metric in COMPARED:
            tuned = lh.tune_labels(logits[:held], labels[:held], metric=metric)
            yield held, metric, losses_of(tuned, logits[new], labels[new] == 1)


def measure_floors(logits: np.ndarray, labels: np.ndarray) -> Iterator[list[float]]:
    """Yield (held-out samples, probability said, the same of so many new samples, whether it holds) of each floor."""
    new = slice(max(HELD_OUT), None)
    for held, floor in product(HELD_OUT, FLOORS):
        goal = lh.Goal("macro_f1", floors=floor)
        tuned = lh.tune_labels(logits[:held], labels[:held], metric=goal)
        for asked in tuned.floors:
            here = labels[:held, asked.index] == 1
            there = labels[new, asked.index] == 1
            right_here = count_positive(tuned, logits[:held][here], asked.index)
            right_there = count_positive(tuned, logits[new][there], asked.index)
            least = math.ceil(floor * there.sum() - 1e-9)
            # A recall that is spread as `tune_labels` takes it to be, on as many samples as there are.
            wrong_here = here.sum() - right_here
            spread = betabinom(there.sum(), max(right_here, 1), wrong_here + 1)
            of_new = float(spread.sf(least - 1))
            holds = float(right_there >= least)
            yield [held, round(asked.probability, 3), round(of_new, 3), holds]


def count_positive(tuned: lh.Tuned, logits: np.ndarray, index: int) -> int:
    """Return how many samples are predicted to have a label."""
    return int((tuned.apply(logits)[:, index] > 0).sum())


def labels_table(rows: list[dict[str, Any]]) -> str:
    """Return the mean loss of each policy over all sets and sizes, in points, as Markdown."""
    lines = []
    for metric, title in COMPARED.items():
        of_metric = [row["mean"] for row in rows if row["metric"] == metric]
        means = [100 * np.mean([mean[policy] for mean in of_metric]) for policy in POLICIES]
        lines.append((title, [f"{mean:.1f}" for mean in means]))
    return markdown_table(["", *POLICIES], lines)


def main() -> None:
    """Measure, print the table of docs/labels.md, and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    rows: dict[tuple[str, int, str], list[tuple[float, ...]]] = {}
    floors = []
    with quiet():
        for seed in range(options.seeds):
            for name, logits, labels in scored_sets(seed):
                for held, metric, losses in measure(logits, labels):
                    rows.setdefault((name, held, metric), []).append(losses)
                for measured in measure_floors(logits, labels):
                    # Labels of one model are alike, so it is one draw.
                    floors.append([f"{name}, seed {seed}", *measured])
    table = []
    for (name, held, metric), losses in rows.items():
        mean = np.mean(losses, axis=0).round(4).tolist()
        row = {"set": name, "held_out": held, "metric": metric}
        row["mean"] = dict(zip(POLICIES, mean, strict=True))
        if options.seeds > 1:
            spread = np.std(losses, axis=0, ddof=1).round(4).tolist()
            row["spread"] = dict(zip(POLICIES, spread, strict=True))
        table.append(row)
    print(labels_table(table))
    print(floors_table({"floors": floors}))
    if options.out:
        facts = {
            "command": f"python -m bench.decisions.labels --seeds {options.seeds} -o {options.out}",
            "seeds": options.seeds,
            "machine": platform.machine(),
            "seconds": round(time.perf_counter() - began, 1),
        }
        record = facts | {"rows": table, "floors": floors}
        options.out.write_text(json.dumps(record) + "\n")
    if options.out == RECORD:
        fill(PAGE, "in doubt", labels_table(table))
        fill(PAGE, "floors", floors_table({"floors": floors}))


if __name__ == "__main__":
    main()
