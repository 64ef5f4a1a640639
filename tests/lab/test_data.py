import hashlib
import pickle
import re
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest

from levelhead.core.counts import long_tail
from levelhead.support.errors import LevelheadError
from levelhead_lab.lab import cifar, image_folder
from levelhead_lab.lab.data import (
    Data,
    Split,
    _largest_that_fits,
    hold_out,
    imbalance,
    split,
    subset_indices,
)
from levelhead_lab.lab.load import digits, load
from levelhead_lab.runs.spec import Spec
from tools import layouts

TOTALS = {  # ratio -> images of CIFAR-10 and CIFAR-100
    200: (11203, 9502),
    100: (12406, 10847),
    50: (13996, 12608),
    20: (17023, 15907),
    10: (20431, 19573),
}


def of_labels(labels, classes, largest=None):
    """Return data with one pixel per image: profiles only read labels."""
    whole = Split(np.zeros((len(labels), 1, 1, 1), np.uint8), labels)
    return Data("labels", tuple(map(str, range(classes))), whole, whole[:classes], largest=largest)


@pytest.mark.parametrize("ratio", TOTALS)
def test_long_tails_have_the_known_totals(ratio):
    for classes, total in zip((10, 100), TOTALS[ratio], strict=True):
        data = of_labels(np.arange(50_000) % classes, classes, largest=50_000 // classes)
        part = imbalance(data, "long-tail", ratio=ratio)
        assert len(part.train) == total == part.counts.sum()
        assert part.counts[0] == 50_000 // classes


def test_the_images_that_the_code_of_cao_2019_draws():
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 50))
    counts, source, drawn = np.array([50, *range(45, 0, -5)]), np.random.RandomState(0), []
    for c, n in enumerate(counts):
        places = np.where(labels == c)[0]
        source.shuffle(places)
        drawn.extend(places[:n])
    kept = subset_indices(labels, counts, subset="cao2019", names=tuple("abcdefghij"))
    assert kept.tolist() == sorted(drawn)
    assert kept.tolist() != subset_indices(labels, counts, names=tuple("abcdefghij")).tolist()


def test_subset_first_is_the_first_in_file_order_and_a_seed_gives_another():
    labels = np.array([1, 0, 0, 1, 0, 1, 0])
    names = ("a", "b")
    assert subset_indices(labels, np.array([2, 1]), names=names).tolist() == [0, 1, 2]
    chosen = subset_indices(labels, np.array([2, 1]), subset=3, names=names)
    assert (
        chosen.tolist()
        == sorted(chosen)
        == subset_indices(labels, np.array([2, 1]), subset=3, names=names).tolist()
    )
    others = {
        tuple(subset_indices(labels, np.array([2, 1]), subset=seed, names=names))
        for seed in range(20)
    }
    assert len(others) > 3
    assert all(np.bincount(labels[list(other)]).tolist() == [2, 1] for other in others)


def test_step_and_given_profiles():
    data = of_labels(np.repeat(np.arange(4), 20), 4)
    assert imbalance(data, "step", ratio=10).counts.tolist() == [20, 20, 2, 2]
    assert imbalance(data, "given").counts.tolist() == [20] * 4
    assert imbalance(data, "given", counts=[5, 1, 2, 3]).counts.tolist() == [5, 1, 2, 3]
    with pytest.raises(LevelheadError, match=r"counts: expected whole numbers .* got 1\.5 for"):
        imbalance(data, "given", counts=[5, 1.5, 2, 3])


def test_largest_count_is_the_largest_that_fits():
    labels = np.repeat(np.arange(3), [100, 12, 30])
    assert imbalance(of_labels(labels, 3), "long-tail", ratio=100).counts.tolist() == [100, 10, 1]
    assert imbalance(of_labels(labels, 3), "long-tail", ratio=1).counts.tolist() == [12, 12, 12]


def test_the_largest_count_of_a_huge_set_is_found_in_a_few_tries():
    tried = []

    def shape(n: int, classes: int, ratio: float) -> np.ndarray:
        tried.append(n)
        return long_tail(n, classes, ratio)

    assert _largest_that_fits(shape, np.array([10**6, 5, 9]), 4) == 11
    assert len(tried) < 25


