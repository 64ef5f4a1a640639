"""Progress bars for bytes copied, stages of a tuning and epochs of a training. They are drawn on a terminal only."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ByteProgress = Callable[[int], None]  # bytes copied since the last call
RowProgress = Callable[[int, int], None]  # rows done, rows in all
StageProgress = Callable[[str, int, int], None]  # the stage, how much of it is done, how much it is in all
EpochProgress = Callable[[dict[str, Any]], None]  # an epoch's record
LARGE_FILE = 256 << 20  # bytes: copying fewer takes no time worth a bar
LARGE_LOGITS = 20_000_000  # numbers: no stage takes time worth a bar on fewer


@contextmanager
def copy_progress(path: str | Path) -> Iterator[ByteProgress | None]:
    """Show how many bytes of a large model have been copied."""
    path = Path(path)
    files = list(path.parent.iterdir() if path.name.endswith(".json") else path.iterdir() if path.is_dir() else [path])
    size = sum(file.stat().st_size for file in files if file.is_file())
    with _bar(
        lambda rich: (rich.TextColumn("copying"), rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn()),
        show=size >= LARGE_FILE,
        transient=True,
    ) as bar:
        task = bar and bar.add_task("copying", total=size)
        yield bar and (lambda done: bar.advance(task, done))


@contextmanager
def stage_progress(numbers: int) -> Iterator[StageProgress | None]:
    """Show how much of each stage of a tuning is done, for logits of so many numbers."""
    with _bar(
        lambda rich: (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TimeRemainingColumn()),
        show=numbers >= LARGE_LOGITS,
        transient=True,
    ) as bar:
        tasks: dict[str, Any] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        yield bar and update


@contextmanager
def epoch_progress(*, show: bool = True) -> Iterator[EpochProgress]:
    """Show epochs done, time left and the last errors, on one line, by records of an epoch or of a batch inside one."""
    with _bar(_epoch_columns, show=show, expand=True) as bar:
        tasks: dict[str, Any] = {}
        facts_of: dict[str, str] = defaultdict(str)  # by title, of the last epoch that is done

        def update(record: dict[str, Any]) -> None:
            title = record.get("title", "training")
            if title not in tasks:  # the first epoch of a resumed run is not its first
                tasks[title] = bar.add_task(title, total=record["of"], completed=record["epoch"] - 1, facts="")
            if "batch" in record:
                share = record["batch"] / record["batches"]
                if not facts_of[title]:
                    bar.update(tasks[title], facts=f"batch {record['batch']} of {record['batches']}")
                bar.update(tasks[title], completed=record["epoch"] - 1 + share)
                return
            facts_of[title] = f"error {', '.join(_errors_in(record))}; loss {record['loss']:.3f}"
            bar.update(tasks[title], completed=record["epoch"], facts=facts_of[title])

        yield (lambda record: None) if bar is None else update


def _errors_in(record: dict[str, Any]) -> list[str]:
    """Return the errors of an epoch in words; the first have room on a narrow terminal, so these matter most."""
    known = {key.removesuffix("_error"): e for key, e in record.items() if key.endswith("_error") and e is not None}
    first = [title for title in ("held-out", "test") if title in known]
    return [f"{title} {100 * known[title]:.1f} %" for title in [*first, *(t for t in known if t not in first)]]


def _epoch_columns(rich: Any) -> tuple[Any, ...]:
    from rich.table import Column

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # a narrow terminal has no room for it
    return (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(8),
        rich.MofNCompleteColumn(),
        rich.TextColumn("epochs,"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left, {task.fields[facts]}", table_column=rest),
    )


@contextmanager
def _bar(columns: Callable[[Any], tuple[Any, ...]], *, show: bool, **style: Any) -> Iterator[Any]:
    """Open a bar with the columns that are made from rich.progress; None if unwanted or stderr is not a terminal."""
    if not show or not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    with progress.Progress(*columns(progress), console=Console(stderr=True), **style) as bar:
        yield bar
