"""What the callbacks of all trainers share of adjusting: tuned on the evaluation, applied when training ends.

`BaseAdjustCallback` knows torch modules and loaders, and no trainer. The callbacks of Lightning and transformers
inherit from it and from their trainer's class, and say at which of the trainer's events each step is due; Keras, which
has no torch module to speak of, has a callback of its own that does the same. A trainer's callback calls in this order:

1. `_restore`, before a training: the head of an earlier adjustment becomes what it was.
2. `_check`, before the first step: what does not fit the model is an error now, and not hours later.
3. `_choose`, when training has ended: the evaluation's logits are collected, and a rule is tuned on them. What goes
   wrong here is a warning, since the training must not be lost.
4. `_apply`: the head is adjusted if that is worthwhile, and an `Outcome` says what was done, for people and trackers.
5. `_finish`, in one process: the line on stderr, and the page.

A head without a bias takes offsets into its weights (`heads.along`), which needs what it takes of the evaluation:
step 3 collects that, too. A choice that was made before (`by`) needs steps 1, 2 and 4, and step 3 only where it adds
something to a head that has no bias and can get none.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from torch import Tensor, nn

from ..core.class_labels import as_positions
from ..core.class_names import names_in_config
from ..core.counts import Counts, resolve
from ..core.goal import Goal
from ..core.metrics import Metric
from ..core.rules import Rule, default_rule, find_rule
from ..core.tune import tune
from ..core.tuned import Tuned
from ..heads.adjust import adjust_
from ..heads.adjusted import Adjusted
from ..heads.collect import Batch, BatchScores, collect
from ..heads.torch import Editable, TorchModel, read
from ..heads.torch_find import unwrap
from ..support.arrays import to_numpy
from ..support.atomic import check_plain
from ..support.errors import LevelheadError, named
from ..support.warnings import LevelheadWarning, warn
from ._given_choice import Choice, check_given, check_rule_fits, find_by_counts, own_advice
from ._trackers import Outcome, outcome_of
from ._training_labels import count_training_labels

Gather = Callable[[Tensor], Tensor]  # joins what all processes have
Loader = Iterable[Batch]


class BaseAdjustCallback:
    """An adjustment at the end of a training, undone before the next one starts.

    It is undone because a second `fit` of the same model would train on from the adjusted head, and then be adjusted
    again: twice as much as was asked for. Arguments are described where users meet them, in
    `hosts.lightning.AdjustCallback`. What only the shape of a head or the data can tell is checked by `_check`, as the
    model is not known when a callback is made; names of rules and metrics are looked up at once.
    """

    adjusted: Adjusted | None = None  # what was done to the head; None while it is trained
    tuned: Tuned | None = None  # what was tuned on the evaluation
    verdict: str | None = None  # both in words
    _samples: tuple[Tensor, Tensor]  # logits [N, K] and labels [N] of the evaluation
    _counts: Counts | None = None  # known when a training has started
    _likely: int | None = None  # K, as far as counts or labels tell it
    _features: Tensor | None = None  # [N, d], what a head without a bias takes of the evaluation
    _needs_features: bool = False  # whether `by` adds to a head that has no bias and can get none
    # The parameters that were written to, each with torch's count of how often that was done.
    _written: tuple[tuple[nn.Parameter, int], ...] = ()

    def __init__(
        self,
        by: Choice | None = None,
        *,
        counts: Counts | None = None,
        layer: str | None = None,
        rule: str | Rule | None = None,
        metric: str | Metric | Goal = "balanced_error",
        anyway: bool = False,
        scores: BatchScores | None = None,
        page: str | Path | None = None,
    ) -> None:
        self.by = by
        self.layer = layer
        self._given_counts = counts
        self._rule = None if rule is None else find_rule(rule)
        self._goal = Goal.of(metric)
        self._anyway = anyway
        self._scores = scores
        self._page = page

    @property
    def _tunes(self) -> bool:
        """Whether it is tuned on the evaluation of the training."""
        return self.by is None

    @property
    def _needs_evaluation(self) -> bool:
        """Whether the model is to be run on the evaluation when training has ended."""
        return self._tunes or self._needs_features

    @own_advice()
    def _check(
        self, model: nn.Module, training: object, *, no_evaluation: str | None, writes: bool
    ) -> None:
        """Refuse early what `_choose`, `_apply` or `_finish` would refuse after training.

        Args:
            model: to be trained.
            training: the loader of the training, whose labels are counted.
            no_evaluation: what the user can do to have an evaluation; None if there is one.
            writes: whether this process, of several, will write the page.
        """
        if self._page is not None and writes:
            _check_page(Path(self._page))
        if self._tunes and no_evaluation is not None:
            reason = f"tuning on the evaluation needs one: {no_evaluation}"
            raise LevelheadError(reason, parameter="by")
        # What an earlier training needed says nothing of this one.
        self._features = None
        self._needs_features = False
        # A lazy layer makes its weight in the first step: only then can the head be found.
        lazy = nn.parameter.UninitializedParameter
        if any(isinstance(parameter, lazy) for parameter in model.parameters()):
            return
        if self.by is None:
            self._count(model, training)
        else:
            self._needs_features = check_given(
                model,
                TorchModel(model),
                self.by,
                self._given_counts,
                layer=self.layer,
                no_evaluation=no_evaluation,
            )

    def _count(self, model: nn.Module, training: object) -> None:
        """Check the head and the rule, and know the counts: as given, or from the labels trained on.

        Where these cannot be read (a stream, samples drawn by weight), there are none, and `tune` takes those of the
        evaluation: a callback that needs no argument must not fail for a loader it does not understand.

        Sets `_likely`, by which the head is told from other layers, and `_counts`, or None.
        """
        # How many samples each class has, and from that how many classes a head should have.
        counts = self._given_counts
        if counts is None:
            try:
                counts = count_training_labels(training)
            except LevelheadError:
                counts = None
        size = None
        if counts is not None and hasattr(counts, "__len__"):
            size = len(counts)
        place = TorchModel(model)
        self._likely = place.likely_classes(size)
        if self._given_counts is not None:
            find_by_counts(place, self._given_counts, layer=self.layer)
        layers = place.find(layer=self.layer, classes=self._likely)
        check_rule_fits(place, self._rule or default_rule(takes_bias=len(layers) == 1))
        # Two classes may share one logit, and then the head has a single row.
        classes = max(2, len(next(iter(layers.values())).weight))
        if counts is None:
            self._counts = None
            return
        # Counting labels ends at the largest that occurs; `resolve` names a class without samples.
        if self._given_counts is None and len(counts) < classes:
            counts = np.pad(counts, (0, classes - len(counts)))
        resolve(counts, classes, names=_names(model, classes))
        self._counts = counts

    def _choose(
        self,
        model: nn.Module,
        training: object,
        loader: Callable[[], Loader],
        *,
        gather: Gather | None = None,
        gather_all: Gather | None = None,
    ) -> None:
        """Tune on the evaluation, or collect what `by` needs of it. What goes wrong is a warning.

        An error would lose the training, which has just ended and may not be saved yet.

        Args:
            model: as it was trained.
            training: the loader of the training, whose labels are counted if that is still to do.
            loader: returns that of the evaluation, anew each time.
            gather: joins what all processes have of a batch.
            gather_all: joins what they have of all batches; one of both is enough.
        """
        self.tuned = None
        self.verdict = None
        try:
            if not self._tunes:
                self._collect(model, loader(), gather, gather_all, features=True)
                return
            if self._likely is None:  # a lazy layer had yet to make its weight
                self._count(model, training)
            self.tuned = self._tune(model, loader, gather, gather_all)
        except Exception as error:
            self._leave_as_trained("tuning on the evaluation failed", error)

    def _leave_as_trained(self, reason: str, error: Exception) -> None:
        """Warn that the head is not adjusted."""
        self.verdict = f"the head stays as it was trained, as {reason}: {error}"
        warn(self.verdict, LevelheadWarning)

    def _tune(
        self,
        model: nn.Module,
        loader: Callable[[], Loader],
        gather: Gather | None,
        gather_all: Gather | None,
    ) -> Tuned:
        """Tune on the evaluation. A head without a bias takes offsets into its weights, else it is scaled.

        Args:
            model, loader, gather, gather_all: as in `_choose`.

        Raises:
            LevelheadError: a rule was asked for that this head cannot take. Without one, the evaluation is run a
                second time, now without features, and scales are tuned instead, after a warning.
        """
        layers = self._layers(model)
        rule = self._rule_for(model, layers)
        head = next(iter(layers.values()))
        into_weights = rule.adds and head.bias is None
        try:
            self._collect(model, loader(), gather, gather_all, features=into_weights)
            return self._tune_by(rule, model)
        except LevelheadError as error:
            # No inputs of the head belong to its logits, or no direction in them is 1.
            if not into_weights or self._rule is not None or error.parameter != "features":
                raise
            warn(
                f"the head has no bias and takes no offsets, so it is scaled: {error}",
                LevelheadWarning,
            )
        self._collect(model, loader(), gather, gather_all, features=False)
        return self._tune_by(default_rule(takes_bias=False), model)

    def _collect(
        self,
        model: nn.Module,
        loader: Loader,
        gather: Gather | None,
        gather_all: Gather | None,
        *,
        features: bool,
    ) -> None:
        """Collect logits and labels of the evaluation from all processes; with `features`, what the head takes, too.

        Trainers differ in when processes meet: the Hugging Face Trainer deals out each batch, so a batch is gathered
        as it comes (`gather`); Lightning deals out the data set, so all of it is put in order at the end
        (`gather_all`). Sets `_samples`, the pair of logits [N, K] and labels [N], and `_features` [N, d] or None.
        """
        held_out = collect(
            model,
            loader,
            scores=self._scores,
            gather=gather,
            features=features,
            layer=self.layer,
        )
        logits, labels = held_out
        self._features = held_out.features
        if gather_all is not None:
            logits = gather_all(logits)
            labels = gather_all(labels)
            if self._features is not None:
                self._features = gather_all(self._features)
        self._samples = logits, labels

    def _tune_by(self, rule: Rule, model: nn.Module) -> Tuned:
        """Tune a rule on what was collected, with the class names of the model's config, if it has one."""
        logits, labels = self._samples
        return tune(
            logits,
            as_positions(labels),
            self._counts,
            rule=rule,
            metric=self._goal,
            names=_names(model, logits.shape[1]),
            features=self._features,
        )

    def _rule_for(self, model: nn.Module, layers: Mapping[str, Editable]) -> Rule:
        """Return the rule asked for, or else offsets; scales where several layers feed one output.

        Of several layers, each would add the offset, and what arrives depends on how their outputs are joined. A rule
        that goes by the norms of the head (tau) gets them here: `tune` sees logits alone.
        """
        path, head = next(iter(layers.items()))
        if self._rule is None:
            return default_rule(takes_bias=len(layers) == 1)
        # Norms are those of one layer with a row for each class: a rule that needs them says so.
        if len(layers) > 1 or len(head.weight) == 1:
            return self._rule
        return self._rule.with_norms(to_numpy(read(model, layer=path).norms))

    def _layers(self, model: nn.Module) -> dict[str, Editable]:
        return dict(TorchModel(model).find(layer=self.layer, classes=self._likely))

    def _apply(self, model: nn.Module) -> Outcome | None:
        """Adjust the head, unless it was tuned on the evaluation and no gain was seen there.

        Returns:
            What was done, for people and trackers; None where there is nothing to tell: the choice was made before,
            or tuning or adjusting failed, of which a warning has told.
        """
        if self.by is not None:
            self._apply_given(model, self.by)
            return None
        if self.tuned is None:  # tuning failed, and a warning has said so
            return None
        # `worthwhile` is None where there was nothing to judge by, and then nothing speaks against it.
        if self._anyway or self.tuned.worthwhile is not False:
            features = self._features
            try:
                self.adjusted = adjust_(model, self.tuned, layer=self.layer, features=features)
            except LevelheadError as error:
                self._leave_as_trained("it does not take what was tuned", error)
                return None
            self._written = _parameters_written(model, self.adjusted.layers)
        title = type(unwrap(model)).__name__
        outcome = outcome_of(
            self.tuned, self.adjusted, self._samples, title, features=self._features
        )
        self.verdict = outcome.text
        return outcome

    def _apply_given(self, model: nn.Module, by: Choice) -> None:
        """Adjust the head by a choice that was made before.

        What does not fit was refused before the first step (`check_given`). What is left to go wrong are features,
        which nobody knew then: that is a warning, and the head stays as it was trained.
        """
        features = self._features
        # Collecting them failed, and a warning has said so.
        if self._needs_features and features is None:
            return
        try:
            self.adjusted = adjust_(
                model, by, self._given_counts, layer=self.layer, features=features
            )
        except LevelheadError as error:
            # What the head takes is known only now: perhaps no direction in it is 1.
            if error.parameter != "features":
                raise
            self._leave_as_trained("it takes no offsets", error)
            return
        self._written = _parameters_written(model, self.adjusted.layers)

    def _finish(self, outcome: Outcome) -> None:
        """Say what was done on stderr, and write the page where one was asked for; in one process of several.

        A page that cannot be written, as the disk is full, is a warning: the training must not be lost for it.
        """
        print(outcome.text, file=sys.stderr)
        if self._page is None:
            return
        try:
            outcome.write_page(Path(self._page))
        except (OSError, LevelheadError) as error:
            warn(f"the page was not written: {error}", LevelheadWarning)

    def _restore(self) -> None:
        """Restore the head, unless it was written to since: weights from a checkpoint stay.

        torch counts the changes in place of every tensor (`_version`). Comparing that is free, where comparing values
        would read a head from a GPU.
        """
        unchanged = all(parameter._version == version for parameter, version in self._written)
        if self.adjusted is not None and unchanged:
            self.adjusted.restore()
        self.adjusted = None
        self._written = ()


