"""Warning classes, so that each can be filtered, tested and turned into an error.

A warning is for what cannot be decided here: the input is usable, but may not be what was meant.
What is certainly wrong is a `LevelheadError`. `warn` issues one at the user's own line; `kept` and
`quiet` are for code that reports warnings in another way.

>>> with kept() as doubts:
...     warn(ScaleWarning("margins"))
>>> doubts
[ScaleWarning('margins')]
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class LevelheadWarning(UserWarning):
    """The base class of all warnings of levelhead."""


class LeakageWarning(LevelheadWarning):
    """Samples that are called held-out look like training samples, on which nothing can be chosen."""


class NegativeLogitsWarning(LevelheadWarning):
    """Many logits of true classes are negative, and scaling pushes them down, not up.

    A factor above 1 makes a negative logit more negative. Use a rule that adds.
    """


class BinaryHeadWarning(LevelheadWarning):
    """A two-class head has opposite rows, and scaling never changes its predictions.

    Of (-z, z), the larger stays the larger whatever positive factors there are. Use a rule that
    adds.
    """


class NormWarning(LevelheadWarning):
    """Weight norms do not follow the counts, as is typical of Adam.

    Scaling by counts may then not be what the head needs.
    """


class MissingClassWarning(LevelheadWarning):
    """A class has no sample in the data at hand, so nothing is fitted to it; the warning names it."""


class CountsWarning(LevelheadWarning):
    """The counts do not look like those of the training set, or are in another order."""


class MixWarning(CountsWarning):
    """Held-out samples have another mix of classes than the training set.

    The metric depends on that mix, as the plain error does.
    """


class NeverPredictedWarning(LevelheadWarning):
    """Many classes are hardly ever predicted.

    To match their shares may fill them with samples of others.
    """


class PriorWarning(LevelheadWarning):
    """The predictions at hand hardly tell how often each class occurs in deployment."""


class ScaleWarning(LevelheadWarning):
    """A strength was given for scores of unknown scale, such as margins.

    It may be far too large or small.
    """


class PrecisionWarning(LevelheadWarning):
    """Rounding to half precision could flip predictions."""


def quiet() -> AbstractContextManager[None]:
    """Silence levelhead's warnings in a `with` block: for results that carry their warnings."""
    return warnings.catch_warnings(action="ignore", category=LevelheadWarning)


@contextmanager
def kept() -> Iterator[list[LevelheadWarning]]:
    """Collect levelhead's warnings in a `with` block instead of issuing them.

    Those of others are issued after it, with the file and line that they had.

    Yields:
        A list, which is filled when the block ends.
    """
    ours: list[LevelheadWarning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LevelheadWarning)
        yield ours
    # Everybody's were recorded; only ours are kept.
    for warning in caught:
        if isinstance(warning.message, LevelheadWarning):
            ours.append(warning.message)
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


_OURS = ("levelhead", "levelhead_lab", "sklearn")  # scikit-learn wraps every `fit`


def warn(message: Warning | str, category: type[Warning] | None = None) -> None:
    """Issue a warning at the line that called levelhead: the first frame that is not in it.

    So the user sees their own code, and Python's filter "once per line" counts their lines. A fixed
    `stacklevel` would have to be counted anew for every road that leads here.

    Args:
        message: a warning, or its text.
        category: of a text; UserWarning if None.
    """
    frame = sys._getframe(1)
    level = 2
    # Frames outward from the caller of this function, which is level 2, until one is of another
    # package.
    while frame.f_back is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in _OURS:
            break
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
