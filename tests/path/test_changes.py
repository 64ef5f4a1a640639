"""What is predicted, against a float64 brute force at many gammas, ties included: never another class."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import levelhead as lh
from levelhead import gamma_path
from levelhead.core.gamma_path import find_path_rule
from levelhead.core.rules import Tau
from levelhead.path import reach, walk
from levelhead.path.direction import comes_before, crossing, snap
from levelhead.path.walk_torch import walk_on_device

NICE = (-1.0, 0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0)  # where ties are made on purpose
RANGE = (-1.0, 2.0)
ROWS = 540

LOGITS = {
    "normal": lambda rng, n, k: rng.normal(size=(n, k)),
    "single precision": lambda rng, n, k: (3 * rng.normal(size=(n, k))).astype(np.float32),
    "small integers, with zeros and ties": lambda rng, n, k: rng.integers(-3, 4, (n, k)).astype(
        np.float32
    ),
    "all negative": lambda rng, n, k: -np.abs(rng.normal(size=(n, k))) - 1e-3,
    "powers of two": lambda rng, n, k: (
        rng.choice([-1.0, 1.0], (n, k)) * 2.0 ** rng.integers(-3, 4, (n, k))
    ),
    "huge and tiny": lambda rng, n, k: (
        rng.choice([-1.0, 1.0], (n, k)) * 10.0 ** rng.uniform(-30, 30, (n, k))
    ),
}
COUNTS = {
    "powers of two": lambda rng, k: 2 ** rng.integers(0, 8, k),
    "any": lambda rng, k: rng.integers(1, 5000, k),
    "all equal": lambda rng, k: np.full(k, 7),
    "long tail": lambda rng, k: np.maximum(1, (500 * 0.01 ** (np.arange(k) / k)).astype(int)),
}


def brute(logits, counts, gamma, rule, norms=None):
    """The definition, in float64."""
    wide = logits.astype(np.float64)
    ratio = counts.max() / counts if norms is None else 1 / norms
    return wide + gamma * np.log(ratio) if rule == "shift" else wide * ratio**gamma


def made(rule, norms=None):
    return Tau(norms=norms) if rule == "tau" else rule


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
def test_no_prediction_differs_from_the_brute_force_at_any_gamma(kind, rule):
    if kind == "huge and tiny" and rule == "shift":
        pytest.skip("float64 addition loses the tiny beside the huge: no brute force")
    rng = np.random.default_rng(0)
    pairs = 0
    for classes in (2, 3, 10, 60):
        for profile in COUNTS.values():
            counts, labels = profile(rng, classes), rng.integers(0, classes, ROWS)
            logits = LOGITS[kind](rng, ROWS, classes)
            logits[: ROWS // 2, 0] += logits.dtype.type(2) * (labels[: ROWS // 2] == 0)
            norms = 2.0 ** rng.integers(-2, 3, classes) if rule == "tau" else None
            path = gamma_path(logits, labels, counts, rule=made(rule, norms), range=RANGE)
            for gamma in (*NICE, *rng.uniform(*RANGE, 40)):
                want = brute(logits, counts, gamma, rule, norms).argmax(axis=1)
                assert np.array_equal(path.predictions(gamma), want), (classes, gamma, counts)
                assert np.array_equal(path.right(gamma), want == labels)
                pairs += ROWS
    assert pairs >= 400_000  # two and a half million for each rule


@pytest.mark.parametrize("classes", [5, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_the_first_pass_decides_nothing(classes, dtype):
    """Scores closer to each other than the first pass can tell, at both ends of the range and within."""
    rng = np.random.default_rng(1)
    counts, labels = rng.integers(1, 400, classes), rng.integers(0, classes, 400)
    for gamma in (0.0, 0.3, 2.0):
        near = 5 * (1 + 4 * np.finfo(dtype).eps * rng.integers(-2, 3, (400, classes)))
        logits = (near / (counts.max() / counts) ** gamma).astype(dtype)
        path = gamma_path(logits, labels, counts)
        for at in (0.0, gamma * (1 - 1e-5), min(2.0, gamma * (1 + 1e-5)), 2.0):
            scores = brute(logits, counts, at, "rescale")
            differs = path.predictions(at) != scores.argmax(axis=1)
            if differs.any():
                # Within the float64 rounding of the brute force, or a tie at a round gamma.
                best = np.sort(scores[differs], axis=1)
                apart = 4e-16 + 1e-13 * at * np.log(counts.max() / counts.min())
                assert (best[:, -1] - best[:, -2] <= apart * best[:, -1]).all()


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_predictions_at_ties_equal_the_brute_force(data):
    classes = data.draw(st.integers(2, 6))
    elements = st.sampled_from([-4.0, -2, -1, 0, 1, 2, 4, 8])
    logits = data.draw(hnp.arrays(np.float64, (7, classes), elements=elements))
    counts = data.draw(hnp.arrays(np.int64, classes, elements=st.sampled_from([1, 2, 4, 16])))
    labels = data.draw(hnp.arrays(np.int64, 7, elements=st.integers(0, classes - 1)))
    path = gamma_path(logits, labels, counts, range=(-2, 2))
    for gamma in (-2, -1.5, -1, -0.5, 0, 0.25, 0.5, 1, 1.5, 2):
        want = brute(logits, counts, gamma, "rescale").argmax(axis=1)
        assert np.array_equal(path.predictions(gamma), want)


def test_a_class_that_loses_the_tie_wins_from_the_next_float_on():
    """Class 1 ties with class 0 at gamma 0.5, where the first wins."""
    path = gamma_path(np.array([[4.0, 2.0]]), np.array([0]), [400, 100])
    assert path.changes.gamma.tolist() == [np.nextafter(0.5, 1)]
    turned = gamma_path(np.array([[2.0, 4.0]]), np.array([0]), [100, 400])
    assert turned.changes.gamma.tolist() == [0.5]


def test_a_tie_that_logarithms_miss_by_a_bit_is_met():
    # In most versions of numpy, log(125) / log(5) is not 3.
    pair = np.array([1.0]), np.array([125.0]), -np.log([5.0])
    assert crossing(*pair, multiplies=True).tolist() == [3.0]
    assert snap(np.array([3e-14]))[0] == 3e-14  # a small gamma is not a missed 0
    for gamma, first, second in ((2.9, False, False), (3.0, True, False), (3.1, True, True)):
        for wins_ties, wanted in ((True, first), (False, second)):
            before = comes_before(*pair, np.array([wins_ties]), gamma, multiplies=True)
            assert before.tolist() == [wanted]


def test_one_float_apart_is_not_a_tie():
    above = np.nextafter(1.9, 2)
    path = gamma_path(np.array([[1.9, above], [above, 1.9]]), np.array([1, 0]), [10, 1])
    assert path.changes.start.tolist() == [1, 0]
    assert path.changes.sample.tolist() == [1]
    assert 0 < path.changes.gamma[0] < 1e-15


@pytest.mark.parametrize("rule", ["rescale", "shift"])
@pytest.mark.parametrize("classes", [3, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_finds_the_same_changes_to_the_last_bits(rule, classes, dtype):
    rng = np.random.default_rng(2)
    extreme = rng.choice([-1, 1], (300, classes)) * 10 ** rng.uniform(-44, 36, (300, classes))
    plain, whole = rng.normal(size=(300, classes)), rng.integers(-2, 3, (300, classes))
    logits = np.concatenate([plain, whole, extreme]).astype(dtype)
    direction = find_path_rule(rule).direction(2.0 ** rng.integers(0, 8, classes))
    host = walk.compute_envelope(logits, direction, RANGE)
    device = walk_on_device(torch.from_numpy(logits), direction, RANGE)
    orders = [np.lexsort((changes.gamma, changes.sample)) for changes in (host, device)]
    assert np.array_equal(host.start, device.start)
    for name in ("sample", "gamma", "new_class", "old_class"):
        ours, theirs = (
            getattr(changes, name)[order]
            for changes, order in zip((host, device), orders, strict=True)
        )
        np.testing.assert_allclose(theirs, ours, rtol=2e-15, atol=1e-300)
    for gamma in NICE:
        assert np.array_equal(host.predictions(gamma), device.predictions(gamma))


def test_half_precision_tensors_are_taken_as_they_are():
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(rng.normal(size=(50, 40))).bfloat16()
    labels, counts = torch.from_numpy(rng.integers(0, 40, 50)), rng.integers(1, 100, 40)
    want = gamma_path(logits.float().numpy(), labels.numpy(), counts)
    path = gamma_path(logits, labels, counts)
    assert np.array_equal(path.changes.gamma, want.changes.gamma)
    assert np.array_equal(path.changes.new_class, want.changes.new_class)


def test_logits_are_left_as_they_are():
    rng = np.random.default_rng(4)
    for classes in (4, 50):
        logits = rng.normal(size=(100, classes))
        before = logits.copy()
        counts = rng.integers(1, 9, classes)
        logits.flags.writeable = False
        gamma_path(logits[10:], rng.integers(0, classes, 90), counts).predictions(0.5)
        tensor = torch.from_numpy(before.copy())
        walk_on_device(tensor, find_path_rule("shift").direction(counts), (0.0, 2.0))
        assert np.array_equal(logits, before)
        assert np.array_equal(tensor.numpy(), before)


def by_device(logits, kind="logits", rule="rescale"):
    direction = find_path_rule(rule).direction(np.arange(logits.shape[1], 0, -1.0))
    return walk_on_device(torch.from_numpy(logits), direction, (0.0, 2.0), kind=kind)


def by_host(logits, kind="logits", rule="rescale"):
    direction = find_path_rule(rule).direction(np.arange(logits.shape[1], 0, -1.0))
    return walk.compute_envelope(logits, direction, (0.0, 2.0), kind=kind)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("find", [by_host, by_device])
def test_a_value_that_is_not_finite_is_named_by_its_row(value, find):
    logits = np.random.default_rng(5).normal(size=(3000, 3)).astype(np.float32)
    logits[2500, 1] = value
    with pytest.raises(ValueError, match="first in row 2500"):
        find(logits)


@pytest.mark.parametrize("find", [by_host, by_device])
def test_a_value_that_is_not_a_probability_is_named_by_its_row(find):
    values = np.full((3000, 3), 1 / 3)
    values[2500] = -1, 2, 0
    with pytest.raises(ValueError, match="expected probabilities, from 0 to 1, got -1 in row 2500"):
        find(values, "probabilities", "shift")


LOWEST = [-np.inf, float(np.finfo(np.float32).min), float(np.finfo(np.float64).min)]


def masked_case(mask, classes, dtype=np.float64):
    """Logits of which about one in four is masked, and no whole row; and which are."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(400, classes))
    masked = rng.random(logits.shape) < 0.25
    masked[:, 1] &= ~masked.all(axis=1)
    with np.errstate(over="ignore"):
        return np.where(masked, mask, logits).astype(dtype), masked


