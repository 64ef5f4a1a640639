"""WVN, adjusting the head and our losses in the Hugging Face Trainer: callbacks and a `compute_loss_func`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..choice.path_metrics import gain_text
from ..choice.tuned import Tuned
from ..core.counts import Counts
from ..core.rules import RULES
from ..methods.method import Loss, Method
from ..methods.table import changes, method_named
from ..support import atomic
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing

with naming_what_is_missing():
    import torch
    from transformers.trainer_callback import TrainerCallback

    from ..heads.notes import drop_note, extend_note
    from ..heads.torch_find import unwrap
    from . import _callback as base

_BEGIN, _END = (
    "<!-- levelhead: begin -->",
    "<!-- levelhead: end -->",
)  # of our section in a model card


class WVNCallback(base.BaseWVNCallback, TrainerCallback):
    """Keep the head's weight vectors at unit length through `train`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    also with accumulated batches and mixed precision.

    Args:
        layer: path of the head, such as "classifier.out_proj", if it is not found or not unique.
        order, classes, example: as in `levelhead.hosts.lightning.WVNCallback`.
    """

    def on_train_begin(self, *_: Any, model: Any, optimizer: Any, **__: Any) -> None:  # type: ignore[override]
        self._attach(model, [optimizer])


class LevelCallback(base.BaseLevelCallback, TrainerCallback):
    """Adjust the head once, when `train` has ended, by what was tuned (rule, strength, counts), as `adjust_` does.

    Checkpoints hold the head as it was trained. The model in memory (after `load_best_model_at_end`), and what
    `trainer.save_model` writes, has the adjusted head, with a note in its config and, with `tune`, in the model card. A
    head without a bias gets one where the rule needs it, which `from_pretrained` of its architecture does not expect:
    save its `state_dict` then, or export to ONNX; with `tune`, such a head is rescaled, which needs no bias. The next
    `train` starts from the head as trained. A choice or a layer that does not fit is an error before the first step.

    Args:
        tuned: what `levelhead.tune` returned for a model like this one, or the path of a tuned.json; of any rule.
        tune: `eval`, to tune on the evaluation when training has ended, in place of a choice that was tuned before,
        counts, rule, metric, anyway, certain, scores, page: with that: all as in `hosts.lightning.LevelCallback`.
        layer: path of the head, if it is not found or not unique.

    Attributes:
        adjusted, tuned, verdict: what was done to the head, with `restore()`; the choice; with `tune`, both in words.

    >>> callback = LevelCallback(tune="eval")  # Trainer(..., callbacks=[callback])
    """

    keeps_new_bias = False

    def on_train_begin(  # type: ignore[override]
        self, args: Any, *_: Any, model: Any, train_dataloader: Any = None, **__: Any
    ) -> None:
        self._restore()
        drop_note(unwrap(model))  # of an earlier adjustment: the head is trained on
        if self._tunes and args.eval_strategy == "no":
            needed = "give the Trainer an eval_dataset, and set eval_strategy to 'epoch' or 'steps'"
            raise LevelheadError(f"tuning on the evaluation needs one: {needed}", parameter="tune")
        self._evaluated: dict[int, Any] = {}
        self._trackers = base.Trackers()
        self._check(model, train_dataloader)

    def on_evaluate(self, *_: Any, eval_dataloader: Any = None, **__: Any) -> None:
        self._evaluated = getattr(self, "_evaluated", {})
        data = getattr(eval_dataloader, "dataset", eval_dataloader)
        self._evaluated[id(data)] = data

    def on_log(self, *_: Any, **__: Any) -> None:
        if self._tunes:
            self._trackers.find()  # some end their runs before training has ended

    def on_train_end(self, args: Any, state: Any, *_: Any, model: Any, **given: Any) -> None:  # type: ignore[override]
        if self._tunes:
            loaders = [given.get("eval_dataloader")] * len(self._evaluated)
            self._choose(
                model,
                given.get("train_dataloader"),
                lambda: base.one_loader(loaders),
                gather=_gather_batch,
            )
        if (outcome := self._apply(model)) is None:
            return
        if self.adjusted is not None and isinstance(tuned := self.tuned, Tuned):
            interval = None if tuned.gain_interval is None else list(tuned.gain_interval)
            facts = {
                "chosen_on": tuned.chosen_on,
                "samples": tuned.n,
                "metric": tuned.metric,
                "gain": tuned.gain,
            }
            extend_note(unwrap(model), facts | {"gain_interval": interval})
        if state.is_world_process_zero:
            self._finish(outcome)
            self._card(args)
            folder = (
                base.tensorboard_folder(args.output_dir)
                if "tensorboard" in (args.report_to or ())
                else None
            )
            self._trackers.send(outcome, state.global_step, folder)

    def on_push_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.is_world_process_zero:
            self._card(args)

    def _card(self, args: Any) -> None:
        """Write a section about the adjustment into the model card, in place of an older one, or into a new card."""
        if (done := self.adjusted) is None or self.verdict is None:
            return
        layers, tuned = (
            ", ".join(f"`{layer}`" for layer in done.layers if layer) or "the head",
            self._choice,
        )
        said = (
            f"## Adjustment\n\nAfter training, {layers} was adjusted for imbalanced classes by levelhead {__version__}"
            f": {RULES[done.rule].title}, gamma {done.gamma:.4g}, for {len(done.counts)} classes of "
            f"{done.counts.max():g} to {done.counts.min():g} training samples."
        )
        if isinstance(tuned, Tuned) and tuned.gain is not None:
            said += (
                f"\n\nIt was chosen on {tuned.n} {tuned.chosen_on} samples; the gain in "
                f"{tuned.metric.replace('_', ' ')} to expect on new samples is "
                f"{gain_text(tuned.metric, tuned.gain, tuned.gain_interval)}. Results in the log of the training are "
                "those of the head before. Probabilities are no longer calibrated"
                + (
                    "."
                    if tuned.temperature is None
                    else f": divide the logits by {tuned.temperature:.3g} for those."
                )
            )
        path = Path(args.output_dir, "README.md")
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        rest = re.sub(
            rf"\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", "\n", text, flags=re.DOTALL
        )
        section = f"{_BEGIN}\n{said}\n{_END}\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, f"{rest.rstrip()}\n\n{section}" if rest.strip() else section)


def _gather_batch(part: torch.Tensor) -> torch.Tensor:
    """Gather a batch over processes, as the Trainer's evaluation does."""
    from accelerate.state import GradientState, PartialState
    from accelerate.utils import gather, pad_across_processes

    if PartialState().num_processes == 1:
        return part
    padded: Any = pad_across_processes(part, dim=1, pad_index=-100) if part.ndim > 1 else part
    whole: Any = gather(padded.contiguous())
    state = GradientState()  # says how many of the last batch are no repeats
    return whole[: state.remainder] if state.end_of_dataloader and state.remainder > 0 else whole


