"""The five lines at the top of the page "Reproduction"."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from .cells import HELD_OUT, Record, cell
from .claims import Finding
from .distances import distance_of, own_distances, source_distance, table2_distances
from .row_texts import NO_NETWORK, copied_rows
from .tables import tables
from .words import count_of, in_a_row
from .wvn_differs import authors_columns


def headline(
    records: Sequence[Record],
    authors: dict[str, Any] | None,
    findings: Mapping[tuple[str, str], Finding | None],
) -> str:
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


def _wvn_line(records: Sequence[Record], authors: dict[str, Any] | None) -> list[str]:
    wvn = distance_of(records, "WVN+RS", "wvn", "wvn+rs", HELD_OUT)
    if not wvn.points:
        return []
    ahead = 0
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
        reached = sum(found.wvn_lowest <= found.published for found in columns)
        behind = sum(found.behind > 0 for found in columns)
        line += (
            f" **The authors' own code**, run in {len(columns)} columns, reaches the published WVN+RS "
            f"in {count_of(reached, len(columns))}, even at the best epoch and gamma on test, and is "
            f"behind its own Baseline+RS in {count_of(behind, len(columns))}."
        )
    return [line]


def _copied_line(records: Sequence[Record]) -> str:
    parts = []
    for row in tables()["sources"]["rows"]:
        if row["beside"] != "baseline":
            distance = source_distance(records, row)
            if distance.points:
                parts.append(f"{row['title'].split(',')[0]} in {distance.near()}")
    copied = {row["title"] for row in tables()["table2"]["rows"] if "copied" in row}
    for distance in table2_distances(records):
        title, _, recipe = distance.title.partition(", ")
        if title in copied and recipe != "our recipe":
            parts.append(f"Table 2's {title} in {distance.near()}")
    rows = copied_rows(records)
    lacking = [title for title, _, trained, columns in rows if trained < columns]
    line = (
        f"**{len(rows)} rows are copied** from two other papers and their recipes. Trained by those, within a point: "
        f"{in_a_row(parts) if parts else 'none yet'}."
    )
    if lacking:
        line += f" Not trained so in every column: {in_a_row(lacking)}."
    return line


def _unlike_line(records: Sequence[Record]) -> str:
    rows = {distance.title: distance for distance in own_distances(records)}
    parts = []
    for title in ("Over-sample", "Under-sample", "Re-weighting"):
        if title in rows:
            parts.append(f"{title} in {rows[title].near()}")
    within = ""
    if parts:
        within = f" By our reading, within a point: {in_a_row(parts)}."
    return (
        "**Not like with like**: the paper has one run a cell, and states neither gamma (on CIFAR) nor "
        f"epoch, nor what an epoch of its sampling rows holds.{within} On Tiny ImageNet our own recipe, "
        "stem and order of classes stand beside those of the source."
    )


def _claims_line(findings: Mapping[tuple[str, str], Finding | None]) -> str:
    outcomes = Counter(finding.outcome for finding in findings.values() if finding)
    judged = sum(outcomes.values())
    return (
        f"**Of {judged} claims of the text** {outcomes['reproduced']} are reproduced, {outcomes['partly']} in part, "
        f"{outcomes['not reproduced']} not: see [below](#the-papers-claims)."
    )
