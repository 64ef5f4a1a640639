"""WVN and adjusting the head as Keras callbacks, on any backend of Keras 3 that can fit.

``model.fit(x, y, callbacks=[WVNCallback(), AdjustCallback(validation=(x_val, y_val))])``

Keras does not tell a callback of its validation data, so `AdjustCallback` is given them. Else it does what those of
torch's trainers do (`_adjust_callback.py`): refuse early, tune when training has ended, adjust if that is worthwhile,
and start the next fit from the head as it was trained.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..core.class_labels import are_names
from ..core.counts import Counts, resolve
from ..core.goal import Goal
from ..core.head import normalize
from ..core.metrics import Metric
from ..core.rules import Rule, default_rule, find_rule
from ..core.samples import Given
from ..core.tune import tune
from ..core.tuned import Tuned
from ..support.arrays import to_numpy
from ..support.errors import LevelheadError, named
from ..support.extras import naming_what_is_missing
from ..support.logits import looks_like_probabilities
from ..support.types import Kind
from ..support.warnings import LevelheadWarning, warn

with naming_what_is_missing():
    from keras import Model, tree
    from keras.callbacks import Callback

    from ..heads.adjust import adjust_
    from ..heads.adjusted import Adjusted
    from ..heads.candidates import Example
    from ..heads.keras import KerasModel, normalize_columns
    from ..heads.keras_find import KerasLayer
    from ._given_choice import Choice, check_given, check_rule_fits, find_by_counts, own_advice

_LEAST = 1e-37  # near the least normal number of float32
Logs: TypeAlias = Mapping[str, float] | None  # numbers of an epoch or a step, which Keras passes
KerasInputs: TypeAlias = Any  # what `model.predict` takes: an array, a list of them, a data set


class _Outputs(NamedTuple):
    """What a model gives of samples."""

    scores: np.ndarray  # [N, K]
    kind: Kind


class WVNCallback(Callback):
    """Keep the head's weight vectors, the columns of its kernel, at unit length through `fit`: Algorithm 1.

    ``w_i <- w_i / ||w_i||``, once when training starts, then after every step, and once when it ends, as an optimizer
    with `use_ema` leaves averages, which are shorter. The bias is left alone. Keras reports steps one by one unless the
    model is compiled with `steps_per_execution` above 1, which is refused.

    Args:
        layer: name of the head, such as "predictions", if it is not found or not unique.
        classes, example: K and an input of the model: they tell the head from other layers.

    Raises:
        LevelheadError: when training starts: several steps per execution, no head or several, or a column without a
            direction (zero, NaN or infinite).

    Example:
        ``model.fit(x, y, callbacks=[WVNCallback()])``
    """

    def __init__(
        self, layer: str | None = None, *, classes: int | None = None, example: Example = None
    ) -> None:
        super().__init__()
        self.layer = layer
        self.classes = classes
        self.example = example
        self._layers: dict[str, KerasLayer] = {}  # the head's, while it is trained

    def on_train_begin(self, logs: Logs = None) -> None:
        """Find the head, check that each column has a direction, and normalize it for the first time."""
        steps = getattr(self.model, "steps_per_execution", 1)
        if steps != 1:
            raise LevelheadError(
                f"expected steps_per_execution=1, to follow every step, got {steps}; compile with it"
            )
        opened = KerasModel(self.model)
        self._layers = dict(
            opened.find(layer=self.layer, example=self.example, classes=self.classes)
        )
        for path, layer in self._layers.items():
            # A column that is zero, NaN or infinite has no direction.
            try:
                normalize(opened.head(layer, None))
            except ValueError as error:
                raise LevelheadError(f"cannot normalize {path}: {error}") from None
        self.on_train_batch_end(0)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Normalize after a step: `fit` calls it with the number of the batch, which does not matter."""
        # On JAX, the weights of a step are not in the layers until they are asked for.
        getattr(self.model, "jax_state_sync", lambda: None)()
        for layer in self._layers.values():
            normalize_columns(layer)

    def on_train_end(self, logs: Logs = None) -> None:
        """Normalize what the fit leaves, and forget the layers: the next training may be one of another model."""
        # An optimizer with `use_ema` has put the averages of the weights in their place by now.
        self.on_train_batch_end(0)
        self._layers = {}


