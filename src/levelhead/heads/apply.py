"""A rule applied to a head, with all its checks: one body for torch modules, Keras models and model files."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.adjust import can_flip, check_strength
from ..core.adjustment import check_label_task
from ..core.counts import Counts, check_left_alone, resolve
from ..core.head import Head, check_finite, rounding_flips
from ..core.rules import RULES, Rescale, Rule, Strengths
from ..support.arrays import Array, check_logits
from ..support.errors import Advice, LevelheadError, in_file
from ..support.extras import naming_what_is_missing
from ..support.types import BiasPolicy, LabelTask, Missing
from .adjusted import Adjusted
from .place import Change, InMemory, Place, Written

if TYPE_CHECKING:
    from ..choice.tuned import Tuned


def check_fits(place: Place[Any], rule: Rule, task: LabelTask = "multiclass") -> None:
    """Raise LevelheadError if a rule, or what was tuned for a task, does not fit a head. Reads no weight."""
    keys, where, sizes, *_ = known = place.facts
    check_label_task(where, known.task, task)
    if sizes[0] < 2 and rule.multiplies:
        shift = "the additive shift of its bias by gamma log(n_negative / n_positive), as tuned on logits (0, z)"
        reason = f"{where} gives a single logit, and scaling never moves its sign"
        raise LevelheadError(f"{reason}; use the rule shift, {shift}")
    if len({*sizes}) > 1:
        raise LevelheadError(f"{where} differ in classes; name one of them")
    if not rule.fits_sums and (len(keys) > 1 or not known.plain):
        reason = "feed one output" if len(keys) > 1 else "is scaled by a constant or bent by a Relu"
        needed = f"the rule {rule.name} is of one layer whose outputs are the logits"
        raise LevelheadError(f"{where} {reason}, and {needed}; tune with the rule rescale")
    if rule.adds:
        place.check_adds()


def apply(
    place: Place[Written],
    rule: Rule,
    chosen: Strengths,
    counts: np.ndarray,
    *,
    bias: BiasPolicy = "scale",
    background: int | str | None = None,
    logits: Array | None = None,
    again: bool = False,
    by_hand: bool = False,
) -> Written:
    """Adjust the head of a place by a rule that fits it. If anything is wrong, nothing is changed."""
    if not again and (done := place.earlier()) is not None:
        raise LevelheadError(done, advice=Advice("again", None, "to adjust it a second time"))
    before = place.heads(rule)
    by = replace(rule.amounts(before[0], counts, chosen), bias=bias)
    check_left_alone(by.scale, by.offset, background, place.facts.names)
    with nullcontext() if (file := place.facts.file) is None else in_file(file):
        after = tuple(
            by.head(head) if by.changes else head for head in before
        )  # 0 needs no new bias
    for key, old, new in zip(place.facts.keys, before, after, strict=True):
        if old.bias is None and new.bias is not None:
            place.check_takes_bias(key)
    flips, predictions, sizes = None, 0, place.facts.sizes
    if logits is not None:
        values, predictions = check_logits(logits), len(logits)
        if sizes[0] > 1 and values.shape[1] != sizes[0]:
            raise LevelheadError(
                f"expected [N, {sizes[0]}], got {list(values.shape)}", parameter="logits"
            )
        if by.offset is None and place.facts.half is not None:
            flips = rounding_flips(values, by.first, place.facts.half)
    stuck = rule.multiplies and not rule.adds and not can_flip(before[0])
    change = Change(
        rule,
        chosen.gamma,
        counts,
        by,
        before,
        after,
        flips,
        predictions,
        stuck,
        by_hand and not again,
    )
    return place.write(change)


def check_tuned(place: Place[Any], choice: Tuned) -> np.ndarray:
    """Return the counts [K] of what was tuned, after checking that it is for the head of a place. Reads no weight."""
    from ..choice.tuned_json import counts_for

    check_fits(place, RULES[choice.rule], choice.task)
    return counts_for(choice, place.facts.sizes[0], place.facts.names, place.facts.where)


def read_choice(tuned: Tuned | str | Path) -> Tuned:
    """Return what was tuned, from its file if it is one. Only here is that imported: a strength given needs none."""
    from ..choice.tuned_json import tuned_of

    return tuned_of(tuned)


def apply_tuned(place: Place[Written], choice: Tuned, **options: Any) -> Written:
    """Adjust the head of a place by what was tuned, with the options of `apply`, once it is known to be for it."""
    counts = check_tuned(place, choice)
    chosen = Strengths(float(choice.gamma), scale=choice.scale, offset=choice.offset)
    return apply(place, RULES[choice.rule], chosen, counts, bias=choice.bias, **options)


def adjust(head: Head, tuned: Tuned | str | Path) -> Head:
    """Return a new head, adjusted by what was tuned: its rule, at its strength, with the counts it was chosen with.

    =================  ================================================
    ``rescale``        ``w_i, b_i <- (n_1 / n_i)^gamma (w_i, b_i)``
    ``tau``            ``w_i, b_i <- (w_i, b_i) / ||w_i||^gamma``
    ``shift``          ``b_i <- b_i + gamma log(n_1 / n_i)``
    ``rescale+shift``  ``w_i, b_i <- scale_i (w_i, b_i) + (0, offset_i)``
    ``vector``         the same, with a scale and an offset of its own for each class
    ``offsets``        ``b_i <- b_i + offset_i``
    =================  ================================================

    It does so also where the gain is uncertain; `tuned.worthwhile` says whether it is not.

    Args:
        head: weight [K, d] and, where there is one, bias [K]; or [1, d] where two classes share one logit, which only
            `shift` can adjust, by ``gamma log(n_0 / n_1)``.
        tuned: what `tune`, `cross_fit` or `match_prior` returned, or the path of a file that `levelhead tune` wrote.

    >>> import numpy as np
    >>> from levelhead import match_prior, rules
    >>> logits = np.array([[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]])
    >>> tuned = match_prior(logits, [400, 100], rule=rules.Shift(range=(0, 3)), bootstrap=0)
    >>> adjust(Head(np.eye(2)), tuned).logits(logits).argmax(axis=1)  # the identity: logits in, logits out
    array([1, 0, 1, 0])
    """
    from ..choice.tuned_json import counts_for

    choice = read_choice(tuned)
    counts = counts_for(choice, check_finite(head).classes, head.names, "the head")
    chosen = Strengths(float(choice.gamma), scale=choice.scale, offset=choice.offset)
    return replace(RULES[choice.rule].amounts(head, counts, chosen), bias=choice.bias).head(head)


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

    The rules are those of `adjust`. As in `rescale_`, parameters keep their identity, nothing is changed if anything is
    wrong, and `restore()` takes it back. It does so also where the gain is uncertain; ask `tuned.worthwhile` first.

    A layer without a bias gets one if the rule adds to it: a new parameter, in the state dict too, which `restore()`
    takes out again. An optimizer made before does not know it.

    Args:
        model, layer, example, logits, again: as in `rescale_`.
        tuned: what `tune`, `cross_fit` or `match_prior` returned, or the path of a file that `levelhead tune` wrote.
            For a head with one logit it must be of two classes and for the rule `shift`.
        background: a class that must stay as it is, by index or name; it does if it was tuned with the same background.

    >>> from levelhead import match_prior, rules
    >>> logits = [[4.0, 2.0], [4.0, 1.0], [4.0, 3.0], [4.0, 1.5]]
    >>> tuned = match_prior(logits, [400, 100], rule=rules.Shift(range=(0, 3)), bootstrap=0)
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(8, 2, bias=False))
    >>> with adjust_(model, tuned) as adjusted:
    ...     model[0].bias.detach(), adjusted
    (tensor([0.0000, 2.2500]), Adjusted(shift, gamma=1.62303, 2 classes; 0: bias +0..+2.25))
    >>> model[0].bias is None
    True
    """
    choice = read_choice(tuned)
    place = _head_of(model, layer, example, len(choice.counts))
    return apply_tuned(place, choice, background=background, logits=logits, again=again)


