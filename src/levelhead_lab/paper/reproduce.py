"""Train the networks that the tables lack, and write a record of each as soon as it is trained."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args

from levelhead.support import atomic
from levelhead.support.errors import Advice, LevelheadError, check_choice
from levelhead.support.threads import usable_cores
from levelhead.support.warnings import quiet

from ..lab.choices import PaperTable, TrainingDtype
from ..lab.downloads import where_to_get
from ..lab.load import TINY
from ..lab.progress import EpochProgress, epoch_progress
from ..runs.packed import check_device, run_packed
from ..runs.run_folder import Run
from ..runs.signals import exit_with_parent, graceful_stop, interrupts_blocked
from ..runs.workers import run_tasks
from .asked_rows import rows_of, rows_text
from .cells import load_records
from .record import make_record
from .trainings import DTYPE, TABLES, Training, trainings
from .words import in_a_row

TableExecutor = Literal["local", "ray"]
SECONDS_PER_IMAGE = {"resnet32": 7.0e-6, "resnet18-64": 53e-6}  # on one H200, from the records


@dataclass(frozen=True)
class ReproduceOptions:
    """What a table is to be trained with."""

    root: Path | None = None  # folder of the data sets; not needed where nothing is missing
    only: Sequence[str] = ()  # the cells wanted, as in `trainings`
    seeds: int = 3  # of the repeated rows
    results: Path = Path("results/records")  # folder of the records
    runs: Path = Path("runs")  # folder of all runs
    slots: int = 16  # runs that share a device
    minutes: float | None = None  # no new run is started after these
    executor: TableExecutor = (
        "local"  # one device of this machine, or `ray`, every GPU of a Ray cluster
    )
    dry_run: bool = False  # only list what is missing
    unofficial: bool = False  # accept data files with another md5
    dtype: TrainingDtype = DTYPE  # see `fast.precision`

    def __post_init__(self) -> None:
        check_choice("executor", self.executor, get_args(TableExecutor))
        check_choice("dtype", self.dtype, get_args(TrainingDtype))
        for name in ("seeds", "slots"):
            if getattr(self, name) < 1:
                raise LevelheadError(
                    f"expected at least 1, got {getattr(self, name)}", parameter=name
                )
        if self.minutes is not None and not self.minutes >= 0:
            raise LevelheadError(
                f"expected at least 0 minutes, got {self.minutes}", parameter="minutes"
            )
        if self.root is not None and not self.dry_run and not self.root.is_dir():
            raise FileNotFoundError(
                f"{self.root}: no such folder; expected the folder of the data sets"
            )


def reproduce_table(
    table: PaperTable, options: ReproduceOptions, *, say: Callable[[str], None], show: bool = False
) -> tuple[dict[str, Any], str]:
    """Train what a table lacks; return, for programs and for people, what is missing and the rows that are there."""
    check_choice("table", table, TABLES)
    results = options.results
    wanted = trainings(
        table,
        root=None if options.root is None else str(options.root),
        seeds=options.seeds,
        only=options.only,
        dtype=options.dtype,
        unofficial=options.unofficial,
    )
    _check_precision(wanted, results)
    before = left = missing(wanted, results)
    if before and not options.dry_run:
        _train(table, wanted, before, options, say=say, show=show)
        left = missing(wanted, results)
    lines = []
    for training in left:
        lines.append(f"{training.name:48}{expected_seconds([training]) / 60:>7.1f} min")
    minutes = round(expected_seconds(left) / 60, 1)
    rest = "nothing to train"
    if left:
        rest = f"the others take about {minutes:g} minutes on one H200"
    there = len(wanted) - len(left)
    lines.append(f"{table}: {there} of {len(wanted)} networks have a record; {rest}")
    rows = []
    if there and not options.dry_run:
        rows = rows_of(table, load_records(results), wanted)
        lines += ["", rows_text(rows)]
    found = {
        "table": table,
        "trainings": len(wanted),
        "missing": [training.name for training in left],
        "minutes": minutes,
        "rows": [row.to_dict() for row in rows],
    }
    return found, "\n".join(lines)


def _train(
    table: PaperTable,
    wanted: Sequence[Training],
    lacking: Sequence[Training],
    options: ReproduceOptions,
    *,
    say: Callable[[str], None],
    show: bool,
) -> None:
    """Train those that have no record; raise LevelheadError if some could not be trained."""
    if options.root is None:
        data = dict.fromkeys(training.spec.data for training in lacking)
        raise LevelheadError(
            f"{table} lacks {len(lacking)} networks, and training them takes the files of "
            f"{in_a_row(list(data))}; {where_to_get(data)}, and unpack what you downloaded",
            advice=Advice("root", None, "to name that folder"),
        )
    until = None
    if options.minutes is not None:
        until = 60 * options.minutes

    def summary() -> str:
        there = len(wanted) - len(missing(wanted, options.results))
        return f"{there} of {len(wanted)} networks have a record"

    with graceful_stop(summary, say), epoch_progress(show=show) as report:
        train_missing(
            lacking,
            options.results,
            options.runs,
            slots=options.slots,
            executor=options.executor,
            until=until,
            say=say,
            report=report,
        )
    left = missing(wanted, options.results)
    if left and until is None:
        raise LevelheadError(
            f"{len(left)} of {len(lacking)} networks were not trained, for the reasons above; run the "
            "same command again to resume"
        )


def _check_precision(wanted: Sequence[Training], results: Path) -> None:
    """Raise LevelheadError if a folder has a record of one of these networks in another precision."""
    networks = {}
    for training in wanted:
        spec = training.spec
        networks[training.column, spec.method, spec.seed, spec.hold_out] = training
    if not results.is_dir():
        return
    for record in load_records(results):
        key = (record["column"], record["method"], record["seed"], record["hold_out"])
        training = networks.get(key)
        precision = record["identity"].get("dtype")
        if training is not None and precision not in (None, training.spec.dtype):
            raise LevelheadError(
                f"{results}: {record['name']} is a record of {record['column']}, {record['method']}, seed "
                f"{record['seed']} in {precision}, not in {training.spec.dtype}",
                advice=Advice("results", None, "to name a folder for this precision"),
            )


def missing(wanted: Sequence[Training], results: str | Path) -> list[Training]:
    return [training for training in wanted if not Path(results, f"{training.name}.json").is_file()]


def expected_seconds(wanted: Sequence[Training]) -> float:
    return sum(
        training.images * SECONDS_PER_IMAGE[training.spec.resolve_net()] for training in wanted
    )


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
    """Train those without a record, the most valuable first, for `until` seconds; return how many were written."""
    results, began = Path(results), time.monotonic()
    results.mkdir(parents=True, exist_ok=True)
    todo = missing(wanted, results)
    total = sum(training.images for training in todo)
    images = 0
    train = partial(_train_group, runs=Path(runs).absolute(), slots=slots, device=device)
    if executor == "local":  # or else it is sent to other machines
        for spec in {training.spec.data: training.spec for training in todo}.values():
            spec.load()  # before any training, so that data or a device that are missing are named at once
        if todo:
            check_device(device)
        train = partial(train, say=say, report=report)
    where = "here" if executor == "local" else "ray"
    trained = run_tasks(
        group_trainings(todo, slots), train, where=where, until=until, device=device
    )
    with closing(trained), _record_makers(max(1, usable_cores() - 2)) as others:
        records = []  # made on other cores while the next runs train
        for ended in trained:
            group, seconds = ended.task, ended.seconds
            names = ", ".join(dict.fromkeys(training.column for training in group))
            if ended.status == "lost":
                say(
                    f"{names}: a worker was lost; its unfinished runs, of {len(group)}, will be started again"
                )
                continue
            of_group = sum(training.images for training in group)
            done = [(training, Run.of(training.spec, runs)) for training in group]
            with interrupts_blocked():
                records += [
                    others.submit(
                        keep_record, training, run, seconds * training.images / of_group, results
                    )
                    for training, run in done
                    if run.finished
                ]
            images += of_group
            left = (total - images) / images * (time.monotonic() - began)
            say(
                f"{names}: {len(group)} runs in {seconds:.0f} s; {len(todo) - len(records)} left, about "
                f"{left:.0f} s{ended.error and f'; {ended.error}'}"
            )
        for made in records:
            made.result()
    if len(records) < len(todo):
        say(
            f"stopped after {time.monotonic() - began:.0f} s with {len(todo) - len(records)} to go; run the same "
            "command again to resume"
        )
    return len(records)


@contextmanager
def _record_makers(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes of one thread each, which make records; on Ctrl-C they begin no new one."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    # Each process reads them when it starts, at its first task.
    os.environ |= dict.fromkeys(names, "1")
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=exit_with_parent
    ) as others:
        try:
            yield others
        except KeyboardInterrupt:
            others.shutdown(cancel_futures=True)
            raise
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _train_group(
    group: list[Training],
    *,
    runs: Path,
    slots: int,
    device: str,
    say: Callable[[str], None] = print,
    report: EpochProgress | None = None,
) -> None:
    tell = (
        None if report is None else lambda i, record: report({"title": group[i].column, **record})
    )
    train = partial(run_packed, slots=slots, device=device, half=True, evaluate_early=False)
    train([training.spec for training in group], runs, say=say, report=tell)


def keep_record(training: Training, run: Run, seconds: float, results: Path) -> None:
    keys = ("identity", "seed", "versions", "device", "counts")
    facts = {
        "name": training.name,
        "command": training.command,
        "column": training.column,
        "method": training.spec.method,
        "hold_out": training.spec.hold_out,
        "seconds": round(seconds, 1),
        **{key: run.facts[key] for key in keys},
        "data_sha256": run.facts.get("split_sha256"),
    }
    with quiet():  # the record itself says what the warnings would
        record = make_record(
            run.snapshot, run.log, facts, top=5 if training.spec.data in TINY else None
        )
    write_record(results / f"{training.name}.json", record)


def write_record(path: Path, content: dict[str, Any]) -> None:
    rows = [
        f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}"
        for key, value in content.items()
    ]
    atomic.write(path, "{\n" + ",\n".join(rows) + "\n}\n")


def group_trainings(wanted: Sequence[Training], slots: int) -> list[list[Training]]:
    columns: dict[str, list[Training]] = {}
    for training in wanted:
        columns.setdefault(training.column, []).append(training)
    order = {training.name: i for i, training in enumerate(wanted)}
    chunks = [
        same[at : at + slots] for same in columns.values() for at in range(0, len(same), slots)
    ]
    found: list[list[Training]] = []
    for chunk in sorted(chunks, key=lambda chunk: order[chunk[0].name]):
        if found and len(found[-1]) + len(chunk) <= slots:  # one column does not fill the device
            found[-1] += chunk
        else:
            found.append(chunk)
    return found
