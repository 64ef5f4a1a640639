"""The page as a file: it says what the terminal says, is self-contained, and safe with any data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax

import levelhead as lh
from levelhead import measure
from levelhead.report import PageTable, of_tuned, write
from levelhead.report.calibration import calibration
from levelhead.report.charts import recall_chart, strength_chart
from levelhead.report.confusion import matrices, pairs
from levelhead.report.norms import norm_history, norms_chart
from levelhead.report.page import render_page, with_titles
from levelhead.report.svg import nice_ticks
from levelhead.report.words import numbers, points, share_text, status, warnings
from levelhead.support.warnings import quiet

from . import made

pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")


class Elements(HTMLParser):
    """Every tag with its attributes, the text of scripts and styles, and all other text."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.inside, self.words, self.open = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open = tag

    def handle_data(self, data):
        if self.open in ("script", "style"):
            self.inside.append(data)
        else:
            self.words.append(data)

    def handle_endtag(self, tag):
        self.open = None


@pytest.fixture(scope="module")
def page() -> str:
    table = PageTable("a table", ["x", "y"], [["1", "<i>2</i>"]])
    return render_page([made.ten(), made.trained(), made.several_labels()], tables=[table])


def test_it_runs_only_the_script_and_style_written_into_it(page):
    elements = Elements(page)
    policy = next(
        a["content"] for _, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert len(elements.inside) == policy.count("'sha256-") == 2
    for text in elements.inside:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy


def test_it_loads_nothing(page):
    for tag, attributes in Elements(page).tags:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form"), tag
        assert "src" not in attributes
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "data:,").startswith(("data:", "#main"))


def test_names_that_begin_alike_can_be_told_apart_below_the_chart():
    logits, labels = made.logits_of(made.TEN, 40)
    names = [f"card payment that was declined, reason {letter}" for letter in "abcdefghij"]
    with quiet():
        tuned = lh.tune(logits, labels, made.TEN, names=names)
    chart = recall_chart(of_tuned(tuned, logits, labels, title="cards"))
    shown = set(re.findall(r"card paym[^<]*…[^<]*", chart))
    assert len(shown) == 10
    assert max(map(len, shown)) == 18


def test_names_are_never_markup(page):
    elements = Elements(page)
    assert "<img" not in page
    assert "<b>bold" not in page
    assert "&lt;i&gt;2&lt;/i&gt;" in page
    for name in made.HOSTILE:
        assert any(name in text for text in elements.words)
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "subject",
    [made.ten, made.two, made.blind, made.trained, made.several_labels],
    ids=["ten", "two", "blind", "test", "labels"],
)
def test_the_verdict_is_in_the_words_of_the_terminal(subject):
    shown = subject()
    text = unescape(render_page([shown]))
    tuned = shown.tuned
    assert f'<span class="said">{tuned.verdict_text()}</span>' in text
    assert tuned.change_text() in text
    assert tuned.price_text() in text
    for fact, words in tuned.facts().items():
        if fact != "gain":
            assert words in text


def test_a_price_is_shown_where_accuracy_falls_by_more_than_the_gain():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [2000, 60, 30])
    logits = rng.normal(size=(len(labels), 3)) + np.eye(3)[labels] + np.log([2000, 60, 30])
    tuned = lh.tune(logits, labels)
    assert "accuracy falls" in tuned.price_text()
    assert tuned.price_text() in unescape(render_page([of_tuned(tuned)]))


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (made.ten, "better"),
        (lambda: made.two(chosen_on="test"), "test"),
        (lambda: made.two(rule=lh.rules.Shift(0.0)), "unclear"),
        (made.blind, "unclear"),
    ],
    ids=["better", "test", "nothing", "blind"],
)
def test_the_color_follows_the_verdict(subject, expected):
    assert status(subject()) == expected
    assert f'verdict {expected}"' in render_page([subject()])


