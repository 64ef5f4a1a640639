"""What to do to a head: what was tuned, or a rule at a strength of one's own.

`read_choice` makes a `Chosen` of whatever a caller may give: a `Tuned`, the path of its file, or a
rule such as ``lh.rules.Rescale(0.5)``. From there on `apply` asks it the same questions (does it
multiply, does it add, for how many classes, with which counts, and at last: by which numbers), and
need not know which of the three it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.adjustment import Adjustment
from ..core.counts import Counts, find_background, likely_classes, resolve
from ..core.head import Head
from ..core.rules import Rule
from ..core.tuned import Tuned, rule_of, tuned_of
from ..support.errors import LevelheadError
from ..support.types import Missing


class Chosen(NamedTuple):
    """What to do to a head: what was tuned, or a rule at a strength of one's own.

    Args:
        rule: of what was tuned, or with a strength.
        tuned: the choice, whose numbers are taken as they are; None of a rule, which computes them
            from counts and, of `tau`, from the head.
    """

    rule: Rule
    tuned: Tuned | None = None

    @property
    def strength(self) -> float | None:
        """The strength, of a rule that has one."""
        if self.tuned is not None:
            return self.tuned.strength
        return self.rule.strength

    @property
    def multiplies(self) -> bool:
        """Whether weight vectors are multiplied.

        A rule tells so by its kind; what was tuned may have all scales at 1.
        """
        if self.tuned is None:
            return self.rule.multiplies
        return self.tuned.adjustment.multiplies

    @property
    def adds(self) -> bool:
        """Whether something is added to biases."""
        if self.tuned is None:
            return self.rule.adds
        return self.tuned.adjustment.adds

    def classes(self, counts: Counts | None) -> int | None:
        """Return how many classes it is likely to be for.

        Of counts that is a guess: as many numbers may be labels. It settles only which layer is
        looked for.
        """
        if self.tuned is None:
            return likely_classes(counts)
        return self.tuned.classes

    def counts(
        self,
        counts: Counts | None,
        rows: int,
        names: Sequence[str] | None,
        *,
        missing: Missing | None = None,
        background: int | str | None = None,
    ) -> np.ndarray | None:
        """Return the counts [K] for a head of so many rows; None where none are known or needed.

        Args:
            counts: those that the caller gives; what was tuned has its own.
            rows: K, or 1 where two classes share one logit.
            names: of the classes, where they are known.
            missing, background: as in `rescale_`.
        """
        if self.tuned is not None:
            if counts is not None:
                reason = "what was tuned has counts of its own; leave these out"
                raise LevelheadError(reason, parameter="counts")
            # Those of held-out labels are no training samples.
            if self.tuned.counts and not self.tuned.counted:
                return np.array(self.tuned.counts)
            return None
        if counts is None:
            return None
        if rows == 1:  # two classes share the logit
            return resolve(counts, 2, missing=missing)
        return resolve(counts, rows, names=names, missing=missing, background=background)

    def background(
        self, background: int | str | None, rows: int, names: Sequence[str] | None
    ) -> int | None:
        """Return the class that is left alone: the one that is given, or that of what was tuned.

        Args:
            background: by index or name; None if none is given.
            rows, names: as in `counts`.
        """
        if background is not None:
            return find_background(background, rows, names)
        if self.tuned is not None:
            return self.tuned.background
        return None

    def adjustment(self, heads: Sequence[Head], counts: np.ndarray | None) -> Adjustment:
        """Return what it does to each row of the heads, which feed one output.

        Args:
            heads: with their weights, for a rule that goes by norms; else any of as many rows will
                do.
            counts: [K], as `counts` returned them.

        Returns:
            [K] numbers, or [1] for a head of one logit.

        Raises:
            LevelheadError: the rule goes by the rows' norms, and those of the heads differ; or it
                has no strength.
        """
        if self.tuned is not None:
            return self.tuned.adjustment.for_rows(heads[0].classes)
        first, *others = [self.rule.on_head(head, counts) for head in heads]
        for other in others:
            if not np.array_equal(other.scale, first.scale):
                reason = f"the rule {self.rule.name} would scale their rows by different numbers"
                raise LevelheadError(f"several layers feed one output, and {reason}; use rescale")
        return first.for_rows(heads[0].classes)


def read_choice(tuned: Tuned | Rule | str | Path) -> Chosen:
    """Return what to do, from a `Tuned`, the file of one, or a rule.

    Raises:
        LevelheadError: it is none of these, or its file is damaged.
    """
    if isinstance(tuned, Rule):
        return Chosen(tuned)
    if not isinstance(tuned, Tuned | str | Path):
        expected = "expected what `tune` returned, the path of its file, or a rule"
        example = "such as lh.rules.Rescale(0.5)"
        got = f"got {type(tuned).__name__}"
        raise LevelheadError(f"{expected} {example}, {got}", parameter="tuned")
    choice = tuned_of(tuned)
    return Chosen(rule_of(choice), choice)
