"""How many training samples each class has, from the data that a trainer trains on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.array import to_numpy
from ..core.counts import IGNORED, of
from ..core.errors import Advice, LevelheadError
from ..heads.collect import LABEL_KEYS

_GIVE_COUNTS = Advice("counts", None, "to say how many training samples each class has")


def count_training_labels(loader: Any, classes: int | None = None) -> np.ndarray:
    """Return how many samples, tokens or pixels of each class a training loader's dataset has, [K], without -100."""
    samplers = (getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None))
    if any(type(sampler).__name__ == "WeightedRandomSampler" for sampler in samplers):
        raise LevelheadError(
            "training draws samples by weight, so the dataset's labels are not what the loss sees", advice=_GIVE_COUNTS
        )
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
    if (columns := getattr(dataset, "column_names", None)) is not None:
        key = next((key for key in LABEL_KEYS if key in columns), None)
        if key is not None:
            return _flat(list(dataset[key]))
    if (tensors := getattr(dataset, "tensors", None)) is not None:
        return _flat(tensors[-1])
    if getattr(dataset, "target_transform", None) is None:
        for name in LABEL_KEYS:
            known = getattr(dataset, name, None)
            if known is not None and hasattr(known, "__len__") and len(known) == len(dataset):
                return _flat(known)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise LevelheadError(
            f"the labels of {type(dataset).__name__} cannot be read ahead of training", advice=_GIVE_COUNTS
        )
    return _flat([_label_of(dataset[i]) for i in range(len(dataset))])


def _label_of(item: Any) -> Any:
    if isinstance(item, Mapping):
        key = next((key for key in LABEL_KEYS if key in item), None)
        if key is not None:
            return item[key]
    elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) > 1:
        return item[-1]
    what = f"a dict with {', '.join(map(str, item))}" if isinstance(item, Mapping) else type(item).__name__
    raise LevelheadError(
        f"expected items (input, ..., label), or dicts with 'labels', in the training data, got {what}",
        advice=_GIVE_COUNTS,
    )


def _flat(labels: Any) -> np.ndarray:
    """Return labels [N], or those of positions one after the other; raise if a sample has several."""
    parts = labels if isinstance(labels, list) and any(np.ndim(one) for one in labels[:1]) else [labels]
    arrays = [to_numpy(one) for one in parts]
    tables = [one for one in arrays if one.ndim and one.dtype.kind == "f" and (one != np.floor(one)).any()]
    vectors = len(parts) > 1 and len({one.shape for one in arrays}) == 1
    if tables or (vectors and arrays[0].ndim == 1 and all(set(one.tolist()) == {0, 1} for one in arrays)):
        raise LevelheadError("each training sample has a row of labels, not one class", advice=_GIVE_COUNTS)
    return np.concatenate([one.reshape(-1) for one in arrays]) if arrays else np.zeros(0, np.int64)
