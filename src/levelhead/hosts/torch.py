"""WVN next to any torch optimizer: Algorithm 1 as a hook on its step, which fires once per real step, in any loop.

`WVN` finds the weights of the head, checks once that each row has a direction, and from then on calls `unit_` on them,
which checks nothing and waits for no GPU: it is called after every step. `normalize_` does both once, for copies of
a model that no optimizer steps.

A hook of the optimizer, and none of the module: a forward hook would run at every micro-batch of accumulated gradients
and at evaluation, and a training loop would have to be told. torch calls a step hook once per real step, whoever
calls `step`; a GradScaler that skips a step after an overflow skips the hook with it.
"""

from typing import Literal

from ..core.head import Head, normalize
from ..support.errors import LevelheadError, check_choice
from ..support.extras import naming_what_is_missing

with naming_what_is_missing():
    import torch
    from torch import Tensor, nn

    from ..heads.candidates import Example, LayerChoice
    from ..heads.torch import TorchModel
    from ..heads.torch_shards import gather, is_sharded

Order = Literal["algorithm", "released"]

# Wrappers that change no weights: their step calls that of the optimizer inside. Known by name, as they need not be
# installed; Lightning makes subclasses of its own.
OPTIMIZER_WRAPPERS = ("AcceleratedOptimizer", "LightningOptimizer", "_FabricOptimizer")


class WVN:
    """Weight vector normalization: keep every weight vector of a layer at unit length while it is trained.

    ``w_i <- w_i / ||w_i||`` after every step of the optimizer, and once now. The bias is left alone. The weight changes
    in place: the parameter, its gradient and the optimizer's state for it stay as they are.

    The hook is not part of the optimizer's `state_dict` and is lost when an optimizer is deep-copied or pickled: attach
    it again after loading one.

    Args:
        optimizer: any torch optimizer that owns the weight, or Accelerate's or Lightning's wrapper of one.
        layer: a linear layer or 1x1 convolution, its weight, or a model whose head `find_head` finds.
        classes, example: K and an input of the model, which tell its head from other layers, as in `find_head`.
        order: `algorithm` normalizes after the step, as the paper's Algorithm 1 has it; `released` before it, as the
            authors' code does, so that weights at evaluation are one step off unit length.

    >>> layer = nn.Linear(4, 3, bias=False)
    >>> hook = WVN(torch.optim.SGD(layer.parameters(), lr=0.1), layer)
    >>> layer.weight.norm(dim=1).allclose(torch.ones(3))
    True
    >>> hook.remove()

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, Algorithm 1.
    """

    def __init__(
        self,
        optimizer: object,
        layer: nn.Module | Tensor,
        *,
        order: Order = "algorithm",
        classes: int | None = None,
        example: Example = None,
    ) -> None:
        check_choice("order", order, ("algorithm", "released"))
        inner = _unwrap_optimizer(optimizer)
        # A weight that another optimizer steps would be normalized at the wrong moments.
        self.weights = _head_weights(layer, classes, example)
        self.order: Order = order
        owned = {id(p) for group in inner.param_groups for p in group["params"]}
        for path, weight in self.weights.items():
            if id(weight) not in owned:
                wanted = "expected the optimizer of the model that the layer belongs to"
                raise LevelheadError(
                    f"does not own {path} {list(weight.shape)}; {wanted}", parameter="optimizer"
                )
        # Once now, so that the first forward pass has unit vectors, too.
        _check_directions(self.weights)
        self._normalize()
        if order == "algorithm":
            self._handle = inner.register_step_post_hook(self._normalize)
        else:
            self._handle = inner.register_step_pre_hook(self._normalize_before)

    def remove(self) -> None:
        """Stop normalizing; the weights stay as they are."""
        self._handle.remove()

    def _normalize(self, *_: object) -> None:
        for weight in self.weights.values():
            unit_(weight)

    def _normalize_before(
        self, _: object, args: tuple, kwargs: dict[str, object]
    ) -> tuple[tuple, dict[str, object]] | None:
        """Normalize before a step; torch calls it with the arguments of `step`, and takes others back.

        Args:
            args: (optimizer, closure), or (optimizer,).
            kwargs: may have the closure instead.

        Returns:
            Arguments with another closure, or None to leave them as they are.
        """
        # A closure contains the backward pass (Lightning passes one), so it runs first.
        if len(args) > 1:
            closure = args[1]
        else:
            closure = kwargs.get("closure")
        if not callable(closure):
            return self._normalize()

        def closure_then_normalize() -> object:
            loss = closure()
            self._normalize()
            return loss

        return args[:1], {**kwargs, "closure": closure_then_normalize}

    def __repr__(self) -> str:
        layers = ", ".join(f"{path} {list(weight.shape)}" for path, weight in self.weights.items())
        return f"WVN({layers}, order={self.order!r})"


