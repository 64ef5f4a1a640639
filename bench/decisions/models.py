"""The models of the study of decisions, each trained plainly, with class weights, and on resampled
sets.

Five kinds that people use, at the settings they come with or nearly so: what is compared is what is
done about the imbalance, not the model. A `Job` is one training; `fit_scores` trains all jobs of a
model and returns their scores. The networks of all jobs are trained side by side as one batched
product, as each alone would take as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelhead.support.logits import log_softmax

TREES = 100
HIDDEN = 64
STEPS = 800
BATCH = 64
TRAININGS = ("plain", "class weights", "over-sampling", "SMOTE")
MODELS = ("logistic", "linear SVM", "forest", "boosting", "network")
Rows = tuple[np.ndarray, np.ndarray]  # features [N, d] and labels [N]


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
        if resample is None:
            return self.train
        return resample(*self.train, self.seed)

    @property
    def weights(self) -> str | None:
        """The class weights by scikit-learn's name."""
        if self.training == "class weights":
            return "balanced"
        return None


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
    rng = np.random.default_rng(seed)
    sizes = np.bincount(labels)
    more = [rng.choice(np.flatnonzero(labels == c), sizes.max() - n) for c, n in enumerate(sizes)]
    rows = np.concatenate([np.arange(len(labels)), *more])
    return features[rows], labels[rows]


def smote(features: np.ndarray, labels: np.ndarray, seed: int, neighbors: int = 5) -> Rows:
    """Add points between a sample and one of its nearest neighbors of the same class, up to the largest class.

    Chawla et al., SMOTE, 2002. A class has as many neighbors as there are, if fewer than `neighbors`. The points are
    those of imbalanced-learn 0.14.2 with the same seed, to the last bit, where each class has enough neighbors.
    """
    from sklearn.neighbors import NearestNeighbors

    sizes = np.bincount(labels)
    parts = [(features, labels)]
    for c, n in enumerate(sizes):
        members = features[labels == c]
        missing = sizes.max() - n
        rng = np.random.RandomState(seed)  # anew for each class, as imbalanced-learn does
        k = min(neighbors, n - 1)
        # The nearest is the sample itself.
        search = NearestNeighbors(n_neighbors=k + 1).fit(members)
        nearest = search.kneighbors(members, return_distance=False)[:, 1:]
        # One draw for a sample and one of its neighbors, and one for how far on the way to it.
        start, which = np.divmod(rng.randint(0, n * k, missing), k)
        way = rng.uniform(size=(missing, 1))
        between = members[start] + way * (members[nearest[start, which]] - members[start])
        parts.append((between.astype(features.dtype), np.full(missing, c)))
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def _estimator(model: str, weights: str | None, seed: int) -> Any:
    """Return a model of scikit-learn, with class weights or without, ready to be fitted."""
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
        if values.ndim == 1:  # two classes: one margin
            return np.outer(values, [-0.5, 0.5])
        return values
    # A class that no tree voted for would have a logarithm of minus infinity.
    probability = estimator.predict_proba(features)
    return np.log((TREES * probability + 1) / (TREES + probability.shape[1]))


def _network_scores(jobs: Sequence[Job]) -> list[list[np.ndarray]]:
    """Train a network with one hidden layer of 64 per job, all at once, and return their logits of each part.

    The networks share each step of the optimizer, which treats every weight by itself, and nothing else.
    """
    import torch

    rng = np.random.default_rng(jobs[0].seed)
    rows = [job.rows for job in jobs]
    inputs = rows[0][0].shape[1]
    size = int(rows[0][1].max()) + 1
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

    # Weights, batches and class weights of each job; the last as scikit-learn has them.
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
        x = torch.stack(
            [samples[0][batch[step]] for samples, batch in zip(data, batches, strict=True)]
        )
        y = torch.stack(
            [samples[1][batch[step]] for samples, batch in zip(data, batches, strict=True)]
        )
        # The weighted mean of each network's losses; the sum of these has each one's own gradient.
        weight = weights.gather(1, y)
        loss = torch.nn.functional.cross_entropy(
            logits(x).flatten(0, 1), y.flatten(), reduction="none"
        ).view_as(y)
        optimizer.zero_grad()
        ((loss * weight).sum(1) / weight.sum(1)).sum().backward()
        optimizer.step()
    with torch.no_grad():
        scores = []
        for i, job in enumerate(jobs):
            network = slice(i, i + 1)
            scores.append([logits(torch.tensor(part), network)[0].numpy() for part in job.parts])
        return scores


def _batches(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the rows of every step, [steps, batch]: all n in a new order, again and again."""
    whole = np.concatenate([rng.permutation(n) for _ in range(-(-STEPS * BATCH // n))])
    return whole[: STEPS * BATCH].reshape(STEPS, BATCH)


def log_probabilities(model: str, scores: np.ndarray) -> np.ndarray:
    """Return the log of the model's probabilities, [N, K]; a margin of the linear SVM counts as a logit."""
    if model == "forest":
        return scores
    return log_softmax(scores)
