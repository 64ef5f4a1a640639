"""Heads in torch modules, also sharded by FSDP2: read, written, and changed in place with a way back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from ..core.class_names import names_in_config
from ..core.head import Head
from ..support.errors import LevelheadError
from .candidates import TUNE_SCALES
from .evaluating import evaluating
from .notes import leave_note, notes_in_configs, notes_in_files
from .place import Checked, Facts, InMemory
from .probe import NAME_HEAD
from .torch_around import known_task
from .torch_find import auxiliary_heads, find_head
from .torch_layers import linear_layers, outputs, unwrap
from .torch_proof import check_output

Editable = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read(
    model: nn.Module, *, layer: Any = None, example: Any = None, classes: int | None = None
) -> Head:
    """Read the head of a torch module, as a copy, with class names where the model's config has them.

    Args:
        model, layer, example, classes: as in `find_head`; of several heads, name the one to read.
    """
    return TorchModel(model).read(layer=layer, example=example, classes=classes)


def write(model: nn.Module, head: Head, *, layer: Any = None, example: Any = None) -> None:
    """Put a head into a torch module, in place: parameters, their dtype, device and sharding stay the module's own.

    Args:
        model, layer, example: as in `find_head`.
        head: weight [K, d] of the layer's own shape, and a bias exactly if the layer has one.

    >>> import numpy as np
    >>> layer = nn.Linear(2, 3, bias=False)
    >>> write(layer, Head(np.ones((3, 2))))
    >>> layer.weight.sum().item()
    6.0
    """
    TorchModel(model).replace(head, layer=layer, example=example)


class TorchModel(InMemory):
    """A torch module whose head can be read and changed in place."""

    advice = NAME_HEAD

    def __init__(self, model: nn.Module) -> None:
        self.model = unwrap(model)

    def find_layers(self, layer: Any, example: Any, classes: int | None) -> dict[str, Any]:
        reshard(self.model)
        return find_head(self.model, layer=layer, example=example, classes=classes)

    def why_not(self, module: Any) -> str | None:
        return _why_not_plain(module) or _why_tied(module, self.model) or _why_not_affine(module)

    def sizes(self) -> set[int | None]:
        return {outputs(module) for _, module in linear_layers(self.model)}

    def find_facts(self) -> Facts:
        keys = tuple(self.layers)
        weights = [module.weight for module in self.layers.values()]
        names = names_in_config(getattr(self.model, "config", None), len(weights[0]))
        half = None
        if weights[0].element_size() <= 2:
            half = str(weights[0].dtype)
        where = ", ".join(keys) or "the head"
        task = known_task(self.model, keys[0])
        return Facts(keys, where, tuple(map(len, weights)), names, task, half)

    def head(self, module: Editable, names: Sequence[str] | None = None) -> Head:
        """Return a copy of a layer's parameters: weight flattened to [K, d], whole even if it is sharded."""
        weight = gather(module.weight.detach()).clone()
        bias = None
        if module.bias is not None:
            bias = gather(module.bias.detach()).clone()
        return Head(weight.flatten(1), bias, names)

    def state(self, module: Editable, *, weights: bool) -> tuple[tuple[int, int], tuple[str, ...]]:
        """Return what tells whether the weight, or the bias, is as it was."""
        parameter = module.weight if weights else module.bias
        if parameter is None:
            return (0, 0), ("",)
        return (id(parameter), parameter._version), _digests(gather(parameter.detach()).cpu())

    def check_output(self, *, adds: bool) -> Checked | None:
        return check_output(self.model, self.layers, self.example, adds=adds)

    def auxiliary(self) -> tuple[str, ...]:
        return auxiliary_heads(self.model, dict(self.layers))

    def check_takes_bias(self, key: str) -> None:
        """Check that a layer without a bias would add a new one to its outputs: it may be sharded, or ignore it."""
        layer = self.layers[key]
        if ".modules_to_save." in key:
            reason = "PEFT would save it with the adapter and not load it again"
        elif callable(getattr(self.model, "save_pretrained", None)):
            reason = f"a {type(self.model).__name__} has none, and would not load it again"
        elif type(layer.weight.data) is not Tensor:
            reason = "its weight is sharded; give it a bias before that"
        else:
            layer.register_parameter("bias", new_bias(layer))
            try:
                # Large enough to be seen.
                layer.bias.data += 1 + float(layer.weight.detach().float().abs().max())
                reason = None
                if _why_not_affine(layer):
                    reason = "its forward does not add one"
            finally:
                layer.register_parameter("bias", None)
        if reason:
            needs = f"cannot give {key or 'the layer'} a bias, which this needs: {reason}"
            instead = "pass the head's inputs (lh.collect(model, loader, features=True).features)"
            raise LevelheadError(f"{needs}; {instead}, or {TUNE_SCALES}")

    def keep(self, heads: Sequence[Head]) -> Callable[[], None]:
        """Give layers the biases that only their new heads have; return the way back to the values that all have."""
        layers = zip(self.layers.values(), heads, strict=True)
        grown = [module for module, head in layers if module.bias is None and head.bias is not None]
        held = (
            (path, *one)
            for path, module in self.layers.items()
            for one in module.named_parameters(recurse=False)
        )
        saved = [(path, name, p, p.detach().clone()) for path, name, p in held]
        for module in grown:
            module.register_parameter("bias", new_bias(module))
        return partial(_restore, self.model, saved, grown)

    def put(self, module: Editable, head: Head) -> None:
        """Put a head into a layer: its parameters, their dtype, device and sharding stay the layer's own."""
        with torch.no_grad():
            for parameter, values in ((module.weight, head.weight), (module.bias, head.bias)):
                if parameter is not None:
                    parameter.copy_(
                        place_like(torch.as_tensor(values).reshape(parameter.shape), parameter)
                    )

    def notes(self) -> list[Mapping[str, Any]]:
        """Return what configs and the files that the model was loaded from say was done to it."""
        of_bytes = lambda data, dtype: _digests(  # noqa: E731
            torch.frombuffer(bytearray(data), dtype=DTYPES[dtype])
        )
        return [*notes_in_configs(self.model), *notes_in_files(self.model, of_bytes)]

    def leave_note(self, note: Mapping[str, Any]) -> Callable[[], None]:
        return leave_note(self.model, note)


