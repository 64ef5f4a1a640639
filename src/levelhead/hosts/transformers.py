"""WVN and adjusting the head in the Hugging Face Trainer.

``Trainer(..., callbacks=[WVNCallback(), AdjustCallback()])``

What both do is in `_wvn_callback.py` and `_adjust_callback.py`; here is when the Trainer asks for it, how its processes
share an evaluation, the note in the model's config, the section in its card, and what its trackers are told. The
Trainer calls every method with its arguments, its state, its control, and all else by name.
"""

import re
from pathlib import Path
from typing import cast

from .._version import __version__
from ..support import atomic
from ..support.extras import naming_what_is_missing

with naming_what_is_missing():
    import torch
    from torch.optim import Optimizer
    from transformers.modeling_utils import PreTrainedModel
    from transformers.trainer_callback import TrainerCallback, TrainerState
    from transformers.training_args import TrainingArguments

    from ..core.tuned import Tuned
    from ..heads.adjusted import Adjusted
    from ..heads.notes import done_text, drop_note, extend_note
    from ..heads.torch_find import unwrap
    from ._adjust_callback import BaseAdjustCallback, Loader, one_loader
    from ._trackers import Trackers, tensorboard_folder
    from ._wvn_callback import BaseWVNCallback

# Around our section in a model card, so that it is found again and replaced.
_BEGIN = "<!-- levelhead: begin -->"
_END = "<!-- levelhead: end -->"


class WVNCallback(BaseWVNCallback, TrainerCallback):
    """Keep the head's weight vectors at unit length through `train`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    also with accumulated batches and mixed precision.

    Args:
        layer: path of the head, such as "classifier.out_proj", if it is not found or not unique.
        order, classes, example: as in `levelhead.hosts.lightning.WVNCallback`.

    Example:
        ``Trainer(model, arguments, train_dataset=data, callbacks=[WVNCallback()]).train()``
    """

    def on_train_begin(  # type: ignore[override]
        self, *_: object, model: PreTrainedModel, optimizer: Optimizer, **__: object
    ) -> None:
        """Attach to the optimizer, which the Trainer has made by now, perhaps wrapped by Accelerate."""
        self._attach(model, [optimizer])


class AdjustCallback(BaseAdjustCallback, TrainerCallback):
    """Adjust the head once, when `train` has ended: tuned on the evaluation set, or as you say.

    By default the logits of the evaluation set are collected when `train` has ended, a number to
    add to each class is tuned on them, and the head is adjusted if that is worthwhile. Either way a
    line on stderr says so, and trackers get numbers and the page.

    Checkpoints hold the head as it was trained. The model in memory (after
    `load_best_model_at_end`), and what `trainer.save_model` writes, has the adjusted head, with a
    note in its config and, where it was tuned, in the model card. `trainer.push_to_hub` writes
    another card over that; `on_push_begin(trainer.args, trainer.state, trainer.control)` adds the
    section to it. A head without a bias (such as `score` of Llama) takes what is added into its
    weights, and is judged by what arrives of it in the logits. The next `train` starts from the
    head as trained. What does not fit the model is an error before the first step.

    Args:
        by: None, to tune on the evaluation set; or what `levelhead.tune` returned for a model like
            this one, or the path of a tuned.json; or a rule with a strength, such as
            ``lh.rules.Rescale(0.5)``, which needs counts.
        counts, rule, metric, anyway, scores, page: as in `hosts.lightning.AdjustCallback`; counts
            also by the names of the config.
        layer: path of the head, if it is not found or not unique.

    Attributes:
        adjusted: what was done to the head, with `restore()`; None if nothing was.
        tuned: what was tuned on the evaluation set.
        verdict: both in words.

    >>> callback = AdjustCallback()  # Trainer(..., callbacks=[callback])
    """

    # The data sets that were evaluated, by identity: to be tuned on, there must be one.
    _evaluated: dict[int, object]
    _trackers: Trackers

    def on_train_begin(  # type: ignore[override]
        self,
        args: TrainingArguments,
        state: TrainerState,
        *_: object,
        model: PreTrainedModel,
        train_dataloader: object = None,
        **__: object,
    ) -> None:
        # First the head of an earlier adjustment, and what its config says of that: it is trained on.
        self._restore()
        self.tuned = None
        drop_note(unwrap(model))
        no_evaluation = None
        if args.eval_strategy == "no":
            no_evaluation = (
                "give the Trainer an eval_dataset, and set eval_strategy to 'epoch' or 'steps'"
            )
        self._evaluated = {}
        self._trackers = Trackers()
        self._check(
            model,
            train_dataloader,
            no_evaluation=no_evaluation,
            writes=state.is_world_process_zero,
        )

    def on_evaluate(self, *_: object, eval_dataloader: object = None, **__: object) -> None:
        """Remember which data set was evaluated; the Trainer calls it once for each of several."""
        # `trainer.evaluate()` may come before any training, when nothing is set up.
        self._evaluated = getattr(self, "_evaluated", {})
        data = getattr(eval_dataloader, "dataset", eval_dataloader)
        self._evaluated[id(data)] = data

    def on_log(self, *_: object, **__: object) -> None:
        if self._tunes:
            self._trackers.find()  # some end their runs before training has ended

    def on_train_end(  # type: ignore[override]
        self,
        args: TrainingArguments,
        state: TrainerState,
        *_: object,
        model: PreTrainedModel,
        train_dataloader: object = None,
        eval_dataloader: Loader = (),
        **__: object,
    ) -> None:
        if self._needs_evaluation:
            # The Trainer knows its last loader alone: it is repeated, so that several are refused.
            loaders = [eval_dataloader] * len(self._evaluated)
            self._choose(model, train_dataloader, lambda: one_loader(loaders), gather=_gather_batch)
        # The best checkpoint is loaded by now, if that was asked for.
        outcome = self._apply(model)
        if outcome is None:
            return
        # `adjust_` has noted in the config what was done; this adds what it is worth.
        if self.adjusted is not None and self.tuned is not None:
            extend_note(unwrap(model), _facts_of(self.tuned))
        if state.is_world_process_zero:
            self._finish(outcome)
            self._card(args)
            folder = None
            if "tensorboard" in (args.report_to or ()):
                folder = tensorboard_folder(str(args.output_dir))
            self._trackers.send(outcome, state.global_step, folder)

    def on_push_begin(  # type: ignore[override]
        self, args: TrainingArguments, state: TrainerState, *_: object, **__: object
    ) -> None:
        """Add the section to the card, before checkpoints are pushed.

        `trainer.push_to_hub` writes a card of its own over it right after this, and calls no callback between that and
        the upload: the section is then not in the card on the Hub. The note in the config is. Called once more after
        that, this adds the section to the Trainer's card, to be uploaded by itself.
        """
        if state.is_world_process_zero:
            self._card(args)

    def _card(self, args: TrainingArguments) -> None:
        """Write a section about the adjustment into the model card, in place of an older one, or into a new card.

        Two comments of HTML around it, which no reader sees, say what is ours: everything else in the card stays.
        """
        if self.adjusted is None or self.tuned is None or self.tuned.evidence is None:
            return
        section = f"{_BEGIN}\n{_card_text(self.adjusted, self.tuned)}\n{_END}\n"
        path = Path(str(args.output_dir), "README.md")
        card = ""
        if path.is_file():
            card = path.read_text(encoding="utf-8")
        older = rf"\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*"
        # An older section goes, with the blank lines around it, and the new one comes last.
        rest = re.sub(older, "\n", card, flags=re.DOTALL).rstrip()
        if rest.strip():
            section = f"{rest}\n\n{section}"
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, section)