def _check_page(path: Path) -> None:
    """Raise LevelheadError if no page can be written at a path: for its suffix, its folder, or what is there."""
    # The page stands above the trainers, and is loaded for this alone.
    from ..report.page import check_suffix

    with named("page"):
        check_suffix(path)
        check_plain(path)
        if not path.parent.is_dir():
            raise LevelheadError(f"{path.parent}: no such folder to write {path.name} into")


def _parameters_written(
    model: nn.Module, layers: Sequence[str]
) -> tuple[tuple[nn.Parameter, int], ...]:
    """Return the parameters of layers, each with torch's count of how often it was written to."""
    heads = [unwrap(model).get_submodule(path) for path in layers]
    return tuple(
        (parameter, parameter._version)
        for head in heads
        for parameter in head.parameters(recurse=False)
    )


def _names(model: nn.Module, classes: int) -> list[str] | None:
    """Return the class names in a model's config (`id2label` of transformers); None if there are none."""
    return names_in_config(getattr(unwrap(model), "config", None), classes)


def one_loader(loaders: Loader | Mapping[str, Loader] | Sequence[Loader] | None) -> Loader:
    """Return the loader of the evaluation; raise if there is none, or if there are several.

    Of several, nobody could say which of them the head is to be leveled for: the user is told how to do it by hand.

    Args:
        loaders: as a trainer has them: one, a list, {name: loader}, or None.
    """
    if loaders is None:
        loaders = []
    if isinstance(loaders, dict):
        loaders = list(loaders.values())
    if not isinstance(loaders, list | tuple):
        return cast(Loader, loaders)
    if len(loaders) != 1:
        instead = "tune with lh.tune(*lh.collect(model, loader)) and apply with lh.adjust_"
        reason = f"expected one evaluation set to tune on, got {len(loaders) or 'none'}; {instead}"
        raise LevelheadError(reason, parameter="by")
    return loaders[0]
