"""Pictures of results: as text for a terminal, a small SVG for a notebook, and with matplotlib (extra `[plot]`).

Every `.plot()` ends here: it draws on the Axes it is given or on a new figure, and returns the Axes. Nothing of
matplotlib's settings is changed for anybody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .curve import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .path import GammaPath
    from .tuned import Tuned

_DATED: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
INK, ACCENT, SOFT = "#222222", "#c2410c", "#94a3b8"
NAMED = 40  # classes that can be named below an axis


def text(
    curve: Curve, gamma: float, interval: tuple[float, float] | None = None, *, width: int = 64, height: int = 8
) -> str:
    """The curve in a few lines of characters, each column its mean over a stretch of gammas.

    Below it, ^ marks a gamma and - its interval.

    >>> curve = Curve(np.array([0.0, 0.5, 1.5]), np.array([0.4, 0.2, 0.3]), 2.0)
    >>> print(text(curve, 1.0, (0.6, 1.4), width=16, height=3))
    40.00% |****
    30.00% |            ****
    20.00% |    ********
           +---------------
           0   ----^---   2
    """
    low, high = float(curve.gammas[0]), curve.end
    values = _columns(curve, width)
    top, bottom = values.max(), values.min()
    level = np.rint((top - values) / max(top - bottom, 1e-12) * (height - 1)).astype(int)
    labels = [f"{top - (top - bottom) * i / (height - 1):.2%}" for i in range(height)]
    margin = max(map(len, labels))
    rows = ["".join("*" if level[c] == r else " " for c in range(width)).rstrip() for r in range(height)]
    marks = [" "] * width
    column = lambda g: int(np.clip((g - low) / (high - low) * width, 0, width - 1))  # noqa: E731
    if interval is not None:
        for c in range(column(interval[0]), column(interval[1]) + 1):
            marks[c] = "-"
    marks[column(gamma)] = "^"
    ends = f"{low:g}", f"{high:g}"
    axis = "".join(marks)
    axis = ends[0] + axis[len(ends[0]):] if axis[: len(ends[0])].strip() == "" else axis
    axis = axis[: -len(ends[1])] + ends[1] if axis[-len(ends[1]):].strip() == "" else axis
    blank = " " * margin
    return "\n".join([*(f"{label:>{margin}} |{row}" for label, row in zip(labels, rows, strict=True)),
                      f"{blank} +{'-' * (width - 1)}", f"{blank} {axis}"])


def sparkline(
    curve: Curve, gamma: float | None = None, interval: tuple[float, float] | None = None, *, width: int = 220,
    height: int = 48,
) -> str:
    """The curve as an inline SVG without words, in the color of the text around it; a gamma and its interval marked.

    >>> curve = Curve(np.array([0.0, 1.0]), np.array([0.4, 0.2]), 2.0)
    >>> sparkline(curve, 1.0, (0.5, 1.5), width=4, height=10)
    '<svg width="4" ...<polyline points="0.5,2.0 1.5,2.0 2.5,8.0 3.5,8.0" ...<path d="M2.0 0V10" ...</svg>'
    """
    low, high = float(curve.gammas[0]), curve.end
    values, x = _columns(curve, width), lambda g: (g - low) / (high - low) * width
    heights = height - 2 - (height - 4) * (values - values.min()) / max(np.ptp(values), 1e-12)
    points = " ".join(f"{i + 0.5:.1f},{y:.1f}" for i, y in enumerate(heights))
    label = f"curve over gamma, {_percent(curve.values[0])} at {low:g}, {_percent(curve.values[-1])} at {high:g}"
    a, b = (0.0, 0.0) if interval is None else map(x, interval)
    span = f'<rect x="{a:.1f}" y="0" width="{b - a:.1f}" height="{height}" fill="{ACCENT}" opacity="0.2"/>' * (b > a)
    mark = "" if gamma is None else f'<path d="M{x(gamma):.1f} 0V{height}" stroke="{ACCENT}" stroke-width="1.5"/>'
    return (f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
            f'{span}<polyline points="{points}" fill="none" stroke="currentColor"/>{mark}</svg>')


def draw_path(path: GammaPath, ax: Axes | None = None, *, gamma: float | None = None) -> Axes:
    """Error and balanced error over gamma, every step of them; what they are at 0 and, if given, at a gamma."""
    axes = _axes(ax)
    curves = {"error": (path.error_curve, SOFT, 3.0), "balanced error": (path.balanced_error_curve, _ink(axes), 1.5)}
    for name, (curve, color, width) in curves.items():  # the error is broader, to be seen where the two are one
        stairs(axes, curve, color=color, lw=width, label=name)
        _dots(axes, curve, [0.0] if gamma is None else [0.0, gamma], color)
    if gamma is not None:
        axes.axvline(gamma, color=ACCENT, lw=1.2, label=f"gamma = {gamma:.3f}")
    return _over_gamma(axes, path.range, f"{len(path.labels)} samples, {len(path.counts)} classes")


def draw_tuned(tuned: Tuned, ax: Axes | None = None) -> Axes:
    """The curve of a choice, what was minimized, the chosen gamma and its interval; values at 0 and at gamma."""
    axes = _axes(ax)
    name = "balanced error" if tuned.balanced_error is not None else "mismatch of shares"
    if tuned.interval is not None:
        axes.axvspan(*tuned.interval, color=ACCENT, alpha=0.18, lw=0, label=f"{tuned.level:.0%} interval of gamma")
    if tuned.criterion == "guided":
        stairs(axes, tuned.criterion_curve, color=SOFT, lw=1.2, label="criterion (with mismatch of shares)")
    stairs(axes, tuned.curve, color=_ink(axes), lw=1.5, label=name)
    ends = [_percent(float(tuned.curve.at(gamma))) for gamma in (0.0, tuned.gamma)]
    axes.axvline(tuned.gamma, color=ACCENT, lw=1.2, label=f"chosen: {tuned.gamma:.3f} ({ends[0]} -> {ends[1]})")
    _dots(axes, tuned.curve, [0.0, tuned.gamma], _ink(axes))
    where = "TEST DATA" if tuned.chosen_on == "test" else tuned.chosen_on
    return _over_gamma(axes, (float(tuned.curve.gammas[0]), tuned.curve.end), f"{tuned.n} samples, chosen on {where}")


def draw_norms(
    counts: np.ndarray, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], ax: Axes | None = None, *,
    title: str = "",
) -> Axes:
    """Lengths of the weight vectors against the counts, each class before and after; of several layers, each."""
    axes = _axes(ax)
    for shape, layer in zip("os^Dv" * len(before), before, strict=False):
        of = f", {layer}" if len(before) > 1 else ""
        axes.vlines(counts, before[layer], after[layer], color=SOFT, lw=0.8, alpha=0.6)
        axes.plot(counts, before[layer], shape, color=_ink(axes), mfc="none", ms=5.5, label=f"before{of}")
        axes.plot(counts, after[layer], shape, color=ACCENT, ms=5.5, label=f"after{of}")
    axes.set(xscale="log", ylim=(0, None), xlabel="training samples of the class", ylabel="length of its weight vector")
    _number_plainly(axes, counts)
    return _finish(axes, title, above=len(before) == 1)


def draw_recall(
    recall: np.ndarray, counts: np.ndarray, ax: Axes | None = None, *, after: np.ndarray | None = None,
    names: Sequence[str] | None = None, title: str = "",
) -> Axes:
    """How often each class is found, the most frequent class first; a dot where an adjustment takes it. Of more
    classes than can be named, a dot each and the mean over its neighbors."""
    axes = _axes(ax)
    order, at = np.argsort(-counts, kind="stable"), np.arange(len(counts))
    shown = {"as trained": (recall, SOFT)} | ({} if after is None else {"leveled": (after, ACCENT)})
    if len(counts) > NAMED:
        for label, (values, color) in shown.items():
            axes.plot(at, 100 * values[order], ".", color=color, alpha=0.4, mew=0, clip_on=False)
            axes.plot(at, 100 * _running_mean(values[order], len(at) // 10), color=color, lw=2, label=label)
        axes.set(xlabel=f"class, from {counts.max()} training samples to {counts.min()}; lines are means of neighbors")
    else:
        axes.bar(at, 100 * recall[order], width=0.7, color=SOFT, label="as trained")
        if after is not None:
            axes.plot(at, 100 * after[order], "o", color=ACCENT, ms=5, clip_on=False, label="leveled")
        known = names if names is not None else list(map(str, at))
        titles = [short(known[int(i)]) for i in order]
        upright = max(map(len, titles)) <= max(1, 60 // len(titles))
        labels = [f"{name}\n{n}" if upright else f"{name} ({n})" for name, n in zip(titles, counts[order], strict=True)]
        axes.set_xticks(at, labels, rotation=0 if upright else 90, parse_math=False)
        axes.set(xlabel="class, and its training samples")
    axes.set(ylim=(0, 100), ylabel="found, %")
    return _finish(axes, title, above=True)


def picture(tuned: Tuned, path: str | Path) -> None:
    """The curve of a choice as a file: .png, .svg or .pdf."""
    figure, axes = matplotlib().subplots(figsize=(6.4, 4.2), layout="constrained")
    draw_tuned(tuned, axes)
    save(figure, path)


def stairs(axes: Any, curve: Curve, **style: Any) -> None:
    """Draw a step function, in percent."""
    axes.stairs(100 * curve.values, np.r_[curve.gammas, curve.end], baseline=None, **style)


def save(figure: Any, path: str | Path) -> None:
    """Write a figure and close it; the same figure gives the same bytes."""
    figure.savefig(path, dpi=150, metadata=check_picture(path))
    pyplot().close(figure)


def check_picture(path: str | Path) -> dict[str, None]:
    """That a picture can be written under that name; the metadata that would hold a date, for its format."""
    suffix = Path(path).suffix.lower()
    if suffix not in _DATED:
        raise ValueError(f"{path}: expected a picture as {', '.join(_DATED)}, got {suffix or 'no suffix'}")
    matplotlib()
    return _DATED[suffix]


def pyplot() -> Any:
    """matplotlib's pyplot as the user has set it up."""
    try:
        import matplotlib.pyplot as library
    except ImportError:
        raise ImportError("drawing a picture takes matplotlib; pip install 'levelhead[plot]'") from None
    return library