def test_every_class_has_what_scikit_learn_counts():
    metrics = pytest.importorskip("sklearn.metrics")
    subject = made.trained("offsets")
    after = subject.tuned.apply(subject.logits).argmax(axis=1)
    for i, predicted in enumerate((subject.logits.argmax(axis=1), after)):
        recall = metrics.recall_score(subject.labels, predicted, average=None)
        precision = metrics.precision_score(subject.labels, predicted, average=None)
        for row in subject.rows:
            assert row.samples == 50
            assert row.recall[i] == pytest.approx(recall[row.index])
            assert row.precision[i] == pytest.approx(precision[row.index])
            assert row.share[i] == pytest.approx((predicted == row.index).mean())
        shown = [number.before if i == 0 else number.after for number in numbers(subject)]
        assert shown == pytest.approx(
            [
                metrics.accuracy_score(subject.labels, predicted),
                metrics.balanced_accuracy_score(subject.labels, predicted),
                metrics.f1_score(subject.labels, predicted, average="macro"),
            ]
        )


def test_every_label_has_what_scikit_learn_counts():
    metrics = pytest.importorskip("sklearn.metrics")
    logits, labels = made.label_samples(1)
    tuned = made.several_labels().tuned
    subject = of_tuned(tuned, logits, labels, measured="test")
    for row in subject.rows:
        k = row.index
        assert row.samples == labels[:, k].sum()
        for i, cut in enumerate((0.5, row.threshold)):
            predicted = 1 / (1 + np.exp(-logits[:, k])) > cut
            assert row.recall[i] == pytest.approx(metrics.recall_score(labels[:, k], predicted))
            assert row.share[i] == pytest.approx(predicted.mean())
            precision = metrics.precision_score(labels[:, k], predicted, zero_division=np.nan)
            assert row.precision[i] == pytest.approx(precision, nan_ok=True)


def test_labels_of_large_logits_have_their_thresholds():
    logits, labels = made.label_samples()
    tuned = lh.tune_labels(1e4 * logits, labels)
    thresholds = {row.index: row.threshold for row in of_tuned(tuned).rows}
    assert tuned.adjustment.offset[3] > 1000
    assert thresholds[3] == 0
    assert '<td data-value="0.0">0.000</td>' in render_page([of_tuned(tuned)])


def test_masked_classes_are_calibrated_by_the_others():
    logits, labels = made.logits_of(np.array([900, 300, 45, 20]), 60, noise=0.5)
    rows = labels < 2
    logits[rows, 2:] = -np.inf
    tuned = lh.tune(logits, labels, [900, 300, 45, 20])
    assert tuned.temperature is not None
    assert tuned.temperature < 1  # by which a masked score is divided
    counted = calibration(of_tuned(tuned, logits, labels))
    assert counted is not None
    last = counted.diagrams[-1]
    shares = log_softmax((logits + tuned.adjustment.offset) / tuned.temperature, axis=1)
    losses = -shares[np.arange(len(labels)), labels]
    by_class = [losses[labels == k].mean() for k in range(4)]
    assert last.log_loss == pytest.approx(np.mean(by_class))


def test_the_table_of_a_choice_is_that_of_its_evidence():
    subject = made.ten()
    before, after = subject.tuned.tables
    text = render_page([of_tuned(subject.tuned)])  # without the samples
    for i in range(10):
        for values in (before.recall, after.recall, before.precision, after.share):
            assert f">{share_text(values[i])}</td>" in text


def test_rare_classes_are_those_of_the_counts_or_else_of_the_labels():
    logits, labels = made.logits_of(np.array([90, 40, 10]), 30)
    kept = np.flatnonzero((labels != 1) | (np.arange(len(labels)) % 3 == 0))
    logits, labels = logits[kept], labels[kept]  # class 1 is the rarest here

    def order(counts) -> list[int]:
        tuned = lh.tune(logits, labels, counts)
        return [row.index for row in of_tuned(tuned, logits, labels).rows]

    assert order([90, 40, 10]) == [2, 1, 0]
    assert order(None) == [1, 0, 2]
    assert order([50, 50, 50]) == [1, 0, 2]
    for counts, words in (([90, 40, 10], "by training samples"), (None, "by samples here")):
        tuned = lh.tune(logits, labels, counts)
        text = render_page([of_tuned(tuned, logits, labels)])
        assert words in text
        assert ("In training" in text) == (counts is not None)


