"""Which layer of a torch model is its head. A wrong guess would bend another, so every doubt is an error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import jit, nn

from ..support.errors import LevelheadError
from .candidates import (
    HEAD_PAIRS,
    IF_SOFTMAX,
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

_Layers = dict[str, nn.Module]  # path -> layer, all of which feed the one output


def find_head(
    model: nn.Module, *, layer: Any = None, example: Any = None, classes: int | None = None
) -> _Layers:
    """Find the layer, or layers, whose rows are a model's class weight vectors.

    In this order: the layer named, `get_classifier()`, the well-known attribute names, the layer that an example shows
    to be the head, the only layer with one output per class. Where an example is given, whatever was found must pass
    its test: scaling row i scales logit i and nothing else.

    Args:
        model: any torch module; DDP, DataParallel and torch.compile wrappers are looked through.
        layer: a path such as "head.fc", the module itself, or a list of them if several feed one output.
        example: an input the model can be run on: a tensor, a tuple of arguments, or a dict of keyword arguments.
        classes: K, where it is known: it settles doubts. Of a model's outputs, those with K columns are looked at.

    Returns:
        {path: layer}, more than one where several feed one output.

    >>> find_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), classes=3)
    {'2': Linear(in_features=8, out_features=3, bias=True)}
    """
    model = unwrap(model)
    if isinstance(model, jit.ScriptModule):
        raise LevelheadError(
            "the model is compiled to TorchScript; adjust it before torch.jit.script or trace"
        )
    if classes is None:  # what the model says it has, if a layer agrees
        declared = (
            getattr(getattr(model, "config", None), "num_labels", None),
            getattr(model, "num_classes", None),
        )
        sizes = {outputs(m) for _, m in linear_layers(model)}
        classes = next((size for size in declared if isinstance(size, int) and size in sizes), None)
    probes = ()
    if example is not None:
        probes = probes_of(model, example, classes)
    if layer is None and probes:
        return _proved_layers(model, probes)
    if layer is not None:
        found = _named_layers(model, layer, classes)
    else:
        found = _declared_layers(model, classes) or _under_known_names(model, classes)
        found = found or _only_fitting_layer(model, classes)
    if probes and not any(probe.scales(found) for probe in probes):
        reason = f"scaling the rows of {', '.join(found)} does not scale the model's logits one by one on this example"
        raise LevelheadError(
            f"{reason}; name another layer, or leave out the example if a softmax follows"
        )
    for path in () if probes else found:
        check_no_norm_after(model, path)
        check_parent_adds_nothing(model, path)
        # The logits are then not W x + b alone.
        if layer is None and (name := scale_around(model, path)):
            may = "it may normalize the weights, as cosine heads do, or scale the logits"
            raise _undecided(f"{path} looks like the head, but the model has a {name}: {may}")
    return found


def _undecided(reason: str) -> LevelheadError:
    return LevelheadError(f"{reason}; pass an example input", advice=NAME_HEAD)


def _named_layers(model: nn.Module, layer: Any, classes: int | None) -> _Layers:
    paths = {id(m): path for path, m in model.named_modules()}
    found: _Layers = {}
    for one in flat(layer):
        if isinstance(one, str):
            module = submodule(model, one)
        else:
            module = None
            if isinstance(one, nn.Module):
                module = unwrap(one)
        if isinstance(one, str) and module is None:
            raise LevelheadError(
                f"no layer {one!r} in the model; it has {listing(linear_layers(model))}"
            )
        if module is None or id(module) not in paths:
            if isinstance(one, nn.Module):
                what = f"{type(one).__name__} that is not part of the model"
            else:
                what = repr(one)
            raise LevelheadError(
                f"expected the path of a layer or the layer itself, got {what}", parameter="layer"
            )
        check_live(model, paths[id(module)])
        found |= _head_in_block(model, paths[id(module)], module, classes)
    if not found:
        raise LevelheadError("expected at least one layer, got an empty list", parameter="layer")
    return found


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
    found = _named_layers(model, parts, classes)
    check_no_rivals(_Modules(model), list(found))
    return found


def _under_known_names(model: nn.Module, classes: int | None) -> _Layers | None:
    """Return the layers under names that libraries give their heads."""
    return {
        path: model.get_submodule(path) for path in find_by_names(_Modules(model), classes)
    } or None


@dataclass(frozen=True)
class _Modules:
    """The linear layers of a model as candidates for its head."""

    model: nn.Module

    pairs = HEAD_PAIRS

    def rows(self, layer: str) -> int:
        return outputs(self.model.get_submodule(layer)) or 0

    def layers(self, rows: int) -> list[str]:
        layers = linear_layers(self.model)
        return [path for path, m in layers if outputs(m) == rows and not is_shortcut(path)]

    def has(self, block: str) -> bool:
        return bool(self._inside(block))

    def fits(self, block: str, classes: int | None) -> bool:
        """Return whether a block has a layer of so many outputs or, if that is not known, the model's last layer."""
        last = [module for _, module in linear_layers(self.model)][-1:]
        return any(
            outputs(m) == classes if classes is not None else m in last for m in self._inside(block)
        )

    def ends(self, block: str, classes: int | None) -> list[str]:
        return list(_named_layers(self.model, submodule(self.model, block), classes))

    def is_hidden(self, layer: str, found: Sequence[str]) -> bool:
        """Return whether a layer is not next to those found, and feeds a neighbor that takes K inputs."""
        parent = layer.rpartition(".")[0]
        if not parent or parent in {path.rpartition(".")[0] for path in found}:
            return False
        sizes = ("in_features", "in_channels", "num_features", "num_channels", "normalized_shape")
        neighbors = self.model.get_submodule(parent).children()
        width = self.rows(layer)
        return any(getattr(m, size, None) in (width, (width,)) for m in neighbors for size in sizes)

    def several(self, found: Sequence[str], rivals: Sequence[str] = ()) -> LevelheadError:
        listed = listing((path, self.model.get_submodule(path)) for path in rivals or found)
        if rivals:
            return _undecided(
                f"{', '.join(found)} looks like the head, but {listed} may feed the output too"
            )
        return _undecided(f"more than one layer could be the head: {listed}")

    def _inside(self, block: str) -> list[nn.Module]:
        part = submodule(self.model, block)
        if part is None:
            return []
        return [module for _, module in linear_layers(part)]


