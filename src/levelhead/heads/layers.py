"""The layers of a torch model that have the form of a head: features in, one output a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """The model itself, out of DDP, DataParallel and torch.compile."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch module, got {type(model).__name__}; a file is adjusted by rescale_file, "
                        "weights alone by rescale(Head(weight, bias), ...)")
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def linears(
    module: nn.Module, prefix: str = "", seen: set[nn.Module] | None = None
) -> Iterator[tuple[str, nn.Module]]:
    """Every layer that maps features to outputs row by row, in order: linear, 1x1 convolution, or what replaced one.

    A layer that is registered twice is listed once, under its first path, as `named_modules` does.
    """
    seen = set() if seen is None else seen
    if module in seen:
        return
    seen.add(module)
    if outputs(module) is not None:
        yield prefix, module
        return
    for name, child in module.named_children():
        yield from linears(child, f"{prefix}.{name}" if prefix else name, seen)


def outputs(module: nn.Module) -> int | None:
    """How many outputs a linear-like layer has; None if it is no such layer.

    Quantized and LoRA layers count: they must be seen to be refused.
    """
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return module.out_channels if set(module.kernel_size) == {1} else None
    if hasattr(module, "base_layer") and hasattr(module, "lora_A"):
        return outputs(module.base_layer)  # type: ignore[arg-type]
    if isinstance(module, nn.Linear) or all(outputs(child) is None for child in module.children()):
        into, out = getattr(module, "in_features", None), getattr(module, "out_features", None)
        return out if isinstance(into, int) and isinstance(out, int) else None
    return None


def listed(layers: Iterable[tuple[str, nn.Module]], most: int = 6) -> str:
    """Candidates for an error message; of many, the last ones."""
    texts = [f"{path or '(the model itself)'} ({outputs(m)} outputs)" for path, m in layers]
    return ("..., " if len(texts) > most else "") + ", ".join(texts[-most:])
