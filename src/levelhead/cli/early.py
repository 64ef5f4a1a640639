"""What a command begins before anything else is imported: the sha256 of a large model, which takes longest of all."""

from contextlib import suppress
from pathlib import Path

from ..core.errors import LevelheadError
from ..files.digest import LARGE_INPUT, begin_early


def begin_early_digest(command: str, *words: str) -> None:
    """Begin the digest that `rescale`, `adjust` or `undo` will need of the first large file among its arguments."""
    for before, word in zip(("", *words), words, strict=False):
        path = Path(word)
        with suppress(OSError, ValueError, LevelheadError):
            if before.startswith("-") or not path.is_file() or path.stat().st_size < LARGE_INPUT:
                continue
            edits = []
            if command == "undo":  # by what was kept of the file, in order
                from ..files.edits import load_originals

                (original,) = load_originals(path.with_name(f"{path.name}.original")).values()
                edits = sorted(original.edits, key=lambda edit: edit.offset)
            begin_early(path, edits)
            return