def normalize_(
    model: nn.Module | Tensor,
    *,
    layer: LayerChoice = None,
    classes: int | None = None,
    example: Example = None,
) -> dict[str, Tensor]:
    """Find the head of a model and scale its weight vectors to unit length once, in place: ``w_i <- w_i / ||w_i||``.

    It is for copies that no optimizer steps: an average of unit vectors (EMA, SWA) is shorter than one. The bias is
    left alone. If a row has no direction, nothing is changed. {path: weight} of what was normalized is returned.

    Args:
        model: a model, its head or the head's weight; averages of torch (`AveragedModel`) and timm (`ModelEmaV2`,
            `ModelEmaV3`) are looked through.
        layer, classes, example: as in `find_head`.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    >>> normalize_(model)["0"].norm(dim=1).detach().allclose(torch.ones(3))
    True
    """
    weights = _head_weights(model, classes, example, layer)
    _check_directions(weights)
    for weight in weights.values():
        unit_(weight)
    return {
        path.removesuffix("weight").removesuffix("."): weight for path, weight in weights.items()
    }


@torch.no_grad()
def unit_(weight: Tensor) -> None:
    """Set ``w_i <- w_i / ||w_i||`` in place, weight [K, d] or [K, d, 1, 1], without checks or host synchronization.

    It runs after every step, so it is three kernels (lengths, their reciprocals, a product) and, in float32, no copy.
    """
    # Each process scales its own rows; if rows are cut across processes, their squares are summed over all of them.
    if is_sharded(weight) and all(p.is_replicate() or p.is_shard(0) for p in weight.placements):  # type: ignore
        weight = weight.to_local()  # type: ignore[attr-defined]
    # Half precision is summed in float32; naming a dtype costs a copy, so others name none.
    wide = None
    if weight.element_size() < 4:
        wide = torch.float32
    lengths = torch.linalg.vector_norm(
        weight, dim=tuple(range(1, weight.ndim)), keepdim=True, dtype=wide
    )
    # K divisions and d K products, which are four times as fast as d K divisions.
    weight.mul_(lengths.reciprocal())


def _unwrap_optimizer(optimizer: object) -> torch.optim.Optimizer:
    """Return the optimizer whose step has the last word on the weights, out of Accelerate's or Lightning's wrapper.

    Others that hold an optimizer are not looked through: Lookahead, for one, moves the weights after the step inside.

    Raises:
        LevelheadError: it is no torch optimizer, or one on which torch has no place for a hook.
    """
    inner = optimizer
    while any(kind.__name__ in OPTIMIZER_WRAPPERS for kind in type(inner).__mro__):
        inner = inner.optimizer  # type: ignore[attr-defined]
    name = type(inner).__name__
    if not isinstance(inner, torch.optim.Optimizer):
        raise LevelheadError(f"expected a torch optimizer, got {name}", parameter="optimizer")
    # Some wrappers leave out torch's own `__init__`, which makes the place for hooks and has `step` call them.
    if not hasattr(inner, "_optimizer_step_post_hooks"):
        instead = "call levelhead.hosts.torch.normalize_(layer) after each of its steps instead"
        raise LevelheadError(f"the step of {name} calls no hooks; {instead}", parameter="optimizer")
    inner._patch_step_function()  # as torch does at the first `zero_grad`, unless that is overridden
    return inner


def _check_directions(weights: dict[str, Tensor]) -> None:
    """Check that every row has a direction: one that is zero, NaN or infinite has none.

    Once, before the first step: dividing by a length of 0 would make NaN of a class, and checking at every step would
    make the GPU wait for the CPU.
    """
    for path, weight in weights.items():
        try:
            normalize(Head(gather(weight.detach()).flatten(1)))
        except ValueError as error:
            raise LevelheadError(f"cannot normalize {path}: {error}") from None


def _head_weights(
    layer: nn.Module | Tensor,
    classes: int | None,
    example: Example,
    name: LayerChoice = None,
) -> dict[str, Tensor]:
    """Return {path: weight} of the head of a model, of a layer that is the head, or of a weight itself.

    Args:
        layer: where to look.
        classes, example: which tell the head from other layers of a model; a weight needs neither.
        name: the path of the head in the model, if it is not found or not unique.
    """
    if isinstance(layer, nn.Module):
        heads = TorchModel(layer).find(layer=name, classes=classes, example=example)
        return {f"{path}.weight".lstrip("."): head.weight for path, head in heads.items()}
    expected = "a layer, its weight [K, d] or a model"
    if classes is not None or example is not None or name is not None:
        expected = "a layer or a model, in which classes and an example find the head"
    elif isinstance(layer, nn.Parameter) and layer.ndim >= 2:
        return {"weight": layer}
    raise LevelheadError(f"expected {expected}, got {type(layer).__name__}", parameter="layer")
