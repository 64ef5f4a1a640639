"""A progress bar for large files, on a terminal and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..files.edits import Progress

LARGE = 256 << 20  # bytes: below, copying takes no time worth a bar


@contextmanager
def progress_bar(path: str | Path) -> Iterator[Progress | None]:
    """How many bytes of a model have been copied, drawn on stderr if that is a terminal and the model is large."""
    path = Path(path)
    files = list(path.parent.iterdir() if path.name.endswith(".json") else path.iterdir() if path.is_dir() else [path])
    size = sum(file.stat().st_size for file in files if file.is_file())
    if size < LARGE or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("copying"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("copying", total=size)
        yield lambda done: bar.advance(task, done)
