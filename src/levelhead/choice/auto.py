"""The choice of the rule itself, on held-out samples: what ``tune(rule="auto")`` does. docs/which-gamma.md measures it.

The shift's strength is chosen by ``J(gamma) + s |gamma - T| / T``: the criterion of `tune` and a pull toward what a
calibrated model needs, a shift of 1 on scores divided by their temperature T; of all other rules, by J alone. Then
every rule is cross-fitted. The shift is kept unless another is better by more than half a paired standard error.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from ..core.adjustment import Adjustment, smooth_votes
from ..core.rules import RULES, Unchanged
from ..path.direction import Direction
from ..support.arrays import Array, are_on_gpu, fit_scale, raise_masked, some_rows, to_numpy
from ..support.errors import LevelheadError
from . import diagnostics
from .cross_fit import CrossFitted, cross_fit_rules, draw_replicates
from .fitters import (
    ShiftAfter,
    VectorFitter,
    check_floors_met,
    left_out_text,
    make_fitter,
    without_floors,
)
from .path_metrics import ERRORS, gain_text, meets_floors, shown, unmet_floors
from .paths import Fitted, Fitter, Paths, RulePath
from .resample import quantiles
from .samples import TuneOptions, joined, kind_of_scores
from .tuned import Candidate, Tuned

CLEARLY = 0.5  # paired standard errors by which a rule must be better than a simpler one
NONE = Unchanged.name
_Found = TypeVar("_Found")


def tune_auto(paths: Paths, found: Sequence[diagnostics.Diagnosis]) -> Tuned:
    """Choose a rule and its strengths on held-out samples. A rule asked for by name is cross-fitted by itself."""
    samples, options = paths.samples, paths.samples.options
    dealt = _begin(
        samples.deal, [logits for logits, *_ in samples.parts]
    )  # while the device finds the paths
    fitters = make_fitters(paths)
    every = np.arange(len(samples.labels))
    fits = dict(
        zip(fitters, samples.each(lambda fitter: fitter.fit(every), fitters.values()), strict=True)
    )
    check_floors_met(fitters, fits)
    crossed = cross_fit_rules(samples, fitters, paths.reference.objective(options), dealt())
    rule, why = take_rule(crossed, fitters, fits, every) if options.is_auto else (options.rule, "")
    why = "; ".join(filter(None, (why, left_out_text(samples))))
    if isinstance(fitter := fitters.get(rule), ShiftAfter | VectorFitter):
        fitters[rule] = fitter = fitter.settled
        fits[rule] = fitter.fit(every)
    candidates = list_candidates(crossed, fits, fitters)
    path = paths.of(RULES[rule].path_name)
    paths.forget()
    del fitters  # the paths of other rules may be larger than all that is to come
    none = not RULES[rule].changes
    if none or RULES[rule].has_path:
        tuned = choose_gamma(path, options, samples.counts, found, none)
    else:
        more = [diagnostics.diagnose_range_end(fits[rule].plateau, fits[rule].reach)]
        quick, none = (
            replace(without_floors(options), bootstrap=0),
            not RULES[rule].strengths,
        )  # not on that path
        tuned = choose_gamma(path, quick, samples.counts, [*found, *more], none)
        tuned = _with_parts(tuned, rule, fits[rule], crossed)
        if none:
            curve = next(one.curve for one in candidates if one.rule == rule)
            assert curve is not None
            tuned = replace(tuned, plateau=(1.0, 1.0), curve=curve, criterion_curve=curve)
    gain, between = diagnostics.expect_gain(*crossed.gain(rule), crossed.loss(NONE), options.level)
    return replace(
        tuned, rule=rule, gain=gain, gain_interval=between, candidates=candidates, why=why
    )


def make_fitters(paths: Paths) -> dict[str, Fitter]:
    """Return the rules that can act on these samples, simplest first, or only the one that was asked for."""
    options = paths.samples.options
    alone = options.background is not None  # which rules without counts would change
    wanted = [rule for rule in RULES.values() if options.is_auto or rule.name == options.rule]
    wanted = [rule for rule in wanted if rule.follows_counts or not alone]
    found = zip(
        wanted, paths.samples.each(lambda rule: make_fitter(rule, paths), wanted), strict=True
    )
    usable = {rule.name: fitter for rule, fitter in found if fitter is not None}
    if not usable:
        raise LevelheadError(
            f"{options.rule!r} cannot act on these scores; use 'shift'", parameter="rule"
        )
    return usable


def take_rule(
    crossed: CrossFitted,
    fitters: Mapping[str, Fitter],
    fits: Mapping[str, Fitted],
    every: np.ndarray,
) -> tuple[str, str]:
    """Return what `choose_rule` does, or RS alone where it has a shift after it that is none."""
    rule, why = choose_rule(crossed, fits)
    if isinstance(fitter := fitters.get(rule), ShiftAfter):
        low, high = fitter.settled.fit(every).plateau
        if low <= 0 <= high:
            return RULES[rule].path_name, f"{why}; and that shift is none"
    return rule, why


def choose_rule(crossed: CrossFitted, fits: Mapping[str, Fitted]) -> tuple[str, str]:
    """Return the rule to use, or `none`, and why: the first that meets the floors stays unless clearly beaten."""
    able = [rule for rule, fit in fits.items() if fit.floors_met] or list(fits)
    if (
        crossed.samples.target is not None
    ):  # which log loss knows better how to reach than one strength does
        able.sort(key=lambda rule: not RULES[rule].first_with_target)
    chosen, over = able[0], None
    for rule in able[1:]:
        if (
            crossed.criterion(chosen) - crossed.criterion(rule)
            > CLEARLY * crossed.gain(rule, chosen)[1]
        ):
            chosen, over = rule, chosen
    lead, error = crossed.gain(
        NONE, chosen
    )  # predicted shares are a guide to a strength, not a reason to have one
    if lead > CLEARLY * error and crossed.meets_floors_as_trained():
        chosen, over = NONE, chosen
    if over is None:
        if len(able) == 1 < len(fits):
            return chosen, f"{RULES[chosen].title}: no other rule meets the floors"
        others = (
            "no other rule is"
            if len(able) > 1
            else "no other rule can act on these scores, and none is"
        )
        better = "better by more than half a standard error, on samples that neither was fitted on"
        return chosen, f"{RULES[chosen].title}: {others} {better}"
    lead = round(crossed.gain(chosen, over)[0], 9) + 0.0  # never -0
    gain, where = (
        gain_text(crossed.objective.metric, lead, None),
        "on samples that neither was fitted on",
    )
    if lead <= 0:
        nearer = f"its predicted shares are nearer to the target than those of {RULES[over].title}"
        return chosen, f"{RULES[chosen].title}: {nearer}, and its gain over it is {gain}, {where}"
    return chosen, f"{RULES[chosen].title}: better than {RULES[over].title} by {gain}, {where}"


def list_candidates(
    crossed: CrossFitted, fits: dict[str, Fitted], fitters: dict[str, Fitter]
) -> tuple[Candidate, ...]:
    """Return every rule with its cross-fitted value and gain, the model as it is first."""
    metric, level = crossed.objective.metric, crossed.samples.options.level
    found = [
        Candidate(NONE, 0.0, value=shown(metric, crossed.loss(NONE)), gain=0.0, interval=(0.0, 0.0))
    ]
    for rule, fit in fits.items():
        value, gain, between = (
            shown(metric, crossed.loss(rule)),
            crossed.gain(rule)[0],
            crossed.interval(rule, level),
        )
        found.append(
            Candidate(rule, fit.gamma, value, gain, between, fit.second, fitters[rule].curve)
        )
    return tuple(found)


def _with_parts(tuned: Tuned, rule: str, fit: Fitted, crossed: CrossFitted) -> Tuned:
    """Return a choice that has a scale and an offset for each class."""
    samples, objective = crossed.samples, crossed.objective
    right = (fit.predicted == samples.labels).astype(np.float64)
    sizes = np.bincount(samples.labels, minlength=samples.classes)
    with np.errstate(invalid="ignore"):
        recall = np.bincount(samples.labels, right, samples.classes) / sizes
    balanced = (
        np.nanmean(recall)
        if tuned.metric != "balanced_error" and samples.options.target is None
        else None
    )
    floors = objective.floors
    if floors is not None and not fit.floors_met:
        raise unmet_floors(
            fit.gamma if fit.second is None else fit.second, recall, floors, fit.reach, tuned.names
        )
    scores, labels, rows = samples.some_rows()
    adjusted = [
        raise_masked(smooth_votes(to_numpy(some), fit.smoothing)[0]) * fit.scale + fit.offset
        for some in scores
    ]
    return replace(
        tuned,
        rule=rule,
        gamma=fit.gamma,
        second=fit.second,
        scale=tuple(fit.scale.tolist()),
        offset=tuple(fit.offset.tolist()),
        interval=None,
        smoothing=fit.smoothing,
        floors=() if floors is None else tuple(np.nan_to_num(floors).tolist()),
        floors_met_at_zero=None if floors is None else crossed.meets_floors_as_trained(),
        value=shown(tuned.metric, crossed.objective.loss_of(fit.predicted)),
        error=float(1 - right.mean()),
        balanced_error=float(
            1 - ((objective.weights * right).sum() if balanced is None else balanced)
        ),
        mismatch=None,
        mismatch_at_zero=None,
        recall=tuple(recall.tolist()),
        temperature=fit_scale(joined(adjusted), labels, objective.weights[rows]),
    )


def choose_gamma(
    rule: RulePath,
    options: TuneOptions,
    counts: np.ndarray,
    found: Sequence[diagnostics.Diagnosis],
    none: bool = False,
) -> Tuned:
    """Choose a rule's strength and return all about it, with the counts [K] of all samples; `none` for 0."""
    path, objective = rule.path, rule.objective(options)
    sizes, floors = np.bincount(path.labels, minlength=len(path.counts)), objective.floors
    weights, grid, error = objective.weights, objective.grid, objective.error()
    gamma, plateau = (0.0, (0.0, 0.0)) if none else objective.choose(options.guide_strength)
    if floors is not None and not meets_floors(objective.margins()):
        raise unmet_floors(gamma, path.class_accuracy(gamma), floors, path.range, options.names)
    values = _begin(partial(objective.values, error, strength=options.guide_strength), path.logits)
    temperature = _begin(partial(temperature_at, rule, weights, gamma), path.logits)
    rng, stage = np.random.default_rng(options.rng), options.stage("bootstrap")
    drawn = draw_replicates(objective, gamma, options.guide_strength, options.bootstrap, rng, stage)
    now, before = path.right(gamma), path.right(0.0)
    balanced = [1 - (weights * right).sum() for right in (before, now)]
    if (
        options.target is None and options.metric != "balanced_error"
    ):  # then the weights are of classes as they occur
        balanced = [path.at(at).balanced_error for at in (0.0, gamma)]
    losses = [objective.fixed_loss(at)(None) for at in (0.0, gamma)]
    warnings = diagnostics.issue_warnings(
        *found,
        diagnostics.diagnose_accuracy(before),
        diagnostics.diagnose_below_chance(before, path.labels, len(path.counts)),
        diagnostics.diagnose_range_end(plateau, path.range),
        diagnostics.diagnose_missing_classes(sizes, options.names),
    )
    mismatch = objective.mismatch
    gain, between = losses[0] - losses[1] - drawn.optimism, None
    if len(drawn.gains):
        gain, between = diagnostics.expect_gain(
            gain, float(np.std(drawn.gains)), losses[0], options.level
        )
    return Tuned(
        gamma=gamma,
        interval=quantiles(drawn.gammas, options.level),
        rule=path.rule.name,
        criterion=options.goal.criterion if options.metric in ERRORS else options.metric,
        metric=options.metric,
        value=shown(options.metric, losses[1]),
        value_at_zero=shown(options.metric, losses[0]),
        floors=() if floors is None else tuple(np.nan_to_num(floors).tolist()),
        floors_met_at_zero=None
        if floors is None
        else not (path.class_accuracy(0.0) < floors).any(),
        chosen_on=options.chosen_on,
        n=len(path.labels),
        classes=len(path.counts),
        plateau=plateau,
        curve=grid.curve(shown(options.metric, error)),
        criterion_curve=grid.curve(values()),
        level=options.level,
        error=float(1 - now.mean()),
        balanced_error=float(balanced[1]),
        error_at_zero=float(1 - before.mean()),
        balanced_error_at_zero=float(balanced[0]),
        gain=gain,
        gain_interval=between,
        mismatch=None if mismatch is None else mismatch.at(gamma),
        mismatch_at_zero=None if mismatch is None else mismatch.at(0.0),
        missing=tuple(np.flatnonzero(sizes == 0).tolist()),
        warnings=warnings,
        temperature=temperature(),
        recall=tuple(path.class_accuracy(gamma).tolist()),
        recall_at_zero=tuple(path.class_accuracy(0.0).tolist()),
        kind=kind_of_scores(rule.parts[0].whole_logits()[0], path.kind),
        offset=shift_to_target(path.rule, gamma, options),
        counts=tuple(map(float, counts)),
        names=None if options.names is None else tuple(map(str, options.names)),
        bias="scale" if path.rule.bias is None else "keep",
    )


