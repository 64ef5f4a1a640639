"""What follows a head in a model's own forward, as `torch.fx` traces it. It needs no input of the model."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any, NamedTuple
from warnings import catch_warnings

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.nn import functional as F

from .evaluating import evaluating
from .probe import close

# They turn logits into probabilities: to see what else is done to the logits, they are left out.
SOFTMAX_FUNCTIONS = (torch.softmax, F.softmax, torch.log_softmax, F.log_softmax, torch.sigmoid, F.sigmoid)  # fmt: skip
SOFTMAX_METHODS = ("softmax", "log_softmax", "sigmoid")
SOFTMAX_MODULES = (nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Sigmoid)


class NotKnown(Exception):
    """What follows cannot be computed without an input of the model."""


def trace_tail(model: nn.Module, layers: Mapping[str, nn.Module]) -> "Tail | None":
    """Return what follows the layers of a head in the model's forward; None if torch.fx cannot trace the model.

    A model with hooks, or with a forward that was put into a module, is not traced: fx would not see the one, and call
    the other with something that is no tensor.
    """
    for module in model.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return None
    weights = [layer._parameters.get("weight") for layer in layers.values()]
    if not all(
        type(w) is nn.Parameter and type(w.data) is Tensor and not w.is_meta for w in weights
    ):
        return None
    tracer = _Tracer(layers)
    parameters = signature(type(model).forward).parameters.values()
    # Inputs that need not be given are as the model has them.
    defaults = {p.name: p.default for p in parameters if p.default is not Parameter.empty}
    with _as_before(model), evaluating(model), torch.no_grad(), catch_warnings(action="ignore"):
        try:
            graph = tracer.trace(model, concrete_args=defaults or None)
        except Exception:  # of any kind: the model's code runs on what is no tensor
            return None
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target in layers]
    touched = {node.target.rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}
    if touched & {*layers} or any(tracer.is_inside_a_leaf(model, path) for path in layers):
        return None
    return Tail(model, dict(layers), calls, _outputs_of(graph))


class _Tracer(fx.Tracer):
    """Traces a model down to the layers of torch and of its head."""

    proxy_buffer_attributes = True  # else a forward could change a buffer

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._head = {id(layer) for layer in layers.values()}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return id(m) in self._head or super().is_leaf_module(m, module_qualified_name)

    def is_inside_a_leaf(self, model: nn.Module, path: str) -> bool:
        """Return whether a layer is in a module of torch that is traced as a whole."""
        blocks = path.split(".")[:-1]
        paths = [".".join(blocks[:depth]) for depth in range(1, len(blocks) + 1)]
        return any(super(_Tracer, self).is_leaf_module(model.get_submodule(p), p) for p in paths)


@contextmanager
def _as_before(model: nn.Module) -> Iterator[None]:
    """Give modules back what they had, if a forward sets attributes, and torch its random numbers."""
    held = []
    for module in model.modules():
        registers = (module._parameters, module._buffers, module._modules)
        dicts = [vars(module), *registers]
        held += [(one, dict(one)) for one in dicts]
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            for attributes, before in held:
                same = all(attributes.get(name) is value for name, value in before.items())
                if not same or len(attributes) != len(before):
                    attributes.clear()
                    attributes.update(before)


def _outputs_of(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that a model returns: the logits, where they have that name, or all that may be them."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    returned = output.args[0]
    if isinstance(returned, Mapping) and isinstance(returned.get("logits"), fx.Node):
        return [returned["logits"]]
    found: list[fx.Node] = []
    map_arg(returned, lambda node: found.append(node))
    return list(dict.fromkeys(found))


class _Seen(NamedTuple):
    """What became of the outputs of a head: before and after a change, the classes last."""

    before: list[Tensor]
    after: list[Tensor]
    softmax: bool  # whether one was left out on the way


class Tail:
    """What a model does to the outputs of its head, computed on random numbers in their place."""

    def __init__(
        self,
        model: nn.Module,
        layers: dict[str, nn.Module],
        calls: Sequence[fx.Node],
        outputs: Sequence[fx.Node],
    ) -> None:
        self.model = model
        self.layers = layers
        after = {*calls}
        waiting = [*calls]
        while waiting:
            new = [user for user in waiting.pop().users if user not in after]
            after.update(new)
            waiting += new
        self.calls = calls
        self.outputs = [node for node in outputs if node in after]
        self.after = after

    @property
    def is_run(self) -> bool:
        """Whether what the model returns comes from the head at all."""
        called = {node.target for node in self.calls}
        return bool(self.outputs) and called == {*self.layers}

    def scales(self) -> bool | None:
        """Return whether scaling row i of the head scales logit i alone; None if that is not known."""
        # Powers of two, so that nothing is rounded.
        factors = 2.0 ** (torch.arange(self._classes) % 3 - 1)
        return self._check(
            lambda z, shape: z * factors.to(z).reshape(shape), lambda y: y * factors.to(y)
        )

    def adds(self) -> bool | None:
        """Return whether what is added to the outputs of the head is added to its logits; None if not known."""
        offsets = 5.0 * (torch.arange(self._classes) % 2) - 2.0

        return self._check(
            lambda z, shape: z + offsets.to(z).reshape(shape), lambda y: y + offsets.to(y)
        )

    @property
    def _classes(self) -> int:
        return len(next(iter(self.layers.values())).weight)  # type: ignore[arg-type]

    def _check(self, change: Any, expected: Any) -> bool | None:
        """Compare the outputs after a change of the head's with what is expected of them."""
        for sizes in self._sizes():
            try:
                seen = self._run(sizes, change)
            except (
                Exception
            ):  # of any kind: the model's own operations on other shapes than it is made for
                continue
            if not seen.before:
                continue
            pairs = zip(seen.before, seen.after, strict=True)
            if any(close(after, expected(before), before, self._dtype) for before, after in pairs):
                return True
            return None if seen.softmax else False
        return None

    @property
    def _dtype(self) -> torch.dtype:
        return next(iter(self.layers.values())).weight.dtype  # type: ignore[return-value]

    def _sizes(self) -> list[tuple[int, ...]]:
        """Return sizes that the axes of the outputs may have, beside samples and classes; likely ones first."""
        axes = len(getattr(next(iter(self.layers.values())), "kernel_size", ()))
        several = [size for size in (5, 7, 9, 11) if size != self._classes]
        if axes:
            return [tuple(several[:axes]), (1,) * axes]
        return [(), (several[0],)]

    def _run(self, sizes: tuple[int, ...], change: Any) -> _Seen:
        """Run what follows twice: on random outputs of the head, and on those after a change."""
        samples = 3 if self._classes == 2 else 2
        generator = torch.Generator().manual_seed(3)
        plain: dict[fx.Node, Any] = {}
        changed: dict[fx.Node, Any] = {}
        for node in self.calls:
            layer = self.layers[str(node.target)]
            is_convolution = hasattr(layer, "kernel_size")
            if is_convolution:
                shape = (samples, self._classes, *sizes)
            else:
                shape = (samples, *sizes, self._classes)
            z = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
            plain[node] = z.to(layer.weight)  # type: ignore[arg-type]
            along = [1] * len(shape)
            along[1 if is_convolution else -1] = self._classes
            changed[node] = change(plain[node], along)
        run = _Run(self.model, self.after, (samples, 3, *(size + 8 for size in sizes)))
        with evaluating(self.model), torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = [run.value(node, plain) for node in self.outputs]
            after = [run.value(node, changed) for node in self.outputs]
        pairs = [
            (self._classes_last(old), self._classes_last(new))
            for old, new in zip(before, after, strict=True)
        ]
        whole = [(old, new) for old, new in pairs if old is not None and new is not None]
        return _Seen([old for old, _ in whole], [new for _, new in whole], run.softmax)

    def _classes_last(self, value: Any) -> Tensor | None:
        """Return an output with its classes last, in float64; None if it has no axis of classes."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return None
        if self._classes == 1:  # a single logit may have lost its axis
            return value.double().cpu()[..., None]
        for axis in (-1, 1):
            if value.ndim > 1 and value.shape[axis] == self._classes:
                return value.movedim(axis, -1).double().cpu()
        return None


class _Run:
    """Computes nodes of a traced model that follow its head."""

    def __init__(self, model: nn.Module, after: set[fx.Node], input_shape: tuple[int, ...]) -> None:
        self.model = model
        self.after = after
        self.input_shape = input_shape
        self.softmax = False

    def value(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        """Return the value of a node, given those of the head's outputs; raise NotKnown if it needs an input."""
        if node not in known:
            known[node] = self._computed(node, known)
        return known[node]

    def _computed(self, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
        if node.op == "placeholder":
            raise NotKnown
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self.model)
        # Of an input, or of what came before the head.
        if node not in self.after and self._is_shape(node):
            return self._shape(node)
        args, kwargs = map_arg((node.args, node.kwargs), lambda one: self.value(one, known))
        if node.op == "call_function":
            if node.target in SOFTMAX_FUNCTIONS:
                return self._without_softmax(args, kwargs)
            return node.target(*args, **kwargs)  # type: ignore[operator]
        if node.op == "call_method":
            if node.target in SOFTMAX_METHODS:
                return self._without_softmax(args, kwargs)
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        module = self.model.get_submodule(str(node.target))
        if isinstance(module, SOFTMAX_MODULES):
            return self._without_softmax(args, kwargs)
        return module(*args, **kwargs)

    def _without_softmax(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.softmax = True
        return args[0] if args else kwargs["input"]

    def _is_shape(self, node: fx.Node) -> bool:
        if node.op == "call_method":
            return node.target == "size"
        return node.op == "call_function" and node.target is getattr and node.args[1] == "shape"

    def _shape(self, node: fx.Node) -> Any:
        """Return the shape of what the model takes, as far as it matters: how many samples, and pixels."""
        axis = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
        return self.input_shape[axis] if isinstance(axis, int) else self.input_shape  # type: ignore[index]
