"""Chunks choose what all their samples choose at once, or are chosen on a part and judged on all."""

import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import levelhead as lh
from levelhead.core.chunks import ChunkReader, Reservoir, tune_mapped
from levelhead.core.metrics import METRICS

from .made import COST, COUNTS, calibrated, loss_by_hand

TARGET = [0.1, 0.2, 0.3, 0.4]
pytestmark = pytest.mark.filterwarnings("ignore::levelhead.support.warnings.LevelheadWarning")


def cut(logits, labels, sizes=(100, 7, 200)):
    ends = np.cumsum([0, *sizes, len(labels) - sum(sizes)])
    return [(logits[a:b], labels[a:b]) for a, b in pairwise(ends)]


def assert_same(tuned: lh.Tuned, wanted: lh.Tuned) -> None:
    assert tuned.to_dict() == wanted.to_dict()


def part_of(monkeypatch, numbers: int) -> None:
    """Let a rule be fitted on so many numbers at most."""
    reader = ChunkReader.__init__

    def smaller(self, counts, names=None, kind="logits", most=numbers):
        reader(self, counts, names, kind, most)

    monkeypatch.setattr(ChunkReader, "__init__", smaller)


# -- All in the part -----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["offsets", "shift", "rescale", "scales", "vector"])
@pytest.mark.parametrize("metric", ["balanced_error", "macro_f1", "cost"])
def test_chunks_that_fit_choose_what_all_samples_choose(rule, metric):
    logits, labels = calibrated(0, 600)
    goal = lh.Goal(metric, cost=COST if metric == "cost" else None)
    wanted = lh.tune(logits, labels, COUNTS, metric=goal, rule=rule)
    for chunks in (
        cut(logits, labels),
        tuple(cut(logits, labels)),
        lambda: iter(cut(logits, labels)),
        iter(cut(logits, labels)),
    ):
        assert_same(lh.tune_chunks(chunks, COUNTS, metric=goal, rule=rule), wanted)


@pytest.mark.parametrize(
    "options",
    [
        {"metric": lh.Goal(floors=0.3)},
        {"target": TARGET},
        {"target": TARGET, "metric": "kappa"},
        {"names": list("abcd"), "level": 0.8, "rng": 5, "chosen_on": "test"},
        {"rule": lh.rules.Shift(range=(-1.0, 3.0))},
    ],
    ids=str,
)
def test_goals_and_options_are_those_of_all_samples(options):
    logits, labels = calibrated(1, 600)
    tuned = lh.tune_chunks(cut(logits, labels), COUNTS, **options)
    assert_same(tuned, lh.tune(logits, labels, COUNTS, **options))


def test_counts_are_those_of_all_labels_if_none_are_given():
    logits, labels = calibrated(2, 600)
    tuned = lh.tune_chunks(cut(logits, labels))
    assert tuned.counted
    assert_same(tuned, lh.tune(logits, labels))


def test_a_part_is_chosen_on_for_the_mix_of_all():
    logits, labels = calibrated(17, 20_000)
    reader = ChunkReader(COUNTS, numbers=4 * 1200)
    chunks = cut(logits, labels)
    tuned = tune_mapped(lambda work: map(work, chunks), reader, metric="error")
    whole = lh.tune(logits, labels, COUNTS, metric="error")
    assert tuned.evidence.value == pytest.approx(whole.evidence.value, abs=0.005)
    assert tuned.temperature == pytest.approx(whole.temperature, rel=0.1)


def test_a_background_is_left_alone():
    logits, labels = calibrated(3, 600)
    counts = lh.counts.with_background(COUNTS, 0)
    tuned = lh.tune_chunks(cut(logits, labels), counts)
    assert (tuned.background, tuned.adjustment.offset[0]) == (0, 0)
    assert_same(tuned, lh.tune(logits, labels, counts))


