"""Figures that the paper lacks: the recipe `frontier` at a glance, and the rules epoch by epoch."""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import numpy as np

from levelhead.core.rules import Shift

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
from .post_hoc import RESCALE_STRENGTHS
from .tables import DATA_TITLES, tables

METHOD_COLORS = {"baseline": BASELINE, "wvn": WVN, "balanced-softmax": GREEN, "ldam-drw": "#CC79A7"}


def draw_frontier(records: Sequence[Record]) -> Drawn:
    """Draw a group of methods at each ratio: as trained, after RS, and after the shift, one above the other."""
    table = tables()["frontier"]
    methods = table["methods"]
    networks_drawn = 0
    figure, axes = panels(2, height=3.4)
    for panel, data in zip(axes[0], ("cifar10", "cifar100"), strict=True):
        columns = [column for column in table["columns"] if f"/{data}:" in column]
        for group, column in enumerate(columns):
            for place, method in enumerate(methods):
                alone = cell(records, column, method).errors
                rs = cell(records, column, method, HELD_OUT).errors
                shift = shift_cell(records, column, method, HELD_OUT).errors
                if not (alone and rs and shift):
                    continue
                networks_drawn += len(alone)
                x = group + 0.19 * (place - (len(methods) - 1) / 2)
                color = METHOD_COLORS[method]
                panel.plot([x, x], [mean(alone), mean(shift)], color=color, lw=1, zorder=1)
                panel.plot(x, mean(alone), "o", ms=6, mfc="white", mec=color, mew=1.4)
                panel.plot(x, mean(rs), "_", ms=9, mew=1.8, color=color)
                panel.plot(x, mean(shift), "o", ms=6, color=color)
        # What others published is at the first ratio, 100.
        published = [(row[data], row["title"]) for row in table["published"] if data in row]
        lowest, title = min(published)
        panel.plot([-0.42, 0.42], [lowest, lowest], "--", color=GRAY, lw=1)
        panel.annotate(title, (0.44, lowest), color=GRAY, fontsize=8, va="center")
        panel.set_xticks(
            range(len(columns)), [f"ratio {column.split(':')[1]}" for column in columns]
        )
        panel.set(xlim=(-0.55, len(columns) - 0.45), ylabel="error, %")
        panel.grid(axis="y", color=LIGHT, lw=0.5)
        panel.tick_params(axis="x", length=0)
        set_title(panel, DATA_TITLES[data])
    if not networks_drawn:
        raise MissingSource("no network of the recipe frontier has a record")
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
        "and after the shift, at the strength of a hold-out; dashed, the lowest published error.",
    )


def draw_epochs(runs: Sequence[dict[str, Any]]) -> Drawn:
    """Draw a row for each network of WVN: on the left each rule over epochs, on the right RS over epoch and gamma.

    Args:
        runs: what bench/paper/rule_epochs.py measured: of each run its ratio, its method and its epochs.
    """
    epochs_of = {(run["ratio"], run["method"]): run["epochs"] for run in runs}
    ratios = [ratio for ratio, method in epochs_of if method == "wvn"]
    if not ratios:
        raise MissingSource("WVN was not measured epoch by epoch")
    published = {row["method"]: row["published"] for row in tables()["table1"]["rows"]}["wvn+rs"]
    figure, axes = panels(2, len(ratios), height=0.5 + 2.5 * len(ratios), width_ratios=(1.5, 1))
    lines: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
        "as trained": (GRAY, lambda row: row["error"]),
        "RS": (WVN, lambda row: row["rescale"]["error"]),
        Shift.name: (GREEN, lambda row: row["shift"]["error"]),
    }
    handles: list[Any] = []
    for (left, right), ratio in zip(axes, ratios, strict=True):
        epochs = epochs_of[ratio, "wvn"]
        number = [row["epoch"] for row in epochs]
        handles = []
        lowest = []
        for color, error_of in lines.values():
            errors = [100 * error_of(row) for row in epochs]
            handles += left.plot(number, errors, color=color, lw=1.3)
            lowest.append(min(errors))
        released = epochs_of.get((ratio, "wvn-released"), ())
        released_errors = [100 * row["rescale"]["error"] for row in released]
        handles += left.plot([row["epoch"] for row in released], released_errors, ":", color=WVN)
        published_error = published[tables()["table1"]["columns"].index(f"cifar10:{ratio:g}")]
        handles.append(left.axhline(published_error, ls="--", color=GRAY, lw=1))
        best = min(epochs, key=lambda row: row["error"])
        handles += left.plot(best["epoch"], 100 * best["rescale"]["error"], "o", color=WVN, ms=5)
        low = min(published_error, *lowest)
        # A tenth of the epochs is cut off: a few stand far out.
        top = sorted(100 * row["error"] for row in epochs)[-len(epochs) // 10]
        left.set(
            ylim=(low - 0.06 * (top - low), top),
            ylabel=f"ratio {ratio:g}\nerror, %",
            xlim=(number[0], number[-1]),
        )
        left.grid(axis="y", color=LIGHT, lw=0.5)
        grid = 100 * np.array([row["rescale"]["curve"] for row in epochs]).T
        seen = right.imshow(
            grid, origin="lower", interpolation="nearest", aspect="auto", cmap="viridis", vmax=np.quantile(grid, 0.8),
            extent=(number[0] - 0.5, number[-1] + 0.5, RESCALE_STRENGTHS[0], RESCALE_STRENGTHS[-1]),
        )  # fmt: skip
        right.plot(number, [row["rescale"]["gamma"] for row in epochs], color="white", lw=1)
        right.set(ylabel="gamma", ylim=(RESCALE_STRENGTHS[0], RESCALE_STRENGTHS[-1]))
        bar = figure.colorbar(seen, ax=right, pad=0.02)
        bar.ax.tick_params(labelsize=8)
        bar.outline.set_visible(False)
    set_title(axes[0, 0], "WVN, each rule at its best strength")
    set_title(axes[0, 1], "WVN+RS, error over gamma")
    for panel in axes[-1]:
        panel.set_xlabel("epoch")
    labels = [
        *lines,
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
