"""Held-out `Samples`, and the `Goal` of a choice: each is checked once, where it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np

from ..path.curve import stable_order
from ..support.arrays import (
    Array,
    are_log_probabilities,
    are_on_gpu,
    as_array,
    check_logits,
    described,
    is_torch,
    not_finite,
    to_numpy,
)
from ..support.errors import Advice, LevelheadError, check_choice, named
from ..support.read import read_chunks
from ..support.types import Kind
from .arguments import target_prior
from .class_labels import (
    flatten_positions,
    refuse_label_table,
    refuse_swapped,
    resolve_labels,
)
from .class_names import as_mapping, find_classes, names_of_columns, title
from .counts import Counts, WithBackground, check_samples, find_background, resolve
from .metrics import COST, Metric, Tables, find_metric
from .probabilities import smooth_votes

FOLDS = 3  # more of them state gains of few samples too low, and wait longer
MOST_NUMBERS = 60_000_000  # N times K up to which a rule is fitted on all samples
PART_NUMBERS = 20_000_000  # of more, what it is fitted on: a fit copies it a few times
Floors = float | Mapping[Any, float]  # a recall for all classes, or {class: recall}


@dataclass(frozen=True, eq=False)
class Goal:
    """What a choice is to be good at.

    Args:
        metric: a name, such as `balanced_error`, `macro_f1` or scikit-learn's `f1_macro`; or a
            `Metric` of one's own.
        cost: [K, K], row true, column predicted: the metric is then the mean cost of a sample.
        floors: {class: recall}, or a recall for all classes, that new samples should reach, too.
        certainty: how likely each floor is to hold on new samples.

    >>> Goal("f1_macro").metric.name, Goal(cost=[[0, 1], [5, 0]]).metric.name
    ('macro_f1', 'cost')
    """

    metric: Metric | Any = "balanced_error"
    cost: Array | None = None
    floors: Any = None
    certainty: float = 0.9
    target: np.ndarray | None = field(default=None, repr=False)  #: [K], set by `on`
    names: Sequence[str] | None = field(default=None, repr=False)  #: of the classes, set by `on`

    def __post_init__(self) -> None:
        metric = find_metric(self.metric)
        if self.cost is not None and metric.name == "balanced_error":  # the default
            metric = find_metric(COST)
        if metric.name == COST and self.cost is None:
            advice = Advice("cost", None, "with it")
            reason = "'cost' needs a cost matrix [K, K]"
            raise LevelheadError(reason, parameter="metric", advice=advice)
        if metric.name != COST and self.cost is not None:
            both = f"expected no other metric next to a cost matrix, got {metric.name!r}"
            raise LevelheadError(f"{both}; leave out one of them", parameter="cost")
        if not 0.5 <= self.certainty < 1:
            raise LevelheadError(
                f"expected a probability from 0.5 to 1, got {self.certainty!r}",
                parameter="certainty",
            )
        object.__setattr__(self, "metric", metric)

    @staticmethod
    def of(given: str | Metric | Goal) -> Goal:
        """Return a goal that was given, or that of a metric."""
        if isinstance(given, Goal):
            return given
        return Goal(given)

    def on(
        self, labels: np.ndarray, classes: int, names: Sequence[str] | None, target: Any = None
    ) -> Goal:
        """Return the goal for samples of K classes: cost [K, K], floors [K] and target [K]."""
        goal = replace(self, names=names)
        if self.cost is not None:
            goal = replace(goal, cost=check_cost(self.cost, classes))
        if self.floors is not None:
            goal = replace(goal, floors=check_floors(self.floors, labels, classes, names))
        if target is None:
            return goal
        if self.metric.name in ("error", "g_mean", "worst_recall"):
            weighs = "the same"
            if self.metric.as_they_come:
                weighs = "as they occur"
            instead = "leave out the target, or choose the metric balanced_error"
            raise LevelheadError(
                f"the metric {self.metric.name} weighs classes {weighs}; {instead}",
                parameter="target",
            )
        shares = target_prior(target, classes, names)
        present = np.bincount(labels, minlength=classes) > 0
        if not shares[present].any():
            reason = "expected a share above 0 for some class that has a sample here"
            raise LevelheadError(reason, parameter="target")
        return replace(goal, metric=self.metric.toward(shares), target=shares)

    def weights(self, labels: np.ndarray, classes: int) -> np.ndarray | None:
        """Return what each sample weighs in tables, [N], toward a target; None for 1 each."""
        if self.target is None:
            return None
        sizes = np.bincount(labels, minlength=classes)
        return (self.target / np.maximum(sizes, 1))[labels]

    def tables(self, labels: np.ndarray, predicted: np.ndarray, classes: int) -> Tables:
        """Count predictions [N] as the metric weighs them."""
        weights = self.weights(labels, classes)
        return Tables.of(labels, predicted, classes, weights, self.cost)

    def loss(self, tables: Tables) -> np.ndarray:
        """Return the metric as a loss, [...], of tables [..., K]."""
        return self.metric.loss(tables)

    def shares(self, sizes: np.ndarray) -> np.ndarray:
        """Return how often classes occur where the goal is measured, [K]; they sum to 1.

        As a target says, as they come among the samples, or all alike. Costs count as often as they
        are paid: a class whose errors cost twice as much weighs as one that is twice as frequent.
        """
        if self.target is not None:
            shares = np.maximum(self.target, 1e-3 / len(sizes))
        elif self.metric.as_they_come:
            shares = np.maximum(sizes, 0.5)
        else:
            shares = np.ones(len(sizes))
        if self.cost is not None:
            cost = np.asarray(self.cost)
            dear = (cost - np.diag(cost)[:, None]).mean(axis=1)
            if dear.any():
                shares = shares * np.maximum(dear, 1e-3 * dear.max())
        return shares / shares.sum()


@dataclass(frozen=True, eq=False)
class Samples:
    """Held-out samples, as a rule is fitted on them.

    Args:
        scores: [N, K], logits or logarithms of probabilities, in memory or on a GPU.
        labels: [N].
        counts: [K], training samples of each class, or what stands in for them.
        fold: [N], from 0 to 4, dealt class by class.
        kind: what the scores were given as.
        smoothing: what was added to probabilities.
        background: the class that is left alone, if any.
    """

    scores: Array
    labels: np.ndarray
    counts: np.ndarray
    fold: np.ndarray
    kind: Kind = "logits"
    smoothing: float = 0.0
    background: int | None = None

    @property
    def classes(self) -> int:
        """K."""
        return len(self.counts)

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many samples each class has, [K]."""
        return np.bincount(self.labels, minlength=self.classes)

    @property
    def folds(self) -> list[int]:
        """The folds that have a sample and leave some out: those that fits are made without."""
        return [f for f in range(FOLDS) if 0 < np.count_nonzero(self.fold == f) < len(self.fold)]

    def toward(self, goal: Goal) -> np.ndarray:
        """Return what a calibrated model needs added for a goal, [K]: ``log(share_k / n_k)``.

        Where classes are to be alike that is ``log(n_max / n_k)``: 0 for the most frequent class.
        """
        needed = np.log(goal.shares(self.sizes) / self.counts)
        return needed - needed[np.argmax(self.counts)]

    def take(self, rows: np.ndarray) -> Samples:
        """Return some of the samples, in their folds."""
        return replace(
            self, scores=self.scores[rows], labels=self.labels[rows], fold=self.fold[rows]
        )


