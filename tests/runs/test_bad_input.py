"""Bad input to a training: files, options, grids and the user's own method."""

import os
import pickle
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from levelhead.core.counts import long_tail
from levelhead.lab import cifar, image_folder
from levelhead.lab.data import _largest_that_fits
from levelhead.lab.load import load
from levelhead.methods import METHODS
from levelhead.runs.evaluate import evaluate, rule_for
from levelhead.runs.run import run, run_packed
from levelhead.runs.run_folder import Run
from levelhead.runs.spec import Spec
from levelhead.runs.sweep import read_grid, sweep, sweep_row
from levelhead.runs.train_command import imbalance_fields

from .. import layouts


def pictures(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, *shape)).astype(np.uint8)


@pytest.fixture
def words(tmp_path, monkeypatch) -> list[str]:
    """The words of a command that trains for a second, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    np.savez("small.npz", images=pictures(60, 8, 8), labels=np.repeat(np.arange(3), [30, 20, 10]))
    Path("short.toml").write_text("epochs = 1\nbatch = 25\nlr = 0.1\n")
    return ["train", "--data", "small.npz", "--net", "digits", "--recipe", "short.toml"]


# Images and labels

TRAINED_ON = {"x_train": pictures(4, 8, 8), "y_train": np.arange(4) % 2}


@pytest.mark.parametrize(("arrays", "message"), [
    ({"images": pictures(0, 8, 8), "labels": np.arange(0)}, "at least 2 classes"),
    (TRAINED_ON | {"x_test": pictures(0, 8, 8), "y_test": np.arange(0)}, "no test image"),
    (TRAINED_ON | {"x_test": pictures(4, 9, 8), "y_test": np.arange(4) % 2},
     r"test images have the shape \[1, 9, 8\] \[C, H, W\], but training images \[1, 8, 8\]"),
    (TRAINED_ON | {"x_test": pictures(4, 8, 8, 3), "y_test": np.arange(4) % 2},
     r"test images have the shape \[3, 8, 8\] \[C, H, W\], but training images \[1, 8, 8\]"),
    ({"images": pictures(21, 8, 8), "labels": np.repeat([0, 1, 2], [10, 10, 1])}, "class 2 has only one image"),
    ({"images": pictures(4, 0, 8), "labels": np.arange(4) % 2}, r"got \[2, 1, 0, 8\]"),
    ({"images": pictures(4, 8, 8), "labels": np.eye(2)[np.arange(4) % 2]}, "4 images but 8 labels"),
    ({"images": pictures(4, 8, 8), "labels": np.array(list("abab"))}, r"bad\.npz: .*integer labels"),
])
def test_arrays_no_network_can_learn_from_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / "bad.npz"))


def test_a_damaged_npz_is_named(tmp_path):
    np.save(tmp_path / "one.npy", pictures(2, 2))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    np.savez_compressed(tmp_path / "whole.npz", images=np.zeros((200, 8, 8), np.uint8), labels=np.arange(200) % 2)
    with zipfile.ZipFile(tmp_path / "whole.npz") as file:
        at = file.getinfo("images.npy").header_offset + 60
    content = bytearray((tmp_path / "whole.npz").read_bytes())
    content[at:at + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "torn.npz").write_bytes(bytes(content))
    for name in ("one.npz", "torn.npz"):
        with pytest.raises(ValueError, match=f"{name}: not a valid .npz file"):
            load(str(tmp_path / name))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_per_pixel_keep_their_shades(tmp_path, suffix):
    image = pytest.importorskip("PIL.Image")
    shades = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    image.fromarray(shades).save(tmp_path / f"deep.{suffix}")
    seen = image_folder._decode(tmp_path / f"deep.{suffix}", 8)
    np.testing.assert_array_equal(seen, np.stack([shades >> 8] * 3))


def test_pixels_without_a_known_white_are_refused(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / "real.tif")
    image.fromarray(np.ones((8, 8), np.int32)).save(tmp_path / "wide.tif")
    for name in ("real.tif", "wide.tif"):
        assert "32 bits per pixel" in image_folder._decode(tmp_path / name, 8)


def test_links_to_nothing_are_unreadable_images(tmp_path):
    place = layouts.write_image_folder(tmp_path / "own", {"a": 5, "b": 5})
    (place / "a" / "gone.png").symlink_to("nowhere.png")
    with pytest.raises(ValueError, match=r"1 of 11 images cannot be read: .*gone.png .*pass skip_bad"):
        load(str(place))
    assert load(str(place), skip_bad=True).counts.sum() == 8


def test_names_of_images_may_be_any_bytes_and_those_of_classes_text(tmp_path):
    place = layouts.write_image_folder(tmp_path / "own", {"ä 猫": 5, "b": 5})
    os.rename(place / "b" / "000.png", os.fsencode(place / "b") + b"/\xff.png")
    assert load(str(place)).names == ("b", "ä 猫")
    os.rename(place / "b", os.fsencode(place) + b"/\xff")
    with pytest.raises(ValueError, match=r"class name '\\udcff' is not valid UTF-8"):
        load(str(place))


def test_a_folder_without_images_is_named(tmp_path):
    for name in ("train/a", "train/b", "dev/a", "dev/b"):
        (tmp_path / "own" / name).mkdir(parents=True)
    with pytest.raises(ValueError, match=r"class 0 \(dev\) has no training image"):
        load(str(tmp_path / "own"))
    (tmp_path / "own" / "dev").rename(tmp_path / "own" / "test")
    layouts.write_image_folder(tmp_path / "own" / "train", {"c": 2, "d": 2})
    with pytest.raises(ValueError, match="no training image"):
        load(str(tmp_path / "own"))


@pytest.mark.parametrize("left", [0, 100, -30])
def test_a_damaged_cache_is_made_again_and_one_that_cannot_be_written_is_not_needed(tmp_path, monkeypatch, left):
    monkeypatch.setattr(image_folder, "CACHED_FROM", 4)
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    place = layouts.write_image_folder(tmp_path / "own", {"a": 5, "b": 5})
    first = load(str(place)).sha256
    [kept] = (tmp_path / "cache").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:left])
    assert load(str(place)).sha256 == first
    assert kept.read_bytes() == whole
    monkeypatch.setenv("LEVELHEAD_CACHE", str(kept / "below a file"))
    assert load(str(place)).sha256 == first


def test_a_relative_folder_is_not_taken_for_another_of_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(image_folder, "CACHED_FROM", 4)
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    found = []
    for seed, home in enumerate(("one", "two")):
        place = layouts.write_image_folder(tmp_path / home / "own", {"a": 5, "b": 5}, seed=seed)
        for file in place.rglob("*.png"):
            pixels = np.array(image_folder._decode(file, 32)).transpose(1, 2, 0)
            file.with_suffix(".bmp").write_bytes(b"")
            pytest.importorskip("PIL.Image").fromarray(pixels).save(file.with_suffix(".bmp"))
            file.unlink()
            os.utime(file.with_suffix(".bmp"), (0, 0))
        monkeypatch.chdir(tmp_path / home)
        found.append(load("own").sha256)
    assert found[0] != found[1]


def test_missing_cifar100_names_are_reported(tmp_path):
    layouts.write_cifar100_binary(tmp_path)
    place = tmp_path / "cifar-100-binary"
    (place / "fine_label_names.txt").unlink()
    (place / "meta").write_bytes(pickle.dumps({b"coarse_label_names": []}))
    with pytest.raises(ValueError, match=r"meta: expected .*fine_label_names"):
        cifar.load("cifar100", tmp_path)


def test_the_largest_count_of_a_huge_set_is_found_in_a_few_tries():
    tried = []

    def shape(n: int, classes: int, ratio: float) -> np.ndarray:
        tried.append(n)
        return long_tail(n, classes, ratio)

    assert _largest_that_fits(shape, np.array([10**6, 5, 9]), 4) == 11
    assert len(tried) < 25


# Options


@pytest.mark.parametrize(("options", "message"), [
    (["--largest", "5"], "--largest: needs a ratio"),
    (["--largest", "0", "--ratio", "2"], "expected a count of at least 1, got 0"),
    (["--subset", "4"], "--subset: needs a ratio or counts"),
    (["--size", "64"], "only the images of a folder can be resized, not those of small.npz"),
    (["--seed", "99999999999999999999999"], "--seed: expected a seed from 0 to 2**64 - 1, got 9999"),
    (["--gamma", "nan"], "expected a finite gamma, got nan"),
])
def test_options_that_would_do_nothing_or_fail_at_the_end_are_refused_at_the_start(words, levelhead, options, message):
    status, out, err = levelhead(*words, *options)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_counts_come_from_any_file_and_empty_ones_are_refused(words, tmp_path):
    def spec(file: str) -> Spec:
        return Spec("small.npz", **imbalance_fields(ratio=None, profile="long-tail", counts=Path(file), largest=None,
                                                    subset="first"))

    np.save("n.npy", np.array([9, 8, 7]))
    np.savez("n.npz", counts=np.array([9, 8, 7]))
    Path("n.json").write_text("[9, 8, 7]")
    specs = [spec(name) for name in ("n.npy", "n.npz", "n.json")]
    assert {spec.key for spec in specs} == {specs[0].key}
    assert specs[0].load().counts.tolist() == [9, 8, 7]
    for name, text in {"a.json": "[]", "b.json": "{}", "c.txt": "", "d.csv": "class,n\n"}.items():
        Path(name).write_text(text)
        with pytest.raises(ValueError, match=rf"{name}: (expected one count per class, got none|the file is empty)"):
            spec(name)


def test_a_demo_seed_is_checked(levelhead, tmp_path):
    for seed in ("-1", "1" + "0" * 30):
        status, _, err = levelhead("demo", "--seed", seed, "--report", tmp_path / "page.html")
        assert (status, err) == (2, f"levelhead: --seed: expected a seed from 0 to 2**64 - 1, got {seed}\n")


# Recipes and grids


@pytest.mark.parametrize(("line", "message"), [
    ("milestones = 3", "milestones: expected a list of whole numbers, got 3"),
    ('milestones = ["a"]', r"milestones: expected a list of whole numbers, got \['a'\]"),
    ('nesterov = "no"', "nesterov: expected true or false, got 'no'"),
    ("flip = 1", "flip: expected true or false, got 1"),
    ("mean = 0.5\nstd = 1.0", "mean: expected a list of numbers"),
    ('mean = ["a"]\nstd = [1]', "mean: expected a list of numbers"),
    ("mean = [0.5]\nstd = [0.0]", "std: expected numbers above 0"),
    ("nesterov = true\nmomentum = 0", "nesterov: it needs a momentum"),
])
def test_a_recipe_is_checked_before_it_is_used(words, levelhead, line, message):
    Path("short.toml").write_text(f"epochs = 1\nbatch = 25\nlr = 0.1\n{line}\n")
    with pytest.raises(ValueError, match=f"recipe short: {message}"):
        Spec("digits", recipe="short.toml").resolve_recipe()


@pytest.mark.parametrize(("text", "message"), [
    (b"data = 5", "data: expected text, got 5"),
    (b"data = []", "data has no values"),
    (b'data = "digits"\nmethod = []', "method has no values"),
    (b'data = "digits"\nmethod = 3', "method: expected text, got 3"),
    (b'data = "digits"\nmethod = [["wvn"]]', r"method: expected text, got \['wvn'\]"),
    (b'data = "digits"\nseed = true', "seed: expected a whole number, got True"),
    (b'data = "digits"\nepochs = "3"', "epochs: expected a whole number, got '3'"),
    (b'data = "digits"\nratio = "ten"', "ratio: expected a number, got 'ten'"),
    (b'data = "digits"\nhold_out = "a"', "hold_out: expected a number, got 'a'"),
    (b'data = "digits"\nskip_bad = "no"', "skip_bad: expected true or false, got 'no'"),
    (b'data = "digits"\nstem = "large"', "stem: expected small, half or imagenet, got 'large'"),
    (b'data = "digits"\n[recipe]\nepochs = 3', "recipe: expected text, got "),
    (b'data = "\xff"', "not TOML"),
])
def test_a_grid_is_checked_before_anything_is_trained(tmp_path, text, message):
    (tmp_path / "grid.toml").write_bytes(text)
    with pytest.raises(ValueError, match=f"grid.toml: {message}"):
        read_grid(tmp_path / "grid.toml")


@pytest.mark.slow
def test_a_sweep_levels_by_the_methods_own_rule(words, levelhead):
    spec = Spec("small.npz", net="digits", recipe="short.toml", hold_out=0.3, method="tau-norm", epochs=4)
    [row] = [sweep_row(outcome) for outcome in sweep([spec], "runs", workers=1)]
    left = Run.open(row["run"]).snapshot
    assert row["gamma"] == evaluate(left, rule="tau").gamma
    assert row["gamma"] != evaluate(left).gamma


# A user's own method


def own(text: str) -> str:
    Path("mine.py").write_text("from dataclasses import replace\nimport torch\nfrom levelhead.methods import METHODS\n"
                               f"METHOD = replace(METHODS['baseline'], name='mine', {text})\n")
    return "mine.py:METHOD"


@pytest.mark.parametrize("engine", ["plain", "fast"])
@pytest.mark.parametrize(("text", "message"), [
    ("loss=lambda counts, progress=0.0: torch.nn.CrossEntropyLoss()",
     r"method mine: expected one loss per sample, \[25\], got \[\]"),
    ("sample=lambda labels, generator, progress: labels[:0]", "method mine: expected indices of an epoch's samples"),
    ("sample=lambda labels, generator, progress: labels + len(labels)", "method mine: expected indices .* 0 to 47"),
    ("sample=lambda labels, generator, progress: labels / 2", "method mine: expected indices"),
    ("adjust=lambda head, counts, gamma: head", "method mine: .*adjust .*neither RS nor tau"),
])
def test_a_method_that_breaks_its_contract_is_named(words, levelhead, engine, text, message):
    status, _, err = levelhead(*words, "--hold-out", "0", "--method", own(text), "--engine", engine)
    assert status == 2
    assert re.search(message, err)
    assert err.count("\n") == 1


def test_a_file_that_ends_the_program_is_an_error(words, levelhead):
    Path("mine.py").write_text("import sys\nsys.exit(0)\n")
    assert levelhead(*words, "--method", "mine.py:METHOD")[0] == 2
    Path("mine.py").unlink()
    assert "mine.py: no such file; expected a Python file" in levelhead(*words, "--method", "mine.py:METHOD")[2]
    assert "expected a method as FILE.py:NAME, got 'mine.py'" in levelhead(*words, "--method", "mine.py")[2]


# Runs that are there


def test_a_finished_run_on_other_data_of_the_same_name_is_not_taken_for_this_one(words, tmp_path):
    for home, seed in (("one", 0), ("two", 1)):
        layouts.write_image_folder(tmp_path / home / "own", {"a": 6, "b": 5}, seed=seed)
    first = Spec("one/own", net="digits", recipe="short.toml", size=8)
    there = run(first, "runs")
    assert run(first, "runs") == there
    for again in (lambda spec: run(spec, "runs"), lambda spec: run_packed([spec], "runs", device="cpu")):
        with pytest.raises(ValueError, match="same settings on other data"):
            again(replace(first, data="two/own"))
    with pytest.raises(ValueError, match="one/own and two/own would be one run"):
        sweep([first, replace(first, data="two/own")], "runs", workers=1)
    [outcome] = sweep([replace(first, data="two/own")], "runs", workers=1)
    assert "same settings on other data" in (outcome.error or "")


def test_a_damaged_spec_is_named(words):
    spec = Spec("small.npz", net="digits", recipe="short.toml")
    there = run(spec, "runs")
    for text in ("", "{}", "[]"):
        (there.path / "spec.json").write_text(text)
        with pytest.raises(ValueError, match=r"spec\.json: .*damaged"):
            run(spec, "runs")
    shutil.rmtree(there.path)
    assert run(spec, "runs").finished


@pytest.mark.parametrize("engine", ["plain", "fast"])
def test_a_network_that_diverges_in_the_last_step_is_an_error(words, levelhead, engine):
    Path("short.toml").write_text("epochs = 1\nbatch = 60\nlr = 1e38\n")
    status, out, err = levelhead(*words, "--method", "baseline", "--engine", engine)
    assert (status, out) == (2, "")
    assert "has diverged; lower the learning rate" in err
    assert not list(Path("runs").glob("*/done.json"))


def test_every_method_of_the_table_has_a_rule():
    assert {name for name, method in METHODS.items() if rule_for(method) == "tau"} == {"tau-norm"}
