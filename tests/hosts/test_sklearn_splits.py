"""Splits that hold a sample out several times: `AdjustedClassifierCV` counts it once."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
)

from levelhead.hosts.sklearn import AdjustedClassifierCV

X, Y = make_classification(
    500,
    n_informative=6,
    n_features=8,
    n_classes=3,
    weights=[0.8, 0.15, 0.05],
    random_state=0,
)


def test_repeated_folds_tell_no_more_samples_than_there_are():
    """Each repeat scores the same samples: counted four times, the interval would be half as wide."""
    repeated = RepeatedStratifiedKFold(n_splits=5, n_repeats=4, random_state=0)
    model = AdjustedClassifierCV(LogisticRegression(), cv=repeated).fit(X, Y)
    first = [next(splits) for splits in [repeated.split(X, Y)] for _ in range(5)]
    once = AdjustedClassifierCV(LogisticRegression(), cv=first).fit(X, Y)
    assert model.tuned_.n == 500
    assert model.tuned_.gain_interval == once.tuned_.gain_interval
    np.testing.assert_array_equal(model.tuned_.evidence.before.sizes, np.bincount(Y))


@pytest.mark.parametrize("as_mask", [False, True])
def test_samples_count_in_the_first_split_that_holds_them_out(as_mask):
    splits = list(ShuffleSplit(6, test_size=0.5, random_state=0).split(X))
    if as_mask:
        splits = [(np.isin(np.arange(500), a), np.isin(np.arange(500), b)) for a, b in splits]
    model = AdjustedClassifierCV(LogisticRegression(), cv=splits).fit(X, Y)
    held_out = {int(row) for _, rows in splits for row in np.arange(500)[rows]}
    assert model.tuned_.n == len(held_out) > 450


@pytest.mark.filterwarnings("ignore:The least populated class in y has only 1 member")
def test_a_sample_of_a_class_that_no_other_fold_has_does_not_flatten_probabilities():
    labels = Y.copy()
    labels[0] = 3
    plain = AdjustedClassifierCV(LogisticRegression()).fit(X[1:], Y[1:])
    model = AdjustedClassifierCV(LogisticRegression()).fit(X, labels)
    assert model.tuned_.temperature == pytest.approx(plain.tuned_.temperature, rel=0.2)


def test_folds_that_do_not_overlap_are_as_they_were():
    splits = list(StratifiedKFold(5).split(X, Y))
    given = AdjustedClassifierCV(LogisticRegression(), cv=splits).fit(X, Y)
    default = AdjustedClassifierCV(LogisticRegression()).fit(X, Y)
    assert given.tuned_.gain == default.tuned_.gain
