"""Commands for a model's file: inspect it, adjust it, undo that."""

from pathlib import Path
from shlex import join
from typing import Annotated, Any

from typer import Argument, Option

from ..support.errors import LevelheadError
from ..support.progress import copy_progress
from ..support.types import BiasPolicy, Missing, PathRule
from .common import COUNTS, Background, Force, Json, Names, app, example, show

Model = Annotated[
    Path,
    Argument(
        help="A .safetensors file (of a sharded model, its index or its folder), an "
        ".onnx, .keras or .weights.h5 file, or a state dict as .pt, .pth, .ckpt or .bin."
    ),
]
Out = Annotated[
    Path, Option("-o", "--out", help="Where to write: a file, or a folder for a sharded model.")
]
HeadName = Annotated[
    str | None,
    Option("--head", help="Name of the layer, where several could be the head: classifier."),
]
Original = Annotated[bool, Option(help="Keep the old bytes in OUT.original for an exact undo.")]
Again = Annotated[bool, Option("--again", help="Allow a model that was adjusted before.")]
ModelLogits = Annotated[
    Path | None,
    Option(help="Logits of the model: count the predictions that rounding could change."),
]


@app.command(epilog=example("inspect model.safetensors --counts counts.json"))
def inspect(
    model: Model,
    counts: Annotated[
        Path | None, Option(help=f"{COUNTS} Shows whether the weight norms follow them.")
    ] = None,
    head: HeadName = None,
    names: Names = None,
    as_json: Json = False,
) -> None:
    """Show the head of a model file, with warnings.

    Lists its layers, its weight norms against the counts, its bias and any earlier adjustment. Runs no code in the
    file.
    """
    from ..files.inspect import inspect_file, inspection_text
    from ..io.arrays import read_counts, read_names

    n = None if counts is None else read_counts(counts)
    seen = inspect_file(model, counts=n, head=head, names=read_names(names))
    show(seen, inspection_text(seen), as_json)


@app.command(epilog=example("adjust model.safetensors --tuned tuned.json -o adjusted.safetensors"))
def adjust(
    model: Model,
    out: Out,
    tuned: Annotated[
        Path, Option(help="What `levelhead tune` wrote: the rule, its strength and the counts.")
    ],
    head: HeadName = None,
    background: Background = None,
    anyway: Annotated[
        bool, Option("--anyway", help="Adjust also where no gain is to be expected.")
    ] = False,
    certain: Annotated[
        bool,
        Option("--only-if-certain", help="Adjust only if the interval of the gain is above 0."),
    ] = False,
    original: Original = True,
    force: Force = False,
    again: Again = False,
    logits: ModelLogits = None,
    names: Names = None,
    as_json: Json = False,
) -> None:
    """Write a copy of a model adjusted by what was tuned.

    Rule, strength and counts come from `levelhead tune`. All other bytes are copied unchanged, and `levelhead undo`
    gives the model back. Where no gain is to be expected, nothing is written.
    """
    from ..files.locate import MODEL_FORMATS
    from ..files.model import adjust_file, check_worthwhile, rescale_text
    from ..io.arrays import read, read_names

    if model.suffix == ".json" != tuned.suffix and any(
        tuned.name.endswith(one.suffixes) for one in MODEL_FORMATS
    ):
        raise LevelheadError(
            f"{model} is no model; give the model first: levelhead adjust {tuned} --tuned {model}"
        )
    if not anyway:
        check_worthwhile(tuned, certain=certain)
    scores = None if logits is None else read(logits)
    with copy_progress(model) as bar:
        how: dict[str, Any] = {
            "head": head,
            "background": background,
            "logits": scores,
            "names": read_names(names),
        }
        done = adjust_file(
            model, out, tuned, original=original, force=force, again=again, progress=bar, **how
        )
    show(done, rescale_text(done), as_json)


@app.command(
    epilog=example("rescale model.safetensors --counts 5000,500,50 --gamma 0.5 -o rs.safetensors")
)
def rescale(
    model: Model,
    out: Out,
    counts: Annotated[Path, Option(help=COUNTS)],
    gamma: Annotated[
        float | None, Option(help="Strength, chosen on held-out samples; 0 is none.")
    ] = None,
    tuned: Annotated[Path | None, Option(hidden=True, help="Use `levelhead adjust`.")] = None,
    rule: Annotated[
        PathRule,
        Option(
            help="rescale: w_i <- (n_max / n_i)^gamma w_i; tau: w_i <- w_i / "
            "||w_i||^gamma; shift: b_i <- b_i + gamma log(n_max / n_i)."
        ),
    ] = "rescale",
    head: HeadName = None,
    bias: Annotated[
        BiasPolicy, Option(help="Scale the bias with its weight vector, as tune assumes.")
    ] = "scale",
    missing: Annotated[
        Missing, Option(help="A class without samples is an error, or is left as is.")
    ] = "error",
    background: Background = None,
    original: Original = True,
    force: Force = False,
    again: Again = False,
    logits: ModelLogits = None,
    names: Names = None,
    as_json: Json = False,
) -> None:
    """Write a copy of a model with its head rescaled (RS).

    Each weight vector w_i becomes (n_max / n_i)^gamma w_i, where n_i is the count of its class. All other bytes are
    copied unchanged, and `levelhead undo` gives the model back. What `levelhead tune` chose is for `levelhead adjust`.
    """
    from ..core.counts import with_background
    from ..files.locate import locate_head
    from ..files.model import InFile, Output, rescale_place, rescale_text
    from ..io.arrays import read, read_counts, read_names

    if gamma is None or tuned is not None:
        instead = join(
            [
                "levelhead",
                "adjust",
                str(model),
                "--tuned",
                str(tuned or "tuned.json"),
                "-o",
                str(out),
            ]
        )
        came = (
            "is for a strength of one's own, got a file" if tuned else "expected a number, got none"
        )
        raise LevelheadError(
            f"{came}; for what `levelhead tune` chose: {instead}", parameter="gamma"
        )
    scores, n = None if logits is None else read(logits), read_counts(counts)
    with copy_progress(model) as bar:
        found = locate_head(model, head=head, counts=n, names=read_names(names))
        place = InFile(model, Output(out, original, force, bar), found)
        alone = n if background is None else with_background(n, background)
        done = rescale_place(
            place,
            alone,
            gamma=gamma,
            rule=rule,
            bias=bias,
            missing=missing,
            logits=scores,
            again=again,
        )
    show(done, rescale_text(done), as_json)


@app.command(epilog=example("undo adjusted.safetensors -o back.safetensors"))
def undo(
    model: Annotated[Path, Argument(help="A model that `levelhead adjust` or `rescale` wrote.")],
    out: Out,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Undo the adjustment of a model file.

    With MODEL.original next to it, the result equals the old model byte for byte. Without it, the weights are divided
    by their factors, which is exact only up to rounding.
    """
    from ..files.undo import undo_file, undo_text

    with copy_progress(model) as bar:
        undone = undo_file(model, out, force=force, progress=bar)
    show(undone, undo_text(undone), as_json)
