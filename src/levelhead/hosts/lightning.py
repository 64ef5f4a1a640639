"""Lightning trainers wearing WVN and RS: two thin callbacks.

``Trainer(callbacks=[WVNCallback("model.fc"), RescaleCallback(counts, gamma=0.5, layer="model.fc")])``
"""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer

from ..core.counts import Counts
from ..heads.torch import Adjusted
from ._callback import RescaleOnce, attach
from .torch import WVN, Order


class WVNCallback(Callback):
    """Keep the head's weight vectors at unit length through `fit`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    accumulated batches and mixed precision included. Nothing is left behind when training ends or fails.

    Args:
        layer: path of the head within the LightningModule, such as "model.fc", if it is not found or not unique.
        order: `algorithm` (after the step) or `released` (before it, as the authors' code does).

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, Algorithm 1.
    """

    order: Order
    hook: WVN | None

    def __init__(self, layer: str | None = None, *, order: Order = "algorithm") -> None:
        self.layer, self.order, self.hook = layer, order, None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._remove()
        self.hook = attach(pl_module, trainer.optimizers, layer=self.layer, order=self.order)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._remove()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._remove()

    def _remove(self) -> None:
        if self.hook is not None:
            self.hook.remove()
        self.hook = None


class RescaleCallback(Callback):
    """Rescale the head once, when `fit` has ended: ``w_i <- (n_1 / n_i)^gamma w_i``.

    It comes after every checkpoint of the fit: those hold the head as it was trained, so that training can go on from
    them, and `trainer.test(ckpt_path="best")` tests the head before RS. The module in memory, and whatever is saved of
    it from then on (`trainer.save_checkpoint`), has the leveled head. A next `fit` starts from the head before RS.
    Counts or a layer that do not fit are an error before the first step.

    Args:
        counts: training samples of each class: a list, {class: n}, or labels to be counted.
        gamma: strength, chosen on held-out data (`levelhead.tune`), never on test data.
        layer: path of the head within the LightningModule, if it is not found or not unique.

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """

    def __init__(self, counts: Counts, gamma: float, *, layer: str | None = None) -> None:
        self._once = RescaleOnce(counts, gamma, layer=layer)

    @property
    def adjusted(self) -> Adjusted | None:
        """What was done to the head, with `restore()`; None before the end of a fit."""
        return self._once.adjusted

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._once.take_back()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._once.check(pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._once.apply(pl_module)
