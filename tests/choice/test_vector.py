"""Vector scaling: derivatives by differences, the optimum by scipy and scikit-learn, the fit on simulations."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from levelhead.choice.resample import draw_folds
from levelhead.choice.vector import ONE_STEP, RIDGES, Columns, VectorLoss, choose_ridge, vector_loss
from levelhead.core.adjustment import Adjustment, smooth_votes
from levelhead.core.measure import balanced_error
from levelhead.support.arrays import check_logits, log_softmax
from levelhead.support.errors import LevelheadError


def held_out(rng, sizes, counts, signal=2.0, scale=1.0):
    """Return logits and labels of a calibrated model that was trained with these counts, times a scale per class."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    features = signal * np.eye(len(sizes))[labels] + rng.normal(size=(len(labels), len(sizes)))
    return (signal * features + np.log(counts)) * scale, labels


def fitted_vector(logits, labels, counts, prior=None, ridge=None):
    """Return what vector scaling does to each class."""
    loss = vector_loss(logits.astype(np.float64), labels, counts, prior)
    ridge, start = choose_ridge(loss)[:2] if ridge is None else (ridge, None)
    return Adjustment(*loss.affine(loss.fit(ridge, start)))


RIDGE = 0.05


def value(loss, parameters):
    return loss.value(parameters, loss.look(parameters)[0], RIDGE)


def naive_value(parameters, loss):
    """Return the loss, sample by sample, as the equation has it."""
    a, c = parameters.reshape(2, -1)
    z = loss.columns.calibrated.T
    mean = np.average(z, axis=0, weights=loss.weights)
    deviation = np.sqrt(np.average((z - mean) ** 2, axis=0, weights=loss.weights))
    total = RIDGE / 2 * (a @ a + c @ c)
    for row, label, weight in zip(z, loss.labels, loss.weights, strict=True):
        scores = row + loss.shift + a * (row - mean) / deviation + c
        total += weight * (np.log(np.exp(scores).sum()) - scores[label])
    return total


@pytest.fixture
def loss():
    rng = np.random.default_rng(0)
    logits, labels = held_out(rng, [40, 15, 6, 9], [400, 150, 60, 90])
    weights = rng.random(len(labels))
    weights /= weights.sum()
    return VectorLoss(Columns.of(logits, weights, 0.4), labels, weights, np.log([1, 2, 6, 4]))


def test_the_loss_is_the_equation(loss):
    parameters = np.random.default_rng(1).normal(size=(2, 4))
    assert value(loss, parameters) == pytest.approx(naive_value(parameters, loss), abs=1e-12)


def test_derivatives_are_those_of_finite_differences(loss):
    rng = np.random.default_rng(1)
    at, direction, step = rng.normal(size=(2, 4)), rng.normal(size=(2, 4)), 1e-5
    gradient = lambda at: loss.gradient(at, loss.look(at)[1], RIDGE)  # noqa: E731
    slope = (value(loss, at + step * direction) - value(loss, at - step * direction)) / (2 * step)
    assert (gradient(at) * direction).sum() == pytest.approx(slope, abs=1e-8)
    bend = (gradient(at + step * direction) - gradient(at - step * direction)) / (2 * step)
    product = loss.curvature(loss.look(at)[1], RIDGE)
    np.testing.assert_allclose(product(direction), bend, atol=1e-8)


def test_the_minimum_is_that_of_scipy(loss):
    expected = minimize(
        naive_value, np.zeros(8), args=(loss,), method="BFGS", options={"gtol": 1e-8}
    )
    found = loss.minimum(RIDGE)
    assert value(loss, found) <= expected.fun + 1e-10
    np.testing.assert_allclose(found.ravel(), expected.x, atol=1e-4)


