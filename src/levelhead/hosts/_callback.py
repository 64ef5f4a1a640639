"""What the callbacks of all trainers share: WVN at the optimizer of the head, and adjusting it when training ends."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.class_labels import IGNORED, as_positions
from ..core.class_names import names_in_config
from ..core.counts import Counts, of, resolve
from ..core.metrics import Metric
from ..core.rules import DEFAULT, Rule, Scales, find_rule
from ..core.samples import Goal
from ..core.tune import tune
from ..core.tuned import Tuned
from ..heads.adjusted import Adjusted
from ..heads.apply import adjust_, check_adjust
from ..heads.collect import LABEL_KEYS, BatchScores, collect
from ..heads.torch import Editable, TorchModel, read
from ..heads.torch_find import find_head, unwrap
from ..support.arrays import to_numpy
from ..support.errors import Advice, LevelheadError
from ..support.warnings import LevelheadWarning, warn
from .torch import WVN, Order

Gather = Callable[[Tensor], Tensor]
By = Tuned | Rule | str | Path  # what was tuned before, its file, or a rule with a strength
_GIVE_COUNTS = Advice("counts", None, "to say how many training samples each class has")
PAGE = "levelhead.html"  # the page's name among a run's artifacts


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the adjustment did, for people and trackers.

    Args:
        numbers: such as the gain, the metric and the accuracy before and after.
        text: the same in a line.
        write_page: writes the page to the .html file it is called with.
    """

    numbers: dict[str, float]
    text: str
    write_page: Callable[[Path], object]

    def page(self) -> str:
        """Return the page as HTML."""
        with TemporaryDirectory() as folder:
            path = Path(folder, PAGE)
            self.write_page(path)
            return path.read_text(encoding="utf-8")


def outcome_of(
    tuned: Tuned, adjusted: Adjusted | None, samples: tuple[Any, Any], title: str
) -> Outcome:
    """Return what was tuned on samples, and whether it was applied, in words and numbers."""
    numbers = {"applied": float(adjusted is not None)}
    if tuned.strength is not None:
        numbers["strength"] = tuned.strength
    evidence = tuned.evidence
    if evidence is not None:
        low, high = evidence.interval
        numbers |= {"gain": evidence.gain, "gain_low": low, "gain_high": high}
        name = evidence.metric.name
        numbers |= {f"{name}_as_trained": evidence.value_before, name: evidence.value}
        numbers |= {
            "accuracy_as_trained": float(evidence.before.accuracy),
            "accuracy": float(evidence.after.accuracy),
        }
    layers = "" if adjusted is None else ", ".join(adjusted.layers) or "the head"
    if adjusted is None:
        stays = "not applied, as no gain was seen: the head stays as it was trained"
        done = f"{stays}; pass anyway=True to apply it all the same"
    else:
        done = f"applied to {layers}"

    def write_page(path: Path) -> None:
        # The page stands above the trainers, and is loaded for this alone.
        from ..report import Applied, of_tuned, write

        applied = None
        if adjusted is not None:
            undo = "callback.adjusted.restore()  # undoes it"
            applied = Applied(f"To {layers}, when the training ended", undo)
        logits, labels = (to_numpy(part) for part in samples)
        positions = as_positions(labels)
        write(path, [of_tuned(tuned, logits, positions, title=title, applied=applied)])

    prefixed = {f"levelhead/{name}": float(value) for name, value in numbers.items()}
    return Outcome(prefixed, f"levelhead: {tuned}; {done}", write_page)


