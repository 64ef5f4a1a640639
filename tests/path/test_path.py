"""The path as a whole: its curves against a grid, and what it promises to be unmoved by."""

import copy
import pickle
import subprocess
import sys
import textwrap
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import levelhead as lh
from levelhead import gamma_path, measure
from levelhead.choice.resample import draw_resamples
from levelhead.choice.tune import tune_path
from levelhead.core.rules import find_path_rule
from levelhead.path.curve import Curve, ascending
from levelhead.path.envelope import compute_envelope

GRID = np.linspace(0, 2, 41)


@st.composite
def cases(draw, ties=True):
    """Logits, labels and counts; with ties, or of random values that have none."""
    classes, n = draw(st.integers(2, 7)), draw(st.integers(1, 12))
    if ties:
        logits = draw(hnp.arrays(np.float32, (n, classes), elements=st.floats(-4, 4, width=16)))
        assume(
            (logits < 0).any() or (logits > 1).any()
        )  # else they may look like probabilities, which are refused
    else:
        logits = np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=(n, classes))
    labels = draw(hnp.arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    return logits, labels, draw(hnp.arrays(np.int64, classes, elements=st.integers(1, 300)))


def sample_case(n=400, classes=6, seed=0):
    rng = np.random.default_rng(seed)
    labels, counts = rng.integers(0, classes, n), lh.counts.long_tail(500, classes, 100)
    return rng.normal(size=(n, classes)) + 2 * np.eye(classes)[labels], labels, counts


def scores(logits, counts, gamma):
    return logits.astype(np.float64) * (counts.max() / counts) ** gamma


@given(cases(ties=False))
@settings(max_examples=40, deadline=None)
def test_the_curves_equal_the_grid_wherever_the_grid_is(case):
    logits, labels, counts = case
    path = gamma_path(logits, labels, counts)
    for gamma in GRID:
        at = scores(logits, counts, gamma)
        assert path.error_curve.at(gamma) == pytest.approx(measure.error(at, labels), abs=1e-12)
        assert path.balanced_error_curve.at(gamma) == pytest.approx(
            measure.balanced_error(at, labels), abs=1e-12
        )
        np.testing.assert_allclose(path.class_accuracy(gamma), measure.recall(at, labels))
        assert np.array_equal(path.predictions(gamma), at.argmax(axis=1))
        assert np.array_equal(path.envelope.predictions(gamma), at.argmax(axis=1))
        assert np.array_equal(path.confusion(gamma), measure.confusion(at, labels))


@given(cases())
@settings(max_examples=40, deadline=None)
def test_every_breakpoint_is_one_and_nothing_changes_between_them(case):
    path = gamma_path(*case)
    inner = path.gammas[1:]
    for before, at in zip(np.nextafter(inner, -np.inf), inner, strict=True):
        assert not np.array_equal(path.right(before), path.right(at))
    for a, b in pairwise(np.append(path.gammas, 2.0)):
        last = b if b == 2.0 else np.nextafter(b, -np.inf)
        assert np.array_equal(path.right(a), path.right(max(a, last)))


@given(cases(), st.integers(0, 12), st.sampled_from([1, 2]))
@settings(max_examples=40, deadline=None)
def test_merging_samples_equals_the_whole(case, cut, k):
    logits, labels, counts = case
    k, cut = min(k, len(counts) - 1), min(cut, len(labels) - 1)
    whole = gamma_path(logits, labels, counts, k=k)
    if cut == 0:
        return
    assume(not any(measure.looks_like_probabilities(part) for part in (logits[:cut], logits[cut:])))
    head, tail = (
        gamma_path(logits[part], labels[part], counts, k=k)
        for part in (slice(cut), slice(cut, None))
    )
    merged = head.merge(tail)
    for name in ("sample", "lo", "hi", "gammas", "error", "balanced_error"):
        assert np.array_equal(getattr(merged, name), getattr(whole, name)), name
    assert np.array_equal(merged.predictions(0.7), whole.predictions(0.7))
    assert np.array_equal(merged.envelope.predictions(0.7), whole.envelope.predictions(0.7))


@given(cases(), st.integers(1, 6))
@example((np.array([[0, 1, 2]], np.float32), np.array([0]), np.array([3, 2, 1])), 2)
@settings(max_examples=40, deadline=None)
def test_merging_class_shards_equals_the_whole(case, cut):
    logits, labels, counts = case
    cut = min(cut, len(counts) - 1)
    true = logits[np.arange(len(labels)), labels]
    whole, parts = gamma_path(logits, labels, counts), []
    for columns in np.split(np.arange(len(counts)), [cut]):
        with pytest.warns(DeprecationWarning, match="logits of all classes"):
            parts.append(gamma_path(logits[:, columns], labels, counts, shard=(columns, true)))
    with pytest.warns(DeprecationWarning, match="logits of all classes"):
        merged = parts[0].merge_classes(parts[1])
    assert np.array_equal(merged.lo, whole.lo)
    assert np.array_equal(merged.hi, whole.hi)
    with pytest.raises(ValueError, match="has no logits"):
        merged.predictions(0.5)


@given(cases(ties=False), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_permuting_classes_or_samples_changes_nothing(case, random):
    logits, labels, counts = case
    path = gamma_path(logits, labels, counts)
    classes, samples = (np.array(random.sample(range(n), n)) for n in (len(counts), len(labels)))
    of_classes = gamma_path(logits[:, classes], np.argsort(classes)[labels], counts[classes])
    of_samples = gamma_path(logits[samples], labels[samples], counts)
    for other in (of_classes, of_samples):
        for gamma in GRID:
            assert other.error_curve.at(gamma) == pytest.approx(
                path.error_curve.at(gamma), abs=1e-12
            )
            assert other.balanced_error_curve.at(gamma) == pytest.approx(
                path.balanced_error_curve.at(gamma), abs=1e-12
            )


@given(cases(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_weight_of_two_equals_the_sample_twice(case, data):
    logits, labels, counts = case
    times = data.draw(hnp.arrays(np.int64, len(labels), elements=st.integers(1, 3)))
    weighted = gamma_path(logits, labels, counts, weights=times)
    repeated = gamma_path(logits.repeat(times, axis=0), labels.repeat(times), counts)
    assert np.array_equal(weighted.gammas, repeated.gammas)
    np.testing.assert_allclose(weighted.error, repeated.error, atol=1e-12)
    np.testing.assert_allclose(weighted.balanced_error, repeated.balanced_error, atol=1e-12)
    np.testing.assert_allclose(weighted.confusion(0.5), repeated.confusion(0.5))


def test_a_target_weighs_the_classes():
    logits, labels, counts = sample_case()
    target = np.array([6, 1, 1, 1, 1, 0.0])
    path = gamma_path(logits, labels, counts, target=target)
    want = 1 - (target / target.sum()) @ measure.recall(scores(logits, counts, 0.4), labels)
    assert path.balanced_error_curve.at(0.4) == pytest.approx(want)


def test_a_class_without_samples_is_left_out():
    logits, labels, counts = sample_case()
    labels = np.where(labels == 3, 0, labels)
    point = gamma_path(logits, labels, counts).at(0.4)
    assert np.isnan(point.class_accuracy[3])
    assert point.balanced_error == pytest.approx(
        measure.balanced_error(scores(logits, counts, 0.4), labels)
    )


def test_the_best_point_is_the_middle_of_the_widest_best_plateau():
    path = gamma_path(*sample_case())
    for metric in ("error", "balanced_error"):
        best = path.best(metric)
        a, b = best.plateau
        assert a <= best.gamma <= b
        assert best.gamma == pytest.approx((a + b) / 2)
        values = [getattr(path.at(g), metric) for g in np.linspace(0, 2, 2001)]
        assert getattr(best, metric) <= min(values) + 1e-12
        curve = getattr(path, f"{metric}_curve")
        assert curve.at(np.linspace(a, np.nextafter(b, 0), 50)) == pytest.approx(
            getattr(best, metric)
        )
        for outside in (np.nextafter(a, -1), b):
            assert not 0 <= outside <= 2 or curve.at(outside) > getattr(best, metric) + 1e-13
    with pytest.raises(ValueError, match="metric: expected"):
        path.best("accuracy")


def test_a_plateau_reaches_over_changes_that_cancel():
    curve = Curve(np.array([0.0, 0.2, 0.5, 0.9, 1.0]), np.array([0.3, 0.1, 0.1, 0.2, 0.1]), 1.2)
    assert curve.plateau() == (0.2, 0.9)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_gammas_are_put_in_order_whatever_their_last_bits(n):
    gammas = np.random.default_rng(0).uniform(0, 2, n)
    twins = np.repeat(gammas, 2)
    twins[::2] = np.nextafter(twins[::2], 3)
    for values in (gammas, -gammas, gammas - 1, twins, np.zeros(n)):
        assert np.array_equal(values[ascending(values)], np.sort(values))
        assert np.array_equal(np.sort(ascending(values)), np.arange(len(values)))


def test_group_and_class_curves_agree_with_the_points():
    path = gamma_path(*sample_case(classes=8))
    for gamma in (0.0, 0.33, 1.2):
        point = path.at(gamma)
        assert {name: curve.at(gamma) for name, curve in path.groups.items()} == pytest.approx(
            point.groups
        )
        assert [path.class_curve(i).at(gamma) for i in range(8)] == pytest.approx(
            point.class_accuracy.tolist()
        )
    np.testing.assert_allclose(path.class_accuracy(GRID)[7], path.class_accuracy(GRID[7]))
    some = slice(None, None, max(1, len(path.gammas) // 20))
    np.testing.assert_allclose(
        path.class_accuracy()[some], path.class_accuracy(path.gammas[some]), atol=1e-12
    )


def test_shares_are_the_mean_over_true_classes():
    logits, labels, counts = sample_case(n=300)
    path = gamma_path(logits, labels[:300], counts)
    table = measure.confusion(scores(logits, counts, 0.4), labels)
    want = (table / table.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(path.shares(0.4), want)
    assert path.share_mismatch().at(0.4) == pytest.approx(np.abs(want - 1 / 6).sum() / 2)


def test_an_envelope_needs_no_labels():
    logits, _, counts = sample_case(n=300)
    changes = compute_envelope(logits, find_path_rule("rescale").direction(counts), (0.0, 2.0))
    for gamma in GRID:
        want = scores(logits, counts, gamma).argmax(axis=1)
        assert np.array_equal(changes.predictions(gamma), want)
        share = np.bincount(want, minlength=6) / 300
        assert changes.mismatch().at(gamma) == pytest.approx(
            np.abs(share - 1 / 6).sum() / 2, abs=1e-12
        )


def test_bootstrap_curves_are_curves_of_resamples():
    logits, labels, counts = sample_case(n=60)
    path = gamma_path(logits, labels, counts)
    for stratified in (True, False):
        curves = path.bootstrap(3, np.random.default_rng(5), stratified=stratified)
        drawn = list(draw_resamples(labels, 3, np.random.default_rng(5), stratified=stratified))
        for curve, times in zip(curves, drawn, strict=True):
            times = times.astype(int)
            assert times.sum() == 60
            if stratified:
                assert np.array_equal(np.bincount(labels, times), np.bincount(labels))
            again = gamma_path(logits.repeat(times, axis=0), labels.repeat(times), counts)
            np.testing.assert_allclose(
                curve, again.balanced_error_curve.at(path.gammas), atol=1e-12
            )


def test_bootstrap_on_given_gammas_and_of_the_error():
    path = gamma_path(*sample_case())
    every = path.bootstrap(4, np.random.default_rng(0), metric="error")
    some = path.bootstrap(4, np.random.default_rng(0), metric="error", gammas=GRID)
    at = np.searchsorted(path.gammas, GRID, side="right") - 1
    np.testing.assert_allclose(some, every[:, at], atol=1e-12)
    assert path.bootstrap(300, np.random.default_rng(1), gammas=GRID).mean(axis=0) == pytest.approx(
        path.balanced_error_curve.at(GRID), abs=0.01
    )


def test_a_binary_head_of_opposite_logits_never_changes_its_mind():
    z = np.random.default_rng(0).normal(size=(50, 1))
    path = gamma_path(np.hstack([-z, z]), np.arange(50) % 2, [90, 10])
    assert path.gammas.tolist() == [0.0]
    assert (
        len(gamma_path(np.hstack([-z, z]), np.arange(50) % 2, [90, 10], rule="shift").gammas) > 10
    )


def test_paths_that_do_not_fit_are_not_merged():
    logits, labels, counts = sample_case()
    path = gamma_path(logits, labels, counts)
    for other in (
        gamma_path(logits, labels, counts, range=(0, 1)),
        gamma_path(logits, labels, counts[::-1]),
        gamma_path(logits, labels, counts, rule="shift"),
        gamma_path(logits, labels, counts, k=2),
    ):
        with pytest.raises(ValueError, match="expected paths over the same"):
            path.merge(other)
    with (
        pytest.raises(ValueError, match="same samples"),
        pytest.warns(DeprecationWarning, match="merge"),
    ):
        path.merge_classes(replace(path, labels=labels[::-1]))
    with pytest.raises(ValueError, match="gamma: expected a value within"):
        path.right(2.5)


def test_progress_is_reported():
    seen = []
    logits, labels, counts = sample_case()
    gamma_path(logits, labels, counts, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (400, 400)


@pytest.mark.slow
def test_a_file_larger_than_the_memory_allowed_is_streamed(tmp_path):
    """300 MB of logits, and at most 150 MB more than the interpreter and the libraries take."""
    code = """
        import re, sys
        from pathlib import Path
        import numpy as np
        from levelhead import gamma_path
        def most():
            return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
        logits, start = np.load(sys.argv[1], mmap_mode="r"), most()
        labels = np.arange(len(logits)) % logits.shape[1]
        path = gamma_path(logits, labels, np.arange(1, logits.shape[1] + 1), engine="numpy")
        assert len(path.gammas) > 50
        print(most() - start)
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("the most memory ever held is read from /proc")
    file = np.lib.format.open_memmap(tmp_path / "logits.npy", "w+", np.float32, (150_000, 500))
    file[:] = np.random.default_rng(0).normal(size=500)
    file[:, 0] = np.random.default_rng(1).normal(size=150_000)
    file.flush()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "logits.npy")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert file.nbytes == 300_000_000
    assert float(done.stdout) < 150


def test_a_pickled_path_keeps_its_curves_and_leaves_its_logits():
    logits, labels, counts = sample_case(n=300, classes=60)
    path = gamma_path(logits, labels, counts, weights=np.arange(1, 301))
    _ = path.envelope, path.error_curve
    data = pickle.dumps(path)
    assert len(data) < logits.nbytes / 10
    again = pickle.loads(data)
    for name in ("gammas", "error", "balanced_error"):
        assert np.array_equal(getattr(again, name), getattr(path, name))
    assert again.best().gamma == path.best().gamma
    assert np.array_equal(again.bootstrap(2, 0), path.bootstrap(2, 0))
    for needs_logits in (
        lambda: again.predictions(0.5),
        lambda: again.envelope,
        lambda: tune_path(replace(again, weights=None)),
    ):
        with pytest.raises(
            lh.LevelheadError, match="this path has no logits: they are not pickled"
        ):
            needs_logits()
    assert np.array_equal(copy.deepcopy(path).predictions(0.5), path.predictions(0.5))
    assert np.array_equal(copy.copy(path).predictions(0.5), path.predictions(0.5))


@given(cases(), st.floats(0.05, 1.9))
@settings(max_examples=40, deadline=None)
def test_a_path_within_a_part_of_its_range_is_the_path_computed_there(case, high):
    logits, labels, counts = case
    for rule in ("rescale", "shift"):
        wide, narrow = (
            gamma_path(logits, labels, counts, rule=rule, range=(0.0, end)) for end in (2.0, high)
        )
        cut = replace(wide, changes=wide.envelope).within((0.0, high))
        for name in ("sample", "lo", "hi"):
            assert np.array_equal(getattr(cut, name), getattr(narrow, name)), name
        orders = [
            np.lexsort((changes.sample, changes.gamma))
            for changes in (cut.envelope, narrow.envelope)
        ]
        assert np.array_equal(cut.envelope.start, narrow.envelope.start)
        for name in ("sample", "gamma", "new_class", "old_class"):
            mine, theirs = (getattr(path.envelope, name) for path in (cut, narrow))
            assert np.array_equal(mine[orders[0]], theirs[orders[1]]), name


@pytest.mark.parametrize(
    ("option", "instead"),
    [("norms", "Tau"), ("bias", "Rescale"), ("ignore_index", "labels of -100")],
)
def test_an_old_option_still_works_and_says_what_to_use(option, instead):
    logits, labels, counts = sample_case()
    values = np.linspace(1.0, 2.0, len(counts))
    given = {
        "norms": {"rule": "tau", "norms": values},
        "bias": {"bias": values},
        "ignore_index": {"ignore_index": -1},
    }
    made = {
        "norms": lh.rules.Tau(norms=values),
        "bias": lh.rules.Rescale(bias=values),
        "ignore_index": "rescale",
    }
    with pytest.warns(DeprecationWarning, match=instead):
        old = gamma_path(logits, labels, counts, **given[option])
    assert np.array_equal(old.gammas, gamma_path(logits, labels, counts, rule=made[option]).gammas)


LOWEST = [-np.inf, float(np.finfo(np.float32).min), float(np.finfo(np.float64).min)]


def masked_case(mask, classes, dtype=np.float64):
    """Logits of which about one in four is masked, true classes among them, and no whole row; labels and counts."""
    logits, labels, counts = sample_case(classes=classes)
    masked = np.random.default_rng(1).random(logits.shape) < 0.25
    masked[:, 1] &= ~masked.all(axis=1)
    with np.errstate(over="ignore"):
        return np.where(masked, mask, logits).astype(dtype), labels, counts, masked


@pytest.mark.parametrize("mask", LOWEST)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [6, 40])
@pytest.mark.parametrize("rule", ["rescale", "shift"])
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_masked_scores_win_nowhere_on_the_path(mask, dtype, classes, rule, engine):
    logits, labels, counts, masked = masked_case(mask, classes, dtype)
    given = torch.from_numpy(logits) if engine == "torch" else logits
    path = gamma_path(given, labels, counts, rule=rule, engine=engine)
    for gamma in [0.0, 0.31, 0.77, 1.234, 1.99]:
        ratio, plain = counts.max() / counts, np.where(masked, 0, logits).astype(np.float64)
        adjusted = plain * ratio**gamma if rule == "rescale" else plain + gamma * np.log(ratio)
        winners = np.where(masked, -np.inf, adjusted).argmax(axis=1)
        assert np.array_equal(path.right(gamma), winners == labels)
        assert np.array_equal(path.predictions(gamma), winners)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_other_values_that_are_not_finite_are_refused_beside_masks(bad, engine):
    logits, labels, counts, _ = masked_case(-np.inf, 6)
    for row, values in ((7, bad), (9, -np.inf)):
        spoilt = logits.copy()
        spoilt[row] = values
        with pytest.raises(lh.LevelheadError, match=f"NaN or infinite values, first in row {row}"):
            gamma_path(
                torch.from_numpy(spoilt) if engine == "torch" else spoilt,
                labels,
                counts,
                engine=engine,
            )
