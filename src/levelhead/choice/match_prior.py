"""Choosing gamma without labels, by predicted shares alone."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..core.array import Array, as_array, check_shape
from ..core.choices import Kind
from ..core.counts import Counts, resolve
from ..path.envelope_walk import compute_envelope
from ..rules.checks import target_prior
from ..rules.rule import Rescale, Rule, find_path_rule
from ..show.progress import StageProgress
from . import diagnostics
from .block_shares import choose_by_shares
from .choose import chosen_for, kind_of_scores, quantiles
from .objective import Grid, ShareMismatch
from .options import TuneOptions, rule_options
from .priors import estimate_target
from .tuned import Tuned


def match_prior(
    logits: Array,
    counts: Counts,
    target: Array | None = None,
    *,
    rule: str | Rule = Rescale.name,
    bootstrap: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    progress: StageProgress | None = None,
) -> Tuned:
    """Choose, without labels, the gamma at which the predicted class shares are closest to the target prior.

    ``mismatch(gamma) = 1/2 sum_k |share_k(gamma) - target_k|``. The prior of the unlabelled data must be known. Only
    labels can tell which rule is right, so it is not chosen here.

    Args:
        logits: [N, K] of unlabelled samples, drawn as in deployment.
        target: [K] or {class: share}, prior of the classes in these samples; uniform if not given; or `estimate`, by
            EM, which takes the softmax of the logits as calibrated for the training counts (see `estimate_prior`).
        rule: `rescale`, `tau` or `shift`, or an object of `lh.rules`, as in `tune`.
        counts, bootstrap, level, rng, names, kind, progress: as in `tune`.

    Returns:
        The chosen gamma with its interval and the mismatch before and after. Errors and gain are None.

    >>> tuned = match_prior(np.array([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]]), [400, 100], bootstrap=0)
    >>> round(tuned.gamma, 3), tuned.mismatch
    (0.604, 0.0)
    """
    options = TuneOptions(
        target=target,
        bootstrap=bootstrap,
        level=level,
        rng=rng,
        names=names,
        kind=kind,
        progress=progress,
        **rule_options(rule),
    )
    return match_prior_with(logits, counts, options)


def match_prior_with(logits: Array, counts: Counts, options: TuneOptions) -> Tuned:
    """Choose gamma as `match_prior` does; the rule is `rescale` if none is named."""
    logits, norms = as_array(logits), options.norms
    check_shape(logits.shape)
    if options.estimates_target:
        n = resolve(counts, logits.shape[1], names=options.names)
        prior = estimate_target(replace(options, unlabelled=logits), n)
        return replace(match_prior_with(logits, n, replace(options, target=prior.shares)), prior=prior)
    rule = find_path_rule(Rescale.name if options.is_auto else options.rule)
    n = resolve(counts, logits.shape[1], names=options.names)
    made = rule.direction(n, norms=norms if rule.needs_norms else None, kind=options.kind)
    target = target_prior(options.target, len(n), options.names)
    reach = options.range_of(rule.name)
    changes = compute_envelope(logits, made, reach, kind=options.kind, progress=options.stage("path"))
    mismatch = ShareMismatch(changes, target, Grid.between(changes.gamma, changes.range))
    curve = mismatch.grid.curve(mismatch.values())
    gamma, plateau = mismatch.grid.choose(curve.values)
    coarse = ShareMismatch(changes, target, Grid.between(changes.gamma, changes.range, 1000))
    gammas = choose_by_shares(coarse, options.bootstrap, np.random.default_rng(options.rng))
    found = diagnostics.issue_warnings(
        [
            diagnostics.diagnose_binary_head(logits, rule),
            diagnostics.diagnose_norms(norms, n, rule),
            diagnostics.diagnose_unpredicted_classes(changes.shares(0.0), target, len(logits)),
            diagnostics.diagnose_range_end(plateau, changes.range),
        ]
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
        **chosen_for(n, options.names),
    )
