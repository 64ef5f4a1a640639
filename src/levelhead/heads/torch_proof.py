"""Whether a change of a torch model's head arrives in its logits: by an example, its forward, or inputs of its own."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..support.errors import LevelheadError
from .candidates import NOT_ADDED, TUNE_SCALES
from .place import Checked
from .probe import Probe, probes_of
from .torch_around import is_plain_sequence, modules_after, scale_around
from .torch_layers import outputs
from .trace import trace_tail

PASS_EXAMPLE = "if it is the head all the same, pass an example input"


def check_output(
    model: nn.Module, layers: Mapping[str, nn.Module], example: Any, *, adds: bool
) -> Checked | None:
    """Check that a change of the head arrives in the logits; return how that is known, or None if it is not.

    Args:
        model: not wrapped.
        layers: those of the head, by path.
        example: an input to run the model on, on which the layers were found to scale the logits.
        adds: whether something is added to biases, too.
    """
    first = next(iter(layers))
    if adds:
        _check_adds(model, layers, example)
    if example is not None:
        return "example"
    if "" in layers:  # the model is the layer itself, which was tried on random features
        return "forward"
    tail = trace_tail(model, layers)
    if tail is not None:
        if not tail.is_run:
            if any(_is_named_elsewhere(model, path) for path in layers):
                return None
            reason = f"{', '.join(layers)} is not the head: the model's forward does not use it"
            raise LevelheadError(f"{reason}; {PASS_EXAMPLE}")
        scales = tail.scales()
        if scales is False:
            raise _not_scaled(first, "by the model's forward", PASS_EXAMPLE)
        added = tail.adds() if adds else True
        if added is False:
            raise LevelheadError(NOT_ADDED.format("by the model's forward", first))
        if scales and added:
            return "forward"
    return _check_by_own_inputs(model, layers, adds)


def _check_adds(model: nn.Module, layers: Mapping[str, nn.Module], example: Any) -> None:
    """Check that what is added to a head's biases is added to the logits: on an example, or by the layers after it."""
    first = next(iter(layers))
    if example is not None:
        probes = probes_of(model, example, outputs(layers[first]))
        if not any(probe.scales(layers) and probe.adds(layers) for probe in probes):
            raise LevelheadError(NOT_ADDED.format("on this example", first))
    elif name := scale_around(model, first):
        reason = f"the model has a {name}: it may scale what is added to the bias of {first}"
        raise LevelheadError(f"{reason}; pass an example input, or {TUNE_SCALES}")
    for block, later in modules_after(model, first):
        if is_plain_sequence(block) and any(isinstance(module, nn.ReLU) for module in later):
            reason = (
                f"a ReLU follows {first}, and what is added before it is not added to the logits"
            )
            raise LevelheadError(f"{reason}; {TUNE_SCALES}")


def _is_named_elsewhere(model: nn.Module, path: str) -> bool:
    """Return whether another method than forward names a layer: the model may give features, and a step its logits."""
    block, _, name = path.rpartition(".")
    for kind in {type(model), type(model.get_submodule(block))}:
        for method in dir(kind):
            code = getattr(getattr(kind, method, None), "__code__", None)
            if method not in ("__init__", "forward") and code is not None and name in code.co_names:
                return True
    return False


def _not_scaled(first: str, how: str, instead: str) -> LevelheadError:
    reason = f"{how}, scaling the rows of {first} does not scale the model's logits one by one"
    return LevelheadError(f"{reason}; {instead}")


def _check_by_own_inputs(
    model: nn.Module, layers: Mapping[str, nn.Module], adds: bool
) -> Checked | None:
    """Check the head on the inputs that a model has for a trial, as those of transformers have."""
    inputs = own_inputs(model)
    if inputs is None:
        return None
    try:
        probes = probes_of(model, inputs, outputs(next(iter(layers.values()))))
        seen = [_seen(probe, layers, adds) for probe in probes]
    except (
        LevelheadError
    ):  # the model takes other inputs than it says, is random, sharded or on no device
        return None
    if any(scaled and added for scaled, added in seen):
        return "own inputs"
    first = next(iter(layers))
    if not any(scaled for scaled, _ in seen):
        raise _not_scaled(first, "on the model's own inputs", PASS_EXAMPLE)
    raise LevelheadError(NOT_ADDED.format("on the model's own inputs", first))


def _seen(probe: Probe, layers: Mapping[str, nn.Module], adds: bool) -> tuple[bool, bool]:
    """Return whether the logits are scaled, and whether what is added to the head is added to them."""
    return probe.scales(layers), not adds or probe.adds(layers)


def own_inputs(model: nn.Module) -> dict[str, Any] | None:
    """Return inputs that a transformers model has for a trial, on its device: words, or an image of noise."""
    name = getattr(model, "main_input_name", None)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type == "meta":
        return None
    config = getattr(model, "config", None)
    if name == "pixel_values":
        channels = getattr(config, "num_channels", None)
        size = getattr(config, "image_size", None)
        if not isinstance(channels, int) or not isinstance(size, int):
            return None
        dtype = next(p.dtype for p in model.parameters())
        image = torch.randn(1, channels, size, size, generator=torch.Generator().manual_seed(4))
        return {name: image.to(device=device, dtype=dtype)}
    try:
        inputs = model.dummy_inputs
    except Exception:  # an attribute that is not there, or that fails for this model
        return None
    if not isinstance(inputs, Mapping) or name not in inputs:
        return None
    return {key: value[:1].to(device) for key, value in inputs.items()}