def test_probabilities_and_their_logarithms():
    logits, labels = calibrated(4, 600)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for scores, kind in ((shares, "probabilities"), (np.log(shares), "logits")):
        tuned = lh.tune_chunks(cut(scores, labels), COUNTS, kind=kind)
        assert_same(tuned, lh.tune(scores, labels, COUNTS, kind=kind))


@given(st.integers(12, 60), st.lists(st.integers(0, 60), min_size=1, max_size=4))
@settings(max_examples=15)
def test_chunks_of_any_size(n, cuts):
    logits, labels = calibrated(n, n)
    edges = sorted({0, n, *(place % (n + 1) for place in cuts)})
    chunks = [(logits[a:b], labels[a:b]) for a, b in pairwise(edges)]
    assert_same(lh.tune_chunks(chunks, COUNTS), lh.tune(logits, labels, COUNTS))


def test_the_next_chunk_may_be_read_into_the_same_array():
    logits, labels = calibrated(5, 600)

    def read():
        room, room_labels = np.empty((200, 4)), np.empty(200, int)
        for first in range(0, 600, 200):
            room[:], room_labels[:] = logits[first : first + 200], labels[first : first + 200]
            yield room, room_labels

    for chunks in (read(), read):
        assert_same(lh.tune_chunks(chunks, COUNTS), lh.tune(logits, labels, COUNTS))


def test_chunks_of_any_kind_may_come_mixed():
    logits, labels = calibrated(6, 300)
    logits = logits.astype(np.float32).astype(np.float64)  # the same numbers in both dtypes
    pieces = [(logits[i : i + 1], labels[i : i + 1]) for i in range(20)]
    pieces += [
        (logits[:0], labels[:0]),
        (logits[20:50].astype(np.float32), labels[20:50].tolist()),
        (torch.tensor(logits[50:90]), labels[50:90]),
        (logits[90:95].tolist(), labels[90:95]),
        (logits[95:], torch.tensor(labels[95:])),
    ]
    assert_same(lh.tune_chunks(pieces, COUNTS), lh.tune(logits, labels, COUNTS))


def test_titles_of_columns_are_names_as_they_are_for_all_samples():
    logits, labels = calibrated(0, 600)
    names = ["dog", "ant", "cat", "bee"]
    frame = pd.DataFrame(logits, columns=names)
    words = np.array(names)[labels]
    wanted = lh.tune(logits, words, COUNTS, names=names)
    untitled = [(logits[:300], labels[:300]), (frame[300:], words[300:])]
    for chunks in (cut(frame, words), untitled):
        tuned = lh.tune_chunks(chunks, COUNTS)
        assert tuned.names == tuple(names)
        np.testing.assert_allclose(tuned.adjustment.offset, wanted.adjustment.offset)
    turned = frame[sorted(names)]
    orders = "in the same order, got dog, ant, cat, bee in one and ant, bee, cat, dog in another"
    with pytest.raises(lh.LevelheadError, match=orders):
        lh.tune_chunks([(frame, labels), (turned, labels)], COUNTS)


def test_chunks_of_tokens_are_flattened():
    logits, labels = calibrated(7, 600)
    labels = np.where(np.arange(600) % 5 == 0, -100, labels)
    kept = labels != -100
    chunks = [
        (logits[i : i + 300].reshape(20, 15, 4), labels[i : i + 300].reshape(20, 15))
        for i in (0, 300)
    ]
    assert_same(lh.tune_chunks(chunks, COUNTS), lh.tune(logits[kept], labels[kept], COUNTS))


# -- More than fits ------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_a_choice_on_a_part_is_judged_on_all(monkeypatch, metric):
    part_of(monkeypatch, 2000)
    logits, labels = calibrated(8, 3000)
    goal = lh.Goal(metric, cost=COST if metric == "cost" else None)
    tuned = lh.tune_chunks(cut(logits, labels, (900, 900)), COUNTS, metric=goal)
    assert tuned.n == tuned.evidence.n == 3000
    assert tuned.evidence.before.sizes.tolist() == np.bincount(labels).tolist()
    value = loss_by_hand(metric, labels, logits.argmax(axis=1))
    assert goal.metric.loss(tuned.evidence.before) == pytest.approx(value)
    # Most samples were not fitted on: they are predicted by the fit on the part.
    after = goal.metric.loss(tuned.evidence.after)
    assert after == pytest.approx(
        loss_by_hand(metric, labels, tuned.apply(logits).argmax(axis=1)), abs=0.03
    )


