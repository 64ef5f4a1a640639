"""tuned.json: what `levelhead tune` chose, the head it is for, and the files it was chosen on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..core.class_names import listed
from ..core.rules import RULES, PerClass
from ..io import arrays
from ..path.curve import Curve
from ..support import atomic, text
from ..support.errors import LevelheadError, check_choice, in_file
from ..support.fields import convert_fields_, fits, record_from
from ..support.regular_file import check_regular_file
from ..support.types import Kind
from .priors import PriorEstimate
from .tuned import NOT_IN_JSON, Candidate, LabelChoice, Tuned

MOST_CLASSES = 100_000  # of a file that does not list them
LARGEST_STRENGTH = 1e200  # scores of that size have such strengths
_Part = TypeVar("_Part", Candidate, LabelChoice)


@dataclass(frozen=True)
class _Sources:
    """The files of a choice, each with its sha256, and how they were read; counts are those of the classes."""

    files: dict[str, str]
    sha256: dict[str, str]
    kind: Kind
    target: str | None
    counts: tuple[float, ...] | None = None
    background: str | None = None

    def __post_init__(self) -> None:
        convert_fields_(self)
        if not {"logits"} <= self.files.keys() <= {"logits", "labels", "counts", "norms"}:
            raise LevelheadError(
                f"expected logits, labels, counts, norms, got {list(self.files)}", parameter="files"
            )
        if "counts" not in self.files and self.counts is None:
            raise LevelheadError("expected counts, or the file that they are in", parameter="files")
        if self.files.keys() != self.sha256.keys():
            raise LevelheadError(
                f"expected one for each file, got {list(self.sha256)}", parameter="sha256"
            )
        if self.counts is not None and not (self.counts and min(self.counts) >= 0):
            raise LevelheadError(
                f"expected positive numbers, got {list(self.counts)}", parameter="counts"
            )


def write_tuned(tuned: Tuned, path: str | Path, *, new: bool = False) -> None:
    """Write what was tuned, atomically, with the files it was chosen on where they are known; new: replace no file."""
    atomic.write(path, json.dumps(tuned.to_dict(), indent=2) + "\n", new=new)


def read_tuned(path: str | Path, *, rule: str | None = None) -> Tuned:
    """Return what `write_tuned` wrote, also an older version, with curves known at gamma alone; check its rule."""
    check_regular_file(path, "one that `levelhead tune` wrote")
    try:
        tuned = _from_json(text.parse_json(text.read(path)))
    except ValueError as error:
        flaw = str(error).removeprefix(f"{path}: ")
        raise LevelheadError(f"{path}: not a file that `levelhead tune` wrote ({flaw})") from None
    if rule not in (None, tuned.rule):
        raise LevelheadError(
            f"{path}: gamma was chosen for rule {tuned.rule!r}, not {rule!r}; leave out the rule"
        )
    return tuned


def tuned_of(tuned: Tuned | str | Path) -> Tuned:
    """Return what was tuned, with its counts, from itself or from the path of a file that `levelhead tune` wrote."""
    if not isinstance(tuned, Tuned | str | Path):
        expected = (
            "expected what `tune` returned, or the path of a file that `levelhead tune` wrote"
        )
        raise LevelheadError(f"{expected}, got {type(tuned).__name__}", parameter="tuned")
    known = tuned if isinstance(tuned, Tuned) else read_tuned(tuned)
    _check(known)
    if not known.counts:
        source = "" if isinstance(tuned, Tuned) else f"{tuned}: "
        raise LevelheadError(f"{source}does not say which counts gamma was chosen with; tune again")
    return known


def counts_for(tuned: Tuned, classes: int, names: Sequence[str] | None, where: str) -> np.ndarray:
    """Return the counts [K] of a choice for a head of so many classes in this order; [2] if it has one logit."""
    counts, instead = np.array(tuned.counts), "tune on this model's own logits"
    if (reason := RULES[tuned.rule].refuses_kind(tuned.kind)) is not None:
        raise LevelheadError(f"{where}: {reason}")
    if tuned.multilabel and len(counts) != classes:
        raise LevelheadError(
            f"{where} has {classes} outputs, but {len(counts)} labels were tuned; {instead}"
        )
    if not tuned.multilabel and len(counts) != max(classes, 2):
        has = "gives a single logit" if classes == 1 else f"has {classes} classes"
        raise LevelheadError(
            f"{where} {has}, but gamma was tuned on {len(counts)} classes; {instead}"
        )
    here, there = names or (), tuned.names or ()
    if any(one != other and one in there for one, other in zip(here, there, strict=False)):
        orders = f"another order ({listed(here)}) than the logits that gamma was tuned on ({listed(there)})"
        raise LevelheadError(f"{where} has its classes in {orders}; {instead}")
    return counts.astype(np.int64) if (counts == np.floor(counts)).all() else counts


def describe_sources(
    files: Mapping[str, Any],
    counts: np.ndarray,
    *,
    kind: Kind,
    target: str | None,
    background: str | None = None,
) -> dict[str, Any]:
    """Return what a choice was made on, for `Tuned.sources`: files with their sha256, counts, and how to read them."""
    given = {what: str(source) for what, source in files.items() if source is not None}
    return {
        "files": given,
        "sha256": {what: arrays.sha256(source) for what, source in given.items()},
        "kind": kind,
        "target": target,
        "counts": counts.tolist(),
        **({} if background is None else {"background": background}),
    }


def _from_json(content: Any) -> Tuned:
    """Return what the entries of a tuned.json say; `null` is an absent entry, and older files have few of them."""
    if not isinstance(content, dict):
        raise LevelheadError("not a JSON object")
    given = {
        name: value
        for name, value in content.items()
        if value is not None and name not in NOT_IN_JSON
    }
    if not fits(given.get("gamma", 0.0), float):
        raise LevelheadError(f"expected a number, got {given['gamma']!r}", parameter="gamma")
    recalls = {name: _recall(name, given.pop(name, [])) for name in ("recall", "recall_at_zero")}
    if (sources := content.get("sources") or None) is not None:
        with in_file("sources"):
            record_from(_Sources, sources)
        older = {
            "counts": sources.get("counts"),
            "kind": sources["kind"],
        }  # where older files have them
        given = {name: value for name, value in older.items() if value} | given
    unsaid = {
        "interval": None,
        "criterion": "",
        "n": 0,
        "classes": 0,
        "plateau": [0.0, 0.0],
        "kind": None,
    }
    unknown = Curve(np.zeros(1), np.full(1, np.nan), 0.0)
    parts = {
        "curve": unknown,
        "criterion_curve": unknown,
        "sources": sources,
        "prior": _prior(content.get("prior")),
        "candidates": _records(Candidate, content.get("candidates"), "candidates"),
        "labels": _records(LabelChoice, content.get("labels"), "labels"),
    }
    tuned = record_from(Tuned, unsaid | given | parts)
    convert_fields_(tuned)
    for name in {"n", "classes"} & given.keys():
        if getattr(tuned, name) < 1:
            raise LevelheadError(f"expected at least 1, got {getattr(tuned, name)}", parameter=name)
    if (
        tuned.classes > MOST_CLASSES and not tuned.counts
    ):  # as many counts would take as much of the file
        raise LevelheadError(
            f"expected the counts of so many classes, got {tuned.classes} alone",
            parameter="classes",
        )
    for name in ("gamma", "interval", "plateau", "temperature"):
        found = getattr(tuned, name)
        for number in found if isinstance(found, tuple) else [found] * (found is not None):
            if abs(number) > LARGEST_STRENGTH or (
                name == "temperature" and abs(number) < 1 / LARGEST_STRENGTH
            ):
                raise LevelheadError(
                    f"expected a number of a usual size, got {number:g}", parameter=name
                )
    _check(tuned)
    value = tuned.mismatch if tuned.value is None else tuned.value
    here = Curve(
        np.array([tuned.gamma]), np.array([np.nan if value is None else value]), tuned.gamma
    )
    return replace(tuned, curve=here, criterion_curve=here, **recalls)


def _recall(name: str, values: Any) -> tuple[float, ...]:
    """Return recalls, of which JSON has those of classes without a sample as null."""
    if not (isinstance(values, list) and fits(tuple(values), tuple[float | None, ...])):
        raise LevelheadError(f"expected a list of numbers, got {values!r}", parameter=name)
    return tuple(np.nan if value is None else float(value) for value in values)


def _records(kind: type[_Part], values: Any, name: str) -> tuple[_Part, ...]:
    """Return the records that a list of JSON objects holds."""
    if values is not None and not isinstance(values, list):
        raise LevelheadError(f"expected a list of objects, got {values!r}", parameter=name)
    with in_file(name):
        found = [record_from(kind, value) for value in values or ()]
        for part in found:
            convert_fields_(part)
    return tuple(found)


def _prior(values: Any) -> PriorEstimate | None:
    """Return the shares that a target was estimated to be."""
    if values is None:
        return None
    with in_file("prior"):
        if isinstance(values, dict) and "shares" in values:
            values = {"target": values["shares"]} | values  # which older files decided by
        prior = record_from(PriorEstimate, values)
        try:
            shares, target = np.array(prior.shares, np.float64), np.array(prior.target, np.float64)
            interval = None if prior.interval is None else np.array(prior.interval, np.float64)
        except (TypeError, ValueError):
            raise LevelheadError("expected a list of numbers", parameter="shares") from None
        prior = replace(prior, shares=shares, target=target, interval=interval)
        convert_fields_(prior)
    return prior


def _check(tuned: Tuned) -> None:
    """Raise LevelheadError where the parts of a choice do not fit each other."""
    if (
        not 1e-9 < tuned.level < 1 - 1e-9
    ):  # nearer to 0 and 1, no normal distribution has a quantile
        raise LevelheadError(
            f"expected a number between 0 and 1, got {tuned.level:g}", parameter="level"
        )
    if (tuned.value is None) != (tuned.value_at_zero is None) or (
        tuned.labels and tuned.value is None
    ):
        raise LevelheadError(
            "expected a value at gamma and one at 0, got one of them or none", parameter="value"
        )
    check_choice("rule", tuned.rule, tuple(RULES))
    if isinstance(RULES[tuned.rule], PerClass) and not (tuned.scale and tuned.offset):
        raise LevelheadError(f"the rule {tuned.rule} needs a scale and an offset for each class")
    if tuned.scale and not tuned.offset:
        raise LevelheadError(
            "expected one for each class, as there is a scale of each", parameter="offset"
        )
    if tuned.scale and min(tuned.scale) <= 0:
        raise LevelheadError(
            f"expected positive numbers, got {list(tuned.scale)}", parameter="scale"
        )
    if tuned.temperature is not None and tuned.temperature <= 0:
        raise LevelheadError(
            f"expected a number above 0, got {tuned.temperature:g}", parameter="temperature"
        )
    if any(one.interval is not None and one.gain is None for one in tuned.labels):
        raise LevelheadError(
            "expected a gain wherever there is an interval of it", parameter="labels"
        )
    if tuned.multilabel and (RULES[tuned.rule].multiplies or not tuned.offset):
        raise LevelheadError(
            "several labels per sample need the rule shift and an offset for each label"
        )
    if tuned.counts and (min(tuned.counts) < 0 or (0 in tuned.counts and not tuned.multilabel)):
        raise LevelheadError(
            f"expected positive numbers, got {list(tuned.counts)}", parameter="counts"
        )
    for name in ("counts", "names", "scale", "offset", "labels"):
        values = getattr(tuned, name)
        if values and tuned.classes not in (0, len(values)):
            raise LevelheadError(
                f"expected {tuned.classes}, one per class, got {len(values)}", parameter=name
            )
        if values and name not in ("names", "labels") and not np.isfinite(values).all():
            raise LevelheadError(f"expected finite numbers, got {list(values)}", parameter=name)
