"""tuned.json: read as it was written; an old file and one that cannot be used are refused in one line."""

import copy
import json
import os
from dataclasses import replace

import numpy as np
import pytest

import levelhead as lh
from levelhead import LevelheadError
from levelhead.core.tuned import read_tuned, tuned_of, write_tuned
from levelhead.core.tuned_checks import check_for_head
from levelhead.core.tuned_json import from_dict

from .made import COST, COUNTS, calibrated

NAMES = ["ant", "cat", "elk", "fox"]
LOGITS, LABELS = calibrated(0, 200)
SOURCES = {"files": {"logits": "L.npy"}, "sha256": {"logits": "0"}}
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")


def softmax(logits):
    odds = np.exp(logits)
    return odds / odds.sum(axis=1, keepdims=True)


TUNINGS = {
    "offsets": lambda: lh.tune(LOGITS, LABELS, COUNTS),
    "no counts": lambda: lh.tune(LOGITS, LABELS),
    "shift": lambda: lh.tune(LOGITS, LABELS, COUNTS, rule="shift", names=NAMES),
    "rescale": lambda: lh.tune(LOGITS + 8, LABELS, COUNTS, rule="rescale", level=0.8),
    "tau": lambda: lh.tune(LOGITS + 8, LABELS, COUNTS, rule=lh.rules.Tau(norms=[4, 3, 2, 1])),
    "scales": lambda: lh.tune(LOGITS + 8, LABELS, COUNTS, rule="scales"),
    "vector": lambda: lh.tune(LOGITS, LABELS, COUNTS, rule="vector", chosen_on="test"),
    "cost": lambda: lh.tune(LOGITS, LABELS, COUNTS, metric=lh.Goal(cost=COST)),
    "floors": lambda: lh.tune(LOGITS, LABELS, COUNTS, metric=lh.Goal("macro_f1", floors={3: 0.2})),
    "target": lambda: lh.tune(LOGITS, LABELS, COUNTS, target=[0.1, 0.2, 0.3, 0.4]),
    "an estimate": lambda: lh.tune(LOGITS, LABELS, COUNTS, target="estimate", unlabelled=LOGITS),
    "a level in float32": lambda: lh.tune(
        LOGITS, LABELS, target="estimate", unlabelled=LOGITS, level=np.float32(0.8)
    ),
    "votes": lambda: lh.tune(softmax(LOGITS).round(1), LABELS, COUNTS, kind="probabilities"),
    "log-probabilities": lambda: lh.tune(np.log(softmax(LOGITS)), LABELS, COUNTS),
    "a class without samples": lambda: lh.tune(LOGITS[LABELS < 3], LABELS[LABELS < 3], COUNTS),
    "a background": lambda: lh.tune(LOGITS, LABELS, lh.counts.with_background(COUNTS, 0)),
    "without labels": lambda: lh.tune_unlabelled(LOGITS),
    "without labels, counts": lambda: lh.tune_unlabelled(LOGITS, counts=COUNTS, rule="shift"),
    "several labels": lambda: lh.tune_labels(LOGITS, np.eye(4, dtype=int)[LABELS], COUNTS),
}


@pytest.mark.parametrize("name", TUNINGS)
def test_a_choice_is_read_as_it_was_written(tmp_path, name):
    tuned = replace(TUNINGS[name](), sources=SOURCES)
    tuned.save(tmp_path / "tuned.json")
    again = lh.Tuned.load(tmp_path / "tuned.json")
    assert again.to_dict() == tuned.to_dict()
    assert str(again) == str(tuned)
    assert again.summary() == tuned.summary()
    assert again.price_text() == tuned.price_text()
    assert again.sources == SOURCES
    if tuned.kind != "probabilities":
        np.testing.assert_array_equal(again.apply(LOGITS), tuned.apply(LOGITS))


