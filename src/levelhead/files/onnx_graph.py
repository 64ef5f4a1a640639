"""The graph of an ONNX model: who makes and uses each value, and what is constant.

A graph is a list of nodes; each takes values by name and makes others. Weights are initializers, or
the outputs of nodes called Constant. `Graph` answers what the walk from an output back to the head
(onnx_walk.py) asks: which node makes a value, which values are constant, of which shape they are.

Names are all that there is: a value that no node makes is an input or an initializer, and an empty
name stands for an input that is left out. Nodes may hold graphs (If, Loop), which use values of the
graph around them; those count as uses, but no head is looked for inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.class_names import first_repeated
from ..support.errors import LevelheadError
from ..support.regular_file import Stamp
from .protobuf import Steps, WireFile

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto

Message: TypeAlias = Any  # any message of protobuf, whose own class has no types

STANDARD_DOMAINS = ("", "ai.onnx")
ML_DOMAIN = "ai.onnx.ml"
ZIP_MAP = "ZipMap"  # of that domain: scores as a dict by class
NORMALIZER = "Normalizer"  # of that domain: of the probabilities of a LinearClassifier
CLASSIFIER = "LinearClassifier"  # of that domain, which gives the label and the scores
EXTRACTOR = "ArrayFeatureExtractor"  # of that domain: columns by index, or labels by class
TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
ML_OPERATORS = (ZIP_MAP, NORMALIZER, CLASSIFIER, EXTRACTOR, *TREES)
PASSING = ("Identity", "Cast", "Transpose", "Reshape")  # what keeps the numbers of a constant
LINEAR = ("Gemm", "MatMul", "Conv")


@dataclass(frozen=True)
class Graph:
    """A model without its large numbers, and who makes and uses each of its values.

    Args:
        path, stamp: its file, and what that was when it was read.
        model: the message of the library, in which large numbers are left out.
        file: the same file, to look up where a field is in it.
        named: whether the caller says which layer is the head.
        walked: what is behind a value, as far as the walk back has come (`layers_behind`).
        fixed: what `is_constant` said.
    """

    path: Path
    model: ModelProto
    file: WireFile
    stamp: Stamp
    named: bool = False
    walked: dict[Hashable, Any] = field(default_factory=dict)
    fixed: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def functions(self) -> set[tuple[str, str]]:
        """The operators that the model defines itself, as (domain, name).

        A runtime may take them for those of the same name, which then do something else than their
        name says.
        """
        return {(_domain(function), function.name) for function in self.model.functions}

    def operator(self, node: NodeProto) -> str:
        """Return which operator a node is.

        By its name alone if it is one of ONNX itself; else with its domain, such as
        `com.microsoft::Gelu`, so that no table of known operators has it.
        """
        domain = _domain(node)
        name = node.op_type
        standard = domain == "" and name not in ML_OPERATORS
        machine_learning = domain == ML_DOMAIN and name in ML_OPERATORS
        if (standard or machine_learning) and (domain, name) not in self.functions:
            return name
        return f"{domain or 'ai.onnx'}::{name}"

    @cached_property
    def makers(self) -> dict[str, NodeProto]:
        """The node that makes each value; none makes an input or an initializer."""
        return {name: node for node in self.model.graph.node for name in node.output}

    @cached_property
    def nodes(self) -> list[NodeProto]:
        """All nodes, also those of graphs in nodes, in no order that matters."""
        return list(messages(self.model.graph, "NodeProto"))

    @cached_property
    def uses(self) -> Counter[str]:
        """How often each value is taken: by nodes, or as an output of the model.

        A weight that is used twice is not scaled: both uses would change.
        """
        uses = Counter(output.name for output in self.model.graph.output)
        for node in self.nodes:
            uses.update(node.input)
        return uses

    @cached_property
    def opset(self) -> int:
        """The version of the standard operators; 13 if the model does not say."""
        stated = self.model.opset_import
        return next((one.version for one in stated if one.domain in STANDARD_DOMAINS), 13)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes of each value's axes, where they are known; a size that is not is 0.

        By onnx's inference over the model without its large numbers, which it does not need.
        """
        from onnx.shape_inference import infer_shapes

        try:
            # Values of shapes are followed, too: a Reshape often takes its target from a Shape and
            # a Concat.
            graph = infer_shapes(self.model, data_prop=True).graph
        except Exception:  # of many kinds, for a model that cannot be run: then no rank is known
            return {}
        shapes = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            if tensor.HasField("shape"):
                shapes[value.name] = tuple(axis.dim_value for axis in tensor.shape.dim)
        return shapes

    def rank(self, value: str) -> int:
        """Return how many axes a value has; 0 if that is not known."""
        return len(self.shapes.get(value, ()))

    def is_constant(self, name: str) -> bool:
        """Return whether a value comes from a constant by casts, transposes and scales alone.

        Remembered for all values on the way: a chain of thousands is walked once, whoever asks.
        """
        # From the value back to one that is known, a constant, or something that may not be passed.
        # What that one is holds for all on the way. A circle, which no model should have, ends it
        # as well.
        passing = (*PASSING, "DequantizeLinear")
        way: set[str] = set()  # the values from here back to the one that decides
        while name not in self.fixed and name not in way and name not in self.constants:
            way.add(name)
            node = self.makers.get(name)
            if node is None or self.operator(node) not in passing or not node.input:
                break
            name = node.input[0]
        fixed = self.fixed.get(name, name in self.constants)
        self.fixed.update(dict.fromkeys(way, fixed))
        return fixed

    def moving(self, node: NodeProto) -> list[str]:
        """Return the inputs of a node that are not constant."""
        return [name for name in node.input if name and not self.is_constant(name)]

    def source(self, name: str, through: tuple[str, ...] = PASSING) -> tuple[str, list[NodeProto]]:
        """Return what a value comes from, and the nodes that it passes on the way.

        Args:
            name: the value.
            through: operators that are passed, by their first input.

        Returns:
            The constant, or else the value where the way ends; and the nodes, the nearest first.
        """
        passed: dict[str, NodeProto] = {}
        while name not in self.constants and name not in passed:
            node = self.makers.get(name)
            if node is None or self.operator(node) not in through or not node.input:
                break
            passed[name] = node
            name = node.input[0]
        return name, list(passed.values())

    def maker(self, name: str, operator: str, *through: str) -> NodeProto | None:
        """Return the node of this operator that a value comes from, or None.

        Args:
            name: the value.
            operator: which is wanted.
            through: others that may lie between; Identity always may.
        """
        value, _ = self.source(name, ("Identity", *through))
        node = self.makers.get(value)
        if node is None or self.operator(node) != operator or not node.input:
            return None
        return node

    @cached_property
    def constants(self) -> dict[str, tuple[TensorProto, Steps]]:
        """The constants by name: {name: (tensor, where it is in the file)}.

        Where is told as steps for `WireFile.locate`. The tensors are without large numbers.

        Raises:
            LevelheadError: two have one name, of which a runtime may take either.
        """
        # Fields: 7 is the graph of a model, 5 an initializer of a graph, 1 a node of it, 5 an
        # attribute of a node, and 5 the tensor of an attribute.
        constants: list[tuple[str, TensorProto, Steps]] = []
        for i, tensor in enumerate(self.model.graph.initializer):
            constants.append((tensor.name, tensor, [(7, None), (5, i)]))
        for i, node in enumerate(self.model.graph.node):
            for j, attribute in enumerate(node.attribute):
                is_value = attribute.name == "value" and node.output
                if is_value and self.operator(node) == "Constant":
                    steps = [(7, None), (1, i), (5, j), (5, None)]
                    constants.append((node.output[0], attribute.t, steps))
        repeated = first_repeated([name for name, _, _ in constants])
        if repeated:
            raise LevelheadError(f"two constants are called {repeated!r}; export the model again")
        return {name: (tensor, steps) for name, tensor, steps in constants}

    def integers(self, name: str) -> list[int] | None:
        """Return the numbers of a constant, such as a shape.

        None if it is not one, or they are not known: in another file, or left out, as long ones
        are.
        """
        from onnx.numpy_helper import to_array

        try:
            return [int(n) for n in to_array(self.constants[name][0]).ravel().tolist()]
        except Exception:  # of many kinds: the tensor is in another file, unknown, or cut short
            return None

    def number(self, name: str) -> float | None:
        """Return the only number of a constant; None if it is not one, or has others."""
        from onnx.numpy_helper import to_array

        try:
            return float(to_array(self.constants[name][0]).item())
        except Exception:  # as in `integers`
            return None


