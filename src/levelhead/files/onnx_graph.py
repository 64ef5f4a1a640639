"""The graph of an ONNX model: who makes and uses each value, which operator a node is, and what is constant."""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core.class_names import first_repeated
from ..support.errors import LevelheadError
from ..support.regular_file import Stamp
from .protobuf import Steps, WireFile

STANDARD_DOMAINS = ("", "ai.onnx")
ML_DOMAIN = "ai.onnx.ml"
ZIP_MAP = "ZipMap"  # of that domain: scores as a dict by class
NORMALIZER = "Normalizer"  # of that domain: of the probabilities of a LinearClassifier
CLASSIFIER = "LinearClassifier"  # of that domain, which gives the label and the scores
EXTRACTOR = "ArrayFeatureExtractor"  # of that domain: columns by index, or labels by class
TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
ML_OPERATORS = (ZIP_MAP, NORMALIZER, CLASSIFIER, EXTRACTOR, *TREES)
PASSING = ("Identity", "Cast", "Transpose", "Reshape")
LINEAR = ("Gemm", "MatMul", "Conv")


@dataclass(frozen=True)
class Graph:
    """A model without its large numbers, and who makes and uses each of its values."""

    path: Path
    model: Any
    file: WireFile
    stamp: Stamp  # of the file, when it was read
    named: bool = False  # whether the caller says which layer is the head
    walked: dict[Hashable, Any] = field(default_factory=dict)  # what is behind a value
    fixed: dict[str, bool] = field(default_factory=dict)  # what `is_constant` said

    @cached_property
    def functions(self) -> set[tuple[str, str]]:
        """The operators that the model defines itself: a runtime may take them for those of the same name."""
        return {(_domain(one), one.name) for one in self.model.functions}

    def operator(self, node: Any) -> str:
        """Return which operator a node is: by its name alone if it is one of ONNX itself, else with its domain."""
        domain, name = _domain(node), node.op_type
        standard = domain == "" and name not in ML_OPERATORS
        machine_learning = domain == ML_DOMAIN and name in ML_OPERATORS
        if (standard or machine_learning) and (domain, name) not in self.functions:
            return name
        return f"{domain or 'ai.onnx'}::{name}"

    @cached_property
    def makers(self) -> dict[str, Any]:
        return {name: node for node in self.model.graph.node for name in node.output}

    @cached_property
    def nodes(self) -> list[Any]:
        """All nodes, also those of graphs in nodes."""
        return list(messages(self.model.graph, "NodeProto"))

    @cached_property
    def uses(self) -> Counter[str]:
        outputs = (output.name for output in self.model.graph.output)
        return Counter([*outputs, *(name for node in self.nodes for name in node.input)])

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes of each value's axes, where they are known; a size that is not is 0."""
        from onnx.shape_inference import infer_shapes

        try:
            graph = infer_shapes(self.model, data_prop=True).graph
        except Exception:  # of many kinds, for a model that cannot be run: then no rank is known
            return {}
        types = [
            (one.name, one.type.tensor_type)
            for one in (*graph.input, *graph.value_info, *graph.output)
        ]
        return {
            name: tuple(n.dim_value for n in kind.shape.dim)
            for name, kind in types
            if kind.HasField("shape")
        }

    def rank(self, value: str) -> int:
        """Return how many axes a value has; 0 if that is not known."""
        return len(self.shapes.get(value, ()))

    def is_constant(self, name: str) -> bool:
        """Return whether a value comes from a constant by way of casts, transposes and scales alone."""
        way: dict[str, bool] = {}
        while name not in self.fixed and name not in way and name not in self.constants:
            way[name], node = False, self.makers.get(name)
            passing = (*PASSING, "DequantizeLinear")
            if node is None or self.operator(node) not in passing or not node.input:
                break
            name = node.input[0]
        fixed = self.fixed.get(name, name in self.constants)
        self.fixed.update(dict.fromkeys(way, fixed))
        return fixed

    def moving(self, node: Any) -> list[str]:
        """Return the inputs of a node that are not constant."""
        return [name for name in node.input if name and not self.is_constant(name)]

    def source(self, name: str, through: tuple[str, ...] = PASSING) -> tuple[str, list[Any]]:
        """Return the constant, or else the value, that a value comes from, and the nodes that it passes on the way."""
        passed: dict[str, Any] = {}
        while name not in self.constants and name not in passed:
            node = self.makers.get(name)
            if node is None or self.operator(node) not in through or not node.input:
                break
            passed[name], name = node, node.input[0]
        return name, list(passed.values())

    def maker(self, name: str, operator: str, *through: str) -> Any:
        """Return the node of this operator that a value comes from, by way of others if they are named; or None."""
        made = self.makers.get(self.source(name, ("Identity", *through))[0])
        if made is None or self.operator(made) != operator or not made.input:
            return None
        return made

    @cached_property
    def constants(self) -> dict[str, tuple[Any, Steps]]:
        """{name: (tensor, where it is in the file, as field numbers and indices)}."""
        given = enumerate(self.model.graph.initializer)
        found: list[tuple[str, Any, Steps]] = [
            (one.name, one, [(7, None), (5, i)]) for i, one in given
        ]
        for i, node in enumerate(self.model.graph.node):
            for j, attribute in enumerate(node.attribute):
                is_value = attribute.name == "value" and node.output
                if is_value and self.operator(node) == "Constant":
                    steps = [(7, None), (1, i), (5, j), (5, None)]
                    found.append((node.output[0], attribute.t, steps))
        if repeated := first_repeated([name for name, *_ in found]):
            raise LevelheadError(f"two constants are called {repeated!r}; export the model again")
        return {name: (tensor, steps) for name, tensor, steps in found}

    def integers(self, name: str) -> list[int] | None:
        """Return the numbers of a constant, such as a shape; None if it is not one, or they are not known."""
        from onnx.numpy_helper import to_array

        try:
            return [int(one) for one in to_array(self.constants[name][0]).ravel().tolist()]
        except Exception:  # of many kinds: the tensor is in another file, unknown, or cut short
            return None

    def number(self, name: str) -> float | None:
        """Return the only number of a constant; None if it is not one, or has others."""
        from onnx.numpy_helper import to_array

        try:
            return float(to_array(self.constants[name][0]).item())
        except Exception:  # as in `integers`
            return None


