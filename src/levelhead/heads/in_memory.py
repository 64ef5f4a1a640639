"""`InMemory`: the head of a model in memory.

It is what the places of torch and Keras models have in common.

`find` looks for the layers of the head and checks that they can be changed. `apply` (apply.py) then
checks and computes a `Change`, and `write` puts it into the layers. Each changed layer gets a mark,
and the model a note where it is saved with one: by these a second adjustment is noticed, until the
head is restored or trained on. The `Adjusted` that is returned has the way back.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from ..core.head import Head, check_finite
from ..core.rules import Rule
from ..support.arrays import to_numpy
from ..support.errors import Advice, LevelheadError
from ..support.warnings import BinaryHeadWarning, PrecisionWarning, warn
from .adjusted import Adjusted
from .candidates import Example, LayerChoice
from .notes import Note, digests_in, done_text, multiplied, run_all
from .place import Change, Place

# An attribute of an adjusted layer, by which a second adjustment is noticed: all its marks, the
# last one last. Copies of the layer have it, state dicts do not. They are kept as plain tuples: a
# module that is saved whole, by `torch.save(model)`, is then loaded where levelhead is not installed.
MARKS = "_levelhead_adjusted"

ModelLayer = TypeVar("ModelLayer")  # what a layer is in the library of the model


class _Mark(NamedTuple):
    """What was done to a layer, and the layer as it was then.

    A mark holds as long as the layer is as it was: while its version is the same nothing has to be
    compared, and where the model was copied or loaded again the digests tell.
    """

    done: str  # in words
    multiplied: bool  # whether its weights were changed, or only its bias
    version: Hashable  # which changes with the values; None where it is not known
    digests: tuple[str, ...]  # sha256 of the values, as they are and rounded to other dtypes


class InMemory(Place[Adjusted], Generic[ModelLayer]):
    """A model in memory and, once `find` found it, its head: a `Place`.

    A library's place says how layers are found, read and written (the abstract methods); what
    follows from that for every library, in which order it is done and how it is undone, is here.
    """

    advice: Advice  # how to name the head
    layers: Mapping[str, ModelLayer]  # the head's, by path
    named: bool  # whether the caller named the head
    example: Example  # an input, to try whether what is added to a bias is added to the logits

    @abstractmethod
    def find_layers(
        self, layer: LayerChoice, example: Example, classes: int | None
    ) -> dict[str, ModelLayer]:
        """Return the layers of the head by path.

        Args:
            layer, example: what the caller named or gave.
            classes: K, where it is known.

        Raises:
            LevelheadError: none is found, or several could be it.
        """

    @abstractmethod
    def why_not(self, module: ModelLayer) -> str | None:
        """Return why this layer cannot be changed, or None.

        Changing it would not scale its outputs, or would change others too.
        """

    @abstractmethod
    def sizes(self) -> set[int | None]:
        """Return how many outputs the linear layers of the model have."""

    @abstractmethod
    def head(self, module: ModelLayer, names: Sequence[str] | None = None) -> Head:
        """Return a copy of a layer's numbers: weight [K, d] and, where there is one, bias [K]."""

    @abstractmethod
    def put(self, module: ModelLayer, head: Head) -> None:
        """Put a head of the same shape into a layer."""

    @abstractmethod
    def keep(self, heads: Sequence[Head]) -> Callable[[], None]:
        """Keep the layers as they are; return the way back.

        Layers without a bias get one where their new heads have it.

        Args:
            heads: the new ones, one for each layer.
        """

    @abstractmethod
    def state(self, module: ModelLayer, *, weights: bool) -> tuple[Hashable, tuple[str, ...]]:
        """Return the version and the digests of a layer's weights, or of its bias.

        A version is cheap and changes with the values; a digest is the sha256 of the values, the
        first as they are, the others rounded to dtypes that the model may be saved in.
        """

    def auxiliary(self) -> tuple[str, ...]:
        """Return the paths of heads that only training runs; they are never changed."""
        return ()

    def notes(self) -> Sequence[Note]:
        """Return what is saved with the model about earlier adjustments."""
        return []

    def leave_note(self, note: Note) -> Callable[[], None]:
        """Write a note into what is saved with the model; return the way back."""
        return partial(run_all, ())

    def find(
        self,
        *,
        layer: LayerChoice = None,
        example: Example = None,
        classes: int | None = None,
    ) -> Mapping[str, ModelLayer]:
        """Find the head.

        Each of its layers must be one that can be changed in place without changing anything else.

        Args:
            layer: a path, a layer, or several; None to look for it.
            example: an input of the model.
            classes: K, where it is known.

        Returns:
            The layers by path; the place remembers them, for all that it is asked afterwards.

        Raises:
            LevelheadError: no head, several, or one that cannot be changed; the message says why.
        """
        self.layers = self.find_layers(layer, example, classes)
        self.example = example
        self.named = layer is not None
        vars(self).pop("facts", None)  # those of a head that was found before
        for path, module in self.layers.items():
            reason = self.why_not(module)
            if reason is not None:
                raise LevelheadError(f"cannot change {path or 'the layer'}: {reason}")
        return self.layers

    def likely_classes(self, size: int | None) -> int | None:
        """Return the size as the number of classes if some layer has so many outputs.

        Where none has, the counts were labels to be counted, or one logit stands for two classes,
        and nothing is known.
        """
        if size in self.sizes():
            return size
        return None

    def without_bias(self) -> list[str]:
        """Return the paths of the head's layers that have no bias."""
        return [path for path, m in self.layers.items() if getattr(m, "bias", None) is None]

    def read(
        self,
        *,
        layer: LayerChoice = None,
        example: Example = None,
        classes: int | None = None,
    ) -> Head:
        """Find the head, which must be one layer, and return a copy of it."""
        _, module = self._find_single(layer, example, classes)
        return self.head(module, self.facts.names)

    def replace(self, head: Head, *, layer: LayerChoice = None, example: Example = None) -> None:
        """Put another head into the place of the one that is found.

        It must have its shape, and a bias exactly if that has one.
        """
        path, module = self._find_single(layer, example, head.classes)
        where = path or "the layer"
        old = self.head(module)
        check_finite(head)
        if head.bias is None and old.bias is not None:
            raise LevelheadError(f"{where} has a bias, but the head has none")
        if head.bias is not None and old.bias is None:
            raise LevelheadError(f"the head has a bias, but {where} has none")
        # All is compared before the first number is written.
        want = list(old.weight.shape)
        got = list(head.weight.shape)
        if want != got:
            raise LevelheadError(f"expected weight {want} for {where}, got {got}")
        self.put(module, head)

    def _find_single(
        self, layer: LayerChoice, example: Example, classes: int | None
    ) -> tuple[str, ModelLayer]:
        """Find the head; return its only layer with its path."""
        layers = self.find(layer=layer, example=example, classes=classes)
        if len(layers) > 1:
            several = f"{len(layers)} heads feed the one output: {', '.join(layers)}"
            raise LevelheadError(several, advice=self.advice)
        return next(iter(layers.items()))

    def earlier(self) -> str | None:
        """Return what was done to the head before and still holds, as an error says it.

        It is the last mark on a layer, or note about the model, that tells of the layer as it is.
        """
        # Notes stand before marks, as they may be of an earlier process.
        noted = []
        for note in self.notes():
            done = done_text(note["rule"], note.get("strength"))
            noted.append(_Mark(done, multiplied(note), None, digests_in(note)))
        for path, module in self.layers.items():
            # The last first: after several adjustments, that is the one to take back.
            marks = [_Mark(*mark) for mark in getattr(module, MARKS, ())]
            for mark in reversed([*noted, *marks]):
                version, digests = self.state(module, weights=mark.multiplied)
                if mark.version == version or digests[0] in mark.digests:
                    where = path or "the head"
                    return f"{where} was adjusted already ({mark.done}); restore it first"
        return None

    def heads(self, rule: Rule) -> tuple[Head, ...]:
        heads = []
        for path, module in self.layers.items():
            head = self.head(module, self.facts.names)
            heads.append(check_finite(head, path or "the head"))
        return tuple(heads)

    def write(self, change: Change) -> Adjusted:
        """Put the new head into its layers, mark them, note it with the model.

        Args:
            change: what is done, computed and checked.

        Returns:
            What was done, with the way back: values first, then marks and notes.
        """
        self._warn_of(change)
        # The way back is kept first, and undone in the same order.
        undo = [self.keep(change.after)]
        for (path, module), head in zip(self.layers.items(), change.after, strict=True):
            self.put(module, head)
            if change.adjustment.changes:
                undo += self._mark(path, module, change)
        before = self._norms(change.before)
        for doubt in change.doubts(before[self.facts.keys[0]]):
            warn(doubt)
        return Adjusted(
            layers=self.facts.keys,
            rule=change.rule.name,
            strength=change.strength,
            adjustment=change.adjustment,
            counts=change.counts,
            before=before,
            after=self._norms(change.after),
            flips=change.flips,
            checked=change.checked,
            along=change.along,
            new_bias=change.before[0].bias is None and change.after[0].bias is not None,
            left_alone=self.auxiliary(),
            _undo=partial(run_all, undo),
        )

    def _warn_of(self, change: Change) -> None:
        """Warn of a change that does nothing, or that rounding would spoil."""
        if change.stuck:
            stuck = "the two rows of the head are opposite, so scaling never changes a prediction"
            warn(f"{stuck}; use the rule offsets or shift", BinaryHeadWarning)
        if change.flips:
            rounding = f"rounding the adjusted weights to {self.facts.half}"
            flips = f"could flip {change.flips} of {change.predictions} predictions"
            instead = "adjust in float32, or adjust scores by tuned.apply"
            warn(f"{rounding} {flips}; {instead}", PrecisionWarning)

    def _mark(self, path: str, module: ModelLayer, change: Change) -> list[Callable[[], None]]:
        """Mark a layer that was changed, and note it with the model; return the ways back.

        The mark is for this process and copies of the layer; the note goes where the model is
        saved.
        """
        version, digests = self.state(module, weights=change.changes_weights)
        done = done_text(change.rule.name, change.strength)
        mark = tuple(_Mark(done, change.changes_weights, version, digests))
        # Past the bookkeeping of Keras's __setattr__.
        vars(module)[MARKS] = (*getattr(module, MARKS, ()), mark)
        undo: list[Callable[[], None]] = [partial(_unmark, module, mark)]
        # Of several layers that feed one output, one is enough to notice.
        if path == self.facts.keys[0]:
            digest, *rounded = digests
            note = {**change.note(list(self.layers)), "sha256": digest, "rounded": rounded}
            undo.append(self.leave_note(note))
        return undo

    def _norms(self, heads: Sequence[Head]) -> dict[str, np.ndarray]:
        """Return the lengths [K] of the weight vectors of each layer, by path."""
        return {path: to_numpy(h.norms) for path, h in zip(self.layers, heads, strict=True)}


def _unmark(module: object, mark: tuple[object, ...]) -> None:
    """Take a mark off a layer.

    Where its weights were multiplied by 1, they are what they were and would match it.
    """
    vars(module)[MARKS] = tuple(other for other in getattr(module, MARKS, ()) if other is not mark)
