"""Metrics: losses of small tables that add up over samples, folds, files and machines.

`Tables` count what predictions do to each class: recall, precision and accuracy are computed there. A
`Metric` is a loss of such tables, lower is better, with the words that people know it by. A new metric is
one object and one line of `METRICS`: the command line, scikit-learn's `scoring`, the page and the help take
their words from there.

The losses take tables [..., K] and return [...]: of one set of predictions a number, of the tables at a
thousand strengths a thousand numbers at once. Some come with their `Slopes`, how a sample more in each
entry moves them, which the standard error of a gain needs (judge.py); for the others it takes small steps.

Tables are all that a choice remembers of its predictions: 3 K numbers, whatever N was. What cannot be computed
from them, such as log loss or top-5 accuracy, is no metric here (measure.py has those).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..support.errors import LevelheadError

_NOTHING = 1e-11  # shares below this are 0: they differ from it by rounding
_PERCENT = "z.2%"  # the z turns -0.00 % into 0.00 %
_FINE = 10_000  # samples that carry two decimals of a percentage, as one of them is 0.01 points


@dataclass(frozen=True, eq=False)
class Tables:
    """What predictions count for each class, [..., K]; in samples or, toward a target, in shares.

    They are the diagonal and the two margins of a confusion matrix, which is enough for every metric
    of `METRICS` and grows with K instead of its square. Tables of disjoint samples add up (`+`, `total`),
    and a fold is taken out again by `-`.

    Args:
        right: samples of class k that are predicted k.
        predicted: samples that are predicted k.
        sizes: samples of class k.
        paid: [...], what all predictions cost together; None without a cost matrix.

    >>> tables = Tables.of(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1]), 3)
    >>> tables.recall, tables.precision.round(2), float(tables.accuracy)
    (array([0.5, 1. , 0. ]), array([1.  , 0.33,  nan]), 0.5)
    """

    right: np.ndarray
    predicted: np.ndarray
    sizes: np.ndarray
    paid: np.ndarray | None = None

    @staticmethod
    def of(
        labels: np.ndarray,
        predicted: np.ndarray,
        classes: int,
        weights: np.ndarray | None = None,
        cost: np.ndarray | None = None,
    ) -> Tables:
        """Count predictions.

        Args:
            labels: [N], the true classes.
            predicted: [N].
            classes: K.
            weights: [N], what each sample counts; 1 if None.
            cost: [K, K], row true, column predicted: what a prediction costs.

        Returns:
            Tables [K], of sums of weights.
        """
        mass = weights
        if mass is None:
            mass = np.ones(len(labels))
        paid = None
        if cost is not None:
            paid = np.asarray(mass @ cost[labels, predicted])
        return Tables(
            right=np.bincount(labels, mass * (labels == predicted), classes),
            predicted=np.bincount(predicted, mass, classes),
            sizes=np.bincount(labels, mass, classes),
            paid=paid,
        )

    def __add__(self, other: Tables) -> Tables:
        """Return the tables of the samples of both."""
        paid = None
        if self.paid is not None and other.paid is not None:
            paid = self.paid + other.paid
        return Tables(
            self.right + other.right,
            self.predicted + other.predicted,
            self.sizes + other.sizes,
            paid,
        )

    def __sub__(self, other: Tables) -> Tables:
        """Return the tables without the samples of another, such as those of one fold."""
        paid = None
        if self.paid is not None and other.paid is not None:
            paid = self.paid - other.paid
        return Tables(
            self.right - other.right,
            self.predicted - other.predicted,
            self.sizes - other.sizes,
            paid,
        )

    def __getitem__(self, index: int | np.bool_ | slice | np.ndarray) -> Tables:
        """Return some of tables [..., K], by the axis before their classes."""
        paid = None
        if self.paid is not None:
            paid = self.paid[index]
        return Tables(self.right[index], self.predicted[index], self.sizes[index], paid)

    def total(self) -> Tables:
        """Return the sum over the first axis, such as the folds."""
        paid = None
        if self.paid is not None:
            paid = self.paid.sum(axis=0)
        return Tables(
            self.right.sum(axis=0), self.predicted.sum(axis=0), self.sizes.sum(axis=0), paid
        )

    @property
    def recall(self) -> np.ndarray:
        """The share of each class's samples that are right; NaN for a class without samples."""
        return _ratio(self.right, self.sizes)

    @property
    def precision(self) -> np.ndarray:
        """The share of each class's predictions that are right; NaN for one never predicted."""
        return _ratio(self.right, self.predicted)

    @property
    def share(self) -> np.ndarray:
        """The share of all predictions that are class k."""
        return self.predicted / self.predicted.sum(axis=-1, keepdims=True)

    @property
    def accuracy(self) -> np.ndarray:
        """The share of samples that are right, [...]."""
        return self.right.sum(axis=-1) / self.sizes.sum(axis=-1)

    @property
    def balanced_accuracy(self) -> np.ndarray:
        """The mean recall of the classes that have a sample, [...]."""
        return 1 - balanced_error(self)

    @property
    def macro_f1(self) -> np.ndarray:
        """The mean F1 of the classes that have a sample, [...]."""
        return 1 - macro_f1(self)

    def to_dict(self) -> dict[str, object]:
        """Return the numbers as JSON can hold them."""
        plain: dict[str, object] = {
            "right": self.right.tolist(),
            "predicted": self.predicted.tolist(),
            "sizes": self.sizes.tolist(),
        }
        if self.paid is not None:
            plain["paid"] = np.asarray(self.paid, np.float64).tolist()
        return plain


