"""Labels that are names of classes: which class each one is, and in which order the classes are."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .array import Array, as_array, to_numpy
from .errors import Advice, LevelheadError
from .per_class import as_mapping, first_repeated, listed


def check_names(names: Sequence[str], classes: int | None = None) -> list[str]:
    """Return class names as a list, after checking that there is one for each class and none twice.

    Args:
        names: of the classes, in order.
        classes: K, where it is known.

    Returns:
        The names, as text.

    >>> check_names(("cat", "dog"), 2)
    ['cat', 'dog']
    """
    if isinstance(names, str | Mapping):
        raise LevelheadError(f"expected a list of class names, got {type(names).__name__}", parameter="names")
    found = [str(name) for name in names]
    if classes is not None and len(found) != classes:
        raise LevelheadError(f"expected {classes} class names, one per class, got {len(found)}", parameter="names")
    if (repeated := first_repeated(found)) is not None:
        raise LevelheadError(f"two classes are called {repeated!r}; expected distinct names", parameter="names")
    if "" in found:
        raise LevelheadError(f"class {found.index('')} has an empty name", parameter="names")
    return found


def are_names(labels: Any) -> bool:
    """Return whether labels are text, not class indices.

    >>> are_names(["cat", "dog"]), are_names([0, 1])
    (True, False)
    """
    values = to_numpy(labels)
    return values.dtype.kind in "UT" or (values.dtype.kind == "O" and any(isinstance(y, str) for y in values.flat))


def index_labels(labels: Any, names: Sequence[str], known: str = "the classes") -> np.ndarray:
    """Return the class index of each label that is a name, [N]; raise LevelheadError that lists the unknown ones.

    Args:
        labels: [N], names.
        names: of the classes, in order.
        known: what the names are, for the message.

    Returns:
        Class indices, int64 [N].

    >>> index_labels(["dog", "cat", "dog"], ["cat", "dog"])
    array([1, 0, 1])
    """
    values = to_numpy(labels)
    if values.ndim != 1:
        raise LevelheadError(f"expected labels [N], got shape {list(values.shape)}")
    unique, inverse = np.unique(np.array([str(label) for label in values.tolist()]), return_inverse=True)
    if (repeated := first_repeated(map(str, names))) is not None:
        raise LevelheadError(f"labels are names, but two classes are called {repeated!r}; give class indices")
    index = {str(name): i for i, name in enumerate(names)}
    unknown = [str(label) for label in unique if label not in index]
    if unknown:
        what = f"unknown labels {listed([repr(label) for label in unknown])}"
        raise LevelheadError(f"{what}; {known} are {listed(list(names))}")
    return np.array([index[label] for label in unique], np.int64)[inverse.reshape(-1)]


def resolve_labels(
    logits: Array, labels: Any, counts: Any, names: Sequence[str] | None = None
) -> tuple[Any, Sequence[str] | None]:
    """Return labels as class indices, and the names of the classes where they are known.

    Names of classes are looked up in `names` or, without them, in the keys of counts given as {class: n}, whose order
    is then that of the logits' columns. That order is doubted if alphabetical order, which most encoders of labels
    give, makes more of the predictions right: as pandas' `value_counts` sorts by count, the two easily differ.

    Args:
        logits, labels: [N, K] and [N].
        counts: training samples of each class, as `tune` takes them.
        names: of the K classes, in order.

    Returns:
        Labels, unchanged unless they are names; names, or None.

    >>> resolve_labels([[2.0, 1.0], [0.0, 3.0]], ["cat", "dog"], {"cat": 400, "dog": 100})
    (array([0, 1]), ['cat', 'dog'])
    """
    shape = as_array(logits).shape
    mapping = as_mapping(counts, shape[1]) if len(shape) == 2 else None
    if names is not None or not are_names(labels):
        return (index_labels(labels, names) if names is not None and are_names(labels) else labels), names
    if mapping is None or not all(isinstance(key, str) for key in mapping):
        first = next(str(label) for label in to_numpy(labels).flat if isinstance(label, str))
        raise LevelheadError(
            f"labels are names ({first!r}, ...), but the order of the classes is not known; give counts as "
            "{name: n} in the order of the logits' columns",
            parameter="labels",
            advice=Advice("names", None, "to list the classes in that order"),
        )
    names = check_names(list(mapping))
    indices = index_labels(labels, names, "the classes in counts")
    order = sorted(names)
    if order != names and len(indices) == len(logits):
        predicted = to_numpy(logits).argmax(axis=1)
        true = np.array(names)[indices]
        right, sorted_right = (int((np.array(each)[predicted] == true).sum()) for each in (names, order))
        if sorted_right > right:
            raise LevelheadError(
                f"in the order of the counts ({listed(names)}) {right} of {len(indices)} predictions are right, in "
                f"alphabetical order {sorted_right}; the order of the logits' columns is in doubt",
                parameter="counts",
                advice=Advice("names", None, "to list the classes in the order of the logits' columns"),
            )
    return indices, names


def names_of_columns(logits: Any, counts: Any) -> list[str] | None:
    """Return the classes that the columns of a data frame are called after, in their order; None if they are not.

    Args:
        logits: a data frame of pandas or Polars, or anything else, which has no titles.
        counts: {class: n}: each class is the title of one column, or the end of it, as in `logit_cat`.

    Returns:
        The keys of counts, in the order of the columns.

    >>> from types import SimpleNamespace
    >>> names_of_columns(SimpleNamespace(columns=["logit_dog", "logit_cat"]), {"cat": 400, "dog": 100})
    ['dog', 'cat']
    """
    titles = [str(title) for title in getattr(logits, "columns", ())]
    known = as_mapping(counts, len(titles)) if titles else None
    if known is None or not all(isinstance(key, str) for key in known):
        return None
    fitting = [
        [key for key in known if re.fullmatch(f"(.*[^a-z0-9])?{re.escape(key)}[])]?", title)] for title in titles
    ]
    names = [max(keys, key=len) for keys in fitting if keys]
    return names if len(names) == len(fitting) and sorted(names) == sorted(known) else None


def names_in_config(config: Any, classes: int) -> list[str] | None:
    """Return the class names in the config of a transformers model, or None if it has not one for each class.

    Args:
        config: with `id2label`, or anything else. Names that only number the classes (LABEL_0, LABEL_1, ...) are none.
        classes: K.

    Returns:
        Distinct names in the order of the classes, or None.

    >>> from types import SimpleNamespace
    >>> names_in_config(SimpleNamespace(id2label={1: "dog", 0: "cat"}), 2)
    ['cat', 'dog']
    >>> names_in_config(SimpleNamespace(id2label={0: "LABEL_0", 1: "LABEL_1"}), 2)
    """
    labels = getattr(config, "id2label", None)
    if not isinstance(labels, Mapping) or set(map(str, labels)) != set(map(str, range(classes))):
        return None
    names = [str(name) for _, name in sorted(labels.items(), key=lambda item: int(item[0]))]
    return names if len(set(names)) == len(names) and names != [f"LABEL_{i}" for i in range(len(names))] else None
