"""Many specs, each trained once: in local processes, packed on one GPU, or on a Ray cluster.

A grid of specs is a TOML file whose keys are those of a `Spec`. A list stands for each of its values in turn:

    data = "digits"
    method = ["baseline", "wvn", "ldam-drw"]
    ratio = [10, 50]
    seed = [0, 1, 2]
    hold_out = 0.1

The road of `levelhead sweep`: `read_grid` makes the specs, `sweep` has every run that is not finished
trained by workers (`workers.run_tasks`) and says what became of each, `sweep_row` evaluates a finished
run, and `sweep_grid` puts these together and makes a table.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, TypedDict

import torch

from levelhead.core import measure
from levelhead.core.rules import RULES
from levelhead.support.errors import Advice, LevelheadError, check_choice, message_of
from levelhead.support.text import read as read_text

from ..lab.choices import Executor
from ..lab.recipe import parse_toml
from .evaluate import can_choose, evaluate, rule_for
from .packed import run_packed
from .run import run
from .run_folder import Run
from .session import check_finished
from .signals import graceful_stop
from .spec import Spec
from .workers import Where, run_tasks

MOST_RUNS = 100_000  # of one grid: more is a slip, and would fill the memory before it is seen
# Where the tasks of an executor are done. `packed` has one task, of all runs, and does it here.
_WHERE: dict[Executor, Where] = {"local": "processes", "packed": "here", "ray": "ray"}


class SweepRow(TypedDict):
    """The errors of one run on its test set, from 0 to 1; the adjusted ones None with too few held-out samples."""

    run: str  # its folder
    method: str
    ratio: float
    seed: int
    rule: str | None  # by which the head was adjusted
    strength: float | None  # of that rule, if it has one
    adjusted_error: float | None
    adjusted_balanced_error: float | None
    error: float  # as trained
    balanced_error: float


class SweepResult(TypedDict):
    """What `levelhead sweep --json` prints."""

    rows: list[SweepRow]
    failed: list[str]  # titles of the specs that could not be trained


def read_grid(path: str | Path, *, allow_code: bool = False) -> list[Spec]:
    """Read the specs of a grid; the last key varies fastest. A ratio implies the profile long-tail.

    Everything is checked before anything is trained: keys, values, methods and recipes.

    Args:
        path: of the TOML file.
        allow_code: let the grid name a method as FILE.py:NAME. That is code which is then run, and
            it is the grid that names it, not the one who types the command: so it is refused unless
            allowed.

    Raises:
        LevelheadError: with the file's name, if a spec cannot be made of it.
    """
    try:
        grid = parse_toml(read_text(path, "a grid"))
    except ValueError as error:
        raise LevelheadError(f"{path}: not TOML: {error}") from None
    # Not `counts`: a list of them would be read as values to try in turn.
    keys = [field.name for field in fields(Spec) if field.name != "counts"]
    for key, value in grid.items():
        if key not in keys:
            raise LevelheadError(f"{path}: unknown key {key!r}; the keys are {', '.join(keys)}")
        if value == []:
            raise LevelheadError(f"{path}: {key} has no values; give one, or leave it out")
    if "data" not in grid:
        raise LevelheadError(f'{path}: expected data = ..., such as "digits" or a folder of images')
    if "ratio" in grid:
        grid.setdefault("profile", "long-tail")
    values: dict[str, list[object]] = {}
    for key, value in grid.items():
        values[key] = value if isinstance(value, list) else [value]
    if "ratio" not in grid and any(profile != "given" for profile in values.get("profile", ())):
        raise LevelheadError(f"{path}: profile: needs a ratio")
    # Counted before they are made.
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
        return [_checked_spec(values, combination) for combination in product(*values.values())]
    except ValueError as error:
        raise LevelheadError(f"{path}: {error}") from None


def _checked_spec(keys: Iterable[str], values: Iterable[object]) -> Spec:
    """Return the spec with these values of these keys.

    Args:
        keys: fields of `Spec`.
        values: one for each key.

    Raises:
        ValueError: if a value has another type, or the method or the recipe is not found.
    """
    entries: dict[str, Any] = dict(zip(keys, values, strict=True))  # their types the spec checks
    spec = Spec(**entries)
    spec.identity()  # finds its method and its recipe
    return spec


@dataclass(frozen=True)
class Outcome:
    """What became of a spec.

    Attributes:
        spec: that was asked for.
        run: of it; other specs may share it.
        error: in one line, if it could not be trained, or is finished and cannot be used.
    """

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
    options: Mapping[str, Any] | None = None,
) -> list[Outcome]:
    """Train every spec that is not finished, shared trainings once; a spec that fails stops no other.

    Call it again to resume: what is finished is left, and what was interrupted goes on from its last
    checkpoint.

    Args:
        specs: in the order of the result. Two that differ only in what is done after training are one run.
        runs: the folder of all runs; for `ray`, one that all machines share.
        executor: `local` processes, `packed` as many as there are workers on one GPU, or a `ray` cluster.
        workers: runs at a time.
        tries: how often a run is started again whose worker was lost.
        report: called with a spec and what became of it: `finished`, `failed`, or `lost` to be started again.
        options: further arguments of `run`, or of `run_packed`.

    Returns:
        What became of each spec, in their order.

    Raises:
        LevelheadError: if an option cannot be, or if two specs on different data would be one run.
    """
    check_choice("executor", executor, _WHERE)
    if workers < 1:
        raise LevelheadError(f"expected at least 1 worker, got {workers}", parameter="workers")
    if tries < 1:
        raise LevelheadError(f"expected at least 1 try, got {tries}", parameter="tries")
    options = options or {}
    folder = Path(runs).absolute()  # a worker may be in another one
    run_of = [Run.of(spec, runs) for spec in specs]
    unfinished, errors = _find_unfinished(specs, run_of)
    # A task is a group of specs: packed, one group of all, which the engine shares out by itself.
    if executor == "packed":
        groups = [unfinished]
        train = partial(run_packed, runs=folder, slots=workers, **options)
    else:
        # Processes on this machine share its cores; on a cluster, torch finds its own.
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
    # Closed, so that an interrupt in this loop ends the workers too.
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
    """Return the specs to train, one for each run, and what is wrong with finished runs that cannot be used.

    Args:
        specs: all that are asked for.
        run_of: the run of each; several specs may share one, as those that differ in RS alone.

    Raises:
        LevelheadError: if two specs would share a run although their data are not the same.
    """
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
            errors[trained] = message_of(error)
    return [spec for trained, spec in spec_of.items() if not trained.finished], errors


def _train(
    group: list[Spec], *, runs: Path, threads: int | None, options: Mapping[str, Any]
) -> None:
    """Train specs one after the other, in a worker's process.

    Args:
        group: what to train.
        runs: the folder of all runs, absolute.
        threads: of torch, so that workers side by side do not fight for cores; its own choice if None.
        options: further arguments of `run`.
    """
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
) -> tuple[SweepResult, str]:
    """Train every run of a grid and evaluate it: the body of `levelhead sweep`.

    Args:
        path, allow_code: as for `read_grid`.
        runs, executor, workers: as for `sweep`.
        say: called with lines for people, as runs end.

    Returns:
        The errors of each run that could be trained: for programs, and as a table for people.

    Raises:
        LevelheadError: if the grid cannot be used, or none of its runs could be trained.
    """
    specs = read_grid(path, allow_code=allow_code)
    for spec in specs:
        rule_for(
            spec.resolve_method()
        )  # raises an error if there is none: before hours of training
    done = 0

    def report(spec: Spec, status: str) -> None:
        """Say what became of a spec, and how many of all are done."""
        nonlocal done
        if status != "lost":  # it will be started again
            done += 1
        say(f"{spec.title}: {status} ({done} of at most {len(specs)})")

    def summary() -> str:
        """Say how many runs are finished, for who stops it by Ctrl-C."""
        all_runs = {Run.of(spec, runs) for spec in specs}
        finished = sum(trained.finished for trained in all_runs)
        return f"{finished} of {len(all_runs)} runs are finished"

    with graceful_stop(summary, say):
        outcomes = sweep(specs, runs, executor=executor, workers=workers, report=report)
    # What could be trained is worth a table, even if some could not.
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        say(f"{outcome.spec.title}: {outcome.error}")
    if len(failed) == len(outcomes):
        raise LevelheadError(
            f"none of the {len(outcomes)} runs could be trained; the first: {failed[0].error}"
        )
    rows = [sweep_row(outcome) for outcome in outcomes if not outcome.error]
    return {"rows": rows, "failed": [outcome.spec.title for outcome in failed]}, _table(rows)


def sweep_row(outcome: Outcome) -> SweepRow:
    """Return the errors of a run on its test set: as trained and, if it held enough samples out, adjusted.

    The rule is the method's own, or the default. Its strength is chosen on the held-out samples even
    where the method has one, so that the rows of a sweep can be compared.
    """
    snapshot = outcome.run.snapshot
    spec = outcome.spec
    rule = rule_for(spec.resolve_method())
    logits = snapshot.logits("test")
    labels = snapshot.labels["test"]
    row: SweepRow = {
        "run": str(outcome.run.path),
        "method": spec.method,
        "ratio": spec.ratio,
        "seed": spec.seed,
        "rule": None,
        "strength": None,
        "adjusted_error": None,
        "adjusted_balanced_error": None,
        "error": measure.error(logits, labels),
        "balanced_error": measure.balanced_error(logits, labels),
    }
    if can_choose(snapshot, rule):
        evaluation = evaluate(snapshot, rule=rule)
        row["rule"] = evaluation.tuned.rule
        row["strength"] = evaluation.tuned.strength
        row["adjusted_error"] = evaluation.after.error
        row["adjusted_balanced_error"] = evaluation.after.balanced_error
    return row


def _table(rows: list[SweepRow]) -> str:
    """Return both errors of each run, as trained and adjusted, a line each."""
    width = max(len(row["run"]) for row in rows)
    lines = [f"{'run':{width}}{'error':>18}{'balanced error':>18}  adjusted by"]
    for row in rows:
        error = _errors_text(row["error"], row["adjusted_error"])
        balanced = _errors_text(row["balanced_error"], row["adjusted_balanced_error"])
        by = "nothing: no or too few samples were held out"
        if row["rule"] is not None:
            by = RULES[row["rule"]].text(row["strength"])
        lines.append(f"{row['run']:{width}}{error:>18}{balanced:>18}  {by}")
    return "\n".join(lines)


def _errors_text(trained: float, adjusted: float | None) -> str:
    """Return an error in percent or, where there is an adjusted one, from which to which it goes.

    >>> _errors_text(0.301, None), _errors_text(0.301, 0.223)
    ('30.1 %', '30.1 -> 22.3 %')
    """
    if adjusted is None:
        return f"{100 * trained:.1f} %"
    return f"{100 * trained:.1f} -> {100 * adjusted:.1f} %"
