"""Plots with matplotlib (extra `plot`), for the `.plot()` of results: on the Axes given, or on a new figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..path.curve import Curve
from ..support import atomic
from ..support.errors import LevelheadError
from ..support.extras import install_command
from .style import ACCENT, SOFT, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Norms = Mapping[str, np.ndarray]  # of each layer, [K]
BeforeAfter = tuple[np.ndarray, np.ndarray]  # [K] each
_MOST_ARROWS = 40  # classes that a picture of arrows has room for
_SHORT_ARROW = 1.5  # points; below that, two dots say it
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
    """Draw every step of the error and the balanced error over gamma. Dots mark gamma = 0 and the gamma given."""
    axes = _axes(ax)
    curves = {
        "error": (error, SOFT, 3.0),
        "balanced error": (balanced_error, _text_color(axes), 1.5),
    }
    # The error is broader, so that it shows where the two coincide.
    for name, (curve, color, width) in curves.items():
        draw_steps(axes, curve, color=color, lw=width, label=name)
        _draw_dots(axes, curve, [0.0] if gamma is None else [0.0, gamma], color)
    if gamma is not None:
        axes.axvline(gamma, color=ACCENT, lw=1.2, label=f"gamma = {gamma:.3f}")
    return _finish(axes, title, over_gamma=error)


def draw_norms(
    counts: np.ndarray, before: Norms, after: Norms, ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """Draw the norm of each class's weight vector against its count, before and after, for each layer."""
    axes = _axes(ax)  # says what to install if matplotlib is missing
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for shape, layer in zip("os^Dv" * len(before), before, strict=False):
        suffix = f", {layer}" if len(before) > 1 else ""
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
    narrow = counts.max() < 20 * counts.min()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
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
    """Draw the recall of each class, the most frequent class first, and with `after` its recall after an adjustment."""
    axes = _axes(ax)
    order = np.argsort(-counts, kind="stable")
    at = np.arange(len(counts))
    shown = {"as trained": (recall, SOFT)}
    if after is not None:
        shown["adjusted"] = (after, ACCENT)
    if len(counts) > 40:  # too many to be named: a dot each, with a running mean
        for label, (values, color) in shown.items():
            axes.plot(at, 100 * values[order], ".", color=color, alpha=0.4, mew=0, clip_on=False)
            # Over a tenth of the classes, fewer at the ends; those without a sample (NaN) are left out.
            known = ~np.isnan(values[order])
            window = np.ones(len(at) // 10)
            sums = np.convolve(np.where(known, values[order], 0.0), window, "same")
            sizes = np.convolve(known, window, "same")
            means = np.divide(sums, sizes, out=np.full(len(at), np.nan), where=sizes > 0)
            axes.plot(at, 100 * means, color=color, lw=2, label=label)
        ends = f"from {counts.max()} training samples to {counts.min()}"
        axes.set(xlabel=f"class, {ends}; lines are means of neighbors")
    else:
        axes.bar(at, 100 * recall[order], width=0.7, color=SOFT, label="as trained")
        if after is not None:
            axes.plot(
                at, 100 * after[order], "o", color=ACCENT, ms=5, clip_on=False, label="adjusted"
            )
        titles = [str(i) if names is None else short(names[int(i)]) for i in order]
        upright = max(map(len, titles)) <= max(1, 60 // len(titles))
        labels = [
            f"{name}\n{n}" if upright else f"{name} ({n})"
            for name, n in zip(titles, counts[order], strict=True)
        ]
        axes.set_xticks(at, labels, rotation=0 if upright else 90, parse_math=False)
        axes.set(xlabel="class, and its training samples")
    axes.set(ylim=(0, 100), ylabel="recall, %")
    return _finish(axes, title, above=True)


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

    Of many classes, those whose recall changes most.

    Args:
        recall, precision: [K] before, and [K] after; NaN where they are not known.
        sizes: [K], how many samples each class has, by which they are in order.
        counted: what these samples are.
    """
    change = np.nan_to_num(np.abs(recall[1] - recall[0]), nan=-1.0)
    most = np.argsort(-change, kind="stable")[:_MOST_ARROWS]
    shown = most[np.argsort(-sizes[most], kind="stable")]
    axes = _axes(ax, height=max(4.2, 1.2 + 0.3 * len(shown)))
    for what, (before, after), lift, color in (
        ("recall", recall, -0.17, ACCENT),
        ("precision", precision, 0.17, SOFT),
    ):
        at = np.arange(len(shown)) + lift
        starts = 100 * before[shown]
        ends = 100 * after[shown]
        axes.plot(starts, at, "o", mfc="none", color=color, ms=4.5, clip_on=False)
        axes.plot(ends, at, "o", color=color, ms=4.5, clip_on=False, label=f"{what} after")
        for start, end, row in zip(starts, ends, at, strict=True):
            if abs(end - start) > _SHORT_ARROW:  # False if either is not known
                arrow = {"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 2, "shrinkB": 1}
                axes.annotate("", xy=(end, row), xytext=(start, row), arrowprops=arrow)
    axes.plot([], [], "o", mfc="none", color=_text_color(axes), ms=4.5, label="before")
    titles = [str(i) if names is None else short(names[int(i)]) for i in shown]
    labels = [f"{name} ({n:g})" for name, n in zip(titles, sizes[shown], strict=True)]
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


def save_plot(draw: Callable[[], Axes], path: str | Path) -> None:
    """Draw on a new figure and write it to a file: .png, .svg or .pdf."""
    headless()
    save(draw().figure, path)


def draw_steps(axes: Any, curve: Curve, factor: float = 100, **style: Any) -> None:
    """Draw a step function, in percent unless another factor is given."""
    axes.stairs(factor * curve.values, np.r_[curve.gammas, curve.end], baseline=None, **style)


def save(figure: Any, *paths: str | Path, dpi: int = 150) -> None:
    """Write a figure to each of the files and close it. The same figure gives the same bytes."""
    for path in paths:
        metadata = check_picture(path)
        with atomic.atomic_open(path) as file:
            figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=dpi, metadata=metadata)
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


def pyplot() -> Any:
    """Return matplotlib's pyplot as the user has set it up."""
    try:
        import matplotlib.pyplot as library
    except ImportError:
        raise ImportError(f"drawing needs matplotlib; {install_command('plot')}") from None
    return library


def headless() -> Any:
    """Return pyplot set up to draw to files. Only for programs of our own, since it changes settings."""
    library = pyplot()
    library.switch_backend("agg")
    settings = {
        "svg.hashsalt": "levelhead",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 10,
    }
    library.rcParams.update(settings)
    return library


def _axes(ax: Axes | None, height: float = 4.2) -> Any:
    if ax is not None:
        return ax
    return pyplot().subplots(figsize=(6.4, height), layout="constrained")[1]


def _text_color(ax: Any) -> Any:
    """Return the color of the text, which a dark style makes light."""
    return ax.xaxis.label.get_color()


def _finish(ax: Any, title: str, *, over_gamma: Curve | None = None, above: bool = False) -> Any:
    """Set title and legend. A short legend goes above."""
    # Names come from elsewhere, so a $ in them starts no formula.
    if over_gamma is not None:
        ax.set(xlabel="gamma", ylabel="%", xlim=(float(over_gamma.gammas[0]), over_gamma.end))
    ax.set_title(title, fontsize="medium", loc="left", parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
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
    for words in legend.get_texts():
        words.set_parse_math(False)
    return ax


def _draw_dots(ax: Any, curve: Curve, gammas: Iterable[float], color: Any) -> None:
    inside = [gamma for gamma in gammas if curve.gammas[0] <= gamma <= curve.end]
    values = 100 * np.asarray(curve.at(inside))
    ax.plot(inside, values, "o", color=color, ms=4.5, clip_on=False, zorder=3)
