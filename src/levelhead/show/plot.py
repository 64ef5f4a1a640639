"""Plots with matplotlib (extra `plot`), for the `.plot()` of results: on the Axes given, or on a new figure.

`draw_errors`, `draw_norms`, `draw_recall` and `draw_changes` take plain numbers and return Axes, in
whatever style the user has set up. `save_plot` and `save` are for files of our own: they draw
without a screen, and the same numbers give the same bytes.

Every one of them goes the same way: `_axes` gives the user's Axes or those of a new figure, the marks are drawn,
and `_finish` sets title and legend. matplotlib is imported only when something is drawn, so that all else works
without it. Names of classes are drawn with `parse_math=False`, as a `$` in a name is no formula.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..path.curve import Curve
from ..support import atomic
from ..support.errors import LevelheadError, visible
from ..support.extras import install_command
from .style import ACCENT, SOFT, running_mean, short_names, strength_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import ColorType

Norms = Mapping[str, np.ndarray]  # of each layer, [K]
BeforeAfter = tuple[np.ndarray, np.ndarray]  # [K] each
_MOST_NAMED = 40  # classes whose names a picture has room for
_SHORT_ARROW = 1.5  # points; below that, two dots say it
# The formats of pictures, each with the metadata that keeps the date out of a file.
_DATELESS: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def draw_errors(
    error: Curve,
    balanced_error: Curve,
    ax: Axes | None = None,
    *,
    gamma: float | None = None,
    title: str = "",
) -> Axes:
    """Draw every step of the error and the balanced error over gamma.

    Args:
        error, balanced_error: as shares; they are drawn in percent.
        ax: where to draw; a new figure if None.
        gamma: one to mark, with a line and a dot on each curve; 0 is always marked with dots.
        title: above the plot.

    Returns:
        The Axes, for more to be drawn on them; so do all functions here.

    Raises:
        ImportError: matplotlib is not installed; it says which extra has it.
    """
    axes = _axes(ax)
    marked = [0.0]
    if gamma is not None:
        marked.append(gamma)
    # The first is drawn under the second: the error is broader, so that it shows where the two coincide.
    curves = {
        "error": (error, SOFT, 3.0),
        "balanced error": (balanced_error, _text_color(axes), 1.5),
    }
    for name, (curve, color, width) in curves.items():
        draw_steps(axes, curve, color=color, lw=width, label=name)
        _draw_dots(axes, curve, marked, color)
    if gamma is not None:
        axes.axvline(gamma, color=ACCENT, lw=1.2, label=f"gamma = {strength_text(gamma)}")
    axes.set(xlabel="gamma", ylabel="%", xlim=(float(error.gammas[0]), error.end))
    return _finish(axes, title)


def draw_norms(
    counts: np.ndarray, before: Norms, after: Norms, ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """Draw the norm of each class's weight vector against its count, before and after.

    A thin line joins the two of each class. Counts are on a logarithmic axis, as long tails span decades.

    Args:
        counts: [K], training samples of each class.
        before, after: {layer: [K]}; of several layers, each has a marker of its own.
        ax: where to draw; a new figure if None.
        title: above the plot.
    """
    axes = _axes(ax)  # says what to install if matplotlib is missing
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    # Markers are used again from the sixth layer on.
    for shape, layer in zip("os^Dv" * len(before), before, strict=False):
        suffix = ""
        if len(before) > 1:
            suffix = f", {layer}"
        axes.vlines(counts, before[layer], after[layer], color=SOFT, lw=0.8, alpha=0.6)
        axes.plot(
            counts,
            before[layer],
            shape,
            color=_text_color(axes),
            mfc="none",
            ms=5.5,
            label=f"before{suffix}",
        )
        axes.plot(counts, after[layer], shape, color=ACCENT, ms=5.5, label=f"after{suffix}")
    axes.set(
        xscale="log",
        ylim=(0, None),
        xlabel="training samples of the class",
        ylabel="length of its weight vector",
    )
    # Over a narrow range more ticks, of which each is written as 1000, not 10^3.
    multiples = (1,)
    if counts.max() < 20 * counts.min():
        multiples = (1, 2, 5)
    axes.xaxis.set_major_locator(LogLocator(subs=multiples))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    return _finish(axes, title, above=len(before) == 1)


def draw_recall(
    recall: np.ndarray,
    counts: np.ndarray,
    ax: Axes | None = None,
    *,
    after: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    title: str = "",
) -> Axes:
    """Draw the recall of each class, the most frequent class first.

    Up to 40 classes have a bar each and are named; of more there is a dot for each, and a line of
    running means. It is the picture of imbalance: recalls that fall from left to right.

    Args:
        recall: [K], NaN for a class without samples.
        counts: [K], training samples of each class.
        ax: where to draw; a new figure if None.
        after: [K], recall after an adjustment, drawn beside the first.
        names: of the classes; their indices if None.
        title: above the plot.
    """
    axes = _axes(ax)
    order = np.argsort(-counts, kind="stable")
    shown = [_Recalls("as trained", recall[order], SOFT)]
    if after is not None:
        shown.append(_Recalls("adjusted", after[order], ACCENT))
    if len(counts) > _MOST_NAMED:
        _draw_many_recalls(axes, shown, counts)
    else:
        _draw_named_recalls(axes, shown, counts[order], _titles(order, names))
    axes.set(ylim=(0, 100), ylabel="recall, %")
    return _finish(axes, title, above=True)


class _Recalls(NamedTuple):
    """Recalls [K] to draw, in the order in which classes are shown."""

    label: str  # in the legend
    values: np.ndarray  # shares, NaN where not known
    color: str


def _draw_many_recalls(axes: Axes, shown: list[_Recalls], counts: np.ndarray) -> None:
    """Draw a dot for each class, and a running mean: there are too many to be named.

    Args:
        axes: where to draw.
        shown: one or two sets of recalls, as trained and adjusted.
        counts: [K] in any order; only the largest and the smallest are written.
    """
    at = np.arange(len(counts))
    for recalls in shown:
        axes.plot(
            at, 100 * recalls.values, ".", color=recalls.color, alpha=0.4, mew=0, clip_on=False
        )
        means = running_mean(recalls.values)
        axes.plot(at, 100 * means, color=recalls.color, lw=2, label=recalls.label)
    ends = f"from {counts.max()} training samples to {counts.min()}"
    axes.set(xlabel=f"class, {ends}; lines are means of neighbors")


def _draw_named_recalls(
    axes: Axes, shown: list[_Recalls], counts: np.ndarray, titles: list[str]
) -> None:
    """Draw a bar for each class as trained and, if adjusted, a dot where its recall is then.

    Args:
        axes: where to draw.
        shown: one or two sets of recalls, as trained and adjusted.
        counts, titles: of the classes, in the order in which they are shown.
    """
    at = np.arange(len(counts))
    trained, *adjusted = shown
    axes.bar(at, 100 * trained.values, width=0.7, color=trained.color, label=trained.label)
    for recalls in adjusted:
        dots = 100 * recalls.values
        axes.plot(at, dots, "o", color=recalls.color, ms=5, clip_on=False, label=recalls.label)
    # Short names stand above their counts, side by side; long ones are turned.
    if max(map(len, titles)) <= max(1, 60 // len(titles)):
        labels = [f"{name}\n{n}" for name, n in zip(titles, counts, strict=True)]
        rotation = 0
    else:
        labels = [f"{name} ({n})" for name, n in zip(titles, counts, strict=True)]
        rotation = 90
    axes.set_xticks(at, labels, rotation=rotation, parse_math=False)
    axes.set(xlabel="class, and its training samples")


def draw_changes(
    recall: BeforeAfter,
    precision: BeforeAfter,
    sizes: np.ndarray,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    counted: str = "training samples",
    title: str = "",
) -> Axes:
    """Draw recall and precision of each class before and after as arrows, the most frequent class on top.

    Of many classes, those whose recall changes most. Both are drawn, as a gain in one is paid for in the
    other.

    Args:
        recall, precision: [K] before, and [K] after; NaN where they are not known.
        sizes: [K], how many samples each class has, by which they are in order.
        ax: where to draw; a new figure if None.
        names: of the classes; their indices if None.
        counted: what these samples are.
        title: above the plot.
    """
    # The classes that change most, if there are many; a change that is not known is none.
    change = np.nan_to_num(np.abs(recall[1] - recall[0]), nan=-1.0)
    most = np.argsort(-change, kind="stable")[:_MOST_NAMED]
    shown = most[np.argsort(-sizes[most], kind="stable")]
    axes = _axes(ax, height=max(4.2, 1.2 + 0.3 * len(shown)))
    # Two arrows to a row: recall a little above its middle, precision below. Rows count downward.
    rows = np.arange(len(shown))
    _draw_arrows(axes, rows - 0.17, recall[0][shown], recall[1][shown], ACCENT, "recall after")
    _draw_arrows(
        axes, rows + 0.17, precision[0][shown], precision[1][shown], SOFT, "precision after"
    )
    # A ring without a place: the legend's word for what was before.
    axes.plot([], [], "o", mfc="none", color=_text_color(axes), ms=4.5, label="before")
    titles = _titles(shown, names)
    labels = [f"{name} ({n:.12g})" for name, n in zip(titles, sizes[shown], strict=True)]
    axes.set_yticks(np.arange(len(shown)), labels, parse_math=False)
    axes.set(xlim=(0, 100), ylim=(len(shown) - 0.5, -0.5))
    axes.set(xlabel="%", ylabel=f"class, and its {counted}")
    axes.grid(axis="x", lw=0.4, alpha=0.6)
    if len(shown) < len(sizes):
        axes.set(xlabel=f"%, of the {len(shown)} of {len(sizes)} classes that change most")
    _finish(axes, title, above=True)
    # Over the legend.
    axes.set_title(title, fontsize="medium", loc="left", parse_math=False, pad=22)
    return axes


def _draw_arrows(
    axes: Axes, rows: np.ndarray, before: np.ndarray, after: np.ndarray, color: str, label: str
) -> None:
    """Draw a ring at each share before, a dot at that after, and an arrow between if there is room.

    Args:
        axes: where to draw, in percent from left to right.
        rows: [n], the height of each.
        before, after: [n], shares; nothing is drawn for NaN.
        color, label: of the dots and arrows; the label goes with the dots.
    """
    starts = 100 * before
    ends = 100 * after
    axes.plot(starts, rows, "o", mfc="none", color=color, ms=4.5, clip_on=False)
    axes.plot(ends, rows, "o", color=color, ms=4.5, clip_on=False, label=label)
    for start, end, row in zip(starts, ends, rows, strict=True):
        if abs(end - start) > _SHORT_ARROW:  # False if either is not known
            arrow = {"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 2, "shrinkB": 1}
            axes.annotate("", xy=(end, row), xytext=(start, row), arrowprops=arrow)


def _titles(classes: np.ndarray, names: Sequence[str] | None) -> list[str]:
    """Return a short name of each of these classes; its index if names are not known."""
    if names is None:
        return [str(i) for i in classes]
    return short_names([visible(str(names[int(i)])) for i in classes])


def save_plot(draw: Callable[[], Axes], path: str | Path) -> None:
    """Draw on a new figure and write it to a file: .png, .svg or .pdf.

    Args:
        draw: makes the picture on a figure of its own, such as `tuned.plot`. It is called after the
            backend without a screen is set.
        path: where to; the suffix says the format.

    Raises:
        LevelheadError: a suffix that is none of these.
    """
    headless()
    figure: Any = draw().figure  # a new one is a whole Figure
    save(figure, path)


def draw_steps(axes: Axes, curve: Curve, factor: float = 100, **style: Any) -> None:
    """Draw a step function, in percent unless another factor is given; style as `Axes.stairs` takes it."""
    axes.stairs(factor * curve.values, np.r_[curve.gammas, curve.end], baseline=None, **style)


def save(figure: Figure, *paths: str | Path, dpi: int = 150) -> None:
    """Write a figure to each of the files and close it. The same figure gives the same bytes.

    Each file is written in one step: where writing fails, an older one stays as it was.

    Letters of names that the font lacks are boxes, of which matplotlib would warn one by one.

    Args:
        figure: what to write.
        paths: files ending in .png, .svg or .pdf.
        dpi: of .png, in pixels per inch.
    """
    for path in paths:
        metadata = check_picture(path)
        form = Path(path).suffix[1:].lower()
        with atomic.atomic_open(path) as file, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(file, format=form, dpi=dpi, metadata=metadata)
    pyplot().close(figure)


def check_picture(path: str | Path) -> dict[str, None]:
    """Check that a picture can be written to the path. Return the metadata that keeps the date out of the file."""
    suffix = Path(path).suffix.lower()
    if suffix not in _DATELESS:
        raise LevelheadError(
            f"{path}: expected a picture as {', '.join(_DATELESS)}, got {suffix or 'no suffix'}"
        )
    headless()
    return _DATELESS[suffix]


def pyplot() -> ModuleType:
    """Return matplotlib's pyplot, as the user has set it up; it says what to install if there is none."""
    try:
        import matplotlib.pyplot as library
    except ImportError:
        raise ImportError(f"drawing needs matplotlib; {install_command('plot')}") from None
    return library


