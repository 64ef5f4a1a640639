"""Every rule side by side: each is what `tune` gives, the best first, and what cannot act is said."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

import levelhead as lh
from levelhead.core.rules import RULES

from .made import COUNTS, calibrated

NORMS = [4.0, 3.0, 2.0, 1.0]
LOGITS, LABELS = calibrated(0, 600)
LOGITS = LOGITS + 8


def test_each_is_what_tune_gives_alone():
    table = lh.compare(LOGITS, LABELS, COUNTS, metric="macro_f1")
    assert set(table) == set(RULES) - {"tau"}
    for rule, tuned in table.items():
        assert (
            tuned.to_dict()
            == lh.tune(LOGITS, LABELS, COUNTS, metric="macro_f1", rule=rule).to_dict()
        )


def test_the_best_comes_first():
    table = lh.compare(LOGITS, LABELS, COUNTS)
    gains = [tuned.gain for tuned in table.values()]
    assert gains == sorted(gains, reverse=True)
    assert table.best is next(iter(table.values()))
    assert len(table) == len(gains)


def test_scaled_logits_are_best_scaled_back_and_shifted_ones_shifted_back():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 300)
    # The level of each sample differs, so that scaling and shifting are two things.
    level = rng.uniform(3, 12, size=(1200, 1))
    logits = level + 1.3 * rng.normal(size=(1200, 4)) + 2.0 * np.eye(4)[labels]
    scaled = lh.compare(logits * (COUNTS / 1000) ** 0.4, labels, COUNTS)
    shifted = lh.compare(logits + 0.9 * np.log(COUNTS / 1000), labels, COUNTS)
    assert scaled["rescale"].gain > scaled["shift"].gain + 0.02
    assert shifted["shift"].gain > shifted["rescale"].gain + 0.02
    assert shifted["shift"].strength == pytest.approx(0.9, abs=0.2)
    assert scaled["rescale"].strength == pytest.approx(0.4, abs=0.05)


def test_a_rule_that_cannot_act_is_left_out_and_it_is_said_why():
    table = lh.compare(LOGITS, LABELS, COUNTS)
    assert list(table.left_out) == ["tau"]
    assert "tau" in str(table)
    assert "not tried: 'tau' needs the weight norms of the head" in str(table)
    logs = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
    assert set(lh.compare(logs, LABELS, COUNTS)) == {"offsets", "shift", "scales", "vector"}


def test_columns_stand_below_each_other_whatever_rules_are_called():
    @dataclass(frozen=True, eq=False)
    class Renamed(lh.rules.Shift):
        name = "shift-by-another-name"

    table = lh.compare(LOGITS, LABELS, COUNTS, rules=["offsets", "rescale", Renamed()])
    assert len({line.index("balanced error") for line in str(table).splitlines()}) == 1


def test_the_rules_to_compare_may_be_named_or_given():
    chosen = lh.compare(
        LOGITS, LABELS, COUNTS, rules=["shift", lh.rules.Tau(norms=NORMS), lh.rules.Rescale(0.2)]
    )
    assert set(chosen) == {"shift", "tau", "rescale"}
    assert chosen["rescale"].strength == 0.2
    assert chosen.left_out == {}


def test_rules_of_one_name_are_told_apart_by_their_strengths():
    rules = [lh.rules.Rescale(0.1), lh.rules.Rescale(1.0), "rescale", "shift"]
    table = lh.compare(LOGITS, LABELS, COUNTS, rules=rules)
    assert set(table) == {"rescale 0.1", "rescale 1", "rescale", "shift"}
    assert table["rescale 0.1"].strength == 0.1
    assert table["rescale"].to_dict() == lh.tune(LOGITS, LABELS, COUNTS, rule="rescale").to_dict()
    lines = str(table).splitlines()
    assert len(lines) == 4
    assert len({line.index("balanced error") for line in lines}) == 1


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (["shift", lh.rules.Shift(range=(0, 8))], "rules: 'shift' is there twice"),
        ("shift", "rules: expected a list of at least one rule, got 'shift'"),
        (lh.rules.Shift(), r"rules: expected a list of at least one rule, got Shift\("),
        ([], r"rules: expected a list of at least one rule, got \[\]"),
        ([lh.rules.Rescale(0.5), lh.rules.Rescale(0.5)], "rules: 'rescale 0.5' is there twice"),
        (["tau"], "rule: 'tau' needs the weight norms"),  # asked for, it is not left out in silence
        (["magic"], "rule: expected 'offsets', 'shift'"),
        ([3], "rule: expected 'offsets', 'shift'"),
    ],
)
def test_a_rule_that_is_asked_for_and_cannot_act_is_refused(rules, message):
    with pytest.raises(lh.LevelheadError, match=message):
        lh.compare(LOGITS, LABELS, COUNTS, rules=rules)


def test_a_table_has_a_line_for_each_rule_and_goes_into_json():
    table = lh.compare(LOGITS, LABELS, COUNTS)
    lines = str(table).splitlines()
    assert [line.split()[0] for line in lines] == [*table, "tau"]
    for line, tuned in zip(lines, table.values(), strict=False):
        assert tuned.change_text() in line
        assert line.endswith(tuned.verdict)
    plain = json.loads(json.dumps(table.to_dict()))
    assert list(plain["rules"]) == list(table)
    assert plain["rules"]["shift"]["strength"] == table["shift"].strength


def test_warnings_of_single_rules_are_kept_and_not_issued():
    labels = np.repeat([0, 1], 60)
    z = np.random.default_rng(0).normal(size=120) + 2 * labels - 1
    table = lh.compare(np.stack([-z, z], axis=1), labels, [90, 10])
    assert any(line.startswith("BinaryHeadWarning") for line in table["rescale"].warnings)
    assert table["offsets"].warnings == ()


def test_what_is_wrong_with_the_samples_is_refused():
    with pytest.raises(lh.LevelheadError, match="expected 4 counts"):
        lh.compare(LOGITS, LABELS, [3, 2, 1])


def test_floors_are_told_of_every_rule():
    logits, labels = calibrated(0, 400)
    compared = lh.compare(logits, labels, COUNTS, metric=lh.Goal(floors={3: 0.9}))
    lines = str(compared).splitlines()[: len(compared)]
    assert all("class 3: recall of at least 90.0%" in line for line in lines)
