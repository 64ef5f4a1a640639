"""The options that several commands have, each declared once: its type, its name and its help.

A command takes one by its annotation, `names: Names = None`. Options of a single command stand
where the command is.

Help is a sentence or two that a newcomer understands, with an example of what to type in it. `metavar` is
one word in capitals for the value; a file is FILE by default (`words.PlainCommand`). An option is named like the
parameter of the library that it becomes, by which errors find it (errors.py).
"""

from pathlib import Path
from typing import Annotated

from typer import Option

from ..support.types import Kind
from .scores import check_counts
from .words import METRICS_HERE, RULES_HERE, complete_metric, complete_rule

# Words that several helps share. Formats of data are few and fixed; those of models come from the table
# of formats (`words.FORMATS_HERE`).
COUNTS = (
    "Training samples of each class: 4000,2000,500, or a file of counts or of training labels "
    "(.json, .csv, .npy, ...)."
)
DATA = (
    "in a .npy, .npz, .safetensors, .pt, .csv, .tsv or .parquet file; FILE:KEY picks one array or "
    "column of several"
)
LOGITS = (
    "Scores before the softmax, of samples the model was not trained on: N rows, K classes, "
    f"{DATA}."
)
TARGET = "Share of each class among the samples in use, if not all equal: 0.5,0.3,0.2,"

# ---- Of all commands ---------------------------------------------------------------------------

Json = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
Force = Annotated[bool, Option("--force", help="Replace existing files.")]
Anyway = Annotated[bool, Option("--anyway", help="Go on even if there is nothing to gain.")]
Names = Annotated[
    str | None,
    Option(
        "--names",
        metavar="NAMES",
        help="Class names, in order: cat,dog,owl, or a file (.txt, .json, a config.json with id2label, ...).",
    ),
]
Background = Annotated[
    str | None,
    Option(
        metavar="CLASS",
        help="A class to leave alone, by name or index, such as a detector's `no object`.",
    ),
]

# ---- Of samples --------------------------------------------------------------------------------

# Files are `Path`s that may end in :KEY. They are no typer.Path that must exist: what is missing is
# said by whoever reads it, who knows what was expected there.
Labels = Annotated[
    Path | None,
    Option(
        help="True class of each row, an index or a name; not needed if the file of the logits holds "
        "an array called labels."
    ),
]
Counts = Annotated[
    Path | None,
    Option(
        "--counts",
        metavar="COUNTS",
        help=f"{COUNTS} Without them, those of the labels stand in.",
        callback=check_counts,
    ),
]
LabelColumn = Annotated[
    str | None,
    Option(
        metavar="COLUMN",
        help="Column of the labels in a table of logits, if it is not called label, y or target.",
    ),
]
ScoreKind = Annotated[
    Kind, Option(help="What --logits holds; of probabilities, the logarithms are adjusted.")
]

# ---- Of a choice -------------------------------------------------------------------------------

# Names are looked up by the library and not by typer, so that a metric or rule of one's own, added to its
# table, is found, completed and listed here without a change.
MetricName = Annotated[
    str | None,
    Option(
        "--metric",
        metavar="METRIC",
        help=f"What to improve: {METRICS_HERE}; or scikit-learn's name for it.",
        autocompletion=complete_metric,
    ),
]
RuleName = Annotated[
    str | None,
    Option(
        "--rule",
        metavar="RULE",
        help=f"What to do to each class. {RULES_HERE}.",
        autocompletion=complete_rule,
    ),
]
Cost = Annotated[
    Path | None,
    Option(
        help="File of costs, a row for each true class and a column for each predicted one: the "
        "metric is then the mean cost."
    ),
]
Norms = Annotated[
    Path | None, Option(help="File of the head's weight norms, one per class, for the rule tau.")
]
ChosenOn = Annotated[str, Option(help="What the samples are. Say test if they are your test set.")]
Seed = Annotated[int, Option(help="Seed that deals samples into folds.", min=0)]

# ---- Of a page ---------------------------------------------------------------------------------

Page = Annotated[
    Path | None, Option("--report", help="Write a page that shows the effect: page.html.")
]
PageModel = Annotated[
    Path | None, Option(help="The model's file, to be named in the commands on the page.")
]
