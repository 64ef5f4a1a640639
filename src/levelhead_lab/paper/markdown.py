"""Tables as Markdown, and the places of a page that are filled with generated text.

A page is written by hand, except for its *places*: what stands between `<!-- name -->` and `<!-- end of name -->`. A
program writes these (`fill`) and leaves the rest alone, so that prose and measured numbers can live in one file. The
pages of the reproduction are filled by `page`, others by programs in bench/.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from levelhead.support import atomic
from levelhead.support.errors import LevelheadError

TableRow = tuple[str, list[str]]  # title and cells


def markdown_table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a table; a row without any cell is left out.

    Args:
        head: the titles of the columns; the first is that of the rows' titles.
        rows: of each its title, and a cell for each of the other columns; an empty text where there is nothing.

    >>> print(markdown_table(["error", "ours"], [("RS", ["21.36"]), ("not trained", [""])]))
    | error | ours |
    |---|---|
    | RS | 21.36 |
    """
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for title, cells in rows:
        if any(cells):
            lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def places_in(page: Path) -> list[str]:
    """Return the names of the places of a page that are to be filled, in their order.

    A place is known by its first comment, on a line of its own. That of its end has spaces, which no name has.
    """
    return re.findall(r"^<!-- ([\w-]+) -->$", page.read_text(encoding="utf-8"), re.M)


def fill(page: Path, name: str, content: str) -> None:
    """Write generated text between `<!-- name -->` and `<!-- end of name -->` of a page.

    What stood there before is replaced; everything else stays as it is. The file is written whole or not at all.

    Raises:
        LevelheadError: if the page lacks one of the two comments, or has them in the wrong order.
    """
    start = f"<!-- {name} -->"
    end = f"<!-- end of {name} -->"
    text = ""
    if page.is_file():
        text = page.read_text(encoding="utf-8")
    if start not in text or end not in text:
        raise LevelheadError(f"{page}: no place for {name!r}; expected {start} and {end}")
    before, _, rest = text.partition(start)
    _, end_after_start, after = rest.partition(end)
    if not end_after_start:
        raise LevelheadError(f"{page}: {end} comes before {start}")
    atomic.write(page, f"{before}{start}\n{content}\n{end}{after}")
