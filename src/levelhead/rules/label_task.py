"""Whether samples have one of the classes or several labels, where a model says so, and what is refused then."""

from ..core.choices import LabelTask
from ..core.errors import LevelheadError

PROBLEM_TYPES: dict[object, tuple[LabelTask, str]] = {  # of a Hugging Face config
    "multi_label_classification": ("multilabel", "its config says multi_label_classification"),
    "single_label_classification": ("multiclass", "its config says single_label_classification"),
}


def check_label_task(where: str, known: tuple[LabelTask, str] | None, task: LabelTask) -> None:
    """Raise LevelheadError if a head is known to be for another task than the adjustment.

    Args:
        where: the head, for the message.
        known: its task and how that is known; None where it is not.
        task: what the adjustment is for.

    >>> check_label_task("fc", None, "multilabel")
    """
    if known is None or known[0] == task:
        return
    if task == "multiclass":
        raise LevelheadError(
            f"{where} gives several labels per sample ({known[1]}), which do not compete, so no rule of classes levels "
            "them, and scaling changes no decision; tune with the task multilabel, and adjust by what that chooses"
        )
    raise LevelheadError(
        f"{where} gives one class per sample ({known[1]}), but several labels were tuned; tune with the task multiclass"
    )
