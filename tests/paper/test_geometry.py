"""Geometry against scipy, scikit-learn and angles worked out by hand."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from levelhead import Head
from levelhead_lab.paper import geometry

rng = np.random.default_rng(0)


def at(*degrees: float, length: float = 1.0) -> np.ndarray:
    return length * np.column_stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def test_norms_are_relative_to_the_longest():
    assert geometry.relative_norms(
        Head(np.array([[3.0, 4.0], [0.0, 10.0], [1.0, 0.0]]))
    ).tolist() == [0.5, 1.0, 0.1]


@pytest.mark.parametrize("levels", [50, 4])  # 4: many equal norms and counts
def test_the_rank_correlation_is_scipys(levels):
    weight, counts = (
        rng.integers(1, levels, size=(40, 1)).astype(float),
        rng.integers(1, levels, size=40),
    )
    expected = spearmanr(weight[:, 0], counts).statistic
    assert geometry.norm_follows_count(Head(weight), counts) == pytest.approx(expected)


def test_the_rank_correlation_has_a_sign_and_is_nan_for_a_balanced_set():
    head = Head(np.array([[4.0], [2.0], [1.0]]))
    assert geometry.norm_follows_count(head, [100, 10, 1]) == pytest.approx(1)
    assert geometry.norm_follows_count(head, [1, 10, 100]) == pytest.approx(-1)
    assert np.isnan(geometry.norm_follows_count(head, [5, 5, 5]))


def test_centers_are_directions_and_lengths_do_not_matter():
    features = np.concatenate([at(10, length=1), at(30, length=100), at(90)])
    centers = geometry.centers(features, [0, 0, 1], 3)
    np.testing.assert_allclose(centers[:2], at(20, 90), atol=1e-12)
    assert np.isnan(centers[2]).all()


def test_sigma_is_the_root_of_the_mean_squared_angle_in_degrees():
    features = at(50 - 10, 50 + 10, 200 - 3, 200 + 3, 200 - 1, 200 + 1)
    sigma = geometry.angular_sigma(features, [0, 0, 1, 1, 1, 1], 3)
    np.testing.assert_allclose(sigma[:2], [10, np.sqrt((9 + 9 + 1 + 1) / 4)], rtol=1e-9)
    assert np.isnan(sigma[2])


def test_the_center_gap_is_the_angle_between_centers():
    gap = geometry.center_gap((at(0, 90), [0, 1]), (at(25, 90), [0, 1]), 2)
    np.testing.assert_allclose(gap, [25, 0], atol=1e-5)


@pytest.mark.parametrize(("lengths", "between"), [((1, 1), 60), ((1, 3), 40), ((5, 2), 120)])
def test_on_the_boundary_both_logits_are_equal(lengths, between):
    weight = np.concatenate([at(0, length=lengths[0]), at(between, length=lengths[1])])
    first, second = geometry.boundary_angles(Head(weight), 0, 1)
    assert first + second == pytest.approx(between)
    logits = Head(weight).logits(at(first))[0]
    assert logits[0] == pytest.approx(logits[1])
    assert (first < second) == (lengths[0] < lengths[1])  # the shorter one has less room


def test_the_oracle_head_is_the_one_scikit_learn_finds():
    features, labels = rng.standard_normal((300, 5)), rng.integers(4, size=300)
    features[np.arange(300), labels] += 1.5
    oracle = geometry.oracle_head(features, labels, 4, decay=0.01, tolerance=1e-7)
    theirs = LogisticRegression(
        C=1 / (300 * 0.01), fit_intercept=False, tol=1e-8, max_iter=1000
    ).fit(features, labels)
    np.testing.assert_allclose(oracle.head.weight, theirs.coef_, atol=1e-4)
    assert oracle.gradient <= 1e-7
    assert oracle.error == pytest.approx(1 - theirs.score(features, labels))


def test_the_oracle_starts_at_a_given_head_and_stops_after_given_steps():
    features, labels = rng.standard_normal((100, 3)), rng.integers(2, size=100)
    done = geometry.oracle_head(features, labels, 2, decay=0.1)
    again = geometry.oracle_head(features, labels, 2, decay=0.1, start=done.head)
    assert (again.steps, again.loss) == (0, done.loss)
    assert geometry.oracle_head(features, labels, 2, decay=0.1, steps=1).loss > done.loss


def test_norm_follows_count_says_nothing_of_unit_rows():
    rounded = 1 + np.array([3e-8, 2e-8, 1e-8, 0.0])  # what WVN leaves
    assert np.isnan(geometry.norm_follows_count(Head(np.diag(rounded)), [1, 2, 3, 4]))
    assert geometry.norm_follows_count(
        Head(np.diag([4.0, 3.0, 2.0, 1.0])), [1, 2, 3, 4]
    ) == pytest.approx(-1)


@pytest.mark.parametrize("unit", [0.01, 1.0, 100.0])
def test_norms_that_differ_by_less_than_a_ten_thousandth_are_equal_in_any_unit(unit):
    equal, other = (Head(unit * np.diag([1.0, 1 + by])) for by in (0.5e-4, 2e-4))
    assert np.isnan(geometry.norm_follows_count(equal, [90, 10]))
    assert geometry.norm_follows_count(other, [90, 10]) == -1


def test_rounding_of_a_cosine_beyond_one_is_an_angle_of_zero_or_a_half_turn():
    features, labels = np.random.default_rng(1).standard_normal((300, 7)), np.arange(300)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert ((unit * unit).sum(axis=1) > 1).any()  # what must not reach the arc cosine
    np.testing.assert_allclose(geometry.angular_sigma(features, labels, 300), 0, atol=1e-5)
    np.testing.assert_allclose(
        geometry.center_gap((features, labels), (features, labels), 300), 0, atol=1e-5
    )
    np.testing.assert_allclose(
        geometry.center_gap((features, labels), (-features, labels), 300), 180, atol=1e-5
    )
    for row in features:
        for other, between in ((row, 0), (-row, 180)):
            assert sum(
                geometry.boundary_angles(Head(np.stack([row, other])), 0, 1)
            ) == pytest.approx(between, abs=1e-5)


def test_the_oracle_takes_as_few_steps_as_scipys():
    features, labels = rng.standard_normal((200, 6)), rng.integers(3, size=200)
    features[np.arange(200), labels] += 1.0
    ours = geometry.oracle_head(
        features * [1, 2, 4, 8, 16, 32], labels, 3, decay=1e-3, tolerance=1e-6
    )

    def loss(flat):
        x, w = features * [1, 2, 4, 8, 16, 32], flat.reshape(3, 6)
        logs = log_softmax(x @ w.T, axis=1)
        slope = (np.exp(logs) - np.eye(3)[labels]).T @ x / 200 + 1e-3 * w
        return -logs[np.arange(200), labels].mean() + 5e-4 * flat @ flat, slope.ravel()

    theirs = minimize(
        loss,
        np.zeros(18),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-6, "ftol": 0, "maxcor": 20, "maxiter": 500},
    )
    assert ours.loss == pytest.approx(theirs.fun, abs=1e-9)
    assert ours.gradient <= 1e-6
    assert ours.steps <= 1.3 * theirs.nit


def test_the_oracle_takes_no_more_steps_than_asked_for_and_each_makes_it_better():
    features, labels = rng.standard_normal((60, 3)), rng.integers(3, size=60)
    few = [geometry.oracle_head(features, labels, 3, steps=steps) for steps in (0, 1, 2, 3)]
    assert [each.steps for each in few] == [0, 1, 2, 3]
    assert [few[0].loss, *sorted((each.loss for each in few[1:]), reverse=True)] == [
        each.loss for each in few
    ]
    assert few[0].loss == pytest.approx(np.log(3))
    assert few[1].loss < few[0].loss


def test_the_oracle_begins_at_scores_whose_exponentials_overflow():
    done = geometry.oracle_head(np.eye(2), [1, 0], 2, start=Head(1e4 * np.eye(2)), steps=1)
    assert np.isfinite(done.loss)
    assert done.loss < 1e4