def _domain(one: Any) -> str:
    if one.domain in STANDARD_DOMAINS:
        return ""
    return one.domain


def input_of(node: Any, index: int = 0) -> str:
    """Return the name of a node's input; raise LevelheadError if it does not have so many."""
    if index >= len(node.input):
        raise LevelheadError(
            f"{node.op_type} {node.name!r} has {len(node.input)} inputs, expected {index + 1}"
        )
    return node.input[index]


def integer_attribute(node: Any, name: str, default: int) -> int:
    """Return an attribute that is a whole number."""
    return next((one.i for one in node.attribute if one.name == name), default)


def integers_attribute(node: Any, name: str) -> list[int] | None:
    """Return an attribute that is a list of whole numbers; None if the node does not have it."""
    return next((list(one.ints) for one in node.attribute if one.name == name), None)


def messages(message: Any, kind: str = "") -> Iterator[Any]:
    """Yield a message and all those in it, or those of a kind; no tensor is opened, as that copies its numbers."""
    waiting = [message]
    for one in waiting:  # which grows
        if kind in ("", name := one.DESCRIPTOR.name):
            yield one
        if name in ("TensorProto", "ValueInfoProto"):
            continue
        for field_of, value in one.ListFields():
            if field_of.message_type is not None:
                waiting += [value] if hasattr(value, "DESCRIPTOR") else value


def texts(model: Any) -> Iterator[Any]:
    """Yield every name in a model."""
    for one in messages(model, "TensorProto"):
        yield one.name
        for entry in one.external_data:
            yield from (entry.key, entry.value)
    for one in messages(model):
        if one.DESCRIPTOR.name == "TensorProto":
            continue
        for field_of, value in one.ListFields():
            if field_of.type == field_of.TYPE_STRING and field_of.name != "doc_string":
                yield from [value] if isinstance(value, str | bytes) else value
