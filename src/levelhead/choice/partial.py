"""A summary of a shard of samples, of fixed size, that adds up: the choice of gamma beyond one machine.

A `Partial` counts, for each class and each gamma of a grid, the samples that are right and those predicted; and, for
each cell between two gammas of the grid, the samples that turn wrong in it. Sums of partials are the partial of all
samples, in whatever order and grouping. At the gammas of the grid, every error is exact. Between them it is bounded: no
more samples can be right in a cell than are right at its start and turn right within it. So the cells in which the
lowest error can lie are known, and a second pass over the samples (`second_pass.py`) looks into these alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.array import Array, as_array
from ..core.choices import Kind
from ..core.counts import Counts, check_labels
from ..core.errors import LevelheadError
from ..core.logits import check_shape
from ..path.chunks import read_chunks
from ..path.engines import find_right
from ..path.envelope import Envelope, compute_envelope
from ..path.path import GammaPath
from .events import Events
from .frame import Frame
from .partial_bytes import pack, unpack

Chunks = Iterable[tuple[Array, Array]] | Callable[[], Iterable[tuple[Array, Array]]]  # (logits [n, K], labels [n])


@dataclass(frozen=True, eq=False)
class Partial:
    """What `tune` has to know of a shard of samples, in a size that does not depend on how many they are.

    For K classes and G cells it takes 24 K G bytes, 25 MB for 1,000 classes; two thirds of it without shares.

    Args:
        frame: the rule, the counts, the range and its grid.
        samples: how many there are, N.
        sizes: [K], the samples of each class.
        right: [K, G + 1], how many samples of each class are right at each gamma of the grid.
        left: [K, G], how many turn wrong in each cell.
        predicted: [K, G + 1], how many samples are predicted as each class, whatever their own; without shares, empty.
        events: what a second pass found; None before it.

    >>> logits, labels = np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), [0, 1, 1]
    >>> shards = [Partial.of(logits[rows], labels[rows], [400, 100]) for rows in (slice(2), slice(2, 3))]
    >>> shards[0] + shards[1]
    Partial(3 samples, 2 classes, rule rescale, gamma 0 to 2 in 1024 cells)
    >>> (shards[0] + shards[1]).error(0.5)
    0.333...
    """

    frame: Frame
    samples: int
    sizes: np.ndarray
    right: np.ndarray
    left: np.ndarray
    predicted: np.ndarray
    events: Events | None = None

    @staticmethod
    def empty(
        counts: Counts,
        *,
        rule: str = "rescale",
        range: tuple[float, float] | None = None,
        bins: int | None = None,
        norms: Array | None = None,
        names: Sequence[str] | None = None,
        kind: Kind = "logits",
        shares: bool = True,
    ) -> "Partial":
        """Return the partial of no samples, which changes nothing when it is added.

        Args:
            counts, rule, norms, names, kind: as in `tune`; the rule is `rescale`, `tau` or `shift`.
            range: of gamma, which must hold 0; by default (0, 2), or (0, 4) for the shift.
            bins: G, the cells that the range is cut into; by default 1024, or fewer where K is above 1,000.
            shares: whether to count predictions, which takes most of the time; `tune` does without.

        >>> Partial.empty([400, 100]).samples
        0
        """
        frame = Frame.of(counts, rule=rule, range=range, bins=bins, norms=norms, names=names, kind=kind, shares=shares)
        return empty_partial(frame)

    @staticmethod
    def of(
        logits: Array,
        labels: Array | None,
        counts: Counts,
        *,
        rule: str = "rescale",
        range: tuple[float, float] | None = None,
        bins: int | None = None,
        norms: Array | None = None,
        names: Sequence[str] | None = None,
        kind: Kind = "logits",
        shares: bool = True,
    ) -> "Partial":
        """Summarize a shard.

        Args:
            logits: [n, K], an array, a tensor or a memory-mapped file, read chunk by chunk.
            labels: [n], class indices; None if not known: then only predictions are counted.
            counts, rule, range, bins, norms, names, kind, shares: as in `Partial.empty`, the same for every shard.

        Returns:
            The partial of these samples.

        >>> Partial.of([[4.0, 2.0], [4.0, 3.0]], [0, 1], [400, 100]).sizes
        array([1, 1])
        """
        frame = Frame.of(counts, rule=rule, range=range, bins=bins, norms=norms, names=names, kind=kind, shares=shares)
        return empty_partial(frame).extended([(logits, labels)])

    def extended(self, chunks: Iterable[tuple[Array, Array | None]]) -> "Partial":
        """Return this partial with the samples of chunks (logits [n, K], labels [n] or None) added, one after another.

        No more than one chunk is held in memory.

        >>> Partial.empty([400, 100]).extended([([[4.0, 2.0]], [0]), ([[4.0, 3.0]], [1])]).samples
        2
        """
        tally = Tally(self.frame)
        for logits, labels in chunks:
            tally.add(logits, labels)
        return self + tally.partial()

    def __add__(self, other: "Partial") -> "Partial":
        if not isinstance(other, Partial):
            return NotImplemented
        if not self.frame.same_as(other.frame):
            raise LevelheadError("expected partials over the same range and bins, of the same rule, counts and kind")
        added = {name: getattr(self, name) + getattr(other, name) for name in ("samples", *_TABLES)}
        return Partial(self.frame, **added)

    def __radd__(self, other: Any) -> "Partial":
        return self if isinstance(other, int) and other == 0 else NotImplemented  # so that sum() begins

    def error(self, gamma: float) -> float:
        """Return the share of samples that are wrong at a gamma of the grid, or at the nearest one.

        >>> Partial.of([[4.0, 2.0], [4.0, 3.0]], [0, 1], [400, 100]).error(0.0)
        0.5
        """
        return float(1 - self.right[:, self.nearest(gamma)].sum() / max(1, self.sizes.sum()))

    def class_accuracy(self, gamma: float) -> np.ndarray:
        """Return the accuracy of every class, [K], NaN without a sample, at the gamma of the grid that is nearest.

        >>> Partial.of([[4.0, 2.0], [4.0, 3.0]], [0, 1], [400, 100]).class_accuracy(0.0)
        array([1., 0.])
        """
        with np.errstate(invalid="ignore"):
            return self.right[:, self.nearest(gamma)] / self.sizes

    def shares(self, gamma: float) -> np.ndarray:
        """Return the share of each class among the predictions, [K], at the gamma of the grid that is nearest.

        >>> Partial.of([[4.0, 2.0], [4.0, 3.0]], [0, 1], [400, 100]).shares(0.3)
        array([0.5, 0.5])
        """
        if not self.frame.shares:
            raise LevelheadError("this partial was made without shares; make it with them", parameter="shares")
        return self.predicted[:, self.nearest(gamma)] / max(1, self.samples)

    def nearest(self, gamma: float) -> int:
        """Return which gamma of the grid is nearest to one in the range.

        >>> Partial.empty([400, 100], bins=4).nearest(0.9)
        2
        """
        low, high = self.frame.range
        if not low <= gamma <= high:
            raise LevelheadError(f"expected a value within [{low:g}, {high:g}], got {gamma:g}", parameter="gamma")
        return int(np.abs(self.frame.edges - gamma).argmin())

    def with_events(self, events: Events) -> "Partial":
        """Return this partial with what a second pass found, from which `tune` chooses exactly."""
        return replace(self, events=events)

    @property
    def entered(self) -> np.ndarray:
        """How many samples of each class turn right in each cell, [K, G]."""
        return np.diff(self.right, axis=1) + self.left

    @property
    def nbytes(self) -> int:
        """The bytes that the tables take in memory."""
        return sum(getattr(self, name).nbytes for name in _TABLES)

    def to_bytes(self) -> bytes:
        """Return the partial as bytes, compressed, for `from_bytes`; without what a second pass found.

        >>> len(Partial.empty([400, 100]).to_bytes()) < 1000
        True
        """
        return pack(self.frame, self.samples, [getattr(self, name) for name in _TABLES])

    @staticmethod
    def from_bytes(data: bytes) -> "Partial":
        """Return the partial that `to_bytes` wrote. Bytes that are damaged, cut or of a later version are refused.

        >>> Partial.from_bytes(Partial.of([[4.0, 2.0]], [0], [400, 100]).to_bytes()).samples
        1
        """
        frame, samples, tables = unpack(data, _shapes)
        found = Partial(frame, samples, tables["sizes"], tables["right"], tables["left"], tables["predicted"])
        _check_consistent(found)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return (_revive, (self.to_bytes(), self.events))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Partial)
            and self.frame.same_as(other.frame)
            and self.samples == other.samples
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _TABLES)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        (low, high), frame = self.frame.range, self.frame
        return (
            f"Partial({self.samples} samples, {frame.classes} classes, rule {frame.rule.name}, gamma {low:g} to "
            f"{high:g} in {frame.bins} cells{'' if self.events is None else ', exact'})"
        )


_TABLES = ("sizes", "right", "left", "predicted")


class Tally:
    """A partial in the making: chunks are counted in place, so that small ones cost little.

    >>> tally = Tally(Frame.of([400, 100]))
    >>> tally.add([[4.0, 2.0]], [0])
    >>> tally.partial().samples
    1
    """

    def __init__(self, frame: Frame) -> None:
        self._frame, self._samples, self._changes = frame, 0, empty_partial(frame)

    def add(self, logits: Array, labels: Array | None) -> None:
        """Count logits [n, K] with labels [n] or None."""
        frame, changes, logits = self._frame, self._changes, as_array(logits)
        check_shape(logits.shape)
        if logits.shape[1] != frame.classes:
            raise LevelheadError(
                f"expected [n, {frame.classes}], one column per count, got shape {list(logits.shape)}",
                parameter="logits",
            )
        if labels is None and not frame.shares:
            raise LevelheadError("expected labels [n], since predictions are not counted", parameter="labels")
        if not len(logits):
            return
        self._samples += len(logits)
        if labels is not None:
            path = shard_path(frame, logits, labels)
            changes.sizes[:] += np.bincount(path.labels, minlength=frame.classes)
            _count_right(path, frame, changes.right, changes.left)
        for _, part in read_chunks(logits, kind=frame.kind) if frame.shares else ():
            _count_predicted(compute_envelope(part, frame.rule, frame.range), frame, changes.predicted)

    def partial(self) -> Partial:
        """Return the partial of what was counted."""
        changes = self._changes
        return replace(
            changes,
            samples=self._samples,
            sizes=changes.sizes.copy(),
            right=np.cumsum(changes.right, axis=1),
            left=changes.left.copy(),
            predicted=np.cumsum(changes.predicted, axis=1),
        )


def shard_path(frame: Frame, logits: Array, labels: Array) -> GammaPath:
    """Return the exact path of a shard under a frame's rule."""
    found = check_labels(labels, frame.classes)
    if len(found) != len(logits):
        raise LevelheadError(f"expected one label per row of logits, got {len(found)} labels and {len(logits)} rows")
    pieces = find_right(logits, found, frame.rule, frame.range, kind=frame.kind)
    return GammaPath(*pieces, labels=found, counts=frame.counts, rule=frame.rule, range=frame.range, kind=frame.kind)


