"""Real classifiers whose training nobody knows, as docs/unknown.md shows them: what offsets gain on new samples."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score

import levelhead as lh

SHOWN = Path(__file__).parents[1] / "docs" / "shown"


@pytest.fixture
def subjects(monkeypatch):
    monkeypatch.syspath_prepend(str(SHOWN))
    return import_module("unknown_training")


def changes(subjects, subject, metric: str, measure) -> np.ndarray:
    """Return by how much a measure rises on new samples, in points, of each of eight draws."""
    points = []
    for seed in range(8):
        held_out, new = subjects.draw(subject.labels, seed)
        tuned = lh.tune(subject.scores[held_out], subject.labels[held_out], metric=metric)
        before, after = (
            measure(subject.labels[new], scores.argmax(axis=1))
            for scores in (subject.scores[new], tuned.apply(subject.scores[new]))
        )
        points.append(100 * (after - before))
    return np.array(points)


def macro_f1(truth, predicted) -> float:
    return f1_score(truth, predicted, average="macro")


def test_samples_that_are_held_out_are_no_new_ones(subjects):
    labels = np.repeat(np.arange(12), 80)
    held_out, new = subjects.draw(labels, 3)
    assert not set(held_out) & set(new)
    assert np.array_equal(np.bincount(labels[held_out]), np.bincount(labels[new]))
    assert sorted(np.bincount(labels[new]))[::11] == [4, 40]


def test_a_language_identifier_gains(subjects):
    pytest.importorskip("py3langid")
    pytest.importorskip("babel")
    subject = subjects.languages()
    assert subject.scores.shape == (960, 12)
    assert changes(subjects, subject, "macro_f1", macro_f1).mean() > 2
    assert changes(subjects, subject, "balanced_error", balanced_accuracy_score).mean() > 0.5


@pytest.mark.slow
def test_an_identifier_of_file_types_gains(subjects):
    pytest.importorskip("magika")
    subject = subjects.file_types()
    assert np.bincount(subject.labels).min() > 40
    assert changes(subjects, subject, "macro_f1", macro_f1).mean() > 4
    assert changes(subjects, subject, "balanced_error", balanced_accuracy_score).mean() > 3