def _domain(owner: NodeProto | FunctionProto) -> str:
    """Return which set of operators a node or a function is of; ONNX's own has two names."""
    if owner.domain in STANDARD_DOMAINS:
        return ""
    return owner.domain


def input_of(node: NodeProto, index: int = 0) -> str:
    """Return the name of a node's input; raise LevelheadError if it does not have so many."""
    if index >= len(node.input):
        raise LevelheadError(
            f"{node.op_type} {node.name!r} has {len(node.input)} inputs, expected {index + 1}"
        )
    return node.input[index]


def attribute_of(node: NodeProto, name: str) -> AttributeProto | None:
    """Return the attribute of this name, or None; of two, which no model should have, the first."""
    for attribute in node.attribute:
        if attribute.name == name:
            return attribute
    return None


def integer_attribute(node: NodeProto, name: str, default: int) -> int:
    """Return an attribute that is a whole number."""
    attribute = attribute_of(node, name)
    if attribute is None:
        return default
    return attribute.i


def integers_attribute(node: NodeProto, name: str) -> list[int] | None:
    """Return an attribute that is a list of whole numbers; None if the node does not have it."""
    attribute = attribute_of(node, name)
    if attribute is None:
        return None
    return list(attribute.ints)


def messages(message: Message, kind: str = "") -> Iterator[Message]:
    """Yield a message and all those in it, or those of a kind.

    No tensor is opened, as that copies its numbers, nor the description of a value, which has no
    tensors.

    Args:
        message: of protobuf.
        kind: the name of the messages that are wanted, such as `TensorProto`; all if empty.
    """
    waiting = [message]
    for inner in waiting:  # which grows
        name = inner.DESCRIPTOR.name
        if kind in ("", name):
            yield inner
        if name in ("TensorProto", "ValueInfoProto"):
            continue
        for field_of, value in inner.ListFields():
            if field_of.message_type is None:
                continue
            # A field is one message, or a row of them.
            if hasattr(value, "DESCRIPTOR"):
                waiting.append(value)
            else:
                waiting += value


def texts(model: ModelProto) -> Iterator[str | bytes]:
    """Yield every name in a model; protobuf gives those that are not UTF-8 as bytes.

    Descriptions for people (`doc_string`) are no names: nothing goes by them.
    """
    for tensor in messages(model, "TensorProto"):
        yield tensor.name
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)
    for inner in messages(model):
        if inner.DESCRIPTOR.name == "TensorProto":
            continue
        for field_of, value in inner.ListFields():
            if field_of.type != field_of.TYPE_STRING or field_of.name == "doc_string":
                continue
            if isinstance(value, str | bytes):
                yield value
            else:
                yield from value
