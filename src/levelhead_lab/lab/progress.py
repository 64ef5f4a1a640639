"""A bar for the epochs of a training, drawn on a terminal only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from levelhead.support.progress import bar

if TYPE_CHECKING:
    from rich.progress import TaskID

EpochProgress = Callable[[dict[str, Any]], None]  # an epoch's record


@contextmanager
def epoch_progress(*, show: bool = True) -> Iterator[EpochProgress]:
    """Show epochs done, time left and the last errors, on one line, by records of an epoch or of a batch inside one."""
    with bar(_epoch_columns, show=show, expand=True) as drawn:
        if drawn is None:
            yield lambda record: None
            return
        tasks: dict[str, TaskID] = {}
        facts_of: dict[str, str] = defaultdict(str)  # by title, of the last epoch that is done

        def update(record: dict[str, Any]) -> None:
            title = record.get("title", "training")
            if title not in tasks:  # the first epoch of a resumed run is not its first
                tasks[title] = drawn.add_task(
                    title, total=record["of"], completed=record["epoch"] - 1, facts=""
                )
            if "batch" in record:
                share = record["batch"] / record["batches"]
                if not facts_of[title]:
                    drawn.update(
                        tasks[title], facts=f"batch {record['batch']} of {record['batches']}"
                    )
                drawn.update(tasks[title], completed=record["epoch"] - 1 + share)
                return
            facts_of[title] = f"error {', '.join(_errors_in(record))}; loss {record['loss']:.3f}"
            drawn.update(tasks[title], completed=record["epoch"], facts=facts_of[title])

        yield update


def _errors_in(record: dict[str, Any]) -> list[str]:
    """Return the errors of an epoch in words; the first have room on a narrow terminal, so these matter most."""
    known = {
        key.removesuffix("_error"): e
        for key, e in record.items()
        if key.endswith("_error") and e is not None
    }
    first = [title for title in ("held-out", "test") if title in known]
    return [
        f"{title} {100 * known[title]:.1f} %"
        for title in [*first, *(t for t in known if t not in first)]
    ]


def _epoch_columns(rich: Any) -> tuple[Any, ...]:
    from rich.table import Column

    # A narrow terminal has no room for it.
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(8),
        rich.MofNCompleteColumn(),
        rich.TextColumn("epochs,"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left, {task.fields[facts]}", table_column=rest),
    )
