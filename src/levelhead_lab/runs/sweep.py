"""Many specs, each trained once: in local processes, packed on one GPU, or on a Ray cluster.

A grid of specs is a TOML file whose keys are those of a `Spec`. A list stands for each of its values in turn:

    data = "digits"
    method = ["baseline", "wvn", "ldam-drw"]
    ratio = [10, 50]
    seed = [0, 1, 2]
    hold_out = 0.1
"""

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import torch

from levelhead.core import measure
from levelhead.core.rules import RULES
from levelhead.support.errors import Advice, LevelheadError, check_choice
from levelhead.support.text import read as read_text

from ..lab.choices import Executor
from ..lab.recipe import parse_toml
from .evaluate import evaluate, rule_for
from .run import run, run_packed
from .run_folder import Run
from .session import check_finished
from .signals import graceful_stop
from .spec import Spec
from .workers import Where, run_tasks

MOST_RUNS = 100_000  # of one grid
_WHERE: dict[Executor, Where] = {"local": "processes", "packed": "here", "ray": "ray"}


def read_grid(path: str | Path, *, allow_code: bool = False) -> list[Spec]:
    """Read the specs of a grid; the last key varies fastest. A ratio implies the profile long-tail.

    A method as FILE.py:NAME is code that the grid names, not the command line: without `allow_code` it is refused.
    """
    try:
        grid = parse_toml(read_text(path))
    except ValueError as error:
        raise LevelheadError(f"{path}: not TOML: {error}") from None
    known = [field.name for field in fields(Spec) if field.name != "counts"]
    for key, value in grid.items():
        if key not in known:
            raise LevelheadError(f"{path}: unknown key {key!r}; the keys are {', '.join(known)}")
        if value == []:
            raise LevelheadError(f"{path}: {key} has no values; give one, or leave it out")
    if "data" not in grid:
        raise LevelheadError(f'{path}: expected data = ..., such as "digits" or a folder of images')
    if "ratio" in grid:
        grid.setdefault("profile", "long-tail")
    values = {key: value if isinstance(value, list) else [value] for key, value in grid.items()}
    if "ratio" not in grid and any(profile != "given" for profile in values.get("profile", ())):
        raise LevelheadError(f"{path}: profile: needs a ratio")
    size = prod(map(len, values.values()))
    if size > MOST_RUNS:
        raise LevelheadError(f"{path}: {size:,} runs in one grid; expected at most {MOST_RUNS:,}")
    for method in values.get("method", ()):
        if ".py" in str(method) and not allow_code:
            raise LevelheadError(
                f"{path}: the method {method!r} is code, which this file would run",
                advice=Advice("allow_code", None, "if you trust both files"),
            )
    try:
        specs = []
        for combination in product(*values.values()):
            spec = Spec(**dict(zip(values, combination, strict=True)))
            spec.identity()  # finds its method and its recipe
            specs.append(spec)
        return specs
    except ValueError as error:
        raise LevelheadError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Outcome:
    """What became of a spec: its run, and the error if it could not be trained."""

    spec: Spec
    run: Run
    error: str | None = None


