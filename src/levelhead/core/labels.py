"""Labels as people have them: names of classes, and labels of tokens and pixels. They become class indices [N]."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .array import Array, as_array, is_torch, to_numpy
from .errors import Advice, LevelheadError
from .per_class import as_mapping, check_names, first_repeated, listed

MULTILABEL = Advice("task", "multilabel", "if samples may have several labels")
IGNORED = -100  # the label that torch's and Hugging Face's losses leave out


def are_names(labels: Any) -> bool:
    """Return whether labels are text, not class indices."""
    values = to_numpy(labels)
    return values.dtype.kind in "UT" or (values.dtype.kind == "O" and any(isinstance(y, str) for y in values.flat))


def index_labels(labels: Any, names: Sequence[str], known: str = "the classes") -> np.ndarray:
    """Return the class index of each label that is a name, [N]; raise LevelheadError that lists the unknown ones."""
    values = to_numpy(labels)
    if values.ndim != 1:
        raise LevelheadError(f"expected labels [N], got shape {list(values.shape)}")
    unique, inverse = np.unique(np.array([str(label) for label in values.tolist()]), return_inverse=True)
    if (repeated := first_repeated(map(str, names))) is not None:
        raise LevelheadError(f"labels are names, but two classes are called {repeated!r}; give class indices")
    index = {str(name): i for i, name in enumerate(names)}
    if unknown := [repr(str(label)) for label in unique if label not in index]:
        raise LevelheadError(f"unknown labels {listed(unknown)}; {known} are {listed(list(names))}")
    return np.array([index[label] for label in unique], np.int64)[inverse.reshape(-1)]


def resolve_labels(
    logits: Array, labels: Any, counts: Any, names: Sequence[str] | None = None
) -> tuple[Any, Sequence[str] | None]:
    """Return labels as class indices, and the names of the classes where they are known.

    Names of classes are looked up in `names` or, without them, in the keys of counts given as {class: n}, whose order
    is then that of the logits' columns.
    """
    shape = as_array(logits).shape
    mapping = as_mapping(counts, shape[1]) if len(shape) == 2 else None
    if names is not None or not are_names(labels):
        return (index_labels(labels, names) if names is not None and are_names(labels) else labels), names
    if mapping is None or not all(isinstance(key, str) for key in mapping):
        first = next(str(label) for label in to_numpy(labels).flat if isinstance(label, str))
        unknown = f"labels are names ({first!r}, ...), but the order of the classes is not known"
        raise LevelheadError(
            f"{unknown}; give counts as {{name: n}} in the order of the logits' columns",
            parameter="labels",
            advice=Advice("names", None, "to list the classes in that order"),
        )
    names = check_names(list(mapping))
    indices = index_labels(labels, names, "the classes in counts")
    # Most encoders of labels sort names, and pandas' `value_counts` sorts by count. So the order of the counts is
    # doubted if alphabetical order makes more of the predictions right.
    order = sorted(names)
    if order != names and len(indices) == len(logits):
        predicted = to_numpy(logits).argmax(axis=1)
        true = np.array(names)[indices]
        right, sorted_right = (int((np.array(each)[predicted] == true).sum()) for each in (names, order))
        if sorted_right > right:
            given = f"in the order of the counts ({listed(names)}) {right} of {len(indices)} predictions are right"
            raise LevelheadError(
                f"{given}, in alphabetical order {sorted_right}; the order of the logits' columns is in doubt",
                parameter="counts",
                advice=Advice("names", None, "to list the classes in the order of the logits' columns"),
            )
    return indices, names


def flatten_positions(
    logits: Array, labels: Any, weights: Any = None, *, ignore_index: int = IGNORED
) -> tuple[Array, Any, Any]:
    """Return logits [M, K] and labels [M] of positions, without those that are ignored; [N, K] is left as it is.

    Classes are the last axis, as of tokens, or the second, as torch has them for pixels; the labels tell which. Logits
    are copied if classes are second or a label is ignored, also out of a memory-mapped file.

    Logits are [N, ..., K] or [N, K, ...], labels and weights [N, ...]; positions with the label `ignore_index`, such as
    padding, do not count.
    """
    logits = as_array(logits)
    if logits.ndim < 3:
        return logits, labels, weights
    labels, shape = to_numpy(labels), tuple(logits.shape)
    last, second = shape[:-1] == labels.shape, (shape[0], *shape[2:]) == labels.shape
    if last == second:
        both = "either axis could be that of the classes; make it the last and reshape both to [M, K] and [M]"
        fits = f"expected {list(shape[:-1])}, or {[shape[0], *shape[2:]]} if classes are the second axis"
        what = f"logits {list(shape)} and labels {list(labels.shape)} do not say what is what"
        raise LevelheadError(f"{what}: {both if last else fits}", parameter="labels")
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
    rows: Any = np.flatnonzero(counted)
    if is_torch(logits):
        import torch

        rows = torch.as_tensor(rows, device=logits.device)
    return logits[rows], labels[counted], weights


def refuse_label_table(labels: Any) -> None:
    """Raise LevelheadError if labels are a table [N, K]: those of several labels per sample, or one-hot."""
    found = to_numpy(labels)
    if found.ndim != 2 or found.shape[1] < 2:
        return
    one_hot = found.dtype.kind in "biuf" and ((found != 0).sum(axis=1) == 1).all()
    aside = "; if they are one-hot, pass labels.argmax(axis=1)" if one_hot else ""
    expected = f"expected one class per sample, [N], got a table {list(found.shape)}{aside}"
    raise LevelheadError(expected, parameter="labels", advice=MULTILABEL)
