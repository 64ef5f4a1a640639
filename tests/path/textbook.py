"""Metrics as textbooks write them; test_metrics.py holds each to scikit-learn."""

import numpy as np


def score(
    metric: str, labels: np.ndarray, predicted: np.ndarray, cost: np.ndarray, weights=None
) -> float:
    """Return a metric over the classes that have a sample; cost is [K, K], row true, column predicted."""
    table = np.zeros(cost.shape)
    np.add.at(table, (labels, predicted), 1.0 if weights is None else weights)
    have, called, right, n = table.sum(axis=1), table.sum(axis=0), np.diag(table), table.sum()
    recall = right[have > 0] / have[have > 0]
    spread = [
        max(0.0, 1 - share @ share) for share in (have / n, called / n)
    ]  # 0: all of one class
    accuracy, chance = right.sum() / n, have @ called / n**2
    return float(
        {
            "error": 1 - accuracy,
            "balanced_error": 1 - recall.mean(),
            "macro_f1": (2 * right / np.maximum(have + called, 1e-300))[have > 0].mean(),
            "mcc": (accuracy - chance) / np.sqrt(np.prod(spread)) if min(spread) > 1e-12 else 0.0,
            "kappa": (accuracy - chance) / (1 - chance) if chance < 1 - 1e-12 else 0.0,
            "g_mean": np.prod(recall) ** (1 / len(recall)),
            "worst_recall": recall.min(),
            "cost": (table * cost).sum() / n,
        }[metric]
    )
