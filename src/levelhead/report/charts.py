"""Two charts of a choice: the recall of each class, and errors over the strength of the rule.

They are drawn here, as SVG, so that the page needs no script for them and prints. Calibration and
norms of a head have charts of their own, in calibration.py and norms.py.

A chart is a function of the subject: it computes the values, makes a `Plane` whose ranges hold them,
and returns one `<svg>`. Colors, and what is dashed for those who do not see them, are in page.css.
"""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from ..core.gamma_path import GammaPath
from ..path.curve import Curve
from ..show.style import running_mean, short_names, strength_text
from .subject import Subject
from .svg import WIDE, Plane, change_mark, nice_ticks, tag, text_width
from .words import MOST_NAMED, share_text

# ---- Recall of each class ----------------------------------------------------------------------


def recall_chart(subject: Subject, width: float = WIDE) -> Markup:
    """Draw the recall of each class before and after, the most frequent class first.

    Up to `MOST_NAMED` classes each have a ring where they were and a dot where they are, and are
    named where names have room. Of more there is a dot for each, and a running mean: one line
    before, one after.

    Args:
        subject: whose rows are drawn.
        width: of the picture.
    """
    # From the most frequent to the rarest, as recall usually falls: the gain is then at the right end.
    rows = subject.rows[::-1]
    before = np.array([row.recall[0] for row in rows])
    after = np.array([row.recall[1] for row in rows])
    is_each_marked = len(rows) <= MOST_NAMED
    names = short_names([row.name for row in rows], 18)

    # Names stand side by side where they fit; else they are turned, and the longest of them says how
    # much room there must be below the axis. On a phone even these may be too many.
    room_of_each = (width - 80) / len(rows)
    is_named = is_each_marked and room_of_each >= 13
    longest = max(map(text_width, names))
    is_upright = longest < room_of_each
    room = 48.0
    if is_named and not is_upright:
        room = 40.0 + longest

    plane = Plane(width, 260 + room, 52, room, (-0.5, len(rows) - 0.5), (0, 1))
    parts = [plane.grid((0, 0.25, 0.5, 0.75, 1), "{:.0%}".format)]
    if is_named:
        for i, name in enumerate(names):
            parts.append(_name_below(plane, i, name, is_upright))
    if is_each_marked:
        for i, row in enumerate(rows):
            parts.append(_recall_mark(plane, i, row.name, before[i], after[i]))
    else:
        for values, when in ((before, "was"), (after, "now")):
            parts.append(_dots(plane, values, when))
            parts.append(plane.line(np.arange(len(rows)), running_mean(values), when))

    # A subject of several labels per sample has labels where others have classes.
    noun = "label" if subject.tuned.multilabel else "class"
    parts.append(plane.titles(f"{noun}, the most frequent first", "recall"))
    return plane.picture(f"Recall of each {noun} before and after", *parts)


def _name_below(plane: Plane, i: int, name: str, is_upright: bool) -> Markup:
    """Return the name of the class at position i, below the axis: upright, or turned so that it reads upward."""
    if is_upright:
        return plane.below(i, name)
    x = plane.x(i) + 4
    y = plane.height - plane.bottom + 10
    return tag("text", name, transform=f"translate({x:.1f} {y:.1f}) rotate(-90)", text_anchor="end")


def _recall_mark(plane: Plane, i: int, name: str, before: float, after: float) -> Markup:
    """Return the mark of the class at position i; nothing where a recall is not known."""
    if np.isnan(before) or np.isnan(after):
        return Markup("")
    title = f"{name}: {share_text(before)} to {share_text(after)}"
    return change_mark(plane.x(i), plane.y(before), plane.y(after), radius=5, title=title)


def _dots(plane: Plane, values: np.ndarray, when: str) -> Markup:
    """Return a small square for each value that is known, all in one path: a page may have thousands."""
    squares = []
    for i in np.flatnonzero(~np.isnan(values)):
        squares.append(f"M{plane.x(float(i)):.1f} {plane.y(values[i]):.1f}h2v2h-2z")
    return tag("path", d="".join(squares), class_=f"dots {when}")


# ---- Over a strength ---------------------------------------------------------------------------


def strength_chart(subject: Subject, path: GammaPath, width: float = WIDE) -> Markup:
    """Draw the error and the balanced error over the strength of a rule that has one.

    Both errors, since one pays for the other. The vertical axis begins at 0, so that a small gain
    looks small.

    Args:
        subject: whose strength is marked.
        path: of the subject.
        width: of the picture.
    """
    # Exact, with a step at every strength where a prediction changes; their names are classes of page.css.
    curves = {"balanced": path.balanced_error_curve, "plain": path.error_curve}
    low, high = path.range
    highest = max(float(curve.values.max()) for curve in curves.values())
    plane = Plane(width, 320, 64, 52, (low, high), (0.0, max(highest * 1.05, 0.01)))

    parts = [plane.grid(nice_ticks(*plane.y_range), _error_text)]
    for tick in nice_ticks(low, high):
        parts.append(plane.below(tick, f"{tick:g}"))
    for name, curve in curves.items():
        parts.append(_steps(plane, curve, name))

    # The strength that was chosen: a line from top to bottom.
    strength = float(subject.tuned.strength or 0.0)
    x = plane.x(strength)
    parts.append(
        tag("line", x1=x, x2=x, y1=plane.y(plane.y_range[1]), y2=plane.y(0.0), class_="chosen")
    )
    parts.append(tag("text", f"chosen: {strength_text(strength)}", x=x + 6, y=22))
    parts.append(plane.titles("strength", "error"))
    return plane.picture("Balanced error and error over the strength", *parts)


def _error_text(error: float) -> str:
    """Return an error as a label of the axis: a plain 0 where the axis begins."""
    if error == 0:
        return "0"
    return f"{error:.1%}"


def _steps(plane: Plane, curve: Curve, name: str) -> Markup:
    """Return a step function, as it is at two strengths for each unit of the picture's width.

    A curve may have a step for every sample; no screen shows more than these.

    Args:
        plane: of the chart.
        curve: constant between its steps, which the path over the strength knows exactly.
        name: its class in page.css.
    """
    low, high = plane.x_range
    strengths = np.linspace(low, high, 2 * int(plane.width))
    values = np.asarray(curve.at(strengths))
    changes = np.flatnonzero(np.diff(values, prepend=values[0]) != 0)
    # To the right until the curve changes, then up or down.
    path = f"M{plane.x(low):.1f} {plane.y(values[0]):.1f}V{plane.y(values[0]):.1f}"
    for i in changes:
        path += f"H{plane.x(strengths[i]):.1f}V{plane.y(values[i]):.1f}"
    return tag("path", d=f"{path}H{plane.x(high):.1f}", class_=f"line {name}")
