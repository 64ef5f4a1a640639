"""Where a sample is right, against a float64 brute force: a million (sample, gamma) pairs each, ties included."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from levelhead import gamma_path, measure
from levelhead.core.rules import Rescale, Shift, Tau, find_path_rule
from levelhead.path import engines
from levelhead.path.direction import snap, winning_range
from levelhead.path.engines import FEW_CLASSES

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


def brute(logits, counts, gamma, rule, norms=None, bias=None):
    """The definition, in float64."""
    wide = logits.astype(np.float64)
    ratio = counts.max() / counts if norms is None else 1 / norms
    if rule == "shift":
        return wide + gamma * np.log(ratio)
    return wide * ratio**gamma if bias is None else (wide - bias) * ratio**gamma + bias


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("rule", ["rescale", "tau", "shift"])
@pytest.mark.parametrize(("k", "kept"), [(1, False), (5, False), (1, True), (5, True)], ids=str)
def test_no_sample_differs_from_the_brute_force_at_any_gamma(kind, rule, k, kept):
    if kept and rule == "shift":
        pytest.skip("shift scales nothing, so nothing can be kept from it")
    if kind == "huge and tiny" and (kept or rule == "shift"):
        pytest.skip("float64 addition loses the tiny beside the huge: no brute force")
    rng = np.random.default_rng(0)
    pairs = 0
    for classes in (2, 3, 10, 60):
        for profile in COUNTS.values():
            if k >= classes:
                continue
            counts, labels = profile(rng, classes), rng.integers(0, classes, ROWS)
            logits = LOGITS[kind](rng, ROWS, classes)
            logits[: ROWS // 2, 0] += logits.dtype.type(2) * (labels[: ROWS // 2] == 0)
            norms = 2.0 ** rng.integers(-2, 3, classes) if rule == "tau" else None
            bias = rng.normal(size=classes).round(1) if kept else None
            made = replace(find_path_rule(rule), bias=bias, norms=norms)
            path = gamma_path(logits, labels, counts, rule=made, k=k, range=RANGE)
            for gamma in (*NICE, *rng.uniform(*RANGE, 40)):
                want = measure.rank(brute(logits, counts, gamma, rule, norms, bias), labels) < k
                assert np.array_equal(path.right(gamma), want), (classes, gamma, counts)
                pairs += ROWS
    assert pairs >= 20_000


def test_the_cases_above_are_a_million_pairs_for_every_rule_and_k_and_bias():
    cases = (
        2 * len(COUNTS) * (len(LOGITS) - 1)
    )  # the fewest: top-5 of 10 and 60 classes, not "huge and tiny"
    assert cases * ROWS * (len(NICE) + 40) >= 1_000_000


@pytest.mark.parametrize("classes", [FEW_CLASSES - 1, FEW_CLASSES + 1])
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
            want = brute(logits, counts, at, "rescale").argmax(axis=1) == labels
            differs = path.right(at) != want
            if differs.any():  # within the float64 rounding of the brute force itself
                scores = brute(logits, counts, at, "rescale")[differs]
                best = np.sort(scores, axis=1)
                assert (best[:, -1] - best[:, -2] <= 4e-16 * best[:, -1]).all()


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_intervals_of_ties_equal_the_brute_force(data):
    classes = data.draw(st.integers(2, 6))
    logits = data.draw(
        hnp.arrays(
            np.float64, (7, classes), elements=st.sampled_from([-4.0, -2, -1, 0, 1, 2, 4, 8])
        )
    )
    counts = data.draw(hnp.arrays(np.int64, classes, elements=st.sampled_from([1, 2, 4, 16])))
    labels = data.draw(hnp.arrays(np.int64, 7, elements=st.integers(0, classes - 1)))
    path = gamma_path(logits, labels, counts, range=(-2, 2))
    for gamma in (-2, -1.5, -1, -0.5, 0, 0.25, 0.5, 1, 1.5, 2):
        assert np.array_equal(
            path.right(gamma), brute(logits, counts, gamma, "rescale").argmax(axis=1) == labels
        )


def test_an_open_end_is_the_next_float():
    """Class 1 ties with class 0 at gamma 0.5 and loses the tie: it is right from the next float on."""
    path = gamma_path(np.array([[4.0, 2.0], [4.0, 2.0]]), np.array([0, 1]), [400, 100])
    assert path.lo.tolist() == [0.0, np.nextafter(0.5, 1)]
    assert path.hi.tolist() == [0.5, 2.0]


def test_a_tie_that_logarithms_miss_by_a_bit_is_met():
    assert np.log(125) / np.log(5) != 3
    lo, hi = winning_range(
        np.array([1.0]), np.array([125.0]), -np.log([5.0]), np.array([True]), multiplies=True
    )
    assert (lo[0], hi[0]) == (3.0, np.inf)
    assert snap(np.array([3e-14]))[0] == 3e-14  # a small gamma is not a missed 0


def test_one_float_apart_is_not_a_tie():
    above = np.nextafter(1.9, 2)
    path = gamma_path(np.array([[1.9, above], [above, 1.9]]), np.array([1, 0]), [10, 1])
    assert path.lo.tolist() == [0.0, 0.0]
    assert path.hi[0] == 2.0
    assert 0 < path.hi[1] < 1e-15


@pytest.mark.parametrize("rule", ["rescale", "shift"])
@pytest.mark.parametrize("classes", [3, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_torch_gives_the_same_intervals_to_the_last_bits(rule, classes, dtype):
    rng = np.random.default_rng(2)
    extreme = rng.choice([-1, 1], (300, classes)) * 10 ** rng.uniform(-44, 36, (300, classes))
    plain, whole = rng.normal(size=(300, classes)), rng.integers(-2, 3, (300, classes))
    logits = np.concatenate([plain, whole, extreme]).astype(dtype)
    labels, counts = rng.integers(0, classes, 900), 2 ** rng.integers(0, 8, classes)
    paths = {
        engine: gamma_path(
            torch.from_numpy(logits) if engine == "torch" else logits,
            labels,
            counts,
            rule=rule,
            range=RANGE,
            engine=engine,
        )
        for engine in ("numpy", "torch")
    }
    for end in ("lo", "hi"):
        np.testing.assert_allclose(
            getattr(paths["torch"], end), getattr(paths["numpy"], end), rtol=2e-15, atol=1e-300
        )
    for gamma in NICE:
        assert np.array_equal(paths["torch"].right(gamma), paths["numpy"].right(gamma))


def test_half_precision_tensors_are_taken_as_they_are():
    rng = np.random.default_rng(3)
    logits, labels = (
        torch.from_numpy(rng.normal(size=(50, 40))).bfloat16(),
        torch.from_numpy(rng.integers(0, 40, 50)),
    )
    counts = rng.integers(1, 100, 40)
    want = gamma_path(logits.float().numpy(), labels.numpy(), counts)
    for engine in ("auto", "torch"):
        np.testing.assert_allclose(
            gamma_path(logits, labels, counts, engine=engine).lo, want.lo, rtol=2e-15
        )


def test_logits_are_left_as_they_are():
    rng = np.random.default_rng(4)
    for classes in (4, 50):
        logits = rng.normal(size=(100, classes))
        before = logits.copy()
        logits.flags.writeable = False
        view = logits[10:]
        gamma_path(view, rng.integers(0, classes, 90), rng.integers(1, 9, classes)).predictions(0.5)
        gamma_path(
            torch.from_numpy(before),
            np.zeros(100, int),
            rng.integers(1, 9, classes),
            engine="torch",
        )
        assert np.array_equal(logits, before)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_a_value_that_is_not_finite_is_named_by_its_row(value, engine):
    logits = np.random.default_rng(5).normal(size=(3000, 3)).astype(np.float32)
    logits[2500, 1] = value
    logits = torch.from_numpy(logits) if engine == "torch" else logits
    with pytest.raises(ValueError, match="first in row 2500"):
        gamma_path(logits, np.zeros(3000, int), [3, 2, 1], engine=engine)


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_a_value_that_is_not_a_probability_is_named_by_its_row(engine):
    values = np.full((3000, 3), 1 / 3)
    values[2500] = -1, 2, 0
    values = torch.from_numpy(values) if engine == "torch" else values
    with pytest.raises(ValueError, match="expected probabilities, from 0 to 1, got -1 in row 2500"):
        gamma_path(
            values,
            np.zeros(3000, int),
            [3, 2, 1],
            rule="shift",
            kind="probabilities",
            engine=engine,
        )


def test_a_sum_that_overflows_is_not_an_error():
    logits = np.full((2, 4), 3e38, np.float32)
    assert gamma_path(logits, np.array([0, 1]), [4, 4, 4, 4]).error.tolist() == [0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "scale"}, "rule: expected 'shift', 'rescale' or 'tau'"),
        ({"rule": "tau"}, "rule: 'tau' needs the weight norms"),
        ({"rule": Rescale(norms=[1, 1, 1])}, "norms: only the rule tau uses them"),
        ({"rule": Tau(norms=[1, 0, 1])}, "norms: expected positive numbers, got 0 for class 1"),
        ({"rule": Shift(bias=[0, 0, 0])}, "bias: .* the rule shift scales none"),
        ({"rule": Rescale(bias=[0, 0])}, r"bias: expected numbers \[3\]"),
        ({"range": (1, 1)}, "range: expected"),
        ({"range": (0, np.inf)}, "range: expected"),
        ({"k": 3}, "k: expected a whole number from 1 to 2"),
        ({"weights": [1, 2]}, r"weights: expected numbers \[4\]"),
        ({"target": [1, -1, 1]}, "target: expected shares, none negative"),
        ({"kind": "probabilities"}, "use 'shift'"),
        ({"engine": "fortran"}, "engine: expected 'auto'"),
        ({"engine": "torch"}, "engine: 'torch' needs a tensor"),
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
    rule = find_path_rule("rescale").direction(np.array([7, 3, 7, 3, 21]))
    assert rule.slopes[0] == rule.slopes[2]
    assert rule.slopes[1] == rule.slopes[3]


@pytest.mark.parametrize("reach", [(-2.0, 2.0), (-1.0, 4.0), (0.0, 2.0)])
def test_a_kept_bias_is_solved_on_ranges_whose_floats_are_more_than_an_integer_counts(reach):
    rng = np.random.default_rng(0)
    logits, labels, counts = (
        rng.normal(2, 2, size=(300, 5)),
        rng.integers(0, 5, 300),
        [400, 90, 30, 30, 4],
    )
    path = gamma_path(logits, labels, counts, range=reach, rule=Rescale(bias=rng.normal(size=5)))
    for gamma in np.linspace(*reach, 41):
        assert np.array_equal(path.right(gamma), path.predictions(gamma) == labels)


def test_a_kept_bias_of_zero_changes_no_breakpoint():
    path = gamma_path(
        np.array([[4.0, 2.0]]),
        np.array([1]),
        [400, 100],
        range=(-2, 2),
        rule=Rescale(bias=np.zeros(2)),
    )
    np.testing.assert_allclose(path.gammas, [-2, 0.5])


@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_threads_that_share_the_rows_give_the_same_bits(rule, monkeypatch):
    rng = np.random.default_rng(0)
    logits, labels = (
        rng.normal(1, 2, size=(2001, 40)).astype(np.float32),
        rng.integers(40, size=2001),
    )
    counts = rng.integers(1, 1000, 40)
    alone = gamma_path(logits, labels, counts, engine="numpy", rule=rule)
    monkeypatch.setattr(engines, "_MANY_NUMBERS", 1)
    monkeypatch.setattr(engines, "usable_cores", lambda: 3)
    shared = gamma_path(logits, labels, counts, engine="numpy", rule=rule)
    assert np.array_equal(alone.lo, shared.lo)
    assert np.array_equal(alone.hi, shared.hi)


def test_the_engine_numba_warns_and_gives_what_numpy_gives():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(50, 4)), rng.integers(4, size=50), [40, 9, 3, 1]
    with pytest.warns(DeprecationWarning, match="runs 'numpy'") as seen:
        path = gamma_path(*data, engine="numba")  # pyright: ignore[reportArgumentType]
    assert seen[0].filename == __file__
    assert np.array_equal(path.lo, gamma_path(*data, engine="numpy").lo)
