"""What a notebook shows of a result: a small table, and its curve without a plotting library. Every text is escaped.

Class names, file names and layers come from other people's files; a notebook renders HTML as it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING

from .curve_text import sparkline
from .plot import short

if TYPE_CHECKING:
    from ..gamma.path import GammaPath
    from ..gamma.tuned import Tuned
    from ..io.snapshot import Snapshot

LEFT = "text-align:left;white-space:nowrap"


def html(title: str, rows: Mapping[str, str], *, notes: Iterable[str] = (), picture: str = "") -> str:
    """A result as a table of facts, with notes below.

    Args:
        title, rows, notes: plain text, escaped here.
        picture: HTML of our own making, which is not.

    >>> html("Tuned", {"chosen on": "<b>test"}, notes=["a & b"])
    '<div><strong>Tuned</strong><table><tr><th ...>chosen on</th><td ...>&lt;b&gt;test</td></tr></table><div><small>a
    &amp; b</small></div></div>'
    """
    cells = "".join(f'<tr><th style="{LEFT}">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
                    for name, value in rows.items())
    below = "".join(f"<div><small>{escape(note)}</small></div>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{picture}{below}</div>"


def path_html(path: GammaPath) -> str:
    """A path: its samples, and both errors at its beginning and where the balanced one is lowest."""
    begin, best = path.at(path.range[0]), path.best()
    rows = {
        "samples": f"{len(path.labels)} of {len(path.counts)} classes",
        "gamma": f"{path.range[0]:g} to {path.range[1]:g}, rule {path.rule.name}, {len(path.gammas)} breakpoints",
        "balanced error": f"{begin.balanced_error:.2%} at {begin.gamma:g}; lowest, {best.balanced_error:.2%}, at "
                          f"{best.gamma:.3f}",
        "error": f"{begin.error:.2%} at {begin.gamma:g}; {best.error:.2%} at {best.gamma:.3f}",
    }
    curve = path.balanced_error_curve
    return html("GammaPath", rows, picture=sparkline(curve, best.gamma),
                notes=["the lowest on these samples flatters them; levelhead.tune says what to expect on others"])


def tuned_html(tuned: Tuned) -> str:
    """A choice: what `str` says of it, part by part, the curve with the interval, and the warnings."""
    return html("Tuned", tuned.facts(), picture=sparkline(tuned.curve, tuned.gamma, tuned.interval),
                notes=[f"warning: {line}" for line in tuned.warnings])


def snapshot_html(snapshot: Snapshot) -> str:
    """A snapshot: its classes, its head and its splits."""
    head, counts = snapshot.head, snapshot.counts
    first = ", ".join([*map(short, (head.names or ())[:5]), *["..."] * (head.classes > 5)])
    names = "" if head.names is None else f" ({first})"
    rows = {
        "classes": f"{head.classes}{names}, of {counts.max()} to {counts.min()} training samples",
        "head": f"weight {list(head.weight.shape)}, {'no bias' if head.bias is None else 'with a bias'}",
        "splits": ", ".join(f"{split} {len(labels)}" for split, labels in snapshot.labels.items()) or "none",
    }
    return html("Snapshot", rows | {key: str(value) for key, value in snapshot.meta.items() if _is_short(value)})


def _is_short(value: object) -> bool:
    return isinstance(value, str | int | float) and len(str(value)) <= 80
