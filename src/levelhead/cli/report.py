"""`levelhead report`: a page that shows what an adjustment does.

Every input becomes a subject of the page (`report.of_file` tells what it is) or, of a folder of records,
tables. The choice is made where none is given, so this is `tune` and a page in one command.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ..support.errors import LevelheadError
from .common import app, check_outputs, example, say, show, typed_command
from .options import (
    DATA,
    ChosenOn,
    Counts,
    Force,
    Json,
    LabelColumn,
    Labels,
    MetricName,
    Names,
    PageModel,
    RuleName,
)
from .scores import refuse
from .words import PlainCommand

if TYPE_CHECKING:
    from ..report import PageTable


@app.command(
    cls=PlainCommand,
    epilog=example("report logits.npy --labels labels.npy --counts counts.json -o page.html"),
)
def report(
    inputs: Annotated[
        list[Path],
        Argument(
            metavar="INPUT",
            help=f"Logits {DATA}; or a tuned.json, a run's folder, a snapshot, a folder of the "
            "paper's records. Several are shown side by side.",
        ),
    ],
    out: Annotated[
        Path, Option("-o", "--out", help="The page: one .html file that contains all it needs.")
    ],
    labels: Labels = None,
    counts: Counts = None,
    names: Names = None,
    label_column: LabelColumn = None,
    tuned: Annotated[
        Path | None,
        Option(help="A choice that `levelhead tune -o` wrote, to be shown on these samples."),
    ] = None,
    rule: RuleName = None,
    metric: MetricName = None,
    title: Annotated[
        list[str] | None,
        Option(
            metavar="TEXT",
            help="Title of the page, if not the name of its file; of several inputs, once for each.",
        ),
    ] = None,
    model: PageModel = None,
    chosen_on: ChosenOn = "held-out",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a page that shows what the adjustment does to a model.

    The page has a verdict in words, and every class before and after. It needs no network and no server: open it,
    mail it, print it. From logits, the choice is made here as `levelhead tune` makes it, unless --tuned gives one;
    without their labels, only predicted shares are shown.
    """
    from ..io.arrays import read_names
    from ..report import is_records, of_file, write
    from ..report.sources import are_samples

    check_outputs(page=out, force=force)
    # The paper's records have tables; everything else is a model, with a title of its own.
    tables = []
    models = []
    for path in inputs:
        if is_records(path):
            tables += tables_of_records(path)
        else:
            models.append(path)
    if title and len(title) != len(models):
        expected = f"expected {len(models)}, one for each model, got {len(title)}"
        raise LevelheadError(expected, parameter="title")
    if not any(map(are_samples, models)):
        refuse(
            "this is for logits; leave it out",
            labels=labels,
            counts=counts,
            names=names,
            label_column=label_column,
            chosen_on=chosen_on if chosen_on != "held-out" else None,
        )
    titles: Sequence[str | None] = title or [None] * len(models)
    # Options hold for all inputs: several models on the same samples, side by side.
    class_names = read_names(names)
    subjects = []
    for path, its_title in zip(models, titles, strict=True):
        subject = of_file(
            path,
            labels=labels,
            counts_file=counts,
            names=class_names,
            label_column=label_column,
            tuned=tuned,
            rule=rule,
            metric=metric,
            chosen_on=chosen_on,
            title=its_title,
            model=model,
            say=say,
        )
        subjects.append(subject)
    # All inputs are read before the page is written: if one is bad, there is no page.
    page = write(out, subjects, tables=tables, command=typed_command())
    result = {"page": str(page), "bytes": page.stat().st_size}
    show(result, f"{page}: open it in a browser", as_json)


def tables_of_records(folder: Path) -> list[PageTable]:
    """Return the tables of the paper that a folder of records fills, as `levelhead_lab` writes them.

    They come as Markdown, which is what the docs have; the page takes the cells.
    """
    from ..report import PageTable
    from ..support.extras import from_the_study

    tables_of_folder = from_the_study(
        "paper.paper_tables:tables_of_folder", needed_by=f"a page of the records in {folder}"
    )
    texts: dict[str, str] = tables_of_folder(folder)
    return [PageTable.of_markdown(name, text) for name, text in texts.items()]
