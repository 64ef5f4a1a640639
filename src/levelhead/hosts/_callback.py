"""What the callbacks of all trainers share: WVN at the optimizer of the head, and adjusting it when training ends."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..choice.tune import tune
from ..choice.tuned import Tuned
from ..core.class_names import names_in_config
from ..core.counts import IGNORED, Counts, of, resolve
from ..core.rules import AUTO, Rescale, Shift, rule_with
from ..heads.adjusted import Adjusted
from ..heads.apply import adjust_, check_adjust, check_rescale, rescale_
from ..heads.collect import LABEL_KEYS, BatchScores
from ..heads.collect import scores as scores_of
from ..heads.torch import Editable, TorchModel, read
from ..heads.torch_find import find_head, unwrap
from ..path.curve import METRICS
from ..support.arrays import are_log_probabilities, to_numpy
from ..support.errors import Advice, LevelheadError, check_choice
from ..support.types import Metric
from ..support.warnings import LevelheadWarning, warn
from .torch import WVN, Order

Gather = Callable[[Tensor], Tensor]
_GIVE_COUNTS = Advice("counts", None, "to say how many training samples each class has")
PAGE = "levelhead.html"  # the page's name among a run's artifacts


@dataclass(frozen=True, eq=False)
class LevelOutcome:
    """What the adjustment did, for people and trackers."""

    numbers: dict[
        str, float
    ]  # such as gain, gamma, and the largest over the smallest norm before and after
    text: str  # the same in a few lines
    write_page: Callable[[Path], object]  # writes the page to the .html file it is called with

    def page(self) -> str:
        """Return the page as HTML."""
        with TemporaryDirectory() as folder:
            path = Path(folder, PAGE)
            self.write_page(path)
            return path.read_text(encoding="utf-8")


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

    def send(self, outcome: LevelOutcome, step: int = 0, tensorboard: Path | None = None) -> None:
        """Send numbers and page to every tracker that was found, and to TensorBoard in its folder."""
        self.find()
        if tensorboard is not None:
            from torch.utils.tensorboard.writer import SummaryWriter

            with SummaryWriter(str(tensorboard)) as writer:
                for name, value in outcome.numbers.items():
                    writer.add_scalar(name, value, step)
                writer.add_text("level", outcome.text, step)
        if self._mlflow_run is not None:
            client = sys.modules["mlflow"].MlflowClient()
            for name, value in outcome.numbers.items():
                client.log_metric(self._mlflow_run, name, value, step=step)
            client.log_text(self._mlflow_run, outcome.page(), PAGE)
        if self._wandb_run is not None:
            html = sys.modules["wandb"].Html(outcome.page(), inject=False)
            self._wandb_run.log({**outcome.numbers, "level/page": html})


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


class BaseLevelCallback:
    """A choice applied at the end of a training, undone before the next one starts. `adjusted` is None in between."""

    keeps_new_bias = (
        True  # whether the trainer's library loads a bias that a rule adds to a head without one
    )
    tuned: Tuned | str | Path | None = None
    adjusted: Adjusted | None = None
    verdict: str | None = None
    _tunes = False  # whether the choice is made on the evaluation of the training
    _counts: np.ndarray | None = None  # [K], known when a training has started
    _likely: int | None = None  # K, as far as counts or labels tell it
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
        certain: bool = False,
        scores: BatchScores | None = None,
        page: str | Path | None = None,
    ) -> None:
        check_choice("metric", metric, METRICS)
        if tune is not None:
            check_choice("tune", tune, ("eval",))
        if (tuned is None) == (tune is None):
            either = "a choice that was tuned before, or tune='eval', which tunes on the evaluation"
            raise LevelheadError(f"expected {either}; got {'neither' if tuned is None else 'both'}")
        if anyway and certain:
            raise LevelheadError("expected this or certain=True, got both", parameter="anyway")
        self.tuned, self.layer, self._tunes, self._given = tuned, layer, tune is not None, counts
        self._rule, self._anyway, self._certain, self._scores, self._page = (
            rule,
            anyway,
            certain,
            scores,
            page,
        )
        self._metric: Metric = metric

    def _check(self, model: nn.Module, training: Any = None) -> None:
        """Refuse early what `_apply` would refuse after training, unless a lazy layer has yet to make its weight."""
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
            return
        if self._tunes:
            self._count(model, training)
        else:
            self._check_head(model)

    def _check_head(self, model: nn.Module) -> None:
        check_adjust(model, self._choice, layer=self.layer)

    def _adjust_head(self, model: nn.Module) -> Adjusted:
        return adjust_(model, self._choice, layer=self.layer)

    @property
    def _choice(self) -> Tuned | str | Path:
        assert self.tuned is not None
        return self.tuned

    def _count(self, model: nn.Module, training: Any) -> None:
        """Check the head, and know the counts: as given, or from the labels of what training draws from."""
        counted = count_training_labels(training) if self._given is None else self._given
        self._likely = TorchModel(model).likely_classes(
            len(counted) if hasattr(counted, "__len__") else None
        )
        classes = max(2, len(next(iter(self._layers(model).values())).weight))
        if (
            self._given is None and len(counted) < classes
        ):  # the last classes have no sample, which `resolve` tells
            counted = np.pad(counted, (0, classes - len(counted)))
        self._counts = resolve(counted, classes, names=_names(model, classes))

    def _choose(
        self, model: nn.Module, training: Any, loader: Callable[[], Any], **gather: Gather | None
    ) -> None:
        """Tune on the evaluation. What goes wrong is a warning: a training that has ended must not be lost for it."""
        self.tuned = self.verdict = None
        try:
            if self._counts is None:  # a lazy layer had yet to make its weight
                self._count(model, training)
            self.tuned = self._tune(model, loader(), **gather)
        except Exception as error:
            self.verdict = (
                f"the head stays as it was trained, as tuning on the evaluation failed: {error}"
            )
            warn(self.verdict, LevelheadWarning)

    def _tune(
        self,
        model: nn.Module,
        loader: Iterable[Any],
        *,
        gather: Gather | None = None,
        gather_all: Gather | None = None,
    ) -> Tuned:
        """Tune on the logits and labels of the evaluation, each batch's or all gathered from other processes."""
        logits, labels = scores_of(model, loader, scores=self._scores, gather=gather)
        if gather_all is not None:
            logits, labels = gather_all(logits), gather_all(labels)
        layers = self._layers(model)
        path, head = next(iter(layers.items()))
        one_logit, several = len(head.weight) == 1, len(layers) > 1
        self._norms = None if several or one_logit else to_numpy(read(model, layer=path).norms)
        self._collected = logits, labels
        rule, new_bias = self._rule, head.bias is None and not self.keeps_new_bias
        if rule == AUTO:  # whichever a head of its kind, with these logits, can have
            shifts = one_logit or (are_log_probabilities(logits) and not new_bias)
            rule = Shift.name if shifts else Rescale.name if several or new_bias else AUTO
        by, names = rule_with(rule, norms=self._norms), _names(model, logits.shape[1])
        return tune(logits, labels, self._counts, rule=by, metric=self._metric, names=names)

    def _layers(self, model: nn.Module) -> dict[str, Editable]:
        return dict(TorchModel(model).find(layer=self.layer, classes=self._likely))

    def _apply(self, model: nn.Module) -> LevelOutcome | None:
        """Adjust the head, unless the choice was made on the evaluation and no gain is to be expected of it."""
        chosen = self.tuned if self._tunes and isinstance(self.tuned, Tuned) else None
        if self._tunes and chosen is None:
            return None
        if (
            chosen is None
            or self._anyway
            or (chosen.certain if self._certain else chosen.worthwhile is not False)
        ):
            self.adjusted = self._adjust_head(model)
            heads = [unwrap(model).get_submodule(path) for path in self.adjusted.layers]
            self._written = tuple(
                (p, p._version) for head in heads for p in head.parameters(recurse=False)
            )
        if chosen is None:
            return None
        outcome = self._outcome(chosen, type(unwrap(model)).__name__)
        self.verdict = outcome.text
        return outcome

    def _outcome(self, tuned: Tuned, title: str) -> LevelOutcome:
        """Return what was done as text and numbers, with the page about it."""
        adjusted, low_high = self.adjusted, tuned.gain_interval or (None, None)
        numbers = {
            "gain": tuned.gain,
            "gain_low": low_high[0],
            "gain_high": low_high[1],
            "gamma": tuned.gamma,
        }
        numbers |= {"applied": float(adjusted is not None)}
        numbers |= {f"{tuned.metric}_as_trained": tuned.value_at_zero, tuned.metric: tuned.value}
        why = "the gain is not certain" if self._certain else "no gain is to be expected"
        done = f"not applied, as {why}: the head stays as it was trained; pass anyway=True to apply it all the same"
        if adjusted is not None:
            done = f"applied to {', '.join(adjusted.layers) or 'the head'}"
            for name, norms in (
                ("norm_ratio_as_trained", adjusted.before),
                ("norm_ratio", adjusted.after),
            ):
                lengths = norms[adjusted.layers[0]]
                numbers[name] = lengths.max() / lengths.min()

        def write_page(path: Path) -> None:
            # the page stands above the trainers, and is loaded for this alone
            from ..report import of_logits, write

            logits, labels = (to_numpy(part) for part in self._collected)
            options = {"names": tuned.names, "norms": self._norms, "title": title}
            write(path, [of_logits(logits, labels, self._counts, tuned=tuned, **options)])

        known = {
            f"level/{name}": float(value) for name, value in numbers.items() if value is not None
        }
        return LevelOutcome(known, f"levelhead: {tuned}; {done}", write_page)

    def _finish(self, outcome: LevelOutcome) -> None:
        """Say what was done, and write the page where one was asked for."""
        print(outcome.text, file=sys.stderr)
        if self._page is not None:
            outcome.write_page(Path(self._page))

    def _restore(self) -> None:
        """Restore the head, unless it was written to since: weights from a checkpoint stay."""
        if self.adjusted is not None and all(p._version == version for p, version in self._written):
            self.adjusted.restore()
        self.adjusted, self._written = None, ()


