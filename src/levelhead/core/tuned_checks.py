"""Does a choice fit the model at hand? What is asked before a `Tuned` is applied to scores or to a head.

A tuned.json may be weeks old, and the model another one. Numbers added to the wrong classes raise no error of
their own, they only make predictions worse. So the number of classes, their names where both sides know them, and
the kind of scores are compared first, and what does not fit is refused with the way out: tune on this model.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..support.errors import LevelheadError
from .class_names import listed
from .tuned import Tuned, rule_of


def check_for_head(tuned: Tuned, classes: int, names: Sequence[str] | None, where: str) -> None:
    """Raise LevelheadError unless a choice is for a head of so many classes in this order.

    Args:
        tuned: the choice.
        classes: the rows of the head's weight; 1 where two classes share one logit.
        names: of the classes of the head, where they are known.
        where: what to call the head in a message, such as the name of its layer.

    Raises:
        LevelheadError: other classes or another order; a choice on smoothed votes, which no head
            gives; or one that multiplies, and was not tuned on logits.
    """
    instead = "tune on this model's own logits"
    if tuned.adjustment.smoothing:
        zeros = "it was tuned on probabilities of which some are 0, which no head gives"
        raise LevelheadError(f"{where}: {zeros}; {instead}")
    rule_of(tuned).refuse_kind(tuned.kind)
    check_classes(tuned, classes, names, where)


def check_classes(tuned: Tuned, classes: int, names: Sequence[str] | None, where: str) -> None:
    """Raise LevelheadError unless a choice is for scores of so many classes in this order.

    The arguments are those of `check_for_head`. Names may be spelled otherwise here than where the
    choice was made; what is refused is a name that stands at another place there.
    """
    instead = "tune on this model's own scores"
    if tuned.multilabel and tuned.classes != classes:
        has = f"{where} has {classes} outputs, but {tuned.classes} labels were tuned"
        raise LevelheadError(f"{has}; {instead}")
    if not tuned.multilabel and tuned.classes != max(classes, 2):
        has = "gives a single logit"
        if classes != 1:
            has = f"has {classes} classes"
        tuned_on = f"but it was tuned on {tuned.classes} classes"
        raise LevelheadError(f"{where} {has}, {tuned_on}; {instead}")
    # A name that both know must stand at the same place in both.
    here = names or ()
    tuned_names = tuned.names or ()
    pairs = zip(here, tuned_names, strict=False)
    if any(name != other and name in tuned_names for name, other in pairs):
        its_order = listed(here)
        tuned_order = listed(tuned_names)
        orders = f"another order ({its_order}) than the scores it was tuned on ({tuned_order})"
        raise LevelheadError(f"{where} has its classes in {orders}; {instead}")
