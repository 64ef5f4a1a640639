"""Commands for a model's logits: choose a rule and its strength, compare the rules, show them on a page."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.choices import Criterion, Kind, LabelTask, Metric, PathRule, RuleRequest
from ..core.errors import LevelheadError
from .common import (
    COUNTS,
    DATA,
    IN_LOGITS,
    LABELS,
    Background,
    ChosenOn,
    Force,
    Json,
    LabelColumn,
    Names,
    Page,
    TuneRequest,
    app,
    check_outputs,
    check_seed,
    check_titles,
    example,
    range_up_to,
    read_floors,
    say,
    show,
    typed_command,
)

if TYPE_CHECKING:
    import numpy as np

    from ..choice.tuned import Tuned
    from ..io.samples_file import Samples

Logits = Annotated[
    Path,
    typer.Option(help=f"Scores before softmax, of samples the model was not trained on: N rows, K classes, {DATA}."),
]
Cost = Annotated[
    Path | None,
    typer.Option(help="K rows (true class) of K costs (predicted class): the metric is then the mean cost."),
]
Most = Annotated[float | None, typer.Option("--max", help="Largest gamma to try; each rule has its own.")]


@app.command(epilog=example("tune --logits logits.npy --labels labels.npy --counts counts.json -o tuned.json"))
def tune(
    logits: Annotated[
        Path,
        typer.Option(
            help=f"Scores before softmax, of samples the model was not trained on: N rows, K classes, {DATA}. "
            "Or a folder of such files, each with its labels, read one at a time."
        ),
    ],
    counts: Annotated[Path | None, typer.Option(help=f"{COUNTS} {IN_LOGITS}")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help=f"{LABELS} {IN_LOGITS} Without labels, predicted shares are matched to --target."),
    ] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    unlabelled: Annotated[
        Path | None, typer.Option(help="Logits from deployment, K columns, no labels needed: to choose better.")
    ] = None,
    rule: Annotated[
        RuleRequest,
        typer.Option(
            help="auto chooses on your samples; rescale is RS, of the paper; shift adds gamma log(n_max / n_k); "
            "tau needs --norms; vector has a scale and an offset per class, offsets an offset."
        ),
    ] = "auto",
    task: Annotated[
        LabelTask, typer.Option(help="multilabel: K sigmoids, labels [N, K] of 0 and 1, each label shifted by itself.")
    ] = "multiclass",
    metric: Annotated[Metric, typer.Option(help="What to improve; cost needs --cost.")] = "balanced_error",
    cost: Cost = None,
    floor: Annotated[
        list[str] | None,
        typer.Option(metavar="<str>", help="Least recall, of all classes (0.6) or of one (cat=0.6); repeatable."),
    ] = None,
    criterion: Annotated[Criterion, typer.Option(help="guided: by predicted shares too if labels are few.")] = "guided",
    target: Annotated[
        str | None,
        typer.Option(
            help="How often each class occurs in use, if not equally often: 0.5,0.3,0.2, a file, or estimate."
        ),
    ] = None,
    most: Most = None,
    norms: Annotated[Path | None, typer.Option(help="Weight norms of the head, one per class, in a file.")] = None,
    training: Annotated[Path | None, typer.Option(help="Training logits: warn if --logits holds any of them.")] = None,
    kind: Annotated[
        Kind, typer.Option(help="What --logits holds; for probabilities, a model file takes --rule shift only.")
    ] = "logits",
    background: Background = None,
    chosen_on: ChosenOn = "held-out",
    bootstrap: Annotated[int, typer.Option(help="Replicates of the choice, for its intervals; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the replicates.")] = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the choice, for `levelhead adjust --tuned`: tuned.json.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve, as .png, .svg or .pdf.")] = None,
    report: Page = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose a rule and its strength gamma on held-out data.

    Computes the exact error (or another metric) at every gamma, chooses rule and gamma, and estimates the gain on new
    samples.
    """
    from ..io.per_class_file import read_names
    from ..io.samples_file import read, read_label_samples
    from .tune_folder import tune_folder

    check_outputs(
        out=out, plot=plot, page=report, force=force, inputs=(logits, labels, counts, unlabelled, norms, training, cost)
    )
    request = TuneRequest(
        rule=rule,
        metric=metric,
        cost=cost,
        floors=tuple(floor or ()),
        criterion=criterion,
        kind=kind,
        target=target,
        most=most,
        unlabelled=unlabelled,
        norms=norms,
        training=training,
        background=background,
        chosen_on=chosen_on,
        bootstrap=bootstrap,
        seed=seed,
    )
    known = None if names is None else read_names(names)
    if task == "multilabel":
        samples = read_label_samples(logits, labels, counts, names=known, say=say)
        tuned = tune_label_files(samples, request, label_column=label_column, background=background)
    elif logits.is_dir():
        for name, given in (("labels", labels), ("report", report)):
            if given is not None:
                raise LevelheadError(f"expected none with a folder of logits, got {given}", parameter=name)
        tuned, samples = tune_folder(logits, counts, request, names=known, label_column=label_column)
    else:
        samples = read(logits, labels, counts, names=known, label_column=label_column, background=background, say=say)
        tuned = tune_files(samples, request)
    write_choice(tuned, samples, request, out=out, plot=plot, page=report, command=typed_command())
    for line in tuned.warnings:
        say(line)
    written = ", ".join(str(path) for path in (out, plot, report) if path is not None)
    show(tuned.to_dict(), tuned.report() + (f"\nwritten: {written}" if written else ""), as_json)


