"""The options of a tuning: one record, checked where they enter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, get_args

import numpy as np

from ..core.array import Array
from ..core.choices import Criterion, Kind, Metric
from ..core.curve import METRICS
from ..core.errors import LevelheadError, check_choice
from ..path.bootstrap import check_replicates
from ..path.metrics import ERRORS, RECALLS, check_cost_given
from ..rules.checks import check_range
from ..rules.rule import RULES
from ..show.progress import RowProgress, StageProgress

Floors = float | Mapping[Any, float] | None
AUTO = "auto"  # as rule: whichever is best on samples that it was not fitted on
ESTIMATE = "estimate"  # as target: from unlabelled samples


@dataclass(frozen=True, eq=False, kw_only=True)
class TuneOptions:
    """The options of a tuning, checked. The parameters of `tune` explain them."""

    metric: Metric = "balanced_error"
    cost: Array | None = None
    floors: Floors = None
    criterion: Criterion = "guided"
    rule: str = AUTO
    range: tuple[float, float] | None = None
    unlabelled: Array | None = None
    target: Array | None = None
    chosen_on: str = "held-out"
    bootstrap: int = 1000
    level: float = 0.95
    rng: np.random.Generator | int = 0
    norms: Array | None = None
    bias: Array | None = None
    training: Array | None = None
    names: Sequence[str] | None = None
    kind: Kind = "logits"
    background: int | str | None = None
    progress: StageProgress | None = None

    @staticmethod
    def of(given: Mapping[str, Any]) -> "TuneOptions":
        """Return the options among the arguments of a function, such as its `locals()`."""
        return TuneOptions(**{field.name: given[field.name] for field in fields(TuneOptions) if field.name in given})

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        check_choice("criterion", self.criterion, get_args(Criterion))
        check_choice("rule", self.rule, (AUTO, *RULES))
        if not isinstance(self.chosen_on, str):
            raise LevelheadError(f"expected text, such as 'held-out', got {self.chosen_on!r}", parameter="chosen_on")
        if self.range is not None:
            object.__setattr__(self, "range", check_range(self.range, holds_zero=True))
        if self.cost is not None and self.metric == "balanced_error":  # the default: a cost is a metric by itself
            object.__setattr__(self, "metric", "cost")
        check_cost_given(self.metric, self.cost)
        if self.metric in ("error", "g_mean", "worst_recall") and self.target is not None:
            weighs = "classes as they occur" if self.metric == "error" else "every class the same"
            raise LevelheadError(
                f"the metric {self.metric} weighs {weighs}; leave out the target, or choose the metric balanced_error",
                parameter="target",
            )
        if isinstance(self.target, str) and self.target != ESTIMATE:
            raise LevelheadError(
                f"expected a share for each class, or 'estimate', got {self.target!r}", parameter="target"
            )
        if self.metric not in ERRORS and self.unlabelled is not None and not self.estimates_target:
            raise LevelheadError(
                f"their predicted shares guide only the metrics error and balanced_error, not "
                f"{self.metric}; leave them out",
                parameter="unlabelled",
            )
        check_replicates(self.bootstrap, self.level)

    @property
    def estimates_target(self) -> bool:
        """Whether the target is to be estimated from unlabelled samples."""
        return isinstance(self.target, str)

    @property
    def guided(self) -> bool:
        """Whether predicted shares count: with an error as metric, unless the criterion is that error alone."""
        return self.criterion == "guided" and self.metric in ERRORS

    @property
    def needs_predictions(self) -> bool:
        """Whether every change of every prediction must be known, or only where samples are right."""
        return self.guided or self.metric not in RECALLS

    @property
    def is_auto(self) -> bool:
        """Whether the rule is to be chosen too."""
        return self.rule == AUTO

    def range_of(self, rule: str, temperature: float = 1.0) -> tuple[float, float]:
        """Return the range given, or that of a rule on scores of a temperature."""
        return self.range if self.range is not None else RULES[rule].range_at(temperature)

    def stage(self, name: str) -> RowProgress | None:
        """Return the progress function of one stage."""
        return None if self.progress is None else partial(self.progress, name)


def check_background(background: int | str | None, rule: str, *, summary: bool) -> None:
    """Check that a class can be left alone: by rules that follow counts, of samples that have one class each."""
    if background is None:
        return
    if rule != AUTO and not RULES[rule].follows_counts:
        able = ", ".join(name for name, other in RULES.items() if other.follows_counts)
        reason = f"the rule {rule} changes every class; use {able} or auto"
    elif summary:
        reason = "a summary has its counts already; give counts.resolve(counts, background=...) when it is made"
    else:
        return
    raise LevelheadError(reason, parameter="background")
