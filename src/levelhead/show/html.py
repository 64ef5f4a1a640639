"""A result as HTML for a notebook: a small table, a picture that needs no plotting library, and notes.

Class names, file names and layers come from other people's files, and a notebook renders HTML as it comes: so every
text is escaped.
"""

from collections.abc import Iterable, Mapping
from html import escape


def html(title: str, rows: Mapping[str, str], *, notes: Iterable[str] = (), picture: str = "") -> str:
    """Return a result as a table of facts, with notes below. Only the picture is trusted HTML, which is not escaped.

    >>> html("Tuned", {"chosen on": "<b>test"}, notes=["a & b"])
    '<div><strong>Tuned</strong><table><tr><th ...>chosen on</th><td ...>&lt;b&gt;test</td></tr></table><div><small>a
    &amp; b</small></div></div>'
    """
    cells = "".join(
        f'<tr><th style="text-align:left;white-space:nowrap">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    below = "".join(f"<div><small>{escape(note)}</small></div>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{picture}{below}</div>"
