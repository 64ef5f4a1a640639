"""Counts: counted from labels, drawn from a profile, checked where they enter."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import levelhead as lh
from levelhead import counts


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60))
@settings(max_examples=50, deadline=None)
def test_counting_labels_agrees_with_counting_by_hand(labels):
    by_hand = [labels.count(k) for k in range(7)]
    for kind in (list, np.array, torch.tensor):
        assert counts.of(kind(labels), classes=7).tolist() == by_hand
    assert (
        counts.of([f"c{y}" for y in labels], names=[f"c{k}" for k in range(7)]).tolist() == by_hand
    )


def test_labels_out_of_range_are_named_with_their_position():
    with pytest.raises(ValueError, match="expected labels from 0 to 2, got 3 at position 1"):
        counts.of([0, 3], classes=3)
    with pytest.raises(ValueError, match="expected labels from 0, got -1 at position 2"):
        counts.of([0, 1, -1])
    with pytest.raises(ValueError, match="expected integer labels, got float64"):
        counts.of([0.5, 1.0])
    with pytest.raises(ValueError, match=r"expected labels \[N\], got shape \[1, 2\]"):
        counts.of([[0, 1]])
    with pytest.raises(ValueError, match="unknown labels 'dog'; the classes are ant, cat"):
        counts.of(["ant", "dog"], names=["ant", "cat"])


# What the paper's released code keeps of CIFAR at each ratio, from the published notes on it.
@pytest.mark.parametrize(
    ("largest", "classes", "ratio", "total"),
    [
        (5000, 10, 200, 11203),
        (5000, 10, 100, 12406),
        (5000, 10, 50, 13996),
        (5000, 10, 20, 17023),
        (5000, 10, 10, 20431),
        (500, 100, 200, 9502),
        (500, 100, 100, 10847),
        (500, 100, 50, 12608),
        (500, 100, 20, 15907),
        (500, 100, 10, 19573),
    ],
)
def test_long_tails_have_the_published_totals(largest, classes, ratio, total):
    tail = counts.long_tail(largest, classes, ratio)
    assert tail.sum() == total
    assert tail[0] == largest
    assert (np.diff(tail) <= 0).all()


def test_a_ratio_of_one_is_balanced_and_one_class_has_no_tail():
    assert counts.long_tail(7, 4, 1).tolist() == counts.step(7, 4, 1).tolist() == [7] * 4
    assert counts.long_tail(7, 1, 100).tolist() == [7]
    assert counts.long_tail(10, 3, 1000).tolist() == [10, 1, 1]  # no class is emptied


def test_a_step_keeps_the_larger_half():
    assert counts.step(100, 5, 10).tolist() == [100, 100, 100, 10, 10]


@pytest.mark.parametrize("ratio", [0.5, float("nan"), float("inf"), -1])
def test_a_profile_needs_a_ratio_of_at_least_one(ratio):
    with pytest.raises(ValueError, match="expected an imbalance ratio of at least 1"):
        counts.long_tail(10, 3, ratio)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_groups_hold_every_class_once(n):
    members = counts.groups(n)
    assert sorted(np.concatenate(list(members.values())).tolist()) == list(range(len(n)))
    assert all(n[i] > 100 for i in members.get("many", []))
    assert all(20 <= n[i] <= 100 for i in members.get("medium", []))
    assert all(n[i] < 20 for i in members.get("few", []))


@pytest.mark.parametrize(
    "given_counts",
    [
        [60, 30, 10],
        np.array([60.0, 30.0, 10.0]),
        torch.tensor([60, 30, 10]),
        {"cat": 30, "ant": 60, "elk": 10},
        {1: 30, 0: 60, "2": 10},
        np.repeat([0, 1, 2], [60, 30, 10]),
        np.repeat(["ant", "cat", "elk"], [60, 30, 10]),
    ],
)
def test_every_form_of_counts_becomes_the_same_counts(given_counts):
    assert counts.resolve(given_counts, 3, names=["ant", "cat", "elk"]).tolist() == [60, 30, 10]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([5, 4], "expected 3 counts, one per class, got 2"),
        ([5, 4, 3, 2], "expected 3 counts, one per class, got 4"),
        (
            [5, 0, 3],
            r"class 1 \(cat\) has no samples; leave it out, or give it the largest count, which leaves it as it ",
        ),
        ([5, -2, 3], r"the count of class 1 \(cat\) is negative \(-2\)"),
        (
            [1, 0.30000000000000004, 0.5],
            r"the count of class 1 \(cat\) is fractional \(0.30000000000000004\); give samples, not shares",
        ),
        ([5, float("nan"), 3], r"the count of class 1 \(cat\) is nan"),
        ([5, float("inf"), 3], r"the count of class 1 \(cat\) is inf"),
        (
            [5, 1e300, 3],
            r"the count of class 1 \(cat\) is 1e\+300; expected a whole number of samples",
        ),
        ([[5, 4, 3]], r"expected one count per class, got shape \[1, 3\]"),
        ([[5, 4], [3]], r"expected an array of one shape, got rows of different lengths"),
        ({"ant": 5, "cat": 4}, r"class 2 \(elk\) has no count"),
        ({"ant": 5, "cat": 4, "dog": 3}, "unknown class name 'dog'; the classes are ant, cat, elk"),
        ({"ant": 5, 0: 4, "cat": 3}, "class 0 has two counts"),
        ({"ant": 5, "cat": 4, 7: 3}, "unknown class 7; expected classes 0 to 2"),
        (
            {"ant": "many", "cat": 4, "elk": 3},
            "the count of class 'ant' is 'many'; expected a number",
        ),
        (["ant", "cat", "dog"], "unknown labels 'dog'"),
        ([object()] * 3, "expected counts as numbers"),
        ("counts.json", r"expected counts, got the text 'counts.json'; read the file first"),
        ([], "expected 3 counts"),
    ],
)
def test_a_wrong_count_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        counts.resolve(wrong, 3, names=["ant", "cat", "elk"])


def test_unknown_class_names_are_refused_with_what_to_pass():
    with pytest.raises(
        ValueError,
        match="got the class name 'ant', but class names are not known here, so counts must "
        "be in class order; pass names to say which class is which",
    ):
        counts.resolve({"ant": 5, "cat": 4}, 2)


def test_a_neutral_class_is_treated_as_the_largest():
    assert counts.resolve([50, 0, 5], missing="neutral").tolist() == [50, 50, 5]
    with pytest.raises(ValueError, match="every class has a count of 0"):
        counts.resolve([0, 0], missing="neutral")
    with pytest.raises(ValueError, match="missing: expected 'error' or 'neutral', got 'drop'"):
        counts.resolve([1, 2], missing="drop")


def test_few_small_counts_are_not_taken_for_labels():
    assert counts.resolve([2, 1, 2], 3).tolist() == [2, 1, 2]


def test_counts_by_name_need_distinct_names():
    with pytest.raises(
        ValueError, match="two classes are called 'cat'; give counts in class order"
    ):
        counts.resolve({"cat": 3, "dog": 2}, 3, names=["cat", "dog", "cat"])


def test_labels_must_be_finite():
    with pytest.raises(ValueError, match="expected integer labels, got float64"):
        counts.check_labels(np.array([0.0, np.inf]))


def test_a_count_of_0_too_many_may_be_a_title():
    with pytest.raises(ValueError, match=r"got 3; if .* a title, .*: header=False in pandas$"):
        counts.resolve([0, 60, 30], 2)
    with pytest.raises(ValueError, match=r"expected 2 counts, one per class, got 3$"):
        counts.resolve([1, 60, 30], 2)


@pytest.mark.parametrize("classes", [None, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64])
def test_a_label_beyond_all_classes_is_refused_by_the_number_that_was_given(dtype, classes):
    """numpy would count it beside its table, as an int64 is too small for it or for one more."""
    largest = 10**30 if dtype is np.float64 else np.iinfo(dtype).max
    labels = np.array([0, largest, 1], dtype)
    with pytest.raises(ValueError, match=rf"got {int(labels[1])} at position 1"):
        counts.of(labels, classes=classes)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, bool])
def test_labels_in_a_small_type_are_counted(dtype):
    assert counts.of(np.array([0, 1, 1], dtype), classes=70_000)[:3].tolist() == [1, 2, 0]
    assert counts.of(np.array([0, 1, 1], dtype)).tolist() == [1, 2]


def test_the_mark_of_a_sample_without_a_label_is_named():
    with pytest.raises(
        ValueError,
        match=r"got -100 at position 1; leave those samples out \(torch's ignore_index\)$",
    ):
        counts.check_labels([0, -100, 1], 2)
    with pytest.raises(ValueError, match=r"got -1 at position 1$"):
        counts.check_labels([0, -1, 1], 2)


LOGITS, LABELS = np.eye(3)[[0, 1, 2, 0]] + 1, [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("call", "has_missing"),
    [
        (lambda n: lh.tune(LOGITS, LABELS, n), False),
        (lambda n: lh.tune_unlabelled(LOGITS, counts=n), False),
        (lambda n: lh.tune_chunks([(LOGITS, LABELS)], n), False),
        (lambda n: lh.compare(LOGITS, LABELS, n), False),
        (lambda n: lh.gamma_path(LOGITS, LABELS, n), False),
        (lambda n: lh.adjust(lh.Head(np.eye(3)), lh.rules.Shift(0.3), n), False),
        (lambda n: lh.rescale_(torch.nn.Linear(4, 3), n, gamma=0.3), True),
    ],
    ids=[
        "tune",
        "tune_unlabelled",
        "tune_chunks",
        "compare",
        "gamma_path",
        "adjust",
        "rescale_",
    ],
)
def test_missing_is_advised_by_the_functions_that_have_it(call, has_missing):
    with pytest.raises(lh.LevelheadError, match="has no samples") as error:
        call([9, 3, 0])
    assert str(error.value).endswith("pass missing='neutral' to leave it as it is") == has_missing
    with pytest.raises(lh.LevelheadError, match="class names are not known here"):
        call({"cat": 9, "dog": 3, "elk": 1})


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 1, 2, 2], [1, 1, 2]),  # every class occurs
        ([2] + [0, 1] * 3, [3, 3, 1]),  # more than twice as many as classes
        ([2, 1, 0], [2, 1, 2]),  # as many as classes: counts, of which one is missing
    ],
)
def test_more_integers_than_classes_are_labels(labels, expected):
    assert counts.resolve(labels, 3, missing="neutral").tolist() == expected


@pytest.mark.parametrize(
    ("given_counts", "message"),
    [
        (
            [0, 0, 1, 1, 1],
            "expected 3 counts, one per class, got 5",
        ),  # too few to be labels without class 2
        ([0, 0, 0, 1, 1, 1], "expected 3 counts, one per class, got 6"),
        ([0, 0, 0, 1, 1, 1, 1], "class 2 has no samples"),  # enough
        (
            [1, 2, 3, 3, 1, 2, 3],
            "expected 3 counts, one per class, got 7",
        ),  # labels that begin at 1 are not labels
        ([-1, 0, 1, 2, 0, 1, 2], "expected 3 counts, one per class, got 7"),
        ([], "expected 3 counts, one per class, got 0"),
    ],
)
def test_what_is_neither_labels_nor_a_count_per_class_is_refused(given_counts, message):
    with pytest.raises(lh.LevelheadError, match=message):
        counts.resolve(np.array(given_counts, int), 3)


def test_counts_are_whole_as_far_as_float64_holds_every_whole_number():
    assert counts.resolve([2.0**53, 1]).tolist() == [2**53, 1]
    with pytest.raises(
        lh.LevelheadError, match=r"class 1 is 9007199254740994\.0; expected a whole number"
    ):
        counts.resolve([1, 2.0**53 + 2])


def test_counts_times_the_class_weights_may_be_fractions_but_shares_are_none():
    weighted = np.array([1000, 200, 41]) * np.array([0.41, 2.07, 10.1])
    np.testing.assert_array_equal(counts.resolve(weighted), weighted)
    assert counts.resolve({1: 2.5, 0: 0.5}, 2).tolist() == [0.5, 2.5]
    assert counts.resolve(counts.with_background([9.5, 0, 3], 1), 3).tolist() == [9.5, 9.5, 3.0]
    assert counts.resolve([4.0, 2.0]).dtype == np.int64
    for shares in ([0.5, 0.5], [1, 0.5], {"cat": 0.75, "dog": 0.25}):
        with pytest.raises(lh.LevelheadError, match=r"fractional .*; give samples, not shares"):
            counts.resolve(shares, names=["cat", "dog"])


def test_counts_that_are_fractions_are_gone_by_as_they_are(tmp_path):
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    logits = 2 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
    fractions = [2.5, 1.25, 0.625]
    whole = [40, 20, 10]
    for call in (
        lambda n: lh.tune(logits, labels, n).adjustment.offset,
        lambda n: lh.tune(logits, labels, n, rule="rescale").adjustment.scale,
        lambda n: lh.tune_chunks([(logits, labels)], n).adjustment.offset,
        lambda n: lh.tune_folds([(logits, labels, n)] * 2).adjustment.offset,
        lambda n: lh.tune_unlabelled(logits, counts=n).adjustment.offset,
        lambda n: lh.priors.estimate_prior(logits, n, bootstrap=0).shares,
        lambda n: lh.gamma_path(logits, labels, n).gammas,
        lambda n: lh.adjust(lh.Head(np.eye(3)), lh.rules.Shift(0.5), n).bias,
    ):
        np.testing.assert_allclose(call(fractions), call(whole))
    tuned = lh.tune(logits, labels, fractions)
    assert tuned.counts == tuple(fractions)
    tuned.save(tmp_path / "tuned.json")
    assert lh.Tuned.load(tmp_path / "tuned.json").counts == tuple(fractions)


def test_no_counts_at_all_are_refused():
    with pytest.raises(lh.LevelheadError, match="expected one count per class, got none"):
        counts.resolve([])


def test_names_say_how_many_classes_there_are():
    with pytest.raises(lh.LevelheadError, match="expected 3 counts, one per class, got 2"):
        counts.resolve([5, 3], names=["cat", "dog", "owl"])
    with pytest.raises(lh.LevelheadError, match="expected 3 class names, got 2"):
        counts.resolve([5, 3, 1], 3, names=["cat", "dog"])


@pytest.mark.parametrize(
    ("given_counts", "message"),
    [
        ([5, None], "expected counts as numbers, got None for class 1"),
        ([5, 10**400], "expected counts as numbers, got a number of 401 digits for class 1"),
        (["5", "3"], "expected counts as numbers, got (?!None)"),
    ],
)
def test_what_is_not_a_number_is_shown_with_its_class(given_counts, message):
    with pytest.raises(lh.LevelheadError, match=message):
        counts.resolve(given_counts)


def test_small_profiles_end_at_one_sample():
    assert counts.long_tail(100, 2, 10).tolist() == [100, 10]
    assert counts.long_tail(10, 3, 1000).tolist() == [10, 1, 1]
    assert counts.step(5, 3, 100).tolist() == [5, 5, 1]


@pytest.mark.parametrize("profile", [counts.long_tail, counts.step])
@pytest.mark.parametrize(("largest", "classes"), [(0, 3), (3, 0)])
def test_a_profile_needs_a_sample_and_a_class(profile, largest, classes):
    with pytest.raises(lh.LevelheadError, match=f"got {classes} classes of {largest}"):
        profile(largest, classes, 10)
    assert profile(1, 1, 10).tolist() == [1]
