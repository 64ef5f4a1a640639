"""The command line: parse, call one function, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from . import __version__

app = typer.Typer(
    name="levelhead",
    help="Level the head of a classifier trained on imbalanced data: in training (WVN), or in one line after it (RS).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich takes longer to import than all the rest
    context_settings={"help_option_names": ["-h", "--help"]},
)

EXTRAS = {"torch": "torch", "sklearn": "sklearn", "onnx": "onnx", "matplotlib": "plot", "ray": "ray"}  # module -> extra

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def show(result: dict[str, Any], text: str, as_json: bool) -> None:
    """The one place a command prints its result: JSON for programs, text for people."""
    typer.echo(json.dumps(result, indent=2) if as_json else text)


def say(line: str) -> None:
    """What to know beside the result: a line on stderr, which leaves stdout to the result."""
    typer.echo(f"levelhead: {line}", err=True)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"levelhead {__version__}")
        raise typer.Exit


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Print the card of one: ldam, wvn+rs, my.py:METHOD.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or print the card of one.

    What each changes in training or after it, and the head it needs.
    """
    from .methods import METHODS, method_named
    from .methods.card import card, facts, table

    if name is None:
        show({"methods": [facts(method) for method in METHODS.values()]}, table(METHODS.values()), as_json)
    else:
        show(facts(method_named(name)), card(method_named(name)), as_json)


