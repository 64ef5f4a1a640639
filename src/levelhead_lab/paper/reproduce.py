"""Train the networks that a table lacks, and say what is there and what is missing: `levelhead reproduce TABLE`.

`reproduce_table` is the command. It asks `trainings` what the table needs, refuses to mix precisions
(`_check_precision`), lets `train_groups` train what has no record (`_train`), and returns the rows of the table that
are there (`asked_rows`). With `--dry-run`, or where nothing is missing, neither data nor a GPU are needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, get_args

from levelhead.support.errors import Advice, LevelheadError, check_choice

from ..lab.choices import PaperTable, TrainingDtype
from ..lab.downloads import where_to_get
from ..lab.progress import epoch_progress
from ..runs.signals import graceful_stop
from .asked_rows import AskedRow, RowFacts, rows_of, rows_text
from .cells import load_records
from .train_groups import TableExecutor, missing, train_missing
from .trainings import DTYPE, TABLES, Training, trainings
from .words import in_a_row

SECONDS_PER_IMAGE = {"resnet32": 7.0e-6, "resnet18-64": 53e-6}  # on one H200, from the records


@dataclass(frozen=True)
class ReproduceOptions:
    """What a table is to be trained with, as the options of `levelhead reproduce`.

    What is trained is decided by `only`, `seeds` and `dtype`; the others say where and how. A record in another
    precision than `dtype` is refused, not trained again: see `_check_precision`.
    """

    root: Path | None = None  # folder of the data sets; not needed where nothing is missing
    only: Sequence[str] = ()  # the cells wanted, as in `trainings`
    seeds: int = 3  # of the repeated rows
    results: Path = Path("results/records")  # folder of the records
    runs: Path = Path("runs")  # folder of all runs
    slots: int = 16  # runs that share a device
    minutes: float | None = None  # no new run is started after these
    executor: TableExecutor = "local"  # one device of this machine; `ray`: all of a Ray cluster
    dry_run: bool = False  # only list what is missing
    unofficial: bool = False  # accept data files with another md5
    dtype: TrainingDtype = DTYPE  # see `fast.precision`

    def __post_init__(self) -> None:
        """Raise LevelheadError if an option cannot be, and FileNotFoundError if the folder of the data is not there."""
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


class TableReport(TypedDict):
    """What `levelhead reproduce TABLE --json` prints."""

    table: str
    trainings: int  # that the table needs, or that were asked for
    missing: list[str]  # names of those without a record
    minutes: float  # that these take on one H200
    rows: list[RowFacts]


def reproduce_table(
    table: PaperTable, options: ReproduceOptions, *, say: Callable[[str], None], show: bool = False
) -> tuple[TableReport, str]:
    """Train what a table lacks.

    Args:
        table: of the paper, or one of ours beside it.
        options: what to train, with what, and where it is kept.
        say: called with lines for people while networks are trained.
        show: draw a bar of the epochs, on a terminal.

    Returns:
        What is missing in the end and the rows that are there, for programs, and the same as text.

    Raises:
        LevelheadError: if a cell is not known, if records are of another precision, if data are missing, or if networks
            could not be trained although there was no limit of time.
    """
    check_choice("table", table, TABLES)
    root = None
    if options.root is not None:
        root = str(options.root)
    wanted = trainings(
        table,
        root=root,
        seeds=options.seeds,
        only=options.only,
        dtype=options.dtype,
        unofficial=options.unofficial,
    )
    _check_precision(wanted, options.results)
    left = missing(wanted, options.results)
    if left and not options.dry_run:
        _train(table, wanted, left, options, say=say, show=show)
        left = missing(wanted, options.results)
    rows = []
    if len(left) < len(wanted) and not options.dry_run:
        rows = rows_of(table, load_records(options.results), wanted)
    result: TableReport = {
        "table": table,
        "trainings": len(wanted),
        "missing": [training.name for training in left],
        "minutes": _minutes(left),
        "rows": [row.to_dict() for row in rows],
    }
    return result, _report_text(table, wanted, left, rows)


def _report_text(
    table: PaperTable,
    wanted: Sequence[Training],
    left: Sequence[Training],
    rows: Sequence[AskedRow],
) -> str:
    """Return what is missing, training by training, how much is there, and the rows of the table.

    Args:
        table: its name.
        wanted: all trainings that were asked for.
        left: those of them without a record.
        rows: of the table that have records; none on a dry run.
    """
    lines = []
    for training in left:
        lines.append(f"{training.name:48}{expected_seconds([training]) / 60:>7.1f} min")
    rest = "nothing to train"
    if left:
        rest = f"the others take about {_minutes(left):g} minutes on one H200"
    recorded = len(wanted) - len(left)
    lines.append(f"{table}: {recorded} of {len(wanted)} networks have a record; {rest}")
    if rows:
        lines += ["", rows_text(rows)]
    return "\n".join(lines)


def _train(
    table: PaperTable,
    wanted: Sequence[Training],
    lacking: Sequence[Training],
    options: ReproduceOptions,
    *,
    say: Callable[[str], None],
    show: bool,
) -> None:
    """Train those that have no record; raise LevelheadError if some could not be trained.

    Args:
        table: for a message.
        wanted: all trainings of the table, to say how far it is.
        lacking: those without a record.
        options, say, show: as of `reproduce_table`.
    """
    # The folder of the data is asked for here, and not before: where nothing is missing, nobody needs it.
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

    def summary() -> str:  # for who stops it by Ctrl-C
        """Say how far the table is, for who stops it by Ctrl-C."""
        recorded = len(wanted) - len(missing(wanted, options.results))
        return f"{recorded} of {len(wanted)} networks have a record"

    # Ctrl-C ends it in a line; what is trained stays, and the same command goes on.
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
    # With a limit of time it is no error that some are left.
    if left and until is None:
        raise LevelheadError(
            f"{len(left)} of {len(lacking)} networks were not trained, for the reasons above; run the "
            "same command again to resume"
        )


def _check_precision(wanted: Sequence[Training], results: Path) -> None:
    """Raise LevelheadError if a folder has a record of one of these networks in another precision.

    A cell would then have the mean over networks that differ in more than their seed.
    """
    # A record is named by a hash, which the precision is a part of: the file of another one has another name, and is
    # found by what it is of.
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
        # The first records do not say their precision.
        if training is not None and precision not in (None, training.spec.dtype):
            raise LevelheadError(
                f"{results}: {record['name']} is a record of {record['column']}, {record['method']}, seed "
                f"{record['seed']} in {precision}, not in {training.spec.dtype}",
                advice=Advice("results", None, "to name a folder for this precision"),
            )


def expected_seconds(wanted: Sequence[Training]) -> float:
    """Return how long these trainings take on one H200, with as many at a time as it has room for.

    Time is proportional to the images that go through a network in training: `Training.images`, epochs included.
    """
    seconds = 0.0
    for training in wanted:
        seconds += training.images * SECONDS_PER_IMAGE[training.spec.resolve_net()]
    return seconds


def _minutes(wanted: Sequence[Training]) -> float:
    return round(expected_seconds(wanted) / 60, 1)