def test_a_file_is_plain_json_that_others_can_read(tmp_path):
    TUNINGS["shift"]().save(tmp_path / "tuned.json")
    content = json.loads((tmp_path / "tuned.json").read_text())
    assert content["format"] == "levelhead tuned 1"
    assert (content["rule"], content["names"], content["kind"]) == ("shift", NAMES, "logits")
    assert content["verdict"] in ("better", "likely better", "no difference seen", "worse")
    assert len(content["offset"]) == len(content["scale"]) == 4
    assert content["evidence"]["before"]["sizes"] == np.bincount(LABELS).tolist()


def test_an_old_file_is_refused_in_one_line(tmp_path):
    old = {"gamma": 0.5, "rule": "rescale", "chosen_on": "held-out", "counts": [6, 3]}
    (tmp_path / "t.json").write_text(json.dumps(old))
    with pytest.raises(
        lh.LevelheadError, match=r"t\.json: .*older levelhead.*tune again"
    ) as caught:
        read_tuned(tmp_path / "t.json")
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def content() -> dict:
    return replace(TUNINGS["offsets"](), sources=SOURCES, names=tuple(NAMES)).to_dict()


EVIDENCE = "evidence"
HOSTILE = [
    ({"format": None}, "expected the format 'levelhead tuned 1'"),
    ({"format": "levelhead tuned 2"}, "expected the format 'levelhead tuned 1'"),
    ({"rule": "magic"}, "rule: expected 'offsets', 'shift', .* got 'magic'"),
    ({"rule": 3}, "rule: expected text, got 3"),
    ({"rule": None}, "no 'rule'"),
    ({"scale": None}, "no 'scale'"),
    ({"scale": []}, "expected"),
    ({"scale": [1, 1, 1, 0]}, "scale: expected positive numbers"),
    ({"scale": [1, 1, 1, -1]}, "scale: expected positive numbers"),
    ({"scale": [1, 1, 1, "x"]}, "scale: expected a list of numbers"),
    ({"scale": 3}, "scale: expected a list of numbers, got 3"),
    ({"scale": [1, 1, 1, float("nan")]}, "scale: expected a list of numbers"),
    ({"scale": [1, 1, 1, 1e300]}, "scale: expected finite numbers of a usual size"),
    ({"scale": [1, 1, 1, 10**400]}, "scale: expected a list of numbers"),
    ({"offset": [0, 0, 0]}, "offset: expected 4, one per class, got 3"),
    ({"offset": [0, 0, 0, float("inf")]}, "offset: expected a list of numbers"),
    ({"offset": [0, 0, 0, -1e300]}, "offset: expected finite numbers of a usual size"),
    ({"strength": "1"}, "strength: expected a number"),
    ({"strength": float("nan")}, "strength: expected a number"),
    ({"strength": 1e300}, "strength: expected a number of a usual size"),
    ({"smoothing": -1}, "smoothing: expected a number from 0 to 1"),
    ({"smoothing": 2}, "smoothing: expected a number from 0 to 1"),
    ({"temperature": 0}, "temperature: expected a number above 0"),
    ({"temperature": "warm"}, "temperature: expected a number"),
    ({"counts": [3, 2, 1, 0]}, "counts: expected positive numbers"),
    ({"counts": [3, 2, 1]}, "counts: expected 4, one per class, got 3"),
    ({"counted": 1}, "counted: expected true or false"),
    ({"names": ["a"]}, "names: expected 4, one per class, got 1"),
    ({"names": [1, 2, 3, 4]}, "names: expected a list of text"),
    ({"kind": "odds"}, "kind: expected logits, probabilities or log-probabilities, got 'odds'"),
    ({"chosen_on": 3}, "chosen_on: expected text"),
    ({"n": 2.5}, "n: expected a whole number, got 2.5"),
    ({"target": [1, 2]}, "target: expected 4, one per class"),
    ({"task": "regression"}, "task: expected 'multiclass' or 'multilabel'"),
    ({"background": 4}, "background: expected a class below 4"),
    ({"background": -1}, "background: expected a class below 4"),
    ({"warnings": "none"}, "warnings: expected a list of text"),
    ({"floors": 3}, "floors: expected a list of objects, got 3"),
    ({"floors": [3]}, "floors: not a JSON object"),
    ({"floors": [{"index": 1}]}, "floors: no 'least'"),
    (
        {"floors": [{"index": 9, "least": 0.5, "probability": 0.5, "held_before": True}]},
        "floors: index: expected a class below 4",
    ),
    (
        {"floors": [{"index": 1, "least": "x", "probability": 0.5, "held_before": True}]},
        "floors: least: expected a number",
    ),
    ({"sources": "x"}, "sources: not a JSON object"),
    ({"sources": {"files": {}}}, "sources: no 'sha256'"),
    ({"sources": {"files": {"logits": 3}, "sha256": {}}}, "sources: files: expected an object"),
    (
        {"sources": {"files": {"a": "b"}, "sha256": {}}},
        "sources: sha256: expected one for each file",
    ),
    ({"prior": 3}, "prior: not a JSON object"),
    ({"prior": {"shares": [0.5]}}, "prior: no 'method'"),
    ({EVIDENCE: 3}, "evidence: not a JSON object"),
    ({EVIDENCE: {}}, "evidence: no 'metric'"),
    ({EVIDENCE: {"gain": "x"}}, "evidence: gain: expected a number"),
    ({EVIDENCE: {"gain": float("nan")}}, "evidence: gain: expected a number"),
    ({EVIDENCE: {"level": 1}}, "evidence: level: expected a number between 0 and 1, got 1"),
    ({EVIDENCE: {"standard_error": -1}}, "evidence: standard_error: expected 0 or more, got -1"),
    ({EVIDENCE: {"metric": 3}}, "evidence: metric: expected text"),
    ({EVIDENCE: {"before": None}}, "evidence: before: not a JSON object"),
    (
        {EVIDENCE: {"after": {"right": [1]}}},
        r"evidence: after: right: expected finite numbers \[4\]",
    ),
    (
        {EVIDENCE: {"before": {"right": [1, 1, 1, "x"]}}},
        r"evidence: before: right: expected finite numbers \[4\]",
    ),
    (
        {EVIDENCE: {"before": {"right": [1, 1, 1, -1]}}},
        r"evidence: before: right: expected numbers of which none is negative",
    ),
]


