"""`levelhead compare`: the rules side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from ..support.errors import LevelheadError
from ..support.warnings import quiet
from .common import app, example, say, show
from .options import (
    LOGITS,
    TARGET,
    Background,
    Cost,
    Counts,
    Json,
    LabelColumn,
    Labels,
    MetricName,
    Names,
    Norms,
    ScoreKind,
    Seed,
)
from .scores import read_array, read_goal, with_background
from .words import PlainCommand


@app.command(
    cls=PlainCommand,
    epilog=example("compare --logits logits.npy --labels labels.npy --counts counts.json"),
)
def compare(
    logits: Annotated[Path, Option(help=LOGITS)],
    labels: Labels = None,
    counts: Counts = None,
    names: Names = None,
    label_column: LabelColumn = None,
    metric: MetricName = None,
    cost: Cost = None,
    target: Annotated[str | None, Option(metavar="SHARES", help=f"{TARGET} or a file.")] = None,
    kind: ScoreKind = "logits",
    norms: Norms = None,
    background: Background = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare the rules side by side on held-out data.

    Prints a line for each rule, the best first: its strength if it has one, and what it gains. Each rule is fitted on
    two thirds of the samples and judged on the rest, in turn, so that a more flexible one does not win by chance.
    """
    from ..core.compare import compare as compare_rules
    from ..io.arrays import read_names, target_shares
    from ..io.samples_file import read

    samples = read(
        logits,
        labels,
        counts,
        names=read_names(names),
        label_column=label_column,
        background=background,
        say=say,
    )
    # Without labels there is nothing to compare by; `tune` goes on with a target instead.
    if samples.labels is None:
        missing = "expected labels: only they can tell which rule is right"
        raise LevelheadError(missing, parameter="labels")
    with quiet():  # the table holds the warnings
        table = compare_rules(
            samples.logits,
            samples.labels,
            with_background(samples, background),
            metric=read_goal(metric, cost, ()),
            target=target_shares(target, samples.names, samples.classes),
            names=samples.names,
            kind=kind,
            norms=read_array(norms, "norms"),
            rng=seed,
        )
    show(table.to_dict(), str(table), as_json)
