"""Figures of weight norms: over epochs, by ratio, with step imbalance, and with over-sampling."""

from collections.abc import Sequence

import numpy as np

from . import figure_style as style
from .cells import Record, full_runs
from .claims import count_correlation
from .figure_style import Drawn, MissingSource, Sources
from .norm_claims import STEP_COLUMNS
from .tables import DATA_TITLES, column_title, table1_columns


def draw_norms_over_epochs(sources: Sources, column: str = "cifar10:100") -> Drawn:
    found = [r for r in sources.runs(column) if r["norms_over_epochs"]["epochs"]]
    if not found:
        raise MissingSource(f"no record of {column}:baseline with norms over epochs")
    first = found[0]
    epochs = first["norms_over_epochs"]["epochs"]
    counts = first["counts"]
    norms = np.array(first["norms_over_epochs"]["norms"])
    figure, ((above,), (below,)) = style.panels(
        1, 2, height=5.0, sharex=True, height_ratios=[3, 1.2]
    )
    colors = style.shades(norms.shape[1])
    for values, color in zip(norms.T, colors, strict=True):
        above.plot(epochs, values, color=color, lw=1.6)
    above.set(ylabel="norm of the weight vector", ylim=(0, None), xlim=(0, epochs[-1]))
    for record in found:
        log, (width, alpha) = (
            record["norms_over_epochs"],
            (1.6, 1) if record is first else (0.8, 0.5),
        )
        each = [count_correlation(record, row) for row in log["norms"]]
        below.plot(log["epochs"], each, color=style.BASELINE, lw=width, alpha=alpha)
    below.set(
        ylabel="rank correlation\nwith the count",
        xlabel="epoch",
        ylim=(-1.05, 1.05),
        yticks=[-1, 0, 1],
    )
    below.axhline(0, color=style.LIGHT, lw=0.8, zorder=0)
    for at in [epoch for epoch in first["identity"]["recipe"]["milestones"] if epoch < epochs[-1]]:
        for one in (above, below):
            one.axvline(at, color=style.LIGHT, lw=0.8, ls=(0, (4, 3)), zorder=0)
        near = {
            "xycoords": ("data", "axes fraction"),
            "xytext": (0, 3),
            "textcoords": "offset points",
        }
        above.annotate(" lr decays", (at, 0), fontsize=8, color=style.GRAY, **near)
    names = {
        f"{n:,} samples" if k == 0 else f"{n:,}": (norms[-1, k], colors[k])
        for k, n in enumerate(counts)
    }
    style.label_line_ends(above, epochs[-1], names, gap=0.012 * epochs[-1])
    style.set_title(above, f"{column_title(column)}: each class by its training samples")
    return Drawn(
        figure,
        f"Norms of the baseline's weight vectors on {column_title(column)} (seed {first['seed']}, below bold), and "
        f"their rank correlation with the counts: {style.network_count(found)}.",
    )


