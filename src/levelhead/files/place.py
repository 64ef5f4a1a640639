"""The head in a model's file as a `Place`: checked by what the file says, and written to a new file."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from .._version import __version__
from ..core.array import to_numpy
from ..core.choices import LabelTask
from ..core.errors import LevelheadError, in_file
from ..core.head import Head
from ..heads.place import Change
from ..rules.rule import Rule
from ..show.progress import ByteProgress
from .large_heads import LargeHead, adjust_large, is_large, thin_head
from .locate import format_of, output_path
from .originals import Original
from .spans import LayerSpans, LocatedHead, decode, encode, load

HALVES = {"F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, eq=False)
class WrittenFile:
    """What was written."""

    out: Path
    originals: dict[str, Original]  # the way back from each changed file, by its new name
    before: np.ndarray  # [K], lengths of the weight vectors of the first layer
    after: np.ndarray


@dataclass(frozen=True, eq=False)
class InFile:
    """The head of a model's file, and where the adjusted file goes: as `rescale_file` has these."""

    found: LocatedHead
    path: Path  # of the model, as the caller named it
    out: Path
    original: bool
    force: bool
    progress: ByteProgress | None

    @property
    def keys(self) -> tuple[str, ...]:
        return self.found.keys

    @property
    def where(self) -> str:
        return f"{self.found.path}: {', '.join(self.found.keys)}"

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(layer.classes for layer in self.found.layers)

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.found.names

    @property
    def task(self) -> tuple[LabelTask, str] | None:
        return self.found.task

    @property
    def plain(self) -> bool:
        return self.found.layers[0].plain

    @property
    def half(self) -> str | None:
        return HALVES.get(self.found.layers[0].weight.dtype)

    def earlier(self) -> str | None:
        note = self.found.earlier
        if note is None:
            return None
        return f"{self.found.path} was adjusted before ({note['rule']}, gamma {note['gamma']:g}); undo that first"

    def check_adds(self) -> None:
        """Raise if the head has no bias and the file cannot hold one."""
        form = format_of(self.found.path)
        if self.found.layers[0].bias is None and form.add_bias is None:
            raise LevelheadError(
                f"{self.where} has no bias to shift, and a {form.name} file cannot hold one that the model "
                "does not expect; use the rule rescale, an ONNX file, or lh.adjust_ in memory"
            )

    def check_takes_bias(self, key: str) -> None:
        pass  # `check_adds` has

    @cached_property
    def large(self) -> bool:
        """Whether the head is written block by block."""
        return is_large(self.found)

    def heads(self, rule: Rule) -> tuple[Head, ...]:
        """Return the head, one for each layer; of a large one, whose rows are read when written, the bias."""
        read = thin_head if self.large and not rule.needs_norms else load
        return tuple(read(layer, self.names) for layer in self.found.layers)

    def saying_where(self) -> AbstractContextManager[None]:
        return in_file(self.path)

    def write(self, change: Change) -> WrittenFile:
        """Write the file with the new head and a note in it."""
        written: Sequence[Head | LargeHead] = change.after
        if self.large and not change.rule.needs_norms:
            large = adjust_large(self.found.layers[0], change.by.scale, change.after[0].bias, self.names)
            written, norms = [large], (large.before, large.after)
        else:
            for layer, before, after in zip(self.found.layers, change.before, change.after, strict=True):
                _check_not_lost(layer, before, after)
            norms = _norms(change.before[0]), _norms(change.after[0])
        out = output_path(self.path, self.out, self.found.folder)
        note = {
            "version": __version__,
            "rule": change.rule.name,
            "gamma": change.gamma,
            "bias": change.by.bias,
            "counts": change.counts.tolist(),
            "head": list(self.keys),
            "factors": change.by.first.tolist(),
        }
        note |= {} if change.offset is None else {"offset": change.offset.tolist()}
        note |= {"before": self.found.note} if self.found.note else {}
        kept = format_of(self.path).save(
            self.found, written, out, note=note, keep=self.original, force=self.force, progress=self.progress
        )
        return WrittenFile(out, kept, *norms)


def _check_not_lost(layer: LayerSpans, before: Head, after: Head) -> None:
    """Check that no weight vector becomes 0 because it is too small for the file's numbers."""
    kept = decode(encode(to_numpy(after.weight), layer.weight.dtype), layer.weight.dtype).reshape(layer.shape)
    lost = to_numpy(before.weight).any(axis=1) & ~kept.any(axis=1)
    if lost.any():
        name, where = before.name(int(np.argmax(lost))), f"{layer.weight.file}: {layer.key}, in {layer.weight.dtype},"
        raise LevelheadError(f"{where} would become 0 in {name}: use a gamma nearer to 0, or save it in float32 first")


def _norms(head: Head) -> np.ndarray:
    return to_numpy(head.norms).astype(np.float64)
