"""tuned.json: what `levelhead tune` chose, the head it is for, and the files it was chosen on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core import atomic
from ..core.choices import BiasPolicy, Kind, LabelTask, Metric
from ..core.errors import LevelheadError, check_choice, in_file
from ..core.per_class import listed
from ..core.regular_file import check_regular_file
from ..io import arrays, text
from ..io.fields import convert_fields_, record_from
from ..rules.rule import RULES, PerClass


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
            raise LevelheadError(f"expected logits, labels, counts, norms, got {list(self.files)}", parameter="files")
        if "counts" not in self.files and self.counts is None:
            raise LevelheadError("expected counts, or the file that they are in", parameter="files")
        if self.files.keys() != self.sha256.keys():
            raise LevelheadError(f"expected one for each file, got {list(self.sha256)}", parameter="sha256")
        if self.counts is not None and not (self.counts and min(self.counts) >= 0):
            raise LevelheadError(f"expected positive numbers, got {list(self.counts)}", parameter="counts")


@dataclass(frozen=True)
class Choice:
    """What was chosen: the entries of a tuned.json, or of a `Tuned`, that are used; `null` is an absent entry."""

    gamma: float
    rule: str
    chosen_on: str
    level: float | None = None
    interval: tuple[float, float] | None = None
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None
    n: int | None = None
    classes: int | None = None
    counts: tuple[float, ...] | None = None
    names: tuple[str, ...] | None = None
    bias: BiasPolicy | None = None
    floors_met_at_zero: bool | None = None
    metric: Metric | None = None
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()
    second: float | None = None
    temperature: float | None = None
    candidates: tuple[dict[str, Any], ...] = ()
    why: str = ""
    smoothing: float = 0.0
    task: LabelTask = "multiclass"
    kind: Kind | None = None

    def __post_init__(self) -> None:
        convert_fields_(self)
        if self.level is not None and not 0 < self.level < 1:
            raise LevelheadError(f"expected a number between 0 and 1, got {self.level:g}", parameter="level")
        for name, value in (("n", self.n), ("classes", self.classes)):
            if value is not None and value < 1:
                raise LevelheadError(f"expected at least 1, got {value}", parameter=name)
        check_choice("rule", self.rule, tuple(RULES))
        if isinstance(RULES[self.rule], PerClass) and not (self.scale and self.offset):
            raise LevelheadError(f"the rule {self.rule} needs a scale and an offset for each class")
        if self.scale and min(self.scale) <= 0:
            raise LevelheadError(f"expected positive numbers, got {list(self.scale)}", parameter="scale")
        if self.temperature is not None and self.temperature <= 0:
            raise LevelheadError(f"expected a number above 0, got {self.temperature:g}", parameter="temperature")
        if self.multilabel and (RULES[self.rule].multiplies or not self.offset):
            raise LevelheadError("several labels per sample need the rule shift and an offset for each label")
        if self.counts and (min(self.counts) < 0 or (0 in self.counts and not self.multilabel)):
            raise LevelheadError(f"expected positive numbers, got {list(self.counts)}", parameter="counts")
        for name, values in (
            ("counts", self.counts),
            ("names", self.names),
            ("scale", self.scale),
            ("offset", self.offset),
        ):
            if values and self.classes not in (None, len(values)):
                raise LevelheadError(f"expected {self.classes}, one per class, got {len(values)}", parameter=name)

    @property
    def multilabel(self) -> bool:
        """Whether samples may have several labels, each with an offset."""
        return self.task == "multilabel"

    def counts_for(self, classes: int, names: Sequence[str] | None, where: str) -> np.ndarray:
        """Return the counts, after checking that the choice is for a head of so many classes, in the same order.

        A head with one logit has two classes: counts are [negative, positive].
        """
        counts = np.array(self.counts)
        if (reason := RULES[self.rule].refuses_kind(self.kind)) is not None:
            raise LevelheadError(f"{where}: {reason}")
        if self.multilabel and len(counts) != classes:
            raise LevelheadError(
                f"{where} has {classes} outputs, but {len(counts)} labels were tuned; tune on this model's own logits"
            )
        if not self.multilabel and len(counts) != max(classes, 2):
            has = "gives a single logit" if classes == 1 else f"has {classes} classes"
            raise LevelheadError(
                f"{where} {has}, but gamma was tuned on {len(counts)} classes; tune on this model's own logits"
            )
        here, there = names or (), self.names or ()
        if any(one != other and one in there for one, other in zip(here, there, strict=False)):
            raise LevelheadError(
                f"{where} has its classes in another order ({listed(here)}) than the logits that "
                f"gamma was tuned on ({listed(there)}); tune on this model's own logits"
            )
        return counts.astype(np.int64) if (counts == np.floor(counts)).all() else counts


def write_tuned(choice: Mapping[str, Any], path: str | Path, sources: Mapping[str, Any] | None = None) -> None:
    """Write a choice, atomically, with the files it was made on where they are known."""
    atomic.write(path, json.dumps({**choice} | ({} if sources is None else {"sources": sources}), indent=2) + "\n")


def read_choice(path: str | Path, *, rule: str | None = None) -> dict[str, Any]:
    """Return what `write_tuned` wrote, after checking the entries that are used, and that it is for the rule given."""
    check_regular_file(path, "one that `levelhead tune` wrote")
    try:
        choice = text.parse_json(text.read(path))
        record_from(Choice, choice)
        if choice.get("sources"):
            with in_file("sources"):
                record_from(_Sources, choice["sources"])
    except ValueError as error:
        flaw = str(error).removeprefix(f"{path}: ")
        raise LevelheadError(f"{path}: not a file that `levelhead tune` wrote ({flaw})") from None
    if rule not in (None, choice["rule"]):
        raise LevelheadError(f"{path}: gamma was chosen for rule {choice['rule']!r}, not {rule!r}; leave out the rule")
    return choice


def choice_of(tuned: Any) -> Choice:
    """Return what was chosen, with its counts, from a `Tuned` or the path of a file that `levelhead tune` wrote."""
    if isinstance(tuned, str | Path):
        content = read_choice(tuned)
    elif hasattr(tuned, "to_dict") and hasattr(tuned, "gamma"):
        content = tuned.to_dict()
    else:
        raise LevelheadError(
            "expected what `tune` returned, or the path of a file that `levelhead tune` wrote, got "
            f"{type(tuned).__name__}",
            parameter="tuned",
        )
    counts = counts_of(content)
    if counts is None:
        source = f"{tuned}: " if isinstance(tuned, str | Path) else ""
        raise LevelheadError(f"{source}does not say which counts gamma was chosen with; tune again")
    kind = content.get("kind") or (content.get("sources") or {}).get("kind")  # where older files have it
    return replace(record_from(Choice, content), counts=counts, kind=kind)


def counts_of(choice: Mapping[str, Any]) -> tuple[float, ...] | None:
    """Return the counts of a tuned.json; older files have them among their sources only, or not at all."""
    found = choice.get("counts") or (choice.get("sources") or {}).get("counts")
    return tuple(map(float, found)) if found else None


def describe_sources(
    files: Mapping[str, str | Path | None],
    counts: np.ndarray,
    *,
    kind: Kind,
    target: str | None,
    background: str | None = None,
) -> dict[str, Any]:
    """Return what a choice was made on, for `write_tuned`: files with their sha256, counts, and how to read them."""
    given = {what: str(source) for what, source in files.items() if source is not None}
    return {
        "files": given,
        "sha256": {what: arrays.sha256(source) for what, source in given.items()},
        "kind": kind,
        "target": target,
        "counts": counts.tolist(),
        **({} if background is None else {"background": background}),
    }
