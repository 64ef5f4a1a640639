"""The exact path over gamma: every gamma at which any sample turns right or wrong.

The whole curve costs less than the usual grid. Each sample has intervals of gammas on which it is right
(`intervals.py`, or `top_k.py` where it may have several). Their sorted ends give the curve, breakpoint by breakpoint,
and with it curves per class, any weights, bootstrap replicates and merging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.adjust import RuleName
from ..core.array import Array, as_array
from ..core.counts import Counts, check_labels, groups, resolve
from ..core.curve import METRICS, Curve, Metric, Point, accumulate, ascending
from ..core.errors import LevelheadError, check_choice
from ..core.measure import Kind, check_shape
from ..show.progress import RowProgress
from .bootstrap import check_weights, draw_resamples
from .chunks import read_chunks
from .engines import Engine, find_right
from .envelope import Envelope, compute_envelope
from .rule import Rule, check_range, make_rule, target_prior

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class GammaPath:
    """Where each sample is right over gamma, and every curve that follows from it. `gamma_path` computes it.

    A sample is right at gamma if and only if ``lo <= gamma <= hi`` for one of its pieces, to the last bit. An open end
    (a tie goes to the first class) is stored as the next float. For top-1 without a kept bias, piece i belongs to
    sample i, and a sample that is never right has lo > hi. Otherwise a sample has any number of pieces.

    A pickled path leaves its logits behind. Its curves work after unpickling, its predictions do not.

    Args:
        sample, lo, hi: [M], the pieces.
        labels: [N].
        counts: [K], training samples of each class.
        rule: what gamma does.
        range: of gamma.
        k: right means among the first k.
        weights: [N], of the samples, or None.
        target: [K], what each class weighs in `balanced_error`; uniform over the classes present if None.
        logits: what the path was computed from, kept by reference for `predictions`; () where they are not known.
        kind: of the logits.

    >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
    GammaPath(3 samples, 2 classes, rule rescale, gamma 0 to 2)
    """

    sample: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    rule: Rule
    range: tuple[float, float]
    k: int = 1
    weights: np.ndarray | None = None
    target: np.ndarray | None = None
    logits: tuple[Array, ...] = ()
    kind: Kind = "logits"

    def curve(self, coefficients: np.ndarray) -> Curve:
        """Return ``sum_i coefficients[i] [sample i is right]`` over gamma. Every metric here is such a sum.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.curve(np.ones(3)).values  # how many samples are right
        array([1., 2., 1., 2.])
        """
        start, at, sign, sample = self.events
        return accumulate(float(coefficients[start].sum()), at, sign * coefficients[sample], self.range)

    @cached_property
    def error_curve(self) -> Curve:
        """The share of samples that are wrong, over gamma."""
        return self.curve(self._weights / self._weights.sum()).complement()

    @cached_property
    def balanced_error_curve(self) -> Curve:
        """The mean over the classes of each class's own error, over gamma."""
        return self.curve(self._balanced_coefficients(self._weights)).complement()

    @property
    def gammas(self) -> np.ndarray:
        """Every gamma at which a sample turns right or wrong, ascending, [B]. The first is the start of the range."""
        return self.error_curve.gammas

    @property
    def error(self) -> np.ndarray:
        """The share of samples that are wrong from gammas[i] on, [B]."""
        return self.error_curve.values

    @property
    def balanced_error(self) -> np.ndarray:
        """The mean over the classes (weighted by `target`) of each class's own error from gammas[i] on, [B]."""
        return self.balanced_error_curve.values

    def class_curve(self, i: int) -> Curve:
        """Return the accuracy of class i over gamma, on the breakpoints of that class; NaN if it has no sample.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.class_curve(1).values
        array([0. , 0.5, 1. ])
        """
        if not 0 <= i < len(self.counts):
            raise LevelheadError(f"expected a class from 0 to {len(self.counts) - 1}, got {i}")
        if not self._class_totals[i]:
            return Curve(np.array(self.range[:1]), np.array([np.nan]), self.range[1])
        start, at, sign, sample = self.events
        own, weight = self.labels[sample] == i, self._weights / self._class_totals[i]
        base = weight[start][self.labels[start] == i].sum()
        return accumulate(float(base), at[own], (sign * weight[sample])[own], self.range)

    def class_accuracy(self, gammas: float | Sequence[float] | np.ndarray | None = None) -> np.ndarray:
        """Return the accuracy of every class at given gammas, [..., K], or at all B breakpoints, [B, K].

        All breakpoints take 8 B K bytes. A class without a sample is NaN.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.class_accuracy(0.3)
        array([1. , 0.5])
        """
        if gammas is None:
            return np.stack([self.class_curve(i).at(self.gammas) for i in range(len(self.counts))], axis=1)
        wanted = np.atleast_1d(np.asarray(gammas, np.float64))
        found = np.stack([np.bincount(self.labels, self.right(g) * self._weights, len(self.counts)) for g in wanted])
        with np.errstate(invalid="ignore", divide="ignore"):
            found = found / self._class_totals
        return found[0] if np.ndim(gammas) == 0 else found

    @property
    def groups(self) -> dict[str, Curve]:
        """The mean class accuracy of the many-, medium- and few-shot classes (see `counts.groups`) over gamma."""
        return {name: self.curve(self._class_coefficients(members, self._weights))
                for name, members in self._groups.items()}

    def right(self, gamma: float) -> np.ndarray:
        """Return whether each sample is right at gamma, [N] bool.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.right(0.3)
        array([ True,  True, False])
        """
        if not self.range[0] <= gamma <= self.range[1]:
            raise LevelheadError(f"expected a value within [{self.range[0]:g}, {self.range[1]:g}], got {gamma:g}; "
                                 "compute the path over a wider range", parameter="gamma")
        found = np.zeros(len(self.labels), bool)
        found[self.sample[(self.lo <= gamma) & (gamma <= self.hi)]] = True
        return found

    def at(self, gamma: float) -> Point:
        """Return everything at one gamma. No sample changes within the plateau of the point.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.at(0.3).balanced_error
        0.25
        """
        gamma = float(gamma)
        accuracy = self.class_accuracy(gamma)
        i = int(np.searchsorted(self.gammas, gamma, side="right"))
        return Point(
            gamma=gamma,
            error=float(self.error_curve.at(gamma)),
            balanced_error=float(self.balanced_error_curve.at(gamma)),
            class_accuracy=accuracy,
            groups={name: float(np.nanmean(accuracy[members])) for name, members in self._groups.items()},
            plateau=(float(self.gammas[i - 1]), float(np.r_[self.gammas, self.range[1]][i])),
        )

    def best(self, metric: Metric = "balanced_error") -> Point:
        """Return the middle of the widest plateau on which the metric is lowest.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.best("error").gamma
        1.5
        """
        check_choice("metric", metric, METRICS)
        a, b = getattr(self, f"{metric}_curve").plateau()
        middle = a + (b - a) / 2
        return replace(self.at(a if middle == b else middle), plateau=(a, b))  # b is beyond a plateau of one float

    def predictions(self, gamma: float) -> np.ndarray:
        """Return the class predicted at gamma, [N], computed from the logits. Gamma may lie outside the range.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.predictions(0.3)
        array([0, 1, 0])
        """
        if not np.isfinite(gamma):
            raise LevelheadError(f"expected a finite number, got {gamma}", parameter="gamma")
        return np.concatenate([self.rule.scores(chunk, gamma).argmax(axis=1)
                               for part in self.whole_logits() for _, chunk in read_chunks(part, kind=self.kind)])

    def confusion(self, gamma: float) -> np.ndarray:
        """Return the confusion matrix at gamma, [K, K]: row is the true class, column the predicted one.

        Entries are counts, or sums of weights.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.confusion(0.3)
        array([[1, 0], [1, 1]])
        """
        size = len(self.counts)
        table = np.bincount(self.labels * size + self.predictions(gamma), self.weights, size * size)
        return table.reshape(size, size)

    @cached_property
    def envelope(self) -> Envelope:
        """Every change of every prediction over the range."""
        parts = [compute_envelope(part, self.rule, self.range, kind=self.kind) for part in self.whole_logits()]
        return parts[0] if len(parts) == 1 else parts[0].joined(parts[1:])

    def shares(self, gamma: float) -> np.ndarray:
        """Return the predicted share of each class at gamma, [K]: the mean over y of ``P(predicted = j | true = y)``.

        True classes weigh what they weigh in `balanced_error`.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.shares(0.3)
        array([0.75, 0.25])
        """
        return np.bincount(self.predictions(gamma), self._balanced_coefficients(self._weights), len(self.counts))

    def share_mismatch(self, target: Array | None = None) -> Curve:
        """Return the total variation between those shares and a target prior (uniform if not given), over gamma.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.share_mismatch().at(0.3)
        0.25
        """
        prior = target_prior(target, len(self.counts))
        return self.envelope.mismatch(prior, self._balanced_coefficients(self._weights))

    def bootstrap(
        self, n: int, rng: np.random.Generator | int, *, metric: Metric = "balanced_error", stratified: bool = True,
        gammas: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return n curves [n, G] of the metric, each of one resample, on the breakpoints or on given gammas.

        Args:
            n: how many.
            rng: a generator, or a seed.
            metric: `error` or `balanced_error`.
            stratified: whether to resample within each class, so that none is lost, or all samples together.
            gammas: where, ascending; at all B breakpoints if not given, which takes 8 n B bytes.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.bootstrap(100, 0, gammas=[0.3, 1.5]).mean(axis=0).round(2)
        array([0.27, 0.5 ])
        """
        check_choice("metric", metric, METRICS)
        where = self.gammas if gammas is None else np.asarray(gammas, np.float64)
        if where.ndim != 1 or not (np.diff(where, prepend=self.range[0], append=self.range[1]) >= 0).all():
            raise LevelheadError(f"expected numbers [G], ascending within [{self.range[0]:g}, {self.range[1]:g}]",
                                 parameter="gammas")
        start, at, sign, sample = self.events
        bins = np.searchsorted(where, at)  # the first gamma at which the event has happened
        curves = np.empty((n, len(where)))
        drawn = draw_resamples(self.labels, n, np.random.default_rng(rng), stratified=stratified)
        for row, times in zip(curves, drawn, strict=True):
            w = self._weights * times
            c = w / w.sum() if metric == "error" else self._balanced_coefficients(w)
            steps = np.bincount(bins, sign * c[sample], len(where) + 1)[: len(where)]
            row[:] = 1 - (c[start].sum() + np.cumsum(steps))
        return curves

    def merge(self, other: GammaPath) -> GammaPath:
        """Return the path of both sets of samples, these first.

        >>> parts = [gamma_path([row], [1], [400, 100]) for row in ([4.0, 3.0], [4.0, 1.0])]
        >>> parts[0].merge(parts[1]).error
        array([1. , 0.5, 0. ])
        """
        self._check_mergeable(other)
        n = len(self.labels)
        weights = None if self.weights is None and other.weights is None else np.r_[self._weights, other._weights]
        whole = bool(self.logits and other.logits)
        return replace(
            self, sample=np.r_[self.sample, other.sample + n], lo=np.r_[self.lo, other.lo],
            hi=np.r_[self.hi, other.hi], labels=np.r_[self.labels, other.labels], weights=weights,
            logits=self.logits + other.logits if whole else (),
        )

    def merge_classes(self, other: GammaPath) -> GammaPath:
        """Return the path of the same samples against the classes of both shards: ``max lo``, ``min hi``.

        >>> logits, true, counts = np.array([[4.0, 3.0, 2.0]]), [3.0], [400, 100, 50]
        >>> shards = [gamma_path(logits[:, c], [1], counts, shard=(c, true)) for c in ([0, 1], [2])]
        >>> shards[0].merge_classes(shards[1]).lo.round(3)
        array([0.208])
        """
        self._check_mergeable(other)
        if self.k > 1 or self.rule.bias is not None or not np.array_equal(self.labels, other.labels):
            raise LevelheadError("expected two shards of the same samples, for top-1 without a kept bias")
        lo, hi = np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi)
        never = lo > hi
        return replace(self, lo=np.where(never, np.inf, lo), hi=np.where(never, -np.inf, hi), logits=())

    def plot(self, ax: Axes | None = None, *, gamma: float | None = None) -> Axes:
        """Draw error and balanced error over gamma on the Axes given, or on new ones (extra `plot`), and return them.

        A gamma that is given is marked.
        """
        from ..show.plot import draw_errors

        title = f"{len(self.labels)} samples, {len(self.counts)} classes"
        return draw_errors(self.error_curve, self.balanced_error_curve, ax, gamma=gamma, title=title)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields but the logits, and nothing that was computed from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"logits": ()}

    __copy__ = __deepcopy__ = lambda self, *_: replace(self)  # a copy, unlike a pickle, keeps the logits

    def __repr__(self) -> str:
        return (f"GammaPath({len(self.labels)} samples, {len(self.counts)} classes, rule {self.rule.name}, gamma "
                f"{self.range[0]:g} to {self.range[1]:g})")

    def _repr_html_(self) -> str:
        from ..show.curve_text import sparkline
        from ..show.html import html

        begin, best = self.at(self.range[0]), self.best()
        rows = {
            "samples": f"{len(self.labels)} of {len(self.counts)} classes",
            "gamma": f"{self.range[0]:g} to {self.range[1]:g}, rule {self.rule.name}, {len(self.gammas)} breakpoints",
            "balanced error": f"{begin.balanced_error:.2%} at {begin.gamma:g}; lowest, {best.balanced_error:.2%}, at "
                              f"{best.gamma:.3f}",
            "error": f"{begin.error:.2%} at {begin.gamma:g}; {best.error:.2%} at {best.gamma:.3f}",
        }
        return html("GammaPath", rows, picture=sparkline(self.balanced_error_curve, best.gamma),
                    notes=["the lowest error is optimistic; levelhead.tune says what to expect on new samples"])

    @cached_property
    def events(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The samples right at the start; then gamma, sign and sample of every change within the range, by gamma."""
        (begin, end), some = self.range, self.lo <= self.hi
        enters, leaves = np.flatnonzero(some & (self.lo > begin)), np.flatnonzero(some & (self.hi < end))
        at = np.concatenate([self.lo[enters], np.nextafter(self.hi[leaves], np.inf)])
        order = ascending(at)
        sign = np.repeat([1.0, -1.0], [len(enters), len(leaves)])
        sample = self.sample[np.concatenate([enters, leaves])]
        return self.sample[self.lo <= np.minimum(self.hi, begin)], at[order], sign[order], sample[order]

    @cached_property
    def _weights(self) -> np.ndarray:
        return np.ones(len(self.labels)) if self.weights is None else self.weights

    @cached_property
    def _class_totals(self) -> np.ndarray:
        return np.bincount(self.labels, self._weights, len(self.counts))

    @property
    def _groups(self) -> dict[str, np.ndarray]:
        present = {name: members[self._class_totals[members] > 0] for name, members in groups(self.counts).items()}
        return {name: members for name, members in present.items() if len(members)}

    def _balanced_coefficients(self, weights: np.ndarray) -> np.ndarray:
        return self._class_coefficients(np.arange(len(self.counts)), weights, self.target)

    def _class_coefficients(
        self, members: np.ndarray, weights: np.ndarray, target: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the coefficients of a mean of class accuracies, over those classes that are present."""
        totals = np.bincount(self.labels, weights, len(self.counts))
        share = np.zeros(len(self.counts))
        share[members] = 1 if target is None else target[members]
        share[totals == 0] = 0
        each = np.divide(share / share.sum(), totals, out=np.zeros_like(share), where=totals > 0)
        return weights * each[self.labels]

    def whole_logits(self) -> tuple[Array, ...]:
        """Return the logits, in parts [n, K]."""
        if not self.logits:
            raise LevelheadError("this path has no logits: they are not pickled, nor kept when class shards or folds "
                                 "are merged; compute the path again")
        return self.logits

    def _check_mergeable(self, other: GammaPath) -> None:
        def facts(path: GammaPath) -> list[Any]:
            return [path.range, path.k, path.kind, path.rule.name, path.rule.ratios, path.rule.bias, path.target]

        if not all(map(np.array_equal, facts(self), facts(other))):
            raise LevelheadError("expected paths over the same range, k, kind, rule, counts, bias and target")


def gamma_path(
    logits: Array, labels: Array, counts: Counts, *, range: tuple[float, float] = (0.0, 2.0),
    rule: RuleName = "rescale", k: int = 1, bias: Array | None = None, weights: Array | None = None,
    target: Array | None = None, norms: Array | None = None, names: Sequence[str] | None = None, kind: Kind = "logits",
    shard: tuple[Array, Array] | None = None, engine: Engine = "auto", progress: RowProgress | None = None,
) -> GammaPath:
    """Compute the exact path over gamma.

    Args:
        logits: [N, K]: an array, a tensor on any device, or a memory-mapped file larger than memory.
        labels: [N], class indices.
        counts: training samples of each class.
        range: of gamma.
        rule: `rescale` (``l_k r_k^gamma``, r_k = n_max / n_k), `tau` (``l_k / ||w_k||^gamma``, with `norms`), or
            `shift` (``l_k + gamma log r_k``).
        k: right means among the first k.
        bias: [K], a bias that was added to the logits and is kept while the weights are scaled:
            ``(l_k - b_k) r_k^gamma + b_k``.
        weights: [N], of the samples.
        target: [K] or {class: share}, prior of the classes where the model will be used, which weighs them in
            `balanced_error`.
        norms: [K], weight norms of the head, for `tau`.
        names: class names, for counts given by name.
        kind: `probabilities` only with the rule shift, which works on their logarithms.
        shard: (classes [k], true [N]), if the columns of logits are only these classes: their indices, and the
            true-class logits. Join the paths of all shards with `merge_classes`.
        engine: `numpy`, `numba` (extra `fast`), `torch` (on the tensor's device) or `auto`. All give the same result.
        progress: called with (rows done, rows in all).

    Returns:
        The path: where each sample is right, with its curves over gamma.

    >>> path = gamma_path(np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), np.array([0, 1, 1]), [400, 100])
    >>> path.gammas.round(3), path.error.round(3)
    (array([0.   , 0.208, 0.5  , 1.   ]), array([0.667, 0.333, 0.667, 0.333]))
    >>> path.best("error").gamma
    1.5
    """
    reach, logits = check_range(range), as_array(logits)
    check_shape(logits.shape if shard is None else (len(logits), 2))
    n = resolve(counts, None if shard is not None else logits.shape[1], names=names)
    labels = check_labels(labels, len(n))
    if len(labels) != len(logits):
        raise LevelheadError(f"expected one label per row of logits, got {len(labels)} labels and {len(logits)} rows")
    if not (isinstance(k, int | np.integer) and 1 <= k < len(n)):
        raise LevelheadError(f"expected a whole number from 1 to {len(n) - 1}, got {k}", parameter="k")
    if shard is not None and (k > 1 or bias is not None):
        raise LevelheadError("shards are merged for top-1 without a kept bias; give the logits of all classes",
                             parameter="shard")
    made = make_rule(rule, n, norms=norms, bias=bias, kind=kind)
    masses = None if weights is None else check_weights(weights, len(labels))
    prior = None if target is None else target_prior(target, len(n), names)
    sample, lo, hi = find_right(logits, labels, made, reach, int(k), kind=kind, engine=engine, shard=shard,
                                progress=progress)
    return GammaPath(sample=sample, lo=lo, hi=hi, labels=labels, counts=n, rule=made, range=reach, k=k, weights=masses,
                     target=prior, logits=() if shard is not None else (logits,), kind=kind)
