"""Files that appear all at once, when all of them are whole.

They are written to a hidden folder next to their place (`scratch`, support/atomic.py), on the same
disk, so that moving them there is a matter of names alone. `staged` checks every target before the
first move (`_prepare`), and `_move_all` takes back what it moved if a later move fails. A process
that is killed leaves the hidden folder behind, which the next one removes.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..support.atomic import OutputExists, link_new, named_errors, permissions, scratch
from ..support.errors import Advice, LevelheadError


@contextmanager
def staged(out: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder for what is to appear in out's folder, all at once, after the block.

    Every file is whole before the first appears, and `out` appears last. An error or Ctrl-C before
    that leaves nothing behind. Files that exist are replaced only by `force`, after their
    successors were synced to disk. Neither a file that is replaced nor a new folder becomes more
    open than it was.

    Args:
        out: the file or folder that is to appear; files of other names may appear next to it.
        force: whether what exists is replaced.

    Raises:
        OutputExists: a target exists, and `force` is not set; asked before the block, as nobody
            wants to hear it after a long copy, and again at its end.
        FileNotFoundError: out's folder does not exist.
    """
    if not out.parent.is_dir():
        raise FileNotFoundError(
            f"{out.parent}: no such folder; expected one to write {out.name} into"
        )
    _check_free(out, force)
    with named_errors(out), scratch(out, folder=True) as stage:
        yield stage
        moves = [
            (path, out.parent / path.relative_to(stage))
            for path in sorted(stage.rglob("*"))
            if path.is_file()
        ]
        for path, target in moves:
            _check_free(target, force)
            _prepare(path, target)
        # What stands for the model goes last: who sees it sees all of it.
        moves.sort(key=lambda move: move[1] == out or move[1].name.endswith(".index.json"))
        _move_all(moves, stage, force)


def _prepare(path: Path, target: Path) -> None:
    """Check that a file can be moved to its target; sync it, if it replaces one.

    A rename is atomic for whoever reads, but not for a power failure: the new name could lead to
    bytes that were never written, and the old file would be gone. A file that replaces none is not
    synced, as nothing is lost with it. It takes only permissions that its predecessor had, too.
    """
    if target.is_dir():
        raise LevelheadError(f"{target}: a folder; expected the name of a file to write")
    if target.parent.is_file():
        raise LevelheadError(f"{target.parent}: a file; expected the name of a folder to write")
    if not target.exists():
        return
    # A file whose permissions forbid writing is opened to be read; Linux syncs it all the same.
    writable = os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    with path.open("rb+" if writable else "rb") as file:
        os.fsync(file.fileno())
    path.chmod(permissions(path, target))


def _move_all(moves: list[tuple[Path, Path]], stage: Path, force: bool) -> None:
    """Move every file to its target; after an error, put back what was there.

    Args:
        moves: (file, target), in this order.
        stage: a folder of the same file system, to keep old files in until all is done.
        force: whether targets that exist are replaced.
    """
    # Each step pushes what takes it back; an error runs these from the last to the first, and
    # `pop_all` at the end forgets them.
    with ExitStack() as undo:
        for path, target in moves:
            if not target.parent.is_dir():
                target.parent.mkdir()
                undo.callback(target.parent.rmdir)
                target.parent.chmod(permissions(path.parent))
            # A link fails where another writer was faster; a rename would replace what that one
            # wrote.
            if not force and link_new(path, target):
                undo.callback(target.unlink, missing_ok=True)
                continue
            if target.exists():
                kept = stage / os.urandom(8).hex()
                with suppress(OSError):  # a file system without links: the old file is not kept
                    os.link(target, kept)
                    undo.callback(os.replace, kept, target)
            else:
                undo.callback(target.unlink, missing_ok=True)
            os.replace(path, target)
        undo.pop_all()


def _check_free(target: Path, force: bool) -> None:
    """Raise if something has this name, a broken link too, unless it may be replaced."""
    if os.path.lexists(target) and not force:
        raise OutputExists(f"{target} exists", advice=Advice("force", None, "to replace it"))
