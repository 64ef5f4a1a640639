"""A classifier that was tuned on its out-of-fold scores: how it applies the choice, and what it says about it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..choice.tuned import Tuned
from ..core.measure import recall
from ..heads.sklearn import innermost
from ..rules.rule import RULES
from ._base_classifier import BaseRescaledClassifier, class_parts
from ._choice import ExactChoice
from ._folds import ScoredFold, pool_labels, pool_scores
from ._scorers import scorer_name
from .summary import LevelSummary


class OutOfFoldClassifier(BaseRescaledClassifier):
    """What is known once rule and strength are chosen. `_fit` of a subclass sets the attributes."""

    scoring: Any
    best_gamma_: float
    best_score_: float
    temperature_: float
    tuned_: Tuned | None  # of the exact path; None for other scorers
    _exact: ExactChoice | None
    _folds: list[ScoredFold]
    _score_at_zero: float
    _doubts: tuple[str, ...]

    @property
    def _temperature(self) -> float:
        return self.temperature_

    def _parts_for(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and offset [K] of what was chosen, for a model trained on these counts."""
        tuned = self.tuned_
        if tuned is not None and not RULES[tuned.rule].follows_counts:
            return np.array(tuned.scale), np.array(tuned.offset)
        second = 0.0 if tuned is None or tuned.second is None else tuned.second
        return class_parts(self.rule_, counts, self.best_gamma_, second)

    @property
    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        return self._parts_for(self.counts_)

    def _class_scores(self, X: Any) -> np.ndarray:
        return self._smoothed(super()._class_scores(X))

    def _smoothed(self, scores: np.ndarray) -> np.ndarray:
        """Return the logarithms of probabilities with what the rule `vector` adds to these first."""
        more = 0.0 if self.tuned_ is None else self.tuned_.smoothing
        return np.logaddexp(scores, np.log(more)) if more else scores

    @property
    def summary_(self) -> LevelSummary:
        """What leveling did on the out-of-fold samples: score, gain with its interval, every class, rule, doubts.

        The bootstrap behind the interval takes longer than the choice, so it is made when first asked for.
        """
        check_is_fitted(self, "estimator_")
        if self._exact is not None and self.tuned_ is not None and self.tuned_.gain_interval is None:
            self.tuned_ = self._exact.tune(self._folds, intervals=True)
        tuned, labels = self.tuned_, pool_labels(self._folds)
        before, after = (recall(pool_scores(self._folds, adjust), labels) for adjust in (None, self._parts_for))
        doubts = self._doubts
        if tuned is not None and (verdict := tuned.facts().get("verdict")):
            doubts = (*doubts, verdict)
        return LevelSummary(
            scoring=scorer_name(self.scoring),
            score_as_trained=self._score_at_zero,
            score=self.best_score_,
            gain=self.best_score_ - self._score_at_zero if tuned is None else cast(float, tuned.gain),
            gain_interval=None if tuned is None else tuned.gain_interval,
            rule=self.rule_,
            gamma=self.best_gamma_,
            second=None if tuned is None else tuned.second,
            temperature=self.temperature_,
            n=len(labels),
            names=tuple(str(label) for label in self.classes_),
            counts=self.counts_,
            recall_as_trained=before,
            recall=after,
            why="" if tuned is None else tuned.why,
            doubts=doubts,
        )

    def report(self, path: str | Path) -> Path:
        """Write a page about what leveling did on the out-of-fold samples: the curve, every class, the confusions.

        Args:
            path: an .html file.

        Returns:
            The path of the page.
        """
        from ..report import of_logits, write  # the page stands above the estimators, and is loaded for this alone

        summary, tuned = self.summary_, self.tuned_
        scored = {"gamma": self.best_gamma_, "rule": self.rule_, "chosen_on": "out-of-fold"}  # by another scorer
        subject = of_logits(
            pool_scores(self._folds),
            pool_labels(self._folds),
            self.counts_,
            tuned=scored if tuned is None else tuned,
            names=summary.names,
            samples="out-of-fold",
            title=type(innermost(self.estimator)).__name__,
            facts={"estimator": repr(self.estimator)},
        )
        return write(path, [replace(subject, fitted=type(self).__name__)])
