"""An adjustment of a head, with all its checks: one body for torch modules, Keras models and files.

`apply` checks that the choice fits the head and would arrive in the logits (`check_fits`), computes
the new head, and only then has the place write it, so that an error leaves everything as it was.
`lh.adjust_` calls it with a model in memory, `levelhead.files.model.adjust_file` with a file.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core.adjustment import Adjustment
from ..core.counts import Counts, WithBackground, check_left_alone
from ..core.head import Head
from ..core.head_checks import bias_flips, can_flip, rounding_flips
from ..core.label_task import check_label_task
from ..core.tuned import Tuned
from ..core.tuned_checks import check_for_head
from ..support.arrays import Array, to_numpy, widen
from ..support.errors import Advice, LevelheadError, check_choice, in_file
from ..support.logits import check_logits
from ..support.types import BiasPolicy, Missing
from .along import Along, put_along
from .candidates import TUNE_SCALES
from .choice import Chosen
from .place import Change, Checked, Facts, Place, Written

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
        check_no_single_logit(facts.sizes[0], facts.where)
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


def check_no_single_logit(rows: int, where: str) -> None:
    """Raise if a head that would be scaled has a single logit: its sign would stay as it is."""
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
