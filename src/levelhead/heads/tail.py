"""What a torch model does to the outputs of its head, known from its forward without an input.

`tail_of` traces the forward (trace.py) and keeps the nodes after the head. A `Tail` then puts
random numbers in the place of the head's outputs [N, K], runs these nodes once on them and once on
changed ones, and compares: do the logits change as the outputs did? A softmax on the way is left
out, since it turns logits into probabilities; what needs an input of the model is not known.

    backbone(x) -> features -> head -> [ / temperature -> softmax ] -> output
                               random numbers from here, on through the nodes in brackets

The answers are True, False and None, not known: only False is an error (torch_proof.py).
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.nn import functional as F

from .evaluating import evaluating
from .probe import close
from .trace import is_inside_a_leaf, parameters_read, trace

# They turn logits into probabilities: to see what else is done to the logits, they are left out.
SOFTMAX_FUNCTIONS = (torch.softmax, F.softmax, torch.log_softmax, F.log_softmax, torch.sigmoid, F.sigmoid)  # fmt: skip
SOFTMAX_METHODS = ("softmax", "log_softmax", "sigmoid")
SOFTMAX_MODULES = (nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Sigmoid)
# These leave every number as it is, so that they may follow a softmax.
RESHAPING_FUNCTIONS = (torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze, operator.getitem)  # fmt: skip
RESHAPING_METHODS = (
    "clone", "contiguous", "detach", "flatten", "float", "permute", "reshape", "squeeze", "transpose",
    "unsqueeze", "view",
)  # fmt: skip
RESHAPING_MODULES = (nn.Dropout, nn.Flatten, nn.Identity, nn.Unflatten)

NodeValue: TypeAlias = Any  # of a node: a tensor, a shape, a tuple, whatever the model's code has


class NotKnown(Exception):
    """What follows cannot be computed without an input of the model."""


def tail_of(model: nn.Module, layers: Mapping[str, nn.Module]) -> "Tail | None":
    """Return what follows the layers of a head in the model's forward; None if it is not traced.

    Args:
        model: not wrapped.
        layers: of the head, by path.

    Returns:
        None where a weight is sharded, quantized or on the meta device, and where the forward
        cannot be traced.
    """
    # Random outputs are made like the weight, so that it must be a plain one, with numbers.
    for path, layer in layers.items():
        weight = layer._parameters.get("weight")
        if type(weight) is not nn.Parameter or type(weight.data) is not Tensor or weight.is_meta:
            return None
        if is_inside_a_leaf(model, path):
            return None
    graph = trace(model, layers)
    if graph is None:
        return None
    calls = [node for node in graph.nodes if node.op == "call_module" and node.target in layers]
    return Tail(model, dict(layers), calls, _outputs_of(graph), parameters_read(graph, layers))


def _outputs_of(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that a model returns: the one called logits, or all that may be them.

    Args:
        graph: of the whole forward, whose last node is what it returns: nested tuples and dicts.
    """
    (output,) = (node for node in graph.nodes if node.op == "output")
    returned = output.args[0]
    if isinstance(returned, Mapping) and isinstance(returned.get("logits"), fx.Node):
        return [returned["logits"]]
    # `map_arg` goes through nested tuples and dicts; each node is looked at once.
    nodes: list[fx.Node] = []
    map_arg(returned, lambda node: nodes.append(node))
    return list(dict.fromkeys(nodes))


class _Seen(NamedTuple):
    """What became of the outputs of a head, in one output of the model that has K columns."""

    before: Tensor  # [..., K], of random outputs of the head
    after: Tensor  # [..., K], of these outputs after a change
    past_softmax: bool  # whether something was done to what a softmax gave, which was left out


class _Change(NamedTuple):
    """A change of each class's number, and how it is made: ``values`` times them, or plus."""

    combine: Callable[[Tensor, Tensor], Tensor]
    values: Tensor  # [K]

    def along(self, x: Tensor, axis: int) -> Tensor:
        """Return x changed, where the classes are along one of its axes."""
        shape = [1] * x.ndim
        shape[axis] = len(self.values)
        return self.combine(x, self.values.to(x).reshape(shape))


