"""The four ways in which `levelhead tune` chooses, each a call of one function of the library.

`choose` takes what the options say as an `Inputs` (which samples) and a `Request` (what for), and
returns the choice with the samples it was made on. Warnings are in the choice, and not issued: the
command says them one by one on stderr, without Python's file and line.

Which way it is follows from what was given: --task multilabel, a folder, labels or none. An option that
means nothing in a way is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..support.errors import LevelheadError
from ..support.progress import stage_progress
from ..support.warnings import quiet
from .common import say
from .scores import read_target, refuse, with_background

if TYPE_CHECKING:
    import numpy as np

    from ..core.goal import Goal
    from ..core.rules import Rule
    from ..core.tuned import Tuned
    from ..io.samples_file import SamplesRead
    from ..support.types import Kind


class Inputs(NamedTuple):
    """Where samples come from, and how they are read."""

    logits: Path  # a file, or a folder of files
    labels: Path | None
    counts: Path | None
    names: Sequence[str] | None  # of the classes
    label_column: str | None
    background: str | None  # a class that is left alone


@dataclass(frozen=True, eq=False)
class Request:
    """What is to be chosen: what the options of `tune` say besides the samples."""

    goal: Goal
    rule: Rule
    target: str | None  # as --target has it; shares are read when the classes are known
    kind: Kind
    chosen_on: str
    seed: int
    unlabelled: np.ndarray | None  # logits [M, K] of deployment
    training: np.ndarray | None  # logits [M, K] of training samples
    features: np.ndarray | None  # what a head without a bias takes, [N, d]


class Choice(NamedTuple):
    """What was chosen, and the samples it was chosen on."""

    tuned: Tuned
    samples: SamplesRead


def choose(inputs: Inputs, request: Request, *, several_labels: bool) -> Choice:
    """Choose in the way that the inputs ask for.

    Labels may be in the file of the logits, so whether there are any is known only when it is read.

    Args:
        inputs, request: what the options say.
        several_labels: whether a sample may have several labels.
    """
    from ..io.samples_file import read

    # The ways that read files of their own come first; the other two differ in what the file holds.
    if several_labels:
        return choose_for_labels(inputs, request)
    if inputs.logits.is_dir():
        return choose_on_folder(inputs, request)
    samples = read(
        inputs.logits,
        inputs.labels,
        inputs.counts,
        names=inputs.names,
        label_column=inputs.label_column,
        background=inputs.background,
        say=say,
    )
    if samples.labels is None:
        return Choice(choose_without_labels(samples, request, inputs.background), samples)
    return Choice(choose_with_labels(samples, request, inputs.background), samples)


def choose_with_labels(samples: SamplesRead, request: Request, background: str | None) -> Tuned:
    """Choose by `tune`, on samples of one class each: the usual way, with a progress bar if it takes long.

    Args:
        samples: logits, labels and, where they are known, counts and names.
        request: what for.
        background: a class that is left alone, as it was typed.
    """
    from ..core.tune import tune

    with quiet(), stage_progress(samples.logits.size) as progress:
        return tune(
            samples.logits,
            samples.labels,
            with_background(samples, background),
            metric=request.goal,
            rule=request.rule,
            target=read_target(request.target, samples),
            unlabelled=request.unlabelled,
            names=samples.names,
            kind=request.kind,
            training=request.training,
            features=request.features,
            chosen_on=request.chosen_on,
            rng=request.seed,
            progress=progress,
        )


def choose_without_labels(samples: SamplesRead, request: Request, background: str | None) -> Tuned:
    """Choose by `tune_unlabelled`: until classes are predicted as often as the target says.

    No label tells what that is worth, so the choice has no evidence, and is applied without a verdict.
    """
    from ..core.goal import Goal
    from ..core.unlabelled import tune_unlabelled
    from ..io.arrays import file_of
    from ..io.table import TABLE_SUFFIXES

    # Options that only labels could make sense of.
    unlabelled = "--logits are the unlabelled ones if --labels is left out"
    refuse(unlabelled, unlabelled=request.unlabelled, training=request.training)
    # A metric that was not asked for is no option that was given.
    goal = request.goal
    metric = None
    if goal.metric is not Goal().metric:
        metric = goal.metric
    refuse(
        "this needs --labels",
        cost=goal.cost,
        metric=metric,
        floors=goal.floors,
        features=request.features,
    )
    with quiet():
        tuned = tune_unlabelled(
            samples.logits,
            read_target(request.target, samples),
            counts=with_background(samples, background),
            rule=request.rule,
            names=samples.names,
            kind=request.kind,
        )
    # Whoever only forgot the labels would take this for what labels choose.
    mix = "equally often"
    if request.target is not None:
        mix = "as --target says"
    # Nor is a column of labels found whose title does not say so.
    options = "--labels"
    file = file_of(samples.files["logits"])
    if file.suffix.lower() in TABLE_SUFFIXES:
        options = f"--labels, or --label-column TITLE if they are a column of {file}"
    chosen = f"no labels: chosen until classes are predicted {mix}; its gain is not known"
    say(f"{chosen}; for that, give {options}")
    return tuned


def choose_for_labels(inputs: Inputs, request: Request) -> Choice:
    """Choose by `tune_labels`: an offset for each of several labels per sample.

    The labels are a table [N, K] of 0 and 1, which is read by another function than one class per row.
    """
    from ..io.samples_file import read_label_samples
    from ..labels.tune_labels import tune_labels

    samples = read_label_samples(
        inputs.logits, inputs.labels, inputs.counts, names=inputs.names, say=say
    )
    with quiet():
        tuned = tune_labels(
            samples.logits,
            samples.labels,
            samples.counts,
            metric=request.goal,
            names=samples.names,
            kind=request.kind,
            training=request.training,
            chosen_on=request.chosen_on,
            rng=request.seed,
        )
    return Choice(tuned, samples)


def choose_on_folder(inputs: Inputs, request: Request) -> Choice:
    """Choose by `tune_chunks`, on all files of a folder, of which one is in memory at a time.

    The first file says which classes there are. It stands for the samples of the choice, but not
    for its sources: it is only one of them.
    """
    from ..core.chunks import tune_chunks
    from ..core.priors import ESTIMATE
    from ..io.samples_file import read

    in_one_file = "this needs all logits in one file"
    refuse("each file of a folder holds its own labels; leave it out", labels=inputs.labels)
    refuse(
        in_one_file,
        training=request.training,
        unlabelled=request.unlabelled,
        features=request.features,
    )
    if request.target == ESTIMATE:
        raise LevelheadError(in_one_file, parameter="target")
    files = _files_of_logits(inputs.logits)
    first = read(
        files[0],
        None,
        inputs.counts,
        names=inputs.names,
        label_column=inputs.label_column,
        background=inputs.background,
    )
    # Counts are read once, with the first file, and given to the others as numbers.
    training_counts = None
    if first.counts is not None:
        training_counts = first.counts.tolist()

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Read one file after another; `tune_chunks` does this more than once."""
        for file in files:
            part = read(
                file, None, training_counts, names=first.names, label_column=inputs.label_column
            )
            if part.labels is None:
                missing = f"{file}: expected labels next to the logits"
                raise LevelheadError(missing, parameter="logits")
            yield part.logits, part.labels
            part.check_unchanged()

    with quiet():
        tuned = tune_chunks(
            chunks,
            with_background(first, inputs.background),
            metric=request.goal,
            rule=request.rule,
            target=read_target(request.target, first),
            names=first.names,
            kind=request.kind,
            chosen_on=request.chosen_on,
            rng=request.seed,
        )
    # Without its files, so that tuned.json does not name one file as what was chosen on.
    return Choice(tuned, replace(first, files={}, stamps={}))


def _files_of_logits(folder: Path) -> list[Path]:
    """Return the files of a folder that can hold logits, by name; there must be one.

    In the order of their names, so that the choice is the same on every machine. Hidden files are none of
    the user's making, and a .json beside the others has the counts, or what was chosen.
    """
    from ..io.arrays import has_known_suffix

    files = []
    for path in sorted(folder.iterdir()):
        is_beside = path.name.startswith(".") or path.suffix.lower() == ".json"
        if path.is_file() and has_known_suffix(path) and not is_beside:
            files.append(path)
    if not files:
        expected = "expected files that hold logits and labels, found none"
        raise LevelheadError(f"{folder}: {expected}", parameter="logits")
    return files
