"""`levelhead apply`: adjust the scores of a model, where its own file cannot be.

Scores are read a part at a time (`read_parts`), adjusted (`adjusted_parts`) and written at once
(`write_applied`), so a file may be larger than the memory.

The data at each step: `Part`, which has scores [n, K], the number of its first row and the other columns of
a table; the same with adjusted scores [n, K]; rows of one or two files, which appear under their names
when the last part is written, and not at all if anything fails on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import Argument, Option

from ..support.errors import LevelheadError
from .common import app, check_outputs, example, read_choice, say_not_judged, show
from .options import Anyway, Force, Json
from .words import PlainCommand

PART = 1 << 20  # numbers that are read and written at once: 8 MB as float64

if TYPE_CHECKING:
    import numpy as np

    from ..core.tuned import Tuned
    from ..io.parts import Part, ScoreParts


@app.command(
    cls=PlainCommand, epilog=example("apply logits.npy --tuned tuned.json -o adjusted.npy")
)
def apply(
    scores: Annotated[
        Path,
        Argument(
            metavar="SCORES",
            help="Scores of new samples, of the kind it was tuned on: N rows, K classes, in a .npy, "
            ".npz, .safetensors, .pt, .csv, .tsv or .parquet file; FILE:KEY picks one of several.",
        ),
    ],
    tuned: Annotated[Path, Option(help="The choice that `levelhead tune -o` wrote.")],
    out: Annotated[
        Path | None,
        Option(
            "-o",
            "--out",
            help="Where to write adjusted scores: .npy, .npz, .safetensors, .csv or .parquet.",
        ),
    ] = None,
    labels_out: Annotated[
        Path | None,
        Option(
            help="Where to write predicted classes, by name where known: .npy, .csv or .parquet."
        ),
    ] = None,
    proba: Annotated[
        bool, Option("--proba", help="Write calibrated probabilities instead of scores.")
    ] = False,
    anyway: Anyway = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Adjust the scores of a model, as it was tuned.

    For a model whose own file cannot be changed. The class with the largest adjusted score is the one to predict; of
    several labels per sample, those above 0 are. Other columns of a table, such as ids, are copied, and a file may be
    larger than the memory: it is read and written in parts. If the choice gains nothing, nothing is written and the
    exit status is 3.
    """
    from ..core.tuned_checks import check_classes
    from ..io.parts import read_parts

    # What would be refused at the end is refused now: outputs, the choice, a missing temperature, classes.
    check_outputs(out=out, labels_out=labels_out, force=force, inputs=(scores, tuned))
    choice = read_choice(tuned, anyway=anyway)
    if out is None and labels_out is None:
        raise LevelheadError("expected a file to write, or one for --labels-out", parameter="out")
    if proba:
        check_calibrated(choice, tuned, out)
    # Here the file is only opened: its rows are read while results are written.
    read = read_parts(scores, choice.classes, choice.names, size=PART)
    check_classes(choice, read.classes, read.names, where=str(scores))
    counted = write_applied(choice, read, out, labels_out, proba=proba, new=not force)
    written = [str(path) for path in (out, labels_out) if path is not None]
    text = f"{scores} -> {', '.join(written)}: {counted.rows} rows"
    result = {"scores": str(scores), "written": written, **counted._asdict()}
    if choice.worthwhile is None:
        say_not_judged(tuned)
    show(result, f"{text}, {counted.changed} with another prediction", as_json)


def check_calibrated(tuned: Tuned, path: Path, out: Path | None) -> None:
    """Raise LevelheadError unless there is a file for probabilities, and a temperature to make them.

    Args:
        tuned: the choice.
        path: its file, for the message.
        out: where adjusted scores would go.
    """
    if out is None:
        raise LevelheadError("this needs a file for the probabilities; add -o", parameter="proba")
    if tuned.multilabel:
        reason = f"{path} is of several labels per sample, for which no temperature is fitted"
        raise LevelheadError(f"{reason}; leave it out", parameter="proba")
    if tuned.temperature is None:
        reason = f"{path} has no temperature: only labels can tell what is calibrated"
        raise LevelheadError(f"{reason}; tune with labels", parameter="proba")


