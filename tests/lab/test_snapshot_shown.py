"""What a notebook shows of a snapshot: short words, HTML in which every foreign text is text, and recalls drawn."""

import numpy as np
import pytest

import levelhead as lh
from levelhead_lab.lab.snapshot import Snapshot

from ..show.test_html import EVIL, OURS, Reader

pyplot = pytest.importorskip("matplotlib.pyplot")

COUNTS = [1000, 200, 40]


@pytest.fixture(autouse=True)
def figures():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def snapshot():
    rng = np.random.default_rng(0)
    weight = np.eye(3, 5) * np.array([[1.0], [0.7], [0.4]])
    labels = {"held-out": rng.integers(3, size=300), "test": np.repeat([0, 1, 2], 50)}
    features = {
        split: 2 + rng.normal(size=(len(y), 5)) + 2 * np.eye(3, 5)[y] for split, y in labels.items()
    }
    return Snapshot(
        lh.Head(weight, names=["cat", EVIL, "$x_{$"]),
        np.array(COUNTS),
        features,
        labels,
        {"net": EVIL, "seed": 3, "log": [1] * 1000},
    )


def test_html_is_short_and_well_formed_and_has_no_tag_of_others(snapshot):
    page = snapshot._repr_html_()
    read = Reader(page)
    assert len(page) < 5000
    assert read.open == []
    assert set(read.tags) <= OURS
    assert EVIL in read.words  # the net, of meta; the class name is cut short
    said = "".join(read.words)
    assert "held-out 300, test 150" in said
    assert "[1, 1" not in said


def test_plain_repr_is_one_line(snapshot):
    words = repr(snapshot)
    assert words.startswith("Snapshot(")
    assert "\n" not in words
    assert len(words) < 300


def test_plot_draws_on_the_axes_given_and_changes_no_setting(snapshot):
    figure, axes = pyplot.subplots()
    settings = dict(pyplot.rcParams)
    assert snapshot.plot(axes) is axes
    assert pyplot.get_fignums() == [figure.number]
    assert dict(pyplot.rcParams) == settings
    figure.canvas.draw()  # foreign names, $ included, are not a formula


def test_recall_is_drawn_the_most_frequent_class_first(snapshot):
    flipped = Snapshot(
        lh.Head(snapshot.head.weight[::-1], names=snapshot.head.names[::-1]),
        snapshot.counts[::-1],
        snapshot.features,
        {split: 2 - y for split, y in snapshot.labels.items()},
    )
    for shown in (snapshot, flipped):
        leveled = lh.adjust(shown.head, lh.rules.Rescale(0.2), shown.counts)
        axes = shown.plot(head=leveled)
        tall = [bar.get_height() for bar in axes.patches]
        wanted = 100 * lh.measure.recall(shown.logits("test"), shown.labels["test"])
        assert tall == pytest.approx(wanted[np.argsort(-shown.counts)])
        after = shown.logits("test", leveled)
        assert axes.lines[0].get_ydata() == pytest.approx(
            100 * lh.measure.recall(after, shown.labels["test"])[np.argsort(-shown.counts)]
        )
        assert axes.get_xticklabels()[0].get_text() == "cat\n1000"
        assert axes.get_xticklabels()[1].get_text().startswith("</script><img s")


def test_recall_of_the_held_out_samples_where_there_is_no_test_set(snapshot):
    alone = Snapshot(
        snapshot.head,
        snapshot.counts,
        {"held-out": snapshot.features["held-out"]},
        {"held-out": snapshot.labels["held-out"]},
    )
    assert alone.plot().get_title(loc="left") == "held-out, 300 samples"
    with pytest.raises(ValueError, match="the snapshot has no split 'test'; it has none"):
        Snapshot(snapshot.head, snapshot.counts).plot()
