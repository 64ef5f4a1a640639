"""Why WVN+RS differs from the paper: the authors' own code, all our trainings of it, its precision, its epochs.

Our WVN+RS is behind the published row. Each function here writes one place of the page that asks for the reason:

- `authors_table`: does the authors' own code reach the row? (results/authors.json)
- `pooled_text`: is it chance? All networks of one setting, however they came to be trained.
- `precision_table`: is it our half precision? (results/precision.json)
- `epochs_table`, `epochs_text`: is it the choice of the epoch? (results/epochs.json)

Errors are in percent wherever a `Cell` or a sentence has them; those of epochs.json are shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

from ..methods import METHODS
from .cells import BEST_ON_TEST, Cell, Record, cell
from .markdown import markdown_table
from .measured_fields import (
    Authors,
    AuthorsRun,
    EpochErrors,
    EpochsRun,
    Part,
    PrecisionRun,
    PrecisionStudy,
)
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

    @property
    def reaches(self) -> bool:
        """Whether any of its networks is as good as the published row."""
        return self.wvn_lowest <= self.published


def authors_columns(authors: Authors) -> list[AuthorsColumn]:
    """Return what the authors' code reaches in each column in which it was run, in the order of the file."""
    columns = []
    for column in dict.fromkeys(run["column"] for run in authors["runs"]):
        runs = [run for run in authors["runs"] if run["column"] == column]
        wvn = [run for run in runs if run["method"] == "wvn"]
        baseline = [run for run in runs if run["method"] == "baseline"]
        columns.append(
            AuthorsColumn(
                column=column,
                wvn_last=_after_last_epoch(wvn),
                baseline_last=_after_last_epoch(baseline),
                wvn_lowest=min(run["RS"] for run in wvn),
                published=published_errors("wvn+rs")[column],
            )
        )
    return columns


def _after_last_epoch(runs: Sequence[AuthorsRun]) -> Cell:
    """Return the errors after RS of those networks that the code kept after the last epoch, in percent."""
    return Cell(tuple(run["RS"] for run in runs if run["which"] == "last"))


def authors_verdict(authors: Authors) -> str:
    """Return in a sentence whether the authors' code reaches the published WVN+RS.

    It is given every chance: of all its networks and of both epochs that it keeps, the lowest error at the best gamma
    on test counts. Beside its own Baseline+RS it is compared after the last epoch, which nobody has chosen.
    """
    columns = authors_columns(authors)
    reached = sum(column.reaches for column in columns)
    behind = sum(column.behind > 0 for column in columns)
    lowest = errors_in_a_row([column.wvn_lowest for column in columns])
    published = errors_in_a_row([column.published for column in columns])
    where = in_a_row([column_words(column.column) for column in columns])
    points = signed([column.behind for column in columns])
    return (
        f"The authors' code, run on {where}, reaches the published WVN+RS in "
        f"{count_of(reached, len(columns))}: its lowest errors, after the last epoch or the one that "
        f"is best on test and at the best gamma on test, are {lowest}, where {published} are published. "
        f"After the last epoch it is behind its own Baseline+RS in {count_of(behind, len(columns))} "
        f"(by {points} points)"
    )


# What the table of the authors' code calls each error, by its key in authors.json.
AUTHORS_ERRORS: dict[Literal["alone", "RS at 0.1", "RS at 0.5", "RS", "shift"], str] = {
    "alone": "alone",
    "RS at 0.1": "RS at 0.1, the default",
    "RS at 0.5": "RS at 0.5, as their script",
    "RS": "RS, best",
    "shift": "shift, best",
}


def authors_table(authors: Authors, records: Sequence[Record]) -> str:
    """Return the verdict on the authors' code, all of its errors, and how far our networks are from its.

    A row has the networks of one column, one method and one of the epochs that the code keeps.
    """
    groups: dict[tuple[str, str, str], list[AuthorsRun]] = {}
    for run in authors["runs"]:
        groups.setdefault((run["column"], run["method"], run["which"]), []).append(run)
    rows = []
    for (column, method, which), runs in groups.items():
        cells = [", ".join(str(run["epoch"]) for run in runs)]
        for key in AUTHORS_ERRORS:
            errors = [run.get(key) for run in runs]  # some were measured of a few networks alone
            cells.append(Cell(tuple(error for error in errors if error is not None)).text)
        # The published number is after RS, whichever error it stands beside.
        cells.append(f"*{published_errors(f'{method}+rs')[column]:.2f}*")
        title = f"{column_title(column)}: {METHODS[method].title}, {which.replace('_', ' ')}"
        rows.append((title, cells))
    head = ["error, %", "epoch", *AUTHORS_ERRORS.values(), "published with RS"]
    return (
        f"**{authors_verdict(authors)}.**\n\n{markdown_table(head, rows)}\n\n"
        f"{authors['code']}, on one {authors['hardware']} in {authors['precision']}, changed only where a torch of "
        "today needs it (`results/authors.json`); *model best* is the epoch whose error alone is lowest on test, "
        "which that code keeps; *best* strengths are the best on test.\n\n"
        f"{_same_as_ours(authors, records)}"
    )