class AdjustCallback(Callback):
    """Adjust the head once, when `fit` has ended: tuned on validation data, or as you say.

    Checkpoints of the fit hold the head as it was trained. The model in memory, and what is saved
    of it from then on, has the adjusted head. The next `fit` starts from the head as trained,
    unless its weights were loaded or changed since. What does not fit the model is an error before
    the first step. Give it last: a callback that restores weights when training ends
    (`EarlyStopping`) must come before.

    Args:
        by: what `levelhead.tune` returned for a model like this one, or the path of a tuned.json; or
            a rule with a strength, such as ``lh.rules.Rescale(0.5)``, which needs counts. None, to
            tune on `validation`.
        validation: (x, y), held-out samples as `model.predict` takes them and their classes [N]; what
            is tuned on them is applied if it is worthwhile, and a line on stderr says so. Beside `by`,
            (x, None) where something is added to a head without a bias: x shows which direction of
            what the head takes is always near 1, and offsets go into the kernel along it.
        counts: training samples of each class.
        layer: name of the head, if it is not found or not unique.
        rule: to tune, as in `levelhead.tune`; `offsets`, which a head without a bias takes into its
            weights, or `scales` where it cannot.
        metric: to tune, as in `levelhead.tune`: a name, a `Metric` or a `Goal`.
        anyway: adjust also where no gain was seen.

    Attributes:
        adjusted: what was done to the head, with `restore()`; None if nothing was.
        tuned: what was tuned on the validation data.
        verdict: both in words.

    Example:
        ``model.fit(x, y, callbacks=[AdjustCallback(validation=(held_out, classes))])``
    """

    def __init__(
        self,
        by: Choice | None = None,
        *,
        validation: tuple[KerasInputs, ArrayLike | None] | None = None,
        counts: Counts | None = None,
        layer: str | None = None,
        rule: str | Rule | None = None,
        metric: str | Metric | Goal = "balanced_error",
        anyway: bool = False,
    ) -> None:
        super().__init__()
        if by is None and validation is None:
            either = "what was tuned, a rule with a strength, or validation data to tune on"
            raise LevelheadError(f"expected one of these: {either}", parameter="by")
        if validation is not None and (
            not isinstance(validation, Sequence) or len(validation) != 2
        ):
            got = type(validation).__name__
            raise LevelheadError(f"expected (x, y), got {got}", parameter="validation")
        self.by = by
        self.validation = validation
        self.counts = counts
        self.layer = layer
        self.rule = None if rule is None else find_rule(rule)
        self.metric = Goal.of(metric)
        self.anyway = anyway
        self.adjusted: Adjusted | None = None
        self.tuned: Tuned | None = None
        self.verdict: str | None = None
        self._needs_features = False  # whether `by` adds to a head without a bias
        self._features: np.ndarray | None = None  # [N, d], what a head without a bias takes
        self._written: list[str] = []  # the states of the head after it was adjusted

    def on_train_begin(self, logs: Logs = None) -> None:
        """Undo an earlier adjustment, and refuse what does not fit before the first step."""
        if self.adjusted is not None and self._written == self._states():
            self.adjusted.restore()
        self.adjusted = None
        self.tuned = None
        self.verdict = None
        if self.by is None:
            self._check_tuning()
        else:
            self._check_given(self.by)

    def on_train_end(self, logs: Logs = None) -> None:
        """Adjust the head: by what was tuned before, or by what is tuned now on the validation data."""
        if self.by is not None:
            self._adjust_by(self.by)
        else:
            self._tune_and_adjust()
        if self.adjusted is not None:
            self._written = self._states()

    @own_advice()
    def _check_tuning(self) -> None:
        """Refuse what `_tune` would refuse after training: no head, a rule, counts or labels that do not fit.

        Scores are still to come. Zeros stand in for them: what is checked here of scores is how many there are.
        """
        assert self.validation is not None
        x, labels = self.validation
        if labels is None:
            raise LevelheadError("expected (x, y), got no labels y", parameter="validation")
        outputs = len(getattr(self.model, "outputs", None) or ())
        if outputs > 1:
            reason = f"to be tuned on, the model needs one output, and it has {outputs}"
            instead = "train without this, then tune on one with lh.tune and apply with lh.adjust_"
            raise LevelheadError(f"{reason}; {instead}", parameter="by")
        opened = KerasModel(self.model)
        layers = find_by_counts(opened, self.counts, layer=self.layer)
        check_rule_fits(opened, self.rule or default_rule(takes_bias=len(layers) == 1))
        classes = max(2, opened.facts.sizes[0])  # one output stands for two
        names = None
        if isinstance(self.counts, Mapping) and are_names(labels):
            names = [str(name) for name in self.counts]
        if self.counts is not None:
            with named("counts"):
                resolve(self.counts, classes, names=names)
        with named("validation"):
            shape = (*self._rows_of(x, labels), classes)
            Given.of(np.broadcast_to(0.0, shape), labels, self.counts, names=names)
        if self.rule is not None and self.rule.multiplies:
            self._check_kind(self.rule, x)

    def _rows_of(self, x: KerasInputs, labels: ArrayLike) -> tuple[int, ...]:
        """Return the shape of the scores without their classes: [N], or as of the labels where there are more axes.

        A data set does not say how many samples it has: then there are as many as labels.
        """
        outputs = getattr(self.model, "output_shape", None)
        of_positions = isinstance(outputs, tuple) and len(outputs) > 2  # tokens or pixels
        if of_positions:
            return np.shape(labels)
        if not _are_arrays(x):
            return (len(to_numpy(labels)),)
        return (len(tree.flatten(x)[0]),)

    def _check_kind(self, rule: Rule, x: KerasInputs) -> None:
        """Raise LevelheadError if a rule multiplies and the model ends in a softmax, as two samples tell."""
        if _are_arrays(x):
            some = tree.map_structure(lambda part: part[:2], x)
            rule.refuse_kind(_outputs_of(self.model, some).kind)

    @own_advice()
    def _check_given(self, by: Choice) -> None:
        """Check a choice that was made before, and that validation data are given exactly if it needs them.

        Data that would do nothing are refused, as the user may take the choice to be tuned on them.
        """
        no_evaluation = None
        if self.validation is None:
            no_evaluation = (
                "pass validation=(x, None), held-out samples as model.predict takes them"
            )
        self._needs_features = check_given(
            self.model,
            KerasModel(self.model),
            by,
            self.counts,
            layer=self.layer,
            no_evaluation=no_evaluation,
        )
        if self._needs_features:
            self._until_head()  # raises if the graph does not lead to the head
        elif self.validation is not None:
            used = "used beside by only where something is added to a head without a bias"
            raise LevelheadError(f"{used}; leave it out", parameter="validation")

    def _adjust_by(self, by: Choice) -> None:
        """Adjust by a choice that was made before; where that fails for what the head takes, it is a warning."""
        try:
            features = None
            if self._needs_features and self.validation is not None:
                features = self._head_inputs(self.validation[0])
            self.adjusted = adjust_(
                self.model, by, self.counts, layer=self.layer, features=features
            )
        except LevelheadError as error:
            if error.parameter != "features":
                raise
            self._leave_as_trained("it takes no offsets", error)

    def _tune_and_adjust(self) -> None:
        """Tune on the validation data, and adjust the head if that is worthwhile; say so in a line on stderr.

        What goes wrong is a warning: the training, which is not saved yet, must not be lost.
        """
        try:
            self.tuned = self._tune()
        except Exception as error:
            self._leave_as_trained("tuning on the validation data failed", error)
            return
        done = "not applied, as no gain was seen: the head stays as it was trained"
        if self.anyway or self.tuned.worthwhile is not False:
            features = self._features
            try:
                self.adjusted = adjust_(self.model, self.tuned, layer=self.layer, features=features)
            except LevelheadError as error:
                self._leave_as_trained("it does not take what was tuned", error)
                return
            done = f"applied to {', '.join(self.adjusted.layers)}"
        self.verdict = f"levelhead: {self.tuned}; {done}"
        print(self.verdict, file=sys.stderr)

    def _leave_as_trained(self, reason: str, error: Exception) -> None:
        """Warn that the head is not adjusted."""
        self.verdict = f"the head stays as it was trained, as {reason}: {error}"
        warn(self.verdict, LevelheadWarning)

    def _tune(self) -> Tuned:
        """Tune on what the model gives of the validation data: logits, or probabilities.

        Keras's models often end in a softmax; then the logarithms of its outputs are adjusted, and an offset to a
        logarithm is the same offset in the head's bias. Sets `_features` where the head has no bias.
        """
        assert self.validation is not None
        x, labels = self.validation
        scores, kind = _outputs_of(self.model, x)
        # All that the ways below have in common; they differ in the rule and in features.
        tune_by = partial(tune, scores, labels, self.counts, metric=self.metric, kind=kind)
        layers = list(self._layers().values())
        rule = self.rule or default_rule(takes_bias=len(layers) == 1)
        # Norms are those of one layer with a column for each class: a rule that needs them says so.
        if len(layers) == 1:
            weight_norms = to_numpy(KerasModel(self.model).head(layers[0]).norms)
            if len(weight_norms) == scores.shape[-1]:
                rule = rule.with_norms(weight_norms)
        self._features = None
        if not rule.adds or all(layer.bias is not None for layer in layers):
            return tune_by(rule=rule)
        # Offsets go into the weights, if what the head takes is known and has a direction that is 1.
        try:
            self._features = self._head_inputs(x)
            return tune_by(rule=rule, features=self._features)
        except LevelheadError as error:
            if self.rule is not None or error.parameter != "features":
                raise
            self._features = None
            scaled = "the head has no bias and takes no offsets, so it is scaled"
            warn(f"{scaled}: {error}", LevelheadWarning)
        return tune_by(rule=default_rule(takes_bias=False))

    def _head_inputs(self, x: KerasInputs) -> np.ndarray:
        """Return what the head takes of samples, [N, d]; raise where the graph of the model does not lead to it."""
        return np.asarray(self._until_head().predict(x, verbose=0))  # type: ignore[call-arg]

    def _until_head(self) -> Model:
        """Return the model up to its head, which gives what the head takes.

        Raises:
            LevelheadError: about `features`: several layers feed the output, the model has no graph (it is subclassed),
                or the head is within an inner model.
        """
        try:
            (head,) = self._layers().values()
            return Model(self.model.inputs, head.input)  # type: ignore[union-attr]
        except (AttributeError, ValueError):
            # Several layers feed the output, the model has no graph, or the layer is in an inner one.
            reason = "the graph of the model does not lead to what its head takes"
            raise LevelheadError(reason, parameter="features") from None

    def _layers(self) -> dict[str, KerasLayer]:
        return dict(KerasModel(self.model).find(layer=self.layer))

    def _states(self) -> list[str]:
        """Return what tells whether the head is as it was: a digest of each weight and bias.

        Keras counts no changes of a variable, as torch does. A head is small enough to be hashed when a fit begins.
        """
        opened = KerasModel(self.model)
        classes = None
        if self.adjusted is not None:
            classes = len(next(iter(self.adjusted.before.values())))
        layers = opened.find(layer=self.layer, classes=classes).values()
        states = []
        for layer in layers:
            for weights in (True, False):
                version, _ = opened.state(layer, weights=weights)
                states.append(version)
        return states