def _digests(values: Tensor) -> tuple[str, ...]:
    """Return the sha256 of a tensor's bytes, as it is and rounded to the other dtypes that models are saved in."""
    others = [
        dtype for dtype in (torch.float32, torch.bfloat16, torch.float16) if dtype != values.dtype
    ]
    rounded = [values, *(values.to(dtype) for dtype in others)]
    raw: list[Any] = [one.flatten().contiguous().view(torch.uint8).numpy() for one in rounded]
    return tuple(sha256(one).hexdigest() for one in raw)


def _restore(
    model: nn.Module, saved: list[tuple[str, str, nn.Parameter, Tensor]], grown: Sequence[nn.Module]
) -> None:
    reshard(model)
    held = {id(p) for p in model.parameters()}
    for path, name, parameter, _ in saved:
        if id(parameter) not in held:
            since = f"its {name} was replaced since (a new layer, or load_state_dict with assign)"
            raise LevelheadError(
                f"cannot restore {path or 'the head'}: {since}; load the weights the model had before"
            )
    with torch.no_grad():
        for _, _, parameter, original in saved:
            parameter.copy_(original)
    for layer in grown:
        layer.register_parameter("bias", None)


def reshard(model: nn.Module) -> None:
    """Free the parameters that FSDP2 gathered for a forward pass: a change to those copies would be lost."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for module in model.modules() if fsdp is not None else ():
        if isinstance(module, fsdp.FSDPModule):  # type: ignore[union-attr]
            module.reshard()  # type: ignore[operator]


def is_sharded(x: Tensor) -> bool:
    """Return whether x is a DTensor, as FSDP2 makes parameters."""
    tensor = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and isinstance(x, tensor.DTensor)


def gather(x: Tensor) -> Tensor:
    """Return the whole of a sharded tensor, in every process; x itself if it is not sharded."""
    return x.full_tensor() if is_sharded(x) else x  # type: ignore[attr-defined]


def place_like(values: Tensor, parameter: Any) -> Tensor:
    """Return whole values with the parameter's device and dtype and, for a DTensor, only this process's part."""
    values = values.to(device=parameter.device, dtype=parameter.dtype)
    if not is_sharded(parameter):
        return values
    from torch.distributed.tensor import DTensor, Replicate

    mesh = parameter.device_mesh
    whole = DTensor.from_local(values, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return whole.redistribute(placements=parameter.placements)


def new_bias(layer: Editable) -> nn.Parameter:
    """Return a bias of zeros that fits a layer, trained if its weight is."""
    weight = layer.weight
    return nn.Parameter(
        torch.zeros(len(weight), dtype=weight.dtype, device=weight.device), weight.requires_grad
    )


def _why_not_plain(layer: nn.Module) -> str | None:
    """Return why a layer's weight is not a plain tensor of its own: compiled, wrapped, quantized, computed or empty."""
    weight = getattr(layer, "weight", None)
    kind = type(layer)
    if isinstance(layer, torch.jit.ScriptModule):
        return "it is compiled to TorchScript; adjust the model before that"
    if hasattr(layer, "base_layer") or hasattr(layer, "lora_A"):
        return "it is wrapped by LoRA, whose update would not be scaled; merge it first (model.merge_and_unload())"
    if any(nn.parameter.is_lazy(p) for p in layer.parameters(recurse=False)):
        return "it is not initialized yet; run the model once"
    if (
        "quantized" in kind.__module__
        or "quantization" in kind.__module__
        or hasattr(layer, "qweight")
    ):
        return f"it is quantized ({kind.__module__}.{kind.__name__}); adjust the float model, then quantize"
    if isinstance(weight, Tensor):
        held = type(weight.data)
        if (
            hasattr(weight, "quant_state")
            or not weight.is_floating_point()
            or weight.element_size() < 2
        ):
            return f"it is quantized ({kind.__name__} in {weight.dtype}); adjust the float model, then quantize"
        if held is not Tensor and held.__name__ != "DTensor":
            return f"its weight is a {held.__name__}, not a plain tensor; adjust the float model, then quantize"
    computed = [name for name in ("weight", "bias") if parametrize.is_parametrized(layer, name)]
    old = [name for name in layer._parameters if name.endswith(("_g", "_v", "_orig"))]
    if computed or old:
        how = "is parametrized (weight_norm, spectral_norm, pruning or the like) and would be computed again"
        return f"its {(computed or ['weight'])[0]} {how}; remove the parametrization first"
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
                if (
                    q is not None
                    and (other is not layer or name != own)
                    and (q is p or _overlap(p, q))
                ):
                    tied = f"{path}.{name}" if path else name
                    how = "untie them first (give the head a clone of the weights)"
                    return f"its weights are tied to {tied}, which would change too; {how}"
    return None


