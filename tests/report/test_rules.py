"""Every rule on the page: exact on its slider, with what was chosen, why, and code that applies it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from levelhead import LevelheadError, tune
from levelhead.core.measure import calibration_error
from levelhead.report import of_logits, write
from levelhead.report.page import calibration, page_data, render_page, rule_table, with_titles
from levelhead.report.subject import RuleView, compute_share_envelope
from levelhead.report.verdict import verdict

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


def two_halves(rare_gain: int) -> tuple[np.ndarray, np.ndarray]:
    """Four classes of 200 samples: at gamma = 0.1 of RS, 60 of the second turn right, and some of the third."""
    labels = np.repeat(np.arange(4), 200)
    logits = np.where(np.eye(4)[labels] > 0, 3.0, 1.0)
    logits[200:260] = [3.0, 2.9, 1.0, 1.0]
    if rare_gain > 0:
        logits[400 : 400 + rare_gain] = [3.0, 1.0, 2.9, 1.0]
    return logits, labels


@pytest.mark.parametrize(("rare_gain", "status"), [(0, "unclear"), (40, "ship")])
def test_the_verdict_never_says_ship_where_the_rare_half_gains_nothing(rare_gain, status):
    subject = of_logits(*two_halves(rare_gain), [400, 200, 100, 50], gamma=0.1, apart=True)
    found = verdict(subject)
    rare = next(number for number in found.numbers if number.key == "rare")
    assert (rare.after > rare.before) == (rare_gain > 0)
    assert found.status == status
    assert ("the rarer half of the classes gains nothing" in found.headline) == (rare_gain == 0)


def test_the_verdict_leaves_the_model_as_it_is_where_tune_says_that_it_is_not_worthwhile():
    logits, labels = made.balanced_already(10)
    tuned = tune(logits, labels, COUNTS, rule="shift", bootstrap=100)
    assert tuned.worthwhile is False
    for apart in (False, True):
        found = verdict(of_logits(logits, labels, COUNTS, tuned=tuned, apart=apart))
        assert found.headline.startswith("Leave the model as it is")
        assert found.status in ("unclear", "keep")
    page = render_page([of_logits(logits, labels, COUNTS, tuned=tuned)])
    assert "Apply it all the same" in page
    assert "Ship" not in page.partition("<script")[0]


def test_a_page_follows_the_expected_gain_and_says_how_sure_it_is():
    logits, labels = (part[::12] for part in samples())
    tuned = tune(logits, labels, COUNTS, rule="shift", bootstrap=100)
    assert tuned.verdict == "probably better"
    subject = of_logits(logits, labels, COUNTS, tuned=tuned)
    found, chance = verdict(subject), f"{100 * tuned.verdict.probability:.0f}\u00a0%"
    assert (subject.worthwhile, subject.verdict) == (tuned.worthwhile, tuned.verdict)
    assert found.status == "ship"
    assert found.headline.endswith(f"it is probably better ({chance})")
    assert f"expect {100 * tuned.gain:.2f} points lower" in found.lines["How certain"]
    assert chance in found.lines["How certain"]
    page = render_page([subject])
    assert "Apply it all the same" not in page
    assert "<h3>Use it</h3>" in page


def test_an_old_record_without_a_gain_interval_still_has_a_page():
    logits, labels = samples()
    old = {"gamma": 0.3, "rule": "shift", "chosen_on": "held-out", "balanced_error": 0.2, "n": 300}
    subject = of_logits(logits, labels, COUNTS, tuned=old, target=[0.6, 0.1, 0.1, 0.1, 0.1])
    assert subject.worthwhile is None
    assert (subject.views[0].changes.predictions(0.3) == predicted_by_counts(logits, 0.3)).all()
    render_page([subject])


def predicted_by_counts(logits, gamma):
    return (logits + gamma * np.log(COUNTS.max() / COUNTS)).argmax(axis=1)


@pytest.mark.parametrize("rule", ["shift", "auto"])
def test_the_slider_at_the_chosen_gamma_shows_what_was_chosen_for_a_target(rule):
    logits, labels = samples()
    target = np.array([0.02, 0.08, 0.1, 0.3, 0.5])
    tuned = tune(logits, labels, COUNTS, rule=rule, target=target, bootstrap=20)
    moved = logits * (np.array(tuned.scale) if tuned.scale else 1.0) + np.array(tuned.offset)
    assert tuned.gamma > 0
    for given in (target, None):  # also where a page of other samples does not know it
        subject = of_logits(logits, labels, COUNTS, tuned=tuned, target=given)
        view = subject.views[0]
        assert (view.changes.predictions(subject.gamma) == moved.argmax(axis=1)).all()
        scale, offset = view.parts(subject.gamma)
        assert ((logits * scale + offset).argmax(axis=1) == moved.argmax(axis=1)).all()
    assert page_data(subject)["path"]["code"] is None
    if rule == "shift":
        assert (moved.argmax(axis=1) != predicted_by_counts(logits, tuned.gamma)).any()


def test_an_estimated_target_weighs_the_classes_of_the_page():
    logits, labels = samples()
    tuned = tune(
        logits,
        labels,
        COUNTS,
        rule="shift",
        target="estimate",
        unlabelled=logits[100:],
        bootstrap=20,
    )
    subject = of_logits(logits, labels, COUNTS, tuned=tuned)
    assert subject.target == pytest.approx(tuned.prior.target)
    assert subject.path.at(subject.gamma).balanced_error == pytest.approx(tuned.balanced_error)
    assert subject.path.at(0.0).balanced_error == pytest.approx(tuned.balanced_error_at_zero)


def test_another_metric_than_the_balanced_error_is_named_in_the_verdict():
    logits, labels = samples()
    tuned = tune(logits, labels, COUNTS, metric="macro_f1", bootstrap=200)
    found = verdict(of_logits(logits, labels, COUNTS, tuned=tuned))
    assert tuned.worthwhile
    assert found.headline == "Ship the adjusted model, if macro F1 is what matters"
    assert (
        f"{tuned.value:.4f}" in found.lines["How certain"]
        or f"{tuned.value:.2%}" in found.lines["How certain"]
    )


def test_the_rules_that_were_tried_stand_in_a_table_with_why():
    logits, labels = samples()
    subject = of_logits(logits, labels, COUNTS, bootstrap=30)
    found = rule_table(subject)
    assert found is not None
    assert [row.title for row in found.rows][:3] == ["As trained", "Logit shift", "RS"]
    assert [row.chosen for row in found.rows].count(True) == 1
    assert found.why.lower().startswith(subject.choice["why"].lower())
    page = render_page([subject])
    for row in found.rows:
        assert f">{row.value}<" in page
    assert rule_table(of_logits(logits, labels, COUNTS, rule="shift", bootstrap=0)) is None


def test_margins_of_any_scale_have_a_slider_that_reaches_them():
    logits, labels = samples()
    for factor in (0.001, 1000.0):
        subject = of_logits(factor * logits, labels, COUNTS, rule="shift", bootstrap=0)
        view = subject.views[0]
        assert view.gamma is not None
        assert view.gamma < view.end < 20 * view.gamma
        assert 3000 < view.end * view.step < 80_000
        render_page([subject])


def test_a_warning_comes_in_words_with_a_command_of_the_users_own_files():
    subject = of_logits(*samples(), COUNTS, rule="rescale", bootstrap=0)
    subject.choice["warnings"] = [
        "RangeWarning: the criterion is lowest at the end",
        "CountsWarning: the counts are equal",
    ]
    subject = replace(
        subject,
        files={"logits": "my logits.npy", "labels": "y.npy", "counts": "c.json"},
        model="m.onnx",
    )
    wide, counts = verdict(subject).alarms
    assert wide.command.startswith(
        "levelhead tune --logits 'my logits.npy' --labels y.npy --counts c.json --rule rescale"
    )
    assert "--max 4 -o tuned.json" in wide.command
    assert counts.command == "levelhead inspect m.onnx --counts c.json"
    assert "Warning:" not in wide.text


def test_titles_that_are_the_same_are_told_apart(tmp_path):
    one = of_logits(*samples(), COUNTS, gamma=0.1, title="run")
    pair = [replace(one, files={"run": f"{name}/run"}) for name in "ab"]
    assert [subject.title for subject in with_titles(pair)] == ["a/run", "b/run"]
    assert [subject.title for subject in with_titles([one, one])] == ["run, 1", "run, 2"]
    assert with_titles([one])[0].title == "run"
    page = write(
        tmp_path / "p.html", [one, replace(one, choice=one.choice | {"gamma": 0.2})]
    ).read_text("utf-8")
    assert page.count('<span class="tag">best</span>') == 1


@pytest.mark.parametrize("rule", ["none", "shift"])
def test_a_model_that_is_best_as_it_is_is_called_so(rule):
    """Also if an older version called that a shift of 0."""
    logits, labels = made.balanced_already(3)
    tuned = tune(logits, labels, COUNTS, bootstrap=100)
    assert (tuned.rule, tuned.gamma) == ("none", 0.0)
    subject = of_logits(logits, labels, COUNTS, tuned=replace(tuned, rule=rule))
    assert (subject.views[0].changes.predictions(subject.gamma) == logits.argmax(axis=1)).all()
    found = verdict(subject)
    assert (
        found.headline
        == "Leave the model as it is: no adjustment did better on samples that it was not fitted on"
    )
    assert found.lines["How it was chosen"].startswith(
        "The model as it is was chosen on 600 held-out samples"
    )
    assert [row.title for row in rule_table(subject).rows if row.chosen] == ["As trained"]
    assert "all the same" not in render_page([subject])


@pytest.mark.parametrize("rule", ["shift", "vector"])
def test_probabilities_with_zeros_have_a_page(rule):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 60)
    shares = np.exp(2 * np.eye(5)[labels] + np.log(COUNTS / COUNTS.sum()) / 2)
    votes = (
        np.array([rng.multinomial(20, row / row.sum()) for row in shares]) / 20
    )  # as of a forest of 20 trees
    tuned = tune(votes, labels, COUNTS, rule=rule, kind="probabilities", bootstrap=10)
    subject = of_logits(votes, labels, COUNTS, tuned=tuned, kind="probabilities")
    logs = np.log(np.maximum(votes, 1e-300)) if rule == "shift" else np.log(votes + tuned.smoothing)
    scale, offset = subject.views[0].parts(subject.gamma)
    predicted = (logs * scale + offset).argmax(axis=1)
    assert (
        subject.views[0].changes.predictions(subject.gamma) == predicted
    ).mean() > 0.99  # equal votes may tie
    found = calibration(subject)
    assert found["after"]["error"] == pytest.approx(
        calibration_error(logs * scale + offset, labels), abs=1e-3
    )
    assert [view.rule for view in subject.views if view.rule in ("rescale", "tau")] == []
    render_page([subject])


def test_a_choice_is_shown_only_on_the_kind_of_scores_that_it_multiplies():
    logits, labels = made.logits_of(COUNTS, 60, noise=1.3)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    given = {
        "logits": (logits, "logits"),
        "log-probabilities": (logs, "logits"),
        "p": (np.exp(logs), "probabilities"),
    }
    for first, (scores, kind) in given.items():
        tuned = tune(scores, labels, COUNTS, rule="vector", kind=kind, bootstrap=0)
        shift = tune(scores, labels, COUNTS, rule="shift", kind=kind, bootstrap=0)
        for second, (shown, other) in given.items():
            of_logits(shown, labels, COUNTS, tuned=shift, kind=other)
            if (first == "logits") == (second == "logits"):
                of_logits(shown, labels, COUNTS, tuned=tuned, kind=other)
                continue
            with pytest.raises(
                LevelheadError, match=r"vector was chosen on \w+, but these are \w+"
            ):
                of_logits(shown, labels, COUNTS, tuned=tuned, kind=other)
