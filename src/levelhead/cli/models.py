"""Commands for a model's file: inspect it, adjust it, undo that.

Each calls one function of files/, and prints what that returns. Outputs are checked there and not by
`check_outputs`: a sharded model is a folder, and a Python caller needs the same checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ..support.errors import LevelheadError
from ..support.progress import copy_progress
from ..support.types import BiasPolicy, LabelTask
from .common import app, check_no_input, example, read_choice, say_not_judged, show
from .options import COUNTS, Anyway, Background, Force, Json, Names
from .scores import check_counts, read_array, read_training_counts, refuse
from .words import (
    FORMATS_HERE,
    RULES_WITH_STRENGTH_HERE,
    PlainCommand,
    complete_rule_with_strength,
    rule_with,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.counts import Counts
    from ..core.rules import Rule
    from ..core.tuned import Tuned

Model = Annotated[
    Path,
    Argument(
        metavar="MODEL",
        help=f"A model's file: {FORMATS_HERE}. For a sharded one, its index or its folder.",
    ),
]
Out = Annotated[
    Path, Option("-o", "--out", help="Where to write: a file, or a folder for a sharded model.")
]
HeadName = Annotated[
    str | None,
    Option(
        "--head",
        metavar="LAYER",
        help="Name of the head's layer, such as classifier, if several layers could be it.",
    ),
]


@app.command(
    cls=PlainCommand,
    epilog=example("inspect model.safetensors --counts counts.json"),
)
def inspect(
    model: Model,
    counts: Annotated[
        Path | None,
        Option(
            "--counts",
            metavar="COUNTS",
            help=f"{COUNTS} The weight norms are shown beside them.",
            callback=check_counts,
        ),
    ] = None,
    head: HeadName = None,
    names: Names = None,
    as_json: Json = False,
) -> None:
    """Show the head of a model file, with warnings.

    Prints the layer that is the head, its weight norms beside the counts, its bias and any earlier adjustment; if
    several layers could be the head, it lists them. No code in the file is run.
    """
    from ..files.inspect import inspect_file, inspection_text
    from ..io.arrays import read_names

    inspection = inspect_file(
        model, counts=read_training_counts(counts), head=head, names=read_names(names)
    )
    show(inspection, inspection_text(inspection), as_json)


@app.command(
    cls=PlainCommand,
    epilog=example(
        "adjust model.safetensors --tuned tuned.json -o adjusted.safetensors",
        "adjust model.safetensors --rule rescale --strength 0.5 --counts 5000,500,50 -o rs.safetensors",
    ),
)
def adjust(
    model: Model,
    out: Out,
    tuned: Annotated[Path | None, Option(help="The choice that `levelhead tune -o` wrote.")] = None,
    rule: Annotated[
        str | None,
        Option(
            "--rule",
            metavar="RULE",
            help=f"Instead of --tuned, a rule at a strength of your own. {RULES_WITH_STRENGTH_HERE}.",
            autocompletion=complete_rule_with_strength,
        ),
    ] = None,
    strength: Annotated[float | None, Option(help="Strength of --rule; 0 changes nothing.")] = None,
    counts: Annotated[
        Path | None,
        Option("--counts", metavar="COUNTS", help=f"For --rule. {COUNTS}", callback=check_counts),
    ] = None,
    bias: Annotated[
        BiasPolicy, Option(help="Whether --rule scales the bias with its weight vector.")
    ] = "scale",
    head: HeadName = None,
    background: Background = None,
    anyway: Anyway = False,
    original: Annotated[
        bool, Option(help="Keep the old bytes in OUT.original, for an exact undo.")
    ] = True,
    force: Force = False,
    again: Annotated[
        bool, Option("--again", help="Adjust a model that was adjusted before once more.")
    ] = False,
    logits: Annotated[
        Path | None,
        Option(help="Logits of the model, to count the predictions that rounding could change."),
    ] = None,
    features: Annotated[
        Path | None,
        Option(
            help="What the head takes, [N, d], of held-out samples, if it has no bias: offsets go into its "
            "weights by these."
        ),
    ] = None,
    task: Annotated[
        LabelTask | None,
        Option(
            help="multiclass if the model has a sigmoid for each class, and you predict the largest."
        ),
    ] = None,
    names: Names = None,
    as_json: Json = False,
) -> None:
    """Write a copy of a model with its head adjusted.

    It is adjusted as `levelhead tune` chose, or by a rule at a strength of your own. All other bytes are copied
    unchanged, and `levelhead undo` gives the model back. If the choice gains nothing, nothing is written and the exit
    status is 3.
    """
    from ..files.model import adjust_file, adjusted_text
    from ..io.arrays import read_names

    # The model itself is looked after where it is read.
    check_no_input(out, (tuned, counts, logits, features, names))
    not_judged: Path | None = None
    # What to do: what was tuned, or a rule at a strength; never both, as one of them would be ignored.
    if tuned is None:
        choice = rule_to_apply(rule, strength)
    else:
        refuse(f"{tuned} has it already; leave it out", rule=rule, strength=strength, counts=counts)
        check_order(model, tuned)
        choice = read_choice(tuned, anyway=anyway)
        if choice.worthwhile is None:
            not_judged = tuned
    training_counts = read_training_counts(counts)
    class_names = read_names(names)
    if features is not None:
        check_takes_features(model, choice, training_counts, head=head, names=class_names)
    # The whole file is copied, which takes a while for a large one: a bar on a terminal says how far it is.
    with copy_progress(model) as bar:
        done = adjust_file(
            model,
            out,
            choice,
            training_counts,
            head=head,
            bias=bias,
            background=background,
            original=original,
            force=force,
            again=again,
            logits=read_array(logits),
            features=read_array(features, "features"),
            names=class_names,
            task=task,
            progress=bar,
        )
    if not_judged is not None:
        say_not_judged(not_judged)
    show(done, adjusted_text(done), as_json)


def rule_to_apply(rule: str | None, strength: float | None) -> Rule:
    """Return the rule that is named, at the strength that is given: both are needed.

    Raises:
        LevelheadError: neither is given, which says what to do instead; or the rule takes no strength.
    """
    if rule is None:
        either = "expected what `levelhead tune` wrote, or --rule and --strength"
        raise LevelheadError(either, parameter="tuned")
    rule_at_strength = rule_with(rule, strength=strength)
    if strength is None:
        expected = "expected a number, such as 0.5; for one that is chosen on samples"
        raise LevelheadError(f"{expected}, use `levelhead tune`", parameter="strength")
    return rule_at_strength


def check_takes_features(
    model: Path,
    choice: Tuned | Rule,
    counts: Counts | None,
    *,
    head: str | None,
    names: Sequence[str] | None,
) -> None:
    """Raise LevelheadError if --features would not be used: only offsets of a head without a bias go by them."""
    from ..files.locate import ModelFile
    from ..heads.choice import read_choice

    chosen = read_choice(choice)
    if not chosen.adds:
        nothing = f"the rule {chosen.rule.name} adds nothing that could go into weights"
        raise LevelheadError(f"{nothing}; leave it out", parameter="features")
    # Found as `adjust_file` will find it.
    located = ModelFile.at(model).locate_head(
        head=head, classes=chosen.classes(counts), names=names
    )
    first = located.layers[0]
    if first.bias is not None:
        reason = f"{first.key} has a bias, which takes what is added; leave it out"
        raise LevelheadError(reason, parameter="features")


def check_order(model: Path, tuned: Path) -> None:
    """Raise LevelheadError if the model and the choice seem to have changed places.

    Else the message would be that tuned.json is no model, which does not say what went wrong.
    """
    from ..files.formats import model_suffixes

    if tuned.name.endswith(model_suffixes()) and model.suffix == ".json" != tuned.suffix:
        swapped = f"levelhead adjust {tuned} --tuned {model}"
        raise LevelheadError(f"{model} is not a model; give the model first: {swapped}")


@app.command(cls=PlainCommand, epilog=example("undo adjusted.safetensors -o back.safetensors"))
def undo(
    model: Annotated[
        Path, Argument(metavar="MODEL", help="A model that `levelhead adjust` wrote.")
    ],
    out: Out,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Undo the adjustment of a model file.

    With MODEL.original next to it, the result equals the old model byte for byte. Without it, the adjustment is
    reversed by arithmetic, which is exact only up to rounding.
    """
    from ..files.undo import undo_file, undo_text

    with copy_progress(model) as bar:
        undone = undo_file(model, out, force=force, progress=bar)
    show(undone, undo_text(undone), as_json)
