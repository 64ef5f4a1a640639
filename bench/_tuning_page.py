"""The tables and pictures of docs/regret.md, from results/tuning.json. Run by `tuning.py --docs --plot`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from _tuning_cases import gaussians

from levelhead import gamma_path, tune
from levelhead.show.plot import draw_steps, headless, save
from levelhead.show.style import ACCENT, INK, SOFT

DOCS = Path(__file__).parent.parent / "docs"
PAGE, IMAGES = DOCS / "regret.md", DOCS / "images"
STRENGTHS = (0.0, 5.0, 10.0, 20.0, 40.0, float("inf"))
LABELLED = {
    "strength 20": "**default**",
    "strength 0": "balanced error",
    "strength inf": "+ mismatch",
    "11-point grid": "11-point grid",
    "match_prior, hold-out": "`match_prior`, hold-out",
}
UNLABELLED = {
    "match_prior, unlabelled": "`match_prior`, unlabelled",
    "default + unlabelled": "default + unlabelled",
}
TITLES = LABELLED | UNLABELLED
COLORS = {
    "strength 20": ACCENT,
    "strength 0": INK,
    "strength inf": "#0f766e",
    "11-point grid": SOFT,
    "match_prior, unlabelled": "#7c3aed",
    "default + unlabelled": "#db2777",
}


def write(results: dict[str, Any], *, tables: bool, pictures: bool) -> None:
    if tables:
        text = PAGE.read_text()
        for make in (regret, strength, coverage):
            block = rf"(<!-- {make.__name__} -->\n).*?(<!-- /{make.__name__} -->)"
            text, n = re.subn(
                block, lambda m, make=make: f"{m[1]}\n{make(results)}\n\n{m[2]}", text, flags=re.S
            )
            if n != 1:
                raise ValueError(f"{PAGE}: expected one <!-- {make.__name__} --> block, found {n}")
        PAGE.write_text(text)
    if pictures:
        IMAGES.mkdir(exist_ok=True)
        draw_curve()
        draw_regret(results)


def regret(results: dict[str, Any]) -> str:
    """Return mean regret by kind of problem; bold: within one standard error of the lowest with the hold-out alone."""
    head = ["problems, hold-out", *LABELLED.values(), *UNLABELLED.values(), "gamma = 0"]
    lines = [_row(head), _row(["---"] * len(head))]
    for kind in dict.fromkeys(family.split(",")[0] for family in results):
        found = [
            result["regret"] for family, result in results.items() if family.split(",")[0] == kind
        ]
        for name in found[0]:
            mean = {
                key: float(np.mean([one[name][key][0] for one in found]))
                for key in (*TITLES, "gamma = 0")
            }
            low = min(LABELLED, key=lambda key: mean[key])
            error = float(np.linalg.norm([one[name][low][1] for one in found])) / len(found)
            cells = [
                f"**{mean[key]:.2f}**"
                if key in LABELLED and mean[key] <= mean[low] + error
                else f"{mean[key]:.2f}"
                for key in mean
            ]
            lines.append(_row([f"{kind}, {name}", *cells]))
    return "\n".join(lines)


def strength(results: dict[str, Any]) -> str:
    """Return the mean regret of each constant over the families, per hold-out; bold: within 5 % of the lowest."""
    names = list(next(iter(results.values()))["regret"])
    lines = [
        _row(["hold-out", *(f"{s:g}" for s in STRENGTHS)]),
        _row(["---"] * (len(STRENGTHS) + 1)),
    ]
    for name in names:
        having = [result["regret"][name] for result in results.values() if name in result["regret"]]
        means = [np.mean([found[f"strength {s:g}"][0] for found in having]) for s in STRENGTHS]
        cells = [
            f"**{mean:.2f}**" if mean <= 1.05 * min(means) else f"{mean:.2f}" for mean in means
        ]
        lines.append(_row([name, *cells]))
    return "\n".join(lines)


def coverage(results: dict[str, Any]) -> str:
    """Return how often the 95 % intervals contained the truth, and the bias of the gain, over the families."""
    names = list(next(iter(results.values()))["regret"])
    keys = ["gain in interval", "gamma in interval", "bias of gain", "bias of naive gain"]
    head = [
        "hold-out",
        "gain's interval holds it",
        "gamma's interval holds a best one",
        "bias of the gain, points",
        "bias without correction",
    ]
    lines = [_row(head), _row(["---"] * len(head))]
    for name in names:
        having = [
            r["regret"][name]
            for r in results.values()
            if name in r["regret"] and keys[0] in r["regret"][name]
        ]
        mean = [np.mean([found[key][0] for found in having]) for key in keys]
        lines.append(
            _row([name, f"{mean[0]:.0%}", f"{mean[1]:.0%}", f"{mean[2]:+.2f}", f"{mean[3]:+.2f}"])
        )
    return "\n".join(lines)


def draw_curve() -> None:
    """Draw the balanced error on a hold-out of 10 % of a long tail, the criterion, and the truth."""
    case = gaussians(3, classes=10, ratio=100, largest=5000, size=32, test=50_000)
    logits, labels = case.draw(np.maximum(1, case.counts // 10))
    tuned = tune(logits, labels, case.counts, bootstrap=500)
    truth = gamma_path(case.logits, case.labels, case.counts)
    figure, axes = headless().subplots(figsize=(7, 4.6), layout="constrained")
    grid = np.linspace(0, 1.2, 400)
    axes.plot(
        grid,
        100 * np.asarray(truth.balanced_error_curve.at(grid)),
        color=SOFT,
        lw=2.5,
        label="balanced error on 50,000 test samples: the truth",
    )
    draw_steps(
        axes, tuned.curve, color=INK, lw=1, label=f"balanced error on {tuned.n:,} held-out samples"
    )
    draw_steps(
        axes,
        tuned.criterion_curve,
        color=ACCENT,
        lw=1,
        label="criterion: + min(1, 20 s) x mismatch of shares",
    )
    assert tuned.interval is not None
    axes.axvspan(
        *tuned.interval, color=ACCENT, alpha=0.12, lw=0, label="95 % interval of the choice"
    )
    axes.axvline(tuned.gamma, color=ACCENT, ls="--", lw=1, label=f"chosen gamma: {tuned.gamma:.2f}")
    axes.axvline(
        truth.best().gamma,
        color=SOFT,
        ls="--",
        lw=1.5,
        label=f"best gamma: {truth.best().gamma:.2f}",
    )
    axes.set(xlabel="gamma", ylabel="%", xlim=(0, 1.2))
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save(figure, IMAGES / "which-gamma-curve.png")


def draw_regret(results: dict[str, Any]) -> None:
    """Draw the regret at each hold-out, with one panel per family."""
    across = 2
    down = -(-len(results) // across)
    figure, panels = headless().subplots(
        down, across, figsize=(9, 2.9 * down), layout="constrained", squeeze=False
    )
    for axes, (family, result) in zip(panels.flat, results.items(), strict=False):
        names = list(result["regret"])
        for key, color in COLORS.items():
            mean, error = np.array([result["regret"][name][key] for name in names]).T
            axes.errorbar(
                np.arange(len(names)),
                mean,
                error,
                color=color,
                lw=1.4,
                marker="o",
                ms=3,
                capsize=2,
                label=re.sub(r"[*`]", "", TITLES[key]),
                zorder=3 if key == "strength 20" else 2,
            )
        axes.set_xticks(
            np.arange(len(names)),
            [
                re.sub(" of the long tail", "\nof the tail", n).replace(" bal", "\nbal")
                for n in names
            ],
            fontsize=8,
        )
        axes.set_yscale("log")
        axes.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
        axes.minorticks_off()
        axes.set_title(family, fontsize=9)
        axes.set_ylabel("regret, points", fontsize=8)
        axes.grid(axis="y", color="#e5e7eb", lw=0.6)
    for axes in list(panels.flat)[len(results) :]:
        axes.axis("off")
    handles, titles = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, titles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save(figure, IMAGES / "which-gamma-regret.png")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
