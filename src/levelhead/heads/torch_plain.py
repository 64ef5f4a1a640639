"""Whether a layer of a torch module is a plain ``W x + b``, or why it is not.

Each function returns None if all is well, or the reason as an error says it, with the way out.

`TorchModel.why_not` asks three, in this order: whether the weight is a tensor of the layer's own
(`why_not_plain`), whether something else shares it (`why_tied`), and whether the layer computes
what its class says (`why_not_affine`).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from .evaluating import evaluating

Editable = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
_PLAIN_FORWARDS = (
    nn.Linear.forward,
    nn.Conv1d.forward,
    nn.Conv2d.forward,
    nn.Conv3d.forward,
)
ADJUST_FIRST = "adjust the float model, then quantize"


def why_not_plain(layer: nn.Module) -> str | None:
    """Return why a layer's weight is not a plain tensor of its own.

    It may be compiled, wrapped, quantized, computed or empty.
    """
    kind = f"{type(layer).__module__}.{type(layer).__name__}"
    if isinstance(layer, torch.jit.ScriptModule):
        return "it is compiled to TorchScript; adjust the model before that"
    if hasattr(layer, "base_layer") or hasattr(layer, "lora_A"):
        wrapped = "it is wrapped by LoRA, whose update would not be scaled"
        return f"{wrapped}; merge it first (model.merge_and_unload())"
    if any(nn.parameter.is_lazy(p) for p in layer.parameters(recurse=False)):
        return "it is not initialized yet; run the model once"
    reason = _why_quantized(layer) or _why_computed(layer)
    if reason is not None:
        return reason
    if not isinstance(layer, Editable):
        return f"expected nn.Linear or a 1x1 convolution, got {kind}"
    if not isinstance(layer._parameters.get("weight"), Tensor):
        return "its weight is not a parameter of its own (flattened by FSDP1, or set by hand)"
    return _why_empty(layer)


def _why_quantized(layer: nn.Module) -> str | None:
    """Return why a layer's numbers are not floats.

    It is of a quantizing library, or its weight is.
    """
    kind = type(layer)
    # torch.ao.nn.quantized and its like keep packed weights; GPTQ and AWQ have a `qweight`.
    of_a_library = "quantized" in kind.__module__ or "quantization" in kind.__module__
    if of_a_library or hasattr(layer, "qweight"):
        return f"it is quantized ({kind.__module__}.{kind.__name__}); {ADJUST_FIRST}"
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor):
        return None
    # bitsandbytes packs numbers into bytes, with a `quant_state` beside them; float8 has one byte.
    is_float = weight.is_floating_point() and weight.element_size() >= 2
    if hasattr(weight, "quant_state") or not is_float:
        return f"it is quantized ({kind.__name__} in {weight.dtype}); {ADJUST_FIRST}"
    # torchao has tensors of its own kinds; a DTensor holds plain numbers.
    held = type(weight.data)
    if held is not Tensor and held.__name__ != "DTensor":
        return f"its weight is a {held.__name__}, not a plain tensor; {ADJUST_FIRST}"
    return None


def _why_computed(layer: nn.Module) -> str | None:
    """Return why a weight or bias would not stay as it is set.

    It is computed again before each forward.
    """
    computed = [name for name in ("weight", "bias") if parametrize.is_parametrized(layer, name)]
    # torch's functions before `parametrize` leave such names: weight_g, weight_v, weight_orig.
    by_old_functions = any(name.endswith(("_g", "_v", "_orig")) for name in layer._parameters)
    if not computed and not by_old_functions:
        return None
    name = "weight"
    if computed:
        name = computed[0]
    computed_by = "parametrized (weight_norm, spectral_norm, pruning or the like)"
    reason = f"its {name} is {computed_by} and would be computed again"
    return f"{reason}; remove the parametrization first"


def _why_empty(layer: Editable) -> str | None:
    """Return why the parameters of a layer hold no numbers that can be changed here."""
    weight_dims = 2 + len(getattr(layer, "kernel_size", ()))  # more for a convolution
    for name, p in layer.named_parameters(recurse=False):
        if p.is_meta:
            return f"its {name} is on the meta device and holds no data; load the weights first"
        if p.is_inference():
            return f"its {name} was made in inference mode and cannot be changed; load the model outside of it"
        # DeepSpeed's ZeRO-3 leaves an empty tensor, to be gathered.
        dims = 1 if name == "bias" else weight_dims
        if p.ndim != dims or p.numel() == 0:
            return f"its {name} has shape {list(p.shape)}; gather partitioned parameters first"
    return None


def why_tied(layer: nn.Module, model: nn.Module) -> str | None:
    """Return who else in the model holds the same parameter or memory.

    It may be another layer, a buffer, or another parameter of the layer itself. Language models tie
    their output layer to the embedding of words: scaling a row of the one would scale the other.

    Args:
        layer: of the head.
        model: not wrapped.
    """
    for name, parameter in layer.named_parameters(recurse=False):
        for path, module in model.named_modules():
            for other_name, other in (*module._parameters.items(), *module._buffers.items()):
                if other is None or (module is layer and other_name == name):
                    continue
                if other is parameter or _overlap(parameter, other):
                    tied = f"{path}.{other_name}" if path else other_name
                    way_out = "untie them first (give the head a clone of the weights)"
                    return f"its weights are tied to {tied}, which would change too; {way_out}"
    return None


def _overlap(p: Tensor, q: Tensor) -> bool:
    """Return whether two tensors share memory, as views of one buffer do.

    Of unusual ones that is not known, and the answer is no.
    """
    if type(p.data) is not Tensor or type(q.data) is not Tensor:
        return False
    if p.device != q.device or p.is_meta:
        return False
    if nn.parameter.is_lazy(q) or q.layout is not torch.strided or not q.numel():
        return False
    # By their addresses: views of one buffer are different tensors, and need not overlap.
    p_start = p.data_ptr()
    q_start = q.data_ptr()
    p_end = p_start + p.numel() * p.element_size()
    q_end = q_start + q.numel() * q.element_size()
    return p_start < q_end and q_start < p_end


def why_not_affine(layer: Editable) -> str | None:
    """Return why a layer does more than ``W x + b``.

    One with a forward of its own, or with hooks, is tried on random features: a subclass that only
    counts its calls passes, a cosine head does not.
    """
    weight = layer.weight
    hooks = layer._forward_hooks or layer._forward_pre_hooks
    own_forward = type(layer).forward not in _PLAIN_FORWARDS or "forward" in vars(layer)
    # A sharded layer cannot be run in one process alone.
    if not (own_forward or hooks) or type(weight.data) is not Tensor:
        return None

    generator = torch.Generator().manual_seed(0)
    shape = (3, *weight.shape[1:])
    features = torch.randn(shape, generator=generator, device="cpu").to(weight)
    try:
        with evaluating(layer), torch.no_grad():
            outputs = layer(features)
    except Exception:  # a grouped convolution, or a forward or hook that expects another shape
        outputs = None
    bias = None
    if layer.bias is not None:
        bias = layer.bias.detach().double()
    expected = F.linear(features.flatten(1).double(), weight.detach().flatten(1).double(), bias)
    if isinstance(outputs, Tensor) and outputs.shape[:2] == expected.shape:
        room = 1e-2 * float(expected.abs().max())  # half precision rounds this much
        if torch.allclose(outputs.double().flatten(1), expected, atol=room):
            return None
    layer_name = f"a {type(layer).__name__}"
    cause = "it may normalize its weights"
    if hooks:
        layer_name = "with its hooks it"
        cause = "or fails on random features; remove them first"
    return (
        f"{layer_name} does more than W x + b ({cause}), so scaling a row need not scale its logit"
    )
