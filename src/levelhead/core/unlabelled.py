"""Without labels: offsets until the model's own mean probabilities are the target.

The sum ``sum_i log sum_k exp(z_ik + c_k) - N sum_k target_k c_k`` is convex, and where its slope is 0, the
mean softmax of ``z + c`` is the target. Where training counts are known, c is held near the shift that they
ask for, as if by `_HELD` samples of each class: with few samples, that shift is the better guess.

`tune_unlabelled` checks what it is given, then goes one of two roads: `_match_means` for offsets, by Newton's
steps on that sum, or `_match_shares` for rules of one strength, by the exact path.

It is weaker than `tune` in a way that no data here can show: predicted shares may be right while the wrong samples
make them up. So nothing is judged, and one doubt is asked for: whether many classes are hardly ever predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from ..path.engines import find_changes
from ..support.arrays import Array, as_array
from ..support.errors import LevelheadError, check_choice
from ..support.logits import (
    are_log_probabilities,
    check_logits,
    check_shape,
    log_softmax,
    raise_masked,
)
from ..support.types import Kind
from .adjustment import Adjustment
from .arguments import target_prior
from .class_names import names_of_columns
from .counts import Counts, resolve
from .doubts import doubt_unpredicted_classes, issue_warnings
from .priors import PriorEstimate, estimate_target
from .probabilities import smooth_votes
from .rules import DEFAULT, OneStrength, Rule, find_rule
from .tuned import Tuned

_HELD = 5.0  # samples of each class by which offsets are held near the shift of the counts
_STEPS = 200  # the most that Newton takes
_MOST_CLASSES = 512  # of which the curvature [K, K] is solved; of more, its diagonal has to do
_LEAST_SHARE = 1e-3  # of a class, as a part of 1 / K: a share of 0 would ask for an offset of -inf


def tune_unlabelled(
    logits: Array,
    target: Array | None = None,
    *,
    counts: Counts | None = None,
    rule: str | Rule = DEFAULT,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    level: float = 0.95,
) -> Tuned:
    """Choose without labels, by how often each class should be predicted.

    The rule `offsets` adds a number to each class until the mean softmax is the target. The rules
    `shift`, `rescale` and `tau` take the strength at which predicted shares are nearest to it.
    Only labels can tell what that gains, so evidence, gain and verdict are None.

    Args:
        logits: [N, K] of unlabelled samples, drawn as in deployment.
        target: [K] or {class: share}, how often classes occur there; uniform if not given; or
            `estimate`, by EM, which takes the softmax as calibrated for the training counts.
        counts: training samples of each class; `shift` and `rescale` need them, and `offsets` is
            held near what they ask for.
        rule, names, kind: as in `tune`.
        level: of the interval of an estimated target.

    Returns:
        A `Tuned` that is chosen on "unlabelled", with the target that was matched.

    Raises:
        LevelheadError: a rule that needs labels (`scales`, `vector`), counts that a rule or an
            estimate needs and are not given, or logits, names and a target that do not fit.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=600)
    >>> logits = 3 * np.eye(3)[labels] + rng.normal(size=(600, 3)) + [2.0, 0.0, -1.0]
    >>> tuned = tune_unlabelled(logits)
    >>> np.bincount(tuned.apply(logits).argmax(axis=1), minlength=3) / 600 > 0.3
    array([ True,  True,  True])
    """
    # Names and counts, while the logits still have the titles of a data frame.
    check_choice("kind", kind, get_args(Kind))
    if names is None:
        names = names_of_columns(logits, counts)
    logits = as_array(logits)
    check_shape(logits.shape)
    classes = logits.shape[1]
    n = None
    if counts is not None:
        n = resolve(counts, classes, names=names)

    # The scores: log-probabilities are added to like logits, and of probabilities the logarithms.
    if kind == "logits" and are_log_probabilities(logits):
        kind = "log-probabilities"
    chosen_rule = find_rule(rule)
    chosen_rule.refuse_kind(kind)
    read_as: Kind = "logits"
    if kind == "probabilities":
        read_as = "probabilities"
    scores = raise_masked(check_logits(logits, kind=read_as).astype(np.float64))
    smoothing = 0.0
    if kind == "probabilities":
        scores, smoothing = smooth_votes(scores)

    # The shares that predictions are to have: given, estimated from these very samples, or all alike.
    prior: PriorEstimate | None = None
    if isinstance(target, str):
        prior = _estimate(target, logits, n, names, read_as, level)
        target = prior.target
    shares = target_prior(target, classes, names)

    # What brings them there.
    strength = None
    if isinstance(chosen_rule, OneStrength):
        toward = None
        if target is not None:
            toward = shares
        strength, adjustment = _match_shares(chosen_rule, scores, n, shares, toward)
    elif chosen_rule.multiplies:
        reason = f"the rule {chosen_rule.name} needs labels; use offsets, shift, rescale or tau"
        raise LevelheadError(reason, parameter="rule")
    else:
        adjustment = Adjustment.adding(_match_means(scores, shares, n))

    # What speaks against it, and what is known of where it comes from.
    predicted_shares = np.bincount(scores.argmax(axis=1), minlength=classes) / len(scores)
    doubt = doubt_unpredicted_classes(predicted_shares, shares, len(scores))
    known_counts: tuple[float, ...] = ()
    if n is not None:
        known_counts = tuple(map(float, n))
    known_names = None
    if names is not None:
        known_names = tuple(map(str, names))
    return Tuned(
        rule=chosen_rule.name,
        adjustment=replace(adjustment, smoothing=smoothing),
        evidence=None,
        strength=strength,
        counts=known_counts,
        names=known_names,
        kind=kind,
        chosen_on="unlabelled",
        n=len(scores),
        target=tuple(shares.tolist()),
        prior=prior,
        warnings=issue_warnings([doubt]),
    )


def _match_means(scores: np.ndarray, target: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
    """Return the offsets [K] at which the mean softmax is the target; that of the first class is 0.

    By Newton's method with halved steps. The curvature ``diag(sum_i p_i) - sum_i p_i p_i'`` is singular, as a
    constant added to all offsets changes nothing: a small hold makes one answer of many. Beyond 512
    classes only its diagonal is used, which is an upper bound of it: more steps, but each costs N K.

    Args:
        scores: [N, K] in float64.
        target: [K], which sums to 1.
        counts: [K], of the training; None if they are not known.
    """
    classes = scores.shape[1]
    target = np.maximum(target, _LEAST_SHARE / classes)
    target = target / target.sum()

    # c is what is added beyond the start: the shift that the counts ask for, or nothing.
    start = np.zeros(classes)
    held = 1e-3  # of a sample: enough that there is one answer
    if counts is not None:
        start = np.log(target / counts)
        held = _HELD
    mass = len(scores) * target
    logs = log_softmax(scores + start)

    def value(c: np.ndarray) -> float:
        """Return the sum of the module's formula, with what holds c near 0."""
        moved = logs + c
        top = moved.max(axis=1)
        log_totals = top + np.log(np.exp(moved - top[:, None]).sum(axis=1))
        return float(log_totals.sum() - mass @ c + held * (c @ c) / 2)

    # From no offsets beyond the start, downhill.
    c = np.zeros(classes)
    here = value(c)
    for _ in range(_STEPS):
        # What the model predicts on average, against what it should; to a millionth of the samples.
        shares = np.exp(log_softmax(logs + c))
        expected = shares.sum(axis=0)
        gradient = expected - mass + held * c
        if np.abs(gradient).max() < 1e-6 * len(scores):
            break
        if classes <= _MOST_CLASSES:
            curvature = np.diag(expected + held) - shares.T @ shares
            step = np.linalg.solve(curvature, gradient)
        else:
            step = gradient / (expected + held)
        # Half of the step, as long as the sum falls by less than its slope promises (Armijo).
        slope = float(gradient @ step)
        size = 1.0
        while value(c - size * step) > here - 1e-4 * size * slope and size > 1e-6:
            size /= 2
        c = c - size * step
        here = value(c)
    offset = start + c
    return offset - offset[0]


