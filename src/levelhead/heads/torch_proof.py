"""Whether a change of a torch model's head arrives in its logits.

`check_output` asks, in this order, what is there: an example input of the caller (probe.py), the
model's forward as torch traces it (tail.py), or inputs that the model has for a trial, as those of
transformers do. Where one of them shows that the change does not arrive, it raises; where none can
tell, the result says that nothing was checked.

What it is for: a model may divide its logits by a temperature, bend them, or not use the layer at
all. Tuned on logits and written into the head, a choice would then be another one than was judged.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..support.errors import LevelheadError
from .candidates import NOT_ADDED, TUNE_SCALES, Example
from .place import Checked
from .probe import Probe, probes_of
from .tail import tail_of
from .torch_around import is_plain_sequence, modules_after, scale_around
from .torch_layers import outputs

PASS_EXAMPLE = "if it is the head all the same, pass an example input"


def check_output(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    example: Example,
    *,
    adds: bool,
    named: bool = False,
) -> Checked | None:
    """Check that a change of the head arrives in the logits.

    Args:
        model: not wrapped.
        layers: those of the head, by path.
        example: an input to run the model on, on which the layers were found to scale the logits.
        adds: whether something is added to biases, too.
        named: whether the caller named the layers, and so their output among others.

    Returns:
        How it is known to arrive; None if it is not known.

    Raises:
        LevelheadError: the change is known not to arrive.
    """
    if adds:
        _check_adds(model, layers, example)
    if example is not None:
        return "example"
    if "" in layers:  # the model is the layer itself, which was tried on random features
        return "forward"

    first = next(iter(layers))
    # Without an example: what the code of the model says, if torch can follow it.
    tail = tail_of(model, layers)
    run_elsewhere = any(_is_named_elsewhere(model, path) for path in layers)
    if tail is not None and tail.parameters_read:
        if adds and tail.without_bias and not run_elsewhere:
            takes = f"the model's forward takes the weight of {first}, and no bias of it"
            raise LevelheadError(f"{takes}; adjust its scores instead, by tuned.apply")
    elif tail is not None:
        if not tail.is_run:
            if run_elsewhere:
                return None
            reason = f"{', '.join(layers)} is not the head: the model's forward does not use it"
            raise LevelheadError(f"{reason}; {PASS_EXAMPLE}")
        scales = tail.scales()
        if scales is False:
            raise _not_scaled(first, "by the model's forward")
        added = tail.adds() if adds else True
        if added is False:
            raise LevelheadError(NOT_ADDED.format("by the model's forward", first))
        # Another output may be the logits, and this one of an auxiliary head.
        if scales and added and (named or tail.is_only_output):
            return "forward"
    return _check_by_own_inputs(model, layers, adds=adds)


def _check_adds(model: nn.Module, layers: Mapping[str, nn.Module], example: Example) -> None:
    """Check that what is added to a head's biases is added to the logits.

    An example tells, or else the layers after the head.
    """
    first = next(iter(layers))
    if example is not None:
        probes = probes_of(model, example, outputs(layers[first]))
        if not any(probe.scales(layers) and probe.adds(layers) for probe in probes):
            raise LevelheadError(NOT_ADDED.format("on this example", first))
    elif name := scale_around(model, first):
        reason = f"the model has a {name}: it may scale what is added to the bias of {first}"
        raise LevelheadError(f"{reason}; pass an example input, or {TUNE_SCALES}")
    # A ReLU keeps factors, which are positive, but cuts off what was added to a negative output.
    for block, later in modules_after(model, first):
        if is_plain_sequence(block) and any(isinstance(module, nn.ReLU) for module in later):
            lost = "what is added before it is not added to the logits"
            raise LevelheadError(f"a ReLU follows {first}, and {lost}; {TUNE_SCALES}")


def _is_named_elsewhere(model: nn.Module, path: str) -> bool:
    """Return whether another method than forward names a layer.

    The model's forward may give features, and a step of training or validation the logits, as in
    many a LightningModule.
    """
    block, _, name = path.rpartition(".")
    for kind in {type(model), type(model.get_submodule(block))}:
        for method in dir(kind):
            if method in ("__init__", "forward"):
                continue
            code = getattr(getattr(kind, method, None), "__code__", None)
            if code is not None and name in code.co_names:
                return True
    return False


def _not_scaled(first: str, known_from: str) -> LevelheadError:
    reason = f"scaling the rows of {first} does not scale the model's logits one by one"
    return LevelheadError(f"{known_from}, {reason}; {PASS_EXAMPLE}")


class _Arrived(NamedTuple):
    """What arrives in one output of a model."""

    factors: bool
    offsets: bool  # true as well where nothing is to be added


def _check_by_own_inputs(
    model: nn.Module, layers: Mapping[str, nn.Module], *, adds: bool
) -> Checked | None:
    """Check the head on the inputs that a model has for a trial, as those of transformers have.

    Returns:
        None where there are no such inputs, or the model does not run on them.

    Raises:
        LevelheadError: it runs on them, and the change does not arrive.
    """
    inputs = own_inputs(model)
    if inputs is None:
        return None
    try:
        probes = probes_of(model, inputs, outputs(next(iter(layers.values()))))
        arrived = [_arrived(probe, layers, adds=adds) for probe in probes]
    # The model takes other inputs than it says, is random, sharded or on no device.
    except LevelheadError:
        return None
    if any(output.factors and output.offsets for output in arrived):
        return "own inputs"
    first = next(iter(layers))
    if not any(output.factors for output in arrived):
        raise _not_scaled(first, "on the model's own inputs")
    raise LevelheadError(NOT_ADDED.format("on the model's own inputs", first))


def _arrived(probe: Probe, layers: Mapping[str, nn.Module], *, adds: bool) -> _Arrived:
    return _Arrived(probe.scales(layers), not adds or probe.adds(layers))


def own_inputs(model: nn.Module) -> dict[str, Tensor] | None:
    """Return inputs that a transformers model has for a trial, on its device.

    They are words, or an image of noise of the size that its config names; None where the model has
    no such inputs or no weights.
    """
    name = getattr(model, "main_input_name", None)
    first = next(model.parameters(), None)
    device = torch.device("cpu") if first is None else first.device
    if device.type == "meta":
        return None

    if name == "pixel_values" and first is not None:
        config = getattr(model, "config", None)
        channels = getattr(config, "num_channels", None)
        size = getattr(config, "image_size", None)
        if not isinstance(channels, int) or not isinstance(size, int):
            return None
        generator = torch.Generator().manual_seed(4)
        image = torch.randn(1, channels, size, size, generator=generator, device="cpu")
        return {name: image.to(device=device, dtype=first.dtype)}

    # Words: those that transformers has to try a model on.
    try:
        inputs = model.dummy_inputs
    except Exception:  # an attribute that is not there, or that fails for this model
        return None
    if not isinstance(inputs, Mapping) or name not in inputs:
        return None
    return {key: value[:1].to(device) for key, value in inputs.items()}
