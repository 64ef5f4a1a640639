"""The pages of the reproduction: every table, sentence with a number, figure and claim, written from results/.

`draw_figures` is what `levelhead reproduce figures` calls. It reads everything once (`figures.collect_sources` for
records and networks, `Measured.read` for single files), draws the figures (`write_figures`), asks each module for its
texts (`places`) and writes each text into the place of its name (`fill_pages`).

A place and a text belong together by name alone, and both ways: a place that nobody fills and a text that no page
shows are errors. So a page cannot keep a number that nobody computes any more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from levelhead.support.errors import LevelheadError
from levelhead.support.warnings import quiet

from . import (
    beyond_tables,
    beyond_texts,
    distances,
    figure_beyond,
    figures,
    how_done,
    markdown,
    paper_tables,
    row_texts,
    table2_readings,
    wvn_differs,
)
from .all_claims import every_finding
from .cells import Record, load_records
from .claims import Finding
from .figure_style import Drawn, Sources
from .headline import headline
from .measured_fields import Authors, EpochsRun, Heads, PastFrontierRun, PrecisionStudy, Rounding
from .record import whole_snapshots
from .tables import REPEATED, repeated_methods, table1_columns, table_named, tables

PAGES = ("reproduction.md", "reproduction-beyond.md", "reproduction-how.md")
NOT_MEASURED = "Not measured."


@dataclass(frozen=True)
class Measured:
    """What is in results/ beside the records; None where a file is missing."""

    authors: Authors | None = None  # the authors' own code
    precision: PrecisionStudy | None = None  # one training in several precisions
    epochs: list[EpochsRun] | None = None  # RS and the shift epoch by epoch
    past_frontier: list[PastFrontierRun] | None = None  # what was tried past the recipe frontier
    heads: Heads | None = None  # heads fitted again on stored features
    rounding: Rounding | None = None  # one training in other company

    @staticmethod
    def read(results: Path) -> "Measured":
        """Read every file that is there.

        Args:
            results: the folder results/, not that of the records in it.
        """

        def content(name: str) -> object:
            """Return what `NAME.json` holds; None if there is no such file."""
            return how_done.read_json(results / f"{name}.json")

        # What a file holds is known from the program that wrote it, and is not checked.
        return Measured(
            authors=cast(Authors | None, content("authors")),
            precision=cast(PrecisionStudy | None, content("precision")),
            epochs=cast(list[EpochsRun] | None, content("epochs")),
            past_frontier=cast(list[PastFrontierRun] | None, content("past_frontier")),
            heads=cast(Heads | None, content("heads")),
            rounding=cast(Rounding | None, content("rounding")),
        )


class WrittenFiles(TypedDict):
    """What `draw_figures` wrote, for `--json`: paths."""

    pictures: list[str]
    pages: list[str]


def draw_figures(
    results: Path, docs: Path, pictures: Path, *, say: Callable[[str], None]
) -> tuple[WrittenFiles, str]:
    """Draw every figure, and fill in those pages of the reproduction that are in a folder.

    Args:
        results: the folder of the records; single files and networks are looked for in the folder above it.
        docs: the folder of the pages; those of `PAGES` that are not there are left out.
        pictures: the folder to draw into.
        say: is told which figures cannot be drawn, and why.

    Returns:
        The files that were written, and the same in a sentence.

    Raises:
        FileNotFoundError: if there are no records.
        LevelheadError: if a record cannot be read, or a page and the texts do not fit together.
    """
    if not any(results.glob("*.json")):
        raise FileNotFoundError(
            f"{results}: no records; expected a folder with a .json file per network"
        )
    # Networks and pages may be missing, records not: without them there is nothing to show.
    networks = whole_snapshots(results.parent / "networks")
    pages = [docs / name for name in PAGES if (docs / name).is_file()]
    with quiet():  # the pages themselves say what warnings would
        sources = figures.collect_sources(results.parent, networks, load_records(results))
        measured = Measured.read(results.parent)
        drawn = write_figures(sources, measured, pictures, docs, say=say)
        if pages:
            fill_pages(pages, {**places(sources, measured), **drawn.places})
    written: WrittenFiles = {
        "pictures": [str(path) for path in drawn.files],
        "pages": [str(page) for page in pages],
    }
    text = f"{len(drawn.files)} pictures in {pictures}"
    if pages:
        text += f"; filled in: {', '.join(map(str, pages))}"
    return written, text


def fill_pages(pages: Sequence[Path], texts: Mapping[str, str]) -> None:
    """Write every text into its place; a place without a text, or a text without a place, is an error.

    Both are looked for before anything is written. Whether a text has a place can only be told with all pages at hand.

    Args:
        pages: their files; some of `PAGES` or all.
        texts: in Markdown, by the name of the place.

    Raises:
        LevelheadError: if a place has no text, a text no place, or a page lacks the end of a place.
    """
    places_of = {page: markdown.places_in(page) for page in pages}
    # First what is wanted and not there, then what is there and not wanted.
    for page, names in places_of.items():
        for name in names:
            if name not in texts:
                raise LevelheadError(
                    f"{page}: nothing is written at {name!r}; the places are {', '.join(sorted(texts))}"
                )
    if len(pages) == len(PAGES):
        on_pages: set[str] = set()
        for names in places_of.values():
            on_pages.update(names)
        homeless = [name for name in texts if name not in on_pages]
        if homeless:
            raise LevelheadError(
                f"{pages[0].parent}: no page has a place for {', '.join(homeless)}"
            )
    for page, names in places_of.items():
        for name in names:
            markdown.fill(page, name, f"\n{texts[name]}\n")


@dataclass(frozen=True)
class Figures:
    """Pictures that were written, and what stands in their places: `figures` for those of the paper together."""

    files: list[Path]
    places: dict[str, str]


def write_figures(
    sources: Sources,
    measured: Measured,
    pictures: Path,
    docs: Path,
    *,
    say: Callable[[str], None],
) -> Figures:
    """Draw the paper's figures, and two that it lacks; a figure whose sources are missing is named instead.

    Args:
        sources: records and networks.
        measured: the single files, of which the figures take epochs.json.
        pictures: the folder to draw into.
        docs: the folder of the pages, which point to the pictures from there.
        say: is told which figures cannot be drawn, and why.
    """
    # Those of the paper share one place, in its order; each of ours has its own.
    files, text = figures.write(sources, pictures, docs=docs, say=say)
    texts = {"figures": text}
    # By name: the title, and what draws it. Nothing is drawn before its turn, when a missing source is caught.
    beyond: dict[str, tuple[str, Callable[[], Drawn]]] = {
        "frontier": (
            "The recipe frontier at a glance",
            lambda: figure_beyond.draw_frontier(sources.records),
        ),
        "epochs": (
            "WVN epoch by epoch",
            lambda: figure_beyond.draw_epochs(measured.epochs or []),
        ),
    }
    for name, (title, draw) in beyond.items():
        written, text = figures.write_figure(name, title, draw, pictures, docs=docs, say=say)
        files += written
        texts[f"{name}-figure"] = text
    return Figures(files, texts)


def places(sources: Sources, measured: Measured | None = None) -> dict[str, str]:
    """Return what stands in each place of the pages, by its name, figures apart.

    Args:
        sources: records and networks.
        measured: the single files; without them, their places say that nothing was measured.
    """
    measured = measured or Measured()
    records = sources.records
    # Judged once: the headline counts the verdicts that the table lists.
    findings = every_finding(records, sources.snapshots, sources.two_features)
    texts = {
        "headline": headline(records, measured.authors, findings),
        "distances": distances.distances_table(records),
        "table1-cifar10": paper_tables.table1(records, "cifar10"),
        "table1-cifar100": paper_tables.table1(records, "cifar100"),
        "table1-text": row_texts.table1_text(records),
        "spread": row_texts.spread_text(records),
        "copied": row_texts.copied_table(records),
        "sources-text": row_texts.sources_text(records),
        "sources": distances.sources_table(records),
        "table2": paper_tables.table2(records),
        "table2-text": row_texts.table2_text(records),
        "table2-readings": table2_readings.table2_readings_table(records),
        "table2-readings-text": table2_readings.table2_readings_text(records),
        "table2-ldam": table2_readings.table2_ldam_table(records),
        "table2-ldam-text": table2_readings.table2_ldam_text(records),
        "table2-everywhere": table2_readings.table2_everywhere_table(records),
        "table3": paper_tables.table3(records),
        "readings": row_texts.readings_table(records),
        "readings-text": row_texts.readings_text(records),
        "claims": claims_table(findings),
        "setup": how_done.setup_table(),
        "cost": how_done.cost_table(records),
    }
    for table in ("table1", "table2", "table3"):
        notes = [f"- {note}" for note in tables()[table]["notes"]]
        texts[f"{table}-notes"] = "\n".join(notes)
    texts |= _beyond_places(records)
    texts |= _measured_places(records, measured)
    return texts


def _beyond_places(records: Sequence[Record]) -> dict[str, str]:
    """Return the texts on what the paper lacks that are written from records.

    Returns:
        By the name of the place; `NO_NETWORK` where the table would be empty.
    """
    sets = [
        table1_columns("cifar10", imbalanced=True),
        table1_columns("cifar100", imbalanced=True),
        tables()["table2"]["columns"],
    ]
    texts = {
        "beyond": paper_tables.post_hoc_table(records, sets, REPEATED),
        "strong-text": beyond_texts.strong_text(records),
        "frontier-text": beyond_texts.frontier_text(records),
        "frontier-long-text": beyond_texts.frontier_long_text(records),
        "frontier-published": beyond_tables.published_table(),
    }
    # Each of our recipes has a table of its networks; its name is that of the place.
    for name in ("strong", "frontier", "frontier-long"):
        columns = table_named(name)["columns"]
        texts[name] = beyond_tables.other_recipe_table(records, columns, repeated_methods(name))
    # A table without a cell is empty.
    return {name: text or row_texts.NO_NETWORK for name, text in texts.items()}


def _measured_places(records: Sequence[Record], measured: Measured) -> dict[str, str]:
    """Return what is written from single files of results/; `NOT_MEASURED` where a file is missing."""
    # Every place has a text from the start, so that a missing file leaves no place open.
    texts: dict[str, str] = dict.fromkeys(
        (
            "authors", "pooled", "precision", "epochs", "epochs-text", "heads", "heads-text", "unlabelled",
            "past-frontier", "past-frontier-text", "rounding",
        ),
        NOT_MEASURED,
    )  # fmt: skip
    if measured.authors is not None:
        texts["authors"] = wvn_differs.authors_table(measured.authors, records)
    if measured.precision is not None:
        texts["precision"] = wvn_differs.precision_table(measured.precision)
    if measured.epochs is not None:
        texts["epochs"] = wvn_differs.epochs_table(measured.epochs)
    # Two texts compare files with each other, and need both.
    if measured.precision is not None and measured.epochs is not None:
        texts["pooled"] = wvn_differs.pooled_text(records, measured.precision, measured.epochs)
    if measured.epochs is not None and measured.authors is not None:
        texts["epochs-text"] = wvn_differs.epochs_text(measured.epochs, measured.authors)
    if measured.heads is not None:
        texts["heads"] = beyond_tables.heads_table(measured.heads)
        texts["heads-text"] = beyond_texts.heads_text(measured.heads)
        texts["unlabelled"] = beyond_texts.unlabelled_text(measured.heads)
    if measured.past_frontier is not None:
        texts["past-frontier"] = beyond_tables.past_frontier_table(measured.past_frontier)
        texts["past-frontier-text"] = beyond_texts.past_frontier_text(measured.past_frontier)
    if measured.rounding is not None:
        texts["rounding"] = how_done.rounding_text(measured.rounding)
    return texts


def claims_table(findings: Mapping[tuple[str, str], Finding | None]) -> str:
    """Return the verdict on every claim, and which claims have no records yet.

    Args:
        findings: by where the claim stands in the paper and the name of its function, as of `every_finding`.

    >>> clear = Finding("Norms follow counts.", 0.9, "rank correlation 0.90", "reproduced", "0.7; partly: 0.3")
    >>> print(claims_table({("Figure 2", "norm_follows_frequency"): clear, ("Figure 3", "boundary_leans"): None}))
    **Reproduced: 1 of 1.** **Partly: 0 of 1.** **Not reproduced: 0 of 1.**
    <BLANKLINE>
    | the paper | where | we see | number | needed |
    |---|---|---|---|---|
    | Norms follow counts. | Figure 2 | **reproduced** | rank correlation 0.90 | 0.7; partly: 0.3 |
    <BLANKLINE>
    Not judged yet, because records are missing: boundary leans.
    """
    judged = []
    missing = []
    for (where, name), finding in findings.items():
        if finding is None:
            missing.append(name.replace("_", " "))
        else:
            judged.append((where, finding))
    if not judged:
        return "No claim has its records yet."
    # Above the table the totals, below it what could not be judged.
    totals = []
    for outcome in ("reproduced", "partly", "not reproduced"):
        count = sum(finding.outcome == outcome for _, finding in judged)
        totals.append(f"**{outcome.capitalize()}: {count} of {len(judged)}.**")
    rows = []
    for where, finding in judged:
        cells = [where, f"**{finding.outcome}**", finding.seen, finding.rule]
        rows.append((finding.says, cells))
    head = ["the paper", "where", "we see", "number", "needed"]
    text = f"{' '.join(totals)}\n\n{markdown.markdown_table(head, rows)}"
    if missing:
        text += f"\n\nNot judged yet, because records are missing: {', '.join(missing)}."
    return text
