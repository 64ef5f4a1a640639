"""What is given to a multi-label choice, checked: labels, scores, costs, floors and counts, one column per label."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.array import Array, check_finite_rows, described, to_numpy
from ..core.choices import Kind
from ..core.errors import Advice, LevelheadError, check_choice
from ..core.logits import LARGEST_PROBABILITY
from ..core.per_class import as_mapping, find_classes, in_order, title
from ..path.metrics import check_cost
from ..rules.rule import AUTO, Shift


def check_multilabel_options(rule: str, criterion: str, **others: Any) -> None:
    """Check that nothing is asked of a multi-label choice that needs classes which compete.

    >>> check_multilabel_options("shift", "guided", target=None)
    """
    if rule not in (AUTO, Shift.name):
        raise LevelheadError(
            f"the rule {rule!r} cannot level several labels per sample: scaling never moves the sign of a logit; "
            "leave it out, and each label is shifted by itself",
            parameter="rule",
        )
    check_choice("criterion", criterion, ("guided", "balanced_error"))
    for name, value in others.items():
        if value is not None:
            raise LevelheadError(
                "not for several labels per sample, which do not compete; leave it out", parameter=name
            )


def check_label_table(labels: Any) -> np.ndarray:
    """Return labels [N, K] as bool, after checking that they are 0 or 1.

    >>> check_label_table([[1, 0], [0.0, 1.0]])
    array([[ True, False], [False,  True]])
    """
    try:
        found = to_numpy(labels)
    except ValueError:
        raise LevelheadError("expected 0 or 1 [N, K], got rows of different lengths", parameter="labels") from None
    if found.ndim == 1:
        raise LevelheadError(
            f"expected 0 or 1 for each label of each sample, [N, K], got one value per sample, [{len(found)}]; if they "
            "are classes, of which each sample has one, leave out the task multilabel",
            parameter="labels",
        )
    if found.ndim != 2 or 0 in found.shape:
        raise LevelheadError(f"expected 0 or 1 [N, K], got shape {list(found.shape)}", parameter="labels")
    if found.dtype.kind not in "biuf":
        raise LevelheadError(f"expected 0 or 1, got {described(found)}", parameter="labels")
    wrong = (found != 0) & (found != 1)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise LevelheadError(
            f"expected 0 or 1, got {found[row, column]:g} in row {row}, column {column}", parameter="labels"
        )
    return found.astype(bool)


def check_label_scores(logits: Array, truth: np.ndarray, kind: Kind) -> np.ndarray:
    """Return logits [N, K] of sigmoids in float64; of probabilities, ``log p / (1 - p)``.

    Probabilities of 0 or 1 become as extreme as half of the smallest others.

    >>> check_label_scores([[0.5], [0.0]], np.ones((2, 1), bool), "probabilities").round(3)
    array([[ 0.   ], [-1.386]])
    """
    check_choice("kind", kind, ("logits", "probabilities"))
    found = to_numpy(logits)
    if found.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(found)}", parameter="logits")
    if found.shape != truth.shape:
        raise LevelheadError(
            f"expected one score for each of the labels, {list(truth.shape)}, got shape {list(found.shape)}",
            parameter="logits",
        )
    found = found.astype(np.float64)
    check_finite_rows(found)
    between = bool((found >= 0).all() and (found <= LARGEST_PROBABILITY).all())
    if kind == "probabilities":
        if not between:
            row, column = np.argwhere((found < 0) | (found > LARGEST_PROBABILITY))[0]
            raise LevelheadError(
                f"expected probabilities, from 0 to 1, got {found[row, column]:g} in row {row}, column {column}",
                advice=Advice("kind", "logits", "if these are logits"),
            )
        return _log(np.minimum(found, 1.0)) - _log(np.maximum(1 - found, 0.0))
    if between and ((found > 0) & (found < 1)).any():
        raise LevelheadError(
            "expected logits, got what looks like probabilities: all are from 0 to 1",
            advice=Advice("kind", "probabilities", "if they come after the sigmoid"),
        )
    return found


def check_label_costs(cost: Any, labels: int) -> np.ndarray:
    """Return a cost matrix for each label, [K, 2, 2], row true, column predicted: one for all, or one for each.

    >>> check_label_costs([[0, 1], [5, 0]], 3).shape
    (3, 2, 2)
    """
    found = to_numpy(cost)
    if found.shape == (2, 2):
        return np.repeat(check_cost(found, 2)[None], labels, axis=0)
    if found.shape != (labels, 2, 2):
        raise LevelheadError(
            f"expected numbers [2, 2] or [{labels}, 2, 2], row true, column predicted, got shape {list(found.shape)}",
            parameter="cost",
        )
    return np.stack([check_cost(one, 2) for one in found])


def check_label_floors(floors: Any, truth: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """Return the least recall of the positives of each label, [K], 0 for none, given labels [N, K].

    >>> check_label_floors({"b": 0.7}, np.array([[True, True]]), ["a", "b"])
    array([0. , 0.7])
    """
    size, known = truth.shape[1], truth.any(axis=0)
    found, mapping = np.zeros(size), as_mapping(floors)
    try:
        if mapping is not None:
            where = find_classes(mapping, size, names, what="floor")
            found[where] = [float(value) for value in mapping.values()]
        else:
            given = to_numpy(floors).astype(np.float64)
            if given.shape not in ((), (size,)):
                raise LevelheadError(f"expected a recall, or one for each of {size} labels, got {given.size}")
            found[:] = np.where(known, given, 0.0) if given.ndim == 0 else given
    except LevelheadError as error:
        raise LevelheadError(error.message, parameter="floors", advice=error.advice) from None
    except (TypeError, ValueError):
        raise LevelheadError(
            f"expected a recall, or a recall for each label, got {floors!r}", parameter="floors"
        ) from None
    outside = found[~((found >= 0) & (found <= 1))]
    if len(outside):
        raise LevelheadError(f"expected recalls from 0 to 1, got {outside[0]:g}", parameter="floors")
    unknown = np.flatnonzero((found > 0) & ~known)
    if len(unknown):
        raise LevelheadError(
            f"{title(int(unknown[0]), names)} has no positive sample here, so its recall is not known; leave out its "
            "floor",
            parameter="floors",
        )
    return found


def check_label_counts(counts: Any, truth: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """Return how many training samples have each label, [K]: as given or, of None, as in labels [N, K].

    >>> check_label_counts(None, np.array([[True, False], [True, True]]), None)
    array([2., 1.])
    """
    size = truth.shape[1]
    if counts is None:
        return truth.sum(axis=0).astype(np.float64)
    mapping = as_mapping(counts, size)
    found = in_order(mapping, size, names) if mapping is not None else to_numpy(counts)
    if found.ndim == 2 and found.shape[1] == size:
        return check_label_table(found).sum(axis=0).astype(np.float64)
    if found.shape != (size,) or found.dtype.kind not in "iuf":
        raise LevelheadError(
            f"expected {size}, the training samples that have each label, got {described(found)}", parameter="counts"
        )
    found = found.astype(np.float64)
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise LevelheadError(f"expected 0 or more samples of {title(at, names)}, got {found[at]:g}", parameter="counts")
    return found


def _log(shares: np.ndarray) -> np.ndarray:
    some = shares[shares > 0]
    return np.log(np.maximum(shares, some.min() / 2 if len(some) else 0.5))