def check_adjust(model: Any, tuned: Tuned | str | Path, *, layer: Any = None) -> None:
    """Check that a choice is for the model, before training, reading no weight."""
    choice = read_choice(tuned)
    check_tuned(_head_of(model, layer, None, len(choice.counts)), choice)


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
    gradients and wrappers stay valid. If anything is wrong, nothing is changed. The result's `restore()` takes it back.

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

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.eye(2))
    >>> rescale_(model, [100, 25], gamma=0.5)
    Adjusted(gamma=0.5, 2 classes; 0: norms 1..1 -> 1..2)

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    how = {"missing": missing, "background": background}
    place, n, strength = check_rescale(
        model, counts, gamma=gamma, layer=layer, example=example, **how
    )
    by_hand = not hasattr(gamma, "rule")  # as a `Tuned` and its gamma have
    return apply(
        place,
        Rescale(),
        Strengths(strength),
        n,
        bias=bias,
        logits=logits,
        again=again,
        by_hand=by_hand,
    )


def check_rescale(
    model: Any,
    counts: Counts,
    *,
    gamma: float | Tuned,
    layer: Any = None,
    example: Any = None,
    **options: Any,
) -> tuple[InMemory, np.ndarray, float]:
    """Check what `rescale_` would, before training, reading no weight; return the head, its counts and the strength."""
    size = (
        len(counts) if hasattr(counts, "__len__") else None
    )  # counts may be labels, of any number
    place = _head_of(model, layer, example, size)
    check_fits(place, Rescale())
    n = resolve(counts, place.facts.sizes[0], names=place.facts.names, **options)
    return place, n, check_strength(gamma, Rescale.name, n, instead="lh.adjust_(model, tuned)")


def _head_of(model: Any, layer: Any, example: Any, size: int | None) -> InMemory:
    """Find the head of a model in memory; the size is likely, but not certain, to be its number of classes."""
    # Keras's models are torch modules, too, where it runs on torch.
    if any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__):
        from .keras import KerasModel as Opened
    else:
        with naming_what_is_missing():
            from .torch import TorchModel as Opened
    place: InMemory = Opened(model)
    place.find(layer=layer, example=example, classes=place.likely_classes(size))
    return place
