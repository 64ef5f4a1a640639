"""What a tuned classifier did, in words and numbers: the record behind `summary_`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.array import to_plain
from ..rules.rule import RULES
from ..show.html import html


@dataclass(frozen=True, eq=False, kw_only=True)
class LevelSummary:
    """What leveling did to a classifier, on its out-of-fold samples. Scores and recalls are not in percent.

    Args:
        scoring: the scorer, by name.
        score_as_trained, score: before and after; higher is better. Rule and strength were chosen on these samples.
        gain, gain_interval, level: to expect on new samples, by a bootstrap of the whole choice; the interval, and with
            it the correction for having chosen on these samples, is None for scorers without an exact path.
        rule, gamma, second: what was chosen; the second strength of `rescale+shift`, else None.
        temperature: what the adjusted scores are divided by, for `predict_proba`.
        n, names, counts: how many out-of-fold samples; class labels and training samples, [K] each.
        recall_as_trained, recall: of each class, [K]; NaN for one without a sample.
        why, doubts: why this rule was chosen; one line for each reason to look again.

    >>> two = {"names": ("a", "b"), "counts": np.array([90, 10])}
    >>> summary = LevelSummary(scoring="balanced_accuracy", score_as_trained=0.6, score=0.75, gain=0.14,
    ...     gain_interval=(0.1, 0.2), rule="shift", gamma=0.9, temperature=1.1, n=100,
    ...     recall_as_trained=np.array([1.0, 0.2]), recall=np.array([0.9, 0.6]), **two)
    >>> print(summary)
    balanced_accuracy 0.600 as trained -> 0.750, on 100 out-of-fold samples
    gain on new samples 0.140 (0.100 to 0.200)
    logit shift, gamma = 0.900; probabilities at temperature 1.10
    class  training samples  recall as trained  recall
    a                    90            100.0 %  90.0 %
    b                    10             20.0 %  60.0 %
    """

    scoring: str
    score_as_trained: float
    score: float
    gain: float
    gain_interval: tuple[float, float] | None = None
    level: float = 0.95
    rule: str
    gamma: float
    second: float | None = None
    temperature: float
    n: int
    names: Sequence[str]
    counts: np.ndarray
    recall_as_trained: np.ndarray
    recall: np.ndarray
    why: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def worthwhile(self) -> bool:
        """Whether the interval of the gain lies above 0; False where it is not known."""
        return self.gain_interval is not None and self.gain_interval[0] > 0

    def to_dict(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it; a recall that is not known is None."""
        found = to_plain(self) | {"worthwhile": self.worthwhile}
        for name in ("recall_as_trained", "recall"):
            found[name] = [None if np.isnan(value) else float(value) for value in getattr(self, name)]
        return found

    def facts(self) -> dict[str, str]:
        """Return score, gain and rule in words, by title."""
        between = "" if self.gain_interval is None else f" ({self.gain_interval[0]:.3f} to {self.gain_interval[1]:.3f})"
        where = "these" if self.gain_interval is None else "new"  # only the bootstrap corrects for choosing on these
        second = "" if self.second is None else f", then {self.second:.3f}"
        change = f"{self.score_as_trained:.3f} as trained -> {self.score:.3f}"
        return {
            self.scoring: f"{change}, on {self.n} out-of-fold samples",
            f"gain on {where} samples": f"{self.gain:.3f}{between}",
            RULES[self.rule].title: f"gamma = {self.gamma:.3f}{second}; probabilities at temperature "
            f"{self.temperature:.2f}",
        }

    def __str__(self) -> str:
        (scoring, score), (gain, gained), (rule, strength) = self.facts().items()
        width = max(5, *(len(name) for name in self.names))
        rows = [
            f"{name:{width}}  {n:>16g}  {_percent(before):>17}  {_percent(after):>6}"
            for name, n, before, after in zip(self.names, self.counts, self.recall_as_trained, self.recall, strict=True)
        ]
        return "\n".join(
            [
                f"{scoring} {score}",
                f"{gain} {gained}",
                f"{rule}, {strength}",
                *([self.why] if self.why else []),
                f"{'class':{width}}  training samples  recall as trained  recall",
                *rows,
                *(f"doubt: {line}" for line in self.doubts),
            ]
        )

    def __repr__(self) -> str:
        return f"LevelSummary({'; '.join(f'{title} {words}' for title, words in self.facts().items())})"

    def _repr_html_(self) -> str:
        classes = {
            f"recall of {name} (n = {n:g})": f"{_percent(before)} -> {_percent(after)}"
            for name, n, before, after in zip(self.names, self.counts, self.recall_as_trained, self.recall, strict=True)
        }
        why = {"why": self.why} if self.why else {}
        return html(
            "LevelSummary", {**self.facts(), **why, **classes}, notes=[f"doubt: {line}" for line in self.doubts]
        )


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:.1f} %"