def error(tables: Tables) -> np.ndarray:
    """Return the share of samples that are wrong, ``1 - sum_k right_k / sum_k sizes_k``.

    >>> tables = Tables(np.array([8, 1]), predicted=np.array([11, 1]), sizes=np.array([8, 4]))
    >>> float(error(tables))
    0.25
    """
    return 1 - tables.right.sum(axis=-1) / tables.sizes.sum(axis=-1)


def balanced_error(tables: Tables) -> np.ndarray:
    """Return the mean of each class's own error, ``1 - mean_k right_k / sizes_k``, over classes that have a sample.

    >>> tables = Tables(np.array([8, 1]), predicted=np.array([11, 1]), sizes=np.array([8, 4]))
    >>> float(balanced_error(tables))
    0.375
    """
    present = tables.sizes > 0
    # Without a sample a recall is NaN, which would spread over the sum.
    return 1 - np.where(present, tables.recall, 0.0).sum(axis=-1) / present.sum(axis=-1)


def macro_f1(tables: Tables) -> np.ndarray:
    """Return 1 - the mean of ``2 right / (sizes + predicted)`` of classes that have a sample.

    A class without a sample is left out, as it has no recall. scikit-learn's `f1_score` counts it as 0
    if it is predicted.

    >>> tables = Tables(np.array([8, 1]), predicted=np.array([11, 1]), sizes=np.array([8, 4]))
    >>> round(float(macro_f1(tables)), 3)  # 1 - (16 / 19 + 2 / 5) / 2
    0.379
    """
    present = tables.sizes > 0
    margins = np.where(present, tables.sizes + tables.predicted, 1.0)
    return 1 - (np.where(present, 2 * tables.right, 0.0) / margins).sum(axis=-1) / present.sum(
        axis=-1
    )


def positives_f1(tables: Tables) -> np.ndarray:
    """Return 1 - F1 of the second of two classes, the samples that have a label.

    >>> tables = Tables(np.array([8, 1]), predicted=np.array([11, 1]), sizes=np.array([8, 4]))
    >>> float(positives_f1(tables))  # 1 - 2 / 5
    0.6
    """
    # A label that is neither there nor predicted has an F1 of 0.
    margins = tables.sizes[..., 1] + tables.predicted[..., 1]
    return 1 - 2 * tables.right[..., 1] / np.where(margins > 0, margins, 1.0)


def mcc(tables: Tables) -> np.ndarray:
    """Return 1 - Matthews' correlation of truth and prediction, which is 0 if one class is all.

    ``(n right - sum p_k t_k) / sqrt((n^2 - sum p_k^2) (n^2 - sum t_k^2))``, of p_k predictions and t_k samples.

    >>> always_first = Tables(np.array([8, 0]), predicted=np.array([12, 0]), sizes=np.array([8, 4]))
    >>> float(mcc(always_first))
    1.0
    """
    n = tables.sizes.sum(axis=-1)
    agreed = n * tables.right.sum(axis=-1) - (tables.predicted * tables.sizes).sum(axis=-1)
    # n^2 - sum p_k^2, written as sum p_k (n - p_k), which rounding cannot take below 0.
    of_predicted = (tables.predicted * (n[..., None] - tables.predicted)).sum(axis=-1)
    of_true = (tables.sizes * (n[..., None] - tables.sizes)).sum(axis=-1)
    # If one class is all of the truth or of the predictions, there is nothing to correlate.
    is_defined = np.minimum(of_predicted, of_true) > _NOTHING * n**2
    spread = np.sqrt(np.maximum(of_predicted * of_true, 0))
    return 1 - np.where(is_defined, agreed / np.where(is_defined, spread, 1.0), 0.0)


