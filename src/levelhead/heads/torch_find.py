"""Which layer of a torch model is its head. A wrong guess would bend another, so every doubt is an error."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import jit, nn

from ..core.adjustment import PROBLEM_TYPES
from ..support.errors import LevelheadError
from ..support.types import LabelTask
from .candidates import (
    HEAD_PAIRS,
    IF_SOFTMAX,
    NOT_ADDED,
    TUNE_SCALES,
    check_no_rivals,
    find_by_names,
    is_logit_scale,
    list_layers,
)
from .probe import NAME_HEAD, Probe, probes_of

# What may follow a head without undoing the scaling of its rows: nothing learned, nothing that mixes them but softmax.
HARMLESS_MODULES = (
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Flatten, nn.Unflatten, nn.Upsample, nn.ReLU, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d, nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Sigmoid,
)  # fmt: skip
# Modules that hold a model as `module`: DDP, and the averages (EMA, SWA) of torch and timm.
WRAPPERS = ("DistributedDataParallel", "DataParallel", "AveragedModel", "ModelEmaV2", "ModelEmaV3")
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
    probes = () if example is None else probes_of(model, example, classes)
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
        _check_no_norm_follows(model, path)
        if layer is None and (
            name := _scale_around(model, path)
        ):  # the logits are then not W x + b alone
            may = "it may normalize the weights, as cosine heads do, or scale the logits"
            raise _undecided(f"{path} looks like the head, but the model has a {name}: {may}")
    return found


def check_adds(model: nn.Module, found: _Layers, example: Any) -> None:
    """Check that what is added to a head's biases is added to the logits: on an example, or by the layers after it."""
    model, first = unwrap(model), next(iter(found))
    if example is not None:
        probes = probes_of(model, example, outputs(found[first]))
        if not any(probe.scales(found) and probe.adds(found) for probe in probes):
            raise LevelheadError(NOT_ADDED.format(first))
    elif name := _scale_around(model, first):
        reason = f"the model has a {name}: it may scale what is added to the bias of {first}"
        raise LevelheadError(f"{reason}; pass an example input, or {TUNE_SCALES}")
    for block, later in _modules_after(model, first):
        if _is_plain_sequence(block) and any(isinstance(module, nn.ReLU) for module in later):
            reason = (
                f"a ReLU follows {first}, and what is added before it is not added to the logits"
            )
            raise LevelheadError(f"{reason}; {TUNE_SCALES}")


def _undecided(reason: str) -> LevelheadError:
    return LevelheadError(f"{reason}; pass an example input", advice=NAME_HEAD)


def _named_layers(model: nn.Module, layer: Any, classes: int | None) -> _Layers:
    paths = {id(m): path for path, m in model.named_modules()}
    found: _Layers = {}
    for one in _flat(layer):
        module = (
            _submodule(model, one)
            if isinstance(one, str)
            else unwrap(one)
            if isinstance(one, nn.Module)
            else None
        )
        if isinstance(one, str) and module is None:
            raise LevelheadError(
                f"no layer {one!r} in the model; it has {listing(linear_layers(model))}"
            )
        if module is None or id(module) not in paths:
            what = (
                f"{type(one).__name__} that is not part of the model"
                if isinstance(one, nn.Module)
                else repr(one)
            )
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
    parts = _flat(model.get_classifier())  # type: ignore[operator]
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
        return [path for path, module in linear_layers(self.model) if outputs(module) == rows]

    def has(self, block: str) -> bool:
        return bool(self._inside(block))

    def fits(self, block: str, classes: int | None) -> bool:
        """Return whether a block has a layer of so many outputs or, if that is not known, the model's last layer."""
        last = [module for _, module in linear_layers(self.model)][-1:]
        return any(
            outputs(m) == classes if classes is not None else m in last for m in self._inside(block)
        )

    def ends(self, block: str, classes: int | None) -> list[str]:
        return list(_named_layers(self.model, _submodule(self.model, block), classes))

    def is_hidden(self, layer: str, found: Sequence[str]) -> bool:
        """Return whether a layer is not next to those found, and feeds a neighbor that takes K inputs."""
        parent = layer.rpartition(".")[0]
        if not parent or parent in {path.rpartition(".")[0] for path in found}:
            return False
        sizes = ("in_features", "in_channels", "num_features", "num_channels", "normalized_shape")
        neighbors, width = self.model.get_submodule(parent).children(), self.rows(layer)
        return any(getattr(m, size, None) in (width, (width,)) for m in neighbors for size in sizes)

    def several(self, found: Sequence[str], rivals: Sequence[str] = ()) -> LevelheadError:
        listed = listing((path, self.model.get_submodule(path)) for path in rivals or found)
        if rivals:
            return _undecided(
                f"{', '.join(found)} looks like the head, but {listed} may feed the output too"
            )
        return _undecided(f"more than one layer could be the head: {listed}")

    def _inside(self, block: str) -> list[nn.Module]:
        part = _submodule(self.model, block)
        return [] if part is None else [module for _, module in linear_layers(part)]


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
        _is_plain_sequence(block) for block, _ in _modules_after(model, layers[-1][0])
    ):
        return _head_in_block(model, *layers[-1], classes)
    if classes is None and len(layers) > 1:
        raise _undecided(f"could not tell which layer is the head: {listing(layers)}")
    fitting = [(path, m) for path, m in layers if classes in (None, outputs(m))]
    if not fitting:
        raise LevelheadError(
            f"no layer has {classes} outputs, one per class; it has {listing(layers)}"
        )
    if len(fitting) > 1:
        raise _undecided(f"more than one layer has {classes} outputs: {listing(fitting)}")
    path, module = fitting[0]
    if module is not layers[-1][1]:
        raise _undecided(
            f"{path} has {classes} outputs but is not the last layer ({layers[-1][0]} is)"
        )
    return _head_in_block(model, path, module, classes)


