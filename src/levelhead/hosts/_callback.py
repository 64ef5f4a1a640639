"""What the callbacks of all trainers share: WVN at the optimizer of the head, and leveling when training has ended.

Leveling applies a choice that was tuned before, or one tuned on the trainer's own evaluation: counts from its training
data, logits from its evaluation loader.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..choice.tune import tune
from ..choice.tuned import Tuned
from ..core.array import to_numpy
from ..core.choices import Metric
from ..core.counts import Counts, resolve
from ..core.curve import METRICS
from ..core.errors import Advice, LevelheadError, check_choice
from ..core.logits import are_log_probabilities
from ..core.per_class import names_in_config
from ..core.warnings import LevelheadWarning, warn
from ..heads.collect import BatchScores
from ..heads.collect import scores as scores_of
from ..heads.editable import Editable
from ..heads.torch import Adjusted, adjust_, check_adjust, check_rescale, find_head, read, rescale_, unwrap
from ..heads.torch_model import TorchModel, editable_head
from ..rules.rule import AUTO, Rescale, Shift, rule_with
from ._trackers import LevelOutcome
from ._training_labels import count_training_labels
from .torch import WVN, Order

Gather = Callable[[Tensor], Tensor]


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


@dataclass(eq=False, kw_only=True)
class EvalTuning:
    """A tuning on the evaluation of one training: counts known at its start, the choice made at its end.

    Args:
        given: counts; those of the training data if None.
        keeps_new_bias: whether a bias that a rule adds to a head without one is loaded again by the trainer's library.
        layer, rule, metric, anyway, scores, page: as in `LevelCallback`.
    """

    given: Counts
    keeps_new_bias: bool
    layer: str | None
    rule: str
    metric: Metric
    anyway: bool
    scores: BatchScores | None
    page: str | Path | None
    counts: np.ndarray | None = field(default=None, init=False)
    tuned: Tuned | None = field(default=None, init=False)
    _collected: tuple[Tensor, Tensor] | None = field(default=None, init=False)
    _norms: np.ndarray | None = field(default=None, init=False)
    _likely: int | None = field(default=None, init=False)  # K, as far as counts or labels tell it

    def start(self, model: nn.Module, training: Any) -> None:
        """Check the head, and know the counts: as given, or from the labels of what training draws from."""
        counted = count_training_labels(training) if self.given is None else self.given
        self._likely = TorchModel(model).likely_classes(len(counted) if hasattr(counted, "__len__") else None)
        classes = max(2, len(next(iter(self._layers(model).values())).weight))
        if self.given is None and len(counted) < classes:  # the last classes have no sample, which `resolve` tells
            counted = np.pad(counted, (0, classes - len(counted)))
        self.counts = resolve(counted, classes, names=_names(model, classes))

    def choose(
        self, model: nn.Module, loader: Iterable[Any], *, gather: Gather | None = None, gather_all: Gather | None = None
    ) -> Tuned:
        """Collect logits and labels over the evaluation loader, and tune on them; nothing is changed.

        Args:
            model: as it is when training has ended.
            loader: of the evaluation.
            gather: called with every batch's logits and labels, for those of other processes.
            gather_all: called with all logits and all labels of this process, for those of others.
        """
        logits, labels = scores_of(model, loader, scores=self.scores, gather=gather)
        if gather_all is not None:
            logits, labels = gather_all(logits), gather_all(labels)
        layers, classes = self._layers(model), logits.shape[1]
        one = next(iter(layers.values()))
        several = len(layers) > 1 or len(one.weight) == 1
        self._norms = None if several else to_numpy(read(model, layer=next(iter(layers))).norms)
        self._collected = logits, labels
        self.tuned = tune(
            logits,
            labels,
            self.counts,
            rule=rule_with(self._rule(layers, logits), norms=self._norms),
            metric=self.metric,
            names=_names(model, classes),
        )
        return self.tuned

    @property
    def applies(self) -> bool:
        """Whether the choice is to be applied: its gain is certain, or the user wants it anyway."""
        return self.tuned is not None and (self.tuned.worthwhile or self.anyway)

    def outcome(self, model: nn.Module, adjusted: Adjusted | None) -> LevelOutcome:
        """Return what was done as text and numbers, with the page about it."""
        tuned = self.tuned
        assert tuned is not None
        if adjusted is not None:
            done = f"applied to {', '.join(adjusted.layers) or 'the head'}"
        else:
            done = "not applied, the head stays as it was trained; pass anyway=True to apply it all the same"
        low, high = tuned.gain_interval or (None, None)
        norms = {} if adjusted is None else _norm_ratios(adjusted)
        numbers = {
            "gain": tuned.gain,
            "gain_low": low,
            "gain_high": high,
            "gamma": tuned.gamma,
            "applied": float(adjusted is not None),
            f"{tuned.metric}_as_trained": tuned.value_at_zero,
            tuned.metric: tuned.value,
            **norms,
        }
        return LevelOutcome(
            {f"level/{name}": float(value) for name, value in numbers.items() if value is not None},
            f"levelhead: {tuned}; {done}",
            lambda path: self._write_page(path, type(unwrap(model)).__name__),
        )

    def finish(self, outcome: LevelOutcome) -> None:
        """Say what was done, and write the page where one was asked for."""
        print(outcome.text, file=sys.stderr)
        if self.page is not None:
            outcome.write_page(Path(self.page))

    def _layers(self, model: nn.Module) -> dict[str, Editable]:
        return dict(editable_head(model, layer=self.layer, classes=self._likely))

    def _rule(self, layers: Mapping[str, Editable], logits: Tensor) -> str:
        """Return the rule asked for or, of `auto`, the one that a head of its kind, with these logits, can have."""
        head = next(iter(layers.values()))
        if self.rule != AUTO:
            return self.rule
        if len(head.weight) == 1:
            return Shift.name
        new_bias = head.bias is None and not self.keeps_new_bias
        if are_log_probabilities(logits) and not new_bias:
            return Shift.name
        return Rescale.name if len(layers) > 1 or new_bias else AUTO

    def _write_page(self, path: Path, title: str) -> None:
        # the page stands above the trainers, and is loaded for this alone
        from ..report import of_logits, write

        assert self.tuned is not None
        assert self._collected is not None
        logits, labels = (to_numpy(part) for part in self._collected)
        names = None if self.tuned.names is None else list(self.tuned.names)
        subject = of_logits(logits, labels, self.counts, tuned=self.tuned, names=names, norms=self._norms, title=title)
        write(path, [subject])


def _names(model: nn.Module, classes: int) -> list[str] | None:
    return names_in_config(getattr(unwrap(model), "config", None), classes)


def _norm_ratios(adjusted: Adjusted) -> dict[str, float]:
    """Return the largest over the smallest norm of the head's weight vectors, before and after."""
    path = adjusted.layers[0]
    before, after = (norms[path].max() / norms[path].min() for norms in (adjusted.before, adjusted.after))
    return {"norm_ratio_as_trained": float(before), "norm_ratio": float(after)}


