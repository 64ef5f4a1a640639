"""More than memory holds: chosen on a part drawn class by class, judged on all by adding up.

Reading once gives a `Reservoir` of rows, a lot for each sample: those with the smallest lots of each class
are kept, so reservoirs of chunks, files and machines join. Reading again gives the `Outcomes` of each chunk,
which add up. So `tune_chunks` is a map and a sum, twice, and Ray, Dask and Spark do the same (hosts):

1. `ChunkReader.draw` of every chunk, summed by `Reservoir.joined`;
2. the rule is fitted on what was drawn, as in `tune`;
3. `ChunkReader.judge` of every chunk, summed by `Outcomes.__add__`, where more was read than drawn.

A row is known by a number that follows from it alone (`number_rows`). So a chunk that is read again, wherever
and in whatever order, tells which of its rows were fitted on and in which fold, without a list of all samples. That
number is also the lot of a sample, unless rows of its chunk are equal, as votes of trees are (`draw_lots`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeGuard, TypeVar

import numpy as np

from ..support.arrays import Array, to_numpy
from ..support.errors import Advice, LevelheadError
from ..support.logits import check_logits, lower_masked, numeric_logits, read_as
from ..support.types import Kind
from .adjustment import Fits
from .arguments import check_chosen_on, check_level
from .class_labels import (
    as_positions,
    check_labels,
    check_one_per_row,
    flatten_positions,
    resolve_labels,
)
from .class_names import listed, names_of_columns
from .counts import Counts
from .doubts import doubts_about, issue_warnings
from .goal import Goal
from .judge import Outcomes, judge
from .metrics import Metric
from .predict import predict_all
from .rules import DEFAULT, Rule, find_rule
from .samples import FOLDS, PART_NUMBERS, Given, Samples, part_sizes, place_in_class
from .tune import make_tuned
from .tuned import Tuned

Chunk = tuple[Array, Array]  # logits [n, K], labels [n]
Result = TypeVar("Result")
_EXPECTED = "expected chunks, each (logits [n, K], labels [n])"
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: its multiples are far apart


class RunOnChunks(Protocol):
    """How chunks are worked on: here, or on many machines.

    All that `tune_mapped` asks of Ray, Dask or Spark: a function of one chunk that can be pickled goes
    out, what it returns for each chunk comes back.
    """

    def __call__(self, work: Callable[[Chunk], Result], /) -> Iterable[Result]:
        """Yield what the work gives of each chunk, in any order."""
        ...


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Some rows of samples, drawn class by class, and how many there are in all.

    Reservoirs join in any order: what stays of a class are the rows with the smallest lots, and a lot
    follows from its row and its chunk. One holds about `most` rows at most, so that the sum over any number of chunks
    fits into memory.

    Args:
        scores: [m, K], of the rows that are kept, as they were given.
        labels: [m], of these.
        lots: [m], the number that each has drawn; those with the smallest stay.
        sizes: [K], how many samples of each class were read.
        most: how many rows are kept, about.
        names: of the classes, where they were given or columns are titled with them.

    >>> labels = np.repeat([0, 1], [90, 10])
    >>> drawn = Reservoir.of(np.random.default_rng(0).normal(size=(100, 2)), labels, numbers=40)
    >>> np.bincount(drawn.labels), drawn.sizes
    (array([18,  5]), array([90, 10]))
    """

    scores: np.ndarray
    labels: np.ndarray
    lots: np.ndarray
    sizes: np.ndarray
    most: int
    names: tuple[str, ...] | None = None

    @staticmethod
    def of(
        logits: np.ndarray,
        labels: np.ndarray,
        numbers: int = PART_NUMBERS,
        names: Sequence[str] | None = None,
    ) -> Reservoir:
        """Return rows of a chunk.

        Args:
            logits: [n, K], checked.
            labels: [n], positions.
            numbers: rows times K that are kept, about.
            names: of the classes, where they are known.
        """
        classes = logits.shape[1]
        lots = draw_lots(logits, labels)
        sizes = np.bincount(labels, minlength=classes)
        most = max(numbers // classes, 1)
        known_names = None
        if names is not None:
            known_names = tuple(names)
        kept = Reservoir(logits, labels, lots, sizes, most, known_names).smaller()
        # The next chunk may be read into the same arrays.
        return replace(kept, scores=kept.scores.copy(), labels=kept.labels.copy())

    def __add__(self, other: Reservoir) -> Reservoir:
        return Reservoir.joined([self, other])

    @staticmethod
    def joined(parts: Sequence[Reservoir]) -> Reservoir:
        """Return the rows of all parts that are to be kept.

        Raises:
            LevelheadError: parts of different classes, or with their columns in different orders.
        """
        classes = sorted({len(part.sizes) for part in parts})
        if len(classes) > 1:
            came = " and ".join(map(str, classes))
            reason = f"expected the same classes in every chunk, got {came} classes"
            raise LevelheadError(reason, parameter="chunks")
        # Where names are not known, nothing contradicts those that are.
        names = [part.names for part in parts if part.names is not None]
        for other in names:
            if other != names[0]:
                orders = f"{listed(names[0])} in one and {listed(other)} in another"
                expected = "expected the same columns in every chunk, in the same order"
                raise LevelheadError(f"{expected}, got {orders}", parameter="chunks")
        return Reservoir(
            scores=np.concatenate([part.scores for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            lots=np.concatenate([part.lots for part in parts]),
            sizes=np.sum([part.sizes for part in parts], axis=0),
            most=parts[0].most,
            names=next(iter(names), None),
        ).smaller()

    def in_order(self) -> Reservoir:
        """Return the rows in the order of their lots, whatever order they were read in.

        So folds and fit follow from the chunks alone, on one machine or on many.
        """
        order = np.argsort(self.lots, kind="stable")
        return replace(
            self, scores=self.scores[order], labels=self.labels[order], lots=self.lots[order]
        )

    def smaller(self) -> Reservoir:
        """Return no more rows than are to be kept: of each class the same share, but a few at least.

        `part_sizes` says how many of each class, given what was read so far. The share that is kept
        falls as more is read, so what was dropped before is hardly ever missed.
        """
        wanted = part_sizes(self.sizes, self.most)
        # Sorted by class, and within a class by lot: the first ones of each stay.
        order = np.lexsort((self.lots, self.labels))
        place = place_in_class(np.bincount(self.labels))
        kept = np.sort(order[place < wanted[self.labels[order]]])
        if len(kept) == len(self.labels):
            return self
        return replace(
            self, scores=self.scores[kept], labels=self.labels[kept], lots=self.lots[kept]
        )


def draw_lots(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a number from 0 to 1 for each sample of a chunk, [n], by which a part is drawn.

    It is that of its row (`number_rows`), so that neither chunks nor their order play a part. But equal
    rows would then be drawn all or none, and a part of votes of trees be a handful of rows. So where a chunk
    has equal rows, how many of them came before and the sum over the chunk are stirred into each number.

    Args:
        logits: [n, K], as they were given.
        labels: [n], positions.

    >>> lots = draw_lots(np.zeros((1000, 2)), np.zeros(1000, int))
    >>> len(np.unique(lots)), float(lots.mean().round(1))
    (1000, 0.5)
    """
    numbers = number_rows(logits, labels)
    if (np.diff(np.sort(numbers)) > 0).all():
        return numbers
    # Sorted by row, the place of each sample among its equals.
    _, sizes = np.unique(numbers, return_counts=True)
    came_before = np.empty(len(numbers), np.uint64)
    came_before[np.argsort(numbers, kind="stable")] = place_in_class(sizes)
    bits = numbers.view(np.uint64)
    return _stir(bits + came_before * _GOLDEN + bits.sum(dtype=np.uint64))


def number_rows(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a number from 0 to 1 for each sample, [n], that follows from its row alone.

    So it is the same whenever, wherever and in whatever chunk a sample is read: the bits of its
    scores, each times an odd number of its column, are added up with its label and stirred. Equal rows of
    one class have equal numbers.

    Args:
        logits: [n, K], as they were given: before logarithms, so that rounding plays no part.
        labels: [n], positions.
    """
    bits = np.ascontiguousarray(logits, np.float64).view(np.uint64)
    # An odd number loses no bit modulo 2^64, where all of this is done.
    halves = np.random.default_rng(0).integers(1 << 63, size=logits.shape[1], dtype=np.uint64)
    odd = (halves * 2 + 1).astype(np.uint64)
    return _stir((bits * odd).sum(axis=1, dtype=np.uint64) + labels.astype(np.uint64) * _GOLDEN)


def _stir(mixed: np.ndarray) -> np.ndarray:
    """Return numbers from 0 to 1 that look random, of 64 bits each (splitmix64, Steele et al. 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = mixed ^ (mixed >> np.uint64(shift))
        mixed = mixed * np.uint64(factor)
    return mixed / 2.0**64


@dataclass(frozen=True, eq=False)
class ChunkReader:
    """How a chunk is read: the same on every machine, where it goes as a pickle.

    `draw` is the first map, `judge` the second; both `read`, which checks a chunk by itself.
    """

    counts: Counts | None  # of the training, as in `tune`
    names: Sequence[str] | None = None  # of the classes
    kind: Kind = "logits"  # what the scores are
    numbers: int = PART_NUMBERS  # rows times K that are fitted on, about

    def read(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray, Sequence[str] | None]:
        """Return scores [n, K], as they were given, and labels [n] of a chunk, checked; and names, if known.

        Raises:
            LevelheadError: no pair, labels that are no classes, or numbers that are not finite.
        """
        if not _is_pair(chunk):
            chunk_type = type(chunk).__name__
            reason = f"{_EXPECTED}, got {chunk_type}"
            advice = Advice("labels", None, "where the logits are one array")
            raise LevelheadError(reason, parameter="chunks", advice=advice)
        names = names_of_columns(chunk[0], self.counts, self.names)
        logits, labels, _ = flatten_positions(*chunk)
        indices, names = resolve_labels(logits, labels, self.counts, names)
        values = to_numpy(logits)
        self._logs(values)
        labels = check_labels(indices, values.shape[1])
        check_one_per_row(labels, len(values))
        return values, labels, names

    def _logs(self, values: np.ndarray) -> np.ndarray:
        """Return logits as they are, and logarithms of probabilities; both checked.

        -inf, a masked score, becomes the lowest number of the type.
        """
        if self.kind == "probabilities":
            return check_logits(values, kind="probabilities")
        # Whether they look like probabilities is asked of all that were drawn: a few rows may.
        checked = numeric_logits(values)
        if checked.dtype.kind != "f":
            checked = checked.astype(np.float64)
        return lower_masked(checked)

    def draw(self, chunk: Chunk) -> Reservoir:
        """Return the rows of a chunk that a rule may be fitted on: the first map."""
        values, labels, names = self.read(chunk)
        return Reservoir.of(values, labels, self.numbers, names)

    def judge(self, chunk: Chunk, fits: Fits, numbers: np.ndarray, fold: np.ndarray) -> Outcomes:
        """Return what is predicted in a chunk before and after: the second map.

        Args:
            chunk: as in `read`.
            fits: by which a sample is predicted: without its fold, if it was fitted on.
            numbers: [m], ascending, of the rows that were fitted on (`number_rows`).
            fold: [m], by which of `fits.without` each of these is predicted.
        """
        values, labels, _ = self.read(chunk)
        logits = self._logs(values)
        # A sample whose row is among them was fitted on, or one equal to it. All others are predicted by
        # the fit on all that were, which is the first here.
        chunk_numbers = number_rows(values, labels)
        at = np.minimum(np.searchsorted(numbers, chunk_numbers), len(numbers) - 1)
        which = np.where(numbers[at] == chunk_numbers, fold[at] + 1, 0).astype(np.int64)
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

    One chunk is in memory at a time, and a part of 20 million numbers at most. Up to that size it
    gives what `tune` does on all samples in the order of the chunks. Beyond it, the rule is fitted on the
    part, and every sample judges: those of the part by fits without their fold, all others by the fit
    on the part, which has not seen them.

    Args:
        chunks: (logits [n, K], labels [n]) each, one after another: a list, a data set, or a
            function that returns an iterator, which is read twice. A plain iterator is read once,
            and the choice is then judged on the part alone.
        counts, metric, rule, target, names, kind, chosen_on, level, rng: as in `tune`.

    Returns:
        A `Tuned`, as of `tune`.

    Raises:
        LevelheadError: no chunks, chunks of different classes, chunks that are not the same when they
            are read again, or whatever `tune` refuses.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [300, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(400, 3)) + np.log([1000, 200, 40])
    >>> tuned = tune_chunks([(logits[::2], labels[::2]), (logits[1::2], labels[1::2])], [1000, 200, 40])
    >>> tuned.n, tuned.verdict
    (400, 'better')
    """
    reader = ChunkReader(counts, names, kind)
    _check_iterable(chunks, callable(chunks))

    def read() -> Iterator[Chunk]:
        """Yield the chunks from the first on, without empty ones."""
        source = chunks
        if callable(source):
            source = source()
            _check_iterable(source)
        return (chunk for chunk in source if not _is_empty(chunk))

    def run(work: Callable[[Chunk], Result], /) -> Iterable[Result]:
        return map(work, read())

    # A plain iterator is its own iterator, and gone once it was read.
    again = callable(chunks) or iter(chunks) is not chunks
    return tune_mapped(
        run,
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
    run: RunOnChunks,
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
    """Choose on chunks wherever they are: what `tune_chunks` and the hosts of Ray, Dask and Spark share.

    Args:
        run: yields what some work gives of each chunk.
        reader: how a chunk is read.
        again: whether the chunks can be read a second time.
        metric, rule, target, chosen_on, level, rng: as in `tune`.
    """
    level = check_level(level)
    check_chosen_on(chosen_on)
    drawn = _draw_all(run, reader)
    is_part = drawn.sizes.sum() > len(drawn.labels)
    if is_part:
        drawn = drawn.in_order()

    # Fit and predict what was drawn, as `tune` does.
    given = _given(drawn, reader)
    chosen_rule = find_rule(rule)
    generator = np.random.default_rng(rng)
    goal = Goal.of(metric).on(given.labels, len(given.counts), given.names, target)
    samples = given.samples(None, generator)
    if is_part:
        samples = replace(samples, drawn_from=drawn.sizes)
    fits = chosen_rule.fit(samples, goal)
    outcomes = predict_all(given, samples, None, fits)

    # Where that is a part, predict all of it.
    if again and is_part:
        outcomes = _judge_all(run, reader, fits, drawn, samples)
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


def _check_iterable(chunks: object, is_function: bool = False) -> None:
    """Raise LevelheadError unless chunks can be read one after another, or are a function."""
    if not is_function and not isinstance(chunks, Iterable):
        reason = f"{_EXPECTED}, or a function that returns them, got {type(chunks).__name__}"
        raise LevelheadError(reason, parameter="chunks")


def _is_pair(chunk: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a chunk is (logits, labels)."""
    return isinstance(chunk, tuple | list) and len(chunk) == 2


def _is_empty(chunk: object) -> bool:
    """Return whether a chunk is a pair without a sample; what is no pair is refused where it is read."""
    if not _is_pair(chunk):
        return False
    logits = chunk[0]
    if hasattr(logits, "shape"):
        return tuple(logits.shape[:1]) == (0,)
    return isinstance(logits, Sized) and len(logits) == 0


def _draw_all(run: RunOnChunks, reader: ChunkReader) -> Reservoir:
    """Return the rows of all chunks that a rule is fitted on.

    Results may come back in any order; `in_order` makes up for that.
    """
    waiting: list[Reservoir] = []
    for part in run(reader.draw):
        waiting.append(part)
        # Small parts are joined together: each time, all that is kept is copied.
        if sum(len(reservoir.labels) for reservoir in waiting) > 2 * part.most:
            waiting = [Reservoir.joined(waiting)]
    if not waiting:
        raise LevelheadError(f"{_EXPECTED}, got none", parameter="chunks")
    return Reservoir.joined(waiting)


def _judge_all(
    run: RunOnChunks, reader: ChunkReader, fits: Fits, drawn: Reservoir, samples: Samples
) -> Outcomes:
    """Return what is predicted in all chunks before and after.

    Args:
        run, reader: as in `tune_mapped`.
        fits: of the samples that were drawn.
        drawn: these, in the order of their lots.
        samples: the same, with their folds.
    """
    # The place of each sample's fold among `fits.without`.
    place_of_fold = np.zeros(FOLDS, np.int64)
    place_of_fold[samples.folds] = np.arange(len(samples.folds))

    # Only what is named in the work travels to other machines: the numbers, not the rows. They ascend, to be
    # found by bisection; of equal rows, which may be in all folds, the fold of the first is taken for each.
    numbers = number_rows(drawn.scores, drawn.labels)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    fold = place_of_fold[samples.fold[order]]
    total: Outcomes | None = None
    for outcomes in run(lambda chunk: reader.judge(chunk, fits, numbers, fold)):
        if total is None:
            total = outcomes
        else:
            total = total + outcomes
    if total is None or not np.array_equal(total.sizes, drawn.sizes):
        reason = "the samples were not the same when they were read again"
        raise LevelheadError(reason, parameter="chunks")
    return total


def _given(drawn: Reservoir, reader: ChunkReader) -> Given:
    """Return the part that a rule is fitted on, as `tune` is given it."""
    check_logits(drawn.scores[:1000], kind=read_as(reader.kind))
    counts = reader.counts
    if counts is None:
        counts = np.maximum(drawn.sizes, 1)  # those of all samples, not of the part
    labels = as_positions(drawn.labels)
    given = Given.of(drawn.scores, labels, counts, names=drawn.names, kind=reader.kind)
    return replace(given, counted=reader.counts is None)
