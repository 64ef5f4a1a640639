"""Functions that use levelhead, and its public names, go to other processes by pickle and joblib (hosts: by Ray)."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

import levelhead as lh
from levelhead.support.errors import Advice

LOGITS = np.random.default_rng(0).normal(2, 1, size=(50, 2)) * [1.0, 0.6]
LABELS = np.arange(50) % 2
COUNTS = [10, 5]


def best_gamma(logits, labels) -> float:
    return lh.gamma_path(logits, labels, COUNTS).best().gamma


def in_fresh_process(payload: bytes, expression: str) -> str:
    """Unpickle in a new interpreter, and return what the expression of `value` prints there."""
    code = f"import pickle, sys\nvalue = pickle.loads(sys.stdin.buffer.read())\nprint({expression})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=payload,
        capture_output=True,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_every_public_name_but_the_modules_survives_pickle():
    values = {name: getattr(lh, name) for name in lh.__all__}
    plain = {
        name: value for name, value in values.items() if not isinstance(value, ModuleType | dict)
    }
    assert [
        name for name, value in plain.items() if pickle.loads(pickle.dumps(value)) is not value
    ] == []


@pytest.mark.slow
def test_every_public_name_survives_cloudpickle():
    cloudpickle = pytest.importorskip("cloudpickle")
    names = sorted(lh.__all__)
    payload = cloudpickle.dumps({name: getattr(lh, name) for name in names})
    assert in_fresh_process(payload, "sorted(value)") == str(names)


def test_a_lambda_that_uses_lh_works_in_a_fresh_process():
    cloudpickle = pytest.importorskip("cloudpickle")
    payload = cloudpickle.dumps((lambda a, b: lh.gamma_path(a, b, [10, 5]), LOGITS, LABELS))
    gamma = in_fresh_process(payload, "value[0](value[1], value[2]).best().gamma")
    assert float(gamma) == best_gamma(LOGITS, LABELS)


def test_the_package_itself_survives_cloudpickle():
    cloudpickle = pytest.importorskip("cloudpickle")
    assert cloudpickle.loads(cloudpickle.dumps(lh)) is lh
    assert in_fresh_process(cloudpickle.dumps(lh), "value.tune.__name__") == "tune"


def test_joblib_runs_a_function_that_uses_lh():
    joblib = pytest.importorskip("joblib")
    jobs = [
        joblib.delayed(lambda logits: lh.gamma_path(logits, LABELS, COUNTS).best().gamma)(
            scale * LOGITS
        )
        for scale in (1, 2)
    ]
    assert joblib.Parallel(n_jobs=2, backend="loky")(jobs) == [best_gamma(LOGITS, LABELS)] * 2


def test_a_choice_survives_pickle():
    tuned = lh.tune(LOGITS, LABELS, COUNTS)
    same = pickle.loads(pickle.dumps(tuned))
    assert same.to_dict() == tuned.to_dict()
    np.testing.assert_array_equal(same.apply(LOGITS), tuned.apply(LOGITS))


def test_an_error_keeps_its_parameter_and_advice():
    error = lh.LevelheadError(
        "no bias", parameter="rule", advice=Advice("rule", "rescale", "instead")
    )
    same = pickle.loads(pickle.dumps(error))
    assert (str(same), same.message, same.parameter, same.advice) == (
        str(error),
        error.message,
        error.parameter,
        error.advice,
    )


def test_a_path_leaves_its_logits_behind():
    logits = np.random.default_rng(0).normal(2, 1, size=(20_000, 10))
    path = lh.gamma_path(logits, np.arange(20_000) % 10, np.arange(10, 0, -1))
    payload = pickle.dumps(path)
    same = pickle.loads(payload)
    assert len(payload) < logits.nbytes
    assert same.best().gamma == path.best().gamma
    np.testing.assert_array_equal(same.gammas, path.gammas)