def test_samples_of_the_part_are_judged_by_fits_without_their_fold(monkeypatch):
    """With one strength of its own there is one fit: the outcomes are those of all predictions."""
    part_of(monkeypatch, 400)
    logits, labels = calibrated(9, 800)
    tuned = lh.tune_chunks(cut(logits, labels), COUNTS, rule=lh.rules.Shift(1.0))
    shifted = logits + np.log(COUNTS.max() / COUNTS)
    after = lh.Tables.of(labels, shifted.argmax(axis=1), 4)
    np.testing.assert_array_equal(tuned.evidence.after.right, after.right)
    np.testing.assert_array_equal(tuned.evidence.after.predicted, after.predicted)


def test_a_plain_iterator_is_judged_on_the_part_alone(monkeypatch):
    part_of(monkeypatch, 2000)
    logits, labels = calibrated(10, 3000)
    tuned = lh.tune_chunks(iter(cut(logits, labels)), COUNTS)
    assert 500 <= tuned.n < 700


def test_chunks_that_differ_when_they_are_read_again_are_refused(monkeypatch):
    part_of(monkeypatch, 400)
    seeds = iter([0, 1])
    with pytest.raises(lh.LevelheadError, match="not the same when they were read again"):
        lh.tune_chunks(lambda: [calibrated(next(seeds), 300)], COUNTS)
    whole = [calibrated(2, 300)]
    reads = iter([whole, []])
    with pytest.raises(lh.LevelheadError, match="not the same when they were read again"):
        lh.tune_chunks(lambda: next(reads), COUNTS)


def test_a_part_does_not_depend_on_the_order_in_which_chunks_come():
    logits, labels = calibrated(11, 3000)
    parts = [Reservoir.of(*chunk, 2000) for chunk in cut(logits, labels, (900, 900))]
    in_order = Reservoir.joined(parts)
    shuffled = Reservoir.joined([parts[2], Reservoir.joined(parts[:2])])
    assert in_order.sizes.tolist() == shuffled.sizes.tolist() == np.bincount(labels).tolist()
    rows = [np.sort(reservoir.lots) for reservoir in (in_order, shuffled)]
    np.testing.assert_array_equal(*rows)


def test_a_part_has_the_same_share_of_each_class_and_all_of_a_small_one():
    labels = np.repeat([0, 1, 2], [20_000, 4000, 150])
    logits = np.random.default_rng(0).normal(size=(24_150, 3))
    kept = Reservoir.of(logits, labels, 3 * 6000)
    sizes = np.bincount(kept.labels)
    share = 6000 / 24_150
    assert sizes.tolist() == [np.ceil(20_000 * share), np.ceil(4000 * share), 150]


def votes_of(logits: np.ndarray) -> np.ndarray:
    """Return the votes of ten trees, of which many samples have the same."""
    rng = np.random.default_rng(0)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return rng.multinomial(10, odds / odds.sum(axis=1, keepdims=True)) / 10


