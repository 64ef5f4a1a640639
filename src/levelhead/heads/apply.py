"""An adjustment of a head, with all its checks.

There is one body for torch modules, Keras models and model files.

`apply` is that body. It checks that the choice fits the head and would arrive in the logits
(`check_fits`), computes the new head, and only then has the place write it, so that an error leaves
everything as it was. `adjust_` and `rescale_` open a model in memory as a place and call it;
`levelhead.files.model.adjust_file` does so for files. `adjust` works on a `Head` by itself.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..core.adjustment import Adjustment
from ..core.arguments import finite_number
from ..core.counts import Counts, WithBackground, check_left_alone
from ..core.head import Head, check_finite
from ..core.head_checks import bias_flips, can_flip, rounding_flips
from ..core.label_task import check_label_task
from ..core.rules import Rescale, Rule
from ..core.tuned import Tuned
from ..core.tuned_checks import check_for_head
from ..support.arrays import Array, to_numpy, widen
from ..support.errors import Advice, LevelheadError, check_choice, in_file
from ..support.extras import naming_what_is_missing
from ..support.logits import check_logits
from ..support.types import BiasPolicy, Missing
from .adjusted import Adjusted
from .along import Along, put_along
from .candidates import TUNE_SCALES, Example, LayerChoice
from .choice import Chosen, read_choice
from .in_memory import InMemory
from .place import Change, Checked, Facts, Place, Written

# A torch module or a Keras model; neither library is imported until one is given.
Model: TypeAlias = Any

# What helps where a file has a sigmoid for each class, and its user takes the largest.
_COMPETE = Advice("task", "multiclass", "if the largest of them is taken")


def check_fits(place: Place[Written], chosen: Chosen) -> Checked | None:
    """Check that what was chosen fits a head, and arrives in the logits.

    Nothing of the head's weights is read for it, so that it can be asked before a training, and of
    a file of any size.

    Args:
        place: where the head is.
        chosen: what is to be done.

    Returns:
        How it is known to arrive; None if it is not known.

    Raises:
        LevelheadError: it does not fit: another task, other classes, one logit, several layers.
    """
    facts = place.facts
    # A rule is for one class per sample; what was tuned says what it is for.
    task = "multiclass"
    if chosen.tuned is not None:
        task = chosen.tuned.task
    advice = None
    if facts.file is not None:
        advice = _COMPETE
    check_label_task(facts.where, facts.task, task, advice)
    if len({*facts.sizes}) > 1:
        raise LevelheadError(f"{facts.where} differ in classes; name one of them")
    if chosen.multiplies:
        _check_no_single_logit(facts.sizes[0], facts.where)
    if chosen.tuned is not None:
        check_for_head(chosen.tuned, facts.sizes[0], facts.names, facts.where)
        _check_sigmoids(facts, chosen.tuned)
    # Of several layers that are added up, each would add the offset once.
    if chosen.adds and (len(facts.keys) > 1 or not facts.plain):
        reason = "is scaled by a constant or bent by a Relu"
        if len(facts.keys) > 1:
            reason = "feed one output"
        adds = f"what the rule {chosen.rule.name} adds"
        needed = f"{adds} is for one layer whose outputs are the logits"
        raise LevelheadError(f"{facts.where} {reason}, and {needed}; {TUNE_SCALES}")
    return place.check_output(adds=chosen.adds)


def _check_sigmoids(facts: Facts, tuned: Tuned) -> None:
    """Raise if what was tuned on competing sigmoids would be added to their logits.

    In a softmax, what is added to a logit multiplies its probability; a sigmoid bends it.
    """
    if facts.sigmoids and not tuned.multilabel and tuned.kind != "logits":
        gives = f"{facts.where} gives a sigmoid for each class, and it was tuned on those"
        instead = "tune on the logits before them (of skl2onnx, the option raw_scores)"
        raise LevelheadError(f"{gives}; {instead}")


def _halves(facts: Facts, chosen: Chosen) -> bool:
    """Return whether z takes half of an offset, as the model gives (-z, z), which differ by 2 z.

    A rule by counts alone is for the log-odds, which z is, unless a softmax makes them 2 z.
    """
    return facts.pair is not None and (chosen.tuned is not None or facts.pair == "probabilities")


def _check_no_single_logit(rows: int, where: str) -> None:
    if rows == 1:
        reason = f"{where} gives a single logit, and scaling never moves its sign"
        raise LevelheadError(f"{reason}; use the rule offsets or shift, tuned on logits (0, z)")


def apply(
    place: Place[Written],
    chosen: Chosen,
    counts: Counts | None,
    *,
    bias: BiasPolicy = "scale",
    missing: Missing | None = None,
    background: int | str | None = None,
    logits: Array | None = None,
    features: Array | None = None,
    again: bool = False,
) -> Written:
    """Adjust the head of a place. If anything is wrong, nothing is changed.

    Args:
        place: where the head is.
        chosen: what to do to it.
        counts: training samples of each class, for a rule at a strength of one's own.
        bias, missing: as in `rescale_`.
        background, logits, features, again: as in `adjust_`.

    Returns:
        What the place says was done: an `Adjusted`, or of a file an `AdjustedFile`.
    """
    # Does it fit, and may it be done?
    check_choice("bias", bias, ("scale", "keep"))
    checked = check_fits(place, chosen)
    facts = place.facts
    if isinstance(counts, WithBackground):
        background = counts.background
    class_counts = chosen.counts(
        counts, facts.sizes[0], facts.names, missing=missing, background=background
    )
    # A second adjustment multiplies what was multiplied already, which is seldom meant.
    done_before = place.earlier()
    if done_before is not None and not again:
        raise LevelheadError(
            done_before, advice=Advice("again", None, "to adjust it a second time")
        )

    # What is the new head?
    before = place.heads(chosen.rule)
    adjustment = replace(chosen.adjustment(before, class_counts), bias=bias)
    halved = _halves(facts, chosen)
    if halved:
        adjustment = replace(adjustment, offset=adjustment.offset / 2)
    check_left_alone(adjustment.scale, adjustment.offset, background, facts.names)
    with nullcontext() if facts.file is None else in_file(facts.file):
        new = _new_heads(before, adjustment, features)
    for key, old_head, new_head in zip(facts.keys, before, new.heads, strict=True):
        if old_head.bias is None and new_head.bias is not None:
            place.check_takes_bias(key)
    flips = None
    predictions = 0
    if logits is not None:
        values = _logits_of_head(logits, facts.sizes[0])
        predictions = len(values)
        labels = chosen.tuned is not None and chosen.tuned.multilabel
        if facts.half is not None and facts.pair is None and new.along is None and not labels:
            flips = _count_flips(values, facts.half, adjustment, before[0], new.heads[0])

    # Everything is checked: it is written.
    # Of two opposite rows, the larger logit stays the larger however they are scaled.
    only_scales = adjustment.multiplies and not adjustment.adds
    change = Change(
        rule=chosen.rule,
        strength=chosen.strength,
        counts=class_counts,
        adjustment=adjustment,
        before=before,
        after=new.heads,
        flips=flips,
        predictions=predictions,
        stuck=only_scales and not can_flip(before[0]),
        by_hand=chosen.tuned is None and not again,
        checked=checked,
        background=chosen.background(background, facts.sizes[0], facts.names),
        halved=halved,
        along=new.along,
    )
    return place.write(change)


class _NewHeads(NamedTuple):
    """The heads after an adjustment, one for each layer."""

    heads: tuple[Head, ...]
    along: Along | None  # how offsets were put into weights, where the head has no bias


def _new_heads(
    before: tuple[Head, ...], adjustment: Adjustment, features: Array | None
) -> _NewHeads:
    """Return the adjusted heads, one for each layer.

    Offsets go into biases or, with features, into the weights of a head without one.
    """
    if adjustment.adds and before[0].bias is None and features is not None:
        head, along = put_along(before[0], adjustment, features)
        return _NewHeads((head,), along)
    return _NewHeads(tuple(adjustment.head(head) for head in before), None)


def _logits_of_head(logits: Array, rows: int) -> np.ndarray:
    """Return logits [N, K], checked to be those of a head with so many rows; (0, z) of one."""
    values = check_logits(logits)
    wanted = max(2, rows)
    if values.shape[1] != wanted:
        got = f"expected [N, {wanted}], got {list(values.shape)}"
        raise LevelheadError(got, parameter="logits")
    return values


def _count_flips(
    logits: np.ndarray, half: str, adjustment: Adjustment, before: Head, after: Head
) -> int:
    """Return how many predictions rounding to half precision could flip.

    Args:
        logits: [N, K], of the head as it was.
        half: the dtype of its weights.
        adjustment: what was done.
        before, after: the first head.
    """
    if adjustment.multiplies:
        # What is added is scaled along: s z + o is s (z + o / s).
        return rounding_flips(logits + adjustment.offset / adjustment.scale, adjustment.scale, half)
    if not adjustment.adds:
        return 0
    offset = adjustment.for_rows(before.classes).offset
    new_bias = to_numpy(widen(after.bias)).astype(np.float64)
    bias = 0 * new_bias
    if before.bias is not None:
        bias = to_numpy(widen(before.bias)).astype(np.float64)
    if len(bias) == 1:  # of (0, z), z alone has a bias
        offset, bias, new_bias = (np.concatenate([[0], x]) for x in (offset, bias, new_bias))
    return bias_flips(logits, offset, bias, new_bias, half)


def adjust(
    head: Head,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    features: Array | None = None,
) -> Head:
    """Return a new head, adjusted by what was tuned, or by a rule at a strength of one's own.

    ``w_k, b_k <- scale_k (w_k, b_k) + (0, offset_k)``: a head without a bias gets one if something
    is added to it, unless `features` are given. It does so also where the gain is uncertain;
    `tuned.worthwhile` says whether to.

    Args:
        head: weight [K, d] and, where there is one, bias [K]; or [1, d] where two classes share one
            logit, to which only offsets can be added: that of the second class less the first's.
        tuned: a `Tuned`, the path of a file that `levelhead tune` wrote, or a rule with a strength,
            such as ``lh.rules.Rescale(0.5)``.
        counts: training samples of each class, for such a rule; `lh.rules.Tau` needs none.
        features: [N, d], what the head takes, of held-out samples: a head without a bias then takes
            offsets into its weights, ``w_k + offset_k u``, with u the direction in which features
            are nearest to 1.

    Returns:
        A new head, of the same library, dtype and device; the one given is not changed.

    Raises:
        LevelheadError: it was tuned for other classes or another order of them, would multiply a
            head of one logit, or needs counts that are not given.

    >>> from levelhead import rules
    >>> adjust(Head(np.eye(2)), rules.Rescale(0.5), [100, 25]).norms
    array([1., 2.])
    >>> adjust(Head(np.eye(2)), rules.Shift(1.0), [100, 1]).bias
    array([0.        , 4.60517019])
    """
    chosen = read_choice(tuned)
    check_finite(head)
    if chosen.multiplies:
        _check_no_single_logit(head.classes, "the head")
    if chosen.tuned is not None:
        check_for_head(chosen.tuned, head.classes, head.names, "the head")
    adjustment = chosen.adjustment([head], chosen.counts(counts, head.classes, head.names))
    if adjustment.adds and head.bias is None and features is not None:
        return put_along(head, adjustment, features)[0]
    return adjustment.head(head)


def adjust_(
    model: Model,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    layer: LayerChoice = None,
    example: Example = None,
    background: int | str | None = None,
    logits: Array | None = None,
    features: Array | None = None,
    again: bool = False,
) -> Adjusted:
    """Find the head of a model and adjust it in place, by what was tuned or by a rule.

    ``w_k, b_k <- scale_k (w_k, b_k) + (0, offset_k)``. Parameters keep their identity, so
    optimizers, gradients and wrappers stay valid. If anything is wrong, nothing is changed. The
    result's `restore()` takes it back. It adjusts also where the gain is uncertain; ask
    `tuned.worthwhile` first.

    Where something is added to a layer without a bias, `features` put it into the weights: ``w_k +
    offset_k u``, with u the direction in which features are nearest to 1; the result's `along` says
    how near. Else the layer gets a bias: a new parameter, in the state dict too, which `restore()`
    takes out again. An optimizer made before does not know it, and models of transformers, which
    would lose it where they are saved and loaded, refuse it.

    Args:
        model: any torch module: a network, a transformers or timm model, one sharded by FSDP2; or a
            Keras 3 model.
        tuned: a `Tuned`, the path of a file that `levelhead tune` wrote, or a rule with a strength,
            such as ``lh.rules.Rescale(0.5)``. A head with one logit takes
            what was tuned on two classes and only adds.
        counts: training samples of each class, for such a rule: a list, {class: n} (by name if the
            model's config has them), or labels; `lh.rules.Tau` needs none.
        layer: the head, if it is not found or not unique: a path, the module, or a list if several
            feed one output.
        example: an input to run the model on, to find the head by what it does.
        background: a class that must stay as it is, by index or name, such as "no object" in
            detection. What was tuned leaves it alone if it was tuned with it.
        logits: [N, K], the model's logits before: in half precision, predictions that rounding
            could flip are counted.
        features: [N, d], what the head takes, of held-out samples:
            ``lh.collect(model, loader, features=True).features``.
        again: allow adjusting a head that was adjusted already and not changed since.

    Returns:
        What was done, whether it is known to arrive in the logits, and `restore()`.

    Raises:
        LevelheadError: no head is found, or more than one; its layer is tied, quantized or
            computed; what was tuned does not fit it, or would not arrive in the logits; or it was
            adjusted already. The message says what to do.

    >>> from levelhead import rules
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(8, 2, bias=False))
    >>> with adjust_(model, rules.Shift(1.0), [400, 100]) as adjusted:
    ...     model[0].bias.detach(), adjusted
    (tensor([0.0000, 1.3863]), Adjusted(shift, strength 1, 2 classes; 0: bias +0..+1.39))
    >>> model[0].bias is None
    True
    """
    chosen = read_choice(tuned)
    place = _head_of(model, layer, example, chosen.classes(counts))
    return apply(
        place,
        chosen,
        counts,
        background=background,
        logits=logits,
        features=features,
        again=again,
    )


def check_adjust(
    model: Model,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    layer: LayerChoice = None,
) -> None:
    """Check what `adjust_` would, before training, reading no weight.

    A callback that adjusts when training ends asks this when it begins: after hours is too late to
    hear that the head is not found.

    Args:
        model, tuned, counts, layer: as in `adjust_`.

    Raises:
        LevelheadError: as `adjust_` would.
    """
    chosen = read_choice(tuned)
    place = _head_of(model, layer, None, chosen.classes(counts))
    check_fits(place, chosen)
    rows = place.facts.sizes[0]
    class_counts = chosen.counts(counts, rows, place.facts.names)
    any_head = Head(np.ones((rows, 1)))
    chosen.adjustment([any_head], class_counts)  # refuses a rule without a strength
    # Last, as a caller who has features by then goes on after this one.
    if chosen.adds:
        for path in place.without_bias():
            place.check_takes_bias(path)


def rescale_(
    model: Model,
    counts: Counts,
    *,
    gamma: float,
    layer: LayerChoice = None,
    example: Example = None,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    background: int | str | None = None,
    logits: Array | None = None,
    again: bool = False,
) -> Adjusted:
    """Find the head of a model and scale its weight vectors by how rare their classes are (RS).

    ``w_i <- (n_1 / n_i)^gamma w_i``, with n_1 the largest count: `adjust_` by the paper's rule.

    Args:
        model, counts, layer, example, logits, again: as in `adjust_`.
        gamma: strength; larger gives rare classes more of the space.
        bias: `scale` (scaling the head is then scaling the logits) or `keep`.
        missing: a class without samples is an `error`, or `neutral` (left as it is).
        background: a class that is left alone, by index or name; its count is no n_1.

    Returns:
        What was done, with `restore()`. It warns where norms do not follow the counts, and where
        scaling cannot change a prediction, as with the opposite rows of two classes.

    Raises:
        LevelheadError: as `adjust_` does.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.eye(2))
    >>> rescale_(model, [100, 25], gamma=0.5)
    Adjusted(rescale, strength 0.5, 2 classes; 0: norms 1..1 -> 1..2)

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
    if isinstance(gamma, Tuned):
        instead = "what was tuned is for lh.adjust_(model, tuned)"
        raise LevelheadError(f"expected a number; {instead}", parameter="gamma")
    chosen = Chosen(Rescale(finite_number("gamma", gamma)))
    return apply(
        _head_of(model, layer, example, chosen.classes(counts)),
        chosen,
        counts,
        bias=bias,
        missing=missing,
        background=background,
        logits=logits,
        again=again,
    )


def _head_of(model: Model, layer: LayerChoice, example: Example, size: int | None) -> InMemory[Any]:
    """Open a model in memory as a place, and find its head.

    Args:
        size: likely, but not certain, to be the number of classes.
    """
    place: InMemory[Any]
    # Keras's models are torch modules, too, where it runs on torch.
    if any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__):
        from .keras import KerasModel

        place = KerasModel(model)
    else:
        with naming_what_is_missing():
            from .torch import TorchModel
        place = TorchModel(model)
    place.find(layer=layer, example=example, classes=place.likely_classes(size))
    return place
