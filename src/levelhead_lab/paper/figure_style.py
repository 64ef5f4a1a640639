"""What all figures of the reproduction share: their sources, their captions and their style."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from levelhead.show.plot import headless, save
from levelhead.support.errors import LevelheadError

from ..lab.snapshot import Snapshot
from .cells import Record, full_runs

# Okabe and Ito's colors, which the color-blind can tell apart; classes and ratios use viridis, from dark to light.
BASELINE, WVN, GREEN, GRAY, LIGHT = "#0072B2", "#D55E00", "#009E73", "#6b7280", "#d1d5db"


class MissingSource(LevelheadError):
    """A source of a figure that is missing."""


@dataclass(frozen=True)
class Sources:
    """What figures are drawn from."""

    records: Sequence[Record]
    # `baseline` and `wvn`, of CIFAR-10 at ratio 100.
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    two_features: dict[str, Any] | None = None  # what bench/paper/two_features.py wrote
    tsne: dict[str, Any] | None = None  # what `tsne_points` returned

    def runs(self, column: str, method: str = "baseline") -> list[Record]:
        found = full_runs(self.records, column, method)
        if not found:
            raise MissingSource(f"no record of {column}:{method}")
        return found

    def snapshot(self, method: str) -> Snapshot:
        if method not in self.snapshots:
            raise MissingSource(f"no snapshot of {method}")
        return self.snapshots[method]


@dataclass(frozen=True)
class Drawn:
    """A figure, and a caption that says what is drawn from how many networks."""

    figure: Any
    caption: str


def panels(
    across: int = 1, down: int = 1, *, height: float, **options: Any
) -> tuple[Any, np.ndarray]:
    options |= {"figsize": (7.2, height), "layout": "constrained", "squeeze": False}
    figure, axes = headless().subplots(down, across, **options)
    for one in axes.flat:
        one.tick_params(labelsize=8.5, color=LIGHT)
        one.spines[:].set_color(LIGHT)
        one.xaxis.label.set_size(9)
        one.yaxis.label.set_size(9)
    return figure, axes


def set_title(axes: Any, text: str) -> None:
    axes.set_title(text, fontsize=9.5, loc="left")


def set_legend(
    figure: Any, handles: Any, labels: Sequence[str], *, ncols: int, at: str = "upper", **look: Any
) -> None:
    figure.legend(
        handles,
        labels,
        loc=f"outside {at} center",
        ncols=ncols,
        frameon=False,
        fontsize=8.5,
        **look,
    )


def shades(n: int) -> list[Any]:
    return [headless().get_cmap("viridis")(at) for at in np.linspace(0.0, 0.86, n)]


def label_line_ends(
    axes: Any, x: float, ends: Mapping[str, tuple[float, Any]], *, gap: float
) -> None:
    """Write each line's name next to its end, {name: (y, color)}, so that no name covers another."""
    size = 8.5
    axes.get_figure().draw_without_rendering()  # before this, the size of the axes is not known
    low, high = axes.get_ylim()
    apart = (high - low) * size * 1.2 / 72 * axes.get_figure().dpi / axes.get_window_extent().height
    names = sorted(ends, key=lambda name: ends[name][0])
    places = move_apart([ends[name][0] for name in names], apart)
    places = [y - max(0.0, places[-1] - high) for y in places]
    for name, y in zip(names, places, strict=True):
        look = {
            "color": ends[name][1],
            "fontsize": size,
            "va": "center",
            "ha": "left",
            "annotation_clip": False,
        }
        axes.annotate(name, (x, ends[name][0]), xytext=(x + gap, y), textcoords="data", **look)


def move_apart(values: Sequence[float], apart: float) -> list[float]:
    """Move sorted values as little as possible, so that neighbors are at least `apart` from each other."""
    groups: list[
        list[float]
    ] = []  # [center, members]: as in isotonic regression, groups that touch are merged
    for value in values:
        groups.append([value, 1])
        while (
            len(groups) > 1
            and groups[-1][0] - groups[-2][0] < apart * (groups[-1][1] + groups[-2][1]) / 2
        ):
            (a, n), (b, m) = groups[-2:]
            groups[-2:] = [[(a * n + b * m) / (n + m), n + m]]
    return [
        round(center + apart * (i - (n - 1) / 2), 12) for center, n in groups for i in range(int(n))
    ]


def network_count(records: Sequence[Record]) -> str:
    seeds = ", ".join(str(record["seed"]) for record in records)
    if len(records) == 1:
        return f"one network (seed {seeds})"
    return f"{len(records)} networks (seeds {seeds})"


def save_figure(figure: Any, out: Path, name: str) -> list[Path]:
    """Write a figure as SVG and PNG; the same figure gives the same bytes."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.svg", out / f"{name}.png"]
    save(figure, *paths, dpi=120)
    return paths