class Trackers:
    """The trackers that run, remembered while they do: some end their run before training has ended."""

    _mlflow_run: str | None = None
    _wandb_run: Any = None

    def find(self) -> None:
        """Remember the runs of MLflow and of Weights & Biases that are active now."""
        mlflow, wandb = sys.modules.get("mlflow"), sys.modules.get("wandb")
        run = None if mlflow is None else mlflow.active_run()
        self._mlflow_run = self._mlflow_run if run is None else run.info.run_id
        self._wandb_run = getattr(wandb, "run", None) or self._wandb_run

    def send(self, outcome: Outcome, step: int = 0, tensorboard: Path | None = None) -> None:
        """Send numbers and page to every tracker that was found, and to TensorBoard in its folder."""
        self.find()
        if tensorboard is not None:
            from torch.utils.tensorboard.writer import SummaryWriter

            with SummaryWriter(str(tensorboard)) as writer:
                for name, value in outcome.numbers.items():
                    writer.add_scalar(name, value, step)
                writer.add_text("levelhead", outcome.text, step)
        if self._mlflow_run is not None:
            client = sys.modules["mlflow"].MlflowClient()
            for name, value in outcome.numbers.items():
                client.log_metric(self._mlflow_run, name, value, step=step)
            client.log_text(self._mlflow_run, outcome.page(), PAGE)
        if self._wandb_run is not None:
            html = sys.modules["wandb"].Html(outcome.page(), inject=False)
            self._wandb_run.log({**outcome.numbers, "levelhead/page": html})


