"""Labels of positions: tokens of a text, pixels of an image. Each position becomes a sample."""

from typing import Any

import numpy as np

from .array import Array, as_array, is_torch, to_numpy
from .errors import Advice, LevelheadError

MULTILABEL = Advice("task", "multilabel", "if samples may have several labels")
IGNORED = -100  # the label that torch's and Hugging Face's losses leave out


def flatten_positions(
    logits: Array, labels: Any, weights: Any = None, *, ignore_index: int = IGNORED
) -> tuple[Array, Any, Any]:
    """Return logits [M, K] and labels [M] of positions, without those that are ignored; [N, K] is left as it is.

    Classes are the last axis, as of tokens, or the second, as torch has them for pixels; the labels tell which. Logits
    are copied if classes are second or a label is ignored, also out of a memory-mapped file.

    Args:
        logits: [N, T, K] or, with any number of axes, [N, ..., K] or [N, K, ...].
        labels: [N, T], or [N, ...].
        weights: of the positions, as labels; or None.
        ignore_index: the label of positions that do not count: padding, special tokens, unlabelled pixels.

    Returns:
        Logits, labels and weights.

    >>> logits = np.zeros((2, 3, 5))  # two texts of three tokens, five classes
    >>> flat, labels, _ = flatten_positions(logits, [[4, 0, -100], [1, -100, -100]])
    >>> flat.shape, labels
    ((3, 5), array([4, 0, 1]))
    >>> flatten_positions(np.zeros((2, 5, 4, 6)), np.ones((2, 4, 6), int))[0].shape  # pixels
    (48, 5)
    """
    logits = as_array(logits)
    if logits.ndim < 3:
        return logits, labels, weights
    labels, shape = to_numpy(labels), tuple(logits.shape)
    last, second = shape[:-1] == labels.shape, (shape[0], *shape[2:]) == labels.shape
    if last == second:
        both = "either axis could be that of the classes; make it the last and reshape both to [M, K] and [M]"
        fits = f"expected {list(shape[:-1])}, or {[shape[0], *shape[2:]]} if classes are the second axis"
        raise LevelheadError(
            f"logits {list(shape)} and labels {list(labels.shape)} do not say what is what: {both if last else fits}",
            parameter="labels",
        )
    if second:
        logits = logits.movedim(1, -1) if is_torch(logits) else np.moveaxis(logits, 1, -1)
    logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    weights = None if weights is None else to_numpy(weights).reshape(-1)
    counted = labels != ignore_index
    if not counted.any():
        raise LevelheadError(f"every position has the label {ignore_index}, which is ignored", parameter="labels")
    if counted.all():
        return logits, labels, weights
    if weights is not None and len(weights) == len(labels):
        weights = weights[counted]
    rows = np.flatnonzero(counted)
    return logits[_index_for(logits, rows)], labels[counted], weights


def _index_for(logits: Array, rows: np.ndarray) -> Any:
    """Return row numbers as the array takes them: on its device, for a tensor."""
    if not is_torch(logits):
        return rows
    import torch

    return torch.as_tensor(rows, device=logits.device)


def refuse_label_table(labels: Any) -> None:
    """Raise LevelheadError if labels are a table [N, K]: those of several labels per sample, or one-hot.

    >>> refuse_label_table([0, 2, 1])
    """
    found = to_numpy(labels)
    if found.ndim != 2 or found.shape[1] < 2:
        return
    one_hot = found.dtype.kind in "biuf" and ((found != 0).sum(axis=1) == 1).all()
    aside = "; if they are one-hot, pass labels.argmax(axis=1)" if one_hot else ""
    raise LevelheadError(
        f"expected one class per sample, [N], got a table {list(found.shape)}{aside}",
        parameter="labels",
        advice=MULTILABEL,
    )
