"""Labels that are names of classes, in Python."""

import numpy as np
import pandas as pd
import pytest

import levelhead as lh

LABELS = np.repeat([0, 1, 2], [30, 20, 10])
NAMES = np.array(["cat", "dog", "owl"])
LOGITS = (2 + np.random.default_rng(0).normal(size=(60, 3)) + 2 * np.eye(3)[LABELS]) * [
    1.0,
    0.7,
    0.4,
]
COUNTS = {"cat": 400, "dog": 100, "owl": 20}


def tune(labels, counts, **options):
    return lh.tune(LOGITS, labels, counts, rule="rescale", bootstrap=0, **options)


@pytest.mark.parametrize("form", [list, np.array, pd.Series, pd.Categorical])
def test_names_as_labels_give_what_indices_give(form):
    named = tune(form(NAMES[LABELS].tolist()), COUNTS)
    assert (named.gamma, named.names) == (tune(LABELS, [400, 100, 20]).gamma, ("cat", "dog", "owl"))


def test_names_give_the_order_whatever_that_of_the_counts():
    other = {"owl": 20, "cat": 400, "dog": 100}
    assert (
        tune(NAMES[LABELS], other, names=NAMES.tolist()).gamma == tune(LABELS, [400, 100, 20]).gamma
    )


def test_compare_takes_names_too():
    first, second = (
        lh.compare(LOGITS, labels, counts, rng=0)
        for labels, counts in ((NAMES[LABELS], COUNTS), (LABELS, [400, 100, 20]))
    )
    assert repr(first) == repr(second)


def test_an_order_of_counts_that_alphabetical_order_beats_is_doubted():
    with pytest.raises(
        lh.LevelheadError,
        match=r"counts: in the order of the counts \(owl, .* alphabetical order .* pass names",
    ):
        tune(NAMES[LABELS], {"owl": 20, "cat": 400, "dog": 100})


def test_an_order_that_is_not_alphabetical_is_taken_where_it_is_right():
    names = np.array(["owl", "cat", "dog"])
    assert tune(names[LABELS], {"owl": 400, "cat": 100, "dog": 20}).names == ("owl", "cat", "dog")


@pytest.mark.parametrize(
    ("labels", "options", "line"),
    [
        (
            ["cow", *NAMES[LABELS][1:]],
            {},
            "unknown labels 'cow'; the classes in counts are cat, dog, owl",
        ),
        (
            NAMES[LABELS],
            {"names": ["a", "b", "c"]},
            "unknown labels 'cat', 'dog', 'owl'; the classes are a, b, c",
        ),
        (
            NAMES[LABELS],
            {"counts": [400, 100, 20]},
            "labels: labels are names ('cat', ...), but the order",
        ),
    ],
)
def test_unknown_names_are_listed(labels, options, line):
    counts = options.pop("counts", COUNTS) if "names" not in options else [400, 100, 20]
    with pytest.raises(lh.LevelheadError) as caught:
        tune(labels, counts, **options)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("title", ["{}", "logit_{}", "p({})"])
def test_titles_of_a_data_frame_give_the_order(title):
    """The order of the counts has most predictions right, and alphabetical order fewer: neither is the true one."""
    columns = ["dog", "cat", "emu", "bee"]
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2, 3], [50, 40, 8, 8])
    logits = 3 * np.eye(4)[labels] + rng.normal(size=(106, 4)) + [2.0, 1.5, 0.5, 0.0]
    frame = pd.DataFrame(logits, columns=[title.format(name) for name in columns])
    counts = {"dog": 900, "cat": 500, "bee": 20, "emu": 30}
    names = np.array(columns)[labels]
    wanted = lh.tune(logits, labels, [900, 500, 30, 20], rule="shift", bootstrap=0)
    for given in (names, labels):
        found = lh.tune(frame, given, counts, rule="shift", bootstrap=0)
        assert (found.gamma, found.names, found.counts) == (
            wanted.gamma,
            tuple(columns),
            wanted.counts,
        )
    assert repr(lh.compare(frame, names, counts, rng=0)) == repr(
        lh.compare(logits, labels, [900, 500, 30, 20], rng=0)
    )


def test_titles_that_are_not_the_classes_say_nothing():
    frame = pd.DataFrame(LOGITS, columns=["a", "b", "c"])
    assert lh.tune(frame, NAMES[LABELS], COUNTS, rule="rescale", bootstrap=0).names == (
        "cat",
        "dog",
        "owl",
    )
    assert lh.tune(frame, LABELS, [400, 100, 20], rule="rescale", bootstrap=0).names is None
