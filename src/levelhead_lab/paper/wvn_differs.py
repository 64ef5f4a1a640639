"""Why WVN+RS differs from the paper: the authors' own code, all our trainings of it, its precision, its epochs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from ..methods import METHODS
from .cells import BEST_ON_TEST, Cell, Record, cell, full_runs
from .markdown import markdown_table
from .tables import column_title, column_words, published_errors
from .words import count_of, errors_in_a_row, in_a_row, signed

COLUMN = "cifar10:100"  # the column that was measured in several ways


@dataclass(frozen=True)
class AuthorsColumn:
    """What the authors' code reaches in one column, in percent, RS at the gamma that is best on test."""

    column: str
    wvn_last: Cell  # WVN+RS after the last epoch
    baseline_last: Cell  # Baseline+RS after the last epoch
    wvn_lowest: float  # WVN+RS of any network, after either of the epochs that the code keeps
    published: float  # WVN+RS

    @property
    def behind(self) -> float:
        """By how many points WVN+RS is above Baseline+RS."""
        return mean(self.wvn_last.errors) - mean(self.baseline_last.errors)


def authors_columns(authors: dict[str, Any]) -> list[AuthorsColumn]:
    found = []
    for column in dict.fromkeys(run["column"] for run in authors["runs"]):
        runs = [run for run in authors["runs"] if run["column"] == column]
        last = {}
        for method in ("wvn", "baseline"):
            errors = [r["RS"] for r in runs if (r["method"], r["which"]) == (method, "last")]
            last[method] = Cell(tuple(errors))
        found.append(
            AuthorsColumn(
                column=column,
                wvn_last=last["wvn"],
                baseline_last=last["baseline"],
                wvn_lowest=min(run["RS"] for run in runs if run["method"] == "wvn"),
                published=published_errors("wvn+rs")[column],
            )
        )
    return found


def authors_verdict(authors: dict[str, Any]) -> str:
    """Return in a sentence whether the authors' code reaches the published WVN+RS."""
    columns = authors_columns(authors)
    reached = [found for found in columns if found.wvn_lowest <= found.published]
    behind = [found for found in columns if found.behind > 0]
    lowest = errors_in_a_row([found.wvn_lowest for found in columns])
    published = errors_in_a_row([found.published for found in columns])
    where = in_a_row([column_words(found.column) for found in columns])
    points = signed([found.behind for found in columns])
    return (
        f"The authors' code, run on {where}, reaches the published WVN+RS in "
        f"{count_of(len(reached), len(columns))}: its lowest errors, after the last epoch or the one that "
        f"is best on test and at the best gamma on test, are {lowest}, where {published} are published. "
        f"After the last epoch it is behind its own Baseline+RS in {count_of(len(behind), len(columns))} "
        f"(by {points} points)"
    )


def authors_table(authors: dict[str, Any], records: Sequence[Record]) -> str:
    titles = {
        "alone": "alone",
        "RS at 0.1": "RS at 0.1, the default",
        "RS at 0.5": "RS at 0.5, as their script",
        "RS": "RS, best",
        "shift": "shift, best",
    }
    rows = []
    for (column, method, which), runs in _grouped(
        authors["runs"], ("column", "method", "which")
    ).items():
        cells = [", ".join(str(run["epoch"]) for run in runs)]
        for key in titles:
            cells.append(Cell(tuple(run[key] for run in runs if key in run)).text)
        cells.append(f"*{published_errors(f'{method}+rs')[column]:.2f}*")
        title = f"{column_title(column)}: {METHODS[method].title}, {which.replace('_', ' ')}"
        rows.append((title, cells))
    head = ["error, %", "epoch", *titles.values(), "published with RS"]
    return (
        f"**{authors_verdict(authors)}.**\n\n{markdown_table(head, rows)}\n\n"
        f"{authors['code']}, on one {authors['hardware']} in {authors['precision']}, changed only where a torch of "
        "today needs it (`results/authors.json`); *model best* is the epoch whose error alone is lowest on test, "
        "which that code keeps; *best* strengths are the best on test.\n\n"
        f"{_same_as_ours(authors, records)}"
    )


def _same_as_ours(authors: dict[str, Any], records: Sequence[Record]) -> str:
    """Say how far our networks are from those of the authors' code."""
    differences = []
    for found in authors_columns(authors):
        ours = cell(records, found.column, "wvn", BEST_ON_TEST).errors
        if ours:
            differences.append(mean(ours) - mean(found.wvn_last.errors))
    if not differences:
        return "We have no network of these columns to compare with."
    off = signed(differences)
    to_paper = signed(
        [mean(found.wvn_last.errors) - found.published for found in authors_columns(authors)]
    )
    return (
        f"With the best gamma on test, our WVN+RS of Table 1 is {off} points from theirs, and theirs {to_paper} points "
        "from the published rows: our rows are those of the code, not of the paper."
    )


