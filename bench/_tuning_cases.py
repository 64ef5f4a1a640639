"""Cases for the study of choosing gamma: trained heads, with as many unseen samples as one asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from levelhead import Snapshot
from levelhead.core.counts import long_tail
from levelhead_lab.paper.geometry import oracle_head

Sample = Callable[
    [np.ndarray], tuple[np.ndarray, np.ndarray]
]  # samples per class [K] -> logits, labels, all unseen


@dataclass(frozen=True)
class Case:
    """A trained head, the counts it was trained on, a source of unseen samples, and a test set that no choice sees."""

    counts: np.ndarray
    draw: Sample
    logits: np.ndarray
    labels: np.ndarray
    room: np.ndarray | None = None  # unseen samples per class, if they are limited


def gaussians(seed: int, classes: int, ratio: float, largest: int, size: int, test: int) -> Case:
    """Return Gaussian classes of unequal spread, in groups of similar ones, and the softmax head of their long tail."""
    rng = np.random.default_rng([classes, int(ratio), largest, seed])
    group = rng.integers(max(2, classes // 4), size=classes)
    centers = 3 * (
        np.sqrt(0.6) * _units(rng, classes, size)[group] + np.sqrt(0.4) * _units(rng, classes, size)
    )
    spread = np.exp(0.3 * rng.normal(size=classes))

    def features(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(classes), sizes)
        return centers[labels] + spread[labels, None] * rng.normal(size=(len(labels), size)), labels

    counts = long_tail(largest, classes, ratio)
    decay = 10 ** rng.uniform(-3, -2)  # varies the best gamma, so that no grid is lucky
    head = oracle_head(*features(counts), classes, decay=decay, steps=200, tolerance=1e-4).head

    def draw(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = features(sizes)
        return head.logits(x), y

    return Case(counts, draw, *draw(np.full(classes, test // classes)))


def digits(seed: int) -> Case:
    """Train a small network on a long tail of scikit-learn's digits by SGD; all other images are unseen."""
    import torch
    from sklearn.datasets import load_digits

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    counts, order = long_tail(70, 10, 20), rng.permutation(len(labels))
    own = [order[labels[order] == c] for c in range(10)]
    train = np.concatenate([members[:n] for members, n in zip(own, counts, strict=True)])
    x, y = torch.tensor(images[train], dtype=torch.float32), torch.tensor(labels[train])
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10, bias=False)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for _ in range(60):
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    rest = np.concatenate([members[n:] for members, n in zip(own, counts, strict=True)])
    with torch.no_grad():
        logits = net(torch.tensor(images[rest], dtype=torch.float32)).numpy()
    return _split(counts, logits, labels[rest], rng, share=0.5)


def snapshot(seed: int, path: str) -> Case:
    """Return a real network: a random half of its test features are the unseen samples, the others the test set."""
    whole = Snapshot.load(path)
    return _split(
        whole.counts,
        whole.logits("test"),
        whole.labels["test"],
        np.random.default_rng(seed),
        share=0.5,
    )


def _split(
    counts: np.ndarray,
    logits: np.ndarray,
    labels: np.ndarray,
    rng: np.random.Generator,
    share: float,
) -> Case:
    order = rng.permutation(len(labels))
    own = [order[labels[order] == c] for c in range(len(counts))]
    cut = [int(len(members) * share) for members in own]
    pool = [members[:n] for members, n in zip(own, cut, strict=True)]
    test = np.concatenate([members[n:] for members, n in zip(own, cut, strict=True)])

    def draw(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if any(n > len(members) for members, n in zip(pool, sizes, strict=True)):
            raise LookupError("the pool is too small")
        rows = np.concatenate(
            [rng.choice(members, n, replace=False) for members, n in zip(pool, sizes, strict=True)]
        )
        return logits[rows], labels[rows]

    return Case(counts, draw, logits[test], labels[test], np.array(cut))


def _units(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    x = rng.normal(size=(n, size))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


FAMILIES: dict[str, tuple[Callable[[int], Case], int]] = {
    "Gaussians, K = 10, ratio 100, n_1 = 5000": (
        partial(gaussians, classes=10, ratio=100, largest=5000, size=32, test=50_000),
        200,
    ),
    "Gaussians, K = 10, ratio 100, n_1 = 500": (
        partial(gaussians, classes=10, ratio=100, largest=500, size=32, test=50_000),
        200,
    ),
    "Gaussians, K = 10, ratio 10, n_1 = 500": (
        partial(gaussians, classes=10, ratio=10, largest=500, size=32, test=50_000),
        200,
    ),
    "Gaussians, K = 100, ratio 100, n_1 = 500": (
        partial(gaussians, classes=100, ratio=100, largest=500, size=64, test=20_000),
        60,
    ),
    "Digits, K = 10, ratio 20, n_1 = 70": (digits, 100),
}
