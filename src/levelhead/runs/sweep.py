"""A list of specs, each trained once: in local processes, packed on the GPU, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .run import run, run_packed
from .run_folder import Run
from .session import check_finished
from .spec import Spec
from .workers import Where, run_tasks
from ..core.choices import Executor
from ..core.errors import LevelheadError

_WHERE: dict[Executor, Where] = {"local": "processes", "packed": "here", "ray": "ray"}
Report = Callable[[Spec, str], None]  # a spec, and what happened to it: finished, failed, lost


@dataclass(frozen=True)
class Outcome:
    """What became of a spec: its run, or why there is none."""

    spec: Spec
    run: Run
    error: str | None = None


def sweep(
    specs: Sequence[Spec], runs: str | Path = "runs", *, executor: Executor = "local", workers: int = 2,
    threads: int | None = None, tries: int = 3, report: Report | None = None, options: dict[str, Any] | None = None,
) -> list[Outcome]:
    """Train every spec that is not finished; one Outcome for each spec, in order.

    Specs that are one training (Baseline and Baseline+RS) are trained once. A spec that fails does not stop the others;
    of those that are packed, one that cannot even be begun does.

    Args:
        specs: what to train.
        runs: the folder of all runs; for a cluster, one that all of its machines share.
        executor: `local` (as many processes as workers), `packed` (the fast engine on one GPU, workers at a time), or
            `ray` (a Ray cluster: the one this process is connected to, the one RAY_ADDRESS names, or one of its own).
        workers: how many at a time.
        threads: of each local process; the cores shared out if None.
        tries: how often a spec is begun before its worker's loss counts as failure.
        report: called when a spec is finished, failed, or lost with its worker.
        options: further arguments of `run`, such as save_every.
    """
    if executor not in _WHERE:
        raise LevelheadError(f"expected the executor local, packed or ray, got {executor!r}")
    if workers < 1 or tries < 1:
        raise LevelheadError(f"expected at least one worker and one try, got {workers} and {tries}")
    options, folder = options or {}, Path(runs).absolute()
    places = [Run.of(spec, runs) for spec in specs]
    once, errors = _to_train(specs, places)
    groups = [[spec] for spec in once.values()]
    train = partial(_train, runs=folder, threads=None, options=options)
    if executor == "local":
        train = partial(train, threads=threads or max(1, multiprocessing.cpu_count() // workers))
    elif executor == "packed":
        groups, train = [list(once.values())], partial(run_packed, runs=folder, slots=workers, **options)
    trained = run_tasks(groups, train, where=_WHERE[executor], workers=workers, tries=tries, device=options.get("device"))
    with closing(trained):
        for ended in trained:
            for spec in ended.task:
                place, what = Run.of(spec, runs), ended.status
                if what == "failed" and place.finished:  # packed with the one that failed
                    what = "finished"
                if what == "failed":
                    errors[place.path] = ended.error
                if report is not None:
                    report(spec, what)
    return [Outcome(spec, place, errors.get(place.path)) for spec, place in zip(specs, places, strict=True)]


def _to_train(specs: Sequence[Spec], places: Sequence[Run]) -> tuple[dict[Path, Spec], dict[Path, str]]:
    """The specs that are not finished, one for each run; and what is wrong with runs that are."""
    first: dict[Path, Spec] = {}
    errors: dict[Path, str] = {}
    for spec, place in zip(specs, places, strict=True):
        other = first.setdefault(place.path, spec)
        if Path(other.data).absolute() != Path(spec.data).absolute():
            raise LevelheadError(f"{other.data} and {spec.data} would be one run, {place.path.name}: rename one of them")
    for path, spec in first.items():
        try:
            if Run(path).finished:
                check_finished(Run(path), spec)
        except (ValueError, OSError) as error:
            errors[path] = str(error)
    return {path: spec for path, spec in first.items() if not Run(path).finished}, errors


def _train(group: list[Spec], *, runs: Path, threads: int | None, options: dict[str, Any]) -> None:
    """One run after the other."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    for spec in group:
        run(spec, runs, **options)
