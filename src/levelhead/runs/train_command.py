"""What `levelhead train` does: run, judge with and without leveling, and write the leveled model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ..io.counts_file import read_counts
from . import checkpoint
from .evaluate import evaluate, rule_of
from .export import export
from .run import run
from .run_folder import Run
from .spec import Spec
from .signals import graceful_stop
from .track import tracker
from ..lab.train import stages
from ..core.errors import LevelheadError
from ..show.progress import epoch_progress


def train(
    spec: Spec, runs: str | Path = "runs", *, name: str | None = None, gamma: float | None = None,
    track: str | None = None, threads: int | None = None, half: bool = False, show: bool = True,
    say: Callable[[str], None] = print,
) -> tuple[dict[str, Any], str]:
    """Train a spec, choose gamma on what it held out, write leveled.safetensors and leveled.onnx.

    Args:
        spec: what to train.
        runs, name, half, say: as in `run`.
        gamma: strength of RS; chosen on the held-out samples if None.
        track: `tensorboard`, `mlflow` or None.
        threads: of the CPU; torch's own choice if None.
        show: progress, where there is a terminal.

    Returns:
        The result for programs, and the same for people. Under torchrun both are empty but in the first process.
    """
    if threads is not None:
        if threads < 1:
            raise LevelheadError(f"expected at least one thread, got {threads}")
        torch.set_num_threads(threads)
    if gamma is not None and not math.isfinite(gamma):
        raise LevelheadError(f"expected a finite gamma, got {gamma}")
    rule_of(spec.resolve_method())
    first = os.environ.get("RANK", "0") == "0"
    folder = Run.of(spec, runs, name).path
    with graceful_stop(lambda: _standing(folder, spec), say if first else lambda line: None):
        with epoch_progress(show=show and first) as draw, tracker(track if first else None, folder, spec) as note:

            def report(record: dict[str, Any]) -> None:
                draw(record)
                note(record)

            there = run(spec, runs, name=name, report=report, say=say, half=half)
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
        return conclude(there, spec, gamma) if first else ({}, "")


def _standing(folder: Path, spec: Spec) -> str:
    """What of a run need not be done again."""
    whole = stages(spec.resolve_recipe(), spec.resolve_method())[-1].end
    return f"{folder} keeps {checkpoint.epochs_kept(folder)} of {whole} epochs"


def spec_of(
    *, data: str, root: Path | None, method: str, ratio: float | None, profile: str, counts: Path | None,
    largest: int | None, subset: str, hold_out: float, size: int, skip_bad: bool, unofficial: bool, net: str | None,
    recipe: str | None, epochs: int | None, seed: int, engine: str, dtype: str,
) -> Spec:
    """A Spec from what the command line gives: a ratio asks for a profile, a file for counts of one's own."""
    if counts is not None and ratio is not None:
        raise LevelheadError("expected --ratio or --counts, got both")
    if ratio is None and profile != "long-tail":
        raise LevelheadError(f"--profile {profile} shapes what --ratio makes: give --ratio too, or leave it out")
    if ratio is None and largest is not None:
        raise LevelheadError(f"--largest is of what --ratio makes: give --ratio too, or leave --largest {largest} out")
    if ratio is None and counts is None and subset != "first":
        raise LevelheadError(f"--subset chooses what --ratio or --counts keep: give one, or leave --subset {subset} out")
    given: dict[str, Any] = {
        "profile": "given" if ratio is None else profile, "ratio": 1.0 if ratio is None else ratio,
        "counts": None if counts is None else _wanted(counts),
        "subset": int(subset) if subset.isdigit() else subset, "root": None if root is None else str(root),
        "engine": engine, "dtype": dtype,
    }
    return Spec(data=data, method=method, largest=largest, hold_out=hold_out, size=size, skip_bad=skip_bad,
                unofficial=unofficial, net=net, recipe=recipe, epochs=epochs, seed=seed, **given)


def _wanted(file: Path) -> tuple[Any, ...]:
    """Counts of one's own as plain numbers, or as pairs of a class and its number."""
    found = read_counts(file)
    if len(found) == 0:
        raise LevelheadError(f"{file}: expected one count per class, got none")
    return tuple(found.items() if isinstance(found, dict) else np.asarray(found, object).tolist())


def conclude(there: Run, spec: Spec, gamma: float | None = None) -> tuple[dict[str, Any], str]:
    """Judge a finished run before and after leveling, and write the leveled model."""
    rule = rule_of(spec.resolve_method())
    left = there.snapshot
    nothing = gamma is None and "held-out" not in left.features
    found = evaluate(left, gamma=0.0 if nothing else gamma, rule=rule)
    done = {"rule": rule, "gamma": found.gamma, "counts": left.counts.tolist()}
    files = export(there.path, left.head, adjusted=done)
    result = {"run": str(there.path), **there.result, **found.to_dict(), "files": [str(file) for file in files]}
    lines = [f"{there.path}: {there.result['epoch']} epochs, {there.result['seconds']:.0f} s, "
             f"{there.result['parameters']:,} parameters", "", found.text(), ""]
    if nothing:
        lines.append("nothing was held out to choose gamma on, so the head is as trained: --hold-out 0.1, or --gamma")
    return result, "\n".join([*lines, f"the {'leveled ' * bool(found.gamma)}model: " + ", ".join(map(str, files))])
