"""Heads in torch modules: read, write, rescale in place and restore."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn

from ..core.adjust import can_flip, factors, scale
from ..core.array import to_numpy
from ..core.choices import BiasPolicy, Missing
from ..core.counts import Counts, resolve
from ..core.errors import Advice, LevelheadError
from ..core.head import Head, check_finite
from ..core.precision import rounding_flips
from ..core.warnings import BinaryHeadWarning, PrecisionWarning
from ..show.html import html
from .editable import Editable, check_editable
from .find import find_head, linear_layers, outputs, unwrap
from .probe import NAME_HEAD
from .sharded import gather, place_like, reshard

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Adjusted", "find_head", "read", "rescale_", "write"]

# An attribute of a scaled layer, by which a second scaling is noticed. Copies of the layer have it, state dicts do not.
# It holds gamma and the weight as it was then: by object and version, which outlast a change of dtype, and by content,
# which a copy has too.
MARK = "_levelhead_rescaled"


@dataclass(frozen=True, eq=False, repr=False)
class Adjusted:
    """What `rescale_` did to a model, and the way back.

    `restore()` gives the parameters their old values back, bit for bit; so does leaving a `with` block.

    Args:
        layers: paths of the layers that were scaled.
        gamma: the strength.
        counts: [K], training samples of each class.
        factors: [K], what each weight vector was multiplied by.
        before, after: {path: [K]}, lengths of the weight vectors.
        flips: how many of the predictions given could change by rounding to half precision; None if not asked.

    >>> model = nn.Linear(2, 2, bias=False)
    >>> before = model.weight.detach().clone()
    >>> adjusted = rescale_(model, [100, 25], gamma=0.5)
    >>> adjusted.factors
    array([1., 2.])
    >>> adjusted.restore()
    >>> torch.equal(model.weight, before)
    True
    """

    layers: tuple[str, ...]
    gamma: float
    counts: np.ndarray
    factors: np.ndarray
    before: Mapping[str, np.ndarray]
    after: Mapping[str, np.ndarray]
    flips: int | None = None
    _model: nn.Module = field(default_factory=nn.Module)
    _saved: list[tuple[str, str, nn.Parameter, Tensor]] = field(default_factory=list)

    def restore(self) -> None:
        """Give the layers their old values back, bit for bit; raise if their parameters were replaced since."""
        reshard(self._model)
        held = {id(p) for p in self._model.parameters()}
        for path, name, parameter, _ in self._saved:
            if id(parameter) not in held:
                raise LevelheadError(f"cannot restore {path or 'the head'}: its {name} was replaced since (a new layer"
                                     ", or load_state_dict with assign); load the weights the model had before")
        with torch.no_grad():
            for _, _, parameter, original in self._saved:
                parameter.copy_(original)

    def __enter__(self) -> Adjusted:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the weight norms against the counts, before and after (extra `plot`).

        Args:
            ax: where to draw; new Axes if not given.

        Returns:
            The Axes.

        >>> rescale_(nn.Linear(2, 2), [100, 25], gamma=0.5).plot().get_xscale()
        'log'
        """
        from ..show.plot import draw_norms

        return draw_norms(self.counts, self.before, self.after, ax, title=f"gamma = {self.gamma:.3g}")

    def _repr_html_(self) -> str:
        norms = {f"norms of {path or 'the head'}": f"{_range(self.before[path])} -> {_range(self.after[path])}"
                 for path in self.layers}
        counts = f"{len(self.counts)}, of {self.counts.max()} to {self.counts.min()} training samples"
        by = f"{self.factors.min():.3g} to {self.factors.max():.3g}"
        flips = {} if self.flips is None else {"predictions rounding could flip": str(self.flips)}
        return html("Adjusted", {"gamma": f"{self.gamma:.4g}", "classes": counts, "factors": by, **norms, **flips},
                    notes=["restore() gives the old values back, bit for bit"])

    def __repr__(self) -> str:
        done = [f"{p or 'head'}: norms {_range(self.before[p])} -> {_range(self.after[p])}" for p in self.layers]
        return f"Adjusted(gamma={self.gamma:g}, {len(self.factors)} classes; {'; '.join(done)})"


