"""A class that every rule leaves alone, such as "no object" in detection."""

from collections.abc import Sequence

import numpy as np

from .errors import LevelheadError
from .per_class import find_classes, title


def leave_alone(values: np.ndarray, background: int | str, names: Sequence[str] | None) -> np.ndarray:
    """Return counts with that of the background replaced by the largest of the others, which no rule changes.

    Args:
        values: [K], counts.
        background: the class, by index or known name.
        names: of the classes, where they are known.

    Returns:
        [K], counts.

    >>> leave_alone(np.array([900000, 70, 30]), 0, None).tolist()
    [70, 70, 30]
    """
    alone = find_background(background, len(values), names)
    others = np.delete(values, alone)
    if not len(others):
        raise LevelheadError("expected a class next to the background, got none", parameter="background")
    return np.where(np.arange(len(values)) == alone, others.max(), values)


def check_left_alone(
    scale: np.ndarray | None, offset: np.ndarray | None, background: int | str | None, names: Sequence[str] | None
) -> None:
    """Raise LevelheadError if an adjustment would change the background.

    Args:
        scale, offset: [K], what each class is multiplied by and moved by; None where it is not.
        background: the class, by index or known name; None if there is none.
        names: of the classes, where they are known.

    >>> check_left_alone(np.array([1.0, 2.0]), None, 0, None)
    """
    if background is None:
        return
    alone = find_background(background, max(len(each) for each in (scale, offset) if each is not None), names)
    if (scale is not None and scale[alone] != 1) or (offset is not None and offset[alone] != 0):
        raise LevelheadError(
            f"{title(alone, names)} would change: the choice was made without a background; tune with it",
            parameter="background",
        )


def find_background(background: int | str, classes: int, names: Sequence[str] | None) -> int:
    """Return the index of the background.

    Args:
        background: the class, by index or known name.
        classes, names: K, and the names of the classes where they are known.

    Returns:
        Its index.

    >>> find_background("nothing", 2, ["nothing", "car"])
    0
    """
    try:
        if isinstance(background, bool):
            raise LevelheadError(f"got {background}")
        return find_classes([background], classes, names, what="class")[0]
    except LevelheadError as error:
        raise LevelheadError(f"expected the index or the name of one class ({error})", parameter="background") from None
