"""Every rule side by side: a `Tuned` for each, and a table of them.

`compare` checks the samples once and calls `tune_given` with every rule of `RULES`. Each call deals the folds by
the same seed, so that the gains differ by the rules and not by the draw (with a generator for `rng`, each draws
its own). Rules that cannot act on the scores at hand, as `rescale` cannot on probabilities, are left out, with
the reason.

To choose the best of several by their gains overstates that gain. `tune` therefore has one rule by default and
compares nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..show.style import strength_text
from ..support import warnings as kinds
from ..support.arrays import Array
from ..support.errors import LevelheadError
from ..support.types import Kind
from .class_names import first_repeated
from .counts import Counts
from .goal import Goal
from .metrics import Metric
from .rules import RULES, Rule, find_rule
from .samples import Given
from .tune import tune_given
from .tuned import Tuned


class Comparison(Mapping[str, Tuned]):
    """A `Tuned` for every rule that can act on the scores, by name, the best gain first.

    It is a mapping, so ``comparison["shift"]`` is what `tune` with that rule returns; printed, it is
    a table: rule, strength, metric before and after, gain, verdict.

    Args:
        tuned: {rule: what was chosen}.
        left_out: {rule: why it cannot act on these scores}.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [300, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(400, 3)) + np.log([1000, 200, 40])
    >>> print(compare(logits, labels, [1000, 200, 40], rules=["shift", "offsets"]))
    offsets             balanced error 37.6% -> 10.7%, gain 26.9 points (21.4 to 32.4): better
    shift        0.842  balanced error 37.6% -> 11.1%, gain 26.6 points (20.8 to 32.3): better
    """

    def __init__(self, tuned: Mapping[str, Tuned], left_out: Mapping[str, str]):
        # The best first; of equals, in the order of the table of rules.
        order = sorted(tuned, key=lambda name: -(tuned[name].gain or 0.0))
        self._tuned = {name: tuned[name] for name in order}
        self.left_out = dict(left_out)  #: {rule: why it cannot act}

    def __getitem__(self, rule: str) -> Tuned:
        return self._tuned[rule]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tuned)

    def __len__(self) -> int:
        return len(self._tuned)

    @property
    def best(self) -> Tuned:
        """The `Tuned` with the largest gain; of six, the best looks a little better than it is."""
        return next(iter(self._tuned.values()))

    def to_dict(self) -> dict[str, object]:
        """Return all of it as JSON can hold it: {`rules`: {name: a `Tuned`}, `left_out`: {name: why}}."""
        return {
            "rules": {name: tuned.to_dict() for name, tuned in self.items()},
            "left_out": self.left_out,
        }

    def __str__(self) -> str:
        lines = []
        width = max([8, *map(len, self._tuned), *map(len, self.left_out)])
        for name, tuned in self.items():
            strength = ""
            if tuned.strength is not None:
                strength = strength_text(tuned.strength)
            line = f"{name:{width}}  {strength:>8}  {tuned.change_text()}: {tuned.verdict}"
            if tuned.floors:
                line += f"; {tuned.facts()['floors']}"
            lines.append(line)
        for name, why in self.left_out.items():
            lines.append(f"{name:{width}}  {'':8}  not tried: {why}")
        return "\n".join(lines)

    __repr__ = __str__


def compare(
    logits: Array,
    labels: Array,
    counts: Counts | None = None,
    *,
    metric: str | Metric | Goal = "balanced_error",
    rules: Sequence[str | Rule] | None = None,
    target: Array | None = None,
    names: Sequence[str] | None = None,
    kind: Kind = "logits",
    norms: Array | None = None,
    chosen_on: str = "held-out",
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
) -> Comparison:
    """Tune every rule on the same samples, side by side.

    Args:
        logits, labels, counts, metric, target, names, kind, chosen_on, level, rng: as in `tune`.
        rules: names or objects of `lh.rules`; all if None, of which those that cannot act on these
            scores are left out. Of two with one name, strengths tell them apart: ``"rescale 0.5"``.
        norms: [K], of the weight vectors, for the rules that need them: without them, `tau` is left out.

    Returns:
        A `Comparison`. Warnings are in its results and are not issued: they would be the same for each.

    Raises:
        LevelheadError: whatever `tune` refuses; and of rules that are named, one that cannot act, or
            that is there twice.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1, 2], [300, 60, 40])
    >>> logits = 2 * np.eye(3)[labels] + rng.normal(size=(400, 3)) + np.log([1000, 200, 40])
    >>> sorted(compare(logits, labels, [1000, 200, 40]))
    ['offsets', 'rescale', 'scales', 'shift', 'vector']
    """
    given = Given.of(logits, labels, counts, names=names, kind=kind)
    goal = Goal.of(metric)
    wanted = list(RULES.values())
    if rules is not None:
        if isinstance(rules, str | Rule) or not rules:
            reason = f"expected a list of at least one rule, got {rules!r}"
            raise LevelheadError(reason, parameter="rules")
        wanted = [find_rule(rule) for rule in rules]
    tuned: dict[str, Tuned] = {}
    left_out: dict[str, str] = {}
    # One after the other: each fits in its own way, and what they share was checked above.
    for name, rule in _by_name(wanted).items():
        if norms is not None:
            rule = rule.with_norms(norms)
        try:
            with kinds.quiet():  # the warnings are in each result, and would be the same
                tuned[name] = tune_given(
                    given, goal, rule, target=target, chosen_on=chosen_on, level=level, rng=rng
                )
        except LevelheadError as error:
            # A rule that was not asked for by name may be one that cannot act here.
            if rules is not None or error.parameter not in ("rule", "background"):
                raise
            left_out[name] = error.message
    return Comparison(tuned, left_out)


def _by_name(rules: Sequence[Rule]) -> dict[str, Rule]:
    """Return {name: rule}, where rules of one name have their own strengths in it.

    Raises:
        LevelheadError: two that are called alike even so; the mapping would keep one of them.
    """
    times = Counter(rule.name for rule in rules)
    names = []
    for rule in rules:
        name = rule.name
        if times[name] > 1 and rule.strength is not None:
            name = f"{name} {rule.strength:g}"
        names.append(name)
    repeated = first_repeated(names)
    if repeated is not None:
        raise LevelheadError(f"{repeated!r} is there twice; leave out one", parameter="rules")
    return dict(zip(names, rules, strict=True))
