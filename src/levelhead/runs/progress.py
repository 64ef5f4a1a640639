"""Epochs done, time left and the last errors, on one line of a terminal; nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Report = Callable[[dict[str, Any]], None]


@contextmanager
def bar(*, show: bool = True) -> Iterator[Report]:
    """A function to be called with each epoch's record: `epoch`, `of`, `loss` and, where there are, `title`, errors."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = Console(stderr=True)
    if not (show and console.is_terminal):
        yield lambda record: None
        return
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # what a narrow terminal has no room for
    columns = (TextColumn("{task.description}"), BarColumn(12), MofNCompleteColumn(), TextColumn("epochs,"),
               TimeRemainingColumn(), TextColumn("left; {task.fields[facts]}", table_column=rest))
    with Progress(*columns, console=console, expand=True) as progress:
        tasks: dict[str, Any] = {}

        def report(record: dict[str, Any]) -> None:
            title = record.get("title", "training")
            if title not in tasks:  # the first epoch of a resumed run is not its first
                tasks[title] = progress.add_task(title, total=record["of"], completed=record["epoch"] - 1, facts="")
            errors = [f"{key.removesuffix('_error')} {100 * value:.1f} %" for key, value in record.items()
                      if key.endswith("_error") and value is not None]
            facts = f"error {', '.join(errors)}; loss {record['loss']:.3f}"
            progress.update(tasks[title], completed=record["epoch"], facts=facts)

        yield report