def read(model: nn.Module, *, layer: Any = None, example: Any = None, classes: int | None = None) -> Head:
    """Read the head of a torch module, as a copy.

    Args:
        model, layer, example, classes: as in `find_head`; of several heads, name the one to read.

    Returns:
        weight [K, d], bias [K] if the layer has one, and class names where the model's config has them.

    >>> read(nn.Linear(8, 3)).classes
    3
    """
    _, module = _single_head(model, layer, example, classes)
    return _head(module, _class_names(model, len(module.weight)))


def write(model: nn.Module, head: Head, *, layer: Any = None, example: Any = None) -> None:
    """Put a head into a torch module, in place: parameters, their dtype, device and sharding stay the module's own.

    Args:
        model, layer, example: as in `find_head`.
        head: weight [K, d] of the layer's own shape, and a bias exactly if the layer has one.

    >>> layer = nn.Linear(2, 3, bias=False)
    >>> write(layer, Head(np.ones((3, 2))))
    >>> layer.weight.sum().item()
    6.0
    """
    path, module = _single_head(model, layer, example, head.classes)
    _write(path, module, check_finite(head))


def rescale_(
    model: nn.Module, counts: Counts, *, gamma: float, layer: Any = None, example: Any = None,
    bias: BiasPolicy = "scale", missing: Missing = "error", logits: Any = None, again: bool = False,
) -> Adjusted:
    """Find the head of a torch model and scale each weight vector, in place, by how rare its class is (RS).

    ``w_i <- (n_1 / n_i)^gamma w_i``, with n_1 the largest count. Parameters keep their identity, so optimizers,
    gradients and wrappers stay valid. If anything is wrong, nothing is changed.

    Args:
        model: any torch module: a network, a transformers or timm model, one sharded by FSDP2.
        counts: training samples of each class: a list, {class: n} (by name if the model's config has them), or labels.
        gamma: strength; larger gives rare classes more of the space.
        layer: the head, if it is not found or not unique: a path, the module, or a list if several feed one output.
        example: an input to run the model on, to find the head by what it does.
        bias: `scale` (scaling the head is then scaling the logits) or `keep`.
        missing: a class without samples is an `error`, or `neutral` (left as it is).
        logits: [N, K], the model's logits before: in half precision, predictions that rounding could flip are counted.
        again: allow scaling a head that was scaled already and not changed since.

    Returns:
        What was done, with `restore()` to take it back.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.eye(2))
    >>> rescale_(model, [100, 25], gamma=0.5)
    Adjusted(gamma=0.5, 2 classes; 0: norms 1..1 -> 1..2)

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    found, n, by = check_rescale(model, counts, gamma=gamma, layer=layer, example=example, missing=missing)
    names = _class_names(model, len(n))
    before = {path: check_finite(_head(module, names), path or "the head") for path, module in found.items()}
    after = {path: scale(head, by, bias=bias) for path, head in before.items()}
    for path, module in found.items():
        mark = getattr(module, MARK, None)
        if mark and not again and (mark[1] == _identity(module) or mark[2] == _digest(before[path])):
            raise LevelheadError(f"{path or 'the head'} was rescaled already (gamma {mark[0]:g}); restore it first",
                                 advice=Advice("again", None, "to scale it a second time"))
    flips = _warn_and_count_flips(next(iter(before.values())), by, logits)
    saved = [(path, name, p, p.detach().clone())
             for path, module in found.items() for name, p in module.named_parameters(recurse=False)]
    for path, module in found.items():
        _write(path, module, after[path])
        if (by != 1).any():
            setattr(module, MARK, (float(gamma), _identity(module), _digest(_head(module, None))))
    old_norms, new_norms = ({path: to_numpy(head.norms) for path, head in heads.items()} for heads in (before, after))
    return Adjusted(layers=tuple(found), gamma=float(gamma), counts=n, factors=by, before=old_norms, after=new_norms,
                    flips=flips, _model=unwrap(model), _saved=saved)


def check_rescale(
    model: nn.Module, counts: Counts, *, gamma: float, layer: Any = None, example: Any = None,
    missing: Missing | None = None,
) -> tuple[dict[str, Editable], np.ndarray, np.ndarray]:
    """Check what `rescale_` would, before training, reading no weight; return layers by path, counts, factors."""
    size = len(counts) if hasattr(counts, "__len__") else None  # counts may be labels, of any number
    likely = size if size in {outputs(m) for _, m in linear_layers(unwrap(model))} else None
    found = editable_head(model, layer=layer, example=example, classes=likely)
    path, classes = next((path, len(module.weight)) for path, module in found.items())
    if classes == 1:
        raise LevelheadError(f"{path or 'the head'} gives a single logit, and scaling never moves its sign; "
                             "add gamma log(n_negative / n_positive) to its bias instead, the additive shift")
    n = resolve(counts, classes, names=_class_names(model, classes), missing=missing)
    return found, n, factors(n, gamma)


def editable_head(
    model: nn.Module, *, layer: Any = None, example: Any = None, classes: int | None = None
) -> dict[str, Editable]:
    """Find the head and check that each of its layers can be changed in place without changing anything else."""
    model = unwrap(model)
    reshard(model)
    found = find_head(model, layer=layer, example=example, classes=classes)
    return {path: check_editable(path, module, model) for path, module in found.items()}


def _single_head(model: nn.Module, layer: Any, example: Any, classes: int | None) -> tuple[str, Editable]:
    found = editable_head(model, layer=layer, example=example, classes=classes)
    if len(found) > 1:
        raise LevelheadError(f"{len(found)} heads feed the one output: {', '.join(found)}", advice=NAME_HEAD)
    return next(iter(found.items()))


def _head(module: Editable, names: list[str] | None) -> Head:
    """Return a copy of a layer's parameters: weight flattened to [K, d], whole even if it is sharded."""
    weight = gather(module.weight.detach()).clone()
    bias = None if module.bias is None else gather(module.bias.detach()).clone()
    return Head(weight.flatten(1), bias, names)


