"""The path as a whole: its curves against a grid, and what it promises to be unmoved by."""

import copy
import pickle
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import levelhead as lh
from levelhead import gamma_path, measure
from levelhead.core.gamma_path import find_path_rule
from levelhead.path.curve import Curve, ascending
from levelhead.path.walk import compute_envelope
from levelhead.support.logits import are_log_probabilities

GRID = np.linspace(0, 2, 41)


@st.composite
def cases(draw, ties=True):
    """Logits, labels and counts; with ties, or of random values that have none."""
    classes, n = draw(st.integers(2, 7)), draw(st.integers(1, 12))
    if ties:
        logits = draw(hnp.arrays(np.float32, (n, classes), elements=st.floats(-4, 4, width=16)))
        # Else they may look like probabilities or logarithms of these, which are refused.
        assume((logits < 0).any() or (logits > 1).any())
        assume(not are_log_probabilities(logits))
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


@given(cases(), st.floats(0.05, 1.9))
@settings(max_examples=40, deadline=None)
def test_a_path_over_a_part_of_the_range_has_the_changes_of_that_part(case, high):
    logits, labels, counts = case
    for rule in ("rescale", "shift"):
        wide, narrow = (
            gamma_path(logits, labels, counts, rule=rule, range=(0.0, end)).changes
            for end in (2.0, high)
        )
        inside = wide.gamma <= high
        assert np.array_equal(wide.start, narrow.start)
        for name in ("sample", "gamma", "new_class", "old_class"):
            mine = getattr(wide, name)[inside][
                np.lexsort((wide.sample, wide.gamma))[: inside.sum()]
            ]
            theirs = getattr(narrow, name)[np.lexsort((narrow.sample, narrow.gamma))]
            assert np.array_equal(mine, theirs), name


def test_a_target_weighs_the_classes():
    logits, labels, counts = sample_case()
    target = np.array([6, 1, 1, 1, 1, 0.0])
    path = gamma_path(logits, labels, counts, target=target)
    want = 1 - (target / target.sum()) @ measure.recall(scores(logits, counts, 0.4), labels)
    assert path.balanced_error_curve.at(0.4) == pytest.approx(want)
    assert path.curve_of("balanced_error").at(0.4) == pytest.approx(want)


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
        path.best("auc")


def test_a_plateau_reaches_over_changes_that_cancel():
    curve = Curve(np.array([0.0, 0.2, 0.5, 0.9, 1.0]), np.array([0.3, 0.1, 0.1, 0.2, 0.1]), 1.2)
    assert curve.plateau() == (0.2, 0.9)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_gammas_are_put_in_order_whatever_their_last_bits(n):
    gammas = np.random.default_rng(0).uniform(0, 2, n)
    twins = np.repeat(gammas, 2)
    twins[::2] = np.nextafter(twins[::2], 3)
    for values in (gammas, -gammas, gammas - 1, twins, np.zeros(n)):
        assert np.array_equal(ascending(values), np.argsort(values, kind="stable"))


def test_group_and_class_curves_agree_with_the_points():
    path = gamma_path(*sample_case(classes=8))
    for gamma in (0.0, 0.33, 1.2):
        point = path.at(gamma)
        recall = np.array([path.class_curve(i).at(gamma) for i in range(8)])
        assert recall.tolist() == pytest.approx(point.class_accuracy.tolist())
        for name, classes in lh.counts.groups(path.counts).items():
            if len(classes):
                assert point.groups[name] == pytest.approx(recall[classes].mean())


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


def test_a_binary_head_of_opposite_logits_never_changes_its_mind():
    z = np.random.default_rng(0).normal(size=(50, 1))
    logits = np.hstack([-z, z])
    assert gamma_path(logits, np.arange(50) % 2, [90, 10]).gammas.tolist() == [0.0]
    assert len(gamma_path(logits, np.arange(50) % 2, [90, 10], rule="shift").gammas) > 10


def test_outside_the_range_predictions_need_the_logits_and_the_rest_is_refused():
    logits, labels, counts = sample_case()
    path = gamma_path(logits, labels, counts)
    want = scores(logits, counts, 2.5).argmax(axis=1)
    assert np.array_equal(path.predictions(2.5), want)
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
        path = gamma_path(logits, labels, np.arange(1, logits.shape[1] + 1))
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
    logits, labels, counts = sample_case(n=300, classes=600)
    path = gamma_path(logits, labels, counts)
    _ = path.error_curve
    data = pickle.dumps(path)
    assert len(data) < logits.nbytes / 10
    again = pickle.loads(data)
    for name in ("gammas", "error", "balanced_error"):
        assert np.array_equal(getattr(again, name), getattr(path, name))
    assert again.best().gamma == path.best().gamma
    assert np.array_equal(again.predictions(0.5), path.predictions(0.5))
    with pytest.raises(lh.LevelheadError, match="this path has no logits: they are not pickled"):
        again.predictions(2.5)
    assert np.array_equal(copy.deepcopy(path).predictions(0.5), path.predictions(0.5))
    assert np.array_equal(copy.copy(path).predictions(0.5), path.predictions(0.5))