class BaseWVNCallback:
    """WVN on the head of a model while it is trained. `hook` is None before and after."""

    def __init__(
        self,
        layer: str | None = None,
        *,
        order: Order = "algorithm",
        classes: int | None = None,
        example: Any = None,
    ) -> None:
        self.layer, self.classes, self.example, self.hook = layer, classes, example, None
        self.order: Order = order

    def _attach(self, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Attach WVN to the optimizer that trains the head. It normalizes at once."""
        self.on_train_end()
        found = find_head(model, layer=self.layer, classes=self.classes, example=self.example)
        if len(found) > 1:
            advice = Advice("layer", None, "to name one")
            raise LevelheadError(
                f"the model has {len(found)} heads: {', '.join(found)}", advice=advice
            )
        path, head = next(iter(found.items()))
        for optimizer in optimizers:
            if any(p is head.weight for group in optimizer.param_groups for p in group["params"]):
                self.hook = WVN(optimizer, head, order=self.order)
                return
        raise LevelheadError(
            f"no optimizer trains {path or 'the head'}, so WVN has no step to follow"
        )

    def on_train_end(self, *_: Any, **__: Any) -> None:  # as the trainers call it
        if self.hook is not None:
            self.hook.remove()
        self.hook = None


class BaseAdjustCallback:
    """An adjustment at the end of a training, undone before the next one starts.

    `adjusted` is None in between.
    """

    # Whether the trainer's library loads a bias that is added to a head without one.
    keeps_new_bias = True
    adjusted: Adjusted | None = None
    tuned: Tuned | None = None
    verdict: str | None = None
    _counts: np.ndarray | None = None  # [K], known when a training has started
    _likely: int | None = None  # K, as far as counts or labels tell it
    _written: tuple[tuple[nn.Parameter, int], ...] = ()

    def __init__(
        self,
        by: By | None = None,
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

    def _check(self, model: nn.Module, training: Any = None) -> None:
        """Refuse early what `_apply` would refuse after training."""
        lazy = nn.parameter.UninitializedParameter
        if any(isinstance(parameter, lazy) for parameter in model.parameters()):
            return  # a layer has yet to make its weight
        if self.by is None:
            self._count(model, training)
        else:
            check_adjust(model, self.by, self._given_counts, layer=self.layer)

    def _count(self, model: nn.Module, training: Any) -> None:
        """Check the head, and know the counts: as given, or from the labels trained on.

        Where these cannot be read, there are none, and `tune` takes those of the evaluation.
        """
        counts = self._given_counts
        if counts is None:
            try:
                counts = count_training_labels(training)
            except LevelheadError:
                counts = None
        size = len(counts) if counts is not None and hasattr(counts, "__len__") else None
        self._likely = TorchModel(model).likely_classes(size)
        classes = max(2, len(next(iter(self._layers(model).values())).weight))
        if counts is None:
            self._counts = None
            return
        if self._given_counts is None and len(counts) < classes:
            counts = np.pad(counts, (0, classes - len(counts)))  # the last have no sample
        self._counts = resolve(counts, classes, names=_names(model, classes))

    def _choose(
        self,
        model: nn.Module,
        training: Any,
        loader: Callable[[], Any],
        *,
        gather: Gather | None = None,
        gather_all: Gather | None = None,
    ) -> None:
        """Tune on the evaluation. What goes wrong is a warning, so that the training is not lost."""
        self.tuned = None
        self.verdict = None
        try:
            if self._likely is None:  # a lazy layer had yet to make its weight
                self._count(model, training)
            self.tuned = self._tune(model, loader(), gather, gather_all)
        except Exception as error:
            stays = "the head stays as it was trained, as tuning on the evaluation failed"
            self.verdict = f"{stays}: {error}"
            warn(self.verdict, LevelheadWarning)

    def _tune(
        self,
        model: nn.Module,
        loader: Iterable[Any],
        gather: Gather | None,
        gather_all: Gather | None,
    ) -> Tuned:
        """Tune on logits and labels of the evaluation, gathered from all processes."""
        logits, labels = collect(model, loader, scores=self._scores, gather=gather)
        if gather_all is not None:
            logits = gather_all(logits)
            labels = gather_all(labels)
        self._samples = logits, labels
        layers = self._layers(model)
        return tune(
            logits,
            as_positions(labels),
            self._counts,
            rule=self._rule_for(model, layers),
            metric=self._goal,
            names=_names(model, logits.shape[1]),
        )

    def _rule_for(self, model: nn.Module, layers: Mapping[str, Editable]) -> Rule:
        """Return the rule asked for, or else offsets; scales for heads that can take no bias."""
        path, head = next(iter(layers.items()))
        if self._rule is None:
            takes_offsets = len(layers) == 1 and (head.bias is not None or self.keeps_new_bias)
            return find_rule(DEFAULT if takes_offsets else Scales.name)
        if len(layers) > 1 or len(head.weight) == 1:
            return self._rule
        return self._rule.with_norms(to_numpy(read(model, layer=path).norms))

    def _layers(self, model: nn.Module) -> dict[str, Editable]:
        return dict(TorchModel(model).find(layer=self.layer, classes=self._likely))

    def _apply(self, model: nn.Module) -> Outcome | None:
        """Adjust the head, unless it was tuned on the evaluation and no gain was seen there."""
        if self._tunes and self.tuned is None:
            return None
        if self.tuned is None or self._anyway or self.tuned.worthwhile is not False:
            if self.tuned is None:
                assert self.by is not None
                self.adjusted = adjust_(model, self.by, self._given_counts, layer=self.layer)
            else:
                self.adjusted = adjust_(model, self.tuned, layer=self.layer)
            heads = [unwrap(model).get_submodule(path) for path in self.adjusted.layers]
            self._written = tuple(
                (parameter, parameter._version)
                for head in heads
                for parameter in head.parameters(recurse=False)
            )
        if self.tuned is None:
            return None
        title = type(unwrap(model)).__name__
        outcome = outcome_of(self.tuned, self.adjusted, self._samples, title)
        self.verdict = outcome.text
        return outcome

    def _finish(self, outcome: Outcome) -> None:
        """Say what was done, and write the page where one was asked for."""
        print(outcome.text, file=sys.stderr)
        if self._page is not None:
            outcome.write_page(Path(self._page))

    def _restore(self) -> None:
        """Restore the head, unless it was written to since: weights from a checkpoint stay."""
        unchanged = all(parameter._version == version for parameter, version in self._written)
        if self.adjusted is not None and unchanged:
            self.adjusted.restore()
        self.adjusted = None
        self._written = ()


def _names(model: nn.Module, classes: int) -> list[str] | None:
    return names_in_config(getattr(unwrap(model), "config", None), classes)


def one_loader(loaders: Any) -> Any:
    """Return the loader of the evaluation; raise if there is none, or if there are several."""
    loaders = (
        list(loaders.values()) if isinstance(loaders, dict) else [] if loaders is None else loaders
    )
    if not isinstance(loaders, list | tuple):
        return loaders
    if len(loaders) != 1:
        instead = "tune with lh.tune(*lh.collect(model, loader)) and apply with lh.adjust_"
        reason = f"expected one evaluation set to tune on, got {len(loaders) or 'none'}; {instead}"
        raise LevelheadError(reason, parameter="by")
    return loaders[0]


def tensorboard_folder(output: str | Path) -> Path | None:
    """Return the folder within a training's output that the Hugging Face Trainer's TensorBoard writes to, or None."""
    if given := os.environ.get("TENSORBOARD_LOGGING_DIR"):
        return Path(given).expanduser()
    found = list(Path(output, "runs").glob("**/events.out.*"))
    return max(found, key=lambda path: path.stat().st_mtime).parent if found else None


def count_training_labels(loader: Any, classes: int | None = None) -> np.ndarray:
    """Return how many samples, tokens or pixels of each class a training loader's dataset has, [K], without -100."""
    samplers = (
        getattr(loader, "sampler", None),
        getattr(getattr(loader, "batch_sampler", None), "sampler", None),
    )
    if any(type(sampler).__name__ == "WeightedRandomSampler" for sampler in samplers):
        reason = (
            "training draws samples by weight, so the dataset's labels are not what the loss sees"
        )
        raise LevelheadError(reason, advice=_GIVE_COUNTS)
    found = labels_of(getattr(loader, "dataset", None))
    return of(found[found != IGNORED], classes=classes)


def labels_of(dataset: Any) -> np.ndarray:
    """Return all labels of a dataset, or of a list of items, [N] or, of tokens and pixels, one after the other."""
    inner, indices = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if inner is not None and indices is not None and len(indices) == len(dataset):  # a torch Subset
        whole = labels_of(inner)
        if len(whole) == len(inner):
            return whole[np.asarray(indices, dtype=np.int64)]
    elif (parts := getattr(dataset, "datasets", None)) is not None:  # a torch ConcatDataset
        return np.concatenate([labels_of(part) for part in parts])
    columns = getattr(dataset, "column_names", None) or ()
    if (key := next((key for key in LABEL_KEYS if key in columns), None)) is not None:
        return _flat(list(dataset[key]))
    if (tensors := getattr(dataset, "tensors", None)) is not None:
        return _flat(tensors[-1])
    if getattr(dataset, "target_transform", None) is None:
        for name in LABEL_KEYS:
            known = getattr(dataset, name, None)
            if known is not None and hasattr(known, "__len__") and len(known) == len(dataset):
                return _flat(known)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        reason = f"the labels of {type(dataset).__name__} cannot be read ahead of training"
        raise LevelheadError(reason, advice=_GIVE_COUNTS)
    return _flat([_label_of(dataset[i]) for i in range(len(dataset))])


def _label_of(item: Any) -> Any:
    if isinstance(item, Mapping):
        if (key := next((key for key in LABEL_KEYS if key in item), None)) is not None:
            return item[key]
    elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) > 1:
        return item[-1]
    what = (
        f"a dict with {', '.join(map(str, item))}"
        if isinstance(item, Mapping)
        else type(item).__name__
    )
    expected = "expected items (input, ..., label), or dicts with 'labels', in the training data"
    raise LevelheadError(f"{expected}, got {what}", advice=_GIVE_COUNTS)


def _flat(labels: Any) -> np.ndarray:
    """Return labels [N], or those of positions one after the other; raise if a sample has several."""
    parts = (
        labels if isinstance(labels, list) and any(np.ndim(one) for one in labels[:1]) else [labels]
    )
    arrays = [to_numpy(one) for one in parts]
    tables = [
        one for one in arrays if one.ndim and one.dtype.kind == "f" and (one != np.floor(one)).any()
    ]
    vectors = len(parts) > 1 and len({one.shape for one in arrays}) == 1
    if tables or (
        vectors and arrays[0].ndim == 1 and all(set(one.tolist()) == {0, 1} for one in arrays)
    ):
        raise LevelheadError(
            "each training sample has a row of labels, not one class", advice=_GIVE_COUNTS
        )
    return np.concatenate([one.reshape(-1) for one in arrays]) if arrays else np.zeros(0, np.int64)