def _is_plain_sequence(block: nn.Module) -> bool:
    return isinstance(block, nn.Sequential) and type(block).forward is nn.Sequential.forward


def _head_in_block(model: nn.Module, path: str, module: nn.Module, classes: int | None) -> _Layers:
    """Return the head inside what was pointed at: a layer, or a block that ends in one."""
    if not (inside := list(linear_layers(module, path))):
        raise LevelheadError(
            f"{path or 'the model'} ({type(module).__name__}) has no linear layer or 1x1 convolution"
        )
    size = classes if classes in [outputs(m) for _, m in inside] else outputs(inside[-1][1])
    ends = [(p, m) for p, m in inside if outputs(m) == size]
    if len(ends) > 1:
        raise _undecided(
            f"{path or 'the model'} has more than one layer with {size} outputs: {listing(ends)}"
        )
    for block, later in _modules_after(model, ends[0][0]):
        if (after := _first_harmful(later)) is not None and _is_plain_sequence(block):
            raise LevelheadError(
                f"{ends[0][0]} is not the head: a {type(after).__name__} follows; name another layer"
            )
    return dict(ends)


def _first_harmful(modules: Sequence[nn.Module]) -> nn.Module | None:
    """Return the first module that may not follow a head."""
    return next((module for module in modules if not isinstance(module, HARMLESS_MODULES)), None)


def _modules_after(model: nn.Module, path: str) -> Iterator[tuple[nn.Module, list[nn.Module]]]:
    """Yield each block around a layer, with the modules after the layer in it."""
    while path:
        path, _, name = path.rpartition(".")
        block = model.get_submodule(path)
        later = list(block._modules.values())[list(block._modules).index(name) + 1 :]
        yield block, [module for module in later if module is not None]


def _check_no_norm_follows(model: nn.Module, path: str) -> None:
    """Check that no norm of K numbers is registered next in a block around the layer: it would undo the scaling."""
    rows, columns = layer_shape(model.get_submodule(path)) or (0, 0)
    for _, later in (
        _modules_after(model, path) if rows != columns else ()
    ):  # else it could stand before the layer
        if (after := _first_harmful(later)) is None:
            continue
        # One number per feature, learned or not, as BatchNorm1d, LayerNorm, RMSNorm and PReLU have.
        weight = after._parameters.get("weight")
        sizes = [
            getattr(after, size, None)
            for size in ("num_features", "num_channels", "normalized_shape")
        ]
        sizes.append(
            None
            if weight is None or isinstance(weight, nn.UninitializedParameter)
            else tuple(weight.shape)
        )
        if any(size in (rows, (rows,), [rows]) for size in sizes):
            norm = f"a {type(after).__name__} of its {rows} outputs seems to come after it"
            raise LevelheadError(
                f"{path} is not the head: {norm}; pass an example input if it does not"
            )


def _scale_around(model: nn.Module, path: str) -> str | None:
    """Return the name of a scale or temperature next to the layer or in the model: a tensor, or a number but 1."""
    rows = outputs(model.get_submodule(path))
    for block in (model.get_submodule(path.rpartition(".")[0]), model):
        for name, p in (*block._parameters.items(), *block._buffers.items()):
            if (
                p is not None
                and not nn.parameter.is_lazy(p)
                and is_logit_scale(name, p.numel(), rows)
            ):
                return name
        for name, number in vars(block).items():
            of_number = (float,) if name == "T" else (int, float)  # a whole T is a number of steps
            if type(number) in of_number and number != 1 and is_logit_scale(name, 1, rows):
                return name
    return None


