"""Commands for training: the methods, a run, a sweep of runs, the paper's tables and figures, the demo.

Importing this module adds them to `levelhead.cli`; `levelhead` by itself works without them. As there,
a command does three things: it checks where it will write, calls one function of the library, and
shows its result, as text or as JSON. That function is imported inside the command, as the others, and
`--help`, must not wait for torch.

A command's docstring is its help, and `help=` that of an option: write both for users.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from levelhead.cli.common import (
    add_group,
    app,
    check_outputs,
    echo,
    example,
    show,
    typed_command,
    with_files,
)
from levelhead.cli.errors import options_of
from levelhead.cli.options import Force, Json, Page
from levelhead.cli.scores import check_counts
from levelhead.cli.words import RULES_HERE, PlainCommand, complete_rule
from levelhead.support.errors import LevelheadError

from .lab.choices import RECIPES, Executor, PaperTable, Tracker, TrainingDtype, TrainingEngine

add_group(
    "Training and study",
    ("demo", "methods", "train", "evaluate", "sweep", "reproduce"),
    start="""\b
To see what it does, with nothing at hand:
  levelhead demo
""",
)


def complete_method(incomplete: str) -> list[str]:
    """Return the methods whose name begins so, for the Tab key of a shell."""
    from .methods import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[str]:
    """Return the presets of recipes whose name begins so."""
    return [name for name in RECIPES if name.startswith(incomplete)]


Runs = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder that holds all runs.")]
_DEMO_PAGE = Path("levelhead-demo.html")
# What `reproduce` takes for tables and figures alike, and for figures alone.
_OF_ALL_TABLES = ("table", "results", "as_json")
_OF_FIGURES = ("docs", "pictures")
Unofficial = Annotated[
    bool, typer.Option("--unofficial", help="Accept CIFAR files with another md5.")
]


@app.command(cls=PlainCommand, epilog=example("methods", "methods wvn+rs"))
def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Describe one: ldam, wvn+rs, my.py:METHOD.",
            autocompletion=complete_method,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the methods, or describe one.

    Says what each method changes during or after training, and which head it needs.
    """
    from .lab.method_cards import format_card, format_table, method_facts
    from .methods import METHODS, method_named

    if name is None:
        facts = [method_facts(method) for method in METHODS.values()]
        show({"methods": facts}, format_table(METHODS.values()), as_json)
    else:
        method = method_named(name)
        show(method_facts(method), format_card(method), as_json)