def draw_relative_norms(sources: Sources) -> Drawn:
    of = {
        data: [c for c in table1_columns(data) if full_runs(sources.records, c, "baseline")]
        for data in ("cifar10", "cifar100")
    }
    of = {data: columns for data, columns in of.items() if len(columns) > 1}
    if not of:
        raise MissingSource("no records of the baseline at two ratios of one data set")
    figure, axes = style.panels(len(of), height=3.4, sharey=True)
    networks_drawn = 0
    for panel, (data, columns) in zip(axes[0], of.items(), strict=True):
        ends, every = {}, table1_columns(data)
        for color, column in zip(style.shades(len(every)), every, strict=True):
            if column not in columns:
                continue
            found = sources.runs(column)
            networks_drawn += len(found)
            values = _relative_norms(found)
            at = np.arange(1, len(values) + 1)
            if len(values) > 20:  # neighbors in groups of five: single classes vary
                panel.plot(at, values, color=color, lw=0.5, alpha=0.35)
                at, values = (
                    x[: len(x) // 5 * 5].reshape(-1, 5).mean(axis=1) for x in (at, values)
                )
            panel.plot(at, values, color=color, lw=1.7, marker="o" if len(at) <= 10 else None, ms=3)
            ends[f"ratio {column.split(':')[1]}" if not ends else column.split(":")[1]] = (
                values[-1],
                color,
            )
        classes = len(found[0]["counts"])
        panel.set(xlabel="class, the most frequent first", xlim=(1, classes), ylim=(0, 1.05))
        panel.set_xticks([1, classes // 2, classes])
        style.set_title(panel, DATA_TITLES[data])
        style.label_line_ends(panel, classes, ends, gap=0.02 * classes)
    axes[0, 0].set_ylabel("norm / largest norm")
    return Drawn(
        figure,
        f"Norm of each class over the largest, baseline, mean over seeds ({networks_drawn} networks)"
        + "; on CIFAR-100 bold lines are means of five neighbors" * ("cifar100" in of)
        + ".",
    )


def draw_step_norms(sources: Sources) -> Drawn:
    found = [sources.runs(column) for column in STEP_COLUMNS]
    figure, axes = style.panels(len(STEP_COLUMNS), height=3.0, sharey=True)
    for panel, column, same in zip(axes[0], STEP_COLUMNS, found, strict=True):
        values = _relative_norms(same)
        n = np.sort(same[0]["counts"])[::-1]
        at = np.arange(1, len(values) + 1)
        for count, color in ((n.max(), style.BASELINE), (n.min(), style.WVN)):
            part = n == count
            panel.plot(at[part], values[part], "o", ms=2.6, color=color, alpha=0.7, mew=0)
            panel.hlines(values[part].mean(), at[part][0], at[part][-1], color=color, lw=1.5)
            place = {
                "xy": (at[part].mean(), 0.04),
                "xycoords": ("data", "axes fraction"),
                "ha": "center",
            }
            panel.annotate(f"{count} samples each", fontsize=8.5, color=color, **place)
        panel.set(xlabel="class", ylim=(0, 1.05), xlim=(0, len(values) + 1))
        style.set_title(panel, f"Tiny ImageNet, step, ratio {column.rsplit(':', 1)[1]}")
    axes[0, 0].set_ylabel("norm / largest norm")
    caption = "Norm of each class over the largest, baseline on Tiny ImageNet with step imbalance; lines are means."
    return Drawn(figure, caption)


def draw_over_sampling(sources: Sources, column: str = "cifar10:100") -> Drawn:
    rows = {
        "over-sampled": (sources.runs(column, "over-sample"), style.WVN),
        "to the largest": (
            full_runs(sources.records, column, "over-sample-largest"),
            style.shades(3)[1],
        ),
        "baseline": (sources.runs(column), style.BASELINE),
    }
    rows["balanced data"] = (
        full_runs(sources.records, f"{column.split(':')[0]}:1", "baseline"),
        style.GRAY,
    )
    rows = {name: row for name, row in rows.items() if row[0]}
    figure, ((panel,),) = style.panels(height=3.2)
    ends = {}
    for name, (found, color) in rows.items():
        values = _relative_norms(found)
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
    panel.set_xticks(range(1, len(counts) + 1), [f"{n:,}" for n in sorted(counts, reverse=True)])
    style.label_line_ends(panel, len(counts), ends, gap=0.1)
    style.set_title(panel, column_title(column))
    drawn = sum(len(found) for found, _ in rows.values())
    caption = f"Norm of each class over the largest on {column_title(column)}, with and without over-sampling"
    return Drawn(figure, f"{caption} ({drawn} networks).")


def _relative_norms(records: Sequence[Record]) -> np.ndarray:
    return np.mean(
        [
            np.asarray(r["norms"])[np.argsort(-np.asarray(r["counts"]), kind="stable")]
            / max(r["norms"])
            for r in records
        ],
        axis=0,
    )