def _proved_layers(model: nn.Module, probes: tuple[Probe, ...]) -> _Layers:
    """Return the layers that the example shows to be the head of the one output, or of all outputs with K columns."""
    if len(probes) == 1:
        return _proved_by(model, probes[0])
    found: dict[str, _Layers] = {}
    for probe in probes:
        try:
            found[probe.output] = _proved_by(model, probe)
        except ValueError:
            found[probe.output] = {}
    first = next((layers for layers in found.values() if layers), {})
    if first and all(_is_of(model, first, found[probe.output], probe) for probe in probes):
        return first
    listed = [
        f"{name} (from {', '.join(layers) or 'no layer alone'})" for name, layers in found.items()
    ]
    columns = f"the model gives {len(probes)} outputs of {probes[0].classes} columns"
    raise LevelheadError(f"{columns}: {', '.join(listed)}; none is taken", advice=NAME_HEAD)


def _is_of(model: nn.Module, head: _Layers, proved: _Layers, probe: Probe) -> bool:
    """Return whether an output comes from the head: as its logits, or moved by it and no other layer of K outputs."""
    if proved:
        return list(proved) == list(head)
    others = {
        path: m
        for path, m in linear_layers(model)
        if outputs(m) == probe.classes and path not in head
    }
    return probe.moves(head) and not any(probe.moves({path: m}) for path, m in others.items())


def _proved_by(model: nn.Module, probe: Probe) -> _Layers:
    """Return the layers that the example shows to be the head: those expected, if they pass, else by a search."""
    for guess in (_declared_layers, _under_known_names):
        try:
            found = guess(model, probe.classes)
        except ValueError:
            continue
        if found is not None and probe.scales(found):
            return found
    candidates = {path: m for path, m in linear_layers(model) if outputs(m) == probe.classes}
    found = {path: m for path, m in candidates.items() if probe.moves_own_logits({path: m})}
    if found and probe.scales(found):
        return found
    listed = listing(candidates.items() or linear_layers(model))
    if not candidates:
        raise LevelheadError(
            f"the model gives {probe.classes} outputs, but none of its linear layers does: {listed}"
        )
    raise LevelheadError(
        f"on this example no layer's rows are the model's logits one by one: {listed}; {IF_SOFTMAX}"
    )


def _only_fitting_layer(model: nn.Module, classes: int | None) -> _Layers:
    """Return the one layer with one output per class, if it is the last."""
    if not (layers := list(linear_layers(model))):
        raise LevelheadError(
            f"no linear layer or 1x1 convolution in {type(model).__name__}; pass a model that has one"
        )
    if classes is None and all(
        is_plain_sequence(block) for block, _ in modules_after(model, layers[-1][0])
    ):
        return _head_in_block(model, *layers[-1], classes)
    if classes is None and len(layers) > 1:
        raise _undecided(f"could not tell which layer is the head: {listing(layers)}")
    fitting = [
        (path, m) for path, m in layers if classes in (None, outputs(m)) and not is_shortcut(path)
    ]
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
    """Return the head inside what was pointed at: a layer, or a block that ends in one."""
    if not (inside := list(linear_layers(module, path))):
        raise LevelheadError(
            f"{path or 'the model'} ({type(module).__name__}) has no linear layer or 1x1 convolution"
        )
    size = classes
    if classes not in [outputs(m) for _, m in inside]:
        size = outputs(inside[-1][1])
    ends = [(p, m) for p, m in inside if outputs(m) == size]
    if len(ends) > 1:
        raise _undecided(
            f"{path or 'the model'} has more than one layer with {size} outputs: {listing(ends)}"
        )
    for block, later in modules_after(model, ends[0][0]):
        if (after := first_harmful(later)) is not None and is_plain_sequence(block):
            raise LevelheadError(
                f"{ends[0][0]} is not the head: a {type(after).__name__} follows; name another layer"
            )
    return dict(ends)
