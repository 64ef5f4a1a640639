"""What each method of the study of decisions predicts for the test rows of a split, and how good that
is.

A method gets what a user would have: scores and labels of the hold-out, the counts of the training,
scores of the test. It returns a class for each test row, and a `Judge` measures these, all alike.
`predict_all` has every method, on a test as it is; `predict_by_few` a hold-out of a few samples,
`predict_at_mix` another mix of classes in deployment, and `predict_without` our own method without
one of its parts.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

import levelhead as lh
from levelhead.core import metric_offsets, per_class

from .models import log_probabilities
from .scores import Scores

METRICS = ("balanced_error", "macro_f1")
MIXES = ("even", "halfway", "reversed", "random")
SIZES = (20, 50, 100, 300)  # of a small hold-out
DRAWS = 4  # of each size
TEST_REPLICATES = 100  # for the test's own noise
DEPLOYED = 1000  # unlabelled samples that a mix is estimated from, at most
RULES = {"RS": "rescale", "shift": "shift", "vector": "vector", "levelhead": "offsets"}
WITHOUT = {  # parts of the fit: the module, the constant, and its value without that part
    "the temperature": (per_class, "CALM", 1e9),
    "offsets of their own": (per_class, "HELD", 1e9),
    "the hold on the offsets": (per_class, "HELD", 1e-3),
    "the strength by the metric": (metric_offsets, "PULL", 1e9),
    "the pull on the strength": (metric_offsets, "PULL", 0.0),
    "belief in the model": (metric_offsets, "BELIEF", 1e-3),
}


@dataclass(frozen=True)
class Judge:
    """Test labels [N], and the shares [K] in which classes are to occur there, which weigh them."""

    labels: np.ndarray
    shares: np.ndarray

    def measure(
        self, predicted: np.ndarray, metric: str, rows: np.ndarray | slice = slice(None)
    ) -> float:
        """Return, in percent, the accuracy at these shares (balanced, where they are even) or macro-F1."""
        labels = self.labels[rows]
        predicted = predicted[rows]
        size = len(self.shares)
        # Weighed so that each class has the share it is to have, whatever it has in the test set.
        weights = (self.shares / np.bincount(labels, minlength=size))[labels]
        right = np.bincount(labels, weights * (predicted == labels), size)
        if metric == "balanced_error":
            return 100 * float(right.sum())
        # F1 of a class is 2 right / (predicted as it + of it); the weights of a class add up to its share.
        predicted_as = np.bincount(predicted, weights, size)
        return 100 * float(np.mean(2 * right / (predicted_as + self.shares)))

    def noise(self, predicted: np.ndarray, plain: np.ndarray, metric: str) -> float:
        """Return the standard error of a gain over `plain` that the test's own size makes, by a bootstrap."""
        rng = np.random.default_rng(0)
        rows_of = [np.flatnonzero(self.labels == c) for c in range(len(self.shares))]
        gains = []
        for _ in range(TEST_REPLICATES):
            # Class by class, so that none is missing; both sides on the same rows.
            rows = np.concatenate([rng.choice(members, len(members)) for members in rows_of])
            gains.append(self.measure(predicted, metric, rows) - self.measure(plain, metric, rows))
        return float(np.std(gains, ddof=1))


def judge_metric(scores: Scores, metric: str, *, balanced_test: bool) -> Judge:
    """Return the judge of a test as it is: classes alike in balanced accuracy, by their shares in macro-F1."""
    labels = scores.test_labels
    shares = np.bincount(labels, minlength=len(scores.counts)) / len(labels)
    if metric == "balanced_error" or balanced_test:
        shares = np.full_like(shares, 1 / len(shares))
    return Judge(labels, shares)


