"""The page as a file: exact, self-contained, honest, and safe with any data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from functools import partial
from html.parser import HTMLParser
from statistics import NormalDist

import numpy as np
import pytest

from levelhead import Head, Snapshot, measure, tune
from levelhead.choice.gamma_path import gamma_path
from levelhead.choice.samples import TuneOptions
from levelhead.choice.tune import tune_path
from levelhead.report import PageTable, of_logits, of_snapshot, write
from levelhead.report.page import calibration, encode_changes, gamma_stops, render_page
from levelhead.report.verdict import gain, verdict

from . import made


def unpacked(packed: dict, where: np.ndarray, gamma: float) -> np.ndarray:
    """The predictions at a stop, samples sorted by class, decoded from the page one by one."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    sizes = [sum(packed["samples"]), len(where), packed["events"], packed["events"]]
    arrays, at = [], 0
    for size in sizes:
        planes = raw[at : at + 4 * size].reshape(4, size).astype(np.int64)
        arrays.append(planes[0] + 256 * planes[1] + 65536 * planes[2])
        at += 4 * size
    assert at == len(raw)
    now, changes, delta, new_class = arrays
    event = 0
    for stop, size in enumerate(changes):
        sample = 0
        for _ in range(size):
            sample += delta[event]
            if where[stop] <= gamma:
                now[sample] = new_class[event]
            event += 1
    return now


@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_the_page_holds_the_predictions_of_the_path_at_every_stop(rule):
    rng, counts = np.random.default_rng(3), np.array([300, 90, 40, 12, 12, 7])
    labels = rng.integers(6, size=400)
    path = gamma_path(rng.normal(size=(400, 6)) * 3, labels, counts, rule=rule)
    special = (0.123456789, float(path.gammas[7]))
    where = gamma_stops(2.0, special)
    packed, order = (
        encode_changes(path.envelope, labels, 6, where),
        np.argsort(labels, kind="stable"),
    )
    assert packed["samples"] == np.bincount(labels).tolist()
    for gamma in (0.0, special[0], 2.0, *rng.choice(where, 12)):
        assert unpacked(packed, where, gamma).tolist() == path.predictions(gamma)[order].tolist()
    for (
        gamma
    ) in special:  # at a breakpoint itself rounded scores may tie the wrong way; the path does not
        assert ((unpacked(packed, where, gamma) == labels[order]) == path.right(gamma)[order]).all()


def test_stops_are_exactly_the_quotients():
    where = gamma_stops(1.7, (0.55555,))
    assert len(where) == 17002
    assert where[4000] == 4000 / 10_000
    assert 0.55555 in where