@pytest.mark.parametrize("mask", LOWEST)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [6, 40])
@pytest.mark.parametrize("rule", ["rescale", "shift"])
@pytest.mark.parametrize("find", [by_host, by_device])
def test_masked_scores_win_nowhere_on_the_path(mask, dtype, classes, rule, find):
    logits, masked = masked_case(mask, classes, dtype)
    counts = np.arange(classes, 0, -1.0)
    changes = find(logits, rule=rule)
    plain = np.where(masked, 0, logits)
    for gamma in [0.0, 0.31, 0.77, 1.234, 1.99]:
        scores = np.where(masked, -np.inf, brute(plain, counts, gamma, rule))
        assert np.array_equal(changes.predictions(gamma), scores.argmax(axis=1))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("find", [by_host, by_device])
def test_other_values_that_are_not_finite_are_refused_beside_masks(bad, find):
    logits, _ = masked_case(-np.inf, 6)
    for row, values in ((7, bad), (9, -np.inf)):
        spoilt = logits.copy()
        spoilt[row] = values
        with pytest.raises(lh.LevelheadError, match=f"NaN or infinite values, first in row {row}"):
            find(spoilt)


def test_a_sum_that_overflows_is_not_an_error():
    logits = np.full((2, 4), 3e38, np.float32)
    assert gamma_path(logits, np.array([0, 1]), [4, 4, 4, 4]).error.tolist() == [0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "scale"}, "rule: expected 'shift', 'rescale' or 'tau'"),
        ({"rule": "offsets"}, "rule: expected 'shift', 'rescale' or 'tau'"),
        ({"rule": "tau"}, "rule: 'tau' needs the weight norms"),
        ({"rule": Tau(norms=[1, 0, 1])}, "norms: expected positive numbers, got 0 for class 1"),
        ({"range": (1, 1)}, "range: expected"),
        ({"range": (0, np.inf)}, "range: expected"),
        ({"target": [1, -1, 1]}, "target: expected shares, none negative"),
        ({"kind": "probabilities"}, "use 'offsets'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    logits = np.random.default_rng(6).normal(size=(4, 3))
    with pytest.raises(ValueError, match=message):
        gamma_path(logits, [0, 1, 2, 0], [5, 3, 1], **arguments)


def test_wrong_shapes_and_probabilities_are_refused():
    logits = np.random.default_rng(7).normal(size=(4, 3))
    with pytest.raises(ValueError, match=r"expected logits \[N, K\]"):
        gamma_path(logits[0], [0], [5, 3, 1])
    with pytest.raises(ValueError, match="2 labels and 4 rows"):
        gamma_path(logits, [0, 1], [5, 3, 1])
    with pytest.raises(ValueError, match="3 labels; transpose the logits"):
        gamma_path(logits, [0, 1, 2], [5, 3, 1])
    with pytest.raises(ValueError, match="looks like probabilities"):
        gamma_path(np.full((4, 3), 1 / 3), [0, 1, 2, 0], [5, 3, 1])


def test_equal_ratios_have_equal_slopes():
    direction = find_path_rule("rescale").direction(np.array([7, 3, 7, 3, 21]))
    assert direction.slopes[0] == direction.slopes[2]
    assert direction.slopes[1] == direction.slopes[3]


@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_blocks_that_threads_share_give_the_same_bits(rule, monkeypatch):
    rng = np.random.default_rng(0)
    logits = rng.normal(1, 2, size=(2001, 40)).astype(np.float32)
    direction = find_path_rule(rule).direction(rng.integers(1, 1000, 40))
    alone = walk.compute_envelope(logits, direction, (0.0, 2.0))
    monkeypatch.setattr(walk, "CACHED_NUMBERS", 40 * 100)
    monkeypatch.setattr(reach, "CACHED_NUMBERS", 40 * 100)
    monkeypatch.setattr(walk, "few_threads", lambda: 3)
    shared = walk.compute_envelope(logits, direction, (0.0, 2.0))
    for name in ("start", "sample", "gamma", "new_class", "old_class"):
        assert np.array_equal(getattr(alone, name), getattr(shared, name)), name