def pooled_text(
    records: Sequence[Record], precision: dict[str, Any], epochs: Sequence[dict[str, Any]]
) -> str:
    """Return one number for what three measurements of one setting gave, and what each gave."""
    lines = []
    for method in ("wvn", "baseline"):
        parts = {
            "Table 1": [
                100 * r["best_on_test"]["error"] for r in full_runs(records, COLUMN, method)
            ],
            "the study of precision": _in_bfloat16(precision, method),
            "the study of epochs": _last_epochs(epochs, method),
        }
        parts = {where: errors for where, errors in parts.items() if errors}
        pooled = Cell(tuple(error for errors in parts.values() for error in errors))
        each = ", ".join(
            f"{mean(errors):.2f} of {len(errors)} ({where})" for where, errors in parts.items()
        )
        lines.append(
            f"- {METHODS[method].title}+RS: **{pooled.text}** over {len(pooled.errors)} networks: {each}."
        )
    return (
        f"On {column_title(COLUMN)} one setting was trained for three purposes. With the best gamma on test, all in "
        "bfloat16 and pooled:\n\n" + "\n".join(lines)
    )


def _in_bfloat16(precision: dict[str, Any], method: str) -> list[float]:
    kind = (method, "bfloat16")
    return [run["RS"] for run in precision["runs"] if (run["method"], run["precision"]) == kind]


def _last_epochs(epochs: Sequence[dict[str, Any]], method: str) -> list[float]:
    runs = [run for run in epochs if f"{run['data']}:{run['ratio']:g}" == COLUMN]
    return [100 * run["epochs"][-1]["rescale"]["error"] for run in runs if run["method"] == method]


def precision_table(precision: dict[str, Any]) -> str:
    """Return the errors in each precision, and the differences of networks with the same seed and batches."""
    parts = ("alone", "RS", "shift")
    head = ["error, %", "alone", "RS, best gamma on test", "shift, best strength on test"]
    groups = _grouped(precision["runs"], ("method", "precision"))
    rows = []
    for (method, name), runs in sorted(groups.items()):
        cells = [Cell(tuple(run[part] for run in runs)).text for part in parts]
        rows.append((f"{METHODS[method].title}, {name}", cells))
    paired = []
    for (method, name), runs in sorted(groups.items()):
        for (other_method, other), others in sorted(groups.items()):
            if method == other_method and name < other:
                title = f"{METHODS[method].title}, {name} minus {other}"
                paired.append((title, [_paired(runs, others, part) for part in parts]))
    pairs = markdown_table(["points, mean ± standard error", *head[1:]], paired)
    seeds = len({run["seed"] for run in precision["runs"]})
    return f"{markdown_table(head, rows)}\n\nThe same, paired by seed and batches, {seeds} seeds:\n\n{pairs}"


def _paired(runs: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]], part: str) -> str:
    other = {run["seed"]: run[part] for run in others}
    differences = [run[part] - other[run["seed"]] for run in runs if run["seed"] in other]
    if len(differences) < 2:
        return ""
    error = stdev(differences) / len(differences) ** 0.5
    return f"{mean(differences):+.2f} ± {error:.2f}"


def epochs_table(runs: Sequence[dict[str, Any]]) -> str:
    rows = []
    for run in runs:
        last, best = run["epochs"][-1], _best_epoch(run)
        cells = [*_three_errors(last), str(best["epoch"]), *_three_errors(best)]
        rows.append((f"{METHODS[run['method']].title}, ratio {run['ratio']:g}", cells))
    parts = ["alone", "RS", "shift"]
    last_parts = [f"last, {part}" for part in parts]
    return markdown_table(["CIFAR-10", *last_parts, "best epoch", *parts], rows)


def epochs_text(runs: Sequence[dict[str, Any]], authors: dict[str, Any]) -> str:
    """Say what the choice of the epoch on test explains of the published WVN+RS, and what not."""
    lines = []
    for ratio in dict.fromkeys(run["ratio"] for run in runs):
        column = f"cifar10:{ratio:g}"
        published = published_errors("wvn+rs")[column]
        ours = [run for run in runs if run["ratio"] == ratio and run["method"] != "baseline"]
        at_best = [100 * _best_epoch(run)["rescale"]["error"] for run in ours]
        theirs = [
            run["RS"]
            for run in authors["runs"]
            if (run["column"], run["method"], run["which"]) == (column, "wvn", "model_best")
        ]
        errors = [*at_best, *theirs]
        reached = [error for error in errors if error <= published]
        explains = "does not explain"
        if 2 * len(reached) > len(errors):
            explains = "explains"
        least = min(100 * row["rescale"]["error"] for run in ours for row in run["epochs"])
        lines.append(
            f"- **At ratio {ratio:g}** {published:.2f} is published. At the epoch that is best on test, "
            f"and the best gamma on test, {count_of(len(reached), len(errors))} networks reach it: ours "
            f"have {errors_in_a_row(at_best)} (normalized after the step, and before it as in the "
            f"released code), those of the authors' code {errors_in_a_row(theirs)}. That reading "
            f"{explains} the row. At any epoch ours have no less than {least:.2f}."
        )
    return "\n".join(lines)


def _best_epoch(run: dict[str, Any]) -> dict[str, Any]:
    return min(run["epochs"], key=lambda row: row["error"])


def _three_errors(row: dict[str, Any]) -> list[str]:
    errors = (row["error"], row["rescale"]["error"], row["shift"]["error"])
    return [f"{100 * error:.2f}" for error in errors]


def _grouped(
    runs: Sequence[dict[str, Any]], keys: Sequence[str]
) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(run[key] for key in keys), []).append(run)
    return groups
