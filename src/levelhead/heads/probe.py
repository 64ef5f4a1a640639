"""Whether a layer is the head: the model run on an example with other weights there, by `functional_call`."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..support.errors import Advice, LevelheadError
from .evaluating import evaluating

NAME_HEAD = Advice("layer", None, "to name the head (a list, if several feed one output)")


def probes_of(model: nn.Module, example: Any, classes: int | None = None) -> tuple["Probe", ...]:
    """Return a probe for each output of a model that could be its logits: all those with K columns."""
    named = isinstance(example, Mapping)
    kwargs = dict(example) if named else {}
    args = ()
    if not named:
        if isinstance(example, tuple | list):
            args = tuple(example)
        else:
            args = (example,)
    if any(type(p.data) is not Tensor for p in model.parameters()):
        raise LevelheadError(
            "sharded or quantized parameters take no example; leave it out", advice=NAME_HEAD
        )
    outputs, again = (_outputs(model, {}, args, kwargs) for _ in range(2))
    widths = [output.shape[-1] for output in outputs.values()]
    size = classes if classes in widths else widths[0]
    names = [name for name, width in zip(outputs, widths, strict=True) if width == size]
    if not all(torch.equal(outputs[name], again[name]) for name in names):
        raise LevelheadError(
            "the model is random even in eval mode; leave the example out", advice=NAME_HEAD
        )
    return tuple(Probe(model, args, kwargs, name, size, outputs[name].dtype) for name in names)


@dataclass(frozen=True, eq=False)
class Probe:
    """A model, an example to run it on, and which of its outputs is looked at; "" if there is but one."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: str
    classes: int
    dtype: torch.dtype  # of that output

    def scales(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether scaling row i of these layers scales logit i by the same factor, for every i, as in a head."""
        # The factors are powers of two, so that nothing is rounded.
        factors = 2.0 ** torch.randint(
            -1, 3, (self.classes,), generator=torch.Generator().manual_seed(2)
        )
        factors[:2] = torch.tensor([0.5, 2.0])[: self.classes]
        before, after = self._before_and_after(layers, factors)
        return bool(before.any()) and self._close(
            layers, after, before * factors.to(before), before
        )

    def adds(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether adding a number to each output of these layers adds the same to its logit."""
        if (weights := self._random_weights(layers)) is None:
            return False
        before = self._logits(weights)
        offsets = (torch.arange(self.classes) % 2 * 2.0 - 1) * before.abs().max()

        def add(
            layer: nn.Module, _: Any, output: Tensor
        ) -> Tensor:  # on its last axis, or a convolution's channels
            return output + offsets.to(output).reshape(
                -1, *[1] * len(getattr(layer, "kernel_size", ()))
            )

        with ExitStack() as hooks:
            for module in layers.values():
                hooks.enter_context(module.register_forward_hook(add))
            after = self._logits(weights)
        return self._close(layers, after, before + offsets, before)

    def moves_own_logits(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether doubling every other row moves those logits alone: true of each of several heads in a sum."""
        moved = torch.arange(self.classes) % 2 == 0
        before, after = self._before_and_after(layers, moved + 1.0)
        return [
            self._close(layers, after[..., rows], before[..., rows], before)
            for rows in (~moved, moved)
        ] == [True, False]

    def moves(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether doubling every other row moves any logit; true as well of layers that cannot be tried."""
        before, after = self._before_and_after(layers, torch.arange(self.classes) % 2 + 1.0)
        return not self._close(layers, after, before, before)

    def _before_and_after(
        self, layers: Mapping[str, nn.Module], factors: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the logits with random weights (a head may start at zero) before and after scaling their rows."""
        if (weights := self._random_weights(layers)) is None:  # not finite, and so close to nothing
            return torch.full((self.classes,), torch.nan), torch.full((self.classes,), torch.nan)
        scaled = {
            name: w * factors.to(w).reshape(-1, *[1] * (w.ndim - 1)) for name, w in weights.items()
        }
        return self._logits(weights), self._logits(scaled)

    def _logits(self, weights: dict[str, Tensor]) -> Tensor:
        return _outputs(self.model, weights, self.args, self.kwargs)[self.output].double()

    def _close(self, layers: Mapping[str, nn.Module], a: Tensor, b: Tensor, scale: Tensor) -> bool:
        """Return whether two are equal up to the rounding of the layers and of the output."""
        weights = (layer._parameters.get("weight") for layer in layers.values())
        return close(a, b, scale, self.dtype, *(w.dtype for w in weights if w is not None))

    def _random_weights(self, layers: Mapping[str, nn.Module]) -> dict[str, Tensor] | None:
        """Return other parameters for the layers, by path; None if one of them does not have K rows of its own."""
        generator = torch.Generator().manual_seed(1)
        weights = {}
        for path, layer in layers.items():
            if not isinstance(layer._parameters.get("weight"), Tensor):
                return None
            for name, p in layer.named_parameters(path, recurse=False):
                if p.shape[0] != self.classes:
                    return None
                noise = torch.randn(p.shape, generator=generator) / max(1, p[0].numel()) ** 0.5
                weights[name] = noise.to(device=p.device, dtype=p.dtype)
        return weights


def _outputs(
    model: nn.Module, weights: dict[str, Tensor], args: tuple, kwargs: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return what could be logits, by name, with these weights in place, classes last, on the host."""
    # Torchvision's R-CNNs return what is left of their boxes in the end: here are the logits.
    boxes: list[Any] = []
    predictor = getattr(getattr(model, "roi_heads", None), "box_predictor", None)
    watched = nullcontext()
    if isinstance(predictor, nn.Module):
        watched = predictor.register_forward_hook(lambda _, __, output: boxes.append(output[0]))
    try:
        with watched, evaluating(model), torch.no_grad():
            output = functional_call(model, weights, args, dict(kwargs))
            output = boxes[0] if boxes else output
    except Exception as error:
        raise LevelheadError(
            f"the model fails on it: {type(error).__name__}: {error}", parameter="example"
        ) from error
    if isinstance(output, Mapping):
        logits = output.get("logits")
    else:
        logits = getattr(output, "logits", None)
    output = output if logits is None else logits
    floats = ((name, x) for name, x in _tensors_in(output) if x.is_floating_point() and x.ndim > 0)
    found = {name: (x.movedim(1, -1) if x.ndim > 3 else x).cpu() for name, x in floats}
    if not found:
        raise LevelheadError(f"expected the model to return logits, got {type(output).__name__}")
    return found


def _tensors_in(output: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a model's output with their names: keys and places in tuples."""
    if isinstance(output, Tensor):
        yield name, output
    places = ()
    if isinstance(output, tuple | list):
        places = enumerate(output)
    for key, part in output.items() if isinstance(output, Mapping) else places:
        yield from _tensors_in(part, f"{name}.{key}" if name else str(key))


def close(a: Tensor, b: Tensor, scale: Tensor, *dtypes: torch.dtype) -> bool:
    """Return whether two are equal up to the rounding of the coarsest dtype, relative to the largest logit.

    A sum of two numbers up to the largest one is off by at most one epsilon of it, and what follows rounds again.
    """
    roundoff = max(1e-4, *(4 * torch.finfo(dtype).eps for dtype in dtypes))
    room = roundoff * scale.abs().max()
    return bool(torch.isfinite(a).all()) and bool(((a - b).abs() <= room).all())
