"""Whether a layer's rows can be changed in place without changing anything else and, if not, why not."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from ..core.errors import LevelheadError

Editable = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


def check_editable(path: str, layer: nn.Module, model: nn.Module) -> Editable:
    """Return the layer if scaling a row of its weight scales that output and nothing else; else raise."""
    if reason := _why_not_plain(layer) or _why_tied(layer, model) or _why_not_affine(layer):
        raise LevelheadError(f"cannot change {path or 'the layer'}: {reason}")
    assert isinstance(layer, Editable)
    return layer


def check_takes_bias(path: str, layer: Editable) -> None:
    """Check that a layer without a bias would add a new one to its outputs: it may be sharded, or not look at it."""
    reason = None
    if ".modules_to_save." in path:
        reason = "PEFT would save it with the adapter and not load it again"
    elif type(layer.weight.data) is not Tensor:
        reason = "its weight is sharded; give it a bias before that"
    else:
        layer.register_parameter("bias", new_bias(layer))
        assert layer.bias is not None
        try:
            layer.bias.data += 1 + float(layer.weight.detach().float().abs().max())  # large enough to be seen
            reason = "its forward does not add one" if _why_not_affine(layer) else None
        finally:
            layer.register_parameter("bias", None)
    if reason:
        raise LevelheadError(
            f"cannot give {path or 'the layer'} the bias that the rule shift needs: {reason}; tune "
            "with the rule rescale"
        )


def new_bias(layer: Editable) -> nn.Parameter:
    """Return a bias of zeros that fits a layer, trained if its weight is."""
    weight = layer.weight
    return nn.Parameter(torch.zeros(len(weight), dtype=weight.dtype, device=weight.device), weight.requires_grad)


def _why_not_plain(layer: nn.Module) -> str | None:
    """Return why a layer's weight is not a plain tensor of its own: compiled, wrapped, quantized, computed or empty."""
    weight, kind = getattr(layer, "weight", None), type(layer)
    if isinstance(layer, torch.jit.ScriptModule):
        return "it is compiled to TorchScript; adjust the model before that"
    if hasattr(layer, "base_layer") or hasattr(layer, "lora_A"):
        return "it is wrapped by LoRA, whose update would not be scaled; merge it first (model.merge_and_unload())"
    if any(nn.parameter.is_lazy(p) for p in layer.parameters(recurse=False)):
        return "it is not initialized yet; run the model once"
    if "quantized" in kind.__module__ or "quantization" in kind.__module__ or hasattr(layer, "qweight"):
        return f"it is quantized ({kind.__module__}.{kind.__name__}); adjust the float model, then quantize"
    if isinstance(weight, Tensor):
        held = type(weight.data)
        if hasattr(weight, "quant_state") or not weight.is_floating_point() or weight.element_size() < 2:
            return f"it is quantized ({kind.__name__} in {weight.dtype}); adjust the float model, then quantize"
        if held is not Tensor and held.__name__ != "DTensor":
            return f"its weight is a {held.__name__}, not a plain tensor; adjust the float model, then quantize"
    computed = [name for name in ("weight", "bias") if parametrize.is_parametrized(layer, name)]
    old = [name for name in layer._parameters if name.endswith(("_g", "_v", "_orig"))]
    if computed or old:
        return (
            f"its {(computed or ['weight'])[0]} is parametrized (weight_norm, spectral_norm, pruning or the like) "
            "and would be computed again; remove the parametrization first"
        )
    if not isinstance(layer, Editable):
        return f"expected nn.Linear or a 1x1 convolution, got {kind.__module__}.{kind.__name__}"
    if not isinstance(layer._parameters.get("weight"), Tensor):
        return "its weight is not a parameter of its own (flattened by FSDP1, or set by hand)"
    weight_dims = 2 + len(getattr(layer, "kernel_size", ()))  # of a convolution
    for name, p in layer.named_parameters(recurse=False):
        if p.is_meta:
            return f"its {name} is on the meta device and holds no data; load the weights first"
        if p.is_inference():
            return f"its {name} was made in inference mode and cannot be changed; load the model outside of it"
        if p.ndim == 0 or p.numel() == 0 or p.ndim != (1 if name == "bias" else weight_dims):
            return f"its {name} has shape {list(p.shape)}; gather partitioned parameters first"
    return None


def _why_tied(layer: nn.Module, model: nn.Module) -> str | None:
    """Say who else holds the same parameter or memory: another layer, a buffer, the layer's own other parameter."""
    for own, p in layer.named_parameters(recurse=False):
        for path, other in model.named_modules():
            for name, q in (*other._parameters.items(), *other._buffers.items()):
                if q is not None and (other is not layer or name != own) and (q is p or _overlap(p, q)):
                    tied = f"{path}.{name}" if path else name
                    return (
                        f"its weights are tied to {tied}, which would change too; untie them first (give the head "
                        "a clone of the weights)"
                    )
    return None


def _overlap(p: Tensor, q: Tensor) -> bool:
    if type(p.data) is not Tensor or type(q.data) is not Tensor or p.device != q.device or p.is_meta:
        return False
    if nn.parameter.is_lazy(q) or q.layout is not torch.strided or not q.numel():
        return False
    first, second = p.data_ptr(), q.data_ptr()
    return first < second + q.numel() * q.element_size() and second < first + p.numel() * p.element_size()


def _why_not_affine(layer: nn.Module) -> str | None:
    """Try a layer with its own forward, or with hooks, on random features: it must still compute W x + b."""
    assert isinstance(layer, Editable)
    weight, hooks = layer.weight, layer._forward_hooks or layer._forward_pre_hooks
    plain = (nn.Linear.forward, nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)
    own = type(layer).forward not in plain or "forward" in vars(layer) or hooks
    if not own or type(weight.data) is not Tensor:
        return None
    features = torch.randn((3, *weight.shape[1:]), generator=torch.Generator().manual_seed(0)).to(weight)
    training = layer.training
    try:
        with torch.no_grad():
            given = layer.eval()(features)
    except Exception:  # a grouped convolution, or a forward or hook that expects another shape
        given = None
    finally:
        layer.train(training)
    bias = None if layer.bias is None else layer.bias.detach().double()
    expected = F.linear(features.flatten(1).double(), weight.detach().flatten(1).double(), bias)
    close = {"atol": 1e-2 * float(expected.abs().max())}
    same = isinstance(given, Tensor) and given.shape[:2] == expected.shape
    if same and torch.allclose(given.double().flatten(1), expected, **close):  # type: ignore[union-attr]
        return None
    what, how = f"a {type(layer).__name__}", "it may normalize its weights"
    if hooks:
        what, how = "with its hooks it", "or fails on random features; remove them first"
    return f"{what} does more than W x + b ({how}), so scaling a row need not scale its logit"
