"""tuned.json: what was chosen, the head it is for, and the files it was chosen on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..support.errors import LevelheadError, check_choice, in_file
from ..support.fields import convert_fields_, record_from
from ..support.types import Kind, PriorMethod
from .adjustment import Adjustment
from .evidence import Evidence
from .floors import Floor
from .metrics import METRICS, Metric, Tables, error
from .priors import PriorEstimate
from .rules import RULES

FORMAT = "levelhead tuned 1"
LARGEST_NUMBER = 1e200  # of any number in a file
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
    reach: tuple[float, float] | None = None

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
        "reach": None if tuned.reach is None else list(tuned.reach),
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
        values: tuple[Any, ...] | None = getattr(numbers, name)
        unknown = values is None or (name == "counts" and not values)
        if values is not None and not unknown and len(values) != classes:
            expected = f"expected {classes}, one per class, got {len(values)}"
            raise LevelheadError(expected, parameter=name)
    for name in ("scale", "offset", "counts", "target", "reach"):
        column = np.array(getattr(numbers, name) or ())
        if not (np.isfinite(column).all() and (np.abs(column) < LARGEST_NUMBER).all()):
            raise LevelheadError("expected finite numbers of a usual size", parameter=name)
    if classes == 0 or min(numbers.scale) <= 0:
        raise LevelheadError("expected positive numbers, one per class", parameter="scale")
    least = 0
    if numbers.task != "multilabel":
        least = np.nextafter(0, 1)
    if numbers.counts and min(numbers.counts) < least:
        raise LevelheadError("expected positive numbers", parameter="counts")
    for name in ("strength", "temperature", "smoothing"):
        value = getattr(numbers, name)
        if value is not None and not abs(value) < LARGEST_NUMBER:
            raise LevelheadError(f"expected a number of a usual size, got {value}", parameter=name)
    if numbers.temperature is not None and numbers.temperature <= 0:
        raise LevelheadError("expected a number above 0", parameter="temperature")
    if not 0 <= numbers.smoothing <= 1:
        raise LevelheadError("expected a number from 0 to 1", parameter="smoothing")
    if numbers.background is not None and not 0 <= numbers.background < classes:
        raise LevelheadError(f"expected a class below {classes}", parameter="background")
    if numbers.task == "multilabel":
        shape = (classes, 2)
    else:
        shape = (classes,)
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
        prior=_prior(given.get("prior"), classes),
        warnings=numbers.warnings,
        task=numbers.task,  # type: ignore[arg-type]
        background=numbers.background,
        reach=numbers.reach,
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
                metric.loss(tables[when])  # which says what is missing for it
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
        columns[name] = _finite(values.get(name), shape, name)
        if (columns[name] < 0).any():
            raise LevelheadError("expected numbers of which none is negative", parameter=name)
    paid = values.get("paid")
    if paid is not None:  # a number, or one for each of several labels
        paid = _finite(paid, shape[:-1], "paid")
    return Tables(columns["right"], columns["predicted"], columns["sizes"], paid)


def _finite(values: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return numbers of a shape in float64, after checking that they are numbers, finite and not huge."""
    try:
        found = np.array(values)
    except ValueError:  # rows of different lengths
        found = np.zeros(0)
    whole = found.dtype.kind in "iuf" and found.shape == shape
    if (
        not whole or not (np.abs(found.astype(np.float64)) < LARGEST_NUMBER).all()
    ):  # False for NaN, too
        expected = "expected a finite number"
        if shape:
            expected = f"expected finite numbers {list(shape)}"
        raise LevelheadError(expected, parameter=name)
    return found.astype(np.float64)


def _floors(values: Any, classes: int) -> tuple[Floor, ...]:
    if not isinstance(values, list):
        raise LevelheadError(f"expected a list of objects, got {values!r}", parameter="floors")
    with in_file("floors"):
        floors = [record_from(Floor, value) for value in values]
        for floor in floors:
            convert_fields_(floor)
            if not 0 <= floor.index < classes:
                raise LevelheadError(f"expected a class below {classes}", parameter="index")
            for name, value in (("least", floor.least), ("probability", floor.probability)):
                if not 0 <= value <= 1:
                    expected = f"expected a number from 0 to 1, got {value:g}"
                    raise LevelheadError(expected, parameter=name)
    return tuple(floors)


@dataclass(frozen=True)
class _Estimated:
    """The entries of a `PriorEstimate` that are checked by their types alone."""

    method: PriorMethod
    n: int
    held_out: int
    level: float = 0.95
    names: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        convert_fields_(self)


def _prior(values: Any, classes: int) -> PriorEstimate | None:
    """Return the shares that a target was estimated to be."""
    if values is None:
        return None
    with in_file("prior"):
        estimated = record_from(_Estimated, values)
        if estimated.names is not None and len(estimated.names) != classes:
            expected = f"expected {classes}, one per class, got {len(estimated.names)}"
            raise LevelheadError(expected, parameter="names")
        interval = values.get("interval")
        if interval is not None:
            interval = _finite(interval, (classes, 2), "interval")
        return PriorEstimate(
            shares=_finite(values.get("shares"), (classes,), "shares"),
            target=_finite(values.get("target"), (classes,), "target"),
            interval=interval,
            method=estimated.method,
            n=estimated.n,
            held_out=estimated.held_out,
            level=estimated.level,
            names=estimated.names,
            warnings=estimated.warnings,
        )
