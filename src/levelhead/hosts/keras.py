"""WVN and adjusting the head as Keras callbacks, on any backend of Keras 3 that can fit; tested on torch and JAX.

``model.fit(x, y, callbacks=[WVNCallback(), LevelCallback("tuned.json")])``
"""

from pathlib import Path
from typing import Any

from ..choice.tuned import Tuned
from ..core.adjust import normalize
from ..core.counts import Counts
from ..core.rules import Rescale, Shift
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing

with naming_what_is_missing():
    from keras.callbacks import Callback

    from ..heads.adjusted import Adjusted
    from ..heads.apply import adjust_, check_adjust, check_rescale, rescale_
    from ..heads.keras import KerasModel, normalize_columns


class WVNCallback(Callback):
    """Keep the head's weight vectors, the columns of its kernel, at unit length through `fit`: Algorithm 1.

    ``w_i <- w_i / ||w_i||``, once when training starts and then after every step. The bias is left alone. Keras reports
    steps one by one unless the model is compiled with `steps_per_execution` above 1, which is refused.

    Args:
        layer: name of the head, such as "predictions", if it is not found or not unique.
        classes, example: K and an input of the model: they tell the head from other layers.
    """

    def __init__(
        self, layer: str | None = None, *, classes: int | None = None, example: Any = None
    ) -> None:
        super().__init__()
        self.layer, self.classes, self.example = layer, classes, example
        self._layers: dict[str, Any] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        if (steps := getattr(self.model, "steps_per_execution", 1)) != 1:
            raise LevelheadError(
                f"expected steps_per_execution=1, to follow every step, got {steps}; compile with it"
            )
        opened = KerasModel(self.model)
        self._layers = dict(
            opened.find(layer=self.layer, example=self.example, classes=self.classes)
        )
        for path, one in self._layers.items():
            try:  # a column that is zero, NaN or infinite has no direction
                normalize(opened.head(one, None))
            except ValueError as error:
                raise LevelheadError(f"cannot normalize {path}: {error}") from None
        self.on_train_batch_end(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        getattr(
            self.model, "jax_state_sync", lambda: None
        )()  # JAX keeps the weights of a step elsewhere
        for one in self._layers.values():
            normalize_columns(one)

    def on_train_end(self, logs: Any = None) -> None:
        self._layers = {}


class LevelCallback(Callback):
    """Adjust the head once, when `fit` has ended, by what was tuned: its rule, strength and counts, as `adjust_` does.

    Checkpoints of the fit hold the head as it was trained. The model in memory, and what is saved of it from then on,
    has the adjusted head. The next `fit` starts from the head as trained, unless its weights were loaded or changed
    since. A choice or a layer that does not fit the model is an error before the first step. Give it last: a callback
    that restores weights when training ends (`EarlyStopping`) must come before.

    Args:
        tuned: what `levelhead.tune` returned for a model like this one, or the path of a tuned.json; of any rule.
        layer: name of the head, if it is not found or not unique.

    Attributes:
        adjusted: what was done to the head, with `restore()`; None before the end of a training.
    """

    def __init__(self, tuned: Tuned | str | Path, *, layer: str | None = None) -> None:
        super().__init__()
        self.tuned, self.layer = tuned, layer
        self.adjusted: Adjusted | None = None
        self._written: list[str] = []

    def on_train_begin(self, logs: Any = None) -> None:
        if self.adjusted is not None and self._written == self._states():
            self.adjusted.restore()
        self.adjusted = None
        self._check_head()

    def on_train_end(self, logs: Any = None) -> None:
        self.adjusted = self._adjust_head()
        self._written = self._states()

    def _states(self) -> list[str]:
        opened = KerasModel(self.model)
        classes = None if self.adjusted is None else len(next(iter(self.adjusted.before.values())))
        found = opened.find(layer=self.layer, classes=classes)
        return [
            opened.state(one, rule)[0]
            for one in found.values()
            for rule in (Rescale.name, Shift.name)
        ]

    def _check_head(self) -> None:
        check_adjust(self.model, self.tuned, layer=self.layer)

    def _adjust_head(self) -> Adjusted:
        return adjust_(self.model, self.tuned, layer=self.layer)


class RescaleCallback(LevelCallback):
    """Rescale the head once, when `fit` has ended: ``w_i <- (n_1 / n_i)^gamma w_i``. Otherwise as `LevelCallback`.

    Its arguments are those of `levelhead.hosts.lightning.RescaleCallback`.
    """

    def __init__(self, counts: Counts, gamma: float | Tuned, *, layer: str | None = None) -> None:
        super().__init__("", layer=layer)
        self.counts, self.gamma = counts, gamma

    def _check_head(self) -> None:
        check_rescale(self.model, self.counts, gamma=self.gamma, layer=self.layer)

    def _adjust_head(self) -> Adjusted:
        return rescale_(self.model, self.counts, gamma=self.gamma, layer=self.layer)
