"""Offsets: a number added to each class's score, by exact line searches class by class.

With all other offsets fixed, class k is predicted for a sample once its offset exceeds that sample's threshold: the
best other score less its own. Sorted, the N thresholds give the loss at every value of that offset. Passes over the
classes go on until nothing improves. What is minimized is

    ``loss(d) + pull sum_k s_k |d_k| / unit``

with s_k how much the loss wavers by the samples of class k (its standard error), and the unit the middle distance
between a sample's two best scores. So classes with few samples move little, and no class moves without a gain. The
pull is the one of `PULLS` with the least cross-fitted loss. Floors are met first (`floors.py`); on each line, the
offsets that keep them are one interval: class k must not lose too many of its samples, nor take too many of others'.
A line search can stop where two offsets would have to move at once. So where samples are few, pairs are tried too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..support.types import Metric
from .floors import FloorsFit, meet_floors, needed_right
from .path_metrics import ERRORS, FORMULAS, ClassChanges, MetricSteps, Totals, order_by_class
from .resample import draw_folds

PULLS = (np.inf, 2.0, 1.0, 0.5, 0.2)  # infinity is the start itself
_FOLDS = 3
_PASSES = 12
_SAME = 1e-12  # losses closer than this are equal: they differ by rounding
_LEAST_GAIN = 1e-5  # of the loss at the start: what a move must gain
_SLIVER = 1e-6  # of the unit: an interval of offsets too narrow to be chosen
_PAIR_NUMBERS = 2_000_000  # steps times samples times classes, of all pairs, up to which pairs of offsets are searched


@dataclass(frozen=True, eq=False)
class OffsetGoal:
    """What offsets are to be good at, on some samples."""

    labels: np.ndarray  # [N]
    weights: np.ndarray  # [N], of each sample in the metric
    classes: int
    metric: Metric = "balanced_error"
    cost: np.ndarray | None = None  # [K, K], row true, column predicted, for the metric cost
    floors: np.ndarray | None = (
        None  # [K], the least recall of each class, NaN for none; None for no floors
    )

    def take(self, rows: np.ndarray) -> "OffsetGoal":
        """Return the goal on some of the samples."""
        return replace(self, labels=self.labels[rows], weights=self.weights[rows])

    @cached_property
    def need(self) -> np.ndarray:
        """How many samples of each class must be right, [K]."""
        return needed_right(
            np.full(self.classes, np.nan) if self.floors is None else self.floors, self.labels
        )

    @cached_property
    def price(self) -> np.ndarray | None:
        """What a prediction costs, [K, K], for metrics that are sums over samples; None for all others."""
        return 1 - np.eye(self.classes) if self.metric in ERRORS else self.cost

    @cached_property
    def total(self) -> float:
        """The weight of all samples."""
        return float(self.weights.sum())

    def loss(self, predicted: np.ndarray) -> float:
        """Return the loss of predictions [N]."""
        if self.price is not None:
            return float(self.weights @ self.price[self.labels, predicted]) / self.total
        steps = MetricSteps(self.metric, self.labels, self.classes, ())
        return steps.loss_of(predicted == self.labels, predicted, self.weights)

    def line(self, order: np.ndarray, rival: np.ndarray, k: int) -> np.ndarray:
        """Return the loss [N + 1] after each change: samples turn in this order from their rivals [N] to class k."""
        if self.price is not None:
            true, first = self.labels[order], float(self.weights @ self.price[self.labels, rival])
            steps = self.weights[order] * (self.price[true, k] - self.price[true, rival[order]])
            return np.concatenate([[first], first + np.cumsum(steps)]) / self.total
        # All classes but k only lose. Sorted by class, each one's changes are neighbors, and its totals after each are
        # cumulative sums; class k only gains, in the order of all changes.
        rank, old = np.arange(len(order)), rival[order]
        by, sizes = order_by_class(old, self.classes), np.bincount(old, minlength=self.classes)
        moves = (
            -1.0 * (self.labels[order] == old)[by],
            np.full(len(order), -1.0),
        )  # of right, and of predicted
        losing = ClassChanges(
            self.labels, rival == self.labels, rival, rank[by], order[by], old[by], *moves, sizes
        )
        first, mass = losing.first(self.weights), self.weights[order]
        gained = [
            first.right[k] + np.cumsum(mass * (self.labels[order] == k)),
            first.predicted[k] + np.cumsum(mass),
        ]
        if self.metric not in FORMULAS:  # the worst recall
            return self._worst_line(losing, first, gained[0], k)
        formula, after = FORMULAS[self.metric], losing.after(self.weights, first)
        own = Totals(gained[0], gained[1], np.full(len(order), first.true[k]))
        of_all, of_losing, of_own = (
            formula.terms(totals, self.total) for totals in (first, after, own)
        )
        sums = []
        for at_first, at_change, at_k in zip(of_all, of_losing, of_own, strict=True):
            steps = np.empty(len(order))
            steps[by] = losing.steps(at_first, at_change)
            sums.append(at_first.sum() + np.append(0.0, np.cumsum(steps) + at_k - at_first[k]))
        return formula.loss(*sums, true=first.true, weight=self.total)

    def _worst_line(
        self, losing: ClassChanges, first: Totals, gained: np.ndarray, k: int
    ) -> np.ndarray:
        """Return ``1 - worst recall`` after each change, [N + 1]: that of others falls, that of class k rises."""
        some, right = first.true > 0, losing.after(self.weights, first).right
        each = np.empty(len(gained))
        each[losing.gamma] = right / np.maximum(first.true[losing.classes], 1e-300)
        each[~some[losing.classes[np.argsort(losing.gamma)]]] = np.inf
        others = np.flatnonzero(some & (np.arange(self.classes) != k))
        falling = np.concatenate(
            [[(first.right[others] / first.true[others]).min(initial=np.inf)], each]
        )
        rising = np.concatenate([first.right[k : k + 1], gained]) / first.true[k]
        return 1 - np.minimum(np.minimum.accumulate(falling), rising)

    def kept_floors(self, order: np.ndarray, rival: np.ndarray, k: int) -> tuple[int, int]:
        """Return the first and last number of changes of a line after which all floors are met; (1, 0) if never."""
        if not self.need.any():
            return 0, len(order)
        true, old = self.labels[order], rival[order]
        first = 0 if not self.need[k] else int(np.flatnonzero(true == k)[self.need[k] - 1]) + 1
        # What another class can lose: its samples that are right before all changes, less those that it needs.
        spare = np.bincount(self.labels[rival == self.labels], minlength=self.classes) - self.need
        spare[k] = 0
        if (spare < 0).any():
            return 1, 0
        lost = np.flatnonzero((true == old) & (self.need[true] > 0))
        by_class = lost[np.argsort(true[lost], kind="stable")]
        sizes = np.bincount(true[by_class], minlength=self.classes)
        opens = np.cumsum(sizes) - sizes
        broken = np.flatnonzero(sizes > spare)  # the change that takes one too many
        return first, int(by_class[opens[broken] + spare[broken]].min(initial=len(order)))


@dataclass(frozen=True, eq=False)
class OffsetFit:
    """Fitted offsets."""

    offset: np.ndarray  # [K], added to the scores
    loss: float  # on the samples fitted on
    floors: FloorsFit | None = (
        None  # how the floors were met, or why they cannot be; None without any
    )


def fit_offsets(
    scores: np.ndarray,
    goal: OffsetGoal,
    *,
    pull: float = 0.0,
    start: np.ndarray | None = None,
    thorough: bool = False,
) -> OffsetFit:
    """Fit an offset for each class to scores [N, K], pulled toward 0; a start near it saves passes."""
    # A class without a sample keeps 0. An infinite pull asks for no more than the floors do. A thorough fit tries pairs
    # of offsets too, where the samples are few.
    search = _Search(np.ascontiguousarray(scores.T, np.float64), goal, pull)
    begin = np.zeros(goal.classes) if start is None else start
    if not goal.need.any():
        return search.descend(begin, thorough)
    # Two ways to come to the floors: from the start, and from what would be best without them.
    found = [search.meet(begin, thorough)]
    if np.isfinite(pull) and found[0].floors is not None and found[0].floors.met:
        free = (
            replace(search, goal=replace(goal, floors=None)).descend(begin, thorough=False).offset
        )
        found.append(search.meet(free, thorough))
    return min(found, key=lambda fit: (fit.floors is None or not fit.floors.met, fit.loss))


def choose_pull(
    scores: np.ndarray, goal: OffsetGoal, begin: Callable[[np.ndarray], np.ndarray] | None = None
) -> tuple[float, float]:
    """Return the one of `PULLS` of least cross-fitted loss, and that; offsets begin at what `begin` gives for rows."""
    fold = draw_folds(goal.labels, _FOLDS, np.random.default_rng(0))
    predicted = np.tile(scores.argmax(axis=1), (len(PULLS), 1))
    for left_out in np.unique(fold):
        held, rows = fold == left_out, np.flatnonzero(fold != left_out)
        if not goal.weights[rows].any():
            continue
        first, found = 0.0 if begin is None else begin(rows), None
        for i, pull in enumerate(PULLS):  # from strong to weak, each from the one before
            found = fit_offsets(
                scores[rows] + first, goal.take(rows), pull=pull, start=found
            ).offset
            predicted[i, held] = (scores[held] + first + found).argmax(axis=1)
    losses = np.array([goal.loss(row) for row in predicted])
    return PULLS[int(np.argmax(losses <= losses.min() + _SAME))], float(
        losses.min()
    )  # the strongest of equals


@dataclass(frozen=True, eq=False)
class _Search:
    """The search of one fit: scores [K, N], where a class is a row, the goal, and the pull."""

    scores: np.ndarray
    goal: OffsetGoal
    pull: float

    @cached_property
    def unit(self) -> float:
        """The middle distance between a sample's two best scores."""
        gap = np.subtract(*_two_best(self.scores)[0])
        gap = gap[np.isfinite(gap)]
        return (float(np.median(gap)) if len(gap) else 0.0) or 1.0

    @cached_property
    def free(self) -> np.ndarray:
        """The classes that have a sample."""
        return np.flatnonzero(np.bincount(self.goal.labels, minlength=len(self.scores)))

    @cached_property
    def penalty(self) -> np.ndarray:
        """What each class pays for an offset of 1, [K]: the pull times how much the loss wavers by its samples."""
        if self.pull == 0 or not np.isfinite(
            self.pull
        ):  # then the loss does not count, and classes pay alike
            return np.full(len(self.scores), min(self.pull, 1.0))
        winner, second = _two_best(self.scores)[1:]
        found, labels = np.full(len(self.scores), np.inf), self.goal.labels
        for c in self.free:
            own = labels == c
            rival = np.where(winner == c, second, winner)
            effect = self.goal.loss(np.where(own, rival, winner)) - self.goal.loss(
                np.where(own, c, winner)
            )
            recall = ((winner == c)[own].sum() + 1) / (own.sum() + 2)
            found[c] = abs(effect) * np.sqrt(recall * (1 - recall) / (own.sum() + 2))
        return self.pull * found / self.unit

    def meet(self, start: np.ndarray, thorough: bool) -> OffsetFit:
        """Meet the floors, and then descend without breaking one."""
        if not (
            met := meet_floors(self.scores, self.goal.labels, self.goal.need, start, unit=self.unit)
        ).met:
            predicted = (self.scores + met.offset[:, None]).argmax(axis=0)
            return OffsetFit(met.offset, self.goal.loss(predicted), met)
        return replace(self.descend(met.offset, thorough), floors=met)

    def descend(self, start: np.ndarray, thorough: bool) -> OffsetFit:
        """Return the offsets at which no line search improves anything."""
        if not np.isfinite(self.pull) and not self.goal.need.any():
            return OffsetFit(np.zeros(len(start)), self.goal.loss(self.scores.argmax(axis=0)))
        lines = _Lines(self, start.copy())
        for _ in range(_PASSES):
            improved = [lines.search(int(k)) for k in self.free]
            if not any(improved) and not (thorough and lines.search_pairs()):
                break
        return OffsetFit(lines.offset, lines.loss)