def _shapes(classes: int, bins: int, shares: bool) -> dict[str, tuple[int, ...]]:
    return {
        "sizes": (classes,),
        "right": (classes, bins + 1),
        "left": (classes, bins),
        "predicted": (classes if shares else 0, bins + 1),
    }


def empty_partial(frame: Frame) -> Partial:
    """Return the partial of no samples."""
    shapes = _shapes(frame.classes, frame.bins, frame.shares)
    sizes, right, left, predicted = (np.zeros(shapes[name], np.int64) for name in _TABLES)
    return Partial(frame, 0, sizes, right, left, predicted)


def _revive(data: bytes, events: Events | None) -> Partial:
    return replace(Partial.from_bytes(data), events=events)


def _check_consistent(found: Partial) -> None:
    """Check that the numbers of a partial can be those of samples."""
    tables = [getattr(found, name) for name in _TABLES]
    possible = (
        found.samples >= 0
        and all(table.min(initial=0) >= 0 for table in tables)
        and found.sizes.sum() <= found.samples
        and (found.right <= found.sizes[:, None]).all()
        and (found.entered >= 0).all()
        and (not found.frame.shares or (found.predicted.sum(axis=0) == found.samples).all())
    )
    if not possible:
        raise LevelheadError("not a partial: its numbers contradict each other")


def _count_right(path: GammaPath, frame: Frame, right: np.ndarray, left: np.ndarray) -> None:
    """Add where each sample is right: at the start, and by how many that changes in each cell (to be accumulated)."""
    start, at, sign, sample = path.events
    np.add.at(right[:, 0], path.labels[start], 1)
    label, cell = path.labels[sample], frame.cells_of(at)
    np.add.at(right, (label, cell + 1), sign.astype(np.int64))
    leaves = sign < 0
    np.add.at(left, (label[leaves], cell[leaves]), 1)


def _count_predicted(changes: Envelope, frame: Frame, predicted: np.ndarray) -> None:
    np.add.at(predicted[:, 0], changes.start, 1)
    cell = frame.cells_of(changes.gamma) + 1
    np.add.at(predicted, (changes.new_class, cell), 1)
    np.add.at(predicted, (changes.old_class, cell), -1)
