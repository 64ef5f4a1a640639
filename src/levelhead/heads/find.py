"""Which layer of a torch model is its head: named, declared, well known, proved by a forward pass, or the only one.

A wrong guess would silently bend some other layer, so every doubt is an error that lists the candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import jit, nn

from ..core.errors import LevelheadError
from ..files.find import ALONE
from .layers import linears, listed, outputs, unwrap
from .probe import Probe

Layers = dict[str, nn.Module]  # path -> layer, all of which feed the one output

# Layers that feed one output together, and are scaled together. (A file has more of them: `keys.TOGETHER`. Here a head
# that the model does not declare, such as an aux_head, is settled by an example.)
TOGETHER = (
    ("head", "head_dist"),
    ("head", "dist_head"),
    ("heads", "heads_dist"),
    ("cls_classifier", "distillation_classifier"),
    ("classifier", "classifier_distill"),
)

# What may follow a head without undoing the scaling of its rows: nothing learned, nothing that mixes them but softmax.
HARMLESS = (
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Flatten, nn.Unflatten, nn.Upsample, nn.ReLU, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.MaxPool1d, nn.MaxPool2d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.Softmax, nn.Softmax2d, nn.LogSoftmax,
)


def find_head(
    model: nn.Module, *, layer: Any = None, example: Any = None, classes: int | None = None
) -> dict[str, nn.Module]:
    """The layer, or layers, whose rows are a model's class weight vectors, by path.

    In this order: the layer named, `get_classifier()`, the well-known attribute names, the layer that an example shows
    to be the head, the only layer with one output per class. Where an example is given, whatever was found must pass
    its test: scaling row i scales logit i and nothing else.

    Args:
        model: any torch module; DDP, DataParallel and torch.compile wrappers are looked through.
        layer: a path such as "head.fc", the module itself, or a list of them if several feed one output.
        example: an input the model can be run on: a tensor, a tuple of arguments, or a dict of keyword arguments.
        classes: K, where it is known: it settles doubts.

    >>> find_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), classes=3)
    {'2': Linear(in_features=8, out_features=3, bias=True)}
    """
    model = unwrap(model)
    if isinstance(model, jit.ScriptModule):
        raise LevelheadError("the model is compiled to TorchScript, whose layers cannot be told apart; adjust it before "
                         "torch.jit.script or torch.jit.trace, then compile it again")
    classes = _declared_classes(model) if classes is None else classes
    probe = None if example is None else Probe(model, example)
    if layer is not None:
        found = _named(model, layer, classes)
        if probe is not None and not probe.scales(found):
            raise LevelheadError(f"scaling the rows of {', '.join(found)} does not scale the model's logits one by one on "
                             "this example; name another layer, or leave out the example if a softmax follows")
    elif probe is not None:
        return _proved(model, probe)
    else:
        found = _declared(model, classes) or _known(model, classes) or _only(model, classes)
    if probe is None:
        for path in found:
            _check_unnormed(model, path)
    return found


def _named(model: nn.Module, layer: Any, classes: int | None) -> Layers:
    paths = {id(m): path for path, m in model.named_modules()}
    found: Layers = {}
    for one in _flat(layer):
        if isinstance(one, str):
            try:
                module = model.get_submodule(one)
            except AttributeError:
                raise LevelheadError(f"no layer {one!r} in the model; it has {listed(linears(model))}") from None
        elif isinstance(one, nn.Module) and id(unwrap(one)) in paths:
            module = unwrap(one)
        else:
            what = f"{type(one).__name__} that is not part of the model" if isinstance(one, nn.Module) else repr(one)
            raise LevelheadError(f"expected a layer's path or the layer itself, got {what}")
        found |= _within(model, paths[id(module)], module, classes)
    if not found:
        raise LevelheadError("expected at least one layer, got an empty list")
    return found


def _declared(model: nn.Module, classes: int | None) -> Layers | None:
    """What the model itself says its classifier is: timm's `get_classifier()`."""
    if not callable(getattr(model, "get_classifier", None)):
        return None
    parts = list(_flat(model.get_classifier()))  # type: ignore[operator]
    if not parts or not all(isinstance(part, nn.Module) for part in parts):
        return None
    if all(isinstance(part, nn.Identity) for part in parts):
        raise LevelheadError("the model was built without a head (its classifier is Identity); name one with layer=...")
    return _sole(model, _named(model, parts, classes))


