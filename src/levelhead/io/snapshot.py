"""A snapshot: what is left of a training when it is over. The border from torch to numpy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import atomic
from ..core.adjust import rescale
from ..core.array import Array, to_numpy
from ..core.counts import check_labels, resolve
from ..core.errors import LevelheadError
from ..core.head import Head
from ..core.measure import recall

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
            raise LevelheadError(f"expected features and labels of the same splits, got {sorted(self.features)} and "
                             f"{sorted(self.labels)}")
        object.__setattr__(self, "features", {split: to_numpy(x) for split, x in self.features.items()})
        object.__setattr__(self, "labels", {split: to_numpy(y) for split, y in self.labels.items()})
        for split, x in self.features.items():
            if x.ndim != 2 or x.shape != (len(self.labels[split]), self.head.weight.shape[1]):
                raise LevelheadError(f"expected {split} features [{len(self.labels[split])}, {self.head.weight.shape[1]}], "
                                 f"got {list(x.shape)}")
            check_labels(self.labels[split], self.head.classes)

    def logits(self, split: str, head: Head | None = None) -> Array:
        """[N, K] of one split, under this head or another."""
        if split not in self.features:
            raise LevelheadError(f"no split {split!r} in this snapshot; it has {', '.join(self.features) or 'none'}")
        return (head or self.head).numpy().logits(self.features[split])

    def plot(self, ax: Axes | None = None, *, split: str | None = None, gamma: float | None = None) -> Axes:
        """Draw how often each class is found, the most frequent first (extra `plot`), on new Axes if none are given.

        Args:
            ax: where to draw.
            split: of which samples; `test` if there are any, else `held-out`.
            gamma: also show the head rescaled so.
        """
        from ..show.plot import draw_recall

        split = split or ("held-out" if "held-out" in self.features and "test" not in self.features else "test")
        heads = [self.head] if gamma is None else [self.head, rescale(self.head, self.counts, gamma=gamma)]
        found = [recall(self.logits(split, head), self.labels[split]) for head in heads]
        title = f"{split}, {len(self.labels[split])} samples" + ("" if gamma is None else f"; gamma = {gamma:.3f}")
        return draw_recall(found[0], self.counts, ax, after=found[1] if gamma is not None else None,
                           names=self.head.names, title=title)

    def __repr__(self) -> str:
        splits = ", ".join(f"{split} {len(labels)}" for split, labels in self.labels.items()) or "no features"
        return (f"Snapshot({self.head.classes} classes of {self.counts.max()} to {self.counts.min()} training samples, "
                f"head {list(self.head.weight.shape)}; {splits})")

    def _repr_html_(self) -> str:
        from ..show.html import html
        from ..show.style import short

        names = self.head.names or ()
        shown = ", ".join([*map(short, names[:5]), *["..."] * (len(names) > 5)])
        rows = {
            "classes": f"{self.head.classes}{f' ({shown})' if shown else ''}, of {self.counts.max()} to "
                       f"{self.counts.min()} training samples",
            "head": f"weight {list(self.head.weight.shape)}, {'no bias' if self.head.bias is None else 'with a bias'}",
            "splits": ", ".join(f"{split} {len(labels)}" for split, labels in self.labels.items()) or "none",
        }
        facts = {key: str(value) for key, value in self.meta.items() if isinstance(value, str | int | float)}
        return html("Snapshot", rows | {key: fact for key, fact in facts.items() if len(fact) <= 80})

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, atomically."""
        from safetensors.numpy import save

        head = self.head.numpy()
        tensors = {"head.weight": head.weight, "counts": self.counts}
        if head.bias is not None:
            tensors["head.bias"] = head.bias
        for split in self.features:
            tensors[f"features.{split}"] = np.ascontiguousarray(self.features[split])
            tensors[f"labels.{split}"] = np.ascontiguousarray(self.labels[split])
        names = None if head.names is None else list(head.names)
        metadata = {"levelhead.snapshot": json.dumps({"version": 1, "names": names, "meta": self.meta})}
        atomic.write(path, save({k: np.ascontiguousarray(v) for k, v in tensors.items()}, metadata))

    @staticmethod
    def load(path: str | Path) -> Snapshot:
        """Read what `save` wrote."""
        from safetensors import SafetensorError, safe_open

        if not Path(path).is_file():
            raise FileNotFoundError(f"{path}: no such file; expected a snapshot")
        try:
            with safe_open(str(path), framework="numpy") as file:
                metadata = (file.metadata() or {}).get("levelhead.snapshot")
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise LevelheadError(f"{path}: not a whole safetensors file ({error})") from None
        if metadata is None:
            raise LevelheadError(f"{path}: a safetensors file, but not a snapshot, which is what a training leaves")
        try:
            facts = json.loads(metadata)
            return Snapshot(
                head=Head(tensors["head.weight"], tensors.get("head.bias"), facts["names"]),
                counts=tensors["counts"],
                features=_under("features.", tensors),
                labels=_under("labels.", tensors),
                meta=facts["meta"],
            )
        except (KeyError, TypeError, ValueError) as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else error
            raise LevelheadError(f"{path}: not a whole snapshot ({what})") from None


def _under(prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key.removeprefix(prefix): values for key, values in tensors.items() if key.startswith(prefix)}
