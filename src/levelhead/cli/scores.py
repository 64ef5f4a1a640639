"""What the commands for scores share: their options, and what these say to the library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ..support.errors import Advice, LevelheadError, named, reported_as
from ..support.types import Kind
from .words import METRICS_HERE, RULES_HERE, complete_metric, complete_rule

if TYPE_CHECKING:
    import numpy as np

    from ..core.samples import Goal
    from ..io.samples_file import SamplesRead

DATA = (
    "in a .npy, .npz, .safetensors, .pt, .csv, .tsv or .parquet file; FILE:KEY picks one array or "
    "column of several"
)
LOGITS = (
    f"Scores before softmax, of samples the model was not trained on: N rows, K classes, {DATA}."
)
LABELS = "True class of each row: an index or a name."
IN_LOGITS = "May be left out if the file of the logits holds an array of this name."
WITHOUT_COUNTS = "Without them, those of the labels stand in."
LabelColumn = Annotated[
    str | None,
    Option(help="The labels' column in a table of logits, if it is not called label, y or target."),
]
ChosenOn = Annotated[str, Option(help="What the samples are. Say test if they are your test set.")]
MetricName = Annotated[
    str | None,
    Option(
        help=f"What to improve: {METRICS_HERE}; or scikit-learn's name for it.",
        autocompletion=complete_metric,
    ),
]
RuleName = Annotated[
    str | None,
    Option(help=f"What is done to each class. {RULES_HERE}.", autocompletion=complete_rule),
]
Cost = Annotated[
    Path | None,
    Option(
        help="K rows (true class) of K costs (predicted class): the metric is then the mean cost."
    ),
]
Norms = Annotated[
    Path | None, Option(help="Weight norms of the head, one per class, in a file: for tau.")
]
ScoreKind = Annotated[
    Kind, Option(help="What --logits holds; of probabilities, the logarithms are adjusted.")
]
Seed = Annotated[int, Option(help="Seed by which samples are dealt into folds.", min=0)]
PageModel = Annotated[
    Path | None, Option(help="The model's file, for the commands on the page to name it.")
]


def read_goal(metric: str | None, cost: Path | None, floors: Sequence[str]) -> Goal:
    """Return what a choice is to be good at."""
    from ..core.samples import Goal

    costs = read_array(cost, "cost")
    least = read_floors(floors)
    if metric is None:
        return Goal(cost=costs, floors=least)
    return Goal(metric, costs, least)


def read_floors(given: Sequence[str]) -> float | dict[str, float] | None:
    """Return the floors of recall as `tune` takes them: a number for all classes, or {class: recall}."""
    from ..core.class_names import without_repeats

    pairs = []
    for name, _, value in (each.rpartition("=") for each in given):
        expected = f"expected a recall such as 0.6, or CLASS=0.6, got {value!r}"
        with named("floors"), reported_as(expected, ValueError):
            pairs.append((name, float(value)))
    if len(pairs) == 1 and not pairs[0][0]:
        return pairs[0][1]
    if not all(name for name, _ in pairs):
        expected = "expected one recall for all classes, or CLASS=RECALL each time"
        raise LevelheadError(f"{expected}, got {', '.join(given)}", parameter="floors")
    with named("floors"):
        return without_repeats(pairs) or None


def read_target(given: str | None, samples: SamplesRead) -> Any:
    """Return shares [K] from what --target says, or the word `estimate`; None if none are given."""
    from ..core.tune import ESTIMATE
    from ..io.arrays import target_shares

    if given == ESTIMATE:
        return given
    return target_shares(given, samples.names, samples.classes)


def with_background(samples: SamplesRead, background: str | None) -> Any:
    """Return the training counts of samples, with the class that is left alone, if there is one."""
    from ..core.counts import find_background, with_background

    if background is None:
        return samples.counts
    if samples.counts is None:
        advice = Advice("counts", None, "to give them")
        reason = "this needs the training samples of each class"
        raise LevelheadError(reason, parameter="background", advice=advice)
    alone = find_background(background, samples.classes, samples.names)
    return with_background(samples.counts, alone)


def refuse(reason: str, **given: object) -> None:
    """Raise if any of these options was given."""
    for name, value in given.items():
        if value is not None:
            raise LevelheadError(reason.format(value), parameter=name)


def read_array(source: Path | None, wanted: str = "logits") -> np.ndarray | None:
    from ..io import arrays

    if source is None:
        return None
    return arrays.read(source, wanted=wanted)
