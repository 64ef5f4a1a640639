"""Choose gamma on data that may be used for choosing: held-out samples, unlabelled ones, or both. Never on test data.

The criterion and its reasons are in `criterion.py`; what is checked before is in `guards.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

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
from .criterion import STRENGTH, Landscape, replicates
from .envelope import Envelope, compute_envelope
from .path import GammaPath, gamma_path
from .rule import check_range, make_rule, target_prior
from .tuned import Tuned

Fold = tuple[Array, Array, Counts]  # logits [N, K], labels [N], and the counts that this fold's model was trained on


def tune(
    logits: Array, labels: Array, counts: Counts, *, metric: Metric = "balanced_error", criterion: Criterion = "guided",
    rule: RuleName = "rescale", range: tuple[float, float] = (0.0, 2.0), unlabelled: Array | None = None,
    target: Array | None = None, chosen_on: str = "held-out", bootstrap: int = 1000, level: float = 0.95,
    rng: np.random.Generator | int = 0, norms: Array | None = None, bias: Array | None = None,
    training: Array | None = None, names: Sequence[str] | None = None, kind: Kind = "logits",
    progress: StageProgress | None = None,
) -> Tuned:
    """The gamma at which the criterion is lowest on held-out data, exact over the whole range.

    ``J(gamma) = balanced error + min(1, 20 s) * mismatch``, with s the standard error of the balanced error at its own
    optimum, and mismatch the total variation between class-weighted predicted shares and the target prior. The chosen
    gamma is the middle of the plateau on which J is lowest.

    Args:
        logits: [N, K] of samples the model was not trained on; they may be imbalanced, each class weighs the same.
        labels: [N]. A class without a sample is named in a warning and left neutral.
        counts: training samples of each class.
        metric: `balanced_error`, or `error`: classes weigh as often as they occur among the labels.
        criterion: `guided`, the above, or `balanced_error` alone.
        rule: `rescale`, `tau` (with norms) or `shift`.
        range: of gamma; holds 0.
        unlabelled: [M, K], logits of deployment data: their predicted shares are then those compared with the target.
        target: [K] or {class: share}, prior of the classes in deployment: weighs them in every metric; uniform if not
            given.
        chosen_on: what the data are, for the record; "test" is printed wherever the result is.
        bootstrap: replicates of the whole choice, stratified by class, for both intervals; 0 for none.
        level: of the intervals.
        rng: a generator, or the seed of one.
        norms: [K], weight norms of the head: what `tau` divides by; elsewhere a warning if they fall as counts grow.
        bias: [K], a bias within the logits that will be kept while the weights are scaled.
        training: [M, K], training logits: a warning if the held-out ones are among them.
        names: class names, if counts are given by name; they also serve the messages.
        kind: `probabilities` only with rule="shift", which works on their logarithms.
        progress: called with what is being done, how much of it, and of how much.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = (2 + rng.normal(size=(300, 3)) + 2 * np.eye(3)[labels]) * [1.0, 0.7, 0.4]
    >>> tuned = tune(logits, labels, [1000, 200, 40], bootstrap=200)
    >>> 0.1 < tuned.gamma < 0.4, tuned.gain_is_certain
    (True, True)
    """
    path = gamma_path(logits, labels, counts, range=check_range(range, holds_zero=True), rule=rule, bias=bias,
                      names=names, kind=kind, norms=norms if rule == "tau" else None,
                      progress=_stage(progress, "path"))
    return tune_path(path, metric=metric, criterion=criterion, unlabelled=unlabelled, target=target, names=names,
                     chosen_on=chosen_on, bootstrap=bootstrap, level=level, rng=rng, norms=norms, training=training,
                     progress=progress)


def tune_path(
    path: GammaPath, *, metric: Metric = "balanced_error", criterion: Criterion = "guided",
    unlabelled: Array | None = None, target: Array | None = None, chosen_on: str = "held-out", bootstrap: int = 1000,
    level: float = 0.95, rng: np.random.Generator | int = 0, norms: Array | None = None,
    training: Array | None = None, names: Sequence[str] | None = None, progress: StageProgress | None = None,
) -> Tuned:
    """`tune`, for whoever has the path already: what it knows of the predictions is not computed again."""
    logits, rule = path.logits[0], path.rule.name
    changes = None
    unlabelled = None if unlabelled is None else as_array(unlabelled)
    if unlabelled is not None and (unlabelled.ndim != 2 or not len(unlabelled)
                                   or unlabelled.shape[1] != len(path.counts)):
        raise LevelheadError(f"expected unlabelled logits [M, {len(path.counts)}], got shape {list(unlabelled.shape)}")
    if unlabelled is not None or criterion == "guided":
        ours = unlabelled is None and path.rule.bias is None and progress is None
        try:
            changes = path.envelope if ours else _changes(logits if unlabelled is None else unlabelled, path, progress)
        except ValueError as error:
            raise (error if unlabelled is None else ValueError(f"unlabelled: {error}")) from None
    landscape = Landscape(path, changes, _prior(path, metric, target, names), unlabelled=unlabelled is not None)
    return _answer(landscape, metric, criterion, chosen_on, bootstrap, level, rng, names, progress, cautions=[
        diagnostics.diagnose_training_rows(logits, training),
        diagnostics.diagnose_norms(norms, path.counts, rule),
        diagnostics.diagnose_binary_head(logits, rule),
        diagnostics.diagnose_negative_logits(logits, path.labels, rule),
    ], stacklevel=4)


def cross_fit(
    folds: Sequence[Fold], *, metric: Metric = "balanced_error", criterion: Criterion = "guided",
    rule: RuleName = "rescale", range: tuple[float, float] = (0.0, 2.0), target: Array | None = None,
    bootstrap: int = 1000, level: float = 0.95, rng: np.random.Generator | int = 0,
    names: Sequence[str] | None = None, kind: Kind = "logits",
) -> Tuned:
    """One gamma from the out-of-fold scores of cross-validation, each fold's model with the counts it was trained on.

    Every sample contributes the interval of gammas at which its own fold's model is right; the intervals of all folds
    are pooled, and gamma is chosen as in `tune`.

    Args:
        folds: (logits [N, K], labels [N], counts) of each fold: samples its model was not trained on.
        metric, criterion, rule, range, target, bootstrap, level, rng, names, kind: as in `tune`.
    """
    folds, reach = list(folds), check_range(range, holds_zero=True)
    if not folds:
        raise LevelheadError("expected at least one fold of (logits, labels, counts), got none")
    if not all(isinstance(fold, Sequence) and len(fold) == 3 for fold in folds):
        raise LevelheadError("expected folds of (logits [N, K], labels [N], counts), three things each")
    paths = [gamma_path(*fold, range=reach, rule=rule, names=names, kind=kind) for fold in folds]
    pooled = pool_folds(paths)
    changes = None
    if criterion == "guided":
        first, *others = [path.envelope for path in paths]
        changes = first.joined(others)
    landscape = Landscape(pooled, changes, _prior(pooled, metric, target, names))
    return _answer(landscape, metric, criterion, "out-of-fold", bootstrap, level, rng, names, None, cautions=[
        _first(diagnostics.diagnose_binary_head(path.logits[0], rule) for path in paths),
        _first(diagnostics.diagnose_negative_logits(path.logits[0], path.labels, rule) for path in paths),
    ])


def pool_folds(paths: Sequence[GammaPath]) -> GammaPath:
    """The path of all folds together. Each fold has counts, and so factors, of its own: where its samples are right is
    kept as it is; predictions, which would take one rule for all, are not."""
    sizes = sorted({len(path.counts) for path in paths})
    if len(sizes) > 1:
        raise LevelheadError(f"expected the same classes in every fold, got folds of {', '.join(map(str, sizes))} classes")
    offsets = np.cumsum([0, *(len(path.labels) for path in paths)])
    return replace(
        paths[0], sample=np.concatenate([path.sample + at for path, at in zip(paths, offsets, strict=False)]),
        lo=np.concatenate([path.lo for path in paths]), hi=np.concatenate([path.hi for path in paths]),
        labels=np.concatenate([path.labels for path in paths]), logits=(),
    )


def match_prior(
    logits: Array, counts: Counts, target: Array | None = None, *, rule: RuleName = "rescale",
    range: tuple[float, float] = (0.0, 2.0), bootstrap: int = 1000, level: float = 0.95,
    rng: np.random.Generator | int = 0, norms: Array | None = None, names: Sequence[str] | None = None,
    kind: Kind = "logits", progress: StageProgress | None = None,
) -> Tuned:
    """With no labels at all: the gamma at which the predicted shares of the classes lie nearest to the target prior.

    ``mismatch(gamma) = 1/2 sum_k |share_k(gamma) - target_k|``. Needs to know the prior of the unlabelled data.

    Args:
        logits: [N, K] of unlabelled samples, drawn as in deployment.
        counts: training samples of each class.
        target: [K] or {class: share}, prior of the classes in these samples; uniform if not given.
        rule, range, bootstrap, level, rng, norms, names, kind, progress: as in `tune`.

    >>> tuned = match_prior(np.array([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]]), [400, 100], bootstrap=0)
    >>> round(tuned.gamma, 3), tuned.mismatch
    (0.604, 0.0)
    """
    logits = as_array(logits)
    check_shape(logits.shape)
    n = resolve(counts, logits.shape[1], names=names)
    if kind == "probabilities" and rule != "shift":
        raise LevelheadError(f"rule={rule!r} multiplies logits and has no meaning for probabilities; use rule='shift'")
    _check_times(bootstrap)
    made = make_rule(rule, n, norms=norms if rule == "tau" else None)
    changes = compute_envelope(logits, made, check_range(range, holds_zero=True), kind=kind, progress=_stage(progress, "path"))
    landscape = Landscape(None, changes, target_prior(target, len(n), names), unlabelled=True)
    curve = landscape.curve(landscape.mismatch())
    gamma, plateau = landscape.choose(curve.values)
    gammas = [landscape.choose(landscape.mismatch(times))[0]
              for times in draw_resamples(np.zeros(len(logits), np.int64), bootstrap, np.random.default_rng(rng))]
    found = diagnostics.issue_warnings([diagnostics.diagnose_binary_head(logits, rule), diagnostics.diagnose_norms(norms, n, rule),
                          diagnostics.diagnose_unpredicted_classes(changes.shares(0.0), landscape.target, len(logits)),
                          diagnostics.diagnose_range_end(plateau, changes.range)])
    return Tuned(
        gamma=gamma, interval=_quantiles(gammas, level), rule=rule, criterion="shares", chosen_on="unlabelled",
        n=len(logits), classes=len(n), plateau=plateau, curve=curve, criterion_curve=curve, level=level,
        mismatch=float(curve.at(gamma)), mismatch_at_zero=float(curve.at(0.0)), warnings=found,
    )


def _answer(
    landscape: Landscape, metric: Metric, criterion: Criterion, chosen_on: str, bootstrap: int, level: float,
    rng: np.random.Generator | int, names: Sequence[str] | None, progress: StageProgress | None, *,
    cautions: list[diagnostics.Diagnosis], stacklevel: int = 3,
) -> Tuned:
    """What `tune` and `cross_fit` share once they know where every sample is right."""
    if criterion not in ("guided", "balanced_error"):
        raise LevelheadError(f"expected criterion='guided' or 'balanced_error', got {criterion!r}")
    _check_times(bootstrap)
    path, weights = landscape.path, landscape.weights
    assert path is not None
    strength = STRENGTH if criterion == "guided" else 0.0
    error = landscape.error()
    values = landscape.judge(error, strength=strength)
    gamma, plateau = landscape.choose(values)
    drawn = replicates(landscape, gamma, strength, bootstrap, np.random.default_rng(rng), _stage(progress, "bootstrap"))
    now, before = path.right(gamma), path.right(0.0)
    balanced = ([1 - weights @ before, 1 - weights @ now] if metric == "balanced_error" else
                [path.at(at).balanced_error for at in (0.0, gamma)])
    sizes = np.bincount(path.labels, minlength=len(path.counts))
    found = diagnostics.issue_warnings([*cautions, diagnostics.diagnose_accuracy(before), diagnostics.diagnose_range_end(plateau, path.range),
                          diagnostics.diagnose_missing_classes(sizes, names)], stacklevel=stacklevel)
    mismatch = None if landscape.changes is None else landscape.curve(landscape.mismatch())
    return Tuned(
        gamma=gamma, interval=_quantiles(drawn.gammas, level), rule=path.rule.name, criterion=criterion,
        metric=metric, chosen_on=chosen_on, n=len(path.labels), classes=len(path.counts), plateau=plateau,
        curve=landscape.curve(error), criterion_curve=landscape.curve(values), level=level,
        error=float(1 - now.mean()), balanced_error=float(balanced[1]),
        error_at_zero=float(1 - before.mean()), balanced_error_at_zero=float(balanced[0]),
        gain=float(weights @ now - weights @ before) - drawn.optimism,
        gain_interval=_quantiles(drawn.gains - drawn.optimism, level),
        mismatch=None if mismatch is None else float(mismatch.at(gamma)),
        mismatch_at_zero=None if mismatch is None else float(mismatch.at(0.0)),
        missing=tuple(np.flatnonzero(sizes == 0).tolist()), warnings=found,
    )


def _changes(logits: Array, path: GammaPath, progress: StageProgress | None) -> Envelope:
    """Predictions over the range: exact, or on 401 gammas if a kept bias bends the lines."""
    shown = _stage(progress, "shares")
    if path.rule.bias is None:
        return compute_envelope(logits, path.rule, path.range, kind=path.kind, progress=shown)
    gammas = np.linspace(*path.range, 401)
    table = np.concatenate([np.stack([path.rule.scores(chunk, gamma).argmax(axis=1) for gamma in gammas])
                            for _, chunk in read_chunks(logits, kind=path.kind, progress=shown)], axis=1)
    step, sample = np.nonzero(table[1:] != table[:-1])
    return Envelope(table[0], sample, gammas[step + 1], table[step + 1, sample], table[step, sample], len(path.counts),
                    path.range)


def _prior(path: GammaPath, metric: Metric, target: Array | None, names: Sequence[str] | None) -> np.ndarray:
    """[K], what each class weighs: as it occurs for the plain error, else as the target has it."""
    sizes = np.bincount(path.labels, minlength=len(path.counts))
    check_choice("metric", metric, METRICS)
    if metric == "error" and target is not None:
        raise LevelheadError("metric='error' weighs classes as they occur, a target says otherwise; give one of the two")
    shares = sizes / sizes.sum() if metric == "error" else target_prior(target, len(sizes), names)
    if not shares[sizes > 0].any():
        raise LevelheadError("the target gives no weight to any class that has a sample here")
    return shares


def _first(cautions: Iterable[diagnostics.Diagnosis]) -> diagnostics.Diagnosis:
    """One warning for all folds, whichever of them gives cause for it."""
    return next((caution for caution in cautions if caution is not None), None)


def _check_times(bootstrap: int) -> None:
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int | np.integer) or bootstrap < 0:
        raise LevelheadError(f"expected bootstrap, a number of replicates, of 0 or more, got {bootstrap}")


def _quantiles(values: np.ndarray | list[float], level: float) -> tuple[float, float] | None:
    if not 0 < level < 1:
        raise LevelheadError(f"expected a level between 0 and 1, got {level}")
    if len(values) == 0:
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _stage(progress: StageProgress | None, name: str) -> RowProgress | None:
    return None if progress is None else partial(progress, name)
