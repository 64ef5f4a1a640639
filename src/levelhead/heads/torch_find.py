"""Which layer of a torch model is its head.

A wrong guess would bend another layer, so that every doubt is an error.

`find_head` takes the layers that the caller names. Else it asks the model itself, the names that
libraries give their heads (candidates.py), and, last, whether only one layer has an output per
class. With an example it looks for the layers that pass its test (probe.py), whatever their name.
Without one, a layer is refused if something around it may bend its outputs (torch_around.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import jit, nn

from ..support.errors import LevelheadError
from .candidates import (
    HEAD_PAIRS,
    IF_SOFTMAX,
    Example,
    LayerChoice,
    check_no_rivals,
    find_by_names,
    is_shortcut,
)
from .probe import NAME_HEAD, Probe, probes_of
from .torch_around import (
    check_no_norm_after,
    check_parent_adds_nothing,
    first_harmful,
    is_plain_sequence,
    last_with_weights,
    modules_after,
    scale_around,
)
from .torch_layers import check_live, flat, linear_layers, listing, outputs, submodule, unwrap
from .trace import Modes, trace_modes

_Layers = dict[str, nn.Module]  # path -> layer, all of which feed the one output


def find_head(
    model: nn.Module,
    *,
    layer: LayerChoice = None,
    example: Example = None,
    classes: int | None = None,
) -> _Layers:
    """Find the layer, or layers, whose rows are a model's class weight vectors.

    In this order: the layer named, `get_classifier()`, the well-known attribute names, the layer
    that an example shows to be the head, the only layer with one output per class. Where an example
    is given, whatever was found must pass its test: scaling row i scales logit i and nothing else.
    Auxiliary heads, which a model runs in training alone, are not taken for a head.

    Args:
        model: any torch module; DDP, DataParallel and torch.compile wrappers are looked through.
        layer: a path such as "head.fc", the module itself, or a list of them if several feed one
            output.
        example: an input the model can be run on: a tensor, a tuple of arguments, or a dict of
            keyword arguments.
        classes: K, where it is known: it settles doubts. Of a model's outputs, those with K columns
            are looked at.

    Returns:
        {path: layer}, more than one where several feed one output.

    Raises:
        LevelheadError: there is no head, more than one layer could be it, or the one that looks
            like it is known not to be; the message lists the candidates.

    >>> find_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), classes=3)
    {'2': Linear(in_features=8, out_features=3, bias=True)}
    """
    model = unwrap(model)
    if isinstance(model, jit.ScriptModule):
        raise LevelheadError(
            "the model is compiled to TorchScript; adjust it before torch.jit.script or trace"
        )
    if classes is None:
        classes = _declared_classes(model)
    probes: tuple[Probe, ...] = ()
    if example is not None:
        probes = probes_of(model, example, classes)
    # An example is a proof, where names are a hint.
    if layer is None and probes:
        return _proved_layers(model, probes)

    if layer is not None:
        head = _named_layers(model, layer, classes)
    else:
        head = _declared_layers(model, classes) or _under_known_names(model, classes)
        head = head or _only_fitting_layer(model, classes)

    if probes:
        if not any(probe.scales(head) for probe in probes):
            rows = f"scaling the rows of {', '.join(head)}"
            reason = f"{rows} does not scale the model's logits one by one on this example"
            instead = "name another layer, or leave out the example if a softmax follows"
            raise LevelheadError(f"{reason}; {instead}")
        return head

    # Nothing was tried, so that what stands around the layers must be harmless.
    for path in head:
        check_no_norm_after(model, path)
        check_parent_adds_nothing(model, path)
        # The logits are then not W x + b alone.
        if layer is None and (name := scale_around(model, path)):
            may = "it may normalize the weights, as cosine heads do, or scale the logits"
            raise _undecided(f"{path} looks like the head, but the model has a {name}: {may}")
    return head


def auxiliary_heads(model: nn.Module, head: _Layers) -> tuple[str, ...]:
    """Return the paths of the layers with as many outputs as the head that only training runs.

    They are left as they are, and `Adjusted` says so: GoogLeNet's add to the loss, not to the
    logits.

    Args:
        model: not wrapped.
        head: what `find_head` found in it.
    """
    modules = _Modules(model)
    sizes = {outputs(module) for module in head.values()}
    return tuple(
        path
        for path, module in linear_layers(model)
        if path not in head and outputs(module) in sizes and modules.is_auxiliary(path, [*head])
    )


def _declared_classes(model: nn.Module) -> int | None:
    """Return how many classes the model says it has, if a layer has so many outputs."""
    sizes = {outputs(module) for _, module in linear_layers(model)}
    of_transformers = getattr(getattr(model, "config", None), "num_labels", None)
    of_timm = getattr(model, "num_classes", None)
    for size in (of_transformers, of_timm):
        if isinstance(size, int) and size in sizes:
            return size
    return None


def _undecided(reason: str) -> LevelheadError:
    return LevelheadError(f"{reason}; pass an example input", advice=NAME_HEAD)


def _named_layers(model: nn.Module, layer: LayerChoice, classes: int | None) -> _Layers:
    """Return the layers that a caller, or the model itself, names: by path, or the modules.

    Args:
        model: not wrapped.
        layer: one or several; a block stands for the layer that it ends in.
        classes: K, where it is known.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    head: _Layers = {}
    for name in flat(layer):
        module = None
        if isinstance(name, str):
            module = submodule(model, name)
            if module is None:
                listed = listing(linear_layers(model))
                raise LevelheadError(f"no layer {name!r} in the model; it has {listed}")
        elif isinstance(name, nn.Module):
            module = unwrap(name)
        if module is None or id(module) not in paths:
            got = repr(name)
            if isinstance(name, nn.Module):
                got = f"{type(name).__name__} that is not part of the model"
            expected = "expected the path of a layer or the layer itself"
            raise LevelheadError(f"{expected}, got {got}", parameter="layer")
        path = paths[id(module)]
        check_live(model, path)
        head |= _head_in_block(model, path, module, classes)
    if not head:
        raise LevelheadError("expected at least one layer, got an empty list", parameter="layer")
    return head


