"""Figures of weight norms: over epochs, by ratio, with step imbalance, and with over-sampling.

All four are drawn from records. Norms are drawn over the largest one of their network, except over epochs, where their
growth is the point; classes stand from frequent to rare (`_relative_norms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import figure_style as style
from .cells import Record, full_runs
from .claims import count_correlation
from .figure_style import Drawn, MissingSource, Sources
from .norm_claims import STEP_COLUMNS
from .tables import DATA_TITLES, column_title, table1_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import ColorType

_FEW_CLASSES = 20  # of more, the line of single classes is too rough to follow


def draw_norms_over_epochs(sources: Sources, column: str = "cifar10:100") -> Drawn:
    """Draw Figure 1: above, the norms of one network; below, how well those of every seed follow the counts.

    A network with more than 20 classes would not do: its record has the norms of every fifth class.
    """
    runs = [run for run in sources.runs(column) if run["norms_over_epochs"]["epochs"]]
    if not runs:
        raise MissingSource(f"no record of {column}:baseline with norms over epochs")
    first = runs[0]
    figure, ((above,), (below,)) = style.panels(
        1, 2, height=5.0, sharex=True, height_ratios=[3, 1.2]
    )
    ends = _draw_norms(above, first)
    _draw_correlations(below, runs)
    last_epoch = first["norms_over_epochs"]["epochs"][-1]
    for milestone in first["identity"]["recipe"]["milestones"]:
        if milestone < last_epoch:
            _mark_decay(above, below, milestone)
    # Last, since the place of a name depends on the limits of the axes.
    style.label_line_ends(above, last_epoch, ends, gap=0.012 * last_epoch)
    style.set_title(above, f"{column_title(column)}: each class by its training samples")
    return Drawn(
        figure,
        f"Norms of the baseline's weight vectors on {column_title(column)} (seed {first['seed']}, below bold), and "
        f"their rank correlation with the counts: {style.network_count(runs)}.",
    )


def _draw_norms(panel: Axes, run: Record) -> dict[str, tuple[float, ColorType]]:
    """Draw a line for each class of one network, from frequent and dark to rare and light.

    Returns:
        By the name of each line, the height at which it ends, and its color. A line is named by the samples of its
        class; only the first name has the unit.
    """
    epochs = run["norms_over_epochs"]["epochs"]
    norms = np.array(run["norms_over_epochs"]["norms"])  # [epochs, K]
    colors = style.shades(norms.shape[1])
    for values, color in zip(norms.T, colors, strict=True):
        panel.plot(epochs, values, color=color, lw=1.6)
    panel.set(ylabel="norm of the weight vector", ylim=(0, None), xlim=(0, epochs[-1]))
    ends = {}
    for k, n in enumerate(run["counts"]):
        name = f"{n:,}"
        if k == 0:
            name += " samples"
        ends[name] = (norms[-1, k], colors[k])
    return ends


def _draw_correlations(panel: Axes, runs: Sequence[Record]) -> None:
    """Draw the rank correlation of norms with counts over epochs, a line for each network, the first one bold.

    The first is the network whose norms stand above. The axis is all that a rank correlation can be, -1 to 1.
    """
    for run in runs:
        log = run["norms_over_epochs"]
        correlations = [count_correlation(run, row) for row in log["norms"]]
        width = 0.8
        opacity = 0.5
        if run is runs[0]:
            width = 1.6
            opacity = 1.0
        panel.plot(log["epochs"], correlations, color=style.BASELINE, lw=width, alpha=opacity)
    panel.set(
        ylabel="rank correlation\nwith the count",
        xlabel="epoch",
        ylim=(-1.05, 1.05),
        yticks=[-1, 0, 1],
    )
    panel.axhline(0, color=style.LIGHT, lw=0.8, zorder=0)


def _mark_decay(above: Axes, below: Axes, epoch: int) -> None:
    """Draw a dashed line through both panels where the learning rate falls, with a word at its foot.

    Args:
        above, below: the two panels, which share the axis of epochs.
        epoch: a milestone of the recipe.
    """
    for panel in (above, below):
        panel.axvline(epoch, color=style.LIGHT, lw=0.8, ls=(0, (4, 3)), zorder=0)
    above.annotate(
        " lr decays",
        (epoch, 0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=8,
        color=style.GRAY,
    )


def draw_relative_norms(sources: Sources) -> Drawn:
    """Draw Figure 2: a panel for each data set, in it a line for each ratio, classes from frequent to rare.

    A data set with records of one ratio alone is left out: the figure is about how lines part with the ratio.
    """
    columns_of = {}  # by data set, those that have records
    for data in ("cifar10", "cifar100"):
        trained = [c for c in table1_columns(data) if full_runs(sources.records, c, "baseline")]
        if len(trained) > 1:
            columns_of[data] = trained
    if not columns_of:
        raise MissingSource("no records of the baseline at two ratios of one data set")
    figure, axes = style.panels(len(columns_of), height=3.4, sharey=True)
    networks_drawn = 0
    for panel, (data, columns) in zip(axes[0], columns_of.items(), strict=True):
        ends = {}
        classes = 0
        # A ratio has the same color whether or not the others have records.
        every_column = table1_columns(data)
        for color, column in zip(style.shades(len(every_column)), every_column, strict=True):
            if column not in columns:
                continue
            runs = sources.runs(column)
            networks_drawn += len(runs)
            values = _relative_norms(runs)
            classes = len(values)
            end = _draw_ratio(panel, values, color)
            # Only the first line says what the numbers are.
            name = column.split(":")[1]
            if not ends:
                name = f"ratio {name}"
            ends[name] = (end, color)
        panel.set(xlabel="class, the most frequent first", xlim=(1, classes), ylim=(0, 1.05))
        panel.set_xticks([1, classes // 2, classes])
        style.set_title(panel, DATA_TITLES[data])
        style.label_line_ends(panel, classes, ends, gap=0.02 * classes)
    axes[0, 0].set_ylabel("norm / largest norm")
    caption = f"Norm of each class over the largest, baseline, mean over seeds ({networks_drawn} networks)"
    if "cifar100" in columns_of:
        caption += "; on CIFAR-100 bold lines are means of five neighbors"
    return Drawn(figure, f"{caption}.")


def _draw_ratio(panel: Axes, values: np.ndarray, color: ColorType) -> float:
    """Draw the relative norms of one ratio as a line.

    Of many classes two lines are drawn: a faint one of all, and a bold one of the means of five neighbors.

    Args:
        panel: where to draw.
        values: [K], the most frequent class first.
        color: of the ratio.

    Returns:
        The height at which the line ends, where its name goes.
    """
    at = np.arange(1, len(values) + 1)
    if len(values) > _FEW_CLASSES:  # a thin line, and a bold one of groups of five
        panel.plot(at, values, color=color, lw=0.5, alpha=0.35)
        at = _means_of_five(at)
        values = _means_of_five(values)
    marker = None
    if len(at) <= 10:
        marker = "o"
    panel.plot(at, values, color=color, lw=1.7, marker=marker, ms=3)
    return values[-1]


def _means_of_five(values: np.ndarray) -> np.ndarray:
    """Return the means of neighbors in groups of five; what is left at the end is dropped.

    >>> _means_of_five(np.arange(12))
    array([2., 7.])
    """
    whole = len(values) // 5 * 5
    return values[:whole].reshape(-1, 5).mean(axis=1)


def draw_step_norms(sources: Sources) -> Drawn:
    """Draw the supplement's first figure: a dot for each class, frequent ones first, and the mean of both groups.

    A panel for each ratio of Table 2 with step imbalance; both are needed.
    """
    # Asked for before anything is drawn: both columns must be there.
    runs_of = [sources.runs(column) for column in STEP_COLUMNS]
    figure, axes = style.panels(len(STEP_COLUMNS), height=3.0, sharey=True)
    # Two counts, one of the frequent and one of the rare half, are two groups of dots with a line at their mean.
    for panel, column, runs in zip(axes[0], STEP_COLUMNS, runs_of, strict=True):
        values = _relative_norms(runs)
        n = np.sort(runs[0]["counts"])[::-1]
        at = np.arange(1, len(values) + 1)
        for count, color in ((n.max(), style.BASELINE), (n.min(), style.WVN)):
            part = n == count
            panel.plot(at[part], values[part], "o", ms=2.6, color=color, alpha=0.7, mew=0)
            panel.hlines(values[part].mean(), at[part][0], at[part][-1], color=color, lw=1.5)
            panel.annotate(
                f"{count} samples each",
                (at[part].mean(), 0.04),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=8.5,
                color=color,
            )
        panel.set(xlabel="class", ylim=(0, 1.05), xlim=(0, len(values) + 1))
        style.set_title(panel, f"Tiny ImageNet, step, ratio {column.rsplit(':', 1)[1]}")
    axes[0, 0].set_ylabel("norm / largest norm")
    caption = "Norm of each class over the largest, baseline on Tiny ImageNet with step imbalance; lines are means."
    return Drawn(figure, caption)


def draw_over_sampling(sources: Sources, column: str = "cifar10:100") -> Drawn:
    """Draw the supplement's second figure: norms without over-sampling and with it, by both of its readings.

    The baseline and over-sampling must be there, the other lines may be: over-sampling to the largest, and the baseline
    on balanced data, to which over-sampling would like to come.
    """
    records = sources.records
    balanced = f"{column.split(':')[0]}:1"
    rows = {
        "over-sampled": (sources.runs(column, "over-sample"), style.WVN),
        "to the largest": (full_runs(records, column, "over-sample-largest"), style.shades(3)[1]),
        "baseline": (sources.runs(column), style.BASELINE),
        "balanced data": (full_runs(records, balanced, "baseline"), style.GRAY),
    }
    # What has no records is not drawn.
    rows = {name: (runs, color) for name, (runs, color) in rows.items() if runs}
    figure, ((panel,),) = style.panels(height=3.2)
    ends = {}
    for name, (runs, color) in rows.items():
        values = _relative_norms(runs)
        at = np.arange(1, len(values) + 1)
        panel.plot(at, values, color=color, lw=1.7, marker="o", ms=3.5)
        ends[name] = (values[-1], color)
    counts = rows["baseline"][0][0]["counts"]
    panel.set(
        xlabel="training samples of the class",
        ylabel="norm / largest norm",
        ylim=(0, 1.05),
        xlim=(1, len(counts)),
    )
    # Classes are named by their counts, in the order of the lines.
    panel.set_xticks(range(1, len(counts) + 1), [f"{n:,}" for n in sorted(counts, reverse=True)])
    style.label_line_ends(panel, len(counts), ends, gap=0.1)
    style.set_title(panel, column_title(column))
    drawn = sum(len(runs) for runs, _ in rows.values())
    caption = f"Norm of each class over the largest on {column_title(column)}, with and without over-sampling"
    return Drawn(figure, f"{caption} ({drawn} networks).")


def _relative_norms(records: Sequence[Record]) -> np.ndarray:
    """Return each class's norm over the largest, the most frequent class first, mean over the records, [K].

    Over the largest of each network, so that a network with large norms does not count for more. Classes with equal
    counts stay in their order, as under step imbalance.

    >>> _relative_norms([{"norms": [1.0, 2.0], "counts": [10, 90]}])
    array([1. , 0.5])
    """
    rows = []
    for record in records:
        norms = np.asarray(record["norms"])
        by_count = np.argsort(-np.asarray(record["counts"]), kind="stable")
        rows.append(norms[by_count] / norms.max())
    return np.mean(rows, axis=0)
