"""An adjustment of a head, with all its checks: one body for torch modules, Keras models and model files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.adjustment import Adjustment
from ..core.arguments import finite_number
from ..core.counts import Counts, WithBackground, check_left_alone, likely_classes, resolve
from ..core.head import Head, can_flip, check_finite, rounding_flips
from ..core.label_task import check_label_task
from ..core.rules import RULES, OneStrength, Rescale, Rule
from ..core.tuned import Tuned, tuned_of
from ..core.tuned_checks import check_for_head
from ..support.arrays import Array, check_logits
from ..support.errors import Advice, LevelheadError, check_choice, in_file
from ..support.extras import naming_what_is_missing
from ..support.types import BiasPolicy, Missing
from .adjusted import Adjusted
from .along import put_along
from .candidates import TUNE_SCALES
from .in_memory import InMemory
from .place import Change, Checked, Place, Written

# What helps where a file has a sigmoid for each class, and its user takes the largest.
_COMPETE = Advice("task", "multiclass", "if the largest of them is taken")


class Chosen(NamedTuple):
    """What to do to a head: what was tuned, or a rule at a strength of one's own."""

    rule: Rule
    tuned: Tuned | None = None

    @property
    def strength(self) -> float | None:
        """The strength, of a rule that has one."""
        if self.tuned is not None:
            return self.tuned.strength
        if isinstance(self.rule, OneStrength):
            return self.rule.strength
        return None

    @property
    def multiplies(self) -> bool:
        """Whether weight vectors are multiplied: by what was tuned or, before counts are known, by the rule."""
        if self.tuned is None:
            return self.rule.multiplies
        return self.tuned.adjustment.multiplies

    @property
    def adds(self) -> bool:
        """Whether something is added to biases."""
        if self.tuned is None:
            return self.rule.adds
        return self.tuned.adjustment.adds

    def classes(self, counts: Counts | None) -> int | None:
        """Return how many classes it is likely to be for."""
        if self.tuned is None:
            return likely_classes(counts)
        return self.tuned.classes

    def counts(
        self,
        counts: Counts | None,
        rows: int,
        names: Sequence[str] | None,
        *,
        missing: Missing | None = None,
        background: int | str | None = None,
    ) -> np.ndarray | None:
        """Return the counts [K] for a head of so many rows; None where none are known or needed."""
        if self.tuned is not None:
            if counts is not None:
                reason = "what was tuned has counts of its own; leave these out"
                raise LevelheadError(reason, parameter="counts")
            if self.tuned.counts:
                return np.array(self.tuned.counts)
            return None
        if counts is None:
            return None
        if rows == 1:  # two classes share the logit
            return resolve(counts, 2, missing=missing)
        return resolve(counts, rows, names=names, missing=missing, background=background)

    def adjustment(self, heads: Sequence[Head], counts: np.ndarray | None) -> Adjustment:
        """Return what it does to each row of the heads, which feed one output."""
        if self.tuned is not None:
            return self.tuned.adjustment.for_rows(heads[0].classes)
        first, *others = [self.rule.on_head(head, counts) for head in heads]
        for other in others:
            if not np.array_equal(other.scale, first.scale):
                reason = f"the rule {self.rule.name} would scale their rows by different numbers"
                raise LevelheadError(f"several layers feed one output, and {reason}; use rescale")
        return first.for_rows(heads[0].classes)


def read_choice(tuned: Tuned | Rule | str | Path) -> Chosen:
    """Return what to do, from a `Tuned`, the file of one, or a rule."""
    if isinstance(tuned, Rule):
        return Chosen(tuned)
    if not isinstance(tuned, Tuned | str | Path):
        expected = "expected what `tune` returned, the path of its file, or a rule"
        example = "such as lh.rules.Rescale(0.5)"
        got = f"got {type(tuned).__name__}"
        raise LevelheadError(f"{expected} {example}, {got}", parameter="tuned")
    choice = tuned_of(tuned)
    return Chosen(RULES[choice.rule], choice)


