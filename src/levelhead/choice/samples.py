"""Held-out `Samples`, the `Goal` of a choice, and the options of a tuning: each checked once, where it is made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, get_args

import numpy as np

from ..core.adjustment import check_range, target_prior, toward
from ..core.class_names import names_of_columns
from ..core.counts import (
    Counts,
    check_samples,
    flatten_positions,
    refuse_label_table,
    resolve_labels,
)
from ..core.rules import AUTO, RULES, Auto, OneStrength, Rule
from ..path.curve import metric_name
from ..path.envelope import read_chunks
from ..support.arrays import (
    Array,
    CheckedLogits,
    are_log_probabilities,
    are_on_gpu,
    as_array,
    few_threads,
    fit_scale,
    read_logits,
    some_rows,
    to_numpy,
)
from ..support.errors import LevelheadError, check_choice
from ..support.progress import RowProgress, StageProgress
from ..support.types import Criterion, Kind, Metric
from .gamma_path import GammaPath
from .path_metrics import ERRORS, NAME_CLASSES, RECALLS, Floors, check_cost_given
from .resample import FOLDS, STRENGTH, check_replicates, draw_folds


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
    floors: Floors | None = None
    criterion: Criterion = "guided"

    def __post_init__(self) -> None:
        name = metric_name(self.metric)
        if (
            self.cost is not None and name == "balanced_error"
        ):  # the default: a cost is a metric by itself
            name = "cost"
        object.__setattr__(self, "metric", name)
        check_choice("criterion", self.criterion, get_args(Criterion))
        check_cost_given(name, self.cost)

    @staticmethod
    def of(given: "str | Goal") -> "Goal":
        """Return a goal that was given, or that of a metric."""
        return given if isinstance(given, Goal) else Goal(given)


ESTIMATE = "estimate"  # as target: from unlabelled samples


@dataclass(frozen=True, eq=False, kw_only=True)
class TuneOptions:
    """The options of a tuning, checked. The parameters of `tune` explain them."""

    goal: Goal = field(default_factory=Goal)
    rule: str = AUTO
    range: tuple[float, float] | None = None
    unlabelled: Array | None = None
    target: Array | None = None
    chosen_on: str = "held-out"
    bootstrap: int = 500
    level: float = 0.95
    rng: np.random.Generator | int = 0
    norms: Array | None = None
    bias: Array | None = None
    training: Array | None = None
    names: Sequence[str] | None = None
    kind: Kind = "logits"
    background: int | str | None = None
    progress: StageProgress | None = None

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, (AUTO, *RULES))
        if not isinstance(self.chosen_on, str):
            raise LevelheadError(
                f"expected text, such as 'held-out', got {self.chosen_on!r}", parameter="chosen_on"
            )
        if self.range is not None:
            object.__setattr__(self, "range", check_range(self.range, holds_zero=True))
        if self.metric in ("error", "g_mean", "worst_recall") and self.target is not None:
            weighs = "classes as they occur" if self.metric == "error" else "every class the same"
            instead = "leave out the target, or choose the metric balanced_error"
            raise LevelheadError(
                f"the metric {self.metric} weighs {weighs}; {instead}", parameter="target"
            )
        if isinstance(self.target, str) and self.target != ESTIMATE:
            expected = "expected a share for each class, or 'estimate'"
            raise LevelheadError(f"{expected}, got {self.target!r}", parameter="target")
        if self.metric not in ERRORS and self.unlabelled is not None and not self.estimates_target:
            guided = "their predicted shares guide only the metrics error and balanced_error"
            raise LevelheadError(
                f"{guided}, not {self.metric}; leave them out", parameter="unlabelled"
            )
        check_replicates(self.bootstrap, self.level)

    @property
    def metric(self) -> Metric:
        """The metric of the goal."""
        return metric_name(self.goal.metric)

    @property
    def estimates_target(self) -> bool:
        """Whether the target is to be estimated from unlabelled samples."""
        return isinstance(self.target, str)

    @property
    def guided(self) -> bool:
        """Whether predicted shares count: with an error as metric, unless the criterion is that error alone."""
        # Where classes occur unevenly, the best predictions do not: a target guides only what is known of its samples.
        known = self.target is None or self.unlabelled is not None
        return self.goal.criterion == "guided" and self.metric in ERRORS and known

    @property
    def guide_strength(self) -> float:
        """How much the mismatch of shares counts: the 20 of ``min(1, 20 s)``, or 0."""
        return STRENGTH if self.guided else 0.0

    @property
    def needs_predictions(self) -> bool:
        """Whether every change of every prediction must be known, or only where samples are right."""
        return self.guided or self.metric not in RECALLS

    @property
    def follows_predictions(self) -> bool:
        """Whether every change of the predictions of the labelled samples is needed."""
        return self.is_auto or (self.needs_predictions and self.unlabelled is None)

    @property
    def is_auto(self) -> bool:
        """Whether the rule is to be chosen too."""
        return self.rule == AUTO

    def may_take(self, rule: Rule) -> bool:
        """Whether `auto` tries a rule for this goal, wherever it can act."""
        named = (
            self.goal.floors is not None or self.goal.metric in NAME_CLASSES
        )  # classes may move alone
        wanted = named or not rule.for_named_classes
        return self.is_auto and wanted and (rule.follows_counts or self.background is None)

    def range_of(self, rule: str, temperature: float = 1.0) -> tuple[float, float]:
        """Return the range given, or that of a rule on scores of a temperature."""
        return self.range if self.range is not None else RULES[rule].range_at(temperature)

    def stage(self, name: str) -> RowProgress | None:
        """Return the progress function of one stage."""
        return None if self.progress is None else partial(self.progress, name)


def check_background(background: int | str | None, rule: str) -> None:
    """Check that a class can be left alone: by rules that follow counts, of samples that have one class each."""
    if background is not None and rule != AUTO and not RULES[rule].follows_counts:
        able = ", ".join(name for name, other in RULES.items() if other.follows_counts)
        raise LevelheadError(
            f"the rule {rule} changes every class; use {able} or auto", parameter="background"
        )


def rule_options(rule: str | Rule) -> dict[str, Any]:
    """Return the options of a rule that was given by its name or as an object: rule, range, norms and bias."""
    if not isinstance(rule, Rule):
        return {"rule": rule}
    more = {"norms": rule.norms, "bias": rule.bias} if isinstance(rule, Auto | OneStrength) else {}
    return {"rule": rule.name, "range": rule.range} | more


def as_rows(
    logits: Array, labels: Array, counts: Counts, names: Sequence[str] | None
) -> tuple[Array, Any, Sequence[str] | None]:
    """Return logits [N, K] and labels [N] of one class each, by position and by index, and the names of the classes."""
    names = names_of_columns(logits, counts) if names is None else names
    logits, labels, _ = flatten_positions(logits, labels)
    refuse_label_table(labels)
    return logits, *resolve_labels(logits, labels, counts, names)


_ROUGH_ROWS = (
    5000  # tell a temperature to some hundredths, which is enough for the range of a strength
)
Part = tuple[Array, np.ndarray, np.ndarray]  # logits [n, K], labels [n], counts [K]
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
Folds = Sequence[
    tuple[np.ndarray, np.ndarray]
]  # of each fold, the samples judged, and all others: fitted on
_MANY_SAMPLES = (
    10_000  # are dealt into folds once: how they fall moves a gain by less than a tenth of a point
)


@dataclass(frozen=True, eq=False)
class Samples:
    """Held-out samples, in parts that each have their own counts, with the options of the tuning."""

    parts: tuple[Part, ...]
    options: TuneOptions
    joined: Mapping[str, GammaPath] | None = (
        None  # the path of each rule, of samples whose logits were not kept
    )

    @staticmethod
    def of(parts: Sequence[tuple[Array, Array, Counts]], options: TuneOptions) -> "Samples":
        """Return the samples, checked."""
        found = []
        for given, labels, counts in parts:
            logits = as_array(given)
            checked = check_samples(logits, labels, counts, options.names)
            # Integers and masked scores become other floats as they are read, chunk by chunk: all at once, they would
            # take as much memory again.
            as_they_are = type(logits) is np.ndarray and options.kind == "logits"
            if as_they_are and all(
                np.may_share_memory(part, logits) for _, part in read_chunks(logits)
            ):
                logits = logits.view(CheckedLogits)
            found.append((logits, *checked))
        if len(sizes := sorted({len(counts) for *_, counts in found})) > 1:
            came = f"folds of {', '.join(map(str, sizes))} classes"
            raise LevelheadError(
                f"expected the same classes in every fold, got {came}", parameter="folds"
            )
        return Samples(tuple(found), options)

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of all parts, [N]."""
        return np.concatenate([labels for _, labels, _ in self.parts])

    @property
    def classes(self) -> int:
        """K."""
        return len(self.parts[0][2])

    @property
    def numbers(self) -> int:
        """N times K."""
        return len(self.labels) * self.classes

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of each sample in the metric, [N]; they sum to 1."""
        return sample_weights(self.labels, self.classes, self.options)

    def deal(self, repeats: int | None = None, rng: np.random.Generator | int = 0) -> list[Folds]:
        """Return the folds of each repeat: by default twice, or once if the samples are many."""
        repeats, rng = (
            repeats or (1 if len(self.labels) >= _MANY_SAMPLES else 2),
            np.random.default_rng(rng),
        )
        dealt = [draw_folds(self.labels, FOLDS, rng).astype(np.uint8) for _ in range(repeats)]
        each = [
            [(np.flatnonzero(fold == i), np.flatnonzero(fold != i)) for i in range(FOLDS)]
            for fold in dealt
        ]
        return [
            [one for one in folds if len(one[0]) and self.weights[one[1]].any()] for folds in each
        ]

    def each(self, work: Callable[[_Item], _Found], items: Iterable[_Item]) -> list[_Found]:
        """Return what `work` gives of each item; in threads, if the scores are on an accelerator."""
        # What is left for the host are then short operations, of which threads do more: most of them wait for launches.
        return list((map if self._pool is None else self._pool.map)(work, items))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor | None:
        return (
            ThreadPoolExecutor(few_threads())
            if are_on_gpu([logits for logits, *_ in self.parts])
            else None
        )

    def read(self) -> list[np.ndarray]:
        """Return the logits of each part, or the logarithms of its probabilities, [n, K]."""
        return [read_logits(logits, self.options.kind) for logits, *_ in self.parts]

    @cached_property
    def calibration(self) -> tuple[float, float]:
        """The temperature of the scores, and the shift that a calibrated model would then need."""
        # ``logits / T + log(share_k / n_k)``, with the shares that the metric weighs classes by, has the least log
        # loss. The shift is T times how much of ``log(share_k / n_k)`` lies along ``log(n_max / n_k)``.
        log_shares = np.log(
            np.maximum(class_shares(self.labels, self.classes, self.options), 1e-3 / self.classes)
        )
        scores, labels, rows = self.some_rows()
        every = slice(None, None, -(-len(rows) // _ROUGH_ROWS))
        moved = [log_shares - np.log(counts) for *_, counts in self.parts]
        offset = (
            moved[0]
            if len(moved) == 1
            else np.repeat(moved, [len(some) for some in scores], axis=0)[every]
        )
        temperature = fit_scale(
            joined(scores)[every], labels[every], self.weights[rows[every]], offset
        )
        rarity = -np.log(toward(self.parts[0][2], self.target))
        rarity = rarity - rarity.mean()
        along = (log_shares + rarity) @ rarity / (rarity @ rarity) if rarity.any() else 0.0
        return temperature, temperature * float(along)

    def some_rows(self) -> tuple[list[Array], np.ndarray, np.ndarray]:
        """Return, of as many samples as a temperature needs, the scores [n, K] of each part, labels and rows [m]."""
        found = [
            some_rows(logits, labels, kind=self.options.kind) for logits, labels, _ in self.parts
        ]
        scores, labels, rows = zip(*found, strict=True)
        before = np.cumsum([0, *(len(labels) for _, labels, _ in self.parts)])
        return list(scores), np.concatenate(labels), np.concatenate([*map(np.add, rows, before)])

    @cached_property
    def target(self) -> np.ndarray | None:
        """The prior of the classes in deployment, [K], where one was given."""
        given = self.options.target
        return None if given is None else target_prior(given, self.classes, self.options.names)

    @cached_property
    def counts(self) -> np.ndarray:
        """The training samples of each class, [K]; of several parts, the sum."""
        return np.sum([counts for *_, counts in self.parts], axis=0)


def joined(parts: Sequence[Array]) -> Array:
    """Return all parts together, without a copy of a single one."""
    return np.concatenate([to_numpy(part) for part in parts]) if len(parts) > 1 else parts[0]


def class_shares(labels: np.ndarray, classes: int, options: TuneOptions) -> np.ndarray:
    """Return what each class weighs in the metric, [K]: as the target says or, for some metrics, as classes occur."""
    sizes = np.bincount(labels, minlength=classes)
    if options.target is None and options.metric != "balanced_error":
        return sizes / sizes.sum()
    shares = target_prior(options.target, classes, options.names)
    if not shares[sizes > 0].any():
        raise LevelheadError(
            "expected a share above 0 for some class that has a sample here", parameter="target"
        )
    return shares


def sample_weights(labels: np.ndarray, classes: int, options: TuneOptions) -> np.ndarray:
    """Return the weight of each sample in the metric, [N]; they sum to 1."""
    sizes = np.bincount(labels, minlength=classes)
    shares = class_shares(labels, classes, options) * (sizes > 0)
    return (shares / shares.sum() / np.maximum(sizes, 1))[labels]


def kind_of_scores(logits: Any, kind: Kind) -> Kind:
    """Return what scores [N, K] are: `probabilities`, also if their logarithms were given, or `logits`."""
    return "probabilities" if kind == "probabilities" or are_log_probabilities(logits) else "logits"
