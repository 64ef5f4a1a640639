"""What is given to a multi-label choice, checked: labels, scores, costs, floors and counts, one column per label."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.array import LARGEST_PROBABILITY, Array, check_finite_rows, described, to_numpy
from ..core.choices import Kind
from ..core.errors import Advice, LevelheadError, check_choice, named
from ..core.per_class import as_mapping, find_classes, in_order, title
from ..path.metrics import check_cost
from ..rules.rule import AUTO, Shift


def check_multilabel_options(rule: str, criterion: str, **others: Any) -> None:
    """Check that nothing is asked of a multi-label choice that needs classes which compete."""
    if rule not in (AUTO, Shift.name):
        reason = f"the rule {rule!r} cannot level several labels per sample: scaling never moves the sign of a logit"
        raise LevelheadError(f"{reason}; leave it out, and each label is shifted by itself", parameter="rule")
    check_choice("criterion", criterion, ("guided", "balanced_error"))
    for name, value in others.items():
        if value is not None:
            reason = "not for several labels per sample, which do not compete; leave it out"
            raise LevelheadError(reason, parameter=name)


def check_label_table(labels: Any) -> np.ndarray:
    """Return labels [N, K] as bool, after checking that they are 0 or 1."""
    with named("labels"):
        try:
            found = to_numpy(labels)
        except ValueError:
            raise LevelheadError("expected 0 or 1 [N, K], got rows of different lengths") from None
        if found.ndim == 1:
            reason = "expected 0 or 1 for each label of each sample, [N, K], got one value per sample"
            instead = "if they are classes, of which each sample has one, leave out the task multilabel"
            raise LevelheadError(f"{reason}, [{len(found)}]; {instead}")
        if found.ndim != 2 or 0 in found.shape:
            raise LevelheadError(f"expected 0 or 1 [N, K], got shape {list(found.shape)}")
        if found.dtype.kind not in "biuf":
            raise LevelheadError(f"expected 0 or 1, got {described(found)}")
        wrong = (found != 0) & (found != 1)
        if wrong.any():
            raise LevelheadError(f"expected 0 or 1, got {_first(found, wrong)}")
    return found.astype(bool)


def check_label_scores(logits: Array, truth: np.ndarray, kind: Kind) -> np.ndarray:
    """Return logits [N, K] of sigmoids in float64; of probabilities, ``log p / (1 - p)``."""
    # Probabilities of 0 or 1 become as extreme as half of the smallest others.
    check_choice("kind", kind, ("logits", "probabilities"))
    found = to_numpy(logits)
    if found.dtype.kind not in "fiu":
        raise LevelheadError(f"expected numbers, got {described(found)}", parameter="logits")
    if found.shape != truth.shape:
        expected = f"expected one score for each of the labels, {list(truth.shape)}"
        raise LevelheadError(f"{expected}, got shape {list(found.shape)}", parameter="logits")
    found = found.astype(np.float64)
    check_finite_rows(found)
    outside = (found < 0) | (found > LARGEST_PROBABILITY)
    if kind == "probabilities":
        if outside.any():
            advice = Advice("kind", "logits", "if these are logits")
            raise LevelheadError(f"expected probabilities, from 0 to 1, got {_first(found, outside)}", advice=advice)
        return _log(np.minimum(found, 1.0)) - _log(np.maximum(1 - found, 0.0))
    if not outside.any() and ((found > 0) & (found < 1)).any():
        advice = Advice("kind", "probabilities", "if they come after the sigmoid")
        raise LevelheadError("expected logits, got what looks like probabilities: all are from 0 to 1", advice=advice)
    return found


def check_label_costs(cost: Any, labels: int) -> np.ndarray:
    """Return a cost matrix for each label, [K, 2, 2], row true, column predicted: one for all, or one for each."""
    found = to_numpy(cost)
    if found.shape not in ((2, 2), (labels, 2, 2)):
        expected = f"expected numbers [2, 2] or [{labels}, 2, 2], row true, column predicted"
        raise LevelheadError(f"{expected}, got shape {list(found.shape)}", parameter="cost")
    return np.stack([check_cost(one, 2) for one in np.broadcast_to(found, (labels, 2, 2))])


def check_label_floors(floors: Any, truth: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """Return the least recall of the positives of each label, [K], 0 for none, given labels [N, K]."""
    size, known = truth.shape[1], truth.any(axis=0)
    found, mapping = np.zeros(size), as_mapping(floors)
    with named("floors"):
        try:
            if mapping is not None:
                found[find_classes(mapping, size, names, what="floor")] = [float(value) for value in mapping.values()]
            else:
                given = to_numpy(floors).astype(np.float64)
                if given.shape not in ((), (size,)):
                    raise LevelheadError(f"expected a recall, or one for each of {size} labels, got {given.size}")
                found[:] = np.where(known, given, 0.0) if given.ndim == 0 else given
        except LevelheadError:
            raise
        except (TypeError, ValueError):
            raise LevelheadError(f"expected a recall, or a recall for each label, got {floors!r}") from None
        outside = found[~((found >= 0) & (found <= 1))]
        if len(outside):
            raise LevelheadError(f"expected recalls from 0 to 1, got {outside[0]:g}")
        unknown = np.flatnonzero((found > 0) & ~known)
        if len(unknown):
            reason = "has no positive sample here, so its recall is not known; leave out its floor"
            raise LevelheadError(f"{title(int(unknown[0]), names)} {reason}")
    return found


def check_label_counts(counts: Any, truth: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
    """Return how many training samples have each label, [K]: as given or, of None, as in labels [N, K]."""
    size = truth.shape[1]
    mapping = as_mapping(counts, size)
    found = truth if counts is None else to_numpy(counts) if mapping is None else in_order(mapping, size, names)
    if found.ndim == 2 and found.shape[1] == size:
        return check_label_table(found).sum(axis=0).astype(np.float64)
    if found.shape != (size,) or found.dtype.kind not in "iuf":
        expected = f"expected {size}, the training samples that have each label"
        raise LevelheadError(f"{expected}, got {described(found)}", parameter="counts")
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        of = title(int(bad[0]), names)
        raise LevelheadError(f"expected 0 or more samples of {of}, got {found[bad[0]]:g}", parameter="counts")
    return found.astype(np.float64)


def _first(values: np.ndarray, wrong: np.ndarray) -> str:
    """Return the first value that is wrong, with its place."""
    row, column = np.argwhere(wrong)[0]
    return f"{values[row, column]:g} in row {row}, column {column}"


def _log(shares: np.ndarray) -> np.ndarray:
    some = shares[shares > 0]
    return np.log(np.maximum(shares, some.min() / 2 if len(some) else 0.5))
