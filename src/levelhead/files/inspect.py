"""Look at the head in a model's file: its layers, norms against counts, and what to beware of.

`inspect_file` finds the head as `adjust_file` does, reads its first layer and describes it in an
`Inspection`; `inspection_text` puts that into words and bars. It runs no code of the file and
writes nothing.

Norms are worth a look because a network that is trained on imbalanced classes gives rare ones
shorter weight vectors, which is what rescaling (RS) undoes. Where they do not follow the counts, a
rule by counts may do harm, and the warnings say so.

Reference: Kim and Kim, Adjusting Decision Boundary for Class Imbalanced Learning, 2020.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.counts import Counts, likely_classes, resolve
from ..core.head import Head
from ..core.head_checks import can_flip, doubts_of_head, norm_follows_count
from ..core.rules import Rescale
from ..heads.notes import Note, done_text
from ..show.style import row_title, table
from ..support.arrays import to_numpy
from ..support.errors import visible
from .large import is_large, load_norms
from .locate import ModelFile, earlier_note
from .numbers import load
from .spans import LayerSpans

_HALF = 0.5  # the strength at which a bias scaled or kept is compared


@dataclass(frozen=True)
class HeadLayer:
    """One layer of a head, as the file has it: names, shape and dtype, but no numbers."""

    key: str  #: its name
    weight: str  #: the name of its weight
    bias: str | None  #: the name of its bias; None if it has none
    shape: tuple[int, ...]  #: of its weight
    dtype: str  #: of its weight


@dataclass(frozen=True, eq=False)
class Inspection:
    """What is known of the head in a file.

    Where several layers feed one output, the numbers (norms, bias) are those of the first.
    """

    path: str  #: of the model, as it was given
    format: str  #: its name in the table of formats
    layers: tuple[HeadLayer, ...]  #: more than one where several feed one output
    norms: np.ndarray  #: [K], lengths of the weight vectors of the first layer
    names: tuple[str, ...] | None  #: of the classes, where known
    counts: np.ndarray | None  #: [K], where given
    correlation: float | None  #: Spearman's, of norms with counts; None if all of either are equal
    bias_share: float | None  #: median over classes of |b_i| / ||w_i||; None without a bias
    #: the largest |(n_1 / n_i)^0.5 - 1| |b_i|: how far apart a bias scaled or kept is, at strength
    #: 0.5
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
        path: the model's file, or the folder or index of a sharded one.
        head: the layer, where it cannot be found without, as in `adjust_file`.
        counts: training samples of each class; with them, how the norms follow them is told. Also
            labels to be counted, as everywhere.
        names: of the classes, in order; otherwise `id2label` in a config.json next to the model.

    Returns:
        The layers of the head, norms [K] and what to beware of.

    Raises:
        LevelheadError: there is no head, or it cannot be told from others; the message lists the
            layers that could be it. Also for counts or names that do not fit.
        FileNotFoundError: there is no such file.

    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.numpy import save_file
    >>> with TemporaryDirectory() as folder:
    ...     save_file({"fc.weight": np.eye(2, dtype=np.float32)}, Path(folder, "model.safetensors"))
    ...     inspect_file(Path(folder, "model.safetensors")).layers
    (HeadLayer(key='fc', weight='fc.weight', bias=None, shape=(2, 2), dtype='F32'),)
    """
    file = ModelFile.at(path)
    located = file.locate_head(head=head, classes=likely_classes(counts), names=names)
    first_layer = located.layers[0]
    # Of a large head, rows are measured block by block, and only their lengths are kept.
    if is_large(located):
        first = load_norms(first_layer, located.names)
    else:
        first = load(first_layer, located.names)
    # A head with one logit has no norms of several classes to compare with counts.
    n = None
    if counts is not None and first.classes > 1:
        n = resolve(counts, first.classes, names=located.names)
    note = earlier_note(located)
    bias = _BiasSize.of(first, n)
    return Inspection(
        path=str(path),
        format=file.format.name,
        layers=tuple(_describe(layer) for layer in located.layers),
        norms=_norms(first),
        names=located.names,
        counts=n,
        correlation=_correlation(first, n),
        bias_share=bias.share,
        bias_gap=bias.gap,
        adjusted=note,
        warnings=tuple(_warnings(first, n, note)),
    )


def _describe(layer: LayerSpans) -> HeadLayer:
    bias = None
    if layer.bias is not None:
        bias = layer.bias.key
    return HeadLayer(layer.key, layer.weight.key, bias, layer.weight.shape, layer.weight.dtype)