def _are_arrays(x: KerasInputs) -> bool:
    """Return whether inputs are arrays with a row for each sample, and no data set."""
    return all(getattr(part, "ndim", 0) > 0 for part in tree.flatten(x))


def _outputs_of(model: KerasLayer, x: KerasInputs) -> _Outputs:
    """Return what a model gives of samples, with a column for each class; one column z or p becomes two.

    Keras does not say whether outputs are logits or probabilities (the loss may or may not have `from_logits`), so the
    numbers themselves tell: rows within 0 and 1 that add up to 1.
    """
    outputs = to_numpy(model.predict(x, verbose=0))
    if outputs.ndim == 2 and outputs.shape[1] == 1:  # of the second of two classes
        if ((outputs >= 0) & (outputs <= 1)).all():
            second = _between(outputs)
            return _Outputs(np.concatenate([1 - second, second], axis=1), "probabilities")
        return _Outputs(np.concatenate([np.zeros_like(outputs), outputs], axis=1), "logits")
    if looks_like_probabilities(outputs.reshape(-1, outputs.shape[-1])):
        return _Outputs(_between(outputs), "probabilities")
    return _Outputs(outputs, "logits")


def _between(probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities with those that were rounded to 0 or 1 next to it.

    A softmax or a sigmoid gives neither. Taken as they are, zeros would be votes (`core.probabilities`), which no head
    can be adjusted for.
    """
    zero = probabilities.dtype.type(0)
    one = probabilities.dtype.type(1)
    least = max(float(np.nextafter(zero, one)), _LEAST)
    return np.clip(probabilities, least, float(np.nextafter(one, zero)))
