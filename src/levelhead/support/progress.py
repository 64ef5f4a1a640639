"""Progress bars for bytes copied and stages of a tuning. They are drawn on a terminal only.

Code that works takes a function to report to, or None, and knows nothing of bars; the command line
opens one of the two here around it. rich is imported when the first bar is drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

ByteProgress = Callable[[int], None]  # bytes copied since the last call
RowProgress = Callable[[int, int], None]  # rows done, rows in all
# The stage, how much of it is done, how much it is in all.
StageProgress = Callable[[str, int, int], None]
LARGE_FILE = 256 << 20  # bytes: copying fewer takes no time worth a bar
LARGE_LOGITS = 20_000_000  # numbers: no stage takes time worth a bar on fewer


@contextmanager
def copy_progress(path: str | Path) -> Iterator[ByteProgress | None]:
    """Show how many bytes of a large model have been copied.

    Args:
        path: of the model: a file, a folder, or the index of a sharded one, whose size is that of
            all files beside it.

    Yields:
        What to call with each number of bytes; None if no bar is shown.
    """
    path = Path(path)
    if path.name.endswith(".json"):  # the index of a sharded model, beside its files
        files = list(path.parent.iterdir())
    elif path.is_dir():
        files = list(path.iterdir())
    else:
        files = [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    with bar(
        lambda rich: (
            rich.TextColumn("copying"),
            rich.BarColumn(),
            rich.DownloadColumn(),
            rich.TransferSpeedColumn(),
        ),
        show=size >= LARGE_FILE,
        transient=True,
    ) as drawn:
        if drawn is None:
            yield None
            return
        task = drawn.add_task("copying", total=size)
        yield lambda done: drawn.advance(task, done)


@contextmanager
def stage_progress(numbers: int) -> Iterator[StageProgress | None]:
    """Show how much of each stage of a tuning is done.

    Args:
        numbers: how many logits there are, N times K: below `LARGE_LOGITS` no bar is shown.

    Yields:
        What to call with a stage, how much of it is done, and how much it is in all; or None.
    """
    with bar(
        lambda rich: (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TimeRemainingColumn(),
        ),
        show=numbers >= LARGE_LOGITS,
        transient=True,
    ) as drawn:
        if drawn is None:
            yield None
            return
        tasks: dict[str, TaskID] = {}  # a stage has a bar from its first report on

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = drawn.add_task(stage, total=total)
            drawn.update(tasks[stage], completed=done)

        yield update


@contextmanager
def bar(
    columns: Callable[[ModuleType], tuple[ProgressColumn, ...]], *, show: bool, **style: Any
) -> Iterator[Progress | None]:
    """Open a bar on stderr; None if it is not to be shown, or if stderr is not a terminal.

    Args:
        columns: makes the bar's columns of the module rich.progress, which is imported only here.
        show: whether the work takes long enough for a bar.
        style: as rich's Progress takes it.
    """
    if not show or not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    with progress.Progress(*columns(progress), console=Console(stderr=True), **style) as drawn:
        yield drawn