def sweep(
    specs: Sequence[Spec],
    runs: str | Path = "runs",
    *,
    executor: Executor = "local",
    workers: int = 2,
    tries: int = 3,
    report: Callable[[Spec, str], None] | None = None,
    options: dict[str, Any] | None = None,
) -> list[Outcome]:
    """Train every spec that is not finished, shared trainings once; a spec that fails stops no other.

    Args:
        specs: in the order of the result. Two that differ only in what is done after training are one run.
        runs: the folder of all runs; for `ray`, one that all machines share.
        executor: `local` processes, `packed` as many as there are workers on one GPU, or a `ray` cluster.
        workers: runs at a time.
        tries: how often a run is started again whose worker was lost.
        report: called with a spec and what became of it: `finished`, `failed`, or `lost` to be started again.
        options: further arguments of `run`, or of `run_packed`.
    """
    check_choice("executor", executor, _WHERE)
    if workers < 1:
        raise LevelheadError(f"expected at least 1 worker, got {workers}", parameter="workers")
    if tries < 1:
        raise LevelheadError(f"expected at least 1 try, got {tries}", parameter="tries")
    options = options or {}
    folder = Path(runs).absolute()
    run_of = [Run.of(spec, runs) for spec in specs]
    unfinished, errors = _find_unfinished(specs, run_of)
    if executor == "packed":
        groups = [unfinished]
        train = partial(run_packed, runs=folder, slots=workers, **options)
    else:
        threads = None
        if executor == "local":
            threads = max(1, multiprocessing.cpu_count() // workers)
        groups = [[spec] for spec in unfinished]
        train = partial(_train, runs=folder, threads=threads, options=options)
    ends = run_tasks(
        groups,
        train,
        where=_WHERE[executor],
        workers=workers,
        tries=tries,
        device=options.get("device"),
    )
    with closing(ends):
        for end in ends:
            for spec in end.task:
                trained = Run.of(spec, runs)
                status = end.status
                if status == "failed" and trained.finished:  # packed with the one that failed
                    status = "finished"
                if status == "failed":
                    errors[trained] = end.error
                if report is not None:
                    report(spec, status)
    outcomes = []
    for spec, folder_of_spec in zip(specs, run_of, strict=True):
        outcomes.append(Outcome(spec, folder_of_spec, errors.get(folder_of_spec)))
    return outcomes


def _find_unfinished(
    specs: Sequence[Spec], run_of: Sequence[Run]
) -> tuple[list[Spec], dict[Run, str]]:
    """Return the specs to train, one for each run, and what is wrong with finished runs that cannot be used."""
    spec_of: dict[Run, Spec] = {}  # the first that asks for a run
    errors: dict[Run, str] = {}
    for spec, trained in zip(specs, run_of, strict=True):
        other = spec_of.setdefault(trained, spec)
        # A run's name has only the last part of the data's path.
        if Path(other.data).absolute() != Path(spec.data).absolute():
            raise LevelheadError(
                f"{other.data} and {spec.data} would be one run, {trained.path.name}; rename one of them"
            )
    for trained, spec in spec_of.items():
        try:
            if trained.finished:
                check_finished(trained, spec)
        except (ValueError, OSError) as error:
            errors[trained] = str(error)
    return [spec for trained, spec in spec_of.items() if not trained.finished], errors


def _train(group: list[Spec], *, runs: Path, threads: int | None, options: dict[str, Any]) -> None:
    """Train specs one after the other, in a worker's process."""
    if threads is not None:
        torch.set_num_threads(threads)
    for spec in group:
        run(spec, runs, **options)


def sweep_grid(
    path: Path,
    runs: Path,
    *,
    executor: Executor,
    workers: int,
    allow_code: bool,
    say: Callable[[str], None],
) -> tuple[dict[str, Any], str]:
    """Train every run of a grid; return the errors of each, for programs and for people: `levelhead sweep`."""
    specs = read_grid(path, allow_code=allow_code)
    done = 0
    for spec in specs:
        rule_for(spec.resolve_method())  # raises an error if there is none

    def report(spec: Spec, status: str) -> None:
        nonlocal done
        done += status != "lost"
        say(f"{spec.title}: {status} ({done} of at most {len(specs)})")

    def summary() -> str:
        all_runs = {Run.of(spec, runs) for spec in specs}
        finished = sum(each.finished for each in all_runs)
        return f"{finished} of {len(all_runs)} runs are finished"

    with graceful_stop(summary, say):
        outcomes = sweep(specs, runs, executor=executor, workers=workers, report=report)
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        say(f"{outcome.spec.title}: {outcome.error}")
    if len(failed) == len(outcomes):
        raise LevelheadError(
            f"none of the {len(outcomes)} runs could be trained; the first: {failed[0].error}"
        )
    rows = [sweep_row(outcome) for outcome in outcomes if not outcome.error]
    return {"rows": rows, "failed": [outcome.spec.title for outcome in failed]}, _table(rows)


def sweep_row(outcome: Outcome) -> dict[str, Any]:
    """Return the errors of a run on its test set: as trained and, if it held samples out, adjusted."""
    snapshot = outcome.run.snapshot
    spec = outcome.spec
    rule = rule_for(spec.resolve_method())
    row = {
        "run": str(outcome.run.path),
        "method": spec.method,
        "ratio": spec.ratio,
        "seed": spec.seed,
        "rule": None,
        "strength": None,
        "adjusted_error": None,
        "adjusted_balanced_error": None,
    }
    if "held-out" in snapshot.features:
        evaluation = evaluate(snapshot, rule=rule)
        row["rule"] = evaluation.tuned.rule
        row["strength"] = evaluation.tuned.strength
        row["adjusted_error"] = evaluation.after.error
        row["adjusted_balanced_error"] = evaluation.after.balanced_error
    logits = snapshot.logits("test")
    labels = snapshot.labels["test"]
    row["error"] = measure.error(logits, labels)
    row["balanced_error"] = measure.balanced_error(logits, labels)
    return row


def _table(rows: list[dict[str, Any]]) -> str:
    """Return both errors of each run, as trained and adjusted, a line each."""
    width = max(len(row["run"]) for row in rows)
    lines = [f"{'run':{width}}{'error':>18}{'balanced error':>18}  adjusted by"]
    for row in rows:
        if row["rule"] is None:
            cells = [f"{100 * row[what]:.1f} %" for what in ("error", "balanced_error")]
            by = "nothing: no samples were held out"
        else:
            cells = [
                f"{100 * row[what]:.1f} -> {100 * row[f'adjusted_{what}']:.1f} %"
                for what in ("error", "balanced_error")
            ]
            by = RULES[row["rule"]].text(row["strength"])
        lines.append(f"{row['run']:{width}}{cells[0]:>18}{cells[1]:>18}  {by}")
    return "\n".join(lines)
