"""Checks of the files that a command will write, made before any work."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..core import atomic
from ..core.errors import LevelheadError
from ..io import arrays
from ..show.plot import check_picture


def check_outputs(
    *,
    out: Path | None = None,
    plot: Path | None = None,
    page: Path | None = None,
    force: bool = False,
    inputs: Sequence[Path | None] = (),
) -> None:
    """Check that every output can be written and that none replaces an input, or another file without --force."""
    outputs = [path for path in (out, plot, page) if path is not None]
    sources = [arrays.file_of(source) for source in inputs if source is not None and arrays.has_known_suffix(source)]
    for path in outputs:
        atomic.check_plain(path)
        if path.exists() and any(file.exists() and path.samefile(file) for file in sources):
            raise LevelheadError(f"{path}: an input, which is never overwritten; choose another name")
        if os.path.lexists(path) and not force:
            raise FileExistsError(f"{path} exists; pass --force to replace it")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent}: no such folder to write {path.name} into")
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise LevelheadError(f"{outputs[0]}: expected a different file for each of --out, --plot and --report")
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise LevelheadError(f"{page}: expected a page that ends in .html")
    if plot is not None:
        check_picture(plot)


def check_titles(titles: Sequence[str] | None, size: int) -> list[str | None]:
    """Return a title, or None, for each of so many models."""
    if titles and len(titles) != size:
        raise LevelheadError(f"expected {size}, one for each model, got {len(titles)}", parameter="title")
    return list(titles) if titles else [None] * size
