"""The trainings of a table, done: in groups that share a device, with a record of each network as soon as it is there.

The road: `train_missing` leaves out what has a record, `group_trainings` packs the rest into groups that fill a device,
`run_tasks` hands these to this process or to a Ray cluster, where `_train_group` trains one. While the next group
trains, `_record_makers` turn finished runs into records (`keep_record` -> `record.make_record`), on the cores that are
left: a record takes seconds, most of them for the exact paths and the oracle head.

Everything can be interrupted at any time. What is trained is in its run's folder, what is recorded in the folder of
results, and the same command goes on from there.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, cast

from levelhead.support import atomic
from levelhead.support.threads import usable_cores
from levelhead.support.warnings import quiet

from ..lab.load import TINY
from ..lab.progress import EpochProgress
from ..runs.packed import OnRunRecord, check_device, run_packed
from ..runs.run_folder import EpochRecord, Run
from ..runs.signals import exit_with_parent, interrupts_blocked
from ..runs.workers import TaskEnd, Where, run_tasks
from .record import make_record
from .record_fields import LogRow, RunFacts
from .trainings import Training

TableExecutor = Literal["local", "ray"]
# What libraries of linear algebra read to know how many threads to start.
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def missing(wanted: Sequence[Training], results: str | Path) -> list[Training]:
    """Return the trainings that have no record in a folder, in their order.

    A record is known by the name of its file alone, which has a hash of everything that decides its numbers: what is in
    it is read, and checked, where it is used.
    """
    return [training for training in wanted if not Path(results, f"{training.name}.json").is_file()]


def train_missing(
    wanted: Sequence[Training],
    results: str | Path,
    runs: str | Path = "runs",
    *,
    slots: int = 16,
    executor: TableExecutor = "local",
    device: str = "cuda",
    until: float | None = None,
    say: Callable[[str], None] = print,
    report: EpochProgress | None = None,
) -> int:
    """Train those without a record, the most valuable first.

    A group that fails stops no other: its error is said, and its networks stay without a record.

    Args:
        wanted: in the order in which they are worth having.
        results: the folder of the records.
        runs: the folder of the runs, where an interrupted training goes on.
        slots: networks that share a device.
        executor: this machine, or every GPU of a Ray cluster.
        device: to train on; `cpu` serves tests.
        until: seconds after which no group is started; None for no such limit.
        say: called with lines for people.
        report: called after every epoch of a network; only for trainings on this machine.

    Returns:
        How many records were written.

    Raises:
        LevelheadError: before anything is trained, if data or device are not there.
    """
    began = time.monotonic()
    results = Path(results)
    todo = missing(wanted, results)
    train = partial(_train_group, runs=Path(runs).absolute(), slots=slots, device=device)
    where: Where = "ray"
    if executor == "local":
        where = "here"
        _check_data_and_device(todo, device)
        # Neither could be sent to another machine.
        train = partial(train, say=say, report=report)
    results.mkdir(parents=True, exist_ok=True)
    groups = group_trainings(todo, slots)
    trained = run_tasks(groups, train, where=where, until=until, device=device)
    all_images = sum(training.images for training in todo)
    images = 0  # that the groups so far went through
    records: list[Future[None]] = []  # being made on other cores while the next group trains
    with closing(trained), _record_makers(max(1, usable_cores() - 2)) as makers:
        for ended in trained:
            group = ended.task
            columns = ", ".join(dict.fromkeys(training.column for training in group))
            if ended.status == "lost":
                say(
                    f"{columns}: a worker was lost; its unfinished runs, of {len(group)}, will be started again"
                )
                continue
            records += _submit_records(makers, ended, runs, results)
            # Time is proportional to images: what is left takes as long for each as what is done.
            images += sum(training.images for training in group)
            seconds_left = (all_images - images) / images * (time.monotonic() - began)
            failure = ""
            if ended.error:
                failure = f"; {ended.error}"
            say(
                f"{columns}: {len(group)} runs in {ended.seconds:.0f} s; {len(todo) - len(records)} left, about "
                f"{seconds_left:.0f} s{failure}"
            )
        for record in records:
            record.result()  # raises what went wrong in a maker
    if len(records) < len(todo):
        say(
            f"stopped after {time.monotonic() - began:.0f} s with {len(todo) - len(records)} to go; run the same "
            "command again to resume"
        )
    return len(records)


def _check_data_and_device(todo: Sequence[Training], device: str) -> None:
    """Raise LevelheadError if data or the device are missing: now, and not after hours of other trainings.

    Of each data set one spec is loaded, which also checks the md5 of its files.
    """
    for spec in {training.spec.data: training.spec for training in todo}.values():
        spec.load()
    if todo:
        check_device(device)


def _submit_records(
    makers: ProcessPoolExecutor,
    ended: TaskEnd[list[Training]],
    runs: str | Path,
    results: Path,
) -> list[Future[None]]:
    """Let records be made of those networks of a group that are trained; a group that failed may have some.

    The group's time is shared out by images, since its networks were trained at the same time.
    """
    group = ended.task
    images = sum(training.images for training in group)
    records = []
    # The pool starts its processes at the first tasks, and these inherit that Ctrl-C is blocked: it is for us alone.
    with interrupts_blocked():
        for training in group:
            run = Run.of(training.spec, runs)
            if run.finished:
                seconds = ended.seconds * training.images / images
                records.append(makers.submit(keep_record, training, run, seconds, results))
    return records


@contextmanager
def _record_makers(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes of one thread each, which make records; on Ctrl-C they begin no new one.

    With as many threads as there are cores in each process, they would slow down each other and the training.
    """
    before = {name: os.environ.get(name) for name in _THREAD_SETTINGS}
    # Each process reads them when it starts, at its first task.
    os.environ |= dict.fromkeys(_THREAD_SETTINGS, "1")
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=exit_with_parent
    ) as makers:
        try:
            yield makers
        except KeyboardInterrupt:
            makers.shutdown(cancel_futures=True)
            raise
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value


