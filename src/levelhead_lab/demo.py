"""The demo: level two real networks, train two small ones, and write a page.

`run_demo` does it and returns numbers, `demo_text` tells them. Two parts stand side by side:

- `level_shipped`: two networks of the reproduction, trained on long-tailed CIFAR-10, come with the
  package as snapshots: features of test images, without the images or the body. Some of these are
  held out to choose on, as imbalanced as the training was; the others measure. The page is of this.
- `train_on_digits`: two small networks are trained here, if torch and scikit-learn are installed, to
  show that the numbers are not ones that somebody typed.

Both make rows with `error_rows`, the same for either.
"""

import shlex
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np

from levelhead.core.measure import Measures
from levelhead.core.rules import RULES, Offsets, Rescale
from levelhead.report import write
from levelhead.support.extras import install_command

from .lab.data import hold_out, imbalance
from .lab.load import digits
from .lab.progress import EpochProgress
from .lab.recipe import find_recipe
from .lab.snapshot import Snapshot
from .methods import METHODS
from .paper.record import SHIPPED_COLUMN, shipped_snapshots
from .paper.tables import tables
from .runs.evaluate import evaluate
from .runs.run_folder import EpochRecord
from .runs.spec import check_seed
from .runs.subject import subject_of

if TYPE_CHECKING:
    from .lab.train import State

RATIO = 50  # of the digits
DIGITS_HELD_OUT = 0.2  # share of the digits
SHARE = 0.1  # images held out of CIFAR-10's test images, over training images
SHOWN = (Offsets.name, Rescale.name)  # the rules of the tables


class Row(TypedDict):
    """A network as trained, or adjusted by one rule. Errors and recalls are shares from 0 to 1."""

    key: str  # of the method in Table 1: `baseline`, `wvn+rs`
    method: str  # its title: `Baseline`, `WVN+RS`
    rule: str | None  # None as trained
    strength: float | None  # of the rule, if it has one
    balanced_error: float  # every class weighs the same
    error_as_in_training: float  # every class weighs as much as it had training samples
    worst_class: str
    worst_recall: float
    published: NotRequired[float | None]  # the error in the paper, in percent; None if it has none


class ShippedResult(TypedDict):
    """What was done with the networks that come with the package."""

    data: str
    counts: list[int]  # training images per class
    names: list[str]  # of the classes
    held_out: int  # images
    test: int  # images
    seconds: float
    summary: str  # of the first network's choice, as `tuned.summary()` prints it
    rows: list[Row]


class DigitsResult(TypedDict):
    """What was done with the networks that were trained here."""

    data: str
    ratio: float  # largest over smallest class
    counts: list[int]  # training images per class
    held_out: int  # images
    test: int  # images
    seed: int
    seconds: float
    rows: list[Row]


class DemoResult(TypedDict):
    """What `levelhead demo --json` prints."""

    cifar10: ShippedResult
    digits: DigitsResult | None  # None if nothing could be trained
    page: str  # where it was written


def run_demo(
    page: str | Path, *, seed: int = 0, progress: EpochProgress | None = None
) -> DemoResult:
    """Level the networks that come with the package, and write a page; train two on digits, if possible.

    Args:
        page: where to write it.
        seed: of the initial weights and batches of the trainings.
        progress: called with the record of each of their epochs.

    Raises:
        LevelheadError: if torch could not take the seed; no page is written then.
    """
    check_seed(seed)
    real = level_shipped(page)
    trained = None
    if not missing_to_train():
        trained = train_on_digits(seed, progress)
    return {"cifar10": real, "digits": trained, "page": str(page)}


def missing_to_train() -> list[str]:
    """Return the extras that training on digits needs and that are not installed.

    The names of the extras are those of the modules, and digits come with scikit-learn. Nothing is
    imported to find out.
    """
    return [extra for extra in ("torch", "sklearn") if find_spec(extra) is None]


