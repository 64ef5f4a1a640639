"""Commands for a model's scores: choose what to add to each class, compare the rules, show it on a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ..support.errors import Advice, LevelheadError, named, reported_as
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
from .words import METRICS_HERE, RULES_HERE, WithWords, complete_metric, complete_rule, rule_with

if TYPE_CHECKING:
    import numpy as np

    from ..core.rules import Rule
    from ..core.samples import Goal
    from ..core.tuned import Tuned
    from ..io.samples_file import SamplesRead

DATA = (
    "in a .npy, .npz, .safetensors, .pt, .csv, .tsv or .parquet file; FILE:KEY picks one array or "
    "column of several"
)
LOGITS = (
    f"Scores before softmax, of samples the model was not trained on: N rows, K classes, {DATA}."
)
LABELS = "True class of each row: an index or a name."
IN_LOGITS = "May be left out if the file of the logits holds an array of this name."
WITHOUT_COUNTS = "Without them, those of the labels stand in."

LabelColumn = Annotated[
    str | None,
    Option(help="The labels' column in a table of logits, if it is not called label, y or target."),
]
ChosenOn = Annotated[str, Option(help="What the samples are. Say test if they are your test set.")]
MetricName = Annotated[
    str | None,
    Option(
        help=f"What to improve: {METRICS_HERE}; or scikit-learn's name for it.",
        autocompletion=complete_metric,
    ),
]
RuleName = Annotated[
    str | None,
    Option(help=f"What is done to each class. {RULES_HERE}.", autocompletion=complete_rule),
]
Cost = Annotated[
    Path | None,
    Option(
        help="K rows (true class) of K costs (predicted class): the metric is then the mean cost."
    ),
]
Norms = Annotated[
    Path | None, Option(help="Weight norms of the head, one per class, in a file: for tau.")
]
ScoreKind = Annotated[
    Kind, Option(help="What --logits holds; of probabilities, the logarithms are adjusted.")
]
Seed = Annotated[int, Option(help="Seed by which samples are dealt into folds.", min=0)]
PageModel = Annotated[
    Path | None, Option(help="The model's file, for the commands on the page to name it.")
]


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
        Path | None, Option(help="Draw the recall of each class, as .png, .svg or .pdf.")
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

    inputs = (logits, labels, counts, unlabelled, norms, training, cost)
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
        )
        if metric is None and cost is None:
            from ..labels.check import DEFAULT_METRIC

            metric = DEFAULT_METRIC
    how = How(
        goal=read_goal(metric, cost, floor or ()),
        rule=rule_with(rule, norms=_read(norms, "norms")),
        target=target,
        kind=kind,
        chosen_on=chosen_on,
        seed=seed,
        unlabelled=_read(unlabelled),
        training=_read(training),
    )
    known = read_names(names)
    if several:
        tuned, samples = tune_several_labels(logits, labels, counts, known, how)
    elif logits.is_dir():
        refuse("expected none with a folder of logits, got {}", labels=labels, report=report)
        refuse("this needs all logits in one file", training=training, unlabelled=unlabelled)
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


@app.command(
    cls=WithWords,
    epilog=example("compare --logits logits.npy --labels labels.npy --counts counts.json"),
)
def compare(
    logits: Annotated[Path, Option(help=LOGITS)],
    labels: Annotated[Path | None, Option(help=f"{LABELS} {IN_LOGITS}")] = None,
    counts: Annotated[Path | None, Option(help=f"{COUNTS} {WITHOUT_COUNTS}")] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    metric: MetricName = None,
    cost: Cost = None,
    target: Annotated[
        str | None,
        Option(
            help="How often each class occurs in use, if not equally often: 0.5,0.3,0.2, or a file."
        ),
    ] = None,
    kind: ScoreKind = "logits",
    norms: Norms = None,
    background: Background = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare the rules side by side on held-out data.

    Each rule is fitted on four fifths of the samples and judged on the rest, so that the more flexible one does not
    win by chance.
    """
    from ..core.compare import compare as compare_rules
    from ..io.arrays import read_names, target_shares
    from ..io.samples_file import read

    samples = read(
        logits,
        labels,
        counts,
        names=read_names(names),
        label_column=label_column,
        background=background,
        say=say,
    )
    if samples.labels is None:
        missing = "expected labels: only they can tell which rule is right"
        raise LevelheadError(missing, parameter="labels")
    with quiet():  # the table holds the warnings
        table = compare_rules(
            samples.logits,
            samples.labels,
            with_background(samples, background),
            metric=read_goal(metric, cost, ()),
            target=target_shares(target, samples.names, samples.classes),
            names=samples.names,
            kind=kind,
            norms=_read(norms, "norms"),
            rng=seed,
        )
    show(table.to_dict(), str(table), as_json)