def _same_as_ours(authors: Authors, records: Sequence[Record]) -> str:
    """Say how far our networks are from those of the authors' code.

    Both after the last epoch and at the best gamma on test, so that no choice of ours or theirs is in the difference.
    """
    to_theirs = []  # from ours, in points
    to_paper = []  # from theirs
    for column in authors_columns(authors):
        theirs = mean(column.wvn_last.errors)
        to_paper.append(theirs - column.published)
        ours = cell(records, column.column, "wvn", BEST_ON_TEST).errors
        if ours:
            to_theirs.append(mean(ours) - theirs)
    if not to_theirs:
        return "We have no network of these columns to compare with."
    return (
        f"With the best gamma on test, our WVN+RS of Table 1 is {signed(to_theirs)} points from theirs, "
        f"and theirs {signed(to_paper)} points from the published rows: our rows are those of the code, "
        "not of the paper."
    )


def pooled_text(
    records: Sequence[Record], precision: PrecisionStudy, epochs: Sequence[EpochsRun]
) -> str:
    """Return one number for what three measurements of one setting gave, and what each gave.

    Args:
        records: of Table 1.
        precision: of which only networks in bfloat16 count, as those of Table 1 are.
        epochs: of which only last epochs count.

    Returns:
        A sentence and a line each for WVN and the baseline, with the pooled mean and spread in bold.
    """
    lines = []
    for method in ("wvn", "baseline"):
        studies = {
            "Table 1": cell(records, COLUMN, method, BEST_ON_TEST).errors,
            "the study of precision": _in_bfloat16(precision, method),
            "the study of epochs": _last_epochs(epochs, method),
        }
        # All networks count the same, whatever they were trained for.
        pooled: list[float] = []
        parts = []
        for study, errors in studies.items():
            if errors:
                pooled += errors
                parts.append(f"{mean(errors):.2f} of {len(errors)} ({study})")
        lines.append(
            f"- {METHODS[method].title}+RS: **{Cell(tuple(pooled)).text}** over {len(pooled)} networks: "
            f"{', '.join(parts)}."
        )
    return (
        f"On {column_title(COLUMN)} one setting was trained for three purposes. With the best gamma on test, all in "
        "bfloat16 and pooled:\n\n" + "\n".join(lines)
    )


def _in_bfloat16(precision: PrecisionStudy, method: str) -> list[float]:
    """Return the errors of those networks of the study of precision that are trained as those of Table 1 are."""
    errors = []
    for run in precision["runs"]:
        if run["method"] == method and run["precision"] == "bfloat16":
            errors.append(run["RS"])
    return errors


def _last_epochs(epochs: Sequence[EpochsRun], method: str) -> list[float]:
    """Return the errors after the last epoch in the study of epochs, in percent."""
    errors = []
    for run in epochs:
        column = f"{run['data']}:{run['ratio']:g}"
        if column == COLUMN and run["method"] == method:
            errors.append(100 * run["epochs"][-1]["rescale"]["error"])
    return errors


def precision_table(precision: PrecisionStudy) -> str:
    """Return the errors in each precision, and the differences of networks with the same seed and batches.

    Differences within a seed leave the spread of seeds out, which would cover what a precision costs.
    """
    parts: tuple[Part, ...] = ("alone", "RS", "shift")
    head = ["error, %", "alone", "RS, best gamma on test", "shift, best strength on test"]
    groups: dict[tuple[str, str], list[PrecisionRun]] = {}
    for run in precision["runs"]:
        groups.setdefault((run["method"], run["precision"]), []).append(run)
    # First every precision by itself, with the spread of its seeds.
    rows = []
    for (method, name), runs in sorted(groups.items()):
        cells = [Cell(tuple(run[part] for run in runs)).text for part in parts]
        rows.append((f"{METHODS[method].title}, {name}", cells))
    # Then each two of them, seed by seed.
    paired = []
    for (method, name), runs in sorted(groups.items()):
        for (other_method, other), others in sorted(groups.items()):
            # Each two precisions of a method once, in the order of the alphabet.
            if method == other_method and name < other:
                title = f"{METHODS[method].title}, {name} minus {other}"
                paired.append((title, [_paired(runs, others, part) for part in parts]))
    pairs = markdown_table(["points, mean ± standard error", *head[1:]], paired)
    seeds = len({run["seed"] for run in precision["runs"]})
    return f"{markdown_table(head, rows)}\n\nThe same, paired by seed and batches, {seeds} seeds:\n\n{pairs}"


