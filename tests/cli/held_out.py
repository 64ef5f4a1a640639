"""Held-out samples in files, for commands that choose on them. No test by itself."""

import json
from pathlib import Path

import numpy as np

COUNTS = [1000, 300, 90, 27]


def write_held_out(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write L.npy, Y.npy and C.json; return the logits [113, 4], which favor frequent classes, and labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [60, 30, 15, 8])
    level = 5 + rng.normal(size=(113, 4)) + 2 * np.eye(4)[labels]
    logits = level * (np.array(COUNTS) / 1000) ** 0.3
    np.save(folder / "L.npy", logits)
    np.save(folder / "Y.npy", labels)
    (folder / "C.json").write_text(json.dumps(COUNTS))
    return logits, labels