def _declared_layers(model: nn.Module, classes: int | None) -> _Layers | None:
    """Return what the model itself says its classifier is: timm's `get_classifier()`."""
    if not callable(getattr(model, "get_classifier", None)):
        return None
    parts = flat(model.get_classifier())  # type: ignore[operator]
    if not parts or not all(isinstance(part, nn.Module) for part in parts):
        return None
    if all(isinstance(part, nn.Identity) for part in parts):
        raise LevelheadError(
            "the model was built without a head: its classifier is Identity", advice=NAME_HEAD
        )
    head = _named_layers(model, parts, classes)
    check_no_rivals(_Modules(model), list(head))
    return head


def _under_known_names(model: nn.Module, classes: int | None) -> _Layers | None:
    """Return the layers under names that libraries give their heads."""
    paths = find_by_names(_Modules(model), classes)
    return {path: model.get_submodule(path) for path in paths} or None


@dataclass(frozen=True)
class _Modules:
    """The linear layers of a model as candidates for its head: what `find_by_names` asks."""

    model: nn.Module

    @cached_property
    def _linear(self) -> _Layers:
        return dict(linear_layers(self.model))

    @cached_property
    def _modes(self) -> Modes | None:
        return trace_modes(self.model, self._linear)

    def pairs(self) -> Sequence[tuple[str, str]]:
        return HEAD_PAIRS

    def rows(self, layer: str) -> int:
        return outputs(self.model.get_submodule(layer)) or 0

    def layers(self, rows: int) -> list[str]:
        layers = self._linear.items()
        return [path for path, m in layers if outputs(m) == rows and not is_shortcut(path)]

    def has(self, block: str) -> bool:
        return bool(self._inside(block))

    def fits(self, block: str, classes: int | None) -> bool:
        """Return whether a block has a layer of K outputs.

        If K is not known: whether it has the model's last layer.
        """
        inside = self._inside(block)
        if classes is not None:
            return any(outputs(module) == classes for module in inside)
        last = list(self._linear.values())[-1:]
        return any(module in last for module in inside)

    def ends(self, block: str, classes: int | None) -> list[str]:
        return list(_named_layers(self.model, submodule(self.model, block), classes))

    def is_hidden(self, layer: str, head: Sequence[str]) -> bool:
        """Return whether a layer is no rival of the head.

        It feeds a neighbor, or only training runs it.
        """
        return self._feeds_a_neighbor(layer, head) or self.is_auxiliary(layer, head)

    def is_auxiliary(self, layer: str, head: Sequence[str]) -> bool:
        """Return whether training runs the layer, and evaluation the head without it."""
        return self._modes is not None and layer in self._modes.auxiliary(head)

    def _feeds_a_neighbor(self, layer: str, head: Sequence[str]) -> bool:
        """Return whether a layer feeds a module of its block, which takes K inputs.

        A layer next to those of the head may feed the output with them. In a sequence, only what
        comes later takes what the layer gives.
        """
        parent = layer.rpartition(".")[0]
        if not parent or parent in {path.rpartition(".")[0] for path in head}:
            return False
        width = self.rows(layer)
        sizes = ("in_features", "in_channels", "num_features", "num_channels", "normalized_shape")
        block, neighbors = next(modules_after(self.model, layer))
        if not is_plain_sequence(block):
            neighbors = list(block.children())
        return any(
            getattr(module, size, None) in (width, (width,))
            for module in neighbors
            for size in sizes
        )

    def several(self, head: Sequence[str], rivals: Sequence[str] = ()) -> LevelheadError:
        """Return the error for several layers that could be the head, or for rivals of one."""
        listed = listing((path, self.model.get_submodule(path)) for path in rivals or head)
        if rivals:
            return _undecided(
                f"{', '.join(head)} looks like the head, but {listed} may feed the output too"
            )
        return _undecided(f"more than one layer could be the head: {listed}")

    def _inside(self, block: str) -> list[nn.Module]:
        part = submodule(self.model, block)
        if part is None:
            return []
        return [module for _, module in linear_layers(part)]


