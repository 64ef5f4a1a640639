"""Pictures of a curve over gamma: in text for a terminal, in a file with matplotlib (extra `[plot]`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .curve import Curve

if TYPE_CHECKING:
    from .tuned import Tuned

_DATED: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
INK, ACCENT, SOFT = "#222222", "#c2410c", "#94a3b8"


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
    fine = np.asarray(curve.at(low + (high - low) * (np.arange(width * 20) + 0.5) / (width * 20)))
    values = fine.reshape(width, 20).mean(axis=1)
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


def picture(tuned: Tuned, path: str | Path) -> None:
    """The curve of a choice as a file: .png, .svg or .pdf."""
    pyplot = matplotlib()
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    name = "balanced error" if tuned.balanced_error is not None else "mismatch of shares"
    stairs(axes, tuned.curve, color=INK, label=name)
    if tuned.criterion == "guided":
        stairs(axes, tuned.criterion_curve, color=SOFT, label="criterion (with mismatch of shares)")
    if tuned.interval is not None:
        axes.axvspan(*tuned.interval, color=ACCENT, alpha=0.12, lw=0, label=f"{tuned.level:.0%} interval")
    axes.axvline(tuned.gamma, color=ACCENT, lw=1.2, label=f"chosen: {tuned.gamma:.3f}")
    where = "TEST DATA" if tuned.chosen_on == "test" else tuned.chosen_on
    axes.set(xlabel="gamma", ylabel="%", title=f"{tuned.n} samples, chosen on {where}",
             xlim=(float(tuned.curve.gammas[0]), tuned.curve.end))
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    save(figure, path)


def stairs(axes: Any, curve: Curve, **style: Any) -> None:
    """Draw a step function, in percent."""
    axes.stairs(100 * curve.values, np.r_[curve.gammas, curve.end], baseline=None, **style)


def save(figure: Any, path: str | Path) -> None:
    """Write a figure and close it; the same figure gives the same bytes."""
    import matplotlib.pyplot as pyplot

    figure.savefig(path, dpi=150, metadata=check_picture(path))
    pyplot.close(figure)


def check_picture(path: str | Path) -> dict[str, None]:
    """That a picture can be written under that name; the metadata that would hold a date, for its format."""
    suffix = Path(path).suffix.lower()
    if suffix not in _DATED:
        raise ValueError(f"{path}: expected a picture as {', '.join(_DATED)}, got {suffix or 'no suffix'}")
    matplotlib()
    return _DATED[suffix]


def matplotlib() -> Any:
    """pyplot, drawing to files only."""
    try:
        import matplotlib as library
    except ImportError:
        raise ImportError("drawing a picture takes matplotlib; pip install 'levelhead[plot]'") from None
    library.use("agg")
    library.rcParams.update({"svg.hashsalt": "levelhead", "axes.spines.top": False, "axes.spines.right": False,
                             "font.size": 10})
    import matplotlib.pyplot as pyplot

    return pyplot
