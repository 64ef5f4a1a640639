"""How many samples of each class a training has, from its own data set.

Labels are read without loading inputs where the data set keeps them apart: a column of Hugging Face's datasets, the
last tensor of torch's TensorDataset, `targets` of torchvision's. Else every item is loaded once.

`count_training_labels` takes a loader, refuses one that draws by weight, and asks `labels_of` for the labels of its
data set. That looks inside subsets and concatenations, tries `_labels_at_once`, and only then goes through the items.
Whatever cannot be told for certain is an error that asks for counts: a wrong count would bend the head.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..core.class_labels import IGNORED
from ..core.counts import of
from ..heads.collect import LABEL_KEYS
from ..support.arrays import to_numpy
from ..support.errors import Advice, LevelheadError

# Libraries share no type of data set: what one has is asked for by getattr.
Dataset: TypeAlias = Any
_GIVE_COUNTS = Advice("counts", None, "to say how many training samples each class has")


def count_training_labels(loader: object, classes: int | None = None) -> np.ndarray:
    """Return how many samples of each class a training loader's data set has, [K].

    Of tokens and pixels, these; positions with -100 are left out.

    Args:
        loader: a DataLoader, or anything with a `dataset`.
        classes: K; if None, as many as the largest label says.

    Raises:
        LevelheadError: if samples are drawn by weight, or the labels cannot be read ahead.
    """
    dataset: Dataset = getattr(loader, "dataset", None)
    # One that was given a batch sampler has another sampler in that.
    batch_sampler = getattr(loader, "batch_sampler", None)
    sampler = getattr(batch_sampler, "sampler", getattr(loader, "sampler", None))
    if type(sampler).__name__ == "WeightedRandomSampler":
        drawn = "training draws samples by weight"
        reason = f"{drawn}, so the dataset's labels are not what the loss sees"
        raise LevelheadError(reason, advice=_GIVE_COUNTS)
    labels = labels_of(dataset)
    # SubsetRandomSampler draws from a part of the data set; labels of tokens are more than samples.
    indices = getattr(sampler, "indices", None)
    if indices is not None and len(labels) == len(dataset):
        labels = labels[np.asarray(indices, dtype=np.int64)]
    return of(labels[labels != IGNORED], classes=classes)


def labels_of(dataset: Dataset) -> np.ndarray:
    """Return all labels of a data set, or of a list of items, [N].

    Of tokens and pixels they come one after the other.

    Raises:
        LevelheadError: a stream, whose items cannot be read ahead; or items of no known form.
    """
    inner = getattr(dataset, "dataset", None)
    indices = getattr(dataset, "indices", None)
    parts = getattr(dataset, "datasets", None)
    # Torch's Subset and ConcatDataset, of which parts may be any data set again.
    if inner is not None and indices is not None and len(indices) == len(dataset):
        whole = labels_of(inner)
        if len(whole) == len(inner):
            return whole[np.asarray(indices, dtype=np.int64)]
    elif parts is not None:
        return np.concatenate([labels_of(part) for part in parts])
    at_once = _labels_at_once(dataset)
    if at_once is not None:
        return _flat(at_once)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        reason = f"the labels of {type(dataset).__name__} cannot be read ahead of training"
        raise LevelheadError(reason, advice=_GIVE_COUNTS)
    return _flat([_label_of(dataset[i]) for i in range(len(dataset))])


def _labels_at_once(dataset: Dataset) -> ArrayLike | None:
    """Return the labels that a data set keeps as a column or an attribute; None if it does not.

    Reading them so takes no time. Loading every item of an image folder would decode every image.
    """
    # Hugging Face's datasets: a column is read without the others.
    columns = getattr(dataset, "column_names", None) or ()
    for key in LABEL_KEYS:
        if key in columns:
            return list(dataset[key])
    # torch's TensorDataset: inputs first, labels last.
    tensors = getattr(dataset, "tensors", None)
    if tensors is not None:
        return tensors[-1]
    # A transform of labels: what is kept is then not what a sample's label becomes.
    if getattr(dataset, "target_transform", None) is not None:
        return None
    # torchvision's have `targets`; an attribute of another length is something else.
    for name in LABEL_KEYS:
        labels = getattr(dataset, name, None)
        if labels is not None and hasattr(labels, "__len__") and len(labels) == len(dataset):
            return labels
    return None


def _label_of(item: object) -> ArrayLike:
    """Return the label of one item of a data set: under a known key of a dict, or the last of a tuple."""
    if isinstance(item, Mapping):
        for key in LABEL_KEYS:
            if key in item:
                return item[key]
        came = f"a dict with {', '.join(map(str, item))}"
    elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) > 1:
        return item[-1]
    else:
        came = type(item).__name__
    expected = "expected items (input, ..., label), or dicts with 'labels', in the training data"
    raise LevelheadError(f"{expected}, got {came}", advice=_GIVE_COUNTS)


def _flat(labels: ArrayLike | list[ArrayLike]) -> np.ndarray:
    """Return labels [N], or those of positions one after the other; raise if a sample has several.

    Args:
        labels: [N]; or of tokens or pixels a list of arrays, which may differ in length.
    """
    parts = [labels]
    if isinstance(labels, list) and labels and np.ndim(labels[0]):
        parts = labels
    arrays = [to_numpy(part) for part in parts]
    if any(map(_has_fractions, arrays)) or _are_rows_of_labels(arrays):
        reason = "each training sample has a row of labels, not one class"
        raise LevelheadError(reason, advice=_GIVE_COUNTS)
    if not arrays:
        return np.zeros(0, np.int64)
    return np.concatenate([array.reshape(-1) for array in arrays])


def _has_fractions(array: np.ndarray) -> bool:
    return bool(array.ndim and array.dtype.kind == "f" and (array != np.floor(array)).any())


def _are_rows_of_labels(arrays: Sequence[np.ndarray]) -> bool:
    """Return whether the label of each sample is a row of zeros and ones.

    Rows of tokens could be that, too, but not all of them with exactly the two labels 0 and 1 and of one length.
    """
    if len(arrays) < 2 or arrays[0].ndim != 1 or len({array.shape for array in arrays}) > 1:
        return False
    return all(set(array.tolist()) == {0, 1} for array in arrays)
