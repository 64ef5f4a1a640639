"""`Place`: where a head is, once it is found. Layers of a model in memory, or byte ranges of a model's files.

`apply` (apply.py) makes a `Change` of a head and asks its place to write it. `InMemory` is what
torch and Keras models have in common: layers are found by path, changed in place with a way back,
and marked, so that a second adjustment is noticed. A model's files are a place in the room files.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from .._version import __version__
from ..core.adjustment import Adjustment
from ..core.head import Head, check_finite, doubts_of_head
from ..core.rules import Rule
from ..support.arrays import to_numpy
from ..support.errors import Advice, LevelheadError
from ..support.types import LabelTask
from ..support.warnings import BinaryHeadWarning, LevelheadWarning, PrecisionWarning, warn
from .adjusted import Adjusted
from .along import Along
from .notes import digests_in, done_text, multiplied, run_all

# An attribute of an adjusted layer, by which a second adjustment is noticed: all its marks, the last one last.
# Copies of the layer have it, state dicts do not.
MARKS = "_levelhead_adjusted"

# How it is known that a change of the head arrives in the logits: on an example, by the graph of the model, by its
# forward as torch traces it, on inputs that the model has for a trial.
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
    along: Along | None = None

    @property
    def changes_weights(self) -> bool:
        """Whether the weights of the head are changed, or only its biases."""
        return self.adjustment.multiplies or self.along is not None

    def doubts(self, norms: np.ndarray) -> Iterator[LevelheadWarning]:
        """Yield what speaks against scaling by counts, as norms [K] show it, unless held-out samples spoke for it."""
        by_counts = self.rule.multiplies and not self.rule.needs_norms
        if self.by_hand and by_counts and self.strength and self.counts is not None:
            yield from doubts_of_head(Head(norms[:, None]), self.counts)

    def note(self, layers: Sequence[str]) -> dict[str, Any]:
        """Return what is noted of it, in a model or a file, as JSON can hold it."""
        note: dict[str, Any] = {"version": __version__, "rule": self.rule.name}
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


Written = TypeVar("Written", covariant=True)


class Facts(NamedTuple):
    """What is known of a head before its weights are read."""

    keys: tuple[str, ...]  # the names of its layers; more than one if they feed one output
    where: str  # its name in messages
    sizes: tuple[int, ...]  # how many rows each layer has: K
    names: Sequence[str] | None  # of the classes, where they are known
    task: tuple[LabelTask, str] | None  # one class or several labels, and how that is known
    half: str | None  # the dtype of its numbers, if that is half precision
    plain: bool = True  # whether nothing is known to scale or bend its outputs
    file: Path | None = None  # that it is in


class Place(ABC, Generic[Written]):
    """Where a head is: what `apply` asks of it, and how it is changed.

    `apply` asks in this order: what is known of the head (`facts`), whether a change would arrive
    in the logits, what was done to it before, for the head itself, and, with everything checked, to
    write the new one.
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
        """Raise if a change is known not to arrive in the logits; return how it is known that it does."""

    @abstractmethod
    def check_takes_bias(self, key: str) -> None:
        """Raise if this layer, which has no bias, cannot get one."""

    @abstractmethod
    def heads(self, rule: Rule) -> tuple[Head, ...]:
        """Read the head, one for each layer; of a large one, only what the rule needs."""

    @abstractmethod
    def write(self, change: Change) -> Written:
        """Put the new head into its place."""


class _Mark(NamedTuple):
    """What was done to a layer, and the layer as it was then."""

    done: str  # in words
    multiplied: bool  # whether its weights were changed, or only its bias
    version: Any
    digests: tuple[str, ...]


