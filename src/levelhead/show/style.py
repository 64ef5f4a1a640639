"""What is drawn for people without a plotting library: names, tables, curves as text and as SVG, results as HTML."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from ..path.curve import Curve
from ..support.errors import visible

Interval = tuple[float, float] | None  # of gamma
INK, ACCENT, SOFT = "#222222", "#c2410c", "#94a3b8"
MOST_ROWS = (
    20  # of a table; of more classes, those with the largest and the smallest counts are shown
)


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
        rows = [
            *rows[: MOST_ROWS // 2],
            ["...", *[""] * (len(titles) - 1)],
            *rows[-(MOST_ROWS // 2) :],
        ]
    columns = [column for column in zip(titles, *rows, strict=True) if any(column)]
    padded = []
    for column in columns:
        width, left = (
            max(map(len, column)),
            column is columns[0] or (column is columns[-1] and not column[0]),
        )
        padded.append([cell.ljust(width) if left else cell.rjust(width) for cell in column])
    return ["  " + "  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def html(
    title: str, rows: Mapping[str, str], *, notes: Iterable[str] = (), picture: str = ""
) -> str:
    """Return a result as a table of facts, with notes below. All but the picture is escaped: names come from files."""
    cells = "".join(
        f'<tr><th style="text-align:left;white-space:nowrap">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    below = "".join(f"<div><small>{escape(note)}</small></div>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{picture}{below}</div>"


def draw_text_curve(
    curve: Curve,
    gamma: float,
    interval: Interval = None,
    *,
    width: int = 64,
    height: int = 8,
    form: str = ".2%",
) -> str:
    """Draw a curve in a few lines of characters. Each column shows the mean over a stretch of gammas."""
    low, high = float(curve.gammas[0]), curve.end
    values = _column_means(curve, width)
    top, bottom = values.max(), values.min()
    level = np.rint((top - values) / max(top - bottom, 1e-12) * (height - 1)).astype(int)
    labels = [f"{top - (top - bottom) * i / (height - 1):{form}}" for i in range(height)]
    margin = max(map(len, labels))
    rows = [
        "".join("*" if level[c] == r else " " for c in range(width)).rstrip() for r in range(height)
    ]
    column = lambda g: int(np.clip((g - low) / (high - low) * width, 0, width - 1))  # noqa: E731
    first, last = (width, 0) if interval is None else map(column, interval)
    axis = "".join(
        "^" if c == column(gamma) else "-" if first <= c <= last else " " for c in range(width)
    )
    left, right = f"{low:g}", f"{high:g}"
    axis = axis if axis[: len(left)].strip() else left + axis[len(left) :]
    axis = axis if axis[-len(right) :].strip() else axis[: -len(right)] + right
    lines = [f"{label:>{margin}} |{row}" for label, row in zip(labels, rows, strict=True)]
    return "\n".join([*lines, f"{' ' * margin} +{'-' * (width - 1)}", f"{' ' * margin} {axis}"])


def sparkline(
    curve: Curve, gamma: float | None = None, interval: Interval = None, *, width: int = 220
) -> str:
    """Draw a curve as an inline SVG in the color of the text around it, with gamma and its interval marked."""
    low, high, height = float(curve.gammas[0]), curve.end, 48
    values, x = _column_means(curve, width), lambda g: (g - low) / (high - low) * width
    heights = height - 2 - (height - 4) * (values - values.min()) / max(np.ptp(values), 1e-12)
    points = " ".join(f"{i + 0.5:.1f},{y:.1f}" for i, y in enumerate(heights))
    label = f"curve over gamma, {percent(curve.values[0])} at {low:g}, {percent(curve.values[-1])} at {high:g}"
    a, b = (0.0, 0.0) if interval is None else map(x, interval)
    span = (
        f'<rect x="{a:.1f}" y="0" width="{b - a:.1f}" height="{height}" fill="{ACCENT}" opacity="0.2"/>'
        * (b > a)
    )
    mark = (
        ""
        if gamma is None
        else f'<path d="M{x(gamma):.1f} 0V{height}" stroke="{ACCENT}" stroke-width="1.5"/>'
    )
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f'{span}<polyline points="{points}" fill="none" stroke="currentColor"/>{mark}</svg>'
    )


def _column_means(curve: Curve, width: int) -> np.ndarray:
    """Return the curve's mean over each of `width` equal stretches of gamma."""
    low, high = float(curve.gammas[0]), curve.end
    fine = np.asarray(curve.at(low + (high - low) * (np.arange(width * 20) + 0.5) / (width * 20)))
    return fine.reshape(width, 20).mean(axis=1)
