"""WVN and leveling as Lightning callbacks.

``Trainer(callbacks=[WVNCallback("model.fc"), LevelCallback("tuned.json", layer="model.fc")])``
"""

from ..core.extras import naming_what_is_missing

with naming_what_is_missing():
    from lightning.pytorch import Callback, LightningModule, Trainer

    from ._callback import BaseLevelCallback, BaseRescaleCallback, BaseWVNCallback


class WVNCallback(BaseWVNCallback, Callback):
    """Keep the head's weight vectors at unit length through `fit`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    also with accumulated batches and mixed precision. Nothing is left behind when training ends or fails.

    Args:
        layer: path of the head within the LightningModule, such as "model.fc", if it is not found or not unique.
        order: `algorithm` (after the step) or `released` (before it, as the authors' code does).
        classes, example: K and an input of the model, on its device: they tell the head from other layers.

    >>> WVNCallback("model.fc").order
    'algorithm'

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020, Algorithm 1.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._attach(pl_module, trainer.optimizers)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._remove()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._remove()


class LevelCallback(BaseLevelCallback, Callback):
    """Adjust the head once, when `fit` has ended, by what was tuned: its rule, strength and counts, as `adjust_` does.

    Checkpoints of the fit are written before. They hold the head as it was trained, so that training can resume from
    them, and `trainer.test(ckpt_path="best")` tests that head. The module in memory, and whatever is saved of it from
    then on (`trainer.save_checkpoint`), has the leveled head, with a bias where the rule needs one. The next `fit`
    starts from the head as trained. A choice or a layer that does not fit the model is an error before the first step.

    Args:
        tuned: what `levelhead.tune` returned for a model like this one, or the path of a tuned.json; of any rule.
        layer: path of the head within the LightningModule, if it is not found or not unique.

    Attributes:
        adjusted: what was done to the head, with `restore()`; None before the end of a fit.

    >>> LevelCallback("tuned.json", layer="model.fc").layer
    'model.fc'
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._restore()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check(pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._apply(pl_module)


class RescaleCallback(BaseRescaleCallback, LevelCallback):
    """Rescale the head once, when `fit` has ended: ``w_i <- (n_1 / n_i)^gamma w_i``.

    Checkpoints of the fit are written before RS. They hold the head as it was trained, so that training can resume from
    them, and `trainer.test(ckpt_path="best")` tests the head before RS. The module in memory, and whatever is saved of
    it from then on (`trainer.save_checkpoint`), has the leveled head. The next `fit` starts from the head before RS.
    Counts or a layer that do not fit the model are an error before the first step.

    Args:
        counts: training samples of each class: a list, {class: n}, or labels to be counted.
        gamma: strength, chosen on held-out data (`levelhead.tune`), never on test data.
        layer: path of the head within the LightningModule, if it is not found or not unique.

    Attributes:
        adjusted: what was done to the head, with `restore()`; None before the end of a fit.

    >>> RescaleCallback([500, 50, 5], gamma=0.5).gamma
    0.5

    Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
    """
