"""What a training came to: its head as trained and with RS, judged on the test set, gamma chosen without it."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..core.adjust import rescale, shift_logits, tau_normalize
from ..core.warnings import LevelheadWarning
from ..core.head import Head
from ..core.measure import Measures, measure
from ..methods import Method
from ..methods.rs import rescale_head
from ..methods.tau_norm import tau_normalize_head
from ..core.adjust import RuleName
from ..io.snapshot import Snapshot
from ..gamma.tune import tune
from ..gamma.tuned import Tuned
from ..core.errors import LevelheadError

TITLES: dict[RuleName, str] = {"rescale": "with RS", "tau": "tau-norm", "shift": "shifted"}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A snapshot's head before and after an adjustment.

    Args:
        rule: `rescale` (RS), `tau` (tau-normalization) or `shift` (logit adjustment).
        names: of the classes.
        counts: [K], of the samples trained on.
        gamma: its strength.
        tuned: how gamma was chosen on held-out samples; None where it was given.
        head: after the adjustment.
        before, after: measured on the test set.
    """

    rule: RuleName
    names: tuple[str, ...]
    counts: np.ndarray
    gamma: float
    tuned: Tuned | None
    head: Head
    before: Measures
    after: Measures

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, all of it but the head."""
        return {"names": list(self.names), "counts": self.counts.tolist(), "rule": self.rule, "gamma": self.gamma,
                "tuned": None if self.tuned is None else self.tuned.to_dict(),
                "before": _plain(self.before), "after": _plain(self.after)}

    def text(self, *, most: int = 20) -> str:
        """A table for people: errors, groups and, if there are at most so many, classes."""
        a, b = self.before, self.after
        worst = (f"worst class, found ({self.names[a.worst_class]}; {self.names[b.worst_class]})",
                 a.worst_recall, b.worst_recall)
        groups = [(f"{group}-shot classes, found", a.groups[group], b.groups[group]) for group in a.groups]
        classes = [(f"class {name} (n = {n}), found", *found) for name, n, *found in
                   zip(self.names, self.counts, a.recall, b.recall, strict=True)]
        rows = [(f"error (n = {a.n})", a.error, b.error), ("balanced error", a.balanced_error, b.balanced_error), worst,
                *groups, *(classes if len(classes) <= most else [])]
        width = max(len(title) for title, *_ in rows)
        lines = [f"{'test set':{width}}{'as trained':>13}{TITLES[self.rule]:>13}"]
        lines += [f"{title:{width}}{100 * x:>11.1f} %{100 * y:>11.1f} %" for title, x, y in rows]
        given = f"gamma = {self.gamma:g}, as given" if self.gamma else "gamma = 0: the head is as it was trained"
        origin = given if self.tuned is None else str(self.tuned)
        cautions = () if self.tuned is None else self.tuned.warnings
        return "\n".join([*lines, "", origin, *(f"warning: {line}" for line in cautions)])


def evaluate(snapshot: Snapshot, *, gamma: float | None = None, rule: RuleName = "rescale") -> Evaluation:
    """Judge a head on the test set before and after an adjustment.

    Args:
        snapshot: with a `test` split and, to choose gamma, a `held-out` one.
        gamma: strength of the adjustment; chosen on the held-out split if None.
        rule: `rescale` (RS), `tau` or `shift`.
    """
    if rule not in TITLES:
        raise LevelheadError(f"expected the rule {', '.join(TITLES)}, got {rule!r}")
    tuned, head, counts = None, snapshot.head, snapshot.counts
    if gamma is None:
        if "held-out" not in snapshot.features:
            raise LevelheadError("this run held nothing out to choose gamma on; train with --hold-out 0.1, or pass --gamma")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LevelheadWarning)  # they are in tuned.warnings, which is printed
            tuned = tune(snapshot.logits("held-out"), snapshot.labels["held-out"], counts, rule=rule,
                         norms=head.norms, names=head.names)
        gamma = tuned.gamma
    leveled = _adjust(head, counts, gamma, rule)
    before, after = (measure(snapshot.logits("test", h), snapshot.labels["test"], counts) for h in (head, leveled))
    names = tuple(head.names or map(str, range(head.classes)))
    return Evaluation(rule, names, counts, float(gamma), tuned, leveled, before, after)


def rule_of(method: Method) -> RuleName:
    """The rule that levels what a method trained: its own or, where it has none, RS."""
    if method.adjust is tau_normalize_head:
        return "tau"
    if method.adjust not in (None, rescale_head):
        raise LevelheadError(f"method {method.name}: its adjust is neither RS nor tau-normalization, and nothing here can "
                         "choose its strength; train without it, and apply it to the head of the run's snapshot")
    return "rescale"


def _adjust(head: Head, counts: np.ndarray, gamma: float, rule: RuleName) -> Head:
    if rule == "tau":
        return tau_normalize(head, gamma)
    return rescale(head, counts, gamma=gamma) if rule == "rescale" else shift_logits(head, counts, gamma)


def _plain(measures: Measures) -> dict[str, Any]:
    facts = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in asdict(measures).items()}
    return {key: [None if math.isnan(x) else x for x in value] if isinstance(value, list) else value
            for key, value in facts.items()}
