"""A choice that a callback is given: checked before training, while nothing is lost yet.

It is applied when training has ended, by `adjust_`. Whatever that would refuse then, hours later, `check_given`
refuses before the first step, in words for the user of a callback: of what `adjust_` takes, a callback takes a part.
"""

from pathlib import Path

from ..core.counts import Counts
from ..core.rules import Rule
from ..core.tuned import Tuned
from ..heads.apply import Model, check_adjust
from ..support.errors import LevelheadError

Choice = Tuned | Rule | str | Path  # what was tuned before, its file, or a rule with a strength


def check_given(
    model: Model,
    choice: Choice,
    counts: Counts | None,
    *,
    layer: str | None,
    no_evaluation: str | None,
) -> bool:
    """Check that a choice can be applied to a model when its training has ended.

    Args:
        model: as it is before training; its weights do not matter.
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
