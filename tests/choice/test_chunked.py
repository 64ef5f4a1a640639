"""Chunks choose what all their samples choose at once, to the bit."""

import pickle
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import levelhead as lh
from levelhead.choice import fitters
from levelhead.choice.chunked import chunk_path
from levelhead.choice.samples import Samples, TuneOptions
from levelhead.core.rules import rule_with
from levelhead.support import arrays as core_logits
from levelhead.support.errors import LevelheadError
from levelhead.support.warnings import quiet

COUNTS = [1000, 300, 90, 30]
NORMS = np.array([3.0, 2.0, 1.2, 0.7])
COST = np.array([[0, 1, 2, 1], [2, 0, 1, 1], [4, 2, 0, 1], [9, 5, 3, 0]])
METRICS = ("balanced_error", "error", "macro_f1", "mcc", "kappa", "g_mean", "worst_recall", "cost")
SLICES = [100, 7, 200]


@pytest.fixture(autouse=True)
def only_rules_of_one_strength(monkeypatch):
    """Let `tune` leave out the rules that need all logits at once, as it does of many samples."""
    monkeypatch.setattr(fitters, "MOST_NUMBERS", 0)
    monkeypatch.setattr(fitters, "MOST_VECTOR_NUMBERS", 0)


def samples(
    n: int = 600, seed: int = 0, decimals: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels of an imbalanced held-out set; rounded logits have ties."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1])
    logits = (2 + rng.normal(size=(n, 4)) + 2 * np.eye(4)[labels]) * np.linspace(1.0, 0.4, 4)
    return (logits if decimals is None else logits.round(decimals)), labels


def cut(logits, labels, sizes=SLICES):
    ends = np.cumsum([0, *sizes])
    return [(logits[a:b], labels[a:b]) for a, b in pairwise(ends)] + [
        (logits[ends[-1] :], labels[ends[-1] :])
    ]


def assert_same(got: lh.Tuned, want: lh.Tuned, *, ties: bool = False) -> None:
    """Check that two choices are the same in all that they say, but for rules that were not tried.

    Where samples change at the same gamma, shares and curves are summed in another order, and differ by rounding.
    """
    mine, theirs = got.to_dict(), want.to_dict()
    assert mine.pop("why").startswith(theirs.pop("why").partition(";")[0])
    if ties:
        assert mine.pop("mismatch") == pytest.approx(theirs.pop("mismatch"), abs=1e-14)
        assert mine.pop("mismatch_at_zero") == pytest.approx(
            theirs.pop("mismatch_at_zero"), abs=1e-14
        )
    assert mine == theirs
    for name in ("curve", "criterion_curve"):
        one, other = getattr(got, name), getattr(want, name)
        assert np.array_equal(one.gammas, other.gammas)
        np.testing.assert_allclose(one.values, other.values, rtol=0, atol=1e-14 if ties else 0)


def both(
    logits, labels, chunks=None, *, goal=None, settings=None, counts=COUNTS, rule="auto", **options
):
    """Return the choice of chunks and that of all samples."""
    options = {"bootstrap": 60, "rule": rule_with(rule, **(settings or {})), **options}
    if goal is not None:
        options["metric"] = lh.Goal(**goal)
    with quiet():
        want = lh.tune(logits, labels, counts, **options)
        return lh.tune_chunks(
            cut(logits, labels) if chunks is None else chunks, counts, **options
        ), want


@pytest.mark.parametrize("rule", ["auto", "shift", "rescale", "tau"])
@pytest.mark.parametrize("decimals", [None, 1], ids=["any", "ties"])
@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_and_rule_chooses_what_all_samples_choose(metric, decimals, rule):
    options = {"goal": {"metric": metric, "cost": COST if metric == "cost" else None}, "rule": rule}
    options["settings"] = {"norms": NORMS} if rule in ("auto", "tau") else None
    for seed in range(1 if rule == "auto" else 3):  # which is all rules
        assert_same(
            *both(*samples(seed=seed, decimals=decimals), **options), ties=decimals is not None
        )


@pytest.mark.parametrize(
    "options",
    [
        {"goal": {"floors": 0.5}},
        {"goal": {"floors": {2: 0.4}, "metric": "macro_f1"}},
        {"goal": {"criterion": "balanced_error"}, "rule": "rescale"},
        {"goal": {"criterion": "balanced_error"}},
        {"target": [0.1, 0.2, 0.3, 0.4]},
        {"target": [0.1, 0.2, 0.3, 0.4], "metric": "kappa"},
        {"settings": {"range": (-1.0, 3.0)}},
        {"counts": lh.counts.with_background(COUNTS, 1)},
        {"unlabelled": samples(300, seed=9)[0]},
        {"unlabelled": samples(300, seed=9)[0], "rule": "shift"},
        {"names": list("abcd"), "level": 0.8, "rng": 5, "chosen_on": "validation"},
    ],
    ids=str,
)
def test_goals_and_options_are_those_of_all_samples(options):
    assert_same(*both(*samples(), **options))


def test_probabilities_and_their_logarithms():
    logits, labels = samples()
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for scores, kind in ((shares, "probabilities"), (np.log(shares), "logits")):
        got, want = both(scores, labels, cut(scores, labels), kind=kind)
        assert_same(got, want)
        assert got.kind == "probabilities"


@settings(max_examples=25, deadline=None)
@given(
    st.integers(12, 60),
    st.lists(st.integers(0, 60), min_size=1, max_size=4),
    st.sampled_from(["rescale", "auto"]),
)
def test_chunks_of_any_size(n, cuts, rule):
    logits, labels = samples(n, decimals=1)
    edges = sorted({0, n, *(place % (n + 1) for place in cuts)})
    chunks = [(logits[a:b], labels[a:b]) for a, b in pairwise(edges)]
    assert_same(*both(logits, labels, chunks, rule=rule, bootstrap=10), ties=True)


@pytest.mark.parametrize("rule", ["auto", "shift"])
def test_scores_of_any_scale_have_the_range_and_the_pull_of_all_samples(rule):
    for scale in (0.02, 1.0, 40.0):
        logits, labels = samples()
        got, want = both(scale * logits, labels, cut(scale * logits, labels), rule=rule)
        assert got.curve.end == want.curve.end
        assert_same(got, want)


@pytest.mark.parametrize("rule", ["auto", "shift", "rescale"])
def test_of_many_samples_the_rows_of_the_temperature_are_the_same(rule, monkeypatch):
    monkeypatch.setattr(core_logits, "_MOST_ROWS", 800)
    logits, labels = samples(2000)
    logits = 3 * logits
    chunks = cut(logits, labels, [300, 9, 700])
    for given_chunks in (chunks, lambda: iter(chunks)):
        got, want = both(logits, labels, given_chunks, rule=rule)
        assert_same(got, want)
    once, want = both(logits, labels, iter(chunks), rule=rule)  # its temperature is of other rows
    assert once.temperature != want.temperature
    assert once.temperature == pytest.approx(want.temperature, rel=0.2)
    if rule == "rescale":
        assert (once.gamma, once.interval, once.gain) == (want.gamma, want.interval, want.gain)


def test_an_iterator_of_few_samples_is_read_once_and_chooses_the_same():
    logits, labels = samples()
    assert_same(*both(logits, labels, iter(cut(logits, labels))))


def test_the_next_chunk_may_be_read_into_the_same_array():
    logits, labels = samples()

    def read():
        room, known = np.empty((200, 4)), np.empty(200, int)
        for first in range(0, 600, 200):
            room[:], known[:] = logits[first : first + 200], labels[first : first + 200]
            yield room, known

    assert_same(*both(logits, labels, read()))


def test_chunks_of_any_kind_and_dtype_may_come_mixed():
    torch = pytest.importorskip("torch")
    logits, labels = samples(300)
    logits = logits.astype(np.float32).astype(np.float64)  # the same numbers in both dtypes
    pieces = [(logits[i : i + 1], labels[i : i + 1]) for i in range(20)] + [
        (logits[:0], labels[:0])
    ]
    pieces += [
        (logits[20:50].astype(np.float32), labels[20:50].tolist()),
        (torch.tensor(logits[50:90]), labels[50:90]),
    ]
    pieces += [(logits[90:95].tolist(), labels[90:95]), (logits[95:], torch.tensor(labels[95:]))]
    assert_same(*both(logits, labels, pieces))


def test_torch_tensors_of_half_precision():
    torch = pytest.importorskip("torch")
    logits, labels = samples()
    logits, labels = torch.tensor(logits, dtype=torch.float16), torch.tensor(labels)
    assert_same(*both(logits, labels, cut(logits, labels)), ties=True)


def test_tokens_and_names_of_classes():
    logits, labels = samples()
    named = dict(zip("abcd", COUNTS, strict=True))
    words = np.array(list("abcd"))[labels]
    with quiet():
        want = lh.tune(logits, words, named, bootstrap=20)
        assert_same(lh.tune_chunks(cut(logits, words), named, bootstrap=20), want)
    tokens, known = logits.reshape(60, 10, 4), labels.reshape(60, 10).copy()
    known[:, 8:] = -100
    with quiet():
        want = lh.tune(tokens, known, COUNTS, bootstrap=20)
        got = lh.tune_chunks(cut(tokens, known, [13, 20]), COUNTS, bootstrap=20)
    assert_same(got, want)
    assert got.n == 480


def test_warnings_are_those_of_all_samples():
    logits, labels = samples()
    options = {"rule": "rescale", "bootstrap": 0}
    for values, counts in ((logits - 4, COUNTS), (logits, COUNTS[::-1]), (logits, [7, 7, 7, 7])):
        with quiet():
            want = lh.tune(values, labels, counts, **options)
            got = lh.tune_chunks(cut(values, labels), counts, **options)
        assert want.warnings
        assert got.warnings == want.warnings


def test_ties_at_zero_and_a_class_without_samples():
    logits = np.array([[1.0, 1.0, 0.5], [2.0, 2.0, 1.0], [0.3, 1.0, 1.0], [2.0, 1.0, 0.1]])
    labels, counts = np.array([0, 1, 1, 0]), [9, 5, 2]
    with quiet():
        for rule in ("rescale", "shift"):
            want = lh.tune(logits, labels, counts, rule=rule, bootstrap=20)
            got = lh.tune_chunks(
                [(logits[:1], labels[:1]), (logits[1:], labels[1:])],
                counts,
                rule=rule,
                bootstrap=20,
            )
            assert_same(got, want)
    assert got.missing == (2,)


@pytest.mark.parametrize("rule", ["auto", "rescale"])
def test_paths_that_were_made_elsewhere_and_pickled_are_joined(rule):
    logits, labels = samples(decimals=1)
    parts = [
        pickle.loads(pickle.dumps(chunk_path(*chunk, COUNTS, rule=rule)))
        for chunk in cut(logits, labels)
    ]
    for metric in ("balanced_error", "macro_f1"):
        got, want = both(logits, labels, parts, rule=rule, metric=metric)
        assert_same(got, want, ties=True)
    assert_same(*both(logits, labels, [*parts[:2], *cut(logits, labels)[2:]], rule=rule), ties=True)
    got, want = both(logits, labels, parts, rule="rescale", settings={"range": (0.0, 1.0)})
    assert_same(got, want, ties=True)


def test_a_path_without_changes_is_enough_for_recalls():
    logits, labels = samples()
    parts = [
        chunk_path(*chunk, COUNTS, rule="rescale", with_changes=False)
        for chunk in cut(logits, labels)
    ]
    assert_same(*both(logits, labels, parts, rule="rescale", metric="g_mean"))
    with pytest.raises(LevelheadError, match="with_changes"):
        lh.tune_chunks(parts, COUNTS, rule="rescale", metric="macro_f1")


def test_what_is_left_out_is_said():
    logits, labels = samples()
    got = lh.tune_chunks(cut(logits, labels), COUNTS, bootstrap=0)
    assert got.why.endswith(
        "rescale+shift, vector and offsets need all logits at once and were not tried"
    )
    assert [one.rule for one in got.candidates] == ["none", "shift", "rescale"]


def test_tune_still_takes_chunks_and_a_path_with_a_warning_for_chunks():
    logits, labels = samples()
    want = lh.tune_chunks(cut(logits, labels), COUNTS, rule="rescale", bootstrap=20)
    for chunks in (
        cut(logits, labels),
        lambda: iter(cut(logits, labels)),
        iter(cut(logits, labels)),
    ):
        with pytest.warns(DeprecationWarning, match=r"levelhead\.tune_chunks"):
            assert_same(lh.tune(chunks, counts=COUNTS, rule="rescale", bootstrap=20), want)
    path = lh.gamma_path(logits, labels, COUNTS)
    assert lh.tune(path, bootstrap=20).to_dict() == want.to_dict()
    with pytest.raises(LevelheadError, match="rule: the path is of the rule 'rescale'"):
        lh.tune(path, rule="shift")
    with pytest.raises(LevelheadError, match="counts: they are not those"):
        lh.tune(path, counts=[4, 3, 2, 1])


def test_what_cannot_be_done_is_refused_by_name():
    chunk = samples(50)
    part = chunk_path(*chunk, COUNTS)
    refused = [
        (
            lambda: lh.tune_chunks([chunk], COUNTS, rule="vector"),
            "rule: expected 'auto', 'shift', 'rescale', 'tau'",
        ),
        (lambda: lh.tune_chunks([], COUNTS), "chunks: expected chunks.* got none"),
        (lambda: lh.tune_chunks([(chunk[0][:0], chunk[1][:0])], COUNTS), "got none"),
        (lambda: lh.tune_chunks([chunk[0]], COUNTS), "chunks: expected chunks.* got ndarray"),
        (
            lambda: lh.tune_chunks([chunk], COUNTS, target="estimate", unlabelled=chunk[0]),
            "target: an estimate needs",
        ),
        (
            lambda: lh.tune_chunks([b"levelhead partial"], COUNTS),
            r"tune again with lh\.tune_chunks",
        ),
        (
            lambda: lh.tune_chunks([part], [4, 3, 2, 1]),
            "counts: they, or the target, are not those",
        ),
        (
            lambda: lh.tune_chunks([part], COUNTS, rule=lh.rules.Auto(range=(-1, 1))),
            "range: the paths of the chunks are of gamma 0 to",
        ),
        (
            lambda: lh.tune_chunks([part], COUNTS, rule=lh.rules.Tau(norms=NORMS)),
            "not every chunk has a path of the rule",
        ),
        (lambda: lh.tune_chunks([(chunk[0][:, :3], chunk[1])], COUNTS), "expected 3 counts"),
        (
            lambda: lh.tune_chunks([chunk], COUNTS, rule=lh.rules.Rescale(bias=NORMS)),
            "bias: a kept bias needs all",
        ),
        (lambda: lh.tune(samples(50)[0]), "labels: expected labels"),
    ]
    for call, message in refused:
        with pytest.raises(LevelheadError, match=message), quiet():
            call()
    with (
        pytest.raises(LevelheadError, match="counts: expected the training samples"),
        pytest.warns(match="chunks"),
    ):
        lh.tune(iter([chunk]))


def test_partial_is_gone_and_says_what_to_do():
    with pytest.raises(AttributeError, match=r"tune again with lh\.tune_chunks"):
        lh.Partial  # noqa: B018


def test_chunks_that_differ_when_they_are_read_again_are_refused(monkeypatch):
    monkeypatch.setattr(core_logits, "_MOST_ROWS", 150)
    reads = iter([0, 1])
    with pytest.raises(LevelheadError, match="not the same when they were read again"):
        lh.tune_chunks(lambda: [samples(300, seed=next(reads))], COUNTS, rule="rescale")


def as_bytes(logits):
    return (10 * logits).astype(np.int8)


def with_masks(logits):
    return np.where(np.arange(logits.size).reshape(logits.shape) % 7, logits, -np.inf)


@pytest.mark.parametrize("change", [as_bytes, with_masks])
def test_integers_and_masked_scores_are_not_copied_as_a_whole(change):
    logits, labels = samples(1 << 22)
    logits = change(logits)
    tracemalloc.start()
    try:
        Samples.of([(logits, labels, COUNTS)], TuneOptions())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < logits.size * 8 * 0.8
    lowest = np.finfo(np.float64).min
    few, floats = logits[:600], np.maximum(logits[:600].astype(np.float64), lowest)
    with quiet():
        assert_same(lh.tune(few, labels[:600], COUNTS), lh.tune(floats, labels[:600], COUNTS))