def _names(model: nn.Module, classes: int) -> list[str] | None:
    return names_in_config(getattr(unwrap(model), "config", None), classes)


class BaseRescaleCallback(BaseLevelCallback):
    """RS at a strength of one's own at the end of a training."""

    def __init__(self, counts: Counts, gamma: float | Tuned, *, layer: str | None = None) -> None:
        self.counts, self.gamma, self.layer = counts, gamma, layer

    def _check_head(self, model: nn.Module) -> None:
        check_rescale(model, self.counts, gamma=self.gamma, layer=self.layer)

    def _adjust_head(self, model: nn.Module) -> Adjusted:
        return rescale_(model, self.counts, gamma=self.gamma, layer=self.layer)


def one_loader(loaders: Any) -> Any:
    """Return the loader of the evaluation; raise if there is none, or if there are several."""
    loaders = (
        list(loaders.values()) if isinstance(loaders, dict) else [] if loaders is None else loaders
    )
    if not isinstance(loaders, list | tuple):
        return loaders
    if len(loaders) != 1:
        instead = "tune with lh.tune(*lh.scores(model, loader), counts) and apply with lh.adjust_"
        reason = f"expected one evaluation set to tune on, got {len(loaders) or 'none'}; {instead}"
        raise LevelheadError(reason, parameter="tune")
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