def test_two_classes_are_logistic_regression():
    """With a constant first logit, a1 and c1 - c0 are the coefficients of scikit-learn's weighted regression."""
    rng = np.random.default_rng(2)
    z, labels = rng.normal(size=300), rng.integers(2, size=300)
    z += labels
    logits = np.stack([np.zeros(300), z], axis=1)
    sizes = np.bincount(labels)
    weights = 0.5 / sizes[labels]
    loss = VectorLoss(Columns.of(logits, weights, 1.0), labels, weights, np.zeros(2))
    scale, offset = loss.affine(loss.minimum(1e-9))
    truth = LogisticRegression(C=1e8, tol=1e-10, class_weight="balanced").fit(z[:, None], labels)
    assert scale[1] == pytest.approx(truth.coef_[0, 0], abs=1e-3)
    assert offset[1] - offset[0] == pytest.approx(truth.intercept_[0], abs=1e-3)


def test_affine_gives_the_scores_of_the_loss(loss):
    parameters = np.random.default_rng(3).normal(size=(2, 4))
    scale, offset = loss.affine(parameters)
    probability = softmax(scale * loss.columns.calibrated.T / 0.4 + offset, axis=1)
    np.testing.assert_allclose(probability.T, loss.look(parameters)[1][1], atol=1e-12)


def test_a_calibrated_model_gets_the_counts_shift():
    counts = np.array([4000, 1000, 250])
    logits, labels = held_out(np.random.default_rng(0), [2000, 500, 125], counts)
    fitted = fitted_vector(logits, labels, counts)
    assert vector_loss(logits, labels, counts).columns.inverse == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(fitted.scale, 1, atol=0.2)
    best = balanced_error(logits - np.log(counts), labels)
    assert balanced_error(fitted.scores(logits), labels) == pytest.approx(best, abs=0.01)


def test_bent_scales_are_found_where_the_counts_shift_errs():
    counts = np.array([2000, 600, 200, 60])
    rng = np.random.default_rng(1)
    bent = np.array([1.6, 1.0, 0.7, 0.5])
    logits, labels = held_out(rng, [600, 180, 60, 40], counts, signal=1.5, scale=bent)
    test, true = held_out(rng, [1000] * 4, counts, signal=1.5, scale=bent)
    fitted = fitted_vector(logits, labels, counts)
    shifted = test * vector_loss(logits, labels, counts).columns.inverse - np.log(counts)
    assert np.isfinite(choose_ridge(vector_loss(logits, labels, counts))[0])
    assert balanced_error(fitted.scores(test), true) < balanced_error(shifted, true) - 0.01


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_the_fit_does_not_depend_on_the_units_of_the_scores(factor):
    counts = np.array([500, 100, 40])
    logits, labels = held_out(np.random.default_rng(0), [50, 20, 12], counts)
    one, other = (
        fitted_vector(logits, labels, counts),
        fitted_vector(factor * logits, labels, counts),
    )
    ridges = [
        choose_ridge(vector_loss(scores, labels, counts))[0] for scores in (logits, factor * logits)
    ]
    assert ridges[0] == ridges[1]
    np.testing.assert_allclose(other.scale * factor, one.scale, rtol=1e-3)
    np.testing.assert_allclose(other.offset, one.offset, atol=1e-3)


def test_another_prior_is_the_offset_that_bayes_gives():
    """For calibrated scores, weights by another prior add its logarithm."""
    counts, prior = np.array([300, 300, 300]), np.array([0.7, 0.2, 0.1])
    logits, labels = held_out(np.random.default_rng(0), [1500, 1500, 1500], counts)
    uniform, other = (
        fitted_vector(logits, labels, counts, prior=p, ridge=1e-6) for p in (None, prior)
    )
    moved = other.offset - uniform.offset
    np.testing.assert_allclose(moved - moved[0], np.log(prior / prior[0]), atol=0.25)


def test_a_class_without_a_sample_stays_at_the_counts_shift():
    counts = np.array([500, 100, 40, 20])
    logits, labels = held_out(np.random.default_rng(0), [50, 20, 12, 0], counts)
    fitted = fitted_vector(logits, labels, counts, ridge=0.01)
    assert fitted.scale[3] == pytest.approx(vector_loss(logits, labels, counts).columns.inverse)
    assert fitted.offset[3] == pytest.approx(np.log(500 / 20 / 4))


