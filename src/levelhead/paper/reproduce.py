"""Train what the tables lack, and nothing else: a record for every training, written as soon as it is over."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, cast, get_args

from ..core import atomic
from ..core.choices import PaperTable
from ..core.errors import LevelheadError
from ..core.warnings import LevelheadWarning
from ..runs.progress import Report, bar
from ..runs.run import Run, check_device, run_packed
from ..runs.signals import deaf, follow, stoppable
from ..runs.workers import spread
from .markdown import has_place
from .record import make_record, shipped_snapshots
from .trainings import TABLES, Training, trainings

TableExecutor = Literal["local", "ray"]
SECONDS_PER_IMAGE = {"resnet32": 7.0e-6, "resnet18-64": 57e-6}  # on one H200, by `seconds` of the records


def reproduce_table(
    table: str, root: Path | None, only: Sequence[str], *, seeds: int, results: Path, runs: Path, slots: int,
    minutes: float | None, executor: str, dry_run: bool, unofficial: bool, say: Callable[[str], None],
    show: bool = False,
) -> tuple[dict[str, Any], str]:
    """What `levelhead reproduce` does: say what is missing and, unless it is a dry run, train it."""
    if table not in TABLES:
        raise LevelheadError(f"unknown table {table!r}; the tables are {', '.join(TABLES)}, and figures")
    if executor not in get_args(TableExecutor):
        raise LevelheadError(f"expected the executor {' or '.join(get_args(TableExecutor))}, got {executor!r}")
    if seeds < 1:
        raise LevelheadError(f"expected at least one seed, got {seeds}")
    if slots < 1:
        raise LevelheadError(f"expected at least one run on the GPU, got --slots {slots}")
    if root is not None and not dry_run and not root.is_dir():
        raise LevelheadError(f"{root}: no such folder; say with --root where the data sets are")
    wanted = trainings(cast(PaperTable, table), root=root and str(root), seeds=seeds, only=only, unofficial=unofficial)
    before = missing(wanted, results)
    minutes_of = {training.name: round(expected_seconds([training]) / 60, 1) for training in before}
    if not dry_run and before:
        if root is None:
            raise LevelheadError(f"to train what {table} lacks, {len(before)} networks, say with --root where the data "
                             "sets are")

        def standing() -> str:
            return f"{len(wanted) - len(missing(wanted, results))} of {len(wanted)} networks have a record"

        with stoppable(standing, say), bar(show=show) as report:
            train_missing(before, results, runs, slots=slots, executor=cast(TableExecutor, executor),
                      until=None if minutes is None else 60 * minutes, say=say, report=report)
    left = missing(wanted, results)
    if left and not dry_run and minutes is None:
        raise LevelheadError(f"{len(left)} of {len(before)} networks were not trained, for the reasons above; the same "
                         "command goes on with them")
    found = {"table": table, "trainings": len(wanted), "missing": [training.name for training in left],
             "minutes": round(expected_seconds(left) / 60, 1)}
    lines = [f"{training.name:48}{minutes_of[training.name]:>7.1f} min" for training in left]
    rest = f"the others take about {found['minutes']:g} minutes on one H200" if left else "nothing to train"
    return found, "\n".join([*lines, f"{table}: {len(wanted) - len(left)} of {len(wanted)} networks have a record; "
                             f"{rest}"])


def draw_figures(
    results: Path, page: Path, pictures: Path, *, say: Callable[[str], None]
) -> tuple[dict[str, Any], str]:
    """What `levelhead reproduce figures` does: every table and figure that the records can make."""
    from . import figures
    from . import page as reproduction

    if not any(results.glob("*.json")):
        raise LevelheadError(f"{results}: expected records, got no .json; say with --results where they are")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelheadWarning)
        if page.is_file():
            readme = page.parent.parent / "README.md"  # of this project; another's has no such place
            written = reproduction.write(results.parent, page, pictures, shipped_snapshots(), say=say,
                                         readme=readme if has_place(readme, "reproduction") else None)
        else:
            written = figures.write(results.parent, pictures, shipped_snapshots(), say=say)
    found = {"pictures": [str(path) for path in written], "page": str(page) if page.is_file() else None}
    filled = f"; {page} is filled" if page.is_file() else ""
    return found, f"{len(written)} pictures in {pictures}{filled}"


def missing(wanted: Sequence[Training], results: str | Path) -> list[Training]:
    """Those that have no record yet."""
    return [training for training in wanted if not training.has_record(Path(results))]


def expected_seconds(wanted: Sequence[Training]) -> float:
    """Expected seconds on one H200."""
    return sum(training.images * SECONDS_PER_IMAGE[training.spec.resolve_net()] for training in wanted)


def train_missing(
    wanted: Sequence[Training], results: str | Path, runs: str | Path = "runs", *, slots: int = 16,
    executor: TableExecutor = "local", device: str = "cuda", until: float | None = None, say: Callable[[str], None] = print,
    report: Report | None = None,
) -> int:
    """Train every one without a record, as many as fit together at a time; return how many records were written.

    Args:
        wanted: in the order of their value.
        results: folder of the records.
        runs: folder of the runs; finished ones are not trained again. For a cluster, one that its machines share.
        slots: how many runs share a device.
        executor: `local`, one device of this machine, or `ray`, every GPU of a Ray cluster.
        device: where.
        until: seconds after which nothing new is begun.
        say: called with a line for every group of runs that is over.
        report: called after every epoch of a run on this machine with its record, its column as `title`.
    """
    results, began = Path(results), time.monotonic()
    results.mkdir(parents=True, exist_ok=True)
    todo = missing(wanted, results)
    total, images = sum(training.images for training in todo), 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers, here = max(1, cores - 2), executor == "local"
    if here and todo:
        _check_machine(todo, device)
    train = partial(_train_group, runs=Path(runs).absolute(), slots=slots, device=device)
    if here:  # else it is sent to other machines
        train = partial(train, say=say, report=report)
    trained = spread(group_trainings(todo, slots), train, where="here" if here else "ray", until=until, device=device)
    with closing(trained), _record_makers(workers) as others:
        records = []  # made on other cores while the next runs train
        for ended in trained:
            group, seconds = ended.task, ended.seconds
            names = ", ".join(dict.fromkeys(training.column for training in group))
            if ended.what == "lost":
                say(f"{names}: a worker was lost; what it left of {len(group)} runs waits to be begun again")
                continue
            of_group = sum(training.images for training in group)
            done = [(training, Run.of(training.spec, runs)) for training in group]
            with deaf():
                records += [others.submit(keep_record, training, run, seconds * training.images / of_group, results)
                            for training, run in done if run.finished]
            images += of_group
            left = (total - images) / images * (time.monotonic() - began)
            say(f"{names}: {len(group)} runs in {seconds:.0f} s; {len(todo) - len(records)} left, about "
                f"{left:.0f} s{ended.error and f'; {ended.error}'}")
        for made in records:
            made.result()
    if len(records) < len(todo):
        say(f"stopped after {time.monotonic() - began:.0f} s with {len(todo) - len(records)} to go; the same command "
            "goes on")
    return len(records)


def _check_machine(wanted: Sequence[Training], device: str) -> None:
    """A ValueError if this machine lacks the data or the device: better now than when their turn has come."""
    for spec in {training.spec.data: training.spec for training in wanted}.values():
        spec.load()
    check_device(device)


@contextmanager
def _record_makers(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that make records. Told to stop, they begin no more: finished runs have theirs made when it goes on."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=follow) as others:
        try:
            yield others
        except KeyboardInterrupt:
            others.shutdown(cancel_futures=True)
            raise


def _train_group(
    group: list[Training], *, runs: Path, slots: int, device: str, say: Callable[[str], None] = print,
    report: Report | None = None,
) -> None:
    """One group; a run that diverges leaves the others trained."""
    tell = None if report is None else lambda i, record: report({"title": group[i].column, **record})
    run_packed([training.spec for training in group], runs, slots=slots, device=device, half=True, early=False, say=say,
               report=tell)


def keep_record(training: Training, run: Run, seconds: float, results: Path) -> None:
    """Make and write one record, on one core."""
    warnings.simplefilter("ignore", LevelheadWarning)  # the record itself says what they would
    write_record(results / f"{training.name}.json", record_of_run(training, run, seconds))


def record_of_run(training: Training, run: Run, seconds: float) -> dict[str, Any]:
    """The record of a finished run, with what it was trained by."""
    said = run.facts
    keys = ("identity", "seed", "versions", "device", "counts")
    given = {"name": training.name, "column": training.column, "method": training.spec.method,
             "hold_out": training.spec.hold_out, "seconds": round(seconds, 1), **{key: said[key] for key in keys}}
    return make_record(run.snapshot, run.log, given, top=5 if training.spec.data == "tiny-imagenet" else None)


def write_record(path: Path, content: dict[str, Any]) -> None:
    """One line a key, atomically: small, and readable in a diff."""
    rows = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in content.items()]
    body = ",\n".join(rows)
    atomic.write(path, f"{{\n{body}\n}}\n")


def group_trainings(wanted: Sequence[Training], slots: int) -> list[list[Training]]:
    """What is trained together: as many runs as there are slots, those of one column first, the most valuable ahead.

    Those on the same data are stacked; the others, such as runs that hold some of it out, go beside them.
    """
    columns: dict[str, list[Training]] = {}
    for training in wanted:
        columns.setdefault(training.column, []).append(training)
    order = {training.name: i for i, training in enumerate(wanted)}
    chunks = [same[at:at + slots] for same in columns.values() for at in range(0, len(same), slots)]
    found: list[list[Training]] = []
    for chunk in sorted(chunks, key=lambda chunk: order[chunk[0].name]):
        if found and len(found[-1]) + len(chunk) <= slots:  # a device that is not full for one column takes two
            found[-1] += chunk
        else:
            found.append(chunk)
    return found
