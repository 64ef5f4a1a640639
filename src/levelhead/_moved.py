"""What `tune` and `gamma_path` also take for one minor version, each with a warning that says what to use instead."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, get_args

import numpy as np

from .choice import tune as choice
from .choice.chunked import tune_chunks
from .choice.options import TuneOptions
from .core.array import to_numpy
from .core.choices import LabelTask
from .core.class_names import names_in_config
from .core.counts import check_labels
from .core.errors import LevelheadError, check_choice
from .core.measure import are_log_probabilities
from .core.positions import IGNORED, flatten_positions
from .core.warnings import warn
from .heads.collect import collect_scores, is_module
from .labels.label_inputs import check_multilabel_options
from .labels.tune_labels import tune_labels
from .path import path
from .rules.rule import Rescale, find_path_rule

_NOT_OF_CHUNKS = ("bias", "training", "progress")


@wraps(choice.tune)
def tune(logits: Any, labels: Any = None, counts: Any = None, *, task: LabelTask = "multiclass", **options: Any) -> Any:
    check_choice("task", task, get_args(LabelTask))
    if isinstance(logits, path.GammaPath):
        return choice.tune_path(logits, labels if counts is None else counts, TuneOptions(**options))
    if are_chunks(logits, alone=labels is None and not is_module(logits)):
        warn("chunks are for levelhead.tune_chunks; levelhead 0.3 refuses them in tune", DeprecationWarning)
        counts = labels if counts is None else counts
        if counts is None:
            raise LevelheadError("expected the training samples of each class, got none", parameter="counts")
        for name in _NOT_OF_CHUNKS:
            if options.pop(name, None) is not None and name != "progress":
                raise LevelheadError("needs all samples at once; leave it out", parameter=name)
        return tune_chunks(logits, counts, **options)
    if is_module(logits):
        model, ignored = logits, options.get("ignore_index", IGNORED)
        logits, labels = collect_scores(model, labels, ignore_index=ignored, progress=options.get("progress"))
        if options.get("names") is None:
            options["names"] = names_in_config(getattr(model, "config", None), logits.shape[1])
        one_logit = logits.shape[1] == 2 and not logits[:, 0].any()
        fixed = one_logit or options.get("kind") == "probabilities" or are_log_probabilities(logits)
        if fixed and options.get("rule", "auto") == "auto":
            options["rule"] = "shift"  # all that fits the head, if that is one logit or a softmax follows it
    if task == "multiclass":
        return choice.tune(logits, labels, counts, **options)
    if options.pop("background", None) is not None:
        raise LevelheadError("labels that do not compete have no background; leave it out", parameter="background")
    for name in ("range", "ignore_index"):
        options.pop(name, None)
    apart = {name: options.pop(name, None) for name in ("unlabelled", "target", "norms", "bias")}
    check_multilabel_options(options.pop("rule", "auto"), options.pop("criterion", "guided"), **apart)
    return tune_labels(logits, labels, counts, **options)


def are_chunks(given: Any, *, alone: bool = False) -> bool:
    """Return whether this is chunks of samples instead of logits.

    Args:
        given: what came as logits.
        alone: whether no labels came with it, so that any other iterable is taken for chunks.

    >>> are_chunks([([[4.0, 2.0]], [0])]), are_chunks([(4.0, 2.0)]), are_chunks(iter([]))
    (True, False, True)
    >>> are_chunks(np.zeros((3, 2, 4, 4)).tolist())  # pixels
    False
    """
    if is_module(given):
        return False
    if isinstance(given, Iterator) or callable(given):
        return True
    if isinstance(given, list | tuple):
        pair = given[0] if given else None
        return isinstance(pair, tuple | list) and len(pair) == 2 and [np.ndim(one) for one in pair] == [2, 1]
    return alone and isinstance(given, Iterable) and not hasattr(given, "shape") and not hasattr(given, "__array__")


@wraps(path.gamma_path)
def gamma_path(logits: Any, labels: Any, counts: Any, **options: Any) -> Any:
    old = {name: options.pop(name, None) for name in ("norms", "bias", "shard", "ignore_index")}
    norms, bias, shard, ignored = old.values()
    for name in [name for name, value in old.items() if value is not None]:
        warn(f"gamma_path({name}=...) goes in levelhead 0.3: {_INSTEAD[name]}", DeprecationWarning)
    if norms is not None or bias is not None:
        rule = find_path_rule(options.get("rule", Rescale.name))
        options["rule"] = replace(rule, norms=norms, bias=bias)
    if ignored is not None:
        weights = options.get("weights")
        logits, labels, options["weights"] = flatten_positions(logits, labels, weights, ignore_index=ignored)
    if shard is None:
        return path.gamma_path(logits, labels, counts, **options)
    whole = path.gamma_path(_of_all_classes(logits, labels, counts, shard), labels, counts, **options)
    return replace(whole, logits=())


_INSTEAD = {
    "norms": "give rule=levelhead.rules.Tau(norms=norms)",
    "bias": "give rule=levelhead.rules.Rescale(bias=bias)",
    "shard": "give the logits of all classes",
    "ignore_index": "leave out what is to be ignored",
}


def _of_all_classes(logits: Any, labels: Any, counts: Any, shard: tuple[Any, Any]) -> np.ndarray:
    """Return logits [N, K] that are those of some classes, and so low that they never win in all others."""
    if len(shard) != 2:
        raise LevelheadError(f"expected (classes, true), got {len(shard)} values", parameter="shard")
    classes, true, own = check_labels(shard[0], len(counts)), to_numpy(shard[1]), to_numpy(logits)
    if own.shape != (len(true), len(classes)):
        expected = f"[{len(true)}, {len(classes)}], one column per class of the shard and one row per true logit"
        raise LevelheadError(f"expected {expected}, got shape {list(own.shape)}", parameter="logits")
    found = np.full((len(true), len(counts)), -1e300)
    found[:, classes] = own
    found[np.arange(len(true)), check_labels(labels, len(counts))] = true
    return found


for _function in (tune, gamma_path):
    _function.__module__ = __name__  # where pickle finds it