def test_scales_stay_positive_on_noise():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 8)
    fitted = fitted_vector(
        rng.normal(size=(24, 3)) - np.eye(3)[labels], labels, np.array([50, 20, 5])
    )
    assert (fitted.scale > 0).all()
    assert np.isfinite(fitted.offset).all()


def test_separable_samples_give_finite_numbers():
    labels = np.repeat(np.arange(3), 10)
    fitted = fitted_vector(20 * np.eye(3)[labels], labels, np.array([50, 20, 5]))
    assert np.isfinite([fitted.scale, fitted.offset]).all()


def test_a_class_of_no_share_gets_a_finite_offset():
    counts = np.array([500, 100, 40])
    logits, labels = held_out(np.random.default_rng(0), [50, 20, 12], counts)
    fitted = fitted_vector(logits, labels, counts, prior=np.array([0.5, 0.5, 0.0]))
    assert np.isfinite(fitted.offset).all()
    assert fitted.scores(logits).argmax(axis=1).max() == 1


def test_one_sample_per_class_is_refused():
    with pytest.raises(LevelheadError, match="at least two samples"):
        fitted_vector(np.eye(3), np.arange(3), np.array([5, 4, 3]))


def test_votes_are_smoothed_by_the_least_vote():
    votes = np.array([[0.99, 0.01, 0.0], [0.5, 0.3, 0.2]])
    logs = check_logits(votes, kind="probabilities")
    scores, smoothing = smooth_votes(logs)
    assert smoothing == pytest.approx(0.01)
    np.testing.assert_allclose(scores, np.log(votes + 0.01), atol=1e-12)
    assert smooth_votes(logs[1:])[1] == 0.0
    np.testing.assert_allclose(smooth_votes(logs, 0.5)[0], np.log(votes + 0.5))
    assert smooth_votes(np.log([[1.0, 1e-9, 1e-300]]))[1] == 1e-4
    assert smooth_votes(check_logits(votes.astype(np.float32), kind="probabilities"))[
        1
    ] == pytest.approx(0.01)


def test_the_ridge_is_the_one_of_least_cross_fitted_loss():
    """A naive loop over folds chooses the same ridge."""
    counts = np.array([500, 100, 40])
    logits, labels = held_out(
        np.random.default_rng(4), [60, 25, 12], counts, scale=np.array([2.0, 1.0, 0.5])
    )
    fold = draw_folds(labels, 5, np.random.default_rng(0))
    total = []
    for ridge in RIDGES:
        losses = np.zeros(len(labels))
        for left_out in range(5):
            held = fold == left_out
            fitted = fitted_vector(logits[~held], labels[~held], counts, ridge=ridge)
            scores = log_softmax(fitted.scores(logits[held]))
            losses[held] = -scores[np.arange(held.sum()), labels[held]]
        total.append(np.mean([losses[labels == k].mean() for k in range(3)]))
    assert choose_ridge(vector_loss(logits, labels, counts))[0] == RIDGES[int(np.argmin(total))]


@pytest.mark.parametrize("seed", range(5))
def test_one_step_from_the_whole_is_the_fit_without_a_fold(seed):
    """Its loss is the lowest to within what the step leaves, in float32, also where a class has few samples."""
    counts = np.array([500, 100, 40])
    logits, labels = held_out(
        np.random.default_rng(seed), [200, 50, 10], counts, scale=np.array([2.0, 1.0, 0.5])
    )
    whole = vector_loss(logits, labels, counts)
    narrow, start = whole.narrow(), whole.minimum(0.1)
    for fold in range(5):
        kept = draw_folds(labels, 5, np.random.default_rng(seed)) != fold
        exact = whole.on(kept)
        losses = [
            exact.value(found, exact.look(found)[0], 0.1)
            for found in (
                narrow.on(kept).minimum(0.1, start, narrow.look(start), ONE_STEP),
                exact.minimum(0.1),
                start,
            )
        ]
        assert losses[0] - losses[1] < 1e-4
        assert losses[0] < losses[2]
