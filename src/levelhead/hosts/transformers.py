"""WVN and adjusting the head in the Hugging Face Trainer.

``Trainer(..., callbacks=[WVNCallback(), AdjustCallback()])``
"""

import re
from pathlib import Path
from typing import Any

from .._version import __version__
from ..support import atomic
from ..support.errors import LevelheadError
from ..support.extras import naming_what_is_missing

with naming_what_is_missing():
    import torch
    from transformers.trainer_callback import TrainerCallback

    from ..heads.notes import done_text, drop_note, extend_note
    from ..heads.torch_find import unwrap
    from ._adjust_callback import BaseAdjustCallback, one_loader
    from ._trackers import Trackers, tensorboard_folder
    from ._wvn_callback import BaseWVNCallback

# Of our section in a model card.
_BEGIN, _END = (
    "<!-- levelhead: begin -->",
    "<!-- levelhead: end -->",
)


class WVNCallback(BaseWVNCallback, TrainerCallback):
    """Keep the head's weight vectors at unit length through `train`: Algorithm 1 at every optimizer step.

    ``w_i <- w_i / ||w_i||``, once when training starts (after a checkpoint was loaded) and then once per real step,
    also with accumulated batches and mixed precision.

    Args:
        layer: path of the head, such as "classifier.out_proj", if it is not found or not unique.
        order, classes, example: as in `levelhead.hosts.lightning.WVNCallback`.
    """

    def on_train_begin(self, *_: Any, model: Any, optimizer: Any, **__: Any) -> None:  # type: ignore[override]
        self._attach(model, [optimizer])


class AdjustCallback(BaseAdjustCallback, TrainerCallback):
    """Adjust the head once, when `train` has ended: tuned on the evaluation set, or as you say.

    By default the logits of the evaluation set are collected when `train` has ended, a number to
    add to each class is tuned on them, and the head is adjusted if that is worthwhile. Either way a
    line on stderr says so, and trackers get numbers and the page.

    Checkpoints hold the head as it was trained. The model in memory (after
    `load_best_model_at_end`), and what `trainer.save_model` writes, has the adjusted head, with a
    note in its config and, where it was tuned, in the model card. A head without a bias (`score` of
    Llama and its kin) takes what is added into its weights, and is judged by what arrives of it in
    the logits. The next `train` starts from the head as trained. What does not fit the model is an
    error before the first step.

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

    def on_train_begin(  # type: ignore[override]
        self, args: Any, *_: Any, model: Any, train_dataloader: Any = None, **__: Any
    ) -> None:
        self._restore()
        self.tuned = None
        drop_note(unwrap(model))  # of an earlier adjustment: the head is trained on
        if self._tunes and args.eval_strategy == "no":
            needed = "give the Trainer an eval_dataset, and set eval_strategy to 'epoch' or 'steps'"
            raise LevelheadError(f"tuning on the evaluation needs one: {needed}", parameter="by")
        self._evaluated: dict[int, Any] = {}
        self._trackers = Trackers()
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
                lambda: one_loader(loaders),
                gather=_gather_batch,
            )
        outcome = self._apply(model)
        if outcome is None:
            return
        tuned = self.tuned
        if self.adjusted is not None and tuned is not None:
            interval = None
            if tuned.gain_interval is not None:
                interval = list(tuned.gain_interval)
            facts = {
                "chosen_on": tuned.chosen_on,
                "samples": tuned.n,
                "metric": tuned.metric,
                "gain": tuned.gain,
                "gain_interval": interval,
            }
            extend_note(unwrap(model), facts)
        if state.is_world_process_zero:
            self._finish(outcome)
            self._card(args)
            folder = None
            if "tensorboard" in (args.report_to or ()):
                folder = tensorboard_folder(args.output_dir)
            self._trackers.send(outcome, state.global_step, folder)

    def on_push_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if state.is_world_process_zero:
            self._card(args)

    def _card(self, args: Any) -> None:
        """Write a section about the adjustment into the model card, in place of an older one, or into a new card."""
        adjusted = self.adjusted
        tuned = self.tuned
        if adjusted is None or tuned is None or tuned.evidence is None:
            return
        layers = ", ".join(f"`{layer}`" for layer in adjusted.layers if layer) or "the head"
        done = done_text(adjusted.rule, adjusted.strength)
        evidence = tuned.evidence
        gain = evidence.gain_text()
        in_weights = ""
        if adjusted.along is not None:
            in_weights = f" It has {adjusted.along.text}."
        calibrated = "."
        if tuned.temperature is not None:
            calibrated = f": divide the logits by {tuned.temperature:.3g} for those."
        said = (
            f"## Adjustment\n\nAfter training, {layers} was adjusted for imbalanced classes by "
            f"levelhead {__version__}: {done}, for {adjusted.classes} classes.{in_weights}\n\n"
            f"It was chosen on {tuned.n} {tuned.chosen_on} samples; the gain in "
            f"{evidence.metric.title} on samples that it was not fitted on is {gain}. Results in "
            "the log of the training are those of the head before. Probabilities are no longer "
            f"those of the training's mix of classes{calibrated}"
        )
        path = Path(args.output_dir, "README.md")
        text = ""
        if path.is_file():
            text = path.read_text(encoding="utf-8")
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
    if state.end_of_dataloader and state.remainder > 0:
        return whole[: state.remainder]
    return whole
