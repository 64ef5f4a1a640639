"""Parts of held-out samples: some rows of a path, and folds drawn class by class."""

from dataclasses import replace

import numpy as np

from .path import GammaPath


def take_rows(path: GammaPath, rows: np.ndarray) -> GammaPath:
    """Return the path of some samples, rows [n] in ascending order; logits are not kept."""
    position = _positions(rows, len(path.labels))
    kept = position[path.sample] >= 0
    return replace(
        path,
        sample=position[path.sample[kept]],
        lo=path.lo[kept],
        hi=path.hi[kept],
        labels=path.labels[rows],
        logits=(),
    )


def draw_folds(labels: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Return the fold of each sample, [N]: each class in a random order, dealt out from a random fold on.

    >>> np.bincount(draw_folds(np.array([0] * 5 + [1] * 5), 5, np.random.default_rng(0)))
    array([2, 2, 2, 2, 2])
    """
    order = np.argsort(rng.random(len(labels)))
    own = labels[order]
    narrow = own.astype(np.uint16) if own.max(initial=0) < 1 << 16 else own  # 16 bits are sorted by radix
    order = order[np.argsort(narrow, kind="stable")]
    sizes = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    found = np.empty(len(labels), np.int64)
    found[order] = (rank + rng.integers(folds, size=len(sizes))[labels[order]]) % folds
    return found


def _positions(rows: np.ndarray, size: int) -> np.ndarray:
    """Return the place of each of `size` samples among the rows, -1 for one that is not among them."""
    found = np.full(size, -1)
    found[rows] = np.arange(len(rows))
    return found
