"""Comparison of rules: each is fitted on one half of held-out data and scored on the other, repeatedly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..core.adjust import RULE_TITLES
from ..core.array import Array
from ..core.class_names import resolve_labels
from ..core.counts import Counts
from ..core.errors import LevelheadError
from ..core.measure import check_logits
from . import diagnostics
from .count_doubts import diagnose_counts
from .criterion import Objective
from .path import GammaPath, gamma_path
from .rule import check_range

_TITLES = {"none": "none (gamma = 0)", **RULE_TITLES}


@dataclass(frozen=True)
class Row:
    """One rule: its cross-fitted balanced error, its gain over gamma = 0, and the median of what was chosen."""

    rule: str
    balanced_error: float
    gain: float
    gain_interval: tuple[float, float]
    behind_best: float
    behind_interval: tuple[float, float]
    gammas: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """Rules side by side, best first: what `compare` returns. Errors are not in percent; intervals are at 95 %.

    Args:
        rows, warnings: one per rule, and `none` for gamma = 0; one line each.
        n, repeats: how many samples they were scored on; how often those were halved.

    >>> row = Row("none", balanced_error=0.25, gain=0.0, gain_interval=(0.0, 0.0), behind_best=0.0,
    ...           behind_interval=(0.0, 0.0), gammas=())
    >>> Comparison((row,), n=40, repeats=10).best
    'none'
    """

    rows: tuple[Row, ...]
    n: int
    repeats: int
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The rule with the lowest cross-fitted balanced error."""
        return self.rows[0].rule

    @property
    def clear(self) -> bool:
        """Whether every other rule is behind the best by more than chance."""
        return all(row.behind_interval[0] > 0 for row in self.rows[1:])

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON can hold it."""
        rows = [{**vars(row), "gammas": list(row.gammas)} for row in self.rows]
        return {
            "best": self.best,
            "clear": self.clear,
            "n": self.n,
            "repeats": self.repeats,
            "rules": rows,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        lines = [f"{'rule':20} {'error':>7} {'gain (95 % interval)':>25} {'behind best':>25}  chosen"]
        for row in self.rows:
            behind = "" if row.rule == self.best else _points_text(row.behind_best, row.behind_interval)
            gain = _points_text(row.gain, row.gain_interval)
            lines.append(
                f"{_TITLES[row.rule]:20} {row.balanced_error:>7.2%} {gain:>25} {behind:>25}  "
                f"{', '.join(f'{gamma:.2f}' for gamma in row.gammas) or '-'}"
            )
        tied = [_TITLES[row.rule] for row in self.rows[1:] if row.behind_interval[0] <= 0]
        verdict = f"within chance of it: {'; '.join(tied)}" if tied else "ahead of every other by more than chance"
        return "\n".join(
            [
                *lines,
                f"best: {_TITLES[self.best]}; {verdict} ({self.n} samples, {self.repeats} repeats)",
                *(f"warning: {line}" for line in self.warnings),
            ]
        )


def compare(
    logits: Array,
    labels: Array,
    counts: Counts,
    *,
    norms: Array | None = None,
    repeats: int = 10,
    range: tuple[float, float] = (0.0, 2.0),
    rng: np.random.Generator | int = 0,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Compare RS, tau-normalization, the logit shift and "RS, then shift" on samples that each was not fitted on.

    The samples are halved, class by class, and every rule is fitted on each half and scored on the other. A sample's
    score is the share of repeats in which it is right. Intervals are of the paired differences of these scores.

    Args:
        logits: [N, K] of samples the model was not trained on.
        labels: [N], as in `tune`. A class needs two samples to be in both halves, and is left out if it has fewer.
        counts, names: training samples of each class; class names, for counts given by name.
        norms: [K], weight norms of the head; without them tau-normalization is left out.
        repeats, rng: how often the data are halved; a generator, or a seed.
        range: of each rule's gamma. The shift of "RS, then shift" may also be negative.

    Returns:
        The rules, best first, each with its gain over gamma = 0 and its distance from the best rule.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(np.arange(3), 50)
    >>> logits = (5 + rng.normal(size=(150, 3)) + 2 * np.eye(3)[labels]) * [1.0, 0.7, 0.4]
    >>> table = compare(logits, labels, [1000, 200, 40], repeats=2)
    >>> [row.rule for row in table.rows], table.rows[0].gain > 0.3
    (['rescale', 'shift', 'rescale+shift', 'none'], True)
    """
    logits, rng, range = check_logits(logits), np.random.default_rng(rng), check_range(range, holds_zero=True)
    labels, names = resolve_labels(logits, labels, counts, names)
    path = gamma_path(logits, labels, counts, range=range, names=names)
    sizes = np.bincount(path.labels, minlength=len(path.counts))
    if not isinstance(repeats, int | np.integer) or repeats < 1:
        raise LevelheadError(f"expected a whole number, at least 1, got {repeats}", parameter="repeats")
    if sizes.max() < 2:
        raise LevelheadError("expected a class with at least two samples, got one sample per class", parameter="labels")
    warnings = diagnostics.issue_warnings(
        [
            diagnostics.diagnose_missing_classes(sizes, names, least=2),
            diagnostics.diagnose_accuracy(path.right(0.0)),
            diagnostics.diagnose_binary_head(logits, "rescale"),
            diagnostics.diagnose_negative_logits(logits, path.labels, "rescale"),
            diagnostics.diagnose_norms(norms, path.counts, "rescale"),
            *diagnose_counts(logits, path.labels, path.counts, "rescale"),
        ]
    )
    other = partial(gamma_path, logits, path.labels, path.counts, range=range)
    paths = {"rescale": path, "shift": other(rule="shift")}
    if norms is not None:
        paths["tau"] = other(rule="tau", norms=norms)
    right = {rule: np.zeros(len(path.labels)) for rule in ("rescale", "shift", "rescale+shift", *list(paths)[2:])}
    chosen: dict[str, list[list[float]]] = {rule: [] for rule in right}
    for _ in np.arange(repeats):
        half = _random_half(path.labels, rng)
        for fitted_on in (half, ~half):
            for rule, (found, gammas) in _fit_rules(paths, np.flatnonzero(fitted_on)).items():
                right[rule][~fitted_on] += found[~fitted_on] / repeats
                chosen[rule].append(gammas)
    right["none"] = path.right(0.0).astype(np.float64)
    accuracy = {rule: _mean_and_interval(score, path.labels)[0] for rule, score in right.items()}
    best, rows = max(accuracy, key=lambda rule: accuracy[rule]), []
    for rule in sorted(accuracy, key=lambda rule: -accuracy[rule]):
        gain, gain_interval = _mean_and_interval(right[rule] - right["none"], path.labels)
        behind, behind_interval = _mean_and_interval(right[best] - right[rule], path.labels)
        gammas = tuple(np.median(chosen[rule], axis=0).tolist()) if rule in chosen else ()
        rows.append(
            Row(
                rule=rule,
                balanced_error=1 - accuracy[rule],
                gain=gain,
                gain_interval=gain_interval,
                behind_best=behind,
                behind_interval=behind_interval,
                gammas=gammas,
            )
        )
    return Comparison(tuple(rows), len(path.labels), repeats, warnings)


