"""How often each class occurs where the model is used, estimated from unlabelled logits.

Under label shift the classes look as they did in training, but occur in other proportions: ``p(x | k)`` stays. Then

- `em` maximizes the likelihood of the unlabelled samples, ``sum_i log sum_k share_k p(k | x_i) / prior_k``, by
  ``share_k <- mean_i p_new(k | x_i)`` with ``p_new(k | x) ~ share_k p(k | x) / prior_k``. It needs probabilities that
  are calibrated for the training prior. Held-out samples calibrate them, as in `per_class.py`. One sample more of each
  class keeps rare classes, of which a few hundred samples tell little, from being taken for absent.
- `bbse` needs no probabilities. It solves ``confusion @ shares = predicted``: the share of each class's held-out
  samples that is predicted as each class, and the shares of the predictions among the unlabelled samples.

References: Saerens et al., Adjusting the Outputs of a Classifier to New a Priori Probabilities, 2002; Lipton et al.,
Detecting and Correcting for Label Shift with Black Box Predictors, 2018.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from ..support.arrays import Array, as_array
from ..support.errors import Advice, LevelheadError, check_choice, named
from ..support.fields import to_plain
from ..support.logits import check_columns, check_logits, log_softmax, raise_masked
from ..support.types import Kind, PriorMethod
from ..support.warnings import LevelheadWarning, PriorWarning, warn
from .class_names import listed, title
from .counts import Counts, check_labels, resolve
from .per_class import LogLoss, Mask
from .probabilities import smooth_votes
from .resample import check_replicates, draw_resamples
from .samples import Samples

_LEAST_SHARE = 1e-12  # EM never takes a share from 0
_MORE = 1.0  # samples that EM counts of each class beside those seen
# Samples that EM counts beside those seen for a decision: so many times K, as the roots of the training counts. Chosen
# among 4 to 32 on the sets of bench/decisions at five mixes; docs/decisions.md has what comes of it. As training's
# shares they gain less there, as equal ones they risk more.
_USUAL = 16.0
_LEAST_SINGULAR_VALUE = (
    0.1  # of the confusion matrix: below, errors of the predicted shares may grow tenfold
)


@dataclass(frozen=True, eq=False)
class PriorEstimate:
    """Estimated shares of the classes: what `estimate_prior` returns.

    Args:
        shares: [K], sum to 1.
        target: [K], shares to decide by: by `em`, nearer to what is usual where the samples leave it open.
        interval: [K, 2], from and to, of each share by itself, over bootstrap replicates; None without a bootstrap.
        method: `em` or `bbse`.
        n, held_out: how many unlabelled samples, and how many held-out ones (0 if none).
        level, names, warnings: of the interval; class names, where given; one line each.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as JSON can hold it."""
        return to_plain(self)

    def __str__(self) -> str:
        return f"shares of the classes, by {self.source}: {self.shares_text()}"

    @property
    def source(self) -> str:
        """The method and the samples, in words."""
        also = ", calibrated on" if self.method == "em" else " and"
        held_out = ""
        if self.held_out:
            held_out = f"{also} {self.held_out} held-out ones"
        return f"{self.method} from {self.n} unlabelled samples{held_out}"

    def shares_text(self) -> str:
        """Return each class's share with its interval, in words; of many classes, the first few."""
        between = [""] * len(self.shares)
        if self.interval is not None:
            between = [f" ({low:.1%} to {high:.1%})" for low, high in self.interval]
        return listed(
            [
                f"{title(k, self.names)} {self.shares[k]:.1%}{between[k]}"
                for k in range(len(self.shares))
            ]
        )


