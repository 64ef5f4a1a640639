"""A list of specs, each trained once: in local processes, packed on the GPU, or on a Ray cluster.

A worker that is lost takes nothing with it: its run's lock is free again, its checkpoints are there, and its spec is
taken up by another worker.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

from .run import Run, Spec, run, run_packed

Executor = Literal["local", "packed", "ray"]
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

    Specs that are one training (Baseline and Baseline+RS) are trained once. A spec that fails does not stop the others.

    Args:
        specs: what to train.
        runs: the folder of all runs; for a cluster, one that all of its machines share.
        executor: `local` (as many processes as workers), `packed` (the fast engine on one GPU, workers at a time), or
            `ray` (a Ray cluster: the one this process is connected to, or one of its own).
        workers: how many at a time.
        threads: of each local process; the cores shared out if None.
        tries: how often a spec is begun before its worker's loss counts as failure.
        report: called when a spec is finished, failed, or lost with its worker.
        options: further arguments of `run`, such as save_every.
    """
    if executor not in ("local", "packed", "ray"):
        raise ValueError(f"expected the executor local, packed or ray, got {executor!r}")
    if workers < 1 or tries < 1:
        raise ValueError(f"expected at least one worker and one try, got {workers} and {tries}")
    places = [Run.of(spec, runs) for spec in specs]
    once: dict[Path, Spec] = {}
    for spec, place in zip(specs, places, strict=True):
        if not place.finished:
            once.setdefault(place.path, spec)
    failures = _EXECUTORS[executor](list(once.values()), runs, workers, threads, tries, report, options or {})
    return [Outcome(spec, place, failures.get(place.path)) for spec, place in zip(specs, places, strict=True)]


def _local(specs, runs, workers, threads, tries, report, options) -> dict[Path, str]:
    """A process for each spec: a crash, of torch or by hand, ends one of them and no other."""
    context, failures = multiprocessing.get_context("spawn"), {}
    threads = threads or max(1, multiprocessing.cpu_count() // workers)
    waiting, busy = deque((spec, 1) for spec in specs), {}
    while waiting or busy:
        while waiting and len(busy) < workers:
            spec, attempt = waiting.popleft()
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(theirs, spec, runs, threads, options), daemon=True)
            process.start()
            theirs.close()
            busy[process.sentinel] = (process, ours, spec, attempt)
        for sentinel in wait(list(busy)):
            process, ours, spec, attempt = busy.pop(sentinel)
            process.join()
            answer = ours.recv() if ours.poll() and process.exitcode == 0 else None
            _settle(spec, runs, answer, attempt, tries, waiting, failures, report)
    return failures


def _work(answer, spec: Spec, runs, threads: int, options: dict[str, Any]) -> None:
    import torch

    torch.set_num_threads(threads)
    answer.send(_attempt(spec, runs, options))


def _attempt(spec: Spec, runs, options: dict[str, Any]) -> str:
    """"" when the run is finished, else what was wrong with it, in one line."""
    try:
        run(spec, runs, **options)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


def _settle(spec, runs, answer: str | None, attempt, tries, waiting, failures, report) -> None:
    """Book a worker's end; None is no answer: it was lost, and its spec waits again."""
    if answer is None and attempt < tries:
        waiting.append((spec, attempt + 1))
    elif answer != "":
        failures[Run.of(spec, runs).path] = answer or f"its worker was lost {attempt} times"
    if report is not None:
        report(spec, "finished" if answer == "" else "lost" if answer is None else "failed")


def _packed(specs, runs, workers, threads, tries, report, options) -> dict[Path, str]:
    run_packed(specs, runs, slots=workers, **options)
    if report is not None:
        for spec in specs:
            report(spec, "finished")
    return {}


def _ray(specs, runs, workers, threads, tries, report, options) -> dict[Path, str]:
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError:
        raise ImportError("the executor ray needs Ray: pip install 'levelhead[ray]'") from None
    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    task = ray.remote(max_retries=0, num_cpus=1)(_attempt)
    place, failures = str(Path(runs).absolute()), {}
    waiting, busy = deque((spec, 1) for spec in specs), {}
    while waiting or busy:
        while waiting and len(busy) < workers:
            spec, attempt = waiting.popleft()
            busy[task.remote(spec, place, options)] = (spec, attempt)
        done, _ = ray.wait(list(busy), num_returns=1)
        spec, attempt = busy.pop(done[0])
        try:
            answer = ray.get(done[0])
        except RayError:
            answer = None
            time.sleep(0.5)  # the machine's end may still be on its way to the others
        _settle(spec, runs, answer, attempt, tries, waiting, failures, report)
    return failures


_EXECUTORS = {"local": _local, "packed": _packed, "ray": _ray}
