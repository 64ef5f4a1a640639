"""`levelhead tune`: choose what to do to each class, on held-out samples, and say what that is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ..support.errors import LevelheadError
from ..support.progress import stage_progress
from ..support.types import Kind, LabelTask
from ..support.warnings import quiet
from .common import (
    COUNTS,
    Background,
    Force,
    Json,
    Names,
    Page,
    app,
    check_outputs,
    example,
    say,
    show,
    typed_command,
)
from .scores import (
    IN_LOGITS,
    LABELS,
    LOGITS,
    WITHOUT_COUNTS,
    ChosenOn,
    Cost,
    LabelColumn,
    MetricName,
    Norms,
    PageModel,
    RuleName,
    ScoreKind,
    Seed,
    read_array,
    read_goal,
    read_target,
    refuse,
    with_background,
)
from .words import WithWords, rule_with

if TYPE_CHECKING:
    import numpy as np

    from ..core.rules import Rule
    from ..core.samples import Goal
    from ..core.tuned import Tuned
    from ..io.samples_file import SamplesRead


@dataclass(frozen=True, eq=False)
class How:
    """How to choose: what the options of `tune` and `compare` say besides the samples."""

    goal: Goal
    rule: Rule
    target: str | None
    kind: Kind
    chosen_on: str
    seed: int
    unlabelled: np.ndarray | None = None
    training: np.ndarray | None = None
    features: np.ndarray | None = None


@app.command(
    cls=WithWords,
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
    labels: Annotated[
        Path | None,
        Option(
            help=f"{LABELS} {IN_LOGITS} Without labels, predicted shares are matched to --target."
        ),
    ] = None,
    counts: Annotated[Path | None, Option(help=f"{COUNTS} {WITHOUT_COUNTS}")] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    metric: MetricName = None,
    rule: RuleName = None,
    cost: Cost = None,
    floor: Annotated[
        list[str] | None,
        Option(
            metavar="<str>",
            help="Least recall, of all classes (0.6) or of one (cat=0.6); repeatable.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        Option(
            help="How often each class occurs in use, if not equally often: 0.5,0.3,0.2, a file, or estimate."
        ),
    ] = None,
    unlabelled: Annotated[
        Path | None,
        Option(help="Logits from deployment, K columns, no labels needed: for --target estimate."),
    ] = None,
    task: Annotated[
        LabelTask,
        Option(help="multilabel: K sigmoids, labels [N, K] of 0 and 1, an offset for each label."),
    ] = "multiclass",
    kind: ScoreKind = "logits",
    norms: Norms = None,
    training: Annotated[
        Path | None, Option(help="Training logits: warn if --logits holds any of them.")
    ] = None,
    features: Annotated[
        Path | None,
        Option(help="What a head without a bias takes, of --logits: judge by what arrives there."),
    ] = None,
    background: Background = None,
    chosen_on: ChosenOn = "held-out",
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        Option(
            "-o", "--out", help="Write the choice, for `levelhead adjust` and `apply`: tuned.json."
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
        str | None, Option(help="What the page calls it, instead of the name of --logits.")
    ] = None,
    model: PageModel = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose what to do to each class, on held-out data.

    By default a number is added to the score of each class, so that only biases of a model change. Says what that
    gains on samples that the choice has not seen, and what it costs.
    """
    from ..io.arrays import read_names

    inputs = (logits, labels, counts, unlabelled, norms, training, features, cost)
    check_outputs(out=out, plot=plot, page=report, force=force, inputs=inputs)
    if report is None:
        refuse("this is for a page; add --report page.html", title=title, model=model)
    several = task == "multilabel"
    if several:
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
        if metric is None and cost is None:
            from ..labels.check import DEFAULT_METRIC

            metric = DEFAULT_METRIC
    how = How(
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
    known = read_names(names)
    if several:
        tuned, samples = tune_several_labels(logits, labels, counts, known, how)
    elif logits.is_dir():
        refuse("expected none with a folder of logits, got {}", labels=labels, report=report)
        more = {"training": training, "unlabelled": unlabelled, "features": features}
        refuse("this needs all logits in one file", **more)
        tuned, samples = tune_folder(logits, counts, known, how, label_column, background)
    else:
        tuned, samples = tune_files(logits, labels, counts, known, how, label_column, background)
    samples.check_unchanged()
    write_choice(tuned, samples, norms, out, plot, new=not force)
    if report is not None:
        write_page(tuned, samples, report, title or logits.stem, out, model)
    for line in tuned.warnings:
        say(line)
    written = ", ".join(str(path) for path in (out, plot, report) if path is not None)
    text = replace(tuned, warnings=()).summary()
    show(tuned.to_dict(), f"{text}\nwritten: {written}" if written else text, as_json)


def tune_files(
    logits: Path,
    labels: Path | None,
    counts: Path | None,
    names: Sequence[str] | None,
    how: How,
    label_column: str | None,
    background: str | None,
) -> tuple[Tuned, SamplesRead]:
    """Choose with `tune`, or with `tune_unlabelled` if there are no labels. The result holds the warnings."""
    from ..core.tune import tune as tune_labelled
    from ..io.samples_file import read

    samples = read(
        logits,
        labels,
        counts,
        names=names,
        label_column=label_column,
        background=background,
        say=say,
    )
    if samples.labels is None:
        return tune_without_labels(samples, how, background), samples
    with quiet(), stage_progress(samples.logits.size) as progress:
        tuned = tune_labelled(
            samples.logits,
            samples.labels,
            with_background(samples, background),
            metric=how.goal,
            rule=how.rule,
            target=read_target(how.target, samples),
            unlabelled=how.unlabelled,
            names=samples.names,
            kind=how.kind,
            training=how.training,
            features=how.features,
            chosen_on=how.chosen_on,
            rng=how.seed,
            progress=progress,
        )
    return tuned, samples


def tune_without_labels(samples: SamplesRead, how: How, background: str | None) -> Tuned:
    """Choose until classes are predicted as often as the target says."""
    from ..core.samples import Goal
    from ..core.unlabelled import tune_unlabelled

    these = "--logits are the unlabelled ones if --labels is left out"
    refuse(these, unlabelled=how.unlabelled, training=how.training)
    metric = None
    if how.goal.metric is not Goal().metric:
        metric = how.goal.metric
    goal = how.goal
    refuse(
        "this needs --labels",
        cost=goal.cost,
        metric=metric,
        floors=goal.floors,
        features=how.features,
    )
    with quiet():
        return tune_unlabelled(
            samples.logits,
            read_target(how.target, samples),
            counts=with_background(samples, background),
            rule=how.rule,
            names=samples.names,
            kind=how.kind,
        )


def tune_several_labels(
    logits: Path,
    labels: Path | None,
    counts: Path | None,
    names: Sequence[str] | None,
    how: How,
) -> tuple[Tuned, SamplesRead]:
    """Choose an offset for each label. The result holds the warnings."""
    from ..io.samples_file import read_label_samples
    from ..labels.tune_labels import tune_labels

    samples = read_label_samples(logits, labels, counts, names=names, say=say)
    with quiet():
        tuned = tune_labels(
            samples.logits,
            samples.labels,
            samples.counts,
            metric=how.goal.metric,
            cost=how.goal.cost,
            floors=how.goal.floors,
            names=samples.names,
            kind=how.kind,
            training=how.training,
            chosen_on=how.chosen_on,
            rng=how.seed,
        )
    return tuned, samples


def tune_folder(
    folder: Path,
    counts: Path | None,
    names: Sequence[str] | None,
    how: How,
    label_column: str | None,
    background: str | None,
) -> tuple[Tuned, SamplesRead]:
    """Return the choice on all files of a folder, one in memory at a time, and the samples of the first."""
    from ..core.chunks import tune_chunks
    from ..core.tune import ESTIMATE
    from ..io.arrays import has_known_suffix
    from ..io.samples_file import read

    if how.target == ESTIMATE:
        raise LevelheadError("this needs all logits in one file", parameter="target")
    files = sorted(path for path in folder.iterdir() if path.is_file() and has_known_suffix(path))
    if not files:
        expected = "expected files that hold logits and labels, found none"
        raise LevelheadError(f"{folder}: {expected}", parameter="logits")
    first = read(
        files[0], None, counts, names=names, label_column=label_column, background=background
    )
    training_counts = None
    if first.counts is not None:
        training_counts = first.counts.tolist()

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for file in files:
            part = read(file, None, training_counts, names=first.names, label_column=label_column)
            if part.labels is None:
                missing = f"{file}: expected labels next to the logits"
                raise LevelheadError(missing, parameter="logits")
            yield part.logits, part.labels
            part.check_unchanged()

    with quiet():
        tuned = tune_chunks(
            chunks,
            with_background(first, background),
            metric=how.goal,
            rule=how.rule,
            target=read_target(how.target, first),
            names=first.names,
            kind=how.kind,
            chosen_on=how.chosen_on,
            rng=how.seed,
        )
    return tuned, replace(first, files={}, stamps={})  # the first file alone is not its source


def write_choice(
    tuned: Tuned,
    samples: SamplesRead,
    norms: Path | None,
    out: Path | None,
    plot: Path | None,
    *,
    new: bool,
) -> None:
    """Write the choice with the files that it was made on, and draw it."""
    if out is not None:
        from ..core.tuned import write_tuned
        from ..io.samples_file import describe_sources

        sources = describe_sources({**samples.files, "norms": norms})
        write_tuned(replace(tuned, sources=sources), out, new=new)
    if plot is not None:
        from ..show.plot import save_plot

        save_plot(tuned.plot, plot)


def write_page(
    tuned: Tuned,
    samples: SamplesRead,
    page: Path,
    title: str,
    tuned_file: Path | None,
    model: Path | None,
) -> None:
    """Write the page of a choice, on the samples that it was made on."""
    from ..report import of_tuned, write

    subject = of_tuned(
        tuned,
        samples.logits,
        samples.labels,
        title=title,
        files={what: str(source) for what, source in samples.files.items()},
        tuned_file="" if tuned_file is None else str(tuned_file),
        model="" if model is None else str(model),
    )
    write(page, [subject], command=typed_command())