@dataclass(eq=False)
class _Lines:
    """Line searches from where the offsets [K] are; `search` moves them."""

    of: _Search
    offset: np.ndarray

    def __post_init__(self) -> None:
        self.best, self.winner, self.second = _two_best(self.of.scores + self.offset[:, None])
        self.loss = self.of.goal.loss(self.winner)
        self.least = _SAME + _LEAST_GAIN * (
            self.loss if np.isfinite(self.of.pull) else self.of.unit
        )

    def search(self, k: int) -> bool:
        """Move the offset of one class to where the loss with its penalty is least; return whether that improved it."""
        taken = self.winner == k
        rival, rival_score = (
            np.where(taken, self.second, self.winner),
            np.where(taken, self.best[1], self.best[0]),
        )
        at = rival_score - self.of.scores[k]  # above this, class k is predicted
        goal, order = self.of.goal, np.argsort(at)
        values, loss = self._choices(
            at[order], goal.line(order, rival, k), *goal.kept_floors(order, rival, k)
        )
        if not len(values):
            return False
        price = self.of.penalty[k]
        cost = loss + price * np.abs(values)
        best = np.lexsort((np.abs(values), cost > cost.min() + _SAME))[0]
        now = self.loss if np.isfinite(self.of.pull) else 0.0
        if cost[best] >= now + price * abs(self.offset[k]) - self.least:
            return False
        self._move(k, float(values[best]))
        return True

    def _choices(
        self, at: np.ndarray, losses: np.ndarray, first: int, last: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the offset to take on each stretch of equal loss, and that loss: 0, or half a unit from an end."""
        if first > last:
            return np.zeros(0), np.zeros(0)
        losses = (
            np.zeros(len(losses)) if not np.isfinite(self.of.pull) else losses
        )  # the floors alone count
        losses = losses[first : last + 1]
        edges = np.concatenate([[-np.inf], at, [np.inf]])[first : last + 2]
        opens = np.flatnonzero(np.append(True, np.abs(np.diff(losses)) > _SAME))
        low, high = edges[opens], edges[np.append(opens[1:], len(losses))]
        wide = (high - low > _SLIVER * self.of.unit) & (low < np.inf) & (high > -np.inf)
        low, high, losses = low[wide], high[wide], losses[opens[wide]]
        inside = np.minimum((high - low) / 2, self.of.unit / 2)
        return np.where(low >= 0, low + inside, np.where(high <= 0, high - inside, 0.0)), losses

    def _move(self, k: int, to: float) -> None:
        """Set an offset; only samples of which the class was or becomes one of the two best change."""
        self.offset[k] = to
        scores = self.of.scores
        rows = np.flatnonzero(
            (self.winner == k) | (self.second == k) | (scores[k] + to > self.best[1])
        )
        best, self.winner[rows], self.second[rows] = _two_best(
            scores[:, rows] + self.offset[:, None]
        )
        self.best[:, rows] = best
        self.loss = self.of.goal.loss(self.winner)

    def search_pairs(self) -> bool:
        """Move two offsets at once where that improves the loss; return whether it did."""
        n, size, free = len(self.winner), len(self.offset), len(self.of.free)
        if n * n * n * size * free * (free - 1) // 2 > _PAIR_NUMBERS or not np.isfinite(
            self.of.pull
        ):
            return False
        return any(
            _search_pair(self, int(j), int(k)) for j in self.of.free for k in self.of.free if j < k
        )


def _search_pair(lines: _Lines, j: int, k: int) -> bool:
    """Try every value of offset j that matters with every value of offset k, all others fixed."""
    search, goal = lines.of, lines.of.goal
    scores = search.scores
    others = np.delete(np.arange(len(scores)), [j, k])
    rest = (scores[others] + lines.offset[others, None]).max(axis=0, initial=-np.inf)
    # What is predicted changes where j passes the others, and where two of the lines of k (past the others, and past
    # j) cross: at a sample's lead of k over j less another's distance to the others.
    past, over = rest - scores[j], scores[k] - scores[j]
    at = np.unique(np.r_[past, (rest - scores[k] + over[:, None]).ravel(), lines.offset[j]])
    at = at[np.isfinite(at)] if len(others) else np.zeros(1)
    beyond = np.array([-0.5, 0.5]) * search.unit + at[[0, -1]]
    values = np.unique(np.r_[beyond, (at[1:] + at[:-1]) / 2, lines.offset[j]])
    rival_score = np.maximum(rest, scores[j] + values[:, None])
    if len(others):
        other = others[(scores[others] + lines.offset[others, None]).argmax(axis=0)]
        rival = np.where(scores[j] + values[:, None] > rest, j, other)
    else:
        rival = np.full(rival_score.shape, j)
    steps = rival_score - scores[k]
    order = np.argsort(steps, axis=1)
    edges = np.pad(
        np.take_along_axis(steps, order, axis=1),
        ((0, 0), (1, 1)),
        constant_values=(-np.inf, np.inf),
    )
    losses, kept = _table_losses(goal, order, rival, k)
    low, high = edges[:, :-1], edges[:, 1:]
    width = high - low
    inside = np.minimum(width / 2, search.unit / 2)
    with np.errstate(invalid="ignore"):
        second = np.where(low >= 0, low + inside, np.where(high <= 0, high - inside, 0.0))
    cost = losses + search.penalty[j] * np.abs(values[:, None]) + search.penalty[k] * np.abs(second)
    cost[(width <= _SLIVER * search.unit) | ~kept] = np.inf
    at_best = np.unravel_index(int(cost.argmin()), cost.shape)
    now = (
        lines.loss
        + search.penalty[j] * abs(lines.offset[j])
        + search.penalty[k] * abs(lines.offset[k])
    )
    if not cost[at_best] < now - _SAME:
        return False
    lines._move(j, float(values[at_best[0]]))
    lines._move(k, float(second[at_best]))
    return True


def _table_losses(
    goal: OffsetGoal, order: np.ndarray, rival: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `OffsetGoal.line` does for G lines, [G, N + 1], and whether all floors are met there."""
    # For few samples: every class is counted after every change.
    true, old = goal.labels[order], np.take_along_axis(rival, order, axis=1)
    weights, classes = goal.weights[order][..., None], np.arange(goal.classes)

    def running(of_rival: np.ndarray, of_k: np.ndarray) -> np.ndarray:
        """Return what each class has after each change, [G, N + 1, K]."""
        first = of_rival.sum(axis=1, keepdims=True)
        return np.concatenate([first, first + np.cumsum(of_k - of_rival, axis=1)], axis=1)

    was, new = (
        (old[..., None] == classes),
        np.broadcast_to(classes == k, (*old.shape, goal.classes)),
    )
    is_true = true[..., None] == classes
    kept = np.asarray(
        (running(1.0 * (was & is_true), 1.0 * (new & is_true)) >= goal.need - 0.5).all(axis=2)
    )
    if goal.price is not None:
        first = weights[..., 0] * goal.price[true, old]
        steps = weights[..., 0] * goal.price[true, k] - first
        start = first.sum(axis=1, keepdims=True)
        return np.concatenate([start, start + np.cumsum(steps, axis=1)], axis=1) / goal.total, kept
    right = running(weights * (was & is_true), weights * (new & is_true))
    predicted = running(weights * was, weights * new)
    of_true = np.bincount(goal.labels, goal.weights, goal.classes)
    whole = np.broadcast_to(of_true, right.shape)
    if goal.metric not in FORMULAS:  # the worst recall
        return 1 - np.divide(right, whole, out=np.full(right.shape, np.inf), where=whole > 0).min(
            axis=2
        ), kept
    formula = FORMULAS[goal.metric]
    terms = formula.terms(Totals(right.ravel(), predicted.ravel(), whole.ravel()), goal.total)
    sums = [term.reshape(right.shape).sum(axis=2) for term in terms]
    return formula.loss(*sums, true=of_true, weight=goal.total), kept


def _two_best(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the two best scores of each sample, [2, N], and their classes, [N] each, of scores [K, N]."""
    each = np.arange(scores.shape[1])
    first = scores.argmax(axis=0)
    best = scores[first, each]
    if len(scores) == 1:
        return np.stack([best, np.full(len(best), -np.inf)]), first, first
    rest = scores.copy()
    rest[first, each] = -np.inf
    second = rest.argmax(axis=0)
    return np.stack([best, rest[second, each]]), first, second
