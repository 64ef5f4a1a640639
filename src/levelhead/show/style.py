"""Colors, percentages, names and tables: what everything drawn for people shares, as text and as HTML."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from ..core.errors import visible

INK, ACCENT, SOFT = "#222222", "#c2410c", "#94a3b8"
MOST_ROWS = 20  # of a table; of more classes, those with the largest and the smallest counts are shown


def percent(share: float) -> str:
    """Return a share as text in percent: '12.3 %'."""
    return f"{100 * share:.1f} %"


def short(name: str, most: int = 16) -> str:
    """Return a name cut to at most so many characters: 'great w…'."""
    return name if len(name) <= most else name[: most - 1] + "…"


def row_title(i: int, names: Sequence[str] | None) -> str:
    """Return the index of a class, and its name where that is known."""
    return str(i) if names is None else f"{i} {visible(names[i])}"


def table(titles: list[str], rows: list[list[str]]) -> list[str]:
    """Return aligned columns, the first and a last without a title to the left, others to the right; no empty ones."""
    if len(rows) > MOST_ROWS:
        rows = [*rows[: MOST_ROWS // 2], ["...", *[""] * (len(titles) - 1)], *rows[-(MOST_ROWS // 2) :]]
    columns = [column for column in zip(titles, *rows, strict=True) if any(column)]
    padded = []
    for column in columns:
        width, left = max(map(len, column)), column is columns[0] or (column is columns[-1] and not column[0])
        padded.append([cell.ljust(width) if left else cell.rjust(width) for cell in column])
    return ["  " + "  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def html(title: str, rows: Mapping[str, str], *, notes: Iterable[str] = (), picture: str = "") -> str:
    """Return a result as a table of facts, with notes below. All but the picture is escaped: names come from files."""
    cells = "".join(
        f'<tr><th style="text-align:left;white-space:nowrap">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    below = "".join(f"<div><small>{escape(note)}</small></div>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{picture}{below}</div>"
