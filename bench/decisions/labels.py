"""Does it pay to leave labels in doubt alone? Offsets chosen on few held-out samples, measured on many others.

Compared are the model as it is, every label at its offset (what `tune_labels` does), and only labels whose own measured
gain is above 0. Models are one-vs-rest logistic regressions.

    python -m bench.decisions.labels --seeds 4 -o results/multilabel.json   # and the table of docs/labels.md
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import levelhead as lh
from levelhead.core.metrics import METRICS
from levelhead.labels.judge import judge_labels
from levelhead.support.warnings import quiet
from levelhead_lab.paper.markdown import fill, markdown_table

ROOT = Path(__file__).parents[2]
RECORD = Path("results/multilabel.json")
PAGE = ROOT / "docs" / "labels.md"
COMPARED = {"balanced_error": "balanced error", "macro_f1": "100 - macro F1", "error": "error"}
POLICIES = ("as it is", "every label", "own gain above 0")


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


def measure(seed: int) -> Iterator[tuple[str, int, str, tuple[float, ...]]]:
    """Yield (set, held-out samples, metric, loss of each policy)."""
    for name, x, y in data_sets(seed):
        order = np.random.default_rng(seed).permutation(len(x))
        train = order[: len(x) // 3]
        rest = order[len(x) // 3 :]
        scale = x.std()
        model = OneVsRestClassifier(LogisticRegression(max_iter=300))
        model.fit(x[train] / scale, y[train])
        logits = model.decision_function(x[rest] / scale)
        labels = y[rest]
        for held in (100, 400):
            for metric in COMPARED:
                tuned = lh.tune_labels(logits[:held], labels[:held], metric=metric)
                # Both sizes are measured on the same samples, those after the larger.
                yield name, held, metric, losses_of(tuned, logits[400:], labels[400:] == 1)


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
    with quiet():
        for seed in range(options.seeds):
            for name, held, metric, losses in measure(seed):
                rows.setdefault((name, held, metric), []).append(losses)
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
    if options.out:
        facts = {
            "command": f"python -m bench.decisions.labels --seeds {options.seeds} -o {options.out}",
            "seeds": options.seeds,
            "machine": platform.machine(),
            "seconds": round(time.perf_counter() - began, 1),
        }
        options.out.write_text(json.dumps(facts | {"rows": table}, indent=1) + "\n")
    if options.out == RECORD:
        fill(PAGE, "in doubt", labels_table(table))


if __name__ == "__main__":
    main()
