"""Samples that are made for tests, and metrics as scikit-learn and naive numpy have them."""

import warnings

import numpy as np
from sklearn import metrics as sk

COUNTS = np.array([1000, 300, 90, 30])
COST = np.array(
    [[0.0, 1.0, 2.0, 1.0], [3.0, 0.0, 1.0, 1.0], [5.0, 4.0, 0.5, 2.0], [9.0, 8.0, 7.0, 0.0]]
)


def calibrated(
    seed: int,
    n: int,
    counts: np.ndarray = COUNTS,
    *,
    shares: np.ndarray | None = None,
    signal: float = 1.5,
) -> tuple[np.ndarray, np.ndarray]:
    """Return logits [n, K] that are calibrated for training counts, and labels [n].

    Of class k, features are unit normals around signal e_k, so log p(x | k) is signal x_k but for a
    constant. Labels are drawn with shares [K], those of the counts if None; of each class at least 2.
    """
    rng = np.random.default_rng(seed)
    classes = len(counts)
    shares = counts / counts.sum() if shares is None else np.asarray(shares)
    first = np.repeat(np.arange(classes), 2)[: n // 2]
    labels = np.append(first, rng.choice(classes, n - len(first), p=shares))
    features = signal * np.eye(classes)[labels] + rng.normal(size=(n, classes))
    return signal * features + np.log(counts / counts.sum()), labels


def level(seed: int, n: int, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return logits of a model that is level: calibrated for even shares, which its samples have."""
    return calibrated(seed, n, np.full(classes, 100), signal=1.3)


def value_by_scikit_learn(
    metric: str,
    labels: np.ndarray,
    predicted: np.ndarray,
    cost: np.ndarray = COST,
    weights: np.ndarray | None = None,
) -> float:
    """Return a metric as people know it, over the classes that have a sample."""
    present = np.unique(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"labels": present, "sample_weight": weights, "zero_division": 0.0}
        recall = sk.recall_score(labels, predicted, average=None, **options)
        if metric == "error":
            return sk.zero_one_loss(labels, predicted, sample_weight=weights)
        if metric == "balanced_error":
            return 1 - recall.mean()
        if metric == "macro_f1":
            return sk.f1_score(labels, predicted, average="macro", **options)
        if metric == "mcc":
            return sk.matthews_corrcoef(labels, predicted, sample_weight=weights)
        if metric == "kappa":
            return np.nan_to_num(sk.cohen_kappa_score(labels, predicted, sample_weight=weights))
        if metric == "g_mean":
            return np.prod(recall) ** (1 / len(recall))
        if metric == "worst_recall":
            return recall.min()
        assert metric == "cost", metric
        return np.average(cost[labels, predicted], weights=weights)


LOSSES = ("error", "balanced_error", "cost")  # what people know as a loss; higher is worse


def loss_by_scikit_learn(metric: str, *arrays, **options) -> float:
    """Return a metric so that lower is better."""
    value = value_by_scikit_learn(metric, *arrays, **options)
    return value if metric in LOSSES else 1 - value


def loss_by_hand(
    metric: str,
    labels: np.ndarray,
    predicted: np.ndarray,
    cost: np.ndarray = COST,
    weights: np.ndarray | None = None,
) -> float:
    """Return the same as textbooks write it, a hundred times as fast; `test_metrics.py` compares."""
    confusion = np.zeros(cost.shape)
    np.add.at(confusion, (labels, predicted), 1.0 if weights is None else weights)
    have, called, right = confusion.sum(axis=1), confusion.sum(axis=0), np.diag(confusion)
    n = confusion.sum()
    recall = right[have > 0] / have[have > 0]
    accuracy, chance = right.sum() / n, have @ called / n**2
    if metric == "error":
        return 1 - accuracy
    if metric == "balanced_error":
        return 1 - recall.mean()
    if metric == "macro_f1":
        return 1 - (2 * right / np.maximum(have + called, 1e-300))[have > 0].mean()
    if metric == "mcc":
        spread = [max(0.0, 1 - share @ share) for share in (have / n, called / n)]
        return 1 - (accuracy - chance) / np.sqrt(np.prod(spread)) if min(spread) > 1e-12 else 1.0
    if metric == "kappa":
        return 1 - (accuracy - chance) / (1 - chance) if chance < 1 - 1e-12 else 1.0
    if metric == "g_mean":
        return 1 - np.prod(recall) ** (1 / len(recall))
    if metric == "worst_recall":
        return 1 - recall.min()
    assert metric == "cost", metric
    return (confusion * cost).sum() / n
