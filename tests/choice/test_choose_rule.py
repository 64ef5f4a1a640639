"""Whether the model stays as it is: by its own error on held-out samples, whatever the predicted shares are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelhead.choice.auto import choose_rule
from levelhead.choice.cross_fit import CrossFitted, Fitted
from levelhead.choice.paths import Paths
from levelhead.choice.samples import Samples, TuneOptions

LABELS = np.repeat([0, 1, 2], [40, 40, 8])
PLAIN = np.where(
    LABELS < 2, LABELS, 0
)  # right in the two large classes, never in the rare one: balanced error 1/3


@pytest.fixture
def cross_fitted() -> CrossFitted:
    samples = Samples.of(
        [(3 * np.eye(3)[PLAIN] - 1, LABELS, [400, 400, 80])], TuneOptions(bootstrap=0)
    )
    objective = Paths(samples).of("shift").objective(samples.options)
    return CrossFitted(samples, objective, {"none": PLAIN[None]}, {})


def _choose(crossed: CrossFitted, shifted: np.ndarray) -> str:
    fits = {"shift": Fitted(1.0, shifted)}
    return choose_rule(
        replace(crossed, predicted={**crossed.predicted, "shift": shifted[None]}), fits
    )[0]


def test_the_model_stays_as_it_is_where_a_rule_has_even_shares_and_more_errors(cross_fitted):
    order = np.arange(len(LABELS)) % 10
    shifted = np.where(
        order < 3, 2, LABELS
    )  # of the large classes 70 % right and the rest taken for the rare one
    shifted[LABELS == 2] = [2, 2, 0, 0, 0, 1, 1, 1]
    found = replace(cross_fitted, predicted={**cross_fitted.predicted, "shift": shifted[None]})
    assert found.loss("none") < found.loss("shift")
    assert found.criterion("none") > found.criterion("shift")
    assert _choose(cross_fitted, shifted) == "none"


def test_a_rule_is_taken_where_it_has_fewer_errors(cross_fitted):
    assert _choose(cross_fitted, np.where(np.arange(len(LABELS)) % 10 == 0, 2, LABELS)) == "shift"


def test_a_rule_stays_where_the_model_as_it_is_has_hardly_fewer_errors(cross_fitted):
    shifted = PLAIN.copy()
    shifted[0] = 2  # one error more, in a class of forty
    assert _choose(cross_fitted, shifted) == "shift"
