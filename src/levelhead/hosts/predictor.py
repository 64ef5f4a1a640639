"""Any function that gives scores, with them adjusted: native boosters, ONNX sessions, a service behind an address."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..choice.tune import tune
from ..choice.tuned import Tuned
from ..choice.tuned_json import counts_for, tuned_of
from ..core.counts import Counts
from ..core.rules import AUTO, RULES, Strengths
from ..support.arrays import check_logits, log_softmax
from ..support.errors import Advice, LevelheadError, check_choice
from ..support.types import Kind, Metric


class RescaledPredictor:
    """A trained model as a function, whose scores are adjusted by what is tuned on held-out data.

    Probabilities can be shifted but not scaled: ``log p_k + gamma log(n_1 / n_k)``, or with an offset for each class.
    Logits (`kind`) can be both. The function is called for each prediction, and nothing else of the model is known.

    Args:
        predict_proba: a function of X: probabilities [N, K], or [N] of the second of two classes; or logits.
        counts: training samples of each class, in the order of the columns; with labels that have names, {label: n}.
        tuned: what `levelhead.tune` returned for these scores, or the path of a tuned.json, instead of `fit`.
        classes: [K], the labels in the order of the columns; 0 to K - 1 if not given.
        kind: what the function gives, `probabilities` or `logits`.

    Attributes:
        tuned_: the choice, with its gain and the interval of it; `tuned_.worthwhile` says whether the gain is certain.

    >>> def predict_proba(x):  # a model that has seen the first class ten times as often as the second
    ...     return 1 / (1 + np.exp(2.3 - 3 * np.asarray(x)))
    >>> x, y = np.linspace(-2, 3, 200), np.arange(200) >= 80  # the second class begins at 0
    >>> model = RescaledPredictor(predict_proba, counts=[1000, 100]).fit(x, y.astype(int))
    >>> float((predict_proba(x) > 0.5)[y].mean()), float(model.predict(x)[y].mean())
    (0.74..., 1.0)
    """

    def __init__(
        self,
        predict_proba: Callable[[Any], Any],
        *,
        counts: Counts | None = None,
        tuned: Tuned | str | Path | None = None,
        classes: Sequence[Any] | None = None,
        kind: Kind = "probabilities",
    ) -> None:
        check_choice("kind", kind, ("probabilities", "logits"))
        if not callable(predict_proba):
            reason = f"expected a function of X, got {type(predict_proba).__name__}"
            raise LevelheadError(reason, parameter="predict_proba")
        if (counts is None) == (tuned is None):
            raise LevelheadError(
                "expected counts, to tune with, or what was tuned already; give one of them"
            )
        self._scores_of, self.counts, self.classes = predict_proba, counts, classes
        self.kind: Kind = kind
        choice = None if tuned is None else tuned_of(tuned)
        if choice and choice.kind == "logits" != kind and RULES[choice.rule].multiplies:
            reason = f"the rule {choice.rule} was chosen on logits, and multiplies those"
            raise LevelheadError(
                f"{reason}; give a function of logits and set kind to 'logits'", parameter="tuned"
            )
        self.tuned_ = tuned

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        metric: Metric = "balanced_error",
        rule: str = AUTO,
        bootstrap: int = 500,
        rng: np.random.Generator | int = 0,
    ) -> "RescaledPredictor":
        """Tune on samples that the model was not trained on, with options of `levelhead.tune`; return the predictor.

        X is what the function takes, and y labels [N]: column numbers, or those in `classes`.
        """
        if self.counts is None:
            raise LevelheadError(
                "it was given what was tuned already", advice=Advice("counts", None, "to tune here")
            )
        scores, labels, names = self._scores(X), np.asarray(y), None
        if self.classes is not None:
            names = [str(label) for label in self.classes]
            places = {label: i for i, label in enumerate(np.asarray(self.classes).tolist())}
            if unknown := sorted(set(labels.tolist()) - set(places), key=str):
                raise LevelheadError(
                    f"{unknown[0]!r} is none of the classes {list(places)}", parameter="y"
                )
            labels = np.array([places[label] for label in labels.tolist()])
        given = {"metric": metric, "rule": rule, "bootstrap": bootstrap, "rng": rng, "names": names}
        self.tuned_ = tune(scores, labels, self.counts, **given, kind=self.kind)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the adjusted scores, [N, K]."""
        if self.tuned_ is None:
            raise LevelheadError("it is not tuned yet; call fit(X, y) with held-out samples first")
        scores, choice = check_logits(self._scores(X), kind=self.kind), tuned_of(self.tuned_)
        counts = counts_for(
            replace(choice, kind=None), scores.shape[1], None, "the function"
        )  # scores, not a head
        chosen = Strengths(
            choice.gamma, scale=choice.scale, offset=choice.offset, smoothing=choice.smoothing
        )
        return RULES[choice.rule].on_scores(counts, chosen).scores(scores)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of the largest adjusted score, [N]."""
        best = self.decision_function(X).argmax(axis=1)
        return best if self.classes is None else np.asarray(self.classes)[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the softmax of the adjusted scores, over the temperature if one was tuned, [N, K]."""
        scores = self.decision_function(X)
        return np.exp(log_softmax(scores / (tuned_of(self.tuned_).temperature or 1.0)))  # type: ignore[arg-type]

    def _scores(self, X: Any) -> np.ndarray:
        """Return what the function gives, [N, K]: [N] is of the second of two classes."""
        values = np.asarray(self._scores_of(X))
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim == 1:
            first = 1 - values if self.kind == "probabilities" else np.zeros_like(values)
            values = np.stack([first, values], axis=1)
        known = values.shape[1] if self.classes is None else len(self.classes)
        if values.ndim != 2 or values.shape[1] != known:
            expected = f"expected [N, {known}] of the function, a column for each class"
            raise LevelheadError(f"{expected}, got {list(values.shape)}")
        return values
