"""What is shown to people without a plotting library: names, tables, curves as SVG, results as HTML.

All of it is text, made of plain values: terminals get `table`, notebooks `html` with a `sparkline`. Names
come from users' files, so whatever prints them makes control characters visible (`visible`) or escapes them.
The colors are those of plot.py as well.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from ..path.curve import Curve
from ..support.errors import visible
from ..support.terminal import padded

# The colors of every picture: of text, of what was chosen, of what it is compared with.
INK = "#222222"
ACCENT = "#c2410c"
SOFT = "#94a3b8"
_MOST_ROWS = 20  # of a table; of more, the first and the last are shown


def percent(share: float) -> str:
    """Return a share as text in percent.

    >>> percent(0.1234)
    '12.3 %'
    """
    return f"{100 * share:.1f} %"


def short(name: str, most: int = 16) -> str:
    """Return a name cut to at most so many characters.

    >>> short("great white heron", 8)
    'great w…'
    """
    if len(name) <= most:
        return name
    return name[: most - 1] + "…"


def short_names(names: Sequence[str], most: int = 16) -> list[str]:
    """Return names that stand beside each other, each cut to at most so many characters.

    Names that begin alike are cut in the middle, so that they can be told apart by their ends.

    >>> short_names(["great white heron", "card payment fee", "card payment lost"], 12)
    ['great white…', 'card p…t fee', 'card p… lost']
    """
    cut = [short(name, most) for name in names]
    times = Counter(cut)
    end = (most - 1) // 2
    for i, name in enumerate(names):
        if times[cut[i]] > 1 and len(name) > most:
            cut[i] = f"{name[: most - 1 - end]}…{name[-end:]}"
    return cut


def strength_text(strength: float) -> str:
    """Return a strength to three decimals, and one near 0 to three digits.

    >>> strength_text(1.0), strength_text(0.000573)
    ('1.000', '0.000573')
    """
    if 0 < abs(strength) < 0.1:
        return f"{strength:.3g}"
    return f"{strength:.3f}"


def running_mean(values: np.ndarray) -> np.ndarray:
    """Return means [K] over a tenth of the values around each, fewer at the ends; NaN is left out.

    The recalls of a thousand classes are a cloud of dots; this is the line through it. NaN, a class without
    samples, counts neither in a sum nor in its size, and stays NaN only where the whole window is.

    >>> running_mean(np.r_[np.zeros(10), np.ones(10)])[8:12]  # a tenth of 20 are two
    array([0. , 0. , 0.5, 1. ])
    """
    has_value = ~np.isnan(values)
    window = np.ones(max(1, len(values) // 10))
    sums = np.convolve(np.where(has_value, values, 0.0), window, "same")
    sizes = np.convolve(has_value, window, "same")
    return np.divide(sums, sizes, out=np.full(len(values), np.nan), where=sizes > 0)


def row_title(i: int, names: Sequence[str] | None) -> str:
    """Return the index of a class, and its name where that is known."""
    if names is None:
        return str(i)
    return f"{i} {visible(names[i])}"


def table(titles: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a table with aligned columns; those that are empty are left out.

    The first column is aligned to the left, and so is a last one without a title, which holds a bar
    or a remark; others to the right. Of many rows, those in the middle are left out. Chinese signs count
    twice, as terminals draw them.

    >>> print("\\n".join(table(["class", "count", ""], [["0 cat", "1000", "##"], ["1 owl", "40", "#"]])))
      class  count
      0 cat   1000  ##
      1 owl     40  #
    """
    if len(rows) > _MOST_ROWS:
        rows = [
            *rows[: _MOST_ROWS // 2],
            ["...", *[""] * (len(titles) - 1)],
            *rows[-(_MOST_ROWS // 2) :],
        ]
    # By columns: a column without a title or cell is left out, each other is as wide as its widest cell.
    columns = [column for column in zip(titles, *rows, strict=True) if any(column)]
    aligned = []
    for column in columns:
        to_left = column is columns[0] or (column is columns[-1] and not column[0])
        aligned.append(padded(column, to_left=to_left))
    return ["  " + "  ".join(row).rstrip() for row in zip(*aligned, strict=True)]


def html(
    title: str, rows: Mapping[str, str], *, notes: Iterable[str] = (), picture: str = ""
) -> str:
    """Return a result as HTML, for `_repr_html_`: a title, a table of facts, a picture, and notes below.

    All but the picture is escaped: names come from files. Styles are inline, as a notebook has none.

    Args:
        title: in bold, on top.
        rows: {what it is about: sentence}, a row each.
        notes: small lines at the end, such as warnings.
        picture: HTML that is put in as it is, such as a `sparkline`.

    >>> html("Tuned", {"gain": "2 < 3"})
    '<div><strong>Tuned</strong><table><tr><th style="text-align:left;white-space:nowrap">gain</th>\
<td style="text-align:left">2 &lt; 3</td></tr></table></div>'
    """
    cells = "".join(
        f'<tr><th style="text-align:left;white-space:nowrap">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    below = "".join(f"<div><small>{escape(note)}</small></div>" for note in notes)
    return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{picture}{below}</div>"


def sparkline(curve: Curve, gamma: float | None = None, *, width: int = 220) -> str:
    """Return a curve as an inline SVG in the color of the text around it, with a gamma marked.

    It needs no library and no script, so that a notebook shows it where it was saved without its kernel.

    Args:
        curve: a step function; its own lowest and highest value fill the height.
        gamma: where to put a vertical line, within the range of the curve; None for none.
        width: in pixels, each of which is one point of the line.
    """
    low = float(curve.gammas[0])
    high = curve.end
    height = 48
    # The mean over the gammas of each pixel, from twenty of them: steps narrower than a pixel still count.
    fine = low + (high - low) * (np.arange(width * 20) + 0.5) / (width * 20)
    values = np.asarray(curve.at(fine)).reshape(width, 20).mean(axis=1)
    # From the top, with a margin of two pixels; a flat curve is drawn at the bottom.
    heights = height - 2 - (height - 4) * (values - values.min()) / max(np.ptp(values), 1e-12)
    points = " ".join(f"{i + 0.5:.1f},{y:.1f}" for i, y in enumerate(heights))
    ends = f"{percent(curve.values[0])} at {low:g}, {percent(curve.values[-1])} at {high:g}"
    mark = ""
    if gamma is not None:
        x = (gamma - low) / (high - low) * width
        mark = f'<path d="M{x:.1f} 0V{height}" stroke="{ACCENT}" stroke-width="1.5"/>'
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="curve over gamma, {ends}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor"/>{mark}</svg>'
    )
