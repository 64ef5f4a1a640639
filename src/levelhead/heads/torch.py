"""Heads in torch modules, also sharded by FSDP2: read, written, changed with a way back.

`TorchModel` is the place of such a head. torch_find.py tells which layer it is, torch_plain.py
whether its numbers can be changed, torch_proof.py whether a change arrives in the logits, and
torch_shards.py reads and writes parameters of which each process holds a part.

Values are copied into the parameters that are there: to replace a parameter would leave an
optimizer, DDP and FSDP with the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from ..core.class_names import names_in_config
from ..core.head import Head
from ..support.errors import Advice, LevelheadError
from .candidates import TUNE_SCALES, Example, LayerChoice
from .in_memory import InMemory
from .notes import Note, leave_note, notes_in_configs, notes_in_files
from .place import Checked, Facts
from .probe import NAME_HEAD
from .torch_around import known_task
from .torch_find import auxiliary_heads, find_head
from .torch_layers import linear_layers, outputs, unwrap
from .torch_plain import Editable, why_not_affine, why_not_plain, why_tied
from .torch_proof import check_output
from .torch_shards import gather, new_bias, place_like, reshard

# The dtypes of safetensors files that heads are saved in.
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read(
    model: nn.Module,
    *,
    layer: LayerChoice = None,
    example: Example = None,
    classes: int | None = None,
) -> Head:
    """Read the head of a torch module, as a copy.

    It has the class names of the model's config, where there are any.

    Args:
        model, layer, example, classes: as in `find_head`; of several heads, name the one to read.

    Returns:
        A head on the model's device, whole in every process if it is sharded.

    Raises:
        LevelheadError: as `find_head` does; several layers feed one output; or the layer is no
            plain ``W x + b`` whose numbers could be written back.

    >>> read(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))).weight.shape
    torch.Size([3, 8])
    """
    return TorchModel(model).read(layer=layer, example=example, classes=classes)


def write(
    model: nn.Module, head: Head, *, layer: LayerChoice = None, example: Example = None
) -> None:
    """Put a head into a torch module, in place.

    Parameters, their dtype, device and sharding stay the module's own.

    Args:
        model, layer, example: as in `find_head`.
        head: weight [K, d] of the layer's own shape, and a bias exactly if the layer has one.

    Raises:
        LevelheadError: the head is of another shape, or not finite.

    >>> import numpy as np
    >>> layer = nn.Linear(2, 3, bias=False)
    >>> write(layer, Head(np.ones((3, 2))))
    >>> layer.weight.sum().item()
    6.0
    """
    TorchModel(model).replace(head, layer=layer, example=example)


class _Saved(NamedTuple):
    """A parameter of the head as it was."""

    path: str  # of its layer
    name: str
    parameter: nn.Parameter
    values: Tensor  # a copy


class TorchModel(InMemory[Editable]):
    """A torch module whose head can be read and changed in place.

    Args:
        model: any torch module; wrappers such as DDP and torch.compile are looked through.
    """

    advice = NAME_HEAD

    def __init__(self, model: nn.Module) -> None:
        self.model = unwrap(model)

    def find_layers(
        self, layer: LayerChoice, example: Example, classes: int | None
    ) -> dict[str, Editable]:
        # After a forward pass, FSDP2 may show whole parameters that are only copies.
        reshard(self.model)
        head = find_head(self.model, layer=layer, example=example, classes=classes)
        return cast(dict[str, Editable], head)  # `why_not` is asked next, and refuses others

    def why_not(self, module: Editable) -> str | None:
        return why_not_plain(module) or why_tied(module, self.model) or why_not_affine(module)

    def sizes(self) -> set[int | None]:
        return {outputs(module) for _, module in linear_layers(self.model)}

    def find_facts(self) -> Facts:
        keys = tuple(self.layers)
        weights = [module.weight for module in self.layers.values()]
        first = weights[0]
        half = None
        if first.element_size() <= 2:
            half = str(first.dtype)
        return Facts(
            keys=keys,
            where=", ".join(keys) or "the head",
            sizes=tuple(len(weight) for weight in weights),
            names=names_in_config(getattr(self.model, "config", None), len(first)),
            task=known_task(self.model, keys[0]),
            half=half,
        )

    def head(self, module: Editable, names: Sequence[str] | None = None) -> Head:
        """Return a copy of a layer's parameters, whole even if they are sharded.

        The weight of a convolution is flattened to [K, d].
        """
        weight = gather(module.weight.detach()).clone()
        bias = None
        if module.bias is not None:
            bias = gather(module.bias.detach()).clone()
        return Head(weight.flatten(1), bias, names)

    def state(self, module: Editable, *, weights: bool) -> tuple[tuple[int, int], tuple[str, ...]]:
        """Return what tells whether the weight, or the bias, is as it was.

        torch counts the changes in place of a parameter: while the count stays, so do the values,
        and nothing has to be read. Of a model that was loaded again, the digests tell.
        """
        parameter = module.weight if weights else module.bias
        if parameter is None:
            return (0, 0), ("",)
        return (id(parameter), parameter._version), _digests(gather(parameter.detach()).cpu())

    def check_output(self, *, adds: bool) -> Checked | None:
        return check_output(self.model, self.layers, self.example, adds=adds, named=self.named)

    def auxiliary(self) -> tuple[str, ...]:
        return auxiliary_heads(self.model, dict(self.layers))

    def check_takes_bias(self, key: str) -> None:
        """Check that a layer without a bias can get one.

        It must add it, and the model must be loaded with it again.
        """
        reason = self._why_no_bias(key)
        if reason is not None:
            needs = f"cannot give {key or 'the layer'} a bias, which this needs: {reason}"
            collected = "(lh.collect(model, loader, features=True).features)"
            advice = Advice("features", None, f"{collected} to put offsets into the weights")
            raise LevelheadError(f"{needs}; {TUNE_SCALES}", advice=advice)

    def _why_no_bias(self, key: str) -> str | None:
        """Return why a layer cannot get a bias, or None.

        It would be lost in saving, or the layer would not add it. A class of transformers builds
        its layers anew when it is loaded, without a bias, and leaves out what it finds for one in
        the file.
        """
        layer = self.layers[key]
        if ".modules_to_save." in key:
            return "PEFT would save it with the adapter and not load it again"
        if callable(getattr(self.model, "save_pretrained", None)):
            return f"a {type(self.model).__name__} has none, and would not load it again"
        if type(layer.weight.data) is not Tensor:
            return "its weight is sharded; give it a bias before that"
        # Try one, large enough to be seen: a forward of the layer's own may ignore it.
        bias = new_bias(layer.weight)
        bias.data += 1 + float(layer.weight.detach().float().abs().max())
        layer.register_parameter("bias", bias)
        try:
            if why_not_affine(layer) is not None:
                return "its forward does not add one"
        finally:
            layer.register_parameter("bias", None)
        return None

    def keep(self, heads: Sequence[Head]) -> Callable[[], None]:
        """Give layers the biases that only their new heads have; return the way back.

        It brings all values back and takes the new biases out.
        """
        saved = []
        grown = []
        for (path, module), head in zip(self.layers.items(), heads, strict=True):
            for name, parameter in module.named_parameters(recurse=False):
                saved.append(_Saved(path, name, parameter, parameter.detach().clone()))
            if module.bias is None and head.bias is not None:
                grown.append(module)
        # After the copies are made: what is new has no old value.
        for module in grown:
            module.register_parameter("bias", new_bias(module.weight))
        return partial(_restore, self.model, saved, grown)

    def put(self, module: Editable, head: Head) -> None:
        """Put a head into a layer.

        Its parameters, their dtype, device and sharding stay the layer's own.
        """
        with torch.no_grad():
            for parameter, values in ((module.weight, head.weight), (module.bias, head.bias)):
                if parameter is not None:
                    whole = torch.as_tensor(values, dtype=parameter.dtype, device=parameter.device)
                    parameter.copy_(place_like(whole.reshape(parameter.shape), parameter))

    def notes(self) -> list[Note]:
        """Return what configs and the files that the model was loaded from say was done to it."""
        return [*notes_in_configs(self.model), *notes_in_files(self.model, _digests_of_bytes)]

    def leave_note(self, note: Note) -> Callable[[], None]:
        return leave_note(self.model, note)


def _digests_of_bytes(data: bytes, dtype: str) -> tuple[str, ...]:
    """Return the digests of a tensor as a safetensors file has it."""
    return _digests(torch.frombuffer(bytearray(data), dtype=DTYPES[dtype]))


def _digests(values: Tensor) -> tuple[str, ...]:
    """Return the sha256 of a tensor's bytes.

    The first is of the tensor as it is, the others as models are saved: rounded to another dtype.
    So a model that was adjusted in float32, saved in bfloat16 and loaded again is still known.
    """
    digests = []
    for dtype in dict.fromkeys([values.dtype, torch.float32, torch.bfloat16, torch.float16]):
        flat = values.to(dtype).flatten().contiguous()
        digests.append(sha256(flat.view(torch.uint8).numpy().data).hexdigest())
    return tuple(digests)


def _restore(model: nn.Module, saved: Sequence[_Saved], grown: Sequence[nn.Module]) -> None:
    """Give parameters their old values back, and take out biases that are new.

    All of it or, with an error, none.

    Args:
        model: that they are in.
        saved: the parameters, with copies of their values.
        grown: layers that got a bias.
    """
    reshard(model)
    current = {id(p) for p in model.parameters()}
    for old in saved:
        if id(old.parameter) not in current:
            since = (
                f"its {old.name} was replaced since (a new layer, or load_state_dict with assign)"
            )
            instead = "load the weights the model had before"
            raise LevelheadError(f"cannot restore {old.path or 'the head'}: {since}; {instead}")
    with torch.no_grad():
        for old in saved:
            old.parameter.copy_(old.values)
    for layer in grown:
        layer.register_parameter("bias", None)
