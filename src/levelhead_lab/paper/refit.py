"""Heads fitted again on the training features of a trained network, each class counting the same.

What an adjustment by one number is worth is seen beside what a fit of the head gives on the same features: a new
head (as in cRT), a scale for each class (as in LWS), a scale and an offset for each class (as in MARC). Each is the
minimum of the class-balanced cross entropy, plus the weight decay of the recipe where a whole head is fitted.

`bench/paper/refit_heads.py` calls `refitted_errors` and `halves_errors` for the two stored networks and
`companion_errors` for networks with a hold-out, and writes results/heads.json; `beyond_tables` and `beyond_texts` show
it. Fits are in float64 and go on until L-BFGS stops by itself, so that they do not depend on a learning rate.

References: Kang et al., Decoupling Representation and Classifier for Long-Tailed Recognition, 2020 (cRT, LWS);
Wang et al., Margin Calibration for Long-Tailed Visual Recognition, 2022 (MARC).
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from levelhead.core import measure
from levelhead.core.rules import Offsets, Rescale, Shift, Vector
from levelhead.core.tune import tune
from levelhead.core.unlabelled import tune_unlabelled
from levelhead.support.arrays import to_numpy

from ..lab.snapshot import Snapshot
from ..runs.evaluate import held_out
from . import post_hoc
from .measured_fields import UnlabelledErrors

WEIGHT_DECAY = 5e-4  # that of kim2020


def refitted_errors(snapshot: Snapshot, gamma: float) -> dict[str, float]:
    """Return the test errors of one network by each fit, in percent, and after RS at a given gamma.

    Args:
        snapshot: with the features of training and test images.
        gamma: of RS; chosen elsewhere, as the network has no hold-out.

    Returns:
        Errors by what was done to the head, the keys of `beyond_tables.FIT_TITLES`.
    """
    labels = snapshot.labels["test"]
    rescaled = Rescale(gamma).on_head(snapshot.head, snapshot.counts).head(snapshot.head)
    new_head = fit_head(snapshot)
    scales = fit_scales(snapshot, offsets=False)
    scales_and_offsets = fit_scales(snapshot, offsets=True)
    logits = to_numpy(snapshot.logits("test")).astype(np.float64)
    features = to_numpy(snapshot.features["test"]).astype(np.float64)
    errors = {
        "alone": measure.error(logits, labels),
        "RS": measure.error(snapshot.logits("test", rescaled), labels),
        "nearest class mean": post_hoc.nearest_mean_error(snapshot),
        "new head": measure.error(features @ new_head.T, labels),
        "scales": measure.error(scales.scores(logits), labels),
        "scales and offsets": measure.error(scales_and_offsets.scores(logits), labels),
    }
    return {title: round(100 * error, 2) for title, error in errors.items()}


def companion_errors(snapshot: Snapshot) -> dict[str, float]:
    """Return the test errors of a network with a hold-out, in percent: fitted on it, and by each fit on the rest.

    To what `refitted_errors` returns, with gamma from the hold-out, come the shift, offsets and vector scaling.
    """
    labels = snapshot.labels["test"]
    chosen = {}
    for name in (Rescale.name, Shift.name, Offsets.name, Vector.name):
        rule = name
        if name in post_hoc.RANGES:  # strengths from the range of the records
            rule = post_hoc.rule_on(snapshot, name)
        chosen[name] = tune(*held_out(snapshot), rule=rule)
    errors = refitted_errors(snapshot, chosen[Rescale.name].strength or 0.0)
    for name in (Shift.name, Offsets.name, Vector.name):
        logits = snapshot.logits("test", chosen[name].adjustment.head(snapshot.head))
        errors[name] = round(100 * measure.error(logits, labels), 2)
    return errors


def fit_head(snapshot: Snapshot, decay: float = WEIGHT_DECAY) -> np.ndarray:
    """Fit a new head to the training features, as cRT does: class-balanced cross entropy + decay/2 ||W||^2.

    Args:
        snapshot: with the features of training images.
        decay: that of the recipe the network was trained by.

    Returns:
        Its weight [K, d]; there is no bias, as in the network.
    """
    features = to_numpy(snapshot.features["train"]).astype(np.float64)
    labels = snapshot.labels["train"]
    shape = snapshot.head.weight.shape
    weights = _balanced_weights(labels, snapshot.head.classes)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss and its slope at weights [K * d]; with ``logits = x W^T`` the slope is ``slope^T x``."""
        weight = flat.reshape(shape)
        value, slope = _cross_entropy(features @ weight.T, labels, weights)
        value += decay / 2 * float(flat @ flat)
        return value, (slope.T @ features + decay * weight).ravel()

    return minimize(loss, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B").x.reshape(shape)


class ClassScales(NamedTuple):
    """A scale and an offset for each class: ``scale_k l_k + offset_k``.

    >>> ClassScales(np.array([1.0, 2.0]), np.array([0.0, -1.0])).scores(np.array([[3.0, 3.0]]))
    array([[3., 5.]])
    """

    scale: np.ndarray  # [K]
    offset: np.ndarray  # [K]

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """Return logits [N, K], adjusted."""
        return logits * self.scale + self.offset


def fit_scales(snapshot: Snapshot, *, offsets: bool) -> ClassScales:
    """Fit a scale for each class to the training logits, as LWS does, by class-balanced cross entropy.

    Args:
        snapshot: with the features of training images.
        offsets: fit an offset for each class as well, as MARC does; else they stay 0.
    """
    logits = to_numpy(snapshot.logits("train")).astype(np.float64)
    labels = snapshot.labels["train"]
    classes = snapshot.head.classes
    weights = _balanced_weights(labels, classes)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss and its slope at scales and offsets [2 * K]."""
        scores = ClassScales(flat[:classes], flat[classes:]).scores(logits)
        value, slope = _cross_entropy(scores, labels, weights)
        by_scale = (slope * logits).sum(axis=0)
        if offsets:
            by_offset = slope.sum(axis=0)
        else:  # with no slope they stay where they are
            by_offset = np.zeros(classes)
        return value, np.concatenate([by_scale, by_offset])

    # The head as it is.
    start = np.concatenate([np.ones(classes), np.zeros(classes)])
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return ClassScales(fitted[:classes], fitted[classes:])


def halves_errors(snapshot: Snapshot) -> dict[str, UnlabelledErrors]:
    """Return the test errors of RS and the shift, in percent, with the strength from unlabelled test images.

    `whole`: chosen on all test images and judged on the same. `halves`: chosen on every second one and
    judged on the others, both ways. If they differ little, it was no advantage to choose on the images that are judged.

    Returns:
        Both errors, by rule.
    """
    logits = to_numpy(snapshot.logits("test")).astype(np.float64)
    labels = snapshot.labels["test"]
    # Every second image: the test set may be in the order of its classes, which halves in a row would part.
    halves = (slice(0, None, 2), slice(1, None, 2))
    errors: dict[str, UnlabelledErrors] = {}
    for rule in (Rescale.name, Shift.name):
        wrong = 0
        for chosen_on, judged_on in (halves, halves[::-1]):
            tuned = tune_unlabelled(logits[chosen_on], counts=snapshot.counts, rule=rule)
            predicted = tuned.apply(logits[judged_on]).argmax(axis=1)
            wrong += int((predicted != labels[judged_on]).sum())
        whole = tune_unlabelled(logits, counts=snapshot.counts, rule=rule).apply(logits)
        errors[rule] = {
            "whole": round(100 * measure.error(whole, labels), 2),
            "halves": round(100 * wrong / len(labels), 2),
        }
    return errors


def _balanced_weights(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return a weight for each sample [N] so that all classes weigh the same, 1 in all.

    >>> _balanced_weights(np.array([0, 0, 1]), 2)
    array([0.25, 0.25, 0.5 ])
    """
    counts = np.bincount(labels, minlength=classes)
    return 1 / (classes * counts[labels])


def _cross_entropy(
    logits: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the weighted cross entropy and its derivative by the logits [N, K].

    Args:
        logits: [N, K].
        labels: [N].
        weights: of the samples [N].
    """
    rows = np.arange(len(labels))
    # The largest logit is taken out, so that no exponential overflows.
    scores = logits - logits.max(axis=1, keepdims=True)
    probability = np.exp(scores)
    total = probability.sum(axis=1, keepdims=True)
    value = float(weights @ (np.log(total[:, 0]) - scores[rows, labels]))
    # The slope is the softmax minus 1 at the label.
    slope = probability / total
    slope[rows, labels] -= 1
    return value, slope * weights[:, None]
