"""The linear layers of a torch model, their shapes, and those of PEFT that are run.

A layer counts as linear by its shape, not by its class: quantized, LoRA and other libraries' layers
must be seen, for one of them may be the head, and the answer is then why it cannot be changed
(torch_plain.py), not another layer that looks like it.
"""

from collections.abc import Iterable, Iterator, Mapping

from torch import nn

from ..support.errors import LevelheadError
from .candidates import list_layers

# Modules that hold a model as `module`: DDP, and the averages (EMA, SWA) of torch and timm.
WRAPPERS = ("DistributedDataParallel", "DataParallel", "AveragedModel", "ModelEmaV2", "ModelEmaV3")


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model itself, out of DDP, DataParallel, torch.compile and averages (EMA, SWA).

    Raises:
        TypeError: it is no torch module; the message says where to go with it.
        LevelheadError: it is a program of torch.export.
    """
    if type(model).__name__ == "ExportedProgram":
        raise LevelheadError("the model is exported (torch.export); adjust the module before that")
    if not isinstance(model, nn.Module):
        instead = "for files there is levelhead.files.model.adjust_file"
        if isinstance(model, Mapping):
            instead = "load it into its model first: model.load_state_dict(...)"
        elif hasattr(model, "fit"):
            instead = "for scikit-learn there are the classifiers of levelhead.hosts.sklearn"
        raise TypeError(f"expected a torch module, got {type(model).__name__}; {instead}")
    inner = getattr(model, "_orig_mod", None)  # of torch.compile
    if inner is None and type(model).__name__ in WRAPPERS:
        inner = model.module
    if isinstance(inner, nn.Module):
        return unwrap(inner)
    return model


def linear_layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield every layer that maps features to outputs row by row, with its path, in order.

    It is linear, a 1x1 convolution, or a stand-in of another library. The order is that of
    registering, which most models have as the order in which they run.

    Args:
        module: a model or a block.
        prefix: the path of that block, for the paths of its layers.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(4, 2))
    >>> [path for path, _ in linear_layers(net)]
    ['1', '3']
    """
    # Depth first, in the order of registering, without a recursion.
    waiting = [(prefix, module)]
    seen = set[nn.Module]()
    while waiting:
        path, block = waiting.pop()
        if block in seen:  # what is registered twice is listed once, under its first path
            continue
        seen.add(block)
        if layer_shape(block) is not None:
            yield path, block
            continue
        children = []
        for name, child in live_children(block):
            children.append((f"{path}.{name}" if path else name, child))
        waiting += reversed(children)  # the last of the list is taken next


def outputs(module: nn.Module) -> int | None:
    """Return how many outputs a linear-like layer has, or None for any other module."""
    shape = layer_shape(module)
    if shape is None:
        return None
    return shape[0]


def layer_shape(module: nn.Module) -> tuple[int, int] | None:
    """Return how many outputs and inputs a layer has; None if it is not linear.

    Quantized and LoRA layers count as linear: they must be seen to be refused.
    """
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        if set(module.kernel_size) == {1}:
            return (module.out_channels, module.in_channels)
        return None
    # PEFT's LoRA holds the layer that it adapts.
    if hasattr(module, "base_layer") and hasattr(module, "lora_A"):
        return layer_shape(module.base_layer)  # type: ignore[arg-type]
    # A stand-in of another library has the sizes of a linear layer, and no such layer inside.
    has_layers = any(layer_shape(child) is not None for child in module.children())
    if has_layers and not isinstance(module, nn.Linear):
        return None
    inputs = getattr(module, "in_features", None)
    rows = getattr(module, "out_features", None)
    if isinstance(inputs, int) and isinstance(rows, int):
        return (rows, inputs)
    return None


def listing(layers: Iterable[tuple[str, nn.Module]]) -> str:
    """Return layers with their shapes, for a message."""
    return list_layers((path, layer_shape(module) or ()) for path, module in layers)


def live_children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children of a module with their names.

    PEFT keeps a trained copy for each adapter: only that of the active one is run.

    Raises:
        LevelheadError: no adapter is active, so that the original is run, which the adapter's user
            does not mean.
    """
    if not is_adapted(module):
        yield from module.named_children()
        return
    adapters = []
    if not getattr(module, "disable_adapters", True):
        adapters = list(getattr(module, "active_adapters", []))
    copies = module.modules_to_save
    assert isinstance(copies, nn.ModuleDict)
    if not adapters or adapters[0] not in copies:  # it runs the original
        reason = "no adapter is active in this PEFT model, so its head is not that of an adapter"
        raise LevelheadError(
            f"{reason}; call model.set_adapter(name), or take the adapters off first (model.unload())"
        )
    yield f"modules_to_save.{adapters[0]}", copies[adapters[0]]


def is_adapted(module: nn.Module) -> bool:
    """Return whether a module is PEFT's `modules_to_save`.

    It holds one copy for each adapter, next to the original.
    """
    return {"original_module", "modules_to_save"} <= {name for name, _ in module.named_children()}


def check_live(model: nn.Module, path: str) -> None:
    """Check that a layer is not a copy in a PEFT model that no forward pass runs.

    Such are the original, and the copies of other adapters.
    """
    names = path.split(".")
    for depth in range(len(names)):
        block = model.get_submodule(".".join(names[:depth]))
        if not is_adapted(block):
            continue
        below = ".".join([*names[depth:], ""])
        for live, _ in live_children(block):
            # All copies together are not one of them; `find_head` goes on to the live one.
            if below != "modules_to_save." and not below.startswith(f"{live}."):
                used = ".".join([*names[:depth], live])
                raise LevelheadError(
                    f"{path} is not used: the active adapter's copy is {used}", parameter="layer"
                )


def submodule(model: nn.Module, path: str) -> nn.Module | None:
    """Return the module at a path; None if there is none."""
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None


def flat(layers: object) -> list[object]:
    """Return one layer after the other, out of lists of lists.

    >>> flat(["head", ["fc", ("out",)]])
    ['head', 'fc', 'out']
    """
    if not isinstance(layers, list | tuple | nn.ModuleList):
        return [layers]
    single = []
    for part in layers:
        single += flat(part)
    return single
