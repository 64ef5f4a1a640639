"""Which rule suits a head: each is fitted on one half of held-out data and scored on the other, again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..core.array import Array
from ..core.counts import Counts
from ..core.errors import LevelheadError
from ..core.measure import check_logits
from . import diagnostics
from .criterion import Objective
from .path import GammaPath, gamma_path
from .rule import check_range

Fit = Callable[[np.ndarray], tuple[np.ndarray, list[float]]]  # rows to fit on -> who is right [N], what was chosen
TITLES = {"none": "none (gamma = 0)", "rescale": "RS", "tau": "tau-normalization", "shift": "logit shift",
          "rescale+shift": "RS, then shift"}


@dataclass(frozen=True)
class Row:
    """One rule: its cross-fitted balanced error, how much better it is than doing nothing, and what was chosen."""

    rule: str
    balanced_error: float
    gain: float
    gain_interval: tuple[float, float]
    behind_best: float
    behind_interval: tuple[float, float]
    gammas: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """Rules side by side, best first. Errors and gains are shares of 1; intervals are at 95 %."""

    rows: tuple[Row, ...]
    n: int
    repeats: int
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The rule of least cross-fitted balanced error."""
        return self.rows[0].rule

    @property
    def clear(self) -> bool:
        """Whether every other rule is behind the best one by more than chance."""
        return all(row.behind_interval[0] > 0 for row in self.rows[1:])

    def to_dict(self) -> dict[str, Any]:
        rows = [{**vars(row), "gammas": list(row.gammas)} for row in self.rows]
        return {"best": self.best, "clear": self.clear, "n": self.n, "repeats": self.repeats, "rules": rows,
                "warnings": list(self.warnings)}

    def __str__(self) -> str:
        lines = [f"{'rule':20} {'error':>7} {'gain (95 % interval)':>25} {'behind best':>25}  chosen"]
        for row in self.rows:
            behind = "" if row.rule == self.best else _points(row.behind_best, row.behind_interval)
            lines.append(f"{TITLES[row.rule]:20} {row.balanced_error:>7.2%} {_points(row.gain, row.gain_interval):>25} "
                         f"{behind:>25}  {', '.join(f'{gamma:.2f}' for gamma in row.gammas) or '-'}")
        tied = [TITLES[row.rule] for row in self.rows[1:] if row.behind_interval[0] <= 0]
        verdict = f"within chance of it: {'; '.join(tied)}" if tied else "ahead of every other by more than chance"
        return "\n".join([*lines, f"best: {TITLES[self.best]}; {verdict} ({self.n} samples, {self.repeats} repeats)",
                          *(f"warning: {line}" for line in self.warnings)])


def compare(
    logits: Array, labels: Array, counts: Counts, *, norms: Array | None = None, repeats: int = 10,
    range: tuple[float, float] = (0.0, 2.0), rng: np.random.Generator | int = 0, names: Sequence[str] | None = None,
) -> Comparison:
    """Fit RS, tau-normalization, the logit shift and "RS, then shift" on one half of held-out data, score on the other.

    Halves are stratified; each takes both roles; all of it is repeated. A sample's score under a rule is the share of
    repeats in which it was right while it was not fitted on, and intervals are of the paired differences of these.

    Args:
        logits: [N, K] of samples the model was not trained on.
        labels: [N]. A class needs two samples to be in both halves; one with fewer is left out.
        counts: training samples of each class.
        norms: [K], weight norms of the head; without them tau-normalization is left out.
        repeats: how often the data are halved.
        range: of each rule's strength; the second step of "RS, then shift" may also go back, to minus its upper end.
        rng: a generator, or the seed of one.
        names: class names, if counts are given by name.
    """
    logits, rng, range = check_logits(logits), np.random.default_rng(rng), check_range(range, holds_zero=True)
    path = gamma_path(logits, labels, counts, range=range, names=names)
    sizes = np.bincount(path.labels, minlength=len(path.counts))
    if not isinstance(repeats, int | np.integer) or repeats < 1 or sizes.max() < 2:
        raise LevelheadError(f"expected at least one repeat and a class of two samples, got {repeats} repeats and classes "
                         f"of at most {sizes.max()}")
    cautions = diagnostics.issue_warnings([
        diagnostics.diagnose_missing_classes(sizes, names, least=2),
        diagnostics.diagnose_accuracy(path.right(0.0)),
        diagnostics.diagnose_binary_head(logits, "rescale"),
        diagnostics.diagnose_negative_logits(logits, path.labels, "rescale"),
        diagnostics.diagnose_norms(norms, path.counts, "rescale"),
    ])
    other = partial(gamma_path, logits, path.labels, path.counts, range=range)
    rules: dict[str, Fit] = {"rescale": _one(path), "shift": _one(other(rule="shift")), "rescale+shift": _both(path)}
    if norms is not None:
        rules["tau"] = _one(other(rule="tau", norms=norms))
    right = {rule: np.zeros(len(path.labels)) for rule in rules}
    chosen: dict[str, list[list[float]]] = {rule: [] for rule in rules}
    for _ in np.arange(repeats):
        half = _half(path.labels, rng)
        for fitted_on, scored_on in ((half, ~half), (~half, half)):
            for rule, fit in rules.items():
                found, gammas = fit(np.flatnonzero(fitted_on))
                right[rule][scored_on] += found[scored_on] / repeats
                chosen[rule].append(gammas)
    right["none"] = path.right(0.0).astype(np.float64)
    return _table(right, chosen, path, repeats, cautions)