def test_profile_larger_than_the_data_names_the_class():
    data = of_labels(np.repeat(np.arange(3), [100, 12, 30]), 3)
    with pytest.raises(ValueError, match=r"class 1 has 12 training images, but 31 are asked for"):
        imbalance(data, "long-tail", ratio=10, largest=100)
    with pytest.raises(ValueError, match="ratio of at least 1"):
        imbalance(data, "long-tail", ratio=0.5)


def test_hold_out_is_stratified_and_keeps_one_of_each():
    data = of_labels(np.repeat(np.arange(3), [100, 10, 2]), 3)
    parts = hold_out(data, 0.2)
    assert parts.held_out is not None
    assert np.bincount(parts.held_out.labels).tolist() == [20, 2, 1]
    assert parts.counts.tolist() == [80, 8, 1]
    alone = of_labels(np.repeat(np.arange(2), [5, 1]), 2)
    with pytest.raises(ValueError, match=r"class 1 has only one training image"):
        hold_out(alone, 0.1)


def test_split_divides_without_overlap():
    labels = np.random.default_rng(0).integers(0, 5, 97)
    rest, out = split(labels, 0.3)
    assert sorted([*rest, *out]) == list(range(97))


def test_binary_cifar10(tmp_path):
    images, labels = layouts.write_cifar10_binary(tmp_path)
    data = load("cifar10", tmp_path, unofficial=True)
    np.testing.assert_array_equal(data.train.images, images)
    np.testing.assert_array_equal(data.train.labels, labels)
    assert len(data.test) == 40
    assert data.names[3] == "cat"
    inside = load("cifar10", tmp_path / "cifar-10-batches-bin", unofficial=True)
    np.testing.assert_array_equal(inside.train.images, images)


def test_binary_cifar100_reads_the_fine_label(tmp_path):
    images = layouts.write_cifar100_binary(tmp_path)
    data = load("cifar100", tmp_path, unofficial=True)
    np.testing.assert_array_equal(data.train.images, images)
    assert data.counts.tolist() == [2] * 100
    assert data.names[7] == "name7"


