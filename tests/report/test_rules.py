"""Every rule on the page: exact on its slider, with what was chosen, why, and code that applies it."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead import tune
from levelhead.report import of_logits
from levelhead.report.rule_view import RuleView
from levelhead.report.share_path import compute_share_envelope

from . import made

COUNTS = np.array([400, 120, 50, 20, 8])


def samples(each: int = 60, noise: float = 1.3) -> tuple[np.ndarray, np.ndarray]:
    return made.logits_of(COUNTS, each, noise=noise)


@pytest.mark.parametrize("seed", range(4))
def test_every_change_on_the_way_to_numbers_for_each_class_is_found(seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(300, 7)) * 3
    scale, offset = rng.uniform(0.2, 3, 7), rng.normal(size=7) * 2
    found = compute_share_envelope(logits, scale, offset)
    middle = np.exp(np.log(scale).mean())
    assert found.range == (0.0, 1.5)
    for share in (0.0, 1.0, 1.5, *rng.uniform(0, 1.5, 40)):
        scores = ((1 - share) * middle + share * scale) * logits + share * offset
        assert (found.predictions(share) == scores.argmax(axis=1)).all()
    assert (np.diff(found.gamma) >= 0).all()


def test_auto_is_what_the_page_chooses_and_every_rule_of_one_strength_can_be_looked_at():
    logits, labels = samples()
    subject = of_logits(logits, labels, COUNTS, bootstrap=30)
    tuned = tune(logits, labels, COUNTS, bootstrap=30)
    assert subject.choice == tuned.to_dict()
    assert subject.views[0].rule == tuned.rule
    assert {view.rule for view in subject.views} >= {"shift", "rescale"}
    for view in subject.views:
        tried = next(one for one in tuned.candidates if one.rule == view.rule)
        assert view.gamma == (tried.gamma if tried.second is None else 1.0)


@pytest.mark.parametrize("rule", ["shift", "rescale", "rescale+shift", "vector"])
def test_each_view_predicts_what_the_rule_predicts(rule):
    logits, labels = samples()
    tuned = tune(logits, labels, COUNTS, rule=rule, bootstrap=10)
    view: RuleView = of_logits(logits, labels, COUNTS, tuned=tuned).views[0]
    rarity = COUNTS.max() / COUNTS
    scores = {
        "shift": lambda: logits + tuned.gamma * np.log(rarity),
        "rescale": lambda: logits * rarity**tuned.gamma,
    }.get(rule, lambda: logits * np.array(tuned.scale) + np.array(tuned.offset))()
    assert view.rule == rule
    assert (view.changes.predictions(view.gamma) == scores.argmax(axis=1)).all()
    assert (view.path.right(view.gamma) == (scores.argmax(axis=1) == labels)).all()
    assert view.path.at(view.gamma).balanced_error == pytest.approx(tuned.balanced_error)
    scale, offset = view.parts(view.gamma)
    assert ((logits * scale + offset).argmax(axis=1) == scores.argmax(axis=1)).all()
    assert view.path.at(0.0).error == pytest.approx((logits.argmax(axis=1) != labels).mean())