def _one(path: GammaPath) -> Fit:
    """Fit a single strength on some rows; which samples are right with it."""

    def fit(rows: np.ndarray) -> tuple[np.ndarray, list[float]]:
        gamma = _choose(path, rows)
        return path.right(gamma), [gamma]

    return fit


def _both(path: GammaPath) -> Fit:
    """Fit RS, and then a shift of what RS made of the logits. It may also take back: its range goes below 0."""

    def fit(rows: np.ndarray) -> tuple[np.ndarray, list[float]]:
        gamma = _choose(path, rows)
        scaled = path.rule.scores(path.logits[0], gamma)
        reach = (-path.range[1], path.range[1])
        second = gamma_path(scaled, path.labels, path.counts, range=reach, rule="shift")
        shift = _choose(second, rows)
        return second.right(shift), [gamma, shift]

    return fit


def _choose(path: GammaPath, rows: np.ndarray) -> float:
    """What `tune` would choose on these rows alone."""
    labels, changes = path.labels[rows], path.envelope
    part = replace(path, sample=np.arange(len(rows)), lo=path.lo[rows], hi=path.hi[rows], labels=labels, logits=())
    place = np.full(len(path.labels), -1)
    place[rows] = np.arange(len(rows))
    kept = place[changes.sample] >= 0
    shares = replace(changes, start=changes.start[rows], sample=place[changes.sample[kept]], gamma=changes.gamma[kept],
                     new_class=changes.new_class[kept], old_class=changes.old_class[kept])
    objective = Objective(part, np.full(len(path.counts), 1 / len(path.counts)), shares)
    return objective.grid.choose(objective.values(objective.error()))[0]


def _half(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[N] bool: every other sample of each class, in a random order; which half gets the odd one is random too."""
    order = np.lexsort((rng.random(len(labels)), labels))
    sizes = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    half = np.empty(len(labels), bool)
    half[order] = (rank + rng.integers(2, size=len(sizes))[labels[order]]) % 2 == 0
    return half


def _table(
    right: dict[str, np.ndarray], chosen: dict[str, list[list[float]]], path: GammaPath, repeats: int,
    cautions: tuple[str, ...],
) -> Comparison:
    accuracy = {rule: _difference(score, path.labels)[0] for rule, score in right.items()}
    best = max(accuracy, key=lambda rule: accuracy[rule])
    rows = []
    for rule in sorted(accuracy, key=lambda rule: -accuracy[rule]):
        gain, gain_interval = _difference(right[rule] - right["none"], path.labels)
        behind, behind_interval = _difference(right[best] - right[rule], path.labels)
        gammas = tuple(np.median(chosen[rule], axis=0).tolist()) if rule in chosen else ()
        rows.append(Row(rule, 1 - accuracy[rule], gain, gain_interval, behind, behind_interval, gammas))
    return Comparison(tuple(rows), len(path.labels), repeats, cautions)


def _difference(values: np.ndarray, labels: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The mean over classes of each class's mean, and its 95 % interval: stratified, classes of one sample left out."""
    sizes = np.bincount(labels)
    used = sizes > 1
    means = np.bincount(labels, values)[used] / sizes[used]
    spread = np.bincount(labels, (values - (np.bincount(labels, values) / np.maximum(sizes, 1))[labels]) ** 2)[used]
    error = np.sqrt((spread / (sizes[used] - 1) / sizes[used]).sum()) / used.sum()
    mean = float(means.mean())
    return mean, (float(mean - 1.96 * error), float(mean + 1.96 * error))


def _points(value: float, interval: tuple[float, float]) -> str:
    return f"{100 * value:.2f} ({100 * interval[0]:.2f} to {100 * interval[1]:.2f})"
