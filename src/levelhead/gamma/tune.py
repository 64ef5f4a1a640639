"""Choosing gamma on held-out samples, unlabelled ones, or both, by `criterion.py`. Never on test data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import numpy as np

from ..core.adjust import RuleName
from ..core.array import Array, as_array
from ..core.choices import Criterion
from ..core.counts import Counts, resolve
from ..core.curve import METRICS, Metric
from ..core.errors import LevelheadError, check_choice
from ..core.measure import Kind, check_shape
from ..show.progress import RowProgress, StageProgress
from . import diagnostics
from .bootstrap import draw_resamples
from .chunks import read_chunks
from .criterion import STRENGTH, Grid, Objective, ShareMismatch, draw_replicates
from .envelope import Envelope, compute_envelope
from .merge import concatenate
from .metrics import ERRORS, RECALLS, check_cost, check_cost_given, check_floors, meets_floors, shown, unmet_floors
from .path import GammaPath, gamma_path
from .rule import check_range, make_rule, target_prior
from .tuned import Tuned

Floors = float | Mapping[Any, float] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class TuneOptions:
    """The options of a tuning, checked. The parameters of `tune` explain them."""

    metric: Metric = "balanced_error"
    cost: Array | None = None
    floors: Floors = None
    criterion: Criterion = "guided"
    rule: RuleName = "rescale"
    range: tuple[float, float] = (0.0, 2.0)
    unlabelled: Array | None = None
    target: Array | None = None
    chosen_on: str = "held-out"
    bootstrap: int = 1000
    level: float = 0.95
    rng: np.random.Generator | int = 0
    norms: Array | None = None
    bias: Array | None = None
    training: Array | None = None
    names: Sequence[str] | None = None
    kind: Kind = "logits"
    progress: StageProgress | None = None

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        check_choice("criterion", self.criterion, get_args(Criterion))
        object.__setattr__(self, "range", check_range(self.range, holds_zero=True))
        if self.cost is not None and self.metric == "balanced_error":  # the default: a cost is a metric by itself
            object.__setattr__(self, "metric", "cost")
        check_cost_given(self.metric, self.cost)
        if self.metric in ("error", "g_mean", "worst_recall") and self.target is not None:
            weighs = "classes as they occur" if self.metric == "error" else "every class the same"
            raise LevelheadError(
                f"the metric {self.metric} weighs {weighs}; leave out the target, or choose the metric balanced_error",
                parameter="target",
            )
        if self.metric not in ERRORS and self.unlabelled is not None:
            raise LevelheadError(
                f"their predicted shares guide only the metrics error and balanced_error, not "
                f"{self.metric}; leave them out",
                parameter="unlabelled",
            )
        if isinstance(self.bootstrap, bool) or not isinstance(self.bootstrap, int | np.integer) or self.bootstrap < 0:
            raise LevelheadError(
                f"expected a number of replicates, 0 or more, got {self.bootstrap}", parameter="bootstrap"
            )
        if not 0 < self.level < 1:
            raise LevelheadError(f"expected a number between 0 and 1, got {self.level}", parameter="level")

    @property
    def guided(self) -> bool:
        """Whether predicted shares count: with an error as metric, unless the criterion is that error alone."""
        return self.criterion == "guided" and self.metric in ERRORS

    @property
    def needs_predictions(self) -> bool:
        """Whether every change of every prediction must be known, or only where samples are right."""
        return self.guided or self.metric not in RECALLS

    def stage(self, name: str) -> RowProgress | None:
        """Return the progress function of one stage."""
        return None if self.progress is None else partial(self.progress, name)


def tune(
    logits: Array,
    labels: Array,
    counts: Counts,
    *,
    metric: Metric = "balanced_error",
    cost: Array | None = None,
    floors: Floors = None,
    criterion: Criterion = "guided",
    rule: RuleName = "rescale",
    range: tuple[float, float] = (0.0, 2.0),
    unlabelled: Array | None = None,
    target: Array | None = None,
    chosen_on: str = "held-out",
    bootstrap: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    norms: Array | None = None,
    bias: Array | None = None,
    training: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    progress: StageProgress | None = None,
) -> Tuned:
    """Choose the gamma at which the criterion is lowest on held-out data, exact over the whole range.

    ``J(gamma) = balanced error + min(1, 20 s) * mismatch``, with s the standard error of the balanced error at its own
    optimum, and mismatch the total variation between class-weighted predicted shares and the target prior. The chosen
    gamma is the middle of the plateau on which J is lowest. Other metrics are optimized by themselves.

    Args:
        logits: [N, K] of samples the model was not trained on. They may be imbalanced: each class weighs the same.
        labels: [N]. A class without a sample is named in a warning and left neutral.
        counts, range: training samples of each class; of gamma, which must hold 0.
        metric: `balanced_error`; or `error`, which weighs classes as they occur among the labels; or `macro_f1`, `mcc`,
            `kappa` (Cohen's), `g_mean` or `worst_recall`, over the classes that have a sample.
        cost: [K, K], row true, column predicted: the metric is then the mean cost of a sample.
        floors: {class: recall}, or a recall for all classes: only gammas at which no recall is below its floor.
        criterion: `guided`, which is J above, or `balanced_error` alone; for the two errors.
        rule: `rescale` (``l_k r_k^gamma``, r_k = n_max / n_k), `tau` (``l_k / ||w_k||^gamma``, with `norms`), or
            `shift` (``l_k + gamma log r_k``).
        unlabelled: [M, K], logits of deployment data, whose predicted shares are then compared with the target.
        target: [K] or {class: share}, prior of the classes in deployment, which weighs them in the metric. Without it,
            balanced error and shares are of a uniform prior, and all other metrics of the samples as they are.
        chosen_on: what the data are, for the record. "test" is printed wherever the result is.
        bootstrap: replicates of the whole choice, stratified by class, for both intervals; 0 for none.
        level, rng: of the intervals; a generator, or a seed.
        norms: [K], weight norms of the head. `tau` divides by them. Other rules warn if they fall as counts grow.
        bias: [K], a bias within the logits that will be kept while the weights are scaled.
        training: [M, K], training logits, for a warning if held-out rows are among them.
        names: class names, for counts given by name and for messages.
        kind: `probabilities` only with the rule shift, which works on their logarithms.
        progress: called with (stage, how much of it is done, how much it is in all).

    Returns:
        The chosen gamma with its interval, the gain to expect, the curves and the warnings.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = (2 + rng.normal(size=(300, 3)) + 2 * np.eye(3)[labels]) * [1.0, 0.7, 0.4]
    >>> tuned = tune(logits, labels, [1000, 200, 40], bootstrap=200)
    >>> 0.1 < tuned.gamma < 0.4, tuned.worthwhile
    (True, True)
    """
    options = TuneOptions(
        metric=metric,
        cost=cost,
        floors=floors,
        criterion=criterion,
        rule=rule,
        range=range,
        unlabelled=unlabelled,
        target=target,
        chosen_on=chosen_on,
        bootstrap=bootstrap,
        level=level,
        rng=rng,
        norms=norms,
        bias=bias,
        training=training,
        names=names,
        kind=kind,
        progress=progress,
    )
    return _tune_path(_labelled_path(logits, labels, counts, options), options)


def tune_path(
    path: GammaPath,
    *,
    target: Array | None = None,
    chosen_on: str = "held-out",
    bootstrap: int = 1000,
    norms: Array | None = None,
    names: Sequence[str] | None = None,
) -> Tuned:
    """Choose gamma as `tune` does, on a path that is already computed."""
    return _tune_path(
        path, TuneOptions(target=target, chosen_on=chosen_on, bootstrap=bootstrap, norms=norms, names=names)
    )


def tune_with(options: TuneOptions, logits: Array, labels: Array | None, counts: Counts) -> Tuned:
    """Choose gamma as `tune` does or, without labels, as `match_prior` does."""
    if labels is None:
        return _match_prior(logits, counts, options)
    return _tune_path(_labelled_path(logits, labels, counts, options), options)


def cross_fit(
    folds: Sequence[tuple[Array, Array, Counts]],
    *,
    metric: Metric = "balanced_error",
    cost: Array | None = None,
    floors: Floors = None,
    criterion: Criterion = "guided",
    rule: RuleName = "rescale",
    range: tuple[float, float] = (0.0, 2.0),
    target: Array | None = None,
    bootstrap: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
) -> Tuned:
    """Choose one gamma from the out-of-fold scores of cross-validation, each fold with its own training counts.

    Every sample contributes the interval of gammas at which its own fold's model is right. The intervals of all folds
    are pooled, and gamma is chosen as in `tune`.

    Args:
        folds: (logits [N, K], labels [N], counts) of each fold, of samples its model was not trained on.
        metric, cost, floors, criterion, rule, range, target, bootstrap, level, rng, names, kind: as in `tune`.

    Returns:
        The chosen gamma, as from `tune`, with `chosen_on` "out-of-fold".

    >>> first = np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), [0, 1, 1], [400, 100]
    >>> second = np.array([[5.0, 2.0], [2.0, 2.5]]), [0, 1], [380, 120]
    >>> tuned = cross_fit([first, second], bootstrap=0)
    >>> tuned.chosen_on, tuned.n, round(tuned.gamma, 3)
    ('out-of-fold', 5, 0.354)
    """
    options = TuneOptions(
        metric=metric,
        cost=cost,
        floors=floors,
        criterion=criterion,
        rule=rule,
        range=range,
        target=target,
        names=names,
        chosen_on="out-of-fold",
        bootstrap=bootstrap,
        level=level,
        rng=rng,
        kind=kind,
    )
    folds = list(folds)
    if not folds or not all(isinstance(fold, Sequence) and len(fold) == 3 for fold in folds):
        raise LevelheadError("expected at least one fold, each (logits [N, K], labels [N], counts)", parameter="folds")
    paths = [_labelled_path(*fold, options) for fold in folds]
    known = [path.envelope for path in paths] if options.needs_predictions else []
    changes = known[0].joined(known[1:]) if known else None
    binary = (diagnostics.diagnose_binary_head(path.logits[0], rule) for path in paths)
    negative = (diagnostics.diagnose_negative_logits(path.logits[0], path.labels, rule) for path in paths)
    found = [next(filter(None, each), None) for each in (binary, negative)]  # one warning for all folds
    return _choose_gamma(
        pool_folds(paths), changes, options, found, stacklevel=3, counts=np.sum([path.counts for path in paths], axis=0)
    )


def pool_folds(paths: Sequence[GammaPath]) -> GammaPath:
    """Return the path of all folds together. Each fold has its own counts, and so its own factors: where its samples
    are right is kept, but the logits, which would need one rule for all, are not."""
    sizes = sorted({len(path.counts) for path in paths})
    if len(sizes) > 1:
        raise LevelheadError(
            f"expected the same classes in every fold, got folds of {', '.join(map(str, sizes))} classes",
            parameter="folds",
        )
    return replace(concatenate(paths), logits=())


def match_prior(
    logits: Array,
    counts: Counts,
    target: Array | None = None,
    *,
    rule: RuleName = "rescale",
    range: tuple[float, float] = (0.0, 2.0),
    bootstrap: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    norms: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    progress: StageProgress | None = None,
) -> Tuned:
    """Choose, without labels, the gamma at which the predicted class shares are closest to the target prior.

    ``mismatch(gamma) = 1/2 sum_k |share_k(gamma) - target_k|``. The prior of the unlabelled data must be known.

    Args:
        logits: [N, K] of unlabelled samples, drawn as in deployment.
        target: [K] or {class: share}, prior of the classes in these samples; uniform if not given.
        counts, rule, range, bootstrap, level, rng, norms, names, kind, progress: as in `tune`.

    Returns:
        The chosen gamma with its interval and the mismatch before and after. Errors and gain are None.

    >>> tuned = match_prior(np.array([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]]), [400, 100], bootstrap=0)
    >>> round(tuned.gamma, 3), tuned.mismatch
    (0.604, 0.0)
    """
    return _match_prior(
        logits,
        counts,
        TuneOptions(
            target=target,
            rule=rule,
            range=range,
            bootstrap=bootstrap,
            level=level,
            rng=rng,
            norms=norms,
            names=names,
            kind=kind,
            progress=progress,
        ),
    )


def _match_prior(logits: Array, counts: Counts, options: TuneOptions) -> Tuned:
    logits, rule, norms = as_array(logits), options.rule, options.norms
    check_shape(logits.shape)
    n = resolve(counts, logits.shape[1], names=options.names)
    made = make_rule(rule, n, norms=norms if rule == "tau" else None, kind=options.kind)
    target = target_prior(options.target, len(n), options.names)
    changes = compute_envelope(logits, made, options.range, kind=options.kind, progress=options.stage("path"))
    mismatch = ShareMismatch(changes, target, Grid.between(changes.gamma, changes.range))
    curve = mismatch.grid.curve(mismatch.values())
    gamma, plateau = mismatch.grid.choose(curve.values)
    resamples = draw_resamples(np.zeros(len(logits), np.int64), options.bootstrap, np.random.default_rng(options.rng))
    gammas = np.array([mismatch.grid.choose(mismatch.values(times))[0] for times in resamples])
    found = diagnostics.issue_warnings(
        [
            diagnostics.diagnose_binary_head(logits, rule),
            diagnostics.diagnose_norms(norms, n, rule),
            diagnostics.diagnose_unpredicted_classes(changes.shares(0.0), target, len(logits)),
            diagnostics.diagnose_range_end(plateau, changes.range),
        ],
        stacklevel=3,
    )
    return Tuned(
        gamma=gamma,
        interval=_quantiles(gammas, options.level),
        rule=rule,
        criterion="shares",
        chosen_on="unlabelled",
        n=len(logits),
        classes=len(n),
        plateau=plateau,
        curve=curve,
        criterion_curve=curve,
        level=options.level,
        mismatch=float(curve.at(gamma)),
        mismatch_at_zero=float(curve.at(0.0)),
        warnings=found,
        **_chosen_for(n, options.names),
    )


def _labelled_path(logits: Array, labels: Array, counts: Counts, options: TuneOptions) -> GammaPath:
    return gamma_path(
        logits,
        labels,
        counts,
        range=options.range,
        rule=options.rule,
        bias=options.bias,
        names=options.names,
        kind=options.kind,
        norms=options.norms if options.rule == "tau" else None,
        progress=options.stage("path"),
    )


def _tune_path(path: GammaPath, options: TuneOptions) -> Tuned:
    logits, rule, unlabelled = path.whole_logits()[0], path.rule.name, options.unlabelled
    changes = None
    if unlabelled is not None:
        unlabelled = as_array(unlabelled)
        if unlabelled.ndim != 2 or not len(unlabelled) or unlabelled.shape[1] != len(path.counts):
            raise LevelheadError(
                f"expected logits [M, {len(path.counts)}], got shape {list(unlabelled.shape)}", parameter="unlabelled"
            )
        try:
            changes = _predicted_changes(unlabelled, path, options)
        except LevelheadError as error:
            raise LevelheadError(error.message, parameter="unlabelled", advice=error.advice) from None
    elif options.needs_predictions:
        known = path.rule.bias is None and options.progress is None
        changes = path.envelope if known else _predicted_changes(logits, path, options)
    return _choose_gamma(
        path,
        changes,
        options,
        [
            diagnostics.diagnose_training_rows(logits, options.training),
            diagnostics.diagnose_norms(options.norms, path.counts, rule),
            diagnostics.diagnose_binary_head(logits, rule),
            diagnostics.diagnose_negative_logits(logits, path.labels, rule),
        ],
        stacklevel=4,
    )


def _choose_gamma(
    path: GammaPath,
    changes: Envelope | None,
    options: TuneOptions,
    found: list[diagnostics.Diagnosis],
    *,
    stacklevel: int,
    counts: np.ndarray | None = None,
) -> Tuned:
    """Do what `tune` and `cross_fit` share, once it is known where every sample is right; counts if not the path's."""
    sizes = np.bincount(path.labels, minlength=len(path.counts))
    occurring = options.target is None and options.metric != "balanced_error"  # classes weigh as they occur
    shares = sizes / sizes.sum() if occurring else target_prior(options.target, len(sizes), options.names)
    if not shares[sizes > 0].any():
        raise LevelheadError("expected a share above 0 for some class that has a sample here", parameter="target")
    floors = None if options.floors is None else check_floors(options.floors, path.labels, len(sizes), options.names)
    objective = Objective(
        path,
        shares,
        changes,
        unlabelled=options.unlabelled is not None,
        metric=options.metric,
        cost=None if options.cost is None else check_cost(options.cost, len(sizes)),
        floors=floors,
    )
    weights, grid, error = objective.weights, objective.grid, objective.error()
    strength = STRENGTH if options.guided else 0.0
    values = objective.values(error, strength=strength)
    gamma, plateau = grid.choose(values)
    if floors is not None and not meets_floors(objective.margins()):
        raise unmet_floors(gamma, path.class_accuracy(gamma), floors, path.range, options.names)
    drawn = draw_replicates(
        objective, gamma, strength, options.bootstrap, np.random.default_rng(options.rng), options.stage("bootstrap")
    )
    now, before = path.right(gamma), path.right(0.0)
    balanced = (
        [path.at(at).balanced_error for at in (0.0, gamma)] if occurring else [1 - weights @ before, 1 - weights @ now]
    )
    losses = [objective.fixed_loss(at)(None) for at in (0.0, gamma)]
    warnings = diagnostics.issue_warnings(
        [
            *found,
            diagnostics.diagnose_accuracy(before),
            diagnostics.diagnose_range_end(plateau, path.range),
            diagnostics.diagnose_missing_classes(sizes, options.names),
        ],
        stacklevel=stacklevel,
    )
    mismatch = None if objective.mismatch is None else grid.curve(objective.mismatch.values())
    return Tuned(
        gamma=gamma,
        interval=_quantiles(drawn.gammas, options.level),
        rule=path.rule.name,
        criterion=options.criterion if options.metric in ERRORS else options.metric,
        metric=options.metric,
        value=shown(options.metric, losses[1]),
        value_at_zero=shown(options.metric, losses[0]),
        floors=() if floors is None else tuple(np.nan_to_num(floors).tolist()),
        floors_met_at_zero=None if floors is None else not (path.class_accuracy(0.0) < floors).any(),
        chosen_on=options.chosen_on,
        n=len(path.labels),
        classes=len(path.counts),
        plateau=plateau,
        curve=grid.curve(shown(options.metric, error)),
        criterion_curve=grid.curve(values),
        level=options.level,
        error=float(1 - now.mean()),
        balanced_error=float(balanced[1]),
        error_at_zero=float(1 - before.mean()),
        balanced_error_at_zero=float(balanced[0]),
        gain=losses[0] - losses[1] - drawn.optimism,
        gain_interval=_quantiles(drawn.gains - drawn.optimism, options.level),
        mismatch=None if mismatch is None else float(mismatch.at(gamma)),
        mismatch_at_zero=None if mismatch is None else float(mismatch.at(0.0)),
        missing=tuple(np.flatnonzero(sizes == 0).tolist()),
        warnings=warnings,
        **_chosen_for(path.counts if counts is None else counts, options.names, kept=path.rule.bias is not None),
    )


