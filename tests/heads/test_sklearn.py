"""Heads in scikit-learn's linear models: read, written back, and refused where scaling would be wrong."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import levelhead as lh
from levelhead.heads.sklearn import read, write

LINEAR = [
    LogisticRegression(),
    LogisticRegression(fit_intercept=False),
    RidgeClassifier(),
    RidgeClassifier(fit_intercept=False),
    SGDClassifier(random_state=0),
    SGDClassifier(random_state=0, average=True, loss="log_loss"),
    LinearSVC(random_state=0),
    LinearSVC(random_state=0, fit_intercept=False),
    Perceptron(random_state=0),
    LinearDiscriminantAnalysis(),
]


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(
        400,
        12,
        n_informative=8,
        n_classes=4,
        weights=[0.6, 0.25, 0.1, 0.05],
        class_sep=1.5,
        random_state=0,
    )
    return X, y


@pytest.mark.parametrize("estimator", LINEAR, ids=str)
def test_the_head_read_scores_as_the_model_does(estimator, data):
    X, y = data
    model = estimator.fit(X, y)
    head = read(model)
    np.testing.assert_allclose(head.logits(X), model.decision_function(X), rtol=1e-9, atol=1e-9)
    assert head.names == ["0", "1", "2", "3"]


@pytest.mark.parametrize("estimator", LINEAR, ids=str)
def test_a_rescaled_head_written_back_scales_the_scores(estimator, data):
    X, y = data
    model = estimator.fit(X, y)
    before, counts = model.decision_function(X), np.bincount(y)
    write(model, lh.adjust(read(model), lh.rules.Rescale(0.4), counts))
    expected = before * (counts.max() / counts) ** 0.4
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), expected.argmax(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reading_then_writing_changes_no_bit(data, dtype, order):
    X, y = data
    model = LogisticRegression().fit(X.astype(dtype), y)
    model.coef_ = np.array(model.coef_, dtype, order=order)
    coef, intercept = model.coef_.copy(order="K"), model.intercept_.copy()
    write(model, read(model))
    assert (model.coef_.dtype, model.coef_.flags.f_contiguous) == (dtype, order == "F")
    assert model.coef_.tobytes("A") == coef.tobytes("A")
    assert model.intercept_.dtype == intercept.dtype
    assert model.intercept_.tobytes() == intercept.tobytes()


def test_writing_leaves_the_head_and_the_model_independent(data):
    model = RidgeClassifier().fit(*data)
    head = read(model)
    write(model, lh.adjust(head, lh.rules.Rescale(1.0), [8, 4, 2, 1]))
    kept = head.weight.copy()
    model.coef_[:] = 0
    np.testing.assert_array_equal(head.weight, kept)


def test_a_shift_gives_a_model_without_intercept_one(data):
    X, y = data
    model = RidgeClassifier(fit_intercept=False).fit(X, y)
    before = model.decision_function(X)
    assert read(model).bias is None
    write(model, lh.adjust(read(model), lh.rules.Shift(0.5), [8, 4, 2, 1]))
    np.testing.assert_allclose(model.decision_function(X), before + 0.5 * np.log([1, 2, 4, 8]))
    np.testing.assert_allclose(read(model).bias, 0.5 * np.log([1, 2, 4, 8]))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        lambda: GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
        lambda: GridSearchCV(
            make_pipeline(StandardScaler(), RidgeClassifier()),
            {"ridgeclassifier__alpha": [1.0]},
            cv=2,
        ),
    ],
)
def test_the_model_inside_a_pipeline_or_search_is_the_one_changed(wrap, data):
    X, y = data
    for model in (wrap().fit(X, y), FrozenEstimator(wrap().fit(X, y))):
        before = model.decision_function(X)
        write(model, lh.adjust(read(model), lh.rules.Rescale(1.0), [8, 4, 2, 1]))
        np.testing.assert_allclose(model.decision_function(X), before * [1, 2, 4, 8])


def test_counts_may_go_by_the_models_own_class_names(data):
    X, y = data
    model = LogisticRegression().fit(X, np.array(["wolf", "ant", "cat", "bee"])[y])
    named = lh.adjust(read(model), lh.rules.Rescale(0.5), {"wolf": 8, "ant": 4, "cat": 2, "bee": 1})
    by_order = lh.adjust(read(model), lh.rules.Rescale(0.5), [4, 1, 2, 8])  # classes_ is sorted
    np.testing.assert_array_equal(named.weight, by_order.weight)


def test_feature_names_do_not_get_in_the_way(data):
    pandas = pytest.importorskip("pandas")
    X, y = data
    frame = pandas.DataFrame(X, columns=[f"feature {i}" for i in range(X.shape[1])])
    assert read(LogisticRegression().fit(frame, y)).weight.shape == (4, 12)


def test_an_unfitted_model_is_refused_as_scikit_learn_does():
    with pytest.raises(NotFittedError):
        read(LogisticRegression())
    with pytest.raises(NotFittedError):
        read(make_pipeline(StandardScaler(), LogisticRegression()))


def test_a_binary_head_is_refused_with_the_way_out(data):
    X, y = data
    with pytest.raises(ValueError, match=r"LogisticRegression has two classes.*AdjustedClassifier"):
        read(LogisticRegression().fit(X, y > 0))


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(5, random_state=0),
        SVC(kernel="linear"),
        CalibratedClassifierCV(LinearSVC(), cv=2),
        OneVsRestClassifier(LogisticRegression()),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_model_with_no_head_of_its_own_is_refused_with_the_way_out(estimator, data):
    with pytest.raises(ValueError, match=r"no linear head of its own.*AdjustedClassifier"):
        read(estimator.fit(*data))


def test_a_linear_svc_of_three_classes_is_not_mistaken_for_a_head(data):
    X, y = data
    with pytest.raises(
        ValueError, match="SVC has no linear head"
    ):  # its 3 rows are pairs of classes
        read(SVC(kernel="linear").fit(X[y < 3], y[y < 3]))


def test_a_model_that_scores_otherwise_is_refused(data):
    class Squared(RidgeClassifier):
        def decision_function(self, X):
            return super().decision_function(X) ** 2

    with pytest.raises(ValueError, match="Squared does not score classes by coef_"):
        read(Squared().fit(*data))


def test_a_model_of_several_labels_a_sample_is_refused(data):
    X, y = data
    with pytest.raises(
        ValueError, match="RidgeClassifier does not predict the class of the largest score"
    ):
        read(RidgeClassifier().fit(X, np.column_stack([y > 0, y > 1, X[:, 0] > 0])))


def test_a_sparse_coef_is_refused_until_densified(data):
    model = SGDClassifier(penalty="l1", random_state=0).fit(*data).sparsify()
    with pytest.raises(ValueError, match=r"sparse coef_; call its densify\(\) first"):
        read(model)
    assert read(model.densify()).classes == 4


def test_a_head_of_another_shape_is_not_written(data):
    model = LogisticRegression().fit(*data)
    kept = model.coef_.copy()
    with pytest.raises(
        ValueError, match=r"expected weight \[4, 12\] for LogisticRegression, got \[4, 3\]"
    ):
        write(model, lh.Head(np.ones((4, 3)), np.ones(4)))
    with pytest.raises(ValueError, match=r"expected a bias \[4\]"):
        write(model, lh.Head(np.ones((4, 12))))
    np.testing.assert_array_equal(model.coef_, kept)
