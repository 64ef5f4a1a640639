"""`Place`: where a head is, once it is found. Layers of a model in memory, or byte ranges of a model's files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from .._version import __version__
from ..core.adjustment import Adjustment
from ..core.head import Head, check_finite, doubts_about
from ..core.rules import RULES, Rule
from ..support.arrays import to_numpy
from ..support.errors import Advice, LevelheadError
from ..support.types import LabelTask
from ..support.warnings import BinaryHeadWarning, LevelheadWarning, PrecisionWarning, warn
from .adjusted import Adjusted
from .notes import digests_in, run_all

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
    flips: (
        int | None
    )  # how many of so many predictions rounding to half precision could flip; None if not asked
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

    @property
    def told(self) -> dict[str, Any]:
        """What the result tells of it, wherever the head is."""
        amounts = {"counts": self.counts, "factors": self.by.first, "offset": self.offset}
        return {"rule": self.rule.name, "gamma": self.gamma, "flips": self.flips, **amounts}


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


class Place(Protocol[Written]):
    """Where a head is: what `apply` asks of it, and how it is changed."""

    @property
    def facts(self) -> Facts: ...
    def earlier(
        self,
    ) -> str | None: ...  # what was done to the head before and holds, as an error says it
    def check_adds(
        self,
    ) -> None: ...  # raises if what is added to the biases is known not to be added to the logits
    def check_takes_bias(
        self, key: str
    ) -> None: ...  # raises if a layer without a bias cannot get one
    def heads(
        self, rule: Rule
    ) -> tuple[Head, ...]: ...  # one for each layer; of a large one, what the rule needs
    def write(self, change: Change) -> Written: ...  # puts the new head into its place


class _Mark(NamedTuple):
    """What was done to a layer, and the layer as it was then."""

    rule: str
    gamma: float
    version: Any
    digests: tuple[str, ...]


class InMemory(Place[Adjusted], Protocol):
    """A model in memory and, once `find` found it, its head: a `Place`. A module is one of the head's layers."""

    model: Any  # the library's own
    advice: Advice  # how to name the head
    layers: Mapping[str, Any]  # the head's, by path
    example: Any  # an input, to try whether what is added to a bias is added to the logits

    def find_layers(
        self, layer: Any, example: Any, classes: int | None
    ) -> dict[str, Any]: ...  # the head's, by path
    def why_not(
        self, module: Any
    ) -> str | None: ...  # why changing it would not scale its outputs, or others too
    def sizes(self) -> set[int | None]: ...  # how many outputs the linear layers of the model have
    def head(self, module: Any, names: Sequence[str] | None = None) -> Head: ...  # a copy
    def put(self, module: Any, head: Head) -> None: ...  # of the same shape
    def keep(
        self, heads: Sequence[Head]
    ) -> Callable[[], None]: ...  # adds biases that they have; returns the way back
    def state(
        self, module: Any, rule: str
    ) -> tuple[Any, tuple[str, ...]]: ...  # version, digests of what it changes

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
        self.layers, self.example = self.find_layers(layer, example, classes), example
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
        want, got = list(old.weight.shape), list(head.weight.shape)
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
        noted = [
            _Mark(note["rule"], note["gamma"], None, digests_in(note)) for note in self.notes()
        ]
        for path, module in self.layers.items():
            for mark in reversed((*noted, *getattr(module, MARKS, ()))):
                version, (digest, *_) = self.state(module, mark.rule)
                if mark.version == version or digest in mark.digests:
                    done = f"{RULES[mark.rule].title}, gamma {mark.gamma:g}"
                    return f"{path or 'the head'} was adjusted already ({done}); restore it first"
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
            warn(f"{stuck}; use the additive shift (levelhead.shift_logits)", BinaryHeadWarning)
        if change.flips:
            some = f"could flip {change.flips} of {change.predictions} predictions"
            rounding = f"rounding the scaled weights to {self.facts.half} {some}"
            warn(f"{rounding}; scale in float32, or scale the logits", PrecisionWarning)
        undo = [self.keep(change.after)]
        for (path, module), head in zip(self.layers.items(), change.after, strict=True):
            self.put(module, head)
            if change.by.changes:
                mark = _Mark(change.rule.name, change.gamma, *self.state(module, change.rule.name))
                vars(module)[MARKS] = (
                    *getattr(module, MARKS, ()),
                    mark,
                )  # past the bookkeeping of Keras's __setattr__
                undo.append(partial(_unmark, module, mark))
                if (
                    path == self.facts.keys[0]
                ):  # of several layers that feed one output, one is enough to notice
                    note = {"version": __version__, "rule": change.rule.name, "gamma": change.gamma}
                    note |= {
                        "counts": change.counts.tolist(),
                        "head": [*self.layers],
                        "sha256": mark.digests[0],
                    }
                    undo.append(self.leave_note({**note, "rounded": list(mark.digests[1:])}))
        both = (zip(self.layers, heads, strict=True) for heads in (change.before, change.after))
        before, after = ({path: to_numpy(head.norms) for path, head in heads} for heads in both)
        for doubt in change.doubts(before[self.facts.keys[0]]):
            warn(doubt)
        return Adjusted(
            layers=self.facts.keys,
            before=before,
            after=after,
            _undo=partial(run_all, undo),
            **change.told,
        )


def _unmark(module: Any, mark: _Mark) -> None:
    """Take a mark off a layer: where its weights were multiplied by 1, they are what they were and would match it."""
    vars(module)[MARKS] = tuple(other for other in getattr(module, MARKS, ()) if other is not mark)
