"""How often each class occurs where the model is used, estimated from unlabelled logits.

`estimate_prior` checks what it is given, makes one of the two estimators of label_shift.py, and asks it for
the shares of all samples, and for those of resamples, which are their interval. `estimate_target` is the same
for `target="estimate"` of `tune`.

It rests on one assumption, label shift: classes look as they did in training, and only come in other
proportions. Where the samples themselves changed, as by another camera, the shares are wrong, and nothing in
unlabelled data tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from ..support.arrays import Array, as_array
from ..support.errors import Advice, LevelheadError, check_choice, named
from ..support.fields import to_plain
from ..support.logits import check_columns, check_logits, raise_masked, read_as
from ..support.types import Kind, PriorMethod
from ..support.warnings import LevelheadWarning, warn
from .arguments import check_level
from .class_labels import as_positions, check_labels, check_one_per_row, resolve_labels
from .class_names import check_titles, listed, names_of_columns, title
from .counts import Counts, resolve_as_trained
from .label_shift import Bbse, Em, Estimator, Labelled
from .probabilities import smooth_votes
from .resample import check_replicates, draw_resamples

ESTIMATE = "estimate"  # as the target of a choice: from unlabelled samples


@dataclass(frozen=True, eq=False)
class PriorEstimate:
    """Estimated shares of the classes: what `estimate_prior` returns.

    Args:
        shares: [K], sum to 1.
        target: [K], shares to decide by: by `em`, nearer to what is usual where the samples leave it
            open.
        interval: [K, 2], from and to, of each share by itself, over bootstrap replicates; None
            without a bootstrap.
        method: `em` or `bbse`.
        n: how many unlabelled samples there were.
        held_out: how many held-out ones; 0 if none.
        level: of the interval.
        names: of the classes, where they are known.
        warnings: one line each.

    >>> shares = np.array([0.75, 0.25])
    >>> interval = np.array([[0.7, 0.8], [0.2, 0.3]])
    >>> PriorEstimate(shares, shares, interval, "em", n=500, held_out=0).shares_text()
    'class 0 75.0% (70.0% to 80.0%), class 1 25.0% (20.0% to 30.0%)'
    """

    shares: np.ndarray
    target: np.ndarray
    interval: np.ndarray | None
    method: PriorMethod
    n: int
    held_out: int
    level: float = 0.95
    names: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the estimate as JSON can hold it."""
        return to_plain(self)

    def __str__(self) -> str:
        return f"shares of the classes, by {self.source}: {self.shares_text()}"

    @property
    def source(self) -> str:
        """The method and the samples, in words."""
        held_out = ""
        if self.held_out and self.method == "em":
            held_out = f", calibrated on {self.held_out} held-out ones"
        elif self.held_out:
            held_out = f" and {self.held_out} held-out ones"
        return f"{self.method} from {self.n} unlabelled samples{held_out}"

    def shares_text(self) -> str:
        """Return each class's share with its interval, in words; of many classes, the first few."""
        # `listed` leaves out those beyond the first few.
        texts = []
        for k, share in enumerate(self.shares):
            between = ""
            if self.interval is not None:
                low, high = self.interval[k]
                between = f" ({low:.1%} to {high:.1%})"
            texts.append(f"{title(k, self.names)} {share:.1%}{between}")
        return listed(texts)

    def decided_text(self) -> str:
        """Return what was estimated, and whether the target to decide by is another."""
        text = f"estimated {self.shares_text()}, by {self.source}"
        if np.abs(self.target - self.shares).max() > 0.005:
            text += "; the target is nearer to what is usual, as so few samples leave it open"
        return text


