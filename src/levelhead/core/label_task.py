"""One class per sample, or several labels: what is known of a head, against what was tuned.

Scores of classes compete: the largest wins. Those of labels do not: each is compared with 0. So an
adjustment for the one is wrong for the other, and a head that is known to be for the other is refused.

What is known comes from elsewhere: from the config of a transformers model (`PROBLEM_TYPES`), or from what follows
the head in a graph, a softmax or sigmoids. Where nothing is known, nothing is refused.
"""

from __future__ import annotations

from ..support.errors import Advice, LevelheadError
from ..support.types import LabelTask

# The `problem_type` of a Hugging Face config: what it means, and how a message says where that is known from.
PROBLEM_TYPES: dict[object, tuple[LabelTask, str]] = {
    "multi_label_classification": ("multilabel", "its config says multi_label_classification"),
    "single_label_classification": ("multiclass", "its config says single_label_classification"),
}


def check_label_task(
    where: str,
    head_task: tuple[LabelTask, str] | None,
    task: LabelTask,
    if_they_compete: Advice | None = None,
) -> None:
    """Raise LevelheadError if a head is known to be for another task.

    Args:
        where: what to call the head in a message.
        head_task: its task, and how that is known; None if it is not.
        task: the one that is to be applied.
        if_they_compete: what to do if the labels compete after all, for the message.

    >>> check_label_task("model.fc", None, "multiclass")  # nothing is known, and nothing refused
    """
    if head_task is None or head_task[0] == task:
        return
    reason_known = head_task[1]
    if task == "multilabel":
        one_class = f"{where} gives one class per sample ({reason_known})"
        raise LevelheadError(
            f"{one_class}, but several labels were tuned; tune with the task multiclass"
        )
    several = f"{where} gives several labels per sample ({reason_known}), which do not compete"
    alone = "so no rule of classes adjusts them, and scaling changes no decision"
    instead = "tune with the task multilabel, and adjust by what that chooses"
    raise LevelheadError(f"{several}, {alone}; {instead}", advice=if_they_compete)