def test_a_truncated_binary_file_is_refused(tmp_path):
    layouts.write_cifar10_binary(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_3.bin: expected records of 3073 bytes"):
        load("cifar10", tmp_path, unofficial=True)


def test_a_binary_label_beyond_the_classes_is_refused(tmp_path):
    layouts.write_cifar10_binary(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    content = bytearray(path.read_bytes())
    content[3073 * 5] = 12
    path.write_bytes(bytes(content))
    with pytest.raises(
        ValueError, match="test labels of 10 classes: expected labels from 0 to 9, got 12 at pos"
    ):
        load("cifar10", tmp_path, unofficial=True)


def test_binary_cifar10_needs_the_official_md5_unless_told_otherwise(tmp_path):
    layouts.write_cifar10_binary(tmp_path)
    with pytest.raises(ValueError, match="official file is 5dd7e06a14cb22eb9f671a540d1b7c25"):
        load("cifar10", tmp_path)


def test_binary_cifar100_needs_the_official_md5_unless_told_otherwise(tmp_path):
    layouts.write_cifar100_binary(tmp_path)
    with pytest.raises(ValueError, match="official file is 6172c7755cfe09b2fe270c85cebc1b15"):
        load("cifar100", tmp_path)


def test_python_cifar10_needs_the_official_md5_unless_told_otherwise(tmp_path):
    images = layouts.write_cifar10_python(tmp_path)
    with pytest.raises(ValueError, match="official file is c99cafc152244af753f735de768cd75f"):
        load("cifar10", tmp_path)
    np.testing.assert_array_equal(load("cifar10", tmp_path, unofficial=True).train.images, images)


def test_md5_are_those_torchvision_lists():
    official = pytest.importorskip("torchvision.datasets.cifar")
    for ours, theirs in (
        (cifar.MD5["cifar10"], official.CIFAR10),
        (cifar.MD5["cifar100"], official.CIFAR100),
    ):
        python = {name: md5 for name, md5 in ours.items() if not name.endswith(".bin")}
        assert python == dict(theirs.train_list + theirs.test_list)


class Runs:
    def __reduce__(self):
        return exec, ("import pathlib; pathlib.Path('harm').touch()",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_hostile_pickle_is_refused_and_does_not_run(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    layouts.write_cifar10_python(tmp_path)
    hostile = tmp_path / "cifar-10-batches-py" / "data_batch_2"
    hostile.write_bytes(pickle.dumps({"data": Runs()}, protocol=protocol))
    with pytest.raises(
        ValueError, match=r"data_batch_2: not a CIFAR python file .*exec, but only numpy arrays"
    ):
        load("cifar10", tmp_path, unofficial=True)
    assert not (tmp_path / "harm").exists()


def test_pickle_of_python_2_is_read(tmp_path):
    layouts.write_cifar10_python(tmp_path)
    old = tmp_path / "cifar-10-batches-py" / "test_batch"
    old.write_bytes(b"\x80\x02}(U\x04data" + _python2_array(3072) + b"U\x06labels](K\x03eu.")
    data = load("cifar10", tmp_path, unofficial=True)
    assert data.test.labels.tolist() == [3]
    assert data.test.images.shape == (1, 3, 32, 32)


def _python2_array(size):
    """Return what the cPickle of Python 2 writes for a uint8 array [1, size] of zeros."""
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = b"T" + size.to_bytes(4, "little") + bytes(size)
    make = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    return (
        make + b"(K\x01(K\x01M" + size.to_bytes(2, "little") + b"t" + dtype + b"\x89" + raw + b"tb"
    )


def test_missing_data_are_named_with_the_folder_looked_in_and_the_official_archive(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name, words in (
        (
            "cifar100",
            "cifar-100-binary.tar.gz (md5 03b5dce01913d631647c71ecec9e9cb8) from https://",
        ),
        ("cifar10", "cifar-10-binary.tar.gz (md5 c32a1d4ab5d03f1284b67883e8d87530) from https://"),
        ("tiny-imagenet-sorted", "tiny-imagenet-200.zip (md5 90528d7ca1a48142e341f4ef8d21d0de)"),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            load(name, ".")
        assert f"looked in {tmp_path} for the folder" in str(caught.value)
        assert f"download {words}" in str(caught.value)
        with pytest.raises(LevelheadError, match="root: expected the folder that holds") as none:
            load(name)
        assert f"download {words}" in str(none.value)
        assert "\n" not in str(caught.value) + str(none.value)


def test_data_that_are_not_there_are_named(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="cifar11: no such file or folder; expected a folder of images,"
    ):
        load("cifar11")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        LevelheadError, match=r"notes\.txt: expected a folder of images or an \.npz file"
    ):
        load(str(tmp_path / "notes.txt"))


def test_tiny_imagenet(tmp_path):
    root = layouts.write_tiny_imagenet(tmp_path)
    data, in_order = load("tiny-imagenet", root), load("tiny-imagenet-sorted", root)
    assert in_order.names == (
        "goldfish",
        "bullfrog",
    )  # n01, n02; wnids.txt has them the other way round
    assert in_order.test.labels.tolist() == [0, 1]
    assert (in_order.train.images[:3] == data.train.images[3:]).all()
    assert data.names == ("bullfrog", "goldfish")
    assert data.train.images.shape == (6, 3, 64, 64)
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test.labels.tolist() == [1, 0]
    assert abs(int(data.train.images[3].mean()) - 10) <= 1  # the gray one, in three equal channels
    assert (data.train.images[3, 0] == data.train.images[3, 2]).all()


def test_image_folder_is_resized_and_split(tmp_path):
    data = load(str(layouts.write_image_folder(tmp_path / "pets", {"cat": 10, "dog": 5})), size=16)
    assert data.names == ("cat", "dog")
    assert data.shape == (3, 16, 16)
    assert data.counts.tolist() == [8, 4]
    assert np.bincount(data.test.labels).tolist() == [2, 1]
    assert data.train.images[:, 0].mean() > data.train.images[:, 2].mean() + 20  # cats are red


def test_image_folder_with_train_and_val(tmp_path):
    layouts.write_image_folder(tmp_path / "train", {"cat": 3, "dog": 4})
    layouts.write_image_folder(tmp_path / "val", {"dog": 2})
    data = load(str(tmp_path))
    assert data.counts.tolist() == [3, 4]
    assert data.test.labels.tolist() == [1, 1]
    layouts.write_image_folder(tmp_path / "val", {"bird": 1, "cat": 1})
    with pytest.raises(ValueError, match="class 'bird' is not in"):
        load(str(tmp_path))


@pytest.mark.parametrize("other", ["valid", None])
def test_image_folder_with_train_alone_says_what_else_is_needed(tmp_path, other):
    for part in filter(None, ("train", other)):
        layouts.write_image_folder(tmp_path / part, {"cat": 5, "dog": 5})
    with pytest.raises(
        LevelheadError, match=f"test or val next to train, got {other or 'none'}; .*train itself"
    ):
        load(str(tmp_path))
    assert load(str(tmp_path / "train")).names == ("cat", "dog")


def test_image_folder_of_one_class(tmp_path):
    layouts.write_image_folder(tmp_path, {"cat": 3})
    with pytest.raises(ValueError, match="at least 2 classes, got cat"):
        load(str(tmp_path))
    layouts.write_image_folder(tmp_path, {"train": 5})  # a vehicle
    (tmp_path / "train" / "notes").mkdir()
    assert load(str(tmp_path)).names == ("cat", "train")


def test_unreadable_images_are_named_and_only_skipped_on_request(tmp_path):
    layouts.write_image_folder(tmp_path, {"cat": 5, "dog": 5})
    (tmp_path / "cat" / "bad.jpg").write_bytes(b"no image")
    whole = (tmp_path / "dog" / "000.png").read_bytes()
    (tmp_path / "dog" / "half.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        ValueError, match=r"2 of 12 images cannot be read: .*bad.jpg, .*half.png .*; pass skip_bad"
    ):
        load(str(tmp_path))
    data = load(str(tmp_path), skip_bad=True)
    assert len(data.train) + len(data.test) == 10


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Failed to decode frame 0"),  # of a damaged AVIF
        struct.error("required argument is not an integer"),  # of a damaged orientation
        AttributeError("'IFDRational' object has no attribute 'encode'"),
    ],
)
def test_an_image_is_unreadable_whatever_its_decoder_raises(tmp_path, monkeypatch, error):
    image_ops = pytest.importorskip("PIL.ImageOps")
    layouts.write_image_folder(tmp_path, {"cat": 5, "dog": 5})
    whole = image_ops.exif_transpose

    def failing(image):
        if image.filename.endswith("003.png"):
            raise error
        return whole(image)

    monkeypatch.setattr(image_ops, "exif_transpose", failing)
    expected = rf"2 of 10 images cannot be read: .*003\.png \({re.escape(str(error))}\)"
    with pytest.raises(LevelheadError, match=expected):
        load(str(tmp_path))
    data = load(str(tmp_path), skip_bad=True)
    assert len(data.train) + len(data.test) == 8


def test_memory_that_runs_out_is_no_damaged_image(tmp_path, monkeypatch):
    image_ops = pytest.importorskip("PIL.ImageOps")
    layouts.write_image_folder(tmp_path, {"cat": 5, "dog": 5})

    def failing(image):
        raise MemoryError

    monkeypatch.setattr(image_ops, "exif_transpose", failing)
    with pytest.raises(MemoryError):
        load(str(tmp_path), skip_bad=True)


def test_large_folders_are_decoded_once(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image_folder, "CACHED_FROM", 4)
    place = layouts.write_image_folder(tmp_path / "pets", {"cat": 3, "dog": 3})
    first = load(str(place))
    monkeypatch.setattr(image_folder, "_decode", lambda *_: pytest.fail("decoded again"))
    np.testing.assert_array_equal(load(str(place)).train.images, first.train.images)


def test_npz_layouts(tmp_path):
    x, y = layouts.random_images(40, size=8), np.arange(40) % 4
    np.savez(tmp_path / "four.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    np.savez(
        tmp_path / "last.npz", images=x.transpose(0, 2, 3, 1), labels=y, names=["a", "b", "c", "d"]
    )
    np.savez(tmp_path / "grey.npz", images=x[:, 0], labels=y)
    np.testing.assert_array_equal(load(str(tmp_path / "four.npz")).train.images, x)
    last = load(str(tmp_path / "last.npz"))
    assert (last.shape, last.names, len(last.test)) == ((3, 8, 8), ("a", "b", "c", "d"), 8)
    assert load(str(tmp_path / "grey.npz")).shape == (1, 8, 8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(3)}, "expected x_train, y_train, x_test, y_test, or images, labels; got x"),
        (
            {"images": np.zeros((4, 8, 8)), "labels": np.arange(4)},
            "expected images of uint8, 0 to 255, got float64",
        ),
        (
            {"images": np.zeros((4, 8, 8), np.uint8), "labels": np.array([0, 1, -1, 0])},
            "got -1 at position 2",
        ),
        (
            {"images": np.zeros((4, 8, 8), np.uint8), "labels": np.array([0, 0, 2, 2])},
            r"class 1 has no training",
        ),
        (
            {"images": np.zeros((4, 8, 8), np.uint8), "labels": np.zeros(4, int)},
            "at least 2 classes, got 0",
        ),
        (
            {
                "x_train": np.zeros((4, 8, 8), np.uint8),
                "y_train": np.array([0, 1, 0, 1]),
                "x_test": np.zeros((1, 8, 8), np.uint8),
                "y_test": np.array([5]),
            },
            "expected labels from 0 to 1, got 5",
        ),
        (
            {
                "x_train": np.zeros((4, 8, 8), np.uint8),
                "y_train": np.array([0, 1, 0]),
                "x_test": np.zeros((1, 8, 8), np.uint8),
                "y_test": np.array([1]),
            },
            "got 4 train images but 3 labels",
        ),
    ],
)
def test_an_npz_with_wrong_arrays_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / "data.npz"))


