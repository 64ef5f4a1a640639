"""Data that several hosts are tested with."""

import numpy as np
import pytest

from levelhead.core.counts import long_tail


@pytest.fixture(scope="module")
def tail():
    """Five classes, the largest 50 times the smallest; what is left over is a balanced test set."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        4000, 12, n_informative=10, n_classes=5, class_sep=1.3, random_state=1
    )
    train = np.concatenate(
        [np.flatnonzero(y == k)[:n] for k, n in enumerate(long_tail(500, 5, 50))]
    )
    test = np.setdiff1d(np.arange(len(y)), train)
    return X[train], y[train], X[test], y[test]
