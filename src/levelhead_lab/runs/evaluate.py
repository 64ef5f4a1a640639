"""A trained head before and after an adjustment, measured on the test set; gamma is chosen without it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelhead.choice.snapshot import Snapshot
from levelhead.choice.tune import tune
from levelhead.choice.tuned import Tuned
from levelhead.core.adjustment import finite_number
from levelhead.core.counts import resolve
from levelhead.core.head import Head, check_finite
from levelhead.core.measure import Measures, measure
from levelhead.core.rules import RULES, Rescale, Strengths, Tau, find_path_rule, rule_with
from levelhead.methods.method import Method
from levelhead.methods.rs import rescale_head
from levelhead.methods.tau_norm import tau_normalize_head
from levelhead.support.arrays import to_plain
from levelhead.support.errors import Advice, LevelheadError, visible
from levelhead.support.warnings import quiet

LEVELED_BY = {rescale_head: Rescale.name, tau_normalize_head: Tau.name}  # what a method adjusts by


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A snapshot's head before and after an adjustment, measured on the test set."""

    rule: str
    names: tuple[str, ...]  # [K], of the classes
    counts: np.ndarray  # [K], of the training samples
    gamma: float
    tuned: Tuned | None  # how gamma was chosen on held-out samples; None where it was given
    head: Head  # after the adjustment
    changed: bool  # whether that is another than the head as trained
    before: Measures
    after: Measures

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "counts": self.counts.tolist(),
            "rule": self.rule,
            "gamma": self.gamma,
            "tuned": None if self.tuned is None else self.tuned.to_dict(),
            "before": _to_json(self.before),
            "after": _to_json(self.after),
        }

    def text(self, *, most: int = 20) -> str:
        """Return a table for people: errors, groups and, if there are at most `most`, classes."""
        a, b, names = self.before, self.after, [*map(visible, self.names)]
        worst = (
            f"worst recall ({names[a.worst_class]}; {names[b.worst_class]})",
            a.worst_recall,
            b.worst_recall,
        )
        groups = [
            (f"recall of {group}-shot classes", a.groups[group], b.groups[group])
            for group in a.groups
        ]
        classes = [
            (f"recall of {name} ({n} in training)", *recalls)
            for name, n, *recalls in zip(names, self.counts, a.recall, b.recall, strict=True)
        ]
        rows = [
            (f"error (n = {a.n})", a.error, b.error),
            ("balanced error", a.balanced_error, b.balanced_error),
            worst,
            *groups,
            *(classes if len(classes) <= most else []),
        ]
        rule = RULES[self.rule]
        width, adjusted = (
            max(len(title) for title, *_ in rows),
            f"{'with ' * (rule.multiplies or rule.adds)}{rule.title}",
        )
        last = max(13, len(adjusted) + 2)
        lines = [f"{'test set':{width}}{'as trained':>13}{adjusted:>{last}}"]
        lines += [
            f"{title:{width}}{_share_text(x):>13}{_share_text(y):>{last}}" for title, x, y in rows
        ]
        given = (
            f"gamma = {self.gamma:g}, as given"
            if self.gamma
            else "gamma = 0: the head is as trained"
        )
        tuned = (
            []
            if self.tuned is None
            else [str(self.tuned), *(f"warning: {line}" for line in self.tuned.warnings)]
        )
        return "\n".join([*lines, "", *(tuned or [given])])


def evaluate(
    snapshot: Snapshot, *, gamma: float | None = None, rule: str = Rescale.name
) -> Evaluation:
    """Measure a head before and after an adjustment; held-out samples choose a gamma that is not given."""
    tuned, head, counts = None, snapshot.head, snapshot.counts
    if gamma is not None:
        made, chosen = find_path_rule(rule), Strengths(finite_number("gamma", gamma))
    else:
        if "held-out" not in snapshot.features:
            raise LevelheadError(
                "this run was trained without held-out samples to choose gamma on",
                advice=Advice("gamma", None, "to set its strength"),
            )
        with quiet():  # tuned.warnings has them
            tuned = tune(
                *held_out(snapshot), rule=rule_with(rule, norms=head.norms), names=head.names
            )
        made, chosen = (
            RULES[tuned.rule],
            Strengths(tuned.gamma, scale=tuned.scale, offset=tuned.offset),
        )
    by = made.amounts(check_finite(head), resolve(counts, head.classes), chosen)
    adjusted = by.head(head)
    before, after = (
        measure(snapshot.logits("test", h), snapshot.labels["test"], counts)
        for h in (head, adjusted)
    )
    names = tuple(head.names or map(str, range(head.classes)))
    return Evaluation(
        made.name, names, counts, chosen.gamma, tuned, adjusted, by.changes, before, after
    )


def held_out(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return snapshot.logits("held-out"), snapshot.labels["held-out"], snapshot.counts


def rule_for(method: Method, other: str = Rescale.name) -> str:
    """Return the rule that adjusts what a method trained: its own or, if it has none, another one, RS."""
    if method.adjust is not None and method.adjust not in LEVELED_BY:
        raise LevelheadError(
            f"method {method.name}: its adjust is neither RS nor tau-normalization, so its strength "
            "cannot be chosen here; train without it, and apply it to the head of the run's snapshot"
        )
    return other if method.adjust is None else LEVELED_BY[method.adjust]


def _share_text(share: float) -> str:
    return "none in test" if math.isnan(share) else f"{100 * share:.1f} %"


def _to_json(measures: Measures) -> dict[str, Any]:
    return {
        key: [None if math.isnan(x) else x for x in value] if isinstance(value, list) else value
        for key, value in to_plain(measures).items()
    }