@dataclass(frozen=True, eq=False)
class Given:
    """What `tune` was given, checked: arrays as they come, and what is known of the classes."""

    logits: Array  # [N, K]
    labels: np.ndarray  # [N]
    counts: np.ndarray  # [K]
    names: Sequence[str] | None
    kind: Kind
    counted: bool  # whether the counts are those of the labels, as none were given
    background: int | None = None

    @staticmethod
    def of(
        logits: Array,
        labels: Array,
        counts: Counts | None,
        *,
        names: Sequence[str] | None = None,
        kind: Kind = "logits",
    ) -> Given:
        """Check scores, labels and counts against each other."""
        if labels is None:
            reason = "expected labels [N]; without labels, use tune_unlabelled"
            raise LevelheadError(reason, parameter="labels")
        check_choice("kind", kind, get_args(Kind))
        if names is None:
            names = names_of_columns(logits, counts)
        refuse_swapped(logits, labels, counts)
        logits, labels, _ = flatten_positions(logits, labels)
        refuse_label_table(labels)
        labels, names = resolve_labels(logits, labels, counts, names)
        logits = as_array(logits)
        counted = counts is None
        if counted:
            shape = tuple(getattr(logits, "shape", (0, 0)))
            counts = _count_labels(labels, shape[-1] if len(shape) == 2 else 0)
        background = None
        if isinstance(counts, WithBackground):
            background = find_background(counts.background, logits.shape[1], names)
            counts = resolve(counts, logits.shape[1], names=names)
        checked, n = check_samples(logits, labels, counts, names)
        if kind == "logits" and are_log_probabilities(logits):
            kind = "log-probabilities"
        return Given(logits, checked, n, names, kind, counted, background)

    @property
    def read_as(self) -> Kind:
        """How scores are read: of log-probabilities, as they are."""
        if self.kind == "probabilities":
            return "probabilities"
        return "logits"

    def part(self, rng: np.random.Generator) -> np.ndarray | None:
        """Return rows that a rule is fitted on, drawn class by class; None for all.

        What a GPU holds once, it holds a few times: there all samples are used.
        """
        classes = self.logits.shape[1]
        if are_on_gpu([self.logits]) or len(self.labels) * classes <= MOST_NUMBERS:
            return None
        n = PART_NUMBERS // classes
        if len(self.labels) <= n:
            return None
        return draw_class_by_class(self.labels, n, rng)

    def samples(self, rows: np.ndarray | None, rng: np.random.Generator) -> Samples:
        """Return some or all rows as samples, with folds dealt."""
        labels = self.labels if rows is None else self.labels[rows]
        scores = _read(self.logits, rows, self.read_as)
        smoothing = 0.0
        if self.kind == "probabilities":
            scores, smoothing = smooth_votes(scores)
        return Samples(
            scores=scores,
            labels=labels,
            counts=self.counts.astype(np.float64),
            fold=deal(labels, rng),
            kind=self.kind,
            smoothing=smoothing,
            background=self.background,
        )