@pytest.mark.parametrize("size", [50, 1000, 20_000])
def test_of_equal_rows_as_many_are_drawn_as_there_are(size):
    """Against the mean of each class's votes: as near to that of all samples as a random part would be."""
    logits, labels = calibrated(12, 20_000)
    votes = votes_of(logits)
    chunks = [(votes[i : i + size], labels[i : i + size]) for i in range(0, 20_000, size)]
    part = Reservoir.joined([Reservoir.of(*chunk, 4 * 2000) for chunk in chunks])
    for k in range(4):
        drawn, every = part.scores[part.labels == k], votes[labels == k]
        error = every.std(axis=0) / np.sqrt(len(drawn))
        assert (np.abs(drawn.mean(axis=0) - every.mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize("as_votes", [False, True])
def test_chunks_may_be_cut_otherwise_when_they_are_read_again(monkeypatch, as_votes):
    """Rows are known by themselves: those that were fitted on are found in whatever chunk they come."""
    part_of(monkeypatch, 4 * 500)
    scores, labels = calibrated(13, 3000)
    kind = "logits"
    if as_votes:
        scores = votes_of(scores)
        kind = "probabilities"
    chunks = cut(scores, labels, (900, 900))
    order = np.random.default_rng(0).permutation(3000)
    reads = iter([chunks, cut(scores[order], labels[order], (50, 1300))])
    tuned = lh.tune_chunks(lambda: next(reads), COUNTS, kind=kind)
    assert_same(tuned, lh.tune_chunks(chunks, COUNTS, kind=kind))


def test_equal_rows_are_judged_by_a_fit_without_a_fold_of_theirs(monkeypatch):
    """Each sample comes twice, so that the part may have one of the two: the gain is that on new samples."""
    part_of(monkeypatch, 4 * 500)
    logits, labels = calibrated(14, 1500)
    twice = np.concatenate([logits, logits]), np.concatenate([labels, labels])
    tuned = lh.tune_chunks(cut(*twice, (700, 1000)), COUNTS)
    assert tuned.evidence.before.sizes.tolist() == (2 * np.bincount(labels)).tolist()
    new, truth = calibrated(99, 20_000)
    real = lh.measure.balanced_error(new, truth) - lh.measure.balanced_error(
        tuned.apply(new), truth
    )
    low, high = tuned.gain_interval
    assert low - 0.02 < real < high + 0.02


def test_parts_made_elsewhere_and_pickled_are_joined():
    """What Ray, Dask and Spark do: a map and a sum, twice, of work that is sent to other machines."""
    logits, labels = calibrated(12, 600)
    chunks = cut(logits, labels)

    def elsewhere(work):
        return [
            pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(chunk))))) for chunk in chunks
        ]

    tuned = tune_mapped(elsewhere, ChunkReader(COUNTS))
    assert_same(tuned, lh.tune(logits, labels, COUNTS))


@pytest.mark.parametrize(
    ("chunks", "counts", "message"),
    [
        ([], COUNTS, "chunks: expected chunks.* got none"),
        ([(np.ones((0, 4)), np.zeros(0, int))], COUNTS, "got none"),
        ([np.ones((30, 4))], COUNTS, "chunks: expected chunks.* got ndarray"),
        ([dict(zip(("logits", "labels"), calibrated(0, 30), strict=True))], COUNTS, "got dict"),
        ([5], COUNTS, "chunks: expected chunks.* got int"),
        ([(5, 5)], COUNTS, "expected logits"),
        (5, COUNTS, "chunks: expected chunks.* or a function that returns them, got int"),
        (None, COUNTS, "chunks: expected chunks.* or a function that returns them, got NoneType"),
        (lambda: None, COUNTS, "chunks: expected chunks.* got NoneType"),
        ([calibrated(0, 30)], [3, 2, 1], "expected 4 counts"),
        ([(np.full((30, 4), np.nan), np.zeros(30, int))], COUNTS, "NaN or infinite values"),
        ([(calibrated(0, 30)[0], np.full(30, 7))], COUNTS, "expected labels from 0 to 3, got 7"),
        ([(calibrated(0, 30)[0], np.zeros(29, int))], COUNTS, "label"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(chunks, counts, message):
    with pytest.raises(lh.LevelheadError, match=message) as caught:
        lh.tune_chunks(chunks, counts)
    assert "\n" not in str(caught.value)


def test_chunks_of_other_classes_are_refused():
    first, second = calibrated(0, 30), calibrated(0, 30, np.array([5, 4, 3]))
    with pytest.raises(
        lh.LevelheadError, match="chunks: expected the same classes in every chunk, got 3 and 4"
    ):
        lh.tune_chunks([first, second], COUNTS)
