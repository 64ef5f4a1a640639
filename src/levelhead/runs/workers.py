"""Tasks given to workers: this process, local processes, or a Ray cluster.

A worker that is lost takes nothing with it: its task is the next to be begun. So a task must be one that can be begun
again, as a run can, which goes on from its checkpoints and whose lock is free once its process is gone.

Workers that are local processes do not hear Ctrl-C, and end with the one that began them.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from .signals import deaf, follow
from ..core.errors import LevelheadError

Task = TypeVar("Task")
Where = Literal["here", "processes", "ray"]
Answer = tuple[float, str]  # the seconds a task took, and what was wrong with it, in one line
LONGEST = 2000  # characters of that line


@dataclass(frozen=True)
class Ended(Generic[Task]):
    """A task whose worker is done with it, or lost; if lost, the task waits to be begun again."""

    task: Task
    what: Literal["finished", "failed", "lost"]
    seconds: float = 0.0
    error: str = ""


def spread(
    tasks: Iterable[Task], do: Callable[[Task], Any], *, where: Where, workers: int | None = None, tries: int = 3,
    until: float | None = None, device: str | None = None,
) -> Generator[Ended[Task], None, None]:
    """Do every task, in order, as many at a time as there are workers; yield each as it ends.

    However this is left, no worker goes on: what it was at is told to stop.

    Args:
        tasks: what to do; a task that fails stops no other.
        do: does one. Other processes must be able to import it, and it must bear being begun again.
        where: `here` (this process, one at a time), `processes` (one for each task: a crash ends no other), or `ray`
            (the cluster this process is connected to, the one RAY_ADDRESS names, or one of its own).
        workers: how many at a time; None is one for each core or, on Ray, for each GPU or core of the cluster.
        tries: how often a task is begun before its worker's loss counts as failure.
        until: seconds after which nothing more is begun.
        device: on Ray, a task takes one GPU for `cuda`, none for `cpu`, and one where the cluster has any for None.

    >>> [(ended.task, ended.what, ended.error) for ended in spread(["4", "four"], int, where="here")]
    [('4', 'finished', ''), ('four', 'failed', "invalid literal for int() with base 10: 'four'")]
    """
    began = time.monotonic()
    place = _Here() if where == "here" else _Processes(workers) if where == "processes" else _Ray(workers, device)
    waiting, busy = deque((task, 1) for task in tasks), {}
    try:
        while True:
            while waiting and len(busy) < place.workers and (until is None or time.monotonic() - began <= until):
                task, attempt = waiting.popleft()
                busy[place.begin(do, task)] = task, attempt
            if not busy:
                return
            worker, answer = place.first(list(busy))
            task, attempt = busy.pop(worker)
            if answer is None and attempt < tries:
                waiting.appendleft((task, attempt + 1))
                yield Ended(task, "lost")
            else:
                seconds, error = answer or (0.0, f"its worker was lost {attempt} times")
                yield Ended(task, "failed" if error else "finished", seconds, error)
    finally:
        place.stop(list(busy))


def _attempt(do: Callable[[Any], Any], task: Any) -> Answer:
    """What a worker does."""
    began, error = time.monotonic(), ""
    try:
        do(task)
    except Exception as wrong:  # whatever it is, it ends this task alone
        kind = "" if isinstance(wrong, ValueError | OSError) else f"{type(wrong).__name__}: "
        error = shortened(" ".join(f"{kind}{wrong}".split())) or type(wrong).__name__
    return time.monotonic() - began, error


def shortened(line: str, longest: int = LONGEST) -> str:
    """The line or, if it is longer, its start and its end.

    >>> shortened("abcdefgh", 4)
    'ab ... (4 characters left out) ... gh'
    """
    if len(line) <= longest:
        return line
    half = longest // 2
    return f"{line[:half]} ... ({len(line) - 2 * half:,} characters left out) ... {line[-half:]}"


# A place has room for some workers, begins a task, says which of the busy workers is the first to be over, and with
# what answer; None is no answer: it was lost. And it stops them.


class _Here:
    workers = 1

    def begin(self, do, task) -> Callable[[], Answer]:
        return partial(_attempt, do, task)

    def first(self, busy: list[Callable[[], Answer]]) -> tuple[Any, Answer | None]:
        return busy[0], busy[0]()

    def stop(self, busy: list[Any]) -> None:
        """It is done with its task, or left it itself."""


class _Processes:
    def __init__(self, workers: int | None):
        self.workers = workers or multiprocessing.cpu_count()
        self.context = multiprocessing.get_context("spawn")

    def begin(self, do, task) -> tuple[Any, Any]:
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=_send, args=(theirs, do, task), daemon=True)
        with deaf():
            process.start()
        theirs.close()
        return process, ours

    def first(self, busy: list[tuple[Any, Any]]) -> tuple[Any, Answer | None]:
        over = wait([end for process, ours in busy for end in (process.sentinel, ours)])
        process, ours = next(worker for worker in busy if worker[0].sentinel in over or worker[1] in over)
        try:
            answer = ours.recv() if ours.poll() else None  # first: a worker cannot end before its answer is taken
        except (EOFError, OSError):  # it ended before it had said all
            answer = None
        process.join()
        return (process, ours), answer if process.exitcode == 0 else None

    def stop(self, busy: list[tuple[Any, Any]]) -> None:
        for process, _ in busy:
            process.terminate()
        for process, _ in busy:
            process.join(10)
            process.kill()


def _send(answer, do, task) -> None:
    follow()
    try:
        answer.send(_attempt(do, task))
    except SystemExit:  # told to stop, and everything left in order: torch would take seconds to clear away
        os._exit(1)


def _attempt_in(folder: Path, do, task) -> Answer:
    if folder.is_dir():  # where it is shared, a relative path means what it means here
        os.chdir(folder)
    return _attempt(do, task)


class _Ray:
    def __init__(self, workers: int | None, device: str | None):
        try:
            import ray
        except ImportError:
            raise ImportError("the executor ray needs Ray: pip install 'levelhead[ray]'") from None
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False)
        there = ray.cluster_resources()
        gpu = "GPU" in there if device is None else device.startswith("cuda")
        places = int(there.get("GPU" if gpu else "CPU", 0))
        if not places:
            raise LevelheadError(f"this Ray cluster has no {'GPU' if gpu else 'CPU'}; connect to one that has "
                             "(RAY_ADDRESS), or use --executor local")
        self.ray, self.workers = ray, workers or places
        self.task = ray.remote(max_retries=0, num_cpus=1, num_gpus=int(gpu))(_attempt_in)

    def begin(self, do, task) -> Any:
        return self.task.remote(Path.cwd(), do, task)

    def first(self, busy: list[Any]) -> tuple[Any, Answer | None]:
        over = self.ray.wait(busy, num_returns=1)[0][0]
        try:
            return over, self.ray.get(over)
        except self.ray.exceptions.RayTaskError as error:  # it could not so much as be begun there
            return over, (0.0, str(error).strip().splitlines()[-1])
        except self.ray.exceptions.RayError:
            time.sleep(0.5)  # the machine's end may still be on its way to the others
            return over, None

    def stop(self, busy: list[Any]) -> None:
        for task in busy:
            self.ray.cancel(task, force=True)
