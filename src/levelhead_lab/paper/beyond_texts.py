"""What is said beyond the paper, from records: other recipes, rules chosen on the hold-out, heads fitted again."""

from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import Any

from ..methods import METHODS
from .beyond_tables import shift_cell, shifted_error, variant_of
from .cells import (
    BEST_ON_TEST,
    HELD_OUT,
    LAST_EPOCH,
    Record,
    cell,
    choices_on_hold_out,
    companion,
    full_runs,
)
from .row_texts import NO_NETWORK
from .tables import DATA_TITLES, REPEATED, column_title, column_words, repeated_methods, tables
from .words import in_a_row, signed

DATA = ("cifar10", "cifar100")


def strong_text(records: Sequence[Record]) -> str:
    """Say what the recipe `strong` gives with RS, with WVN, and what the hold-out's gamma costs."""
    known = tables()["strong"]["best_known"]
    column = known["column"]
    papers = column.rpartition("/")[2]  # the same column by the paper's recipe
    plain = cell(records, column, "baseline").text
    scaled = cell(records, column, "baseline", HELD_OUT).text
    if not plain or not scaled:
        return NO_NETWORK
    first = cell(records, papers, "baseline").text
    first_scaled = cell(records, papers, "baseline", HELD_OUT).text
    lines = [
        f"- **On {column_words(column)}** the plain network has an error of {plain}, and {scaled} with "
        f"RS and the hold-out's gamma ({first} and {first_scaled} under the paper's recipe). The lowest "
        "published error of an adjustment after training that we know of there is "
        f"{known['error']:.2f} ([{known['by']}]({known['link']}))."
    ]
    return "\n".join([*lines, *_wvn_under_strong(records), *_cost_of_the_hold_out(records)])


def _wvn_under_strong(records: Sequence[Record]) -> list[str]:
    ahead, behind = [], []
    for column in tables()["strong"]["columns"]:
        wvn = _error(records, column, "wvn", HELD_OUT)
        plain = _error(records, column, "baseline", HELD_OUT)
        if wvn is None or plain is None:
            continue
        if wvn < plain:
            ahead.append(plain - wvn)
        else:
            behind.append(wvn - plain)
    parts = []
    for points, word in ((ahead, "ahead"), (behind, "behind")):
        if points:
            span = f"{min(points):.1f} to {max(points):.1f}"
            parts.append(f"{word} in {len(points)} columns by {span} points")
    if parts:
        return [f"- **WVN** with RS is {in_a_row(parts)}."]
    return []


def _cost_of_the_hold_out(records: Sequence[Record]) -> list[str]:
    """Say how far the error at the hold-out's gamma is from the lowest on test, at most."""
    costs: dict[str, float] = {}
    for column in tables()["strong"]["columns"]:
        for method in REPEATED:
            held = _error(records, column, method, HELD_OUT)
            best = _error(records, column, method, BEST_ON_TEST)
            if held is not None and best is not None:
                costs[column] = max(held - best, costs.get(column, 0.0))
    if len(costs) < 2:
        return []
    dearest = max(costs, key=lambda column: costs[column])
    others = max(cost for column, cost in costs.items() if column != dearest)
    return [
        f"- **The hold-out's gamma** costs up to {costs[dearest]:.1f} points against the best on test on "
        f"{column_words(dearest)}, at most {others:.1f} elsewhere."
    ]


def frontier_text(records: Sequence[Record]) -> str:
    """Say what one number after plain training gives under the recipe `frontier`, beside losses for imbalance."""
    columns = [f"frontier/{data}:100" for data in DATA]
    taken, ahead = [], []
    for column in columns:
        plain = _error(records, column, "baseline")
        scaled = _error(records, column, "baseline", HELD_OUT)
        shifted = _shifted(records, column, "baseline", HELD_OUT)
        if plain is None or scaled is None or shifted is None:
            return NO_NETWORK
        taken.append(f"from {plain:.2f} to {shifted:.2f} on {column_words(column)}")
        ahead.append(scaled - shifted)
    lines = [
        "- **Plain cross entropy, then one number.** With the strength of the hold-out, the shift "
        f"takes the plain network {in_a_row(taken)}.",
        f"- **RS minus the shift**, both with the hold-out's strength: {signed(ahead)} points.",
    ]
    others = []
    for method in repeated_methods("frontier"):
        if method in REPEATED:
            continue
        errors = [_shifted(records, column, method, HELD_OUT) for column in columns]
        if None not in errors:
            others.append(f"{METHODS[method].title} {errors[0]:.2f} and {errors[1]:.2f}")
    if others:
        lines.append(
            f"- **Losses for imbalance**, after the shift with the hold-out's strength: {'; '.join(others)}."
        )
    lines += _chosen_rules(records)
    return "\n".join(lines)


def _chosen_rules(records: Sequence[Record]) -> list[str]:
    """Say which of several rules the hold-out chose, where records have such a choice."""
    held = []
    for column in tables()["frontier"]["columns"]:
        for method in repeated_methods("frontier"):
            run = companion(records, column, method)
            if run is None:
                continue
            choices = choices_on_hold_out(run)
            if "auto" in choices:
                held.append(choices)
    if not held:
        return []
    titles = {"rescale": "RS", "shift": "the shift", "vector": "vector scaling"}
    rules = Counter(one["auto"]["rule"] for one in held)
    chosen = in_a_row([f"{titles.get(rule, rule)} {n} times" for rule, n in rules.most_common()])
    gains = {}
    for rule in ("rescale", "shift"):
        gains[rule] = 100 * mean(one[rule]["error"] - one["auto"]["error"] for one in held)
    return [
        f"- **A choice among rules, made on the hold-out**: of {len(held)} companion runs "
        f"{chosen}. On their networks it is {gains['rescale']:+.1f} points better on average than "
        f"RS always, and {gains['shift']:+.1f} than the shift always."
    ]


