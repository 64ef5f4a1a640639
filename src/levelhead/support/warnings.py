"""Warning classes, so that each can be filtered, tested and turned into an error."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class LevelheadWarning(UserWarning):
    """The base class of all warnings of levelhead."""


class LeakageWarning(LevelheadWarning):
    """Data called held-out looks like training data, on which gamma cannot be chosen."""


class NegativeLogitsWarning(LevelheadWarning):
    """Many true-class logits are negative: scaling pushes those classes down, not up. Use the additive shift."""


class BinaryHeadWarning(LevelheadWarning):
    """Scaling never changes a prediction of a two-class head with opposite rows. Use the additive shift."""


class NormWarning(LevelheadWarning):
    """Weight norms do not follow the counts (typical of Adam): scaling by counts may not be what the head needs."""


class MissingClassWarning(LevelheadWarning):
    """A class has no sample in the data at hand: it is named and left neutral."""


class CountsWarning(LevelheadWarning):
    """Counts are not those of the training set, and adjust next to nothing."""


class MixWarning(CountsWarning):
    """Held-out samples have another mix of classes than the training set, and the metric depends on the mix."""


class NeverPredictedWarning(LevelheadWarning):
    """Many classes are hardly ever predicted: matching their shares may fill them with samples of other classes."""


class PriorWarning(LevelheadWarning):
    """The shares of the classes in deployment can hardly be told from the predictions at hand."""


class ScaleWarning(LevelheadWarning):
    """A strength was given for scores whose scale is not known, such as margins: it may be far too large or small."""


class PrecisionWarning(LevelheadWarning):
    """Rounding to half precision could flip predictions."""


def quiet() -> AbstractContextManager[None]:
    """Silence levelhead's warnings inside a `with` block: for results that carry their warnings."""
    return warnings.catch_warnings(action="ignore", category=LevelheadWarning)


@contextmanager
def kept() -> Iterator[list[LevelheadWarning]]:
    """Keep levelhead's warnings inside a `with` block instead of issuing them; others are issued after it."""
    ours: list[LevelheadWarning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LevelheadWarning)
        yield ours
    for one in caught:
        if isinstance(one.message, LevelheadWarning):
            ours.append(one.message)
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


_OURS = ("levelhead", "levelhead_lab", "sklearn")  # scikit-learn wraps every `fit`


def warn(message: Warning | str, category: type[Warning] | None = None) -> None:
    """Issue a warning at the line that called levelhead: the first frame that is not in it."""
    frame, level = sys._getframe(1), 2
    while (
        frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
