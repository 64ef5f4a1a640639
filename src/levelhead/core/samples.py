"""Held-out samples: what users give, checked once (`Given`), and what rules are fitted on (`Samples`).

The road: `Given.of` checks scores, labels and counts against each other, and knows from there on what each
column is. `Given.part` says which rows a rule is fitted on: all, or of very many a part, drawn class by
class. `Given.samples` reads these rows into memory, or leaves them on their GPU, and deals them into folds.
Nobody checks again after that.

A `Given` is everything there is, not read yet: its logits may be a memory-mapped file. `Samples` are what a rule
sees: finite scores in float32 or better, labels that are positions, counts, folds. Rules know nothing of names,
forms of counts, kinds of files or how many samples there were in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np

from ..path.curve import stable_order
from ..support.arrays import Array, are_on_gpu, as_array, is_torch, to_numpy
from ..support.errors import LevelheadError, check_choice
from ..support.logits import (
    are_log_probabilities,
    check_logits,
    check_shape,
    not_finite,
    read_as,
    refuse_one_probability,
)
from ..support.read import read_chunks
from ..support.types import Kind
from .class_labels import (
    flatten_positions,
    refuse_label_table,
    refuse_swapped,
    resolve_labels,
)
from .class_names import names_of_columns
from .counts import (
    Counts,
    WithBackground,
    check_samples,
    find_background,
    level_background,
    resolve_as_trained,
)
from .goal import Goal
from .probabilities import smooth_votes

FOLDS = 3  # more of them state gains of few samples too low, and wait longer
MOST_NUMBERS = 60_000_000  # N times K up to which a rule is fitted on all samples
PART_NUMBERS = 20_000_000  # of more, what it is fitted on: a fit copies it a few times
_WHOLE_CLASS = 200  # samples up to which a small class is in a part with all it has


@dataclass(frozen=True, eq=False)
class Samples:
    """Held-out samples, as a rule is fitted on them.

    Args:
        scores: [N, K], logits or logarithms of probabilities, in memory or on a GPU, all finite.
        labels: [N].
        counts: [K], training samples of each class, or what stands in for them.
        fold: [N], from 0 to FOLDS - 1, dealt class by class.
        kind: what the scores were given as.
        smoothing: what was added to probabilities before their logarithm (`smooth_votes`).
        background: the class that is left alone, if any.
        drawn_from: [K], how many samples each class has in all, where these are a part that was drawn
            class by class; None if these are all.
    """

    scores: Array
    labels: np.ndarray
    counts: np.ndarray
    fold: np.ndarray
    kind: Kind = "logits"
    smoothing: float = 0.0
    background: int | None = None
    drawn_from: np.ndarray | None = None

    @property
    def classes(self) -> int:
        """K."""
        return len(self.counts)

    @property
    def counts_of_rules(self) -> np.ndarray:
        """Counts by which a rule of counts leaves the background alone, [K]."""
        return level_background(self.counts, self.background)

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many samples each class has, [K]."""
        return np.bincount(self.labels, minlength=self.classes)

    @property
    def sizes_in_all(self) -> np.ndarray:
        """How many samples each class has among those that these were drawn from, [K]: their mix."""
        if self.drawn_from is None:
            return self.sizes
        return self.drawn_from

    @property
    def folds(self) -> list[int]:
        """The folds that have a sample and leave some out: those that fits are made without."""
        sizes = np.bincount(self.fold, minlength=FOLDS)
        return [fold for fold in range(FOLDS) if 0 < sizes[fold] < len(self.fold)]

    def toward(self, goal: Goal) -> np.ndarray:
        """Return what a calibrated model needs added for a goal, [K]: ``log(share_k / n_k)``.

        Where classes are to be alike that is ``log(n_max / n_k)``: 0 for the most frequent class. Bayes'
        rule from the mix of the training to that of the goal, up to a constant.
        """
        needed = np.log(goal.shares(self.sizes_in_all) / self.counts)
        return needed - needed[np.argmax(self.counts)]

    def take(self, rows: np.ndarray) -> Samples:
        """Return some of the samples, in their folds. Counts stay: they are of the training."""
        return replace(
            self, scores=self.scores[rows], labels=self.labels[rows], fold=self.fold[rows]
        )