class InMemory(Place[Adjusted]):
    """A model in memory and, once `find` found it, its head: a `Place`. A module is one of the head's layers."""

    model: Any  # the library's own
    advice: Advice  # how to name the head
    layers: Mapping[str, Any]  # the head's, by path
    named: bool  # whether the caller named the head
    example: Any  # an input, to try whether what is added to a bias is added to the logits

    @abstractmethod
    def find_layers(self, layer: Any, example: Any, classes: int | None) -> dict[str, Any]:
        """Return the layers of the head by path."""

    @abstractmethod
    def why_not(self, module: Any) -> str | None:
        """Return why changing this layer would not scale its outputs, or would change others too."""

    @abstractmethod
    def sizes(self) -> set[int | None]:
        """Return how many outputs the linear layers of the model have."""

    @abstractmethod
    def head(self, module: Any, names: Sequence[str] | None = None) -> Head:
        """Return a copy of a layer's numbers."""

    @abstractmethod
    def put(self, module: Any, head: Head) -> None:
        """Put a head of the same shape into a layer."""

    @abstractmethod
    def keep(self, heads: Sequence[Head]) -> Callable[[], None]:
        """Keep the layers as they are and add the biases that the new heads have; return the way back."""

    @abstractmethod
    def state(self, module: Any, *, weights: bool) -> tuple[Any, tuple[str, ...]]:
        """Return the version and the digests of a layer's weights, or of its bias."""

    def check_adds(self) -> None:
        """Raise if what is added to the biases is known not to be added to the logits."""

    def check_output(self, *, adds: bool) -> Checked | None:
        """Check that a change arrives in the logits; return how that is known, or None if it is not."""
        if adds:
            self.check_adds()
        if not self.named and getattr(self.model, "outputs", None):
            return "graph"  # Keras's, by which the head was found
        return None if self.example is None else "example"

    def auxiliary(self) -> tuple[str, ...]:
        """Return the paths of heads that the model runs in training alone; they are never changed."""
        return ()

    def notes(self) -> Sequence[Mapping[str, Any]]:
        """Return what is saved with the model about earlier adjustments."""
        return []

    def leave_note(self, note: Mapping[str, Any]) -> Callable[[], None]:
        """Write a note into what is saved with the model; return the way back."""
        return lambda: None

    def find(
        self, *, layer: Any = None, example: Any = None, classes: int | None = None
    ) -> Mapping[str, Any]:
        """Find the head and check that each of its layers can be changed in place without changing anything else."""
        self.layers = self.find_layers(layer, example, classes)
        self.example = example
        self.named = layer is not None
        vars(self).pop("facts", None)  # those of a head that was found before
        for path, module in self.layers.items():
            if reason := self.why_not(module):
                raise LevelheadError(f"cannot change {path or 'the layer'}: {reason}")
        return self.layers

    def likely_classes(self, size: int | None) -> int | None:
        """Return the size as the number of classes if some layer has so many outputs."""
        return size if size in self.sizes() else None

    def read(self, **search: Any) -> Head:
        """Return a copy of the head, which must be one layer."""
        return self.head(self._single(**search)[1], self.facts.names)

    def replace(self, head: Head, **search: Any) -> None:
        """Put another head into the place of the one that is found: of its shape, and with a bias if that has one."""
        path, module = self._single(classes=head.classes, **search)
        here, old = path or "the layer", self.head(module)
        check_finite(head)
        if (head.bias is None) != (old.bias is None):
            has, lacks = (here, "the head") if head.bias is None else ("the head", here)
            raise LevelheadError(f"{has} has a bias, but {lacks} has none")
        want = list(old.weight.shape)
        got = list(head.weight.shape)
        if want != got:
            raise LevelheadError(f"expected weight {want} for {here}, got {got}")
        self.put(module, head)

    def _single(self, **search: Any) -> tuple[str, Any]:
        if len(found := self.find(**search)) > 1:
            raise LevelheadError(
                f"{len(found)} heads feed the one output: {', '.join(found)}", advice=self.advice
            )
        return next(iter(found.items()))

    def earlier(self) -> str | None:
        """Return the last mark on a layer, or note about the model, that tells of the layer as it is."""
        noted = []
        for note in self.notes():
            done = done_text(note["rule"], note.get("strength"))
            noted.append(_Mark(done, multiplied(note), None, digests_in(note)))
        for path, module in self.layers.items():
            for mark in reversed((*noted, *getattr(module, MARKS, ()))):
                version, (digest, *_) = self.state(module, weights=mark.multiplied)
                if mark.version == version or digest in mark.digests:
                    where = path or "the head"
                    return f"{where} was adjusted already ({mark.done}); restore it first"
        return None

    def heads(self, rule: Rule) -> tuple[Head, ...]:
        names = self.facts.names
        return tuple(
            check_finite(self.head(m, names), path or "the head") for path, m in self.layers.items()
        )

    def write(self, change: Change) -> Adjusted:
        """Put the new head into its layers, mark them, note it with the model."""
        if change.stuck:
            stuck = "the two rows of the head are opposite, so scaling never changes a prediction"
            warn(f"{stuck}; use the rule offsets or shift", BinaryHeadWarning)
        if change.flips:
            some = f"could flip {change.flips} of {change.predictions} predictions"
            rounding = f"rounding the scaled weights to {self.facts.half} {some}"
            warn(f"{rounding}; scale in float32, or scale the logits", PrecisionWarning)
        undo = [self.keep(change.after)]
        for (path, module), head in zip(self.layers.items(), change.after, strict=True):
            self.put(module, head)
            if not change.adjustment.changes:
                continue
            version, digests = self.state(module, weights=change.changes_weights)
            done = done_text(change.rule.name, change.strength)
            mark = _Mark(done, change.changes_weights, version, digests)
            # Past the bookkeeping of Keras's __setattr__.
            vars(module)[MARKS] = (*getattr(module, MARKS, ()), mark)
            undo.append(partial(_unmark, module, mark))
            # Of several layers that feed one output, one is enough to notice.
            if path == self.facts.keys[0]:
                digest, *rounded = digests
                note = {**change.note(list(self.layers)), "sha256": digest, "rounded": rounded}
                undo.append(self.leave_note(note))
        before, after = (
            {path: to_numpy(head.norms) for path, head in zip(self.layers, heads, strict=True)}
            for heads in (change.before, change.after)
        )
        for doubt in change.doubts(before[self.facts.keys[0]]):
            warn(doubt)
        return Adjusted(
            layers=self.facts.keys,
            rule=change.rule.name,
            strength=change.strength,
            adjustment=change.adjustment,
            counts=change.counts,
            before=before,
            after=after,
            flips=change.flips,
            checked=change.checked,
            along=change.along,
            left_alone=self.auxiliary(),
            _undo=partial(run_all, undo),
        )


def _unmark(module: Any, mark: _Mark) -> None:
    """Take a mark off a layer: where its weights were multiplied by 1, they are what they were and would match it."""
    vars(module)[MARKS] = tuple(other for other in getattr(module, MARKS, ()) if other is not mark)
