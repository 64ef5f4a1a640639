"""Comparison of rules: each is fitted on four fifths of held-out data and judged on the rest, repeatedly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.class_names import names_of_columns
from ..core.counts import Counts, flatten_positions, resolve_labels
from ..core.rules import RULES, Auto, Rescale
from ..support.arrays import Array
from ..support.errors import LevelheadError
from ..support.types import Kind, Metric
from . import diagnostics
from .auto import NONE, make_fitters, take_rule
from .cross_fit import CrossFitted, cross_fit_rules
from .fitters import left_out_text
from .path_metrics import TITLES, gain_text, shown, value_form
from .paths import Paths
from .samples import Goal, Samples, TuneOptions, rule_options

_LEVEL = 0.95


@dataclass(frozen=True)
class Row:
    """One rule: its cross-fitted value and balanced error, its gain over gamma = 0, the median of what was chosen."""

    rule: str
    balanced_error: float
    gain: float
    gain_interval: tuple[float, float]
    behind_best: float
    behind_interval: tuple[float, float]
    gammas: tuple[float, ...]
    value: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Rules side by side, best first: what `compare` returns. Errors are not in percent; intervals are at 95 %.

    Args:
        rows, warnings: one per rule, and `none` for gamma = 0; one line each.
        n, repeats: how many samples they were judged on; how often those were dealt into folds.
        metric: what `value`, `gain` and `behind_best` of the rows are in.
        auto: the rule that `tune` would take, or `none`: the best unless a simpler one is within chance of it.
    """

    rows: tuple[Row, ...]
    n: int
    repeats: int
    warnings: tuple[str, ...] = ()
    metric: Metric = "balanced_error"
    auto: str = ""

    @property
    def best(self) -> str:
        """The rule with the best cross-fitted value."""
        return self.rows[0].rule

    @property
    def clear(self) -> bool:
        """Whether every other rule is behind the best by more than chance."""
        return all(row.behind_interval[0] > 0 for row in self.rows[1:])

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON can hold it."""
        rows = [{**vars(row), "gammas": list(row.gammas)} for row in self.rows]
        numbers = {
            name: getattr(self, name)
            for name in ("best", "clear", "auto", "metric", "n", "repeats")
        }
        return numbers | {"rules": rows, "warnings": list(self.warnings)}

    def __str__(self) -> str:
        title = "error" if self.metric == "balanced_error" else TITLES[self.metric]
        lines = [
            f"{'rule':20} {title:>13} {'gain (95 % interval)':>31} {'behind best':>31}  chosen"
        ]
        for row in self.rows:
            behind = (
                ""
                if row.rule == self.best
                else gain_text(self.metric, row.behind_best, row.behind_interval)
            )
            gain, chosen = (
                gain_text(self.metric, row.gain, row.gain_interval),
                [f"{one:.2f}" for one in row.gammas],
            )
            value = format(
                row.balanced_error if row.value is None else row.value, value_form(self.metric)
            )
            cells = f"{RULES[row.rule].title:20} {value:>13} {gain:>31} {behind:>31}"
            lines.append(f"{cells}  {', '.join(chosen) or '-'}")
        tied = [RULES[row.rule].title for row in self.rows[1:] if row.behind_interval[0] <= 0]
        verdict = (
            f"within chance of it: {'; '.join(tied)}"
            if tied
            else "ahead of every other by more than chance"
        )
        taken = f"; tune takes {RULES[self.auto].title}" if self.auto else ""
        best = f"best: {RULES[self.best].title}; {verdict}{taken} ({self.n} samples, {self.repeats} repeats)"
        return "\n".join([*lines, best, *(f"warning: {line}" for line in self.warnings)])


def compare(
    logits: Array,
    labels: Array,
    counts: Counts,
    *,
    metric: str | Goal = "balanced_error",
    rule: Auto | None = None,
    target: Array | None = None,
    repeats: int | None = None,
    rng: np.random.Generator | int = 0,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
) -> Comparison:
    """Compare the shift, RS, tau-normalization, "RS, then shift" and others on samples that each was not fitted on.

    The samples are dealt into five folds, class by class, and every rule is fitted on four and judged on the fifth, as
    `tune` does to choose one. The best is first. Intervals are of the paired differences, with one sample more in each
    class that gains and one that loses.

    Args:
        logits: [N, K] of samples the model was not trained on; or of tokens or pixels, as in `tune`.
        labels: [N]. A class needs two samples to be fitted on and judged by.
        counts, names: training samples of each class; class names, for counts given by name.
        metric, target, kind: as in `tune`.
        rule: ``lh.rules.Auto(norms=head.norms)``, for tau-normalization among the rules, or with a range for all.
        repeats, rng: how often the samples are dealt; a generator, or a seed. By default as in `tune`: twice, or once
            from 10,000 samples on.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(3), 50)
    >>> logits = (5 + rng.normal(size=(150, 3)) + 2 * np.eye(3)[labels]) * [1.0, 0.7, 0.4]
    >>> table = compare(logits, labels, [1000, 200, 40], repeats=1)
    >>> table.best == table.rows[0].rule, table.rows[-1].rule, table.rows[0].gain > 0.3
    (True, 'none', True)
    """
    names = names_of_columns(logits, counts) if names is None else names
    logits, labels, _ = flatten_positions(logits, labels)
    labels, names = resolve_labels(logits, labels, counts, names)
    given = rule_options(rule or Auto())
    options = TuneOptions(
        goal=Goal.of(metric), target=target, names=names, kind=kind, bootstrap=0, **given
    )
    samples = Samples.of([(logits, labels, counts)], options)
    ((_, known, n),) = samples.parts
    sizes = np.bincount(known, minlength=len(n))
    if repeats is not None and (not isinstance(repeats, int | np.integer) or repeats < 1):
        raise LevelheadError(
            f"expected a whole number, at least 1, got {repeats}", parameter="repeats"
        )
    if sizes.max() < 2:
        raise LevelheadError(
            "expected a class with at least two samples, got one sample per class",
            parameter="labels",
        )
    paths = Paths(samples)
    objective = paths.reference.objective(options)
    warnings = diagnostics.issue_warnings(
        diagnostics.diagnose_missing_classes(sizes, names, least=2),
        diagnostics.diagnose_accuracy(objective.path.right(0.0)),
        diagnostics.diagnose_norms(options.norms, n, Rescale()),
        *diagnostics.diagnose_counts(*samples.parts[0], Rescale()),
    )
    warnings += tuple(filter(None, [left_out_text(samples)]))
    fitters = make_fitters(paths)
    every = np.arange(len(known))
    fits = {rule: fitter.fit(every) for rule, fitter in fitters.items()}
    crossed = cross_fit_rules(samples, fitters, objective, samples.deal(repeats, rng))
    order = sorted(crossed.predicted, key=crossed.loss)
    rows = tuple(_row(crossed, rule, order[0]) for rule in order)
    repeats, auto = len(crossed.predicted[NONE]), take_rule(crossed, fitters, fits, every)[0]
    return Comparison(rows, len(known), repeats, warnings, objective.metric, auto)


def _row(crossed: CrossFitted, rule: str, best: str) -> Row:
    labels = crossed.samples.labels
    recall, _ = diagnostics.class_means(labels, (crossed.predicted[rule] == labels).mean(axis=0))
    chosen = [
        [fit.gamma] if fit.second is None else [fit.gamma, fit.second]
        for fit in crossed.fits.get(rule, ())
    ]
    return Row(
        rule=rule,
        balanced_error=float(1 - recall.mean()),
        gain=crossed.gain(rule)[0],
        gain_interval=crossed.interval(rule, _LEVEL),
        behind_best=crossed.gain(best, rule)[0],
        behind_interval=crossed.interval(best, _LEVEL, rule),
        gammas=tuple(np.median(chosen, axis=0).tolist())
        if chosen and RULES[rule].strengths
        else (),
        value=shown(crossed.objective.metric, crossed.loss(rule)),
    )
