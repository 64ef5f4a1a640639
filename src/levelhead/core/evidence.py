"""`Evidence`: what an adjustment is worth on samples that it was not fitted on.

`judge` (judge.py) makes it of one class per sample, `tune_labels` of several labels. It holds the tables
before and after, the gain and its standard error; all else follows from these four: the interval, the
probability of a gain, and the verdict, one of five phrases that are the same in the terminal, on the page
and in Python. Longer sentences about it are in evidence_words.py.

The gain is what was measured, and nothing is drawn toward what is usual. Its distribution is taken to be normal,
with the standard error of judge.py. docs/decisions.md compares interval and gain with what came on test samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from .metrics import Metric, Tables

LIKELY = 0.8  # the probability from which on a gain is called likely
FEWEST = 20  # samples, below which nothing is called better or worse
_USUAL_LEVEL = 0.95  # of intervals: the one that verdicts go by, and that need not be told


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """What an adjustment does to samples that it was not fitted on.

    Args:
        metric: what the gain is measured in.
        before, after: `Tables` of the model as it is, and adjusted: [K], or [K, 2] of several labels
            per sample, whose last axis is (samples without the label, samples with it).
        gain: how much better the metric is; above 0 is better, whatever the metric.
        standard_error: of the gain.
        changed: how many predictions differ.
        n: how many samples there are.
        level: of the interval.

    >>> from .metrics import METRICS
    >>> sizes = np.array([100, 100])
    >>> before = Tables(right=np.array([90, 20]), predicted=np.array([170, 30]), sizes=sizes)
    >>> after = Tables(right=np.array([80, 50]), predicted=np.array([130, 70]), sizes=sizes)
    >>> evidence = Evidence(METRICS["balanced_error"], before, after, 0.1, 0.03, changed=40, n=200)
    >>> evidence.verdict, [round(end, 3) for end in evidence.interval]
    ('better', [0.041, 0.159])
    >>> evidence.change_text()
    'balanced error 45.0% -> 35.0%, gain 10.0 points (4.1 to 15.9)'
    """

    metric: Metric
    before: Tables
    after: Tables
    gain: float
    standard_error: float
    changed: int
    n: int
    level: float = _USUAL_LEVEL

    # ---- How sure the gain is ------------------------------------------------------------------

    @property
    def interval(self) -> tuple[float, float]:
        """Where the gain on new samples lies, from and to, with the probability `level`.

        ``gain -+ z standard_error``, z of the normal distribution: 1.96 for 0.95. A share cannot gain
        or lose more than 100 points, so that there is no end beyond them.
        """
        return self._interval_at(self.level)

    def _interval_at(self, level: float) -> tuple[float, float]:
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        low = self.gain - reach
        high = self.gain + reach
        if self.metric.in_points:
            low = max(low, -1.0)
            high = min(high, 1.0)
        return low, high

    @property
    def probability(self) -> float:
        """That the gain on new samples is above 0, from 0 to 1."""
        # Nothing differs, or nothing varies: then there is only the gain itself.
        if self.standard_error == 0:
            return float(self.gain > 0)
        return NormalDist(0, self.standard_error).cdf(self.gain)

    @property
    def verdict(self) -> str:
        """How sure the gain is, in words: the same wherever they are printed.

        *better* and *worse* where the whole interval of 95 % is on one side of 0, whatever `level` is,
        *likely better* from a probability of 80 % on, *changes nothing* where no prediction differs, and
        *no difference seen* for all else.
        """
        low, high = self._interval_at(_USUAL_LEVEL)
        # Two cases in which the interval says nothing come first.
        if self.changed == 0:
            return "changes nothing"
        if self.n < FEWEST:
            return "no difference seen"
        if low > 0:
            return "better"
        if high < 0:
            return "worse"
        if self.gain > 0 and self.probability >= LIKELY:
            return "likely better"
        return "no difference seen"

    # ---- What is counted -----------------------------------------------------------------------

    @property
    def multilabel(self) -> bool:
        """Whether samples may have several labels: tables are then [K, 2]."""
        return self.before.sizes.ndim > 1

    @property
    def class_tables(self) -> tuple[Tables, Tables]:
        """The tables [K] of each class, or of the samples that have each label; before and after."""
        if not self.multilabel:
            return self.before, self.after
        return _positives(self.before), _positives(self.after)

    @property
    def never_right(self) -> np.ndarray:
        """The classes or labels that have samples of which none is right, before or after: their positions.

        What adjusts scores cannot help where the scores of a class never come near the top.
        """
        before, after = self.class_tables
        right = np.maximum(before.right, after.right)
        return np.flatnonzero((before.sizes > 0) & (right <= 0))

    @property
    def value(self) -> float:
        """The metric after, as people know it; of several labels, the mean over them."""
        return self._value(self.after)

    @property
    def value_before(self) -> float:
        """The metric of the model as it is, in the same form."""
        return self._value(self.before)

    def _value(self, tables: Tables) -> float:
        if self.multilabel:
            # The metric of a label needs samples with it and samples without it.
            tables = tables[(tables.sizes > 0).all(axis=-1)]
        return float(np.mean(self.metric.shown(self.metric.loss(tables))))

    # ---- In words, and as JSON -----------------------------------------------------------------

    def verdict_text(self) -> str:
        """Return the verdict, with the probability of a gain where there may be one."""
        if self.changed == 0:
            return f"{self.verdict}: no prediction differs"
        if self.n < FEWEST:
            return f"{self.verdict}: {self.n} samples are too few to tell"
        return f"{self.verdict} (chance of a gain: {_chance_text(self.probability)})"

    def change_text(self) -> str:
        """Return the metric before and after, and the gain with its interval, in words.

        Of a metric that is not known here, as one of somebody's own in a file, the gain alone.
        """
        if not self.metric.is_known:
            return f"{self.metric.title}: gain {self.gain_text()}"
        before = self.metric.value_text(self.value_before, self.n)
        after = self.metric.value_text(self.value, self.n)
        return f"{self.metric.title} {before} -> {after}, gain {self.gain_text()}"

    def gain_text(self) -> str:
        """Return the gain with its interval, in words."""
        text = self.metric.gain_text(self.gain, self.interval, self.n)
        if self.level == _USUAL_LEVEL:
            return text
        return f"{text}, an interval of {100 * self.level:g} %"

    def __repr__(self) -> str:
        samples = f"{self.n} samples, {self.changed} of them predicted otherwise"
        return f"Evidence({self.change_text()}: {self.verdict_text()}; {samples})"

    def to_dict(self) -> dict[str, object]:
        """Return the numbers as JSON can hold them; tuned_json.py reads them back."""
        return {
            "metric": self.metric.name,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "gain": self.gain,
            "standard_error": self.standard_error,
            "changed": self.changed,
            "n": self.n,
            "level": self.level,
        }


def _chance_text(probability: float) -> str:
    """Return a probability in whole percent, of which none is 0 or 100: samples cannot tell that.

    >>> _chance_text(0.973), _chance_text(0.9999)
    ('97%', 'over 99%')
    """
    if probability > 0.99:
        return "over 99%"
    if probability < 0.01:
        return "under 1%"
    return f"{probability:.0%}"


def _positives(tables: Tables) -> Tables:
    """Return of tables [K, 2], of samples without and with each label, those with it, [K]."""
    return Tables(tables.right[:, 1], tables.predicted[:, 1], tables.sizes[:, 1])
