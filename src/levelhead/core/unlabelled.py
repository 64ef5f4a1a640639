"""Without labels: a rule is chosen by how often each class should be predicted.

`tune_unlabelled` checks what it is given, finds out the shares that predictions are to have, and asks the rule to
match them (`Rule.match`): offsets until the mean probabilities are the target, or the strength at which predicted
shares are nearest to it (match.py).

It is weaker than `tune` in a way that no data here can show: predicted shares may be right while the wrong samples
make them up. So nothing is judged, and one doubt is asked for: whether many classes are hardly ever predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from ..support.arrays import Array, as_array
from ..support.errors import LevelheadError, check_choice
from ..support.logits import (
    are_log_probabilities,
    check_logits,
    check_shape,
    raise_masked,
    read_as,
    refuse_one_probability,
)
from ..support.types import Kind
from .arguments import target_prior
from .class_names import as_names, names_of_columns
from .counts import (
    Counts,
    WithBackground,
    find_background,
    level_background,
    resolve_as_trained,
)
from .doubts import doubt_unpredicted_classes, issue_warnings
from .priors import PriorEstimate, check_is_estimate, estimate_target
from .probabilities import smooth_votes
from .rules import DEFAULT, Rule, find_rule
from .tuned import Tuned


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
            held near what they ask for, so that scores are to be logits: cosines times the scale that
            they were trained with; with `lh.counts.with_background`, of which one class is left alone.
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
    names = names_of_columns(logits, counts, names)
    logits = as_array(logits)
    check_shape(logits.shape)
    refuse_one_probability(logits)
    classes = logits.shape[1]
    if names is not None:
        names = as_names(names, classes)
    background = None
    if isinstance(counts, WithBackground):
        background = find_background(counts.background, classes, names)
    n = None
    counts_of_rules = None
    if counts is not None:
        n = resolve_as_trained(counts, classes, names=names)
        counts_of_rules = level_background(n, background)

    # The scores: log-probabilities are added to like logits, and of probabilities the logarithms.
    if kind == "logits" and are_log_probabilities(logits):
        kind = "log-probabilities"
    chosen_rule = find_rule(rule)
    chosen_rule.refuse_kind(kind)
    scores = raise_masked(check_logits(logits, kind=read_as(kind)).astype(np.float64))
    smoothing = 0.0
    if kind == "probabilities":
        scores, smoothing = smooth_votes(scores)

    # The shares that predictions are to have: given, estimated from these very samples, or all alike.
    prior: PriorEstimate | None = None
    if isinstance(target, str):
        prior = _estimate(target, logits, n, names, read_as(kind), level)
        target = prior.target
    shares = target_prior(target, classes, names)

    # What brings them there.
    counts_to_match = n
    if chosen_rule.follows_counts:
        counts_to_match = counts_of_rules
    fits = chosen_rule.match(scores, shares, counts_to_match, is_target=target is not None)
    adjustment = replace(fits.whole, smoothing=smoothing)
    if background is not None:
        adjustment = adjustment.relative_to(background)

    # What speaks against it, and what is known of where it comes from.
    predicted_shares = np.bincount(scores.argmax(axis=1), minlength=classes) / len(scores)
    doubt = doubt_unpredicted_classes(predicted_shares, shares, len(scores))
    known_counts: tuple[float, ...] = ()
    if counts_of_rules is not None:
        known_counts = tuple(map(float, counts_of_rules))
    known_names = None
    if names is not None:
        known_names = tuple(map(str, names))
    return Tuned(
        rule=chosen_rule.name,
        adjustment=adjustment,
        evidence=None,
        strength=fits.strength,
        counts=known_counts,
        names=known_names,
        kind=kind,
        chosen_on="unlabelled",
        n=len(scores),
        target=tuple(shares.tolist()),
        prior=prior,
        background=background,
        warnings=issue_warnings([doubt]),
    )


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
    check_is_estimate(target)
    if counts is None:
        raise LevelheadError("an estimated target needs the training counts", parameter="counts")
    return estimate_target(logits, counts, None, level=level, names=names, kind=kind)
