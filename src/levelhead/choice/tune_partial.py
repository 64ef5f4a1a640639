"""The choice of gamma from a `Partial`, before or after a second pass over its samples."""

from typing import Any

import numpy as np

from ..core.array import Array
from ..core.choices import Criterion, Metric
from ..core.curve import Curve
from ..core.errors import LevelheadError
from ..path.metrics import ERRORS
from ..rules.checks import target_prior
from . import diagnostics
from .choose import chosen_for, guide_strength, quantiles
from .frame import Frame
from .goal import Goal
from .objective import Grid
from .options import TuneOptions
from .partial import Partial
from .second_pass import SecondPass, error_bounds, join_events, mismatch_values
from .tuned import Tuned

_SAME_VALUE = 1e-10  # values closer than this are equal: they differ by rounding


def tune_partial(whole: Partial, options: TuneOptions) -> Tuned:
    """Choose gamma from a partial: on its grid by the error alone or, after a second pass, exactly as `tune` does.

    On the grid, the error at the chosen gamma is exact, and above the lowest error of all by at most what `why` says.
    Intervals are those of a bootstrap that draws the changes in each cell, as if no sample changed twice.

    Args:
        whole: the partial of all samples.
        options: of the tuning; the metric is `balanced_error` or `error`.

    Returns:
        The choice. It has no temperature, which needs logits.

    >>> whole = Partial.of([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
    >>> tune_partial(whole, TuneOptions(bootstrap=0)).balanced_error
    0.25
    """
    _check_options(whole.frame, options)
    if not whole.sizes.sum() or whole.sizes.sum() != whole.samples:
        raise LevelheadError("expected a partial of labelled samples; give labels to Partial.of")
    frame, events, prior = whole.frame, whole.events, class_prior(whole, options)
    weights = prior / np.maximum(whole.sizes, 1)
    guided = options.guided and events is not None
    if events is not None:
        needed = SecondPass.of(whole, prior, guided=guided)
        if (needed.cells & ~events.cells).any() or (guided and not events.shares.size):
            raise LevelheadError("the second pass was made for another metric, target or criterion; make it again")
    error = join_events(whole, events, weights)
    grid = Grid(np.append(error.gammas, error.end))
    values, mismatch = error.values, None
    if guided:
        assert events is not None
        best = error.middle(error.plateau(_SAME_VALUE))
        s = standard_error(_right_at(whole, best), whole.sizes, prior)
        shares = mismatch_values(whole, events, prior, error.gammas)
        mismatch = Curve(error.gammas, shares, error.end)
        values = values + min(1.0, guide_strength(options) * s) * shares
    gamma, plateau = grid.choose(values)
    if events is None and gamma != 0:
        gamma = float(frame.edges[_on_grid(frame.edges, plateau)])
    criterion = grid.curve(values)
    gammas, gains, optimism = _draw_replicates(whole, prior, gamma, np.asarray(criterion.at(frame.edges)), options)
    with np.errstate(invalid="ignore"):
        recall, recall_at_zero = (_right_at(whole, at) / whole.sizes for at in (gamma, 0.0))
    value, value_at_zero = (float(1 - np.nansum(prior * r)) for r in (recall, recall_at_zero))
    balanced = [float(1 - np.nanmean(r)) for r in (recall, recall_at_zero)]
    if options.metric == "balanced_error":
        balanced = [value, value_at_zero]
    plain = [float(1 - np.nansum(whole.sizes * r) / whole.samples) for r in (recall, recall_at_zero)]
    warnings = diagnostics.issue_warnings(
        [
            diagnostics.diagnose_few_errors(whole.samples, round(plain[1] * whole.samples)),
            diagnostics.diagnose_range_end(plateau, frame.range),
            diagnostics.diagnose_missing_classes(whole.sizes, options.names),
        ]
    )
    return Tuned(
        gamma=gamma,
        interval=quantiles(gammas, options.level),
        rule=frame.rule.name,
        criterion="guided" if guided else "balanced_error",
        metric=options.metric,
        value=value,
        value_at_zero=value_at_zero,
        chosen_on=options.chosen_on,
        n=whole.samples,
        classes=frame.classes,
        plateau=plateau,
        curve=error,
        criterion_curve=criterion,
        level=options.level,
        error=plain[0],
        balanced_error=balanced[0],
        error_at_zero=plain[1],
        balanced_error_at_zero=balanced[1],
        gain=value_at_zero - value - optimism,
        gain_interval=quantiles(gains - optimism, options.level),
        mismatch=None if mismatch is None else float(mismatch.at(gamma)),
        mismatch_at_zero=None if mismatch is None else float(mismatch.at(0.0)),
        missing=tuple(np.flatnonzero(whole.sizes == 0).tolist()),
        warnings=warnings,
        recall=tuple(recall.tolist()),
        recall_at_zero=tuple(recall_at_zero.tolist()),
        why=_bound_text(whole, weights, value),
        kind=frame.kind,
        **chosen_for(frame.counts, options.names),
    )


def plan_second_pass(
    whole: Partial,
    *,
    metric: Metric = "balanced_error",
    target: Array | None = None,
    criterion: Criterion = "guided",
    names: Any = None,
) -> SecondPass:
    """Return what a second pass over the shards has to look for, so that `tune` can choose exactly.

    Args:
        whole: the partial of all shards.
        metric, target, criterion, names: as they will be given to `tune`.

    Returns:
        The pass: its `look(logits, labels)` is for each shard, and the sum for `Partial.with_events`.

    >>> logits, labels = [[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1]
    >>> whole = Partial.of(logits, labels, [400, 100])
    >>> whole = whole.with_events(plan_second_pass(whole).look(logits, labels))
    >>> round(tune_partial(whole, TuneOptions(bootstrap=0)).gamma, 3)
    0.354
    """
    options = TuneOptions(goal=Goal(metric, criterion=criterion), target=target, names=names)
    _check_options(whole.frame, options)
    return SecondPass.of(whole, class_prior(whole, options), guided=options.guided)