def test_a_class_that_is_left_alone_has_no_count_and_is_no_rare_one():
    logits, labels = made.logits_of(np.array([900, 90, 10]), 30)
    counts = lh.counts.with_background([900, 90, 10], 0)
    tuned = lh.tune(logits, labels, counts, rule="rescale", names=["none", "ant", "bee"])
    log = [{"epoch": epoch, "norms": [1.0, 2.0, 3.0]} for epoch in (1, 2)]
    subject = of_tuned(tuned, logits, labels, head=lh.Head(np.eye(3)), log=log)
    assert [(row.name, row.count) for row in subject.rows] == [
        ("bee", 10.0),
        ("ant", 90.0),
        ("none", None),
    ]
    page = render_page([subject])
    assert '<td data-value="">left alone</td>' in page
    assert "Before them stands none, which is left alone." in page
    assert [line.title for line in norm_history(subject).lines] == [
        "none (left alone)",
        "ant (90)",
        "bee (10)",
    ]
    titles = re.findall("<title>(.*?):", str(norms_chart(subject).wide))
    assert titles == ["ant", "bee"]


def test_classes_toward_a_target_are_in_order_without_their_samples():
    logits, labels = made.logits_of(np.array([90, 30, 10]), 20)
    drawn = np.r_[0:20, 20:30, 40:45]
    tuned = lh.tune(logits[drawn], labels[drawn], target=[0.2, 0.3, 0.5])
    rows = of_tuned(tuned).rows
    assert [(row.name, row.samples) for row in rows] == [("2", 5), ("1", 10), ("0", 20)]


def test_a_page_calls_no_class_rare_without_counts_or_labels():
    assert "The rarest first." not in render_page([made.blind()])
    assert "The rarest first." in render_page([made.ten()])


def test_other_samples_are_judged_by_what_was_chosen():
    logits, labels = made.logits_of(made.TEN, 40)
    other, truth = made.logits_of(made.TEN, 30, seed=5)
    tuned = lh.tune(logits, labels, made.TEN)
    subject = of_tuned(tuned, other, truth, measured="test")
    gain = measure.balanced_error(other, truth)
    gain -= measure.balanced_error(tuned.apply(other), truth)
    assert subject.tuned.gain == pytest.approx(gain)
    assert subject.tuned.evidence.n == 300
    assert "300 test samples that had no part in the choice" in render_page([subject])
    assert "each predicted by a fit that has not seen it" in render_page([made.ten()])


def test_a_target_and_costs_are_judged_on_other_samples_too():
    logits, labels = made.logits_of(made.TEN, 40)
    other, truth = made.logits_of(made.TEN, 30, seed=5)
    target = np.arange(1, 11) / 55
    tuned = lh.tune(logits, labels, made.TEN, target=target)
    judged = of_tuned(tuned, other, truth, measured="test").tuned
    recall = measure.recall(tuned.apply(other), truth)
    assert judged.evidence.value == pytest.approx(1 - target @ recall)
    cost = np.ones((10, 10)) - np.eye(10)
    dear = lh.tune(logits, labels, made.TEN, metric=lh.Goal(cost=cost))
    judged = of_tuned(dear, other, truth, measured="test")
    assert judged.tuned.metric == "balanced_error"
    assert "judged by balanced error" in render_page([judged])


def test_the_rule_is_told_as_the_target_makes_it():
    shown = render_page([made.ten("shift")])
    assert "strength times log(largest count / own count) added to scores" in shown
    shown = render_page([made.ten("shift", target=np.arange(1, 11) / 55)])
    assert "largest count" not in shown
    assert "log(share in the target / share in training) added to scores" in shown


def test_samples_of_several_labels_are_counted_once():
    subject = made.several_labels()
    assert f"the same {subject.tuned.n:,} samples, each predicted by a fit" in render_page(
        [subject]
    )


def test_only_terms_that_a_page_uses_are_explained():
    several = Elements(render_page([made.several_labels()])).words
    assert "Precision" in several
    assert not {"Accuracy", "Balanced accuracy", "Temperature"} & set(several)
    both = Elements(render_page([made.several_labels(), made.ten()])).words
    assert {"Accuracy", "Balanced accuracy", "Temperature"} <= set(both)


