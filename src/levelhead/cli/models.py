"""The commands of whoever has a model already: look at it, choose gamma, adjust it and take that back, show it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import Force, Json, Page, app, say, show, typed

COUNTS = "Training samples of each class, as .json, .csv, .npy, .npz, .safetensors or .txt."
MODEL = "A .safetensors file (its index or folder, if sharded), an .onnx, or a state dict as .pt, .pth, .ckpt or .bin."
DATA = "as .npy, .npz, .safetensors, .csv or .parquet; FILE:KEY names one array of several"
BESIDE = "May stand beside `logits` in their .npz or .safetensors, by this name."

Model = Annotated[Path, typer.Argument(help=MODEL)]
Out = Annotated[Path, typer.Option("-o", "--out", help="Where to write; a folder for a sharded model.")]
Layer = Annotated[str | None, typer.Option("--head", help="The layer, if it cannot be found for certain: classifier.")]


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
    from ..files.describe import inspection_text
    from ..files.inspect import inspect_file
    from ..io.counts_file import read_counts

    seen = inspect_file(model, counts=None if counts is None else read_counts(counts), head=head)
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
    from ..files.describe import done_text
    from ..files.rescale import rescale_file, strength
    from ..io import arrays
    from ..io.counts_file import read_counts
    from ..show.progress import progress_bar

    scores = None if logits is None else arrays.read(logits)
    with progress_bar(model) as bar:
        done = rescale_file(
            model, out, read_counts(counts), **strength(gamma, rule, tuned), head=head, bias=bias, missing=missing,  # type: ignore[arg-type]
            original=original, force=force, again=again, logits=scores, progress=bar,
        )
    show(done.json(), done_text(done), as_json)


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
    from ..io.samples import read
    from ..io.tuned_json import describe_sources, write_tuned
    from ..show.plot import picture
    from .tune_files import check_new, tune_files

    check_new(out, plot, report, force=force, inputs=(logits, labels, counts, unlabelled, norms, training))
    samples = read(logits, labels, counts, say=say)
    tuned = tune_files(samples, unlabelled=unlabelled, rule=rule, criterion=criterion, target=target, reach=most,  # type: ignore[arg-type]
                       norms=norms, training=training, kind=kind, chosen_on=chosen_on, bootstrap=bootstrap, seed=seed)  # type: ignore[arg-type]
    files = {**samples.files, "norms": norms}
    if out is not None:
        write_tuned(tuned.to_dict(), out, describe_sources(samples.counts, kind, target, **files))  # type: ignore[arg-type]
    if plot is not None:
        picture(tuned, plot)
    if report is not None:
        from ..report import of_choice, write

        write(report, [of_choice(tuned, **files, target=target, kind=kind)], command=typed())  # type: ignore[arg-type]
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
    from ..files.describe import undone_text
    from ..files.undo import undo_file
    from ..show.progress import progress_bar

    with progress_bar(model) as bar:
        undone = undo_file(model, out, force=force, progress=bar)
    show(undone.json(), undone_text(undone), as_json)


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
    from ..paper.cells import load_records
    from ..paper.markdown import every_table
    from ..report import Table, is_records, of_file, write
    from .tune_files import check_new

    check_new(None, None, out, force=force)
    tables = [Table.of_markdown(title, text) for path in inputs if is_records(path)
              for title, text in every_table(load_records(path)).items()]
    subjects = [of_file(path, labels=labels, counts_file=counts, tuned=tuned, gamma=gamma, rule=rule,  # type: ignore[arg-type]
                        chosen_on=chosen_on, bootstrap=bootstrap, say=say) for path in inputs if not is_records(path)]
    page = write(out, subjects, tables=tables, command=typed())
    show({"page": str(page), "bytes": page.stat().st_size}, f"{page}: open it in a browser", as_json)
