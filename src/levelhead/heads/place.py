"""`Place`: where a head is, once it is found. Layers of a model in memory, or byte ranges of a model's files.

`apply` adjusts the head of any place. A model in memory is opened by its library's class (`TorchModel`, `KerasModel`);
`InMemory` is what those have in common.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from .._version import __version__
from ..core.array import to_numpy
from ..core.choices import LabelTask
from ..core.head import Head, check_finite, doubts_about
from ..core.warnings import BinaryHeadWarning, LevelheadWarning, PrecisionWarning, warn
from ..rules.adjustment import Adjustment
from ..rules.rule import RULES, Rule
from .adjusted import Adjusted
from .notes import digests_in, note_digests, run_all

# An attribute of an adjusted layer, by which a second adjustment is noticed: all its marks, the last one last.
# Copies of the layer have it, state dicts do not.
MARKS = "_levelhead_adjusted"


@dataclass(frozen=True, eq=False)
class Change:
    """What is done to a head."""

    rule: Rule
    gamma: float
    counts: np.ndarray
    by: Adjustment  # what is done to each class
    before: tuple[Head, ...]  # one for each layer that feeds the output
    after: tuple[Head, ...]
    flips: int | None  # how many of so many predictions rounding to half precision could flip; None if not asked
    predictions: int
    stuck: bool  # whether it only scales two opposite rows, which never changes a prediction
    by_hand: bool  # whether the strength was given, not chosen on held-out samples

    def doubts(self, norms: np.ndarray) -> Iterator[LevelheadWarning]:
        """Yield what speaks against scaling by counts, as norms [K] show it, unless held-out samples spoke for it."""
        if self.by_hand and self.gamma and self.rule.multiplies and self.rule.follows_counts:
            yield from doubts_about(Head(norms[:, None]), self.counts)

    @property
    def offset(self) -> np.ndarray | None:
        """What is added to each bias after it is multiplied; None for a rule that only does one of the two."""
        return None if self.by.scale is None else self.by.offset


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


class Place(Protocol[Written]):
    """Where a head is: what `apply` asks of it, and how it is changed."""

    @property
    def facts(self) -> Facts: ...
    def earlier(self) -> str | None: ...  # what was done to the head before and holds, as an error says it
    def check_adds(self) -> None: ...  # raises if what is added to the biases is known not to be added to the logits
    def check_takes_bias(self, key: str) -> None: ...  # raises if a layer without a bias cannot get one
    def heads(self, rule: Rule) -> tuple[Head, ...]: ...  # one for each layer; of a large one, what the rule needs
    def saying_where(self) -> AbstractContextManager[None]: ...  # a block whose errors say where the head is
    def write(self, change: Change) -> Written: ...  # puts the new head into its place


class ModelInMemory(Protocol):
    """What a library's model must tell and do, for its head to be adjusted in place. A module is one of its layers."""

    model: Any  # the library's own

    def layers(self, *, layer: Any, example: Any, classes: int | None) -> dict[str, Any]: ...  # the head's, by path
    def likely_classes(self, size: int | None) -> int | None: ...  # the size, if some layer has so many outputs
    def facts(self, layers: Mapping[str, Any]) -> Facts: ...
    def head(self, module: Any, names: Sequence[str] | None = None) -> Head: ...
    def check_adds(self, layers: Mapping[str, Any], example: Any) -> None: ...
    def check_takes_bias(self, path: str, module: Any) -> None: ...
    def write(self, path: str, module: Any, head: Head) -> None: ...
    def notes(self) -> Sequence[Mapping[str, Any]]: ...  # what is saved with the model about earlier adjustments
    def leave_note(self, note: Mapping[str, Any]) -> Callable[[], None]: ...  # returns the way back
    def keep(self, layers: Mapping[str, Any], grown: Sequence[Any]) -> Callable[[], None]: ...  # gives biases to grown
    def state(self, module: Any, rule: str) -> tuple[Any, tuple[str, ...]]: ...  # version, digests of what it changes


