"""The choice of a strength on one rule's path, and the `Tuned` that says all about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.array import as_array
from ..core.choices import Kind
from ..core.errors import LevelheadError, named
from ..core.logits import are_log_probabilities, fit_scale, some_rows
from ..path.chunks import read_chunks
from ..path.envelope import Envelope
from ..path.envelope_walk import compute_envelope
from ..path.metrics import ERRORS, check_cost, check_floors, meets_floors, shown, unmet_floors
from ..path.path import GammaPath, join_paths
from ..rules.checks import target_prior
from . import diagnostics
from .objective import STRENGTH, Objective, Pull, draw_replicates
from .options import TuneOptions
from .tuned import Tuned


@dataclass(frozen=True, eq=False)
class RulePath:
    """One rule over its range, on all labelled samples.

    Args:
        parts: a path for each set of samples that has its own counts, with its logits; most often a single one.
        path: where the samples of all parts are right.
        changes: the predictions whose shares guide the choice; None if only right and wrong count.
        pull: toward what a calibrated model would need; None for nothing.
    """

    parts: tuple[GammaPath, ...]
    path: GammaPath
    changes: Envelope | None
    pull: Pull | None = None

    @staticmethod
    def of(parts: Sequence[GammaPath], options: TuneOptions, *, pull: Pull | None = None) -> "RulePath":
        """Return the rule's path of all parts together, with every change that the options ask for."""
        changes = None
        if options.unlabelled is not None:
            changes = _unlabelled_changes(parts[0], options)
        elif options.needs_predictions:
            changes = labelled_changes(parts, options)
        return RulePath(tuple(parts), pool_folds(parts) if len(parts) > 1 else parts[0], changes, pull)

    def objective(self, options: TuneOptions, rows: np.ndarray | None = None) -> Objective:
        """Return what is minimized over gamma, on all labelled samples or on rows [n] of them.

        That of all samples is remembered for the options it was last asked with.
        """
        path, changes = self.path, self.changes
        if rows is None and (known := vars(self).get("_known")) is not None and known[0] is options:
            return known[1]
        floors = check_given_floors(path, options)
        if rows is not None and options.metric in ERRORS and floors is None:
            kept = np.zeros(len(path.labels), bool)
            kept[rows] = True
            return self.objective(options).on(kept, class_shares(path.labels[rows], len(path.counts), options))
        if rows is not None:
            path = path.take(rows)
            changes = changes if changes is None or options.unlabelled is not None else changes.take(rows)
        found = Objective(
            path,
            class_shares(path.labels, len(path.counts), options),
            changes,
            unlabelled=options.unlabelled is not None,
            metric=options.metric,
            cost=None if options.cost is None else check_cost(options.cost, len(path.counts)),
            floors=floors,
            pull=self.pull,
        )
        if rows is None:
            vars(self)["_known"] = options, found
        return found


def class_shares(labels: np.ndarray, classes: int, options: TuneOptions) -> np.ndarray:
    """Return what each class weighs in the metric, [K]: as the target says or, for some metrics, as classes occur."""
    sizes = np.bincount(labels, minlength=classes)
    if options.target is None and options.metric != "balanced_error":
        return sizes / sizes.sum()
    shares = target_prior(options.target, classes, options.names)
    if not shares[sizes > 0].any():
        raise LevelheadError("expected a share above 0 for some class that has a sample here", parameter="target")
    return shares


def check_given_floors(path: GammaPath, options: TuneOptions) -> np.ndarray | None:
    """Return the floors [K], or None if none was given."""
    return (
        None if options.floors is None else check_floors(options.floors, path.labels, len(path.counts), options.names)
    )


def guide_strength(options: TuneOptions) -> float:
    """Return how much the mismatch of shares counts: the 20 of ``min(1, 20 s)``, or 0."""
    return STRENGTH if options.guided else 0.0


