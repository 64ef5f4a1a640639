"""The linear layers of a torch model: which there are, their shapes, and those of PEFT that are run."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from ..support.errors import LevelheadError
from .candidates import list_layers

# Modules that hold a model as `module`: DDP, and the averages (EMA, SWA) of torch and timm.
WRAPPERS = ("DistributedDataParallel", "DataParallel", "AveragedModel", "ModelEmaV2", "ModelEmaV3")


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
    if isinstance(inner, nn.Module):
        return unwrap(inner)
    return model


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
        if set(module.kernel_size) == {1}:
            return (module.out_channels, module.in_channels)
        return None
    if hasattr(module, "base_layer") and hasattr(module, "lora_A"):
        return layer_shape(module.base_layer)  # type: ignore[arg-type]
    if isinstance(module, nn.Linear) or all(
        layer_shape(child) is None for child in module.children()
    ):
        into = getattr(module, "in_features", None)
        out = getattr(module, "out_features", None)
        if isinstance(into, int) and isinstance(out, int):
            return (out, into)
        return None
    return None


def listing(layers: Iterable[tuple[str, nn.Module]]) -> str:
    """Return layers with their shapes, for a message."""
    return list_layers((path, layer_shape(module) or ()) for path, module in layers)


def live_children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the children of a module with their names; of PEFT's trained copies of one, the active adapter's alone."""
    if not is_adapted(module):
        yield from module.named_children()
        return
    adapters = []
    if not getattr(module, "disable_adapters", True):
        adapters = list(getattr(module, "active_adapters", []))
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


def submodule(model: nn.Module, path: str) -> nn.Module | None:
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None


def flat(layers: Any) -> list[Any]:
    """Return one layer after the other, out of lists of lists."""
    nested = isinstance(layers, list | tuple | nn.ModuleList)
    if nested:
        return [layer for part in layers for layer in flat(part)]
    return [layers]