class Tail:
    """What a model does to the outputs of its head, computed on random numbers in their place.

    Args:
        model: whose forward was traced.
        layers: of the head, by path; all have K outputs.
        calls: the nodes that run them.
        outputs: the nodes that the model returns; only those behind the head are kept.
            `is_only_output` says whether none of the others may be the logits.
        parameters_read: those of the layers that the forward takes by themselves, as "fc.weight".
            What is done to them cannot be told from here.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: dict[str, nn.Module],
        calls: Sequence[fx.Node],
        outputs: Sequence[fx.Node],
        parameters_read: set[str],
    ) -> None:
        self.model = model
        self.layers = layers
        self.calls = calls
        self.parameters_read = parameters_read
        # All nodes that use an output of the head, or use what does.
        after = {*calls}
        waiting = [*calls]
        while waiting:
            new = [user for user in waiting.pop().users if user not in after]
            after.update(new)
            waiting += new
        self.after = after
        weight = next(iter(layers.values())).weight
        assert isinstance(weight, Tensor)  # `tail_of` checked it
        self._classes = len(weight)
        self._dtype = weight.dtype
        self.outputs = [node for node in outputs if node in after]
        beside = [node for node in outputs if node not in after]
        self.is_only_output = not any(self._may_be_logits(node) for node in beside)

    @property
    def is_run(self) -> bool:
        """Whether what the model returns comes from the head at all."""
        called = {node.target for node in self.calls}
        return bool(self.outputs) and called == {*self.layers}

    @property
    def without_bias(self) -> list[str]:
        """The layers that the forward does not run, and whose bias it does not take either."""
        called = {node.target for node in self.calls}
        return [
            path
            for path in self.layers
            if path not in called and f"{path}.bias" not in self.parameters_read
        ]

    def _may_be_logits(self, node: fx.Node) -> bool:
        """Return whether an output that does not come from the head may have K columns.

        Not so an input of the model; nor what the head takes, or another layer gives, if that has
        another width. Of anything else the width is not known.
        """
        if node.op == "placeholder":
            return False
        widths = []
        for call in self.calls:
            if node in call.all_input_nodes:
                widths.append(_width(self.layers[str(call.target)], "in"))
        if node.op == "call_module":
            widths.append(_width(self.model.get_submodule(str(node.target)), "out"))
        known = [width for width in widths if width is not None]
        return self._classes in known or not known

    def scales(self) -> bool | None:
        """Return whether scaling row i of the head scales logit i alone; None if not known."""
        # Powers of two, so that nothing is rounded.
        factors = 2.0 ** (torch.arange(self._classes, device="cpu") % 3 - 1)
        return self._arrives(_Change(torch.mul, factors))

    def adds(self) -> bool | None:
        """Return whether what is added to the head's outputs arrives in its logits as it is.

        None if that is not known.
        """
        # -2 and 3, beside outputs of a spread of 3: a ReLU or a clamp on the way would be seen.
        offsets = 5.0 * (torch.arange(self._classes, device="cpu") % 2) - 2.0
        return self._arrives(_Change(torch.add, offsets))

    def _arrives(self, change: _Change) -> bool | None:
        """Return whether the outputs of the model change as the outputs of the head do.

        The first shape on which the rest of the model runs decides. Where a softmax was left out
        and its results are worked on, an output proves nothing, however it changes.

        Args:
            change: that is made to the head's outputs, and looked for in the model's.

        Returns:
            None if the rest runs on no shape, or has no output of K columns; if it arrives in one
            of several outputs alone; and if one of the layers takes what another gives: random
            numbers in its place would hide that.
        """
        if any(not self.after.isdisjoint(call.all_input_nodes) for call in self.calls):
            return None
        for sizes in self._likely_sizes():
            try:
                seen = self._run(sizes, change)
            # Of any kind: the model's own operations, on other shapes than it is made for.
            except Exception:
                continue
            if not seen:
                continue
            arrived = [
                close(after, change.along(before, -1), before, self._dtype) and not past_softmax
                for before, after, past_softmax in seen
            ]
            if all(arrived):
                return True
            if any(arrived) or any(output.past_softmax for output in seen):
                return None
            return False
        return None

    def _likely_sizes(self) -> list[tuple[int, ...]]:
        """Return sizes of the axes that the head's outputs may have beside samples and classes.

        A convolution gives pixels, several or one. A linear layer gives one row for each sample, or
        for each of several tokens. No size is K, so that the axis of the classes stays known.
        """
        axes = len(getattr(next(iter(self.layers.values())), "kernel_size", ()))
        several = [size for size in (5, 7, 9, 11) if size != self._classes]
        if axes:
            return [tuple(several[:axes]), (1,) * axes]
        return [(), (several[0],)]

    def _run(self, sizes: tuple[int, ...], change: _Change) -> list[_Seen]:
        """Run what follows twice: on random outputs of the head, and on those after a change.

        Args:
            sizes: of the axes beside samples and classes.
            change: of each class's number.
        """
        # As many samples as classes would hide which axis has the classes.
        samples = 3 if self._classes == 2 else 2
        generator = torch.Generator().manual_seed(3)
        plain: dict[fx.Node, NodeValue] = {}
        changed: dict[fx.Node, NodeValue] = {}
        for node in self.calls:
            layer = self.layers[str(node.target)]
            if hasattr(layer, "kernel_size"):  # a convolution: channels come second
                axis = 1
                shape = (samples, self._classes, *sizes)
            else:
                axis = -1
                shape = (samples, *sizes, self._classes)
            random = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
            plain[node] = (3 * random).to(layer.weight)  # type: ignore[arg-type]
            changed[node] = change.along(plain[node], axis)

        # A forward may ask for the size of its images, to bring logits of pixels back to it.
        run = _Run(self.model, self.after, (samples, 3, *(size + 8 for size in sizes)))
        with evaluating(self.model), torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = [run.value(node, plain) for node in self.outputs]
            after = [run.value(node, changed) for node in self.outputs]

        seen = []
        for node, old, new in zip(self.outputs, before, after, strict=True):
            old_logits = self._classes_last(old)
            new_logits = self._classes_last(new)
            if old_logits is not None and new_logits is not None:
                seen.append(_Seen(old_logits, new_logits, node in run.past_softmax))
        return seen

    def _classes_last(self, value: NodeValue) -> Tensor | None:
        """Return an output with its classes last, in float64; None if it has no axis of classes."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return None
        if self._classes == 1:  # a single logit may have lost its axis
            return value.double().cpu()[..., None]
        for axis in (-1, 1):
            if value.ndim > 1 and value.shape[axis] == self._classes:
                return value.movedim(axis, -1).double().cpu()
        return None


