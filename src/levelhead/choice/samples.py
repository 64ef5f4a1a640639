"""Held-out samples as a choice needs them: checked once, with their weights and the scale of their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core.array import Array, CheckedLogits, as_array, check_logits
from ..core.choices import Kind
from ..core.counts import Counts
from ..core.errors import LevelheadError
from ..core.logits import are_log_probabilities, fit_scale, some_rows
from ..path.engines import check_samples
from ..path.path import GammaPath
from ..rules.checks import target_prior, toward
from .goal import TuneOptions

Part = tuple[Array, np.ndarray, np.ndarray]  # logits [n, K], labels [n], counts [K]


@dataclass(frozen=True, eq=False)
class Samples:
    """Held-out samples, in parts that each have their own counts, with the options of the tuning.

    Args:
        parts: (logits [n, K], labels [n], counts [K]) of each part, checked.
        joined: the path of each rule, of samples whose logits were not kept; None if the logits are here.
    """

    parts: tuple[Part, ...]
    options: TuneOptions
    joined: Mapping[str, GammaPath] | None = None

    @staticmethod
    def of(parts: Sequence[tuple[Array, Array, Counts]], options: TuneOptions) -> "Samples":
        """Return the samples, checked."""
        found = tuple(_check_part(*part, options) for part in parts)
        sizes = sorted({len(counts) for *_, counts in found})
        if len(sizes) > 1:
            raise LevelheadError(
                f"expected the same classes in every fold, got folds of {', '.join(map(str, sizes))} classes",
                parameter="folds",
            )
        return Samples(found, options)

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of all parts, [N]."""
        return np.concatenate([labels for _, labels, _ in self.parts])

    @property
    def classes(self) -> int:
        """K."""
        return len(self.parts[0][2])

    @property
    def numbers(self) -> int:
        """N times K."""
        return len(self.labels) * self.classes

    @cached_property
    def of_probabilities(self) -> bool:
        """Whether the scores are probabilities or their logarithms, which are not to be multiplied."""
        return any(kind_of_scores(logits, self.options.kind) == "probabilities" for logits, *_ in self.parts)

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of each sample in the metric, [N]; they sum to 1."""
        shares = class_shares(self.labels, self.classes, self.options)
        sizes = np.bincount(self.labels, minlength=self.classes)
        shares = shares * (sizes > 0)
        return (shares / shares.sum() / np.maximum(sizes, 1))[self.labels]

    @cached_property
    def calibration(self) -> tuple[float, float]:
        """The temperature of the scores, and the shift that a calibrated model would then need.

        ``logits / T + log(share_k / n_k)``, with the shares that the metric weighs classes by, has the least log loss.
        The shift is T times how much of ``log(share_k / n_k)`` lies along ``log(n_max / n_k)``.
        """
        shares = class_shares(self.labels, self.classes, self.options)
        log_shares = np.log(np.maximum(shares, 1e-3 / self.classes))
        scores, labels, weights, offsets, first = [], [], [], [], 0
        for logits, own, counts in self.parts:
            some, known, rows = some_rows(logits, own, kind=self.options.kind)
            scores.append(some)
            labels.append(known)
            weights.append(self.weights[first + rows])
            offsets.append(np.broadcast_to(log_shares - np.log(counts), some.shape))
            first += len(own)
        offset = np.concatenate(offsets) if len(offsets) > 1 else offsets[0][0]
        several = np.concatenate(scores) if len(scores) > 1 else scores[0]
        temperature = fit_scale(several, np.concatenate(labels), np.concatenate(weights), offset)
        rarity = -np.log(toward(self.parts[0][2], self.target))
        rarity = rarity - rarity.mean()
        along = (log_shares + rarity) @ rarity / (rarity @ rarity) if rarity.any() else 0.0
        return temperature, temperature * float(along)

    @cached_property
    def target(self) -> np.ndarray | None:
        """The prior of the classes in deployment, [K], where one was given."""
        options = self.options
        return None if options.target is None else target_prior(options.target, self.classes, options.names)

    @cached_property
    def counts(self) -> np.ndarray:
        """The training samples of each class, [K]; of several parts, the sum."""
        return np.sum([counts for *_, counts in self.parts], axis=0)


def _check_part(logits: Array, labels: Array, counts: Counts, options: TuneOptions) -> Part:
    """Return one part, checked: once if its logits are in memory, or else as they are read, chunk by chunk."""
    logits = as_array(logits)
    labels, counts = check_samples(logits, labels, counts, options.names)
    if type(logits) is np.ndarray and options.kind == "logits":
        logits = check_logits(logits).view(CheckedLogits)
    return logits, labels, counts


def class_shares(labels: np.ndarray, classes: int, options: TuneOptions) -> np.ndarray:
    """Return what each class weighs in the metric, [K]: as the target says or, for some metrics, as classes occur."""
    sizes = np.bincount(labels, minlength=classes)
    if options.target is None and options.metric != "balanced_error":
        return sizes / sizes.sum()
    shares = target_prior(options.target, classes, options.names)
    if not shares[sizes > 0].any():
        raise LevelheadError("expected a share above 0 for some class that has a sample here", parameter="target")
    return shares


def kind_of_scores(logits: Any, kind: Kind) -> Kind:
    """Return what scores [N, K] are: `probabilities`, also if their logarithms were given, or `logits`."""
    return "probabilities" if kind == "probabilities" or are_log_probabilities(logits) else "logits"
