"""The choice of the rule itself, on held-out samples: what ``tune(rule="auto")`` does.

Of the additive shift, a strength is chosen by ``J(gamma) + s |gamma - T| / T``: the criterion of `tune` and a pull
toward what a calibrated model needs, a shift of 1 on scores divided by their temperature T. It is measured in standard
errors s of the balanced error, and so fades as labels become many. All other rules are chosen by J alone.

Then every rule is cross-fitted (`cross_fitted.py`). The shift is kept unless the cross-fitted criterion of another
rule is lower by more than half a paired standard error. Rules are tried in the order of `fitters.FITTERS`, so ties are
left to the simpler one. At last the model stays as it is where its own loss is lower by as much than the cross-fitted
loss of that rule. docs/which-gamma.md and docs/decisions.md have the measurements behind this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..core.errors import LevelheadError
from ..core.logits import fit_scale, some_rows
from ..path.metrics import gain_text, shown, unmet_floors
from ..rules.adjustment import smooth_votes
from ..rules.rule import RULES, Unchanged
from . import diagnostics
from .choose import choose_gamma
from .cross_fit import CrossFitted, cross_fit_rules
from .fitters import Fitted, Fitter, left_out_text, make_fitter
from .offset_fitter import check_floors_met
from .samples import HeldOut
from .tuned import Candidate, Tuned

CLEARLY = 0.5  # paired standard errors by which a rule must be better than a simpler one
NONE = Unchanged.name


def tune_auto(held_out: HeldOut, found: Sequence[diagnostics.Diagnosis]) -> Tuned:
    """Choose a rule and its strengths on held-out samples. A rule asked for by name is cross-fitted by itself.

    Args:
        held_out: the samples, with the options of the tuning.
        found: what is known to be wrong with them.

    Returns:
        The choice, with every rule that was tried and why this one was taken. Intervals of strengths are those of the
        rule that was chosen.
    """
    options, fitters = held_out.options, make_fitters(held_out)
    fits = {rule: fitter.fit(np.arange(len(held_out.labels))) for rule, fitter in fitters.items()}
    check_floors_met(fitters, fits)
    crossed = cross_fit_rules(held_out, fitters, held_out.reference.objective(options))
    rule, why = choose_rule(crossed, fits) if options.is_auto else (options.rule, "")
    why = "; ".join(filter(None, (why, left_out_text(held_out))))
    candidates = list_candidates(crossed, fits, fitters)
    path = held_out.rule_path(RULES[rule].path_name)
    held_out.forget_paths()
    del fitters  # the paths of other rules may be larger than all that is to come
    if rule == NONE or RULES[rule].has_path:
        tuned = choose_gamma(path, options, found, counts=held_out.counts, none=rule == NONE)
    else:
        more = [diagnostics.diagnose_range_end(fits[rule].plateau, fits[rule].reach)]
        quick, none = (
            replace(options, bootstrap=0, goal=replace(options.goal, floors=None)),
            not RULES[rule].strengths,
        )  # such a rule is not on that path
        tuned = choose_gamma(path, quick, [*found, *more], counts=held_out.counts, none=none)
        tuned = _with_parts(tuned, rule, fits[rule], crossed)
        if none:
            curve = next(one.curve for one in candidates if one.rule == rule)
            assert curve is not None
            tuned = replace(tuned, plateau=(1.0, 1.0), curve=curve, criterion_curve=curve)
    return replace(tuned, candidates=candidates, why=why)


def make_fitters(held_out: HeldOut) -> dict[str, Fitter]:
    """Return the rules that can act on these samples, simplest first, or only the one that was asked for."""
    options, alone = held_out.options, held_out.options.background is not None  # which rules without counts change
    wanted = [rule for rule in RULES.values() if options.is_auto or rule.name == options.rule]
    found = {rule.name: make_fitter(rule, held_out) for rule in wanted if rule.follows_counts or not alone}
    usable = {rule: fitter for rule, fitter in found.items() if fitter is not None}
    if not usable:
        raise LevelheadError(f"{options.rule!r} cannot act on these scores; use 'shift'", parameter="rule")
    return usable


def choose_rule(crossed: CrossFitted, fits: Mapping[str, Fitted]) -> tuple[str, str]:
    """Return the rule to use, or `none`, and why. Of those that meet the floors, the first stays unless clearly beaten.

    Args:
        crossed, fits: the rules on samples that they were not fitted on, and fitted on all.
    """
    able = [rule for rule, fit in fits.items() if fit.floors_met] or list(fits)
    chosen, over = able[0], None
    for rule in able[1:]:
        gap = crossed.criterion(chosen) - crossed.criterion(rule)
        if gap > CLEARLY * crossed.gain(rule, chosen)[1]:
            chosen, over = rule, chosen
    lead, error = crossed.gain(NONE, chosen)  # predicted shares are a guide to a strength, not a reason to have one
    if lead > CLEARLY * error and crossed.meets_floors_as_trained():
        chosen, over = NONE, chosen
    if over is None:
        if len(able) == 1 < len(fits):
            return chosen, f"{RULES[chosen].title}: no other rule meets the floors"
        others = "no other rule is" if len(able) > 1 else "no other rule can act on these scores, and none is"
        return chosen, (
            f"{RULES[chosen].title}: {others} better by more than half a standard error, on samples that neither was "
            "fitted on"
        )
    lead = round(crossed.gain(chosen, over)[0], 9) + 0.0  # never -0
    gain, where = gain_text(crossed.objective.metric, lead, None), "on samples that neither was fitted on"
    if lead <= 0:
        nearer = f"its predicted shares are nearer to the target than those of {RULES[over].title}"
        return chosen, f"{RULES[chosen].title}: {nearer}, and its gain over it is {gain}, {where}"
    return chosen, f"{RULES[chosen].title}: better than {RULES[over].title} by {gain}, {where}"


def list_candidates(
    crossed: CrossFitted, fits: Mapping[str, Fitted], fitters: Mapping[str, Fitter]
) -> tuple[Candidate, ...]:
    """Return every rule with its cross-fitted value and gain, the model as it is first."""
    metric, level = crossed.objective.metric, crossed.held_out.options.level
    plain = Candidate(NONE, 0.0, value=shown(metric, crossed.loss(NONE)), gain=0.0, interval=(0.0, 0.0))
    return plain, *(
        Candidate(
            rule,
            fit.gamma,
            value=shown(metric, crossed.loss(rule)),
            gain=crossed.gain(rule)[0],
            interval=crossed.interval(rule, level),
            second=fit.second,
            curve=fitters[rule].curve,
        )
        for rule, fit in fits.items()
    )


def _with_parts(tuned: Tuned, rule: str, fit: Fitted, crossed: CrossFitted) -> Tuned:
    """Return a choice that has a scale and an offset for each class. Its gain is the cross-fitted one."""
    assert fit.scale is not None
    assert fit.offset is not None
    held_out, objective = crossed.held_out, crossed.objective
    right = (fit.predicted == held_out.labels).astype(np.float64)
    sizes = np.bincount(held_out.labels, minlength=held_out.classes)
    with np.errstate(invalid="ignore"):
        recall = np.bincount(held_out.labels, right, held_out.classes) / sizes
    balanced = np.nanmean(recall) if tuned.metric != "balanced_error" and held_out.options.target is None else None
    floors = objective.floors
    if floors is not None and not fit.floors_met:
        raise unmet_floors(fit.gamma if fit.second is None else fit.second, recall, floors, fit.reach, tuned.names)
    scores, labels, weights, first = [], [], [], 0
    for logits, own, _ in held_out.parts:
        some, known, rows = some_rows(logits, own, kind=held_out.options.kind)
        scores.append(smooth_votes(some, fit.smoothing)[0] * fit.scale + fit.offset)
        labels.append(known)
        weights.append(objective.weights[first + rows])
        first += len(own)
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
        value=shown(tuned.metric, crossed.loss_of(fit.predicted)),
        error=float(1 - right.mean()),
        balanced_error=float(1 - (objective.weights @ right if balanced is None else balanced)),
        gain=crossed.gain(rule)[0],
        gain_interval=crossed.interval(rule, tuned.level),
        mismatch=None,
        mismatch_at_zero=None,
        recall=tuple(recall.tolist()),
        temperature=fit_scale(np.concatenate(scores), np.concatenate(labels), np.concatenate(weights)),
    )