def _known(model: nn.Module, classes: int | None) -> Layers | None:
    """The layers under names that libraries give their heads."""
    for paths in TOGETHER:
        parts = [_at(model, path) for path in paths]
        if all(part is not None and any(True for _ in linears(part)) for part in parts):
            return _sole(model, _named(model, parts, classes))
    last = [m for _, m in linears(model)][-1:]
    hits: Layers = {}
    for path in ALONE:
        part = _at(model, path)
        inside = [] if part is None else [m for _, m in linears(part)]
        if any(outputs(m) == classes if classes is not None else m in last for m in inside):
            hits |= _named(model, part, classes)
    if len(hits) > 1:
        raise LevelheadError(f"more than one layer could be the head: {listed(hits.items())}; name it with layer=...")
    return _sole(model, hits) if hits else None


def _proved(model: nn.Module, probe: Probe) -> Layers:
    """The layers that the example shows to be the head: those expected, if they pass, else a search."""
    for guess in (_declared, _known):
        try:
            found = guess(model, probe.classes)
        except ValueError:
            continue
        if found is not None and probe.scales(found):
            return found
    candidates = {path: m for path, m in linears(model) if outputs(m) == probe.classes}
    found = {path: m for path, m in candidates.items() if probe.moves_own_logits({path: m})}
    if found and probe.scales(found):
        return found
    if not candidates:
        raise LevelheadError(f"the model gives {probe.classes} outputs, but no linear layer or 1x1 convolution in it does; "
                         f"its linear layers: {listed(linears(model))}")
    raise LevelheadError(f"on this example no layer's rows are the model's logits one by one: {listed(candidates.items())} "
                     "could be; if a softmax or a scale follows, name it with layer=... and leave out the example")


def _only(model: nn.Module, classes: int | None) -> Layers:
    """The one layer with one output per class, if it is the last."""
    everything = list(linears(model))
    if not everything:
        raise LevelheadError(f"no linear layer or 1x1 convolution in {type(model).__name__}; pass a model that has one")
    if classes is None and _in_sequence(model, everything[-1][0]):
        return _within(model, *everything[-1], classes)
    if classes is None and len(everything) > 1:
        raise LevelheadError(f"could not tell which layer is the head; name it with layer=... or pass an example input; "
                         f"its linear layers: {listed(everything)}")
    fitting = [(path, m) for path, m in everything if classes in (None, outputs(m))]
    if not fitting:
        raise LevelheadError(f"no layer has {classes} outputs, one per class; the linear layers are {listed(everything)}")
    if len(fitting) > 1:
        raise LevelheadError(f"more than one layer has {classes} outputs: {listed(fitting)}; name the head with layer=... "
                         "or pass an example input")
    path, module = fitting[0]
    if module is not everything[-1][1]:
        raise LevelheadError(f"{path} has {classes} outputs but is not the last layer ({everything[-1][0]} is); name it "
                         "with layer=... if it is the head, or pass an example input")
    return _within(model, path, module, classes)


def _in_sequence(model: nn.Module, path: str) -> bool:
    """Whether nn.Sequential alone decides what follows the layer."""
    while path:
        path = path.rpartition(".")[0]
        block = model.get_submodule(path)
        if not isinstance(block, nn.Sequential) or type(block).forward is not nn.Sequential.forward:
            return False
    return True


def _within(model: nn.Module, path: str, module: nn.Module, classes: int | None) -> Layers:
    """The head inside what was pointed at: a layer, or a block that ends in one."""
    inside = list(linears(module, path))
    if not inside:
        raise LevelheadError(f"{path or 'the model'} ({type(module).__name__}) holds no linear layer or 1x1 convolution")
    size = classes if classes in [outputs(m) for _, m in inside] else outputs(inside[-1][1])
    ends = [(p, m) for p, m in inside if outputs(m) == size]
    if len(ends) > 1:
        raise LevelheadError(f"{path or 'the model'} holds more than one layer with {size} outputs: {listed(ends)}; "
                         "name the head with layer=...")
    _check_last(model, ends[0][0])
    return dict(ends)