def predict_all(
    model: str, scores: Scores, metric: str, *, balanced_test: bool
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return what each method predicts [N] without a word of deployment, and what `tune` promised.

    Args:
        model: its name.
        scores: of one split.
        metric: that is chosen for.
        balanced_test: whether the test has as many samples of each class, which the hold-out has not.

    Returns:
        {method: class of each test row}; and of our own choice the stated gain, its interval, the verdict,
        the noise that the test itself has, and the seconds of a processor that it took.
    """
    size = len(scores.counts)
    even = np.full(size, 1 / size)
    target = even if balanced_test else None  # macro-F1 depends on the shares; others do not
    held_out = (scores.held_out, scores.held_out_labels, scores.counts)
    predicted = {"plain": scores.test.argmax(axis=1), **scores.predicted}
    predicted["prior division"] = by_hand(model, scores, even)
    chosen: dict[str, Any] = {}
    for name, rule in RULES.items():
        if name == "RS" and lh.measure.are_log_probabilities(scores.held_out):
            continue  # it multiplies logits, which has no meaning for probabilities
        started = time.process_time()
        tuned = lh.tune(*held_out, metric=metric, rule=rule, target=target)
        seconds = time.process_time() - started
        predicted[name] = tuned.apply(scores.test).argmax(axis=1)
        if name != "levelhead":
            continue
        judge = judge_metric(scores, metric, balanced_test=balanced_test)
        low, high = tuned.gain_interval or (0.0, 0.0)
        chosen = {
            "gain": round(100 * (tuned.gain or 0.0), 3),
            "interval": [round(100 * low, 3), round(100 * high, 3)],
            "verdict": tuned.verdict,
            "noise": round(judge.noise(predicted[name], predicted["plain"], metric), 3),
            "seconds": round(seconds, 3),
        }
        predicted["levelhead, if worthwhile"] = predicted[name if tuned.worthwhile else "plain"]
    unknown = lh.tune(scores.held_out, scores.held_out_labels, metric=metric, target=target)
    predicted["levelhead, no counts"] = unknown.apply(scores.test).argmax(axis=1)
    # Both at once: a model trained with class weights, and then a choice on its scores.
    if scores.weighted is not None:
        here, there = scores.weighted
        alike = np.full(size, 1000)  # class weights make training's classes weigh the same
        both = lh.tune(here, scores.held_out_labels, alike, metric=metric, target=target)
        predicted["class weights, then levelhead"] = both.apply(there).argmax(axis=1)
    # What others do for the same end.
    predicted["by coordinates"] = ascend(scores, metric)
    if metric == "macro_f1" and importlib.util.find_spec("optimal_cutoffs"):
        predicted["optimal cutoffs"] = find_cutoffs(model, scores)
    if size == 2:
        predicted["TunedThreshold"] = tune_threshold(scores, metric)
    return predicted, chosen


def predict_by_few(
    scores: Scores, metric: str, size: int, draw: int, *, balanced_test: bool
) -> dict[str, np.ndarray] | None:
    """Return what is predicted [N] where so few samples are held out; None if all are no more."""
    if size > len(scores.held_out_labels):
        return None
    classes = len(scores.counts)
    target = np.full(classes, 1 / classes) if balanced_test else None
    rows = np.random.default_rng([size, draw]).permutation(len(scores.held_out_labels))[:size]
    labels = scores.held_out_labels[rows]
    if np.bincount(labels).max() < 2:
        return None
    few = (scores.held_out[rows], labels, scores.counts)
    shift = np.log(scores.counts.max() / scores.counts)
    tuned = lh.tune(*few, metric=metric, target=target)
    return {
        "plain": scores.test.argmax(axis=1),
        "shift at 1": (scores.test + shift).argmax(axis=1),
        "levelhead": tuned.apply(scores.test).argmax(axis=1),
    }


def predict_without(scores: Scores, metric: str, *, balanced_test: bool) -> dict[str, np.ndarray]:
    """Return what is predicted [N] without each part of the fit."""
    classes = len(scores.counts)
    target = np.full(classes, 1 / classes) if balanced_test else None
    held_out = (scores.held_out, scores.held_out_labels, scores.counts)
    predicted = {}
    for part, (module, name, value) in WITHOUT.items():
        with mock.patch.object(module, name, value):
            tuned = lh.tune(*held_out, metric=metric, target=target)
        predicted[part] = tuned.apply(scores.test).argmax(axis=1)
    return predicted


def predict_at_mix(
    model: str, scores: Scores, metric: str, shares: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return what each method predicts [N] at these shares [K]: known, or estimated from a sample."""
    labels = scores.test_labels
    held_out = (scores.held_out, scores.held_out_labels, scores.counts)
    # Test rows drawn as deployment would give them, without their labels: the mix is estimated from
    # these.
    chances = (shares / np.bincount(labels))[labels]
    deployed = rng.choice(len(labels), min(DEPLOYED, len(labels)), p=chances / chances.sum())
    estimate = lh.priors.estimate_prior(
        scores.test[deployed], scores.counts, held_out=held_out[:2], bootstrap=0
    )
    predicted = {"plain": scores.test.argmax(axis=1), **scores.predicted}
    sources = {"known": (shares, shares), "estimated": (estimate.shares, estimate.target)}
    for source, (plain_shares, target) in sources.items():
        predicted[f"by hand, {source}"] = by_hand(model, scores, plain_shares)
        tuned = lh.tune(*held_out, metric=metric, target=target)
        predicted[f"levelhead, {source}"] = tuned.apply(scores.test).argmax(axis=1)
    return predicted


def ascend(scores: Scores, metric: str, passes: int = 5, steps: int = 41) -> np.ndarray:
    """Return the class [N] by coordinate ascent by hand: one offset after the other, on a grid.

    That is what people write themselves: the metric on the hold-out decides, and nothing holds it.
    """
    labels = scores.held_out_labels
    classes = len(scores.counts)
    held_out = scores.held_out - scores.held_out.max(axis=1, keepdims=True)
    reach = float(np.quantile(-held_out, 0.95))
    measure = lh.Goal(metric)
    offset = np.zeros(classes)

    def loss(offset: np.ndarray) -> float:
        predicted = (held_out + offset).argmax(axis=1)
        return float(measure.loss(measure.tables(labels, predicted, classes)))

    best = loss(offset)
    for _ in range(passes):
        before = best
        for k in range(classes):
            for value in np.linspace(-reach, reach, steps):
                tried = offset.copy()
                tried[k] = value
                loss_there = loss(tried)
                if loss_there < best - 1e-12:
                    best = loss_there
                    offset = tried
        if best >= before - 1e-12:
            break
    return (scores.test + offset).argmax(axis=1)


def find_cutoffs(model: str, scores: Scores) -> np.ndarray:
    """Return the class [N] by the package optimal-classification-cutoffs: macro-F1 by coordinates."""
    from optimal_cutoffs.optimize import find_optimal_threshold_multiclass

    held_out = np.exp(log_probabilities(model, scores.held_out))
    test = np.exp(log_probabilities(model, scores.test))
    cutoffs = find_optimal_threshold_multiclass(
        scores.held_out_labels, held_out, metric="f1", method="coord_ascent"
    )
    return np.asarray(cutoffs.predict(test), np.int64)


def draw_mixes(counts: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return shares [K] of four deployments: even, halfway there, training's turned round, and at random."""
    train = counts / counts.sum()
    order = np.argsort(counts)
    turned = np.empty_like(train)
    turned[order] = train[order[::-1]]
    halfway = np.sqrt(train) / np.sqrt(train).sum()
    even = np.full_like(train, 1 / len(train))
    # At least a tenth of its even share for each class: none is without samples in deployment.
    random = 0.9 * rng.dirichlet(np.ones(len(train))) + 0.1 * even
    return dict(zip(MIXES, (even, halfway, turned, random), strict=True))


def by_hand(model: str, scores: Scores, shares: np.ndarray) -> np.ndarray:
    """Return the class [N] by Bayes: each log-probability plus ``log(share in deployment / share in training)``."""
    train = scores.counts / scores.counts.sum()
    return (log_probabilities(model, scores.test) + np.log(shares / train)).argmax(axis=1)


def tune_threshold(scores: Scores, metric: str) -> np.ndarray:
    """Return the class [N] of two by scikit-learn's TunedThresholdClassifierCV, chosen on the same hold-out."""
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import TunedThresholdClassifierCV

    class Margin(ClassifierMixin, BaseEstimator):
        """The model that gave the scores: its decision is the second score less the first."""

        def fit(self, X: np.ndarray, y: np.ndarray) -> Margin:
            self.classes_ = np.unique(y)
            return self

        def decision_function(self, X: np.ndarray) -> np.ndarray:
            return X[:, 1] - X[:, 0]

        def predict(self, X: np.ndarray) -> np.ndarray:
            return (self.decision_function(X) > 0).astype(int)

    model = FrozenEstimator(Margin().fit(scores.held_out, scores.held_out_labels))
    scoring = {"balanced_error": "balanced_accuracy", "macro_f1": "f1_macro"}[metric]
    tuned = TunedThresholdClassifierCV(model, scoring=scoring, cv="prefit", refit=False)
    return tuned.fit(scores.held_out, scores.held_out_labels).predict(scores.test)