def kappa(tables: Tables) -> np.ndarray:
    """Return 1 - Cohen's kappa: ``(observed - expected) / (1 - expected)`` of agreements.

    `expected` is how often truth and prediction would agree by chance, ``sum_k p_k t_k / n^2``. Where that
    is always, kappa is 0.

    >>> always_first = Tables(np.array([8, 0]), predicted=np.array([12, 0]), sizes=np.array([8, 4]))
    >>> float(kappa(always_first))
    1.0
    """
    n = tables.sizes.sum(axis=-1)
    observed = tables.right.sum(axis=-1) / n
    expected = (tables.predicted * tables.sizes).sum(axis=-1) / n**2
    is_defined = 1 - expected > _NOTHING
    return 1 - np.where(
        is_defined, (observed - expected) / np.where(is_defined, 1 - expected, 1.0), 0.0
    )


def g_mean(tables: Tables) -> np.ndarray:
    """Return 1 - the geometric mean of the recalls, ``prod_k (right_k / sizes_k)^(1 / K)``.

    Of the K classes that have a sample.

    >>> tables = Tables(np.array([8, 1]), predicted=np.array([11, 1]), sizes=np.array([8, 4]))
    >>> round(float(g_mean(tables)), 3)  # 1 - sqrt(1 * 1/4)
    0.5
    """
    present = tables.sizes > 0
    # A factor of 1 for a class without a sample; one that is never right makes the product 0.
    recall = np.where(present, tables.recall, 1.0)
    # By logarithms: a product of a thousand recalls would vanish.
    logs = np.log(np.maximum(recall, 1e-300)).sum(axis=-1) / present.sum(axis=-1)
    return 1 - np.where((recall <= _NOTHING).any(axis=-1), 0.0, np.exp(np.minimum(logs, 0)))


def worst_recall(tables: Tables) -> np.ndarray:
    """Return 1 - the least recall of the classes that have a sample, ``1 - min_k right_k / sizes_k``.

    >>> tables = Tables(np.array([8, 1]), predicted=np.array([11, 1]), sizes=np.array([8, 4]))
    >>> float(worst_recall(tables))
    0.75
    """
    return 1 - np.where(tables.sizes > 0, tables.recall, np.inf).min(axis=-1)


def mean_cost(tables: Tables) -> np.ndarray:
    """Return what a prediction costs on average, ``paid / sum_k sizes_k``, in the unit of the cost matrix.

    >>> labels = np.array([0, 0, 1, 1])
    >>> cost = np.array([[0.0, 1.0], [5.0, 0.0]])
    >>> float(mean_cost(Tables.of(labels, np.array([0, 1, 0, 1]), 2, cost=cost)))  # (1 + 5) / 4
    1.5
    """
    if tables.paid is None:
        raise LevelheadError("'cost' needs a cost matrix [K, K]", parameter="metric")
    return tables.paid / tables.sizes.sum(axis=-1)


def _loss_not_known(tables: Tables) -> np.ndarray:
    """Return NaN: the loss of a metric of which only the name is known."""
    return np.full(tables.sizes.shape[:-1], np.nan)


class Slopes(NamedTuple):
    """How a loss moves by one sample more in each entry of the tables: its partial derivatives."""

    right: np.ndarray  # [K], by one more that is right
    predicted: np.ndarray  # [K], by one more prediction
    sizes: np.ndarray  # [K], by one more of the class
    paid: float = 0.0  # by one unit of cost more


def slopes_of_error(tables: Tables) -> Slopes:
    """Return the slopes of `error`, ``1 - right / n``: one sample more that is right adds 1 / n."""
    n = tables.sizes.sum()
    alike = np.ones(len(tables.sizes))
    return Slopes(-alike / n, 0 * alike, alike * tables.right.sum() / n**2)


def slopes_of_balanced_error(tables: Tables) -> Slopes:
    """Return the slopes of `balanced_error`: of class k, ``1 - right_k / sizes_k`` over the classes."""
    present = tables.sizes > 0
    share = present / (present.sum() * np.where(present, tables.sizes, 1.0))
    return Slopes(-share, 0 * share, share * np.where(present, tables.recall, 0.0))