def headless() -> ModuleType:
    """Return pyplot set up to draw to files. Only for programs of our own, since it changes settings.

    A user's backend decides whether windows open at all, and is the user's own to set.
    """
    library = pyplot()
    library.switch_backend("agg")
    settings = {
        # matplotlib names parts of an SVG by random numbers, unless it has a salt for them.
        "svg.hashsalt": "levelhead",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 10,
    }
    library.rcParams.update(settings)
    return library


def _axes(ax: Axes | None, height: float = 4.2) -> Axes:
    """Return the Axes given, or those of a new figure of that height in inches."""
    if ax is not None:
        return ax
    return pyplot().subplots(figsize=(6.4, height), layout="constrained")[1]


def _text_color(ax: Axes) -> ColorType:
    """Return the color of the text, which a dark style makes light: black curves would vanish on it."""
    return ax.xaxis.label.get_color()


def _finish(ax: Axes, title: str, *, above: bool = False) -> Axes:
    """Set title and legend. A short legend goes above, where it covers nothing.

    Args:
        ax: what was drawn on, with labels for the legend.
        title: above it, to the left.
        above: whether the legend is so short that it fits beside the title, in one line.
    """
    # Names come from elsewhere, so a $ in them starts no formula.
    ax.set_title(title, fontsize="medium", loc="left", parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    # Where there is room, or in one line above: of as many columns as the first one has entries.
    legend = ax.legend(frameon=False, fontsize="small")
    if above:
        legend = ax.legend(
            frameon=False,
            fontsize="small",
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=len(legend.get_texts()),
            borderaxespad=0,
        )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return ax


def _draw_dots(ax: Axes, curve: Curve, gammas: Iterable[float], color: ColorType) -> None:
    """Draw a dot on a curve at each gamma that is within its range."""
    inside = [gamma for gamma in gammas if curve.gammas[0] <= gamma <= curve.end]
    values = 100 * np.asarray(curve.at(inside))
    ax.plot(inside, values, "o", color=color, ms=4.5, clip_on=False, zorder=3)
