"""WVN and adjusting the head as Lightning callbacks.

``Trainer(callbacks=[WVNCallback("model.fc"), AdjustCallback(layer="model.fc")])``

What both do is in `_wvn_callback.py` and `_adjust_callback.py`; here is when Lightning asks for it, which batches its
validation has, how its processes share them, and what its loggers are told.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, cast

from ..heads.collect import Batch, check_held_out
from ..heads.notes import done_text
from ..support.extras import naming_what_is_missing
from ..support.warnings import LevelheadWarning, warn

with naming_what_is_missing():
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer
    from torch.utils.data import DistributedSampler

    from ._adjust_callback import BaseAdjustCallback, Loader, one_loader
    from ._trackers import PAGE, Outcome
    from ._wvn_callback import BaseWVNCallback

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger


class WVNCallback(BaseWVNCallback, Callback):
    """Keep the head's weight vectors at unit length through `fit`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    also with accumulated batches and mixed precision. Nothing is left behind when training ends or fails.

    Args:
        layer: path of the head within the LightningModule, such as "model.fc", if it is not found or not unique.
        order: `algorithm` (after the step) or `released` (before it, as the authors' code does).
        classes, example: K and an input of the model, on its device: they tell the head from other layers.

    Example:
        ``Trainer(callbacks=[WVNCallback()]).fit(module, loader)``
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._attach(pl_module, trainer.optimizers)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.on_train_end()


class AdjustCallback(BaseAdjustCallback, Callback):
    """Adjust the head once, when `fit` has ended: tuned on the validation set, or as you say.

    By default the logits of the validation set are collected when `fit` has ended, a number to add
    to each class is tuned on them, and the head is adjusted if that is worthwhile. Either way a
    line on stderr says so, and trackers get numbers and the page. The module is called with the
    inputs of each validation batch and must return logits.

    Checkpoints of the fit hold the head as it was trained, also for
    `trainer.test(ckpt_path="best")`. The module in memory, and what is saved of it from then on,
    has the adjusted head; such a checkpoint says in its `callbacks` what was done, and resuming
    from it warns. A head without a bias takes what is tuned to be added into its weights, and is
    judged by what arrives of it in the logits. The next `fit` starts from the head as trained. What
    does not fit the model is an error before the first step.

    Args:
        by: None, to tune on the validation set; or what `levelhead.tune` returned for a model like
            this one, or the path of a tuned.json; or a rule with a strength, such as
            ``lh.rules.Rescale(0.5)``, which needs counts.
        counts: training samples of each class: a list, {class: n}, or labels to be counted. If
            None, they are counted in the training data, where that can be read ahead.
        layer: path of the head within the LightningModule, if it is not found or not unique.
        rule: to tune, as in `levelhead.tune`; `offsets` or, where several layers feed one output or
            a head without a bias cannot take them, `scales`.
        metric: to tune, as in `levelhead.tune`: a name, a `Metric` or a `Goal`.
        anyway: adjust also where no gain was seen.
        scores: a function of the model and a batch that gives (logits, labels), for other batches
            than (inputs, labels) and dicts with labels.
        page: an .html file for the page about what was tuned.

    Attributes:
        adjusted: what was done to the head, with `restore()`; None if nothing was.
        tuned: what was tuned on the validation set.
        verdict: both in words.

    Example:
        ``Trainer(callbacks=[AdjustCallback(metric="macro_f1")]).fit(module, loader, held_out_loader)``
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # Before Lightning loads a checkpoint to resume from: its weights must not be overwritten.
        if stage == "fit":
            self._restore()
            self.tuned = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # The loaders are made by now, and no step is done yet.
        no_evaluation = None
        if not trainer.enable_validation:
            no_evaluation = "give fit a validation loader, and the module a validation_step"
        self._check(
            pl_module,
            trainer.train_dataloader,
            no_evaluation=no_evaluation,
            writes=trainer.is_global_zero,
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Here the module is on its device; it is adjusted later, after the last checkpoint.
        if not self._needs_evaluation:
            return
        trainer.validating = True  # hooks ask whether it trains, to augment what they are given
        try:
            with trainer.precision_plugin.forward_context():
                self._choose(
                    pl_module,
                    trainer.train_dataloader,
                    lambda: _validation_batches(trainer),
                    gather_all=partial(_gather_all, trainer),
                )
        finally:
            trainer.training = True

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # In every process, as each has a copy of the module; only the first of them speaks.
        outcome = self._apply(pl_module)
        if outcome is not None and trainer.is_global_zero:
            self._finish(outcome)
            for logger in trainer.loggers:
                _log(logger, outcome, trainer.global_step)

    def state_dict(self) -> dict[str, object]:
        """Return what a checkpoint says of the adjustment; nothing while the head is as trained."""
        if self.adjusted is None:
            return {}
        return {
            "rule": self.adjusted.rule,
            "strength": self.adjusted.strength,
            "layers": list(self.adjusted.layers),
        }

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Warn if the checkpoint that is resumed from has an adjusted head: training goes on from that."""
        if "rule" in state_dict:
            rule = cast(str, state_dict["rule"])
            done = done_text(rule, cast(float | None, state_dict["strength"]))
            after = "and training goes on from it; resume from a checkpoint that fit wrote"
            already = f"the head in this checkpoint was adjusted already ({done})"
            warn(f"{already}, {after}", LevelheadWarning)


def _validation_batches(trainer: Trainer) -> Loader:
    """Return the batches of the one validation loader, as many as the trainer takes of it.

    `limit_val_batches` and `fast_dev_run` hold for tuning, too: whoever tries a script does not want to wait.
    """
    loader = one_loader(trainer.val_dataloaders)
    limit = trainer.num_val_batches[0]
    check_held_out(loader)
    batches: Loader = loader
    # The limit is infinite where the loader does not know how many batches it has.
    if limit < float("inf"):
        batches = islice(loader, int(limit))
    return _transferred(trainer, batches)


def _transferred(trainer: Trainer, batches: Loader) -> Iterator[Batch]:
    """Yield batches as a validation has them: in the trainer's precision, after the hooks of module and data."""
    for batch in batches:
        converted = trainer.precision_plugin.convert_input(batch)
        hooked = trainer.lightning_module._on_before_batch_transfer(converted)
        yield trainer.strategy.batch_to_device(hooked)


def _gather_all(trainer: Trainer, part: torch.Tensor) -> torch.Tensor:
    """Join what all processes have collected, unless each has all samples.

    Args:
        trainer: with the validation loader, whose sampler says how samples were dealt out.
        part: [n, ...], what this process has.

    Returns:
        [N, ...] of all samples, in the order of the data set, on the CPU: the same in every process, so that each
        of them chooses and applies the same.
    """
    sampler = getattr(one_loader(trainer.val_dataloaders), "sampler", None)
    if trainer.world_size == 1 or not isinstance(sampler, DistributedSampler):
        return part
    # Samples are dealt out in turn, and the first are repeated until all processes have equally many:
    # [process, row] is put into the order of the data set, and what is repeated is cut off.
    whole = trainer.strategy.all_gather(part.to(trainer.strategy.root_device))
    samples = len(sampler.dataset)  # type: ignore[arg-type]
    return whole.transpose(0, 1).flatten(0, 1)[:samples].cpu()


def _log(logger: "Logger", outcome: Outcome, step: int) -> None:
    """Log the numbers as any logger can, and the page where its tracker has a place for one.

    Loggers are told apart by the names of their classes, so that no tracker has to be imported to ask.
    """
    logger.log_metrics(outcome.numbers, step)
    kind = type(logger).__name__
    run = logger.experiment  # type: ignore[attr-defined]
    if kind == "TensorBoardLogger":
        run.add_text("levelhead", outcome.text, step)
    elif kind == "MLFlowLogger":
        # `experiment` is MLflow's client, which writes to a run by its id.
        run.log_text(logger.run_id, outcome.page(), PAGE)  # type: ignore[attr-defined]
    elif kind == "WandbLogger":
        import wandb  # pyright: ignore[reportMissingImports]

        run.log({"levelhead/page": wandb.Html(outcome.page(), inject=False)})
