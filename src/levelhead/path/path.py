"""The exact path over gamma: every gamma at which any sample turns right or wrong.

The whole curve costs less than the usual grid. Each sample has intervals of gammas on which it is right (`engines.py`).
Their sorted ends give the curve, and with it curves per class, any weights, bootstrap replicates and merging.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.array import Array
from ..core.choices import Kind, Metric
from ..core.counts import Counts, check_labels, resolve
from ..core.curve import METRICS, Curve, Point
from ..core.errors import LevelheadError, check_choice
from ..core.labels import IGNORED, flatten_positions
from ..core.logits import check_shape
from ..rules.checks import check_range, target_prior
from ..rules.rule import find_path_rule
from ..show.curve_text import sparkline
from ..show.html import html
from ..show.plot import draw_errors
from ..show.progress import RowProgress
from .bootstrap import check_weights, draw_resamples, error_rows
from .engines import Engine, find_right
from .merge import join_classes, join_samples
from .metrics import (
    ERRORS,
    RECALLS,
    MetricSteps,
    apply_floors,
    check_cost,
    check_cost_given,
    check_floors,
    meets_floors,
    shown,
    unmet_floors,
)
from .path_predictions import PathPredictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class GammaPath(PathPredictions):
    """Where each sample is right over gamma, and every curve that follows from it. `gamma_path` computes it.

    A sample is right at gamma if and only if ``lo <= gamma <= hi`` for one of its pieces (ties: `intervals.py`). For
    top-1 without a kept bias, piece i is of sample i, with lo > hi if never right. Else a sample has any number.

    Args:
        sample, lo, hi: [M], the pieces.
        labels [N], counts [K], rule, range, k, weights [N], kind: as in `gamma_path`, checked.
        target: [K], what each class weighs in `balanced_error`; uniform over the classes present if None.
        logits: what the path was computed from, by reference, for `predictions`; () if not known. They are not pickled.

    >>> gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
    GammaPath(3 samples, 2 classes, rule rescale, gamma 0 to 2)
    """

    def curve_of(self, metric: Metric, *, cost: Array | None = None) -> Curve:
        """Return a metric over gamma, exact at every gamma at which it may change.

        Args:
            metric: `error`, `balanced_error`, `macro_f1`, `mcc`, `kappa` (Cohen's), `g_mean` or `worst_recall` of the
                classes that have a sample; or `cost`, the mean cost of a sample. All but the first two are of top-1.
            cost: [K, K], row true, column predicted, for the metric `cost`.

        Returns:
            The metric as people know it: a higher F1 is better, a lower cost.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.curve_of("macro_f1").values.round(3), path.curve_of("cost", cost=[[0, 1], [5, 0]]).values.round(3)
        (array([0.25 , 0.667, 0.25 , 0.4  ]), array([3.333, 1.667, 2.   , 0.333]))
        """
        check_choice("metric", metric, METRICS)
        check_cost_given(metric, cost)
        if metric in ERRORS:
            return self.error_curve if metric == "error" else self.balanced_error_curve
        steps = self._steps(metric, cost)
        cells = np.unique(np.append(steps.by_class.gamma, self.range[0]))
        return Curve(cells, shown(metric, steps.losses(cells, self._weights)), self.range[1])

    def best(
        self,
        metric: Metric = "balanced_error",
        *,
        cost: Array | None = None,
        floors: float | Mapping[Any, float] | None = None,
    ) -> Point:
        """Return the middle of the widest plateau on which the metric is best.

        Args:
            metric, cost: as in `curve_of`.
            floors: {class: recall}, or a recall for all classes: only gammas at which no recall is below its floor.

        Returns:
            The point, with the metric and its value.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.best("error").gamma, round(path.best("error", floors={0: 1.0}).gamma, 3)
        (1.5, 0.354)
        """
        curve = self.curve_of(metric, cost=cost)
        losses = Curve(curve.gammas, shown(metric, curve.values), curve.end)  # its own inverse
        if floors is not None:
            least = check_floors(floors, self.labels, len(self.counts))
            margins = self._steps(metric, cost).margins(curve.gammas, self._weights, least)
            losses = replace(losses, values=apply_floors(losses.values, margins))
        a, b = losses.plateau()
        middle = losses.middle((a, b))
        if floors is not None and not meets_floors(margins):
            raise unmet_floors(middle, self.class_accuracy(middle), least, self.range)
        return replace(self.at(middle), plateau=(a, b), metric=metric, value=float(curve.at(middle)))

    def bootstrap(
        self,
        n: int,
        rng: np.random.Generator | int,
        *,
        metric: Metric = "balanced_error",
        cost: Array | None = None,
        stratified: bool = True,
        gammas: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return n curves [n, G] of the metric, each of one resample, on the breakpoints or on given gammas.

        Args:
            n, rng, metric: how many; a generator, or a seed; as in `curve_of`.
            cost: [K, K], for the metric `cost`.
            stratified: whether to resample within each class, so that none is lost, or all samples together.
            gammas: where, ascending; at all B breakpoints if not given, which takes 8 n B bytes.

        >>> path = gamma_path([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]], [0, 1, 1], [400, 100])
        >>> path.bootstrap(100, 0, gammas=[0.3, 1.5]).mean(axis=0).round(2)
        array([0.27, 0.5 ])
        """
        check_choice("metric", metric, METRICS)
        check_cost_given(metric, cost)
        where = self.curve_of(metric, cost=cost).gammas if gammas is None else np.asarray(gammas, np.float64)
        if where.ndim != 1 or not (np.diff(where, prepend=self.range[0], append=self.range[1]) >= 0).all():
            raise LevelheadError(
                f"expected numbers [G], ascending within [{self.range[0]:g}, {self.range[1]:g}]", parameter="gammas"
            )
        drawn = draw_resamples(self.labels, n, np.random.default_rng(rng), stratified=stratified)
        weights = (self._weights * times for times in drawn)
        if metric not in ERRORS:
            steps = self._steps(metric, cost)
            return np.array([shown(metric, steps.losses(where, w)) for w in weights]).reshape(n, len(where))
        coefficients = (w / w.sum() if metric == "error" else self._balanced_coefficients(w) for w in weights)
        return error_rows(n, coefficients, self.events, where)

    def merge(self, other: "GammaPath") -> "GammaPath":
        """Return the path of both sets of samples, these first.

        >>> parts = [gamma_path([row], [1], [400, 100]) for row in ([4.0, 3.0], [4.0, 1.0])]
        >>> parts[0].merge(parts[1]).error
        array([1. , 0.5, 0. ])
        """
        return join_samples(self, other)

    def merge_classes(self, other: "GammaPath") -> "GammaPath":
        """Return the path of the same samples against the classes of both shards: ``max lo``, ``min hi``.

        >>> logits, true, counts = np.array([[4.0, 3.0, 2.0]]), [3.0], [400, 100, 50]
        >>> shards = [gamma_path(logits[:, c], [1], counts, shard=(c, true)) for c in ([0, 1], [2])]
        >>> shards[0].merge_classes(shards[1]).lo.round(3)
        array([0.208])
        """
        return join_classes(self, other)

    def plot(self, ax: "Axes | None" = None, *, gamma: float | None = None) -> "Axes":
        """Draw both errors over gamma, and mark a given gamma, on the Axes given or on new ones (extra `plot`)."""
        return draw_errors(
            self.error_curve,
            self.balanced_error_curve,
            ax,
            gamma=gamma,
            title=f"{len(self.labels)} samples, {len(self.counts)} classes",
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the logits, and nothing that was computed from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"logits": ()}

    __copy__ = __deepcopy__ = lambda self, *_: replace(self)  # a copy, unlike a pickle, keeps the logits

    def __repr__(self) -> str:
        return (
            f"GammaPath({len(self.labels)} samples, {len(self.counts)} classes, rule {self.rule.name}, gamma "
            f"{self.range[0]:g} to {self.range[1]:g})"
        )

    def _repr_html_(self) -> str:
        (low, high), was, best = self.range, self.at(self.range[0]), self.best()
        rows = {
            "samples": f"{len(self.labels)} of {len(self.counts)} classes",
            "gamma": f"{low:g} to {high:g}, rule {self.rule.name}, {len(self.gammas)} breakpoints",
            "balanced error": f"{was.balanced_error:.2%} at {low:g}; lowest, {best.balanced_error:.2%}, at "
            f"{best.gamma:.3f}",
            "error": f"{was.error:.2%} at {low:g}; {best.error:.2%} at {best.gamma:.3f}",
        }
        return html(
            "GammaPath",
            rows,
            picture=sparkline(self.balanced_error_curve, best.gamma),
            notes=["the lowest error is optimistic; levelhead.tune says what to expect on new samples"],
        )

    def _steps(self, metric: Metric, cost: Array | None = None) -> MetricSteps:
        if metric not in ERRORS and self.k > 1:
            raise LevelheadError(
                f"expected 'error' or 'balanced_error': {metric!r} is of top-1 predictions, and this "
                f"path is of top-{self.k}",
                parameter="metric",
            )
        return MetricSteps(
            metric,
            self.labels,
            len(self.counts),
            self.events,
            None if metric in RECALLS else self.envelope,
            None if cost is None else check_cost(cost, len(self.counts)),
        )


def gamma_path(
    logits: Array,
    labels: Array,
    counts: Counts,
    *,
    range: tuple[float, float] = (0.0, 2.0),
    rule: str = "rescale",
    k: int = 1,
    bias: Array | None = None,
    weights: Array | None = None,
    target: Array | None = None,
    norms: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    shard: tuple[Array, Array] | None = None,
    engine: Engine = "auto",
    ignore_index: int = IGNORED,
    progress: RowProgress | None = None,
) -> GammaPath:
    """Compute the exact path over gamma.

    Args:
        logits: [N, K]: an array, a tensor on any device, or a memory-mapped file; tokens and pixels as in `tune`.
        labels, weights: [N], class indices; weights of the samples.
        k: right means among the first k.
        bias: [K], a bias within the logits that is kept as the weights are scaled: ``(l_k - b_k) r_k^gamma + b_k``.
        counts, rule, range, target, norms, names, kind, ignore_index: as in `tune`; the range need not hold 0.
        shard: (classes [k], true-class logits [N]) if the columns are only these classes, for `merge_classes`.
        engine: `numpy`, `torch` (on the tensor's device) or `auto`. The two may differ in the last bits of a gamma at
            which a sample changes, but not where scores tie at 0.
        progress: called with (rows done, rows in all).

    Returns:
        The path: where each sample is right, with its curves over gamma.

    >>> path = gamma_path(np.array([[4.0, 2.0], [4.0, 3.0], [4.0, 1.0]]), np.array([0, 1, 1]), [400, 100])
    >>> path.gammas.round(3), path.error.round(3)
    (array([0.   , 0.208, 0.5  , 1.   ]), array([0.667, 0.333, 0.667, 0.333]))
    """
    reach = check_range(range)
    logits, labels, weights = flatten_positions(logits, labels, weights, ignore_index=ignore_index)
    check_shape(logits.shape if shard is None else (len(logits), 2), len(labels))
    n = resolve(counts, None if shard is not None else logits.shape[1], names=names)
    labels = check_labels(labels, len(n))
    if len(labels) != len(logits):
        raise LevelheadError(f"expected one label per row of logits, got {len(labels)} labels and {len(logits)} rows")
    made = find_path_rule(rule).direction(n, norms=norms, bias=bias, kind=kind)
    masses = None if weights is None else check_weights(weights, len(labels))
    prior = None if target is None else target_prior(target, len(n), names)
    pieces = find_right(logits, labels, made, reach, k, kind=kind, engine=engine, shard=shard, progress=progress)
    return GammaPath(
        *pieces,
        labels=labels,
        counts=n,
        rule=made,
        range=reach,
        k=k,
        weights=masses,
        target=prior,
        logits=() if shard is not None else (logits,),
        kind=kind,
    )