def _check_last(model: nn.Module, path: str) -> None:
    """Within each nn.Sequential around the layer, only harmless modules may follow it."""
    layer = path
    while path:
        path, _, name = path.rpartition(".")
        block = model.get_submodule(path)
        if isinstance(block, nn.Sequential) and type(block).forward is nn.Sequential.forward:
            names = list(block._modules)
            for after in (block._modules[key] for key in names[names.index(name) + 1 :]):
                if not isinstance(after, HARMLESS):
                    raise LevelheadError(f"{layer} is not the head: a {type(after).__name__} follows; name another layer")


def _check_unnormed(model: nn.Module, path: str) -> None:
    """Within each block around the layer, no norm of K numbers may be registered next: it would undo the scaling.

    K is then not the width of the features as well: such a norm could stand before the layer.
    """
    layer, head = path, model.get_submodule(path)
    rows = outputs(head)
    if rows in (getattr(head, "in_features", None), getattr(head, "in_channels", None)):
        return
    while path:
        path, _, name = path.rpartition(".")
        names = list((block := model.get_submodule(path))._modules)
        later = [m for key in names[names.index(name) + 1 :] if (m := block._modules[key]) is not None]
        after = next((m for m in later if not isinstance(m, HARMLESS)), None)
        if after is not None and _is_norm(after, rows):
            raise LevelheadError(f"{layer} is not the head: a {type(after).__name__} of its {rows} outputs seems to come "
                             "after it; name another layer, or pass an example input if it does not")


def _is_norm(module: nn.Module, width: int | None) -> bool:
    """Whether a module has one number a feature, with or without weights: BatchNorm1d, LayerNorm, an RMSNorm, PReLU."""
    weight = module._parameters.get("weight")
    sizes = [getattr(module, size, None) for size in ("num_features", "num_channels", "normalized_shape")]
    sizes.append(None if weight is None or isinstance(weight, nn.UninitializedParameter) else tuple(weight.shape))
    return any(size in (width, (width,), [width]) for size in sizes)


def _sole(model: nn.Module, found: Layers) -> Layers:
    """The same layers, if no other could feed the output beside them."""
    size = {outputs(m) for m in found.values()}
    rivals = [(path, m) for path, m in linears(model)
              if outputs(m) in size and path not in found and not _is_hidden(model, path, found)]
    if rivals:
        raise LevelheadError(f"{', '.join(found)} looks like the head, but {listed(rivals)} may feed the output too; name "
                         "the head with layer=... (a list if they work together), or pass an example input")
    return found


def _is_hidden(model: nn.Module, path: str, found: Layers) -> bool:
    """Whether a layer with K outputs is a hidden layer whose width happens to be K: a neighbor takes K inputs."""
    parent = path.rpartition(".")[0]
    if not parent or parent in {p.rpartition(".")[0] for p in found}:
        return False
    sizes = ("in_features", "in_channels", "num_features", "num_channels", "normalized_shape")
    width = outputs(model.get_submodule(path))
    neighbors = model.get_submodule(parent).children()
    return any(getattr(m, size, None) in (width, (width,)) for m in neighbors for size in sizes)


def _flat(layers: Any) -> Iterator[Any]:
    """One layer after the other, out of lists of lists."""
    if isinstance(layers, list | tuple | nn.ModuleList):
        for layer in layers:
            yield from _flat(layer)
    else:
        yield layers


def _declared_classes(model: nn.Module) -> int | None:
    """How many classes a model says it has (`config.num_labels` or `num_classes`), if a layer agrees."""
    sizes = {outputs(m) for _, m in linears(model)}
    for said in (getattr(getattr(model, "config", None), "num_labels", None), getattr(model, "num_classes", None)):
        if isinstance(said, int) and said in sizes:
            return said
    return None


def _at(model: nn.Module, path: str) -> nn.Module | None:
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None
