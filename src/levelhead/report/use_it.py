"""Commands and code to copy from a page.

They apply what was chosen to a model's file, to scores, or to a model in memory.

What is copied must run as it is: a test runs every line. So files are quoted for the shell, the
output has a name that is free, and where a choice gains nothing the commands say --anyway.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from ..files.formats import suffix_of
from .subject import Subject

MODEL = "model.safetensors"  # stands in where the model's file is not known
TUNED = "tuned.json"  # where the choice is not in a file: the page offers it under this name
SCORES = "scores.npy"  # a file of the reader's own
FEATURES = "features.npy"  # stands in where the file of what the head takes is not known


class Code(NamedTuple):
    """What applies a choice: in a shell, and in Python."""

    shell: str  # commands, a line each; empty where there is nothing to do
    python: str  # for a `model` that the reader has, and the `logits` or `probabilities` it gives


def code_to_use(subject: Subject) -> Code:
    """Return commands and code that apply what was chosen, in every way there is.

    Of a choice that was applied already there is only what its `Applied` says. Where it gains
    nothing, commands would write nothing, so they go on with --anyway.
    """
    if subject.applied is not None:
        return Code("", subject.applied.code)
    tuned = subject.tuned_file or TUNED
    model = subject.model or MODEL
    adjust = ["levelhead", "adjust", model, "--tuned", tuned]
    features_too = ""
    if subject.tuned.reach is not None:
        # For a head without a bias: its weights take the offsets, by what it takes of held-out samples.
        adjust += ["--features", subject.files.get("features", FEATURES)]
        features_too = ", features=features"
    adjust += ["-o", _free_name(model)]
    apply = ["levelhead", "apply", SCORES, "--tuned", tuned, "-o", "adjusted.npy"]
    if subject.tuned.worthwhile is False:
        adjust.append("--anyway")
        apply.append("--anyway")
    # Python's lines are for whoever has the model in memory; their names are those of the docs.
    kind_of_scores = "logits"
    if subject.tuned.kind == "probabilities":
        kind_of_scores = "probabilities"
    python = [
        "import levelhead as lh",
        "",
        f"tuned = lh.Tuned.load({tuned!r})",
        f"adjusted = lh.adjust_(model, tuned{features_too})  # adjusted.restore() undoes it",
        f"scores = tuned.apply({kind_of_scores})  # or its scores, with the model as it is",
    ]
    shell = [
        "# the head of a model's file, or its scores",
        shlex.join(adjust),
        shlex.join(apply),
    ]
    return Code("\n".join(shell), "\n".join(python))


def _free_name(model: str) -> str:
    """Return where the adjusted model goes: beside it, by a name that its folder does not have.

    That is `adjusted.safetensors`, or `adjusted-2.safetensors` if that exists, and so on.
    """
    suffix = suffix_of(model)
    place = Path(model).with_name(f"adjusted{suffix}")
    for i in range(2, 100):
        if not place.exists():
            break
        place = place.with_name(f"adjusted-{i}{suffix}")
    return place.as_posix()
