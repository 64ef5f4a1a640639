"""The path of each rule on held-out samples, with the changes of predictions that a choice is guided by."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np

from ..core.adjustment import toward
from ..core.rules import RULES, OneStrength, Shift
from ..path.curve import Curve
from ..path.engines import find_changes, find_right
from ..path.envelope import Envelope, read_chunks
from ..support.arrays import Array, as_array, check_columns
from ..support.errors import named
from ..support.progress import RowProgress
from ..support.types import Kind
from .gamma_path import GammaPath, join_paths
from .objective import Objective, Pull
from .path_metrics import ERRORS, check_cost, check_floors, meets_floors, shown
from .resample import FOLDS
from .samples import Samples, TuneOptions, class_shares


@dataclass(frozen=True, eq=False)
class RulePath:
    """One rule over its range, on all labelled samples."""

    parts: tuple[
        GammaPath, ...
    ]  # of each set of samples that has its own counts, with its logits; most often one
    path: GammaPath  # where the samples of all parts are right; without logits if parts are several
    changes: (
        Envelope | None
    )  # the predictions whose shares guide the choice; None if only right and wrong count
    pull: Pull | None = None
    last: list[tuple[TuneOptions, np.ndarray, float]] = field(
        default_factory=list, init=False
    )  # gamma of which rows
    _known: list[tuple[TuneOptions, Objective]] = field(default_factory=list, init=False)

    @staticmethod
    def of(
        parts: Sequence[GammaPath], options: TuneOptions, *, pull: Pull | None = None
    ) -> "RulePath":
        """Return the rule's path of all parts together, with every change that the options ask for."""
        changes = None
        if options.unlabelled is not None:
            unlabelled = as_array(options.unlabelled)
            check_columns(unlabelled, len(parts[0].counts), "unlabelled", least=1)
            with named("unlabelled"):
                changes = predicted_changes(unlabelled, parts[0], options)
        path = join_paths(parts, alike=False) if len(parts) > 1 else parts[0]
        if options.unlabelled is None and options.needs_predictions:
            changes = path.changes or labelled_changes(parts, options)
        return RulePath(tuple(parts), path, changes, pull)

    def objective(self, options: TuneOptions, rows: np.ndarray | None = None) -> Objective:
        """Return what is minimized, on rows [n] or on all labelled samples (then remembered for these options)."""
        path, changes = self.path, self.changes
        rows = None if rows is not None and len(rows) == len(path.labels) else rows
        known = [found for how, found in self._known if how is options]
        if rows is None and known:
            return known[0]
        floors, cost = options.goal.floors, options.goal.cost
        floors = (
            None
            if floors is None
            else check_floors(floors, path.labels, len(path.counts), options.names)
        )
        if rows is not None and options.metric in ERRORS and floors is None:
            kept = np.zeros(len(path.labels), bool)
            kept[rows] = True
            return self.objective(options).coarse.on(
                kept, class_shares(path.labels[rows], len(path.counts), options)
            )
        if rows is not None:
            path = path.take(rows)
            changes = (
                changes if changes is None or options.unlabelled is not None else changes.take(rows)
            )
        found = Objective(
            path,
            class_shares(path.labels, len(path.counts), options),
            changes,
            unlabelled=options.unlabelled is not None,
            metric=options.metric,
            cost=None if cost is None else check_cost(cost, len(path.counts)),
            floors=floors,
            pull=self.pull,
        )
        if rows is None:
            self._known[:] = [(options, found)]
        return found


