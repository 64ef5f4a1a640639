"""Floors of recall: met by the least offsets, or proven to conflict; and they hold on new samples as often as said."""

import re

import numpy as np
import pytest
from scipy.stats import beta
from sklearn.metrics import recall_score

import levelhead as lh
from levelhead.core.floors import (
    Floor,
    floors_text,
    holds_with,
    least_conflict,
    meet_floors,
    met_share,
    most_right,
    needed_right,
)
from levelhead.core.rules import RULES
from levelhead.core.samples import Given

COUNTS = np.array([1000, 300, 100, 30, 10])


def many_samples(n: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = rng.choice(5, n - 50, p=COUNTS / COUNTS.sum())
    labels = np.append(np.repeat(np.arange(5), 10), drawn)
    return 1.5 * rng.normal(size=(n, 5)) + 3 * np.eye(5)[labels] + np.log(COUNTS), labels


def low_class(n: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of which a frequent class scores too low: no strength by counts raises it alone."""
    scores, labels = many_samples(n, seed)
    return scores - 4 * np.eye(5)[1], labels


def count_right(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.bincount(labels[scores.argmax(axis=1) == labels], minlength=5)


def need_of(floors: list[float], labels: np.ndarray) -> np.ndarray:
    return needed_right(np.array(floors), np.bincount(labels, minlength=5), 0.0)


# -- The least offsets ---------------------------------------------------------------------------


def test_floors_are_met_by_the_least_offsets():
    scores, labels = many_samples()
    need = need_of([np.nan, np.nan, np.nan, 0.7, 0.8], labels)
    fit = meet_floors(scores.T, labels, need, np.zeros(5))
    assert fit.met
    assert (count_right(scores + fit.offset, labels) >= need).all()
    for k in (3, 4):  # a little less of either does not meet them
        less = scores + fit.offset - 1e-3 * np.eye(5)[k]
        assert (count_right(less, labels) < need).any()


def test_floors_that_are_met_already_move_nothing():
    scores, labels = many_samples()
    need = need_of([0.5, np.nan, np.nan, np.nan, np.nan], labels)
    assert not meet_floors(scores.T, labels, need, np.zeros(5)).offset.any()


def test_a_conflict_is_proven_for_the_classes_that_have_it():
    scores, labels = many_samples()
    scores[:, 2] = scores[:, 1] + np.random.default_rng(1).normal(size=len(scores))
    need = need_of([0.1, 0.9, 0.9, np.nan, 0.1], labels)
    fit = meet_floors(scores.T, labels, need, np.zeros(5))
    assert not fit.met
    assert least_conflict(scores.T, labels, need, fit.conflict) == (1, 2)
    best = most_right(scores.T, labels, need, 2)
    reached = count_right(scores + best.offset, labels)[2]
    # By hand: of the differences of the two classes, the one that leaves class 1 what it needs.
    of_class = scores[labels == 1]
    lead = np.sort(of_class[:, 1] - of_class[:, 2])[::-1][need[1] - 1]
    other = scores[labels == 2]
    assert reached <= (other[:, 2] - other[:, 1] > -lead).sum() < need[2]


@pytest.mark.parametrize("seed", range(6))
def test_two_classes_conflict_exactly_if_no_offset_by_hand_meets_both(seed):
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], [12, 7])
    scores = rng.normal(size=(19, 2)) + 0.7 * np.eye(2)[labels]
    lead = np.sort(scores[:, 0] - scores[:, 1])
    between = np.concatenate([[lead[0] - 1], (lead[1:] + lead[:-1]) / 2, [lead[-1] + 1]])
    for first in (0.3, 0.6, 0.9):
        for second in (0.3, 0.6, 0.9):
            need = needed_right(np.array([first, second]), np.array([12, 7]), 0.0)
            right = [
                np.bincount(labels[(scores + [0, d]).argmax(axis=1) == labels], minlength=2)
                for d in between
            ]
            able = any((each >= need).all() for each in right)
            fit = meet_floors(scores.T, labels, need, np.zeros(2))
            assert fit.met == able
            assert (fit.conflict == ()) == able


def test_scores_of_minus_infinity_are_beyond_every_offset():
    scores, labels = many_samples(200)
    scores[labels == 4, 4] = -np.inf
    need = need_of([np.nan] * 4 + [0.5], labels)
    fit = meet_floors(scores.T, labels, need, np.zeros(5))
    assert (fit.met, fit.conflict) == (False, (4,))


def test_a_share_of_all_floors_that_can_be_met_is_found():
    scores, labels = many_samples()
    floors = np.full(5, 0.97)
    share, fit = met_share(scores.T, labels, floors)
    assert 0.5 < share < 1
    sizes = np.bincount(labels)
    assert (count_right(scores + fit.offset, labels) >= share * 0.97 * sizes - 1e-9).all()
    more = needed_right(min(share + 0.03, 1) * floors, sizes, 0.0)
    assert not meet_floors(scores.T, labels, more, np.zeros(5)).met


# -- How sure it is ------------------------------------------------------------------------------


def test_as_many_samples_are_needed_as_make_a_floor_certain():
    sizes = np.array([10, 100, 1000, 3, 50])
    floors = np.array([0.5, 0.9, 0.9, 0.9, np.nan])
    for certainty in (0.5, 0.9):
        needed = needed_right(floors, sizes, certainty)
        for k in range(3):
            m, n = needed[k], sizes[k]
            assert beta.sf(floors[k], m + 1, n - m + 1) >= certainty
            plain = np.ceil(floors[k] * n - 1e-9)
            assert m == plain or beta.sf(floors[k], m, n - m + 2) < certainty + 1e-12  # or a tie
    assert needed[4] == 0
    assert (
        needed[3] == 3
    )  # even all of 3 do not make 0.9 certain, so what the floor itself asks for


def test_the_probability_of_a_floor_is_that_of_a_beta_distribution():
    for right, size, floor in ((95, 100, 0.9), (1, 3, 0.5), (3, 3, 0.9), (40, 80, 0.55)):
        assert holds_with(right, size, floor) == pytest.approx(
            beta.sf(floor, right + 1, size - right + 1)
        )
    assert holds_with(0, 0, 0.2) == pytest.approx(0.8)  # nothing is known of it
    assert holds_with(0, 10, 0.0) == 1


@pytest.mark.slow
@pytest.mark.parametrize("certainty", [0.5, 0.9])
def test_floors_said_to_hold_with_a_probability_hold_so_often_on_new_samples(certainty):
    """On new samples, as many floors hold as the sum of what was said, give or take the chance of it."""
    new_scores, new_labels = low_class(60_000, seed=999)
    said, held = [], []
    for seed in range(40):
        scores, labels = low_class(1500, seed)
        goal = lh.Goal(floors={1: 0.7, 3: 0.6}, certainty=certainty)
        tuned = lh.tune(scores, labels, COUNTS, metric=goal)
        recall = recall_score(new_labels, tuned.apply(new_scores).argmax(axis=1), average=None)
        for floor in tuned.floors:
            said.append(floor.probability)
            held.append(recall[floor.index] >= floor.least)
    assert np.mean(said) >= certainty - 0.02
    spread = np.sqrt(np.sum(np.array(said) * (1 - np.array(said)))) / len(said)
    assert np.mean(held) >= np.mean(said) - 3 * spread - 0.05


# -- In tune -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["offsets", "vector"])
@pytest.mark.parametrize("metric", ["balanced_error", "error", "macro_f1"])
def test_a_floor_that_no_strength_meets_is_met_by_offsets(rule, metric):
    scores, labels = low_class()
    goal = lh.Goal(metric, floors={1: 0.8, 4: 0.6})
    tuned = lh.tune(scores, labels, COUNTS, metric=goal, rule=rule)
    recall = recall_score(labels, tuned.apply(scores).argmax(axis=1), average=None)
    assert recall[1] >= 0.8
    assert recall[4] >= 0.6
    assert [(floor.index, floor.least) for floor in tuned.floors] == [(1, 0.8), (4, 0.6)]
    assert not tuned.floors[0].held_before
    assert tuned.worthwhile
    by_strength = lh.tune(scores, labels, COUNTS, metric=goal, rule="shift")
    reached = recall_score(labels, by_strength.apply(scores).argmax(axis=1), average=None)
    assert reached[1] < 0.8


@pytest.mark.parametrize("rule", ["offsets", "vector"])
def test_every_fit_meets_the_floors_on_the_samples_it_is_made_on(rule):
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1, 2], [200, 60, 40])
    noise = rng.normal(size=(300, 3)) * [1, 2, 3]  # so that scales differ from fold to fold
    counts = np.array([1000, 200, 40])
    given = Given.of(2 * np.eye(3)[labels] + noise + np.log(counts), labels, counts)
    samples = given.samples(None, np.random.default_rng(0))
    floors = {1: 0.5, 2: 0.7}
    fits = RULES[rule].fit(samples, lh.Goal(floors=floors).on(given.labels, 3, None))
    kept = [np.ones(300, bool), *(samples.fold != fold for fold in samples.folds)]
    for rows, adjustment in zip(kept, [fits.whole, *fits.without], strict=True):
        predicted = adjustment.predict(samples.scores[rows])
        recalls = recall_score(labels[rows], predicted, average=None)
        assert recalls[1] >= floors[1]
        assert recalls[2] >= floors[2]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_the_samples_that_a_floor_hangs_on_are_right_in_float32_too(seed, size):
    scores, labels = low_class(300, seed)
    narrow = (size * scores).astype(np.float32)
    tuned = lh.tune(narrow, labels, COUNTS, metric=lh.Goal(floors={1: 0.8, 4: 0.7}))
    for floor in tuned.floors:
        of_class = labels == floor.index
        right = (tuned.apply(narrow[of_class]).argmax(axis=1) == floor.index).sum()
        said = holds_with(right, of_class.sum(), floor.least)
        assert floor.probability == pytest.approx(float(said))


@pytest.mark.parametrize("mask", [-np.inf, -1e9])
def test_masked_scores_do_not_set_how_far_a_class_is_raised(mask):
    scores, labels = low_class()
    masked = scores.copy()
    masked[labels == 0, 2] = mask  # of samples that are not of that class
    tuned = lh.tune(masked, labels, COUNTS, metric=lh.Goal(floors={1: 0.8, 4: 0.8}))
    assert np.abs(tuned.adjustment.offset).max() < 20
    recall = recall_score(labels, tuned.apply(masked).argmax(axis=1), average=None)
    assert (recall[[1, 4]] >= 0.8).all()


def test_a_class_that_is_masked_in_its_own_samples_cannot_have_a_floor():
    scores, labels = low_class()
    scores[np.flatnonzero(labels == 4)[:5], 4] = -np.inf
    with pytest.raises(lh.LevelheadError, match=r"no offsets meet a recall of 90.0% in class 4"):
        lh.tune(scores, labels, COUNTS, metric=lh.Goal(floors={4: 0.9}))


def test_floors_are_told_with_their_probability_and_kept_in_a_file(tmp_path):
    scores, labels = low_class()
    goal = lh.Goal(floors={"cat": 0.8})
    tuned = lh.tune(scores, labels, COUNTS, metric=goal, names=["ant", "cat", "elk", "fox", "owl"])
    (floor,) = tuned.floors
    said = f"class 1 (cat): recall of at least 80.0% with {floor.probability:.0%}"
    assert tuned.facts()["floors"] == said
    assert said in tuned.summary()
    tuned.save(tmp_path / "tuned.json")
    assert lh.Tuned.load(tmp_path / "tuned.json").floors == tuned.floors


def test_a_floor_for_all_classes_is_one_for_each():
    scores, labels = many_samples()
    tuned = lh.tune(scores, labels, COUNTS, metric=lh.Goal(floors=0.5))
    assert [floor.index for floor in tuned.floors] == [0, 1, 2, 3, 4]
    recall = recall_score(labels, tuned.apply(scores).argmax(axis=1), average=None)
    assert (recall >= 0.5).all()


def test_a_floor_that_the_model_has_is_said_to_be_held_before():
    scores, labels = many_samples()
    tuned = lh.tune(scores, labels, COUNTS, metric=lh.Goal("error", floors={0: 0.5}))
    assert tuned.floors[0].held_before
    assert "so has the model as it is" in tuned.facts()["floors"]
    assert tuned.worthwhile == (tuned.gain > 0)


def test_more_certainty_raises_a_class_further():
    scores, labels = low_class()
    recalls = []
    for certainty in (0.5, 0.75, 0.95):
        goal = lh.Goal("error", floors={4: 0.6}, certainty=certainty)
        tuned = lh.tune(scores, labels, COUNTS, metric=goal)
        assert tuned.floors[0].probability >= certainty - 0.01
        recalls.append(recall_score(labels, tuned.apply(scores).argmax(axis=1), average=None)[4])
    assert recalls == sorted(recalls)
    assert recalls[0] < recalls[-1]


def test_floors_that_conflict_are_named_with_what_each_can_reach():
    scores, labels = many_samples()
    goal = lh.Goal(floors={0: 0.97, 1: 0.97, 4: 0.1})
    with pytest.raises(lh.LevelheadError, match=r"class 0.*class 1") as caught:
        lh.tune(scores, labels, COUNTS, metric=goal)
    assert caught.value.parameter == "floors"
    message = str(caught.value)
    assert "\n" not in message
    assert "class 4" not in message
    assert message.endswith("lower the floors")
    reached = [float(share) / 100 for share in re.findall(r"reaches ([\d.]+)% at most", message)]
    assert len(reached) == 2
    # By hand: with all other classes out of the way, what class 0 has where class 1 keeps its floor.
    lead = scores[:, 0] - scores[:, 1]
    first, second = np.sort(lead[labels == 0]), np.sort(lead[labels == 1])
    bound = second[need_of([0, 0.97, 0, 0, 0], labels)[1] - 1]
    assert reached[0] == pytest.approx((first > bound).mean(), abs=0.0006)


def test_many_floors_that_conflict_say_which_share_of_each_can_be_met():
    """Four classes of pure noise: any three can have most of their samples, but not all four."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 200)
    scores = rng.normal(size=(1000, 5)) + 6 * np.eye(5)[labels] * (labels == 4)[:, None]
    goal = lh.Goal(floors=dict.fromkeys(range(4), 0.3))
    with pytest.raises(lh.LevelheadError) as caught:
        lh.tune(scores, labels, np.full(5, 100), metric=goal)
    assert re.search(
        r"floors: no offsets meet .* in class 3 together; \d\d% of each floor", str(caught.value)
    )
    assert str(caught.value).endswith("lower the floors")


def test_of_many_floors_those_that_are_least_sure_are_told():
    floors = [Floor(i, 0.5, 0.9 + i / 100, False) for i in range(8)]
    told = floors_text(floors[::-1], None)
    assert told.startswith("class 0: recall of at least 50.0% with 90%; class 1")
    assert told.endswith("; those of 4 other classes with 94% or more")
    assert "class 4" not in told
    assert "other classes" not in floors_text(floors[:4], None)


@pytest.mark.parametrize("certainty", [0.49, 1, 90])
def test_a_certainty_that_no_floor_can_have_is_refused(certainty):
    expected = f"certainty: expected a probability from 0.5 to 1, got {certainty}"
    with pytest.raises(lh.LevelheadError, match=expected):
        lh.Goal(floors=0.5, certainty=certainty)
