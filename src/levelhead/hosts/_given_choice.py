"""A choice that a callback is given: checked before training, while nothing is lost yet.

It is applied when training has ended, by `adjust_`. Whatever that would refuse then, hours later, `check_given`
refuses before the first step, in words for the user of a callback: of what `adjust_` takes, a callback takes a part.

`check_rule_fits` does so for a rule that is to be tuned when training has ended. `find_by_counts` is for whoever looks
for a head by counts that were given. `own_advice` keeps advice to what a callback takes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np

from ..core.class_names import listed
from ..core.counts import Counts, likely_classes
from ..core.head import Head
from ..core.rules import Rule
from ..core.tuned import Tuned
from ..heads.adjust import Model, check_adjust
from ..heads.apply import check_fits
from ..heads.choice import Chosen
from ..heads.in_memory import InMemory
from ..support.arrays import to_numpy
from ..support.errors import LevelheadError

Choice = Tuned | Rule | str | Path  # what was tuned before, its file, or a rule with a strength
# What the callbacks of all trainers take.
_PARAMETERS = ("by", "validation", "counts", "layer", "rule", "metric", "anyway", "scores", "page")
_Layer = TypeVar("_Layer")  # what a layer is in the library of the model


@contextmanager
def own_advice() -> Iterator[None]:
    """Drop the advice of a LevelheadError raised in the block if no callback has the parameter that it names."""
    try:
        yield
    except LevelheadError as error:
        if error.advice is None or error.advice.parameter in _PARAMETERS:
            raise
        raise LevelheadError(error.message, parameter=error.parameter) from None


def find_by_counts(
    place: InMemory[_Layer], counts: Counts | None, *, layer: str | None
) -> Mapping[str, _Layer]:
    """Return the layers of the head by path; blame counts of a wrong length if it is not found.

    By such counts a layer is looked for that is not there, and who reads that no head was found would look for the
    mistake in the model.

    Args:
        place: the model.
        counts: as they were given.
        layer: the head, if it is named.
    """
    size = likely_classes(counts)
    try:
        return place.find(layer=layer, classes=place.likely_classes(size))
    except LevelheadError:
        sizes = sorted(outputs for outputs in place.sizes() if outputs)
        # One output may stand for two classes.
        no_such_layer = size not in sizes and not (size == 2 and 1 in sizes)
        if layer is not None or not size or not no_such_layer or _may_be_labels(counts):
            raise
        sizes_text = listed([str(outputs) for outputs in sizes])
        none_has = f"no layer of the model has so many outputs (they have {sizes_text})"
        reason = f"expected one count for each class, got {size}, but {none_has}"
        raise LevelheadError(reason, parameter="counts") from None


def _may_be_labels(counts: Counts) -> bool:
    """Return whether counts may be labels to be counted: no number in them is as large as their length."""
    if isinstance(counts, Mapping):
        return False
    values = to_numpy(counts)
    return values.dtype.kind not in "iuf" or bool(values.max() < len(values))


def _check_rule(rule: Rule, counts: Counts | None) -> None:
    """Raise LevelheadError if a rule has no strength, or needs counts that are not given, whatever the head."""
    stand_in = None
    if counts is not None:
        stand_in = np.ones(2)
    rule.on_head(Head(np.ones((2, 1))), stand_in)


def check_rule_fits(place: InMemory[_Layer], rule: Rule) -> None:
    """Check that a rule that is to be tuned can act on a head, and that what it does arrives in the logits.

    Args:
        place: the model, whose head was found.
        rule: to be tuned when training has ended.

    Raises:
        LevelheadError: it does not fit, or would not arrive.
    """
    check_fits(place, Chosen(rule))


def check_given(
    model: Model,
    place: InMemory[_Layer],
    choice: Choice,
    counts: Counts | None,
    *,
    layer: str | None,
    no_evaluation: str | None,
) -> bool:
    """Check that a choice can be applied to a model when its training has ended.

    Args:
        model: as it is before training; its weights do not matter.
        place: the same model, as `adjust_` opens it.
        choice: what is to be applied.
        counts: training samples of each class, for a rule at a strength of one's own.
        layer: the head, if it is not found or not unique.
        no_evaluation: what the user can do to have an evaluation; None if there is one.

    Returns:
        Whether it needs what the head takes of the evaluation: it adds something, and the head has no bias and can get
        none, so that offsets go into its weights (`heads.along`).

    Raises:
        LevelheadError: it does not fit the model; or it needs an evaluation, and there is none.
    """
    # What is wrong with the rule or its counts first: either would be told of as a head that is not found.
    if isinstance(choice, Rule):
        _check_rule(choice, counts)
        find_by_counts(place, counts, layer=layer)
    try:
        check_adjust(model, choice, counts, layer=layer)
    except LevelheadError as error:
        # `adjust_` would take features here. Those of the head before training say nothing of it after, so that a
        # callback can only collect them when training has ended, and only on an evaluation.
        if error.advice is None or error.advice.parameter != "features":
            raise
        if no_evaluation is None:
            return True
        instead = f"or {no_evaluation}: by its samples, offsets are put into the weights"
        raise LevelheadError(f"{error.message}; {instead}", parameter="by") from None
    return False