@app.command(
    cls=WithWords,
    epilog=example("report logits.npy --labels labels.npy --counts counts.json -o page.html"),
)
def report(
    inputs: Annotated[
        list[Path],
        Argument(
            help=f"A run's folder, a snapshot, a tuned.json, a folder of the paper's records, "
            f"or logits {DATA}. Several are shown side by side."
        ),
    ],
    out: Annotated[
        Path, Option("-o", "--out", help="The page: one .html file that contains all it needs.")
    ],
    labels: Annotated[
        Path | None,
        Option(
            help=f"For logits. {LABELS} {IN_LOGITS} Without labels, only predicted shares are shown."
        ),
    ] = None,
    counts: Annotated[Path | None, Option(help=f"For logits. {COUNTS} {WITHOUT_COUNTS}")] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    tuned: Annotated[
        Path | None, Option(help="What `levelhead tune -o` wrote, chosen on other samples.")
    ] = None,
    rule: RuleName = None,
    metric: MetricName = None,
    title: Annotated[
        list[str] | None,
        Option(
            metavar="<str>",
            help="What to call it, instead of its file's name; once for each of several.",
        ),
    ] = None,
    model: PageModel = None,
    chosen_on: ChosenOn = "held-out",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a page that shows what the adjustment does to a model.

    The page has a verdict in words, and every class before and after. It needs no network and no server: open it,
    mail it, print it.
    """
    from ..io.arrays import read_names
    from ..report import PageTable, is_records, of_file, write
    from ..support.extras import from_the_study

    check_outputs(page=out, force=force)
    tables = []
    for path in filter(is_records, inputs):
        of_folder = from_the_study("paper.markdown:tables_of_folder")(path)
        tables += [PageTable.of_markdown(name, text) for name, text in of_folder.items()]
    places = [path for path in inputs if not is_records(path)]
    if title and len(title) != len(places):
        expected = f"expected {len(places)}, one for each model, got {len(title)}"
        raise LevelheadError(expected, parameter="title")
    titles: Sequence[str | None] = title or [None] * len(places)
    subjects = [
        of_file(
            place,
            labels=labels,
            counts_file=counts,
            names=read_names(names),
            label_column=label_column,
            tuned=tuned,
            rule=rule,
            metric=metric,
            chosen_on=chosen_on,
            title=own_title,
            model=None if model is None else str(model),
            say=say,
        )
        for place, own_title in zip(places, titles, strict=True)
    ]
    page = write(out, subjects, tables=tables, command=typed_command())
    result = {"page": str(page), "bytes": page.stat().st_size}
    show(result, f"{page}: open it in a browser", as_json)


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
    metric = None if how.goal.metric is Goal().metric else how.goal.metric
    refuse("this needs --labels", cost=how.goal.cost, metric=metric, floors=how.goal.floors)
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
    training_counts = None if first.counts is None else first.counts.tolist()

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


def with_background(samples: SamplesRead, background: str | None) -> Any:
    """Return the training counts of samples, with the class that is left alone, if there is one."""
    from ..core.counts import find_background, with_background

    if background is None:
        return samples.counts
    if samples.counts is None:
        advice = Advice("counts", None, "to give them")
        reason = "this needs the training samples of each class"
        raise LevelheadError(reason, parameter="background", advice=advice)
    alone = find_background(background, samples.classes, samples.names)
    return with_background(samples.counts, alone)


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


def read_goal(metric: str | None, cost: Path | None, floors: Sequence[str]) -> Goal:
    """Return what a choice is to be good at."""
    from ..core.samples import Goal

    costs = _read(cost, "cost")
    least = read_floors(floors)
    if metric is None:
        return Goal(cost=costs, floors=least)
    return Goal(metric, costs, least)


def read_target(given: str | None, samples: SamplesRead) -> Any:
    """Return shares [K] from what --target says, or the word `estimate`; None if none are given."""
    from ..core.tune import ESTIMATE
    from ..io.arrays import target_shares

    if given == ESTIMATE:
        return given
    return target_shares(given, samples.names, samples.classes)


def read_floors(given: Sequence[str]) -> float | dict[str, float] | None:
    """Return the floors of recall as `tune` takes them: a number for all classes, or {class: recall}."""
    from ..core.class_names import without_repeats

    pairs = []
    for name, _, value in (each.rpartition("=") for each in given):
        expected = f"expected a recall such as 0.6, or CLASS=0.6, got {value!r}"
        with named("floors"), reported_as(expected, ValueError):
            pairs.append((name, float(value)))
    if len(pairs) == 1 and not pairs[0][0]:
        return pairs[0][1]
    if not all(name for name, _ in pairs):
        expected = "expected one recall for all classes, or CLASS=RECALL each time"
        raise LevelheadError(f"{expected}, got {', '.join(given)}", parameter="floors")
    with named("floors"):
        return without_repeats(pairs) or None


def refuse(reason: str, **given: object) -> None:
    """Raise if any of these options was given."""
    for name, value in given.items():
        if value is not None:
            raise LevelheadError(reason.format(value), parameter=name)


def _read(source: Path | None, wanted: str = "logits") -> np.ndarray | None:
    from ..io import arrays

    return None if source is None else arrays.read(source, wanted=wanted)
