"""The head of a model in memory, adjusted in place: any torch module, or a Keras model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._version import __version__
from ..choice.tuned import Tuned
from ..choice.tuned_json import Choice, choice_of
from ..core.array import to_numpy
from ..core.choices import BiasPolicy, LabelTask, Missing
from ..core.counts import Counts, check_left_alone, resolve
from ..core.errors import Advice, LevelheadError
from ..core.extras import naming_what_is_missing
from ..core.head import Head, check_finite, rounding_flips
from ..core.warnings import BinaryHeadWarning, PrecisionWarning, warn
from ..rules.adjust import can_flip, factors
from ..rules.label_task import check_label_task
from ..rules.rule import RULES, Rescale, Strengths
from ..rules.strength import check_strength
from .adjusted import Adjusted
from .config_note import leave_note, notes_about
from .model_note import digests_in, note_digests

# An attribute of an adjusted layer, by which a second adjustment is noticed: all its marks, the last one last.
# Copies of the layer have it, state dicts do not.
MARKS = "_levelhead_adjusted"


class ModelInMemory(Protocol):
    """What a library's model must tell and do, for its head to be adjusted in place."""

    model: Any  # the library's own

    def layers(self, *, layer: Any, example: Any, classes: int | None) -> dict[str, Any]:
        """Find the head's layers by path; raise if one cannot be changed without changing anything else."""
        ...

    def likely_classes(self, size: int | None) -> int | None:
        """Return the size as the number of classes if some layer has so many outputs."""
        ...

    def classes(self, module: Any) -> int: ...
    def task(self, path: str) -> tuple[LabelTask, str] | None: ...
    def names(self, classes: int) -> list[str] | None: ...
    def head(self, module: Any, names: Sequence[str] | None) -> Head: ...
    def half_dtype(self, module: Any) -> str | None: ...

    def state(self, module: Any, rule: str) -> tuple[Any, tuple[str, ...]]:
        """Return a version of what a rule changes, and its digests: as it is, and rounded to other dtypes.

        If the version is the same, or the first digest is one of those known, it was not changed since.
        """
        ...

    def check_adds(self, layers: Mapping[str, Any], example: Any) -> None:
        """Raise if it is known that what is added to the layers' biases is not added to the logits."""
        ...

    def check_takes_bias(self, path: str, module: Any) -> None: ...

    def keep(self, layers: Mapping[str, Any], grown: Sequence[Any]) -> Callable[[], None]:
        """Give layers their new biases, and return the way back to the values that all have now."""
        ...

    def write(self, path: str, module: Any, head: Head) -> None: ...


class _Mark(NamedTuple):
    """What was done to a layer, and the layer as it was then."""

    rule: str
    gamma: float
    version: Any
    digests: tuple[str, ...]

    def holds(self, model: ModelInMemory, module: Any) -> bool:
        """Return whether the layer is as it was when it was marked."""
        version, (digest, *_) = model.state(module, self.rule)
        return self.version == version or digest in self.digests


def adjust_(
    model: Any,
    tuned: Tuned | str | Path,
    *,
    layer: Any = None,
    example: Any = None,
    background: int | str | None = None,
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
        background: a class that must stay as it is, by index or name; it does if it was tuned with the same background.

    Returns:
        What was done, with `restore()` to take it back.

    >>> from levelhead import match_prior
    >>> tuned = match_prior([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]], [400, 100], rule="shift", range=(0, 3),
    ...                     bootstrap=0)
    >>> from torch import nn
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
        background=background,
    )


def check_adjust(
    model: Any, tuned: Tuned | str | Path, *, layer: Any = None, example: Any = None
) -> tuple[dict[str, Any], Choice, np.ndarray]:
    """Check that a choice is for the model, before training, reading no weight; return layers, choice, counts."""
    choice, opened = choice_of(tuned), _open(model)
    classes = opened.likely_classes(len(choice.counts or ()))
    found = opened.layers(layer=layer, example=example, classes=classes)
    path, size = next((path, opened.classes(module)) for path, module in found.items())
    check_label_task(path or "the head", opened.task(path), choice.task)
    counts = choice.counts_for(size, opened.names(size), path or "the head")
    if RULES[choice.rule].adds:
        opened.check_adds(found, example)
    return found, choice, counts