def _match_shares(
    rule: OneStrength,
    scores: np.ndarray,
    counts: np.ndarray | None,
    shares: np.ndarray,
    toward: np.ndarray | None,
) -> tuple[float, Adjustment]:
    """Return the strength at which predicted shares are nearest to those wanted, and what it does.

    Nearest by half the sum of ``|share_k - wanted_k|``, over every strength at which a prediction changes.

    Args:
        rule: of one strength.
        scores: [N, K] in float64.
        counts: [K], of the training, which such a rule needs.
        shares: [K], how often each class is to be predicted.
        toward: [K], the same if a target was given, by which the rule then goes; None if not.
    """
    if counts is None:
        advice = "give the counts of the training, or use the rule offsets, which needs none"
        raise LevelheadError(f"the rule {rule.name} needs them; {advice}", parameter="counts")
    direction = rule.direction(counts.astype(np.float64), toward)
    reach = (0.0, rule.reach)
    if rule.range is not None:
        reach = rule.range
    curve = find_changes(scores, direction, reach).mismatch(shares)
    strength = 0.0
    if curve.plateau_at_zero() is None:  # else no strength changes anything
        strength = curve.middle(curve.plateau())
    return strength, rule.at(direction, strength)


def _estimate(
    target: str,
    logits: Array,
    counts: np.ndarray | None,
    names: Sequence[str] | None,
    kind: Kind,
    level: float,
) -> PriorEstimate:
    """Return how often classes occur among the samples, by EM; no labels calibrate it.

    The samples are those that are then matched to it: first their softmax, taken as calibrated for the
    training, says which shares explain them best, then offsets bring the predictions there.

    Args:
        target: the word that asks for it; other text is a mistake.
        logits: [N, K], the samples.
        counts: [K], of the training, without which a softmax says nothing about shares.
        names, level: as in `tune_unlabelled`.
        kind: `probabilities`, or `logits`, which log-probabilities are read as.
    """
    if target != "estimate":
        expected = "expected a share for each class, or 'estimate'"
        raise LevelheadError(f"{expected}, got {target!r}", parameter="target")
    if counts is None:
        raise LevelheadError("an estimated target needs the training counts", parameter="counts")
    return estimate_target(logits, counts, None, level=level, names=names, kind=kind)