class Elements(HTMLParser):
    """Every tag with its attributes, and the text of scripts and styles."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.inside, self.open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open = tag

    def handle_data(self, data):
        if self.open in ("script", "style"):
            self.inside.append((*self.tags[-1], data))

    def handle_endtag(self, tag):
        self.open = None


@pytest.fixture(scope="module")
def page() -> str:
    return render_page(
        [made.ten(), made.trained()], tables=[PageTable("a table", ["x", "y"], [["1", "<i>2</i>"]])]
    )


def test_it_runs_only_the_script_and_style_written_into_it(page):
    found = Elements(page)
    policy = next(
        a["content"] for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    inline = [
        text
        for tag, a, text in found.inside
        if tag == "style" or a.get("type") != "application/json"
    ]
    assert len(inline) == policy.count("'sha256-") == 4
    for text in inline:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy


def test_it_loads_nothing(page):
    for tag, attributes in Elements(page).tags:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form"), tag
        assert "src" not in attributes
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "data:,") in ("data:,", "#main")


def test_class_names_are_never_markup(page):
    data = json.loads(
        next(text for tag, a, text in Elements(page).inside if a.get("type") == "application/json")
    )
    assert data["subjects"][0]["names"] == made.HOSTILE
    assert "<img" not in page
    assert "49" not in re.findall(r"“(.*?)”", page)
    assert "&lt;i&gt;2&lt;/i&gt;" in page


def test_a_class_name_cannot_reverse_a_sentence_or_fill_the_page():
    counts = np.array([90, 20])
    names = ["\u202e" + "long " * 400, "b"]
    found = verdict(
        of_logits(*made.logits_of(counts, 60), counts, names=names, gamma=0.5, apart=True)
    )
    assert "“\u2068\u202elong" in found.lines["Who pays"]
    assert "…\u2069”, " in found.lines["Who pays"]
    assert len(found.lines["Who pays"]) < 200


@pytest.mark.parametrize(
    ("subject", "status", "words"),
    [
        (made.ten, "ship", "if rare classes matter as much as frequent ones"),
        (partial(made.two, samples="test"), "warn", "gamma was chosen on test labels"),
        (partial(made.two, gamma=0.0, apart=True), "keep", "changes no prediction"),
        (partial(made.two, gamma=1.0, apart=True), "keep", "makes it worse"),
        (made.blind, "unclear", "without labels"),
        (made.trained, "ship", "if rare classes matter"),
    ],
    ids=["ship", "test", "nothing", "worse", "blind", "run"],
)
def test_the_verdict_says_what_to_do(subject, status, words):
    found = verdict(subject())
    assert found.status == status
    assert words in found.headline


def test_the_verdict_calls_a_small_gain_small():
    counts, labels = np.array([200, 20]), np.repeat([0, 1], 5000)
    logits = np.where(np.eye(2)[labels] > 0, 3.0, 1.0)
    logits[5000:5040] = [3.0, 2.9]  # 40 of 5,000 samples of the rare class turn right
    found = verdict(of_logits(logits, labels, counts, gamma=0.1, apart=True))
    assert (found.status, found.headline) == (
        "ship",
        "The adjusted model is better, but only by 0.40 points of balanced error",
    )


def test_the_verdict_says_how_sure_it_is_where_there_may_be_no_gain():
    counts, labels = np.array([100, 20]), np.repeat([0, 1], 6)
    logits = np.where(np.eye(2)[labels] > 0, 3.0, 1.0)
    logits[6] = [3.0, 2.9]  # one sample of twelve turns right
    subject = of_logits(logits, labels, counts, gamma=0.1, apart=True)
    found, (mean, low, high) = verdict(subject), gain(*right(subject), labels, subject.mass)
    assert low < 0 < mean
    chance = NormalDist(mean, (high - low) / 2 / 1.959964).cdf(2 * mean)
    assert found.status == "ship"
    assert found.headline.endswith(f"it is probably better ({chance:.0%})".replace("%", "\u00a0%"))
    assert found.lines["How certain"].endswith(f"better at all is {100 * chance:.0f}\u00a0%.")


def right(subject):
    """Where the samples of a subject are right as trained, and as adjusted."""
    return subject.path.right(0.0), subject.path.right(subject.gamma)


def test_a_warning_about_test_labels_comes_first_and_other_warnings_are_shown():
    subject = of_logits(
        *made.logits_of(np.array([50, 5]), 30), [50, 5], samples="test", bootstrap=0
    )
    subject.choice["warnings"] = ["NormWarning: norms fall"]
    found = verdict(subject)
    assert "chosen on test labels" in found.alarms[0].text
    assert found.alarms[1].title == "The weight norms do not follow the counts."
    assert found.alarms[1].text == "Norms fall"
    assert found.alarms[1].command.endswith("--rule shift -o tuned.json")


def test_the_gain_agrees_with_resampling_within_classes():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 400)
    before = rng.random(1200) < 0.6
    after = np.where(rng.random(1200) < 0.2, ~before, before)
    mean, low, high = gain(before, after, labels, np.full(3, 1 / 3))
    drawn = [
        np.mean(
            [
                (after[i].astype(int) - before[i])[rng.integers(400, size=400)].mean()
                for i in (labels == c for c in range(3))
            ]
        )
        for _ in range(2000)
    ]
    assert mean == pytest.approx(np.mean(after.astype(int) - before))
    assert (low, high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.004)
    half = gain(before, after, labels, np.full(3, 1 / 3), level=0.5)[1:]
    assert half == pytest.approx(np.quantile(drawn, [0.25, 0.75]), abs=0.004)


def test_a_data_frame_of_logits_is_read_as_numbers():
    pandas = pytest.importorskip("pandas")
    counts = np.array([200, 60, 9])
    logits, labels = made.logits_of(counts, 30)
    table = pandas.DataFrame(logits, index=np.arange(len(logits))[::-1])
    pages = [render_page([of_logits(one, labels, counts, bootstrap=0)]) for one in (table, logits)]
    assert len({re.sub(r"[-:\d]+ [:\d]+ UTC", "", page) for page in pages}) == 1


def test_a_gain_in_plain_error_is_not_shown_as_one_in_balanced_error():
    counts = np.array([200, 60, 9])
    logits, labels = made.logits_of(counts, 300, noise=1.5)
    some = np.flatnonzero((labels == 0) | (np.arange(len(labels)) % 7 == 0))
    subject = of_logits(
        logits[some],
        labels[some],
        counts,
        tuned=tune(logits[some], labels[some], counts, metric="error", bootstrap=50),
    )
    assert subject.choice["gain_interval"] is not None
    assert verdict(subject).lines["How certain"].startswith("On these samples, error goes from ")


def test_the_page_states_the_level_its_intervals_were_made_with():
    counts = np.array([200, 60, 9])
    logits, labels = made.logits_of(counts, 300, noise=1.5)
    text = render_page(
        [of_logits(logits, labels, counts, tuned=tune(logits, labels, counts, level=0.5))]
    )
    assert "(50 % interval " in text
    assert "(50\u00a0% confidence)" in text
    assert "(95 %" not in text


@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_reliability_is_what_measure_says(rule):
    counts = np.array([200, 60, 9])
    logits, labels = made.logits_of(counts, 300, noise=1.5)
    path = gamma_path(logits, labels, counts, rule=rule)
    subject = of_logits(logits, labels, counts, gamma=0.3, rule=rule)
    found = calibration(subject)
    leveled = path.rule.scores(logits, 0.3)
    assert found["before"]["error"] == pytest.approx(
        measure.calibration_error(logits, labels), abs=2e-5
    )
    assert found["after"]["error"] == pytest.approx(
        measure.calibration_error(leveled, labels), abs=2e-5
    )
    assert found["temperature"] == pytest.approx(measure.fit_temperature(leveled, labels))
    assert sum(found["before"]["n"]) == 900


def test_the_temperature_of_a_choice_is_drawn_with_the_weights_that_it_was_fitted_with():
    """Frequent classes, at which the model is good, would call a temperature wrong that is right for all alike."""
    counts = np.array([900, 60, 9])
    logits, labels = made.logits_of(counts, 400, noise=2.0)
    some = np.flatnonzero((labels == 0) | (np.arange(len(labels)) % 8 == 0))
    logits, labels = 3 * logits[some], labels[some]
    for metric in ("balanced_error", "error"):
        tuned = tune(logits, labels, counts, rule="shift", metric=metric, bootstrap=0)
        found = calibration(of_logits(logits, labels, counts, tuned=tuned))
        weights = (
            (1 / np.bincount(labels))[labels]
            if metric == "balanced_error"
            else np.ones(len(labels))
        )
        weights = weights / weights.sum()
        scores = logits + tuned.gamma * np.log(counts.max() / counts)
        for name, by in (("after", 1.0), ("tempered", tuned.temperature)):
            loss = measure.negative_log_likelihood(scores, labels, temperature=by, weights=weights)
            assert found[name]["log_loss"] == pytest.approx(loss, abs=1e-4)
            p = np.exp(scores / by - (scores / by).max(axis=1, keepdims=True))
            sure, hit = 1 / p.sum(axis=1), scores.argmax(axis=1) == labels
            gap = np.bincount(np.minimum((15 * sure).astype(int), 14), weights * (sure - hit))
            assert found[name]["error"] == pytest.approx(np.abs(gap).sum(), abs=1e-4)
        assert found["tempered"]["log_loss"] < found["after"]["log_loss"]
        assert found["tempered"]["error"] < found["after"]["error"]
        assert found["weighed"].startswith(
            "Every class" if metric == "balanced_error" else "Samples"
        )


def test_a_choice_from_a_path_is_the_choice_from_its_logits():
    counts = np.array([200, 60, 9])
    logits, labels = made.logits_of(counts, 50)
    assert (
        tune_path(gamma_path(logits, labels, counts), None, TuneOptions(bootstrap=30)).to_dict()
        == tune(logits, labels, counts, rule="rescale", bootstrap=30).to_dict()
    )


def test_the_page_of_a_thousand_classes_is_small(tmp_path):
    assert write(tmp_path / "p.html", [made.thousand(each=2)]).stat().st_size < 700_000


def test_the_slider_ends_past_everything_that_matters():
    subject = made.ten()
    assert subject.views[0].end >= 1.2 * subject.gamma
    assert subject.views[0].end >= subject.choice["interval"][1]
    assert float(subject.views[0].curve.at(subject.views[0].end)) > float(
        subject.views[0].curve.at(0.0)
    )


def test_a_snapshot_without_test_or_held_out_samples_is_refused():
    empty = Snapshot(
        Head(np.eye(3)), np.array([9, 5, 2]), {"train": np.eye(3)}, {"train": np.arange(3)}
    )
    with pytest.raises(
        ValueError, match="expected a snapshot with a test or held-out split, got train"
    ):
        of_snapshot(empty)


def test_a_snapshot_without_a_test_split_is_judged_on_what_gamma_was_chosen_on():
    whole = made.trained()
    assert whole.apart
    logits, labels = made.logits_of(np.array([90, 20]), 40)
    held = Snapshot(Head(np.eye(2)), np.array([90, 20]), {"held-out": logits}, {"held-out": labels})
    subject = of_snapshot(held, bootstrap=20)
    assert (subject.samples, subject.apart) == ("held-out", False)
    assert "measured on the same samples" in verdict(subject).lines["How it was chosen"]


def test_opposite_logits_make_a_page_that_says_nothing_changes():
    z = np.random.default_rng(0).normal(size=60)
    subject = of_logits(np.c_[-z, z], (z > 0.3).astype(int), [50, 10], rule="rescale", bootstrap=0)
    found = verdict(subject)
    assert (found.status, found.alarms[0].title) == (
        "keep",
        "Scaling cannot change this model's predictions.",
    )
    assert "changes no prediction" in render_page([subject])


def test_a_class_without_weight_still_counts_in_its_group():
    counts = np.array([300, 90, 5, 4])
    subject = of_logits(*made.logits_of(counts, 20), counts, target=[1, 1, 1, 0], gamma=0.2)
    assert [half.tolist() for half in subject.halves] == [[2, 3], [0, 1]]
    assert subject.mass.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])


def test_a_class_without_a_sample_is_left_out_and_a_single_class_works():
    logits, labels = made.logits_of(np.array([90, 20, 5]), 20)
    some, one = labels != 2, labels == 1
    subject = of_logits(logits[some], labels[some], [90, 20, 5], bootstrap=0)
    assert subject.mass.tolist() == [0.5, 0.5, 0.0]
    assert "No sample here of class 2" in " ".join(alarm.text for alarm in verdict(subject).alarms)
    alone = verdict(of_logits(logits[one], labels[one], [90, 20, 5], gamma=0.2))
    assert alone.numbers[2].after == alone.numbers[3].after


def test_a_page_that_cannot_be_made_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match=r"expected a page as \.html"):
        write(tmp_path / "p.pdf", [made.blind()])
    with pytest.raises(ValueError, match="expected at least one subject or table"):
        write(tmp_path / "p.html", [])
    assert list(tmp_path.iterdir()) == []