def _proved_layers(model: nn.Module, probes: tuple[Probe, ...]) -> _Layers:
    """Return the layers that the example shows to be the head.

    If several outputs have K columns, all must come from these layers: else one of them would be
    adjusted and the other not, and nobody said which one is used.
    """
    if len(probes) == 1:
        return _proved_by(model, probes[0])
    proved: dict[str, _Layers] = {}
    for probe in probes:
        try:
            proved[probe.output] = _proved_by(model, probe)
        except ValueError:
            proved[probe.output] = {}
    head = next((layers for layers in proved.values() if layers), {})
    if head and all(_comes_from(model, head, proved[probe.output], probe) for probe in probes):
        return head
    listed = []
    for output, layers in proved.items():
        listed.append(f"{output} (from {', '.join(layers) or 'no layer alone'})")
    columns = f"the model gives {len(probes)} outputs of {probes[0].classes} columns"
    raise LevelheadError(f"{columns}: {', '.join(listed)}; none is taken", advice=NAME_HEAD)


def _comes_from(model: nn.Module, head: _Layers, proved: _Layers, probe: Probe) -> bool:
    """Return whether an output comes from the head.

    It is the logits of the head. Or the head moves it, and no other layer of K outputs does, as of
    probabilities beside logits.
    """
    if proved:
        return list(proved) == list(head)
    if not probe.moves(head):
        return False
    for path, module in linear_layers(model):
        is_other = path not in head and outputs(module) == probe.classes
        if is_other and probe.moves({path: module}):
            return False
    return True


