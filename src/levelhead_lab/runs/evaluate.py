"""A trained head before and after an adjustment, measured on the test set; it is chosen without it.

A snapshot has features and labels of every split, so nothing here runs a network. Two roads lead to
a `Tuned`: `tune_held_out` chooses on the samples that the training held out, `given_strength` applies
a rule at a strength that someone gave. `evaluate` takes one of them, and `evaluate_tuned` measures the
head on the test samples, as trained and adjusted. The test samples never take part in a choice.

`rule_for` and `usual_rule` say by which rule a head is adjusted if the user names none.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from levelhead.core.arguments import finite_number
from levelhead.core.class_labels import as_positions
from levelhead.core.gamma_path import find_path_rule
from levelhead.core.head import Head, check_finite
from levelhead.core.measure import Measures, measure
from levelhead.core.rules import DEFAULT, RULES, PerClass, Rescale, Rule, Tau, find_rule
from levelhead.core.tune import tune
from levelhead.core.tuned import Tuned
from levelhead.support.errors import Advice, LevelheadError, visible
from levelhead.support.fields import to_plain
from levelhead.support.warnings import quiet

from ..lab.snapshot import Snapshot
from ..methods.method import Method
from ..methods.rs import rescale_head
from ..methods.tau_norm import tau_normalize_head

# The rule that does what a method does after training: with a strength to be chosen, not its own.
LEVELED_BY = {rescale_head: Rescale.name, tau_normalize_head: Tau.name}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A snapshot's head before and after an adjustment, measured on the test set.

    Attributes:
        tuned: what is done to the head; without evidence where its strength was given.
        names: [K], of the classes: their positions if they have none.
        counts: [K], training samples of each class.
        head: after the adjustment: with a bias if that adds and the head had none.
        before, after: all measures of the test samples, as trained and adjusted.
    """

    tuned: Tuned
    names: tuple[str, ...]
    counts: np.ndarray
    head: Head
    before: Measures
    after: Measures

    @property
    def chosen(self) -> bool:
        """Whether held-out samples chose it."""
        return self.tuned.evidence is not None

    def to_dict(self) -> dict[str, object]:
        """Return all of it but the head, as JSON can hold it: for `--json`."""
        tuned = None
        if self.chosen:
            tuned = self.tuned.to_dict()
        return {
            "names": list(self.names),
            "counts": self.counts.tolist(),
            "rule": self.tuned.rule,
            "strength": self.tuned.strength,
            "tuned": tuned,
            "before": _to_json(self.before),
            "after": _to_json(self.after),
        }

    def text(self, *, most: int = 20) -> str:
        """Return a table for people: errors, groups and, if there are at most `most`, classes.

        Below it stands what was chosen and how sure its gain is, or that the strength was given.
        """
        title = RULES[self.tuned.rule].title
        rows = self._rows(classes=len(self.names) <= most)
        adjusted = f"with {title}"
        # The width of each column.
        first = max(len(measured) for measured, *_ in rows)
        last = max(13, len(adjusted) + 2)
        lines = [f"{'test set':{first}}{'as trained':>13}{adjusted:>{last}}"]
        for measured, before, after in rows:
            lines.append(f"{measured:{first}}{_share_text(before):>13}{_share_text(after):>{last}}")
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
        """Return every row of the table: what is measured, and its share before and after.

        Args:
            classes: whether each class has a row, below those of the whole and of the groups.
        """
        # Both sides have the same measures, in the order of the table: the whole, groups, classes.
        before = self.before
        after = self.after
        names = [visible(name) for name in self.names]
        worst = f"worst recall ({names[before.worst_class]}; {names[after.worst_class]})"
        rows = [
            (f"error (n = {before.n})", before.error, after.error),
            ("balanced error", before.balanced_error, after.balanced_error),
            ("macro F1", _macro_f1(before), _macro_f1(after)),
            (worst, before.worst_recall, after.worst_recall),
        ]
        for group in before.groups:
            recall = f"recall of {group}-shot classes"
            rows.append((recall, before.groups[group], after.groups[group]))
        if classes:
            for i, name in enumerate(names):
                recall = f"recall of {name} ({self.counts[i]} in training)"
                rows.append((recall, before.recall[i], after.recall[i]))
        return rows


def evaluate(
    snapshot: Snapshot, *, strength: float | None = None, rule: str | Rule = DEFAULT
) -> Evaluation:
    """Measure a head on its test samples, before and after an adjustment.

    Args:
        snapshot: of a training, with a split `test`.
        strength: at which the rule, which must be one with a strength, is applied. If None, the
            samples in the split `held-out` choose the adjustment.
        rule: by which to adjust: a name such as `offsets`, or an object of `levelhead.rules`.

    Returns:
        Both heads' measures on the test samples, and what was done between them.

    Raises:
        LevelheadError: if no samples were held out and no strength is given, or if a strength is
            given for a rule that has none.

    Example:
        RS at strength 1/2 doubles the weight vector of a class with a quarter of the samples.

        >>> from levelhead.core.head import Head
        >>> features = {"test": [[2.0, 1.5], [1.0, 0.2]]}
        >>> snapshot = Snapshot(Head(np.eye(2)), [400, 100], features, {"test": [1, 0]})
        >>> evaluation = evaluate(snapshot, rule="rescale", strength=0.5)
        >>> evaluation.before.error, evaluation.after.error
        (0.5, 0.0)
    """
    if strength is None:
        tuned = tune_held_out(snapshot, rule)
    else:
        tuned = given_strength(snapshot, rule, strength)
    return evaluate_tuned(snapshot, tuned)


