"""`Place`: where a head is, once it is found.

It is in layers of a model in memory, or in byte ranges of a model's files.

`apply` (apply.py) makes a `Change` of a head and asks its place to write it. in_memory.py has what
the places of torch and Keras models have in common; that of a model's files is in the room files.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np

from .._version import __version__
from ..core.adjustment import Adjustment
from ..core.head import Head
from ..core.head_checks import doubts_of_head
from ..core.rules import Rule
from ..support.types import LabelTask, TwoScores
from ..support.warnings import LevelheadWarning
from .along import Along

# How it is known that a change of the head arrives in the logits: on an example, by the graph of
# the model, by its forward as torch traces it, on inputs that the model has for a trial.
Checked = Literal["example", "graph", "forward", "own inputs"]


@dataclass(frozen=True, eq=False)
class Change:
    """What is done to a head.

    Args:
        rule, strength: by which it is done; None for rules with numbers for each class.
        counts: [K], training samples of each class, or None where they are not known.
        adjustment: what is done to each row.
        before, after: the heads, one for each layer that feeds the output.
        flips: how many of so many `predictions` rounding to half precision could flip; None if not
            asked.
        stuck: whether it only scales two opposite rows, which never changes a prediction.
        by_hand: whether the strength was given, not chosen on held-out samples.
        checked: how it is known that the change arrives in the logits; None if it is not.
        background: the class that is left alone, if one is.
        halved: whether z, of which the model gives (-z, z), takes half of what is added.
        along: how offsets are put into the weights of a head without a bias; None if they are not.
    """

    rule: Rule
    strength: float | None
    counts: np.ndarray | None
    adjustment: Adjustment
    before: tuple[Head, ...]
    after: tuple[Head, ...]
    flips: int | None
    predictions: int
    stuck: bool
    by_hand: bool
    checked: Checked | None
    background: int | None = None
    halved: bool = False
    along: Along | None = None

    @property
    def changes_weights(self) -> bool:
        """Whether the weights of the head are changed, or only its biases."""
        return self.adjustment.multiplies or self.along is not None

    def doubts(self, norms: np.ndarray) -> Iterator[LevelheadWarning]:
        """Yield what speaks against scaling by counts, as norms [K] show it.

        Nothing does, if held-out samples spoke for it.
        """
        # A strength of 0 changes nothing; `tau` goes by the norms themselves.
        by_counts = self.rule.multiplies and self.rule.follows_counts
        if self.by_hand and by_counts and self.strength and self.counts is not None:
            yield from doubts_of_head(Head(norms[:, None]), self.counts)

    def note(self, layers: Sequence[str]) -> dict[str, object]:
        """Return what is noted of it, in a model or a file, as JSON can hold it.

        `undo` and a second adjustment go by it, so that it has the numbers themselves and not only
        the rule.

        Args:
            layers: the names of the head's layers.
        """
        note: dict[str, object] = {"version": __version__, "rule": self.rule.name}
        if self.strength is not None:
            note["strength"] = self.strength
        note["scale"] = self.adjustment.scale.tolist()
        note["offset"] = self.adjustment.offset.tolist()
        if self.along is not None:
            note["along"] = {"mean": self.along.mean, "spread": self.along.spread}
        if self.counts is not None:
            note["counts"] = self.counts.tolist()
        note["head"] = list(layers)
        return note


Written = TypeVar("Written", covariant=True)  # what `write` returns: what was done, and where


class Facts(NamedTuple):
    """What is known of a head before its weights are read.

    Enough to refuse what does not fit, also of a model that is larger than the memory.
    """

    keys: tuple[str, ...]  # the names of its layers; more than one if they feed one output
    where: str  # its name in messages
    sizes: tuple[int, ...]  # how many rows each layer has: K
    names: Sequence[str] | None  # of the classes, where they are known
    task: tuple[LabelTask, str] | None  # one class or several labels, and how that is known
    half: str | None  # the dtype of its numbers, if that is half precision
    plain: bool = True  # whether nothing is known to scale or bend its outputs
    file: Path | None = None  # that it is in
    pair: TwoScores | None = None  # of one logit z, whether (-z, z) or its softmax is what it gives
    sigmoids: bool = False  # whether each of several scores is a sigmoid


class Place(ABC, Generic[Written]):
    """Where a head is: what `apply` asks of it, and how it is changed.

    `apply` asks in this order: what is known of the head (`facts`), whether a change would arrive
    in the logits, what was done to it before, for the head itself, and, with everything checked, to
    write the new one. `write` alone changes anything, and does so wholly or not at all.

    A new kind of place, as for a library or a file format, is a class with these methods; no check
    of `apply` is written again for it.
    """

    @cached_property
    def facts(self) -> Facts:
        """What is known of the head: looked up when first asked for, and kept."""
        return self.find_facts()

    @abstractmethod
    def find_facts(self) -> Facts:
        """Look up what is known of the head, reading none of its weights."""

    @abstractmethod
    def earlier(self) -> str | None:
        """Return what was done to the head before and still holds, as an error says it."""

    @abstractmethod
    def check_output(self, *, adds: bool) -> Checked | None:
        """Return how it is known that a change arrives in the logits, or None.

        Args:
            adds: whether something is added to biases, too: what keeps factors may not keep
                summands.

        Raises:
            LevelheadError: it is known not to.
        """

    @abstractmethod
    def check_takes_bias(self, key: str) -> None:
        """Raise if this layer, which has no bias, cannot get one."""

    @abstractmethod
    def heads(self, rule: Rule) -> tuple[Head, ...]:
        """Read the head, one for each layer; of a large one, only what the rule needs.

        Args:
            rule: which may need weights (`tau` goes by their norms) or only know how many rows
                there are.
        """

    @abstractmethod
    def write(self, change: Change) -> Written:
        """Put the new head into its place."""
