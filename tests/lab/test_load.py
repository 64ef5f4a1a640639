"""The digits, and what cannot be trained on: bad arrays, image folders and CIFAR files, and damaged caches."""

import os
import pickle
import sys
import time
import zipfile

import numpy as np
import pytest
from sklearn.datasets import load_digits

from levelhead_lab.lab import cifar, image_folder
from levelhead_lab.lab.load import digits, load
from tools import layouts


def pictures(n: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, *shape)).astype(np.uint8)


@pytest.mark.parametrize(
    "as_file", [True, False]
)  # or by scikit-learn's reader, where the file is elsewhere
def test_the_digits_are_those_of_scikit_learn_the_last_50_of_each_class_for_the_test(
    as_file, monkeypatch
):
    if not as_file:
        monkeypatch.setattr("levelhead_lab.lab.load.find_spec", lambda name: None)
    whole, data = load_digits(), digits()
    for k in range(10):
        parts = np.split(np.round(whole.images[whole.target == k] * (255 / 16)), [-50])
        for split, expected in zip((data.train, data.test), parts, strict=True):
            np.testing.assert_array_equal(split.images[split.labels == k][:, 0], expected)
    assert len(data.train) + len(data.test) == len(whole.target)


def test_without_scikit_learn_there_are_no_digits(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModuleNotFoundError, match="sklearn") as error:
        digits()
    assert error.value.name == "sklearn"  # by which the command line says what to install


NAMED = {"images": pictures(8, 8, 8), "labels": np.arange(8) % 2}
TRAINED_ON = {"x_train": pictures(4, 8, 8), "y_train": np.arange(4) % 2}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": pictures(0, 8, 8), "labels": np.arange(0)}, "at least 2 classes"),
        (TRAINED_ON | {"x_test": pictures(0, 8, 8), "y_test": np.arange(0)}, "no test image"),
        (
            TRAINED_ON | {"x_test": pictures(4, 9, 8), "y_test": np.arange(4) % 2},
            r"test images have the shape \[1, 9, 8\] \[C, H, W\], but training images \[1, 8, 8\]",
        ),
        (
            TRAINED_ON | {"x_test": pictures(4, 8, 8, 3), "y_test": np.arange(4) % 2},
            r"test images have the shape \[3, 8, 8\] \[C, H, W\], but training images \[1, 8, 8\]",
        ),
        (
            {"images": pictures(21, 8, 8), "labels": np.repeat([0, 1, 2], [10, 10, 1])},
            "class 2 has only one image",
        ),
        ({"images": pictures(4, 0, 8), "labels": np.arange(4) % 2}, r"got \[2, 1, 0, 8\]"),
        (
            {"images": pictures(4, 8, 8), "labels": np.eye(2)[np.arange(4) % 2]},
            r"bad\.npz: .* one-hot .*argmax",
        ),
        (
            TRAINED_ON | {"x_test": pictures(4, 8, 8), "y_test": np.eye(2)},
            r"bad\.npz: .* one-hot .*argmax",
        ),
        (
            {"images": pictures(4, 8, 8), "labels": np.array(list("abab"))},
            r"bad\.npz: .*integer labels.*in `names`",
        ),
        (
            {"images": pictures(4, 8, 8), "labels": np.array([0, 0, 1, 2**40])},
            r"bad\.npz: expected labels from 0 to \d+, got 1099511627776 at position 3",
        ),
        (
            {"images": pictures(4, 8, 8), "labels": np.array([1, 1, 2, 2])},
            r"bad\.npz: class 0 has no .* 1 to 2; .*subtract 1",
        ),
        (
            {"images": pictures(4, 8, 8), "labels": np.array([0, 0, 2, 2])},
            r"bad\.npz: class 1 has .* number the classes",
        ),
        (
            {"images": pictures(4, 8, 8) / 255, "labels": np.arange(4) % 2},
            r"float64; .*multiply values from 0 to 1 by 255",
        ),
        (
            {"images": pictures(4, 8, 8).astype(np.uint16), "labels": np.arange(4) % 2},
            r"got uint16; .*astype",
        ),
        (NAMED | {"names": np.array("cat")}, r"bad\.npz: names: expected \[K\]"),
        (NAMED | {"names": np.array([["cat", "dog"]])}, r"bad\.npz: names: expected \[K\]"),
        (NAMED | {"names": np.array(["cat", "cat"])}, r"bad\.npz: names: got 'cat' 2 times"),
        (NAMED | {"names": np.array([b"caf\xe9", b"dog"])}, r"bad\.npz: .*names: .*UTF-8"),
    ],
)
def test_arrays_no_network_can_learn_from_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / "bad.npz"))


def test_names_may_be_bytes_and_labels_a_column(tmp_path):
    arrays = NAMED | {
        "labels": NAMED["labels"][:, None].astype(np.uint16),
        "names": np.array(["é".encode(), b"dog"]),
    }
    np.savez(tmp_path / "own.npz", **arrays)
    data = load(str(tmp_path / "own.npz"))
    assert (data.names, data.counts.tolist()) == (("é", "dog"), [3, 3])