def _overlap(p: Tensor, q: Tensor) -> bool:
    if (
        type(p.data) is not Tensor
        or type(q.data) is not Tensor
        or p.device != q.device
        or p.is_meta
    ):
        return False
    if nn.parameter.is_lazy(q) or q.layout is not torch.strided or not q.numel():
        return False
    first, second = p.data_ptr(), q.data_ptr()
    return (
        first < second + q.numel() * q.element_size()
        and second < first + p.numel() * p.element_size()
    )


def _why_not_affine(layer: nn.Module) -> str | None:
    """Try a layer with its own forward, or with hooks, on random features: it must still compute W x + b."""
    assert isinstance(layer, Editable)
    weight = layer.weight
    hooks = layer._forward_hooks or layer._forward_pre_hooks
    plain = (nn.Linear.forward, nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)
    own = type(layer).forward not in plain or "forward" in vars(layer) or hooks
    if not own or type(weight.data) is not Tensor:
        return None
    features = torch.randn((3, *weight.shape[1:]), generator=torch.Generator().manual_seed(0)).to(
        weight
    )
    try:
        with evaluating(layer), torch.no_grad():
            given = layer(features)
    except Exception:  # a grouped convolution, or a forward or hook that expects another shape
        given = None
    bias = None
    if layer.bias is not None:
        bias = layer.bias.detach().double()
    expected = F.linear(features.flatten(1).double(), weight.detach().flatten(1).double(), bias)
    close = {"atol": 1e-2 * float(expected.abs().max())}
    same = isinstance(given, Tensor) and given.shape[:2] == expected.shape
    if same and torch.allclose(given.double().flatten(1), expected, **close):  # type: ignore[union-attr]
        return None
    what = f"a {type(layer).__name__}"
    how = "it may normalize its weights"
    if hooks:
        what = "with its hooks it"
        how = "or fails on random features; remove them first"
    return f"{what} does more than W x + b ({how}), so scaling a row need not scale its logit"
