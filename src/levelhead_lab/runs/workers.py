"""Tasks given to workers: this process, local processes, or a Ray cluster.

If a worker is lost, its task is the next to be started, so it must be possible to start a task twice. It is for a run,
which resumes from its checkpoints, and whose lock is free once its process is gone.

Workers that are local processes ignore Ctrl-C and end with the process that started them.
"""

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from levelhead.support.errors import LevelheadError
from levelhead.support.extras import install_command

from .signals import exit_with_parent, interrupts_blocked

Task = TypeVar("Task")
Where = Literal["here", "processes", "ray"]
Answer = tuple[float, str]  # the seconds a task took, and its error in one line


@dataclass(frozen=True)
class TaskEnd(Generic[Task]):
    """A task that its worker has finished or failed, or that was lost with its worker and will be started again."""

    task: Task
    status: Literal["finished", "failed", "lost"]
    seconds: float = 0.0
    error: str = ""


def run_tasks(
    tasks: Iterable[Task],
    do: Callable[[Task], Any],
    *,
    where: Where,
    workers: int | None = None,
    tries: int = 3,
    until: float | None = None,
    device: str | None = None,
) -> Generator[TaskEnd[Task], None, None]:
    """Do every task, as many at a time as there are workers; yield each as it ends. One failure stops no other.

    Args:
        tasks: in the order in which they are started.
        do: what to do with a task; for `processes` and `ray` both must be picklable.
        where: in this process, in local processes, or on a Ray cluster.
        workers: tasks at a time; as many as there are cores or devices if None. This process does one.
        tries: how often a task is started whose worker is lost.
        until: seconds after which no task is started.
        device: what a worker needs, for Ray: `cuda` or `cpu`; None for a GPU where the cluster has any.
    """
    began = time.monotonic()
    if where == "here":
        pool = _ThisProcess()
    elif where == "processes":
        pool = _Processes(workers)
    else:
        pool = _Ray(workers, device)

    def in_time() -> bool:
        return until is None or time.monotonic() - began <= until

    waiting = deque((task, 1) for task in tasks)  # with the number of its attempt
    busy = {}  # by worker
    try:
        while True:
            while waiting and len(busy) < pool.workers and in_time():
                task, attempt = waiting.popleft()
                busy[pool.start(do, task)] = task, attempt
            if not busy:
                return
            worker, answer = pool.first_to_end(list(busy))
            task, attempt = busy.pop(worker)
            if answer is None and attempt < tries:
                # First in line: what it has done so far is on disk, and it resumes from there.
                waiting.appendleft((task, attempt + 1))
                yield TaskEnd(task, "lost")
                continue
            if answer is None:
                answer = (0.0, f"its worker was lost {attempt} times")
            seconds, error = answer
            yield TaskEnd(task, "failed" if error else "finished", seconds, error)
    finally:
        pool.stop(list(busy))


def _do_task(do: Callable[[Any], Any], task: Any, folder: Path | None = None) -> Answer:
    """Do a task in a worker; return the seconds it took, and its error in one line, empty if there is none."""
    # On a shared disk, a relative path means the same as here.
    if folder is not None and folder.is_dir():
        os.chdir(folder)
    began = time.monotonic()
    error = ""
    try:
        do(task)
    except Exception as wrong:  # whatever it is, it ends this task alone
        kind = ""
        if not isinstance(wrong, ValueError | OSError):
            kind = f"{type(wrong).__name__}: "
        error = " ".join(f"{kind}{wrong}".split()) or type(wrong).__name__
        if len(error) > 2000:
            error = f"{error[:1000]} ... ({len(error) - 2000:,} characters left out) ... {error[-1000:]}"
    return time.monotonic() - began, error


# A pool has a number of workers. It starts a task and returns its worker; of the busy workers, it returns the first to
# end with its answer, which is None if the worker was lost; and it stops the workers that are still busy.