def _chosen_for(counts: np.ndarray, names: Sequence[str] | None, *, kept: bool = False) -> dict[str, Any]:
    """Return what a `Tuned` says of the head that it is for."""
    return {
        "counts": tuple(float(n) for n in counts),
        "bias": "keep" if kept else "scale",
        "names": None if names is None else tuple(map(str, names)),
    }


def _predicted_changes(logits: Array, path: GammaPath, options: TuneOptions) -> Envelope:
    """Return every change of every prediction: exact, or on 401 gammas if a kept bias bends the lines."""
    progress = options.stage("shares")
    if path.rule.bias is None:
        return compute_envelope(logits, path.rule, path.range, kind=path.kind, progress=progress)
    gammas = np.linspace(*path.range, 401)
    table = np.concatenate(
        [
            np.stack([path.rule.scores(chunk, gamma).argmax(axis=1) for gamma in gammas])
            for _, chunk in read_chunks(logits, kind=path.kind, progress=progress)
        ],
        axis=1,
    )
    step, sample = np.nonzero(table[1:] != table[:-1])
    between = (gammas[step] + gammas[step + 1]) / 2  # so that each stretch is judged at its own gamma of the 401
    return Envelope(
        start=table[0],
        sample=sample,
        gamma=between,
        new_class=table[step + 1, sample],
        old_class=table[step, sample],
        classes=len(path.counts),
        range=path.range,
    )


def _quantiles(values: np.ndarray, level: float) -> tuple[float, float] | None:
    if len(values) == 0:
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
