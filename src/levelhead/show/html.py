"""A result as HTML for a notebook, with every text escaped: names in it come from other people's files."""

from collections.abc import Iterable, Mapping
from html import escape


def html(title: str, rows: Mapping[str, str], *, notes: Iterable[str] = (), picture: str = "") -> str:
    """Return a result as a table of facts, with notes below. Only the picture is trusted HTML, which is not escaped."""
    cells = "".join(
        f'<tr><th style="text-align:left;white-space:nowrap">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    below = "".join(f"<div><small>{escape(note)}</small></div>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{picture}{below}</div>"