def _width(layer: nn.Module, side: Literal["in", "out"]) -> int | None:
    """Return how many features, or channels, a layer takes or gives; None if that is not known."""
    for kind in ("features", "channels"):
        width = getattr(layer, f"{side}_{kind}", None)
        if isinstance(width, int):
            return width
    return None


class _Run:
    """Computes nodes of a traced model that follow its head.

    Like `fx.Interpreter`, but from the outputs back: only what an output needs is computed, so that
    an input that nothing behind the head uses need not be there.

    Args:
        model: whose forward was traced.
        after: the nodes that follow the head.
        input_shape: of what the model takes, where its forward asks for it.
    """

    def __init__(self, model: nn.Module, after: set[fx.Node], input_shape: tuple[int, ...]) -> None:
        self.model = model
        self.after = after
        self.input_shape = input_shape
        # Softmaxes that were left out, reshaped or not, and all nodes that make more of those.
        self.probabilities: set[fx.Node] = set()
        self.past_softmax: set[fx.Node] = set()

    def value(self, node: fx.Node, values: dict[fx.Node, NodeValue]) -> NodeValue:
        """Return the value of a node, given those of the head's outputs; each is computed once.

        Raises:
            NotKnown: it needs an input of the model.
        """
        if node not in values:
            values[node] = self._computed(node, values)
        return values[node]

    def _computed(self, node: fx.Node, values: dict[fx.Node, NodeValue]) -> NodeValue:
        """Compute a node as `fx.Interpreter` would, but for softmaxes and shapes of inputs.

        Raises:
            NotKnown: an input of the model is needed for more than its shape.
        """
        if node.op == "placeholder":
            raise NotKnown
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self.model)
        # Of an input, or of what came before the head.
        if node not in self.after and self._is_shape(node):
            return self._shape(node)
        args, kwargs = map_arg((node.args, node.kwargs), lambda source: self.value(source, values))
        # What depends on a softmax that was left out is worked on as logits, which the model never
        # does.
        is_softmax = self._is_one_of(node, SOFTMAX_FUNCTIONS, SOFTMAX_METHODS, SOFTMAX_MODULES)
        reshapes = self._is_one_of(node, RESHAPING_FUNCTIONS, RESHAPING_METHODS, RESHAPING_MODULES)
        uses_probabilities = not self.probabilities.isdisjoint(node.all_input_nodes)
        uses_more = not self.past_softmax.isdisjoint(node.all_input_nodes)
        if uses_more or (uses_probabilities and not reshapes):
            self.past_softmax.add(node)
        elif uses_probabilities or is_softmax:
            self.probabilities.add(node)
        if is_softmax:
            return args[0] if args else kwargs["input"]
        if node.op == "call_function":
            return node.target(*args, **kwargs)  # type: ignore[operator]
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return self.model.get_submodule(str(node.target))(*args, **kwargs)

    def _is_one_of(
        self,
        node: fx.Node,
        functions: Sequence[object],
        methods: Sequence[str],
        modules: tuple[type[nn.Module], ...],
    ) -> bool:
        """Return whether a node calls one of these, whichever way."""
        if node.op == "call_function":
            return node.target in functions
        if node.op == "call_method":
            return node.target in methods
        return isinstance(self.model.get_submodule(str(node.target)), modules)

    def _is_shape(self, node: fx.Node) -> bool:
        if node.op == "call_method":
            return node.target == "size"
        return node.op == "call_function" and node.target is getattr and node.args[1] == "shape"

    def _shape(self, node: fx.Node) -> tuple[int, ...] | int:
        """Return the shape of what the model takes, or one size of it.

        The axes are samples, channels and pixels.
        """
        axis = node.kwargs.get("dim")
        if axis is None and len(node.args) > 1:
            axis = node.args[1]
        if isinstance(axis, int):
            return self.input_shape[axis]
        return self.input_shape
