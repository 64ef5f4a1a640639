"""What a choice is to be good at: `Goal`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ..core.array import Array
from ..core.choices import Criterion
from ..core.curve import metric_name
from ..core.errors import check_choice
from ..path.metrics import NAME_CLASSES, check_cost_given

Floors = float | Mapping[Any, float] | None


@dataclass(frozen=True, eq=False)
class Goal:
    """What a choice is to be good at.

    Args:
        metric: `balanced_error`; or `error`, which weighs classes as they occur among the labels; or `macro_f1`, `mcc`,
            `kappa` (Cohen's), `g_mean` or `worst_recall`, over the classes that have a sample; or scikit-learn's names
            of these, such as `balanced_accuracy` and `f1_macro`.
        cost: [K, K], row true, column predicted: the metric is then the mean cost of a sample.
        floors: {class: recall}, or a recall for all classes: only strengths at which no recall is below its floor.
        criterion: `guided`, by the metric and predicted shares, or `balanced_error`, by the metric alone: for errors.

    >>> Goal("f1_macro").metric, Goal(cost=[[0, 1], [5, 0]]).metric
    ('macro_f1', 'cost')
    """

    metric: str = "balanced_error"
    cost: Array | None = None
    floors: Floors = None
    criterion: Criterion = "guided"

    def __post_init__(self) -> None:
        name = metric_name(self.metric)
        if self.cost is not None and name == "balanced_error":  # the default: a cost is a metric by itself
            name = "cost"
        object.__setattr__(self, "metric", name)
        check_choice("criterion", self.criterion, get_args(Criterion))
        check_cost_given(name, self.cost)

    @property
    def names_classes(self) -> bool:
        """Whether single classes may have to move, whatever their counts: for floors, costs and macro-F1."""
        return self.floors is not None or self.metric in NAME_CLASSES

    @staticmethod
    def of(given: "str | Goal") -> "Goal":
        """Return a goal that was given, or that of a metric."""
        return given if isinstance(given, Goal) else Goal(given)
