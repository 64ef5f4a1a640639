"""The lines at the top of the page "Reproduction": what a reader should know who reads nothing else.

They say of RS, of WVN+RS, of the copied rows, of rows that cannot be compared, and of the claims of the text how far
they are reproduced. A row "reproduces" if more than half of its columns are within a point of the paper. Every number
is counted from the records.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean

from .cells import HELD_OUT, Record, cell
from .claims import Finding
from .distances import (
    distance_of,
    own_distances,
    source_distance,
    table2_distances,
    table2_reading_distance,
)
from .measured_fields import Authors
from .row_texts import NO_NETWORK, copied_rows
from .tables import readings_of_table2, tables
from .words import count_of, in_a_row
from .wvn_differs import authors_columns


def headline(
    records: Sequence[Record],
    authors: Authors | None,
    findings: Mapping[tuple[str, str], Finding | None],
) -> str:
    """Return the lines as a numbered list.

    Args:
        records: all there are.
        authors: results/authors.json; None if it is not there, and nothing is said of it.
        findings: the verdict on every claim, from `all_claims.every_finding`.
    """
    # Without the baseline there is nothing to say of anything else.
    plain = distance_of(records, "Baseline", "baseline", "baseline")
    scaled = distance_of(records, "Baseline+RS", "baseline", "baseline+rs", HELD_OUT)
    if not plain.points or not scaled.points:
        return NO_NETWORK
    reproduces = "does not reproduce"
    if 2 * scaled.close() > len(scaled.points):
        reproduces = "reproduces"
    lines = [
        f"**RS {reproduces}.** Baseline is within a point of the paper in {plain.near()} imbalanced "
        f"columns of Table 1, Baseline+RS in {scaled.near()}, its gamma chosen on training images "
        "that were held out.",
        *_wvn_line(records, authors),
        _copied_line(records),
        _unlike_line(records),
        _claims_line(findings),
    ]
    return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, start=1))


def _wvn_line(records: Sequence[Record], authors: Authors | None) -> list[str]:
    """Say how far WVN+RS is from the paper and from Baseline+RS, in our networks and in those of the authors' code.

    Returns:
        One line, or none if WVN has no record.
    """
    wvn = distance_of(records, "WVN+RS", "wvn", "wvn+rs", HELD_OUT)
    if not wvn.points:
        return []
    ahead = 0  # columns in which it beats Baseline+RS
    for column in wvn.points:
        ours = cell(records, column, "wvn", HELD_OUT).errors
        plain = cell(records, column, "baseline", HELD_OUT).errors
        if plain and mean(ours) < mean(plain):
            ahead += 1
    reproduces = "does not"
    if 2 * wvn.close() > len(wvn.points):
        reproduces = "reproduces, too"
    line = (
        f"**WVN+RS {reproduces}**: within a point in {wvn.near()} columns, and ahead of "
        f"Baseline+RS in {count_of(ahead, len(wvn.points))}."
    )
    if authors is not None:
        columns = authors_columns(authors)
        reached = sum(column.reaches for column in columns)
        behind = sum(column.behind > 0 for column in columns)
        line += (
            f" **The authors' own code**, run in {len(columns)} columns, reaches the published WVN+RS "
            f"in {count_of(reached, len(columns))}, even at the best epoch and gamma on test, and is "
            f"behind its own Baseline+RS in {count_of(behind, len(columns))}."
        )
    return [line]


def _copied_line(records: Sequence[Record]) -> str:
    """Say of the rows that the paper copied in how many columns they come out so by the recipes of their sources.

    By our own recipe they would be another experiment than the one whose numbers are printed, so that it is left out.
    """
    parts = []
    # The row beside the baseline is a control, and not a row of the paper.
    for row in tables()["sources"]["rows"]:
        if row["beside"] != "baseline":
            distance = source_distance(records, row)
            if distance.points:
                parts.append(f"{row['title'].split(',')[0]} in {distance.near()}")
    # Titles of distances are those of the rows, and then the recipe.
    copied = {row["title"] for row in tables()["table2"]["rows"] if "copied" in row}
    for distance in table2_distances(records):
        title, _, recipe = distance.title.partition(", ")
        if title in copied and recipe == "recipe of Cao et al.":
            parts.append(f"Table 2's {title} in {distance.near()}")
    rows = copied_rows(records)
    lacking = [row.title for row in rows if not row.complete]
    near = "none yet"
    if parts:
        near = in_a_row(parts)
    line = (
        f"**{len(rows)} rows are copied** from two other papers and their recipes. Trained by those, within a point: "
        f"{near}."
    )
    if lacking:
        line += f" Not trained so in every column: {in_a_row(lacking)}."
    return line + _read_otherwise(records)


def _read_otherwise(records: Sequence[Record]) -> str:
    """Return a sentence on the copied rows of Table 2 by other readings of their recipe; empty if none is trained."""
    titles = {row["method"]: row["title"] for row in tables()["table2"]["rows"]}
    parts = []
    for reading in readings_of_table2():
        distance = table2_reading_distance(records, reading)
        if distance.points:
            parts.append(f"{titles[reading.row]} in {distance.near()} ({reading.title})")
    if not parts:
        return ""
    return (
        " The code of Table 2's recipe is not released; read otherwise, as the first column suggests, "
        f"within a point: {in_a_row(parts)}."
    )


def _unlike_line(records: Sequence[Record]) -> str:
    """Say what the paper leaves open, so that a difference from our rows need not be anybody's mistake.

    Of the rows for which two readings are trained, it counts the columns within a point by either.
    """
    rows = {distance.title: distance for distance in own_distances(records)}
    within = ""
    for reading, titles in (
        ("as their names are usually read", ("Over-sample", "Under-sample", "Re-weighting")),
        (
            "by another reading of each",
            (
                "Over-sample to the largest",
                "Under-sample, drawn once",
                "Re-weighting, normalized in the batch",
            ),
        ),
    ):
        parts = [f"{title} in {rows[title].near()}" for title in titles if title in rows]
        if parts:
            within += f" Within a point, {reading}: {in_a_row(parts)}."
    return (
        "**Not like with like**: the paper has one run a cell, and states neither gamma (on CIFAR) nor "
        f"epoch, nor what an epoch of its sampling rows holds.{within} On Tiny ImageNet our own recipe "
        "and order of classes stand beside those of the source."
    )


def _claims_line(findings: Mapping[tuple[str, str], Finding | None]) -> str:
    """Count the verdicts on the claims that have their records; the table below lists them.

    >>> clear = Finding("Norms follow counts.", 0.9, "rank correlation 0.90", "reproduced", "0.7; partly: 0.3")
    >>> _claims_line({("Figure 2", "norm_follows_frequency"): clear, ("Figure 3", "boundary_leans"): None})
    '**Of 1 claims of the text** 1 are reproduced, 0 in part, 0 not: see [below](#the-papers-claims).'
    """
    outcomes = Counter(finding.outcome for finding in findings.values() if finding)
    judged = sum(outcomes.values())
    return (
        f"**Of {judged} claims of the text** {outcomes['reproduced']} are reproduced, {outcomes['partly']} in part, "
        f"{outcomes['not reproduced']} not: see [below](#the-papers-claims)."
    )