def deal(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Deal samples into folds, class by class, so that each has its share of every class, [N]."""
    shuffled = rng.permutation(len(labels))
    order = shuffled[stable_order(labels[shuffled])]
    sizes = np.bincount(labels)
    firsts = np.cumsum(sizes) - sizes
    place = np.arange(len(labels)) - np.repeat(firsts, sizes)
    begin = np.repeat(rng.integers(FOLDS, size=len(sizes)), sizes)
    fold = np.empty(len(labels), np.uint8)
    fold[order] = (place + begin) % FOLDS
    return fold


def draw_class_by_class(labels: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return about n rows, ascending: of each class the same share, but all of a small one."""
    sizes = np.bincount(labels)
    wanted = part_sizes(sizes, n)
    order = np.lexsort((rng.random(len(labels)), labels))
    firsts = np.cumsum(sizes) - sizes
    place = np.arange(len(labels)) - np.repeat(firsts, sizes)
    return np.sort(order[place < np.repeat(wanted, sizes)])


def part_sizes(sizes: np.ndarray, n: int) -> np.ndarray:
    """Return how many samples of each class a part of about n has, [K].

    Each class has the same share, and a small one all it has: up to 200, as long as all classes
    together take no more than half of the part so.
    """
    share = min(1.0, n / max(int(sizes.sum()), 1))
    least = min(200, n // (2 * max(len(sizes), 1)))
    return np.minimum(sizes, np.maximum(np.ceil(share * sizes), least)).astype(np.int64)


def _count_labels(labels: Any, classes: int) -> np.ndarray:
    """Return how many labels each class has; 1 for one without any, whose shift is the largest."""
    values = to_numpy(labels)
    if values.ndim != 1 or values.dtype.kind not in "iubf" or not len(values):
        return np.ones(classes, np.int64)  # `check_samples` says what is wrong with the labels
    whole = values
    if values.dtype.kind == "f":
        whole = values[np.isfinite(values)].astype(np.int64)
    inside = whole[(whole >= 0) & (whole < classes)].astype(np.int64)
    return np.maximum(np.bincount(inside, minlength=classes), 1)


def _read(logits: Array, rows: np.ndarray | None, kind: Kind) -> Array:
    """Return rows of scores in memory, in float32 or better and finite; tensors of a GPU there."""
    if are_on_gpu([logits]) and kind == "logits" and logits.is_floating_point():
        if rows is None:
            some = logits.detach()
        else:
            some = logits.detach()[rows]
        some = some if some.element_size() > 2 else some.float()
        if bool(some.isfinite().all()):
            check_logits(some[:100])
            return some
        usable: Any = some.isfinite() | some.isneginf()
        if not bool(usable.all()):
            bad = ~usable.all(1)
            raise not_finite(int(bad.int().argmax()))
        return some.clamp(min=float(np.finfo(np.float32).min))
    if is_torch(logits):
        logits = to_numpy(logits)
    if rows is None:
        chunks = [chunk for _, chunk in read_chunks(logits, kind=kind)]
        if isinstance(logits, np.ndarray) and all(np.may_share_memory(c, logits) for c in chunks):
            return np.asarray(logits)
        if len(chunks) > 1:
            return np.concatenate(chunks)
        return chunks[0]
    parts = []
    for first, chunk in read_chunks(logits, kind=kind):
        begin, end = np.searchsorted(rows, [first, first + len(chunk)])
        parts.append(chunk[rows[begin:end] - first])
    return np.concatenate(parts)


def check_cost(cost: Any, classes: int) -> np.ndarray:
    """Return a cost matrix [K, K], row true, column predicted, in float64."""
    found = to_numpy(cost)
    with named("cost"):
        if found.dtype.kind not in "fiu":
            raise LevelheadError(f"expected numbers, got {described(found)}")
        if found.shape != (classes, classes):
            size = f"[{classes}, {classes}], row true, column predicted"
            raise LevelheadError(f"expected numbers {size}, got shape {list(found.shape)}")
        found = found.astype(np.float64)
        for bad, expected in ((~np.isfinite(found), "finite numbers"), (found < 0, "0 or more")):
            for row, column in np.argwhere(bad)[:1]:
                got = f"got {found[row, column]:g} in row {row}, column {column}"
                raise LevelheadError(f"expected {expected}, {got}")
        for row, column in np.argwhere(found < np.diag(found)[:, None])[:1]:
            right, wrong = found[row, row], found[row, column]
            costs = f"class {row} costs {right:g} if right, {wrong:g} if called {column}"
            raise LevelheadError(
                f"expected an error to cost no less than a right prediction; {costs}"
            )
    return found


def check_floors(
    floors: Any, labels: np.ndarray, classes: int, names: Sequence[str] | None = None
) -> np.ndarray:
    """Return the least recall of each class, [K], NaN where there is none."""
    sizes = np.bincount(labels, minlength=classes)
    found = np.full(classes, np.nan)
    mapping = as_mapping(floors)
    with named("floors"):
        try:
            if mapping is None:
                where: Any = sizes > 0
                given = [float(floors)]
            else:
                where = find_classes(mapping, classes, names, what="floor")
                given = [float(value) for value in mapping.values()]
            found[where] = given
        except LevelheadError:
            raise
        except (TypeError, ValueError):
            expected = "expected a recall, or a recall for each class named"
            raise LevelheadError(f"{expected}, got {floors!r}") from None
        for value in given:
            if not 0 <= value <= 1:
                percent = ""
                if 1 < value <= 100:
                    percent = f"; {value:g} % is {value / 100:g}"
                raise LevelheadError(f"expected recalls from 0 to 1, got {value:g}{percent}")
        for i in np.flatnonzero((sizes == 0) & ~np.isnan(found)):
            unknown = f"{title(int(i), names)} has no sample here, so its recall is not known"
            raise LevelheadError(f"{unknown}; leave out its floor")
    return found
