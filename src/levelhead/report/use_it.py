"""Commands and code to copy: they apply what was chosen to a model's file, to scores, or in memory."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from ..files.formats import suffix_of
from .subject import Subject

MODEL = "model.safetensors"  # where the model's file is not known
TUNED = "tuned.json"  # where the choice is not in a file; the page offers it under this name
SCORES = "scores.npy"
_UNDO = "  # adjusted.restore() undoes it"


class Code(NamedTuple):
    """What applies a choice: in a shell, and in Python."""

    shell: str
    python: str


def code_to_use(subject: Subject) -> Code:
    """Return commands and code that do what was chosen, in every way that it can be applied."""
    if subject.applied is not None:
        return Code("", subject.applied.code)
    tuned = subject.tuned_file or TUNED
    model = subject.model or MODEL
    adjust = ["levelhead", "adjust", model, "--tuned", tuned, "-o", _free(model)]
    apply = ["levelhead", "apply", SCORES, "--tuned", tuned, "-o", "adjusted.npy"]
    if subject.tuned.worthwhile is False:
        adjust.append("--anyway")
        apply.append("--anyway")
    python = [
        "import levelhead as lh",
        "",
        f"tuned = lh.Tuned.load({tuned!r})",
        f"adjusted = lh.adjust_(model, tuned){_UNDO}",
        "scores = tuned.apply(logits)  # or of any model's scores, without changing it",
    ]
    shell = [
        "# the head of a model's file, or its scores",
        shlex.join(adjust),
        shlex.join(apply),
    ]
    return Code("\n".join(shell), "\n".join(python))


def _free(model: str) -> str:
    """Return where the adjusted model goes: beside it, by a name that its folder does not have."""
    place, suffix = Path(model), suffix_of(model)
    for more in ("", *(f"-{i}" for i in range(2, 100))):
        free = place.with_name(f"adjusted{more}{suffix}")
        if not free.exists():
            break
    return free.as_posix()
