"""The app, the options that several commands have, how commands print, and checks of the files they will write."""

import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .._version import __version__
from ..core.choices import Criterion, Kind, Metric, RuleRequest
from ..core.errors import LevelheadError, named

# In the order of their use: first for a model that is trained, then for a training.
ORDER = ("demo", "inspect", "tune", "compare", "adjust", "undo", "rescale", "report")
ORDER += ("methods", "train", "evaluate", "sweep", "reproduce")
START = """
\b
To see what it does, with nothing at hand:
  levelhead demo
\b
With a model of your own, its logits on held-out samples, and their labels:
  levelhead tune --logits logits.npy --labels labels.npy \\
    --counts 5000,500,50 -o tuned.json
  levelhead adjust model.safetensors --tuned tuned.json -o leveled.safetensors

levelhead COMMAND --help explains each option and shows an example.
"""

app = typer.Typer(
    name="levelhead",
    epilog=START,
    help="Level the head of a classifier trained on imbalanced data: in training (WVN), or in one line after it (RS).",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich takes longer to import than everything else
    context_settings={"help_option_names": ["-h", "--help"]},
)

COUNTS = "Training samples per class: 4000,2000,500, or a file of them or of training labels (.json, .csv, .npy, ...)."
DATA = "in a .npy, .npz, .safetensors, .pt, .csv, .tsv or .parquet file; FILE:KEY picks one array or column of several"
LABELS = "True class of each row: an index or a name."
IN_LOGITS = "May be left out if the file of the logits holds an array of this name."

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Page = Annotated[Path | None, typer.Option("--report", help="Write a page that shows the effect: page.html.")]
Model = Annotated[
    Path,
    typer.Argument(
        help="A .safetensors file (of a sharded model, its index or its folder), an "
        ".onnx, .keras or .weights.h5 file, or a state dict as .pt, .pth, .ckpt or .bin."
    ),
]
Out = Annotated[Path, typer.Option("-o", "--out", help="Where to write: a file, or a folder for a sharded model.")]
HeadName = Annotated[
    str | None, typer.Option("--head", help="Name of the layer, where several could be the head: classifier.")
]
Names = Annotated[
    str | None,
    typer.Option(help="Class names, in order: cat,dog,owl, or a file (.txt, .json, a config.json with id2label, ...)."),
]
LabelColumn = Annotated[
    str | None, typer.Option(help="The labels' column in a table of logits, if it is not called label, y or target.")
]
Original = Annotated[bool, typer.Option(help="Keep the old bytes in OUT.original for an exact undo.")]
Again = Annotated[bool, typer.Option("--again", help="Allow a model that was adjusted before.")]
ModelLogits = Annotated[
    Path | None, typer.Option(help="Logits of the model: count the predictions that rounding could change.")
]
Background = Annotated[
    str | None, typer.Option(help="A class to leave alone, by name or index: `no object` of a detector.")
]
ChosenOn = Annotated[str, typer.Option(help="What the samples are. Say test if they are your test set.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"levelhead {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def example(*lines: str) -> str:
    """Return the end of a command's help, which click does not wrap: what to type, each on a line of its own.

    >>> print(example("demo").lstrip("\\b"))
    <BLANKLINE>
    Example:
      levelhead demo
    """
    return "\b\n" + "\n".join(["Example:", *(f"  levelhead {line}" for line in lines)])


def show(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print the result of a command: JSON for programs, text for people."""
    typer.echo(json.dumps(result, indent=2) if as_json else text)


def say(line: str) -> None:
    """Print a line on stderr, which leaves stdout to the result."""
    typer.echo(f"levelhead: {line}", err=True)


def typed_command() -> str:
    """Return the command as it was typed, for the last lines of a page."""
    return shlex.join(["levelhead", *sys.argv[1:]])


def check_outputs(
    *,
    out: Path | None = None,
    plot: Path | None = None,
    page: Path | None = None,
    force: bool = False,
    inputs: Sequence[Path | None] = (),
) -> None:
    """Check that every output can be written and that none replaces an input, or another file without --force."""
    from ..core import atomic
    from ..io import arrays
    from ..show.plot import check_picture

    outputs = [path for path in (out, plot, page) if path is not None]
    sources = [arrays.file_of(source) for source in inputs if source is not None and arrays.has_known_suffix(source)]
    for path in outputs:
        atomic.check_plain(path)
        if path.exists() and any(file.exists() and path.samefile(file) for file in sources):
            raise LevelheadError(f"{path}: an input, which is never overwritten; choose another name")
        if os.path.lexists(path) and not force:
            raise FileExistsError(f"{path} exists; pass --force to replace it")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent}: no such folder to write {path.name} into")
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise LevelheadError(f"{outputs[0]}: expected a different file for each of --out, --plot and --report")
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise LevelheadError(f"{page}: expected a page that ends in .html")
    if plot is not None:
        check_picture(plot)


def check_titles(titles: Sequence[str] | None, size: int) -> list[str | None]:
    """Return a title, or None, for each of so many models."""
    if titles and len(titles) != size:
        raise LevelheadError(f"expected {size}, one for each model, got {len(titles)}", parameter="title")
    return list(titles) if titles else [None] * size


def read_floors(given: Sequence[str]) -> float | dict[str, float] | None:
    """Return the floors of recall as `tune` takes them: a number for all classes, or {class: recall}."""
    from ..core.per_class import without_repeats

    if not given:
        return None
    pairs = [(name, _number(value)) for name, _, value in (each.rpartition("=") for each in given)]
    if all(name for name, _ in pairs):
        with named("floors"):
            return without_repeats(pairs)
    if len(pairs) > 1:
        raise LevelheadError(
            f"expected one recall for all classes, or CLASS=RECALL each time, got {', '.join(given)}",
            parameter="floors",
        )
    return pairs[0][1]


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise LevelheadError(
            f"expected a recall such as 0.6, or CLASS=0.6, got {value!r}", parameter="floors"
        ) from None


@dataclass(frozen=True)
class TuneRequest:
    """What was asked of `levelhead tune` about its samples; see the help of its options."""

    rule: RuleRequest
    metric: Metric
    cost: Path | None
    floors: tuple[str, ...]
    criterion: Criterion
    kind: Kind
    target: str | None
    most: float | None
    unlabelled: Path | None
    norms: Path | None
    training: Path | None
    background: str | None
    chosen_on: str
    bootstrap: int
    seed: int

    def __post_init__(self) -> None:
        check_seed(self.seed)
        range_up_to(self.most)

    def check_unlabelled(self) -> None:
        """Check that nothing was asked that needs labels."""
        for name in ("unlabelled", "training"):
            if getattr(self, name) is not None:
                raise LevelheadError("--logits are the unlabelled ones if --labels is left out", parameter=name)
        if self.criterion != "guided":
            raise LevelheadError(f"{self.criterion!r} needs --labels", parameter="criterion")
        for name, asked in (("metric", self.metric != "balanced_error"), ("cost", self.cost), ("floors", self.floors)):
            if asked:
                raise LevelheadError("this needs --labels", parameter=name)


def check_seed(seed: int) -> None:
    if seed < 0:
        raise LevelheadError(f"expected 0 or more, got {seed}", parameter="seed")


def range_up_to(most: float | None) -> tuple[float, float] | None:
    if most is None:
        return None
    if not 0 < most < math.inf:
        raise LevelheadError(f"expected a finite gamma above 0, got {most:g}", parameter="most")
    return 0.0, most