@pytest.mark.parametrize(("entries", "message"), HOSTILE, ids=lambda case: str(case)[:60])
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path, content, entries, message):
    changed = content | entries
    inner = entries.get(EVIDENCE)
    if isinstance(inner, dict) and inner:
        changed[EVIDENCE] = content[EVIDENCE] | inner
    (tmp_path / "t.json").write_text(json.dumps(changed))
    with pytest.raises(lh.LevelheadError, match=message) as caught:
        read_tuned(tmp_path / "t.json")
    assert "t.json: not a file that `levelhead tune` wrote (" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"[", "not JSON"),
        (b"3", "not a JSON object"),
        (b"{}", "expected the format"),
        (b"\xff", "not valid UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b"", "the file is empty"),
    ],
)
def test_a_file_that_is_not_a_choice_is_named(tmp_path, given, message):
    (tmp_path / "t.json").write_bytes(given)
    with pytest.raises(ValueError, match=rf"t\.json: .*{message}"):
        read_tuned(tmp_path / "t.json")


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(lh.LevelheadError, match="pipe: a pipe; expected a regular file"):
        read_tuned(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match=r"gone\.json: no such file"):
        read_tuned("gone.json")


def test_unknown_entries_are_ignored(tmp_path, content):
    (tmp_path / "t.json").write_text(json.dumps(content | {"unknown": [1]}))
    assert read_tuned(tmp_path / "t.json").to_dict() == content