def test_floors_are_shown_with_their_probability():
    logits, labels = made.logits_of(made.TEN, 60)
    tuned = lh.tune(logits, labels, made.TEN, metric=lh.Goal(floors={9: 0.5}))
    words = tuned.floors[0].text(None)
    assert "recall of at least 50.0% with " in words
    assert words in render_page([of_tuned(tuned)])


def test_a_warning_about_test_labels_comes_first_and_other_warnings_are_shown():
    logits, labels = made.logits_of(np.array([90, 20, 5]), 20)
    kept = labels != 2
    tuned = lh.tune(logits[kept], labels[kept], [90, 20, 5], chosen_on="test")
    lines = warnings(of_tuned(tuned))
    assert lines[0].startswith("This was chosen on test labels")
    assert "No sample here of class 2" in lines[1]
    assert all(line in unescape(render_page([of_tuned(tuned)])) for line in lines)


@pytest.mark.parametrize("rule", ["shift", "rescale"])
def test_the_chart_over_the_strength_is_that_of_the_path(rule):
    subject = made.ten(rule)
    path = lh.gamma_path(subject.logits, subject.labels, made.TEN, rule=rule, range=(0.0, 20.0))
    strength = subject.tuned.strength
    assert strength > 0
    for at in (0.0, 0.3 * strength, strength, 1.9 * strength):
        shown = float(subject.path.balanced_error_curve.at(at))
        assert shown == pytest.approx(float(path.balanced_error_curve.at(at)), abs=1e-12)
    assert f"chosen: {strength:.3f}" in strength_chart(subject, subject.path)
    assert "Over the strength" in render_page([subject])


@pytest.mark.parametrize("rule", ["offsets", "vector", "scales"])
def test_rules_without_a_strength_have_no_chart_and_no_word_of_it(rule):
    text = render_page([made.ten(rule)])
    assert "Over the strength" not in text
    words = "".join(Elements(text).words)
    assert not re.search(r"\bgamma|\bstrength", words)


def test_the_strength_of_votes_is_that_of_smoothed_votes():
    rng = np.random.default_rng(2)
    labels = rng.integers(3, size=300)
    scores = np.exp(1.5 * np.eye(3)[labels] + rng.normal(size=(300, 3)) + [1.5, 0, -1])
    votes = np.round(10 * scores / scores.sum(axis=1, keepdims=True))
    votes = votes / votes.sum(axis=1, keepdims=True)
    tuned = lh.tune(votes, labels, [900, 200, 70], rule="shift", kind="probabilities")
    assert tuned.adjustment.smoothing > 0
    subject = of_tuned(tuned, votes, labels)
    assert subject.path.predictions(tuned.strength).tolist() == subject.predictions[1].tolist()


def test_confusions_are_those_of_measure():
    subject = made.ten()
    before, after = matrices(subject)
    order = subject.rare_first
    for matrix, scores in ((before, subject.logits), (after, subject.tuned.apply(subject.logits))):
        table = measure.confusion(scores, subject.labels)[order][:, order]
        shown = [[cell.title for cell in row] for row in matrix.rows]
        assert shown == [[f"{n} of 40" for n in row] for row in table]
    assert pairs(subject) == []
    many = made.thousand(each=2)
    table = measure.confusion(many.tuned.apply(many.logits), many.labels)
    np.fill_diagonal(table, 0)
    largest = sorted(table.ravel().tolist(), reverse=True)[:20]
    assert [pair.after for pair in pairs(many)] == largest


def test_names_that_begin_alike_are_told_apart_beside_a_matrix():
    names = [f"card payment, {end}" for end in ("declined", "fee charged", "not recognised")]
    logits, labels = made.logits_of(np.array([90, 30, 9]), 40)
    subject = of_tuned(lh.tune(logits, labels, [90, 30, 9], names=names), logits, labels)
    for matrix in matrices(subject):
        assert matrix.names == names[::-1]
        assert len(set(matrix.short)) == 3
        assert max(map(len, matrix.short)) <= 14
    page = render_page([subject])
    assert all(page.count(f'title="{name}"') == 4 for name in names)  # a row and a column, twice


