"""More than memory holds: chosen on a part drawn class by class, judged on all by adding up.

Reading once gives a `Reservoir` of rows, a lot for each sample: those with the smallest lots of each class
are kept, so reservoirs of chunks, files and machines join. Reading again gives the `Outcomes` of each chunk,
which add up. So `tune_chunks` is a map and a sum, twice, and Ray, Dask and Spark do the same (hosts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..support.arrays import Array, to_numpy
from ..support.errors import Advice, LevelheadError
from ..support.logits import check_logits, lower_masked, numeric_logits
from ..support.types import Kind
from .adjustment import Fits
from .class_labels import as_positions, check_labels, flatten_positions, resolve_labels
from .counts import Counts
from .doubts import doubts_about, issue_warnings
from .goal import Goal
from .judge import Outcomes, judge
from .metrics import Metric
from .predict import predict_all
from .rules import DEFAULT, Rule, find_rule
from .samples import PART_NUMBERS, Given, part_sizes
from .tune import check_level, make_tuned
from .tuned import Tuned

Chunk = tuple[Array, Array]  # logits [n, K], labels [n]


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Some rows of samples, drawn class by class, and how many there are in all.

    Args:
        scores, labels: [m, K] and [m], the rows.
        lots: [m], the number that each has drawn; those with the smallest stay.
        sizes: [K], how many samples of each class were read.
        most: how many rows are kept.
    """

    scores: np.ndarray
    labels: np.ndarray
    lots: np.ndarray
    sizes: np.ndarray
    most: int

    @staticmethod
    def of(logits: np.ndarray, labels: np.ndarray, numbers: int = PART_NUMBERS) -> Reservoir:
        """Return rows of a chunk, logits [n, K] and labels [n]."""
        classes = logits.shape[1]
        lots = draw_lots(logits, labels)
        sizes = np.bincount(labels, minlength=classes)
        most = max(numbers // classes, 1)
        kept = Reservoir(logits, labels, lots, sizes, most).smaller()
        # The next chunk may be read into the same arrays.
        return replace(kept, scores=kept.scores.copy(), labels=kept.labels.copy())

    def __add__(self, other: Reservoir) -> Reservoir:
        return Reservoir.joined([self, other])

    @staticmethod
    def joined(parts: Sequence[Reservoir]) -> Reservoir:
        """Return the rows of all parts that are to be kept."""
        classes = sorted({len(part.sizes) for part in parts})
        if len(classes) > 1:
            came = " and ".join(map(str, classes))
            reason = f"expected the same classes in every chunk, got {came} classes"
            raise LevelheadError(reason, parameter="chunks")
        return Reservoir(
            scores=np.concatenate([part.scores for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            lots=np.concatenate([part.lots for part in parts]),
            sizes=np.sum([part.sizes for part in parts], axis=0),
            most=parts[0].most,
        ).smaller()

    def in_order(self) -> Reservoir:
        """Return the rows in the order of their lots, whatever order they were read in."""
        order = np.argsort(self.lots, kind="stable")
        return replace(
            self, scores=self.scores[order], labels=self.labels[order], lots=self.lots[order]
        )

    def smaller(self) -> Reservoir:
        """Return no more rows than are to be kept: of each class the same share, but a few at least."""
        wanted = part_sizes(self.sizes, self.most)
        order = np.lexsort((self.lots, self.labels))
        own = np.bincount(self.labels, minlength=len(self.sizes))
        place = np.arange(len(order)) - np.repeat(np.cumsum(own) - own, own)
        kept = np.sort(order[place < wanted[self.labels[order]]])
        if len(kept) == len(self.labels):
            return self
        return Reservoir(
            self.scores[kept], self.labels[kept], self.lots[kept], self.sizes, self.most
        )


def draw_lots(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a number from 0 to 1 for each sample, [n], that follows from its row alone.

    So it is the same whenever, wherever and in whatever chunk a sample is read: the bits of its
    scores, each times an odd number of its column, are added up with its label and stirred
    (splitmix64, Steele et al. 2014).
    """
    bits = np.ascontiguousarray(logits, np.float64).view(np.uint64)
    odd = np.random.default_rng(0).integers(1 << 63, size=logits.shape[1], dtype=np.uint64) * 2 + 1
    mixed = (bits * odd.astype(np.uint64)).sum(axis=1, dtype=np.uint64)
    mixed += labels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    return mixed / 2.0**64


@dataclass(frozen=True, eq=False)
class ChunkReader:
    """How a chunk is read: the same on every machine."""

    counts: Counts | None
    names: Sequence[str] | None = None
    kind: Kind = "logits"
    numbers: int = PART_NUMBERS

    def read(self, chunk: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return scores [n, K], as they were given, and labels [n] of a chunk, checked."""
        if not isinstance(chunk, tuple | list) or len(chunk) != 2:
            got = type(chunk).__name__
            reason = f"expected chunks, each (logits [n, K], labels [n]), got {got}"
            advice = Advice("labels", None, "where the logits are one array")
            raise LevelheadError(reason, parameter="chunks", advice=advice)
        logits, labels, _ = flatten_positions(*chunk)
        indices, _ = resolve_labels(logits, labels, self.counts, self.names)
        values = to_numpy(logits)
        self._logs(values)
        labels = check_labels(indices, values.shape[1])
        if len(labels) != len(values):
            got = f"got {len(labels)} labels and {len(values)} rows"
            raise LevelheadError(f"expected one label per row of logits, {got}")
        return values, labels

    def _logs(self, values: np.ndarray) -> np.ndarray:
        """Return logits as they are, and logarithms of probabilities; both checked."""
        if self.kind == "probabilities":
            return check_logits(values, kind="probabilities")
        # Whether they look like probabilities is asked of all that were drawn: a few rows may.
        checked = numeric_logits(values)
        return lower_masked(checked if checked.dtype.kind == "f" else checked.astype(np.float64))

    def draw(self, chunk: Any) -> Reservoir:
        """Return the rows of a chunk that a rule may be fitted on: the first map."""
        return Reservoir.of(*self.read(chunk), self.numbers)

    def judge(self, chunk: Any, fits: Fits, lots: np.ndarray, fold: np.ndarray) -> Outcomes:
        """Return what is predicted in a chunk before and after: the second map.

        Args:
            chunk: as in `read`.
            fits: by which a sample is predicted: without its fold, if it was fitted on.
            lots: [m], ascending, of the samples that were fitted on.
            fold: [m], their folds.
        """
        values, labels = self.read(chunk)
        own = draw_lots(values, labels)
        logits = self._logs(values)
        at = np.minimum(np.searchsorted(lots, own), len(lots) - 1)
        which = np.where(lots[at] == own, fold[at] + 1, 0).astype(np.int64)
        before = logits.argmax(axis=1)
        after = np.empty(len(labels), np.int64)
        for index, adjustment in enumerate([fits.whole, *fits.without]):
            rows = which == index
            if rows.any():
                after[rows] = adjustment.predict(logits[rows])
        return Outcomes.of(labels, before, after, logits.shape[1])


def tune_chunks(
    chunks: Iterable[Chunk] | Callable[[], Iterable[Chunk]],
    counts: Counts | None = None,
    *,
    metric: str | Metric | Goal = "balanced_error",
    rule: str | Rule = DEFAULT,
    target: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    chosen_on: str = "held-out",
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Tuned:
    """Choose on chunks of samples: on a part drawn class by class, judged on all of them.

    One chunk is in memory at a time, and a part of 20 million numbers at most.

    Args:
        chunks: (logits [n, K], labels [n]) each, one after another: a list, a data set, or a
            function that returns an iterator, which is read twice. A plain iterator is read once,
            and the choice is then judged on the part alone.
        counts, metric, rule, target, names, kind, chosen_on, level, rng: as in `tune`.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [300, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(400, 3)) + np.log([1000, 200, 40])
    >>> tuned = tune_chunks([(logits[::2], labels[::2]), (logits[1::2], labels[1::2])], [1000, 200, 40])
    >>> tuned.n, tuned.verdict
    (400, 'better')
    """
    reader = ChunkReader(counts, names, kind)

    def read() -> Iterator[Any]:
        given: Any = chunks() if callable(chunks) else chunks
        return (chunk for chunk in given if len(chunk) != 2 or len(chunk[0]))

    again = callable(chunks) or iter(chunks) is not chunks
    return tune_mapped(
        lambda work: map(work, read()),
        reader,
        again=again,
        metric=metric,
        rule=rule,
        target=target,
        chosen_on=chosen_on,
        level=level,
        rng=rng,
    )


def tune_mapped(
    run: Callable[[Callable[[Any], Any]], Iterable[Any]],
    reader: ChunkReader,
    *,
    again: bool = True,
    metric: str | Metric | Goal = "balanced_error",
    rule: str | Rule = DEFAULT,
    target: Array | None = None,
    chosen_on: str = "held-out",
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Tuned:
    """Choose on chunks wherever they are: `run(work)` yields what work gives of each chunk."""
    check_level(level)
    waiting: list[Reservoir] = []
    for part in run(reader.draw):
        waiting.append(part)
        # Small parts are joined together: each time, all that is kept is copied.
        if sum(len(one.labels) for one in waiting) > 2 * part.most:
            waiting = [Reservoir.joined(waiting)]
    if not waiting:
        expected = "expected chunks, each (logits [n, K], labels [n]), got none"
        raise LevelheadError(expected, parameter="chunks")
    drawn = Reservoir.joined(waiting)
    is_part = drawn.sizes.sum() > len(drawn.labels)
    if is_part:
        drawn = drawn.in_order()
    given = _given(drawn, reader)
    chosen_rule = find_rule(rule)
    generator = np.random.default_rng(rng)
    goal = Goal.of(metric).on(given.labels, len(given.counts), given.names, target)
    samples = given.samples(None, generator)
    fits = chosen_rule.fit(samples, goal)
    outcomes = predict_all(given, samples, None, fits)
    if again and is_part:
        of_fold = np.zeros(max(samples.folds, default=0) + 1, np.int64)
        of_fold[samples.folds] = np.arange(len(samples.folds))
        fold = of_fold[np.minimum(samples.fold, len(of_fold) - 1)]
        total: Outcomes | None = None
        for part in run(lambda chunk: reader.judge(chunk, fits, drawn.lots, fold)):
            total = part if total is None else total + part
        if total is None or not np.array_equal(total.sizes, drawn.sizes):
            reason = "the samples were not the same when they were read again"
            raise LevelheadError(reason, parameter="chunks")
        outcomes = total
    return make_tuned(
        given,
        samples,
        goal,
        chosen_rule,
        fits,
        judge(outcomes, goal, level),
        warnings=issue_warnings(doubts_about(given, outcomes, goal, chosen_rule, None)),
        chosen_on=chosen_on,
        n=outcomes.n,
    )


def _given(drawn: Reservoir, reader: ChunkReader) -> Given:
    """Return the part that a rule is fitted on, as `tune` is given it."""
    check_logits(
        drawn.scores[:1000], kind=reader.kind if reader.kind == "probabilities" else "logits"
    )
    counts: Any = np.maximum(drawn.sizes, 1) if reader.counts is None else reader.counts
    labels = as_positions(drawn.labels)
    given = Given.of(drawn.scores, labels, counts, names=reader.names, kind=reader.kind)
    return replace(given, counted=reader.counts is None)
