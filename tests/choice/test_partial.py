"""A `Partial` adds up, and chooses what the whole samples choose."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import levelhead as lh
from levelhead.choice.partial import Partial
from levelhead.choice.tune_partial import plan_second_pass
from levelhead.core.errors import LevelheadError

COUNTS = [1000, 300, 90, 30]


def samples(
    n: int = 600, seed: int = 0, classes: int = 4, decimals: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels of an imbalanced held-out set; rounded logits have ties."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, size=n, p=np.arange(classes, 0, -1) / np.arange(classes, 0, -1).sum())
    logits = (2 + rng.normal(size=(n, classes)) + 2 * np.eye(classes)[labels]) * np.linspace(1.0, 0.4, classes)
    return (logits if decimals is None else logits.round(decimals)), labels


def shards(n: int, cuts: list[int], **options) -> list[Partial]:
    logits, labels = samples(n)
    edges = sorted({0, n, *(cut % (n + 1) for cut in cuts)})
    return [Partial.of(logits[a:b], labels[a:b], COUNTS, bins=32, **options) for a, b in pairwise(edges)]


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 60), st.lists(st.integers(0, 60), min_size=2, max_size=4), st.sampled_from(["rescale", "shift"]))
def test_partials_are_a_commutative_monoid_and_their_sum_is_the_partial_of_all(n, cuts, rule):
    parts = shards(n, cuts, rule=rule)
    empty = Partial.empty(COUNTS, bins=32, rule=rule)
    whole = Partial.of(*samples(n), COUNTS, bins=32, rule=rule)
    assert sum(parts) == whole == sum(reversed(parts))
    a, b, c = parts[0], parts[-1], whole
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + empty == a == empty + a
    assert Partial.from_bytes(a.to_bytes()) + b == a + Partial.from_bytes(b.to_bytes())


@pytest.mark.parametrize("rule", ["rescale", "shift", "tau"])
@pytest.mark.parametrize("range", [(0.0, 2.0), (-1.0, 2.0)])
def test_the_grid_is_exact_where_argmax_says_so(rule, range):
    logits, labels = samples()
    norms = np.array([1.0, 0.8, 0.5, 0.3])
    whole = Partial.of(logits, labels, COUNTS, rule=rule, range=range, bins=50, norms=norms if rule == "tau" else None)
    ratios = 1 / norms if rule == "tau" else max(COUNTS) / np.array(COUNTS)
    assert 0.0 in whole.frame.edges
    for i, gamma in enumerate(whole.frame.edges):
        scores = logits + gamma * np.log(ratios) if rule == "shift" else logits * ratios**gamma
        predicted = scores.argmax(axis=1)
        assert np.array_equal(whole.predicted[:, i], np.bincount(predicted, minlength=4))
        assert np.array_equal(whole.right[:, i], np.bincount(labels[predicted == labels], minlength=4))
        assert whole.error(gamma) == pytest.approx((predicted != labels).mean(), abs=1e-12)
        assert np.allclose(whole.shares(gamma), np.bincount(predicted, minlength=4) / len(labels))


def test_a_billion_samples_of_a_thousand_classes_take_less_than_32_megabytes():
    assert Partial.empty(np.arange(1000, 0, -1)).nbytes <= 32e6
    assert Partial.empty(np.arange(20000, 0, -1)).nbytes <= 32e6
    assert np.iinfo(Partial.empty(COUNTS).right.dtype).max > 1e18


def test_without_shares_only_predictions_are_missing():
    logits, labels = samples(200)
    one, whole = (Partial.of(logits, labels, COUNTS, bins=16, shares=shares) for shares in (False, True))
    assert np.array_equal(one.right, whole.right)
    assert np.array_equal(one.left, whole.left)
    assert one.nbytes < whole.nbytes
    assert Partial.from_bytes(one.to_bytes()) == one != whole
    assert lh.tune(one, bootstrap=0).gamma == lh.tune(whole, bootstrap=0).gamma
    with pytest.raises(LevelheadError, match="shares: this partial was made without"):
        one.shares(0.5)
    with pytest.raises(LevelheadError, match="same range"):
        one + whole
    with pytest.raises(LevelheadError, match="labels: expected labels"):
        Partial.of(logits, None, COUNTS, shares=False)


def test_bytes_that_were_changed_anywhere_are_refused():
    data = Partial.of(*samples(20), COUNTS, bins=4).to_bytes()
    for at in range(len(data)):
        with pytest.raises(LevelheadError, match="partial"):
            Partial.from_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    for cut in (b"", data[:10], data[:-1], data + b"\0"):
        with pytest.raises(LevelheadError, match="partial"):
            Partial.from_bytes(cut)


def test_a_partial_survives_pickle_and_its_numbers_are_checked():
    whole = Partial.of(*samples(50), COUNTS, bins=8)
    assert pickle.loads(pickle.dumps(whole)) == whole
    whole.right[0, 3] += 1000
    with pytest.raises(LevelheadError, match="contradict"):
        Partial.from_bytes(whole.to_bytes())


def test_partials_of_other_rules_counts_ranges_or_grids_are_refused():
    one = Partial.empty(COUNTS)
    others = [
        {"rule": "shift"},
        {"range": (0.0, 1.0)},
        {"bins": 8},
        {"counts": [5, 4, 3, 2]},
        {"kind": "probabilities"},
    ]
    for other in others:
        if "kind" in other:
            other = {**other, "rule": "shift"}
        with pytest.raises(LevelheadError, match="same range"):
            one + Partial.empty(**{"counts": COUNTS, **other})
    for bins in (1, 0, 2.5, True, 1 << 20):
        with pytest.raises(LevelheadError, match="bins: expected a whole number"):
            Partial.empty(COUNTS, bins=bins)
    with pytest.raises(LevelheadError, match=r"logits: expected \[n, 4\]"):
        Partial.of(np.zeros((2, 3)) + np.arange(3), [0, 1], COUNTS)


def cut(logits, labels, sizes):
    ends = np.cumsum([0, *sizes])
    return [(logits[a:b], labels[a:b]) for a, b in pairwise(ends)] + [(logits[ends[-1] :], labels[ends[-1] :])]


@pytest.mark.parametrize("rule", ["rescale", "shift"])
@pytest.mark.parametrize("criterion", ["guided", "balanced_error"])
@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("metric", ["balanced_error", "error"])
def test_chunks_that_are_read_twice_choose_what_all_samples_choose(rule, criterion, decimals, metric):
    for seed in range(4):
        logits, labels = samples(seed=seed, decimals=decimals)
        options = {"rule": rule, "criterion": criterion, "metric": metric, "bootstrap": 0, "range": (0.0, 2.0)}
        want = lh.tune(logits, labels, COUNTS, **options)
        got = lh.tune(cut(logits, labels, [100, 7, 200]), counts=COUNTS, **options)
        assert got.gamma == want.gamma
        assert got.plateau == want.plateau
        for name in (
            "value",
            "value_at_zero",
            "error",
            "balanced_error",
            "error_at_zero",
            "gain",
            "recall",
            "mismatch",
        ):
            assert getattr(got, name) == pytest.approx(getattr(want, name), abs=1e-12), name
        assert (got.n, got.criterion, got.rule, got.counts) == (want.n, want.criterion, want.rule, want.counts)


def test_chunks_of_any_size_kind_and_dtype_may_come_mixed():
    torch = pytest.importorskip("torch")
    logits, labels = samples(300)
    logits = logits.astype(np.float32).astype(np.float64)  # the same numbers in both dtypes
    pieces = [(logits[i : i + 1], labels[i : i + 1]) for i in range(20)] + [(logits[:0], labels[:0])]
    pieces += [(logits[20:50].astype(np.float32), labels[20:50].tolist()), (torch.tensor(logits[50:90]), labels[50:90])]
    pieces += [(logits[90:95].tolist(), labels[90:95]), (logits[95:], torch.tensor(labels[95:]))]
    want = lh.tune(logits, labels, COUNTS, rule="shift", range=(0.0, 4.0), bootstrap=0)
    got = lh.tune(pieces, counts=COUNTS, rule="shift", range=(0.0, 4.0), bootstrap=0)
    assert (got.gamma, got.n) == (want.gamma, want.n)


def test_a_target_weighs_the_classes_of_chunks():
    logits, labels = samples()
    target = [0.1, 0.2, 0.3, 0.4]
    want = lh.tune(logits, labels, COUNTS, rule="rescale", bootstrap=0, target=target)
    got = lh.tune(lambda: iter(cut(logits, labels, [50])), None, COUNTS, rule="rescale", bootstrap=0, target=target)
    assert (got.gamma, got.plateau) == (want.gamma, want.plateau)


def test_ties_at_zero_and_a_class_without_samples():
    logits = np.array([[1.0, 1.0, 0.5], [2.0, 2.0, 1.0], [0.3, 1.0, 1.0], [2.0, 1.0, 0.1]])
    labels = np.array([0, 1, 1, 0])
    with pytest.warns(lh.MissingClassWarning):
        want = lh.tune(logits, labels, [10, 5, 1], rule="rescale", bootstrap=0)
    with pytest.warns(lh.MissingClassWarning):
        got = lh.tune(
            [(logits[:2], labels[:2]), (logits[2:], labels[2:])], counts=[10, 5, 1], rule="rescale", bootstrap=0
        )
    assert (got.gamma, got.plateau, got.missing) == (want.gamma, want.plateau, want.missing)


@pytest.mark.parametrize("bins", [8, 64, 1024])
def test_before_the_second_pass_the_error_is_within_the_stated_bound(bins):
    for seed in range(5):
        logits, labels = samples(seed=seed)
        whole = Partial.of(logits, labels, COUNTS, bins=bins)
        tuned = lh.tune(whole, bootstrap=0)
        path = lh.gamma_path(logits, labels, COUNTS)
        lowest = path.balanced_error.min()
        bound = float(tuned.why.rsplit(" ", 1)[1])  # printed with two digits
        assert tuned.gamma in whole.frame.edges
        assert tuned.value == pytest.approx(path.balanced_error_curve.at(tuned.gamma), abs=1e-12)
        assert tuned.value - bound * 1.06 - 1e-12 <= lowest <= tuned.value + 1e-12


def test_an_iterator_is_read_once_and_chooses_on_the_grid():
    logits, labels = samples()
    pieces = cut(logits, labels, [100, 300])
    got = lh.tune(iter(pieces), counts=COUNTS, rule="rescale", bootstrap=0)
    assert got.gamma == lh.tune(Partial.of(logits, labels, COUNTS), bootstrap=0).gamma
    assert "on a grid of 1025 gammas" in got.why


def test_auto_of_chunks_names_the_rules_that_it_tried():
    logits, labels = samples(4000)
    got = lh.tune(cut(logits, labels, [1000, 2000]), counts=COUNTS, bootstrap=0)
    assert [one.rule for one in got.candidates] == ["shift", "rescale"]
    want = lh.tune(logits, labels, COUNTS, bootstrap=0)
    assert got.value <= want.value + 0.01


def test_intervals_are_near_those_of_resampled_samples():
    logits, labels = samples(5000)
    want = lh.tune(logits, labels, COUNTS, rule="rescale", criterion="balanced_error", bootstrap=300)
    got = lh.tune(cut(logits, labels, [2500]), counts=COUNTS, rule="rescale", criterion="balanced_error", bootstrap=300)
    width = want.interval[1] - want.interval[0]
    assert abs(got.interval[0] - want.interval[0]) < width / 2
    assert abs(got.interval[1] - want.interval[1]) < width / 2
    spread = want.gain_interval[1] - want.gain_interval[0]
    assert got.gain == pytest.approx(want.gain, abs=spread / 4)
    assert got.gain_interval == pytest.approx(want.gain_interval, abs=spread / 4)
    assert got.worthwhile


def test_a_path_is_tuned_as_its_samples_are():
    logits, labels = samples()
    want = lh.tune(logits, labels, COUNTS, rule="rescale", bootstrap=50)
    got = lh.tune(lh.gamma_path(logits, labels, COUNTS), bootstrap=50)
    assert got.to_dict() == want.to_dict()
    with pytest.raises(LevelheadError, match="rule: the path is of the rule 'rescale'"):
        lh.tune(lh.gamma_path(logits, labels, COUNTS), rule="shift")
    with pytest.raises(LevelheadError, match="counts: they are not those"):
        lh.tune(lh.gamma_path(logits, labels, COUNTS), counts=[4, 3, 2, 1])


def test_the_second_pass_by_hand_is_what_chunks_do():
    logits, labels = samples(1000)
    pieces = cut(logits, labels, [300, 300])
    whole = sum(Partial.of(*piece, COUNTS) for piece in pieces)
    second = pickle.loads(pickle.dumps(plan_second_pass(whole)))
    found = sum(pickle.loads(pickle.dumps(second.look(*piece))) for piece in reversed(pieces))
    got = lh.tune(pickle.loads(pickle.dumps(whole.with_events(found))), bootstrap=0)
    assert got.gamma == lh.tune(logits, labels, COUNTS, rule="rescale", bootstrap=0).gamma
    quick = plan_second_pass(whole, criterion="balanced_error")
    assert quick.cells.sum() <= second.cells.sum()
    less = sum(quick.look(*piece) for piece in pieces)
    assert (
        lh.tune(whole.with_events(less), criterion="balanced_error", bootstrap=0).gamma
        == lh.tune(logits, labels, COUNTS, rule="rescale", criterion="balanced_error", bootstrap=0).gamma
    )
    assert lh.tune(whole.with_events(type(found).from_bytes(found.to_bytes())), bootstrap=0).gamma == got.gamma
    for damaged in (b"", found.to_bytes()[:-9], b"PK" + bytes(100)):
        with pytest.raises(LevelheadError, match="not events of a second pass"):
            type(found).from_bytes(damaged)
    with pytest.raises(LevelheadError, match="second pass was made for another"):
        lh.tune(whole.with_events(less), bootstrap=0)


def test_what_needs_all_samples_is_refused_by_name():
    whole = Partial.of(*samples(50), COUNTS)
    refused = [
        ({"metric": "macro_f1"}, "metric: expected 'error' or 'balanced_error'"),
        ({"floors": 0.1}, "floors: needs all samples at once"),
        ({"rule": "shift"}, "rule: the partial is of the rule 'rescale'"),
        ({"counts": [4, 3, 2, 1]}, "counts: they are not those"),
    ]
    for options, message in refused:
        with pytest.raises(LevelheadError, match=message):
            lh.tune(whole, **options)
    with pytest.raises(LevelheadError, match="rule: expected 'auto', 'rescale', 'tau' or 'shift'"):
        lh.tune(iter([samples(50)]), counts=COUNTS, rule="vector")
    with pytest.raises(LevelheadError, match="labels: expected labels"):
        lh.tune(samples(50)[0])
    with pytest.raises(LevelheadError, match="counts: expected the training samples"):
        lh.tune(iter([samples(50)]))
    with pytest.raises(LevelheadError, match="got none"):
        lh.tune(iter([]), counts=COUNTS)
    with pytest.raises(LevelheadError, match="labelled samples"):
        lh.tune(Partial.of(samples(50)[0], None, COUNTS))


def test_chunks_that_differ_when_they_are_read_again_are_refused():
    reads = iter([0, 1])
    with pytest.raises(LevelheadError, match="not the same when they were read again"):
        lh.tune(lambda: [samples(300, seed=next(reads))], counts=COUNTS, rule="rescale")