@app.command(epilog=example("compare --logits logits.npy --labels labels.npy --counts counts.json"))
def compare(
    logits: Logits,
    counts: Annotated[Path | None, typer.Option(help=f"{COUNTS} {IN_LOGITS}")] = None,
    labels: Annotated[Path | None, typer.Option(help=f"{LABELS} {IN_LOGITS}")] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    metric: Annotated[Metric, typer.Option(help="What to compare by; cost needs --cost.")] = "balanced_error",
    cost: Cost = None,
    target: Annotated[
        str | None,
        typer.Option(help="How often each class occurs in use, if not equally often: 0.5,0.3,0.2, or a file."),
    ] = None,
    most: Most = None,
    norms: Annotated[
        Path | None, typer.Option(help="Weight norms of the head, one per class, in a file: adds tau-normalization.")
    ] = None,
    kind: Annotated[Kind, typer.Option(help="What --logits holds; probabilities cannot be rescaled.")] = "logits",
    repeats: Annotated[int, typer.Option(help="How often the samples are dealt into folds.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the folds.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare the rules side by side on held-out data.

    Each rule is fitted on four fifths of the samples and judged on the rest, so that the more flexible one does not win
    by chance.
    """
    from ..choice.compare import compare as compare_rules
    from ..choice.goal import Goal
    from ..core.warnings import quiet
    from ..io.per_class_file import read_names, target_shares
    from ..io.samples_file import read
    from ..rules.rule import Auto

    known = None if names is None else read_names(names)
    samples = read(logits, labels, counts, names=known, label_column=label_column, say=say)
    if samples.labels is None:
        raise LevelheadError("expected labels: only they can tell which rule is right", parameter="labels")
    check_seed(seed)
    with quiet():  # the table holds the warnings
        table = compare_rules(
            samples.logits,
            samples.labels,
            samples.counts,
            metric=Goal(metric, _read(cost, "cost")),
            rule=Auto(range_up_to(most), _read(norms, "norms")),
            target=None if target is None else target_shares(target, samples.names, len(samples.counts)),
            kind=kind,
            repeats=repeats,
            rng=seed,
            names=samples.names,
        )
    show(table.to_dict(), str(table), as_json)


@app.command(epilog=example("report logits.npy --labels labels.npy --counts counts.json -o page.html"))
def report(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            help=f"A run's folder, a snapshot, a tuned.json, a folder of the paper's records, "
            f"or logits {DATA}. Several are shown side by side."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page: one .html file that contains all it needs.")],
    labels: Annotated[
        Path | None,
        typer.Option(help=f"For logits. {LABELS} {IN_LOGITS} Without labels, only predicted shares are shown."),
    ] = None,
    counts: Annotated[Path | None, typer.Option(help=f"For logits. {COUNTS} {IN_LOGITS}")] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    tuned: Annotated[Path | None, typer.Option(help="A gamma that `levelhead tune -o` chose on other samples.")] = None,
    gamma: Annotated[float | None, typer.Option(help="A gamma of your own. Otherwise `tune` chooses it.")] = None,
    rule: Annotated[
        PathRule | None, typer.Option(help="Default: chosen too; rescale with --gamma. tau needs a run or a snapshot.")
    ] = None,
    title: Annotated[
        list[str] | None,
        typer.Option(metavar="<str>", help="What to call it, instead of its file's name; once for each of several."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="The model's file, for the commands on the page to name it.")
    ] = None,
    chosen_on: ChosenOn = "held-out",
    bootstrap: Annotated[int, typer.Option(help="Replicates where gamma is chosen; 0 for no interval.")] = 1000,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a page that shows what leveling does to a model.

    The page has a verdict in words and a slider for gamma. It needs no network and no server: open it, mail it,
    print it.
    """
    from ..core.study import from_the_study
    from ..io.per_class_file import read_names
    from ..report.open import of_file
    from ..report.render import PageTable, is_records, write

    check_outputs(page=out, force=force)
    tables = [
        PageTable.of_markdown(title, text)
        for path in inputs
        if is_records(path)
        for title, text in from_the_study("paper.markdown:tables_of_folder")(path).items()
    ]
    known = None if names is None else read_names(names)
    places = [path for path in inputs if not is_records(path)]
    titles = check_titles(title, len(places))
    subjects = [
        of_file(
            path,
            title=given,
            model=None if model is None else str(model),
            labels=labels,
            counts_file=counts,
            names=known,
            label_column=label_column,
            tuned=tuned,
            gamma=gamma,
            rule=rule,
            chosen_on=chosen_on,
            bootstrap=bootstrap,
            say=say,
        )
        for path, given in zip(places, titles, strict=True)
    ]
    page = write(out, subjects, tables=tables, command=typed_command())
    show({"page": str(page), "bytes": page.stat().st_size}, f"{page}: open it in a browser", as_json)


def tune_files(samples: "Samples", request: TuneRequest) -> "Tuned":
    """Choose gamma with `tune`, or with `match_prior` if there are no labels. The result holds the warnings."""
    from ..choice.goal import Goal
    from ..choice.options import ESTIMATE, TuneOptions, check_background
    from ..choice.tune import tune_with
    from ..core.warnings import quiet
    from ..io.per_class_file import target_shares
    from ..show.progress import stage_progress

    if samples.labels is None:
        request.check_unlabelled()
    check_background(request.background, request.rule, summary=False)
    given = request.target not in (None, ESTIMATE)
    target = target_shares(str(request.target), samples.names, len(samples.counts)) if given else request.target
    with quiet(), stage_progress(samples.logits.size) as progress:
        options = TuneOptions(
            target=target,
            goal=Goal(request.metric, _read(request.cost, "cost"), read_floors(request.floors), request.criterion),
            rule=request.rule,
            range=range_up_to(request.most),
            kind=request.kind,
            names=samples.names,
            norms=_read(request.norms, "norms"),
            bootstrap=request.bootstrap,
            rng=request.seed,
            progress=progress,
            unlabelled=_read(request.unlabelled),
            training=_read(request.training),
            background=request.background,
            chosen_on=request.chosen_on,
        )
        return tune_with(options, samples.logits, samples.labels, samples.counts)


def tune_label_files(samples: "Samples", request: TuneRequest, **not_for_labels: Any) -> "Tuned":
    """Choose an offset for each label. The result holds the warnings. Options that are not for labels are refused."""
    from ..core.warnings import quiet
    from ..labels.label_inputs import check_multilabel_options
    from ..labels.tune_labels import tune_labels
    from ..show.progress import stage_progress

    for name, value in not_for_labels.items():
        if value is not None:
            raise LevelheadError("not for several labels per sample; leave it out", parameter=name)

    apart = {"unlabelled": request.unlabelled, "target": request.target, "norms": request.norms}
    check_multilabel_options(request.rule, request.criterion, **apart)

    with quiet(), stage_progress(samples.logits.size) as progress:
        return tune_labels(
            samples.logits,
            samples.labels,
            samples.counts,
            metric=request.metric,
            cost=_read(request.cost, "cost"),
            floors=read_floors(request.floors),
            chosen_on=request.chosen_on,
            bootstrap=request.bootstrap,
            rng=request.seed,
            training=_read(request.training),
            names=samples.names,
            kind=request.kind,
            progress=progress,
        )


def write_choice(
    tuned: "Tuned",
    samples: "Samples",
    request: TuneRequest,
    *,
    out: Path | None,
    plot: Path | None,
    page: Path | None,
    command: str,
) -> None:
    """Write the choice for `levelhead adjust --tuned`, draw its curve and write its page, each if it has a path."""
    from ..choice.tuned_json import describe_sources, write_tuned
    from ..show.plot import save_plot

    files: dict[str, Any] = {**samples.files, "norms": request.norms}
    target = request.target if tuned.prior is None else ",".join(map(str, tuned.prior.shares.tolist()))
    samples.check_unchanged()
    if out is not None:
        sources = describe_sources(
            files, samples.counts, kind=request.kind, target=target, background=request.background
        )
        write_tuned(tuned.to_dict(), out, sources)
    if plot is not None:
        save_plot(tuned.plot, plot)
    if page is not None:
        from ..report.open import of_choice
        from ..report.render import write

        files.setdefault("counts", samples.counts.tolist())
        subject = of_choice(tuned, **files, target=target, kind=request.kind, background=request.background)
        write(page, [replace(subject, tuned_file="" if out is None else str(out))], command=command)


def _read(source: Path | None, wanted: str = "logits") -> "np.ndarray | None":
    from ..io import arrays

    return None if source is None else arrays.read(source, wanted=wanted)
