"""Pages from files: a tuned.json, logits with and without a choice; what cannot be shown is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import levelhead as lh
from levelhead.io.samples_file import describe_sources
from levelhead.report import of_file, of_tuned, write
from levelhead.report.page import render_page

from . import made

pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
COUNTS = np.array([90, 30, 10])
LOGITS, LABELS = made.logits_of(COUNTS, 40)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with held-out and test samples, and with what was chosen on the first."""
    monkeypatch.chdir(tmp_path)
    other, truth = made.logits_of(COUNTS, 30, seed=3)
    np.savez("held-out.npz", logits=LOGITS, labels=LABELS, counts=COUNTS)
    np.savez("test.npz", logits=other, labels=truth, counts=COUNTS)
    np.save("logits.npy", LOGITS)
    np.save("labels.npy", LABELS)
    sources = describe_sources({"logits": "logits.npy", "labels": "labels.npy"})
    tuned = lh.tune(LOGITS, LABELS, COUNTS)
    content = tuned.to_dict() | {"sources": sources}
    Path("tuned.json").write_text(json.dumps(content))
    return tmp_path


def test_logits_are_tuned_on(here):
    subject = of_file("held-out.npz")
    tuned = lh.tune(LOGITS, LABELS, COUNTS)
    assert subject.tuned.adjustment.offset == pytest.approx(tuned.adjustment.offset)
    assert subject.title == "held-out"
    assert "sha256" in subject.facts["logits"]
    shifted = of_file("held-out.npz", rule="shift", metric="macro_f1", title="mine")
    assert (shifted.tuned.rule, shifted.tuned.metric) == ("shift", "macro_f1")
    assert shifted.title == "mine"


def test_logits_without_labels_are_tuned_without(here):
    subject = of_file("logits.npy")
    assert subject.tuned.evidence is None
    shares = np.bincount(subject.tuned.apply(LOGITS).argmax(axis=1), minlength=3) / len(LOGITS)
    assert [row.share[1] for row in subject.rows] == pytest.approx(
        [shares[row.index] for row in subject.rows]
    )


def test_a_choice_is_judged_on_other_samples(here):
    subject = of_file("test.npz", tuned=Path("tuned.json"), chosen_on="test")
    assert subject.measured == "test"
    assert subject.tuned.evidence.n == 90
    assert subject.tuned.chosen_on == "held-out"
    assert subject.tuned_file == "tuned.json"


def test_of_samples_without_labels_only_shares_are_shown(here):
    np.save("new.npy", LOGITS[::-1][:40] + [3.0, 0, 0])
    subject = of_file("new.npy", tuned=Path("tuned.json"))
    before = np.bincount(np.load("new.npy").argmax(axis=1), minlength=3) / 40
    assert [row.share[0] for row in subject.rows] == [before[row.index] for row in subject.rows]
    assert all(np.isnan(row.recall).all() for row in subject.rows)
    text = render_page([subject])
    assert "not judged: there are no labels" in text
    assert "<dt>Predicted share" in text
    assert "<dt>Accuracy" not in text
    # Of the samples that it was chosen on, all is known without them.
    assert of_file("logits.npy", tuned=Path("tuned.json")).tuned.evidence is not None


def test_on_its_own_samples_a_choice_keeps_its_evidence(here):
    subject = of_file("logits.npy", labels=Path("labels.npy"), tuned=Path("tuned.json"))
    assert subject.measured is None
    assert subject.tuned.gain == lh.Tuned.load("tuned.json").gain


def test_a_tuned_file_brings_its_tables_and_finds_its_samples(here, monkeypatch):
    subject = of_file("tuned.json")
    assert subject.logits is not None
    assert "Which classes are confused" in render_page([subject])
    monkeypatch.chdir("/")
    assert of_file(here / "tuned.json").logits is not None  # beside it
    np.save(here / "logits.npy", LOGITS + 1)
    changed = of_file(here / "tuned.json")
    assert changed.logits is None
    assert "it has changed since" in changed.facts["logits"]
    (here / "logits.npy").unlink()
    alone = of_file(here / "tuned.json")
    assert "not found here" in alone.facts["logits"]
    text = render_page([alone])
    assert alone.tuned.change_text() in text.replace("&gt;", ">")
    assert "Which classes are confused" not in text


def test_a_rule_next_to_a_choice_is_refused(here):
    with pytest.raises(lh.LevelheadError, match="rule: the choice is made already"):
        of_file("test.npz", tuned=Path("tuned.json"), rule="shift")
    with pytest.raises(lh.LevelheadError, match="metric: the choice is made already"):
        of_file("tuned.json", metric="error")


@pytest.mark.parametrize(
    "change",
    [{"scale": [1, 2]}, {"temperature": -1}, {"offset": [0, 0, 1e300]}, {"format": "other"}],
)
def test_numbers_that_no_choice_has_are_refused(change, here):
    content = json.loads(Path("tuned.json").read_text())
    Path("tuned.json").write_text(json.dumps(content | change))
    with pytest.raises(lh.LevelheadError, match="not a file that `levelhead tune` wrote"):
        of_file("test.npz", tuned=Path("tuned.json"))


def test_files_of_no_known_kind_are_refused(here):
    with pytest.raises(lh.LevelheadError, match="expected a run's folder, a snapshot, a tuned"):
        of_file("page.html")


@pytest.mark.parametrize("size", [1e-30, 1e9, 1e30])
def test_scores_of_any_size_have_a_page_of_about_the_same_length(size, tmp_path):
    sizes = []
    for unit in (1.0, size):
        tuned = lh.tune(LOGITS * unit, LABELS, COUNTS, rule="shift")
        subject = of_tuned(tuned, LOGITS * unit, LABELS)
        sizes.append(write(tmp_path / "page.html", [subject]).stat().st_size)
    assert sizes[1] < 1.5 * sizes[0]


@pytest.mark.slow
def test_the_command_writes_the_page_and_the_file_leads_back_to_it(here, levelhead):
    words = ("tune", "--logits", "held-out.npz", "-o", "new.json", "--report", "page.html")
    status, _, err = levelhead(*words)
    assert status == 0, err
    page = Path("page.html").read_text(encoding="utf-8")
    assert "levelhead adjust model.safetensors --tuned new.json -o adjusted.safetensors" in page
    assert levelhead("report", "new.json", "-o", "again.html")[0] == 0
    words = ("report", "test.npz", "--tuned", "new.json", "--chosen-on", "test")
    status, _, err = levelhead(*words, "-o", "other.html")
    assert status == 0, err
    assert "90 test samples that had no part in the choice" in Path("other.html").read_text()