def _check_options(frame: Frame, options: TuneOptions) -> None:
    """Check that nothing is asked for that needs all logits at once."""
    if options.metric not in ERRORS:
        raise LevelheadError(
            f"expected 'error' or 'balanced_error', got {options.metric!r}, which needs all samples at once",
            parameter="metric",
        )
    if not options.is_auto and options.rule != frame.rule.name:
        raise LevelheadError(f"the partial is of the rule {frame.rule.name!r}, got {options.rule!r}", parameter="rule")
    check_for_chunks(options)


def check_for_chunks(options: TuneOptions) -> None:
    """Check that no option needs all samples at once."""
    given = {name: getattr(options, name) for name in ("floors", "unlabelled", "bias", "training")}
    for name, value in given.items():
        if value is not None:
            raise LevelheadError("needs all samples at once; leave it out, or give logits [N, K]", parameter=name)
    if options.estimates_target:
        raise LevelheadError("an estimate needs all samples at once; give the shares themselves", parameter="target")


def class_prior(whole: Partial, options: TuneOptions) -> np.ndarray:
    """Return what each class weighs, [K], over the classes that have a sample."""
    size = whole.frame.classes
    shares = whole.sizes if options.metric == "error" else target_prior(options.target, size, options.names)
    present = shares * (whole.sizes > 0)
    if not present.any():
        raise LevelheadError("expected a share above 0 for some class that has a sample here", parameter="target")
    return present / present.sum()


def standard_error(right: np.ndarray, sizes: np.ndarray, prior: np.ndarray) -> float:
    """Return the standard error of the class-weighted error, of right [K] samples out of sizes [K].

    >>> round(standard_error(np.array([8, 3]), np.array([10, 10]), np.array([0.5, 0.5])), 3)
    0.092
    """
    accuracy = (right + 1) / (sizes + 2)
    return float(np.sqrt((prior**2 * accuracy * (1 - accuracy) / (sizes + 2)).sum()))


def _right_at(whole: Partial, gamma: float) -> np.ndarray:
    """Return how many samples of each class are right at a gamma of the grid or of a cell that was looked into."""
    at = int(np.searchsorted(whole.frame.edges, gamma, side="right")) - 1
    right, events = whole.right[:, at].copy(), whole.events
    if events is not None:
        some = (events.gamma > whole.frame.edges[at]) & (events.gamma <= gamma)
        np.add.at(right, events.label[some], events.sign[some])
    return right


def _on_grid(edges: np.ndarray, plateau: tuple[float, float]) -> int:
    """Return the gamma of the grid, by its place, that is nearest to the middle of a plateau, and on it."""
    on = np.flatnonzero((edges >= plateau[0]) & (edges < plateau[1]))
    return int(on[np.abs(edges[on] - sum(plateau) / 2).argmin()]) if len(on) else len(edges) - 1


def _draw_replicates(
    whole: Partial, prior: np.ndarray, gamma: float, values: np.ndarray, options: TuneOptions
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the gammas that replicates choose on values [G + 1], what the real gamma gains on each, and the optimism.

    In each cell, the samples that change are drawn again; a sum of many draws is normal. Only differences from the
    chosen gamma matter, and these have the variance of the samples that changed since.
    """
    frame, rng, n = whole.frame, np.random.default_rng(options.rng), options.bootstrap
    weights = prior / np.maximum(whole.sizes, 1)
    entered, at, zero = whole.entered, int(np.abs(frame.edges - gamma).argmin()), frame.zero
    spread = np.sqrt(weights**2 @ (entered + whole.left))
    noise = np.zeros((n, frame.bins + 1))
    np.cumsum(rng.normal(size=(n, frame.bins)) * spread, axis=1, out=noise[:, 1:])
    noise -= noise[:, [at]]
    grid = Grid(np.append(frame.edges, frame.edges[-1]))
    gammas = np.array([grid.choose(values + row)[0] for row in noise])
    if gamma == 0:
        return gammas, np.zeros(n), 0.0
    chosen = np.abs(frame.edges - gammas[:, None]).argmin(axis=1)
    errors = 1 - weights @ whole.right
    optimism = noise[:, zero] - noise[np.arange(n), chosen]
    between = slice(min(zero, at), max(zero, at))
    up, down = entered[:, between].sum(axis=1), whole.left[:, between].sum(axis=1)

    size = np.maximum(whole.sizes + 2, 1)  # each class with one sample more that gains, and one that loses
    variance = ((up + down + 2) / size - ((up - down) / size) ** 2) / size
    gains = rng.normal(errors[zero] - errors[at], np.sqrt((prior**2 * variance).sum()), n)
    return gammas, gains, float(optimism.mean()) if n else 0.0


def _bound_text(whole: Partial, weights: np.ndarray, value: float) -> str:
    """Say how much lower the error may be between the gammas of the grid."""
    if whole.events is not None:
        return ""
    lower = max(0.0, value - float(error_bounds(whole, weights)[0].min()))
    return (
        f"on a grid of {whole.frame.bins + 1} gammas; no gamma between them lowers the error by more than {lower:.2g}"
    )