def test_npz_with_objects_is_refused(tmp_path):
    np.savez(tmp_path / "data.npz", images=np.array([Runs()], object), labels=np.zeros(1, int))
    with pytest.raises(ValueError, match=r"not a valid \.npz file of plain arrays"):
        load(str(tmp_path / "data.npz"))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.npz: not a valid"):
        load(str(tmp_path / "text.npz"))


def test_digits_have_a_balanced_test_set():
    data = digits()
    assert np.bincount(data.test.labels).tolist() == [50] * 10
    assert len(data.train) + len(data.test) == 1797


def test_mean_and_std_are_those_of_the_pixels():
    data = imbalance(digits(), "long-tail", ratio=10)
    pixels = data.train.images / 255
    mean, std = data.mean_std
    np.testing.assert_allclose(mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std(axis=(0, 2, 3)), rtol=1e-9)


def test_an_official_set_is_read_once_for_all_ratios_and_a_folder_each_time(tmp_path):
    layouts.write_cifar10_binary(tmp_path / "official")
    spec = Spec(
        "cifar10",
        root=str(tmp_path / "official"),
        profile="long-tail",
        ratio=4.0,
        largest=20,
        unofficial=True,
    )
    first = spec.load()
    shutil.rmtree(tmp_path / "official")
    other = replace(spec, ratio=2.0).load()
    assert len(other.train) > len(first.train)
    assert np.shares_memory(first.test.images, other.test.images)
    of_folder = Spec(str(layouts.write_image_folder(tmp_path / "own", {"a": 5, "b": 5})))
    assert len(of_folder.load().train) == 8
    shutil.rmtree(tmp_path / "own")
    with pytest.raises(FileNotFoundError, match="own: no such file or folder"):
        of_folder.load()


def test_the_hash_of_a_split_is_that_of_its_shape_images_and_labels():
    images, labels = layouts.random_images(6, size=4), np.array([0, 1, 2, 0, 1, 2])
    content = (
        b"(6, 3, 4, 4)" + images.tobytes() + b"".join(int(y).to_bytes(8, "little") for y in labels)
    )
    assert Split(images, labels).sha256 == hashlib.sha256(content).hexdigest()
    reversed_twice = np.ascontiguousarray(images[:, ::-1])[
        :, ::-1
    ]  # the same values, in another order in memory
    assert Split(reversed_twice, labels.astype(np.uint8)).sha256 == Split(images, labels).sha256
    assert Split(images, labels)[::2].sha256 != Split(images, labels).sha256


def test_the_hash_of_data_depends_on_their_content():
    whole = digits()
    again = replace(whole, train=Split(whole.train.images.copy(), whole.train.labels))
    assert again.sha256 == whole.sha256
    again.train.images[0, 0, 0, 0] += 1
    assert replace(again).sha256 != whole.sha256
    assert imbalance(whole, "long-tail", ratio=10).sha256 != whole.sha256