def _paired(runs: Sequence[PrecisionRun], others: Sequence[PrecisionRun], part: Part) -> str:
    """Return the mean difference of networks with the same seed and its standard error; nothing of fewer than two.

    Seeds that only one of the groups has are left out.

    >>> half = [{"seed": 0, "RS": 22.0}, {"seed": 1, "RS": 23.0}]
    >>> full = [{"seed": 0, "RS": 21.5}, {"seed": 1, "RS": 23.1}, {"seed": 2, "RS": 30.0}]
    >>> _paired(half, full, "RS")
    '+0.20 ± 0.30'
    """
    by_seed = {run["seed"]: run[part] for run in others}
    differences = []
    for run in runs:
        if run["seed"] in by_seed:
            differences.append(run[part] - by_seed[run["seed"]])
    if len(differences) < 2:
        return ""
    standard_error = stdev(differences) / len(differences) ** 0.5
    return f"{mean(differences):+.2f} ± {standard_error:.2f}"


def epochs_table(runs: Sequence[EpochsRun]) -> str:
    """Return each network after its last epoch and after the one that is best on test as trained.

    >>> epoch = {"epoch": 81, "error": 0.29, "rescale": {"error": 0.22}, "shift": {"error": 0.21}}
    >>> print(epochs_table([{"ratio": 100.0, "method": "wvn", "epochs": [epoch]}]))
    | CIFAR-10 | last, alone | last, RS | last, shift | best epoch | alone | RS | shift |
    |---|---|---|---|---|---|---|---|
    | WVN, ratio 100 | 29.00 | 22.00 | 21.00 | 81 | 29.00 | 22.00 | 21.00 |
    """
    rows = []
    for run in runs:
        last = run["epochs"][-1]
        best = _best_epoch(run)
        cells = [*_three_errors(last), str(best["epoch"]), *_three_errors(best)]
        rows.append((f"{METHODS[run['method']].title}, ratio {run['ratio']:g}", cells))
    parts = ["alone", "RS", "shift"]
    last_parts = [f"last, {part}" for part in parts]
    return markdown_table(["CIFAR-10", *last_parts, "best epoch", *parts], rows)


def epochs_text(runs: Sequence[EpochsRun], authors: Authors) -> str:
    """Say what the choice of the epoch on test explains of the published WVN+RS, and what not.

    It explains the row of a ratio if, at the epoch that is best on test, more than half of the networks reach it, ours
    and those of the authors' code.
    """
    lines = []
    # A line for each ratio that was measured.
    for ratio in dict.fromkeys(run["ratio"] for run in runs):
        column = f"cifar10:{ratio:g}"
        published = published_errors("wvn+rs")[column]
        ours = [run for run in runs if run["ratio"] == ratio and run["method"] != "baseline"]
        at_best = [100 * _best_epoch(run)["rescale"]["error"] for run in ours]
        theirs = []
        for run in authors["runs"]:
            if (run["column"], run["method"], run["which"]) == (column, "wvn", "model_best"):
                theirs.append(run["RS"])
        # Ours count whether they normalize after the step or, as in the released code, before it.
        errors = [*at_best, *theirs]
        reached = [error for error in errors if error <= published]
        explains = "does not explain"
        if 2 * len(reached) > len(errors):
            explains = "explains"
        # Even an epoch that nobody would choose.
        least = min(min(row["rescale"]["error"] for row in run["epochs"]) for run in ours)
        lines.append(
            f"- **At ratio {ratio:g}** {published:.2f} is published. At the epoch that is best on test, "
            f"and the best gamma on test, {count_of(len(reached), len(errors))} networks reach it: ours "
            f"have {errors_in_a_row(at_best)} (normalized after the step, and before it as in the "
            f"released code), those of the authors' code {errors_in_a_row(theirs)}. That reading "
            f"{explains} the row. At any epoch ours have no less than {100 * least:.2f}."
        )
    return "\n".join(lines)


def _best_epoch(run: EpochsRun) -> EpochErrors:
    """Return the epoch whose error alone is lowest on test: the one that the authors' code keeps."""
    return min(run["epochs"], key=lambda row: row["error"])


def _three_errors(row: EpochErrors) -> list[str]:
    """Return the errors as trained, after RS and after the shift, in percent.

    >>> _three_errors({"epoch": 81, "error": 0.29, "rescale": {"error": 0.22}, "shift": {"error": 0.21}})
    ['29.00', '22.00', '21.00']
    """
    errors = (row["error"], row["rescale"]["error"], row["shift"]["error"])
    return [f"{100 * error:.2f}" for error in errors]
