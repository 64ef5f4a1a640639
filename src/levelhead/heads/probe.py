"""A test of whether a layer is the head: run the model on an example with other weights in that layer.

No parameter is touched: the weights are swapped for one call (`torch.func.functional_call`).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..core.errors import Advice, LevelheadError

NAME_HEAD = Advice("layer", None, "to name the head (a list, if several feed one output)")


class Probe:
    """A model and an example to run it on: a tensor, a tuple of arguments, or a dict of keyword arguments."""

    def __init__(self, model: nn.Module, example: Any) -> None:
        self.model, named = model, isinstance(example, Mapping)
        self.kwargs = dict(example) if named else {}
        self.args = () if named else tuple(example) if isinstance(example, tuple | list) else (example,)
        if any(type(p.data) is not Tensor for p in model.parameters()):
            raise LevelheadError("sharded or quantized parameters take no example; leave it out", advice=NAME_HEAD)
        logits = self._logits({})
        if not torch.equal(logits, self._logits({})):
            raise LevelheadError("the model is random even in eval mode; leave the example out", advice=NAME_HEAD)
        self.classes = logits.shape[-1]

    def scales(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether scaling row i of these layers scales logit i by the same factor, for every i, as in a head."""
        # The factors are powers of two, so that nothing is rounded.
        factors = 2.0 ** torch.randint(-1, 3, (self.classes,), generator=torch.Generator().manual_seed(2))
        factors[:2] = torch.tensor([0.5, 2.0])[: self.classes]
        if (logits := self._before_and_after(layers, factors)) is None:
            return False
        before, after = logits
        return bool(before.any()) and _close(after, before * factors.to(before), before)

    def moves_own_logits(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether doubling every other row moves those logits alone: true of each of several heads in a sum."""
        moved = torch.arange(self.classes) % 2 == 0
        if (logits := self._before_and_after(layers, moved + 1.0)) is None:
            return False
        before, after = logits
        return _close(after[..., ~moved], before[..., ~moved], before) and not _close(
            after[..., moved], before[..., moved], before
        )

    def _before_and_after(self, layers: Mapping[str, nn.Module], factors: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the logits with random weights (a head may start at zero) before and after scaling their rows.

        None if one of the layers does not have K rows of its own.
        """
        generator, weights = torch.Generator().manual_seed(1), {}
        for path, layer in layers.items():
            if not isinstance(layer._parameters.get("weight"), Tensor):
                return None
            for name, p in layer.named_parameters(path, recurse=False):
                if p.shape[0] != self.classes:
                    return None
                noise = torch.randn(p.shape, generator=generator) / max(1, p[0].numel()) ** 0.5
                weights[name] = noise.to(device=p.device, dtype=p.dtype)
        scaled = {name: w * factors.to(w).reshape(-1, *[1] * (w.ndim - 1)) for name, w in weights.items()}
        return self._logits(weights), self._logits(scaled)

    def _logits(self, weights: dict[str, Tensor]) -> Tensor:
        """Return the logits on the example with these weights in place, classes last, in float64 on the host.

        The model runs in eval mode, without gradients; its mode is restored.
        """
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.no_grad():
                output = functional_call(self.model, weights, self.args, self.kwargs)
        except Exception as error:
            reason = f"the model fails on it: {type(error).__name__}: {error}"
            raise LevelheadError(reason, parameter="example") from error
        finally:
            for module, training in modes:
                module.training = training
        logits = _logits_of(output)
        return (logits.movedim(1, -1) if logits.ndim > 3 else logits).double().cpu()


def _logits_of(output: Any) -> Tensor:
    """Return the logits among what a model returns: the tensor, its `logits`, or the first tensor of a tuple."""
    if isinstance(output, Mapping):
        output = output.get("logits", next(iter(output.values()), None))
    elif hasattr(output, "logits"):
        output = output.logits
    if isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.ndim == 0:
        raise LevelheadError(f"expected the model to return logits, got {type(output).__name__}")
    return output


def _close(a: Tensor, b: Tensor, scale: Tensor) -> bool:
    """Return whether two are equal up to rounding, relative to the largest logit."""
    return bool(torch.isfinite(a).all()) and bool(((a - b).abs() <= 1e-4 * scale.abs().max()).all())
