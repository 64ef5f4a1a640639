"""Labels that are numbers from 1 on, in scikit-learn and on the page of a report: names everywhere, never positions."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import levelhead as lh
from levelhead.hosts.sklearn import AdjustedClassifierCV

X, Y = make_classification(
    1200, n_classes=4, n_informative=6, weights=[0.7, 0.15, 0.1], random_state=0
)
COUNTS = np.bincount(Y)
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")


def fitted(y, counts, target, floors):
    goal = lh.Goal("balanced_accuracy", floors=floors)
    model = AdjustedClassifierCV(
        LogisticRegression(), scoring=goal, cv=3, counts=counts, target=target
    )
    return model.fit(X, y)


def test_floors_targets_and_counts_of_labels_1_to_4_go_by_label():
    shares = [0.4, 0.3, 0.2, 0.1]
    by_position = fitted(Y, COUNTS, shares, {0: 0.3})
    by_label = fitted(
        Y + 1,
        {label + 1: int(COUNTS[label]) for label in (2, 0, 3, 1)},
        {label + 1: shares[label] for label in (3, 1, 0, 2)},
        {1: 0.3},
    )
    expected = by_position.tuned_
    np.testing.assert_array_equal(by_label.tuned_.adjustment.offset, expected.adjustment.offset)
    assert [floor.index for floor in by_label.tuned_.floors] == [0]
    assert by_label.tuned_.counts == expected.counts
    np.testing.assert_array_equal(by_label.predict(X), by_position.predict(X) + 1)
    with pytest.raises(ValueError, match=r"labels that are classes \(1, 2, 3, 4\), got 0"):
        fitted(Y + 1, None, None, {0: 0.3})


def test_the_page_of_labels_1_to_4_counts_each_as_itself(tmp_path):
    model = fitted(Y + 1, None, None, None)
    page = model.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert model.tuned_.names == ("1", "2", "3", "4")
    assert page
    recall = model.tuned_.evidence.before.recall
    for k in range(4):
        assert f"{recall[k]:.1%}".rstrip("%") in page
