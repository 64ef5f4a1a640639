"""Heads in ONNX models: the last Gemm, MatMul (+ Add), 1x1 Conv or LinearClassifier that feeds an output."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path

from ..heads.candidates import list_layers
from ..heads.graph import Linear
from ..support.errors import LevelheadError, in_file, reported_as
from ..support.types import LabelTask
from .find import NoHead
from .format import Reader
from .located import LocatedHead
from .onnx_classifier import classifier_layer
from .onnx_edits import add_bias, complete
from .onnx_file import check_model, note_of, read_graph, span_of, stamps_of
from .onnx_graph import CLASSIFIER, Graph
from .onnx_layers import LinearNode
from .onnx_walk import COMPETING, Undecided, heads_of, named_layers
from .spans import LayerSpans, join_rows
from .tensors import several_heads

Heads = list[Linear[str, LinearNode]]


def _find(path: Path, *, named: str | None = None, classes: int | None = None) -> LocatedHead:
    """Find the head that feeds the output of an ONNX model."""
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


def _find_layers(graph: Graph, named: str | None, classes: int | None) -> tuple[LayerSpans, ...]:
    """Return the layers of the head: of the one that is found, is named, or has so many classes."""
    found: dict[tuple[str, ...], tuple[LayerSpans, ...]] = {}
    follows: dict[tuple[str, ...], set[str]] = {}
    reasons: list[LevelheadError] = []
    undecided: list[str] = []
    for output in graph.model.graph.output:
        try:
            heads = _heads_of_output(graph, output.name)
        except LevelheadError as error:
            reasons.append(_reason(graph, output.name, error))
            if isinstance(error, Undecided):
                undecided.append(output.name)
            continue
        titles = {output.name, *(name for one in heads for name in one.layer.names)}
        if named is None or titles.issuperset(named.split(",")):
            weights = tuple(one.key for one in heads)
            follows.setdefault(weights, set()).update(
                name for one in heads for name in one.follows[-1:]
            )
            # Of two outputs of one head, the one that is harder to fit.
            if weights not in found or found[weights][0].plain > heads[0].plain:
                found[weights] = _spans_of(graph, heads)
    for weights, layers in found.items():
        task = _task(follows[weights])
        found[weights] = tuple(replace(layer, task=task) for layer in layers)
    if named is not None and not found and undecided:
        heads = named_layers(graph, named.split(","), undecided)
        if heads is not None:
            return _spans_of(graph, heads)
    return _only_one(graph, list(found.values()), reasons, named, classes)


def _heads_of_output(graph: Graph, name: str) -> Heads:
    too_long = "comes from too long a chain of nodes"
    with reported_as(too_long, RecursionError), reported_as("{}", ValueError):
        return heads_of(graph, name)


def _reason(graph: Graph, output: str, error: LevelheadError) -> LevelheadError:
    words = " ".join(error.named.split())  # with names of the file's
    return LevelheadError(f"{graph.path}: output {output!r}: {words}", advice=error.advice)


def _task(follows: set[str]) -> LabelTask | None:
    """Return whether samples have one of the classes or several labels, where what ends the model tells."""
    if follows & {*COMPETING}:
        return "multiclass"
    if "Sigmoid" in follows:
        return "multilabel"
    return None


def _only_one(
    graph: Graph,
    found: list[tuple[LayerSpans, ...]],
    reasons: list[LevelheadError],
    named: str | None,
    classes: int | None,
) -> tuple[LayerSpans, ...]:
    """Return the only head among those found that fits; raise if there is none, or more than one."""
    fitting = [
        layers for layers in found if classes is None or named or layers[0].classes == classes
    ]
    if len(fitting) == 1:
        return fitting[0]
    shapes = [(layer.key, layer.shape) for layers in found for layer in layers]
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
    raise reasons[0] if reasons else LevelheadError(f"{path}: the model has no output")


def _spans_of(graph: Graph, heads: Iterable[Linear[str, LinearNode]]) -> tuple[LayerSpans, ...]:
    return tuple(_layer_spans(graph, one.layer, one.plain) for one in heads)


def _layer_spans(graph: Graph, layer: LinearNode, plain: bool) -> LayerSpans:
    """Return where in the file the weight and bias of a layer are."""
    if layer.rows:
        return join_rows(layer.key, [_layer_spans(graph, row, plain) for row in layer.rows])
    if graph.operator(layer.node) == CLASSIFIER:
        return classifier_layer(graph, layer.node)
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
