"""Snapshots: what is kept of a training. The border from torch to numpy.

A snapshot has the head and the features that it multiplies, but no images and no body. So every
adjustment, curve and figure can be computed from it again, on a CPU in seconds, and without torch.

The file is safetensors: tensors `head.weight`, `head.bias` where there is one, `counts`, and
`features.SPLIT` and `labels.SPLIT` for each split. Its metadata has one entry,
`levelhead.snapshot`, JSON with `version` (1), `names` of the classes or null, and `meta`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from levelhead.core.counts import check_labels, resolve
from levelhead.core.head import Head
from levelhead.core.measure import recall
from levelhead.support import atomic
from levelhead.support.arrays import Array, to_numpy
from levelhead.support.errors import LevelheadError, visible
from levelhead.support.regular_file import check_regular_file
from levelhead.support.text import parse_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A trained head, the counts it was trained on, and features with labels, split by split.

    Args:
        head: weight [K, d], bias [K] or None, class names if known.
        counts: [K], training samples of each class, in any form that counts may have.
        features: {split: [N, d]}, of splits such as `train`, `held-out`, `test`; those of a cosine
            head have unit length. They may be float16, which halves the file.
        labels: {split: [N]}, of the same splits.
        meta: facts about the training, as JSON can hold them.

    Raises:
        LevelheadError: if the parts do not fit together.

    >>> snapshot = Snapshot(Head(np.eye(2)), [400, 100], {"test": [[2.0, 1.0]]}, {"test": [0]})
    >>> snapshot
    Snapshot(2 classes of 400 to 100 training samples, head [2, 2]; test 1)
    >>> snapshot.logits("test")
    array([[2., 1.]])
    """

    head: Head
    counts: np.ndarray
    features: dict[str, np.ndarray] = field(default_factory=dict)
    labels: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)  # as JSON holds it

    def __post_init__(self) -> None:
        if 0 in self.head.weight.shape:  # takes no bytes of a file, whatever else it claims
            came = list(self.head.weight.shape)
            raise LevelheadError(f"expected a weight [K, d], got shape {came}", parameter="head")
        # Frozen for others, not yet here: what came as lists or tensors is made numpy.
        object.__setattr__(
            self, "counts", resolve(self.counts, self.head.classes, names=self.head.names)
        )
        if self.features.keys() != self.labels.keys():
            came = f"{sorted(self.features)} and {sorted(self.labels)}"
            raise LevelheadError(f"expected features and labels of the same splits, got {came}")
        object.__setattr__(
            self, "features", {split: to_numpy(x) for split, x in self.features.items()}
        )
        object.__setattr__(self, "labels", {split: to_numpy(y) for split, y in self.labels.items()})
        # A row of features and a label for each sample, as long as the head's weight vectors.
        for split, x in self.features.items():
            expected = [len(self.labels[split]), self.head.weight.shape[1]]
            if list(x.shape) != expected:
                raise LevelheadError(f"expected {split} features {expected}, got {list(x.shape)}")
            check_labels(self.labels[split], self.head.classes)

    def logits(self, split: str, head: Head | None = None) -> Array:
        """Return the logits of one split, [N, K].

        Args:
            split: such as `test`.
            head: another one in place of the snapshot's, such as an adjusted one.

        Raises:
            LevelheadError: if there is no such split; the message lists those there are.
        """
        if split not in self.features:
            raise LevelheadError(
                f"the snapshot has no split {split!r}; it has {', '.join(self.features) or 'none'}"
            )
        return (head or self.head).numpy().logits(self.features[split])

    def plot(
        self, ax: Axes | None = None, *, split: str | None = None, head: Head | None = None
    ) -> Axes:
        """Draw the recall of each class, with another head that one's too (extra `plot`).

        Args:
            ax: where to draw; new Axes if None. They are returned.
            split: `test` if there is one, else `held-out`, if None.
            head: such as ``lh.adjust(snapshot.head, tuned)``.
        """
        from levelhead.show.plot import draw_recall

        if split is None:
            split = "test"
            if "test" not in self.features and "held-out" in self.features:
                split = "held-out"
        after = None
        if head is not None:
            after = recall(self.logits(split, head), self.labels[split])
        return draw_recall(
            recall(self.logits(split), self.labels[split]),
            self.counts,
            ax,
            after=after,
            names=self.head.names,
            title=f"{split}, {len(self.labels[split])} samples",
        )

    def __repr__(self) -> str:
        splits = self._splits_text() or "no features"
        classes = f"{self.head.classes} classes of {self.counts.max()} to {self.counts.min()} training samples"
        return f"Snapshot({classes}, head {list(self.head.weight.shape)}; {splits})"

    def _splits_text(self) -> str:
        """Return the splits with their sizes, such as "train 201, test 63"; empty without any."""
        return ", ".join(f"{split} {len(labels)}" for split, labels in self.labels.items())

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: classes, head, splits and short facts of `meta`."""
        from levelhead.show.style import html, short

        classes = str(self.head.classes)
        names = self.head.names or ()
        if names:
            first = [short(name) for name in names[:5]]
            if len(names) > 5:
                first.append("...")
            classes += f" ({', '.join(first)})"
        bias = "with a bias"
        if self.head.bias is None:
            bias = "no bias"
        rows = {
            "classes": f"{classes}, of {self.counts.max()} to {self.counts.min()} training samples",
            "head": f"weight {list(self.head.weight.shape)}, {bias}",
            "splits": self._splits_text() or "none",
        }
        # Of the facts about the training, those that fit on a line.
        for key, value in self.meta.items():
            if isinstance(value, str | int | float) and len(str(value)) <= 80:
                rows[key] = str(value)
        return html("Snapshot", rows)

    def save(self, path: str | Path) -> None:
        """Write the snapshot as one safetensors file, atomically; see the module for its layout.

        Args:
            path: of the file; its ending is up to the caller.

        >>> import tempfile
        >>> snapshot = Snapshot(Head(np.eye(2)), [400, 100], {"test": [[2.0, 1.0]]}, {"test": [0]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     snapshot.save(f"{folder}/snapshot.safetensors")
        ...     Snapshot.load(f"{folder}/snapshot.safetensors")
        Snapshot(2 classes of 400 to 100 training samples, head [2, 2]; test 1)
        """
        from safetensors.numpy import save

        head = self.head.numpy()
        tensors = {"head.weight": head.weight, "counts": self.counts}
        if head.bias is not None:
            tensors["head.bias"] = head.bias
        for split in self.features:
            tensors[f"features.{split}"] = self.features[split]
            tensors[f"labels.{split}"] = self.labels[split]
        names = None
        if head.names is not None:
            names = list(head.names)
        facts = json.dumps({"version": 1, "names": names, "meta": self.meta})
        # safetensors writes the memory as it lies, so that a view of it would be written wrongly.
        contiguous = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
        atomic.write(path, save(contiguous, {"levelhead.snapshot": facts}))

    @staticmethod
    def load(path: str | Path) -> Snapshot:
        """Read a snapshot that `save` wrote.

        Args:
            path: of the file.

        Raises:
            LevelheadError: if the file is damaged, or is safetensors but no snapshot, or is no
                plain file.
            FileNotFoundError: if there is none.
        """
        from safetensors import SafetensorError, safe_open

        check_regular_file(path, "a snapshot")
        # Nothing in the file is believed before it is checked: it may come from anybody.
        try:
            with safe_open(str(path), framework="numpy") as file:
                metadata = (file.metadata() or {}).get("levelhead.snapshot")
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise LevelheadError(
                f"{path}: not a complete safetensors file ({visible(str(error))})"
            ) from None
        if metadata is None:
            raise LevelheadError(
                f"{path}: expected a snapshot, as a training writes it, got another safetensors file"
            )
        try:
            facts = parse_json(metadata)
            features = _with_prefix(tensors, "features.")
            labels = _with_prefix(tensors, "labels.")
            head = Head(tensors["head.weight"], tensors.get("head.bias"), facts["names"])
            return Snapshot(head, tensors["counts"], features, labels, facts["meta"])
        except (KeyError, TypeError, ValueError) as error:
            reason = str(error)
            if isinstance(error, KeyError):
                reason = f"it has no {error}"
            raise LevelheadError(f"{path}: not a complete snapshot ({reason})") from None


def _with_prefix(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the tensors whose name begins so, by the rest of their name.

    >>> list(_with_prefix({"counts": np.ones(2), "labels.test": np.zeros(3)}, "labels."))
    ['test']
    """
    parts = {}
    for name, values in tensors.items():
        if name.startswith(prefix):
            parts[name.removeprefix(prefix)] = values
    return parts