def matplotlib() -> Any:
    """pyplot, drawing to files only: for a program of its own, which nobody else draws in."""
    library = pyplot()
    library.switch_backend("agg")
    library.rcParams.update({"svg.hashsalt": "levelhead", "axes.spines.top": False, "axes.spines.right": False,
                             "font.size": 10})
    return library


def _axes(ax: Axes | None) -> Any:
    library = pyplot()
    return library.subplots(figsize=(6.4, 4.2), layout="constrained")[1] if ax is None else ax


def _ink(ax: Any) -> Any:
    """The color of the words, which a dark style makes light."""
    return ax.xaxis.label.get_color()


def _over_gamma(ax: Any, reach: tuple[float, float], title: str) -> Any:
    ax.set(xlabel="gamma", ylabel="%", xlim=reach)
    return _finish(ax, title)


def _finish(ax: Any, title: str, *, above: bool = False) -> Any:
    """What all pictures have in common; a short legend goes above. Names come from elsewhere: in them a $ is a $."""
    ax.set_title(title, fontsize="medium", loc="left", parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 2, "borderaxespad": 0} if above else {}
    legend = ax.legend(frameon=False, fontsize="small", **place)
    for words in legend.get_texts():
        words.set_parse_math(False)
    return ax


def _dots(ax: Any, curve: Curve, gammas: Iterable[float], color: Any) -> None:
    inside = [gamma for gamma in gammas if curve.gammas[0] <= gamma <= curve.end]
    ax.plot(inside, 100 * np.asarray(curve.at(inside)), "o", color=color, ms=4.5, clip_on=False, zorder=3)


def _number_plainly(ax: Any, counts: np.ndarray) -> None:
    """1000, not 10^3, on a logarithmic axis: every other count may be named, too, if the counts span little."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    narrow = counts.max() < 20 * counts.min()
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _columns(curve: Curve, width: int) -> np.ndarray:
    """The curve's mean over each of so many stretches of gamma."""
    low, high = float(curve.gammas[0]), curve.end
    fine = np.asarray(curve.at(low + (high - low) * (np.arange(width * 20) + 0.5) / (width * 20)))
    return fine.reshape(width, 20).mean(axis=1)


def _running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """The mean over `width` neighbors, fewer at the ends; a class without a sample is none."""
    there, window = ~np.isnan(values), np.ones(max(1, width))
    sums, sizes = (np.convolve(x, window, "same") for x in (np.where(there, values, 0.0), there))
    return np.divide(sums, sizes, out=np.full(len(values), np.nan), where=sizes > 0)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def short(name: str, most: int = 16) -> str:
    """A name cut to fit."""
    return name if len(name) <= most else name[: most - 1] + "…"
