"""The page "Reproduction": setup, tables, claims, figures and cost, all written from what was measured."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from levelhead.support.warnings import quiet

from . import beyond_tables, figure_beyond, figures, markdown
from .cells import Record, load_records
from .claims import Finding
from .figure_claims import every_finding
from .figure_style import Drawn, Sources
from .record import whole_snapshots
from .tables import DATA_TITLES, REPEATED, repeated_methods, table1_columns, tables
from .trainings import trainings

SETTINGS = "batch lr momentum weight_decay schedule milestones lr_decay warmup pad flip"  # of a recipe, in the setup


MEASURED: dict[
    str, tuple[str, Callable[[Any], str]]
] = {  # the file in results/ of each place, and its table
    "epochs": ("epochs.json", beyond_tables.epochs_table),
    "past-frontier": ("past_frontier.json", beyond_tables.past_frontier_table),
    "authors": ("authors.json", beyond_tables.authors_table),
    "precision": ("precision.json", beyond_tables.precision_table),
}


def write(
    results: Path, page: Path, images: Path, sources: Sources, *, say: Callable[[str], None]
) -> list[Path]:
    measured = {
        name: "Not measured." if (content := _read_json(results / file)) is None else table(content)
        for name, (file, table) in MEASURED.items()
    }
    for name, text in {**places(sources.records, sources), **measured}.items():
        markdown.fill(page, name, f"\n{text}\n")
    epochs = _read_json(results / "epochs.json") or []
    beyond: dict[str, tuple[str, Callable[[], Drawn]]] = {
        "frontier": (
            "The recipe frontier at a glance",
            lambda: figure_beyond.draw_frontier(sources.records),
        ),
        "epochs": ("WVN epoch by epoch", lambda: figure_beyond.draw_epochs(epochs)),
    }
    written = []
    for name, (title, draw) in beyond.items():
        pictures, text = figures.write_figure(name, title, draw, images, page=page, say=say)
        markdown.fill(page, f"{name}-figure", f"\n{text}\n")
        written += pictures
    return written + figures.write(sources, images, page=page, say=say)


def draw_figures(
    results: Path, page: Path, pictures: Path, *, say: Callable[[str], None]
) -> tuple[dict[str, Any], str]:
    if not any(results.glob("*.json")):
        raise FileNotFoundError(
            f"{results}: no records; expected a folder with a .json file per network"
        )
    networks = whole_snapshots(results.parent / "networks")
    with quiet():
        sources = figures.collect_sources(results.parent, networks, load_records(results))
        if page.is_file():
            written = write(results.parent, page, pictures, sources, say=say)
        else:
            written = figures.write(sources, pictures, say=say)
    found = {
        "pictures": [str(path) for path in written],
        "page": str(page) if page.is_file() else None,
    }
    filled = f"; {page} is filled" if page.is_file() else ""
    return found, f"{len(written)} pictures in {pictures}{filled}"


def places(records: Sequence[Record], sources: Sources | None = None) -> dict[str, str]:
    sources = sources or Sources(records)
    none = "No such network has a record yet."
    sets = [
        *(table1_columns(data, imbalanced=True) for data in ("cifar10", "cifar100")),
        tables()["table2"]["columns"],
    ]
    return {
        "setup": setup_table(),
        "cost": cost_table(records),
        "claims": claims_table(every_finding(records, sources.snapshots, sources.two_features)),
        "copied": beyond_tables.copied_table(),
        "sources": beyond_tables.sources_table(records),
        "table1-cifar10": markdown.table1(records, "cifar10"),
        "table1-cifar100": markdown.table1(records, "cifar100"),
        "table2": markdown.table2(records),
        "table3": markdown.table3(records),
        "readings": beyond_tables.readings_table(records),
        "frontier-published": beyond_tables.published_table(),
        **{
            f"{table}-notes": "\n".join(f"- {note}" for note in tables()[table]["notes"])
            for table in ("table1", "table2", "table3")
        },
        "beyond": markdown.post_hoc_table(records, sets, REPEATED) or none,
        **{
            name: beyond_tables.other_recipe_table(
                records, tables()[name]["columns"], repeated_methods(name)
            )
            or none
            for name in ("strong", "frontier", "frontier-long")
        },
    }


def claims_table(findings: Mapping[tuple[str, str], Finding | None]) -> str:
    found = [(where, finding) for (where, _), finding in findings.items() if finding]
    if not found:
        return "No claim has its records yet."
    lines = []
    for outcome in ("reproduced", "partly", "not reproduced"):
        same = [finding for _, finding in found if finding.outcome == outcome]
        lines.append(f"**{outcome.capitalize()}: {len(same)} of {len(found)}.**")
    rows = [(f.says, [where, f"**{f.outcome}**", f.seen, f.rule]) for where, f in found]
    head = ["the paper", "where", "we see", "number", "needed"]
    lines = [" ".join(lines), "", markdown.markdown_table(head, rows)]
    if without := [
        name.replace("_", " ") for (_, name), finding in findings.items() if not finding
    ]:
        lines += ["", f"Not judged yet, because records are missing: {', '.join(without)}."]
    return "\n".join(lines)


def setup_table() -> str:
    every = [t.spec for table in ("table1", "table2") for t in trainings(table, seeds=1)]
    specs = [{spec.data: spec for spec in every}[data] for data in DATA_TITLES]
    recipes = [spec.resolve_recipe() for spec in specs]
    epochs = [
        dict.fromkeys(one.resolve_recipe().epochs for one in every if one.data == spec.data)
        for spec in specs
    ]
    stems = {"small": "3x3", "half": "3x3, stride 2", "imagenet": "7x7, stride 2, then pooled"}
    shortcuts = {"A": "zeros", "pool": "pooled, zeros", "B": "1x1 convolution and batch norm"}
    rows = [
        ("network", [spec.resolve_net() for spec in specs]),
        ("first layer", [stems[spec.stem] for spec in specs]),
        ("shortcut", [shortcuts[spec.shortcut] for spec in specs]),
        ("head", ["linear, without a bias; cosine for LDAM" for _ in specs]),
        ("precision", [spec.dtype for spec in specs]),
        ("recipe", [one.name for one in recipes]),
        ("epochs", [", ".join(map(str, one)) for one in epochs]),
    ]
    for key in SETTINGS.split():
        values = [
            () if key == "lr_decay" and not one.milestones else asdict(one)[key] for one in recipes
        ]
        rows.append((key.replace("_", " "), [_setting_text(value) for value in values]))
    alike: dict[tuple[str, ...], list[str]] = {}
    for data, column in zip(
        DATA_TITLES.values(), zip(*(cells for _, cells in rows), strict=True), strict=True
    ):
        alike.setdefault(column, []).append(data)
    merged = zip((title for title, _ in rows), zip(*alike, strict=True), strict=True)
    return markdown.markdown_table(
        ["", *(", ".join(sets) for sets in alike.values())], list(merged)
    )


def cost_table(records: Sequence[Record]) -> str:
    if not records:
        return "No network has a record yet."
    rows = [
        (title, _spent(these))
        for data, title in DATA_TITLES.items()
        if (these := [r for r in records if _data(r["column"]) == data])
    ]
    devices = ", ".join(sorted({str(r["device"]) for r in records}))
    versions = ", ".join(
        sorted({f"torch {r['versions']['torch']}" for r in records if "torch" in r["versions"]})
    )
    table = markdown.markdown_table(
        ["", "networks", "epochs in all", "hours", "records without a hash"],
        [*rows, ("all", _spent(records))],
    )
    there = {record.get("name") for record in records}
    planned = (
        ("Table 1", trainings("table1")),
        ("Table 2", trainings("table2")),
        ("the recipes of the sources", [*trainings("sources"), *trainings("table2-sources")]),
        ("the stronger recipe", trainings("strong")),
        ("the recipe frontier", trainings("frontier")),
        ("the recipe frontier-long", trainings("frontier-long")),
    )
    missing = [
        f"{lacking} of {len(wanted)} of {title}"
        for title, wanted in planned
        if (lacking := sum(training.name not in there for training in wanted))
    ]
    return (
        f"{table}\n\nTrained on: {devices}; {versions}. A record without a hash is older than the check of its images "
        f"and labels. Without a record, their cells empty or of fewer seeds: {', '.join(missing) or 'none'}."
    )


def _data(column: str) -> str:
    return column.split("/")[-1].split(":")[0].removesuffix("-sorted")


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _spent(records: Sequence[Record]) -> list[str]:
    epochs = sum(record["identity"]["recipe"]["epochs"] for record in records)
    hours, unhashed = (
        sum(r["seconds"] for r in records) / 3600,
        sum(not r.get("data_sha256") for r in records),
    )
    return [str(len(records)), f"{epochs:,}", f"{hours:.2f}", str(unhashed)]


def _setting_text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
