"""Figures that the paper lacks: the recipe `frontier` at a glance, and the rules epoch by epoch.

`draw_frontier` is drawn from records, `draw_epochs` from results/epochs.json. Both raise `MissingSource` if there is
nothing to draw; `page.write_figures` then says so in their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from ..methods import METHODS
from .beyond_tables import shift_cell
from .cells import HELD_OUT, Record, cell
from .figure_style import (
    BASELINE,
    GRAY,
    GREEN,
    LIGHT,
    WVN,
    Drawn,
    MissingSource,
    panels,
    set_legend,
    set_title,
)
from .measured_fields import EpochErrors, EpochsRun
from .post_hoc import RESCALE_STRENGTHS
from .tables import DATA_TITLES, published_errors, repeated_methods, tables

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHOD_COLORS = {"baseline": BASELINE, "wvn": WVN, "balanced-softmax": GREEN, "ldam-drw": "#CC79A7"}


SPACING = (
    0.19  # between the methods of a group, in units of the x axis, on which groups are 1 apart
)


def draw_frontier(records: Sequence[Record]) -> Drawn:
    """Draw a group of methods at each ratio: as trained, after RS, and after the shift, one above the other.

    Args:
        records: all there are; a method without one of its three errors is left out.

    Raises:
        MissingSource: if no method at any ratio has them.
    """
    methods = repeated_methods("frontier")
    networks_drawn = 0
    figure, axes = panels(2, height=3.4)
    for panel, data in zip(axes[0], ("cifar10", "cifar100"), strict=True):
        columns = [c for c in tables()["frontier"]["columns"] if f"/{data}:" in c]
        for group, column in enumerate(columns):
            for place, method in enumerate(methods):
                # Around the tick of the group, the same number on both sides.
                x = group + SPACING * (place - (len(methods) - 1) / 2)
                networks_drawn += _draw_network(panel, x, records, column, method)
        _draw_lowest_published(panel, data)
        ticks = [f"ratio {column.split(':')[1]}" for column in columns]
        panel.set_xticks(range(len(columns)), ticks)
        panel.set(xlim=(-0.55, len(columns) - 0.45), ylabel="error, %")
        panel.grid(axis="y", color=LIGHT, lw=0.5)
        panel.tick_params(axis="x", length=0)
        set_title(panel, DATA_TITLES[data])
    if not networks_drawn:
        raise MissingSource("no network of the recipe frontier has a record")
    # A legend of marks that are drawn nowhere: colors are methods, shapes are adjustments.
    panel = axes[0, 0]
    handles = [
        *(panel.plot([], [], "o", color=METHOD_COLORS[method], ms=6)[0] for method in methods),
        panel.plot([], [], "o", mfc="white", mec=GRAY, mew=1.4, ms=6)[0],
        panel.plot([], [], "_", color=GRAY, ms=9, mew=1.8, lw=0)[0],
        panel.plot([], [], "o", color=GRAY, ms=6)[0],
        panel.plot([], [], "--", color=GRAY, lw=1)[0],
    ]
    labels = [
        *(METHODS[method].title for method in methods),
        "as trained",
        "RS",
        "shift",
        "lowest published",
    ]
    set_legend(figure, handles, labels, ncols=4)
    return Drawn(
        figure,
        f"Test error under the recipe frontier, mean over seeds ({networks_drawn} networks): as trained, after RS "
        "and after the shift, at the strength of a hold-out; dashed, the lowest published error of a ResNet-32 "
        "trained from scratch.",
    )


def _draw_network(
    panel: Axes, x: float, records: Sequence[Record], column: str, method: str
) -> int:
    """Draw the three errors of a cell at one place: a ring as trained, a dash after RS, a dot after the shift.

    Args:
        panel: where to draw.
        x: the place, in units of the axis of groups.
        records: all there are.
        column, method: of the cell.

    Returns:
        Of how many networks the errors are means; 0, and nothing is drawn, if one of the three is missing.
    """
    alone = cell(records, column, method).errors
    rs = cell(records, column, method, HELD_OUT).errors
    shift = shift_cell(records, column, method, HELD_OUT).errors
    if not (alone and rs and shift):
        return 0
    color = METHOD_COLORS[method]
    panel.plot([x, x], [mean(alone), mean(shift)], color=color, lw=1, zorder=1)
    panel.plot(x, mean(alone), "o", ms=6, mfc="white", mec=color, mew=1.4)
    panel.plot(x, mean(rs), "_", ms=9, mew=1.8, color=color)
    panel.plot(x, mean(shift), "o", ms=6, color=color)
    return len(alone)


def _draw_lowest_published(panel: Axes, data: str) -> None:
    """Draw the lowest error that others published, with its name, across the first group: it is at ratio 100.

    Args:
        panel: of one data set.
        data: its name, the key of its errors in tables.toml; methods without an error on it do not count.
    """
    published = []
    for row in tables()["frontier"]["published"]:
        error = row.get(data)
        if error is not None:
            published.append((error, row["title"]))
    lowest, title = min(published)
    panel.plot([-0.42, 0.42], [lowest, lowest], "--", color=GRAY, lw=1)
    panel.annotate(title, (0.44, lowest), color=GRAY, fontsize=8, va="center")


def draw_epochs(runs: Sequence[EpochsRun]) -> Drawn:
    """Draw a row for each network of WVN: on the left each rule over epochs, on the right RS over epoch and gamma.

    Args:
        runs: what bench/paper/rule_epochs.py measured: of each run its ratio, its method and its epochs.
    """
    # A row for each ratio at which WVN was measured; the baseline is in the file too, and not drawn.
    epochs_of = {(run["ratio"], run["method"]): run["epochs"] for run in runs}
    ratios = [ratio for ratio, method in epochs_of if method == "wvn"]
    if not ratios:
        raise MissingSource("WVN was not measured epoch by epoch")
    figure, axes = panels(2, len(ratios), height=0.5 + 2.5 * len(ratios), width_ratios=(1.5, 1))
    # The rows have the same legend: that of the last one serves.
    handles: list[Artist] = []
    for (left, right), ratio in zip(axes, ratios, strict=True):
        epochs = epochs_of[ratio, "wvn"]
        released = epochs_of.get((ratio, "wvn-released"), [])
        published = published_errors("wvn+rs")[f"cifar10:{ratio:g}"]
        handles = _draw_rules_over_epochs(left, epochs, released, published)
        left.set_ylabel(f"ratio {ratio:g}\nerror, %")
        _draw_gamma_over_epochs(figure, right, epochs)
    set_title(axes[0, 0], "WVN, each rule at its best strength")
    set_title(axes[0, 1], "WVN+RS, error over gamma")
    for panel in axes[-1]:
        panel.set_xlabel("epoch")
    labels = [
        "as trained",
        "RS",
        "shift",
        "RS, order as released",
        "WVN+RS, published",
        "RS on the best epoch as trained",
    ]
    set_legend(figure, handles, labels, ncols=3)
    return Drawn(
        figure,
        f"Test error of WVN on {DATA_TITLES['cifar10']} after every epoch since the rate first fell, a network a row; "
        "on the right RS over epoch and gamma, and the best gamma as a white line.",
    )


def _draw_rules_over_epochs(
    panel: Axes,
    epochs: Sequence[EpochErrors],
    released: Sequence[EpochErrors],
    published: float,
) -> list[Artist]:
    """Draw the error over epochs as trained, after RS and after the shift, each at its best strength on test.

    Args:
        panel: where to draw.
        epochs: of WVN.
        released: of WVN with the order of steps of the released code; RS of it is dotted. It may be empty.
        published: the error of WVN+RS, in percent.

    Returns:
        What a legend shows, in the order of the labels of `draw_epochs`.
    """
    number = [row["epoch"] for row in epochs]
    lines = {
        GRAY: [100 * row["error"] for row in epochs],
        WVN: [100 * row["rescale"]["error"] for row in epochs],
        GREEN: [100 * row["shift"]["error"] for row in epochs],
    }
    handles: list[Artist] = []
    for color, errors in lines.items():
        handles += panel.plot(number, errors, color=color, lw=1.3)
    released_errors = [100 * row["rescale"]["error"] for row in released]
    handles += panel.plot([row["epoch"] for row in released], released_errors, ":", color=WVN)
    handles.append(panel.axhline(published, ls="--", color=GRAY, lw=1))
    best = min(epochs, key=lambda row: row["error"])
    handles += panel.plot(best["epoch"], 100 * best["rescale"]["error"], "o", color=WVN, ms=5)
    low = min(published, *(min(errors) for errors in lines.values()))
    # A tenth of the epochs is cut off: a few stand far out.
    top = sorted(100 * row["error"] for row in epochs)[-len(epochs) // 10]
    panel.set(ylim=(low - 0.06 * (top - low), top), xlim=(number[0], number[-1]))
    panel.grid(axis="y", color=LIGHT, lw=0.5)
    return handles


def _draw_gamma_over_epochs(figure: Figure, panel: Axes, epochs: Sequence[EpochErrors]) -> None:
    """Draw the error after RS as a map, epochs to the right and gamma upward, with the best gamma as a white line.

    Args:
        figure: to which the bar of colors belongs.
        panel: where to draw.
        epochs: of one network, each with its error at the gammas of `RESCALE_STRENGTHS`.
    """
    number = [row["epoch"] for row in epochs]
    grid = 100 * np.array([row["rescale"]["curve"] for row in epochs]).T  # [gammas, epochs]
    low = RESCALE_STRENGTHS[0]
    high = RESCALE_STRENGTHS[-1]
    image = panel.imshow(
        grid,
        origin="lower",
        interpolation="nearest",
        aspect="auto",
        cmap="viridis",
        # The highest fifth has one color: errors at a large gamma would leave none for the rest.
        vmax=float(np.quantile(grid, 0.8)),
        # A pixel reaches half an epoch to both sides.
        extent=(number[0] - 0.5, number[-1] + 0.5, low, high),
    )
    panel.plot(number, [row["rescale"]["gamma"] for row in epochs], color="white", lw=1)
    panel.set(ylabel="gamma", ylim=(low, high))
    bar = figure.colorbar(image, ax=panel, pad=0.02)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