def estimate_prior(
    logits: Array,
    counts: Counts,
    *,
    method: PriorMethod = "em",
    held_out: tuple[Array, Array] | None = None,
    bootstrap: int = 200,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
) -> PriorEstimate:
    """Estimate how often each class occurs among unlabelled samples.

    That is possible if only the proportions of the classes changed since training.

    Args:
        logits: [M, K] of unlabelled samples, drawn as in deployment.
        counts: training samples of each class, as the loss saw them: after resampling, or times the
            class weights.
        method: `em`, which uses probabilities, or `bbse`, which uses the confusion matrix of held-out
            predictions.
        held_out: (logits [N, K], labels [N]) of samples the model was not trained on; labels are
            positions or names. Without them,
            `em` takes the softmax of the logits as calibrated for the training counts, and `bbse`
            cannot be used.
        bootstrap: replicates of the estimate, for its interval; 0 for none. Unlabelled samples are
            drawn anew for each, and so are held-out samples, within their class; `em` then moves its
            calibration by a step.
        level: of the interval of each share.
        rng: a generator, or a seed.
        names: of the classes, for counts given by name and for messages. Without them, the titles of
            a data frame's columns say them.
        kind: what both logits are.

    Returns:
        A `PriorEstimate`: `shares` are what was estimated, `target` what to pass on to `tune`.

    Raises:
        LevelheadError: `bbse` without held-out samples, or without one of each class; logits, labels
            or counts that do not fit each other.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.choice(3, p=[0.2, 0.2, 0.6], size=2000)
    >>> logits = 2 * (2 * np.eye(3)[labels] + rng.normal(size=(2000, 3))) + np.log([700, 200, 100])
    >>> estimate_prior(logits, [700, 200, 100], bootstrap=0).shares.round(1)
    array([0.2, 0.2, 0.6])
    """
    check_choice("method", method, get_args(PriorMethod))
    check_choice("kind", kind, get_args(Kind))
    kind = read_as(kind)
    check_replicates(bootstrap)
    level = check_level(level)
    names = _names(logits, held_out, counts, names)
    # What was given, checked. Votes of both kinds are smoothed alike, if there are zeros among them.
    unlabelled = raise_masked(check_logits(logits, kind=kind).astype(np.float64))
    n = resolve_as_trained(counts, unlabelled.shape[1], names=names)
    labelled = None
    if held_out is not None:
        labelled = _check_held_out(held_out, len(n), counts, names, kind)
    if kind == "probabilities" and labelled is None:
        unlabelled, _ = smooth_votes(unlabelled)
    elif kind == "probabilities" and labelled is not None:
        both, _ = smooth_votes(np.concatenate([unlabelled, labelled.scores]))
        unlabelled, held_out_scores = np.split(both, [len(unlabelled)])
        labelled = Labelled(held_out_scores, labelled.labels)

    estimator = _make_estimator(method, unlabelled, n, labelled, names)
    replicates = _replicates(estimator, len(unlabelled), labelled, bootstrap, rng)
    interval = None
    if len(replicates):
        # Of each share by itself, between the quantiles of its replicates.
        interval = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2], axis=0).T
    held_out_size = 0
    if labelled is not None:
        held_out_size = len(labelled.labels)
    known_names = None
    if names is not None:
        known_names = tuple(map(str, names))
    return PriorEstimate(
        shares=estimator.shares(),
        target=estimator.target(),
        interval=interval,
        method=method,
        n=len(unlabelled),
        held_out=held_out_size,
        level=level,
        names=known_names,
        warnings=_issue(estimator.doubt()),
    )


def _make_estimator(
    method: PriorMethod,
    unlabelled: np.ndarray,
    counts: np.ndarray,
    labelled: Labelled | None,
    names: Sequence[str] | None,
) -> Estimator:
    """Return the estimator of a method, of checked samples.

    Args:
        method: `em` or `bbse`.
        unlabelled: [M, K] scores.
        counts: [K].
        labelled: held-out samples, which `bbse` needs.
        names: of the classes, for messages.
    """
    if method == "em":
        return Em(unlabelled, counts, labelled)
    if labelled is None:
        advice = Advice("held_out", None, "with their logits and labels, or use 'em'")
        reason = "'bbse' needs the confusion matrix of held-out samples"
        raise LevelheadError(reason, parameter="method", advice=advice)
    return Bbse(unlabelled, counts, labelled, names)


