"""Leveling tuned on a trainer's own evaluation: counts from its training data, logits from its evaluation loader."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..choice.options import AUTO
from ..choice.tune import tune
from ..choice.tuned import Tuned
from ..core.array import to_numpy
from ..core.choices import Metric
from ..core.counts import Counts, resolve
from ..core.curve import METRICS
from ..core.errors import LevelheadError, check_choice
from ..core.logits import are_log_probabilities
from ..core.per_class import names_in_config
from ..heads.adjusted import Adjusted
from ..heads.collect import BatchScores, collect_scores
from ..heads.torch import read, unwrap
from ..heads.torch_model import TorchModel, editable_head
from ..rules.rule import Rescale, Shift
from ._trackers import LevelOutcome
from ._training_labels import count_training_labels

Gather = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class EvalOptions:
    """How to tune on an evaluation. The parameters of `LevelCallback` explain them."""

    counts: Counts = None
    layer: str | None = None
    rule: str = AUTO
    metric: Metric = "balanced_error"
    anyway: bool = False
    scores: BatchScores | None = None
    page: str | Path | None = None

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)


@dataclass(eq=False)
class EvalTuning:
    """A tuning on the evaluation of one training: counts known at its start, the choice made at its end.

    Args:
        options: how to tune.
        keeps_new_bias: whether a bias that a rule adds to a head without one is loaded again by the trainer's library.
    """

    options: EvalOptions
    keeps_new_bias: bool = True
    counts: np.ndarray | None = field(default=None, init=False)
    tuned: Tuned | None = field(default=None, init=False)
    _scores: tuple[Tensor, Tensor] | None = field(default=None, init=False)
    _norms: np.ndarray | None = field(default=None, init=False)
    _likely: int | None = field(default=None, init=False)  # K, as far as counts or labels tell it

    def start(self, model: nn.Module, training: Any) -> None:
        """Check the head, and know the counts: as given, or from the labels of what training draws from."""
        given = self.options.counts
        counted = count_training_labels(training) if given is None else given
        self._likely = TorchModel(model).likely_classes(len(counted) if hasattr(counted, "__len__") else None)
        classes = max(2, len(next(iter(self._layers(model).values())).weight))
        if given is None and len(counted) < classes:  # the last classes have no sample, which `resolve` tells
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
        logits, labels = collect_scores(model, loader, scores=self.options.scores, gather=gather)
        if gather_all is not None:
            logits, labels = gather_all(logits), gather_all(labels)
        layers, classes = self._layers(model), logits.shape[1]
        one = next(iter(layers.values()))
        several = len(layers) > 1 or len(one.weight) == 1
        self._norms = None if several else to_numpy(read(model, layer=next(iter(layers))).norms)
        self._scores = logits, labels
        self.tuned = tune(
            logits,
            labels,
            self.counts,
            rule=self._rule(layers, logits),
            metric=self.options.metric,
            names=_names(model, classes),
            norms=self._norms,
        )
        return self.tuned

    @property
    def applies(self) -> bool:
        """Whether the choice is to be applied: its gain is certain, or the user wants it anyway."""
        return self.tuned is not None and (self.tuned.worthwhile or self.options.anyway)

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
        if self.options.page is not None:
            outcome.write_page(Path(self.options.page))

    def _layers(self, model: nn.Module) -> dict[str, Any]:
        return dict(editable_head(model, layer=self.options.layer, classes=self._likely))

    def _rule(self, layers: dict[str, Any], logits: Any) -> str:
        """Return the rule asked for or, of `auto`, the one that a head of its kind, with these logits, can have."""
        head = next(iter(layers.values()))
        if self.options.rule != AUTO:
            return self.options.rule
        if len(head.weight) == 1:
            return Shift.name
        new_bias = head.bias is None and not self.keeps_new_bias
        if are_log_probabilities(logits) and not new_bias:
            return Shift.name
        return Rescale.name if len(layers) > 1 or new_bias else AUTO

    def _write_page(self, path: Path, title: str) -> None:
        from ..report import of_logits, write  # the page stands above the trainers, and is loaded for this alone

        assert self.tuned is not None
        assert self._scores is not None
        logits, labels = (to_numpy(part) for part in self._scores)
        names = None if self.tuned.names is None else list(self.tuned.names)
        given = {"tuned": self.tuned, "names": names, "norms": self._norms, "title": title}
        write(path, [of_logits(logits, labels, self.counts, **given)])


def _names(model: nn.Module, classes: int) -> list[str] | None:
    return names_in_config(getattr(unwrap(model), "config", None), classes)


def _norm_ratios(adjusted: Adjusted) -> dict[str, float]:
    """Return the largest over the smallest norm of the head's weight vectors, before and after."""
    path = adjusted.layers[0]
    before, after = (norms[path].max() / norms[path].min() for norms in (adjusted.before, adjusted.after))
    return {"norm_ratio_as_trained": float(before), "norm_ratio": float(after)}


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
            f"expected one evaluation set to tune on, got {count or 'none'}; tune with lh.tune(model, loader, counts) "
            "and apply with lh.adjust_",
            parameter="tune",
        )
    return loaders
