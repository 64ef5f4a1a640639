"""Whether a layer is the head: the model run on an example with other weights there.

`probes_of` runs the model once and makes a `Probe` of each of its outputs with K columns. A probe
then puts random weights into a layer by `functional_call`, which leaves the model as it is, changes
their rows, and compares the logits: in a head, scaling row i scales logit i and nothing else.

That is a proof by example, and needs nothing but a model that runs: no names, no graph. `scales` is
the test of a head, `adds` that a bias would arrive, `moves` and `moves_own_logits` tell which
layers feed an output together.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..support.errors import Advice, LevelheadError
from .candidates import Example
from .evaluating import as_written, evaluating

NAME_HEAD = Advice("layer", None, "to name the head (a list, if several feed one output)")


def probes_of(
    model: nn.Module, example: Example, classes: int | None = None
) -> tuple["Probe", ...]:
    """Return a probe for each output of a model that could be its logits.

    Args:
        model: not wrapped.
        example: an input to run it on.
        classes: K, where it is known. Else the columns of the model's first output are taken for
            it, and so they are if no output has K columns.

    Raises:
        LevelheadError: the model fails on the example, gives no tensor of floats, gives another
            result the second time, or is sharded or quantized.
    """
    # A dict is arguments by name, a tuple or list several by place, anything else one.
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = {}
    if isinstance(example, Mapping):
        kwargs = dict(example)
    elif isinstance(example, tuple | list):
        args = tuple(example)
    else:
        args = (example,)
    # `functional_call` would give such a layer plain weights, with which it does not run.
    if any(type(p.data) is not Tensor for p in model.parameters()):
        raise LevelheadError(
            "sharded or quantized parameters take no example; leave it out", advice=NAME_HEAD
        )

    outputs = _outputs(model, {}, args, kwargs)
    widths = {name: output.shape[-1] for name, output in outputs.items()}
    size = next(iter(widths.values()))
    if classes is not None and classes in widths.values():
        size = classes
    names = [name for name, width in widths.items() if width == size]

    # A probe compares two runs, which only tells something if two equal ones agree.
    again = _outputs(model, {}, args, kwargs)
    if not all(torch.equal(outputs[name], again[name]) for name in names):
        raise LevelheadError(
            "the model is random even in eval mode; leave the example out", advice=NAME_HEAD
        )
    return tuple(Probe(model, args, kwargs, name, size, outputs[name].dtype) for name in names)


@dataclass(frozen=True, eq=False)
class Probe:
    """A model, an example to run it on, and one of its outputs, which is looked at.

    Layers are given by path, {path: layer}; they are changed together, as where several feed one
    output.
    """

    model: nn.Module
    args: tuple[object, ...]  # of the example, by place
    kwargs: Mapping[str, object]  # and by name
    output: str  # its key or place; "" if the model returns a tensor
    classes: int  # K, how many columns it has
    dtype: torch.dtype  # of the output

    def scales(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether scaling row i of these layers scales logit i, for every i.

        That is what a head does.
        """
        # The factors are powers of two, so that nothing is rounded, and the first two differ.
        generator = torch.Generator().manual_seed(2)
        exponents = torch.randint(-1, 3, (self.classes,), generator=generator, device="cpu")
        factors = 2.0**exponents
        factors[:2] = torch.tensor([0.5, 2.0], device="cpu")[: self.classes]
        before, after = self._before_and_after(layers, factors)
        expected = before * factors.to(before)
        return bool(before.any()) and self._close(layers, after, expected, before)

    def adds(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether what is added to the outputs of these layers is added to the logits.

        By a hook, and not by a bias, since a layer that has none may get one later.
        """
        weights = self._random_weights(layers)
        if weights is None:
            return False
        before = self._logits(weights)
        # As large as the logits, of either sign in turn: what bends them is then seen.
        offsets = (self._every_other() * 2.0 - 1) * before.abs().max()

        # Autocast runs layers in another dtype than that of their weights.
        dtypes = set()

        def add(layer: nn.Module, _: object, output: Tensor) -> Tensor:
            dtypes.add(output.dtype)
            # On the last axis, or on the channels of a convolution, which pixels follow.
            pixels = len(getattr(layer, "kernel_size", ()))
            return output + offsets.to(output).reshape(-1, *[1] * pixels)

        with ExitStack() as hooks:
            for module in layers.values():
                hooks.enter_context(module.register_forward_hook(add))
            after = self._logits(weights)
        return self._close(layers, after, before + offsets, before, *dtypes)

    def moves_own_logits(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether doubling every other row moves those logits alone.

        That is true of each of several heads in a sum.
        """
        moved = self._every_other() == 0
        before, after = self._before_and_after(layers, moved + 1.0)
        others_stay = self._close(layers, after[..., ~moved], before[..., ~moved], before)
        own_stay = self._close(layers, after[..., moved], before[..., moved], before)
        return others_stay and not own_stay

    def moves(self, layers: Mapping[str, nn.Module]) -> bool:
        """Return whether doubling every other row moves any logit.

        Layers that cannot be tried are taken to.
        """
        before, after = self._before_and_after(layers, self._every_other() + 1.0)
        return not self._close(layers, after, before, before)

    def _every_other(self) -> Tensor:
        """Return 0 and 1 in turn, [K], on the host as the logits, wherever torch makes tensors."""
        return torch.arange(self.classes, device="cpu") % 2

    def _before_and_after(
        self, layers: Mapping[str, nn.Module], factors: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the logits with random weights in the layers, before and after scaling their rows.

        The layers' own weights would not do: a head may start at zero, where factors do nothing.
        """
        weights = self._random_weights(layers)
        if weights is None:  # NaN is close to nothing, so that no layer passes
            nothing = torch.full((self.classes,), torch.nan, device="cpu")
            return nothing, nothing
        scaled = {}
        for name, w in weights.items():
            by_row = factors.to(w).reshape(-1, *[1] * (w.ndim - 1))
            scaled[name] = w * by_row
        return self._logits(weights), self._logits(scaled)

    def _logits(self, weights: dict[str, Tensor]) -> Tensor:
        return _outputs(self.model, weights, self.args, self.kwargs)[self.output].double()

    def _close(
        self,
        layers: Mapping[str, nn.Module],
        a: Tensor,
        b: Tensor,
        scale: Tensor,
        *dtypes: torch.dtype,
    ) -> bool:
        """Return whether two are equal up to the rounding of the layers, of the output, and of dtypes."""
        weights = (layer._parameters.get("weight") for layer in layers.values())
        of_weights = (w.dtype for w in weights if w is not None)
        return close(a, b, scale, self.dtype, *of_weights, *dtypes)

    def _random_weights(self, layers: Mapping[str, nn.Module]) -> dict[str, Tensor] | None:
        """Return other parameters for the layers, by path.

        None if one of them does not have K rows of its own. They are scaled by the width, so that
        logits are about as large as features.
        """
        generator = torch.Generator().manual_seed(1)
        weights = {}
        for path, layer in layers.items():
            if not isinstance(layer._parameters.get("weight"), Tensor):
                return None
            for name, p in layer.named_parameters(path, recurse=False):
                if p.shape[0] != self.classes:
                    return None
                noise = torch.randn(p.shape, generator=generator, device="cpu")
                noise /= max(1, p[0].numel()) ** 0.5
                weights[name] = noise.to(device=p.device, dtype=p.dtype)
        return weights


def _outputs(
    model: nn.Module,
    weights: dict[str, Tensor],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> dict[str, Tensor]:
    """Return the outputs that could be logits, by name, classes last, on the host.

    Args:
        model: to run, in evaluation mode and without gradients.
        weights: what the model is run with in place of its own, by path.
        args, kwargs: the example.

    Raises:
        LevelheadError: the model fails, or gives no tensor of floats.
    """
    # Torchvision's R-CNNs return what is left of their boxes in the end: here are the logits.
    boxes: list[object] = []
    predictor = getattr(getattr(model, "roi_heads", None), "box_predictor", None)
    watched = nullcontext()
    if isinstance(predictor, nn.Module):
        watched = predictor.register_forward_hook(lambda _, __, output: boxes.append(output[0]))
    try:
        with watched, evaluating(model), torch.no_grad(), as_written():
            output: object = functional_call(model, weights, args, dict(kwargs))
    except Exception as error:
        raise LevelheadError(
            f"the model fails on it: {type(error).__name__}: {error}", parameter="example"
        ) from error
    if boxes:
        output = boxes[0]

    # An output with logits by name has nothing else to look at.
    if isinstance(output, Mapping):
        logits = output.get("logits")
    else:
        logits = getattr(output, "logits", None)
    if logits is not None:
        output = logits
    outputs = {}
    for name, x in _tensors_in(output):
        if x.is_floating_point() and x.ndim > 0:
            # Of pixels, [n, K, height, width], classes come second.
            outputs[name] = (x.movedim(1, -1) if x.ndim > 3 else x).cpu()
    if not outputs:
        raise LevelheadError(f"expected the model to return logits, got {type(output).__name__}")
    return outputs


def _tensors_in(output: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a model's output with their names.

    These are keys, and places in tuples, joined by dots.
    """
    if isinstance(output, Tensor):
        yield name, output
        return
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(output, Mapping):
        parts = output.items()
    elif isinstance(output, tuple | list):
        parts = enumerate(output)
    for key, part in parts:
        yield from _tensors_in(part, f"{name}.{key}" if name else str(key))


def close(a: Tensor, b: Tensor, scale: Tensor, *dtypes: torch.dtype) -> bool:
    """Return whether two are equal up to rounding, relative to the largest logit.

    A sum of two numbers up to the largest one is off by at most one epsilon of it, and what follows
    rounds again.

    Args:
        a, b: of one shape; not close if a has NaN or infinity.
        scale: the logits.
        dtypes: through which they went.
    """
    roundoff = max(1e-4, *(4 * torch.finfo(dtype).eps for dtype in dtypes))
    room = roundoff * scale.abs().max()
    return bool(torch.isfinite(a).all()) and bool(((a - b).abs() <= room).all())
