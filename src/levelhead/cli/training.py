"""The commands of whoever trains: a run, a grid of them, the paper's tables, the demo."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import LevelheadError
from .common import Force, Json, Page, app, show, typed


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Print the card of one: ldam, wvn+rs, my.py:METHOD.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or print the card of one.

    What each changes in training or after it, and the head it needs.
    """
    from ..methods import METHODS, method_named
    from ..methods.card import card, facts, table

    if name is None:
        show({"methods": [facts(method) for method in METHODS.values()]}, table(METHODS.values()), as_json)
    else:
        show(facts(method_named(name)), card(method_named(name)), as_json)


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
    from ..runs.train_command import spec_of
    from ..runs.train_command import train as run_and_judge

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
    from ..runs.sweep_command import command

    result, text = command(grid, runs, executor=executor, workers=workers, say=partial(typer.echo, err=True))
    show(result, text, as_json)
    if result["failed"]:
        raise LevelheadError(f"{len(result['failed'])} runs could not be trained: {', '.join(result['failed'])}")


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
    from ..runs.evaluate import evaluate as judge
    from ..runs.run import Run
    from .tune_files import check_new

    check_new(None, None, report, force=force)
    found = judge(Run.open(run).snapshot, gamma=gamma, rule=rule)  # type: ignore[arg-type]
    if report is not None:
        from ..report import of_run, write

        write(report, [of_run(run, gamma=gamma, rule=rule, tuned=found.tuned)], command=typed())
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
    from ..paper.reproduce import draw_figures, reproduce_table

    say = partial(typer.echo, err=True)
    if table == "figures":
        result, text = draw_figures(results, page, pictures, say=say)
    else:
        result, text = reproduce_table(table, root, only or (), seeds=seeds, results=results, runs=runs, slots=slots, say=say,
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
    from ..runs.progress import bar
    from .demo import demo as run_demo
    from .demo import text
    from .tune_files import check_new

    check_new(None, None, report, force=True)
    with bar(show=not as_json) as progress:
        result = run_demo(report, seed=seed, progress=progress)
    show(result, text(result), as_json)
