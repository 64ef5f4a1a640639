"""What all figures of the reproduction share: their sources, their captions and their style.

A figure is a function of `Sources` that returns `Drawn`. It takes its axes from `panels`, which gives all figures one
width and one look, draws on them, and names its lines at their ends (`label_line_ends`) rather than in a legend where
there is room. Nothing here knows what is drawn.

matplotlib is imported when the first figure is drawn (`show.plot.headless`), since it is not needed otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from levelhead.show.plot import headless, save
from levelhead.support.errors import LevelheadError

from ..lab.snapshot import Snapshot
from .cells import Record, full_runs
from .measured_fields import TsneMap, TwoFeatures

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import ColorType

# Okabe and Ito's colors, which the color-blind can tell apart; classes and ratios use viridis, from dark to light.
BASELINE = "#0072B2"
WVN = "#D55E00"
GREEN = "#009E73"
GRAY = "#6b7280"
LIGHT = "#d1d5db"  # axes, grids and other lines that are no data


class MissingSource(LevelheadError):
    """A source of a figure that is missing; its message says which, and stands on the page instead of the figure."""


@dataclass(frozen=True)
class Sources:
    """What figures are drawn from: whatever of it is there.

    A figure asks for what it needs by `runs` and `snapshot`, which raise `MissingSource`; a figure that can do without
    a line asks `cells.full_runs` for its records.
    """

    records: Sequence[Record]
    # `baseline` and `wvn`, of CIFAR-10 at ratio 100.
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    two_features: TwoFeatures | None = None  # what bench/paper/two_features.py wrote
    tsne: TsneMap | None = None  # what `tsne_points` returned

    def runs(self, column: str, method: str = "baseline") -> list[Record]:
        """Return the records of a cell, ordered by seed; raise MissingSource if there are none.

        Args:
            column: such as `cifar10:100`.
            method: the networks are those trained on all training images, without a hold-out.
        """
        runs = full_runs(self.records, column, method)
        if not runs:
            raise MissingSource(f"no record of {column}:{method}")
        return runs

    def snapshot(self, method: str) -> Snapshot:
        """Return a whole network; raise MissingSource if it is not there."""
        if method not in self.snapshots:
            raise MissingSource(f"no snapshot of {method}")
        return self.snapshots[method]


@dataclass(frozen=True)
class Drawn:
    """A figure, and a caption that says what is drawn from how many networks.

    The caption is made with the figure, so that it cannot speak of networks that are not drawn.
    """

    figure: Figure
    caption: str


def panels(
    across: int = 1,
    down: int = 1,
    *,
    height: float,
    sharex: bool | Literal["row"] = False,
    sharey: bool = False,
    width_ratios: Sequence[float] | None = None,
    height_ratios: Sequence[float] | None = None,
) -> tuple[Figure, np.ndarray]:
    """Return a figure of one width and its axes [down, across].

    Args:
        across, down: panels.
        height: of the figure, in inches; its width is 7.2.
        sharex, sharey, width_ratios, height_ratios: as of `pyplot.subplots`.
    """
    figure, axes = headless().subplots(
        down,
        across,
        sharex=sharex,
        sharey=sharey,
        width_ratios=width_ratios,
        height_ratios=height_ratios,
        figsize=(7.2, height),
        layout="constrained",
        squeeze=False,
    )
    # Axes in light gray, so that the data are what is seen first.
    for panel in axes.flat:
        panel.tick_params(labelsize=8.5, color=LIGHT)
        panel.spines[:].set_color(LIGHT)
        panel.xaxis.label.set_size(9)
        panel.yaxis.label.set_size(9)
    return figure, axes


def set_title(axes: Axes, text: str) -> None:
    """Write the title of a panel, on its left."""
    axes.set_title(text, fontsize=9.5, loc="left")


def set_legend(
    figure: Figure,
    handles: Sequence[Artist],
    labels: Sequence[str],
    *,
    ncols: int,
    loc: Literal["outside upper center", "outside lower center"] = "outside upper center",
    handletextpad: float | None = None,
    columnspacing: float | None = None,
) -> None:
    """Put one legend for all panels above or below them, where it covers nothing.

    Args:
        figure: whose panels make room for it.
        handles, labels: what is explained, and the words.
        ncols: columns of the legend.
        loc: above or below the panels.
        handletextpad, columnspacing: distances, as of `Figure.legend`; its own if None.
    """
    figure.legend(
        handles,
        labels,
        loc=loc,
        ncols=ncols,
        frameon=False,
        fontsize=8.5,
        handletextpad=handletextpad,
        columnspacing=columnspacing,
    )


def shades(n: int) -> list[ColorType]:
    """Return n colors of an order, such as classes by count: from dark to light, without the lightest yellow."""
    return [headless().get_cmap("viridis")(at) for at in np.linspace(0.0, 0.86, n)]


def label_line_ends(
    axes: Axes, x: float, ends: Mapping[str, tuple[float, ColorType]], *, gap: float
) -> None:
    """Write each line's name next to its end, so that no name covers another.

    Args:
        axes: with the lines drawn and its limits set, on which the height of a text depends.
        x: where all lines end.
        ends: by name, the height y at which the line ends, and its color.
        gap: between a line and its name, in units of the x axis.
    """
    size = 8.5
    figure = cast("Figure", axes.get_figure())  # a whole one: `panels` made both
    figure.draw_without_rendering()  # before this, the size of the axes is not known
    # The height of a line of text, in units of the y axis: points to pixels, then to a share of the axes.
    low, high = axes.get_ylim()
    text_pixels = size * 1.2 / 72 * figure.dpi
    apart = (high - low) * text_pixels / axes.get_window_extent().height
    names = sorted(ends, key=lambda name: ends[name][0])
    places = move_apart([ends[name][0] for name in names], apart)
    # The highest name must not stand in the title.
    above_the_axes = max(0.0, places[-1] - high)
    places = [y - above_the_axes for y in places]
    for name, y in zip(names, places, strict=True):
        end, color = ends[name]
        axes.annotate(
            name,
            (x, end),
            xytext=(x + gap, y),
            textcoords="data",
            color=color,
            fontsize=size,
            va="center",
            ha="left",
            annotation_clip=False,  # the names stand outside of the axes
        )


def move_apart(values: Sequence[float], apart: float) -> list[float]:
    """Move sorted values as little as possible, so that neighbors are at least `apart` from each other.

    >>> move_apart([0.0, 1.0, 1.5], 1.0)
    [-0.166666666667, 0.833333333333, 1.833333333333]
    """
    # As in isotonic regression: values that would touch become a group, evenly spaced around their mean. A group that
    # grows may touch the one before it, and is merged with it.
    groups: list[tuple[float, int]] = []  # mean and number of its values
    for value in values:
        center = value
        members = 1
        while groups:
            center_before, members_before = groups[-1]
            if center - center_before >= apart * (members + members_before) / 2:
                break
            groups.pop()
            total = members + members_before
            center = (center_before * members_before + center * members) / total
            members = total
        groups.append((center, members))
    # From groups back to values: evenly around the center, half of them below it.
    places = []
    for center, members in groups:
        for i in range(members):
            places.append(round(center + apart * (i - (members - 1) / 2), 12))
    return places


def network_count(records: Sequence[Record]) -> str:
    """Say how many networks a figure shows, and their seeds.

    >>> network_count([{"seed": 0}, {"seed": 2}])
    '2 networks (seeds 0, 2)'
    """
    seeds = ", ".join(str(record["seed"]) for record in records)
    if len(records) == 1:
        return f"one network (seed {seeds})"
    return f"{len(records)} networks (seeds {seeds})"


def save_figure(figure: Figure, out: Path, name: str) -> list[Path]:
    """Write a figure as SVG and PNG; the same figure gives the same bytes.

    Args:
        figure: is closed afterwards, since pyplot would keep it in memory.
        out: the folder; made if it is not there.
        name: of both files, without their endings.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.svg", out / f"{name}.png"]
    save(figure, *paths, dpi=120)
    return paths