@dataclass(frozen=True, eq=False)
class Given:
    """What `tune` was given, checked: arrays as they come, and what is known of the classes."""

    logits: Array  # [N, K], not read yet: an array, a tensor, or a memory-mapped file
    labels: np.ndarray  # [N], positions
    counts: np.ndarray  # [K], training samples of each class
    names: Sequence[str] | None  # of the classes, where they are known
    kind: Kind  # what the logits are
    counted: bool  # whether the counts are those of the labels, as none were given
    background: int | None = None  # the class that is left alone

    @staticmethod
    def of(
        logits: Array,
        labels: Array,
        counts: Counts | None,
        *,
        names: Sequence[str] | None = None,
        kind: Kind = "logits",
    ) -> Given:
        """Check scores, labels and counts against each other.

        Args:
            logits: [N, K], or [B, ..., K] of tokens or pixels, with labels [B, ...].
            labels: [N], positions or names of classes.
            counts: training samples of each class, in any form that `counts.resolve` takes; those of
                the labels if None.
            names: of the classes; the titles of the logits' columns if None and they have some.
            kind: what the logits are. Those that turn out to be log-probabilities are noted as such.

        Raises:
            LevelheadError: which of them does not fit, and what to do.
        """
        if labels is None:
            reason = "expected labels [N]; without labels, use tune_unlabelled"
            raise LevelheadError(reason, parameter="labels")
        check_choice("kind", kind, get_args(Kind))

        # Labels and names, while the logits still have the titles of a data frame.
        names = names_of_columns(logits, counts, names)
        refuse_swapped(logits, labels, counts)
        logits, labels, _ = flatten_positions(logits, labels)
        refuse_label_table(labels)
        labels, names = resolve_labels(logits, labels, counts, names)
        logits = as_array(logits)
        check_shape(logits.shape)
        refuse_one_probability(logits)

        # Counts, and what `check_samples` finds wrong with any of the three.
        counted = counts is None
        if counted:
            counts = _count_labels(labels, logits.shape[1])
        background = None
        if isinstance(counts, WithBackground):
            background = find_background(counts.background, logits.shape[1], names)
            counts = resolve_as_trained(counts, logits.shape[1], names=names)
        checked_labels, checked_counts = check_samples(logits, labels, counts, names)

        # Log-probabilities may be added to like logits, but not multiplied.
        if kind == "logits" and are_log_probabilities(logits):
            kind = "log-probabilities"
        return Given(logits, checked_labels, checked_counts, names, kind, counted, background)

    @property
    def counts_of_rules(self) -> np.ndarray:
        """Counts by which a rule of counts leaves the background alone, [K]."""
        return level_background(self.counts, self.background)

    @property
    def read_as(self) -> Kind:
        """How scores are read: log-probabilities as they are, like logits."""
        return read_as(self.kind)

    def part(self, rng: np.random.Generator) -> np.ndarray | None:
        """Return rows that a rule is fitted on, ascending, drawn class by class; None for all.

        A fit copies its scores a few times. Of more than 60 million numbers, about 20 million are drawn;
        all samples still judge the choice (`predict_all`).

        Args:
            rng: draws them.
        """
        classes = self.logits.shape[1]
        # What a GPU holds once, it holds a few times: there all samples are used.
        if are_on_gpu([self.logits]) or len(self.labels) * classes <= MOST_NUMBERS:
            return None
        n = PART_NUMBERS // classes
        if len(self.labels) <= n:
            return None
        return draw_class_by_class(self.labels, n, rng)

    def samples(self, rows: np.ndarray | None, rng: np.random.Generator) -> Samples:
        """Return samples to fit on, in memory or on their GPU, with folds dealt.

        Args:
            rows: which of them, ascending, as `part` returned them; all if None.
            rng: deals the folds.

        Raises:
            LevelheadError: scores that are not finite, or that are not of the kind they were said to be.
        """
        labels = self.labels
        drawn_from = None
        if rows is not None:
            labels = self.labels[rows]
            drawn_from = np.bincount(self.labels, minlength=len(self.counts))
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
            drawn_from=drawn_from,
        )


