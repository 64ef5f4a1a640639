"""Logits at the ends of what their type holds: the smallest numbers there are, and large ones in half precision."""

import time

import numpy as np
import pytest

import levelhead as lh

pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")

CLASSES = 6
COUNTS = [1000, 300, 100, 30, 10, 3]
RNG = np.random.default_rng(0)
LABELS = RNG.integers(CLASSES, size=1000)
DENORMAL = {
    "all": RNG.integers(0, 20, size=(1000, CLASSES)) * 5e-324,
    "few": np.where(RNG.random((1000, CLASSES)) < 0.01, 5e-324, 0.0),
    "of the class": 5e-324 * np.eye(CLASSES)[LABELS],
    "negative": RNG.integers(-20, 0, size=(1000, CLASSES)) * 5e-324,
    "in float32": (RNG.integers(0, 20, size=(1000, CLASSES)) * 1e-45).astype(np.float32),
}


@pytest.mark.parametrize("name", DENORMAL)
@pytest.mark.parametrize("rule", lh.rules.RULES)
def test_denormal_logits_are_tuned_in_no_time(name, rule):
    norms = np.linspace(1, 3, CLASSES)
    began = time.process_time()
    tuned = lh.tune(DENORMAL[name], LABELS, COUNTS, rule=lh.rules.RULES[rule].with_norms(norms))
    assert np.isfinite(tuned.apply(DENORMAL[name])).all()
    assert np.isfinite(tuned.gain)
    assert time.process_time() - began < 10  # it was 40 s, for a few thousand samples


@pytest.mark.parametrize("name", DENORMAL)
def test_denormal_logits_have_a_path_and_a_temperature(name):
    path = lh.gamma_path(DENORMAL[name], LABELS, COUNTS)
    assert 0 <= path.best().value <= 1
    assert np.isfinite(lh.measure.fit_temperature(DENORMAL[name], LABELS))
    assert np.isfinite(lh.tune_unlabelled(DENORMAL[name]).adjustment.offset).all()


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
def test_large_logits_in_half_precision_are_measured_as_in_double(temperature):
    logits = (4000 * np.eye(CLASSES)[LABELS] + 100 * RNG.normal(size=(1000, CLASSES))).astype(
        np.float16
    )
    wide = logits.astype(np.float64)
    for of in (lh.measure.negative_log_likelihood, lh.measure.calibration_error):
        assert of(logits, LABELS, temperature=temperature) == of(
            wide, LABELS, temperature=temperature
        )
    half, double = lh.measure.measure(logits, LABELS), lh.measure.measure(wide, LABELS)
    assert half.calibration_error == double.calibration_error
    assert lh.measure.fit_temperature(logits, LABELS) == pytest.approx(
        lh.measure.fit_temperature(wide, LABELS), rel=1e-6
    )
