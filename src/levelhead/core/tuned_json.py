"""tuned.json: what was chosen, the head it is for, and the files it was chosen on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..support.errors import LevelheadError, check_choice, in_file
from ..support.fields import convert_fields_, record_from
from ..support.types import Kind
from .adjustment import Adjustment
from .floors import Floor
from .judge import Evidence
from .metrics import METRICS, Metric, Tables, error
from .priors import PriorEstimate
from .rules import RULES

FORMAT = "levelhead tuned 1"
LARGEST = 1e200  # of any number in a file
_OLD = "an older levelhead wrote it, before its first release; tune again"


@dataclass(frozen=True)
class _Numbers:
    """The entries of a tuned.json that are checked by their types alone."""

    rule: str
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    strength: float | None = None
    smoothing: float = 0.0
    counts: tuple[float, ...] = ()
    counted: bool = False
    names: tuple[str, ...] | None = None
    kind: Kind = "logits"
    chosen_on: str = "held-out"
    n: int = 0
    temperature: float | None = None
    target: tuple[float, ...] | None = None
    warnings: tuple[str, ...] = ()
    task: str = "multiclass"
    background: int | None = None

    def __post_init__(self) -> None:
        convert_fields_(self)


@dataclass(frozen=True)
class _Judged:
    """The numbers of an `Evidence`."""

    metric: str
    gain: float
    standard_error: float
    changed: int
    n: int
    level: float = 0.95

    def __post_init__(self) -> None:
        convert_fields_(self)
        if not 0 < self.level < 1:
            raise LevelheadError(
                f"expected a number between 0 and 1, got {self.level:g}", parameter="level"
            )
        if self.standard_error < 0:
            raise LevelheadError(
                f"expected 0 or more, got {self.standard_error:g}", parameter="standard_error"
            )


@dataclass(frozen=True)
class _Sources:
    """The files of a choice, each with its sha256."""

    files: dict[str, str]
    sha256: dict[str, str]

    def __post_init__(self) -> None:
        convert_fields_(self)
        if self.files.keys() != self.sha256.keys():
            raise LevelheadError(
                f"expected one for each file, got {list(self.sha256)}", parameter="sha256"
            )


def to_dict(tuned: Any) -> dict[str, Any]:
    """Return a `Tuned` as JSON can hold it."""
    adjustment = tuned.adjustment
    content: dict[str, Any] = {
        "format": FORMAT,
        "rule": tuned.rule,
        "strength": tuned.strength,
        "scale": adjustment.scale.tolist(),
        "offset": adjustment.offset.tolist(),
        "smoothing": adjustment.smoothing,
        "counts": list(tuned.counts),
        "counted": tuned.counted,
        "names": None if tuned.names is None else list(tuned.names),
        "kind": tuned.kind,
        "chosen_on": tuned.chosen_on,
        "n": tuned.n,
        "temperature": tuned.temperature,
        "target": None if tuned.target is None else list(tuned.target),
        "floors": [asdict(floor) for floor in tuned.floors],
        "task": tuned.task,
        "background": tuned.background,
        "verdict": tuned.verdict,
        "worthwhile": tuned.worthwhile,
        "evidence": None if tuned.evidence is None else tuned.evidence.to_dict(),
        "prior": None if tuned.prior is None else tuned.prior.to_dict(),
        "warnings": list(tuned.warnings),
    }
    if tuned.sources is not None:
        content["sources"] = tuned.sources
    return content


def from_dict(content: Any) -> dict[str, Any]:
    """Return the fields of the `Tuned` that `to_dict` wrote, checked."""
    if not isinstance(content, dict):
        raise LevelheadError("not a JSON object")
    if content.get("format") != FORMAT:
        known = {"gamma", "criterion"} & content.keys()
        raise LevelheadError(_OLD if known else f"expected the format {FORMAT!r}")
    given = {name: value for name, value in content.items() if value is not None}
    numbers = record_from(_Numbers, given)
    check_choice("rule", numbers.rule, RULES)
    check_choice("task", numbers.task, ("multiclass", "multilabel"))
    classes = len(numbers.scale)
    for name in ("offset", "counts", "names", "target"):
        values: tuple[Any, ...] = getattr(numbers, name) or ()
        unknown = not values and name != "offset"
        if not unknown and len(values) != classes:
            expected = f"expected {classes}, one per class, got {len(values)}"
            raise LevelheadError(expected, parameter=name)
    for name in ("scale", "offset", "counts", "target"):
        column = np.array(getattr(numbers, name) or ())
        if not (np.isfinite(column).all() and (np.abs(column) < LARGEST).all()):
            raise LevelheadError("expected finite numbers of a usual size", parameter=name)
    if classes == 0 or min(numbers.scale) <= 0:
        raise LevelheadError("expected positive numbers, one per class", parameter="scale")
    least = 0 if numbers.task == "multilabel" else np.nextafter(0, 1)
    if numbers.counts and min(numbers.counts) < least:
        raise LevelheadError("expected positive numbers", parameter="counts")
    for name in ("strength", "temperature", "smoothing"):
        value = getattr(numbers, name)
        if value is not None and not abs(value) < LARGEST:
            raise LevelheadError(f"expected a number of a usual size, got {value}", parameter=name)
    if numbers.temperature is not None and numbers.temperature <= 0:
        raise LevelheadError("expected a number above 0", parameter="temperature")
    if not 0 <= numbers.smoothing <= 1:
        raise LevelheadError("expected a number from 0 to 1", parameter="smoothing")
    if numbers.background is not None and not 0 <= numbers.background < classes:
        raise LevelheadError(f"expected a class below {classes}", parameter="background")
    shape = (classes, 2) if numbers.task == "multilabel" else (classes,)
    sources = given.get("sources")
    if sources is not None:
        with in_file("sources"):
            record_from(_Sources, sources)
    return dict(  # noqa: C408, for the names of the fields
        rule=numbers.rule,
        adjustment=Adjustment(np.array(numbers.scale), np.array(numbers.offset), numbers.smoothing),
        evidence=_evidence(given.get("evidence"), shape, numbers.target),
        strength=numbers.strength,
        counts=numbers.counts,
        counted=numbers.counted,
        names=numbers.names,
        kind=numbers.kind,
        chosen_on=numbers.chosen_on,
        n=numbers.n,
        temperature=numbers.temperature,
        target=numbers.target,
        floors=_floors(given.get("floors", []), classes),
        prior=_prior(given.get("prior")),
        warnings=numbers.warnings,
        task=numbers.task,  # type: ignore[arg-type]
        background=numbers.background,
        sources=sources,
    )


def _evidence(
    values: Any, shape: tuple[int, ...], target: Sequence[float] | None
) -> Evidence | None:
    """Return what was judged, with tables of a shape: [K], or [K, 2] of several labels."""
    if values is None:
        return None
    with in_file("evidence"):
        judged = record_from(_Judged, values)
        # A metric of somebody's own is known by its name alone: what it was worth is in the file.
        metric = METRICS.get(judged.metric, Metric(judged.metric, judged.metric, error))
        if target is not None:
            metric = metric.toward(np.array(target))
        if len(shape) > 1:
            metric = metric.for_labels()
        tables = {}
        for when in ("before", "after"):
            with in_file(when):
                tables[when] = _tables(values.get(when), shape)
    return Evidence(
        metric=metric,
        before=tables["before"],
        after=tables["after"],
        gain=judged.gain,
        standard_error=judged.standard_error,
        changed=judged.changed,
        n=judged.n,
        level=judged.level,
    )


def _tables(values: Any, shape: tuple[int, ...]) -> Tables:
    if not isinstance(values, dict):
        raise LevelheadError("not a JSON object")
    columns: dict[str, np.ndarray] = {}
    for name in ("right", "predicted", "sizes"):
        try:
            column = np.array(values.get(name), np.float64)
        except (TypeError, ValueError):
            column = np.zeros(0)
        if column.shape != shape or not (np.isfinite(column).all() and (column >= 0).all()):
            expected = f"expected numbers {list(shape)}, finite and none negative"
            raise LevelheadError(expected, parameter=name)
        columns[name] = column
    paid = _paid(values.get("paid"), shape[:-1])
    return Tables(columns["right"], columns["predicted"], columns["sizes"], paid)


def _paid(values: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return what predictions cost: a number, or one for each of several labels."""
    if values is None:
        return None
    try:
        paid = np.array(values, np.float64)
    except (TypeError, ValueError):
        paid = np.array(np.nan)
    if paid.shape != shape or not np.isfinite(paid).all():
        expected = f"expected numbers {list(shape)}" if shape else "expected a number"
        raise LevelheadError(f"{expected}, got {values!r}", parameter="paid")
    return paid


def _floors(values: Any, classes: int) -> tuple[Floor, ...]:
    if not isinstance(values, list):
        raise LevelheadError(f"expected a list of objects, got {values!r}", parameter="floors")
    with in_file("floors"):
        floors = [record_from(Floor, value) for value in values]
        for floor in floors:
            convert_fields_(floor)
            if not 0 <= floor.index < classes:
                raise LevelheadError(f"expected a class below {classes}", parameter="index")
    return tuple(floors)


def _prior(values: Any) -> PriorEstimate | None:
    """Return the shares that a target was estimated to be."""
    if values is None:
        return None
    with in_file("prior"):
        prior = record_from(PriorEstimate, values)
        try:
            shares = np.array(prior.shares, np.float64)
            target = np.array(prior.target, np.float64)
            interval = None if prior.interval is None else np.array(prior.interval, np.float64)
        except (TypeError, ValueError):
            raise LevelheadError("expected a list of numbers", parameter="shares") from None
        return PriorEstimate(
            shares=shares,
            target=target,
            interval=interval,
            method=prior.method,
            n=prior.n,
            held_out=prior.held_out,
            level=prior.level,
            names=prior.names,
            warnings=prior.warnings,
        )