def test_a_damaged_npz_is_named(tmp_path):
    np.save(tmp_path / "one.npy", pictures(2, 2))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    np.savez_compressed(
        tmp_path / "whole.npz", images=np.zeros((200, 8, 8), np.uint8), labels=np.arange(200) % 2
    )
    with zipfile.ZipFile(tmp_path / "whole.npz") as file:
        at = file.getinfo("images.npy").header_offset + 60
    content = bytearray((tmp_path / "whole.npz").read_bytes())
    content[at : at + 4] = b"\xff\xff\xff\xff"
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
    with pytest.raises(
        ValueError, match=r"1 of 11 images cannot be read: .*gone.png .*pass skip_bad"
    ):
        load(str(place))
    assert load(str(place), skip_bad=True).counts.sum() == 8


def test_a_pipe_among_images_is_named_and_not_waited_for(tmp_path):
    place = layouts.write_image_folder(tmp_path, {"cat": 5, "dog": 5})
    os.mkfifo(place / "dog" / "pipe.png")
    with pytest.raises(
        ValueError, match=r"1 of 11 images cannot be read: .*pipe\.png \(.*a pipe; .*pass skip_bad"
    ):
        load(str(place))


def test_told_to_stop_it_does_not_decode_the_other_images(tmp_path, monkeypatch):
    place, begun = layouts.write_image_folder(tmp_path, {"cat": 100, "dog": 100}, size=4), []

    def decode(file, size):
        begun.append(file)
        time.sleep(0.02)
        if begun[0] == file:
            raise KeyboardInterrupt

    monkeypatch.setattr(image_folder, "_decode", decode)
    with pytest.raises(KeyboardInterrupt):
        load(str(place))
    assert len(begun) < 100


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
    with pytest.raises(
        ValueError, match=r"own: expected a folder test or val next to train, got dev"
    ):
        load(str(tmp_path / "own"))
    (tmp_path / "own" / "dev").rename(tmp_path / "own" / "test")
    layouts.write_image_folder(tmp_path / "own" / "train", {"c": 2, "d": 2})
    with pytest.raises(ValueError, match="no training image"):
        load(str(tmp_path / "own"))


def test_images_below_the_folder_of_a_class_are_not_left_out_without_a_word(tmp_path):
    place = layouts.write_image_folder(tmp_path / "own", {"bear": 5, "cat": 5})
    layouts.write_image_folder(place / "bear", {".thumbnails": 2})
    (place / "bear" / "notes").mkdir()
    assert len(load(str(place)).train) == 8
    layouts.write_image_folder(place / "bear" / "kinds", {"black": 2, "brown": 2})
    with pytest.raises(
        ValueError,
        match=r"own/bear: .* folder below it, kinds/black; expected FOLDER/class/\*\.jpg",
    ):
        load(str(place))


def test_a_training_folder_without_a_test_folder_is_not_a_class(tmp_path):
    for part in ("train", "valid"):
        place = layouts.write_image_folder(tmp_path / "own" / part, {"a": 4, "b": 4}).parent
    with pytest.raises(
        ValueError,
        match=r"own: expected a folder test or val next to train, got valid; .*own/train",
    ):
        load(str(place))


def test_a_class_whose_files_are_no_images_is_told_what_they_are(tmp_path):
    place = layouts.write_image_folder(tmp_path / "own", {"cat": 5, "dog": 0})
    (place / "dog").mkdir(exist_ok=True)
    with pytest.raises(
        ValueError, match=r"own: class 1 \(dog\) has no training image; .* the folder is empty"
    ):
        load(str(place))
    for i in range(3):
        (place / "dog" / f"{i}.heic").write_bytes(b"")
    with pytest.raises(
        ValueError,
        match=r"dog.* no training image; expected files such as \.avif, .* got 3 of \.heic",
    ):
        load(str(place))


@pytest.mark.parametrize("suffix", [".pgm", ".jfif", ".JPE", ".ppm", ".PnG"])
def test_files_that_pillow_reads_are_images_whatever_they_are_called(tmp_path, suffix):
    image = pytest.importorskip("PIL.Image").fromarray(pictures(1, 8, 8)[0])
    for name in ("a", "b"):
        (tmp_path / "own" / name).mkdir(parents=True)
        for i in range(3):
            image.save(tmp_path / "own" / name / f"{i}{suffix}")
    assert load(str(tmp_path / "own"), size=8).counts.tolist() == [2, 2]


@pytest.mark.parametrize("left", [0, 100, -30])
def test_a_damaged_cache_is_made_again_and_one_that_cannot_be_written_is_not_needed(
    tmp_path, monkeypatch, left
):
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
    digests = []
    for seed, home in enumerate(("one", "two")):
        place = layouts.write_image_folder(tmp_path / home / "own", {"a": 5, "b": 5}, seed=seed)
        for file in place.rglob("*.png"):
            pixels = np.array(image_folder._decode(file, 32)).transpose(1, 2, 0)
            file.with_suffix(".bmp").write_bytes(b"")
            pytest.importorskip("PIL.Image").fromarray(pixels).save(file.with_suffix(".bmp"))
            file.unlink()
            os.utime(file.with_suffix(".bmp"), (0, 0))
        monkeypatch.chdir(tmp_path / home)
        digests.append(load("own").sha256)
    assert digests[0] != digests[1]


def test_missing_cifar100_names_are_reported(tmp_path):
    layouts.write_cifar100_binary(tmp_path)
    place = tmp_path / "cifar-100-binary"
    (place / "fine_label_names.txt").unlink()
    (place / "meta").write_bytes(pickle.dumps({b"coarse_label_names": []}))
    with pytest.raises(ValueError, match=r"meta: expected .*fine_label_names"):
        cifar.load("cifar100", tmp_path, unofficial=True)