def test_a_choice_is_taken_as_it_is_or_read_from_its_file(tmp_path):
    tuned = TUNINGS["offsets"]()
    write_tuned(tuned, tmp_path / "t.json")
    assert tuned_of(tuned) is tuned
    for path in (tmp_path / "t.json", str(tmp_path / "t.json")):
        assert tuned_of(path).to_dict() == tuned.to_dict()
    with pytest.raises(
        lh.LevelheadError, match=r"tuned: expected what `tune` returned, .* got float"
    ):
        tuned_of(0.5)
    with pytest.raises(FileExistsError):
        write_tuned(tuned, tmp_path / "t.json", new=True)


@pytest.mark.parametrize(
    ("tuning", "classes", "names", "message"),
    [
        ("offsets", 5, None, "the head has 5 classes, but it was tuned on 4 classes"),
        ("offsets", 1, None, "the head gives a single logit, but it was tuned on 4 classes"),
        ("shift", 4, ["cat", "ant", "elk", "fox"], "the head has its classes in another order"),
        ("several labels", 3, None, "the head has 3 outputs, but 4 labels were tuned"),
    ],
)
def test_a_head_that_a_choice_is_not_for_is_refused(tuning, classes, names, message):
    with pytest.raises(lh.LevelheadError, match=message):
        check_for_head(TUNINGS[tuning](), classes, names, "the head")


def test_a_head_that_a_choice_is_for_passes():
    check_for_head(TUNINGS["shift"](), 4, NAMES, "the head")
    check_for_head(TUNINGS["shift"](), 4, ["a", "b", "c", "d"], "the head")  # other words, no order
    check_for_head(TUNINGS["offsets"](), 4, None, "the head")
    check_for_head(TUNINGS["log-probabilities"](), 4, None, "the head")
    binary = lh.tune(LOGITS[:, :2], LABELS % 2, [3, 1])
    check_for_head(binary, 1, None, "the head")


OTHER_VALUES = [
    *(None, [], {}, "x", "better", True, -1, 0, 3.7, 1e308, 10**400, float("nan")),
    *([1], [1, 2], [1, 2, 3], ["a", "b", "c"], [None] * 3, [True, False, True], [1, 2, [3]]),
    *([[1], [2], [3]], [[1, 2], [3, 4], [5, 6]], [{}], {"a": 1}, "left out"),
]


def entries(content, before=()):
    """Yield the place of every entry of a JSON object; of a list, of its first two items."""
    inside = content.items() if isinstance(content, dict) else enumerate(content[:2])
    for key, value in inside:
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from entries(value, (*before, key))


def with_other_value(content, place, value):
    changed = copy.deepcopy(content)
    holder = changed
    for key in place[:-1]:
        holder = holder[key]
    if value == "left out":
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return changed


@pytest.mark.parametrize("form", ["floors", "estimate", "several labels", "costs"])
def test_any_entry_of_any_other_value_is_refused_in_one_line_or_can_be_shown(form):
    labels = np.arange(60) % 3
    logits = np.random.default_rng(0).normal(size=(60, 3)) + 2 * np.eye(3)[labels]
    tuned = {
        "floors": lambda: lh.tune(logits, labels, metric=lh.Goal(floors=0.2), names=[*"abc"]),
        "estimate": lambda: lh.tune(logits, labels, target="estimate", unlabelled=logits),
        "several labels": lambda: lh.tune_labels(logits, np.eye(3, dtype=int)[labels]),
        "costs": lambda: lh.tune(logits, labels, metric=lh.Goal(cost=1 - np.eye(3))),
    }[form]()
    content = json.loads(json.dumps(tuned.to_dict()))
    messages = []
    shown = 0
    for place in entries(content):
        for value in OTHER_VALUES:
            try:
                read = lh.Tuned(**from_dict(with_other_value(content, place, value)))
            except LevelheadError as error:
                messages.append(str(error))
                continue
            assert read.summary()
            assert json.dumps(read.to_dict())
            assert np.isfinite(read.apply(np.ones((1, 3)))).all()
            shown += 1
    assert len(messages) > 200
    assert not any("\n" in message for message in messages)
    assert shown > 100
