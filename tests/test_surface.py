"""What people pass in: tables, lists, tensors, half precision, mistakes. It works, or is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import levelhead as lh
from levelhead import Head

COUNTS = [1000, 300, 90, 30]
rng = np.random.default_rng(0)
LABELS = rng.integers(4, size=160)
LOGITS = ((2 + rng.normal(size=(160, 4)) + 2 * np.eye(4)[LABELS]) * [1.0, 0.8, 0.6, 0.4]).astype(
    np.float32
)
TARGET = np.array([0.4, 0.3, 0.2, 0.1])


def chosen(logits=LOGITS, labels=LABELS, counts=COUNTS, **options) -> float:
    return lh.tune(logits, labels, counts, **{"bootstrap": 0, **options}).gamma


def path(**options) -> lh.GammaPath:
    return lh.gamma_path(LOGITS, LABELS, COUNTS, **options)


# -- tables -----------------------------------------------------------------------------------------------------------


def test_a_series_of_counts_goes_by_its_index_as_value_counts_has_it():
    pandas = pytest.importorskip("pandas")
    by_frequency = pandas.Series(np.repeat([3, 0, 2, 1], [9, 5, 4, 2])).value_counts()
    assert lh.counts.resolve(by_frequency, 4).tolist() == [5, 2, 4, 9]
    assert lh.counts.resolve(by_frequency).tolist() == [5, 2, 4, 9]
    assert lh.counts.groups(by_frequency, many=8, few=3)["many"].tolist() == [3]
    named = pandas.Series({"elk": 1, "ant": 4, "cat": 2})
    assert lh.rescale(
        Head(np.eye(3), names=["ant", "cat", "elk"]), named, gamma=1.0
    ).norms.tolist() == [1, 2, 4]
    with pytest.raises(ValueError, match="got the class name 'elk'"):
        lh.counts.resolve(named, 3)
    with pytest.raises(ValueError, match="class 1 is listed twice"):
        lh.counts.resolve(pandas.Series([3, 4], index=[1, 1]), 2)


def test_a_series_of_labels_is_counted_whatever_its_index():
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series(np.repeat([0, 1, 2], [5, 3, 2]), index=rng.permutation(10))
    assert lh.counts.resolve(labels, 3).tolist() == [5, 3, 2]
    assert lh.counts.of(labels).tolist() == [5, 3, 2]


def test_tables_of_logits_are_as_good_as_arrays():
    pandas = pytest.importorskip("pandas")
    table, labels = (
        pandas.DataFrame(LOGITS, index=[f"row {i}" for i in range(160)]),
        pandas.Series(LABELS),
    )
    assert chosen(table, labels) == chosen()
    assert chosen(unlabelled=table) == chosen(unlabelled=LOGITS)
    assert (
        lh.match_prior(table, COUNTS, bootstrap=0).gamma
        == lh.match_prior(LOGITS, COUNTS, bootstrap=0).gamma
    )
    assert lh.cross_fit([(table, labels, COUNTS)], bootstrap=0).gamma == chosen()
    with pytest.raises(
        ValueError, match=r"expected weight \[K, d\], a numpy array or a tensor, got DataFrame"
    ):
        Head(pandas.DataFrame(np.eye(2)))


def test_a_series_of_counts_goes_by_label_in_the_classifiers():
    pandas = pytest.importorskip("pandas")
    from sklearn.linear_model import LogisticRegression

    from levelhead.hosts.sklearn import RescaledClassifier

    y = np.array(["ant", "cat", "elk", "fox"])[LABELS]
    counts = pandas.Series({"fox": 30, "elk": 90, "ant": 1000, "cat": 300})
    model = RescaledClassifier(LogisticRegression(), counts=counts, rule="shift").fit(LOGITS, y)
    assert model.counts_.tolist() == COUNTS


# -- targets and names ------------------------------------------------------------------------------------------------


def test_a_target_by_class_is_that_target_in_order():
    by_class = {3: 0.1, 1: 0.3, 0: 0.4, 2: 0.2}
    assert chosen(target=by_class) == chosen(target=TARGET)
    assert path(target=by_class).best().balanced_error == path(target=TARGET).best().balanced_error
    by_name = lh.match_prior(
        LOGITS, COUNTS, {"d": 1, "b": 3, "a": 4, "c": 2}, names=list("abcd"), bootstrap=0
    )
    assert by_name.gamma == lh.match_prior(LOGITS, COUNTS, TARGET, bootstrap=0).gamma
    with pytest.raises(
        ValueError, match="class 2 has no share; expected 4 shares, one per class, got 3"
    ):
        chosen(target={0: 1, 1: 1, 3: 1})


def test_a_series_of_shares_goes_by_its_index():
    pandas = pytest.importorskip("pandas")
    shares = pandas.Series(TARGET[::-1], index=[3, 2, 1, 0])
    assert chosen(target=shares) == chosen(target=TARGET)
    assert (
        lh.match_prior(LOGITS, COUNTS, shares, bootstrap=0).gamma
        == lh.match_prior(LOGITS, COUNTS, TARGET, bootstrap=0).gamma
    )


def test_shares_are_compared_with_shares_even_if_counts_are_given():
    np.testing.assert_allclose(
        path().share_mismatch(100 * TARGET).values, path().share_mismatch(TARGET).values
    )


@pytest.mark.parametrize("names", [np.array(list("abcd")), tuple("abcd")], ids=["array", "tuple"])
def test_names_come_in_any_sequence(names):
    assert chosen(counts=dict(zip("dcba", COUNTS[::-1], strict=True)), names=names) == chosen()


# -- lists, and mistakes in one line each ------------------------------------------------------------------------------

MISTAKES = {
    "counts before labels": (
        lambda: lh.tune(LOGITS, COUNTS, LABELS),
        "labels and counts are swapped",
    ),
    "a model": (
        lambda: lh.tune(object(), LOGITS, LABELS, COUNTS),
        r"a model's scores are lh\.scores\(model, loader\)",
    ),
    "labels in a column": (
        lambda: lh.tune(LOGITS, np.reshape(LABELS, (-1, 1)), COUNTS),
        r"expected labels \[N\], got shape \[160, 1\]; give labels\.ravel\(\)",
    ),
    "names of other classes": (lambda: chosen(names=["a", "b"]), "expected 4 class names, got 2"),
    "one end of a range": (
        lambda: chosen(range=2.0),
        r"range: expected \(from, to\), two finite gammas",
    ),
    "three ends of a range": (
        lambda: path(range=(0, 1, 2)),
        r"range: expected \(from, to\), two finite gammas",
    ),
    "no range": (
        lambda: lh.match_prior(LOGITS, COUNTS, rule=lh.rules.Rescale(range=2.0)),
        r"range: expected \(from, to\)",
    ),
    "a range to compare without 0": (
        lambda: lh.compare(LOGITS, LABELS, COUNTS, rule=lh.rules.Auto(range=(0.5, 1))),
        "that holds 0",
    ),
    "a target in words": (
        lambda: chosen(target="uniform"),
        "target: expected a share for each class, or 'estimate', got 'uniform'",
    ),
    "weights in words": (lambda: path(weights="balanced"), r"weights: expected numbers \[160\]"),
    "negative weights": (
        lambda: path(weights=-np.ones(160)),
        "weights: expected finite numbers, none negative",
    ),
    "too few norms": (
        lambda: chosen(rule=lh.rules.Auto(norms=[1, 2, 3])),
        r"norms: expected numbers \[4\], .* got shape \[3\]",
    ),
    "a weight as norms": (
        lambda: chosen(rule=lh.rules.Auto(norms=np.ones((4, 7)))),
        r"norms: expected .* \[4\], .* got shape \[4, 7\]",
    ),
    "a norm that is none": (
        lambda: chosen(rule=lh.rules.Auto(norms=[1, 2, 3, np.nan])),
        "norms: expected finite numbers, got nan",
    ),
    "half a replicate": (
        lambda: chosen(bootstrap=20.5),
        "bootstrap: expected a number of replicates",
    ),
    "half a repeat": (
        lambda: lh.compare(LOGITS, LABELS, COUNTS, repeats=2.5),
        "repeats: expected a whole number",
    ),
    "ragged logits": (
        lambda: chosen([[1.0, 2.0], [3.0]], [0, 1], [2, 1]),
        "rows of different lengths",
    ),
    "folds without counts": (
        lambda: lh.cross_fit([(LOGITS, LABELS)]),
        r"folds: expected at least one fold",
    ),
    "a fold for folds": (
        lambda: lh.cross_fit((LOGITS, LABELS, COUNTS)),
        r"folds: expected at least one fold",
    ),
    "an unknown metric": (
        lambda: path().bootstrap(2, 0, metric="accuracy"),
        "metric: expected 'error', 'bal",
    ),
    "gammas in disorder": (lambda: path().bootstrap(2, 0, gammas=[1.0, 0.2]), "ascending within"),
    "gammas out of range": (lambda: path().bootstrap(2, 0, gammas=[0.2, 9.0]), "ascending within"),
    "a class that is not": (lambda: path().class_curve(4), "expected a class from 0 to 3, got 4"),
    "predictions at no gamma": (
        lambda: path().predictions(np.nan),
        "gamma: expected a finite number",
    ),
    "a model for a head": (
        lambda: lh.rescale(nn.Linear(2, 4), COUNTS, gamma=1.0),
        "expected a Head, got Linear",
    ),
    "an array for a head": (
        lambda: lh.shift_logits(np.eye(4), COUNTS),
        "expected a Head, got ndarray",
    ),
    "a model to normalize": (lambda: lh.normalize(nn.Linear(2, 4)), "expected a Head, got Linear"),
    "a bias of whole numbers": (
        lambda: Head(np.eye(2), np.array([1, 3])),
        "expected a floating-point bias",
    ),
    "a bias of another kind": (
        lambda: Head(np.eye(2), torch.zeros(2)),
        "bias of the same kind as the weight, numpy",
    ),
    "features of another kind": (
        lambda: Head(torch.eye(2)).logits(np.eye(2)),
        r"head.numpy\(\) converts the head",
    ),
    "features too wide": (
        lambda: Head(np.eye(2)).logits(np.ones((3, 5))),
        r"expected features \[N, 2\], got shape",
    ),
    "one logit a sample": (
        lambda: lh.measure.error(LOGITS[:, 0], LABELS),
        r"expected logits \[N, K\]",
    ),
    "no sample": (lambda: lh.measure.balanced_error(LOGITS[:0], LABELS[:0]), "at least 1 sample"),
    "words for logits": (
        lambda: lh.measure.recall([["a", "b"]], [0]),
        "expected logits as floating-point numbers",
    ),
    "temperature 0": (
        lambda: lh.measure.calibration_error(LOGITS, LABELS, temperature=0),
        "a positive number",
    ),
    "temperature -1": (
        lambda: lh.measure.negative_log_likelihood(LOGITS, LABELS, temperature=-1),
        "a positive",
    ),
    "probabilities to calibrate": (
        lambda: lh.measure.fit_temperature(np.full((9, 2), 0.5), [0] * 9),
        "probabilities",
    ),
    "NaN to calibrate": (
        lambda: lh.measure.fit_temperature(np.full((9, 2), np.nan), [0] * 9),
        "NaN or infinite",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_reported_in_one_line(name):
    call, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_lists_are_as_good_as_arrays():
    assert chosen(LOGITS.tolist(), LABELS.tolist(), unlabelled=LOGITS.tolist()) == chosen(
        unlabelled=LOGITS
    )
    assert Head(np.eye(2)).logits([[1, 2]]).tolist() == [[1, 2]]
    snapshot = lh.Snapshot(Head(np.eye(2)), [3, 1], {"test": [[1.0, 2.0]]}, {"test": [1]})
    assert snapshot.logits("test").tolist() == [[1, 2]]


def test_a_snapshot_takes_half_precision_from_torch(tmp_path):
    features = torch.tensor([[1.5, 2.0]], dtype=torch.bfloat16)
    file = tmp_path / "a.safetensors"
    lh.Snapshot(Head(np.eye(2)), [3, 1], {"test": features}, {"test": torch.tensor([1])}).save(file)
    assert lh.Snapshot.load(file).features["test"].tolist() == [[1.5, 2.0]]


def test_features_of_a_better_dtype_than_the_head_keep_it():
    logits = Head(torch.eye(2)).logits(torch.eye(2, dtype=torch.float64))
    assert logits.dtype == torch.float64


def test_a_seed_is_a_generator():
    np.testing.assert_array_equal(
        path().bootstrap(3, 7), path().bootstrap(3, np.random.default_rng(7))
    )


# -- silent wrong answers ---------------------------------------------------------------------------------------------


def test_the_curve_of_a_class_without_a_sample_is_nan_and_not_0():
    some = LABELS != 2
    curve = lh.gamma_path(LOGITS[some], LABELS[some], COUNTS).class_curve(2)
    assert np.isnan(curve.at([0.0, 1.0, 2.0])).all()
    assert np.isnan(path(weights=some.astype(float)).class_curve(2).at(1.0))


@pytest.mark.parametrize(
    "other",
    [{"rule": lh.rules.Rescale(bias=[0.5, 0, 0, 0])}, {"target": TARGET}, {"range": (0, 1)}],
    ids=["bias", "target", "range"],
)
def test_paths_that_differ_are_not_merged(other):
    for a, b in ((path(), path(**other)), (path(**other), path())):
        with pytest.raises(ValueError, match="expected paths over the same"):
            a.merge(b)
    assert len(path(**other).merge(path(**other)).labels) == 320


def test_a_plateau_of_one_float_is_not_taken():
    """Class 0 wins where all three tie, at gamma = log 2 / log ratio: there, rounding decides, and not gamma."""
    for ratio in (3, 5, 6, 7):
        path = lh.gamma_path([[1.0, 0.5, 2.0]], [0], [ratio, 1, ratio**2])
        best = path.best("error")
        assert best.error == path.at(best.gamma).error == 1
        assert best.plateau == (0, 2)


@pytest.mark.parametrize(
    "name", ["baseline", "class-balanced", "ldam", "focal", "balanced-softmax"]
)
@pytest.mark.parametrize("shape", [(5,), (8, 1), (8, 4)], ids=["fewer", "a column", "one-hot"])
def test_losses_want_one_label_per_row(name, shape):
    with pytest.raises(ValueError, match=r"labels: expected shape \[8\], one class index per row"):
        lh.METHODS[name].loss(COUNTS)(torch.zeros(8, 4), torch.zeros(shape, dtype=torch.long))


def test_a_curve_without_a_step_is_answered_with_no_gamma():
    """A tree that is certain of everything: no shift of its scores changes a prediction, so none is asked for."""
    from sklearn.tree import DecisionTreeClassifier

    from levelhead.hosts.sklearn import TunedRescaledClassifierCV

    X, y = np.eye(3)[np.repeat([0, 1, 2], [40, 20, 10])], np.repeat([0, 1, 2], [40, 20, 10])
    assert TunedRescaledClassifierCV(DecisionTreeClassifier(), cv=3).fit(X, y).best_gamma_ == 0
    assert (
        TunedRescaledClassifierCV(DecisionTreeClassifier(), cv=3, range=(1, 3))
        .fit(X, y)
        .best_gamma_
        == 2
    )


def test_warnings_point_at_the_line_that_called():
    """Or else they are shown once for all callers, and filters by module miss them."""
    from sklearn.svm import LinearSVC

    from levelhead.hosts.sklearn import RescaledClassifier, TunedRescaledClassifierCV

    some = LABELS < 3
    part = LOGITS[some], LABELS[some], COUNTS
    sure = [
        np.where(np.eye(2)[np.arange(40) % 2] > 0, 1.0, -1.0) * np.arange(1, 41)[:, None],
        [9, 1],
    ]
    calls = [
        lambda: lh.tune(*part, bootstrap=0),
        lambda: lh.cross_fit([part], bootstrap=0),
        lambda: lh.compare(*part, repeats=1),
        lambda: lh.match_prior(*sure, bootstrap=0),
        lambda: RescaledClassifier(LinearSVC()).fit(LOGITS, LABELS),
        lambda: TunedRescaledClassifierCV(LinearSVC(), rule="rescale", cv=2).fit(LOGITS, LABELS),
    ]
    for call in calls:
        with pytest.warns(lh.warnings.LevelheadWarning) as caught:
            call()
        assert {(warning.filename, warning.lineno) for warning in caught} == {
            (__file__, call.__code__.co_firstlineno)
        }


def test_nothing_of_the_user_is_changed():
    given = (
        LOGITS.copy(),
        LABELS.copy(),
        np.array(COUNTS),
        TARGET.copy(),
        np.ones(4),
        torch.tensor(LOGITS),
    )
    kept = [part.clone() if isinstance(part, torch.Tensor) else part.copy() for part in given]
    logits, labels, counts, target, norms, tensor = given
    lh.tune(
        logits,
        labels,
        counts,
        target=target,
        rule=lh.rules.Auto(norms=norms),
        unlabelled=tensor,
        training=tensor + 1,
        bootstrap=5,
    )
    lh.match_prior(tensor, counts, target, bootstrap=5)
    lh.gamma_path(tensor, labels, counts, engine="torch").best()
    for part, before in zip(given, kept, strict=True):
        assert (part == before).all()
