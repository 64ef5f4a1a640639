"""Heads in torch modules: read, write, and adjust in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from warnings import warn

import numpy as np
import torch
from torch import nn

from ..core.adjust import RULE_TITLES, apply_amounts, can_flip, check_strength, factors, rule_amounts
from ..core.array import to_numpy
from ..core.choices import BiasPolicy, Missing, RuleName
from ..core.counts import Counts, resolve
from ..core.errors import Advice, LevelheadError
from ..core.head import Head, check_finite
from ..core.label_task import check_label_task
from ..core.precision import rounding_flips
from ..core.warnings import BinaryHeadWarning, PrecisionWarning
from ..gamma.tuned import Tuned
from ..io.tuned_json import Choice, choice_of
from .adjusted import Adjusted
from .editable import Editable, check_editable, check_takes_bias, new_bias
from .find import find_head, known_task, linear_layers, outputs, unwrap
from .probe import NAME_HEAD
from .sharded import gather, place_like, reshard

__all__ = ["Adjusted", "adjust_", "find_head", "read", "rescale_", "write"]

# An attribute of an adjusted layer, by which a second adjustment is noticed: all its marks, the last one last.
# Copies of the layer have it, state dicts do not.
MARKS = "_levelhead_adjusted"


class _Mark(NamedTuple):
    """What was done to a layer, and the parameter as it was then.

    Its object and version outlast a change of dtype; a copy has the same content.
    """

    rule: RuleName
    gamma: float
    version: tuple[int, int]
    digest: str

    @staticmethod
    def of(module: Editable, rule: RuleName, gamma: float) -> _Mark:
        parameter = module.bias if rule == "shift" else module.weight
        if parameter is None:
            return _Mark(rule, gamma, (0, 0), "")
        data: Any = gather(parameter.detach()).flatten().cpu().contiguous().view(torch.uint8).numpy()
        return _Mark(rule, gamma, (id(parameter), parameter._version), sha256(data).hexdigest())

    def holds(self, module: Editable) -> bool:
        """Return whether the layer is as it was when it was marked."""
        now = _Mark.of(module, self.rule, self.gamma)
        return self.version == now.version or self.digest == now.digest


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


def adjust_(
    model: nn.Module,
    tuned: Tuned | str | Path,
    *,
    layer: Any = None,
    example: Any = None,
    logits: Any = None,
    again: bool = False,
) -> Adjusted:
    """Find the head of a torch model and adjust it in place by what was tuned: its rule, strength and counts.

    The rules are those of `adjust`. Parameters keep their identity, so optimizers, gradients and wrappers stay valid.
    If anything is wrong, nothing is changed. It does so also where the gain is uncertain; ask `tuned.worthwhile` first.

    A layer without a bias gets one if the rule adds to it: a new parameter, in the state dict too, which `restore()`
    takes out again. An optimizer made before does not know it.

    Args:
        model, layer, example, logits, again: as in `rescale_`.
        tuned: what `tune`, `cross_fit` or `match_prior` returned, or the path of a file that `levelhead tune` wrote.
            For a head with one logit it must be of two classes and for the rule `shift`.

    Returns:
        What was done, with `restore()` to take it back.

    >>> from levelhead import match_prior
    >>> tuned = match_prior([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]], [400, 100], rule="shift", range=(0, 3),
    ...                     bootstrap=0)
    >>> model = nn.Sequential(nn.Linear(8, 2, bias=False))
    >>> with adjust_(model, tuned) as adjusted:
    ...     model[0].bias.detach(), adjusted
    (tensor([0.0000, 2.2500]), Adjusted(shift, gamma=1.62303, 2 classes; 0: bias +0..+2.25))
    >>> model[0].bias is None
    True
    """
    found, choice, n = check_adjust(model, tuned, layer=layer, example=example)
    return _adjust_layers(
        model,
        found,
        n,
        rule=choice.rule,
        gamma=choice.gamma,
        scale=choice.scale,
        offset=choice.offset,
        bias=choice.bias or "scale",
        logits=logits,
        again=again,
    )


def check_adjust(
    model: nn.Module, tuned: Tuned | str | Path, *, layer: Any = None, example: Any = None
) -> tuple[dict[str, Editable], Choice, np.ndarray]:
    """Check that a choice is for the model, before training, reading no weight; return layers, choice, counts."""
    choice = choice_of(tuned)
    classes = _likely_classes(model, len(choice.counts or ()))
    found = editable_head(model, layer=layer, example=example, classes=classes)
    path, size = next((path, len(module.weight)) for path, module in found.items())
    check_label_task(path or "the head", known_task(model, path), choice.task)
    return found, choice, choice.counts_for(size, _class_names(model, size), path or "the head")


def rescale_(
    model: nn.Module,
    counts: Counts,
    *,
    gamma: float | Tuned,
    layer: Any = None,
    example: Any = None,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    logits: Any = None,
    again: bool = False,
) -> Adjusted:
    """Find the head of a torch model and scale each weight vector, in place, by how rare its class is (RS).

    ``w_i <- (n_1 / n_i)^gamma w_i``, with n_1 the largest count. Parameters keep their identity, so optimizers,
    gradients and wrappers stay valid. If anything is wrong, nothing is changed.

    Args:
        model: any torch module: a network, a transformers or timm model, one sharded by FSDP2.
        counts: training samples of each class: a list, {class: n} (by name if the model's config has them), or labels.
        gamma: strength; larger gives rare classes more of the space. A `Tuned` is taken if it is for this rule and
            counts of these proportions; `adjust_` applies any.
        layer: the head, if it is not found or not unique: a path, the module, or a list if several feed one output.
        example: an input to run the model on, to find the head by what it does.
        bias: `scale` (scaling the head is then scaling the logits) or `keep`.
        missing: a class without samples is an `error`, or `neutral` (left as it is).
        logits: [N, K], the model's logits before: in half precision, predictions that rounding could flip are counted.
        again: allow adjusting a head that was adjusted already and not changed since.

    Returns:
        What was done, with `restore()` to take it back.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.eye(2))
    >>> rescale_(model, [100, 25], gamma=0.5)
    Adjusted(gamma=0.5, 2 classes; 0: norms 1..1 -> 1..2)

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    found, n, _ = check_rescale(model, counts, gamma=gamma, layer=layer, example=example, missing=missing)
    strength = check_strength(gamma, "rescale", n, instead="lh.adjust_(model, tuned)")
    return _adjust_layers(model, found, n, rule="rescale", gamma=strength, bias=bias, logits=logits, again=again)