def _replicates(
    estimator: Estimator,
    m: int,
    labelled: Labelled | None,
    bootstrap: int,
    rng: np.random.Generator | int,
) -> np.ndarray:
    """Return the shares of so many resamples, [bootstrap, K].

    Args:
        estimator: of the samples.
        m: how many unlabelled samples there are.
        labelled: the held-out ones.
        bootstrap: how many resamples.
        rng: draws them.
    """
    # Unlabelled samples are drawn as if all were of one class; held-out ones within theirs, so that a
    # class of few does not drop out of a resample.
    generator = np.random.default_rng(rng)
    weights_drawn = draw_resamples(np.zeros(m, np.int64), bootstrap, generator)
    if labelled is None:
        return np.array([estimator.shares(weights) for weights in weights_drawn])
    times_drawn = draw_resamples(labelled.labels, bootstrap, generator)
    pairs = zip(weights_drawn, times_drawn, strict=True)
    return np.array([estimator.shares(weights, times) for weights, times in pairs])


def _issue(warning: LevelheadWarning | None) -> tuple[str, ...]:
    """Issue a warning if there is one; return its text."""
    if warning is None:
        return ()
    warn(warning)
    return (f"{type(warning).__name__}: {warning}",)


def check_is_estimate(target: str) -> None:
    """Raise LevelheadError unless a target that is text is the word that asks for an estimate."""
    if target != ESTIMATE:
        expected = f"expected a share for each class, or {ESTIMATE!r}"
        raise LevelheadError(f"{expected}, got {target!r}", parameter="target")


def estimate_target(
    unlabelled: Array | None,
    counts: np.ndarray,
    held_out: tuple[Array, np.ndarray] | None,
    *,
    level: float,
    names: Sequence[str] | None,
    kind: Kind,
) -> PriorEstimate:
    """Return the shares among unlabelled samples, by `em`: what `target="estimate"` asks for.

    Args:
        unlabelled: [M, K], logits of samples from deployment; refused if None.
        counts: [K], of the training.
        held_out: logits [N, K] and labels [N], positions, that calibrate, if there are any.
        level, names, kind: as in `estimate_prior`.
    """
    if unlabelled is None:
        reason = f"{ESTIMATE!r} needs unlabelled samples from deployment"
        advice = Advice("unlabelled", None, "with their logits")
        raise LevelheadError(reason, parameter="target", advice=advice)
    # The same classes as those tuned on; all else, `estimate_prior` checks.
    check_columns(as_array(unlabelled), len(counts), "unlabelled")
    if held_out is not None:
        held_out = (held_out[0], as_positions(held_out[1]))
    try:
        return estimate_prior(
            unlabelled, counts, held_out=held_out, level=level, names=names, kind=kind
        )
    except LevelheadError as error:
        # What is wrong with "logits" there is wrong with these.
        parameter = error.parameter or "unlabelled"
        raise LevelheadError(error.message, parameter=parameter, advice=error.advice) from None


def _names(
    logits: Array,
    held_out: tuple[Array, Array] | None,
    counts: Counts,
    names: Sequence[str] | None,
) -> Sequence[str] | None:
    """Return the names of the classes: those given, or those that titles of columns say, or None.

    Args:
        logits, held_out, counts, names: as users give them to `estimate_prior`.

    Raises:
        LevelheadError: two of them have the classes in different orders.
    """
    names = names_of_columns(logits, counts, names)
    if held_out is None:
        return names
    if not isinstance(held_out, Sequence) or len(held_out) != 2:
        raise LevelheadError("expected (logits [N, K], labels [N])", parameter="held_out")
    with named("held_out"):
        names = names_of_columns(held_out[0], counts, names)
    if names is not None:
        check_titles(logits, names)
    return names


def _check_held_out(
    held_out: tuple[Array, Array],
    size: int,
    counts: Counts,
    names: Sequence[str] | None,
    kind: Kind,
) -> Labelled:
    """Return held-out logits [N, K] and labels [N], checked against each other.

    Args:
        held_out: (logits, labels), as users give them.
        size: K, of the counts.
        counts: as users give them: their keys may be names of the classes.
        names: of the classes, where they are known.
        kind: what the logits are.
    """
    with named("held_out"):
        scores = raise_masked(check_logits(held_out[0], kind=kind).astype(np.float64))
        if scores.shape[1] != size:
            raise LevelheadError(f"expected logits [N, {size}], got shape {list(scores.shape)}")
        positions, _ = resolve_labels(scores, held_out[1], counts, names)
        labels = check_labels(positions, size)
        check_one_per_row(labels, len(scores))
    return Labelled(scores, labels)