def rescale_(
    model: Any,
    counts: Counts,
    *,
    gamma: float | Tuned,
    layer: Any = None,
    example: Any = None,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    background: int | str | None = None,
    logits: Any = None,
    again: bool = False,
) -> Adjusted:
    """Find the head of a torch model and scale each weight vector, in place, by how rare its class is (RS).

    ``w_i <- (n_1 / n_i)^gamma w_i``, with n_1 the largest count. Parameters keep their identity, so optimizers,
    gradients and wrappers stay valid. If anything is wrong, nothing is changed.

    Args:
        model: any torch module: a network, a transformers or timm model, one sharded by FSDP2; or a Keras 3 model.
        counts: training samples of each class: a list, {class: n} (by name if the model's config has them), or labels.
        gamma: strength; larger gives rare classes more of the space. A `Tuned` is taken if it is for this rule and
            counts of these proportions; `adjust_` applies any.
        layer: the head, if it is not found or not unique: a path, the module, or a list if several feed one output.
        example: an input to run the model on, to find the head by what it does.
        bias: `scale` (scaling the head is then scaling the logits) or `keep`.
        missing: a class without samples is an `error`, or `neutral` (left as it is).
        background: a class that is left alone, by index or name, such as "no object" in detection; its count is no n_1.
        logits: [N, K], the model's logits before: in half precision, predictions that rounding could flip are counted.
        again: allow adjusting a head that was adjusted already and not changed since.

    Returns:
        What was done, with `restore()` to take it back.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.eye(2))
    >>> rescale_(model, [100, 25], gamma=0.5)
    Adjusted(gamma=0.5, 2 classes; 0: norms 1..1 -> 1..2)

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    found, n, _ = check_rescale(
        model, counts, gamma=gamma, layer=layer, example=example, missing=missing, background=background
    )
    strength = check_strength(gamma, Rescale.name, n, instead="lh.adjust_(model, tuned)")
    return _adjust_layers(model, found, n, rule=Rescale.name, gamma=strength, bias=bias, logits=logits, again=again)


def check_rescale(
    model: Any,
    counts: Counts,
    *,
    gamma: float | Tuned,
    layer: Any = None,
    example: Any = None,
    missing: Missing | None = None,
    background: int | str | None = None,
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Check what `rescale_` would, before training, reading no weight; return layers by path, counts, factors."""
    size = len(counts) if hasattr(counts, "__len__") else None  # counts may be labels, of any number
    opened = _open(model)
    found = opened.layers(layer=layer, example=example, classes=opened.likely_classes(size))
    path, classes = next((path, opened.classes(module)) for path, module in found.items())
    check_label_task(path or "the head", opened.task(path), "multiclass")
    if classes == 1:
        raise LevelheadError(
            f"{path or 'the head'} gives a single logit, and scaling never moves its sign; tune with "
            "the rule shift on logits (0, z), the additive shift, and use lh.adjust_(model, tuned)"
        )
    n = resolve(counts, classes, names=opened.names(classes), missing=missing, background=background)
    return found, n, factors(n, check_strength(gamma, Rescale.name, n, instead="lh.adjust_(model, tuned)"))


def _adjust_layers(
    model: Any,
    found: dict[str, Any],
    n: np.ndarray,
    *,
    rule: str,
    gamma: float,
    bias: BiasPolicy,
    logits: Any,
    again: bool,
    scale: Sequence[float] = (),
    offset: Sequence[float] = (),
    background: int | str | None = None,
) -> Adjusted:
    """Do what `rescale_` and `adjust_` share: check everything, then change the layers and remember how they were."""
    opened = _open(model)
    names = opened.names(len(n))
    before = {path: check_finite(opened.head(module, names), path or "the head") for path, module in found.items()}
    if len(found) > 1 and not RULES[rule].fits_sums:
        raise LevelheadError(
            f"{', '.join(found)} feed one output, and the rule {rule} is of one layer; tune with the rule rescale"
        )
    chosen = Strengths(gamma, scale=scale, offset=offset)
    by = replace(RULES[rule].amounts(next(iter(before.values())), n, chosen), bias=bias)
    check_left_alone(by.scale, by.offset, background, names)
    after = {path: by.head(head) if by.changes else head for path, head in before.items()}
    for path, module in found.items():
        marks = (*_marks_in(notes_about(opened.model)), *getattr(module, MARKS, ()))
        mark = next((mark for mark in reversed(marks) if mark.holds(opened, module)), None)
        if mark and not again:
            done = f"{path or 'the head'} was adjusted already ({RULES[mark.rule].title}, gamma {mark.gamma:g})"
            raise LevelheadError(
                f"{done}; restore it first", advice=Advice("again", None, "to adjust it a second time")
            )
    grown = {
        path: module for path, module in found.items() if before[path].bias is None and after[path].bias is not None
    }
    for path, module in grown.items():
        opened.check_takes_bias(path, module)
    first = next(iter(found))
    half = opened.half_dtype(found[first])
    flips = None if by.offset is not None else _warn_and_count_flips(before[first], by.first, logits, half)
    undo = [opened.keep(found, list(grown.values()))]
    for path, module in found.items():
        opened.write(path, module, after[path])
        if by.changes:
            mark = _Mark(rule, gamma, *opened.state(module, rule))
            vars(module)[MARKS] = (*getattr(module, MARKS, ()), mark)  # past the bookkeeping of Keras's __setattr__
            if path == first:  # of several layers that feed one output, one is enough to notice
                facts = {"version": __version__, "rule": rule, "gamma": gamma, "counts": n.tolist(), "head": [*found]}
                undo.append(leave_note(opened.model, facts | note_digests(mark.digests)))
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
        _undo=partial(_run_all, undo),
    )


def _run_all(steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        step()


def _marks_in(notes: Sequence[Mapping[str, Any]]) -> tuple[_Mark, ...]:
    """Return what configs note as marks: the layer is the one adjusted if its content is."""
    return tuple(_Mark(note["rule"], note["gamma"], None, digests_in(note)) for note in notes)


def _open(model: Any) -> ModelInMemory:
    """Return a model as its library's: Keras's if a class of its is, even where Keras's models are torch modules."""
    if any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__):
        from .keras import KerasModel

        return KerasModel(model)
    with naming_what_is_missing():
        from .torch_model import TorchModel

    return TorchModel(model)


def _warn_and_count_flips(head: Head, by: np.ndarray, logits: Any, half: str | None) -> int | None:
    if not can_flip(head):
        warn(
            "the two rows of the head are opposite, so scaling never changes a prediction; use the additive shift "
            "(levelhead.shift_logits)",
            BinaryHeadWarning,
        )
    if logits is None or half is None:
        return None
    flips = rounding_flips(logits, by, half)
    if flips:
        warn(
            f"rounding the scaled weights to {half} could flip {flips} of {len(logits)} predictions; "
            "scale in float32, or scale the logits",
            PrecisionWarning,
        )
    return flips
