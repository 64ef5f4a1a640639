"""What the callbacks of all trainers share: WVN at the optimizer of the head, and leveling when training has ended."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ..choice.options import AUTO
from ..choice.tuned import Tuned
from ..core.choices import Metric
from ..core.counts import Counts
from ..core.errors import Advice, LevelheadError, check_choice
from ..core.warnings import LevelheadWarning, warn
from ..heads.collect import BatchScores
from ..heads.torch import Adjusted, adjust_, check_adjust, check_rescale, find_head, rescale_, unwrap
from ._trackers import LevelOutcome
from ._tune_at_end import EvalOptions, EvalTuning
from .torch import WVN, Order


class BaseWVNCallback:
    """WVN on the head of a model while it is trained. `hook` is None before and after."""

    def __init__(
        self, layer: str | None = None, *, order: Order = "algorithm", classes: int | None = None, example: Any = None
    ) -> None:
        self.layer, self.classes, self.example, self.hook = layer, classes, example, None
        self.order: Order = order

    def _attach(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Attach WVN to the optimizer that trains the head. It normalizes at once."""
        self._remove()
        found = find_head(model, layer=self.layer, classes=self.classes, example=self.example)
        if len(found) > 1:
            raise LevelheadError(
                f"the model has {len(found)} heads: {', '.join(found)}", advice=Advice("layer", None, "to name one")
            )
        path, head = next(iter(found.items()))
        for optimizer in optimizers:
            if any(p is head.weight for group in optimizer.param_groups for p in group["params"]):
                self.hook = WVN(optimizer, head, order=self.order)
                return
        raise LevelheadError(f"no optimizer trains {path or 'the head'}, so WVN has no step to follow")

    def _remove(self) -> None:
        if self.hook is not None:
            self.hook.remove()
        self.hook = None


class BaseLevelCallback:
    """A choice applied at the end of a training, undone before the next one starts. `adjusted` is None in between.

    The choice is one that was tuned before, or is tuned on the training's own evaluation.
    """

    keeps_new_bias = True  # whether the trainer's library loads a bias that a rule adds to a head without one

    def __init__(
        self,
        tuned: Tuned | str | Path | None = None,
        *,
        tune: Literal["eval"] | None = None,
        counts: Counts = None,
        layer: str | None = None,
        rule: str = AUTO,
        metric: Metric = "balanced_error",
        anyway: bool = False,
        scores: BatchScores | None = None,
        page: str | Path | None = None,
    ) -> None:
        if tune is not None:
            check_choice("tune", tune, ("eval",))
        if (tuned is None) == (tune is None):
            came = "neither" if tuned is None else "both"
            raise LevelheadError(
                f"expected a choice that was tuned before, or tune='eval', which tunes on the evaluation; got {came}"
            )
        self.tuned, self.layer = tuned, layer
        self.adjusted: Adjusted | None = None
        self.verdict: str | None = None
        options = EvalOptions(
            counts=counts, layer=layer, rule=rule, metric=metric, anyway=anyway, scores=scores, page=page
        )
        self._tuning = None if tune is None else EvalTuning(options, self.keeps_new_bias)
        self._written: list[tuple[nn.Parameter, int]] = []

    def _check(self, model: nn.Module, training: Any = None) -> None:
        """Refuse early what `_apply` would refuse after training, unless a lazy layer has yet to make its weight."""
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
            return
        if self._tuning is None:
            self._check_head(model)
        else:
            self._tuning.start(model, training)

    def _check_head(self, model: nn.Module) -> None:
        check_adjust(model, self._choice, layer=self.layer)

    def _adjust_head(self, model: nn.Module) -> Adjusted:
        return adjust_(model, self._choice, layer=self.layer)

    @property
    def _choice(self) -> Tuned | str | Path:
        assert self.tuned is not None
        return self.tuned

    def _choose(self, model: nn.Module, training: Any, loader: Callable[[], Any], **gather: Any) -> None:
        """Tune on the evaluation. What goes wrong is a warning: a training that has ended must not be lost for it."""
        self.tuned = self.verdict = None
        assert self._tuning is not None
        try:
            if self._tuning.counts is None:  # a lazy layer had yet to make its weight
                self._tuning.start(model, training)
            self.tuned = self._tuning.choose(model, loader(), **gather)
        except Exception as error:
            self.verdict = f"the head stays as it was trained, as tuning on the evaluation failed: {error}"
            warn(self.verdict, LevelheadWarning)

    def _apply(self, model: nn.Module) -> LevelOutcome | None:
        """Adjust the head, unless the choice was made on the evaluation and its gain is not certain."""
        tuning = self._tuning
        if tuning is not None and self.tuned is None:
            return None
        if tuning is None or tuning.applies:
            self.adjusted = self._adjust_head(model)
            heads = [unwrap(model).get_submodule(path) for path in self.adjusted.layers]
            self._written = [(p, p._version) for head in heads for p in head.parameters(recurse=False)]
        if tuning is None:
            return None
        outcome = tuning.outcome(model, self.adjusted)
        self.verdict = outcome.text
        return outcome

    def _restore(self) -> None:
        """Restore the head, unless it was written to since: weights from a checkpoint stay."""
        if self.adjusted is not None and all(p._version == version for p, version in self._written):
            self.adjusted.restore()
        self.adjusted, self._written = None, []


class BaseRescaleCallback(BaseLevelCallback):
    """RS at a strength of one's own at the end of a training."""

    def __init__(self, counts: Counts, gamma: float | Tuned, *, layer: str | None = None) -> None:
        self.counts, self.gamma, self.layer = counts, gamma, layer
        self.tuned = self.adjusted = self.verdict = self._tuning = None
        self._written = []

    def _check_head(self, model: nn.Module) -> None:
        check_rescale(model, self.counts, gamma=self.gamma, layer=self.layer)

    def _adjust_head(self, model: nn.Module) -> Adjusted:
        return rescale_(model, self.counts, gamma=self.gamma, layer=self.layer)
