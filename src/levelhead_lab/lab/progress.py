"""A bar for the epochs of a training, drawn on a terminal only.

`epoch_progress` gives a function that takes records, from any engine: of an epoch, when it is done,
or of a batch inside one, so that a long epoch is seen to move. Trainings with different titles have
a line each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from levelhead.support.progress import bar

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, TaskID

# As JSON holds it: `epoch` (from 1 on), `of` (epochs in all), perhaps a `title`; and either `batch`
# and `batches`, or the `loss` and errors (`test_error`, ...) of an epoch that is done.
ProgressRecord: TypeAlias = dict[str, Any]
EpochProgress = Callable[[ProgressRecord], None]


@contextmanager
def epoch_progress(*, show: bool = True) -> Iterator[EpochProgress]:
    """Show epochs done, time left and the last errors, on one line, while the block runs.

    Args:
        show: whether to draw at all; on something else than a terminal nothing is drawn either.

    Yields:
        The function to call with every record, see `ProgressRecord`.
    """
    with bar(_epoch_columns, show=show, expand=True) as drawn:
        if drawn is None:
            yield lambda record: None
            return
        tasks: dict[str, TaskID] = {}
        facts_of: dict[str, str] = defaultdict(str)  # by title, of the last epoch that is done

        def update(record: ProgressRecord) -> None:
            title = record.get("title", "training")
            if title not in tasks:  # the first epoch of a resumed run is not its first
                tasks[title] = drawn.add_task(
                    title, total=record["of"], completed=record["epoch"] - 1, facts=""
                )
            if "batch" in record:
                share = record["batch"] / record["batches"]
                # In the first epoch there are no errors yet; later those of the last one stay.
                if not facts_of[title]:
                    drawn.update(
                        tasks[title], facts=f"batch {record['batch']} of {record['batches']}"
                    )
                drawn.update(tasks[title], completed=record["epoch"] - 1 + share)
                return
            facts_of[title] = f"error {', '.join(_errors_in(record))}; loss {record['loss']:.3f}"
            drawn.update(tasks[title], completed=record["epoch"], facts=facts_of[title])

        yield update


def _errors_in(record: ProgressRecord) -> list[str]:
    """Return the errors of an epoch in words, those that matter most first.

    A narrow terminal cuts off what comes last: that is the training error. An error may be None, in
    epochs in which it was not measured.

    >>> _errors_in({"epoch": 3, "loss": 0.4, "train_error": 0.1, "test_error": 0.25})
    ['test 25.0 %', 'train 10.0 %']
    """
    errors = {}
    for key, error in record.items():
        if key.endswith("_error") and error is not None:
            errors[key.removesuffix("_error")] = error
    first = [title for title in ("held-out", "test") if title in errors]
    others = [title for title in errors if title not in first]
    return [f"{title} {100 * errors[title]:.1f} %" for title in [*first, *others]]


def _epoch_columns(rich: ModuleType) -> tuple[ProgressColumn, ...]:
    """Return the columns of the bar.

    Args:
        rich: the module rich.progress, loaded only to draw.
    """
    from rich.table import Column

    # The facts take the room that is left: a narrow terminal has little, and cuts them off.
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(8),
        rich.MofNCompleteColumn(),
        rich.TextColumn("epochs,"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left, {task.fields[facts]}", table_column=rest),
    )
