"""Figures are drawn from their sources, named where sources are missing, and the same every time."""

import json
from pathlib import Path

import numpy as np
import pytest

from levelhead import Head
from levelhead.show.plot import pyplot
from levelhead_lab.lab.snapshot import Snapshot
from levelhead_lab.paper import figures
from levelhead_lab.paper.cells import load_records
from levelhead_lab.paper.figure_features import head_digest
from levelhead_lab.paper.figure_style import MissingSource, Sources, move_apart, save_figure

from .made import made

pytestmark = pytest.mark.slow  # drawing takes seconds


@pytest.fixture(autouse=True)
def _closed():
    """No figure is left open for another test to find."""
    yield
    pyplot().close("all")


@pytest.fixture(scope="module")
def two_features() -> dict:
    return json.loads(
        (Path(__file__).parents[2] / "results" / "figures" / "boundary.json").read_text()
    )


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """Ten Gaussian classes with a long tail, and a head through their means."""
    rng, counts = np.random.default_rng(0), np.array([200, 120, 90, 80, 70, 60, 50, 45, 42, 40])
    means = np.abs(rng.normal(size=(10, 16)))
    labels = {"train": np.repeat(np.arange(10), counts), "test": np.repeat(np.arange(10), 30)}
    parts = {
        name: np.abs(means[y] + 0.4 * rng.normal(size=(len(y), 16))) for name, y in labels.items()
    }
    return Snapshot(Head(means, names=[f"c{k}" for k in range(10)]), counts, parts, labels)


RECORDS = [
    *(
        made(f"cifar10:{ratio}", method, seed, power=power, early=-0.05)
        for method in ("baseline", "wvn")
        for ratio, power in ((100, 0.15), (10, 0.1), (1, 0.1))
        for seed in (0, 1)
    ),
    made("cifar10:100", "wvn", gamma=0.6),
    made("cifar10:100", gamma=0.4),
    made(method="over-sample", power=0.05),
    made("tiny-imagenet:step:100"),
    made("tiny-imagenet:step:10"),
]


def results(folder, records, **kept):
    (folder / "records").mkdir(parents=True)
    (folder / "figures").mkdir()
    for i, record in enumerate(records):
        (folder / "records" / f"{i}.json").write_text(json.dumps(record))
    for name, content in kept.items():
        (folder / "figures" / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_all_nine_are_written_to_the_page_and_are_the_same_every_time(
    tmp_path, snapshot, two_features
):
    where = results(tmp_path / "results", RECORDS, boundary=two_features)
    docs = tmp_path / "docs"
    snapshots, said = {"baseline": snapshot, "wvn": snapshot}, []
    sources = figures.collect_sources(where, snapshots, load_records(where / "records"))
    first, text = figures.write(sources, docs / "images", docs=docs, say=said.append)
    kept = {path.name: path.read_bytes() for path in first}
    assert said == []
    assert sorted(kept) == sorted(
        f"{name}.{kind}" for name in figures.FIGURES for kind in ("svg", "png")
    )
    assert max(len(content) for name, content in kept.items() if name.endswith("png")) < 120_000
    assert b"<dc:date>" not in kept["gamma.svg"]
    for name in ("norms-over-epochs", "tsne", "over-sampling"):
        for path in save_figure(figures.FIGURES[name][1](sources).figure, tmp_path / "again", name):
            assert path.read_bytes() == kept[path.name]
    assert text.count("![") == 9
    assert "![Error over gamma (Figure 7)](images/gamma.png)" in text


def test_what_is_missing_is_named_and_not_drawn(tmp_path, two_features):
    said: list[str] = []
    sources = figures.collect_sources(
        results(tmp_path / "results", [], boundary=two_features), {}, []
    )
    written, text = figures.write(sources, tmp_path / "out", say=said.append)
    assert {path.stem for path in written} == {"boundary"}
    assert text.count("Not drawn: ") == 8
    assert len(said) == 8
    assert "norms-over-epochs is not drawn: no record of cifar10:100:baseline" in said
    assert "step-norms is not drawn: no record of tiny-imagenet:step:100:baseline" in said
    assert "confusion is not drawn: no snapshot of baseline" in said
    assert "gamma is not drawn: no column of Table 1 with records of both baseline and wvn" in said


def test_the_confusion_matrix_needs_a_companion_that_chose_gamma(snapshot):
    both = {"baseline": snapshot, "wvn": snapshot}
    with pytest.raises(MissingSource, match="no record of cifar10:100:wvn with a hold-out"):
        figures.FIGURES["confusion"][1](Sources([made(method="wvn")], both))
    drawn = figures.FIGURES["confusion"][1](Sources([made(method="wvn", gamma=0.61)], both))
    assert "gamma = 0.61, chosen on the hold-out" in drawn.caption


def test_the_tsne_map_is_made_again_only_for_another_snapshot(tmp_path, snapshot, two_features):
    where = results(tmp_path / "results", [], boundary=two_features)
    points = figures.collect_sources(where, {"baseline": snapshot}, []).tsne
    assert points is not None
    assert [len(part) for part in points["points"]["train"]] == [40, 40]
    assert [len(part) for part in points["points"]["test"]] == [30, 30]
    (where / "figures" / "tsne.json").write_text(json.dumps({**points, "seed": "kept"}))
    assert figures.collect_sources(where, {"baseline": snapshot}, []).tsne["seed"] == "kept"
    other = Snapshot(
        Head(np.asarray(snapshot.head.weight) + 1),
        snapshot.counts,
        snapshot.features,
        snapshot.labels,
    )
    assert figures.collect_sources(where, {"baseline": other}, []).tsne["of"] == head_digest(other)


def test_captions_say_how_many_networks(snapshot):
    drawn = figures.FIGURES["clusters"][1](Sources(RECORDS))
    assert "2 networks (seeds 0, 1)" in drawn.caption


def test_networks_with_two_features_have_them(two_features):
    from bench.paper.two_features import train_two_features

    networks = train_two_features(seeds=1, epochs=1)
    assert np.shape(networks["baseline"]["weights"]) == (1, 4, 2)
    assert np.shape(networks["wvn"]["features"]) == (200, 2)
    np.testing.assert_allclose(np.linalg.norm(networks["wvn"]["weights"], axis=2), 1, atol=1e-3)
    assert networks["counts"] == two_features["counts"] == [128, 47, 17, 6]


def test_labels_are_moved_apart_as_little_as_possible():
    assert move_apart([1.0, 2.0, 3.0], 1.0) == [1.0, 2.0, 3.0]
    assert move_apart([1.0, 1.0, 1.0], 1.0) == [0.0, 1.0, 2.0]
    moved = move_apart(sorted(np.random.default_rng(0).random(20)), 0.04)
    assert np.diff(moved).min() >= 0.04 - 1e-9
