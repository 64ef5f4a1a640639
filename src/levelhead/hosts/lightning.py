"""WVN and adjusting the head as Lightning callbacks.

``Trainer(callbacks=[WVNCallback("model.fc"), LevelCallback(tune="eval", layer="model.fc")])``
"""

from functools import partial
from itertools import islice
from typing import Any

from ..core.rules import RULES
from ..heads.collect import check_held_out
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing
from ..support.warnings import LevelheadWarning, warn

with naming_what_is_missing():
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from torch.utils.data import DistributedSampler

    from . import _callback as base


class WVNCallback(base.BaseWVNCallback, Callback):
    """Keep the head's weight vectors at unit length through `fit`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    also with accumulated batches and mixed precision. Nothing is left behind when training ends or fails.

    Args:
        layer: path of the head within the LightningModule, such as "model.fc", if it is not found or not unique.
        order: `algorithm` (after the step) or `released` (before it, as the authors' code does).
        classes, example: K and an input of the model, on its device: they tell the head from other layers.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._attach(pl_module, trainer.optimizers)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.on_train_end()


class LevelCallback(base.BaseLevelCallback, Callback):
    """Adjust the head once, when `fit` has ended, by what was tuned: its rule, strength and counts, as `adjust_` does.

    Checkpoints of the fit hold the head as it was trained, also for `trainer.test(ckpt_path="best")`. The module in
    memory, and what is saved of it from then on, has the adjusted head, with a bias where the rule needs one. The next
    `fit` starts from the head as trained. A choice or a layer that does not fit is an error before the first step.

    Args:
        tuned: what `levelhead.tune` returned for a model like this one, or the path of a tuned.json; of any rule.
        layer: path of the head within the LightningModule, if it is not found or not unique.
        tune: `eval`, to tune on the evaluation when `fit` has ended. The head is then adjusted if a gain is to be
            expected; either way a line on stderr says so, and trackers get the page. The rest is for this alone:
        counts, rule, metric: training samples of each class, counted if not given; as in `levelhead.tune`.
        anyway, certain: adjust also where no gain is to be expected; only where its whole interval is above 0.
        scores: a function of the model and a batch that gives (logits, labels), for other batches than (inputs, labels)
            and dicts with labels.
        page: an .html file for the page about it.

    With `tune`, the module is called with the inputs of each validation batch and must return logits. A checkpoint that
    is saved after the fit says in its `callbacks` what was done, and resuming from it warns.

    Attributes:
        adjusted, tuned, verdict: what was done to the head, with `restore()`; the choice; with `tune`, both in words.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._restore()
            self.tuned = None if self._tunes else self.tuned

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._tunes and not trainer.enable_validation:
            needed = "give fit a validation loader, and the module a validation_step"
            raise LevelheadError(f"tuning on the evaluation needs one: {needed}", parameter="tune")
        self._check(pl_module, trainer.train_dataloader)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if (
            not self._tunes
        ):  # while the module is on its device; it is adjusted after the last checkpoint
            return
        with trainer.precision_plugin.forward_context():
            own, gather_all = trainer.train_dataloader, partial(_gather_all, trainer)
            self._choose(
                pl_module, own, lambda: _validation_batches(trainer), gather_all=gather_all
            )

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if (outcome := self._apply(pl_module)) is not None and trainer.is_global_zero:
            self._finish(outcome)
            for logger in trainer.loggers:
                _log(logger, outcome, trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        if self.adjusted is None:
            return {}
        return {
            "rule": self.adjusted.rule,
            "gamma": self.adjusted.gamma,
            "layers": list(self.adjusted.layers),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if "rule" in state_dict:
            done = f"{RULES[state_dict['rule']].title}, gamma {state_dict['gamma']:g}"
            after = "and training goes on from it; resume from a checkpoint that fit wrote"
            warn(
                f"the head in this checkpoint was adjusted already ({done}), {after}",
                LevelheadWarning,
            )


def _validation_batches(trainer: Trainer) -> Any:
    """Return the batches of the one validation loader, as many as the trainer takes of it."""
    loader, limit = base.one_loader(trainer.val_dataloaders), trainer.num_val_batches[0]
    check_held_out(loader)
    return loader if limit == float("inf") or limit >= len(loader) else islice(loader, int(limit))


def _gather_all(trainer: Trainer, part: torch.Tensor) -> torch.Tensor:
    """Join what all processes have collected, unless each has all samples."""
    sampler = getattr(base.one_loader(trainer.val_dataloaders), "sampler", None)
    if trainer.world_size == 1 or not isinstance(sampler, DistributedSampler):
        return part
    # samples are dealt out in turn, and the first are repeated until all processes have equally many
    whole: Any = trainer.strategy.all_gather(part.to(trainer.strategy.root_device))
    return whole.transpose(0, 1).flatten(0, 1)[: len(sampler.dataset)].cpu()  # type: ignore[arg-type]


def _log(logger: Any, outcome: base.LevelOutcome, step: int) -> None:
    """Log the numbers as any logger can, and the page where its tracker has a place for one."""
    logger.log_metrics(outcome.numbers, step)
    kind, run = type(logger).__name__, logger.experiment
    if kind == "TensorBoardLogger":
        run.add_text("level", outcome.text, step)
    elif kind == "MLFlowLogger":
        run.log_text(logger.run_id, outcome.page(), base.PAGE)
    elif kind == "WandbLogger":
        import wandb  # pyright: ignore[reportMissingImports]

        run.log({"level/page": wandb.Html(outcome.page(), inject=False)})


class RescaleCallback(base.BaseRescaleCallback, LevelCallback):
    """Rescale the head once, when `fit` has ended: ``w_i <- (n_1 / n_i)^gamma w_i``. Otherwise as `LevelCallback`.

    Args:
        counts: training samples of each class: a list, {class: n}, or labels to be counted.
        gamma: strength, chosen on held-out data (`levelhead.tune`), never on test data.
        layer: path of the head within the LightningModule, if it is not found or not unique.
    """