def hold_out_like_training(snapshot: Snapshot, share: float = SHARE) -> Snapshot:
    """Return a snapshot of which some test images are held out, as imbalanced as the training images.

    Of each class, these are its first ones, as many as `share` of its count. Of the others, the last
    ones stay in the split `test`, equally many of each class.

    The networks of the paper were trained on all training images, so nothing was held out. Held-out
    samples usually come from the training set and are as imbalanced as it: this is what makes a
    choice on few samples of a rare class hard, and the demo should not hide it.

    Args:
        snapshot: with a split `test`.
        share: held-out images of a class, over its training images; at least one of each class.

    >>> from levelhead.core.head import Head
    >>> labels = np.array([0] * 5 + [1] * 5)
    >>> whole = Snapshot(Head(np.eye(2)), [30, 10], {"test": np.eye(2)[labels]}, {"test": labels})
    >>> parted = hold_out_like_training(whole)
    >>> parted.labels["held-out"], parted.labels["test"]
    (array([0, 0, 0, 1]), array([0, 0, 1, 1]))
    """
    features = snapshot.features["test"]
    labels = snapshot.labels["test"]
    of_class = [np.flatnonzero(labels == k) for k in range(snapshot.head.classes)]
    sizes = [max(1, round(share * count)) for count in snapshot.counts]
    # The most that every class has left: the test stays balanced, as CIFAR-10's is.
    left = min(len(rows) - size for rows, size in zip(of_class, sizes, strict=True))
    held = np.concatenate([rows[:size] for rows, size in zip(of_class, sizes, strict=True)])
    test = np.concatenate([rows[-left:] for rows in of_class])
    return Snapshot(
        snapshot.head,
        snapshot.counts,
        {"held-out": features[held], "test": features[test]},
        {"held-out": labels[held], "test": labels[test]},
        snapshot.meta,
    )


def level_shipped(page: str | Path) -> ShippedResult:
    """Level both networks that come with the package, and write a page about the first.

    Args:
        page: where to write it; a file that is there is replaced.

    Returns:
        Errors of both networks as trained and by each rule of `SHOWN`, beside those of the paper.
    """
    start = time.monotonic()
    # The errors that the paper states for networks of the same kind, to stand beside ours.
    column = tables()["table1"]["columns"].index(SHIPPED_COLUMN)
    published = {row["method"]: row["published"][column] for row in tables()["table1"]["rows"]}
    networks = {
        method: hold_out_like_training(network) for method, network in shipped_snapshots().items()
    }
    first = networks["baseline"]
    # What a user would do: the default rule, on the plain network. The page shows this choice.
    tuned = evaluate(first, rule=Offsets.name).tuned
    rows = []
    for method, network in networks.items():
        for row in error_rows(method, network):
            row["published"] = published.get(row["key"])
            rows.append(row)
    subject = subject_of(
        first,
        tuned,
        title="ResNet-32 on long-tailed CIFAR-10",
        facts={"made by": "levelhead demo"},
    )
    write(page, [subject], command=shlex.join(["levelhead", "demo", "--report", str(page)]))
    return {
        "data": "cifar10",
        "counts": first.counts.tolist(),
        "names": list(first.head.names or ()),
        "held_out": len(first.labels["held-out"]),
        "test": len(first.labels["test"]),
        "seconds": round(time.monotonic() - start, 1),
        "summary": tuned.summary(),
        "rows": rows,
    }


def train_on_digits(seed: int = 0, progress: EpochProgress | None = None) -> DigitsResult:
    """Train a network plainly and one by WVN, on digits with a long tail, and level both.

    Args:
        seed: of initial weights and batches.
        progress: called with the record of each epoch, under the method's title.

    Returns:
        Errors of both networks as trained and by each rule of `SHOWN`; the paper has none of digits.
    """
    # The first part of the demo runs without torch.
    import torch

    from .lab.nets import build
    from .lab.preprocess import Preprocess, snapshot
    from .lab.train import fit

    torch.set_num_threads(1)  # for a network this small a second thread costs more than it gains
    start = time.monotonic()
    schedule = find_recipe("digits")
    rows = []
    # The same data, recipe and seed for both: they differ in the method alone.
    data = hold_out(imbalance(digits(), "long-tail", ratio=RATIO), DIGITS_HELD_OUT)
    for name in ("baseline", "wvn"):
        method = METHODS[name]
        net = build("digits", data.classes, head=method.head, shape=data.shape, seed=seed)

        def on_epoch(_: "State", record: EpochRecord, title: str = method.title) -> None:
            """Tell a progress bar of an epoch, under the title of the method that is trained."""
            if progress is not None:
                progress({**record, "title": title, "of": schedule.epochs})

        fit(net, data, schedule, method, seed=seed, on_epoch=on_epoch)
        rows += error_rows(name, snapshot(net, data, Preprocess(schedule, data)))
    return {
        "data": "digits",
        "ratio": RATIO,
        "counts": data.counts.tolist(),
        "held_out": len(data.splits["held-out"]),
        "test": len(data.test),
        "seed": seed,
        "seconds": round(time.monotonic() - start, 1),
        "rows": rows,
    }


def error_rows(key: str, snapshot: Snapshot) -> list[Row]:
    """Return the test errors of a network as trained, and adjusted by each rule of `SHOWN`.

    Args:
        key: the method that trained it. Adjusted by RS, a row's key is that of a row of Table 1:
            `wvn+rs`.
        snapshot: with the splits `held-out`, which chooses, and `test`, which measures.

    Returns:
        One row more than there are rules; the first is as trained.
    """
    # As trained is the same in each; then one row for each rule.
    evaluations = [evaluate(snapshot, rule=rule) for rule in SHOWN]
    title = METHODS[key].title
    rows = [_row(key, title, snapshot, evaluations[0].before)]
    for evaluation in evaluations:
        tuned = evaluation.tuned
        ending = f"+{RULES[tuned.rule].title}"
        row = _row(key + ending.lower(), title + ending, snapshot, evaluation.after)
        row["rule"] = tuned.rule
        row["strength"] = tuned.strength
        rows.append(row)
    return rows


