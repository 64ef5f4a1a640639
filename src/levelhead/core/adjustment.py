"""`Adjustment`: what is done to each class, ``score_k = scale_k logit_k + offset_k``, on scores and on a head.

Every rule ends here. On scores (`scores`, `predict`, `narrow_scores`) the sum is done in float64. On a head
(`head`) it is the same sum moved into the last layer: a scale multiplies a weight vector and its bias, an
offset is added to the bias. So what was measured on logits holds for the adjusted model. Nobody else multiplies
and adds: `Tuned.apply`, `heads.adjust` and `heads.apply` call this.

`Fits` is what a rule returns: one adjustment for each fold, made without it, and the one on all samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..support.arrays import Array, is_torch, like, narrow, scale_rows, to_numpy, widen
from ..support.errors import LevelheadError, check_choice
from ..support.types import BiasPolicy
from .probabilities import smooth_votes

if TYPE_CHECKING:
    from .head import Head

_BLOCK = 1 << 15  # numbers that fit in the cache


@dataclass(frozen=True, eq=False)
class Adjustment:
    """What is done to each class: ``score_k = scale_k logit_k + offset_k``.

    A pure value: it knows neither the rule that found it nor the samples. Scales are positive, as they
    are of every rule: a negative one would turn the order of a class's own scores around.

    Args:
        scale: [K] in float64; all 1 for rules that only add.
        offset: [K] in float64; all 0 for rules that only multiply.
        smoothing: what is added to probabilities before their logarithm; 0 for logits.
        bias: whether the bias of a head is scaled with its weight vector, or kept.

    >>> adjustment = Adjustment(scale=np.array([1.0, 2.0]), offset=np.array([0.5, 0.0]))
    >>> adjustment.scores(np.array([[3.0, 2.0]])), adjustment.predict(np.array([[3.0, 2.0]]))
    (array([[3.5, 4. ]]), array([1]))
    """

    scale: np.ndarray
    offset: np.ndarray
    smoothing: float = 0.0
    bias: BiasPolicy = "scale"

    @staticmethod
    def scaling(scale: Sequence[float] | np.ndarray) -> Adjustment:
        """Return what multiplies each class by a number.

        Args:
            scale: [K], positive numbers.

        >>> Adjustment.scaling([1.0, 2.0]).scores(np.array([3.0, 2.0]))
        array([3., 4.])
        """
        scale = np.asarray(scale, np.float64)
        return Adjustment(scale, np.zeros(len(scale)))

    @staticmethod
    def adding(offset: Sequence[float] | np.ndarray) -> Adjustment:
        """Return what adds a number to each class.

        Args:
            offset: [K].

        >>> Adjustment.adding([0.0, 1.5]).scores(np.array([3.0, 2.0]))
        array([3. , 3.5])
        """
        offset = np.asarray(offset, np.float64)
        return Adjustment(np.ones(len(offset)), offset)

    @property
    def classes(self) -> int:
        """K."""
        return len(self.scale)

    @property
    def multiplies(self) -> bool:
        """Whether any class is multiplied by another number than 1."""
        return bool((self.scale != 1).any())

    @property
    def adds(self) -> bool:
        """Whether anything is added to any class."""
        return bool(self.offset.any())

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return self.multiplies or self.adds

    def scores(self, logits: np.ndarray, reach: np.ndarray | None = None) -> np.ndarray:
        """Return the scores [..., K] of logits or of logarithms of probabilities, in float64.

        With `reach` [N], row i gets ``reach_i offset_k`` instead of the whole offset, as it does in
        a head without a bias (`constant_direction.py`).

        Args:
            logits: [..., K] in any floating type; with a smoothing, logarithms of probabilities.
            reach: [N], for logits [N, K]; None for the whole offset.
        """
        wide, _ = smooth_votes(logits.astype(np.float64), self.smoothing)
        added = self.offset
        if reach is not None:
            added = reach[:, None] * self.offset
        with np.errstate(over="ignore"):  # of masked scores, which stay the lowest
            return wide * self.scale + added

    def predict(self, logits: Array, reach: np.ndarray | None = None) -> np.ndarray:
        """Return the class of the largest score of each row, [N]; of equals, the first.

        Args:
            logits: [N, K], an array, or a tensor on any device.
            reach: [N], how much of its offset each row gets, as in `scores`; all of it if None.
        """
        # On a GPU nothing but the classes is copied to the host.
        if is_torch(logits) and logits.is_cuda and reach is None:
            return to_numpy(self.narrow_scores(logits).argmax(1))
        logits = to_numpy(logits)
        predicted = np.empty(len(logits), np.int64)
        for rows in _blocks(logits):
            reach_of_rows = None if reach is None else reach[rows]
            predicted[rows] = self.scores(logits[rows], reach_of_rows).argmax(axis=1)
        return predicted

    @np.errstate(over="ignore")  # of masked scores, which stay the lowest
    def narrow_scores(self, logits: Array) -> Array:
        """Return the scores in the precision of the logits, float32 at least, within its range.

        The sum is done in float64 and rounded once. What does not fit into float32 becomes its largest
        or lowest number, and not an infinity, which no later sum could use.

        Args:
            logits: [..., K], an array or a tensor; with a smoothing, logarithms of probabilities.

        Returns:
            The same shape, of the same library and on the same device.
        """
        narrow_type = np.float32
        if logits.itemsize > 4:
            narrow_type = np.float64
        limits = np.finfo(narrow_type)
        if is_torch(logits):
            smoothed, _ = smooth_votes(logits.double(), self.smoothing)
            wide = smoothed * like(self.scale, smoothed) + like(self.offset, smoothed)
            return narrow(wide.clamp(float(limits.min), float(limits.max)), widen(logits))
        adjusted = np.empty(logits.shape, narrow_type)
        # Of a single row [K], both are views [1, K].
        source = np.atleast_2d(logits)
        goes_to = np.atleast_2d(adjusted)
        for rows in _blocks(source):
            scores = self.scores(source[rows])
            np.clip(scores, limits.min, limits.max, out=goes_to[rows], casting="same_kind")
        return adjusted

    def for_rows(self, rows: int) -> Adjustment:
        """Return it for a head of so many rows: itself, unless two classes share one logit.

        Of two classes that share one logit z, scores are (0, z): a head [1, d] takes what is added
        to the second class less what is added to the first.

        Raises:
            LevelheadError: a scale for a single logit. Its decision is its sign, which no positive
                factor moves.
        """
        if rows != 1 or self.classes != 2:
            return self
        if self.multiplies:
            raise LevelheadError(
                "a head with a single logit cannot be scaled: that never moves its sign; "
                "use the rule offsets or shift"
            )
        return replace(self, scale=np.ones(1), offset=self.offset[1:] - self.offset[:1])

    def head(self, head: Head) -> Head:
        """Return a head whose logits are the scores of this one's; it gets a bias if one is needed.

        ``w_k <- scale_k w_k`` and ``b_k <- scale_k b_k + offset_k``, or ``b_k + offset_k`` where `bias` is
        `keep`. Type and device stay.

        Raises:
            LevelheadError: numbers that are not finite, before or after; a scale of 0.

        >>> from levelhead import Head
        >>> Adjustment.adding([0.0, 1.5]).head(Head(np.eye(2))).bias
        array([0. , 1.5])
        """
        # Only what changes is written: a rule that adds leaves every weight as it was, to the bit.
        by = self.for_rows(head.classes)
        if by.multiplies:
            head = scale_head(head, by.scale, bias=self.bias)
        if not by.adds:
            return head
        head = head.checked()
        # Zeros of the type, and on the device, of the weight: the bias that it does not have.
        old = head.weight[:, 0] * 0
        if head.bias is not None:
            old = head.bias
        # The sum is done in float32 or better, then rounded to what the bias is kept in.
        wide = widen(old)
        offset = scale_rows(wide * 0 + 1, by.offset)
        shifted = replace(head, bias=narrow(offset + wide, old))
        return shifted.checked("the shifted head", advice="; use a strength nearer to 0")

    def relative_to(self, index: int) -> Adjustment:
        """Return the adjustment that leaves one class as it is, and predicts the same.

        ``(score_k - offset_i) / scale_i``: what is done to all scores of a sample alike changes no prediction.

        Args:
            index: i, the class whose scale becomes 1 and whose offset becomes 0.

        >>> adjustment = Adjustment(scale=np.array([2.0, 4.0]), offset=np.array([0.5, 1.5]))
        >>> relative = adjustment.relative_to(0)
        >>> relative.scale, relative.offset
        (array([1., 2.]), array([0. , 0.5]))
        """
        scale = self.scale / self.scale[index]
        offset = (self.offset - self.offset[index]) / self.scale[index]
        return replace(self, scale=scale, offset=offset)

    def inverse(self) -> Adjustment:
        """Return what takes the scores back: ``logit_k = score_k / scale_k - offset_k / scale_k``.

        To rounding: a file is undone by the bytes that were kept of it, not by this.

        >>> Adjustment(np.array([2.0]), np.array([1.0])).inverse().scores(np.array([[7.0]]))
        array([[3.]])
        """
        return replace(self, scale=1 / self.scale, offset=-self.offset / self.scale + 0.0)


class Fits(NamedTuple):
    """What a rule fitted: without each fold, which is what it is judged by, and on all samples.

    Args:
        without: an adjustment for each fold, fitted on the other folds, in the order of
            `Samples.folds`.
        whole: the one that was fitted on all samples, which is applied.
        strength: of `whole`, for a rule that has one; else None.

    >>> whole = Adjustment.adding([0.0, 1.5])
    >>> Fits([Adjustment.adding([0.0, 1.4]), Adjustment.adding([0.0, 1.6])], whole).whole.offset
    array([0. , 1.5])
    """

    without: list[Adjustment]
    whole: Adjustment
    strength: float | None = None


def scale_head(head: Head, by: np.ndarray, *, bias: BiasPolicy = "scale") -> Head:
    """Multiply each row of a head by a number.

    Args:
        head: weight [K, d] and, where there is one, bias [K].
        by: [K], the factors.
        bias: `scale`, as the weight of a constant feature, so that logits are multiplied, too; or
            `keep`.

    Raises:
        LevelheadError: a factor of 0, or a product that does not fit into the head's type, as of
            float16, whose largest number is 65504.

    >>> from levelhead import Head
    >>> scale_head(Head(np.eye(2), bias=np.ones(2)), np.array([1.0, 2.0])).bias
    array([1., 2.])
    """
    head.checked()
    # A power of a strength far from 0 may underflow.
    vanished = np.flatnonzero(np.asarray(by) == 0)
    if len(vanished):
        name = head.name(int(vanished[0]))
        raise LevelheadError(
            f"the factor of {name} would be 0, which removes the class; use a strength nearer to 0"
        )
    check_choice("bias", bias, ("scale", "keep"))
    new_bias = head.bias
    if head.bias is not None and bias == "scale":
        new_bias = scale_rows(head.bias, by)
    scaled_head = replace(head, weight=scale_rows(head.weight, by), bias=new_bias)
    return scaled_head.checked(
        f"the scaled head (in {head.weight.dtype})", advice="; use a strength nearer to 0"
    )


def _blocks(values: np.ndarray) -> Iterator[slice]:
    """Yield the rows of values [N, ..., K], block by block.

    What is computed of a block stays in the cache: fresh memory costs more than what is done in it.
    """
    step = max(1, _BLOCK // max(1, values[:1].size))
    for first in range(0, len(values), step):
        yield slice(first, first + step)
