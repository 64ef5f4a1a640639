"""All graphs, names and tensors of a parsed ONNX model, with those in functions, loops and branches."""

from collections.abc import Iterator
from typing import Any


def graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph, or a function, and every graph in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs(inner)


def all_graphs(model: Any) -> Iterator[Any]:
    """Yield every graph and function of a model."""
    trained = [graph for one in model.training_info for graph in (one.initialization, one.algorithm)]
    for whole in (model.graph, *model.functions, *trained):
        yield from graphs(whole)


def texts(model: Any) -> Iterator[Any]:
    """Yield every name in a model."""
    for graph in all_graphs(model):
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        yield from (getattr(value, "name", value) for value in (*graph.input, *graph.output))  # a function's are names
    for tensor in tensors(model):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    yield from (text for entry in model.metadata_props for text in (entry.key, entry.value))


def tensors(model: Any) -> Iterator[Any]:
    """Yield every tensor of a model."""
    for one in all_graphs(model):
        sparse = list(getattr(one, "sparse_initializer", ()))
        yield from getattr(one, "initializer", ())  # a function has none
        for node in one.node:
            for attribute in node.attribute:
                yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
                sparse += [*([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else [])]
                sparse += attribute.sparse_tensors
        for each in sparse:
            yield from (each.values, each.indices)
