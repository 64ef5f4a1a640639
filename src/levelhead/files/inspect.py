"""Look at the head in a model's file: its layers, its norms against the counts, and what to beware of. Runs no code."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.counts import Counts, likely_classes, resolve
from ..core.head import can_flip, doubts_of_head, norm_follows_count
from ..core.rules import Rescale
from ..heads.notes import Note, done_text
from ..show.style import row_title, table
from ..support.arrays import to_numpy
from ..support.errors import visible
from .large import is_large, load_norms
from .locate import ModelFile, earlier_note
from .numbers import load

_HALF = 0.5  # the strength at which a bias scaled or kept is compared


@dataclass(frozen=True)
class HeadLayer:
    """One layer of a head: its key, the keys of weight and bias, and the weight's shape and dtype in the file."""

    key: str
    weight: str
    bias: str | None
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Inspection:
    """What is known of the head in a file."""

    path: str
    format: str
    layers: tuple[HeadLayer, ...]  #: more than one where several feed one output
    norms: np.ndarray  #: [K], lengths of the weight vectors of the first layer
    names: tuple[str, ...] | None  #: of the classes, where known
    counts: np.ndarray | None  #: [K], where given
    correlation: float | None  #: Spearman's, of norms with counts; None if all of either are equal
    bias_share: float | None  #: median over classes of |b_i| / ||w_i||; None without a bias
    #: the largest |(n_1 / n_i)^0.5 - 1| |b_i|: how far apart a bias scaled or kept is, at strength 0.5
    bias_gap: float | None
    adjusted: Note | None  #: what an earlier adjustment recorded in the file
    warnings: tuple[str, ...]  #: what to beware of


def inspect_file(
    path: str | Path,
    *,
    counts: Counts | None = None,
    head: str | None = None,
    names: Sequence[str] | None = None,
) -> Inspection:
    """Find the head in a model's file and describe it.

    Args:
        path, head: as in `adjust_file`.
        counts: training samples of each class; with them, how the norms follow them is told.
        names: of the classes, in order; otherwise `id2label` in a config.json next to the model.

    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.numpy import save_file
    >>> with TemporaryDirectory() as folder:
    ...     save_file({"fc.weight": np.eye(2, dtype=np.float32)}, Path(folder, "model.safetensors"))
    ...     inspect_file(Path(folder, "model.safetensors")).layers
    (HeadLayer(key='fc', weight='fc.weight', bias=None, shape=(2, 2), dtype='F32'),)
    """
    file = ModelFile.at(path)
    found = file.locate_head(head=head, classes=likely_classes(counts), names=names)
    first = (load_norms if is_large(found) else load)(found.layers[0], found.names)
    norms = to_numpy(first.norms).astype(np.float64)
    if counts is None or first.classes < 2:
        n = None
    else:
        n = resolve(counts, first.classes, names=found.names)
    correlation = (
        None if n is None or np.isnan(follows := norm_follows_count(first, n)) else follows
    )
    note, warnings = earlier_note(found), []
    if note:
        done = done_text(note["rule"], note.get("strength"))
        done = f"{done}, by levelhead {note['version']}"
        warnings.append(f"adjusted before: {done}; `levelhead undo` takes it back")
    if not can_flip(first):
        rows = "two opposite rows"
        if first.classes == 1:
            rows = "a single logit"
        stuck = f"scaling never changes the predictions of this head, {rows}; use the rule offsets or shift"
        warnings.append(f"BinaryHeadWarning: {stuck}")
    if n is not None and not note:
        warnings += [f"{type(doubt).__name__}: {doubt}" for doubt in doubts_of_head(first, n)]
    parts = [(one.key, one.weight, one.bias and one.bias.key) for one in found.layers]
    layers = tuple(
        HeadLayer(key, weight.key, bias, weight.shape, weight.dtype) for key, weight, bias in parts
    )
    size = None
    if first.bias is not None:
        size = np.abs(first.bias.astype(np.float64))
    bias_gap = None
    if size is not None and n is not None:
        scale = Rescale(_HALF).on_head(first, n).scale
        bias_gap = float(np.max((scale - 1) * size))
    return Inspection(
        path=str(path),
        format=file.format.name,
        layers=layers,
        norms=norms,
        names=found.names,
        counts=n,
        correlation=correlation,
        bias_share=None
        if size is None
        else float(np.median(size / np.maximum(norms, np.finfo(float).tiny))),
        bias_gap=bias_gap,
        adjusted=note,
        warnings=tuple(warnings),
    )


def inspection_text(seen: Inspection, width: int = 30) -> str:
    """Return the head, a bar for each class's norm (largest count first), and the warnings."""
    lines, rows = [f"{seen.path} ({seen.format})"], []
    for one in seen.layers:
        key, weight, bias = map(visible, (one.key, one.weight, one.bias or "no bias"))
        lines.append(f"  head {key}: {weight} {list(one.shape)} {one.dtype}, {bias}")
    if seen.counts is None:
        order = np.arange(len(seen.norms))
    else:
        order = np.argsort(-seen.counts, kind="stable")
    top = max(float(seen.norms.max()), np.finfo(float).tiny)
    for i in order.tolist():
        count = "" if seen.counts is None else str(seen.counts[i])
        bar = "█" * max(1, round(width * seen.norms[i] / top))
        rows.append([row_title(i, seen.names), count, f"{seen.norms[i]:.4g}", bar])
    lines += ["", *table(["class", "" if seen.counts is None else "count", "norm", ""], rows), ""]
    if seen.correlation is not None:
        lines.append(f"rank correlation of norm and count: {seen.correlation:.2f}")
    if seen.bias_share is not None:
        lines.append(f"bias: |b| is {seen.bias_share:.2g} of ||w|| in the median class")
    if seen.bias_gap is not None:
        lines.append(
            f"at strength 0.5, scaling and keeping the bias are up to {seen.bias_gap:.3g} apart in a logit"
        )
    return "\n".join([*lines, *(f"warning: {visible(text)}" for text in seen.warnings)]).rstrip()
