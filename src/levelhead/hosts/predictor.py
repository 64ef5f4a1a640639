"""Any function that gives scores, with them adjusted: native boosters, ONNX sessions, services.

A prediction takes three steps: `_scores` calls the function and checks what it gives, [N, K]; `Tuned.apply` adjusts
that; the largest is the class. Of one column, the second of two classes, the first is made.

It is for whatever is no scikit-learn classifier and no torch model: `xgboost.Booster.predict`, the `run` of an ONNX
session, a call of a service. So nothing but the function is asked, and what it gives is checked every time, as another
version of the model may give something else.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..core.class_labels import are_names
from ..core.class_names import are_numbers, as_names, check_titles, listed, names_of_columns
from ..core.counts import Counts
from ..core.goal import Goal
from ..core.metrics import Metric
from ..core.rules import DEFAULT, Rule
from ..core.tune import tune
from ..core.tuned import Tuned, tuned_of
from ..core.tuned_checks import check_classes
from ..support.arrays import Array, as_they_stand, to_numpy
from ..support.columns import titles_of
from ..support.errors import LevelheadError, check_choice, named
from ..support.logits import log_softmax
from ..support.types import Kind
from ._labels import ClassLabels, by_name, counts_by_name, encode_labels, names_of

# Whatever the function takes, and a model with `predict_proba`: nothing else is known of either.
FunctionInputs: TypeAlias = Any
Predictor: TypeAlias = Any


class AdjustedPredictor:
    """A trained model as a function, whose scores are adjusted by what was tuned on held-out data.

    The function is called for each prediction, and nothing else of the model is known.

    Args:
        predict: a function of X that gives scores [N, K], or [N] of the second of two classes; or a
            model with `predict_proba`.
        tuned: what `levelhead.tune` returned for such scores, or the path of a tuned.json; without
            it, `fit` tunes.
        classes: [K], the labels in the order of the columns; if not given, the `classes_` of a model
            that has some, or 0 to K - 1.
        kind: what the function gives, `probabilities` or `logits`; if not given, what was tuned on,
            or `probabilities`.

    Attributes:
        tuned_: the `levelhead.Tuned`; `tuned_.worthwhile` says whether to use it.

    >>> def predict_proba(x):  # a model that has seen the first class ten times as often
    ...     return 1 / (1 + np.exp(2.3 - 3 * np.asarray(x)))
    >>> x, y = np.linspace(-2, 3, 200), np.arange(200) >= 80  # the second class begins at 0
    >>> model = AdjustedPredictor(predict_proba).fit(x, y.astype(int), counts=[1000, 100])
    >>> before, after = (predict_proba(x) > 0.5)[y].mean(), model.predict(x)[y].mean()
    >>> bool(before < 0.8), bool(after > 0.95)
    (True, True)
    """

    def __init__(
        self,
        predict: Callable[[FunctionInputs], ArrayLike] | Predictor,
        tuned: Tuned | str | Path | None = None,
        *,
        classes: ClassLabels | None = None,
        kind: Kind | None = None,
    ) -> None:
        if kind is not None:
            check_choice("kind", kind, ("probabilities", "logits"))
        if hasattr(predict, "predict_proba"):
            classes = _classes_of(predict, classes)
            predict = predict.predict_proba
            kind = "probabilities" if kind is None else kind
        if classes is not None:
            with named("classes"):
                as_names(np.asarray(classes).tolist())
        if not callable(predict):
            reason = f"expected a function of X, or a model with predict_proba, got {predict!r}"
            raise LevelheadError(reason, parameter="predict")
        self._scores_of = predict
        self._kind: Kind | None = kind
        self.classes = classes
        self._gave_two_columns = False
        self.tuned_: Tuned | None = None
        if tuned is not None:
            self.tuned_ = self._check_tuned(tuned_of(tuned))

    @property
    def kind(self) -> Kind:
        """What the function gives: as it was said, as it was tuned, or else `probabilities`."""
        if self._kind is not None:
            return self._kind
        if self.tuned_ is None:
            return "probabilities"
        return self.tuned_.kind

    def _check_tuned(self, tuned: Tuned) -> Tuned:
        """Return a choice, after checking that it is for what the function gives.

        Logits and log-probabilities are the same to it: both are added to, and neither takes a logarithm first.
        """
        if tuned.multilabel:
            reason = "several labels per sample were tuned, and a predictor gives one class"
            raise LevelheadError(f"{reason}; use tuned.apply(scores) > 0", parameter="tuned")
        of_probabilities = tuned.kind == "probabilities"
        if self._kind is not None and of_probabilities != (self._kind == "probabilities"):
            reason = f"it was tuned on {tuned.kind}, and the function gives {self._kind}"
            raise LevelheadError(f"{reason}; tune on what it gives", parameter="tuned")
        if self.classes is not None:
            check_classes(tuned, len(self.classes), names_of(self.classes), "the function")
        return tuned

    def fit(
        self,
        X: FunctionInputs,
        y: ArrayLike,
        *,
        counts: Counts | None = None,
        metric: str | Metric | Goal = "balanced_error",
        rule: str | Rule = DEFAULT,
        target: Array | None = None,
        rng: np.random.Generator | int = 0,
    ) -> "AdjustedPredictor":
        """Tune on samples that the model was not trained on; return the predictor.

        Args:
            X: what the function takes.
            y: [N], column numbers, or labels in `classes`.
            counts: training samples of each class, in the order of the columns, or {label: n}.
            metric, rule, target, rng: as in `levelhead.tune`.

        Raises:
            LevelheadError: scores of another shape, labels that are no class, what `tune` refuses.
        """
        # Labels, counts and targets by label become positions and names, as `tune` has them.
        raw_scores = self._scores_of(X)
        values = self._in_class_order(raw_scores)
        self._gave_two_columns = values.ndim == 2 and values.shape[1] == 2
        scores = self._in_columns(values, None, X)
        if self.classes is None:
            names = _titles(raw_scores, counts)
            if are_names(y):
                instead = (
                    "pass classes, the labels in the order of the columns, to AdjustedPredictor"
                )
                raise LevelheadError(
                    f"expected column numbers, got names; {instead}", parameter="y"
                )
        else:
            y = encode_labels(y, self.classes)
            names = names_of(self.classes)
            counts = counts_by_name(counts, self.classes)
            target = by_name(target, self.classes, "target")
        kind = "logits"
        if self.kind != "log-probabilities":
            kind = self.kind
        self.tuned_ = tune(
            scores,
            y,
            counts,
            metric=metric,
            rule=rule,
            target=target,
            names=names,
            kind=kind,
            rng=rng,
        )
        return self

    def decision_function(self, X: FunctionInputs) -> np.ndarray:
        """Return the adjusted scores, [N, K]; of a single row [K] that the function gives, [K].

        Args:
            X: whatever the function takes.
        """
        tuned = self._tuned()
        values = self._in_class_order(self._scores_of(X))
        return np.asarray(tuned.apply(self._in_columns(values, tuned.classes, X)))

    def predict(self, X: FunctionInputs) -> np.ndarray:
        """Return the class of the largest adjusted score, [N].

        Args:
            X: whatever the function takes.
        """
        best = self.decision_function(X).argmax(axis=-1)
        if self.classes is None:
            return best
        return np.asarray(self.classes)[best]

    def predict_proba(self, X: FunctionInputs) -> np.ndarray:
        """Return the softmax of the adjusted scores, over the temperature if one is known, [N, K].

        They are for classes as the metric weighs them: for balanced error, as if all were equally frequent.

        Args:
            X: whatever the function takes.
        """
        scores = self.decision_function(X)
        temperature = self._tuned().temperature or 1.0
        rows = np.atleast_2d(scores) / temperature
        return np.exp(log_softmax(rows)).reshape(scores.shape)

    def _tuned(self) -> Tuned:
        """Return the choice; raise LevelheadError if there is none yet."""
        if self.tuned_ is None:
            raise LevelheadError("it is not tuned yet; call fit(X, y) with held-out samples first")
        return self.tuned_

    def _in_columns(
        self, values: np.ndarray, tuned_classes: int | None, X: FunctionInputs
    ) -> np.ndarray:
        """Return what the function gives as [N, K]: [N] is of the second of two classes.

        A booster gives [N] of two classes. A service may give a single row [K], which must not be taken for K samples
        of two classes: where more than two classes are known, [K] stays a row. So does a pair of numbers, if it is
        of one sample or the function gave two columns when it was fitted.

        Args:
            values: what the function gave, in the order of the classes.
            tuned_classes: K of what was tuned; None if it is still to be.
            X: what the function took.

        Raises:
            LevelheadError: another number of columns than classes.
        """
        is_row = values.shape == (2,) and (self._gave_two_columns or _is_one_sample(X))
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        expected_classes = tuned_classes
        if self.classes is not None:
            expected_classes = len(self.classes)
        if values.ndim == 1 and expected_classes in (None, 2) and not is_row:
            if self.kind == "probabilities":
                first = 1 - values
            elif self.kind == "log-probabilities":
                # Of a probability of 1, or above.
                with np.errstate(divide="ignore", invalid="ignore"):
                    first = np.log(-np.expm1(values))
            else:
                first = np.zeros_like(values)
            values = np.stack([first, values], axis=1)
        if values.ndim == 0 or (
            expected_classes is not None and values.shape[-1] != expected_classes
        ):
            columns = "a column for each class"
            if expected_classes is not None:
                columns = f"{expected_classes} columns"
            expected = f"expected scores [N, K] of the function, {columns}"
            raise LevelheadError(f"{expected}, got {list(values.shape)}")
        return values

    def _in_class_order(self, scores: object) -> np.ndarray:
        """Return scores as an array, with the columns of a data frame in the order of the classes.

        Raises:
            LevelheadError: a frame's columns are titled with the classes, in another order.
        """
        names = None
        if self.classes is not None:
            names = names_of(self.classes)
        elif self.tuned_ is not None and self.tuned_.names is not None:
            names = list(self.tuned_.names)
        if names is not None:
            titles = titles_of(scores)
            # Classes that are numbers may be known as texts, and sorted so: 1, 10, 2.
            if titles is not None and [str(title) for title in titles] == names:
                return as_they_stand(scores)
            check_titles(scores, names)
        return to_numpy(scores)


def _is_one_sample(X: FunctionInputs) -> bool:
    """Return whether X is known to be one sample: a text, or an array, a frame or a list of one row."""
    if isinstance(X, str):
        return True
    shape = getattr(X, "shape", None)
    if shape is None and isinstance(X, list | tuple):
        shape = (len(X),)
    return bool(shape) and shape[0] == 1


def _titles(scores: object, counts: Counts | None) -> list[str] | None:
    """Return the words that a data frame's columns are titled with, as names of the classes, or None.

    Numbers are no names here: without classes of their own, labels are column numbers.
    """
    names = names_of_columns(scores, counts)
    if names is None or are_numbers(names):
        return None
    return list(names)


def _classes_of(model: Predictor, classes: ClassLabels | None) -> ClassLabels | None:
    """Return the labels that a model knows, in the order of its columns, or those given.

    Raises:
        LevelheadError: those given are the model's, in another order than its columns.
    """
    of_model = getattr(model, "classes_", None)
    if of_model is None or np.ndim(of_model) != 1:
        return classes
    if classes is None:
        return of_model
    # Other names for the same columns are fine; the same names in another order are a mistake.
    names = names_of(classes)
    names_in_model = names_of(of_model)
    if names != names_in_model and sorted(names) == sorted(names_in_model):
        order = f"{type(model).__name__} has them in another order ({listed(names_in_model)})"
        raise LevelheadError(f"{order}; leave them out", parameter="classes")
    return classes
