"""Heads in ONNX models: the last Gemm, MatMul (+ Add), 1x1 Conv or LinearClassifier.

The road:

    read_graph (onnx_file.py): the model without its large numbers -> `Graph` (onnx_graph.py)
    heads_of (onnx_walk.py): from each output back to the linear layers that make it
    _Search: those layers, by the names of their weights; here the head is chosen among them
    span_of (onnx_file.py): a constant of the graph -> where its numbers are in the file

An ONNX file has the whole graph, so that a head is proved, not guessed: whatever lies between it
and the output is known to leave the classes alone, or the output has no head. onnx_edits.py says
what else changes when it is written: the note in the metadata, a bias that the layer did not have,
names of external files.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..heads.candidates import list_layers
from ..support.errors import Advice, LevelheadError, in_file, reported_as
from ..support.types import LabelTask, TwoScores
from .find import NoHead
from .format import Reader
from .located import LocatedHead
from .onnx_classifier import classifier_layer
from .onnx_edits import add_bias, complete
from .onnx_file import check_model, note_of, read_graph, span_of, stamps_of
from .onnx_graph import CLASSIFIER, Graph
from .onnx_layers import FLOAT_TYPES, LinearNode, OnnxHead
from .onnx_walk import COMPETING, OPPOSITE, Undecided, heads_of, named_layers, values_before
from .spans import LayerSpans, join_rows
from .tensors import several_heads

if TYPE_CHECKING:
    from onnx import ValueInfoProto

Heads = list[OnnxHead]  # the layers that feed one output


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head that feeds the output of an ONNX model.

    Args:
        path, named, classes: as in `FindHead`. A name is that of a layer, its weight, its node, or
            an output.
    """
    graph = replace(read_graph(path), named=named is not None)
    stamps = stamps_of(graph)
    with in_file(path):
        layers = _find_layers(graph, named, classes)
    return LocatedHead(
        path,
        layers,
        stamps,
        partial(complete, graph),
        note_of(graph),
        add_bias=partial(add_bias, graph),
        given_names=layers[0].names,
    )


HeadKey: TypeAlias = tuple[Hashable, ...]  # a head by the keys of its layers


@dataclass
class _Found:
    """A head, and what the graph does to it on the way to the outputs that it feeds.

    Args:
        layers: where their numbers are.
        values: what the layers give, by name.
        ends: what ends those outputs, such as Softmax.
        scores: what follows the head in each output that is not of labels.
        sigmoids: whether each score is a sigmoid on the way to one of them, of labels or of scores.
    """

    layers: tuple[LayerSpans, ...]
    values: set[str]
    ends: set[str] = field(default_factory=set)
    scores: list[tuple[str, ...]] = field(default_factory=list)
    sigmoids: bool = False

    def layers_with_ends(self) -> tuple[LayerSpans, ...]:
        """Return its layers, with what the ends of its outputs tell of their classes."""
        pairs = {_pair(follows) for follows in self.scores}
        return tuple(
            replace(
                layer,
                task=_task(self.ends),
                # Outputs that need what is added once, and twice, cannot both be served.
                plain=layer.plain and len(pairs) < 2,
                pair=next(iter(pairs), None),
                sigmoids=self.sigmoids and layer.classes > 1,
            )
            for layer in self.layers
        )


@dataclass
class _Search:
    """What was found behind the outputs of a model.

    Outputs of the same layers, such as logits and probabilities, have one head.

    Args:
        heads: by their layers.
        reasons: {output: why it has no head}.
    """

    heads: dict[HeadKey, _Found] = field(default_factory=dict)
    reasons: dict[str, LevelheadError] = field(default_factory=dict)

    @property
    def undecided(self) -> list[str]:
        """Outputs with something on the way that may or may not leave the classes alone."""
        return [name for name, reason in self.reasons.items() if isinstance(reason, Undecided)]

    def add(self, graph: Graph, output: ValueInfoProto, heads: Heads) -> None:
        """Add the layers that feed an output.

        Args:
            graph: the model, in which their numbers are looked up.
            output: that they feed.
            heads: the layers, with what follows each.
        """
        key = tuple(head.key for head in heads)
        if key not in self.heads:
            values = {name for head in heads for name in head.layer.gives}
            self.heads[key] = _Found(_spans_of(graph, heads), values)
        found = self.heads[key]
        # Of two outputs of one head, the one that is harder to fit: what is added to a bias must
        # arrive in both as it is.
        if found.layers[0].plain > heads[0].plain:
            found.layers = _spans_of(graph, heads)
        for head in heads:
            found.ends.update(head.follows[-1:])
            found.sigmoids |= "Sigmoid" in head.follows
            if not _is_of_labels(output):
                found.scores.append(head.follows)


def _pair(follows: tuple[str, ...]) -> TwoScores | None:
    """Return what an output makes of one logit z, if that is (-z, z), or the softmax of both."""
    if OPPOSITE not in follows:
        return None
    if "Softmax" in follows:
        return "probabilities"
    return "scores"


def _is_of_labels(output: ValueInfoProto) -> bool:
    """Return whether an output is known to hold labels, and not scores."""
    if not output.type.HasField("tensor_type"):
        return False
    return output.type.tensor_type.elem_type not in {0, *FLOAT_TYPES}