def _begin(work: Callable[[], _Found], logits: Sequence[Array]) -> Callable[[], _Found]:
    """Return what gives the result of `work`, which a thread begins at once if the logits are on an accelerator."""
    return ThreadPoolExecutor(1).submit(work).result if are_on_gpu(logits) else work


def shift_to_target(rule: Direction, gamma: float, options: TuneOptions) -> tuple[float, ...]:
    """Return what is added to each class's score, where a target and not the counts alone decide; else nothing."""
    moves = options.target is not None and RULES[rule.name].follows_target
    return tuple((gamma * rule.slopes).tolist()) if moves else ()


def temperature_at(rule: RulePath, weights: np.ndarray, gamma: float) -> float | None:
    """Return the temperature of the adjusted scores, with samples weighing `weights` [N]."""
    scores, labels, masses, first = [], [], [], 0
    for part, logits in [(one, each) for one in rule.parts for each in one.whole_logits()]:
        some, known, rows = some_rows(
            logits, rule.path.labels[first : first + len(logits)], kind=part.kind
        )
        scores.append(Adjustment(*part.rule.affine(gamma)).narrow_scores(some))
        labels.append(known)
        masses.append(weights[first + rows])
        first += len(logits)
    mass = np.concatenate(masses)
    return fit_scale(joined(scores), np.concatenate(labels), mass) if mass.any() else None
