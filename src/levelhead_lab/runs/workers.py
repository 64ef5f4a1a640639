"""Tasks given to workers: this process, local processes, or a Ray cluster.

If a worker is lost, its task is the next to be started, so it must be possible to start a task twice. It is for a run,
which resumes from its checkpoints, and whose lock is free once its process is gone.

Workers that are local processes ignore Ctrl-C and end with the process that started them.

`run_tasks` holds the queue and decides what is started again; where a task is done is a `_Pool`, of
which there are three. It knows nothing of trainings: the reproduction of the paper and sweeps both
hand it what they please.
"""

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from levelhead.support.errors import LevelheadError, message_of
from levelhead.support.extras import install_command

from .signals import exit_with_parent, interrupts_blocked

Task = TypeVar("Task")
Worker = TypeVar("Worker")
Where = Literal["here", "processes", "ray"]
Answer: TypeAlias = tuple[float, str]  # the seconds a task took, and its error in one line
Do: TypeAlias = Callable[[Any], object]  # of whatever type the tasks are
RayObject: TypeAlias = Any  # Ray's types know neither its exceptions nor what `remote` adds


@dataclass(frozen=True)
class TaskEnd(Generic[Task]):
    """A task that its worker has finished or failed, or that was lost with its worker and will be started again."""

    task: Task
    status: Literal["finished", "failed", "lost"]
    seconds: float = 0.0  # that it took; 0 if its worker was lost
    error: str = ""  # in one line, if it failed


class _Pool(Protocol[Worker]):
    """Where tasks are done. A worker is whatever the pool knows it by."""

    @property
    def workers(self) -> int:
        """How many tasks can be at work at a time."""
        ...

    def start(self, do: Do, task: object) -> Worker:
        """Start a task and return its worker, at once."""
        ...

    def first_to_end(self, busy: Sequence[Worker]) -> tuple[Worker, Answer | None]:
        """Wait for the first of these workers to end; return it with its answer, or None if it was lost."""
        ...

    def stop(self, busy: Sequence[Worker]) -> None:
        """End the workers that are still busy, and those that are idle."""
        ...


