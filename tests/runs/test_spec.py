"""Keys of specs: they name runs and records on other people's disks, so they never change."""

import json
from dataclasses import replace
from pathlib import Path

from levelhead_lab.runs.run_folder import Run
from levelhead_lab.runs.spec import Spec
from tools import layouts

RECORDS = Path(__file__).parents[2] / "results" / "records"
SAME_NAME = (
    "data",
    "method",
    "profile",
    "ratio",
    "subset",
    "hold_out",
    "net",
    "shortcut",
    "stem",
    "seed",
    "engine",
)
SAME_NAME += ("dtype",)


def spec_of(identity: dict) -> Spec:
    recipe = identity["recipe"]
    return Spec(
        **{name: identity[name] for name in SAME_NAME},
        recipe=recipe["name"],
        epochs=recipe["epochs"],
    )


def test_every_record_still_has_the_key_and_identity_that_it_was_written_with():
    records = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("*.json"))
    ]
    assert len(records) > 180
    specs = [spec_of(record["identity"]) for record in records]
    assert [
        record["name"]
        for record, spec in zip(records, specs, strict=True)
        if record["name"][-8:] != spec.key or record["identity"] != spec.identity()
    ] == []


def test_counts_of_ones_own_have_the_keys_that_earlier_versions_gave_them():
    assert Spec("digits", counts=(40, 30, 20, 10)).key == "a0b22df6"
    assert Spec("digits", counts=(("0", 40), ("1", 30)), subset=3).key == "1395f162"
    assert Spec("digits", counts=(40, 30, 20, 10)).identity()["wanted"] == [40, 30, 20, 10]


def test_own_data_sorted_by_kind_give_a_mixed_sample(tmp_path):
    """The first files of each class are brown, the last ones black: the first n alone would all be brown."""
    from PIL import Image

    for name, n in (("bear", 40), ("cat", 40)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(n):
            kind, color = ("brown", (150, 75, 0)) if i < n / 2 else ("zblack", (0, 0, 0))
            Image.new("RGB", (8, 8), color).save(tmp_path / "pets" / name / f"{kind}_{i:03d}.png")
    spec = Spec(str(tmp_path / "pets"), profile="long-tail", ratio=2.0, size=8)
    first = replace(spec, subset="first")

    def black_share(spec: Spec) -> float:
        train = spec.load().train
        return float((train.images[train.labels == 1].max(axis=(1, 2, 3)) == 0).mean())

    assert black_share(first) < 0.1
    assert 0.25 < black_share(spec) < 0.75
    assert spec.identity()["subset"] == 0
    assert spec.key != first.key


def test_official_sets_and_data_taken_whole_keep_their_order():
    assert Spec("cifar10", profile="long-tail", ratio=100.0).identity()["subset"] == "first"
    assert Spec("digits", profile="long-tail", ratio=10.0).identity()["subset"] == "first"
    assert Spec("pets").identity()["subset"] == "first"


def test_an_augmentation_is_in_the_identity_only_where_the_recipe_has_one():
    assert Spec("cifar10", recipe="frontier").identity()["recipe"]["augment"] == "trivial"
    for name in ("kim2020", "strong", "digits"):
        assert "augment" not in Spec("cifar10", recipe=name).identity()["recipe"]
    assert Spec("digits").key == "3b430e5a"


def test_a_folder_is_one_run_however_its_path_is_written(tmp_path, monkeypatch):
    place = tmp_path / "v1.2 images"
    (place / "cat").mkdir(parents=True)
    monkeypatch.chdir(place)
    ways = [str(place), f"{place}/", ".", "cat/..", "../v1.2 images"]
    assert {Run.of(Spec(way)).path for way in ways} == {Run.of(Spec("../v1.2 images")).path}
    monkeypatch.chdir(place / "cat")
    assert Run.of(Spec("..")) == Run.of(Spec(str(place)))


def test_official_files_are_found_from_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    layouts.write_cifar10_binary(tmp_path / "sets")
    assert Spec("cifar10", root="~/sets", unofficial=True).load().classes == 10
