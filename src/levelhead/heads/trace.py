"""The forward of a torch model as `torch.fx` traces it, without an input.

`trace` runs the forward on placeholders and records what it does, down to the layers of torch and
those of a head. From that record, tail.py tells what the model does to the outputs of its head.
`trace_modes` compares the forwards of training and evaluation: layers that only training runs are
auxiliary heads, as GoogLeNet and Inception have them.

A model that cannot be traced (its forward branches on numbers, it has hooks, it is sharded) gives
None, and then nothing is concluded from it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any, NamedTuple
from warnings import catch_warnings

import torch
from torch import fx, nn

from .evaluating import in_mode


def trace(
    model: nn.Module, layers: Mapping[str, nn.Module], *, training: bool = False
) -> fx.Graph | None:
    """Record a model's forward in one of its modes; None if torch.fx cannot.

    Args:
        model: not wrapped; it is left as it was.
        layers: linear layers by path, each of which is to be one node of the graph.
        training: whether the forward of training is meant, or that of evaluation.

    Returns:
        The nodes in the order in which they run: `placeholder` (an input), `get_attr` (a parameter
        or buffer), `call_module`, `call_function`, `call_method`, and one `output`.
    """
    # fx does not see hooks, and calls a forward that was put into a module with no tensor.
    for module in model.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return None
    tracer = _Tracer(layers)
    # Inputs that need not be given are as the model has them.
    defaults = {}
    for parameter in signature(type(model).forward).parameters.values():
        if parameter.default is not Parameter.empty:
            defaults[parameter.name] = parameter.default
    mode = in_mode(model, training=training)
    with _as_before(model), mode, torch.no_grad(), catch_warnings(action="ignore"):
        try:
            return tracer.trace(model, concrete_args=defaults or None)
        except Exception:  # of any kind: the model's code runs on what is no tensor
            return None


class Modes(NamedTuple):
    """Which layers a model's forward uses in each of its modes, by path."""

    evaluation: set[str]
    training: set[str]

    def auxiliary(self, head: Collection[str]) -> set[str]:
        """Return the layers that training uses and evaluation does not.

        There are none unless evaluation uses the head.

        A layer that neither uses is not auxiliary: the model may run it for another argument, or in
        another method than forward.
        """
        if not self.evaluation.issuperset(head):
            return set()
        return self.training - self.evaluation


def trace_modes(model: nn.Module, layers: Mapping[str, nn.Module]) -> Modes | None:
    """Return which of the layers a model uses in each mode.

    Args:
        layers: by path.

    Returns:
        None if the model cannot be traced in both.
    """
    evaluation = trace(model, layers, training=False)
    training = trace(model, layers, training=True)
    if evaluation is None or training is None:
        return None
    return Modes(_used(evaluation, layers), _used(training, layers))


def parameters_read(graph: fx.Graph, layers: Iterable[str]) -> set[str]:
    """Return the parameters that a forward takes out of the layers, beside running these.

    Each by its path, such as "fc.weight".
    """
    read = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
    owners = {*layers}
    return {path for path in read if path.rpartition(".")[0] in owners}


def _used(graph: fx.Graph, layers: Iterable[str]) -> set[str]:
    """Return the layers that a forward runs, or whose parameters it uses in another way."""
    used = set()
    for node in graph.nodes:
        if node.op == "call_module":
            used.add(str(node.target))
        elif node.op == "get_attr":
            used.add(str(node.target).rpartition(".")[0])
    return used.intersection(layers)


class _Tracer(fx.Tracer):
    """Traces a model down to the layers of torch and of its head."""

    proxy_buffer_attributes = True  # else a forward could change a buffer

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._head = {id(layer) for layer in layers.values()}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return id(m) in self._head or super().is_leaf_module(m, module_qualified_name)


def is_inside_a_leaf(model: nn.Module, path: str) -> bool:
    """Return whether a layer is in a module of torch that is traced as a whole.

    It then has no node of its own.
    """
    blocks = path.split(".")[:-1]
    paths = [".".join(blocks[:depth]) for depth in range(1, len(blocks) + 1)]
    return any(fx.Tracer().is_leaf_module(model.get_submodule(p), p) for p in paths)


@contextmanager
def _as_before(model: nn.Module) -> Iterator[None]:
    """Give modules back what they had, and torch its random numbers.

    A forward may set attributes, and draw. On placeholders it would leave some of those in the
    model, in place of the tensors that it means to keep.
    """
    # A module has its parameters, buffers and submodules in dicts beside its attributes.
    held: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for module in model.modules():
        for attributes in (vars(module), module._parameters, module._buffers, module._modules):
            held.append((attributes, dict(attributes)))
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            for attributes, before in held:
                same = all(attributes.get(name) is value for name, value in before.items())
                if not same or len(attributes) != len(before):
                    attributes.clear()
                    attributes.update(before)