def _proved_by(model: nn.Module, probe: Probe) -> _Layers:
    """Return the layers that the example shows to be the head of one output.

    Those expected are tried first; if they do not pass, all layers are.
    """
    # Two runs tell of a guess; to try every layer takes two runs each.
    for guess in (_declared_layers, _under_known_names):
        try:
            guessed = guess(model, probe.classes)
        except ValueError:
            continue
        if guessed is not None and probe.scales(guessed):
            return guessed
    # Heads in a sum each move their own logits; all of them together must scale these.
    candidates = {path: m for path, m in linear_layers(model) if outputs(m) == probe.classes}
    head = {path: m for path, m in candidates.items() if probe.moves_own_logits({path: m})}
    if head and probe.scales(head):
        return head
    listed = listing(candidates.items() or linear_layers(model))
    if not candidates:
        raise LevelheadError(
            f"the model gives {probe.classes} outputs, but none of its linear layers does: {listed}"
        )
    raise LevelheadError(
        f"on this example no layer's rows are the model's logits one by one: {listed}; {IF_SOFTMAX}"
    )


def _only_fitting_layer(model: nn.Module, classes: int | None) -> _Layers:
    """Return the one layer with one output per class, if it is the last.

    The last way to find a head, where no name is known: K alone must point to one layer, and no
    layer with weights may come after it.

    Raises:
        LevelheadError: none fits, several do, or it is not the last.
    """
    layers = list(linear_layers(model))
    if not layers:
        raise LevelheadError(
            f"no linear layer or 1x1 convolution in {type(model).__name__}; pass a model that has one"
        )
    # In sequences all the way up, the last layer is the last that is run.
    if classes is None:
        path, module = layers[-1]
        if all(is_plain_sequence(block) for block, _ in modules_after(model, path)):
            return _head_in_block(model, path, module, classes)
        if len(layers) > 1:
            raise _undecided(f"could not tell which layer is the head: {listing(layers)}")
    fitting = []
    for path, module in layers:
        if classes in (None, outputs(module)) and not is_shortcut(path):
            fitting.append((path, module))
    if not fitting:
        raise LevelheadError(
            f"no layer has {classes} outputs, one per class; it has {listing(layers)}"
        )
    if len(fitting) > 1:
        raise _undecided(f"more than one layer has {classes} outputs: {listing(fitting)}")
    path, module = fitting[0]
    last = last_with_weights(model)
    if module is not last:
        name = next((where for where, m in model.named_modules() if m is last), "another")
        size = outputs(module)
        raise _undecided(f"{path} has {size} outputs but is not the last layer ({name} is)")
    return _head_in_block(model, path, module, classes)


def _head_in_block(model: nn.Module, path: str, module: nn.Module, classes: int | None) -> _Layers:
    """Return the head inside what was pointed at: a layer, or a block that ends in one.

    Args:
        model: not wrapped.
        path, module: what was pointed at.
        classes: K, where it is known.

    Raises:
        LevelheadError: there is no linear layer, several have as many outputs, or something that
            may bend them follows in a sequence.
    """
    inside = list(linear_layers(module, path))
    if not inside:
        raise LevelheadError(
            f"{path or 'the model'} ({type(module).__name__}) has no linear layer or 1x1 convolution"
        )
    # Of a block, the layer with K outputs; without such a one, its last.
    size = classes
    if classes not in [outputs(m) for _, m in inside]:
        size = outputs(inside[-1][1])
    ends = [(p, m) for p, m in inside if outputs(m) == size]
    if len(ends) > 1:
        raise _undecided(
            f"{path or 'the model'} has more than one layer with {size} outputs: {listing(ends)}"
        )
    end, _ = ends[0]
    for block, later in modules_after(model, end):
        harmful = first_harmful(later)
        if harmful is not None and is_plain_sequence(block):
            raise LevelheadError(
                f"{end} is not the head: a {type(harmful).__name__} follows; name another layer"
            )
    return dict(ends)
