"""Commands for a model's logits: choose a rule and its strength, compare the rules, show them on a page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ..support.errors import LevelheadError, named, reported_as
from ..support.progress import stage_progress
from ..support.types import Criterion, Kind, LabelTask, Metric, PathRule, RuleRequest
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

if TYPE_CHECKING:
    import numpy as np

    from ..choice.samples import TuneOptions
    from ..choice.tuned import Tuned
    from ..io.samples_file import SamplesRead

DATA = "in a .npy, .npz, .safetensors, .pt, .csv, .tsv or .parquet file; FILE:KEY picks one array or column of several"
LOGITS = (
    f"Scores before softmax, of samples the model was not trained on: N rows, K classes, {DATA}."
)
LABELS = "True class of each row: an index or a name."
IN_LOGITS = "May be left out if the file of the logits holds an array of this name."

LabelColumn = Annotated[
    str | None,
    Option(help="The labels' column in a table of logits, if it is not called label, y or target."),
]
ChosenOn = Annotated[str, Option(help="What the samples are. Say test if they are your test set.")]
Cost = Annotated[
    Path | None,
    Option(
        help="K rows (true class) of K costs (predicted class): the metric is then the mean cost."
    ),
]
PageModel = Annotated[
    Path | None, Option(help="The model's file, for the commands on the page to name it.")
]
Most = Annotated[float | None, Option("--max", help="Largest gamma to try; each rule has its own.")]


@app.command(
    epilog=example(
        "tune --logits logits.npy --labels labels.npy --counts counts.json -o tuned.json"
    )
)
def tune(
    logits: Annotated[
        Path,
        Option(
            help=f"{LOGITS} Or a folder of such files, each with its labels, read one at a time."
        ),
    ],
    counts: Annotated[Path | None, Option(help=f"{COUNTS} {IN_LOGITS}")] = None,
    labels: Annotated[
        Path | None,
        Option(
            help=f"{LABELS} {IN_LOGITS} Without labels, predicted shares are matched to --target."
        ),
    ] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    unlabelled: Annotated[
        Path | None,
        Option(help="Logits from deployment, K columns, no labels needed: to choose better."),
    ] = None,
    rule: Annotated[
        RuleRequest,
        Option(
            help="auto chooses on your samples; rescale is RS, of the paper; shift adds gamma log(n_max / n_k); "
            "tau needs --norms; vector has a scale and an offset per class, offsets an offset."
        ),
    ] = "auto",
    task: Annotated[
        LabelTask,
        Option(
            help="multilabel: K sigmoids, labels [N, K] of 0 and 1, each label shifted by itself."
        ),
    ] = "multiclass",
    metric: Annotated[
        Metric | None,
        Option(
            help="What to improve: balanced_error, of several labels macro_f1, or another; cost needs --cost."
        ),
    ] = None,
    cost: Cost = None,
    floor: Annotated[
        list[str] | None,
        Option(
            metavar="<str>",
            help="Least recall, of all classes (0.6) or of one (cat=0.6); repeatable.",
        ),
    ] = None,
    criterion: Annotated[
        Criterion, Option(help="guided: by predicted shares too if labels are few.")
    ] = "guided",
    target: Annotated[
        str | None,
        Option(
            help="How often each class occurs in use, if not equally often: 0.5,0.3,0.2, a file, or estimate."
        ),
    ] = None,
    most: Most = None,
    norms: Annotated[
        Path | None, Option(help="Weight norms of the head, one per class, in a file.")
    ] = None,
    training: Annotated[
        Path | None, Option(help="Training logits: warn if --logits holds any of them.")
    ] = None,
    kind: Annotated[
        Kind,
        Option(
            help="What --logits holds; for probabilities, a model file takes --rule shift only."
        ),
    ] = "logits",
    background: Background = None,
    chosen_on: ChosenOn = "held-out",
    bootstrap: Annotated[
        int, Option(help="Replicates of the choice, for its intervals; 0 for none.")
    ] = 500,
    seed: Annotated[int, Option(help="Seed of the replicates.")] = 0,
    out: Annotated[
        Path | None,
        Option("-o", "--out", help="Write the choice, for `levelhead adjust --tuned`: tuned.json."),
    ] = None,
    plot: Annotated[Path | None, Option(help="Draw the curve, as .png, .svg or .pdf.")] = None,
    report: Page = None,
    title: Annotated[
        str | None, Option(help="What the page calls it, instead of the name of --logits.")
    ] = None,
    model: PageModel = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose a rule and its strength gamma on held-out data.

    Computes the exact error (or another metric) at every gamma, chooses rule and gamma, and estimates the gain on new
    samples.
    """
    from ..choice.samples import Goal, TuneOptions
    from ..choice.tuned_json import describe_sources, write_tuned
    from ..io.arrays import read_names
    from ..io.samples_file import read, read_label_samples
    from ..show.plot import save_plot

    check_outputs(
        out=out,
        plot=plot,
        page=report,
        force=force,
        inputs=(logits, labels, counts, unlabelled, norms, training, cost),
    )
    if report is None:
        refuse("this is for a page; add --report page.html", title=title, model=model)
    check_seed(seed)
    known = read_names(names)
    options = TuneOptions(
        goal=Goal(
            metric or "balanced_error", _read(cost, "cost"), read_floors(floor or ()), criterion
        ),
        rule=rule,
        range=range_up_to(most),
        norms=_read(norms, "norms"),
        unlabelled=_read(unlabelled),
        training=_read(training),
        kind=kind,
        names=known,
        background=background,
        chosen_on=chosen_on,
        bootstrap=bootstrap,
        rng=seed,
    )
    if task == "multilabel":
        refuse(
            "not for several labels per sample; leave it out",
            label_column=label_column,
            background=background,
        )
        samples = read_label_samples(logits, labels, counts, names=known, say=say)
        own = (
            replace(options.goal, metric="macro_f1")
            if metric is None and cost is None
            else options.goal
        )
        tuned = tune_label_files(samples, replace(options, goal=own), target)
    elif logits.is_dir():
        refuse("expected none with a folder of logits, got {}", labels=labels, report=report)
        refuse("this needs all logits in one file", training=training)
        tuned, samples = tune_folder(logits, counts, options, target, label_column)
    else:
        samples = read(
            logits,
            labels,
            counts,
            names=known,
            label_column=label_column,
            background=background,
            say=say,
        )
        tuned = tune_files(samples, options, target)
    samples.check_unchanged()
    files: dict[str, Any] = {**samples.files, "norms": norms}
    used = {"kind": kind, "background": background, "target": target}
    if tuned.prior is not None:
        used["target"] = ",".join(map(str, tuned.prior.target.tolist()))
    if out is not None:
        write_tuned(
            replace(tuned, sources=describe_sources(files, samples.counts, **used)),
            out,
            new=not force,
        )
    if plot is not None:
        save_plot(tuned.plot, plot)
    if report is not None:
        from ..report import of_choice, write

        subject = of_choice(
            tuned, **{"counts": samples.counts.tolist()} | files, **used, title=title
        )
        named = {
            "tuned_file": "" if out is None else str(out),
            "model": "" if model is None else str(model),
        }
        write(report, [replace(subject, **named)], command=typed_command())
    for line in tuned.warnings:
        say(line)
    written = ", ".join(str(path) for path in (out, plot, report) if path is not None)
    show(tuned.to_dict(), tuned.report() + (f"\nwritten: {written}" if written else ""), as_json)