class _ThisProcess:
    workers = 1

    def start(self, do, task) -> Callable[[], Answer]:
        return partial(_do_task, do, task)

    def first_to_end(self, busy: list[Callable[[], Answer]]) -> tuple[Any, Answer | None]:
        return busy[0], busy[0]()

    def stop(self, busy: list[Any]) -> None:
        """Do nothing: the task has ended, or raised."""


class _Processes:
    """Processes that are started when they are needed and take task after task, as torch takes seconds to import."""

    def __init__(self, workers: int | None):
        self.workers = workers or multiprocessing.cpu_count()
        self.context = multiprocessing.get_context("spawn")
        self.idle: list[tuple[Any, Any]] = []

    def start(self, do, task) -> tuple[Any, Any]:
        while self.idle:
            process, line = self.idle.pop()
            if process.is_alive():
                break
        else:
            line, theirs = self.context.Pipe()
            process = self.context.Process(target=_answer_tasks, args=(theirs,), daemon=True)
            with interrupts_blocked():
                process.start()
            theirs.close()
        # It was lost just now, as `first_to_end` will see.
        with suppress(BrokenPipeError, ConnectionResetError):
            line.send((do, task))
        return process, line

    def first_to_end(self, busy: list[tuple[Any, Any]]) -> tuple[Any, Answer | None]:
        # Either its answer comes, or the process is gone.
        ends = []
        for process, line in busy:
            ends += [process.sentinel, line]
        ended = wait(ends)
        process, line = next(
            worker for worker in busy if worker[0].sentinel in ended or worker[1] in ended
        )
        answer = None
        with suppress(EOFError, OSError):  # it exited in the middle of its answer
            if line.poll():
                answer = line.recv()
        if answer is None or answer[1]:  # what failed may leave a process in any state
            _end([process])
        else:
            self.idle.append((process, line))
        return (process, line), answer

    def stop(self, busy: list[tuple[Any, Any]]) -> None:
        _end([process for process, _ in busy + self.idle])


def _end(processes: list[Any]) -> None:
    """End processes: all are told to, and those that have not ended ten seconds later are killed."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(10)
        process.kill()


def _answer_tasks(line: Any) -> None:
    """Take task after task from the other end of a pipe; what a local process runs."""
    exit_with_parent()
    try:
        while True:
            line.send(_do_task(*line.recv()))
    except (SystemExit, EOFError):
        # Told to stop, and cleaned up: leave at once, as torch takes seconds to shut down.
        os._exit(1)


class _Ray:
    def __init__(self, workers: int | None, device: str | None):
        try:
            import ray
        except ImportError:
            raise ImportError(f"the executor ray needs Ray: {install_command('ray')}") from None
        if not ray.is_initialized():
            ray.init(include_dashboard=False, log_to_driver=False)
        resources = ray.cluster_resources()
        if device is None:
            gpu = "GPU" in resources
        else:
            gpu = device.startswith("cuda")
        available = int(resources.get("GPU" if gpu else "CPU", 0))
        if not available:
            raise LevelheadError(
                f"this Ray cluster has no {'GPU' if gpu else 'CPU'}; connect to one that has "
                "(RAY_ADDRESS), or use the executor local"
            )
        self.ray: Any = ray  # its types do not know of its exceptions
        self.workers = workers or available
        self.task: Any = ray.remote(max_retries=0, num_cpus=1, num_gpus=int(gpu))(_do_task)

    def start(self, do, task) -> Any:
        return self.task.remote(do, task, Path.cwd())

    def first_to_end(self, busy: list[Any]) -> tuple[Any, Answer | None]:
        worker = self.ray.wait(busy, num_returns=1)[0][0]
        try:
            return worker, self.ray.get(worker)
        except self.ray.exceptions.RayTaskError as error:  # it could not even be started there
            return worker, (0.0, str(error).strip().splitlines()[-1])
        except self.ray.exceptions.RayError:
            time.sleep(0.5)  # the news that a machine is gone may take a moment to reach the others
            return worker, None

    def stop(self, busy: list[Any]) -> None:
        for task in busy:
            self.ray.cancel(task, force=True)
