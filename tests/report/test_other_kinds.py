"""Files of other kinds, sizes and shapes than ours: `report` refuses each in one line, or shows it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

import levelhead as lh
from levelhead.choice.snapshot import Snapshot
from levelhead.choice.tuned_json import read_tuned, write_tuned
from levelhead.core.head import Head
from levelhead.report import of_file, of_logits, of_snapshot, write

RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 3
LOGITS = RNG.normal(size=(60, 3)) + np.eye(3)[LABELS]
COUNTS = [90, 30, 10]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    np.savez(folder / "l.npz", logits=LOGITS, labels=LABELS, counts=COUNTS)
    write_tuned(
        lh.tune(LOGITS, LABELS, COUNTS, rule="rescale", bootstrap=20), folder / "tuned.json"
    )
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"level": 1e-320}, {"level": 1 - 1e-12}, {"value_at_zero": None}, {"interval": [0.0, 1e308]}, {"gamma": 1e250},
        {"temperature": 1e-320}, {"temperature": 1e300}, {"scale": [1, 2, 3]}, {"plateau": [0, 1e308]},
        {"classes": 50_000_000, "counts": None, "recall": None, "recall_at_zero": None},
    ],
)  # fmt: skip
def test_numbers_that_no_choice_has_are_refused(change, tuned, tmp_path):
    content = json.loads((tuned / "tuned.json").read_text())
    (tmp_path / "tuned.json").write_text(json.dumps(content | change))
    with pytest.raises(lh.LevelheadError, match="not a file that `levelhead tune` wrote"):
        of_file(tuned / "l.npz", tuned=tmp_path / "tuned.json")


def test_labels_without_their_numbers_are_refused(tmp_path):
    found = lh.tune_labels(
        LOGITS, (LOGITS + RNG.normal(size=LOGITS.shape) > 0).astype(int), bootstrap=20
    )
    for change, message in (
        ({"value": None, "value_at_zero": None}, "value: expected a value"),
        ({"labels": found.labels[:2]}, "labels: expected 3, one per class, got 2"),
        (
            {"labels": (replace(found.labels[0], gain=None), *found.labels[1:])},
            "labels: expected a gain",
        ),
    ):
        write_tuned(replace(found, **change), tmp_path / "tuned.json")
        with pytest.raises(lh.LevelheadError, match=message):
            read_tuned(tmp_path / "tuned.json")


@pytest.mark.parametrize(
    "norms", ["word", [1.0], [[1.0], [2.0]], {"a": 1}, [None, 1.0, 2.0], [float("inf")] * 3]
)
def test_norms_of_another_kind_are_refused(norms, tmp_path):
    split = {"test": RNG.normal(size=(6, 2))}, {"test": np.arange(6) % 3}
    snapshot = Snapshot(Head(RNG.normal(size=(3, 2))), np.array(COUNTS), *split)
    log = [{"epoch": 1, "norms": norms}, {"epoch": 2, "norms": [1.0, 2.0, 3.0]}]
    with pytest.raises(lh.LevelheadError, match="log: expected 3 norms"):
        write(tmp_path / "page.html", [of_snapshot(snapshot, gamma=0.5, log=log)])


def test_snapshot_of_classes_without_weights_is_refused(tmp_path):
    facts = {"levelhead.snapshot": json.dumps({"version": 1, "names": None, "meta": {}})}
    tensors = {"head.weight": np.zeros((900_000_000, 0), np.float32), "counts": np.arange(5)}
    save_file(tensors, tmp_path / "s.safetensors", facts)
    assert (tmp_path / "s.safetensors").stat().st_size < 500
    with pytest.raises(
        lh.LevelheadError, match=r"expected a weight \[K, d\], got shape \[900000000, 0\]"
    ):
        of_file(tmp_path / "s.safetensors")


@pytest.mark.parametrize("size", [1e6, 1e9, 1e12, 1e30])
def test_scores_of_any_size_have_a_page_of_the_same_length(size, tmp_path):
    """The slider's stops are as many for large scores: there were 10^9 for those of that size."""
    for unit in (1.0, size):
        subject = of_logits(LOGITS * unit, LABELS, COUNTS, rule="shift", bootstrap=0)
        assert 4_000 < subject.views[0].end * subject.views[0].step < 60_001
        write(tmp_path / "page.html", [subject])


@pytest.mark.parametrize("size", [1e155, 1e200, 1e300, 1e-160, 1e-300])
def test_scores_whose_squares_are_no_floats_have_the_same_choice(size):
    unit = 2.0 ** round(np.log2(size))
    plain, large = (
        lh.tune(LOGITS * by, LABELS, COUNTS, rule="rescale", bootstrap=0) for by in (1.0, unit)
    )
    assert large.gamma == plain.gamma
    assert large.temperature == pytest.approx(plain.temperature * unit, rel=1e-6)


def test_page_of_scores_beyond_single_precision_is_refused_in_words(tmp_path):
    with pytest.raises(
        lh.LevelheadError, match="scores of this size have no probabilities to show"
    ):
        write(
            tmp_path / "page.html",
            [of_logits(LOGITS * 1e100, LABELS, COUNTS, rule="rescale", bootstrap=0)],
        )