def _fit_rules(paths: dict[str, GammaPath], rows: np.ndarray) -> dict[str, tuple[np.ndarray, list[float]]]:
    """Choose each rule's gammas on some rows. Return which samples are right at them, [N], and the gammas."""
    gammas = {rule: _choose_gamma(path, rows) for rule, path in paths.items()}
    path, gamma = paths["rescale"], gammas["rescale"]
    second = gamma_path(
        path.rule.scores(path.logits[0], gamma),
        path.labels,
        path.counts,
        rule="shift",
        range=(-path.range[1], path.range[1]),
    )  # once rescaled, the shift may be negative
    shift = _choose_gamma(second, rows)
    return {
        "rescale+shift": (second.right(shift), [gamma, shift]),
        **{rule: (path.right(gammas[rule]), [gammas[rule]]) for rule, path in paths.items()},
    }


def _choose_gamma(path: GammaPath, rows: np.ndarray) -> float:
    """Return what `tune` would choose on these rows alone."""
    labels, changes = path.labels[rows], path.envelope
    part = replace(path, sample=np.arange(len(rows)), lo=path.lo[rows], hi=path.hi[rows], labels=labels, logits=())
    position = np.full(len(path.labels), -1)
    position[rows] = np.arange(len(rows))
    kept = position[changes.sample] >= 0
    shares = replace(
        changes,
        start=changes.start[rows],
        sample=position[changes.sample[kept]],
        gamma=changes.gamma[kept],
        new_class=changes.new_class[kept],
        old_class=changes.old_class[kept],
    )
    objective = Objective(part, np.full(len(path.counts), 1 / len(path.counts)), shares)
    return objective.grid.choose(objective.values(objective.error()))[0]


def _random_half(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return [N] bool: every other sample of each class, in a random order and from a random start."""
    order = np.lexsort((rng.random(len(labels)), labels))
    sizes = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    half = np.empty(len(labels), bool)
    half[order] = (rank + rng.integers(2, size=len(sizes))[labels[order]]) % 2 == 0
    return half


def _mean_and_interval(values: np.ndarray, labels: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Return the mean of the class means and its stratified 95 % interval, without classes of one sample."""
    sizes = np.bincount(labels)
    used = sizes > 1
    means = np.bincount(labels, values)[used] / sizes[used]
    spread = np.bincount(labels, (values - (np.bincount(labels, values) / np.maximum(sizes, 1))[labels]) ** 2)[used]
    error = np.sqrt((spread / (sizes[used] - 1) / sizes[used]).sum()) / used.sum()
    mean = float(means.mean())
    return mean, (float(mean - 1.96 * error), float(mean + 1.96 * error))


def _points_text(value: float, interval: tuple[float, float]) -> str:
    return f"{100 * value:.2f} ({100 * interval[0]:.2f} to {100 * interval[1]:.2f})"
