"""Figures of errors: confusion matrices and the error over gamma.

`draw_confusion` (Figure 6) takes whole networks and, from a record, the gamma of a hold-out. `draw_error_over_gamma`
(Figure 7) takes the curves of all records of Table 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from levelhead.core.measure import confusion

from ..lab.snapshot import Snapshot
from ..methods.rs import rescale_head
from .cells import GRID, Record, companion_gamma, full_runs
from .figure_style import (
    BASELINE,
    GRAY,
    LIGHT,
    WVN,
    Drawn,
    MissingSource,
    Sources,
    panels,
    set_legend,
    set_title,
)
from .gamma_claims import WITHIN
from .tables import DATA_TITLES, column_title, table1_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {"baseline": BASELINE, "wvn": WVN}


def draw_confusion(sources: Sources, column: str = "cifar10:100") -> Drawn:
    """Draw Figure 6: what the test images of each class are taken for, in percent, before and after.

    Args:
        sources: the two whole networks, and the records.
        column: that of the networks, whose companion chose gamma.
    """
    baseline = sources.snapshot("baseline")
    wvn = sources.snapshot("wvn")
    gamma = companion_gamma(sources.records, column, "wvn")
    if gamma is None:
        raise MissingSource(f"no record of {column}:wvn with a hold-out, which chooses gamma")
    figure, axes = panels(2, height=4.0, sharey=True)
    # The paper's adjustment, with the gamma that its hold-out chose.
    adjusted = rescale_head(wvn.head, wvn.counts, gamma)
    _draw_matrix(axes[0, 0], "Baseline", baseline.logits("test"), baseline)
    _draw_matrix(axes[0, 1], "WVN+RS", wvn.logits("test", adjusted), wvn)
    # Both matrices have the same rows: they are named once, on the left.
    named = [f"{name}  {n:,}" for name, n in zip(_names(baseline), baseline.counts, strict=True)]
    axes[0, 0].set_yticks(range(len(named)), named)
    axes[0, 0].set_ylabel("true class, training samples")
    return Drawn(
        figure,
        f"Of every class, the percentage taken for each class on {column_title(column)}: baseline, and WVN+RS with "
        f"gamma = {gamma:.2f}, chosen on the hold-out of its companion run; the shipped snapshots.",
    )


def _draw_matrix(panel: Axes, name: str, logits: np.ndarray, snapshot: Snapshot) -> None:
    """Draw one confusion matrix: a row for each true class, in it the shares of what it is taken for, in percent.

    Args:
        panel: where to draw.
        name: of the network, for the title; its error stands behind it.
        logits: [N, K], of the test images, adjusted or not.
        snapshot: with the labels of these images and the names of the classes.
    """
    counted = confusion(logits, snapshot.labels["test"])
    share = 100 * counted / counted.sum(axis=1, keepdims=True)
    panel.imshow(share, cmap="Blues", vmin=0, vmax=100)
    for (row, column), value in np.ndenumerate(share):
        if value < 0.5:  # it would read 0
            continue
        color = "#111827"
        if value > 55:  # on dark blue
            color = "white"
        weight = "normal"
        if row == column:
            weight = "bold"
        panel.text(
            column,
            row,
            f"{value:.0f}",
            ha="center",
            va="center",
            fontsize=7.5,
            color=color,
            fontweight=weight,
        )
    panel.set_xticks(range(len(share)), _names(snapshot), rotation=90)
    panel.set_xlabel("taken for")
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0)
    set_title(panel, f"{name}: error {100 * (1 - np.trace(counted) / counted.sum()):.1f} %")


def draw_error_over_gamma(sources: Sources) -> Drawn:
    """Draw Figure 7: a row of panels for each data set, a panel for each ratio that has both methods.

    A line is the mean curve of all seeds, the triangle on it the gamma that a hold-out chose: how far it is from the
    lowest point is what choosing costs.
    """
    columns = {}  # by data set
    for data in ("cifar10", "cifar100"):
        complete = []
        for column in table1_columns(data, imbalanced=True):
            if all(full_runs(sources.records, column, method) for method in COLORS):
                complete.append(column)
        if complete:
            columns[data] = complete
    if not columns:
        raise MissingSource("no column of Table 1 with records of both baseline and wvn")
    # A row may have fewer panels than another; all are as wide.
    across = max(len(of_data) for of_data in columns.values())
    figure, axes = panels(across, len(columns), height=0.5 + 2.35 * len(columns), sharex="row")
    networks = 0
    for row, (data, of_data) in zip(axes, columns.items(), strict=True):
        _row_over_gamma(row, sources.records, of_data)
        row[0].set_ylabel(f"{DATA_TITLES[data]}\nerror, %")
        for column in of_data:
            networks += sum(len(full_runs(sources.records, column, method)) for method in COLORS)
    figure.supxlabel("gamma", fontsize=9)
    # A legend of lines that are drawn nowhere: colors are methods, gray is what holds for both.
    panel = axes[0, 0]
    handles = [
        *(panel.plot([], [], color=color, lw=2)[0] for color in COLORS.values()),
        panel.plot([], [], color=GRAY, lw=3.2)[0],
        panel.plot([], [], "v", color=GRAY, ms=6.5, lw=0)[0],
    ]
    labels = ["Baseline", "WVN", "within a point of the best", "gamma chosen on a hold-out"]
    set_legend(figure, handles, labels, ncols=4)
    return Drawn(
        figure,
        f"Test error over gamma, baseline and WVN, mean over seeds ({networks} networks); the panels of a row span as "
        "many points of error.",
    )


def _row_over_gamma(row: np.ndarray, records: Sequence[Record], columns: Sequence[str]) -> None:
    """Draw a panel for each column of one data set; all have the same range of gamma and the same span of error.

    Errors of different ratios lie far apart, so that panels cannot share an axis. With one span, a curve that looks
    flatter is flatter.

    Args:
        row: the panels of the data set, at least as many as columns; what is left over stays empty.
        records: all there are.
        columns: of Table 1, which have both methods.
    """
    from matplotlib.ticker import MultipleLocator

    mean_curves: dict[
        str, dict[str, np.ndarray]
    ] = {}  # by column and method, error in percent, mean over seeds
    for column in columns:
        mean_curves[column] = {}
        for method in COLORS:
            curves = [record["curve"] for record in full_runs(records, column, method)]
            mean_curves[column][method] = 100 * np.mean(curves, axis=0)
    # All panels span as many points as the deepest fall from gamma 0, and some room.
    falls = []
    for curves in mean_curves.values():
        falls.append(max(curve[0] for curve in curves.values()) - _least(curves))
    span = 4 + max(falls)
    # They end at the last gamma whose error is still inside.
    reaches = []
    for curves in mean_curves.values():
        for curve in curves.values():
            reaches.append(GRID[curve <= _least(curves) + span].max())
    reach = max(reaches)
    for panel in row[len(columns) :]:
        panel.set_axis_off()
    for panel, (column, curves) in zip(row, mean_curves.items(), strict=False):
        for method, curve in curves.items():
            _draw_curve(panel, curve, companion_gamma(records, column, method), COLORS[method])
        low = _least(curves) - 1
        panel.set(ylim=(low, low + span), xlim=(0, reach))
        points_between_ticks = 5
        if span < 12:
            points_between_ticks = 2
        panel.yaxis.set_major_locator(MultipleLocator(points_between_ticks))
        panel.xaxis.set_major_locator(MultipleLocator(_tick_distance(reach)))
        panel.grid(axis="y", color=LIGHT, lw=0.5)
        set_title(panel, f"ratio {column.split(':')[1]}")


def _draw_curve(panel: Axes, curve: np.ndarray, gamma: float | None, color: str) -> None:
    """Draw an error over gamma, bold within a point of the best, with a mark at a gamma that was chosen.

    Args:
        panel: where to draw.
        curve: error in percent at the gammas of `cells.GRID`.
        gamma: that of the hold-out; None if there is no companion.
        color: of the method.
    """
    panel.plot(GRID, curve, color=color, lw=1)
    good = np.where(curve <= curve.min() + 100 * WITHIN, curve, np.nan)
    panel.plot(GRID, good, color=color, lw=3.2, solid_capstyle="butt")
    if gamma is not None:
        error = np.interp(gamma, GRID, curve)
        panel.plot(gamma, error, "v", color=color, ms=8.5, mec="white", mew=1, zorder=4)


def _tick_distance(reach: float) -> float:
    """Return the distance of ticks on an axis of gamma that ends at `reach`: two to four ticks on a narrow panel.

    >>> _tick_distance(2.0), _tick_distance(1.0), _tick_distance(0.5)
    (1.0, 0.5, 0.2)
    """
    if reach > 1.2:
        return 1.0
    if reach > 0.6:
        return 0.5
    return 0.2


def _least(curves: Mapping[str, np.ndarray]) -> float:
    """Return the lowest error of any of the curves of a panel.

    >>> _least({"baseline": np.array([30.0, 24.0]), "wvn": np.array([29.0, 25.0])})
    24.0
    """
    return min(float(curve.min()) for curve in curves.values())


def _names(snapshot: Snapshot) -> list[str]:
    """Return the names of the classes, or their numbers if they have none."""
    return [str(name) for name in snapshot.head.names or range(snapshot.head.classes)]