@app.command(
    cls=PlainCommand, epilog=example("train --data digits --ratio 20 --method baseline --epochs 20")
)
def train(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Option(
            help="cifar10, cifar100, digits, tiny-imagenet, tiny-imagenet-sorted, a folder of images or an .npz."
        ),
    ],
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder with the official files of CIFAR or Tiny ImageNet."
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="One that `levelhead methods` lists, or FILE.py:NAME.",
            autocompletion=complete_method,
        ),
    ] = "wvn",
    ratio: Annotated[
        float | None, typer.Option(help="Make the data imbalanced: largest / smallest count.")
    ] = None,
    profile: Annotated[
        Literal["long-tail", "step"], typer.Option(help="Shape of the counts.")
    ] = "long-tail",
    counts: Annotated[
        Path | None,
        typer.Option(
            "--counts",
            metavar="COUNTS",
            help="Samples to keep per class: 400,200,50, or a .json, .csv, .npy or .txt file.",
            callback=check_counts,
        ),
    ] = None,
    largest: Annotated[int | None, typer.Option(help="Largest count that --ratio leaves.")] = None,
    subset: Annotated[
        str | None,
        typer.Option(
            help="Samples to keep: first, cao2019 (as their code draws), or a seed; 0 unless the set is official."
        ),
    ] = None,
    hold_out: Annotated[
        float, typer.Option(help="Share of each class to hold out, to choose on.")
    ] = 0.1,
    size: Annotated[
        int, typer.Option(help="Size to which the images of a folder are resized.")
    ] = 32,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip unreadable images.")] = False,
    unofficial: Unofficial = False,
    net: Annotated[
        str | None, typer.Option(help="resnet32, resnet18-64, digits or timm:NAME.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(RECIPES)} or a .toml.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Stretch or shorten the recipe to this many.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights, batches and crops.")] = 0,
    engine: Annotated[
        TrainingEngine, typer.Option(help="fast compiles for CUDA; auto: where that pays.")
    ] = "auto",
    dtype: Annotated[
        TrainingDtype, typer.Option(help="All but float32 and float64 need the fast engine.")
    ] = "float32",
    threads: Annotated[
        int | None, typer.Option(help="CPU threads. A resumed run keeps its first number.")
    ] = None,
    strength: Annotated[
        float | None, typer.Option(help="Strength of the rule, or of RS, instead of choosing it.")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            help=f"How to level it, if not as the method does. {RULES_HERE}.",
            autocompletion=complete_rule,
        ),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Level it also where nothing is gained.")
    ] = False,
    runs: Runs = Path("runs"),
    name: Annotated[
        str | None, typer.Option(help="First part of the name of the run's folder.")
    ] = None,
    track: Annotated[Tracker | None, typer.Option(help="Log every epoch there too.")] = None,
    as_json: Json = False,
) -> None:
    """Train on imbalanced images and adjust the result.

    Held-out images choose what is done to each class of the head. The run's folder holds the model as trained and
    the adjusted one, if anything is gained. To resume an interrupted run, give the same command again; a finished
    run is not trained again.
    """
    from .runs.spec import Spec
    from .runs.train_command import TrainOptions, imbalance_fields, train_and_evaluate

    # What the trained network depends on is the spec, and its key names the run's folder.
    imbalance = imbalance_fields(
        ratio=ratio, profile=profile, counts=counts, largest=largest, subset=subset
    )
    folder = None
    if root is not None:
        folder = str(root)
    spec = Spec(
        data,
        root=folder,
        method=method,
        hold_out=hold_out,
        size=size,
        skip_bad=skip_bad,
        unofficial=unofficial,
        net=net,
        recipe=recipe,
        epochs=epochs,
        seed=seed,
        engine=engine,
        dtype=dtype,
        **imbalance,
    )
    # All else may differ when the command is given again.
    options = TrainOptions(
        name=name,
        strength=strength,
        rule=rule,
        anyway=anyway,
        track=track,
        threads=threads,
        show=not as_json,
    )
    result, text = train_and_evaluate(
        spec,
        runs,
        options,
        say=partial(echo, err=True),
        option=options_of(context.command).__getitem__,
    )
    if result:  # there is none in the other processes of torchrun
        show(result, text, as_json)


@app.command(cls=PlainCommand, epilog=example("sweep grid.toml --workers 2"))
def sweep(
    grid: Annotated[
        Path,
        typer.Argument(
            metavar="GRID",
            help="A .toml file with data, method, ratio, seed...; lists are combined.",
        ),
    ],
    runs: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder that holds all runs; a cluster must share it."),
    ] = Path("runs"),
    executor: Annotated[
        Executor, typer.Option(help="local processes, packed on one GPU, or a ray cluster.")
    ] = "local",
    workers: Annotated[int, typer.Option(help="Number of runs at a time.")] = 2,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Run methods that GRID names as FILE.py:NAME.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train and evaluate every run of a grid.

    To resume a sweep, give the same command again. Finished runs are not trained again, and runs that a lost worker
    left are taken over.
    """
    from .runs.sweep import sweep_grid

    result, text = sweep_grid(
        grid,
        runs,
        executor=executor,
        workers=workers,
        allow_code=allow_code,
        say=partial(echo, err=True),
    )
    show(result, text, as_json)
    # What was trained is shown, but the command ends with 0 only when all was done.
    if result["failed"]:
        raise LevelheadError(
            f"{len(result['failed'])} runs could not be trained: {', '.join(result['failed'])}"
        )


@app.command(cls=PlainCommand, epilog=example("evaluate runs/NAME --rule rescale"))
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    strength: Annotated[
        float | None, typer.Option(help="Strength of the rule, or of RS, instead of choosing it.")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            help=f"What to do to each class. {RULES_HERE}.",
            autocompletion=complete_rule,
        ),
    ] = None,
    report: Page = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Measure a run on its test set, as trained and adjusted.

    Prints the errors overall, per group and per class. What is done to the head is chosen on the samples that the run
    held out, never on the test set.
    """
    from .runs.evaluate import evaluate as judge
    from .runs.evaluate import usual_rule
    from .runs.run_folder import Run

    check_outputs(page=report, force=force)
    evaluation = judge(Run.open(run).snapshot, strength=strength, rule=rule or usual_rule(strength))
    if report is not None:
        from levelhead.report import write

        from .runs.subject import of_run

        write(report, [of_run(run, tuned=evaluation.tuned)], command=typed_command())
    text = with_files(evaluation.text(), report)
    show({"run": str(run), **evaluation.to_dict()}, text, as_json)


