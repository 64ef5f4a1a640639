"""Rule and strength chosen on held-out samples, out-of-fold scores or, without labels, shares; never on test data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.adjustment import target_prior, toward
from ..core.counts import Counts, WithBackground, resolve
from ..core.rules import AUTO, RULES, Rescale, Rule, Shift, find_path_rule
from ..path.engines import find_changes
from ..support.arrays import Array, as_array, check_shape
from ..support.errors import LevelheadError
from ..support.progress import StageProgress
from ..support.types import Kind
from . import diagnostics
from .auto import choose_gamma, shift_to_target, tune_auto
from .fitters import point_to_offsets
from .gamma_path import GammaPath
from .objective import Grid, ShareMismatch
from .path_metrics import UnmetFloors
from .paths import Paths, RulePath
from .priors import estimate_target
from .replicate_groups import choose_by_shares, tables_for
from .resample import quantiles
from .samples import (
    Goal,
    Samples,
    TuneOptions,
    as_rows,
    check_background,
    kind_of_scores,
    rule_options,
)
from .tuned import Tuned


def tune(
    logits: Array,
    labels: Array = None,
    counts: Counts | None = None,
    *,
    metric: str | Goal = "balanced_error",
    rule: str | Rule = AUTO,
    target: Array | None = None,
    unlabelled: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    training: Array | None = None,
    chosen_on: str = "held-out",
    bootstrap: int = 500,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    progress: StageProgress | None = None,
) -> Tuned:
    """Choose a rule, and the strength gamma at which its criterion is lowest, on held-out data; exact over the range.

    ``J(gamma) = balanced error + min(1, 20 s) * mismatch``, with s the standard error of the balanced error at its own
    optimum, and mismatch the total variation between class-weighted predicted shares and the target prior. The chosen
    gamma is the middle of the plateau on which J is lowest. Other metrics are optimized by themselves. With the rule
    `auto`, each rule is fitted on parts of the samples and judged on the rest (see `choice/auto.py`).

    Args:
        logits: [N, K] of samples the model was not trained on. They may be imbalanced: each class weighs the same. Or
            of tokens [N, T, K] or pixels [N, K, H, W], with labels [N, T] or [N, H, W], of which -100 is left out;
            intervals then take positions for independent samples and are too narrow. Chunks are for `tune_chunks`.
        labels: [N], class indices, or names that `names` or the keys of counts list in class order. A class without a
            sample is named in a warning and left neutral.
        counts: training samples of each class, as the loss saw them: after resampling, or times the class weights;
            with `lh.counts.with_background`, of which one class is left alone.
        metric: what the choice is to be good at, a name or a `Goal`, which has costs and floors.
        rule: `auto`, which chooses; `shift` (``l_k + gamma log r_k``, r_k = n_max / n_k), `rescale`
            (``l_k r_k^gamma``, the paper's RS), `tau` (``l_k / ||w_k||^gamma``), `rescale+shift`, `vector`
            (``scale_k l_k + offset_k``, by log loss) or `offsets` (``l_k + offset_k``, by the metric), of gamma 1.
            Or an object of `lh.rules`, such as ``Tau(norms=head.norms)`` or ``Shift(range=(0, 8))``.
        target: [K] or {class: share}, prior of the classes in deployment, which weighs them in the metric. Without it,
            balanced error and shares are of a uniform prior, and all other metrics of the samples as they are. Or
            `estimate`, from the unlabelled samples, by EM as `estimate_prior` does it.
        unlabelled: [M, K], logits of deployment data, whose predicted shares are then compared with the target.
        names: class names, for counts given by name and for messages.
        kind: `probabilities`, whose logarithms can be shifted but not scaled.
        training: [M, K], training logits, for a warning if held-out rows are among them.
        chosen_on: what the data are, for the record. "test" is printed wherever the result is.
        bootstrap: replicates of the whole choice, stratified by class, for both intervals; 0 for none.
        level, rng: of the intervals; a generator, or a seed.
        progress: called with (stage, how much of it is done, how much it is in all).

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = (2 + rng.normal(size=(300, 3)) + 2 * np.eye(3)[labels]) * [1.0, 0.7, 0.4]
    >>> tuned = tune(logits, labels, [1000, 200, 40], bootstrap=200)
    >>> tuned.worthwhile, max(tuned.candidates, key=lambda one: one.gain).rule == tuned.rule
    (True, True)
    """
    background = counts.background if isinstance(counts, WithBackground) else None
    given: dict[str, Any] = rule_options(rule) | {
        "goal": Goal.of(metric),
        "chosen_on": chosen_on,
        "progress": progress,
    }
    given |= {"unlabelled": unlabelled, "training": training, "background": background}
    options = TuneOptions(
        target=target, bootstrap=bootstrap, level=level, rng=rng, names=names, kind=kind, **given
    )
    check_background(background, options.rule)
    if labels is None:
        raise LevelheadError(
            "expected labels [N]; without labels, use match_prior", parameter="labels"
        )
    if counts is None:
        raise LevelheadError(
            "expected the training samples of each class, got none", parameter="counts"
        )
    logits, labels, names = as_rows(logits, labels, counts, names)
    if background is not None:
        counts = resolve(counts, logits.shape[1], names=names)
    return _tune_parts([(logits, labels, counts)], replace(options, names=names))


def tune_path(
    path: GammaPath, counts: Counts | None = None, options: TuneOptions | None = None
) -> Tuned:
    """Choose gamma as `tune` does, on a path that is already computed and with its rule."""
    if path.weights is not None or path.k > 1:
        raise LevelheadError(
            "expected a path of top-1 without weights of samples; or use its best()"
        )
    options = TuneOptions() if options is None else options
    rule = path.rule.name if options.is_auto else options.rule
    if rule != path.rule.name:
        raise LevelheadError(
            f"the path is of the rule {path.rule.name!r}, got {rule!r}", parameter="rule"
        )
    if counts is not None and not np.array_equal(
        resolve(counts, len(path.counts), names=options.names), path.counts
    ):
        raise LevelheadError(
            "they are not those that the path was made with; leave them out", parameter="counts"
        )
    options = replace(
        options, rule=rule, target=path.target if options.target is None else options.target
    )
    found = _diagnose_logits(
        path.whole_logits()[0], path.labels[: len(path.logits[0])], path.counts, options
    )
    return choose_gamma(RulePath.of([path], options), options, path.counts, found)


def tune_with(options: TuneOptions, logits: Array, labels: Array | None, counts: Counts) -> Tuned:
    """Choose as `tune` does or, without labels, as `match_prior` does."""
    if labels is None:
        return match_prior_with(logits, counts, options)
    return _tune_parts([(logits, labels, counts)], options)


def cross_fit(
    folds: Sequence[tuple[Array, Array, Counts]],
    *,
    metric: str | Goal = "balanced_error",
    rule: str | Rule = AUTO,
    target: Array | None = None,
    bootstrap: int = 500,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
) -> Tuned:
    """Choose one rule and gamma from the out-of-fold scores of cross-validation, each fold with its own counts.

    Every sample contributes the interval of gammas at which its own fold's model is right. The intervals of all folds
    are pooled, and rule and gamma are chosen as in `tune`; `chosen_on` is "out-of-fold".

    Args:
        folds: (logits [N, K], labels [N], counts) of each fold, of samples its model was not trained on.
        metric, rule, target, bootstrap, level, rng, names, kind: as in `tune`.

    >>> first = np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), [0, 1, 1], [400, 100]
    >>> second = np.array([[5.0, 2.0], [2.0, 2.5]]), [0, 1], [380, 120]
    >>> tuned = cross_fit([first, second], rule="rescale", bootstrap=0)
    >>> tuned.chosen_on, tuned.n, round(tuned.gamma, 3)
    ('out-of-fold', 5, 0.354)
    """
    given: dict[str, Any] = rule_options(rule) | {
        "goal": Goal.of(metric),
        "chosen_on": "out-of-fold",
    }
    options = TuneOptions(
        target=target, bootstrap=bootstrap, level=level, rng=rng, names=names, kind=kind, **given
    )
    folds = list(folds)
    if not folds or not all(isinstance(fold, Sequence) and len(fold) == 3 for fold in folds):
        raise LevelheadError(
            "expected at least one fold, each (logits [N, K], labels [N], counts)",
            parameter="folds",
        )
    return _tune_parts(folds, options)


def _tune_parts(parts: Sequence[tuple[Array, Array, Counts]], options: TuneOptions) -> Tuned:
    """Do what `tune` and `cross_fit` share."""
    samples = Samples.of(parts, options)
    if options.estimates_target:
        prior = estimate_target(
            options, samples.counts, [(logits, labels) for logits, labels, _ in samples.parts]
        )
        options = replace(options, target=prior.target, unlabelled=None)
        return replace(_tune_parts(parts, options), prior=prior)
    return tune_samples(samples)


def tune_samples(samples: Samples) -> Tuned:
    """Choose the rule that was asked for, or any, on samples that are checked."""
    options, paths = samples.options, Paths(samples)
    each = zip(*(_diagnose_logits(*part, options) for part in samples.parts), strict=True)
    found = [next(filter(None, same), None) for same in each]  # one warning for all folds
    try:
        if not options.is_auto and RULES[options.rule].has_path:
            return choose_gamma(paths.of(options.rule), options, samples.counts, found)
        return tune_auto(paths, found)
    except UnmetFloors as error:
        raise point_to_offsets(error, paths) from None


def _diagnose_logits(
    logits: Array, labels: np.ndarray, counts: np.ndarray, options: TuneOptions
) -> list[diagnostics.Diagnosis]:
    """Return what is wrong with the samples, or with the rule that was asked for on them."""
    asked = None if options.is_auto else RULES[options.rule]
    folds = options.chosen_on == "out-of-fold"
    named = (
        asked if asked is not None and asked.has_path else Shift()
    )  # of other rules, the samples themselves say
    return [
        diagnostics.diagnose_training_rows(logits, options.training),
        diagnostics.diagnose_norms(options.norms, counts, named),
        diagnostics.diagnose_binary_head(logits, named),
        diagnostics.diagnose_negative_logits(logits, labels, named),
        *(
            diagnostics.diagnose_counts(logits, labels, counts, asked or Shift())
            if not folds
            else ()
        ),
    ]


def match_prior(
    logits: Array,
    counts: Counts,
    target: Array | None = None,
    *,
    rule: str | Rule = Rescale.name,
    bootstrap: int = 500,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    progress: StageProgress | None = None,
) -> Tuned:
    """Choose, without labels, the gamma at which the predicted class shares are closest to the target prior.

    ``mismatch(gamma) = 1/2 sum_k |share_k(gamma) - target_k|``. The prior of the unlabelled data must be known. Only
    labels can tell which rule is right, so it is not chosen here; errors and gain are None.

    Args:
        logits: [N, K] of unlabelled samples, drawn as in deployment.
        target: [K] or {class: share}, prior of the classes in these samples; uniform if not given; or `estimate`, by
            EM, which takes the softmax of the logits as calibrated for the training counts (see `estimate_prior`).
        rule: `rescale`, `tau` or `shift`, or an object of `lh.rules`, as in `tune`.
        counts, bootstrap, level, rng, names, kind, progress: as in `tune`.

    >>> tuned = match_prior(np.array([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]]), [400, 100], bootstrap=0)
    >>> print(tuned)
    gamma = 0.604 for rule rescale, chosen on unlabelled (4 samples); predicted shares off the target by 50.00% -> 0.00%
    """
    given: dict[str, Any] = rule_options(rule) | {"progress": progress}
    options = TuneOptions(
        target=target, bootstrap=bootstrap, level=level, rng=rng, names=names, kind=kind, **given
    )
    return match_prior_with(logits, counts, options)


def match_prior_with(logits: Array, counts: Counts, options: TuneOptions) -> Tuned:
    """Choose gamma as `match_prior` does; the rule is `rescale` if none is named."""
    logits, norms = as_array(logits), options.norms
    check_shape(logits.shape)
    n = resolve(counts, logits.shape[1], names=options.names)
    if options.estimates_target:
        prior = estimate_target(replace(options, unlabelled=logits), n)
        return replace(
            match_prior_with(logits, n, replace(options, target=prior.target)), prior=prior
        )
    rule = find_path_rule(Rescale.name if options.is_auto else options.rule)
    target = target_prior(options.target, len(n), options.names)
    moved = toward(n, target) if rule.follows_target and options.target is not None else n
    made = rule.direction(moved, norms=norms if rule.needs_norms else None, kind=options.kind)
    changes = find_changes(
        logits, made, options.range_of(rule.name), kind=options.kind, progress=options.stage("path")
    )
    mismatch = ShareMismatch(changes, target, Grid.between(changes.gamma, changes.range))
    curve = mismatch.grid.curve(mismatch.values())
    gamma, plateau = mismatch.grid.choose(curve.values)
    coarse = ShareMismatch(changes, target, Grid.between(changes.gamma, changes.range, 1000))
    gammas = choose_by_shares(
        coarse, options.bootstrap, np.random.default_rng(options.rng), tables_for([logits])
    )
    found = diagnostics.issue_warnings(
        diagnostics.diagnose_binary_head(logits, rule),
        diagnostics.diagnose_norms(norms, n, rule),
        diagnostics.diagnose_unpredicted_classes(changes.shares(0.0), target, len(logits)),
        diagnostics.diagnose_range_end(plateau, changes.range),
    )
    return Tuned(
        gamma=gamma,
        interval=quantiles(gammas, options.level),
        rule=rule.name,
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
        kind=kind_of_scores(logits, options.kind),
        offset=shift_to_target(made, gamma, options),
        counts=tuple(map(float, n)),
        names=None if options.names is None else tuple(map(str, options.names)),
    )
