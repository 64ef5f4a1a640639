"""What each method of the study of decisions predicts for the test rows of a split, and how good that is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from _decision_models import log_probabilities
from _decision_scores import Scores

import levelhead as lh
from levelhead.choice.tuned import Tuned
from levelhead.core.adjustment import Adjustment
from levelhead.core.rules import RULES, Strengths
from levelhead.support.types import Metric

METRICS: tuple[Metric, ...] = ("balanced_error", "macro_f1")
MIXES = ("even", "halfway", "reversed", "random")
REPLICATES = 200  # of the bootstrap of `auto`'s gain
TEST_REPLICATES = 100  # of that of the test's own noise
DEPLOYED = 1000  # unlabelled samples that a mix is estimated from, at most
_FIXED: dict[str, Any] = {
    "RS": "rescale",
    "shift": lh.rules.Shift(range=(0.0, 4.0)),
    "vector": "vector",
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
        labels, predicted, size = self.labels[rows], predicted[rows], len(self.shares)
        weights = (self.shares / np.bincount(labels, minlength=size))[labels]
        right = np.bincount(labels, weights * (predicted == labels), size)
        if metric == "balanced_error":
            return 100 * float(right.sum())
        return 100 * float(
            np.mean(2 * right / (np.bincount(predicted, weights, size) + self.shares))
        )

    def noise(self, predicted: np.ndarray, plain: np.ndarray, metric: str) -> float:
        """Return the standard error of a gain over `plain` that the test's own size makes, by a bootstrap."""
        rng, size = np.random.default_rng(0), len(self.shares)
        own = [np.flatnonzero(self.labels == c) for c in range(size)]
        gains = []
        for _ in range(TEST_REPLICATES):
            rows = np.concatenate([rng.choice(members, len(members)) for members in own])
            gains.append(self.measure(predicted, metric, rows) - self.measure(plain, metric, rows))
        return float(np.std(gains, ddof=1))


def judge_metric(scores: Scores, metric: str, *, balanced_test: bool) -> Judge:
    """Return the judge of a test as it is: classes alike in balanced accuracy, by their shares in macro-F1."""
    own = np.bincount(scores.test_labels, minlength=len(scores.counts)) / len(scores.test_labels)
    alike = metric == "balanced_error" or balanced_test
    return Judge(scores.test_labels, np.full_like(own, 1 / len(own)) if alike else own)


def adjusted(tuned: Tuned, scores: np.ndarray) -> np.ndarray:
    """Return the class [N] of scores [N, K] as the decision says."""
    if tuned.scale:  # a scale and an offset for each class, which a target is part of
        change = Adjustment(np.array(tuned.scale), np.array(tuned.offset), tuned.smoothing)
    else:
        chosen = Strengths(tuned.gamma, offset=tuned.offset)
        change = RULES[tuned.rule].on_scores(np.array(tuned.counts), chosen)
    return change.scores(scores).argmax(axis=1)


def predict_all(
    model: str, scores: Scores, metric: Metric, *, balanced_test: bool
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return what each method predicts [N] without a word of deployment, and what `auto` chose and promised.

    `measured` is the cross-fitted gain and its interval, before it is drawn toward what is usual; `loss` of the plain
    model.
    """
    size = len(scores.counts)
    target = (
        np.full(size, 1 / size) if balanced_test else None
    )  # macro-F1 depends on the shares; others do not
    held_out = scores.held_out, scores.held_out_labels, scores.counts
    predicted = {"plain": scores.test.argmax(axis=1), **scores.predicted}
    predicted["prior division"] = by_hand(model, scores, np.full(size, 1 / size))
    for name, rule in _FIXED.items():
        predicted[name] = adjusted(
            lh.tune(*held_out, metric=metric, rule=rule, target=target, bootstrap=0), scores.test
        )
    if size == 2:
        predicted["TunedThreshold"] = tune_threshold(scores, metric)
    started = time.process_time()
    tuned = lh.tune(*held_out, metric=metric, target=target, bootstrap=REPLICATES)
    seconds = time.process_time() - started
    assert tuned.gain is not None
    assert tuned.gain_interval is not None
    predicted["auto"] = adjusted(tuned, scores.test)
    predicted["auto, if worthwhile"] = predicted["auto" if tuned.worthwhile else "plain"]
    predicted["auto, if certain"] = predicted["auto" if tuned.certain else "plain"]
    judge = judge_metric(scores, metric, balanced_test=balanced_test)
    chosen = next(one for one in tuned.candidates if one.rule == tuned.rule)
    loss = next(one.value for one in tuned.candidates if one.rule == "none")
    assert chosen.interval is not None
    return predicted, {
        "rule": tuned.rule if tuned.gamma or tuned.scale else "none",
        "measured": [round(100 * number, 3) for number in (chosen.gain, *chosen.interval)],
        "loss": round(100 * (1 - loss if metric == "macro_f1" else loss), 3),
        "gain": round(100 * tuned.gain, 3),
        "interval": [round(100 * end, 3) for end in tuned.gain_interval],
        "noise": round(judge.noise(predicted["auto"], predicted["plain"], metric), 3),
        "seconds": round(seconds, 2),
    }


def predict_at_mix(
    model: str, scores: Scores, metric: Metric, shares: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return what each method predicts [N] if deployment has these shares [K]: known, or estimated from a sample."""
    labels, held_out = scores.test_labels, (scores.held_out, scores.held_out_labels, scores.counts)
    chances = (shares / np.bincount(labels))[labels]
    deployed = rng.choice(len(labels), min(DEPLOYED, len(labels)), p=chances / chances.sum())
    unlabelled = scores.test[deployed]
    estimate = lh.priors.estimate_prior(
        unlabelled, scores.counts, held_out=held_out[:2], bootstrap=0
    )
    predicted = {"plain": scores.test.argmax(axis=1), **scores.predicted}
    for source, target in (("known", shares), ("estimated", estimate.target)):
        predicted[f"by hand, {source}"] = by_hand(
            model, scores, shares if source == "known" else estimate.shares
        )
        for rule in ("vector", "auto"):  # with the second target as by target="estimate"
            tuned = lh.tune(*held_out, metric=metric, rule=rule, target=target, bootstrap=0)
            predicted[f"{rule}, {source}"] = adjusted(tuned, scores.test)
    return predicted


def draw_mixes(counts: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return shares [K] of four deployments: even, halfway there, training's turned round, and at random."""
    train, order = counts / counts.sum(), np.argsort(counts)
    turned = np.empty_like(train)
    turned[order] = train[order[::-1]]
    halfway = np.sqrt(train) / np.sqrt(train).sum()
    even = np.full_like(train, 1 / len(train))
    mixes = even, halfway, turned, 0.9 * rng.dirichlet(np.ones(len(train))) + 0.1 * even
    return dict(zip(MIXES, mixes, strict=True))


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