def test_reliability_is_what_measure_says():
    logits, labels = made.logits_of(np.array([200, 60, 9]), 300, noise=1.5)
    tuned = lh.tune(logits, labels, [200, 60, 9])
    before, after, tempered = calibration(of_tuned(tuned, logits, labels)).diagrams
    scores = tuned.apply(logits)
    for diagram, values, by in (
        (before, logits, 1.0),
        (after, scores, 1.0),
        (tempered, scores, tuned.temperature),
    ):
        error = measure.calibration_error(values, labels, temperature=by)
        loss = measure.negative_log_likelihood(values, labels, temperature=by)
        assert diagram.error == pytest.approx(error)
        assert diagram.log_loss == pytest.approx(loss)
    assert tempered.log_loss <= after.log_loss + 1e-9


def test_samples_weigh_in_calibration_as_in_the_metric():
    counts = np.array([900, 60, 9])
    logits, labels = made.logits_of(counts, 400, noise=2.0)
    kept = np.flatnonzero((labels == 0) | (np.arange(len(labels)) % 8 == 0))
    logits, labels = 3 * logits[kept], labels[kept]
    for metric, weights in (
        ("balanced_error", (1 / np.bincount(labels))[labels]),
        ("error", np.ones(len(labels))),
    ):
        tuned = lh.tune(logits, labels, counts, metric=metric)
        _, after, tempered = calibration(of_tuned(tuned, logits, labels)).diagrams
        scores = tuned.apply(logits)
        for diagram, by in ((after, 1.0), (tempered, tuned.temperature)):
            loss = measure.negative_log_likelihood(scores, labels, temperature=by, weights=weights)
            assert diagram.log_loss == pytest.approx(loss)
        assert tempered.log_loss < after.log_loss


def test_the_choice_can_be_saved_from_the_page(tmp_path):
    subject = made.ten()
    text = render_page([subject])
    link = re.search(r'href="data:application/json;base64,([^"]+)" download="tuned.json"', text)
    assert link is not None
    (tmp_path / "tuned.json").write_bytes(base64.b64decode(link[1]))
    saved = lh.Tuned.load(tmp_path / "tuned.json")
    assert saved.to_dict() == json.loads(json.dumps(subject.tuned.to_dict()))
    assert "download=" not in render_page([of_tuned(subject.tuned, tuned_file="tuned.json")])


def test_several_models_stand_side_by_side_and_the_best_is_marked():
    subjects = [made.ten(), made.trained(), made.blind(), made.several_labels()]
    text = render_page(subjects)
    after = {
        subject.title: float(subject.tuned.evidence.after.balanced_accuracy)
        for subject in subjects
        if subject.tuned.evidence is not None and not subject.tuned.multilabel
    }
    best = re.search(r'class="best">\s*<th scope="row"><bdi>(.*?)</bdi>', text)
    assert best is not None
    assert unescape(best[1]) == max(after, key=after.get)
    assert text.count('class="best"') == 1


def test_models_of_one_name_are_told_apart(tmp_path):
    tuned = made.two().tuned
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
    subjects = [
        of_tuned(tuned, title="run", facts={}, files={"logits": tmp_path / run / "l.npy"})
        for run in ("a", "b")
    ]
    assert [subject.title for subject in with_titles(subjects)] == ["a/run", "b/run"]
    files = [tmp_path / "a" / name for name in ("l.npy", "l.csv", "l.csv")]
    in_one_folder = [of_tuned(tuned, title="l", facts={}, files={"logits": file}) for file in files]
    titles = [subject.title for subject in with_titles(in_one_folder)]
    assert titles == ["a/l.npy", "a/l.csv, 2", "a/l.csv, 3"]
    nameless = [of_tuned(tuned, title="run"), of_tuned(tuned, title="run")]
    assert [subject.title for subject in with_titles(nameless)] == ["run, 1", "run, 2"]


def test_the_page_of_a_thousand_classes_is_small(tmp_path):
    assert write(tmp_path / "p.html", [made.thousand(each=2)]).stat().st_size < 800_000