def slopes_of_macro_f1(tables: Tables) -> Slopes:
    """Return the slopes of `macro_f1`: of class k, ``1 - 2 right_k / (sizes_k + predicted_k)``."""
    present = tables.sizes > 0
    margins = np.where(present, tables.sizes + tables.predicted, 1.0)
    share = present / present.sum()
    more = share * 2 * tables.right / margins**2
    return Slopes(-2 * share / margins, more, more)


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """A loss of tables, lower is better, and how people know it.

    One of your own is ``lh.Metric("name", "title", loss)``, passed as `metric=` wherever a name may be.
    Its gain is measured, judged and told like that of any other.

    Args:
        name: for options and files.
        title: for sentences and tables.
        loss: a function of `Tables` [..., K] that returns [...].
        aliases: what others call it, such as scikit-learn's `scoring`.
        is_loss: whether people know it as a loss, too; else as ``1 - loss``.
        form: the format of a value, as `format` takes it; with a %, differences are in points.
        as_they_come: whether classes weigh as often as they occur, and not the same.
        of_recalls: whether it follows from recalls alone, whatever wrong class is predicted.
        takes_target: whether a target may say how often classes occur; some metrics weigh all classes alike
            whatever their mix.
        slopes: its slopes in tables [K], in closed form; by small steps if None.
        usual: how much of the shift that makes classes alike is usually best for it, from 0, the
            model as it is, to 1.

    >>> Metric("hits", "hit rate", error).value(Tables.of(np.array([0, 1]), np.array([0, 0]), 2))
    0.5
    """

    name: str
    title: str
    loss: Callable[[Tables], np.ndarray]
    aliases: tuple[str, ...] = ()
    is_loss: bool = False
    form: str = _PERCENT
    as_they_come: bool = False
    of_recalls: bool = False
    takes_target: bool = True
    slopes: Callable[[Tables], Slopes] | None = None
    usual: float = 1.0

    @staticmethod
    def of_name(name: str) -> Metric:
        """Return a metric of which only the name is known, as that of a file from another program.

        Its values are NaN, and a gain of it is a plain number.
        """
        return Metric(name, name, _loss_not_known, form="z.4g")

    def __repr__(self) -> str:
        return f"Metric({self.name!r})"

    @property
    def is_known(self) -> bool:
        """Whether it can be computed, and is no metric `of_name`."""
        return self.loss is not _loss_not_known

    def losses(self, tables: Tables) -> np.ndarray:
        """Return the loss, [...], of tables [..., K], checked; 0 where no sample weighs anything.

        A fit without a fold has such tables if the target has none of the classes of its samples.

        Raises:
            LevelheadError: a metric of one's own gives NaN or infinity, whose differences say nothing,
                or one number for all tables, by which none is better.
        """
        # A metric of one's own may divide by 0 where a class is never predicted.
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.asarray(self.loss(tables))
        weighs = tables.sizes.sum(axis=-1) > 0
        if losses.shape != weighs.shape:
            shapes = f"{list(tables.sizes.shape)} has shape {list(losses.shape)}"
            expected = "expected [...] of [..., K]; sum over the last axis alone"
            reason = f"the loss of {self.name!r} of tables {shapes}, {expected}"
            raise LevelheadError(reason, parameter="metric")
        if not np.isfinite(losses[weighs]).all():
            cause = "such as of a class that is never predicted or has no sample here"
            reason = f"the loss of {self.name!r} is NaN or infinite for some predictions, {cause}"
            raise LevelheadError(f"{reason}; return a number for those, too", parameter="metric")
        return np.where(weighs, losses, 0.0)

    def shown(self, loss: np.ndarray) -> np.ndarray:
        """Return losses as people know the metric; the way back is the same.

        Args:
            loss: [...], as `losses` returns them.

        >>> losses = np.array([0.25, 0.5])
        >>> METRICS["macro_f1"].shown(losses), METRICS["error"].shown(losses)
        (array([0.75, 0.5 ]), array([0.25, 0.5 ]))
        """
        if self.is_loss:
            return loss
        return 1 - loss

    def value(self, tables: Tables) -> float:
        """Return the metric of tables [K], as people know it: an error as an error, an F1 as an F1."""
        return float(self.shown(self.loss(tables)))

    def value_text(self, value: float, n: int = _FINE) -> str:
        """Return a value of n samples in words: shares in percent, others as numbers.

        >>> METRICS["error"].value_text(0.1234, 500), METRICS["mcc"].value_text(0.1234)
        ('12.3%', '0.123')
        """
        # One decimal where the second would only say how many samples there are.
        form = self.form
        if form == _PERCENT and n < _FINE:
            form = "z.1%"
        return format(value, form)

    @property
    def in_points(self) -> bool:
        """Whether a difference is said in points, as that of two shares is."""
        return "%" in self.form

    def gain_text(
        self, gain: float, interval: tuple[float, float] | None = None, n: int = _FINE
    ) -> str:
        """Return a gain on n samples with its interval, in words.

        >>> METRICS["error"].gain_text(0.01, (-0.01, 0.02))
        '1.00 points (-1.00 to 2.00)'
        """
        factor = 1
        form = self.form
        unit = ""
        if self.in_points:
            factor = 100
            form = "z.1f"
            if n >= _FINE:
                form = "z.2f"
            unit = " points"
        text = f"{factor * gain:{form}}{unit}"
        if interval is None:
            return text
        low, high = interval
        return f"{text} ({factor * low:{form}} to {factor * high:{form}})"

    def toward(self, target: np.ndarray) -> Metric:
        """Return the metric where classes come in the shares of a target, [K].

        Tables are then weighted so that the sizes are these shares, which is all that most metrics
        need; `balanced_error` weighs classes alike by itself, so that its loss becomes `error` of
        tables so weighted. Both are called so, unless the target has all classes alike.
        """
        if self.loss not in (error, balanced_error):
            return self
        title = "balanced error"
        if np.ptp(target) > 1e-9:
            title = "error in the mix of the target"
        return replace(self, loss=error, slopes=slopes_of_error, title=title)

    def for_labels(self) -> Metric:
        """Return the metric of one of several labels, of tables [..., 2] without and with it.

        `macro_f1` is then a mean over the labels, of the F1 of the samples that have each.
        """
        if self.loss is macro_f1:
            return replace(self, loss=positives_f1, slopes=None)
        return self


