"""The judge: outcomes add up, and the gain, its standard error and its interval against bootstraps and simulations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

import levelhead as lh
from levelhead.core.evidence import Evidence
from levelhead.core.judge import Outcomes, find_slopes, judge, moves_by
from levelhead.core.metrics import METRICS

from .made import COST, loss_by_scikit_learn, value_by_scikit_learn


def goal_of(metric: str, labels: np.ndarray, target=None) -> lh.Goal:
    goal = lh.Goal(metric, cost=COST if metric == "cost" else None)
    return goal.on(labels, 4, None, target)


def predictions(seed: int, sizes, *, skill=(0.6, 0.7), joint: float = 0.6):
    """Return labels and two predictions: right with the skill of each, often wrong alike."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), sizes)
    n = len(labels)
    luck = rng.random(n)
    again = np.where(rng.random(n) < joint, luck, rng.random(n))
    other = (labels + rng.integers(1, 4, n)) % 4
    skill_before, skill_after = (np.broadcast_to(each, 4)[labels] for each in skill)
    before = np.where(luck < skill_before, labels, other)
    after = np.where(again < skill_after, labels, other)
    return labels, before, after


# -- Outcomes ------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(0, 60))
@settings(max_examples=40)
def test_outcomes_of_parts_add_up_to_those_of_the_whole(seed, cut):
    labels, before, after = predictions(seed, [20, 20, 15, 5])
    order = np.random.default_rng(seed).permutation(60)
    arrays = [part[order] for part in (labels, before, after)]
    whole = Outcomes.of(*arrays, 4)
    parts = [
        Outcomes.of(*(part[rows] for part in arrays), 4) for rows in (slice(cut), slice(cut, None))
    ]
    both = parts[0] + parts[1]
    for name in ("true", "before", "after", "times"):
        np.testing.assert_array_equal(getattr(both, name), getattr(whole, name))
    assert whole.n == 60
    assert whole.sizes.tolist() == [20, 20, 15, 5]
    assert whole.changed == (before != after).sum()


@pytest.mark.parametrize("metric", METRICS)
def test_the_gain_is_the_metric_after_less_the_metric_before(metric):
    labels, before, after = predictions(0, [50, 30, 20, 10])
    evidence = judge(Outcomes.of(labels, before, after, 4), goal_of(metric, labels))
    was, is_now = (loss_by_scikit_learn(metric, labels, each) for each in (before, after))
    assert evidence.gain == pytest.approx(was - is_now)
    assert evidence.value == pytest.approx(value_by_scikit_learn(metric, labels, after))
    assert evidence.value_before == pytest.approx(value_by_scikit_learn(metric, labels, before))
    assert (evidence.n, evidence.changed) == (110, (before != after).sum())


def test_the_gain_toward_a_target_weighs_the_classes_by_it():
    labels, before, after = predictions(1, [50, 30, 20, 10])
    target = np.array(TARGET)
    weights = (target / np.bincount(labels))[labels]
    for metric in ("balanced_error", "macro_f1", "mcc", "cost"):
        goal = goal_of(metric, labels, target)
        evidence = judge(Outcomes.of(labels, before, after, 4), goal)
        truth = "error" if metric == "balanced_error" else metric
        was, is_now = (
            loss_by_scikit_learn(truth, labels, each, weights=weights) for each in (before, after)
        )
        assert evidence.gain == pytest.approx(was - is_now)


# -- The standard error --------------------------------------------------------------------------


TARGET = [0.1, 0.2, 0.3, 0.4]
WEIGHED = [(name, None) for name in METRICS]
WEIGHED += [(name, TARGET) for name in METRICS if name not in ("error", "g_mean", "worst_recall")]


@pytest.mark.parametrize(("metric", "target"), WEIGHED)
def test_the_standard_error_is_that_of_a_bootstrap_within_classes(metric, target):
    labels, before, after = predictions(2, [1200, 900, 600, 300])
    # One class is clearly the worst before and after, so that the least recall has a slope.
    bad = (labels == 3) & (np.random.default_rng(0).random(3000) < 0.5)
    before, after = np.where(bad, 0, before), np.where(bad, 1, after)
    goal = goal_of(metric, labels, target)
    evidence = judge(Outcomes.of(labels, before, after, 4), goal)
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(400):
        drawn_rows = [
            rng.choice(np.flatnonzero(labels == k), (labels == k).sum()) for k in range(4)
        ]
        rows = np.concatenate(drawn_rows)
        drawn = Outcomes.of(labels[rows], before[rows], after[rows], 4)
        losses = [goal.loss(drawn.tables(goal, each)) for each in (drawn.before, drawn.after)]
        gains.append(float(losses[0] - losses[1]))
    assert evidence.standard_error == pytest.approx(np.std(gains), rel=0.15)


