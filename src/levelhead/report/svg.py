"""Inline SVG: elements, and the plane of a chart with its axes.

A chart makes a `Plane`, which knows where a value lies in the picture; collects elements that are
placed by it; and puts them into one `<svg>` with `Plane.picture`. What an element looks like is in
page.css, by its class.

Names of classes come from users' files, so every text and attribute is escaped, by `tag`: what it
returns is `Markup`, which Jinja2 and further calls of `tag` take as it is. matplotlib would draw as
well, but it is an extra that not everybody has, and its pictures would not follow page.css.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

TOP = 12  # room above what is drawn, for dots at the upper end
RIGHT = 24  # room at its right, for half of a centered "1,000" at the end of the axis
WIDE = 960.0  # the width of a picture that fills a page
NARROW = 400.0  # that of one for a phone, on which texts of a wide one are too small to read


class Drawing(NamedTuple):
    """One chart in two widths, of which page.css shows the one that fits the screen."""

    wide: Markup  # an <svg>
    narrow: Markup

    @staticmethod
    def of(chart: Callable[[float], Markup]) -> Drawing:
        """Return a chart drawn in both widths.

        Args:
            chart: called with a width, returns an <svg>.
        """
        return Drawing(chart(WIDE), chart(NARROW))


class Plane(NamedTuple):
    """The rectangle of a chart, and how values lie in it.

    Sizes are in the SVG's own units, which are pixels where the picture is not scaled. What is
    drawn leaves `left` and RIGHT free at its sides, and TOP and `bottom` above and below it.
    """

    width: float
    height: float
    left: float  # room for the labels of the vertical axis
    bottom: float  # room for those of the horizontal axis
    x_range: tuple[float, float]  # the values at the left and the right end
    y_range: tuple[float, float]  # those at the lower and the upper end

    def x(self, value: float) -> float:
        """Return how far from the left edge a value lies."""
        low, high = self.x_range
        room = self.width - self.left - RIGHT
        span = (high - low) or 1.0  # an axis of a single value has no length
        return self.left + (value - low) / span * room

    def y(self, value: float) -> float:
        """Return how far below the upper edge a value lies: SVG counts downward."""
        low, high = self.y_range
        room = self.height - self.bottom - TOP
        span = (high - low) or 1.0
        return self.height - self.bottom - (value - low) / span * room

    def grid(self, ticks: Sequence[float], text: Callable[[float], str]) -> Markup:
        """Return a line and a text at each tick of the vertical axis.

        Args:
            ticks: values, as `nice_ticks` gives them.
            text: what to write at a value.
        """
        right = self.width - RIGHT
        parts = []
        for tick in ticks:
            height = self.y(tick)
            parts.append(tag("line", x1=self.left, x2=right, y1=height, y2=height, class_="grid"))
            parts.append(tag("text", text(tick), x=self.left - 6, y=height + 4, text_anchor="end"))
        return Markup("").join(parts)

    def below(self, value: float, text: str) -> Markup:
        """Return a text below the horizontal axis, centered at a value: a tick, or the name of a class."""
        baseline = self.height - self.bottom + 18
        return tag("text", text, x=self.x(value), y=baseline, text_anchor="middle")

    def titles(self, across: str, up: str) -> Markup:
        """Return the titles of the horizontal and of the vertical axis.

        Args:
            across: below the picture, centered.
            up: at its left edge, turned so that it reads upward.
        """
        center = (self.left + self.width - RIGHT) / 2
        middle = (TOP + self.height - self.bottom) / 2
        horizontal = tag("text", across, x=center, y=self.height - 6, text_anchor="middle")
        # After a quarter turn to the left, x runs upward.
        vertical = tag("text", up, x=-middle, y=13, transform="rotate(-90)", text_anchor="middle")
        return horizontal + vertical

    def line(self, x: np.ndarray, y: np.ndarray, class_: str) -> Markup:
        """Return a line through points (x [n], y [n]); those whose y is NaN are left out.

        Args:
            x, y: values, and not yet places.
            class_: of page.css, which has its color.
        """
        has_value = ~np.isnan(y)
        points = zip(x[has_value], y[has_value], strict=True)
        places = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in points)
        return tag("polyline", points=places, class_=f"line {class_}")

    def picture(self, label: str, *parts: Markup) -> Markup:
        """Return all parts as one SVG, with a label for whoever cannot see it.

        It has a `viewBox` and no size: it is as wide as its place on the page, and prints sharp.
        """
        box = f"0 0 {self.width:g} {self.height:g}"
        return tag("svg", Markup("").join(parts), viewBox=box, role="img", aria_label=label)


def tag(name: str, *children: str, **attributes: str | float) -> Markup:
    """Return an element. Text and attributes are escaped; numbers have two decimals at most.

    An underscore in a name stands for a hyphen, and one at its end is dropped: `class` is a word
    of Python.

    >>> tag("text", "a < b", x=1.5, class_="grid", text_anchor="end")
    Markup('<text x="1.5" class="grid" text-anchor="end">a &lt; b</text>')
    """
    # Attributes keep the order in which they are given, so that pages can be compared.
    words = []
    for key, value in attributes.items():
        text = value
        if isinstance(value, float):
            text = f"{value:.2f}".rstrip("0").rstrip(".")
        attribute = key.rstrip("_").replace("_", "-")
        words.append(f' {attribute}="{escape(text)}"')
    inside = Markup("").join(escape(child) for child in children)
    return Markup(f"<{name}{''.join(words)}>{inside}</{name}>")


def text_width(text: str) -> float:
    """Return about how wide a text is in a picture: page.css writes all of them in 12 units.

    >>> text_width("cat"), text_width("CAT"), text_width("\u732b")
    (21.0, 27.0, 12.0)
    """
    width = 0.0
    for letter in text:
        if unicodedata.east_asian_width(letter) in "WF":  # as high as wide
            width += 12
        elif letter.isupper():
            width += 9
        else:
            width += 7
    return width


def change_mark(x: float, before: float, after: float, *, radius: int, title: str) -> Markup:
    """Return how one class changes: a ring where it was, a dot where it is, and a line between.

    Args:
        x, before, after: where in the picture, as `Plane.x` and `Plane.y` say.
        radius: of the ring and the dot.
        title: shown where the pointer rests on it.
    """
    return tag(
        "g",
        tag("title", title),
        tag("line", x1=x, x2=x, y1=before, y2=after, class_="change"),
        tag("circle", cx=x, cy=before, r=radius, class_="was"),
        tag("circle", cx=x, cy=after, r=radius, class_="now"),
    )


def nice_ticks(low: float, high: float) -> list[float]:
    """Return round numbers from low to high, about three to ten of them: multiples of 1, 2 or 5 times a power of 10.

    >>> nice_ticks(0.0, 0.42)
    [0.0, 0.1, 0.2, 0.3, 0.4]
    """
    # The power of ten at or below the span, of which the step is a simple part.
    span = (high - low) or 1.0
    power = 10.0 ** np.floor(np.log10(span))
    # The first of these steps that has at most seven intervals. The span is less than ten powers,
    # so the last may have up to nine.
    for multiple in (0.1, 0.2, 0.5, 1.0):
        step = power * multiple
        if span / step <= 7:
            break
    # A tick at an end is not lost to rounding.
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return logarithms to base 10 of round numbers, from low to high.

    These are 1, 2, 5, 10, 20...; over more than two decades only powers of 10, and over less than
    a quarter of one the numbers between as well.

    >>> [round(10**tick) for tick in log_ticks(0.0, 1.4)]
    [1, 2, 5, 10, 20]
    """
    steps = (1, 2, 5)
    if high - low > 2.2:
        steps = (1,)
    elif high - low < 0.25:
        steps = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    ticks = []
    for power in range(int(np.floor(low)), int(np.ceil(high)) + 1):
        for step in steps:
            tick = power + float(np.log10(step))
            if low <= tick <= high:
                ticks.append(tick)
    return ticks