COUNTS = "Training samples of each class, as .json, .csv, .npy, .npz or .txt."
MODEL = "A .safetensors file (its index or folder, if sharded), an .onnx, or a state dict as .pt, .pth or .bin."
Model = Annotated[Path, typer.Argument(help=MODEL)]
Out = Annotated[Path, typer.Option("-o", "--out", help="Where to write; a folder for a sharded model.")]
Layer = Annotated[str | None, typer.Option("--head", help="The layer, if it cannot be found for certain: classifier.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Page = Annotated[Path | None, typer.Option("--report", help="Write a page that shows what it does: page.html.")]


@app.command()
def inspect(
    model: Model,
    counts: Annotated[Path | None, typer.Option(help=f"{COUNTS} Shows whether weight norms follow them.")] = None,
    head: Layer = None,
    as_json: Json = False,
) -> None:
    """Show the head in a model's file, and what to beware of.

    Its layers, its norms against the counts, the bias, an earlier adjustment. None of the file's code is run.
    """
    from .counts import read
    from .heads.inspect import inspect_file
    from .heads.tables import inspection_text

    seen = inspect_file(model, counts=None if counts is None else read(counts), head=head)
    show(seen.json(), inspection_text(seen), as_json)


@app.command()
def rescale(
    model: Model,
    out: Out,
    counts: Annotated[Path, typer.Option(help=COUNTS)],
    gamma: Annotated[float | None, typer.Option(help="w_i <- (n_max / n_i)^gamma w_i; 0 changes nothing.")] = None,
    tuned: Annotated[Path | None, typer.Option(help="Instead of --gamma: what `levelhead tune -o` wrote.")] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="rescale, if not said; tau: w_i / ||w_i||^gamma; shift: b_i + gamma log(n_max / n_i)."),
    ] = None,
    head: Layer = None,
    bias: Annotated[str, typer.Option(help="scale: with its weight vector, as tune assumes; or keep.")] = "scale",
    missing: Annotated[str, typer.Option(help="A class without samples: error, or neutral (left alone).")] = "error",
    original: Annotated[bool, typer.Option(help="Keep the old bytes in OUT.original, for an exact undo.")] = True,
    force: Force = False,
    again: Annotated[bool, typer.Option("--again", help="Adjust a file that was adjusted before.")] = False,
    logits: Annotated[
        Path | None, typer.Option(help="The model's logits: tells how many predictions half precision could flip.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a model's file with its head rescaled (RS).

    All other bytes are copied as they are.
    """
    from . import arrays
    from .counts import read
    from .heads.bar import progress_bar
    from .heads.files import rescale_file, strength
    from .heads.tables import done_text

    scores = None if logits is None else arrays.read(logits)
    with progress_bar(model) as bar:
        done = rescale_file(
            model, out, read(counts), **strength(gamma, rule, tuned), head=head, bias=bias, missing=missing,  # type: ignore[arg-type]
            original=original, force=force, again=again, logits=scores, progress=bar,
        )
    show(done.json(), done_text(done), as_json)


DATA = "as .npy, .npz, .safetensors, .csv or .parquet; FILE:KEY names one array of several"
BESIDE = "May stand beside `logits` in their .npz or .safetensors, by this name."


@app.command()
def tune(
    logits: Annotated[Path, typer.Option(help=f"[N, K] of samples the model was not trained on, {DATA}.")],
    counts: Annotated[Path | None, typer.Option(help=f"{COUNTS} {BESIDE}")] = None,
    labels: Annotated[
        Path | None, typer.Option(help=f"[N]. {BESIDE} Without: predicted shares are matched to --target.")
    ] = None,
    unlabelled: Annotated[Path | None, typer.Option(help="[M, K], logits from deployment; help to choose.")] = None,
    rule: Annotated[str, typer.Option(help="rescale; shift: l_k + gamma log(n_max / n_k); tau (--norms).")] = "rescale",
    criterion: Annotated[str, typer.Option(help="guided (by shares, if labels are few) or balanced_error.")] = "guided",
    target: Annotated[str | None, typer.Option(help="Class shares in deployment: 0.5,0.3,0.2 or a file.")] = None,
    most: Annotated[float, typer.Option("--max", help="The largest gamma tried.")] = 2.0,
    norms: Annotated[Path | None, typer.Option(help="[K], weight norms of the head.")] = None,
    training: Annotated[Path | None, typer.Option(help="Training logits: warns if --logits has some of them.")] = None,
    kind: Annotated[str, typer.Option(help="logits, or probabilities with --rule shift.")] = "logits",
    chosen_on: Annotated[str, typer.Option(help="What the samples are; test, if they are your test set.")] = "held-out",
    bootstrap: Annotated[int, typer.Option(help="Replicates of the whole choice, for the intervals; 0: none.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the replicates.")] = 0,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write JSON for `levelhead rescale --tuned`.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve: .png, .svg or .pdf.")] = None,
    report: Page = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Choose gamma on held-out data.

    The whole curve over gamma, exactly; what the choice gains, and how sure that is.
    """
    from .plot import picture
    from .samples import read
    from .tune_files import check_new, save, sources, tune_files

    check_new(out, plot, report, force=force, inputs=(logits, labels, counts, unlabelled, norms, training))
    samples = read(logits, labels, counts, say=say)
    tuned = tune_files(samples, unlabelled=unlabelled, rule=rule, criterion=criterion, target=target, reach=most,  # type: ignore[arg-type]
                       norms=norms, training=training, kind=kind, chosen_on=chosen_on, bootstrap=bootstrap, seed=seed)  # type: ignore[arg-type]
    files = {**samples.files, "norms": norms}
    if out is not None:
        save(tuned, out, sources(kind, target, **files))  # type: ignore[arg-type]
    if plot is not None:
        picture(tuned, plot)
    if report is not None:
        from .report import of_choice, write

        write(report, [of_choice(tuned, **files, target=target, kind=kind)], command=_command())  # type: ignore[arg-type]
    for line in tuned.warnings:
        say(line)
    written = ", ".join(str(path) for path in (out, plot, report) if path is not None)
    show(tuned.to_dict(), tuned.report() + (f"\nwritten: {written}" if written else ""), as_json)


@app.command()
def undo(
    model: Annotated[Path, typer.Argument(help="What `levelhead rescale` wrote.")],
    out: Out,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Take an adjustment of a model's file back.

    Byte for byte with MODEL.original beside it; else by dividing, exact only to rounding.
    """
    from .heads.bar import progress_bar
    from .heads.tables import undone_text
    from .heads.undo import undo_file

    with progress_bar(model) as bar:
        undone = undo_file(model, out, force=force, progress=bar)
    show(undone.json(), undone_text(undone), as_json)


@app.command()
def train(
    data: Annotated[str, typer.Option(help="cifar10, cifar100, tiny-imagenet, digits, a FOLDER of images, FILE.npz.")],
    root: Annotated[Path | None, typer.Option(help="Folder of the official files of the first three.")] = None,
    method: Annotated[str, typer.Option(help="As `levelhead methods` lists them; +rs too; FILE.py:NAME.")] = "wvn",
    ratio: Annotated[float | None, typer.Option(help="Make it imbalanced: largest over smallest count.")] = None,
    profile: Annotated[str, typer.Option(help="What --ratio makes: long-tail or step.")] = "long-tail",
    counts: Annotated[Path | None, typer.Option(help="Keep so many of each class: .json, .csv, .npy, .txt.")] = None,
    largest: Annotated[int | None, typer.Option(help="The largest count of a profile.")] = None,
    subset: Annotated[str, typer.Option(help="Keep the first of each class, or a seed: at random.")] = "first",
    hold_out: Annotated[float, typer.Option(help="Share of each class kept aside to choose gamma on.")] = 0.1,
    size: Annotated[int, typer.Option(help="To which a folder's images are resized.")] = 32,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave unreadable images out.")] = False,
    unofficial: Annotated[bool, typer.Option("--unofficial", help="Take CIFAR files of another md5.")] = False,
    net: Annotated[str | None, typer.Option(help="resnet32, resnet18-64, digits, timm:NAME.")] = None,
    recipe: Annotated[str | None, typer.Option(help="kim2020, strong, cao2019, tiny, images, digits; a .toml.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Stretch or shorten the recipe to so many.")] = None,
    seed: Annotated[int, typer.Option(help="Of initial weights, batches and crops.")] = 0,
    engine: Annotated[str, typer.Option(help="plain, fast (CUDA), or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, float64; bfloat16 with the fast engine.")] = "float32",
    threads: Annotated[int | None, typer.Option(help="Of the CPU; a resumed run keeps its first number.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Strength of RS, instead of choosing it.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="First part of the run's folder.")] = None,
    track: Annotated[str | None, typer.Option(help="tensorboard or mlflow.")] = None,
    as_json: Json = False,
) -> None:
    """Train on imbalanced images, and level what was trained.

    Gamma is chosen on held-out images; the run's folder holds the model as trained and leveled. An interrupted run goes
    on where it was when the same command is given again; a finished one is not trained again.
    """
    from .lab.command import spec_of
    from .lab.command import train as run_and_judge

    spec = spec_of(data=data, root=root, method=method, ratio=ratio, profile=profile, counts=counts, largest=largest,
                   subset=subset, hold_out=hold_out, size=size, skip_bad=skip_bad, unofficial=unofficial, net=net,
                   recipe=recipe, epochs=epochs, seed=seed, engine=engine, dtype=dtype)
    result, text = run_and_judge(spec, runs, name=name, gamma=gamma, track=track, threads=threads, show=not as_json,
                                 say=lambda line: typer.echo(line, err=True))
    if result:
        show(result, text, as_json)


@app.command()
def sweep(
    grid: Annotated[Path, typer.Argument(help="A .toml: data, method, ratio, seed...; a list is each of its values.")],
    runs: Annotated[Path, typer.Option(help="Folder of all runs, which a cluster shares.")] = Path("runs"),
    executor: Annotated[str, typer.Option(help="local processes, packed on one GPU, or ray.")] = "local",
    workers: Annotated[int, typer.Option(help="How many runs at a time.")] = 2,
    as_json: Json = False,
) -> None:
    """Train every run of a grid, once each, and judge them.

    What is finished is not trained again; the same command goes on after a stop, and takes up what a lost worker left.
    """
    from .lab.grid import command

    result, text = command(grid, runs, executor=executor, workers=workers, say=partial(typer.echo, err=True))
    show(result, text, as_json)
    if result["failed"]:
        raise ValueError(f"{len(result['failed'])} runs could not be trained: {', '.join(result['failed'])}")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    gamma: Annotated[float | None, typer.Option(help="Strength, instead of choosing it on held-out data.")] = None,
    rule: Annotated[str, typer.Option(help="rescale (RS), tau (tau-normalization), shift (of logits).")] = "rescale",
    report: Page = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Judge a run's head on its test set, as trained and leveled.

    Errors overall, by group and by class. Gamma is chosen on what the run held out, never on the test set.
    """
    from .lab.evaluate import evaluate as judge
    from .lab.run import Run
    from .tune_files import check_new

    check_new(None, None, report, force=force)
    found = judge(Run.open(run).snapshot, gamma=gamma, rule=rule)  # type: ignore[arg-type]
    if report is not None:
        from .report import of_run, write

        write(report, [of_run(run, gamma=gamma, rule=rule, tuned=found.tuned)], command=_command())
    show({"run": str(run), **found.to_dict()}, found.text(), as_json)


@app.command()
def reproduce(
    table: Annotated[str, typer.Argument(help="table1, table2, table3; strong, beyond the paper; or figures.")],
    root: Annotated[Path | None, typer.Option(help="Folder of the data sets, in their official layouts.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="A cell, cifar10:100:wvn, or a pattern, 'cifar10:*'.")] = None,
    seeds: Annotated[int, typer.Option(help="Of Baseline and WVN; one of the other rows.")] = 3,
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results/records"),
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    slots: Annotated[int, typer.Option(help="How many runs share the GPU.")] = 16,
    minutes: Annotated[float | None, typer.Option(help="After so many, begin nothing new.")] = None,
    executor: Annotated[str, typer.Option(help="local: one GPU here; ray: every GPU of a Ray cluster.")] = "local",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what is missing, and its cost.")] = False,
    unofficial: Annotated[bool, typer.Option("--unofficial", help="Take CIFAR files of another md5.")] = False,
    page: Annotated[Path, typer.Option(help="figures: the page to fill.")] = Path("docs/reproduction.md"),
    pictures: Annotated[Path, typer.Option(help="figures: where to draw them.")] = Path("docs/images/paper"),
    as_json: Json = False,
) -> None:
    """Train the networks of the paper's tables; draw its figures.

    What a table lacks is trained on one CUDA GPU, and a record written of each network. Stop it anywhere; the same
    command goes on. What has a record is not trained again.

    `figures` trains nothing: it draws every figure, and fills the tables of the page, from the records alone.
    """
    from .paper.reproduce import command, draw

    say = partial(typer.echo, err=True)
    if table == "figures":
        result, text = draw(results, page, pictures, say=say)
    else:
        result, text = command(table, root, only or (), seeds=seeds, results=results, runs=runs, slots=slots, say=say,
                               minutes=minutes, executor=executor, dry_run=dry_run, unofficial=unofficial,
                               show=not as_json)
    show(result, text, as_json)


@app.command()
def demo(
    report: Annotated[Path, typer.Option(help="Where to write the page to look at.")] = Path("levelhead-demo.html"),
    seed: Annotated[int, typer.Option(help="Of initial weights and batches; another is another experiment.")] = 0,
    as_json: Json = False,
) -> None:
    """Level real networks, train small ones, and write a page.

    Two networks trained on long-tailed CIFAR-10 come with the package; those trained here are of digits. A minute.
    """
    from .demo import demo as run_demo
    from .demo import text
    from .lab.progress import bar
    from .tune_files import check_new

    check_new(None, None, report, force=True)
    with bar(show=not as_json) as progress:
        result = run_demo(report, seed=seed, progress=progress)
    show(result, text(result), as_json)


@app.command()
def report(
    inputs: Annotated[list[Path], typer.Argument(help=f"A run's folder, a snapshot, a tuned.json, or logits {DATA}; a "
                                                      "folder of the paper's records. Several stand side by side.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page: one .html file that needs nothing else.")],
    labels: Annotated[
        Path | None, typer.Option(help=f"[N], of logits. {BESIDE} Without: predicted shares only.")
    ] = None,
    counts: Annotated[Path | None, typer.Option(help=f"For logits: {COUNTS.lower()} {BESIDE}")] = None,
    tuned: Annotated[Path | None, typer.Option(help="What `levelhead tune -o` chose on other samples.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Or one of your own; else it is chosen as `tune` does.")] = None,
    rule: Annotated[str | None, typer.Option(help="rescale, if nothing else says; shift; tau (of snapshots).")] = None,
    chosen_on: Annotated[str, typer.Option(help="What the samples are; test, if they are your test set.")] = "held-out",
    bootstrap: Annotated[int, typer.Option(help="Replicates where gamma is chosen; 0: no interval.")] = 1000,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a page that shows what leveling does to a model.

    A verdict in words, and a gamma to turn. It needs no network and no server: open it, mail it, print it.
    """
    from .paper.markdown import every_table
    from .paper.readout import load
    from .report import Table, is_records, of_file, write
    from .tune_files import check_new

    check_new(None, None, out, force=force)
    tables = [Table.of_markdown(title, text) for path in inputs if is_records(path)
              for title, text in every_table(load(path)).items()]
    subjects = [of_file(path, labels=labels, counts_file=counts, tuned=tuned, gamma=gamma, rule=rule,  # type: ignore[arg-type]
                        chosen_on=chosen_on, bootstrap=bootstrap, say=say) for path in inputs if not is_records(path)]
    page = write(out, subjects, tables=tables, command=_command())
    show({"page": str(page), "bytes": page.stat().st_size}, f"{page}: open it in a browser", as_json)


def _command() -> str:
    """What was typed, for a page's last lines."""
    import shlex

    return shlex.join(["levelhead", *sys.argv[1:]])


def main() -> None:
    """Run the command line: 0 when what was asked was done, 2 with one line on bad input."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("LEVELHEAD_DEBUG"):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            message = f"{error.filename}: {error.strerror.lower()}"
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            message = f"this needs {error.name}: pip install 'levelhead[{EXTRAS[error.name]}]'"
        print(f"levelhead: {message}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