def check_fits(place: Place[Any], chosen: Chosen) -> Checked | None:
    """Raise LevelheadError if what was chosen does not fit a head; return how it is known to fit."""
    facts = place.facts
    task = "multiclass"
    if chosen.tuned is not None:
        task = chosen.tuned.task
    check_label_task(facts.where, facts.task, task, _COMPETE if facts.file is not None else None)
    if len({*facts.sizes}) > 1:
        raise LevelheadError(f"{facts.where} differ in classes; name one of them")
    if chosen.multiplies:
        _check_no_single_logit(facts.sizes[0], facts.where)
    if chosen.tuned is not None:
        check_for_head(chosen.tuned, facts.sizes[0], facts.names, facts.where)
    if chosen.adds and (len(facts.keys) > 1 or not facts.plain):
        reason = "is scaled by a constant or bent by a Relu"
        if len(facts.keys) > 1:
            reason = "feed one output"
        needed = (
            f"what the rule {chosen.rule.name} adds is for one layer whose outputs are the logits"
        )
        raise LevelheadError(f"{facts.where} {reason}, and {needed}; {TUNE_SCALES}")
    return place.check_output(adds=chosen.adds)


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
    """Adjust the head of a place. If anything is wrong, nothing is changed."""
    check_choice("bias", bias, ("scale", "keep"))
    checked = check_fits(place, chosen)
    facts = place.facts
    rows = facts.sizes[0]
    if isinstance(counts, WithBackground):
        background = counts.background
    known = chosen.counts(counts, rows, facts.names, missing=missing, background=background)
    done_before = place.earlier()
    if done_before is not None and not again:
        raise LevelheadError(
            done_before, advice=Advice("again", None, "to adjust it a second time")
        )
    before = place.heads(chosen.rule)
    adjustment = replace(chosen.adjustment(before, known), bias=bias)
    check_left_alone(adjustment.scale, adjustment.offset, background, facts.names)
    along = None
    with nullcontext() if facts.file is None else in_file(facts.file):
        if adjustment.adds and before[0].bias is None and features is not None:
            new_head, along = put_along(before[0], adjustment, features)
            after = (new_head,)
        else:
            after = tuple(adjustment.head(head) for head in before)
    for key, old, new in zip(facts.keys, before, after, strict=True):
        if old.bias is None and new.bias is not None:
            place.check_takes_bias(key)
    flips = None
    predictions = 0
    if logits is not None:
        values = check_logits(logits)
        predictions = len(values)
        if rows > 1 and values.shape[1] != rows:
            got = f"expected [N, {rows}], got {list(values.shape)}"
            raise LevelheadError(got, parameter="logits")
        if facts.half is not None and not adjustment.adds:
            flips = rounding_flips(values, adjustment.scale, facts.half)
    only_scales = adjustment.multiplies and not adjustment.adds
    change = Change(
        rule=chosen.rule,
        strength=chosen.strength,
        counts=known,
        adjustment=adjustment,
        before=before,
        after=after,
        flips=flips,
        predictions=predictions,
        stuck=only_scales and not can_flip(before[0]),
        by_hand=chosen.tuned is None and not again,
        checked=checked,
        along=along,
    )
    return place.write(change)


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
        tuned: what `tune` or its kin returned, the path of a file that `levelhead tune` wrote, or a
            rule with a strength, such as ``lh.rules.Rescale(0.5)``.
        counts: training samples of each class, for such a rule; `lh.rules.Tau` needs none.
        features: [N, d], what the head takes, of held-out samples: a head without a bias then takes
            offsets into its weights, ``w_k + offset_k u``, with u the direction in which features
            are nearest to 1.

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
    known = chosen.counts(counts, head.classes, head.names)
    adjustment = chosen.adjustment([head], known)
    if adjustment.adds and head.bias is None and features is not None:
        return put_along(head, adjustment, features)[0]
    return adjustment.head(head)


def adjust_(
    model: Any,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    layer: Any = None,
    example: Any = None,
    background: int | str | None = None,
    logits: Any = None,
    features: Any = None,
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
        tuned: what `tune` or its kin returned, the path of a file that `levelhead tune` wrote, or a
            rule with a strength, such as ``lh.rules.Rescale(0.5)``. A head with one logit takes
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
    model: Any,
    tuned: Tuned | Rule | str | Path,
    counts: Counts | None = None,
    *,
    layer: Any = None,
) -> None:
    """Check what `adjust_` would, before training, reading no weight."""
    chosen = read_choice(tuned)
    place = _head_of(model, layer, None, chosen.classes(counts))
    check_fits(place, chosen)
    if chosen.adds:
        for path in place.without_bias():
            place.check_takes_bias(path)
    rows = place.facts.sizes[0]
    known = chosen.counts(counts, rows, place.facts.names)
    chosen.adjustment([Head(np.ones((rows, 1)))], known)  # refuses a rule without a strength


def rescale_(
    model: Any,
    counts: Counts,
    *,
    gamma: float,
    layer: Any = None,
    example: Any = None,
    bias: BiasPolicy = "scale",
    missing: Missing = "error",
    background: int | str | None = None,
    logits: Any = None,
    again: bool = False,
) -> Adjusted:
    """Find the head of a model and scale each weight vector, in place, by how rare its class is (RS).

    ``w_i <- (n_1 / n_i)^gamma w_i``, with n_1 the largest count: `adjust_` by the paper's rule.

    Args:
        model, counts, layer, example, logits, again: as in `adjust_`.
        gamma: strength; larger gives rare classes more of the space.
        bias: `scale` (scaling the head is then scaling the logits) or `keep`.
        missing: a class without samples is an `error`, or `neutral` (left as it is).
        background: a class that is left alone, by index or name; its count is no n_1.

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
