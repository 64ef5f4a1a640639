"""A snapshot: what is left of a training when it is over. The border from torch to numpy."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ._array import Array, to_numpy
from .counts import check_labels, resolve
from .head import Head


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A head, the counts it was trained on, and features with labels, split by split.

    Args:
        head: weight [K, d], bias [K] or None, class names if known.
        counts: [K], of the samples trained on.
        features: {split: [N, d]}, splits such as `train`, `held-out`, `test`.
        labels: {split: [N]}, the same splits.
        meta: JSON-able facts of the training.
    """

    head: Head
    counts: np.ndarray
    features: dict[str, np.ndarray] = field(default_factory=dict)
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", resolve(self.counts, self.head.classes, names=self.head.names))
        if self.features.keys() != self.labels.keys():
            raise ValueError(f"expected features and labels of the same splits, got {sorted(self.features)} and "
                             f"{sorted(self.labels)}")
        for split, x in self.features.items():
            if x.ndim != 2 or x.shape != (len(self.labels[split]), self.head.weight.shape[1]):
                raise ValueError(f"expected {split} features [{len(self.labels[split])}, {self.head.weight.shape[1]}], "
                                 f"got {list(x.shape)}")
            check_labels(self.labels[split], self.head.classes)

    def logits(self, split: str, head: Head | None = None) -> Array:
        """[N, K] of one split, under this head or another."""
        if split not in self.features:
            raise ValueError(f"no split {split!r} in this snapshot; it has {', '.join(self.features) or 'none'}")
        return (head or self.head).numpy().logits(to_numpy(self.features[split]))

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, atomically."""
        from safetensors.numpy import save

        path, head = Path(path), self.head.numpy()
        tensors = {"head.weight": head.weight, "counts": self.counts}
        if head.bias is not None:
            tensors["head.bias"] = head.bias
        for split in self.features:
            tensors[f"features.{split}"] = np.ascontiguousarray(self.features[split])
            tensors[f"labels.{split}"] = np.ascontiguousarray(self.labels[split])
        names = None if head.names is None else list(head.names)
        metadata = {"levelhead.snapshot": json.dumps({"version": 1, "names": names, "meta": self.meta})}
        scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            scratch.write_bytes(save({k: np.ascontiguousarray(v) for k, v in tensors.items()}, metadata))
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | Path) -> Snapshot:
        """Read what `save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="numpy") as file:
                metadata = (file.metadata() or {}).get("levelhead.snapshot")
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"{path}: not a whole safetensors file ({error})") from None
        if metadata is None:
            raise ValueError(f"{path}: a safetensors file, but not a snapshot, which is what a training leaves")
        facts = json.loads(metadata)
        return Snapshot(
            head=Head(tensors["head.weight"], tensors.get("head.bias"), facts["names"]),
            counts=tensors["counts"],
            features={key.removeprefix("features."): x for key, x in tensors.items() if key.startswith("features.")},
            labels={key.removeprefix("labels."): y for key, y in tensors.items() if key.startswith("labels.")},
            meta=facts["meta"],
        )