# Weights of both kinds of samples -> shares [K].
_Estimator = Callable[[np.ndarray, np.ndarray | None], np.ndarray]
_Labelled = tuple[np.ndarray, np.ndarray]  # held-out scores [N, K] and labels [N]


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
    """Estimate how often each class occurs among unlabelled samples, if only the proportions changed since training.

    Args:
        logits: [M, K] of unlabelled samples, drawn as in deployment.
        counts: training samples of each class, as the loss saw them: after resampling, or times the class weights.
        method: `em`, which uses probabilities, or `bbse`, which uses the confusion matrix of held-out predictions.
        held_out: (logits [N, K], labels [N]) of samples the model was not trained on. Without them, `em` takes the
            softmax of the logits as calibrated for the training counts, and `bbse` cannot be used.
        bootstrap: replicates of the estimate, for its interval; 0 for none. Unlabelled samples are drawn anew for each,
            and so are held-out samples, within their class; `em` then moves its calibration by a step.
        level, rng: of the interval of each share; a generator, or a seed.
        names, kind: class names, for counts given by name and for messages; what both logits are.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.choice(3, p=[0.2, 0.2, 0.6], size=2000)
    >>> logits = 2 * (2 * np.eye(3)[labels] + rng.normal(size=(2000, 3))) + np.log([700, 200, 100])
    >>> estimate_prior(logits, [700, 200, 100], bootstrap=0).shares.round(1)
    array([0.2, 0.2, 0.6])
    """
    check_choice("method", method, get_args(PriorMethod))
    check_replicates(bootstrap, level)
    unlabelled = raise_masked(check_logits(logits, kind=kind).astype(np.float64))
    n = resolve(counts, unlabelled.shape[1], names=names)
    labelled = None
    if held_out is not None:
        labelled = _check_held_out(held_out, len(n), kind)
    if kind == "probabilities":
        both = unlabelled
        if labelled is not None:
            both = np.concatenate([unlabelled, labelled[0]])
        # Alike, if there are zeros among them.
        unlabelled, rest = np.split(smooth_votes(both)[0], [len(unlabelled)])
        labelled = None if labelled is None else (rest, labelled[1])
    warning, every = None, np.ones(len(unlabelled))
    if method == "em":
        usual = _USUAL * len(n) * np.sqrt(n) / np.sqrt(n).sum()
        target = _em_estimator(unlabelled, n, labelled, usual)(every, None)
        estimate = _em_estimator(unlabelled, n, labelled, _MORE)
    elif labelled is not None:
        estimate, warning = _bbse_estimator(unlabelled, n, labelled, names)
        target = estimate(every, None)
    else:
        advice = Advice("held_out", None, "with their logits and labels, or use 'em'")
        reason = "'bbse' needs the confusion matrix of held-out samples"
        raise LevelheadError(reason, parameter="method", advice=advice)
    rng = np.random.default_rng(rng)
    drawn = draw_resamples(np.zeros(len(unlabelled), np.int64), bootstrap, rng)
    if labelled is None:
        held = iter(())
    else:
        held = draw_resamples(labelled[1], bootstrap, rng)
    replicates = np.array([estimate(weights, next(held, None)) for weights in drawn])
    return PriorEstimate(
        shares=estimate(every, None),
        target=target,
        interval=np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2], axis=0).T
        if len(replicates)
        else None,
        method=method,
        n=len(unlabelled),
        held_out=0 if labelled is None else len(labelled[1]),
        level=level,
        names=None if names is None else tuple(map(str, names)),
        warnings=_issue(warning),
    )


def _issue(warning: LevelheadWarning | None) -> tuple[str, ...]:
    if warning is None:
        return ()
    warn(warning)
    return (f"{type(warning).__name__}: {warning}",)


def estimate_target(
    unlabelled: Array | None,
    counts: np.ndarray,
    held_out: tuple[Array, np.ndarray] | None,
    *,
    level: float,
    names: Sequence[str] | None,
    kind: Kind,
) -> PriorEstimate:
    """Return the shares among unlabelled samples, by `em`, calibrated on held-out ones if any."""
    if unlabelled is None:
        reason = "'estimate' needs unlabelled samples from deployment"
        advice = Advice("unlabelled", None, "with their logits")
        raise LevelheadError(reason, parameter="target", advice=advice)
    unlabelled = as_array(unlabelled)
    check_columns(unlabelled, len(counts), "unlabelled")
    try:
        return estimate_prior(
            unlabelled, counts, held_out=held_out, level=level, names=names, kind=kind
        )
    except LevelheadError as error:
        parameter = error.parameter or "unlabelled"
        raise LevelheadError(error.message, parameter=parameter, advice=error.advice) from None


def maximize_shares(
    ratios: np.ndarray,
    weights: np.ndarray,
    start: np.ndarray | None = None,
    more: float | np.ndarray = 0.0,
) -> np.ndarray:
    """Return the shares [K] of greatest likelihood, ``sum_i w_i log(ratios share)_i + more sum log share``."""
    # Two steps of EM give a direction and its bend; a longer step along both is taken if it raises the likelihood
    # (SQUAREM, Varadhan and Roland 2008). The ratios [M, K] are ``p(k | x_i) / prior_k``, up to a factor a sample.
    size = ratios.shape[1]
    beside = np.broadcast_to(more, size)
    total = weights.sum() + beside.sum()
    mass, added = weights / total, beside / total

    def step(shares: np.ndarray) -> np.ndarray:
        return np.maximum(shares * (ratios.T @ (mass / (ratios @ shares))) + added, _LEAST_SHARE)

    def likelihood(shares: np.ndarray) -> float:
        return float(mass @ np.log(ratios @ shares) + added @ np.log(shares))

    if start is None:
        shares = np.full(size, 1 / size)
    else:
        shares = np.maximum(start, 1e-6)
    shares = shares / shares.sum()
    for _ in range(500):
        one = step(shares)
        two = step(one)
        if np.abs(two - one).max() < 1e-9:
            return two / two.sum()
        moved, bend = one - shares, two - 2 * one + shares
        length = max(1.0, float(np.sqrt((moved @ moved) / max(bend @ bend, 1e-300))))
        far = np.maximum(shares + 2 * length * moved + length**2 * bend, _LEAST_SHARE)
        far /= far.sum()
        shares = two
        if likelihood(far) >= likelihood(two):
            shares = step(far)
    return shares / shares.sum()