class _Mark(NamedTuple):
    """What was done to a layer, and the layer as it was then."""

    rule: str
    gamma: float
    version: Any
    digests: tuple[str, ...]

    def holds(self, model: ModelInMemory, module: Any) -> bool:
        """Return whether the layer is as it was when it was marked."""
        version, (digest, *_) = model.state(module, self.rule)
        return self.version == version or digest in self.digests


@dataclass(frozen=True, eq=False)
class InMemory:
    """The head of a model in memory: a `Place`."""

    model: ModelInMemory
    layers: Mapping[str, Any]  # the head's, by path
    example: Any = None  # an input, to try whether what is added to a bias is added to the logits

    @property
    def facts(self) -> Facts:
        return self.model.facts(self.layers)

    def earlier(self) -> str | None:
        """Return the last mark on a layer, or note about the model, that tells of the layer as it is."""
        noted = [_Mark(note["rule"], note["gamma"], None, digests_in(note)) for note in self.model.notes()]
        for path, module in self.layers.items():
            marks = (*noted, *getattr(module, MARKS, ()))
            if mark := next((mark for mark in reversed(marks) if mark.holds(self.model, module)), None):
                done = f"{RULES[mark.rule].title}, gamma {mark.gamma:g}"
                return f"{path or 'the head'} was adjusted already ({done}); restore it first"
        return None

    def check_adds(self) -> None:
        self.model.check_adds(self.layers, self.example)

    def check_takes_bias(self, key: str) -> None:
        self.model.check_takes_bias(key, self.layers[key])

    def heads(self, rule: Rule) -> tuple[Head, ...]:
        names = self.facts.names
        return tuple(check_finite(self.model.head(m, names), path or "the head") for path, m in self.layers.items())

    def saying_where(self) -> AbstractContextManager[None]:
        return nullcontext()  # the caller has the model at hand

    def write(self, change: Change) -> Adjusted:
        """Put the new head into its layers, mark them, note it with the model."""
        if change.stuck:
            warn(
                "the two rows of the head are opposite, so scaling never changes a prediction; use the additive shift "
                "(levelhead.shift_logits)",
                BinaryHeadWarning,
            )
        if change.flips:
            warn(
                f"rounding the scaled weights to {self.facts.half} could flip {change.flips} of {change.predictions} "
                "predictions; scale in float32, or scale the logits",
                PrecisionWarning,
            )
        grown = [
            module
            for module, before, after in zip(self.layers.values(), change.before, change.after, strict=True)
            if before.bias is None and after.bias is not None
        ]
        undo = [self.model.keep(self.layers, grown)]
        for (path, module), head in zip(self.layers.items(), change.after, strict=True):
            self.model.write(path, module, head)
            if change.by.changes:
                mark = _Mark(change.rule.name, change.gamma, *self.model.state(module, change.rule.name))
                vars(module)[MARKS] = (*getattr(module, MARKS, ()), mark)  # past the bookkeeping of Keras's __setattr__
                if path == self.facts.keys[0]:  # of several layers that feed one output, one is enough to notice
                    note = {"version": __version__, "rule": change.rule.name, "gamma": change.gamma}
                    note |= {"counts": change.counts.tolist(), "head": [*self.layers], **note_digests(mark.digests)}
                    undo.append(self.model.leave_note(note))
        before, after = ([to_numpy(head.norms) for head in heads] for heads in (change.before, change.after))
        for doubt in change.doubts(before[0]):
            warn(doubt)
        return Adjusted(
            layers=self.facts.keys,
            gamma=change.gamma,
            counts=change.counts,
            factors=change.by.first,
            offset=change.offset,
            before=dict(zip(self.layers, before, strict=True)),
            after=dict(zip(self.layers, after, strict=True)),
            rule=change.rule.name,
            flips=change.flips,
            _undo=partial(run_all, undo),
        )
