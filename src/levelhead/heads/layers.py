"""The linear layers of a torch model: those that a forward pass runs, with their paths and shapes."""

from collections.abc import Iterable, Iterator, Mapping

from torch import nn

from ..core.errors import LevelheadError
from .candidates import list_layers

# What may follow a head without undoing the scaling of its rows: nothing learned, nothing that mixes them but softmax.
HARMLESS_MODULES = (
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Flatten, nn.Unflatten, nn.Upsample, nn.ReLU, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.MaxPool1d, nn.MaxPool2d, nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d, nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Sigmoid,
)  # fmt: skip
# Modules that hold a model as `module`: DDP, and the averages (EMA, SWA) of torch and timm.
WRAPPERS = ("DistributedDataParallel", "DataParallel", "AveragedModel", "ModelEmaV2", "ModelEmaV3")


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model itself, out of DDP, DataParallel, torch.compile and averages (EMA, SWA)."""
    if type(model).__name__ == "ExportedProgram":
        raise LevelheadError("the model is exported (torch.export); adjust the module before that")
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch module, got {type(model).__name__}; {_place_of(model)}")
    inner = getattr(model, "_orig_mod", None)
    if inner is None and type(model).__name__ in WRAPPERS:
        inner = model.module
    return unwrap(inner) if isinstance(inner, nn.Module) else model


def _place_of(model: object) -> str:
    """Return where something that is not a module is adjusted."""
    if isinstance(model, Mapping):
        return "load it into its model first: model.load_state_dict(...)"
    if hasattr(model, "fit"):
        return "for scikit-learn there are the classifiers of levelhead.hosts.sklearn"
    return "for files there are levelhead.files.model.adjust_file and levelhead.files.model.rescale_file"


def linear_layers(
    module: nn.Module, prefix: str = "", seen: set[nn.Module] | None = None
) -> Iterator[tuple[str, nn.Module]]:
    """Yield every layer that maps features to outputs row by row, in order: linear, 1x1 convolution, or a stand-in.

    A layer that is registered twice is listed once, under its first path, as `named_modules` does.
    """
    seen = set() if seen is None else seen
    if module in seen:
        return
    seen.add(module)
    if layer_shape(module) is not None:
        yield prefix, module
        return
    for name, child in live_children(module):
        yield from linear_layers(child, f"{prefix}.{name}" if prefix else name, seen)


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
    if isinstance(module, nn.Linear) or all(layer_shape(child) is None for child in module.children()):
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
    elif (adapter := _active_adapter(module)) is not None:
        yield f"modules_to_save.{adapter}", module.modules_to_save[adapter]  # type: ignore[index]
    else:
        raise LevelheadError(
            "no adapter is active in this PEFT model, so its head is not that of an adapter; call "
            "model.set_adapter(name), or take the adapters off first (model.unload())"
        )


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
                raise LevelheadError(f"{path} is not used: the active adapter's copy is {used}", parameter="layer")


def _active_adapter(module: nn.Module) -> str | None:
    """Return the adapter whose copy PEFT's wrapper runs; None if it runs the original."""
    active = getattr(module, "active_adapters", [])
    runs = not getattr(module, "disable_adapters", True) and len(active) > 0 and active[0] in module.modules_to_save
    return active[0] if runs else None
