"""Small data sets for tests, in the official layouts and as an .npz file.

Readers are tested against these, as the real files are too large to come with the tests. Each has
what the real layout has: the same names, records and keys, and what is odd about them.
"""

import pickle
from pathlib import Path

import numpy as np


def random_images(n: int, seed: int = 0, size: int = 32) -> np.ndarray:
    """Return images of noise, [N, 3, size, size]."""
    return np.random.default_rng(seed).integers(0, 256, (n, 3, size, size), dtype=np.uint8)


def write_small_npz(root: Path, *, epochs: int) -> None:
    """Write small.npz, a hundred images of three classes, and short.toml, a recipe that trains on them in a second."""
    labels = np.repeat(np.arange(3), [60, 30, 10])
    images = np.random.default_rng(0).integers(0, 256, (100, 8, 8)).astype(np.uint8)
    np.savez(root / "small.npz", images=images, labels=labels)
    (root / "short.toml").write_text(f"epochs = {epochs}\nbatch = 20\nlr = 0.1\n")


def write_cifar10_binary(root: Path, each: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Write CIFAR-10's binary version with `each` images per class and file; return the training
    images and labels.

    A record is a byte for the label and 3,072 for the pixels: red, green, blue, row by row.
    """
    place = root / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    images = []
    labels = []
    for i, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        x = random_images(10 * each, seed=i)
        y = np.arange(10 * each) % 10
        records = np.hstack([y[:, None].astype(np.uint8), x.reshape(len(x), -1)])
        records.tofile(place / f"{name}.bin")
        images.append(x)
        labels.append(y)
    return np.concatenate(images[:5]), np.concatenate(labels[:5])


def write_cifar100_binary(root: Path) -> np.ndarray:
    """Write CIFAR-100's binary version, records of coarse label, fine label, pixels; return the training images."""
    place = root / "cifar-100-binary"
    place.mkdir(parents=True)
    fine = np.repeat(np.arange(100, dtype=np.uint8), 2)
    for split in ("train", "test"):
        rows = [(fine // 5)[:, None], fine[:, None], random_images(200).reshape(200, -1)]
        np.hstack(rows).tofile(place / f"{split}.bin")
    (place / "fine_label_names.txt").write_text("\n".join(f"name{i}" for i in range(100)))
    return random_images(200)


def write_cifar10_python(root: Path) -> np.ndarray:
    """Write CIFAR-10's python version, with byte strings as keys as in Python 2; return the training images."""
    place = root / "cifar-10-batches-py"
    place.mkdir(parents=True)
    for i, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        batch = {
            b"data": random_images(20, seed=i).reshape(20, -1),
            b"labels": (np.arange(20) % 10).tolist(),
        }
        (place / name).write_bytes(pickle.dumps(batch, protocol=4))
    return np.concatenate([random_images(20, seed=i) for i in range(5)])


def write_image_folder(
    root: Path, counts: dict[str, int], *, size: int = 20, seed: int = 0
) -> Path:
    """Write root/class/NUMBER.png; each class has its own color, with noise."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    for k, (name, n) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for i in range(n):
            pixels = rng.normal(128, 40, (size, size + 4, 3))
            pixels[:, :, k % 3] += 80
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / name / f"{i:03d}.png")
    return root


def write_tiny_imagenet(root: Path) -> Path:
    """Write two classes in the layout of Tiny ImageNet, with one gray image."""
    from PIL import Image

    place = root / "tiny-imagenet-200"
    for wnid in ("n02", "n01"):
        (place / "train" / wnid / "images").mkdir(parents=True)
        for i in range(3):
            shape = (64, 64, 3)
            if wnid == "n01" and i == 0:  # some of the real ones are gray
                shape = (64, 64)
            image = Image.fromarray(np.full(shape, 40 * i + 10, np.uint8))
            image.save(place / "train" / wnid / "images" / f"{wnid}_{i}.JPEG")
    (place / "val" / "images").mkdir(parents=True)
    for i in range(2):
        Image.fromarray(np.full((64, 64, 3), 200, np.uint8)).save(
            place / "val" / "images" / f"val_{i}.JPEG"
        )
    (place / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn01\t0\t0\t62\t62\nval_1.JPEG\tn02\t0\t0\t62\t62\n"
    )
    (place / "wnids.txt").write_text("n02\nn01\n")
    (place / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tbullfrog\n")
    return root
