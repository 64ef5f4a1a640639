"""Joining paths: of several sets of samples, or of several shards of the classes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.errors import LevelheadError

_Path = Any  # a GammaPath: its module imports this one


def join_samples(first: _Path, second: _Path) -> _Path:
    """Return the path of both sets of samples, under one rule."""
    _check_alike(first, second)
    masses = [np.ones(len(path.labels)) if path.weights is None else path.weights for path in (first, second)]
    return replace(
        concatenate([first, second]),
        weights=None if first.weights is None and second.weights is None else np.concatenate(masses),
        logits=first.logits + second.logits if first.logits and second.logits else (),
    )


def join_classes(first: _Path, second: _Path) -> _Path:
    """Return the path of the same samples against the classes of both shards."""
    _check_alike(first, second)
    if first.k > 1 or first.rule.bias is not None or not np.array_equal(first.labels, second.labels):
        raise LevelheadError("expected two shards of the same samples, for top-1 without a kept bias")
    lo, hi = np.maximum(first.lo, second.lo), np.minimum(first.hi, second.hi)
    return replace(first, lo=np.where(lo > hi, np.inf, lo), hi=np.where(lo > hi, -np.inf, hi), logits=())


def concatenate(paths: Sequence[_Path]) -> _Path:
    """Return the first path with the samples of all, unweighted and with its own logits."""
    offsets = np.cumsum([0, *(len(path.labels) for path in paths[:-1])])
    lo, hi, labels = (np.concatenate([getattr(path, name) for path in paths]) for name in ("lo", "hi", "labels"))
    sample = np.concatenate([path.sample + offset for path, offset in zip(paths, offsets, strict=True)])
    return replace(paths[0], sample=sample, lo=lo, hi=hi, labels=labels)


def _check_alike(*paths: _Path) -> None:
    one, other = (
        [path.range, path.k, path.kind, path.rule.name, path.rule.ratios, path.rule.bias, path.target] for path in paths
    )
    if not all(map(np.array_equal, one, other)):
        raise LevelheadError("expected paths over the same range, k, kind, rule, counts, bias and target")