def _row(key: str, method: str, snapshot: Snapshot, measures: Measures) -> Row:
    """Return a row of the table: both errors, classes alike and as frequent as in training, and the worst class.

    The test set is balanced. What the error would be in a set like that of the training follows from
    the recalls: 1 - sum_k (n_k / n) recall_k.

    Args:
        key, method: of the row, as `--json` and as the table names it.
        snapshot: for the counts and the names of its classes.
        measures: of the test samples. Rule and strength are None here: `error_rows` fills them in.
    """
    names = snapshot.head.names or [str(i) for i in range(snapshot.head.classes)]
    prior = snapshot.counts / snapshot.counts.sum()
    return {
        "key": key,
        "method": method,
        "rule": None,
        "strength": None,
        "balanced_error": measures.balanced_error,
        "error_as_in_training": float(1 - prior @ measures.recall),
        "worst_class": names[measures.worst_class],
        "worst_recall": measures.worst_recall,
    }


def demo_text(result: DemoResult) -> str:
    """Return what the demo tells, for a terminal of 100 columns."""
    real = result["cifar10"]
    counts = real["counts"]
    names = real["names"]
    lines = [
        "A ResNet-32, trained as in the paper on CIFAR-10 with a long tail: from "
        f"{counts[0]:,} images of",
        f"{names[0]}s down to {counts[-1]} of {names[-1]}s. {real['held_out']:,} images that it has "
        "not seen, as imbalanced as",
        "those, choose a number for each class, the biases that its head is given:",
        "",
        "    tuned = levelhead.tune(logits, labels, counts)",
        "    print(tuned.summary())",
        "",
        *(f"    {line}".rstrip() for line in real["summary"].splitlines()),
        "",
        "Rare classes are found more often: that is recall. The price is beside it: precision, and",
        'accuracy where most samples are of frequent classes. metric="macro_f1" weighs both.',
        "",
        f"On {real['test']:,} other test images, equally many of each class. For comparison, two ideas of",
        "the paper: RS multiplies the weight vectors of rare classes; WVN keeps them all at length 1",
        "during training.",
        "",
        *_table(real["rows"]),
        "",
    ]
    digits_result = result["digits"]
    if digits_result is None:
        lines += _no_training()
    else:
        lines += _training(digits_result)
    return "\n".join([*lines, "", f"Look at it: {result['page']}"])


def _training(result: DigitsResult) -> list[str]:
    """Return the lines about the networks that were trained here."""
    counts = result["counts"]
    return [
        f"Digits with a long tail, {counts[0]} to {counts[-1]} training samples per class, trained here "
        f"with seed {result['seed']} in",
        f"{result['seconds']} s; leveled by {result['held_out']} held-out samples, measured on "
        f"{result['test']} test samples, equally many per",
        "class. (lr and epochs were chosen on these too: read differences, not levels.)",
        "",
        *_table(result["rows"]),
    ]


def _no_training() -> list[str]:
    """Return the lines that stand in place of a training: what to install for it."""
    # One command for all that is missing.
    extras = [install_command(extra).removeprefix("pip install ") for extra in missing_to_train()]
    return ["To train and level two small networks as well:", f"  pip install {' '.join(extras)}"]


def _table(rows: Sequence[Row]) -> list[str]:
    """Return both errors and the worst class of each row, and what the paper says where it does.

    Returns:
        Lines of a terminal: two of titles, then one for each row. The column of the paper is there if
        any row has a published error.
    """
    published = any(row.get("published") for row in rows)
    lines = [
        f"{'':22}{'error, classes':>16}{'error, classes':>16}{'worst class,':>20}",
        f"{'':22}{'alike':>16}{'as in training':>16}{'recall':>20}",
    ]
    if published:
        lines[1] += f"{'in the paper':>15}"
    for row in rows:
        method = row["method"]
        if row["strength"] is not None:
            method += f" at {row['strength']:.2f}"
        worst = f"{row['worst_class']}: {100 * row['worst_recall']:.0f} %"
        line = (
            f"{method:22}{100 * row['balanced_error']:>14.1f} %"
            f"{100 * row['error_as_in_training']:>14.1f} %{worst:>20}"
        )
        error = row.get("published")
        if error is not None:
            line += f"{error:>13.1f} %"
        lines.append(line)
    return lines