@dataclass(frozen=True, eq=False)
class Paths:
    """The paths of the rules on the same samples, each computed when it is asked for."""

    samples: Samples
    shared: dict[str, Any] = field(
        default_factory=dict, init=False
    )  # fitters of rules from which others begin
    _known: dict[str, RulePath] = field(default_factory=dict, init=False)
    _locks: dict[str, Lock] = field(default_factory=lambda: defaultdict(Lock), init=False)

    def parts(self, rule: str, logits: Sequence[np.ndarray] | None = None) -> list[GammaPath]:
        """Return each part's path under a rule, of its logits or of others in their place."""
        options, made = self.samples.options, RULES[rule]
        assert isinstance(made, OneStrength)
        low, high = options.range_of(rule, self.samples.calibration[0] if made.grows else 1.0)
        if self.samples.joined is not None:
            known = self.samples.joined[rule]
            return [known.within((low, min(high, known.range[1])))]
        target = self.samples.target if made.follows_target else None
        bias = options.bias if made.multiplies or options.rule == rule else None
        made = replace(made, bias=bias, norms=options.norms if made.needs_norms else None)
        how: dict[str, Any] = {
            "target": target,
            "kind": options.kind,
            "progress": options.stage("path"),
        }
        how["with_changes"] = options.follows_predictions
        reach, scores = (low, high), [own for own, *_ in self.samples.parts]
        if logits is not None:  # once scaled, the shift may be negative
            reach, scores, how = (
                (-high, high),
                list(logits),
                {"target": target, "with_changes": True},
            )
        samples = zip(scores, self.samples.parts, strict=True)
        return [
            path_along(made, some, labels, counts, reach, **how)
            for some, (_, labels, counts) in samples
        ]

    def of(self, rule: str) -> RulePath:
        """Return a rule's path over its range, computed once; with `auto`, the shift is pulled."""
        with self._locks[rule]:
            if rule not in self._known:
                pulled = (
                    RULES[rule].pulled
                    and self.samples.options.is_auto
                    and self.samples.options.metric in ERRORS
                )
                pull = (
                    Pull(self.samples.calibration[1], self.samples.calibration[0])
                    if pulled
                    else None
                )
                self._known[rule] = RulePath.of(self.parts(rule), self.samples.options, pull=pull)
            return self._known[rule]

    @property
    def reference(self) -> RulePath:
        """The path of the rule that is tried first, on which the metric of any other is measured."""
        return self.of(Shift.name)

    def forget(self) -> None:
        """Let go of the paths of all rules, which take much memory."""
        self._known.clear()
        self.shared.clear()


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a rule chose on some samples: its strengths, or its numbers for each class, and what it then predicts."""

    gamma: float
    predicted: np.ndarray  # [N], the class of every sample, also of those that it was not fitted on
    second: float | None = (
        None  # the strength of the shift in `rescale+shift`, and of a shift after `vector`
    )
    scale: np.ndarray = field(
        default_factory=lambda: np.zeros(0)
    )  # [K] each, for rules with numbers for each class
    offset: np.ndarray = field(default_factory=lambda: np.zeros(0))
    plateau: tuple[float, float] = (
        0.0,
        0.0,
    )  # the strengths that do as well; of the second, where there is one
    reach: tuple[float, float] = (0.0, 1.0)  # the range of that strength
    floors_met: bool = True  # whether some strength meets the floors on these samples
    smoothing: float = 0.0  # what is added to probabilities before their logarithm, for `vector`


class Fitter(Protocol):
    """A rule that can be fitted on rows of the held-out samples."""

    @property
    def curve(self) -> Curve | None:
        """The metric over gamma on all samples; None for a rule that is not a path."""
        ...

    def fit(self, rows: np.ndarray) -> Fitted:
        """Choose on rows [n] alone."""
        ...


@dataclass(frozen=True, eq=False)
class PathFitter:
    """A rule of one strength: its exact path is computed once, and rows are taken from it."""

    rule: RulePath
    options: TuneOptions

    @cached_property
    def predictions(self) -> Envelope:
        """Every change of the predictions of the labelled samples."""
        return self.rule.path.changes or labelled_changes(self.rule.parts, self.options)

    @property
    def curve(self) -> Curve | None:
        """The metric over gamma on all samples."""
        objective = self.rule.objective(self.options)
        return objective.grid.curve(shown(self.options.metric, objective.error()))

    def fit(self, rows: np.ndarray) -> Fitted:
        """Choose gamma on some rows, as `tune` does."""
        objective = self.rule.objective(self.options, rows)
        gamma, plateau = objective.choose(self.options.guide_strength)
        self.rule.last[:] = [*self.rule.last[1 - FOLDS :], (self.options, rows, gamma)]
        met = objective.floors is None or meets_floors(objective.margins())
        predicted = self.predictions.predictions(gamma)
        return Fitted(gamma, predicted, plateau=plateau, reach=self.rule.path.range, floors_met=met)


def path_along(
    rule: OneStrength,
    logits: Array,
    labels: np.ndarray,
    counts: np.ndarray,
    reach: tuple[float, float],
    *,
    with_changes: bool,
    target: np.ndarray | None = None,
    kind: Kind = "logits",
    progress: RowProgress | None = None,
) -> GammaPath:
    """Return the path of a rule on samples that are checked, toward a target [K], if any, and with every change."""
    direction, how = (
        rule.direction(toward(counts, target), kind=kind),
        {"kind": kind, "progress": progress},
    )
    if with_changes and direction.bias is None:
        changes = find_changes(logits, direction, reach, **how)
        return GammaPath.of_changes(changes, labels, counts, direction, logits=(logits,), kind=kind)
    pieces = find_right(logits, labels, direction, reach, **how)
    return GammaPath(*pieces, labels, counts, direction, reach, logits=(logits,), kind=kind)


def labelled_changes(parts: Sequence[GammaPath], options: TuneOptions) -> Envelope:
    """Return every change of the predictions of the labelled samples."""
    bent = parts[0].rule.bias is not None
    known = [
        predicted_changes(part.whole_logits()[0], part, options) if bent else part.envelope
        for part in parts
    ]
    return known[0].joined(known[1:]) if len(known) > 1 else known[0]


def predicted_changes(logits: Any, path: GammaPath, options: TuneOptions) -> Envelope:
    """Return every change of every prediction: exact, or on 401 gammas if a kept bias bends the lines."""
    progress = options.stage("shares")
    if path.rule.bias is None:
        return find_changes(logits, path.rule, path.range, kind=path.kind, progress=progress)
    gammas = np.linspace(*path.range, 401)
    chunks = (chunk for _, chunk in read_chunks(logits, kind=path.kind, progress=progress))
    found = (
        np.stack([path.rule.scores(chunk, gamma).argmax(axis=1) for gamma in gammas])
        for chunk in chunks
    )
    table = np.concatenate(list(found), axis=1)
    step, sample = np.nonzero(table[1:] != table[:-1])
    between = (
        gammas[step] + gammas[step + 1]
    ) / 2  # so that each stretch is judged at its own gamma of the 401
    new, old = table[step + 1, sample], table[step, sample]
    return Envelope(table[0], sample, between, new, old, classes=len(path.counts), range=path.range)