def _train_group(
    group: list[Training],
    *,
    runs: Path,
    slots: int,
    device: str,
    say: Callable[[str], None] = print,
    report: EpochProgress | None = None,
) -> None:
    """Train a group on one device. A function of a module, since Ray sends it to other machines.

    Features are kept in half precision, and errors are measured from the first fall of the learning rate on: no table
    needs more.
    """
    run_packed(
        [training.spec for training in group],
        runs,
        slots=slots,
        report=_titled(report, group),
        say=say,
        device=device,
        half=True,
        evaluate_early=False,
    )


def _titled(report: EpochProgress | None, group: Sequence[Training]) -> OnRunRecord | None:
    """Return what tells a bar of epochs of each network of a group, under the title of its column.

    Args:
        report: the bar; None if none is drawn, and then nothing is returned.
        group: by whose positions `run_packed` tells of epochs.
    """
    if report is None:
        return None

    def on_epoch(position: int, record: EpochRecord) -> None:
        report({"title": group[position].column, **record})

    return on_epoch


def keep_record(training: Training, run: Run, seconds: float, results: Path) -> None:
    """Make the record of a finished run, and write it under the name of the training.

    Args:
        training: what was trained.
        run: its folder.
        seconds: its share of the time of its group.
        results: the folder of the records.
    """
    run_facts = run.facts  # read from the run's folder, once
    facts: RunFacts = {
        "name": training.name,
        "command": training.command,
        "column": training.column,
        "method": training.spec.method,
        "hold_out": training.spec.hold_out,
        "seconds": round(seconds, 1),
        "identity": run_facts["identity"],
        "seed": run_facts["seed"],
        "versions": run_facts["versions"],
        "device": run_facts["device"],
        "counts": run_facts["counts"],
        "data_sha256": run_facts.get("split_sha256"),
    }
    top = None
    if training.spec.data in TINY:  # Table 2 has top-5 errors
        top = 5
    with quiet():  # the record itself says what the warnings would
        record = make_record(run.snapshot, cast(list[LogRow], run.log), facts, top=top)
    write_record(results / f"{training.name}.json", record)


def write_record(path: Path, content: Mapping[str, object]) -> None:
    """Write a record, a line for each of its keys, so that two of them can be compared line by line.

    The file is there whole or not at all: a record that was cut off would count as trained.

    Args:
        path: in the folder of the records; `missing` knows a network by the name of the file.
        content: what `record.make_record` returned.
    """
    rows = []
    for key, value in content.items():
        rows.append(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}")
    atomic.write(path, "{\n" + ",\n".join(rows) + "\n}\n")


def group_trainings(wanted: Sequence[Training], slots: int) -> list[list[Training]]:
    """Return groups of at most so many trainings, each to be trained at the same time on one device.

    Trainings of one column share their data, so that they go together; columns that do not fill a device share one.
    The groups come in the order of their first trainings in `wanted`.

    >>> from levelhead_lab.paper.trainings import trainings
    >>> wanted = trainings("table1", seeds=1, only=["cifar10:100:wvn", "cifar10:50:focal"])
    >>> [[training.column for training in group] for group in group_trainings(wanted, slots=2)]
    [['cifar10:100', 'cifar10:100'], ['cifar10:50']]
    >>> len(group_trainings(wanted, slots=16))
    1
    """
    columns: dict[str, list[Training]] = {}
    for training in wanted:
        columns.setdefault(training.column, []).append(training)
    # A column that fills several devices is cut into chunks.
    chunks = []
    for of_column in columns.values():
        for start in range(0, len(of_column), slots):
            chunks.append(of_column[start : start + slots])
    # Chunks in the order of what they begin with; a chunk joins the group before it if both fit on a device.
    order = {training.name: i for i, training in enumerate(wanted)}
    groups: list[list[Training]] = []
    for chunk in sorted(chunks, key=lambda chunk: order[chunk[0].name]):
        if groups and len(groups[-1]) + len(chunk) <= slots:
            groups[-1] += chunk
        else:
            groups.append(chunk)
    return groups