def project_on_simplex(values: np.ndarray) -> np.ndarray:
    """Return the nearest numbers [K] that are not negative and sum to 1 (Duchi et al. 2008)."""
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    return np.maximum(values - excess[np.flatnonzero(descending > excess)[-1]], 0)


def _em_estimator(
    unlabelled: np.ndarray, counts: np.ndarray, labelled: _Labelled | None, more: float | np.ndarray
) -> _Estimator:
    if labelled is None:
        # P(x_i | k), up to a factor for each sample.
        ratios = np.exp(log_softmax(unlabelled - np.log(counts)))
        whole = maximize_shares(ratios, np.ones(len(unlabelled)), more=more)
        return lambda weights, _: maximize_shares(ratios, weights, whole, more)
    loss = _calibrated_loss(*labelled, counts)
    fitted = loss.fit()
    start: list[np.ndarray] = []

    def estimate(weights: np.ndarray, times: np.ndarray | None) -> np.ndarray:
        own = fitted if times is None else loss.refit(times, fitted)
        # Calibrated for the training mix; without it, their softmax is p(x_i | k), up to a factor.
        calibrated = loss.adjustment(own).scores(unlabelled) / loss.temperature
        ratios = np.exp(log_softmax(calibrated - np.log(counts)))
        shares = maximize_shares(ratios, weights, start[0] if start else None, more)
        start[:] = start or [shares]
        return shares

    return estimate


def _calibrated_loss(scores: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> LogLoss:
    """Return the log loss of held-out samples, of which vector scaling is the calibration."""
    fold = np.zeros(len(labels), np.uint8)
    samples = Samples(scores, labels, counts.astype(np.float64), fold)
    return LogLoss.of(samples, Mask(scales=True, offsets=True))


def _bbse_estimator(
    unlabelled: np.ndarray, counts: np.ndarray, labelled: _Labelled, names: Sequence[str] | None
) -> tuple[_Estimator, LevelheadWarning | None]:
    """Return the estimator, and a warning if the confusion matrix is near singular."""
    # Predictions are of calibrated logits, shifted by the counts: a class that is never predicted leaves no trace.
    size, (held_out, labels) = len(counts), labelled
    sizes = np.bincount(labels, minlength=size)
    if not sizes.all():
        which = f"{title(int(np.argmin(sizes)), names)} has no held-out sample"
        reason = f"{which}, so 'bbse' cannot know how it is predicted; add some, or use 'em'"
        raise LevelheadError(reason, parameter="held_out")
    loss = _calibrated_loss(held_out, labels, counts)
    here, there = (
        (each / loss.temperature - np.log(counts)).argmax(axis=1) for each in (unlabelled, held_out)
    )

    def confusion(times: np.ndarray | None) -> np.ndarray:
        table = np.bincount(there * size + labels, times, size * size).reshape(size, size)
        return table / table.sum(axis=0)

    def estimate(weights: np.ndarray, times: np.ndarray | None) -> np.ndarray:
        predicted = np.bincount(here, weights, size) / weights.sum()
        return project_on_simplex(np.linalg.lstsq(confusion(times), predicted, rcond=None)[0])

    least = float(np.linalg.svd(confusion(None), compute_uv=False)[-1])
    return estimate, None if least >= _LEAST_SINGULAR_VALUE else PriorWarning(
        f"the confusion matrix of the held-out samples is near singular (least singular value {least:.2g}): some "
        "classes are predicted alike, and their shares are hardly known; see the interval, or use 'em'"
    )


def _check_held_out(held_out: Any, size: int, kind: Kind) -> _Labelled:
    if not isinstance(held_out, Sequence) or len(held_out) != 2:
        raise LevelheadError("expected (logits [N, K], labels [N])", parameter="held_out")
    with named("held_out"):
        scores = raise_masked(check_logits(held_out[0], kind=kind).astype(np.float64))
        if scores.shape[1] != size:
            raise LevelheadError(f"expected logits [N, {size}], got shape {list(scores.shape)}")
        labels = check_labels(held_out[1], size)
        if len(labels) != len(scores):
            raise LevelheadError(
                f"expected one label per row of logits, got {len(labels)} and {len(scores)} rows"
            )
    return scores, labels
