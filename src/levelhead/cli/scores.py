"""What options say to the library: files read, words understood.

Each function takes an option as it was typed, or its file, and returns what a parameter of the library
takes; None stays None. A word that cannot be understood is an error of the parameter, which the command
line reports as one of the option.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..support.errors import Advice, LevelheadError, named, reported_as

if TYPE_CHECKING:
    import numpy as np

    from ..core.counts import Counts
    from ..core.goal import Goal
    from ..io.samples_file import SamplesRead


def read_goal(metric: str | None, cost: Path | None, floors: Sequence[str]) -> Goal:
    """Return what a choice is to be good at, from --metric, --cost and every --floor.

    Without --metric, that of `Goal`: the mean cost if there are costs, else balanced error.
    """
    from ..core.goal import Goal

    costs = read_array(cost, "cost")
    recalls = read_floors(floors)
    if metric is None:
        return Goal(cost=costs, floors=recalls)
    return Goal(metric, costs, recalls)


def read_floors(words: Sequence[str]) -> float | dict[str, float] | None:
    """Return the floors of recall as `tune` takes them: a number for all classes, or {class: recall}.

    Args:
        words: "0.6" once, or "CLASS=0.6" for each of some classes; a class is a name or an index.

    Raises:
        LevelheadError: no number, both forms at once, or a class twice.

    >>> read_floors(["0.6"])
    0.6
    >>> read_floors(["cat=0.6", "dog=0.5"])
    {'cat': 0.6, 'dog': 0.5}
    """
    from ..core.class_names import without_repeats

    pairs = []
    for word in words:
        name, _, value = word.rpartition("=")  # a name may have an = in it, a recall may not
        expected = f"expected a recall such as 0.6, or CLASS=0.6, got {value!r}"
        with named("floors"), reported_as(expected, ValueError):
            pairs.append((name, float(value)))
    # One number alone is for all classes; a number among named ones is a mistake.
    if len(pairs) == 1 and not pairs[0][0]:
        return pairs[0][1]
    if not all(name for name, _ in pairs):
        expected = "expected one recall for all classes, or CLASS=RECALL each time"
        raise LevelheadError(f"{expected}, got {', '.join(words)}", parameter="floors")
    with named("floors"):
        return without_repeats(pairs) or None


def read_target(word: str | None, samples: SamplesRead) -> np.ndarray | str | None:
    """Return shares [K] from what --target says, or the word `estimate`; None if none are given.

    Only now, and not where other options are read, since names of classes come with the samples.
    """
    from ..core.priors import ESTIMATE
    from ..io.arrays import target_shares

    if word == ESTIMATE:
        return word
    return target_shares(word, samples.names, samples.classes)


def with_background(samples: SamplesRead, background: str | None) -> Counts | None:
    """Return the training counts of samples, with the class that is left alone, if there is one.

    Raises:
        LevelheadError: a background without counts, or one that is no class.
    """
    from ..core.counts import find_background, with_background

    if background is None:
        return samples.counts
    if samples.counts is None:
        advice = Advice("counts", None, "to give them")
        reason = "this needs the training samples of each class"
        raise LevelheadError(reason, parameter="background", advice=advice)
    alone = find_background(background, samples.classes, samples.names)
    return with_background(samples.counts, alone)


def refuse(reason: str, **options: object) -> None:
    """Raise LevelheadError for the first of these options that was given: an option that does nothing is an error.

    Args:
        reason: why it does nothing here, and what to do.
        options: each by the name of its parameter; None if it was not given.
    """
    for name, value in options.items():
        if value is not None:
            raise LevelheadError(reason, parameter=name)


def check_counts(source: Path | None) -> Path | None:
    """Return what --counts says, unless it is neither numbers nor a file: the callback of the option.

    A slip such as 4000,2o00 would be taken for the name of a file, and its suffix be asked for.

    Raises:
        LevelheadError: no list of numbers, and no name that a file of counts could have.
    """
    from ..io.arrays import has_known_suffix, is_inline

    if source is None or is_inline(source) or has_known_suffix(source) or source.exists():
        return source
    if source.suffix and "," not in str(source):  # a file of another format, which its reader names
        return source
    expected = "expected numbers with commas between them or a file"
    examples = "such as 4000,2000,500 or counts.json"
    raise LevelheadError(f"{expected}, {examples}, got {str(source)!r}", parameter="counts")


def read_training_counts(source: Path | None) -> Counts | None:
    """Return what --counts says, in words or in a file, which errors will name; None if it was not given."""
    from ..core.counts import CountsFrom
    from ..io.arrays import is_inline, read_counts

    if source is None:
        return None
    file = None
    if not is_inline(source):
        file = str(source)
    return CountsFrom(read_counts(source), file)


def read_array(source: Path | None, wanted: str = "logits") -> np.ndarray | None:
    """Return the array of a file, which is to hold what is wanted; None if no file was given."""
    from ..io import arrays

    if source is None:
        return None
    return arrays.read(source, wanted=wanted)
