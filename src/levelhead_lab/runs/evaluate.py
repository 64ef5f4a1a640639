"""A trained head before and after an adjustment, measured on the test set; it is chosen without it."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from levelhead.core.arguments import finite_number
from levelhead.core.class_labels import as_positions
from levelhead.core.gamma_path import find_path_rule
from levelhead.core.head import Head, check_finite
from levelhead.core.measure import Measures, measure
from levelhead.core.rules import DEFAULT, RULES, Rescale, Rule, Tau, find_rule
from levelhead.core.tune import tune
from levelhead.core.tuned import Tuned
from levelhead.support.errors import Advice, LevelheadError, visible
from levelhead.support.fields import to_plain
from levelhead.support.warnings import quiet

from ..lab.snapshot import Snapshot
from ..methods.method import Method
from ..methods.rs import rescale_head
from ..methods.tau_norm import tau_normalize_head

LEVELED_BY = {rescale_head: Rescale.name, tau_normalize_head: Tau.name}  # what a method adjusts by


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A snapshot's head before and after an adjustment, measured on the test set."""

    tuned: Tuned  # what is done to the head; without evidence where its strength was given
    names: tuple[str, ...]  # [K], of the classes
    counts: np.ndarray  # [K], of the training samples
    head: Head  # after the adjustment
    before: Measures
    after: Measures

    @property
    def chosen(self) -> bool:
        """Whether held-out samples chose it."""
        return self.tuned.evidence is not None

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "counts": self.counts.tolist(),
            "rule": self.tuned.rule,
            "strength": self.tuned.strength,
            "tuned": self.tuned.to_dict() if self.chosen else None,
            "before": _to_json(self.before),
            "after": _to_json(self.after),
        }

    def text(self, *, most: int = 20) -> str:
        """Return a table for people: errors, groups and, if there are at most `most`, classes."""
        title = RULES[self.tuned.rule].title
        rows = self._rows(classes=len(self.names) <= most)
        width = max(len(what) for what, *_ in rows)
        adjusted = f"with {title}"
        last = max(13, len(adjusted) + 2)
        lines = [f"{'test set':{width}}{'as trained':>13}{adjusted:>{last}}"]
        for what, before, after in rows:
            lines.append(f"{what:{width}}{_share_text(before):>13}{_share_text(after):>{last}}")
        lines.append("")
        if self.chosen:
            lines += self.tuned.facts().values()
            lines += [f"warning: {line}" for line in self.tuned.warnings]
        elif self.tuned.adjustment.changes:
            lines.append(f"{title} at strength {self.tuned.strength:g}, as given")
        else:
            lines.append("strength 0: the head is as trained")
        return "\n".join(lines)

    def _rows(self, *, classes: bool) -> list[tuple[str, float, float]]:
        """Return (what, before, after) of every row of the table."""
        before, after = self.before, self.after
        names = [visible(name) for name in self.names]
        worst = f"worst recall ({names[before.worst_class]}; {names[after.worst_class]})"
        rows = [
            (f"error (n = {before.n})", before.error, after.error),
            ("balanced error", before.balanced_error, after.balanced_error),
            ("macro F1", _macro_f1(before), _macro_f1(after)),
            (worst, before.worst_recall, after.worst_recall),
        ]
        for group in before.groups:
            what = f"recall of {group}-shot classes"
            rows.append((what, before.groups[group], after.groups[group]))
        if classes:
            for i, name in enumerate(names):
                what = f"recall of {name} ({self.counts[i]} in training)"
                rows.append((what, before.recall[i], after.recall[i]))
        return rows


def evaluate(
    snapshot: Snapshot, *, strength: float | None = None, rule: str | Rule = DEFAULT
) -> Evaluation:
    """Measure a head before and after an adjustment, which its held-out samples choose.

    With a strength, nothing is chosen: the rule, which must have one, is applied at it.
    """
    if strength is None:
        tuned = tune_held_out(snapshot, rule)
    else:
        tuned = given_strength(snapshot, rule, strength)
    return evaluate_tuned(snapshot, tuned)


def evaluate_tuned(snapshot: Snapshot, tuned: Tuned) -> Evaluation:
    """Measure a head on its test samples before and after what was chosen."""
    head = snapshot.head
    adjusted = tuned.adjustment.head(head)
    labels = snapshot.labels["test"]
    return Evaluation(
        tuned=tuned,
        names=tuple(head.names or map(str, range(head.classes))),
        counts=snapshot.counts,
        head=adjusted,
        before=measure(snapshot.logits("test"), labels, snapshot.counts),
        after=measure(snapshot.logits("test", adjusted), labels, snapshot.counts),
    )


def tune_held_out(snapshot: Snapshot, rule: str | Rule = DEFAULT) -> Tuned:
    """Choose on the samples that a training held out, by a rule that may need the head's norms."""
    if "held-out" not in snapshot.features:
        raise LevelheadError(
            "this run was trained without held-out samples to choose on",
            advice=Advice("strength", None, "to set the strength of a rule"),
        )
    by = find_rule(rule).with_norms(snapshot.head.norms)
    with quiet():  # tuned.warnings has them
        return tune(*held_out(snapshot), rule=by, names=snapshot.head.names)


def held_out(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    labels = as_positions(snapshot.labels["held-out"])
    return snapshot.logits("held-out"), labels, snapshot.counts


def given_strength(snapshot: Snapshot, rule: str | Rule, strength: float) -> Tuned:
    """Return what a rule does to a head at a strength that no samples chose."""
    fixed = replace(find_path_rule(rule), strength=finite_number("strength", strength))
    head = check_finite(snapshot.head)
    return Tuned(
        rule=fixed.name,
        adjustment=fixed.on_head(head, snapshot.counts),
        evidence=None,
        strength=fixed.strength,
        counts=tuple(map(float, snapshot.counts)),
        names=None if head.names is None else tuple(head.names),
        chosen_on="no samples",
    )


def usual_rule(strength: float | None) -> str:
    """Return the rule that adjusts a head if none is named: the default or, at a strength, RS."""
    if strength is None:
        return DEFAULT
    return Rescale.name


def rule_for(method: Method, other: str = DEFAULT) -> str:
    """Return the rule that adjusts what a method trained: its own, or another if it has none."""
    if method.adjust is None:
        return other
    if method.adjust not in LEVELED_BY:
        raise LevelheadError(
            f"method {method.name}: its adjust is neither RS nor tau-normalization, so its strength "
            "cannot be chosen here; train without it, and apply it to the head of the run's snapshot"
        )
    return LEVELED_BY[method.adjust]


def _macro_f1(measures: Measures) -> float:
    """Return the mean F1 of the classes that have a sample."""
    recall = measures.recall
    precision = np.nan_to_num(measures.precision)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return float(np.nanmean(f1))


def _share_text(share: float) -> str:
    if math.isnan(share):
        return "none in test"
    return f"{100 * share:.1f} %"


def _to_json(measures: Measures) -> dict[str, Any]:
    return {
        key: [None if math.isnan(x) else x for x in value] if isinstance(value, list) else value
        for key, value in to_plain(measures).items()
    }