def check_rescale(
    model: nn.Module,
    counts: Counts,
    *,
    gamma: float | Tuned,
    layer: Any = None,
    example: Any = None,
    missing: Missing | None = None,
) -> tuple[dict[str, Editable], np.ndarray, np.ndarray]:
    """Check what `rescale_` would, before training, reading no weight; return layers by path, counts, factors."""
    size = len(counts) if hasattr(counts, "__len__") else None  # counts may be labels, of any number
    found = editable_head(model, layer=layer, example=example, classes=_likely_classes(model, size))
    path, classes = next((path, len(module.weight)) for path, module in found.items())
    check_label_task(path or "the head", known_task(model, path), "multiclass")
    if classes == 1:
        raise LevelheadError(
            f"{path or 'the head'} gives a single logit, and scaling never moves its sign; tune with "
            "the rule shift on logits (0, z), the additive shift, and use lh.adjust_(model, tuned)"
        )
    n = resolve(counts, classes, names=_class_names(model, classes), missing=missing)
    return found, n, factors(n, check_strength(gamma, "rescale", n, instead="lh.adjust_(model, tuned)"))


def _adjust_layers(
    model: nn.Module,
    found: dict[str, Editable],
    n: np.ndarray,
    *,
    rule: RuleName,
    gamma: float,
    bias: BiasPolicy,
    logits: Any,
    again: bool,
    scale: Sequence[float] = (),
    offset: Sequence[float] = (),
) -> Adjusted:
    """Do what `rescale_` and `adjust_` share: check everything, then change the layers and remember how they were."""
    names = _class_names(model, len(n))
    before = {path: check_finite(_head(module, names), path or "the head") for path, module in found.items()}
    if rule != "rescale" and len(found) > 1:
        raise LevelheadError(
            f"{', '.join(found)} feed one output, and the rule {rule} is of one layer; tune with the rule rescale"
        )
    by = rule_amounts(next(iter(before.values())), rule, n, gamma, scale=scale, offset=offset)
    after = {path: apply_amounts(head, by, bias=bias) if by.changes else head for path, head in before.items()}
    for path, module in found.items():
        mark = next((mark for mark in reversed(getattr(module, MARKS, ())) if mark.holds(module)), None)
        if mark and not again:
            done = f"{path or 'the head'} was adjusted already ({RULE_TITLES[mark.rule]}, gamma {mark.gamma:g})"
            raise LevelheadError(
                f"{done}; restore it first", advice=Advice("again", None, "to adjust it a second time")
            )
    grown = {path: module for path, module in found.items() if module.bias is None and after[path].bias is not None}
    for path, module in grown.items():
        check_takes_bias(path, module)
    flips = None if by.offset is not None else _warn_and_count_flips(next(iter(before.values())), by.first, logits)
    saved = [
        (path, name, p, p.detach().clone())
        for path, module in found.items()
        for name, p in module.named_parameters(recurse=False)
    ]
    for module in grown.values():
        module.register_parameter("bias", new_bias(module))
    for path, module in found.items():
        _write(path, module, after[path])
        if by.changes:
            setattr(module, MARKS, (*getattr(module, MARKS, ()), _Mark.of(module, rule, gamma)))
    old_norms, new_norms = ({path: to_numpy(head.norms) for path, head in heads.items()} for heads in (before, after))
    return Adjusted(
        layers=tuple(found),
        gamma=gamma,
        counts=n,
        factors=by.first,
        offset=None if by.scale is None else by.offset,
        before=old_norms,
        after=new_norms,
        rule=rule,
        flips=flips,
        _model=unwrap(model),
        _saved=saved,
        _grown=tuple(grown.values()),
    )


def _likely_classes(model: nn.Module, size: int | None) -> int | None:
    """Return the size as the number of classes if some layer has so many outputs."""
    return size if size in {outputs(m) for _, m in linear_layers(unwrap(model))} else None


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


def _warn_and_count_flips(head: Head, by: np.ndarray, logits: Any) -> int | None:
    if not can_flip(head):
        warn(
            "the two rows of the head are opposite, so scaling never changes a prediction; use the additive shift "
            "(levelhead.shift_logits)",
            BinaryHeadWarning,
            stacklevel=4,
        )
    if logits is None or head.weight.element_size() > 2:
        return None
    flips = rounding_flips(logits, by, head.weight.dtype)
    if flips:
        warn(
            f"rounding the scaled weights to {head.weight.dtype} could flip {flips} of {len(logits)} predictions; "
            "scale in float32, or scale the logits",
            PrecisionWarning,
            stacklevel=4,
        )
    return flips