@pytest.mark.parametrize("metric", METRICS)
def test_slopes_are_what_one_sample_more_does_to_the_loss(metric):
    labels, before, _ = predictions(3, [2000, 1500, 1000, 500])
    goal = goal_of(metric, labels)
    tables = goal.tables(labels, before, 4)
    slopes = find_slopes(goal, tables)
    for true, called in ((0, 0), (3, 3), (3, 0), (2, 1)):
        more = goal.tables(np.append(labels, true), np.append(before, called), 4)
        move = moves_by(slopes, np.array([true]), np.array([called]), goal.cost)
        truth = float(goal.loss(more) - goal.loss(tables))
        assert move[0] == pytest.approx(truth, rel=0.03, abs=3e-7)


def test_few_samples_that_agree_do_not_make_a_class_certain():
    """All of three rare samples turn right: a bootstrap would say that their gain is certain."""
    labels = np.repeat([0, 1], [100, 3])
    before, after = np.zeros(103, int), labels.copy()
    evidence = judge(Outcomes.of(labels, before, after, 2), lh.Goal().on(labels, 2, None))
    assert evidence.gain == pytest.approx(0.5)
    # What is known of a recall with 3 right of 3 is Beta(3.5, 0.5) (Jeffreys); it counts half here.
    spread = beta.std(3.5, 0.5) / 2
    assert spread < evidence.standard_error < 4 * spread
    assert evidence.verdict != "changes nothing"


def often_covered(metric: str, sizes: list[int]) -> float:
    """Return how often the interval holds the true gain, of models that raise rare classes."""
    rng = np.random.default_rng(sum(map(ord, metric)) + sum(sizes))
    held = []
    for _ in range(20):
        skill = (
            np.array([0.95, 0.8, 0.5, rng.uniform(0, 0.4)]),
            np.array([0.85, 0.8, 0.7, rng.uniform(0.3, 0.9)]),
        )
        joint = float(rng.uniform(0.3, 0.9))
        many = predictions(
            int(rng.integers(1 << 30)), 100 * np.array(sizes), skill=skill, joint=joint
        )
        truth = judge(Outcomes.of(*many, 4), goal_of(metric, many[0])).gain
        for _ in range(20):
            few = predictions(int(rng.integers(1 << 30)), sizes, skill=skill, joint=joint)
            low, high = judge(Outcomes.of(*few, 4), goal_of(metric, few[0])).interval
            held.append(low <= truth <= high)
    return float(np.mean(held))


@pytest.mark.parametrize("rarest", [3, 6, 60])
@pytest.mark.parametrize("metric", [name for name in METRICS if name != "worst_recall"])
def test_the_interval_covers_the_gain_even_if_the_rarest_class_has_few_samples(metric, rarest):
    assert often_covered(metric, [300, 100, 60, rarest]) >= 0.92


@pytest.mark.parametrize("rarest", [10, 40])
def test_the_interval_of_a_g_mean_holds_where_classes_are_hardly_ever_right(rarest):
    """Two classes are never right among few samples: G-mean is 0 then, and has no slope there."""
    rng = np.random.default_rng(rarest)
    sizes = [300, 60, 2 * rarest, rarest]
    skill = (np.array([0.95, 0.6, 0.03, 0.02]), np.array([0.8, 0.6, 0.4, 0.3]))
    many = predictions(0, 300 * np.array(sizes), skill=skill, joint=0.5)
    truth = judge(Outcomes.of(*many, 4), goal_of("g_mean", many[0])).gain
    held = []
    for _ in range(200):
        few = predictions(int(rng.integers(1 << 30)), sizes, skill=skill, joint=0.5)
        evidence = judge(Outcomes.of(*few, 4), goal_of("g_mean", few[0]))
        low, high = evidence.interval
        held.append(low <= truth <= high)
        assert evidence.standard_error < 0.7  # of a number between 0 and 1
    assert np.mean(held) >= 0.92


@pytest.mark.parametrize("metric", ["mcc", "kappa", "g_mean", "worst_recall"])
def test_a_class_that_is_never_right_before_makes_a_clear_gain_no_less_clear(metric):
    """Before, all is the frequent class, where these metrics have no slope, and then nearly all is right."""
    labels = np.repeat([0, 1], [400, 40])
    after = labels.copy()
    after[::9] = 1 - after[::9]
    evidence = judge(
        Outcomes.of(labels, np.zeros(440, int), after, 2), lh.Goal(metric).on(labels, 2, None)
    )
    low, high = evidence.interval
    assert 0 < low < evidence.gain < high < 1.5
    assert evidence.verdict == "better"


def test_the_interval_covers_the_gain_in_g_mean_if_rare_classes_are_hardly_ever_right_before():
    """Most often they are never right in the samples at hand, whose geometric mean is then 0."""
    rng = np.random.default_rng(0)
    sizes = [300, 100, 12, 12]
    skill = (np.array([0.95, 0.8, 0.05, 0.05]), np.array([0.8, 0.8, 0.7, 0.7]))
    many = predictions(0, 1000 * np.array(sizes), skill=skill)
    truth = judge(Outcomes.of(*many, 4), goal_of("g_mean", many[0])).gain
    held, widths = [], []
    for _ in range(300):
        few = predictions(int(rng.integers(1 << 30)), sizes, skill=skill)
        low, high = judge(Outcomes.of(*few, 4), goal_of("g_mean", few[0])).interval
        held.append(low <= truth <= high)
        widths.append(high - low)
    assert np.mean(held) >= 0.92
    assert max(widths) < 2


