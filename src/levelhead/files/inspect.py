"""Look at the head in a model's file: its layers, its norms against the counts, and what to beware of. Runs no code."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.adjust import can_flip, factors
from ..core.array import to_numpy
from ..core.counts import Counts, resolve
from ..core.geometry import norm_follows_count
from ..core.head import Head
from .rescale import find, format_of
from .spans import Place, load


@dataclass(frozen=True)
class Layer:
    """One layer of a head: its key, and shape and dtype of weight and bias as the file has them."""

    key: str
    weight: str
    bias: str | None
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Inspection:
    """What is known of the head in a file.

    Args:
        path, format: the file.
        layers: those of the head; more than one where several feed one output.
        norms: [K], lengths of the weight vectors of the first layer.
        names: class names, where known.
        counts: [K], where given.
        correlation: Spearman's, of norms with counts; None without counts, or if all of either are equal.
        bias_share: median over classes of |b_i| / ||w_i||; None without a bias.
        bias_gap: with counts and a bias, how far scaling and keeping the bias are apart at gamma 0.5: the largest
            ``|(n_1 / n_i)^0.5 - 1| |b_i|``, in logits.
        adjusted: what an earlier `rescale` recorded in the file.
        warnings: what to beware of.
    """

    path: str
    format: str
    layers: tuple[Layer, ...]
    norms: np.ndarray
    names: tuple[str, ...] | None
    counts: np.ndarray | None
    correlation: float | None
    bias_share: float | None
    bias_gap: float | None
    adjusted: dict[str, Any] | None
    warnings: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in asdict(self).items()}


def inspect_file(path: str | Path, *, counts: Counts | None = None, head: str | None = None) -> Inspection:
    """Find the head in a model's file and say what can be said about it.

    Args:
        path: a model's file, as `rescale_file` takes it.
        counts: training samples of each class.
        head: the layer, where it cannot be found by itself.
    """
    found = find(path, head=head, counts=counts)
    first = load(found.places[0], found.names)
    norms = to_numpy(first.norms).astype(np.float64)
    n = None if counts is None or first.classes < 2 else resolve(counts, first.classes, names=found.names)
    correlation = None if n is None else norm_follows_count(first, n)
    correlation = None if correlation is None or np.isnan(correlation) else correlation
    size = None if first.bias is None else np.abs(first.bias.astype(np.float64))
    return Inspection(
        str(path),
        format_of(path).name,
        tuple(_layer(place) for place in found.places),
        norms,
        found.names,
        n,
        correlation,
        None if size is None else float(np.median(size / np.maximum(norms, np.finfo(float).tiny))),
        None if size is None or n is None else float(np.max((factors(n, 0.5) - 1) * size)),
        found.note,
        tuple(_warnings(first, n, correlation, found.note)),
    )


def _layer(place: Place) -> Layer:
    bias = None if place.bias is None else place.bias.key
    return Layer(place.key, place.weight.key, bias, place.weight.shape, place.weight.dtype)


def _warnings(
    head: Head, counts: np.ndarray | None, correlation: float | None, note: dict[str, Any] | None
) -> list[str]:
    warnings = []
    if note:
        warnings.append(
            f"adjusted before: {note['rule']}, gamma {note['gamma']:g}, by levelhead {note['version']}; `levelhead "
            "undo` takes it back"
        )
    if correlation is not None and correlation < 0.2 and not note:
        warnings.append(
            f"NormWarning: weight norms do not follow the counts (rank correlation {correlation:.2f}; typical of "
            "Adam): scaling by counts may not be what this head needs; compare with --rule shift"
        )
    if not can_flip(head):
        warnings.append(
            "BinaryHeadWarning: scaling never changes the predictions of this head, "
            + ("a single logit; move its threshold" if head.classes == 1 else "two opposite rows; use --rule shift")
        )
    if counts is not None and counts.min() == counts.max():
        warnings.append("the counts are all equal: rescaling by them changes nothing")
    return warnings
