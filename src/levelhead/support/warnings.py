"""Warning classes, so that each can be filtered, tested and turned into an error."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class LevelheadWarning(UserWarning):
    """The base class of all warnings of levelhead."""


class LeakageWarning(LevelheadWarning):
    """Samples that are called held-out look like training samples, on which nothing can be chosen."""


class NegativeLogitsWarning(LevelheadWarning):
    """Many logits of true classes are negative: scaling pushes them down, not up. Use a rule that adds."""


class BinaryHeadWarning(LevelheadWarning):
    """A two-class head has opposite rows: scaling never changes its predictions. Use a rule that adds."""


class NormWarning(LevelheadWarning):
    """Weight norms do not follow the counts (typical of Adam): scaling by counts may not be what the head needs."""


class MissingClassWarning(LevelheadWarning):
    """A class has no sample in the data at hand: it is left as it is, and the warning names it."""


class CountsWarning(LevelheadWarning):
    """The counts do not look like those of the training set, or are in another order than the classes."""


class MixWarning(CountsWarning):
    """Held-out samples have another mix of classes than the training set, and the metric depends on it."""


class NeverPredictedWarning(LevelheadWarning):
    """Many classes are hardly ever predicted: to match their shares may fill them with samples of others."""


class PriorWarning(LevelheadWarning):
    """The predictions at hand hardly tell how often each class occurs in deployment."""


class ScaleWarning(LevelheadWarning):
    """A strength was given for scores of unknown scale, such as margins: it may be far too large or small."""


class PrecisionWarning(LevelheadWarning):
    """Rounding to half precision could flip predictions."""


def quiet() -> AbstractContextManager[None]:
    """Silence levelhead's warnings in a `with` block: for results that carry their warnings."""
    return warnings.catch_warnings(action="ignore", category=LevelheadWarning)


@contextmanager
def kept() -> Iterator[list[LevelheadWarning]]:
    """Collect levelhead's warnings in a `with` block instead of issuing them; others are issued after it."""
    ours: list[LevelheadWarning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LevelheadWarning)
        yield ours
    for warning in caught:
        if isinstance(warning.message, LevelheadWarning):
            ours.append(warning.message)
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


_OURS = ("levelhead", "levelhead_lab", "sklearn")  # scikit-learn wraps every `fit`


def warn(message: Warning | str, category: type[Warning] | None = None) -> None:
    """Issue a warning at the line that called levelhead: the first frame that is not in it."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in _OURS:
            break
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