def choose_gamma(
    rule: RulePath,
    options: TuneOptions,
    found: Sequence[diagnostics.Diagnosis],
    *,
    counts: np.ndarray | None = None,
    none: bool = False,
) -> Tuned:
    """Choose a rule's strength and return all about it; `counts` [K] if not those of the path; `none` for 0."""
    path, objective = rule.path, rule.objective(options)
    sizes, floors = np.bincount(path.labels, minlength=len(path.counts)), objective.floors
    weights, grid, error = objective.weights, objective.grid, objective.error()
    strength = guide_strength(options)
    values = objective.values(error, strength=strength)
    gamma, plateau = (0.0, (0.0, 0.0)) if none else grid.choose(values)
    if floors is not None and not meets_floors(objective.margins()):
        raise unmet_floors(gamma, path.class_accuracy(gamma), floors, path.range, options.names)
    drawn = draw_replicates(
        objective, gamma, strength, options.bootstrap, np.random.default_rng(options.rng), options.stage("bootstrap")
    )
    now, before = path.right(gamma), path.right(0.0)
    occurring = options.target is None and options.metric != "balanced_error"
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
        ]
    )
    mismatch = None if objective.mismatch is None else grid.curve(objective.mismatch.values())
    return Tuned(
        gamma=gamma,
        interval=quantiles(drawn.gammas, options.level),
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
        gain_interval=quantiles(drawn.gains - drawn.optimism, options.level),
        mismatch=None if mismatch is None else float(mismatch.at(gamma)),
        mismatch_at_zero=None if mismatch is None else float(mismatch.at(0.0)),
        missing=tuple(np.flatnonzero(sizes == 0).tolist()),
        warnings=warnings,
        temperature=temperature_at(rule, weights, gamma),
        recall=tuple(path.class_accuracy(gamma).tolist()),
        recall_at_zero=tuple(path.class_accuracy(0.0).tolist()),
        kind=kind_of_scores(rule.parts[0].whole_logits()[0], path.kind),
        **chosen_for(path.counts if counts is None else counts, options.names, kept=path.rule.bias is not None),
    )


def temperature_at(rule: RulePath, weights: np.ndarray, gamma: float) -> float | None:
    """Return the temperature of the adjusted scores, with samples weighing `weights` [N]."""
    scores, labels, masses, first = [], [], [], 0
    for part in rule.parts:
        own = part.labels
        for logits in part.whole_logits():
            some, known, rows = some_rows(logits, own[: len(logits)], kind=part.kind)
            scores.append(part.rule.scores(some, gamma))
            labels.append(known)
            masses.append(weights[first + rows])
            first, own = first + len(logits), own[len(logits) :]
    mass = np.concatenate(masses)
    several = np.concatenate(scores) if len(scores) > 1 else scores[0]
    return fit_scale(several, np.concatenate(labels), mass) if mass.any() else None


def kind_of_scores(logits: Any, kind: Kind) -> Kind:
    """Return what scores [N, K] are: `probabilities`, also if their logarithms were given, or `logits`."""
    return "probabilities" if kind == "probabilities" or are_log_probabilities(logits) else "logits"


def chosen_for(counts: np.ndarray, names: Sequence[str] | None, *, kept: bool = False) -> dict[str, Any]:
    """Return what a `Tuned` says of the head that it is for."""
    return {
        "counts": tuple(float(n) for n in counts),
        "bias": "keep" if kept else "scale",
        "names": None if names is None else tuple(map(str, names)),
    }


def pool_folds(paths: Sequence[GammaPath]) -> GammaPath:
    """Return the path of all folds together. Each fold has its own counts, and so its own factors: where its samples
    are right is kept, but the logits, which would need one rule for all, are not."""
    sizes = sorted({len(path.counts) for path in paths})
    if len(sizes) > 1:
        raise LevelheadError(
            f"expected the same classes in every fold, got folds of {', '.join(map(str, sizes))} classes",
            parameter="folds",
        )
    return join_paths(paths, alike=False)


def labelled_changes(parts: Sequence[GammaPath], options: TuneOptions) -> Envelope:
    """Return every change of the predictions of the labelled samples."""
    known = [
        part.envelope
        if part.rule.bias is None and options.progress is None
        else predicted_changes(part.whole_logits()[0], part, options)
        for part in parts
    ]
    return known[0].joined(known[1:]) if len(known) > 1 else known[0]


def predicted_changes(logits: Any, path: GammaPath, options: TuneOptions) -> Envelope:
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


def _unlabelled_changes(path: GammaPath, options: TuneOptions) -> Envelope:
    """Return the changes of the predictions of the unlabelled samples, checked."""
    unlabelled = as_array(options.unlabelled)
    if unlabelled.ndim != 2 or not len(unlabelled) or unlabelled.shape[1] != len(path.counts):
        raise LevelheadError(
            f"expected logits [M, {len(path.counts)}], got shape {list(unlabelled.shape)}", parameter="unlabelled"
        )
    with named("unlabelled"):
        return predicted_changes(unlabelled, path, options)


def quantiles(values: np.ndarray, level: float) -> tuple[float, float] | None:
    """Return the interval that holds this share of the values; None if there are none."""
    if len(values) == 0:
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