def evaluate_tuned(snapshot: Snapshot, tuned: Tuned) -> Evaluation:
    """Measure a head on its test samples before and after what was chosen, on whatever samples.

    The adjustment is applied to the head, not to the logits: so what is measured is what a file of the
    adjusted model computes.

    Args:
        snapshot: with a split `test`.
        tuned: what is done to its head.
    """
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
    """Choose on the samples that a training held out.

    The rule is given the norms of the head's weight vectors: tau-normalization divides by them, and
    logits alone do not show them.

    Args:
        snapshot: of a training, with a split `held-out`.
        rule: by which to adjust, as of `evaluate`.

    Raises:
        LevelheadError: if the training held no samples out, or too few to choose by this rule.
    """
    reason = ""
    if "held-out" not in snapshot.features:
        reason = "was trained without held-out samples to choose on"
    elif not can_choose(snapshot, rule):
        reason = "held one sample of each class out, too few for a number per class"
    if reason:
        raise LevelheadError(
            f"this run {reason}", advice=Advice("strength", None, "to set the strength of a rule")
        )
    by = find_rule(rule).with_norms(snapshot.head.norms)
    with quiet():  # tuned.warnings has them
        return tune(*held_out(snapshot), rule=by, names=snapshot.head.names)


def can_choose(snapshot: Snapshot, rule: str | Rule = DEFAULT) -> bool:
    """Return whether a training held enough samples out to choose by a rule.

    A number for each class is judged on other samples of a class than it was fitted on: some class needs
    two. A strength is one number for all classes, and any sample judges it.

    Args:
        snapshot: of the training.
        rule: as of `evaluate`.
    """
    if "held-out" not in snapshot.features:
        return False
    _, of_class = np.unique(snapshot.labels["held-out"], return_counts=True)
    return bool(of_class.max(initial=0) > 1) or not isinstance(find_rule(rule), PerClass)


def held_out(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `tune` takes: logits [N, K] and labels [N] of the held-out samples, and counts [K]."""
    labels = as_positions(snapshot.labels["held-out"])
    return snapshot.logits("held-out"), labels, snapshot.counts


def given_strength(snapshot: Snapshot, rule: str | Rule, strength: float) -> Tuned:
    """Return what a rule does to a head at a strength that no samples chose: without any evidence.

    Args:
        snapshot: whose head and counts decide the numbers of the rule.
        rule: one with a strength: `rescale`, `tau` or `shift`.
        strength: finite; 0 leaves the head as it is.

    Raises:
        LevelheadError: if the rule has no strength, or the strength or a weight is not finite.
    """
    fixed = replace(find_path_rule(rule), strength=finite_number("strength", strength))
    head = check_finite(snapshot.head)
    names = None
    if head.names is not None:
        names = tuple(head.names)
    return Tuned(
        rule=fixed.name,
        adjustment=fixed.on_head(head, snapshot.counts),
        evidence=None,
        strength=fixed.strength,
        counts=tuple(map(float, snapshot.counts)),
        names=names,
        chosen_on="no samples",
    )


def usual_rule(strength: float | None) -> str:
    """Return the rule that adjusts a head if none is named: the default or, at a strength, RS.

    The default rule fits a number for each class and has no strength; who gives one means the
    paper's.

    >>> usual_rule(None), usual_rule(0.5)
    ('offsets', 'rescale')
    """
    if strength is None:
        return DEFAULT
    return Rescale.name


def rule_for(method: Method, other: str = DEFAULT) -> str:
    """Return the rule that adjusts what a method trained: its own, or another if it has none.

    A method such as `wvn+rs` adjusts at the strength of the paper. Here only its kind is taken over,
    and held-out samples choose the strength.

    Args:
        method: of the training.
        other: the name of a rule for methods that do nothing after it.

    Raises:
        LevelheadError: if the method adjusts by a function of the user's own, which has no rule.

    >>> from levelhead_lab.methods import METHODS
    >>> rule_for(METHODS["wvn+rs"]), rule_for(METHODS["tau-norm"]), rule_for(METHODS["wvn"])
    ('rescale', 'tau', 'offsets')
    """
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
    # A class that is never predicted has no precision; its F1 is 0.
    precision = np.nan_to_num(measures.precision)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    # One without samples has no recall, and so no F1.
    return float(np.nanmean(f1))


def _share_text(share: float) -> str:
    """Return a share in percent; NaN, that of a group or class without a test sample, in words.

    >>> _share_text(0.4321), _share_text(float("nan"))
    ('43.2 %', 'none in test')
    """
    if math.isnan(share):
        return "none in test"
    return f"{100 * share:.1f} %"


def _to_json(measures: Measures) -> dict[str, object]:
    """Return measures as JSON can hold them: null for NaN, which JSON does not have."""
    values = to_plain(measures)
    for key, value in values.items():
        if isinstance(value, list):
            values[key] = [None if math.isnan(share) else share for share in value]
    return values