class Counted(NamedTuple):
    """How many rows were written, and how many of them are predicted as another class than before."""

    rows: int
    changed: int


def write_applied(
    tuned: Tuned,
    read: ScoreParts,
    out: Path | None,
    labels_out: Path | None,
    *,
    proba: bool,
    new: bool,
) -> Counted:
    """Write adjusted scores, or probabilities, and predicted classes, each where a file is given.

    Args:
        tuned: the choice.
        read: the scores, a part at a time.
        out: a file for scores or probabilities, or None.
        labels_out: a file for predicted classes, or None.
        proba: whether probabilities are written instead of scores.
        new: whether a file that came to be meanwhile is left alone, which is then an error.
    """
    import numpy as np

    from ..io.parts_written import write_parts

    # The choice's names win: the file's columns were checked against them.
    names = tuned.names or read.names
    if names is None:
        titles = [f"score_{i}" for i in range(tuned.classes)]
    else:
        titles = list(names)
    label_titles = ["predicted"]
    if tuned.multilabel:  # a column for each label says whether it is there
        label_titles = titles
    rows = 0
    changed = 0
    # Each file appears when all of it is written, at the end of the block.
    with ExitStack() as files:
        to_scores = None
        if out is not None:
            key = "probabilities" if proba else "scores"
            to_scores = files.enter_context(write_parts(out, key=key, titles=titles, new=new))
        to_labels = None
        if labels_out is not None:
            to_labels = files.enter_context(
                write_parts(labels_out, key="labels", titles=label_titles, new=new)
            )
        for part, adjusted in adjusted_parts(tuned, read):
            predicted = predictions(tuned, adjusted)
            before = predictions(tuned, part.scores, plain=True)
            # Of several labels, a row counts as changed if any of its labels is.
            rows += len(adjusted)
            changed += int((predicted != before).reshape(len(adjusted), -1).any(axis=1).sum())
            if to_scores is not None:
                values = adjusted
                if proba:
                    values = probabilities(tuned, adjusted)
                to_scores.write(values, part.others)
            if to_labels is not None:
                if names is not None and not tuned.multilabel:
                    predicted = np.array(names)[predicted]
                to_labels.write(predicted, part.others)
    return Counted(rows, changed)


def adjusted_parts(tuned: Tuned, read: ScoreParts) -> Iterator[tuple[Part, np.ndarray]]:
    """Yield each part of the scores, and what becomes of it, [n, K].

    Raises:
        LevelheadError: numbers that are not finite, with the row of the file; or what looks like
            probabilities where it was tuned on logits, which is asked of the first rows alone.
    """
    from ..support.arrays import to_numpy, widen
    from ..support.errors import in_file
    from ..support.logits import check_logits, lower_masked

    for part in read.parts:
        with in_file(read.source):
            if part.scores.dtype.kind == "f":
                lower_masked(widen(part.scores), part.first)  # names the row that is not finite
            if part.first == 0 and tuned.kind != "probabilities" and not tuned.multilabel:
                check_logits(part.scores[:1000])  # refuses what looks like probabilities
            adjusted = to_numpy(tuned.apply(part.scores))
        yield part, adjusted


def predictions(tuned: Tuned, scores: np.ndarray, *, plain: bool = False) -> np.ndarray:
    """Return the predicted class of each row, [n]; or of several labels, whether each is there, [n, K].

    Plain scores, which nothing was done to, may be probabilities.
    """
    if not tuned.multilabel:
        return scores.argmax(axis=1)
    threshold = 0.0
    if plain and tuned.kind == "probabilities":
        threshold = 0.5
    return (scores > threshold).astype("int8")


def probabilities(tuned: Tuned, scores: np.ndarray) -> np.ndarray:
    """Return calibrated probabilities, ``softmax(score / temperature)``.

    Args:
        tuned: has the temperature.
        scores: [n, K], adjusted.

    Returns:
        [n, K] in the precision of the scores; computed in float64, so that rows add up to 1.
    """
    import numpy as np

    from ..support.logits import log_softmax

    assert tuned.temperature is not None  # `check_calibrated` has seen to it
    shares = np.exp(log_softmax(scores.astype(np.float64) / tuned.temperature))
    return shares.astype(scores.dtype)
