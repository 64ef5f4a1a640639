"""The body of `levelhead train`: train, evaluate as trained and adjusted, and write the adjusted model."""

import math
import os
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from levelhead.core.gamma_path import find_path_rule
from levelhead.core.rules import find_rule
from levelhead.io.arrays import read_counts
from levelhead.support.errors import LevelheadError

from ..lab.choices import Profile, Tracker
from ..lab.data import Data
from ..lab.progress import epoch_progress
from ..lab.train import stages
from . import checkpoint
from .evaluate import evaluate, rule_for, usual_rule
from .export import export
from .run import run
from .run_folder import Run
from .session import MOST_THREADS
from .signals import graceful_stop
from .spec import Spec
from .track import tracker


@dataclass(frozen=True)
class TrainOptions:
    """Options of a training that do not change the trained network."""

    name: str | None = None  # the first part of the run's folder; made from the spec if None
    strength: float | None = None  # of the rule; chosen on the held-out samples if None
    rule: str | None = None  # how to level the model; that of the method, or offsets, if None
    anyway: bool = False  # level the model also where nothing is to be gained
    track: Tracker | None = None  # where to log every epoch too
    threads: int | None = None  # of the CPU; torch's own choice if None
    show: bool = True  # draw a progress bar on a terminal

    def __post_init__(self) -> None:
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


def imbalance_fields(
    *,
    ratio: float | None,
    profile: Profile,
    counts: Path | None,
    largest: int | None,
    subset: str | None,
) -> dict[str, Any]:
    if ratio is not None and counts is not None:
        raise LevelheadError("expected a ratio or counts, got both", parameter="ratio")
    if ratio is None:
        if profile != "long-tail":
            raise LevelheadError("needs a ratio", parameter="profile")
        if largest is not None:
            raise LevelheadError("needs a ratio", parameter="largest")
        if counts is None and subset not in (None, "first"):
            raise LevelheadError("needs a ratio or counts", parameter="subset")
    kept = None
    if counts is not None:
        found = read_counts(counts)
        if len(found) == 0:
            raise LevelheadError(f"{counts}: expected one count per class, got none")
        kept = tuple(
            found.items() if isinstance(found, dict) else np.asarray(found, object).tolist()
        )
    return {
        "profile": "given" if ratio is None else profile,
        "ratio": 1.0 if ratio is None else ratio,
        "largest": largest,
        "counts": kept,
        "subset": int(subset) if subset and subset.isdecimal() else subset,
    }


def data_text(data: Data, most: int = 8) -> str:
    """Return what is trained on, in lines of at most 80 columns; of many classes, the first and last by count."""
    order = sorted(range(len(data.names)), key=lambda i: -data.counts[i])
    each = [f"{data.counts[i]:,} of {data.names[i]}" for i in order]
    if len(each) > most:
        each = [*each[: most // 2], "...", *each[-most // 2 :]]
    others = ", ".join(
        f"{len(part):,} {title}" for title, part in data.splits.items() if title != "train"
    )
    text = f"{data.name}: {len(order)} classes, {len(data.train):,} training images ({', '.join(each)}), {others}"
    return "\n".join(textwrap.wrap(text, 80, break_on_hyphens=False))


def train_and_evaluate(
    spec: Spec,
    runs: str | Path = "runs",
    options: TrainOptions | None = None,
    *,
    say: Callable[[str], None] = print,
    option: Callable[[str], str] = str,
) -> tuple[dict[str, Any], str]:
    """Train a spec, level it by its held-out samples, write both; return the result, for programs and for people."""
    options = options or TrainOptions()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    rule_for(spec.resolve_method())  # raises an error if there is none
    first = os.environ.get("RANK", "0") == "0"
    folder = Run.of(spec, runs, options.name).path

    def summary() -> str:
        total = stages(spec.resolve_recipe(), spec.resolve_method())[-1].end
        return f"{folder} keeps {checkpoint.epochs_kept(folder)} of {total} epochs"

    with graceful_stop(summary, say if first else lambda line: None):
        # Asked here: a bar of an older rich says no for it.
        shown = options.show and first and sys.stderr.isatty()
        with (
            epoch_progress(show=options.show and first) as draw,
            tracker(options.track if first else None, folder, spec) as log,
        ):

            def report(record: dict[str, Any]) -> None:
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
) -> tuple[dict[str, Any], str]:
    """Evaluate a finished run and write the adjusted model: as trained if nothing is gained, unless `anyway`."""
    options = options or TrainOptions()
    snapshot, facts = trained.snapshot, trained.result
    not_chosen = options.strength is None and "held-out" not in snapshot.features
    strength = 0.0 if not_chosen else options.strength
    rule = options.rule or rule_for(spec.resolve_method(), usual_rule(strength))
    if not_chosen:
        rule = usual_rule(strength)
    found = evaluate(snapshot, strength=strength, rule=rule)
    tuned = found.tuned
    changes = tuned.adjustment.changes
    adjusted = changes and (options.anyway or tuned.worthwhile is not False)
    written = export(trained.path, snapshot.head, tuned, adjusted=adjusted)
    files = [str(file) for file in written]
    result = {
        "run": str(trained.path),
        **facts,
        **found.to_dict(),
        "adjusted": adjusted,
        "files": files,
    }
    lines = [
        f"{trained.path}: {facts['epoch']} epochs, {facts['seconds']:.0f} s, {facts['parameters']:,} parameters",
        "",
        found.text(),
        "",
    ]
    if not_chosen:
        lines.append(
            "no samples were held out to choose on, so the head is as trained; pass "
            f"{option('strength')} to set a strength, or train another network with {option('hold_out')} 0.1"
        )
    if changes and not adjusted:
        lines.append(
            "nothing is gained on held-out samples, so the model is written as trained; pass "
            f"{option('anyway')} to adjust it all the same: nothing is trained again"
        )
    what = "the adjusted model" if adjusted else "the model"
    return result, "\n".join([*lines, f"{what}: {', '.join(files)}"])