def _write(path: str, module: Editable, head: Head) -> None:
    if (head.bias is None) != (module.bias is None):
        has, lacks = (path or "the layer", "the head") if head.bias is None else ("the head", path or "the layer")
        raise LevelheadError(f"{has} has a bias, but {lacks} has none")
    shape = [module.weight.shape[0], module.weight.shape[1:].numel()]
    if list(head.weight.shape) != shape:
        raise LevelheadError(f"expected weight {shape} for {path or 'the layer'}, got {list(head.weight.shape)}")
    with torch.no_grad():
        for parameter, values in ((module.weight, head.weight), (module.bias, head.bias)):
            if parameter is not None:
                parameter.copy_(place_like(torch.as_tensor(values).reshape(parameter.shape), parameter))


def _class_names(model: nn.Module, classes: int) -> list[str] | None:
    """Return the names in a transformers config, if it has one per class; LABEL_0, LABEL_1, ... do not count."""
    labels = getattr(getattr(unwrap(model), "config", None), "id2label", None)
    if not isinstance(labels, Mapping) or set(map(str, labels)) != set(map(str, range(classes))):
        return None
    names = [str(name) for _, name in sorted(labels.items(), key=lambda item: int(item[0]))]
    return names if len(set(names)) == len(names) and names != [f"LABEL_{i}" for i in range(len(names))] else None


def _identity(module: Editable) -> tuple[int, int]:
    return id(module.weight), module.weight._version


def _digest(head: Head) -> str:
    return sha256(head.weight.cpu().contiguous().view(torch.uint8).numpy()).hexdigest()


def _warn_and_count_flips(head: Head, by: np.ndarray, logits: Any) -> int | None:
    if not can_flip(head):
        warn("the two rows of the head are opposite, so scaling never changes a prediction; use the additive shift "
             "(levelhead.shift_logits)", BinaryHeadWarning, stacklevel=3)
    if logits is None or head.weight.element_size() > 2:
        return None
    flips = rounding_flips(logits, by, head.weight.dtype)
    if flips:
        warn(f"rounding the scaled weights to {head.weight.dtype} could flip {flips} of {len(logits)} predictions; "
             "scale in float32, or scale the logits", PrecisionWarning, stacklevel=3)
    return flips


def _range(norms: np.ndarray) -> str:
    return f"{norms.min():.3g}..{norms.max():.3g}"
