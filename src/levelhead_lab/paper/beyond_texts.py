"""What is said beyond the paper, from records: other recipes, rules chosen on the hold-out, heads fitted again.

Each function writes the sentences of one place of the page `reproduction-beyond.md`. Every number in them is computed
from the records or files that it is given, and so is every word that depends on one ("ahead", "3 networks"): a new
record changes the page, and no sentence has to be mended by hand. Where the records for a sentence are missing, it is
left out, or `NO_NETWORK` stands in its place.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import mean

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
from .measured_fields import Heads, PastFrontierRun, RefittedCompanion
from .row_texts import NO_NETWORK
from .tables import (
    DATA_TITLES,
    REPEATED,
    column_title,
    column_words,
    repeated_methods,
    tables,
    without_recipe,
)
from .words import in_a_row, signed

DATA = ("cifar10", "cifar100")
FRONTIER_DECAY = 5e-4  # the weight decay of the recipe `frontier`; others were tried


def strong_text(records: Sequence[Record]) -> str:
    """Say what the recipe `strong` gives with RS, with WVN, and what the hold-out's gamma costs.

    A list in Markdown, whose first point needs the column for which we know a published number.
    """
    best_known = tables()["strong"]["best_known"]
    column = best_known["column"]
    plain = cell(records, column, "baseline").text
    scaled = cell(records, column, "baseline", HELD_OUT).text
    if not plain or not scaled:
        return NO_NETWORK
    # The same column by the recipe of Table 1, in parentheses.
    by_papers_recipe = without_recipe(column)
    papers_plain = cell(records, by_papers_recipe, "baseline").text
    papers_scaled = cell(records, by_papers_recipe, "baseline", HELD_OUT).text
    lines = [
        f"- **On {column_words(column)}** the plain network has an error of {plain}, and {scaled} with "
        f"RS and the hold-out's gamma ({papers_plain} and {papers_scaled} under the paper's recipe). The lowest "
        "published error of an adjustment after training that we know of there is "
        f"{best_known['error']:.2f} ([{best_known['by']}]({best_known['link']}))."
    ]
    lines += _wvn_under_strong(records)
    lines += _cost_of_the_hold_out(records)
    lines += _fewer_after_the_shift(records)
    return "\n".join(lines)


def _wvn_under_strong(records: Sequence[Record]) -> list[str]:
    """Say in how many columns WVN is ahead of the plain network, both after RS, and by how much.

    Returns:
        A line of the list, or nothing if no column has both. So with the other functions here that return a list:
        `strong_text` and `frontier_text` put them together.
    """
    # By how many points, of the columns that have both.
    ahead = []
    behind = []
    for column in tables()["strong"]["columns"]:
        wvn = _error(records, column, "wvn", HELD_OUT)
        plain = _error(records, column, "baseline", HELD_OUT)
        if wvn is None or plain is None:
            continue
        if wvn < plain:
            ahead.append(plain - wvn)
        else:
            behind.append(wvn - plain)
    # "ahead in 4 columns by 0.1 to 0.8 points and behind in 2 columns by ...", without a part that is empty.
    parts = []
    for points, word in ((ahead, "ahead"), (behind, "behind")):
        if points:
            span = f"{min(points):.1f} to {max(points):.1f}"
            parts.append(f"{word} in {len(points)} columns by {span} points")
    if parts:
        return [f"- **WVN** with RS is {in_a_row(parts)}."]
    return []


def _cost_of_the_hold_out(records: Sequence[Record]) -> list[str]:
    """Say how far the error at the hold-out's gamma is from the lowest on test, at most.

    The dearest column is named by itself, so that it does not stand for the others; that takes two columns.
    """
    costs: dict[str, float] = {}  # by column, the larger of those of all methods
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


def _fewer_after_the_shift(records: Sequence[Record]) -> list[str]:
    """Say where fewer networks have an error after the shift than as trained: the oldest records have none."""
    columns = []
    for column in tables()["strong"]["columns"]:
        trained = shifted = 0
        for method in REPEATED:
            trained += len(cell(records, column, method).errors)
            shifted += len(shift_cell(records, column, method, HELD_OUT).errors)
        if 0 < shifted < trained:
            columns.append(f"{column_words(column)} ({shifted} of {trained})")
    if not columns:
        return []
    return [
        "- **Rows after the shift** have fewer networks than those above them on "
        f"{in_a_row(columns)}: the oldest records are from before the shift was measured."
    ]


def frontier_text(records: Sequence[Record]) -> str:
    """Say what one number after plain training gives under the recipe `frontier`, beside losses for imbalance.

    All strengths are those of hold-outs. Ratio 100 of both data sets is what others publish, so that both are needed.

    Returns:
        A list in Markdown: the shift, RS beside it, losses for imbalance where they are trained, and which rules the
        hold-outs chose.
    """
    columns = [f"frontier/{data}:100" for data in DATA]
    taken = []  # from which error to which, in words
    differences = []  # of RS from the shift, in points
    for column in columns:
        plain = _error(records, column, "baseline")
        scaled = _error(records, column, "baseline", HELD_OUT)
        shifted = _shifted(records, column, "baseline", HELD_OUT)
        if plain is None or scaled is None or shifted is None:
            return NO_NETWORK
        taken.append(f"from {plain:.2f} to {shifted:.2f} on {column_words(column)}")
        differences.append(scaled - shifted)
    lines = [
        "- **Plain cross entropy, then one number.** With the strength of the hold-out, the shift "
        f"takes the plain network {in_a_row(taken)}.",
        f"- **RS minus the shift**, both with the hold-out's strength: {signed(differences)} points.",
    ]
    # A loss for imbalance stands here only if both columns have it.
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
    """Say which of several rules the hold-out chose, where records have such a choice.

    Records of today have none, since offsets alone are level with a choice among rules; half of the companions are
    from before.
    """
    choices_of_runs = []
    for column in tables()["frontier"]["columns"]:
        for method in repeated_methods("frontier"):
            run = companion(records, column, method)
            if run is None:
                continue
            choices = choices_on_hold_out(run)
            if "auto" in choices:
                choices_of_runs.append((choices, choices["auto"]))
    if not choices_of_runs:
        return []
    titles = {"rescale": "RS", "shift": "the shift", "vector": "vector scaling"}
    # How often each rule was chosen, then what the choice is worth beside always taking one of two rules.
    rules = Counter(auto["rule"] for _, auto in choices_of_runs)
    chosen = in_a_row([f"{titles.get(rule, rule)} {n} times" for rule, n in rules.most_common()])
    gain_on_rescale = 100 * mean(
        choices["rescale"]["error"] - auto["error"] for choices, auto in choices_of_runs
    )
    gain_on_shift = 100 * mean(
        choices["shift"]["error"] - auto["error"] for choices, auto in choices_of_runs
    )
    return [
        f"- **A choice among rules, made on the hold-out**: of {len(choices_of_runs)} companion runs "
        f"{chosen}. On their networks it is {gain_on_rescale:+.1f} points better on average than "
        f"RS always, and {gain_on_shift:+.1f} than the shift always."
    ]


def past_frontier_text(runs: Sequence[PastFrontierRun]) -> str:
    """Say what averaging and mirroring give, of plain networks with the recipe's own weight decay.

    Args:
        runs: results/past_frontier.json; it has such a network of either data set.
    """
    # By data set, the plain network of the recipe itself.
    plain = {}
    for run in runs:
        if run["method"] == "baseline" and run["weight_decay"] == FRONTIER_DECAY:
            plain[run["data"]] = run
    parts = []
    for data in DATA:
        as_trained = shifted_error(plain[data], "as trained")
        averaged = shifted_error(plain[data], "averaged over the last quarter")
        mirrored = shifted_error(plain[data], "last quarter, mirrored")
        parts.append(
            f"on {DATA_TITLES[data]} from {as_trained:.2f} to {averaged:.2f}, and to {mirrored:.2f} with a "
            "second look at each test image, mirrored, at twice the time"
        )
    alone = [100 * variant_of(plain[data], "as trained")["error"] for data in DATA]
    return (
        "Weights averaged over the last quarter of the epochs take the plain network, adjusted, "
        f"{'; '.join(parts)} (alone: {alone[0]:.2f} and {alone[1]:.2f}). These strengths come from "
        "the test images, so the rows compare variants and are no results: the recipe "
        "`frontier-long` trains with that average, and its strengths are held out."
    )


def frontier_long_text(records: Sequence[Record]) -> str:
    """Say what one number after plain training gives under `frontier-long`, and how many seeds there are.

    It ends in a colon: the table of all networks of the recipe stands below it.
    """
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


def heads_text(heads: Heads) -> str:
    """Say how heads fitted again compare with RS, and what was not stored.

    RS is "ahead" of a fit if its error is lower, of whatever network; every fit of every network counts once.
    """
    # Without those of a hold-out: they are compared with RS in `_companions_text`.
    fitted = ("nearest class mean", "new head", "scales", "scales and offsets")
    # The range of all fits, beside RS on the same network.
    parts = []
    for method, network in heads["networks"].items():
        errors = [network["errors"][key] for key in fitted]
        parts.append(
            f"{min(errors):.2f} to {max(errors):.2f} on the {METHODS[method].title} network, where RS has "
            f"{network['errors']['RS']:.2f}"
        )
    rows = [network["errors"] for network in heads["networks"].values()]
    rows += [held["errors"] for held in heads.get("companions", [])]
    behind = 0  # fits that RS is ahead of
    for errors in rows:
        behind += sum(errors[key] > errors["RS"] for key in fitted)
    return (
        f"Fitted again on the same training features, heads have {'; '.join(parts)}. Of all such fits in "
        f"the table, RS with one number from a hold-out is ahead of {behind} of {len(fitted) * len(rows)}: on "
        "features that the network has learned by heart there is little left to fit. The fits are minima of "
        "the class-balanced cross entropy (`python -m bench.paper.refit_heads`); cRT and LWS ([Kang et al., "
        "2020](https://arxiv.org/abs/1910.09217)) and MARC ([Wang et al., "
        "2022](https://arxiv.org/abs/2112.07225)) themselves train by SGD, on augmented images. "
        f"{_companions_text(heads.get('companions', []))}"
    )


def _companions_text(companions: Sequence[RefittedCompanion]) -> str:
    """Say what a hold-out gives on companion runs, and what cRT gives when it is trained.

    The plain network and cRT are needed, of one column; without both, what is missing is said instead.
    """
    # One column has companions, and in it each method one.
    by_method = {held["method"]: held["errors"] for held in companions}
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
        f"and {plain['vector']:.2f} by a scale and an offset for each class. Cells are empty where a network was "
        "trained on all images, and has no hold-out to fit on. Features of other columns are not stored."
    )


def unlabelled_text(heads: Heads) -> str:
    """Say what it costs to choose on one half of the test images and to judge on the other.

    It is a warning as well: the rows of the tables were chosen on the images on which they are judged.
    """
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
    """Return the mean error of a cell in percent; None without a run."""
    return cell(records, column, method, reading).mean_error


def _shifted(records: Sequence[Record], column: str, method: str, source: str) -> float | None:
    """Return the mean error of a cell after the shift, in percent; None without a run or without a strength."""
    return shift_cell(records, column, method, source).mean_error
