"""`levelhead tune`: choose what to do to each class, on held-out samples, and say what that is worth.

The command checks what it could not write, has choosing.py choose, and writes what was asked for:
the choice, a picture, a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ..support.errors import LevelheadError
from ..support.types import LabelTask
from .choosing import Choice, Inputs, Request, choose
from .common import app, check_outputs, example, say, show, typed_command, with_files
from .options import (
    LOGITS,
    TARGET,
    Background,
    ChosenOn,
    Cost,
    Counts,
    Force,
    Json,
    LabelColumn,
    Labels,
    MetricName,
    Names,
    Norms,
    Page,
    PageModel,
    RuleName,
    ScoreKind,
    Seed,
)
from .scores import read_array, read_goal, refuse
from .words import PlainCommand, rule_with

if TYPE_CHECKING:
    import numpy as np


@app.command(
    cls=PlainCommand,
    epilog=example(
        "tune --logits logits.npy --labels labels.npy --counts counts.json -o tuned.json"
    ),
)
def tune(
    logits: Annotated[
        Path,
        Option(
            help=f"{LOGITS} Or a folder of such files, each with its labels, read one at a time."
        ),
    ],
    labels: Labels = None,
    counts: Counts = None,
    names: Names = None,
    label_column: LabelColumn = None,
    metric: MetricName = None,
    rule: RuleName = None,
    cost: Cost = None,
    floor: Annotated[
        list[str] | None,
        Option(
            metavar="RECALL",
            help="Lowest recall to accept, of every class (0.6) or of one (cat=0.6); may be repeated.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        Option(metavar="SHARES", help=f"{TARGET} a file, or the word estimate (see --unlabelled)."),
    ] = None,
    unlabelled: Annotated[
        Path | None,
        Option(
            help="Logits of samples as they occur in use, K columns, without labels: --target estimate "
            "goes by them."
        ),
    ] = None,
    task: Annotated[
        LabelTask,
        Option(
            help="multilabel if a sample may have several labels: a sigmoid for each, labels [N, K] "
            "of 0 and 1."
        ),
    ] = "multiclass",
    kind: ScoreKind = "logits",
    norms: Norms = None,
    training: Annotated[
        Path | None, Option(help="Training logits, to warn if --logits holds any of them.")
    ] = None,
    features: Annotated[
        Path | None,
        Option(
            help="What the head takes, [N, d], of the samples of --logits, if it has no bias: offsets "
            "then go into its weights, and are judged by what arrives of them."
        ),
    ] = None,
    background: Background = None,
    chosen_on: ChosenOn = "held-out",
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        Option(
            "-o",
            "--out",
            help="Where to write the choice, for `levelhead adjust` and `levelhead apply`: tuned.json.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        Option(
            help="Draw recall and precision of each class, before and after: .png, .svg or .pdf."
        ),
    ] = None,
    report: Page = None,
    title: Annotated[
        str | None, Option(help="Title of the page, instead of the name of --logits.")
    ] = None,
    model: PageModel = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose what to do to each class, on held-out data.

    By default a number is added to the score of each class, so only the biases of a model change. Prints what that
    gains on samples that the choice has not seen, what it costs, and every class before and after. Without labels,
    the classes are predicted as often as --target says.
    """
    from ..io.arrays import read_names

    # What cannot be written, or means nothing here, is said before a sample is read.
    check_outputs(
        out=out,
        plot=plot,
        page=report,
        force=force,
        inputs=(
            logits,
            labels,
            counts,
            names,
            target,
            unlabelled,
            norms,
            training,
            features,
            cost,
        ),
    )
    if out is not None and out.suffix != ".json":
        raise LevelheadError(f"{out}: expected a name that ends in .json: the choice is JSON")
    if report is None:
        refuse("this is for a page; add --report page.html", title=title, model=model)
    several_labels = task == "multilabel"
    if several_labels:
        refuse(
            "not for several labels per sample; leave it out",
            label_column=label_column,
            background=background,
            target=target,
            unlabelled=unlabelled,
            norms=norms,
            rule=rule,
            features=features,
        )
        # The default of several labels is another than that of one class, which `read_goal` has.
        if metric is None and cost is None:
            from ..labels.check import DEFAULT_METRIC

            metric = DEFAULT_METRIC
    elif logits.is_dir():
        refuse("a page needs all logits in one file; leave it out", report=report)
    request = Request(
        goal=read_goal(metric, cost, floor or ()),
        rule=rule_with(rule, norms=read_array(norms, "norms")),
        target=target,
        kind=kind,
        chosen_on=chosen_on,
        seed=seed,
        unlabelled=read_array(unlabelled),
        training=read_array(training),
        features=read_array(features, "features"),
    )
    # Choose, then write: nothing is written if a file has changed while it was read.
    inputs = Inputs(logits, labels, counts, read_names(names), label_column, background)
    choice = choose(inputs, request, several_labels=several_labels)
    if choice.tuned.evidence is None:
        refuse("this needs --labels", plot=plot)
    choice.samples.check_unchanged()
    beside = {"norms": norms, "features": features}
    write_choice(choice, beside, out, plot, new=not force)
    if report is not None:
        write_page(choice, beside, request.features, report, title or logits.stem, out, model)
    for line in choice.tuned.warnings:
        say(line)
    # Its warnings were said before.
    text = replace(choice.tuned, warnings=()).summary()
    show(choice.tuned.to_dict(), with_files(text, out, plot, report), as_json)


def write_choice(
    choice: Choice,
    beside: Mapping[str, Path | None],
    out: Path | None,
    plot: Path | None,
    *,
    new: bool,
) -> None:
    """Write the choice with the names of the files that it was made on, and draw it.

    Args:
        choice: with the files of its samples.
        beside: the other files it was made by, by what they hold.
        out, plot: where to; nothing is written where one is None.
        new: refuse a file that came to be since the outputs were checked.
    """
    if out is not None:
        from ..core.tuned import write_tuned
        from ..io.samples_file import describe_sources

        sources = describe_sources({**choice.samples.files, **beside})
        write_tuned(replace(choice.tuned, sources=sources), out, new=new)
    if plot is not None:
        from ..show.plot import save_plot

        save_plot(choice.tuned.plot, plot)


def write_page(
    choice: Choice,
    beside: Mapping[str, Path | None],
    features: np.ndarray | None,
    page: Path,
    title: str,
    tuned_file: Path | None,
    model: Path | None,
) -> None:
    """Write the page of a choice, on the samples that it was made on.

    Args:
        choice, beside: as in `write_choice`.
        features: [N, d], what was read of the file of features, if there is one.
        page: where to.
        title: of the page.
        tuned_file, model: the files that the commands on the page name; others stand in for None.
    """
    from ..report import of_tuned, write

    files = {role: str(source) for role, source in choice.samples.files.items()}
    files |= {role: str(path) for role, path in beside.items() if path is not None}

    subject = of_tuned(
        choice.tuned,
        choice.samples.logits,
        choice.samples.labels,
        features=features,
        title=title,
        files=files,
        tuned_file=str(tuned_file or ""),
        model=str(model or ""),
    )
    write(page, [subject], command=typed_command())