COST = "cost"  # the metric that needs a cost matrix
# Every metric by its name, in the order of the help. A metric that is added here is known everywhere.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "error",
            "error",
            error,
            aliases=("accuracy",),
            is_loss=True,
            as_they_come=True,
            of_recalls=True,
            slopes=slopes_of_error,
        ),
        Metric(
            "balanced_error",
            "balanced error",
            balanced_error,
            aliases=("balanced_accuracy", "recall_macro"),
            is_loss=True,
            of_recalls=True,
            slopes=slopes_of_balanced_error,
        ),
        Metric(
            "macro_f1",
            "macro F1",
            macro_f1,
            aliases=("f1_macro",),
            slopes=slopes_of_macro_f1,
            usual=0.5,
        ),
        Metric("mcc", "MCC", mcc, aliases=("matthews_corrcoef",), form="z.3f", usual=0.5),
        Metric("kappa", "Cohen's kappa", kappa, aliases=("cohen_kappa",), form="z.3f", usual=0.5),
        Metric(
            "g_mean",
            "G-mean",
            g_mean,
            aliases=("geometric_mean",),
            of_recalls=True,
            takes_target=False,
        ),
        Metric("worst_recall", "worst recall", worst_recall, of_recalls=True, takes_target=False),
        Metric(COST, "expected cost", mean_cost, is_loss=True, form="z.4g", as_they_come=True),
    )
}


def find_metric(metric: str | Metric) -> Metric:
    """Return a metric as it is, or the one that has a name or an alias.

    Raises:
        LevelheadError: an unknown name; the message lists the known ones.

    >>> find_metric("balanced_accuracy").name
    'balanced_error'
    """
    if isinstance(metric, Metric):
        return metric
    for candidate in METRICS.values():
        if isinstance(metric, str) and metric in (candidate.name, *candidate.aliases):
            return candidate
    if callable(metric):
        reason = "expected a name, or lh.Metric(name, title, loss of lh.Tables)"
        raise LevelheadError(f"{reason}, got a function", parameter="metric")
    others = []
    for candidate in METRICS.values():
        others += [f"{alias} for {candidate.name}" for alias in candidate.aliases]
    expected = f"expected {', '.join(METRICS)} (also {', '.join(others)})"
    raise LevelheadError(f"{expected}, got {metric!r}", parameter="metric")


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, and NaN where the whole is 0."""
    undefined = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    return np.divide(part, whole, out=undefined, where=whole > 0)