class BaseLevelCallback:
    """A choice applied at the end of a training, undone before the next one starts. `adjusted` is None in between.

    The choice is one that was tuned before, or is tuned on the training's own evaluation.
    """

    keeps_new_bias = True  # whether the trainer's library loads a bias that a rule adds to a head without one
    tuned: Tuned | str | Path | None = None
    adjusted: Adjusted | None = None
    verdict: str | None = None
    _tuning: EvalTuning | None = None
    _written: tuple[tuple[nn.Parameter, int], ...] = ()

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
        check_choice("metric", metric, METRICS)
        if tune is not None:
            check_choice("tune", tune, ("eval",))
        if (tuned is None) == (tune is None):
            came = "neither" if tuned is None else "both"
            raise LevelheadError(
                f"expected a choice that was tuned before, or tune='eval', which tunes on the evaluation; got {came}"
            )
        self.tuned, self.layer = tuned, layer
        if tune is not None:
            self._tuning = EvalTuning(
                given=counts,
                keeps_new_bias=self.keeps_new_bias,
                layer=layer,
                rule=rule,
                metric=metric,
                anyway=anyway,
                scores=scores,
                page=page,
            )

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

    def _choose(
        self,
        model: nn.Module,
        training: Any,
        loader: Callable[[], Any],
        *,
        gather: Gather | None = None,
        gather_all: Gather | None = None,
    ) -> None:
        """Tune on the evaluation. What goes wrong is a warning: a training that has ended must not be lost for it."""
        self.tuned = self.verdict = None
        assert self._tuning is not None
        try:
            if self._tuning.counts is None:  # a lazy layer had yet to make its weight
                self._tuning.start(model, training)
            self.tuned = self._tuning.choose(model, loader(), gather=gather, gather_all=gather_all)
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
            self._written = tuple((p, p._version) for head in heads for p in head.parameters(recurse=False))
        if tuning is None:
            return None
        outcome = tuning.outcome(model, self.adjusted)
        self.verdict = outcome.text
        return outcome

    def _restore(self) -> None:
        """Restore the head, unless it was written to since: weights from a checkpoint stay."""
        if self.adjusted is not None and all(p._version == version for p, version in self._written):
            self.adjusted.restore()
        self.adjusted, self._written = None, ()


class BaseRescaleCallback(BaseLevelCallback):
    """RS at a strength of one's own at the end of a training."""

    def __init__(self, counts: Counts, gamma: float | Tuned, *, layer: str | None = None) -> None:
        self.counts, self.gamma, self.layer = counts, gamma, layer

    def _check_head(self, model: nn.Module) -> None:
        check_rescale(model, self.counts, gamma=self.gamma, layer=self.layer)

    def _adjust_head(self, model: nn.Module) -> Adjusted:
        return rescale_(model, self.counts, gamma=self.gamma, layer=self.layer)


def one_loader(loaders: Any) -> Any:
    """Return the loader of the evaluation; raise if there is none, or if there are several.

    >>> one_loader([["batch"]])
    ['batch']
    """
    if isinstance(loaders, dict):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple) and len(loaders) == 1:
        return loaders[0]
    if loaders is None or isinstance(loaders, list | tuple):
        count = len(loaders or ())
        raise LevelheadError(
            f"expected one evaluation set to tune on, got {count or 'none'}; tune with "
            "lh.tune(*lh.scores(model, loader), counts) and apply with lh.adjust_",
            parameter="tune",
        )
    return loaders