def _norms(head: Head) -> np.ndarray:
    return to_numpy(head.norms).astype(np.float64)


def _correlation(head: Head, counts: np.ndarray | None) -> float | None:
    """Return Spearman's correlation of norms with counts [K].

    None without counts, or where all norms or all counts are equal: there are no ranks to compare
    then.
    """
    if counts is None:
        return None
    correlation = norm_follows_count(head, counts)
    if np.isnan(correlation):
        return None
    return correlation


class _BiasSize(NamedTuple):
    """How large the bias of a head is, as `Inspection` has it; None where it has none.

    Args:
        share: median over classes of |b_i| / ||w_i||.
        gap: the largest |(n_1 / n_i)^0.5 - 1| |b_i|; needs counts.
    """

    share: float | None
    gap: float | None

    @staticmethod
    def of(head: Head, counts: np.ndarray | None) -> "_BiasSize":
        """Measure the bias of a head.

        Args:
            head: the head.
            counts: [K], or None; then there is no gap.
        """
        if head.bias is None:
            return _BiasSize(None, None)
        # In float64; a row of zeros must not divide by zero.
        size = np.abs(head.bias.astype(np.float64))
        share = float(np.median(size / np.maximum(_norms(head), np.finfo(float).tiny)))
        if counts is None:
            return _BiasSize(share, None)
        scale = Rescale(_HALF).on_head(head, counts).scale
        return _BiasSize(share, float(np.max((scale - 1) * size)))


def _warnings(head: Head, counts: np.ndarray | None, note: Note | None) -> Iterator[str]:
    """Yield what to beware of, a sentence each.

    That is an earlier adjustment, a head that scaling cannot help, and doubts about the counts.
    They are texts, not warnings of Python: whoever inspects a file wants to read all of them, and
    act on none.

    Args:
        head: the first layer.
        counts: [K], where given.
        note: what an earlier adjustment recorded.
    """
    if note:
        done = done_text(note["rule"], note.get("strength"))
        by_whom = f"{done}, by levelhead {note['version']}"
        yield f"adjusted before: {by_whom}; `levelhead undo` takes it back"
    if not can_flip(head):
        rows = "two opposite rows"
        if head.classes == 1:
            rows = "a single logit"
        stuck = f"scaling never changes the predictions of this head, {rows}"
        yield f"BinaryHeadWarning: {stuck}; use the rule offsets or shift"
    # An adjusted head no longer shows how it was trained.
    if counts is not None and not note:
        for doubt in doubts_of_head(head, counts):
            yield f"{type(doubt).__name__}: {doubt}"


def inspection_text(seen: Inspection, width: int = 30) -> str:
    """Return the head, a bar for each class's norm (largest count first), and the warnings.

    Args:
        seen: what `inspect_file` returned.
        width: letters of the longest bar.
    """
    lines = [f"{seen.path} ({seen.format})"]
    for layer in seen.layers:
        bias = visible(layer.bias or "no bias")
        weight = f"{visible(layer.weight)} {list(layer.shape)} {layer.dtype}"
        lines.append(f"  head {visible(layer.key)}: {weight}, {bias}")
    titles = ["class", "count", "norm", ""]
    order = np.arange(len(seen.norms))
    if seen.counts is None:
        titles[1] = ""  # an empty column is left out
    else:
        order = np.argsort(-seen.counts, kind="stable")
    # A head of zeros has no longest bar: the smallest number there is keeps the division sound.
    longest = max(float(seen.norms.max()), np.finfo(float).tiny)
    rows = []
    for i in order.tolist():
        count = "" if seen.counts is None else f"{seen.counts[i]:.15g}"
        bar = "█" * max(1, round(width * seen.norms[i] / longest))
        rows.append([row_title(i, seen.names), count, f"{seen.norms[i]:.4g}", bar])
    lines += ["", *table(titles, rows), ""]
    if seen.correlation is not None:
        lines.append(f"rank correlation of norm and count: {seen.correlation:.2f}")
    if seen.bias_share is not None:
        lines.append(f"bias: |b| is {seen.bias_share:.2g} of ||w|| in the median class")
    if seen.bias_gap is not None:
        lines.append(
            f"at strength 0.5, scaling and keeping the bias are up to {seen.bias_gap:.3g} apart in a logit"
        )
    return "\n".join([*lines, *(f"warning: {visible(text)}" for text in seen.warnings)]).rstrip()
