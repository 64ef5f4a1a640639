"""Predictions to be judged: every sample as the model is, and by a fit that has not seen it.

`predict_all` is step 3 of `tune`: scores [N, K] and `Fits` go in, `Outcomes` come out. The samples that were
fitted on are in memory already. Where they are a part of very many, all N are read again, chunk by chunk, and
only two classes of each sample are kept. Nothing is weighed or compared here: that is judge.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..support.arrays import Array, to_numpy
from ..support.read import read_chunks
from .adjustment import Adjustment, Fits
from .judge import Outcomes
from .samples import FOLDS, Given, Samples


def predict_all(
    given: Given,
    samples: Samples,
    rows: np.ndarray | None,
    fits: Fits,
    reach: np.ndarray | None = None,
) -> Outcomes:
    """Predict every sample as the model is, and by a fit that has not seen it.

    A sample of a fold is predicted by the fit without this fold. Samples that a rule was not fitted
    on at all are predicted by the fit on all others.

    Args:
        given: all N samples.
        samples: those that the rule was fitted on, in their folds.
        rows: which of the N these are; None if all.
        fits: without each fold, and on all of `samples`.
        reach: [N], how much of an offset arrives in each sample's scores; all of it if None.

    Returns:
        How often each (true, before, after) occurs among all N.
    """
    n = len(given.labels)
    which = _fit_of_samples(samples)
    chunks = [(0, samples.scores)]
    if rows is not None:
        # More than what was fitted on: read again, chunk by chunk.
        in_part = which
        which = np.zeros(n, np.int64)
        which[rows] = in_part
        chunks = read_chunks(given.logits, kind=given.read_as)

    # By position: 0 is the fit on all, i + 1 the one without folds[i].
    adjustments = [fits.whole, *fits.without]
    if rows is None:
        # The scores of `samples` are smoothed already.
        adjustments = [replace(adjustment, smoothing=0.0) for adjustment in adjustments]
    before = np.empty(n, np.int64)
    after = np.empty(n, np.int64)
    for first, chunk in chunks:
        part = slice(first, first + len(chunk))
        reach_of_part = None
        if reach is not None:
            reach_of_part = reach[part]
        before[part] = to_numpy(chunk.argmax(1))
        after[part] = _predict_by(adjustments, which[part], chunk, reach_of_part)
    return Outcomes.of(given.labels, before, after, len(given.counts))


def _fit_of_samples(samples: Samples) -> np.ndarray:
    """Return by which fit each sample is predicted, [n]: 0 is that on all, i + 1 that without folds[i].

    A fold of all samples has no fit without it: the fit on all has to do.
    """
    fit_of_fold = np.zeros(FOLDS, np.int64)
    fit_of_fold[samples.folds] = np.arange(len(samples.folds)) + 1
    return fit_of_fold[samples.fold]


def _predict_by(
    adjustments: Sequence[Adjustment],
    which: np.ndarray,
    scores: Array,
    reach: np.ndarray | None,
) -> np.ndarray:
    """Return what each row is predicted by the adjustment that it is for, [n].

    Rows of one adjustment are taken together, so that there are at most four products of arrays.

    Args:
        adjustments: to choose from.
        which: [n], the adjustment of each row, by position.
        scores: [n, K].
        reach: [n], as in `predict_all`.
    """
    predicted = np.empty(len(which), np.int64)
    for index in np.unique(which):
        rows = np.flatnonzero(which == index)
        scores_of_rows = scores
        if len(rows) < len(which):  # else nothing need be copied
            scores_of_rows = scores[rows]
        reach_of_rows = None
        if reach is not None:
            reach_of_rows = reach[rows]
        predicted[rows] = adjustments[index].predict(scores_of_rows, reach_of_rows)
    return predicted
