"""A metric and a rule of one's own are one object each: they work wherever those that are here do."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.metrics import fbeta_score
from torch import nn

import levelhead as lh
from levelhead.core.metrics import METRICS, Metric
from levelhead.core.rules import RULES, Adjustment, Fits, OneStrength, Rule
from levelhead.report.page import render_page
from levelhead.report.subject import of_tuned

from .made import COUNTS, calibrated

LOGITS, LABELS = calibrated(0, 600)
LOGITS = LOGITS + 8


def macro_f2(tables: lh.Tables) -> np.ndarray:
    """Return 1 - the mean of ``5 right / (4 sizes + predicted)``: recall counts twice."""
    return 1 - (5 * tables.right / (4 * tables.sizes + tables.predicted)).mean(axis=-1)


MACRO_F2 = Metric("macro_f2", "macro F2", macro_f2, aliases=("f2_macro",))


@dataclass(frozen=True, eq=False)
class EffectiveNumber(OneStrength):
    """``w_k <- (E_max / E_k)^s w_k``, with the effective number ``E = (1 - b^n) / (1 - b)``, b = 0.99."""

    name = "effective-number"
    title = "effective number"
    sentence = "weight vectors multiplied by (largest effective number / own)^strength"
    multiplies = True

    def ratios(self, counts):
        effective = (1 - 0.99**counts) / (1 - 0.99)
        return effective.max() / effective


def by_hand(logits, strength):
    effective = (1 - 0.99**COUNTS) / (1 - 0.99)
    return logits * (effective.max() / effective) ** strength


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setitem(METRICS, MACRO_F2.name, MACRO_F2)
    monkeypatch.setitem(RULES, EffectiveNumber.name, EffectiveNumber())


@pytest.mark.parametrize("given", ["macro_f2", "f2_macro", MACRO_F2, lh.Goal(MACRO_F2)])
def test_a_metric_is_tuned_by_its_name_its_alias_or_as_it_is(given):
    tuned = lh.tune(LOGITS, LABELS, COUNTS, metric=given)
    assert tuned.metric == "macro_f2"
    before = fbeta_score(LABELS, LOGITS.argmax(axis=1), beta=2, average="macro", zero_division=0.0)
    assert tuned.evidence.value_before == pytest.approx(before)
    assert tuned.gain == pytest.approx(tuned.evidence.value - before)
    assert tuned.gain_interval[0] < tuned.gain < tuned.gain_interval[1]
    assert "macro F2" in str(tuned)
    after = fbeta_score(LABELS, tuned.apply(LOGITS).argmax(axis=1), beta=2, average="macro")
    assert after > before


@pytest.mark.parametrize("rule", ["offsets", "shift", "vector", "effective-number"])
def test_a_metric_works_with_every_rule_floors_and_targets(rule):
    goal = lh.Goal("macro_f2", floors={3: 0.1})
    tuned = lh.tune(LOGITS, LABELS, COUNTS, metric=goal, rule=rule, target=[0.1, 0.2, 0.3, 0.4])
    assert tuned.metric == "macro_f2"
    assert [floor.index for floor in tuned.floors] == [3]


@pytest.mark.parametrize("rule", ["offsets", "shift"])
@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (
            lambda t: 1 - (t.right / t.predicted).mean(axis=-1),
            "the loss of 'mine' is NaN or infinite for some predictions",
        ),
        (
            lambda t: -np.log(t.recall.min(axis=-1)),
            "the loss of 'mine' is NaN or infinite for some predictions",
        ),
        (
            lambda t: 1 - t.right.sum() / t.sizes.sum(),
            r"the loss of 'mine' of tables \[.*4\] has shape \[\]",
        ),
    ],
)
def test_a_metric_that_is_no_number_or_one_for_all_tables_is_refused(rule, loss, reason):
    """The least of such losses would say nothing. Here class 3 is never predicted, so 0 / 0."""
    logits = LOGITS - [0, 0, 0, 99]
    with pytest.raises(lh.LevelheadError, match=f"^metric: {reason}"):
        lh.tune(logits, LABELS, COUNTS, metric=Metric("mine", "mine", loss), rule=rule)


def test_a_metric_goes_along_a_path_and_through_chunks():
    path = lh.gamma_path(LOGITS, LABELS, COUNTS, rule="shift")
    best = path.best("macro_f2")
    values = [
        fbeta_score(LABELS, path.predictions(g), beta=2, average="macro", zero_division=0.0)
        for g in np.linspace(0, 2, 41)
    ]
    assert best.value >= max(values) - 1e-12
    chunks = [(LOGITS[::2], LABELS[::2]), (LOGITS[1::2], LABELS[1::2])]
    assert lh.tune_chunks(chunks, COUNTS, metric="macro_f2").metric == "macro_f2"


def test_a_metric_is_compared_and_kept_in_a_file(tmp_path):
    table = lh.compare(LOGITS, LABELS, COUNTS, metric="macro_f2", rules=["offsets", "shift"])
    assert "macro F2" in str(table)
    table.best.save(tmp_path / "tuned.json")
    again = lh.Tuned.load(tmp_path / "tuned.json")
    assert (again.metric, again.gain, str(again)) == ("macro_f2", table.best.gain, str(table.best))


def test_a_file_of_a_metric_that_is_not_known_here_still_says_what_it_gained(tmp_path, monkeypatch):
    tuned = lh.tune(LOGITS, LABELS, COUNTS, metric="macro_f2")
    tuned.save(tmp_path / "tuned.json")
    monkeypatch.delitem(METRICS, "macro_f2")
    again = lh.Tuned.load(tmp_path / "tuned.json")
    assert (again.metric, again.gain, again.verdict) == ("macro_f2", tuned.gain, tuned.verdict)
    # Its values cannot be computed here: no other number stands for them.
    assert np.isnan(again.evidence.value)
    assert again.change_text().startswith(f"macro_f2: gain {tuned.gain:.4g} (")
    other = of_tuned(again, LOGITS[::2], LABELS[::2], measured="test").tuned
    assert other.metric == "balanced_error"
    assert "macro_f2 is not known here" in other.warnings[-1]
    np.testing.assert_array_equal(again.apply(LOGITS), tuned.apply(LOGITS))


def test_a_metric_has_a_standard_error_without_slopes_of_its_own():
    """By small steps, with unseen samples; where a metric has its slopes as a formula, nearly the same."""
    for name in ("macro_f1", "mcc", "balanced_error"):
        with_formula = lh.tune(LOGITS, LABELS, COUNTS, metric=METRICS[name], rule="shift")
        by_steps = replace(METRICS[name], slopes=None)
        without = lh.tune(LOGITS, LABELS, COUNTS, metric=by_steps, rule="shift")
        numerical, wanted = (tuned.evidence.standard_error for tuned in (without, with_formula))
        assert numerical == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("multiplies", [True, False])
def test_a_rule_and_a_metric_that_are_not_in_the_tables_are_told_and_applied_all_the_same(
    multiplies, monkeypatch
):
    monkeypatch.delitem(METRICS, "macro_f2")
    monkeypatch.delitem(RULES, "effective-number")
    monkeypatch.setattr(EffectiveNumber, "multiplies", multiplies)
    monkeypatch.setattr(EffectiveNumber, "adds", not multiplies)
    tuned = lh.tune(LOGITS, LABELS, COUNTS, metric=MACRO_F2, rule=EffectiveNumber())
    assert str(tuned).startswith(f"effective-number at strength {tuned.strength:.3f}")
    assert "macro F2" in tuned.summary()
    head = lh.Head(np.eye(4), np.zeros(4))
    adjusted = lh.adjust(head, tuned)
    np.testing.assert_allclose(adjusted.norms, tuned.adjustment.scale)
    np.testing.assert_allclose(adjusted.bias, tuned.adjustment.offset)
    model = nn.Linear(3, 4)
    assert "effective-number" in str(lh.adjust_(model, tuned))
    assert "effective-number" in render_page([of_tuned(tuned, LOGITS, LABELS)])


def test_an_unknown_metric_or_rule_is_refused_with_the_new_ones_among_the_names():
    with pytest.raises(lh.LevelheadError, match="macro_f2"):
        lh.tune(LOGITS, LABELS, COUNTS, metric="auc")
    with pytest.raises(lh.LevelheadError, match="effective-number"):
        lh.tune(LOGITS, LABELS, COUNTS, rule="magic")


def test_a_rule_is_tuned_and_compared():
    tuned = lh.tune(LOGITS, LABELS, COUNTS, rule=EffectiveNumber(range=(0, 3)))
    assert tuned.rule == "effective-number"
    np.testing.assert_allclose(tuned.apply(LOGITS), by_hand(LOGITS, tuned.strength))
    losses = []
    for strength in np.linspace(0, 3, 301):
        tables = lh.Tables.of(LABELS, by_hand(LOGITS, strength).argmax(axis=1), 4)
        losses.append(1 - tables.balanced_accuracy)
    chosen = lh.Tables.of(LABELS, tuned.apply(LOGITS).argmax(axis=1), 4)
    assert 1 - chosen.balanced_accuracy <= min(losses) + 1e-9
    table = lh.compare(LOGITS, LABELS, COUNTS)
    assert "effective-number" in table
    assert "effective number at strength" in str(table["effective-number"])


class FirstUp(Rule):
    """Adds 1 to the first class, whatever the samples say."""

    name = "first-up"
    title = "first up"
    sentence = "1 added to the score of the first class"
    adds = True

    def fit(self, samples, goal):
        chosen = Adjustment.adding(np.eye(samples.classes)[0])
        return Fits([chosen] * len(samples.folds), chosen)


def test_a_rule_that_does_not_say_how_is_refused_without_labels(monkeypatch):
    monkeypatch.setitem(RULES, FirstUp.name, FirstUp())
    assert lh.tune(LOGITS, LABELS, COUNTS, rule="first-up").adjustment.offset.tolist() == [
        1,
        0,
        0,
        0,
    ]
    with pytest.raises(lh.LevelheadError, match=r"the rule first-up needs labels; use offsets"):
        lh.tune_unlabelled(LOGITS, rule="first-up")


def test_a_rule_has_a_path_is_matched_without_labels_and_kept_in_a_file(tmp_path):
    path = lh.gamma_path(LOGITS, LABELS, COUNTS, rule="effective-number")
    assert np.array_equal(path.predictions(0.7), by_hand(LOGITS, 0.7).argmax(axis=1))
    matched = lh.tune_unlabelled(LOGITS, counts=COUNTS, rule="effective-number")
    assert matched.strength > 0
    tuned = lh.tune(LOGITS, LABELS, COUNTS, rule="effective-number")
    tuned.save(tmp_path / "tuned.json")
    assert lh.Tuned.load(tmp_path / "tuned.json").to_dict() == tuned.to_dict()


def test_a_rule_is_applied_to_a_head_at_a_strength_of_ones_own():
    head = lh.Head(np.eye(4))
    adjusted = lh.adjust(head, EffectiveNumber(0.5), COUNTS)
    np.testing.assert_allclose(adjusted.weight, by_hand(np.eye(4), 0.5).T * np.eye(4))
    tuned = lh.tune(LOGITS, LABELS, COUNTS, rule="effective-number")
    np.testing.assert_allclose(lh.adjust(head, tuned).logits(LOGITS), tuned.apply(LOGITS))
