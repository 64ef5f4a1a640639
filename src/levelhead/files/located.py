"""The head in a model's file, once it is found: what every reader of a format returns.

A `LocatedHead` says where the numbers are (`layers`, as byte ranges), which files the model has,
and how its format keeps a changed file sound (`complete`, `add_bias`). It also answers what the
file and a config.json beside it tell of the classes: their names, and whether they compete. It
holds no numbers: numbers.py reads them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core.label_task import PROBLEM_TYPES
from ..heads.notes import Note
from ..support import text
from ..support.arrays import Array
from ..support.regular_file import Stamp
from ..support.types import LabelTask
from .edits import Edit
from .spans import LayerSpans

# (file, its edits, note, new names of files) -> the edits with all else in the file that must
# change with them: checksums, lengths, references to files that are renamed, the note. A note of
# None leaves an old one as it is.
Complete = Callable[[Path, list[Edit], Note | None, Mapping[Path, str]], list[Edit]]

# (layer without a bias, its bias [K]) -> edits of the model's file that give it one.
AddBias = Callable[[LayerSpans, Array], list[Edit]]


@dataclass(frozen=True)
class LocatedHead:
    """The head in a model's file.

    Args:
        path: the file that stands for the model.
        layers: more than one where several feed one output, and are changed together.
        stamps: all files of the model, `path` first, and what each was when it was read.
        complete: adds to the edits of a file what else must change in it.
        note: what an earlier adjustment recorded in the file.
        folder: whether the model is a folder of files and is written as one.
        add_bias: gives a layer without a bias one; None if its files cannot hold it.
        given_names: of the classes, where the user says them.
        given_task: one class or several labels, where the user says it.
    """

    path: Path
    layers: tuple[LayerSpans, ...]
    stamps: Mapping[Path, Stamp]
    complete: Complete
    note: Note | None = None
    folder: bool = False
    add_bias: AddBias | None = None
    given_names: tuple[str, ...] | None = None
    given_task: LabelTask | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of the model, the one that stands for it first."""
        return tuple(self.stamps)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its layers in the file."""
        return tuple(layer.key for layer in self.layers)

    @property
    def classes(self) -> int:
        """How many rows it has: K, or 1 where two classes share a logit."""
        return self.layers[0].classes

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The class names, where they are known and one for each class; else None.

        What was given counts; else `id2label` in a config.json in the same folder, as transformers
        writes it.
        """
        if self.given_names is not None:
            return self.given_names
        # {"0": name, "1": name, ...}; whatever else a config has under that name says nothing.
        try:
            labels = self.config["id2label"]
            names = tuple(str(labels[str(i)]) for i in range(len(labels)))
        except (KeyError, TypeError):
            return None
        if len(names) == self.classes:
            return names
        return None

    @property
    def task(self) -> tuple[LabelTask, str] | None:
        """Whether samples have one class or several labels, and how that is known; else None.

        What was given counts most, then what follows the head in a graph, then `problem_type` in a
        config.json.
        """
        if self.given_task is not None:
            return self.given_task, "as was said"
        # A single logit has a Sigmoid in either case.
        follows = self.layers[0].task
        if self.classes > 1 and follows == "multilabel":
            return follows, "a Sigmoid follows it"
        if self.classes > 1 and follows == "multiclass":
            return follows, "a softmax or argmax follows it"
        return PROBLEM_TYPES.get(str(self.config.get("problem_type")))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of a config.json in the same folder; empty without one. Read once."""
        return json_of(self.path.parent / "config.json")


def json_of(path: Path) -> dict[str, Any]:
    """Return what a file of JSON holds; nothing if it cannot be read, or holds no object.

    A config is asked for hints alone. A broken one is no reason to refuse the model beside it.
    """
    try:
        content = text.parse_json(text.read(path))
    except (OSError, ValueError):
        return {}
    if isinstance(content, dict):
        return content
    return {}