# -- Verdicts ------------------------------------------------------------------------------------


def evidence_of(gain: float, error: float, changed: int = 5) -> Evidence:
    tables = lh.Tables(np.ones(2), np.ones(2), np.ones(2))
    return Evidence(METRICS["error"], tables, tables, gain, error, changed, 100)


@pytest.mark.parametrize(
    ("gain", "error", "verdict"),
    [
        (0.10, 0.05, "better"),
        (0.10, 0.052, "likely better"),
        (0.10, 0.118, "likely better"),  # 0.85 standard errors: 80 %
        (0.10, 0.120, "no difference seen"),
        (0.0, 0.1, "no difference seen"),
        (-0.10, 0.052, "no difference seen"),
        (-0.10, 0.05, "worse"),
    ],
)
def test_the_verdict_says_how_sure_a_gain_is(gain, error, verdict):
    assert evidence_of(gain, error).verdict == verdict


@pytest.mark.parametrize("level", [0.3, 0.999])
def test_a_verdict_is_the_same_at_any_level_and_another_than_usual_is_told(level):
    evidence = evidence_of(0.10, 0.052)
    other = replace(evidence, level=level)
    assert evidence.verdict == other.verdict == "likely better"
    assert evidence.gain_text().endswith(")")
    assert other.gain_text().endswith(f"), an interval of {100 * level:g} %")


def test_ten_samples_never_make_anything_better():
    """However clear they are: each of 10 samples is wrong before and right after."""
    labels = np.repeat([0, 1], 5)
    evidence = judge(Outcomes.of(labels, 1 - labels, labels, 2), lh.Goal().on(labels, 2, None))
    assert (evidence.gain, evidence.verdict) == (1, "no difference seen")
    assert evidence.verdict_text() == "no difference seen: 10 samples are too few to tell"
    thrice = np.tile(labels, 3)
    evidence = judge(Outcomes.of(thrice, 1 - thrice, thrice, 2), lh.Goal().on(thrice, 2, None))
    assert evidence.verdict == "better"


def test_evidence_prints_as_one_line():
    evidence = evidence_of(0.1, 0.05)
    assert str(evidence) == repr(evidence)
    assert str(evidence) == (
        "Evidence(error 0.0% -> 0.0%, gain 10.0 points (0.2 to 19.8): better (chance of a gain: 98%); "
        "100 samples, 5 of them predicted otherwise)"
    )


def test_the_interval_and_the_probability_are_those_of_a_normal_distribution():
    evidence = evidence_of(0.1, 0.05)
    assert evidence.interval == pytest.approx((0.1 - 1.959964 * 0.05, 0.1 + 1.959964 * 0.05))
    assert evidence.probability == pytest.approx(0.97725, abs=1e-5)
    assert evidence_of(0.1, 0.0).probability == 1
    wide = Evidence(evidence.metric, evidence.before, evidence.after, 0.1, 0.05, 5, 100, level=0.5)
    assert wide.interval == pytest.approx((0.1 - 0.67449 * 0.05, 0.1 + 0.67449 * 0.05), abs=1e-6)


def test_a_share_gains_no_more_than_100_points():
    tables = lh.Tables(np.array([3, 1]), np.array([5, 1]), np.array([3, 3]))
    wide = {"gain": 0.4, "standard_error": 0.9, "changed": 3, "n": 6}
    assert Evidence(METRICS["g_mean"], tables, tables, **wide).interval == (-1.0, 1.0)
    low, high = Evidence(METRICS["mcc"], tables, tables, **wide).interval
    assert low < -1.3 < 2.1 < high


@pytest.mark.parametrize("metric", METRICS)
def test_where_no_prediction_differs_the_gain_is_exactly_0_and_it_is_said(metric):
    labels, before, _ = predictions(4, [50, 30, 20, 10])
    evidence = judge(Outcomes.of(labels, before, before, 4), goal_of(metric, labels))
    assert (evidence.gain, evidence.standard_error, evidence.interval) == (0, 0, (0, 0))
    assert (evidence.changed, evidence.verdict) == (0, "changes nothing")


def test_a_change_that_gains_nothing_is_no_certain_nothing():
    labels = np.repeat([0, 1], 20)
    before = labels.copy()
    after = labels.copy()
    before[0], after[1] = 1, 1
    evidence = judge(Outcomes.of(labels, before, after, 2), lh.Goal().on(labels, 2, None))
    assert evidence.gain == pytest.approx(0)
    assert evidence.standard_error > 0.01
    assert evidence.verdict == "no difference seen"


def test_the_numbers_of_evidence_are_plain():
    labels, before, after = predictions(5, [5, 4, 3, 2])
    plain = judge(Outcomes.of(labels, before, after, 4), goal_of("cost", labels)).to_dict()
    assert plain["metric"] == "cost"
    assert plain["before"]["paid"] == pytest.approx(COST[labels, before].sum())
    assert plain["after"]["sizes"] == [5, 4, 3, 2]
