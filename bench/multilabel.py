"""Does it pay to leave labels in doubt alone? Offsets chosen on few held-out samples, measured on many others.

Compared are the model as it is, every label at its best offset (what `tune` does), only labels whose own expected gain
is above 0, and only those whose interval of the gain lies above 0. Models are one-vs-rest logistic regressions.

    python bench/multilabel.py --seeds 4 -o results/multilabel.json
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from levelhead.labels.cuts import label_loss
from levelhead.labels.tune_labels import tune_labels
from levelhead.support.warnings import quiet

METRICS = ("balanced_error", "macro_f1", "error")
POLICIES = ("as it is", "every label", "expected gain above 0", "interval above 0")


def data_sets(seed):
    """Yield name, features, labels: two made sets, and twelve properties of noisy digits."""
    for labels, each, length in ((20, 3, 50), (40, 2, 30)):
        made = make_multilabel_classification(
            6000, labels + 10, n_classes=labels, n_labels=each, length=length, random_state=seed
        )
        yield f"made, {labels} labels", *made
    digits, rng = load_digits(), np.random.default_rng(seed)
    is_digit = digits.target[:, None] == np.arange(10)
    even, prime = digits.target % 2 == 0, np.isin(digits.target, [2, 3, 5, 7])
    noisy = digits.data + rng.normal(scale=6.0, size=digits.data.shape)
    yield "noisy digits, 12 labels", noisy, np.column_stack([is_digit, even, prime]).astype(int)


def mean_loss(metric, logits, labels, offset):
    """Return the mean over the labels of the loss at these offsets."""
    predicted, true = logits + offset > 0, labels == 1
    return float(
        np.mean(
            [
                label_loss(metric, predicted[t, k].mean(), predicted[~t, k].mean(), t.mean())
                for k, t in enumerate(true.T)
                if t.any() and not t.all()
            ]
        )
    )


def measure(seed):
    """Yield (set, held-out samples, metric, loss of each policy)."""
    for name, x, y in data_sets(seed):
        order = np.random.default_rng(seed).permutation(len(x))
        train, rest, scale = order[: len(x) // 3], order[len(x) // 3 :], x.std()
        model = OneVsRestClassifier(LogisticRegression(max_iter=300)).fit(
            x[train] / scale, y[train]
        )
        logits, labels, first = model.decision_function(x[rest] / scale), y[rest], 400
        for held in (100, 400):
            for metric in METRICS:
                tuned = tune_labels(logits[:held], labels[:held], metric=metric, bootstrap=200)
                best = np.array(tuned.offset)
                gain = np.array([label.gain or 0 for label in tuned.labels])
                low = np.array(
                    [label.interval[0] if label.interval else 0 for label in tuned.labels]
                )
                offsets = (0 * best, best, best * (gain > 0), best * (low > 0))
                yield (
                    name,
                    held,
                    metric,
                    [mean_loss(metric, logits[first:], labels[first:], one) for one in offsets],
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("-o", "--out", type=Path)
    given, began, rows = parser.parse_args(), time.perf_counter(), {}
    with quiet():
        for seed in range(given.seeds):
            for name, held, metric, losses in measure(seed):
                rows.setdefault((name, held, metric), []).append(losses)
    table = [
        {
            "set": name,
            "held_out": held,
            "metric": metric,
            "mean": dict(zip(POLICIES, np.mean(losses, axis=0).round(4).tolist(), strict=True)),
            "spread": dict(
                zip(POLICIES, np.std(losses, axis=0, ddof=1).round(4).tolist(), strict=True)
            ),
        }
        for (name, held, metric), losses in rows.items()
    ]
    print("| loss x 100 | " + " | ".join(POLICIES) + " |\n|---" * 1 + "|---" * len(POLICIES) + "|")
    for metric in METRICS:
        means = [
            np.mean([row["mean"][policy] for row in table if row["metric"] == metric])
            for policy in POLICIES
        ]
        print(f"| {metric} | " + " | ".join(f"{100 * mean:.1f}" for mean in means) + " |")
    if given.out:
        facts = {
            "command": f"python bench/multilabel.py --seeds {given.seeds} -o {given.out}",
            "seeds": given.seeds,
            "machine": platform.machine(),
            "seconds": round(time.perf_counter() - began, 1),
        }
        given.out.write_text(json.dumps(facts | {"rows": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
