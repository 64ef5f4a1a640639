"""Warnings of their own class, so that they can be filtered, tested and turned into errors one by one."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class LevelheadWarning(UserWarning):
    """Whatever levelhead warns of."""


class LeakageWarning(LevelheadWarning):
    """What is called held-out looks like training data: a gamma chosen on it is chosen on nothing."""


class NegativeLogitsWarning(LevelheadWarning):
    """Many true-class logits are negative: scaling pushes those classes down, not up. Use the additive shift."""


class BinaryHeadWarning(LevelheadWarning):
    """A two-class head with opposite rows never changes its mind under scaling. Use the additive shift."""


class NormWarning(LevelheadWarning):
    """Weight norms do not follow the counts (typical of Adam): scaling by counts may not be what bends the head."""


class MissingClassWarning(LevelheadWarning):
    """A class has no sample in the data at hand: it is named and left neutral."""


class CountsWarning(LevelheadWarning):
    """Counts of other samples stand in for those of the training set: by them next to nothing is adjusted."""


class NeverPredictedWarning(LevelheadWarning):
    """Many classes are hardly ever predicted: matching their shares may fill them with samples of others."""


class RangeWarning(LevelheadWarning):
    """What is looked for lies at the end of the range it was looked for in."""


class PrecisionWarning(LevelheadWarning):
    """Rounding to half precision could flip predictions."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what levelhead warns of inside the block: for results that carry their own warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelheadWarning)
        yield
