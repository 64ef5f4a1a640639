"""tuned.json: what was chosen, what it is worth, and the files it was chosen on.

`to_dict` writes a `Tuned` as plain values. `from_dict` reads them back, and trusts nothing: a file may have
been edited by hand, or made to do harm. Entries that a type says all about are read by the dataclasses here
(`_Numbers`, `_Judged`, `_Estimated`, `_Sources`), whose `record_from` names an entry that is missing or of
another type. What must fit together is checked after that (`_check_numbers`). A flaw anywhere is one line
that names the entry, such as ``evidence: before: right: expected finite numbers [3]``.

The file is one JSON object. Its entries are the fields of `Tuned`, with the adjustment's own beside them:

    format               "levelhead tuned 1"; another one is refused
    rule, strength       the name of the rule; its strength, or null
    scale, offset        [K] each: score_k = scale_k logit_k + offset_k, all that another program needs of logits
    smoothing            what is added to probabilities before their logarithm; 0 for logits
    counts, counted      [K], training samples; whether they were counted from the held-out labels
    names, kind, task    of the classes, or null; of the scores; multiclass or multilabel
    chosen_on, n         what the samples were, and how many
    temperature          by which adjusted scores are divided for probabilities, or null
    target, floors       [K] shares, or null; a list of {index, least, probability, held_before}
    background, reach    a class that is left alone; [mean, spread] of what arrives of an offset; or null
    verdict, worthwhile  for people and scripts; not read back
    evidence             {metric, before, after, gain, standard_error, changed, n, level}, or null; before and
                         after are {right, predicted, sizes}, [K] or of labels [K, 2], and with costs {paid}
    prior                what a target was estimated to be, with its interval, or null
    warnings             lines of text
    sources              {files, sha256} of what it was chosen on; missing where that is not known

An entry that may be missing has a default in `_Numbers`, and entries that are not known are left aside, so that
files of later versions can be read as long as the format is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..support.errors import LevelheadError, check_choice, in_file
from ..support.fields import convert_fields_, record_from
from ..support.types import Kind, PriorMethod
from .adjustment import Adjustment
from .arguments import check_level
from .evidence import Evidence
from .floors import Floor
from .metrics import METRICS, Metric, Tables
from .priors import PriorEstimate
from .rules import RULES

FORMAT = "levelhead tuned 1"
LARGEST_NUMBER = 1e200  # of any number in a file: products of larger ones would be infinite
Json = Any  # what a JSON file holds, not checked yet
_OLD = "an older levelhead wrote it, before its first release; tune again"


@dataclass(frozen=True)
class _Numbers:
    """The entries of a tuned.json that are checked by their types alone.

    The annotations are the schema: `convert_fields_` compares every value with them. What each entry means
    is said in `Tuned`.
    """

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
    """The numbers of an `Evidence`; its tables are read by `_tables_at`."""

    metric: str
    gain: float
    standard_error: float
    changed: int
    n: int
    level: float = 0.95

    def __post_init__(self) -> None:
        convert_fields_(self)
        check_level(self.level)
        if self.standard_error < 0:
            raise LevelheadError(
                f"expected 0 or more, got {self.standard_error:g}", parameter="standard_error"
            )


@dataclass(frozen=True)
class _Sources:
    """The files of a choice, each with its sha256: who reads it can tell whether they are still the same."""

    files: dict[str, str]  # {what it is, such as `logits`: path}
    sha256: dict[str, str]  # {the same: digest in hexadecimal}

    def __post_init__(self) -> None:
        convert_fields_(self)
        if self.files.keys() != self.sha256.keys():
            raise LevelheadError(
                f"expected one for each file, got {list(self.sha256)}", parameter="sha256"
            )


def to_dict(tuned: Any) -> dict[str, object]:
    """Return a `Tuned` as JSON can hold it: the entries of the module's table.

    Numbers are Python floats, which `json` writes so that they are read back to the last bit.

    Args:
        tuned: a `Tuned`. (tuned.py imports this file, so its type is not named here.)
    """
    adjustment = tuned.adjustment
    content: dict[str, object] = {
        "format": FORMAT,
        "rule": tuned.rule,
        "strength": tuned.strength,
        "scale": adjustment.scale.tolist(),
        "offset": adjustment.offset.tolist(),
        "smoothing": adjustment.smoothing,
        "counts": list(tuned.counts),
        "counted": tuned.counted,
        "names": _as_list(tuned.names),
        "kind": tuned.kind,
        "chosen_on": tuned.chosen_on,
        "n": tuned.n,
        "temperature": tuned.temperature,
        "target": _as_list(tuned.target),
        "floors": [asdict(floor) for floor in tuned.floors],
        "task": tuned.task,
        "background": tuned.background,
        "reach": _as_list(tuned.reach),
        # These two follow from the evidence: they are for people and scripts, and not read back.
        "verdict": tuned.verdict,
        "worthwhile": tuned.worthwhile,
        "evidence": None,
        "prior": None,
        "warnings": list(tuned.warnings),
    }
    if tuned.evidence is not None:
        content["evidence"] = tuned.evidence.to_dict()
    if tuned.prior is not None:
        content["prior"] = tuned.prior.to_dict()
    if tuned.sources is not None:
        content["sources"] = tuned.sources
    return content


def _as_list(values: Sequence[object] | None) -> list[object] | None:
    if values is None:
        return None
    return list(values)


def from_dict(content: Json) -> dict[str, Any]:
    """Return the fields of the `Tuned` that `to_dict` wrote, checked.

    Args:
        content: what the JSON file holds; anything, if it is not one of ours.

    Returns:
        {field: value}, for ``Tuned(**fields)``.

    Raises:
        LevelheadError: the entry that is missing or wrong, and what was expected.
    """
    if not isinstance(content, dict):
        raise LevelheadError("not a JSON object")
    if content.get("format") != FORMAT:
        if {"gamma", "criterion"} & content.keys():
            raise LevelheadError(_OLD)
        raise LevelheadError(f"expected the format {FORMAT!r}")
    # An entry that is null is as good as missing.
    entries = {name: value for name, value in content.items() if value is not None}
    # First what types say all about, then what must fit together.
    numbers = record_from(_Numbers, entries)
    _check_numbers(numbers)
    classes = len(numbers.scale)
    shape: tuple[int, ...] = (classes,)
    if numbers.task == "multilabel":
        shape = (classes, 2)
    sources = entries.get("sources")
    if sources is not None:
        with in_file("sources"):
            record_from(_Sources, sources)
    return dict(  # noqa: C408, for the names of the fields
        rule=numbers.rule,
        adjustment=Adjustment(np.array(numbers.scale), np.array(numbers.offset), numbers.smoothing),
        evidence=_evidence(entries.get("evidence"), shape, numbers.target),
        strength=numbers.strength,
        counts=numbers.counts,
        counted=numbers.counted,
        names=numbers.names,
        kind=numbers.kind,
        chosen_on=numbers.chosen_on,
        n=numbers.n,
        temperature=numbers.temperature,
        target=numbers.target,
        floors=_floors(entries.get("floors", []), classes),
        prior=_prior(entries.get("prior"), classes),
        warnings=numbers.warnings,
        task=numbers.task,
        background=numbers.background,
        reach=numbers.reach,
        sources=sources,
    )


def _check_numbers(numbers: _Numbers) -> None:
    """Raise LevelheadError unless all numbers fit together, and could be those of a choice.

    Adjusted scores are written over a model's own: a scale of 0 or NaN in an edited file would remove a
    class from it, and an offset of 1e308 would make infinities of every score.
    """
    check_choice("rule", numbers.rule, RULES)
    check_choice("task", numbers.task, ("multiclass", "multilabel"))

    # One number for each class, where there are some; counts need not be known.
    classes = len(numbers.scale)
    per_class: dict[str, Sequence[object] | None] = {
        "offset": numbers.offset,
        "counts": numbers.counts or None,
        "names": numbers.names,
        "target": numbers.target,
    }
    for name, values in per_class.items():
        if values is not None and len(values) != classes:
            expected = f"expected {classes}, one per class, got {len(values)}"
            raise LevelheadError(expected, parameter=name)

    # Finite, and small enough to be multiplied.
    for name in ("scale", "offset", "counts", "target", "reach"):
        column = np.array(getattr(numbers, name) or ())
        if not (np.abs(column) < LARGEST_NUMBER).all():  # False for NaN, too
            raise LevelheadError("expected finite numbers of a usual size", parameter=name)
    for name in ("strength", "temperature", "smoothing"):
        value = getattr(numbers, name)
        if value is not None and not abs(value) < LARGEST_NUMBER:
            raise LevelheadError(f"expected a number of a usual size, got {value}", parameter=name)

    # Within the range of each.
    if classes == 0 or min(numbers.scale) <= 0:
        raise LevelheadError("expected positive numbers, one per class", parameter="scale")
    if numbers.counts:
        fewest = min(numbers.counts)
        # A label of several may be one that no training sample has.
        if fewest < 0 or (fewest == 0 and numbers.task != "multilabel"):
            raise LevelheadError("expected positive numbers", parameter="counts")
    if numbers.temperature is not None and numbers.temperature <= 0:
        raise LevelheadError("expected a number above 0", parameter="temperature")
    if not 0 <= numbers.smoothing <= 1:
        raise LevelheadError("expected a number from 0 to 1", parameter="smoothing")
    if numbers.background is not None and not 0 <= numbers.background < classes:
        raise LevelheadError(f"expected a class below {classes}", parameter="background")


def _evidence(
    values: Json, shape: tuple[int, ...], target: Sequence[float] | None
) -> Evidence | None:
    """Return what was judged; None if nothing was.

    Args:
        values: the entry `evidence`.
        shape: of its tables: (K,), or (K, 2) of several labels.
        target: [K], toward which the metric was measured.

    Raises:
        LevelheadError: an entry that is missing, of another type or shape, or beyond its range.
    """
    if values is None:
        return None
    with in_file("evidence"):
        judged = record_from(_Judged, values)
        # A metric of somebody's own is known by its name alone; what it was worth is in the file.
        metric = METRICS.get(judged.metric, Metric.of_name(judged.metric))
        # The same metric as was measured: toward the target, and of labels.
        if target is not None:
            metric = metric.toward(np.array(target))
        if len(shape) > 1:
            metric = metric.for_labels()
        before = _tables_at("before", values, shape, metric)
        after = _tables_at("after", values, shape, metric)
    return Evidence(
        metric=metric,
        before=before,
        after=after,
        gain=judged.gain,
        standard_error=judged.standard_error,
        changed=judged.changed,
        n=judged.n,
        level=judged.level,
    )


def _tables_at(when: str, values: Json, shape: tuple[int, ...], metric: Metric) -> Tables:
    """Return the tables of an entry, `before` or `after`, after checking that the metric can use them.

    Args:
        when: `before` or `after`.
        values: the entry `evidence`, that holds both.
        shape: of each column.
        metric: what they are asked for; that of costs needs `paid`.
    """
    with in_file(when):
        entry = values.get(when)
        if not isinstance(entry, dict):
            raise LevelheadError("not a JSON object")
        # Counts, or sums of weights toward a target: 0 or more of each class.
        columns: dict[str, np.ndarray] = {}
        for name in ("right", "predicted", "sizes"):
            columns[name] = _finite(entry.get(name), shape, name)
            if (columns[name] < 0).any():
                raise LevelheadError("expected numbers of which none is negative", parameter=name)
        paid = entry.get("paid")
        if paid is not None:  # a number, or one for each of several labels
            paid = _finite(paid, shape[:-1], "paid")
        tables = Tables(columns["right"], columns["predicted"], columns["sizes"], paid)
        metric.loss(tables)  # which says what is missing for it
    return tables


def _finite(values: Json, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return numbers in float64, after checking that they have a shape and are finite and not huge.

    Args:
        values: lists of numbers, or a number for the shape (), if it is as it should be.
        shape: which they must have.
        name: of the entry, for the message.
    """
    try:
        numbers = np.array(values)
    except ValueError:  # rows of different lengths
        numbers = np.zeros(0)
    # Text, bools and lists of other lengths have another type or shape.
    usable = numbers.dtype.kind in "iuf" and numbers.shape == shape
    if usable:
        numbers = numbers.astype(np.float64)
        usable = bool((np.abs(numbers) < LARGEST_NUMBER).all())  # False for NaN, too
    if not usable:
        expected = "expected a finite number"
        if shape:
            expected = f"expected finite numbers {list(shape)}"
        raise LevelheadError(expected, parameter=name)
    return numbers


def _floors(values: Json, classes: int) -> tuple[Floor, ...]:
    """Return the floors of K classes, each within what a recall and a probability can be.

    Args:
        values: the entry `floors`: a list of objects with the fields of `Floor`.
        classes: K.
    """
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


def _prior(values: Json, classes: int) -> PriorEstimate | None:
    """Return the shares that a target was estimated to be; None if none was estimated.

    Args:
        values: the entry `prior`, as `PriorEstimate.to_dict` wrote it.
        classes: K.
    """
    if values is None:
        return None
    # Entries by their types first, then the arrays, of which the shape depends on K.
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