def test_a_class_without_a_sample_has_dashes():
    logits, labels = made.logits_of(np.array([90, 20, 5]), 20)
    kept = labels != 2
    tuned = lh.tune(logits[kept], labels[kept], [90, 20, 5])
    subject = of_tuned(tuned, logits[kept], labels[kept])
    assert np.isnan(subject.rows[0].recall).all()
    assert '<td data-value="">\N{EN DASH}</td>' in render_page([subject])


@pytest.mark.parametrize("norms", ["word", [1.0], [[1.0], [2.0]], [None, 1.0, 2.0, 3.0]])
def test_norms_of_another_kind_are_refused(norms):
    subject = made.trained()
    log = [{"epoch": 1, "norms": norms}, {"epoch": 2, "norms": [1.0, 2.0, 3.0, 4.0]}]
    shown = of_tuned(subject.tuned, log=log)
    with pytest.raises(lh.LevelheadError, match="log: expected 4 norms"):
        render_page([shown])


def test_a_page_that_cannot_be_made_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match=r"expected a page as \.html"):
        write(tmp_path / "p.pdf", [made.blind()])
    with pytest.raises(ValueError, match="expected at least one subject or table"):
        write(tmp_path / "p.html", [])
    assert list(tmp_path.iterdir()) == []


def test_tables_titled_in_another_order_than_the_choice_are_refused():
    names = list("abc")
    logits, labels = made.logits_of(np.array([900, 300, 45]), 60)
    scores = pd.DataFrame(logits, columns=names)
    tuned = lh.tune(scores, labels)
    for given in ((labels,), ()):  # with labels and without
        with pytest.raises(lh.LevelheadError, match=r"logits: columns .* in another order"):
            of_tuned(tuned, scores[["b", "a", "c"]], *given)
    scores, table = (pd.DataFrame(x, columns=list("abcd")) for x in made.label_samples())
    tuned = lh.tune_labels(scores, table)
    turned = ["b", "a", "c", "d"]
    with pytest.raises(lh.LevelheadError, match=r"logits: columns .* in another order"):
        of_tuned(tuned, scores[turned], table, measured="test")
    with pytest.raises(lh.LevelheadError, match=r"labels: columns .* in another order"):
        of_tuned(tuned, scores, table[turned], measured="test")


def test_logits_of_labels_alone_show_the_choice():
    scores, table = made.label_samples()
    tuned = lh.tune_labels(scores, table)
    alone = of_tuned(tuned).rows
    assert str(of_tuned(tuned, scores).rows) == str(alone)  # a precision may be NaN


def test_samples_of_other_labels_and_none_at_all_are_refused():
    scores, table = made.label_samples()
    tuned = lh.tune_labels(scores, table)
    with pytest.raises(lh.LevelheadError, match=r"logits: expected \[N, 4\], as it was tuned"):
        of_tuned(tuned, scores[:, :2], table[:, :2], measured="test")
    blind = made.blind()
    with pytest.raises(lh.LevelheadError, match=r"logits: expected \[N, 3\], as it was tuned"):
        of_tuned(blind.tuned, np.zeros((0, 3)))


def test_samples_that_do_not_fit_the_choice_are_refused():
    tuned = made.two().tuned
    with pytest.raises(lh.LevelheadError, match=r"expected \[N, 2\], as it was tuned"):
        of_tuned(tuned, np.ones((4, 3)))
    with pytest.raises(lh.LevelheadError, match="labels"):
        of_tuned(tuned, np.random.default_rng(0).normal(size=(4, 2)), [0, 1, 1])
    with pytest.raises(lh.LevelheadError, match="measured on"):
        of_tuned(tuned, measured="test")


def test_the_key_tells_lines_of_one_color_apart():
    subject = replace(made.ten(), log=[{"norms": [1.0] * 10}, {"norms": [2.0] * 10}])
    text = render_page([subject])
    key = re.findall(r'<span class="key line-(\d) dash-\d">(.) ', text)
    assert len(key) == len(set(key)) == 10


def test_points_and_ticks_are_round():
    assert [points(x) for x in (1.26, -0.04, -3.0, float("nan"))] == [
        "+1.3",
        "±0.0",
        "\N{MINUS SIGN}3.0",
        "",
    ]
    assert nice_ticks(0.0, 2.0) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert nice_ticks(1, 8) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
