"""`Tuned`: a rule, what it does to each class, what that is worth, and where it comes from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..show.plot import draw_changes
from ..show.style import html
from ..support import atomic, text
from ..support.arrays import (
    LARGEST_PROBABILITY,
    Array,
    as_array,
    is_torch,
    lower_masked,
    refuse_percentages,
    to_numpy,
    widen,
)
from ..support.errors import Advice, LevelheadError
from ..support.regular_file import check_regular_file
from ..support.types import Kind, LabelTask
from .adjustment import Adjustment
from .class_names import listed
from .class_names import title as class_title
from .floors import Floor
from .judge import Evidence
from .metrics import Tables, find_metric
from .priors import PriorEstimate
from .rules import RULES
from .tuned_json import from_dict, to_dict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 30  # classes that a summary shows
_PRICE = "macro_f1"  # the metric that weighs precision as much as recall
_FEW = 300  # samples below which choices for macro-F1 often lose (docs/decisions.md)


@dataclass(frozen=True, eq=False)
class Tuned:
    """What was chosen: what `tune` and its kin return. Errors, gains and shares are not in percent.

    Args:
        rule: its name: `offsets`, `shift`, `rescale`, `tau`, `scales` or `vector`.
        adjustment: what it does to each class, ``score_k = scale_k logit_k + offset_k``.
        evidence: what that is worth on samples it was not fitted on; None without labels.
        strength: of a rule that has one; None for rules with numbers for each class.
        counts: [K], training samples of each class; those of the labels where `counted`.
        names: of the classes, where they are known.
        kind: what it was tuned on: `logits`, `probabilities` or `log-probabilities`.
        chosen_on: `held-out`, `out-of-fold`, `unlabelled`, or `test`, which test data are not for.
        n: how many samples there were.
        temperature: divide adjusted scores by it for calibrated probabilities; None without labels.
        target: [K], the shares of the classes in deployment, or None.
        floors: recalls that were asked for.
        prior: what the target was estimated from, or None.
        warnings: one line each.
        task: `multiclass`, or `multilabel`, where samples may have several labels.
        background: the class that is left alone, or None.
        sources: the files it was chosen on, where they are known.

    >>> from levelhead import tune
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [200, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + np.log([1000, 200, 40])
    >>> tuned = tune(logits, labels, [1000, 200, 40])
    >>> tuned.rule, tuned.verdict, tuned.apply(logits[0]).shape
    ('offsets', 'better', (3,))
    """

    rule: str
    adjustment: Adjustment
    evidence: Evidence | None
    strength: float | None = None
    counts: tuple[float, ...] = ()
    counted: bool = False
    names: tuple[str, ...] | None = None
    kind: Kind = "logits"
    chosen_on: str = "held-out"
    n: int = 0
    temperature: float | None = None
    target: tuple[float, ...] | None = None
    floors: tuple[Floor, ...] = ()
    prior: PriorEstimate | None = None
    warnings: tuple[str, ...] = ()
    task: LabelTask = "multiclass"
    background: int | None = None
    sources: dict[str, Any] | None = None

    # ---- What it is worth ----------------------------------------------------------------------

    @property
    def classes(self) -> int:
        """K."""
        return self.adjustment.classes

    @property
    def multilabel(self) -> bool:
        """Whether samples may have several labels, each with an offset."""
        return self.task == "multilabel"

    @property
    def metric(self) -> str | None:
        """The name of what the gain is measured in; None without labels."""
        if self.evidence is None:
            return None
        return self.evidence.metric.name

    @property
    def gain(self) -> float | None:
        """How much better the metric is on samples that no fit has seen; None without labels."""
        if self.evidence is None:
            return None
        return self.evidence.gain

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """Where the gain on new samples lies; None without labels."""
        if self.evidence is None:
            return None
        return self.evidence.interval

    @property
    def verdict(self) -> str | None:
        """Whether it is better than the model as it is, in words; None without labels.

        *better*, *likely better*, *no difference seen*, *worse* or *changes nothing*.
        """
        if self.evidence is None:
            return None
        return self.evidence.verdict

    @property
    def worthwhile(self) -> bool | None:
        """Whether to apply it: the gain is above 0, or floors are met only so; None if not known."""
        if self.evidence is None:
            return None
        now_held = any(not floor.held_before and floor.probability >= 0.5 for floor in self.floors)
        return self.evidence.gain > 0 or now_held

    @property
    def tables(self) -> tuple[Tables, Tables]:
        """What is counted of each class, or of the samples that have each label; before and after."""
        if self.evidence is None:
            raise LevelheadError("there are no labels, so nothing is known of the classes")
        before = self.evidence.before
        after = self.evidence.after
        if not self.multilabel:
            return before, after
        return positives(before), positives(after)

    # ---- What it does --------------------------------------------------------------------------

    def apply(self, scores: Array) -> Array:
        """Return adjusted scores: the largest of a row is the class to predict.

        Of several labels per sample, each whose score is above 0 is to be predicted.

        Args:
            scores: [..., K], logits, probabilities or log-probabilities, as it was tuned; a single
                row, too. Of probabilities, their logarithms are adjusted; of several labels per
                sample, ``log p / (1 - p)``.
        """
        values = self._check_scores(scores)
        if self.kind == "probabilities" and self.multilabel:
            values = logit_of_probabilities(values)
        elif self.kind == "probabilities":
            values = log_of_probabilities(values)
        if is_torch(values):
            return self.adjustment.narrow_scores(values)
        return self.adjustment.narrow_scores(values).reshape(np.shape(values))

    def _check_scores(self, scores: Array) -> Array:
        """Return scores [..., K] as floats, after checking their shape and that they are numbers."""
        values = as_array(scores)
        if not is_torch(values):
            values = to_numpy(values)
            if values.dtype.kind not in "fiu":
                raise LevelheadError(f"expected numbers, got {values.dtype}", parameter="scores")
            if values.dtype.kind == "f":
                values = widen(values)
            else:
                values = values.astype(np.float64)
        if values.ndim < 1 or values.shape[-1] != self.classes:
            expected = f"expected [..., {self.classes}], a score for each class"
            raise LevelheadError(f"{expected}, got shape {list(values.shape)}", parameter="scores")
        if not is_torch(values):
            rows = values.reshape(-1, self.classes)
            if len(rows):
                return lower_masked(rows).reshape(values.shape)
            return values
        return values

    # ---- How it is told ------------------------------------------------------------------------

    def __str__(self) -> str:
        return "; ".join(self.facts().values())

    def __repr__(self) -> str:
        return f"Tuned({self})"

    def facts(self) -> dict[str, str]:
        """Return the result in words, part by part."""
        source = self.chosen_on
        if self.chosen_on == "test":
            source = "TEST DATA, so no test result of it is honest"
        rule = RULES[self.rule]
        strength = ""
        if self.strength is not None:
            strength = f" at strength {self.strength:.3f}"
        facts = {"rule": f"{rule.title}{strength}, chosen on {source} ({self.n} samples)"}
        if self.evidence is not None:
            facts["gain"] = f"{self.change_text()}: {self.verdict_text()}"
            if self.price_text():
                facts["price"] = self.price_text()
            if self.never_right_text():
                facts["no signal"] = self.never_right_text()
            if self.few_text():
                facts["few samples"] = self.few_text()
        if self.floors:
            facts["floors"] = "; ".join(floor.text(self.names) for floor in self.floors)
        if self.prior is not None:
            facts["target"] = f"target {self.prior.shares_text()}; by {self.prior.source}"
        if self.counted:
            facts["counts"] = "counts are those of the held-out labels"
        return facts

    def change_text(self) -> str:
        """Return the metric before and after, and the gain with its interval, in words."""
        if self.evidence is None:
            return ""
        return self.evidence.change_text()

    def verdict_text(self) -> str:
        """Return the verdict, with the probability of a gain where there may be one."""
        if self.evidence is None:
            return "not judged: there are no labels"
        return self.evidence.verdict_text()

    def price_text(self) -> str:
        """Return what accuracy the gain costs, where that is more than it brings; "" if not."""
        evidence = self.evidence
        if evidence is None or not evidence.metric.in_points or evidence.metric.as_they_come:
            return ""
        fall = float(np.mean(evidence.before.accuracy - evidence.after.accuracy))
        if fall <= max(evidence.gain, 0.0) or evidence.changed == 0:
            return ""
        price = f"accuracy falls by {100 * fall:.1f} points, more than that gain"
        if evidence.metric.name == _PRICE:
            return f"{price}: the metric error would avoid it"
        return f"{price}: the metric {_PRICE} weighs both"

    def never_right_text(self) -> str:
        """Return which classes are never right, before or after; "" if there are none."""
        never = []
        if self.evidence is not None:
            never = self.evidence.never_right.tolist()
        if not never:
            return ""
        which = listed([class_title(k, self.names) for k in never])
        whose = "their scores carry"
        if len(never) == 1:
            whose = "its scores carry"
        return f"never right, before or after: {which}; {whose} no signal that this can use"

    def few_text(self) -> str:
        """Return that a metric of precisions needs more samples than there are; "" if not."""
        evidence = self.evidence
        if evidence is None or evidence.n >= _FEW or evidence.changed == 0:
            return ""
        if evidence.metric.of_recalls or evidence.metric.as_they_come:
            return ""
        lose = f"up to a third of choices for {evidence.metric.title} on so few samples lose"
        return f"{lose}; hold out {_FEW} or more"

    def summary(self) -> str:
        """Return the result as text: what it gains, what it costs, and every class."""
        facts = self.facts()
        first = [facts.pop(name) for name in ("gain", "price") if name in facts]
        lines = ["; ".join(first)] if first else []
        lines += facts.values()
        evidence = self.evidence
        if evidence is not None:
            lines += ["", *self._overall_lines(evidence), "", *self._class_lines(evidence)]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def _overall_lines(self, evidence: Evidence) -> list[str]:
        rows = []
        for what in ("accuracy", "balanced_accuracy", "macro_f1"):
            metric = find_metric(what)
            shown = replace(evidence, metric=metric.for_labels() if self.multilabel else metric)
            before, after = shown.value_before, shown.value
            if metric.is_loss:
                before, after = 1 - before, 1 - after
            rows.append(f"{what.replace('_', ' '):20}{before:8.1%} -> {after:6.1%}")
        return rows

    def _class_lines(self, evidence: Evidence) -> list[str]:
        """Return a line for each class; of many classes, those whose recall changes most."""
        before, after = self.tables
        change = np.nan_to_num(np.abs(after.recall - before.recall), nan=-1.0)
        shown = np.sort(np.argsort(-change, kind="stable")[:_MOST_ROWS])
        width = max([5, *(len(class_title(int(i), self.names)) for i in shown)])
        lines = [f"{'class':{width}}  {'recall':>16}  {'precision':>16}  {'predicted share':>16}"]
        share_before, share_after = (self._share(t) for t in (evidence.before, evidence.after))
        for i in shown:
            cells = [
                _arrow(before.recall[i], after.recall[i]),
                _arrow(before.precision[i], after.precision[i]),
                _arrow(share_before[i], share_after[i]),
            ]
            lines.append(f"{class_title(int(i), self.names):{width}}  " + "  ".join(cells))
            if before.sizes[i] > 0 and before.recall[i] == 0 and after.recall[i] == 0:
                lines[-1] += "  (never right)"
        if len(change) > _MOST_ROWS:
            lines.append(f"and {len(change) - _MOST_ROWS} classes that change less")
        return lines

    def _share(self, tables: Tables) -> np.ndarray:
        """Return the share of the samples that is predicted to have each class or label, [K]."""
        if self.multilabel:
            return tables.predicted[:, 1] / tables.predicted.sum(axis=1)
        return tables.share

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw recall and precision of each class before and after (extra `plot`); return the Axes.

        An arrow leads from each value of the model as it is to that of the adjusted one.
        """
        before, after = self.tables
        where = "TEST DATA"
        if self.chosen_on != "test":
            where = self.chosen_on
        return draw_changes(
            (before.recall, after.recall),
            (before.precision, after.precision),
            np.array(self.counts),
            ax,
            names=self.names,
            counted="samples here" if self.counted else "training samples",
            title=f"{self.n} samples, {where}",
        )

    def _repr_html_(self) -> str:
        notes = [f"warning: {line}" for line in self.warnings]
        return html("Tuned", self.facts(), notes=notes)

    # ---- Where it is kept ----------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        return to_dict(self)

    def save(self, path: str | Path) -> None:
        """Write it to a file, in one step."""
        write_tuned(self, path)

    @staticmethod
    def load(path: str | Path) -> Tuned:
        """Return what `save` or `levelhead tune` wrote."""
        return read_tuned(path)


def positives(tables: Tables) -> Tables:
    """Return of tables [K, 2], of samples without and with each label, those with it, [K]."""
    return Tables(tables.right[:, 1], tables.predicted[:, 1], tables.sizes[:, 1])


def _refuse_others(values: Array) -> None:
    """Raise LevelheadError unless all values can be probabilities."""
    outside = bool((values < 0).any()) or bool((values > LARGEST_PROBABILITY).any())
    if outside:
        refuse_percentages(values.reshape(-1, values.shape[-1]))
        if bool((values < 0).any()):
            worst = float(values.min())
        else:
            worst = float(values.max())
        raise LevelheadError(
            f"expected probabilities, from 0 to 1, got {worst:g}; this was tuned on probabilities",
            parameter="scores",
            advice=Advice("kind", "logits", "to `tune` if these are logits"),
        )


def logit_of_probabilities(values: Array) -> Array:
    """Return ``log p / (1 - p)`` in float64, where 0 and 1 are 2^-53 and 1 - 2^-53."""
    _refuse_others(values)
    least = 2.0**-53
    if is_torch(values):
        return values.double().clamp(least, 1 - least).logit()
    inside = np.clip(np.asarray(values, np.float64), least, 1 - least)
    return np.log(inside) - np.log1p(-inside)


def log_of_probabilities(values: Array) -> Array:
    """Return the logarithms of probabilities, where 0 becomes the least that the type holds."""
    _refuse_others(values)
    if is_torch(values):
        import torch

        return values.clamp(min=torch.finfo(values.dtype).tiny).log()
    return np.log(np.maximum(values, np.finfo(values.dtype).tiny))


def _arrow(before: Any, after: Any) -> str:
    """Return a share before and after, in 16 characters; - for one that is not known."""
    one, other = ("-" if value != value else f"{value:.1%}" for value in (before, after))
    return f"{one:>6} -> {other:>6}"


def write_tuned(tuned: Tuned, path: str | Path, *, new: bool = False) -> None:
    """Write what was tuned, in one step; with `new`, replace no file."""
    atomic.write(path, json.dumps(tuned.to_dict(), indent=2) + "\n", new=new)


def read_tuned(path: str | Path) -> Tuned:
    """Return what `write_tuned` wrote."""
    check_regular_file(path, "one that `levelhead tune` wrote")
    try:
        return Tuned(**from_dict(text.parse_json(text.read(path))))
    except ValueError as flaw:
        reason = str(flaw).removeprefix(f"{path}: ")
        raise LevelheadError(f"{path}: not a file that `levelhead tune` wrote ({reason})") from None


def tuned_of(tuned: Tuned | str | Path) -> Tuned:
    """Return what was tuned, or what is in the file that `levelhead tune` wrote."""
    if isinstance(tuned, Tuned):
        return tuned
    if isinstance(tuned, str | Path):
        return read_tuned(tuned)
    expected = "expected what `tune` returned, or the path of a file that `levelhead tune` wrote"
    raise LevelheadError(f"{expected}, got {type(tuned).__name__}", parameter="tuned")


def check_for_head(tuned: Tuned, classes: int, names: Sequence[str] | None, where: str) -> None:
    """Raise LevelheadError unless a choice is for a head of so many classes in this order."""
    instead = "tune on this model's own logits"
    if tuned.adjustment.smoothing:
        zeros = "it was tuned on probabilities of which some are 0, which no head gives"
        raise LevelheadError(f"{where}: {zeros}; {instead}")
    RULES[tuned.rule].refuse_kind(tuned.kind)
    check_classes(tuned, classes, names, where)


def check_classes(tuned: Tuned, classes: int, names: Sequence[str] | None, where: str) -> None:
    """Raise LevelheadError unless a choice is for scores of so many classes in this order."""
    instead = "tune on this model's own scores"
    if tuned.multilabel and tuned.classes != classes:
        has = f"{where} has {classes} outputs, but {tuned.classes} labels were tuned"
        raise LevelheadError(f"{has}; {instead}")
    if not tuned.multilabel and tuned.classes != max(classes, 2):
        has = "gives a single logit"
        if classes != 1:
            has = f"has {classes} classes"
        tuned_on = f"but it was tuned on {tuned.classes} classes"
        raise LevelheadError(f"{where} {has}, {tuned_on}; {instead}")
    here, there = names or (), tuned.names or ()
    if any(one != other and one in there for one, other in zip(here, there, strict=False)):
        orders = f"another order ({listed(here)}) than the scores it was tuned on ({listed(there)})"
        raise LevelheadError(f"{where} has its classes in {orders}; {instead}")
