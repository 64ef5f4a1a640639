"""RS and the shift after every epoch of a training."""

import numpy as np
import pytest

pytest.importorskip("torch")

from bench.paper import rule_epochs as bench
from levelhead_lab.runs.run import run
from levelhead_lab.runs.spec import Spec


def test_errors_of_both_rules_are_those_of_the_adjusted_logits():
    rng = np.random.default_rng(0)
    labels, counts = rng.integers(4, size=300), np.array([100, 40, 20, 5])
    logits = rng.normal(size=(300, 4)) + 2 * np.eye(4)[labels] + np.log(counts)
    errors = bench.errors_by_rule(logits, labels, counts)
    for at in (0, 7, 20):
        scaled = logits * (100 / counts) ** bench.STRENGTHS["rescale"][at]
        moved = logits + bench.STRENGTHS["shift"][at] * np.log(100 / counts)
        for rule, scores in (("rescale", scaled), ("shift", moved)):
            assert errors[rule]["curve"][at] == pytest.approx(
                (scores.argmax(axis=1) != labels).mean(), abs=1e-4
            )
            assert errors[rule]["error"] <= errors[rule]["curve"][at]
    assert errors["error"] == errors["rescale"]["curve"][0]


@pytest.mark.slow
def test_the_last_epoch_is_that_of_the_run_itself(tmp_path):
    spec = Spec("digits", method="wvn", profile="long-tail", ratio=10, epochs=4, engine="fast")
    (entry,) = bench.measure_epochs([spec], device="cpu")
    assert [row["epoch"] for row in entry["epochs"]] == [3, 4]
    trained = run(spec, tmp_path, device="cpu")
    assert entry["epochs"][-1]["error"] == pytest.approx(trained.result["test_error"], abs=1e-4)
    assert entry["data_sha256"]["train"] == trained.facts["split_sha256"]["train"]