def run_tasks(
    tasks: Iterable[Task],
    do: Callable[[Task], object],
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

    Yields:
        A TaskEnd for each task that finished or failed, and for each time that its worker was lost and
        it is started again. Close the generator to end the workers, as `contextlib.closing` does.

    Raises:
        ImportError: if Ray is asked for and not installed.
        LevelheadError: if the cluster has no such device.

    Example:
        >>> ends = run_tasks(["2 + 2", "2 / 0"], eval, where="here")
        >>> [(end.task, end.status, end.error) for end in ends]
        [('2 + 2', 'finished', ''), ('2 / 0', 'failed', 'ZeroDivisionError: division by zero')]
    """
    began = time.monotonic()
    pool: _Pool[Any] = _pool(where, workers, device)

    def in_time() -> bool:
        """Say whether a task may still be started."""
        return until is None or time.monotonic() - began <= until

    waiting = deque((task, 1) for task in tasks)  # with the number of its attempt
    busy = {}  # by worker, the same
    try:
        while True:
            # Every worker that is free gets a task.
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
            if answer is None:  # a task that ends every worker must not go on for ever
                answer = (0.0, f"its worker was lost {attempt} times")
            seconds, error = answer
            yield TaskEnd(task, "failed" if error else "finished", seconds, error)
    finally:
        pool.stop(list(busy))


def _pool(where: Where, workers: int | None, device: str | None) -> _Pool[Any]:
    """Return the pool of a place; of what a worker is, each has its own idea.

    Args:
        where: in this process, in local processes, or on a Ray cluster.
        workers: at a time; as many as there are cores or devices if None.
        device: what a worker of Ray needs.
    """
    if where == "here":
        return _ThisProcess()
    if where == "processes":
        return _Processes(workers)
    return _Ray(workers, device)


def _do_task(do: Do, task: object, folder: Path | None = None) -> Answer:
    """Do a task in a worker; return the seconds it took, and its error in one line, empty if there is none.

    An exception does not travel as such: between processes it would have to be picklable, and Ray
    would wrap it in a traceback of its own.

    Args:
        do: what to do.
        task: what to do it with.
        folder: to work in, if this machine has it: for a worker on another one.
    """
    # On a shared disk, a relative path means the same as here.
    if folder is not None and folder.is_dir():
        os.chdir(folder)
    began = time.monotonic()
    error = ""
    try:
        do(task)
    except Exception as wrong:  # whatever it is, it ends this task alone
        # Our own errors and those of the system are sentences; others need their kind to be read.
        error = message_of(wrong)
        kind = type(wrong).__name__
        if not isinstance(wrong, ValueError | OSError) and error != kind:
            error = f"{kind}: {error}"
        # Of a message as long as a program, what happened is at either end.
        if len(error) > 2000:
            error = f"{error[:1000]} ... ({len(error) - 2000:,} characters left out) ... {error[-1000:]}"
    return time.monotonic() - began, error


class _ThisProcess:
    """This process, which does a task when it is asked whether one has ended."""

    workers = 1

    def start(self, do: Do, task: object) -> Callable[[], Answer]:
        """Return what will do the task: nothing else is at work here meanwhile."""
        return partial(_do_task, do, task)

    def first_to_end(
        self, busy: Sequence[Callable[[], Answer]]
    ) -> tuple[Callable[[], Answer], Answer]:
        """Do the only task there is, and return its answer."""
        return busy[0], busy[0]()

    def stop(self, busy: Sequence[Callable[[], Answer]]) -> None:
        """Do nothing: the task has ended, or raised."""


class _LocalWorker(NamedTuple):
    """A process of this machine."""

    process: SpawnProcess
    line: Connection  # our end of the pipe: tasks go out, answers come in


class _Processes:
    """Processes that are started when they are needed and take task after task, as torch takes seconds to import."""

    def __init__(self, workers: int | None):
        self.workers = workers or multiprocessing.cpu_count()
        # A fork would take over the threads' locks and the CUDA context of torch, and hang on them.
        self.context = multiprocessing.get_context("spawn")
        self.idle: list[_LocalWorker] = []

    def start(self, do: Do, task: object) -> _LocalWorker:
        """Hand a task to an idle process, or to a new one."""
        worker = self._idle_or_new()
        # If it was lost just now, `first_to_end` will see it.
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.line.send((do, task))
        return worker

    def _idle_or_new(self) -> _LocalWorker:
        """Return an idle worker that is alive, or a new one."""
        while self.idle:
            worker = self.idle.pop()
            if worker.process.is_alive():
                return worker
        line, theirs = self.context.Pipe()
        process = self.context.Process(target=_answer_tasks, args=(theirs,), daemon=True)
        with interrupts_blocked():
            process.start()
        # While we hold it too, the pipe would not close when the worker is gone.
        theirs.close()
        return _LocalWorker(process, line)

    def first_to_end(self, busy: Sequence[_LocalWorker]) -> tuple[_LocalWorker, Answer | None]:
        """Wait for an answer, or for the end of a process, and keep the process if its task went well."""
        # Either its answer comes, or the process is gone.
        ends = []
        for worker in busy:
            ends += [worker.process.sentinel, worker.line]
        ended = wait(ends)
        first = next(
            worker for worker in busy if worker.process.sentinel in ended or worker.line in ended
        )
        # A process that is gone may have answered before.
        answer = None
        with suppress(EOFError, OSError):  # it exited in the middle of its answer
            if first.line.poll():
                answer = first.line.recv()
        if answer is None or answer[1]:  # what failed may leave a process in any state
            _end([first.process])
        else:
            self.idle.append(first)
        return first, answer

    def stop(self, busy: Sequence[_LocalWorker]) -> None:
        """End all processes, also those that wait for a task."""
        _end([worker.process for worker in (*busy, *self.idle)])


def _end(processes: Sequence[SpawnProcess]) -> None:
    """End processes: all are told to, and those that have not ended ten seconds later are killed.

    To be told is SIGTERM, on which a worker leaves its task as on an error, and so removes its
    temporary files. One that hangs in a kernel of torch does not hear it.
    """
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(10)
        process.kill()


def _answer_tasks(line: Connection) -> None:
    """Take task after task from the other end of a pipe; what a local process runs.

    It ends by SIGTERM, which raises SystemExit even in the middle of a task, or when the pipe closes.
    """
    exit_with_parent()
    try:
        while True:
            line.send(_do_task(*line.recv()))
    except (SystemExit, EOFError):
        # Told to stop, and cleaned up: leave at once, as torch takes seconds to shut down.
        os._exit(1)


class _Ray:
    """The workers of a Ray cluster, one GPU each or, where there is none or it is not wanted, one core.

    A worker is Ray's reference to the result to come. Ray would start a lost task again by itself;
    that is turned off (`max_retries=0`), as `run_tasks` does it, and counts it.
    """

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
        resource = "CPU"
        if gpu:
            resource = "GPU"
        available = int(resources.get(resource, 0))
        if not available:
            raise LevelheadError(
                f"this Ray cluster has no {resource}; connect to one that has "
                "(RAY_ADDRESS), or use the executor local"
            )
        self.ray: RayObject = ray
        self.workers = workers or available
        self.task: RayObject = ray.remote(max_retries=0, num_cpus=1, num_gpus=int(gpu))(_do_task)

    def start(self, do: Do, task: object) -> RayObject:
        """Hand a task to the cluster, and return the reference to its answer."""
        return self.task.remote(do, task, Path.cwd())

    def first_to_end(self, busy: Sequence[RayObject]) -> tuple[RayObject, Answer | None]:
        """Wait for a result of the cluster; an error of Ray's own means that the machine is gone."""
        worker = self.ray.wait(busy, num_returns=1)[0][0]
        try:
            return worker, self.ray.get(worker)
        except self.ray.exceptions.RayTaskError as error:  # it could not even be started there
            return worker, (0.0, str(error).strip().splitlines()[-1])
        except self.ray.exceptions.RayError:
            time.sleep(0.5)  # the news that a machine is gone may take a moment to reach the others
            return worker, None

    def stop(self, busy: Sequence[RayObject]) -> None:
        """Cancel what is under way; the cluster itself is the user's, and goes on."""
        for task in busy:
            self.ray.cancel(task, force=True)