class RescaleCallback(base.BaseRescaleCallback, LevelCallback):
    """Rescale the head once, when `train` has ended: ``w_i <- (n_1 / n_i)^gamma w_i``. Otherwise as `LevelCallback`.

    Args:
        counts, gamma, layer: as in `levelhead.hosts.lightning.RescaleCallback`; counts also by the names of the config.
    """


@dataclass(frozen=True, eq=False)
class TrainerLoss:
    """A loss as the Trainer calls it: a batch's sum over the number of items in all batches of the optimizer's step."""

    loss: Loss

    def __call__(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        counted = labels != -100  # the label of positions in a batch that the loss leaves out
        values = self.loss(logits, labels.where(counted, 0)) * counted
        return values.sum() / (counted.sum() if num_items_in_batch is None else num_items_in_batch)


def compute_loss_func(method: str | Method, counts: Counts) -> TrainerLoss:
    """Return a method's loss for `Trainer(compute_loss_func=...)`, correct under gradient accumulation too.

    Args:
        method: one that only changes the loss, by name ("class-balanced") or as a record.
        counts: training samples of each class: a list, or {index: n}; `levelhead.counts.of(labels)` counts labels.

    >>> loss = compute_loss_func("balanced-softmax", [500, 50, 5])
    >>> loss({"logits": torch.zeros(4, 3)}, torch.tensor([0, 1, 2, -100]), num_items_in_batch=3).shape
    torch.Size([])
    """
    method = method_named(method) if isinstance(method, str) else method
    if other := [slot for slot in changes(method) if slot != "loss"]:
        use = "use WVNCallback for project, RescaleCallback for adjust, and `levelhead train` for the rest"
        reason = f"does more than change the loss: {', '.join(other)}; {use}"
    elif method.head != "linear":
        reason = f"needs a {method.head} head, which pretrained models do not have"
    elif method.stages:
        reason = "changes its loss in the middle of training, and the Trainer does not say when"
    else:
        return TrainerLoss(method.loss(counts))
    raise LevelheadError(f"{method.name} {reason}", parameter="method")
