"""What has moved, for one minor version: old parameters, each with a DeprecationWarning that names the new one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, get_args

import numpy as np

from .choice import compare as comparing
from .choice import gamma_path as paths
from .choice import tune as choosing
from .choice.chunked import tune_chunks
from .choice.samples import Goal, TuneOptions, rule_options
from .core.class_names import names_in_config
from .core.counts import IGNORED, WithBackground, check_labels
from .core.rules import AUTO, rule_with
from .heads.collect import is_module
from .heads.collect import scores as scores_of
from .labels.tune_labels import check_multilabel_options, tune_labels
from .support.arrays import are_log_probabilities, to_numpy
from .support.errors import LevelheadError, check_choice
from .support.types import LabelTask
from .support.warnings import warn

_GOAL = ("cost", "floors", "criterion")
_RULE = ("range", "norms", "bias")


def say_moved(old: str, new: str) -> None:
    """Warn that an old name still works, and say the new one."""
    warn(f"{old} moved to {new}; levelhead 0.2 no longer takes it", DeprecationWarning)


def _take_moved(options: dict[str, Any], *, default: str = AUTO) -> dict[str, Any]:
    """Return the options with a goal for cost, floors and criterion, and a rule for range, norms and bias."""
    goal = {name: options.pop(name) for name in _GOAL if name in options}
    if goal:
        say_moved(f"the parameter {next(iter(goal))}", f"metric=lh.Goal({next(iter(goal))}=...)")
        known = options.get("metric", "balanced_error")
        options["metric"] = (
            replace(known, **goal) if isinstance(known, Goal) else Goal(known, **goal)
        )
    more = {name: options.pop(name) for name in _RULE if name in options}
    if any(value is not None for value in more.values()):
        name = next(name for name, value in more.items() if value is not None)
        options["rule"] = rule_with(options.get("rule", default), **more)
        say_moved(
            f"the parameter {name}", f"rule=lh.rules.{type(options['rule']).__name__}({name}=...)"
        )
    return options


def _without_ignored(labels: Any, options: dict[str, Any]) -> Any:
    """Return labels with those that an `ignore_index` names as -100, which is left out."""
    if "ignore_index" not in options:
        return labels
    index = options.pop("ignore_index")
    if index == IGNORED:
        return labels
    say_moved("the parameter ignore_index", "labels of -100")
    known = np.array(labels)
    return np.where(known == index, IGNORED, known)


@wraps(choosing.tune)
def tune(
    logits: Any,
    labels: Any = None,
    counts: Any = None,
    *more: Any,
    task: LabelTask = "multiclass",
    **options: Any,
) -> Any:
    check_choice("task", task, get_args(LabelTask))
    if more or (hasattr(logits, "predict") and not is_module(logits)):
        ours, theirs = "lh.scores(model, loader) in torch", "model.predict_proba(X) in scikit-learn"
        expected = (
            f"expected scores [N, K], labels and counts: a model's scores are {ours}, and {theirs}"
        )
        raise LevelheadError(f"{expected}, with kind='probabilities'", parameter="logits")
    if isinstance(logits, paths.GammaPath):
        options, known = _take_moved(options), labels if counts is None else counts
        goal, rule = (
            Goal.of(options.pop("metric", "balanced_error")),
            rule_options(options.pop("rule", AUTO)),
        )
        return choosing.tune_path(logits, known, TuneOptions(goal=goal, **rule, **options))
    if are_chunks(logits, alone=labels is None):
        say_moved("tune(chunks, counts=counts)", "levelhead.tune_chunks(chunks, counts)")
        return _tune_chunks(logits, labels if counts is None else counts, options)
    if task == "multilabel":
        say_moved('tune(task="multilabel")', "lh.tune_labels(logits, labels, counts)")
        return _tune_labels(logits, labels, counts, options)
    if not isinstance(logits, np.ndarray) and is_module(logits):
        say_moved("tune(model, loader, counts)", "lh.tune(*lh.scores(model, loader), counts)")
        model, ignored = logits, options.pop("ignore_index", IGNORED)
        logits, labels = scores_of(
            model, labels, ignore_index=ignored, progress=options.get("progress")
        )
        if options.get("names") is None:
            options["names"] = names_in_config(getattr(model, "config", None), logits.shape[1])
        one_logit = logits.shape[1] == 2 and not logits[:, 0].any()
        fixed = one_logit or options.get("kind") == "probabilities" or are_log_probabilities(logits)
        if fixed and options.get("rule", AUTO) == AUTO:
            options["rule"] = (
                "shift"  # all that fits the head, if that is one logit or a softmax follows it
            )
    labels = _without_ignored(labels, options)
    if (background := options.pop("background", None)) is not None:
        say_moved(
            "the parameter background", "counts=lh.counts.with_background(counts, background)"
        )
        counts = WithBackground(counts, background)
    return choosing.tune(logits, labels, counts, **_take_moved(options))


def _tune_chunks(chunks: Any, counts: Any, options: dict[str, Any]) -> Any:
    if counts is None:
        raise LevelheadError(
            "expected the training samples of each class, got none", parameter="counts"
        )
    options.pop("progress", None)
    if options.pop("training", None) is not None:
        raise LevelheadError("needs all samples at once; leave it out", parameter="training")
    if (background := options.pop("background", None)) is not None:
        counts = WithBackground(counts, background)
    ignored = options.pop("ignore_index", IGNORED)

    def read() -> Iterator[tuple[Any, Any]]:
        given: Any = chunks() if callable(chunks) else chunks
        for logits, labels in given:
            yield logits, _without_ignored(labels, {"ignore_index": ignored})

    return tune_chunks(chunks if ignored == IGNORED else read, counts, **_take_moved(options))


def are_chunks(given: Any, *, alone: bool = False) -> bool:
    """Return whether this is chunks of samples instead of logits; `alone` if no labels came with it."""
    if isinstance(given, np.ndarray) or is_module(given):
        return False
    if isinstance(given, Iterator) or callable(given):
        return True
    if isinstance(given, list | tuple):
        pair = given[0] if given else None
        return (
            isinstance(pair, tuple | list)
            and len(pair) == 2
            and [np.ndim(one) for one in pair] == [2, 1]
        )
    return (
        alone
        and isinstance(given, Iterable)
        and not hasattr(given, "shape")
        and not hasattr(given, "__array__")
    )


def _tune_labels(logits: Any, labels: Any, counts: Any, options: dict[str, Any]) -> Any:
    if options.pop("background", None) is not None:
        raise LevelheadError(
            "labels that do not compete have no background; leave it out", parameter="background"
        )
    for name in ("range", "ignore_index"):
        options.pop(name, None)
    apart = {name: options.pop(name, None) for name in ("unlabelled", "target", "norms", "bias")}
    check_multilabel_options(options.pop("rule", AUTO), options.pop("criterion", "guided"), **apart)
    return tune_labels(logits, labels, counts, **options)


def _takes_moved(function: Callable[..., Any], *, default: str = AUTO) -> Callable[..., Any]:
    @wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        if "ignore_index" in options:
            given = (given[0], _without_ignored(given[1], options), *given[2:])
        return function(*given, **_take_moved(options, default=default))

    call.__module__ = __name__  # where pickle finds it
    return call


@wraps(paths.gamma_path)
def gamma_path(logits: Any, labels: Any, counts: Any, **options: Any) -> Any:
    reach, shard = options.pop("range", None), options.pop("shard", None)
    labels, options = _without_ignored(labels, options), _take_moved(options, default="rescale")
    if shard is None:
        return paths.gamma_path(logits, labels, counts, range=reach, **options)
    say_moved("the parameter shard", "the logits of all classes")
    whole = paths.gamma_path(
        _of_all_classes(logits, labels, counts, shard), labels, counts, range=reach, **options
    )
    return replace(whole, logits=())


def _of_all_classes(logits: Any, labels: Any, counts: Any, shard: tuple[Any, Any]) -> np.ndarray:
    """Return logits [N, K] that are those of some classes, and so low that they never win in all others."""
    if len(shard) != 2:
        raise LevelheadError(
            f"expected (classes, true), got {len(shard)} values", parameter="shard"
        )
    classes, true, own = check_labels(shard[0], len(counts)), to_numpy(shard[1]), to_numpy(logits)
    if own.shape != (len(true), len(classes)):
        expected = f"[{len(true)}, {len(classes)}], one column per class of the shard and one row per true logit"
        raise LevelheadError(
            f"expected {expected}, got shape {list(own.shape)}", parameter="logits"
        )
    found = np.full((len(true), len(counts)), -1e300)
    found[:, classes] = own
    found[np.arange(len(true)), check_labels(labels, len(counts))] = true
    return found


cross_fit = _takes_moved(choosing.cross_fit)
match_prior = _takes_moved(choosing.match_prior, default="rescale")
compare = _takes_moved(comparing.compare)
tune.__module__ = gamma_path.__module__ = __name__
