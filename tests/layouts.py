"""Small files for tests: in the official layouts, and one of ours."""

import pickle
from pathlib import Path

import numpy as np


def pictures(n: int, seed: int = 0, size: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, size, size), dtype=np.uint8)


def small(root: Path, *, epochs: int) -> None:
    """small.npz, a hundred images of three classes, and short.toml, a recipe for them: a second of training."""
    labels = np.repeat(np.arange(3), [60, 30, 10])
    images = np.random.default_rng(0).integers(0, 256, (100, 8, 8)).astype(np.uint8)
    np.savez(root / "small.npz", images=images, labels=labels)
    (root / "short.toml").write_text(f"epochs = {epochs}\nbatch = 20\nlr = 0.1\n")


def binary10(root: Path, each: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10's binary version with `each` images a class in every file; all training images and labels."""
    place = root / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    images, labels = [], []
    for i, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        x, y = pictures(10 * each, seed=i), np.arange(10 * each) % 10
        np.hstack([y[:, None].astype(np.uint8), x.reshape(len(x), -1)]).tofile(place / f"{name}.bin")
        images.append(x)
        labels.append(y)
    return np.concatenate(images[:5]), np.concatenate(labels[:5])


def binary100(root: Path) -> np.ndarray:
    """CIFAR-100's binary version: records of coarse label, fine label, pixels; the training images."""
    place = root / "cifar-100-binary"
    place.mkdir(parents=True)
    fine = np.repeat(np.arange(100, dtype=np.uint8), 2)
    for split in ("train", "test"):
        rows = [(fine // 5)[:, None], fine[:, None], pictures(200).reshape(200, -1)]
        np.hstack(rows).tofile(place / f"{split}.bin")
    (place / "fine_label_names.txt").write_text("\n".join(f"name{i}" for i in range(100)))
    return pictures(200)


def python10(root: Path) -> np.ndarray:
    """CIFAR-10's python version, pickled as Python 2 did: byte strings as keys. The training images."""
    place = root / "cifar-10-batches-py"
    place.mkdir(parents=True)
    for i, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        batch = {b"data": pictures(20, seed=i).reshape(20, -1), b"labels": (np.arange(20) % 10).tolist()}
        (place / name).write_bytes(pickle.dumps(batch, protocol=4))
    return np.concatenate([pictures(20, seed=i) for i in range(5)])


def image_folder(root: Path, counts: dict[str, int], *, size: int = 20, seed: int = 0) -> Path:
    """root/class/NUMBER.png: every class has a color of its own, and noise."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    for k, (name, n) in enumerate(counts.items()):
        (root / name).mkdir(parents=True)
        for i in range(n):
            pixels = rng.normal(128, 40, (size, size + 4, 3))
            pixels[:, :, k % 3] += 80
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / name / f"{i:03d}.png")
    return root


def tiny_imagenet(root: Path) -> Path:
    """Two classes of Tiny ImageNet's layout, one grey image among them."""
    from PIL import Image

    place = root / "tiny-imagenet-200"
    for wnid in ("n02", "n01"):
        (place / "train" / wnid / "images").mkdir(parents=True)
        for i in range(3):
            grey = wnid == "n01" and i == 0
            image = Image.fromarray(np.full((64, 64) if grey else (64, 64, 3), 40 * i + 10, np.uint8))
            image.save(place / "train" / wnid / "images" / f"{wnid}_{i}.JPEG")
    (place / "val" / "images").mkdir(parents=True)
    for i in range(2):
        Image.fromarray(np.full((64, 64, 3), 200, np.uint8)).save(place / "val" / "images" / f"val_{i}.JPEG")
    (place / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01\t0\t0\t62\t62\nval_1.JPEG\tn02\t0\t0\t62\t62\n")
    (place / "wnids.txt").write_text("n02\nn01\n")
    (place / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tbullfrog\n")
    return root