def _card_text(adjusted: Adjusted, tuned: Tuned) -> str:
    """Return what a model card says of the adjustment: what was done, and what that is worth.

    It also says that the card's own results, which the Trainer logged before, are of the head as trained.

    Args:
        adjusted: what was done to the head.
        tuned: what was chosen, with evidence.
    """
    assert tuned.evidence is not None
    layers = ", ".join(f"`{layer}`" for layer in adjusted.layers if layer) or "the head"
    done = done_text(adjusted.rule, adjusted.strength)
    in_weights = ""
    if adjusted.along is not None:
        in_weights = f" It has {adjusted.along.text}."
    metric = tuned.evidence.metric.title
    calibrated = ""
    if tuned.temperature is not None:
        mix = f"for classes as {metric} weighs them"
        divide = f"divide the logits by {tuned.temperature:.3g}"
        calibrated = f" To have them calibrated {mix}, {divide}."
    return (
        f"## Adjustment\n\nAfter training, {layers} was adjusted for imbalanced classes by "
        f"levelhead {__version__}: {done}, for {adjusted.classes} classes.{in_weights}\n\n"
        f"It was chosen on {tuned.n} {tuned.chosen_on} samples; the gain in "
        f"{metric} on samples that it was not fitted on is "
        f"{tuned.evidence.gain_text()}. Results in the log of the training are those of the head "
        "before. Probabilities are no longer those of the training's mix of classes."
        f"{calibrated}"
    )


def _facts_of(tuned: Tuned) -> dict[str, object]:
    """Return what the note in a config says of a choice besides what was done, as JSON can hold it."""
    interval = None
    if tuned.gain_interval is not None:
        interval = list(tuned.gain_interval)
    return {
        "chosen_on": tuned.chosen_on,
        "samples": tuned.n,
        "metric": tuned.metric,
        "gain": tuned.gain,
        "gain_interval": interval,
    }


def _gather_batch(part: torch.Tensor) -> torch.Tensor:
    """Gather a batch over processes, as the Trainer's evaluation does.

    The Trainer fills the last batch up with repeats until every process has equally many; Accelerate's `GradientState`
    knows when it is the last, and how many of it are no repeats.

    Args:
        part: [n, ...] of this process: logits, labels, or features.

    Returns:
        [n', ...] of all processes, the same in each.
    """
    from accelerate.state import GradientState, PartialState
    from accelerate.utils import gather, pad_across_processes

    if PartialState().num_processes == 1:
        return part
    # Batches of tokens have different lengths; -100 is the label of positions that are left out.
    if part.ndim > 1:
        part = cast(torch.Tensor, pad_across_processes(part, dim=1, pad_index=-100))
    whole = cast(torch.Tensor, gather(part.contiguous()))
    state = GradientState()  # says how many of the last batch are no repeats
    if state.end_of_dataloader and state.remainder > 0:
        return whole[: state.remainder]
    return whole