def past_frontier_text(runs: Sequence[dict[str, Any]]) -> str:
    """Say what averaging and mirroring give, of plain networks with the recipe's own weight decay."""
    plain = {}
    for data in DATA:
        (plain[data],) = [
            run
            for run in runs
            if (run["data"], run["method"], run["weight_decay"]) == (data, "baseline", 5e-4)
        ]
    parts = []
    for data, run in plain.items():
        first = shifted_error(run, "as trained")
        second = shifted_error(run, "averaged over the last quarter")
        third = shifted_error(run, "last quarter, mirrored")
        parts.append(
            f"on {DATA_TITLES[data]} from {first:.2f} to {second:.2f}, and to {third:.2f} with a "
            "second look at each test image, mirrored, at twice the time"
        )
    alone = [100 * variant_of(run, "as trained")["error"] for run in plain.values()]
    return (
        "Weights averaged over the last quarter of the epochs take the plain network, adjusted, "
        f"{'; '.join(parts)} (alone: {alone[0]:.2f} and {alone[1]:.2f}). These strengths come from "
        "the test images, so the rows compare variants and are no results: the recipe "
        "`frontier-long` trains with that average, and its strengths are held out."
    )


def frontier_long_text(records: Sequence[Record]) -> str:
    """Say what one number after plain training gives under `frontier-long`, and how many seeds there are."""
    parts = []
    for column in tables()["frontier-long"]["columns"]:
        seeds = len(full_runs(records, column, "baseline"))
        plain = cell(records, column, "baseline").text
        shifted = shift_cell(records, column, "baseline", HELD_OUT).text
        if shifted:
            networks = "1 network"
            if seeds != 1:
                networks = f"{seeds} networks"
            parts.append(f"from {plain} to {shifted} on {column_words(column)} ({networks})")
    if not parts:
        return NO_NETWORK
    return (
        "By that recipe, with the hold-out's strength, the shift takes the plain network "
        f"{in_a_row(parts)}:"
    )


def heads_text(heads: dict[str, Any]) -> str:
    """Say how heads fitted again compare with RS, and what was not stored."""
    fitted = ("nearest class mean", "new head", "scales", "scales and offsets")
    parts = []
    for method, network in heads["networks"].items():
        errors = [network["errors"][key] for key in fitted]
        parts.append(
            f"{min(errors):.2f} to {max(errors):.2f} on the {METHODS[method].title} network, where RS has "
            f"{network['errors']['RS']:.2f}"
        )
    rows = [network["errors"] for network in heads["networks"].values()]
    rows += [one["errors"] for one in heads.get("companions", [])]
    behind = sum(errors[key] > errors["RS"] for errors in rows for key in fitted)
    return (
        f"Fitted again on the same training features, heads have {'; '.join(parts)}. Of all fits in the "
        f"table, RS with one number from a hold-out is ahead of {behind} of {len(fitted) * len(rows)}: on "
        "features that the network has learned by heart there is little left to fit. The fits are minima of "
        "the class-balanced cross entropy (`python -m bench.paper.refit_heads`); cRT and LWS ([Kang et al., "
        "2020](https://arxiv.org/abs/1910.09217)) and MARC ([Wang et al., "
        "2022](https://arxiv.org/abs/2112.07225)) themselves train by SGD, on augmented images. "
        f"{_companions_text(heads.get('companions', []))}"
    )


def _companions_text(companions: Sequence[dict[str, Any]]) -> str:
    """Say what a hold-out gives on companion runs, and what cRT gives when it is trained."""
    by_method = {one["method"]: one["errors"] for one in companions}
    if not {"baseline", "crt"} <= by_method.keys():
        return (
            "Only the networks of one column are stored, without a hold-out: other columns, vector "
            "scaling on a hold-out, and cRT trained as published would need networks that are not there."
        )
    plain = by_method["baseline"]
    trained = by_method["crt"]
    return (
        f"A column with a hold-out, {column_title(companions[0]['column'])}: cRT trained, a tenth of the "
        f"images held out, has {trained['alone']:.2f} where a new head fitted to the features of the plain "
        f"network has {plain['new head']:.2f}; on the hold-out alone, that network comes to "
        f"{plain['RS']:.2f} by RS, {plain['shift']:.2f} by the shift, {plain['offsets']:.2f} by an offset "
        f"and {plain['vector']:.2f} by a scale and an offset for each class. Features of other columns are "
        "not stored."
    )


def unlabelled_text(heads: dict[str, Any]) -> str:
    """Say what it costs to choose on one half of the test images and to judge on the other."""
    titles = {"rescale": "RS", "shift": "the shift"}
    parts = []
    for method, network in heads["networks"].items():
        for rule, errors in network["unlabelled"].items():
            title = f"{METHODS[method].title} with {titles[rule]}"
            parts.append(f"{title} {errors['whole']:.2f} and {errors['halves']:.2f}")
    return (
        "Rows *from the test images, without their labels* match predicted shares to the even "
        "shares of the 10,000 test images, which are taken as known: no label is used, but these "
        "are the images that they are judged on. Records do not keep logits, so only the stored "
        "networks can tell what that is worth. Chosen and judged on all test images, and chosen "
        f"on one half and judged on the other, both ways: {'; '.join(parts)}."
    )


def _error(
    records: Sequence[Record], column: str, method: str, reading: str = LAST_EPOCH
) -> float | None:
    errors = cell(records, column, method, reading).errors
    return mean(errors) if errors else None


def _shifted(records: Sequence[Record], column: str, method: str, source: str) -> float | None:
    errors = shift_cell(records, column, method, source).errors
    return mean(errors) if errors else None