def _find_layers(graph: Graph, named: str | None, classes: int | None) -> tuple[LayerSpans, ...]:
    """Return the layers of the head: of the one that is found, is named, or has so many classes.

    Args:
        graph: the model.
        named: layers or an output, divided by commas; None to have it found.
        classes: K, where it is known.
    """
    search = _Search()
    # Every output is looked at: one without a head is no error, as long as another has one.
    for output in graph.model.graph.output:
        try:
            heads = _heads_of_output(graph, output.name)
        except LevelheadError as error:
            search.reasons[output.name] = error
            continue
        # A head is named by its layers, or by the output.
        titles = {output.name}.union(*(head.layer.names for head in heads))
        if named is None or titles.issuperset(named.split(",")):
            search.add(graph, output, heads)
    # Whoever names a layer says that its outputs are the scores, whatever follows.
    if named is not None and not search.heads and search.undecided:
        heads = named_layers(graph, named.split(","), search.undecided)
        if heads is not None:
            return _spans_of(graph, heads)
    return _only_one(graph, search, named, classes)


def _heads_of_output(graph: Graph, name: str) -> Heads:
    """Return the linear layers that feed an output.

    A graph that no model should have, such as one that is too deep to walk, raises LevelheadError,
    too.
    """
    too_long = "comes from too long a chain of nodes"
    with reported_as(too_long, RecursionError), reported_as("{}", ValueError):
        return heads_of(graph, name)


def _reason(graph: Graph, output: str, error: LevelheadError) -> LevelheadError:
    """Return why an output has no head, with its name and the file's before it, in one line."""
    words = " ".join(error.named.split())  # with names of the file's
    return LevelheadError(f"{graph.path}: output {output!r}: {words}", advice=error.advice)


def _task(follows: set[str]) -> LabelTask | None:
    """Return whether samples have one class or several labels, where the model's end tells.

    Args:
        follows: what ends the outputs of a head. Of a softmax and a sigmoid, the softmax counts:
            the classes compete somewhere.
    """
    if follows & {*COMPETING}:
        return "multiclass"
    if "Sigmoid" in follows:
        return "multilabel"
    return None


def _only_one(
    graph: Graph, search: _Search, named: str | None, classes: int | None
) -> tuple[LayerSpans, ...]:
    """Return the only head that fits; raise if there is none, or more than one.

    Args:
        graph: the model.
        search: what was found in it.
        named, classes: what was asked for.

    Raises:
        NoHead: there are heads, none with so many classes.
        LevelheadError: there are several, or none; or an output without a head may be meant.
    """
    path = graph.path
    heads = list(search.heads.values())
    fitting = heads
    if classes is not None and not named:
        fitting = [head for head in heads if head.layers[0].classes == classes]
    shapes = [(layer.key, layer.shape) for head in heads for layer in head.layers]
    if len(fitting) > 1:
        first, *others = (head.layers[0].key for head in fitting)
        if first in others:
            reason = f"{path}: outputs take what {first} gives with more than one bias"
            raise LevelheadError(reason, advice=Advice("head", None, "to name the output"))
        raise several_heads(shapes)
    if fitting:
        head = fitting[0]
        if named is None:
            for output, reason in search.reasons.items():
                if _may_be_meant(graph, output, head):
                    raise _reason(graph, output, reason)
        return head.layers_with_ends()
    if shapes:
        raise NoHead(
            f"{path}: no head found with {classes} classes; there is {list_layers(shapes)}"
        )
    if named is not None and not search.reasons:
        raise LevelheadError(
            f"{path}: no output or head is called {named!r}; leave it out to have it found"
        )
    for output, reason in search.reasons.items():
        raise _reason(graph, output, reason)
    raise LevelheadError(f"{path}: the model has no output")


def _may_be_meant(graph: Graph, output: str, head: _Found) -> bool:
    """Return whether an output without a head may be the one with the classes.

    It has as many columns as the head that was found behind another output, and is not computed
    from it.
    """
    sizes = graph.shapes.get(output, ())
    classes = head.layers[0].classes
    values = {value.name: value for value in graph.model.graph.output}
    if classes < 2 or _is_of_labels(values[output]) or classes not in (*sizes[1:2], *sizes[-1:]):
        return False
    return values_before(graph, [output]).isdisjoint(head.values)


def _spans_of(graph: Graph, heads: Heads) -> tuple[LayerSpans, ...]:
    return tuple(_layer_spans(graph, head.layer, head.plain) for head in heads)


def _layer_spans(graph: Graph, layer: LinearNode, plain: bool) -> LayerSpans:
    """Return where in the file the weight and bias of a layer are.

    Args:
        graph: the model.
        layer: the layer; of one with `rows`, each row is looked up by itself.
        plain: whether its outputs are the logits as they are.

    Raises:
        LevelheadError: the bias has not one number for each class, or numbers are not plain bytes.
    """
    if layer.rows:
        rows = [_layer_spans(graph, row, plain) for row in layer.rows]
        return replace(join_rows(layer.key, rows), plain=plain)
    if graph.operator(layer.node) == CLASSIFIER:
        return replace(classifier_layer(graph, layer.node), plain=plain)
    weight = replace(span_of(graph, layer.weight, layer.transposed), shape=layer.shape)
    bias = None
    if layer.bias is not None:
        bias = span_of(graph, layer.bias)
    spans = LayerSpans(layer.key, weight, bias, plain)
    if bias is not None and prod(bias.shape) != spans.classes:
        expected = f"expected the bias {bias.key!r} [{spans.classes}], got {list(bias.shape)}"
        raise LevelheadError(f"{graph.path}: {expected}")
    return spans


READER = Reader(
    _find,
    note=lambda path: note_of(read_graph(path)),
    check=check_model,
    files=lambda path: tuple(stamps_of(read_graph(path))),
)