@app.command(cls=PlainCommand, epilog=example("reproduce table1 --root DIR --dry-run"))
def reproduce(
    context: typer.Context,
    table: Annotated[
        Literal[PaperTable, "figures"],
        typer.Argument(
            metavar="TABLE",
            help=f"{', '.join(get_args(PaperTable))} or figures; sources, strong and frontier go beyond the paper.",
        ),
    ],
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder into which the official archives are unpacked."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CELL", help="A cell, cifar10:100:wvn, or a pattern, 'cifar10:*'."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Seeds of Baseline and WVN, and of all rows of frontier.")
    ] = 3,
    results: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the records.")] = Path(
        "results/records"
    ),
    runs: Runs = Path("runs"),
    slots: Annotated[int, typer.Option(help="Number of runs that share the GPU.")] = 16,
    minutes: Annotated[
        float | None, typer.Option(help="Start no new run after this many minutes.")
    ] = None,
    executor: Annotated[
        Literal["local", "ray"], typer.Option(help="One GPU here, or all of a Ray cluster.")
    ] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what is missing and what it costs.")
    ] = False,
    unofficial: Unofficial = False,
    dtype: Annotated[
        TrainingDtype, typer.Option(help="Precision; each needs a folder of records of its own.")
    ] = "bfloat16",
    docs: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="For figures: the folder of the pages to fill in."),
    ] = (Path("docs")),
    pictures: Annotated[
        Path, typer.Option(metavar="FOLDER", help="For figures: the folder to draw in.")
    ] = Path("docs/images/paper"),
    as_json: Json = False,
) -> None:
    """Train the networks of the paper's tables; draw its figures.

    Trains the networks that a table lacks and writes a record of each, then prints the rows: ours with its spread, the
    published number, the distance, where gamma is from. Stop it at any time, and resume it with the same command: a
    network that has a record is not trained again. `figures` trains nothing: it draws every figure and writes the pages
    of the reproduction again, from results/ alone.
    """
    from .paper.page import draw_figures
    from .paper.reproduce import ReproduceOptions, reproduce_table

    say = partial(echo, err=True)
    # Above all with --dry-run nobody expects that pages are written.
    for parameter in context.params:
        # By its name: typer has sources of its own, or those of click.
        source = context.get_parameter_source(parameter)
        given = source is not None and source.name != "DEFAULT"
        if given and parameter not in _OF_ALL_TABLES:
            if table == "figures" and parameter not in _OF_FIGURES:
                raise LevelheadError("figures trains nothing; leave it out", parameter=parameter)
            if table != "figures" and parameter in _OF_FIGURES:
                raise LevelheadError(
                    "only figures fills in pages; leave it out", parameter=parameter
                )
    if table == "figures":
        result, text = draw_figures(results, docs, pictures, say=say)
    else:
        options = ReproduceOptions(
            root=root,
            only=only or (),
            seeds=seeds,
            results=results,
            runs=runs,
            slots=slots,
            minutes=minutes,
            executor=executor,
            dry_run=dry_run,
            unofficial=unofficial,
            dtype=dtype,
        )
        result, text = reproduce_table(table, options, say=say, show=not as_json)
    show(result, text, as_json)


def _is_earlier_page(path: Path) -> bool:
    """Return whether a file is a page of an earlier demo, by its name and by what it begins with."""
    if path != _DEMO_PAGE or not path.is_file():
        return False
    with path.open("rb") as file:
        return b'<meta name="generator" content="levelhead' in file.read(4000)


@app.command(cls=PlainCommand, epilog=example("demo --report page.html"))
def demo(
    report: Annotated[Path, typer.Option(help="Where to write the page.")] = _DEMO_PAGE,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and batches.")] = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Level real networks, train small ones, and write a page.

    Two networks trained on long-tailed CIFAR-10 come with the package: nothing is downloaded. With torch and
    scikit-learn, two more are trained here, on digits. This takes less than a minute.
    """
    from .demo import demo_text, run_demo
    from .lab.progress import epoch_progress

    # A page of an earlier demo is replaced, and no other file.
    check_outputs(page=report, force=force or _is_earlier_page(report))
    with epoch_progress(show=not as_json) as progress:
        result = run_demo(report, seed=seed, progress=progress)
    show(result, demo_text(result), as_json)
