"""The models of the study of decisions, each trained plainly, with class weights, and on resampled sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelhead.support.logits import log_softmax

TREES = 100
HIDDEN, STEPS, BATCH = 64, 800, 64
TRAININGS = ("plain", "class weights", "over-sampling", "SMOTE")
MODELS = ("logistic", "linear SVM", "forest", "boosting", "network")
Rows = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Job:
    """One training: how, on which rows, of which parts [N, d] the scores are wanted, and the seed."""

    training: str
    train: Rows
    parts: tuple[np.ndarray, ...]
    seed: int

    @property
    def rows(self) -> Rows:
        """The rows trained on, resampled where that is the way."""
        resample = {"over-sampling": over_sample, "SMOTE": smote}.get(self.training)
        return self.train if resample is None else resample(*self.train, self.seed)

    @property
    def weights(self) -> str | None:
        """The class weights by scikit-learn's name."""
        return "balanced" if self.training == "class weights" else None


def fit_scores(model: str, jobs: Sequence[Job]) -> list[list[np.ndarray]]:
    """Train a model once per job, and return its class scores [N, K] of each part, job by job."""
    if model == "network":
        return _network_scores(jobs)
    estimators = (_estimator(model, job.weights, job.seed).fit(*job.rows) for job in jobs)
    return [
        [_scores(fitted, part) for part in job.parts]
        for fitted, job in zip(estimators, jobs, strict=True)
    ]


def over_sample(features: np.ndarray, labels: np.ndarray, seed: int) -> Rows:
    """Repeat samples at random until every class has as many as the largest."""
    rng, sizes = np.random.default_rng(seed), np.bincount(labels)
    more = [rng.choice(np.flatnonzero(labels == c), sizes.max() - n) for c, n in enumerate(sizes)]
    rows = np.concatenate([np.arange(len(labels)), *more])
    return features[rows], labels[rows]


def smote(features: np.ndarray, labels: np.ndarray, seed: int, neighbors: int = 5) -> Rows:
    """Add points between a sample and one of its nearest neighbors of the same class, up to the largest class.

    Chawla et al., SMOTE, 2002. A class has as many neighbors as there are, if fewer than `neighbors`. The points are
    those of imbalanced-learn 0.14.2 with the same seed, to the last bit, where each class has enough neighbors.
    """
    from sklearn.neighbors import NearestNeighbors

    sizes, parts = np.bincount(labels), [(features, labels)]
    for c, n in enumerate(sizes):
        own, missing, rng = features[labels == c], sizes.max() - n, np.random.RandomState(seed)
        k = min(neighbors, n - 1)
        nearest = (
            NearestNeighbors(n_neighbors=k + 1)
            .fit(own)
            .kneighbors(own, return_distance=False)[:, 1:]
        )
        start, which = np.divmod(rng.randint(0, n * k, missing), k)
        way = rng.uniform(size=(missing, 1))
        made = own[start] + way * (own[nearest[start, which]] - own[start])
        parts.append((made.astype(features.dtype), np.full(missing, c)))
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def _estimator(model: str, weights: str | None, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if model == "logistic":
        return LogisticRegression(max_iter=500, class_weight=weights)
    if model == "linear SVM":
        return LinearSVC(class_weight=weights, random_state=seed)
    if model == "forest":
        return RandomForestClassifier(TREES, class_weight=weights, random_state=seed)
    return HistGradientBoostingClassifier(
        max_iter=30,
        learning_rate=0.15,
        max_leaf_nodes=15,
        early_stopping=False,
        class_weight=weights,
        random_state=seed,
    )


def _scores(estimator: Any, features: np.ndarray) -> np.ndarray:
    """Return scores [N, K]: the decision function's, or a forest's log-probabilities with one vote more per class."""
    if hasattr(estimator, "decision_function"):
        values = estimator.decision_function(features)
        return np.outer(values, [-0.5, 0.5]) if values.ndim == 1 else values
    probability = estimator.predict_proba(features)
    return np.log((TREES * probability + 1) / (TREES + probability.shape[1]))


def _network_scores(jobs: Sequence[Job]) -> list[list[np.ndarray]]:
    """Train a network with one hidden layer of 64 per job, all at once, and return their logits of each part.

    The networks share each step of the optimizer, which treats every weight by itself, and nothing else.
    """
    import torch

    rng, rows = np.random.default_rng(jobs[0].seed), [job.rows for job in jobs]
    (_, inputs), size = rows[0][0].shape, int(rows[0][1].max()) + 1
    sizes = [
        (len(jobs), inputs, HIDDEN),
        (len(jobs), 1, HIDDEN),
        (len(jobs), HIDDEN, size),
        (len(jobs), 1, size),
    ]
    reach = np.repeat([inputs**-0.5, HIDDEN**-0.5], 2)  # as torch.nn.Linear starts
    start = [rng.uniform(-end, end, shape) for end, shape in zip(reach, sizes, strict=True)]
    parameters = [torch.tensor(value, dtype=torch.float32, requires_grad=True) for value in start]

    def logits(x: torch.Tensor, of: slice = slice(None)) -> torch.Tensor:
        first, first_bias, second, second_bias = (parameter[of] for parameter in parameters)
        return torch.relu(x @ first + first_bias) @ second + second_bias

    rate = 2e-3
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    batches = [_batches(len(y), rng) for _, y in rows]
    data = [(torch.tensor(x), torch.tensor(y)) for x, y in rows]
    weights = torch.ones(len(jobs), size)
    for i, (job, (_, y)) in enumerate(zip(jobs, rows, strict=True)):
        if job.weights is not None:
            weights[i] = torch.tensor(len(y) / size / np.bincount(y))
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + np.cos(np.pi * step / STEPS)) / 2
        x = torch.stack([own[0][batch[step]] for own, batch in zip(data, batches, strict=True)])
        y = torch.stack([own[1][batch[step]] for own, batch in zip(data, batches, strict=True)])
        weight = weights.gather(1, y)
        loss = torch.nn.functional.cross_entropy(
            logits(x).flatten(0, 1), y.flatten(), reduction="none"
        ).view_as(y)
        optimizer.zero_grad()
        ((loss * weight).sum(1) / weight.sum(1)).sum().backward()
        optimizer.step()
    with torch.no_grad():
        return [
            [logits(torch.tensor(part), slice(i, i + 1))[0].numpy() for part in job.parts]
            for i, job in enumerate(jobs)
        ]


def _batches(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rows of every step, [steps, batch]: all n in a new order, again and again."""
    whole = np.concatenate([rng.permutation(n) for _ in range(-(-STEPS * BATCH // n))])
    return whole[: STEPS * BATCH].reshape(STEPS, BATCH)


def log_probabilities(model: str, scores: np.ndarray) -> np.ndarray:
    """Return the log of the model's probabilities, [N, K]; a margin of the linear SVM counts as a logit."""
    return scores if model == "forest" else log_softmax(scores)