def known_task(model: nn.Module, path: str) -> tuple[LabelTask, str] | None:
    """Return whether samples have one of the classes or several labels, and how that is known; None if it is not."""
    for block, later in (
        _modules_after(model, path) if outputs(model.get_submodule(path)) != 1 else ()
    ):
        for module in later if _is_plain_sequence(block) else ():
            if isinstance(module, nn.Sigmoid):
                return "multilabel", "a Sigmoid follows it"
            if isinstance(module, nn.Softmax | nn.LogSoftmax):
                return "multiclass", "a softmax follows it"
    return PROBLEM_TYPES.get(str(getattr(getattr(model, "config", None), "problem_type", None)))


def _flat(layers: Any) -> list[Any]:
    """Return one layer after the other, out of lists of lists."""
    nested = isinstance(layers, list | tuple | nn.ModuleList)
    return [layer for part in layers for layer in _flat(part)] if nested else [layers]


def _submodule(model: nn.Module, path: str) -> nn.Module | None:
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model itself, out of DDP, DataParallel, torch.compile and averages (EMA, SWA)."""
    if type(model).__name__ == "ExportedProgram":
        raise LevelheadError("the model is exported (torch.export); adjust the module before that")
    if not isinstance(model, nn.Module):
        instead = "for files there is levelhead.files.model.adjust_file"
        if isinstance(model, Mapping):
            instead = "load it into its model first: model.load_state_dict(...)"
        elif hasattr(model, "fit"):
            instead = "for scikit-learn there are the classifiers of levelhead.hosts.sklearn"
        raise TypeError(f"expected a torch module, got {type(model).__name__}; {instead}")
    inner = getattr(model, "_orig_mod", None)
    if inner is None and type(model).__name__ in WRAPPERS:
        inner = model.module
    return unwrap(inner) if isinstance(inner, nn.Module) else model


def linear_layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield every layer that maps features to outputs row by row, in order: linear, 1x1 convolution, or a stand-in."""
    waiting, seen = [(prefix, module)], set()
    while waiting:
        path, block = waiting.pop()
        if layer_shape(block) is not None and block not in seen:
            yield path, block
        elif block not in seen:
            waiting += [
                (f"{path}.{name}" if path else name, child) for name, child in live_children(block)
            ][::-1]
        seen.add(block)  # what is registered twice is listed once, under its first path


def outputs(module: nn.Module) -> int | None:
    """Return how many outputs a linear-like layer has, or None for any other module."""
    shape = layer_shape(module)
    return None if shape is None else shape[0]


def layer_shape(module: nn.Module) -> tuple[int, int] | None:
    """Return (outputs, inputs). Quantized and LoRA layers count as linear: they must be seen to be refused."""
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return (module.out_channels, module.in_channels) if set(module.kernel_size) == {1} else None
    if hasattr(module, "base_layer") and hasattr(module, "lora_A"):
        return layer_shape(module.base_layer)  # type: ignore[arg-type]
    if isinstance(module, nn.Linear) or all(
        layer_shape(child) is None for child in module.children()
    ):
        into, out = getattr(module, "in_features", None), getattr(module, "out_features", None)
        return (out, into) if isinstance(into, int) and isinstance(out, int) else None
    return None


def listing(layers: Iterable[tuple[str, nn.Module]]) -> str:
    """Return layers with their shapes, for a message."""
    return list_layers((path, layer_shape(module) or ()) for path, module in layers)


def live_children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children of a module with their names; of PEFT's trained copies of one, the active adapter's alone."""
    if not is_adapted(module):
        yield from module.named_children()
        return
    adapters = (
        []
        if getattr(module, "disable_adapters", True)
        else list(getattr(module, "active_adapters", []))
    )
    copies: Any = module.modules_to_save
    if not adapters or adapters[0] not in copies:  # it runs the original
        reason = "no adapter is active in this PEFT model, so its head is not that of an adapter"
        raise LevelheadError(
            f"{reason}; call model.set_adapter(name), or take the adapters off first (model.unload())"
        )
    yield f"modules_to_save.{adapters[0]}", copies[adapters[0]]


def is_adapted(module: nn.Module) -> bool:
    """Return whether a module is PEFT's `modules_to_save`: one copy for each adapter, next to the original."""
    return {"original_module", "modules_to_save"} <= {name for name, _ in module.named_children()}


def check_live(model: nn.Module, path: str) -> None:
    """Check that a layer is not a copy in a PEFT model that no forward pass runs: the original's, another adapter's."""
    parts = path.split(".")
    for depth in range(len(parts)):
        block = model.get_submodule(".".join(parts[:depth]))
        below = ".".join([*parts[depth:], ""])
        for live, _ in live_children(block) if is_adapted(block) else ():
            if below != "modules_to_save." and not below.startswith(f"{live}."):
                used = ".".join([*parts[:depth], live])
                raise LevelheadError(
                    f"{path} is not used: the active adapter's copy is {used}", parameter="layer"
                )
