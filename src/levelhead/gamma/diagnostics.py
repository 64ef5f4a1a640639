"""What is looked at before a gamma is chosen: data that may not be used for it, and heads that scaling does not suit.

Each guard is a function that returns its warning, or None. Its rule stands in its docstring. What it says travels with
the result, to the terminal and onto pages: it is written for Python and for the command line alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from ..core.array import Array, described, to_numpy
from ..core.errors import LevelheadError
from ..core.geometry import norm_follows_count
from ..core.head import Head
from ..core.warnings import (
    BinaryHeadWarning,
    CountsWarning,
    LeakageWarning,
    LevelheadWarning,
    MissingClassWarning,
    NegativeLogitsWarning,
    NeverPredictedWarning,
    NormWarning,
    RangeWarning,
)
from .rule import check_vector

Diagnosis = LevelheadWarning | None

_INSTEAD = "use the rule shift, which adds instead of multiplying"


def diagnose_accuracy(right: np.ndarray) -> Diagnosis:
    """Fewer than 1 in 500 wrong of at least 300 samples.

    300, because none wrong of fewer is still compatible with an honest error of 1 % (the rule of three). On training
    data a network is wrong almost nowhere; on unseen long-tailed data almost none is that good.
    """
    n, wrong = len(right), int((~right).sum())
    if n < 300 or wrong * 500 >= n:
        return None
    return LeakageWarning(
        f"{wrong} of {n} samples are wrong at gamma = 0: too good for data the model has not seen; choose gamma on "
        "samples that it was not trained on, or on unlabelled ones (match_prior, or tune without --labels)"
    )


def diagnose_training_rows(logits: Array, training: Array | None) -> Diagnosis:
    """At least one row in ten equals a row of the training data, bit for bit."""
    if training is None:
        return None
    held, trained = to_numpy(logits), to_numpy(training)
    if trained.ndim != 2 or trained.shape[1] != held.shape[1]:
        raise LevelheadError(f"expected training logits [M, {held.shape[1]}], got shape {list(trained.shape)}")
    if trained.dtype.kind not in "fiu":
        raise LevelheadError(f"expected training logits as floating-point numbers, got {described(trained)}")
    trained = trained.astype(held.dtype, copy=False)
    known = {row.tobytes() for row in trained}
    twice = sum(row.tobytes() in known for row in held)
    if twice * 10 < len(held):
        return None
    return LeakageWarning(
        f"{twice} of {len(held)} held-out rows are rows of the training data; choose gamma on samples that the model "
        "was not trained on"
    )


def diagnose_negative_logits(logits: Array, labels: np.ndarray, rule: str) -> Diagnosis:
    """More than one true-class logit in five is negative, averaged over classes, and the rule multiplies.

    Over classes, because frequent ones, whose logits are rarely negative, would hide the rare ones that RS is for.
    """
    if rule == "shift":
        return None
    sizes = np.bincount(labels)
    below = np.bincount(labels, _true_logits(logits, labels) < 0)
    share = float((below[sizes > 0] / sizes[sizes > 0]).mean())
    if share <= 0.2:
        return None
    return NegativeLogitsWarning(
        f"{share:.0%} of the true-class logits are negative, and a larger factor pushes those down, not up; {_INSTEAD}"
    )


def diagnose_binary_head(logits: Array, rule: str) -> Diagnosis:
    """Two classes with logits (-z, z) or (0, z), and the rule multiplies: the larger stays the larger."""
    if rule == "shift" or logits.shape[1] != 2:
        return None
    some = to_numpy(logits[:1000]).astype(np.float64)
    opposite = np.allclose(some[:, 0], -some[:, 1], rtol=1e-4, atol=1e-6 * np.abs(some).max())
    if not opposite and some.any(axis=0).all():
        return None
    what = "the two logits are opposite" if opposite else "one of the two logits is always 0"
    return BinaryHeadWarning(f"{what}, so scaling never changes a prediction; {_INSTEAD}")


def diagnose_norms(norms: Array | None, counts: np.ndarray, rule: str) -> Diagnosis:
    """Rank correlation of weight norms with counts below -0.3, and the rule scales by counts."""
    if norms is None or rule != "rescale":
        return None
    correlation = norm_follows_count(Head(check_vector(norms, len(counts), "norms")[:, None]), counts)
    if not correlation < -0.3:
        return None
    return NormWarning(
        f"weight norms fall as counts grow (rank correlation {correlation:.2f}, typical of Adam), so rare classes are "
        f"not the short ones; {_INSTEAD}, or compare the rules (levelhead.compare, in Python)"
    )


def diagnose_missing_classes(sizes: np.ndarray, names: Sequence[str] | None = None, *, least: int = 1) -> Diagnosis:
    """A class has fewer samples than it takes, among those that gamma is chosen on."""
    absent = np.flatnonzero(sizes < least).tolist()
    if not absent:
        return None
    shown = ", ".join(str(i) if names is None else f"{i} ({names[i]})" for i in absent[:8])
    more = f" and {len(absent) - 8} more" if len(absent) > 8 else ""
    few = "no sample" if least == 1 else f"fewer than {least} samples"
    return MissingClassWarning(f"{few} here of class {shown}{more}: neutral in every measure, yet gamma moves it too")


def diagnose_balanced_counts(counts: np.ndarray, model: str) -> Diagnosis:
    """Counts that a trained model is leveled by, taken from other samples than its own: none twice another."""
    if counts.max() >= 2 * counts.min():
        return None
    return CountsWarning(
        f"{model} is trained already, and what it is given now is balanced ({counts.min():g} to {counts.max():g} of a "
        "class): by that next to nothing is leveled; give the counts of its training samples as counts="
    )


def diagnose_unpredicted_classes(shares: np.ndarray, target: np.ndarray, n: int) -> Diagnosis:
    """Classes that are predicted less than a tenth as often as they occur make up more than a third of the n samples.

    Of classes of which 5 samples are to be expected; of fewer none may be there. In our networks on CIFAR and
    Tiny ImageNet (results/records) matching shares cost 2 to 9 points of error where 2 classes in 5 or more were never
    found (step imbalance, ratio 100), and 0.8 at most elsewhere, where it most often gained.
    """
    absent = (shares < target / 10) & (n * target >= 5)
    if target[absent].sum() <= 1 / 3:
        return None
    return NeverPredictedWarning(
        f"{absent.sum()} of {len(target)} classes, {target[absent].sum():.0%} of the samples by the target, are hardly "
        "ever predicted at gamma = 0: what makes up their shares may be samples of others; choose gamma on labelled "
        "samples (tune)"
    )


def diagnose_range_end(plateau: tuple[float, float], reach: tuple[float, float]) -> Diagnosis:
    """The best plateau touches the upper end of the range, and is not the whole of it."""
    low, high = plateau
    if high < reach[1] or low <= reach[0]:
        return None
    return RangeWarning(
        f"the criterion is lowest at the end of the range ({low:.3g} to {high:.3g}); a wider range may do better "
        "(range=, or --max)"
    )


def issue_warnings(found: Iterable[Diagnosis], stacklevel: int = 2) -> tuple[str, ...]:
    """Raise what was found as warnings of their own class; their texts are returned for the result.

    The level is that of `warnings.warn`, were it called in place of this: 2 is the line that calls our caller.
    """
    cautions = [caution for caution in found if caution is not None]
    for caution in cautions:
        warnings.warn(caution, stacklevel=stacklevel + 1)
    return tuple(f"{type(caution).__name__}: {caution}" for caution in cautions)


def _true_logits(logits: Array, labels: np.ndarray) -> np.ndarray:
    """[N], picked where they lie: a memory-mapped or GPU array is not read whole."""
    rows = np.arange(len(labels))
    if isinstance(logits, np.ndarray):
        return logits[rows, labels]
    import torch

    return to_numpy(logits[torch.as_tensor(rows), torch.as_tensor(labels, device=logits.device)])
