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

from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path

from ..heads.candidates import list_layers
from ..support.errors import LevelheadError, in_file, reported_as
from ..support.types import LabelTask
from .find import NoHead
from .format import Reader
from .located import LocatedHead
from .onnx_classifier import classifier_layer
from .onnx_edits import add_bias, complete
from .onnx_file import check_model, note_of, read_graph, span_of, stamps_of
from .onnx_graph import CLASSIFIER, Graph
from .onnx_layers import LinearNode, OnnxHead
from .onnx_walk import COMPETING, Undecided, heads_of, named_layers
from .spans import LayerSpans, join_rows
from .tensors import several_heads

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


@dataclass
class _Search:
    """What was found behind the outputs of a model.

    Outputs of the same layers, such as logits and probabilities, have one head: it is known by the
    names of its weights.

    Args:
        heads: the layers of each head.
        ends: what ends the outputs that each head feeds, such as Softmax.
        reasons: why outputs have no head.
        undecided: outputs with something on the way that may or may not leave the classes alone.
    """

    # The layers of each head.
    heads: dict[tuple[str, ...], tuple[LayerSpans, ...]] = field(default_factory=dict)
    # What ends the outputs that each head feeds.
    ends: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    reasons: list[LevelheadError] = field(default_factory=list)  # why outputs have no head
    # Outputs with something on the way that may or may not leave the classes alone.
    undecided: list[str] = field(default_factory=list)

    def add(self, graph: Graph, heads: Heads) -> None:
        """Add the layers that feed an output.

        Args:
            graph: the model, in which their numbers are looked up.
            heads: the layers, with what follows each.
        """
        weights = tuple(head.key for head in heads)
        ends = self.ends.setdefault(weights, set())
        for head in heads:
            ends.update(head.follows[-1:])
        # Of two outputs of one head, the one that is harder to fit: what is added to a bias must
        # arrive in both as it is.
        if weights not in self.heads or self.heads[weights][0].plain > heads[0].plain:
            self.heads[weights] = _spans_of(graph, heads)

    def with_tasks(self) -> list[tuple[LayerSpans, ...]]:
        """Return the heads, with what the ends of their outputs tell of their classes."""
        heads = []
        for weights, layers in self.heads.items():
            task = _task(self.ends[weights])
            heads.append(tuple(replace(layer, task=task) for layer in layers))
        return heads


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
            search.reasons.append(_reason(graph, output.name, error))
            if isinstance(error, Undecided):
                search.undecided.append(output.name)
            continue
        # A head is named by its layers, or by the output.
        titles = {output.name}.union(*(head.layer.names for head in heads))
        if named is None or titles.issuperset(named.split(",")):
            search.add(graph, heads)
    # Whoever names a layer says that its outputs are the scores, whatever follows.
    if named is not None and not search.heads and search.undecided:
        heads = named_layers(graph, named.split(","), search.undecided)
        if heads is not None:
            return _spans_of(graph, heads)
    return _only_one(graph, search.with_tasks(), search.reasons, named, classes)


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
    graph: Graph,
    heads: list[tuple[LayerSpans, ...]],
    reasons: list[LevelheadError],
    named: str | None,
    classes: int | None,
) -> tuple[LayerSpans, ...]:
    """Return the only head that fits; raise if there is none, or more than one.

    Args:
        graph: the model.
        heads: the layers of each.
        reasons: why outputs have no head: what is said if none has one.
        named, classes: what was asked for.

    Raises:
        NoHead: there are heads, none with so many classes.
        LevelheadError: there are several, or none.
    """
    fitting = heads
    if classes is not None and not named:
        fitting = [layers for layers in heads if layers[0].classes == classes]
    if len(fitting) == 1:
        return fitting[0]
    shapes = [(layer.key, layer.shape) for layers in heads for layer in layers]
    if len(fitting) > 1:
        raise several_heads(shapes)
    path = graph.path
    if shapes:
        raise NoHead(
            f"{path}: no head found with {classes} classes; there is {list_layers(shapes)}"
        )
    if named is not None and not reasons:
        raise LevelheadError(
            f"{path}: no output or head is called {named!r}; leave it out to have it found"
        )
    if reasons:
        raise reasons[0]
    raise LevelheadError(f"{path}: the model has no output")


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
