"""The body of `levelhead train`: train, evaluate as trained and adjusted, and write the adjusted model.

The command makes a `Spec` of its options, with `imbalance_fields` for those about imbalance, and a
`TrainOptions` of the rest. `train_and_evaluate` trains it, with a progress bar and a tracker, and
stops gracefully; `evaluate_and_export`, which a finished run goes through alone, measures the run,
writes the model, and says what was done. Under torchrun only the first process shows and writes.
"""

import math
import os
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
import torch.distributed as dist

from levelhead.core.gamma_path import find_path_rule
from levelhead.core.rules import find_rule
from levelhead.io.arrays import read_counts
from levelhead.support.errors import Advice, LevelheadError

from ..lab.choices import Profile, Tracker
from ..lab.data import Data
from ..lab.progress import epoch_progress
from ..lab.stages import stages
from . import checkpoint
from .evaluate import can_choose, evaluate, rule_for, usual_rule
from .export import export
from .run import run
from .run_folder import EpochRecord, JsonObject, Run
from .session import MOST_THREADS
from .signals import graceful_stop
from .spec import Spec
from .track import tracker


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training that do not change the trained network, and so are no part of its spec.

    Raises:
        LevelheadError: if one has a value that it cannot have: at once, and not after the training.
    """

    # The first part of the name of the run's folder; made from the spec if None.
    name: str | None = None
    # Of the rule; chosen on the held-out samples if None.
    strength: float | None = None
    # How to level the model; as the method does, or by the default rule, if None.
    rule: str | None = None
    # Level the model also where nothing is to be gained.
    anyway: bool = False
    # Where to log every epoch too.
    track: Tracker | None = None
    # Of the CPU; torch's own choice if None. A run that is resumed keeps its first number.
    threads: int | None = None
    # Draw a progress bar on a terminal.
    show: bool = True

    def __post_init__(self) -> None:
        # A path would lead out of the folder of all runs.
        if self.name is not None and Path(self.name).parts != (self.name,):
            raise LevelheadError(
                f"expected the name of one folder, got {self.name!r}",
                parameter="name",
                advice=Advice("runs", None, "to say where it is"),
            )
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise LevelheadError(
                f"expected 1 to {MOST_THREADS} threads, got {self.threads}", parameter="threads"
            )
        if self.strength is not None and not math.isfinite(self.strength):
            raise LevelheadError(
                f"expected a finite number, got {self.strength}", parameter="strength"
            )
        if self.rule is not None:
            find_rule(self.rule)
        if self.rule is not None and self.strength is not None:
            find_path_rule(self.rule)  # one that has a strength


class ImbalanceFields(TypedDict):
    """The fields of a `Spec` that say which training samples are kept."""

    profile: Profile
    ratio: float
    largest: int | None
    counts: tuple[float, ...] | tuple[tuple[str, float], ...] | None
    subset: str | int | None


def imbalance_fields(
    *,
    ratio: float | None,
    profile: Profile,
    counts: Path | None,
    largest: int | None,
    subset: str | None,
) -> ImbalanceFields:
    """Return the fields of a spec that the options about imbalance ask for.

    Args:
        ratio: largest over smallest count; None to keep the data as they are, or as `counts` says.
        profile: of the counts, where a ratio is given.
        counts: a file with the number of samples to keep of each class.
        largest: count that the ratio leaves.
        subset: which samples to keep: a word, or a seed as typed.

    Raises:
        LevelheadError: if options do not go together, named as the one at fault; or if the file
            cannot be read.
    """
    if ratio is not None and counts is not None:
        raise LevelheadError("expected a ratio or counts, got both", parameter="ratio")
    if ratio is None:
        # These would do nothing, and whoever gave them expects something.
        if profile != "long-tail":
            raise LevelheadError("needs a ratio", parameter="profile")
        if largest is not None:
            raise LevelheadError("needs a ratio", parameter="largest")
        if counts is None and subset not in (None, "first"):
            raise LevelheadError("needs a ratio or counts", parameter="subset")
        profile = "given"
        ratio = 1.0
    wanted = None
    if counts is not None:
        wanted = _counts_to_keep(counts)
    chosen_subset: str | int | None = subset
    if subset and subset.isdecimal():
        chosen_subset = int(subset)
    return {
        "profile": profile,
        "ratio": ratio,
        "largest": largest,
        "counts": wanted,
        "subset": chosen_subset,
    }


def _counts_to_keep(path: Path) -> tuple[float, ...] | tuple[tuple[str, float], ...]:
    """Read counts from a file: in class order or, where it names the classes, as (class, n).

    Tuples, as a spec must be hashable; and of Python's own numbers, as it is written as JSON.

    Raises:
        LevelheadError: if the file has no count, or cannot be read.
    """
    counts = read_counts(path)
    if len(counts) == 0:
        raise LevelheadError(f"{path}: expected one count per class, got none")
    if isinstance(counts, dict):
        return tuple(counts.items())
    return tuple(np.asarray(counts, object).tolist())


def data_text(data: Data, most: int = 8) -> str:
    """Return what is trained on, in lines of at most 80 columns.

    Whoever made the data imbalanced by a ratio sees here, before the training, what that left of
    each class.

    Args:
        data: loaded and made imbalanced.
        most: classes to list; if there are more, only the first and last of them by count.
    """
    order = sorted(range(len(data.names)), key=lambda i: -data.counts[i])
    classes = [f"{data.counts[i]:,} of {data.names[i]}" for i in order]
    if len(classes) > most:
        classes = [*classes[: most // 2], "...", *classes[-most // 2 :]]
    splits = [f"{len(part):,} {title}" for title, part in data.splits.items() if title != "train"]
    text = (
        f"{data.name}: {len(order)} classes, {len(data.train):,} training images "
        f"({', '.join(classes)}), {', '.join(splits)}"
    )
    return "\n".join(textwrap.wrap(text, 80, break_on_hyphens=False))


def train_and_evaluate(
    spec: Spec,
    runs: str | Path = "runs",
    options: TrainOptions | None = None,
    *,
    say: Callable[[str], None] = print,
    option: Callable[[str], str] = str,
) -> tuple[JsonObject, str]:
    """Train a spec, level it by its held-out samples, and write both models.

    Args:
        spec: what to train.
        runs: the folder of all runs.
        options: what else is asked for.
        say: called with lines for people.
        option: what a parameter is called where the user gave it: `--hold-out` on the command line.

    Returns:
        The result, for programs and for people; nothing in a process that is not the first.
    """
    options = options or TrainOptions()
    # For the loading of data too; `begin` sets that of a run which is resumed.
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    rule_for(spec.resolve_method())  # raises an error if there is none: before the training
    first = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts
    folder = Run.of(spec, runs, options.name).path
    track = None
    if first:
        track = options.track

    def summary() -> str:
        """Say how many epochs are kept, for who stops it by Ctrl-C."""
        total = stages(spec.resolve_recipe(), spec.resolve_method())[-1].end
        return f"{folder} keeps {checkpoint.epochs_kept(folder)} of {total} epochs"

    def say_once(line: str) -> None:
        """Say a line, in the first process alone."""
        if first:
            say(line)

    with graceful_stop(summary, say_once):
        # Asked here: while an older rich draws its bar, stderr is not a terminal.
        shown = options.show and first and sys.stderr.isatty()
        with (
            epoch_progress(show=options.show and first) as draw,
            tracker(track, folder, spec) as log,
        ):

            def report(record: EpochRecord) -> None:
                draw(record)
                log(record)

            def show_data(data: Data) -> None:
                if shown:
                    say(data_text(data))

            trained = run(
                spec,
                runs,
                name=options.name,
                report=report,
                on_batch=draw,
                on_data=show_data,
                say=say,
            )
        # The other processes are done. They must leave the group before they end, or torch complains.
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
        if not first:
            return {}, ""
        return evaluate_and_export(trained, spec, options, option=option)


def evaluate_and_export(
    trained: Run,
    spec: Spec,
    options: TrainOptions | None = None,
    *,
    option: Callable[[str], str] = str,
) -> tuple[JsonObject, str]:
    """Evaluate a finished run and write the adjusted model: as trained if nothing is gained, unless `anyway`.

    Args:
        trained: the run.
        spec: that it was trained by; its method says by which rule to adjust, if the options do not.
        options, option: as in `train_and_evaluate`.

    Returns:
        The result, for programs and for people.
    """
    options = options or TrainOptions()
    snapshot = trained.snapshot
    facts = trained.result
    strength = options.strength
    rule = options.rule or rule_for(spec.resolve_method(), usual_rule(strength))
    # Without enough samples to choose on and without a strength, the head stays as it is: RS at strength 0.
    not_chosen = strength is None and not can_choose(snapshot, rule)
    if not_chosen:
        strength = 0.0
        rule = usual_rule(strength)
    evaluation = evaluate(snapshot, strength=strength, rule=rule)
    tuned = evaluation.tuned
    changes = tuned.adjustment.changes
    # A strength that was given has no evidence, and `worthwhile` is None: it is applied.
    adjusted = changes and (options.anyway or tuned.worthwhile is not False)
    written = export(trained.path, snapshot.head, tuned, adjusted=adjusted)
    files = [str(file) for file in written]
    result = {
        "run": str(trained.path),
        **facts,
        **evaluation.to_dict(),
        "adjusted": adjusted,
        "files": files,
    }
    # The same in words, with why the model is as trained, if it is, and what to do about it.
    lines = [
        f"{trained.path}: {facts['epoch']} epochs, {facts['seconds']:.0f} s, {facts['parameters']:,} parameters",
        "",
        evaluation.text(),
        "",
    ]
    if not_chosen:
        reason = "no samples were held out to choose on"
        larger = f"{option('hold_out')} 0.1"
        if "held-out" in snapshot.features:
            reason = (
                "one sample of each class was held out to choose on, too few for a number per class"
            )
            larger = f"a larger {option('hold_out')}"
        lines.append(
            f"{reason}, so the head is as trained; pass {option('strength')} to set a strength, or train another "
            f"network with {larger}"
        )
    elif changes and not adjusted:
        lines.append(
            "nothing is gained on held-out samples, so the model is written as trained; pass "
            f"{option('anyway')} to adjust it all the same: nothing is trained again"
        )
    model = "the adjusted model" if adjusted else "the model"
    lines.append(f"{model}: {', '.join(files)}")
    return result, "\n".join(lines)