@app.command(epilog=example("compare --logits logits.npy --labels labels.npy --counts counts.json"))
def compare(
    logits: Annotated[Path, Option(help=LOGITS)],
    counts: Annotated[Path | None, Option(help=f"{COUNTS} {IN_LOGITS}")] = None,
    labels: Annotated[Path | None, Option(help=f"{LABELS} {IN_LOGITS}")] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    metric: Annotated[
        Metric, Option(help="What to compare by; cost needs --cost.")
    ] = "balanced_error",
    cost: Cost = None,
    target: Annotated[
        str | None,
        Option(
            help="How often each class occurs in use, if not equally often: 0.5,0.3,0.2, or a file."
        ),
    ] = None,
    most: Most = None,
    norms: Annotated[
        Path | None,
        Option(help="Weight norms of the head, one per class, in a file: adds tau-normalization."),
    ] = None,
    kind: Annotated[
        Kind, Option(help="What --logits holds; probabilities cannot be rescaled.")
    ] = "logits",
    repeats: Annotated[
        int | None,
        Option(help="How often the samples are dealt into folds: 2, or 1 of 10,000 or more."),
    ] = None,
    seed: Annotated[int, Option(help="Seed of the folds.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare the rules side by side on held-out data.

    Each rule is fitted on four fifths of the samples and judged on the rest, so that the more flexible one does not win
    by chance.
    """
    from ..choice.compare import compare as compare_rules
    from ..choice.samples import Goal
    from ..core.rules import Auto
    from ..io.arrays import read_names, target_shares
    from ..io.samples_file import read

    samples = read(
        logits, labels, counts, names=read_names(names), label_column=label_column, say=say
    )
    if samples.labels is None:
        raise LevelheadError(
            "expected labels: only they can tell which rule is right", parameter="labels"
        )
    check_seed(seed)
    with quiet():  # the table holds the warnings
        goal, rule = (
            Goal(metric, _read(cost, "cost")),
            Auto(range_up_to(most), _read(norms, "norms")),
        )
        shares = target_shares(target, samples.names, len(samples.counts))
        how: dict[str, Any] = {
            "target": shares,
            "kind": kind,
            "repeats": repeats,
            "rng": seed,
            "names": samples.names,
        }
        table = compare_rules(
            samples.logits, samples.labels, samples.counts, metric=goal, rule=rule, **how
        )
    show(table.to_dict(), str(table), as_json)


@app.command(
    epilog=example("report logits.npy --labels labels.npy --counts counts.json -o page.html")
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
    counts: Annotated[Path | None, Option(help=f"For logits. {COUNTS} {IN_LOGITS}")] = None,
    names: Names = None,
    label_column: LabelColumn = None,
    tuned: Annotated[
        Path | None, Option(help="A gamma that `levelhead tune -o` chose on other samples.")
    ] = None,
    gamma: Annotated[
        float | None, Option(help="A gamma of your own. Otherwise `tune` chooses it.")
    ] = None,
    rule: Annotated[
        PathRule | None,
        Option(help="Default: chosen too; rescale with --gamma. tau needs a run or a snapshot."),
    ] = None,
    title: Annotated[
        list[str] | None,
        Option(
            metavar="<str>",
            help="What to call it, instead of its file's name; once for each of several.",
        ),
    ] = None,
    model: PageModel = None,
    chosen_on: ChosenOn = "held-out",
    bootstrap: Annotated[
        int, Option(help="Replicates where gamma is chosen; 0 for no interval.")
    ] = 500,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a page that shows what the adjustment does to a model.

    The page has a verdict in words and a slider for gamma. It needs no network and no server: open it, mail it,
    print it.
    """
    from ..io.arrays import read_names
    from ..report import PageTable, is_records, of_file, write
    from ..support.extras import from_the_study

    check_outputs(page=out, force=force)
    tables = [
        PageTable.of_markdown(title, text)
        for path in inputs
        if is_records(path)
        for title, text in from_the_study("paper.markdown:tables_of_folder")(path).items()
    ]
    known = read_names(names)
    places = [path for path in inputs if not is_records(path)]
    if title and len(title) != len(places):
        raise LevelheadError(
            f"expected {len(places)}, one for each model, got {len(title)}", parameter="title"
        )
    files: dict[str, Any] = {
        "labels": labels,
        "counts_file": counts,
        "names": known,
        "label_column": label_column,
    }
    choice: dict[str, Any] = {"tuned": tuned, "gamma": gamma, "rule": rule, "chosen_on": chosen_on}
    shown = {"model": None if model is None else str(model), "bootstrap": bootstrap, "say": say}
    pairs = zip(places, title or [None] * len(places), strict=True)
    subjects = [of_file(place, title=one, **files, **choice, **shown) for place, one in pairs]
    page = write(out, subjects, tables=tables, command=typed_command())
    show(
        {"page": str(page), "bytes": page.stat().st_size}, f"{page}: open it in a browser", as_json
    )


def tune_files(samples: "SamplesRead", options: "TuneOptions", target: str | None) -> "Tuned":
    """Choose gamma with `tune`, or with `match_prior` if there are no labels. The result holds the warnings."""
    from ..choice.samples import ESTIMATE, check_background
    from ..choice.tune import tune_with
    from ..io.arrays import target_shares

    if samples.labels is None:
        goal = options.goal
        these = "--logits are the unlabelled ones if --labels is left out"
        refuse(these, unlabelled=options.unlabelled, training=options.training)
        refuse(
            "{!r} needs --labels", criterion=None if goal.criterion == "guided" else goal.criterion
        )
        metric = None if goal.metric in ("balanced_error", "cost") else goal.metric
        refuse("this needs --labels", metric=metric, cost=goal.cost, floors=goal.floors)
    check_background(options.background, options.rule)
    known = (
        target if target == ESTIMATE else target_shares(target, samples.names, len(samples.counts))
    )
    with quiet(), stage_progress(samples.logits.size) as progress:
        options = replace(options, target=known, names=samples.names, progress=progress)
        return tune_with(options, samples.logits, samples.labels, samples.counts)


def tune_label_files(samples: "SamplesRead", options: "TuneOptions", target: str | None) -> "Tuned":
    """Choose an offset for each label. The result holds the warnings. Options that are not for labels are refused."""
    from ..labels.tune_labels import check_multilabel_options, tune_labels

    apart = {"unlabelled": options.unlabelled, "target": target, "norms": options.norms}
    check_multilabel_options(options.rule, options.goal.criterion, **apart)
    goal: dict[str, Any] = {
        "metric": options.metric,
        "cost": options.goal.cost,
        "floors": options.goal.floors,
    }
    how = {**goal, "training": options.training, "names": samples.names, **_shared(options)}
    with quiet(), stage_progress(samples.logits.size) as progress:
        return tune_labels(samples.logits, samples.labels, samples.counts, progress=progress, **how)


def tune_folder(
    folder: Path,
    counts: Path | None,
    options: "TuneOptions",
    target: str | None,
    label_column: str | None,
) -> "tuple[Tuned, SamplesRead]":
    """Return the choice on all files of a folder, one in memory at a time, and the samples of the first."""
    from ..choice.chunked import tune_chunks
    from ..choice.samples import ESTIMATE
    from ..core.counts import find_background, with_background
    from ..core.rules import rule_with
    from ..io.arrays import has_known_suffix, target_shares
    from ..io.samples_file import read

    refuse("this needs all logits in one file", target=target if target == ESTIMATE else None)
    files = sorted(path for path in folder.iterdir() if path.is_file() and has_known_suffix(path))
    if not files:
        raise LevelheadError(
            f"{folder}: expected files that hold logits and labels, found none", parameter="logits"
        )
    alone = options.background
    first = read(
        files[0], None, counts, names=options.names, label_column=label_column, background=alone
    )

    def chunks() -> "Iterator[tuple[np.ndarray, np.ndarray]]":
        for file in files:
            part = read(
                file, None, first.counts.tolist(), names=first.names, label_column=label_column
            )
            if part.labels is None:
                raise LevelheadError(
                    f"{file}: expected labels next to the logits", parameter="logits"
                )
            yield part.logits, part.labels
            part.check_unchanged()

    n, known = first.counts, first.names
    with quiet():
        left = n if alone is None else with_background(n, find_background(alone, len(n), known))
        rule = rule_with(options.rule, range=options.range, norms=options.norms)
        how = {
            "target": target_shares(target, known, len(n)),
            "unlabelled": options.unlabelled,
            "names": known,
        }
        tuned = tune_chunks(chunks, left, metric=options.goal, rule=rule, **how, **_shared(options))
    return tuned, replace(first, files={}, stamps={})  # which are not its sources


def _shared(options: "TuneOptions") -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("kind", "chosen_on", "bootstrap", "rng")}


def read_floors(given: Sequence[str]) -> float | dict[str, float] | None:
    """Return the floors of recall as `tune` takes them: a number for all classes, or {class: recall}."""
    from ..core.class_names import without_repeats

    pairs = []
    for name, _, value in (each.rpartition("=") for each in given):
        with (
            named("floors"),
            reported_as(f"expected a recall such as 0.6, or CLASS=0.6, got {value!r}", ValueError),
        ):
            pairs.append((name, float(value)))
    if len(pairs) == 1 and not pairs[0][0]:
        return pairs[0][1]
    if not all(name for name, _ in pairs):
        expected = "one recall for all classes, or CLASS=RECALL each time"
        raise LevelheadError(f"expected {expected}, got {', '.join(given)}", parameter="floors")
    with named("floors"):
        return without_repeats(pairs) or None


def refuse(reason: str, **given: object) -> None:
    """Raise if any of these options was given."""
    for name, value in given.items():
        if value is not None:
            raise LevelheadError(reason.format(value), parameter=name)


def check_seed(seed: int) -> None:
    if seed < 0:
        raise LevelheadError(f"expected 0 or more, got {seed}", parameter="seed")


def range_up_to(most: float | None) -> tuple[float, float] | None:
    if most is not None and not 0 < most < math.inf:
        raise LevelheadError(f"expected a finite gamma above 0, got {most:g}", parameter="most")
    return None if most is None else (0.0, most)


def _read(source: Path | None, wanted: str = "logits") -> "np.ndarray | None":
    from ..io import arrays

    return None if source is None else arrays.read(source, wanted=wanted)
