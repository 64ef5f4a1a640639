"""Labels of classes that are names: in `y`, in counts, targets and floors, never mixed with positions.

A scikit-learn classifier or a predictor knows its classes by labels, such as "ant" or 20, in the order of its columns.
`levelhead.tune` knows positions 0 to K - 1, and names, which are texts. Here the first become the second:

- `encode_labels`: labels [N] of samples as positions.
- `by_name`: {label: value}, as targets and floors are given, as {name: value}.
- `counts_by_name`: the same for counts, which may also be labels to be counted.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..core.class_labels import Positions, as_positions
from ..core.class_names import as_mapping, first_repeated, listed
from ..core.counts import Counts, WithBackground
from ..support.arrays import to_numpy
from ..support.errors import LevelheadError

# [K], the labels of the classes in the order of the scores.
ClassLabels: TypeAlias = Sequence[object] | np.ndarray
_Values = TypeVar("_Values")


def encode_labels(
    labels: ArrayLike | Sequence[object], classes: ClassLabels, parameter: str = "y"
) -> Positions:
    """Return labels [N] as positions in `classes`.

    A loop over Python's values, and no `searchsorted`: labels may be of mixed types, or texts in an array of objects.

    Args:
        labels: [N], each one of the classes.
        classes: [K], the labels in the order of the scores.
        parameter: what the labels are, for a message about one that is no class.

    >>> encode_labels([20, 3, 3], [3, 20]).tolist()
    [1, 0, 0]
    """
    positions = {label: i for i, label in enumerate(np.asarray(classes).tolist())}
    if len(positions) < len(classes):
        twice = first_repeated(np.asarray(classes).tolist())
        raise LevelheadError(f"two classes are called {twice!r}", parameter="classes")
    values = to_numpy(labels).tolist()
    for label in values:
        if label not in positions:
            expected = f"expected labels that are classes ({listed(list(map(str, positions)))})"
            raise LevelheadError(f"{expected}, got {label!r}", parameter=parameter)
    return as_positions(np.array([positions[label] for label in values], np.int64))


def names_of(classes: ClassLabels) -> list[str]:
    """Return the names by which `levelhead.tune` knows the classes: texts, [K], in the order of the scores."""
    return [str(label) for label in np.asarray(classes).tolist()]


def by_name(values: _Values, classes: ClassLabels, parameter: str) -> _Values | dict[str, float]:
    """Return {label: value} as {name: value}, after checking each label; anything else as it is.

    Args:
        values: of some classes, by label; or [K], or a number for all classes, which need no names.
        classes: [K], the labels in order.
        parameter: what the values are, for a message.

    >>> by_name({20: 0.9}, [3, 20], "floors")
    {'20': 0.9}
    """
    mapping = as_mapping(values, len(classes))
    if mapping is None:
        return values
    positions = encode_labels(list(mapping), classes, parameter)
    names = names_of(classes)
    return {names[i]: value for i, value in zip(positions, mapping.values(), strict=True)}


def counts_by_name(counts: Counts | None, classes: ClassLabels) -> Counts | None:
    """Return counts as `levelhead.tune` takes them, with the names of the classes.

    Args:
        counts: {label: n}; [K] in the order of the classes; more than K labels, which are counted;
            or any of these with a background, which is a label.
        classes: [K], the labels in order.
    """
    if isinstance(counts, WithBackground):
        position = encode_labels([counts.background], classes, "background")[0]
        return WithBackground(counts_by_name(counts.counts, classes), names_of(classes)[position])
    is_mapping = isinstance(counts, Mapping) or as_mapping(counts, len(classes)) is not None
    if counts is None or is_mapping:
        return by_name(counts, classes, "counts")
    values = to_numpy(counts)
    # More values than classes can only be the labels of training samples.
    if values.ndim == 1 and len(values) > len(classes):
        positions = encode_labels(values, classes, "counts")
        return np.bincount(positions, minlength=len(classes))
    return values