def deal(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Deal samples into folds, class by class, so that each has its share of every class, [N].

    A random split would leave some folds without a sample of a rare class, and fits without a fold would
    then know less of it than they should.

    Args:
        labels: [N].
        rng: shuffles each class, and says at which fold it begins.

    Returns:
        [N] in uint8, from 0 to FOLDS - 1.

    >>> folds = deal(np.array([0, 0, 0, 1, 1, 1]), np.random.default_rng(0))
    >>> sorted(folds[:3].tolist()), sorted(folds[3:].tolist())
    ([0, 1, 2], [0, 1, 2])
    """
    # The samples of a class, in random order, are dealt like cards, one fold after the other.
    shuffled = rng.permutation(len(labels))
    order = shuffled[stable_order(labels[shuffled])]
    sizes = np.bincount(labels)
    place = place_in_class(sizes)
    # Each class begins at a fold of its own, or the first folds would get all classes of one sample.
    begin = np.repeat(rng.integers(FOLDS, size=len(sizes)), sizes)
    fold = np.empty(len(labels), np.uint8)
    fold[order] = (place + begin) % FOLDS
    return fold


def draw_class_by_class(labels: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return about n rows, ascending: of each class the same share, but all of a small one.

    Of a million samples with a rare class of a hundred, a plain tenth would have ten of these left to fit
    that class by; this has all hundred.

    Args:
        labels: [N].
        n: how many rows, about.
        rng: draws them.
    """
    sizes = np.bincount(labels)
    wanted = part_sizes(sizes, n)
    # Sorted by class, and within a class in random order: the first ones of each are drawn.
    order = np.lexsort((rng.random(len(labels)), labels))
    return np.sort(order[place_in_class(sizes) < np.repeat(wanted, sizes)])


def place_in_class(sizes: np.ndarray) -> np.ndarray:
    """Return the place of each sample within its class, [N] from 0, of samples sorted by class.

    >>> place_in_class(np.array([3, 2]))
    array([0, 1, 2, 0, 1])
    """
    firsts = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) - np.repeat(firsts, sizes)


def part_sizes(sizes: np.ndarray, n: int) -> np.ndarray:
    """Return how many samples of each class a part of about n has, [K].

    Each class has the same share, and a small one all it has: up to 200, as long as all classes
    together take no more than half of the part so.

    >>> part_sizes(np.array([9000, 900, 90]), 1000)
    array([901, 166,  90])
    """
    share = min(1.0, n / max(int(sizes.sum()), 1))
    least = min(_WHOLE_CLASS, n // (2 * max(len(sizes), 1)))
    return np.minimum(sizes, np.maximum(np.ceil(share * sizes), least)).astype(np.int64)


def _count_labels(labels: Array, classes: int) -> np.ndarray:
    """Return how many labels each class has; 1 for one without any, whose shift is the largest.

    The labels are not checked yet: what is wrong with them, `check_samples` says in its turn. So whatever
    is no class is left out here, without a word.

    Args:
        labels: [N], if they are as they should be.
        classes: K.
    """
    values = to_numpy(labels)
    if values.ndim != 1 or values.dtype.kind not in "iubf" or not len(values):
        return np.ones(classes, np.int64)
    whole = values
    if values.dtype.kind == "f":
        whole = values[np.isfinite(values)].astype(np.int64)
    inside = whole[(whole >= 0) & (whole < classes)].astype(np.int64)
    return np.maximum(np.bincount(inside, minlength=classes), 1)


def _read(logits: Array, rows: np.ndarray | None, kind: Kind) -> Array:
    """Return rows of scores, [n, K], in float32 or better and finite.

    Args:
        logits: [N, K], wherever they are.
        rows: ascending; all if None.
        kind: `probabilities`, of which the logarithms are returned, or `logits`.

    Returns:
        A tensor where logits are one on a GPU, else an array in memory, without a copy if possible.
    """
    if are_on_gpu([logits]) and kind == "logits" and logits.is_floating_point():
        scores = logits.detach()
        if rows is not None:
            scores = scores[rows]
        return _finite_on_gpu(scores)
    if is_torch(logits):
        logits = to_numpy(logits)
    if rows is None:
        chunks = [chunk for _, chunk in read_chunks(logits, kind=kind)]
        # Chunks that are views of the array say that nothing had to be converted: take it whole.
        if isinstance(logits, np.ndarray) and all(np.may_share_memory(c, logits) for c in chunks):
            return np.asarray(logits)
        if len(chunks) > 1:
            return np.concatenate(chunks)
        return chunks[0]
    # Chunk by chunk, the rows that fall into it.
    parts = []
    for first, chunk in read_chunks(logits, kind=kind):
        begin, end = np.searchsorted(rows, [first, first + len(chunk)])
        parts.append(chunk[rows[begin:end] - first])
    return np.concatenate(parts)


def _finite_on_gpu(scores: Array) -> Array:
    """Return a tensor [n, K] in float32 or better, in which -inf, a masked score, is the lowest number.

    What `read_chunks` does on the host, without copying the scores there.

    Raises:
        LevelheadError: NaN or +inf, with the first row that has one.
    """
    if scores.element_size() <= 2:
        scores = scores.float()
    if bool(scores.isfinite().all()):
        check_logits(scores[:100])  # whether they are probabilities, a few rows tell
        return scores
    unusable: Array = ~(scores.isfinite() | scores.isneginf())
    if bool(unusable.any()):
        raise not_finite(int(unusable.any(1).int().argmax()))
    return scores.clamp(min=float(np.finfo(np.float32).min))
