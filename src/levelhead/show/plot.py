"""Pictures of results with matplotlib (extra `[plot]`).

Every `.plot()` ends here: it draws on the Axes it is given or on a new figure, and returns the Axes. Nothing of
matplotlib's settings is changed for anybody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import atomic
from ..core.curve import Curve
from ..core.errors import LevelheadError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..gamma.path import GammaPath
    from ..gamma.tuned import Tuned

_DATED: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
INK, ACCENT, SOFT = "#222222", "#c2410c", "#94a3b8"
NAMED = 40  # classes that can be named below an axis


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
    if tuned.interval is not None:
        axes.axvspan(*tuned.interval, color=ACCENT, alpha=0.18, lw=0, label=f"{tuned.level:.0%} interval of gamma")
    if tuned.criterion == "guided":
        stairs(axes, tuned.criterion_curve, color=SOFT, lw=1.2, label="criterion (with mismatch of shares)")
    stairs(axes, tuned.curve, color=_ink(axes), lw=1.5, label=tuned.title)
    ends = [percent(float(tuned.curve.at(gamma))) for gamma in (0.0, tuned.gamma)]
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
    figure, axes = headless().subplots(figsize=(6.4, 4.2), layout="constrained")
    draw_tuned(tuned, axes)
    save(figure, path)


def stairs(axes: Any, curve: Curve, **style: Any) -> None:
    """Draw a step function, in percent."""
    axes.stairs(100 * curve.values, np.r_[curve.gammas, curve.end], baseline=None, **style)


def save(figure: Any, *paths: str | Path, dpi: int = 150) -> None:
    """Write a figure to each of the files and close it; the same figure gives the same bytes."""
    for path in paths:
        metadata = check_picture(path)
        with atomic.replacing(path) as file:
            figure.savefig(file, format=Path(path).suffix[1:].lower(), dpi=dpi, metadata=metadata)
    pyplot().close(figure)


def check_picture(path: str | Path) -> dict[str, None]:
    """That a picture can be written under that name; the metadata that would hold a date, for its format."""
    suffix = Path(path).suffix.lower()
    if suffix not in _DATED:
        raise LevelheadError(f"{path}: expected a picture as {', '.join(_DATED)}, got {suffix or 'no suffix'}")
    headless()
    return _DATED[suffix]


def pyplot() -> Any:
    """matplotlib's pyplot as the user has set it up."""
    try:
        import matplotlib.pyplot as library
    except ImportError:
        raise ImportError("drawing a picture takes matplotlib; pip install 'levelhead[plot]'") from None
    return library


def headless() -> Any:
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


def _running_mean(values: np.ndarray, width: int) -> np.ndarray:
    """The mean over `width` neighbors, fewer at the ends; a class without a sample is none."""
    there, window = ~np.isnan(values), np.ones(max(1, width))
    sums, sizes = (np.convolve(x, window, "same") for x in (np.where(there, values, 0.0), there))
    return np.divide(sums, sizes, out=np.full(len(values), np.nan), where=sizes > 0)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def short(name: str, most: int = 16) -> str:
    """A name cut to fit."""
    return name if len(name) <= most else name[: most - 1] + "…"
