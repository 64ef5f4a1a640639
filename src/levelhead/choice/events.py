"""What a second pass over shards finds: every change within some cells of a grid."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from io import BytesIO
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..core.errors import LevelheadError


@dataclass(frozen=True, eq=False)
class Events:
    """What a second pass found in a shard, or in all of them: `+` joins.

    Args:
        cells: [G] bool, the cells that were looked into.
        gamma, label, sign: [M], in these cells: where a sample of class `label` turns right (1) or wrong (-1).
        shares: [K, G + 1], class-weighted predicted shares at the gammas of the grid; [0, 0] if not guided.
        moved, old, new, weight: [E], where a prediction changes, from which class to which, and the sample's weight.
    """

    cells: np.ndarray
    gamma: np.ndarray
    label: np.ndarray
    sign: np.ndarray
    shares: np.ndarray
    moved: np.ndarray
    old: np.ndarray
    new: np.ndarray
    weight: np.ndarray

    @staticmethod
    def joined(parts: Iterable["Events"]) -> "Events | None":
        """Return the events of all parts together, or None if there are no parts."""
        kept: list[Events] = []
        shares = np.zeros((0, 0))
        for part in parts:
            if kept and (not np.array_equal(kept[0].cells, part.cells) or shares.shape != part.shares.shape):
                raise LevelheadError("expected events of the same second pass")
            shares = shares + part.shares if kept else part.shares
            kept.append(replace(part, shares=np.zeros((0, 0))))
        if not kept:
            return None
        names = ("gamma", "label", "sign", "moved", "old", "new", "weight")
        lists = {name: np.concatenate([getattr(part, name) for part in kept]) for name in names}
        return Events(cells=kept[0].cells, shares=shares, **lists)

    def __add__(self, other: "Events") -> "Events":
        return Events.joined([self, other]) or NotImplemented if isinstance(other, Events) else NotImplemented

    def __radd__(self, other: Any) -> "Events":
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def to_bytes(self) -> bytes:
        """Return the events as bytes, compressed, for `from_bytes`."""
        buffer = BytesIO()
        np.savez_compressed(buffer, **vars(self))
        return buffer.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> "Events":
        """Return the events that `to_bytes` wrote."""
        names = [field.name for field in fields(Events)]
        try:
            with np.load(BytesIO(data), allow_pickle=False) as found:
                return Events(**{name: found[name] for name in names})
        except (ValueError, KeyError, OSError, BadZipFile, EOFError, zlib.error) as error:
            raise LevelheadError(f"not events of a second pass ({error}); make them again") from None

    @property
    def nbytes(self) -> int:
        """The bytes that they take in memory."""
        return sum(array.nbytes for array in vars(self).values())
