"""tuned.json: written, read again, refused if an entry that is used cannot be used."""

import json
from dataclasses import replace

import numpy as np
import pytest

import levelhead as lh
from levelhead.choice.tuned_json import describe_sources, read_tuned, tuned_of, write_tuned

CHOICE = {"gamma": 0.5, "rule": "rescale", "chosen_on": "held-out"}
SOURCES = {
    "files": {"logits": "L.npy", "counts": "C.json"},
    "sha256": {"logits": "0", "counts": "1"},
    "kind": "logits",
    "target": None,
    "counts": [6, 3],
}


def tunings():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=90)
    logits, counts = rng.normal(size=(90, 3)) + 2 * np.eye(3)[labels], [400, 100, 30]
    yield lh.tune(
        logits,
        labels,
        counts,
        bootstrap=20,
        names=["a", "b", "c"],
        metric=lh.Goal("macro_f1", floors=0.1),
    )
    yield lh.tune(
        logits, labels, counts, bootstrap=20, rule="vector", unlabelled=logits, target="estimate"
    )
    yield lh.tune(
        logits[labels < 2], labels[labels < 2], counts, bootstrap=0, rule="shift"
    )  # a class without a sample
    yield lh.tune_labels(logits, np.eye(3, dtype=int)[labels], counts, bootstrap=20)
    yield lh.match_prior(logits, counts, bootstrap=20)


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
def test_a_choice_is_read_as_it_was_written(tmp_path):
    np.save(tmp_path / "L.npy", np.eye(2))
    files = {"logits": tmp_path / "L.npy", "counts": tmp_path / "L.npy", "labels": None}
    sources = describe_sources(files, np.array([400, 100, 30]), kind="logits", target=None)
    for known in tunings():
        tuned = replace(known, sources=sources)
        write_tuned(tuned, tmp_path / "tuned.json")
        again = read_tuned(tmp_path / "tuned.json", rule=tuned.rule)
        assert again.to_dict() == tuned.to_dict() == known.to_dict() | {"sources": sources}
        assert tuned.multilabel or str(again) == str(tuned)
        assert again.curve.at(again.gamma) == pytest.approx(tuned.curve.at(tuned.gamma))
        assert again.gamma.rule == tuned.rule


@pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")
def test_what_was_read_prints_all_but_its_curve(tmp_path):
    tuned = next(tunings())
    write_tuned(tuned, tmp_path / "t.json")
    again = read_tuned(tmp_path / "t.json")
    assert tuned.report().endswith(again.report())
    assert "svg" in tuned._repr_html_()
    assert "svg" not in again._repr_html_()


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"sources": None},
        {"sources": {}},
        {"sources": SOURCES},
        {"sources": SOURCES | {"counts": None}},
        {"counts": [6, 3], "names": ["a", "b"], "bias": "keep"},
        {"counts": None, "names": None, "bias": None},
        {"level": None, "interval": None, "gain": None, "n": None, "classes": None},
        {"gamma": 1, "unknown": [1]},
        {
            "level": 0.95,
            "interval": [0, 1],
            "gain": 0.1,
            "gain_interval": [-0.1, 0.2],
            "n": 9,
            "classes": 2,
        },
    ],
)
def test_files_of_every_version_are_read(tmp_path, entries):
    (tmp_path / "t.json").write_text(json.dumps(CHOICE | entries))
    said = {
        name: value for name, value in (CHOICE | entries).items() if value and name != "unknown"
    }
    assert said.items() <= read_tuned(tmp_path / "t.json").to_dict().items()


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"gamma": "1"}, "gamma: expected a number, got '1'"),
        ({"gamma": 10**400}, "gamma: expected a number, got 1000"),
        ({"gamma": float("nan")}, "gamma: expected a number, got nan"),
        ({"rule": "magic"}, r"rule: expected 'none', 'shift', .* or 'offsets', got 'magic'"),
        ({"level": 1}, "level: expected a number between 0 and 1, got 1"),
        ({"interval": [1]}, r"interval: expected a list of numbers, got \[1\]"),
        (
            {"gain_interval": [1, None]},
            r"gain_interval: expected a list of numbers, got \[1, None\]",
        ),
        ({"classes": 0}, "classes: expected at least 1, got 0"),
        ({"counts": [3, 0]}, r"counts: expected positive numbers, got \[3.0, 0.0\]"),
        ({"counts": [3, "a"]}, r"counts: expected a list of numbers, got \[3, 'a'\]"),
        ({"counts": [3, 2], "classes": 3}, "counts: expected 3, one per class, got 2"),
        ({"names": ["a"], "classes": 3}, "names: expected 3, one per class, got 1"),
        ({"bias": "drop"}, "bias: expected scale or keep, got 'drop'"),
        ({"n": 2.5}, "n: expected a whole number, got 2.5"),
        ({"recall": [0.5, "x"]}, "recall: expected a list of numbers"),
        ({"candidates": 3}, "candidates: expected a list of objects, got 3"),
        ({"candidates": [{"rule": "shift", "gamma": 1}]}, "candidates: no 'value'"),
        (
            {"candidates": [{"rule": "shift", "gamma": "x", "value": 1, "gain": 1}]},
            "candidates: gamma: expected a num",
        ),
        ({"prior": {"shares": [0.5]}}, "prior: no 'interval'"),
        (
            {"prior": {"shares": ["x"], "interval": None, "method": "em", "n": 1, "held_out": 0}},
            "prior: shares: expected a list of numbers",
        ),
        ({"sources": "x"}, "sources: not a JSON object"),
        ({"sources": {"files": {}}}, "sources: no 'sha256'"),
        ({"sources": SOURCES | {"files": {"logits": 3}}}, "sources: files: expected an object"),
        (
            {"sources": SOURCES | {"files": {"counts": "C"}}},
            "sources: files: expected logits, labels, counts, norms",
        ),
        ({"sources": SOURCES | {"sha256": {}}}, "sources: sha256: expected one for each file"),
        ({"sources": SOURCES | {"counts": []}}, "sources: counts: expected positive numbers"),
    ],
)
def test_an_entry_that_cannot_be_used_is_named(tmp_path, entries, says):
    (tmp_path / "t.json").write_text(json.dumps(CHOICE | entries))
    with pytest.raises(
        ValueError, match=rf"t\.json: not a file that `levelhead tune` wrote \({says}"
    ):
        read_tuned(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[", "not JSON"),
        ("3", "not a JSON object"),
        ("{}", "no 'gamma'"),
        (b"\xff", "not valid UTF-8"),
    ],
)
def test_a_file_that_is_not_a_choice_is_named(tmp_path, content, says):
    (tmp_path / "t.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"\({says}"):
        read_tuned(tmp_path / "t.json")


def test_a_choice_has_its_counts_whichever_version_wrote_it(tmp_path):
    for entries in ({"counts": [6, 3]}, {"sources": SOURCES}, {"counts": None, "sources": SOURCES}):
        (tmp_path / "t.json").write_text(json.dumps(CHOICE | entries))
        assert (
            tuned_of(tmp_path / "t.json").counts
            == tuned_of(str(tmp_path / "t.json")).counts
            == (6.0, 3.0)
        )
    (tmp_path / "t.json").write_text(json.dumps(CHOICE))
    with pytest.raises(
        ValueError, match=r"t\.json: does not say which counts gamma was chosen with; tune again"
    ):
        tuned_of(tmp_path / "t.json")


def test_a_choice_in_memory_is_the_same_as_the_one_in_its_file(tmp_path):
    logits = np.array([[4.0, 0.0], [4.0, 1.0], [4.0, 3.0], [4.0, 2.5]])
    tuned = lh.tune(
        logits,
        [0, 0, 1, 1],
        [400, 100],
        rule=lh.rules.Shift(range=(0, 3)),
        names=["a", "b"],
        bootstrap=0,
    )
    write_tuned(tuned, tmp_path / "t.json")
    assert tuned_of(tuned) is tuned
    assert tuned_of(tmp_path / "t.json").to_dict() == tuned.to_dict()
    assert tuned_of(tuned).names == ("a", "b")
    with pytest.raises(
        ValueError,
        match=r"tuned: expected what `tune` returned, or the path of a file .* got float",
    ):
        tuned_of(0.5)
    with pytest.raises(FileNotFoundError, match=r"gone\.json: no such file"):
        tuned_of("gone.json")
