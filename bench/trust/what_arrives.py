"""What was tuned is what arrives: columns in any order, predictors, and models in memory without an example.

Each case is small and random, and is compared with a few lines of numpy that share no code with the package:

- columns: logits in a table whose columns are titled with numbers and shuffled, with labels and counts as numbers. The
  offsets must be those of the same logits as a plain array, class by class.
- predictors: a function that gives logits or probabilities, with any rule. Whole arrays and single rows must be
  predicted as ``argmax(scale * score + offset)``.
- models: torch modules whose head is followed by something (a temperature, a flip, a softmax, ...), or is not run at
  all. `adjust_` without an example must refuse, or say that it did not check, or the model must predict what the
  change of its logits asks for.

Seen to fail: with `support.columns.number_order` finding no numbers; with `scale` left out of `Tuned.apply`; with what
follows any head taken for harmless in `heads.tail`.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from levelhead.support.types import Kind

from .board import Budget, Found, Row, lacking

if TYPE_CHECKING:
    from torch import Tensor

TARGET = 3000  # cases of each kind
KINDS = ("columns", "predictors", "models")
RULES = {  # what each is tuned on
    "logits": ("offsets", "scales", "vector", "rescale", "shift", "tau"),
    "probabilities": ("offsets", "shift"),
}
TIE = 1e-4  # two scores that differ by less may be ordered either way


class Samples(NamedTuple):
    """A classifier's scores on held-out samples, with what it was trained on."""

    logits: np.ndarray  # [N, K]
    labels: np.ndarray  # [N]
    counts: np.ndarray  # [K]


def check(budget: Budget) -> Found:
    """Run cases of each kind in turn, until there are enough."""
    findings = Found({"cases": 0, **dict.fromkeys(KINDS, 0), "refused models": 0, "not checked": 0})
    wanted = budget.own(budget.size(6, TARGET))
    with TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few samples, and heads of a random sign
        for number in range(wanted):
            if budget.spent:
                break
            seed = 1_000_000 * budget.round + budget.index + budget.parts * number
            for kind, run in (
                ("columns", _columns),
                ("predictors", _predictors),
                ("models", _models),
            ):
                rng = np.random.default_rng([seed, KINDS.index(kind)])
                wrong = run(rng, Path(place), findings.done)
                findings.done[kind] += 1
                findings.done["cases"] += 1
                if wrong:
                    findings.failures.append(f"{kind}, case {seed}: {wrong}")
            budget.note(findings)
    findings.lacks = lacks(findings.done)
    return findings


def lacks(done: dict[str, Any]) -> str:
    """Return how many cases are missing to the target."""
    return lacking(done["cases"], TARGET * len(KINDS), "cases")


def _samples(rng: np.random.Generator, classes: int) -> Samples:
    """Return scores of a classifier that prefers the frequent classes, every class among the labels."""
    counts = np.maximum(5, 2000 * rng.uniform(0.4, 0.9) ** np.arange(classes)).astype(int)
    counts = rng.permutation(counts)
    more = rng.integers(0, classes, size=int(rng.integers(20, 120)))
    labels = np.concatenate([np.arange(classes), more])
    noise = rng.normal(size=(len(labels), classes))
    logits = 2 * np.eye(classes)[labels] + noise + np.log(counts)
    return Samples(np.round(logits, 6), labels, counts)


def _columns(rng: np.random.Generator, place: Path, done: dict[str, int]) -> str | None:
    """Return what is wrong with a choice on a table with shuffled columns; None if nothing is."""
    import pandas as pd

    import levelhead as lh
    from levelhead.io import samples_file

    classes = int(rng.integers(11, 25))
    samples = _samples(rng, classes)
    form = str(rng.choice(["logit_{}", "class_{}", "{}", "p{}", "score {}"]))
    titles = [form.format(k) for k in range(classes)]
    order = rng.permutation(titles) if rng.random() < 0.5 else np.array(sorted(titles))
    frame = pd.DataFrame(samples.logits, columns=titles)[list(order)]
    counts = samples.counts if rng.random() < 0.5 else None
    plain = lh.tune(samples.logits, samples.labels, counts)
    medium = str(rng.choice(["frame", ".csv", ".parquet"]))
    if medium == "frame":
        tuned = lh.tune(frame, samples.labels, counts)
    else:
        frame["label"] = samples.labels
        path = place / f"scores{medium}"
        if medium == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path)
        read = samples_file.read(path)
        tuned = lh.tune(read.logits, read.labels, counts)
    if not np.allclose(tuned.adjustment.offset, plain.adjustment.offset, atol=1e-4):
        return f"{medium}, titles {form!r}: offsets of other classes"
    return None


def _predictors(rng: np.random.Generator, place: Path, done: dict[str, int]) -> str | None:
    """Return what is wrong with the predictions of a function with a choice; None if nothing is."""
    import levelhead as lh
    from levelhead.hosts.predictor import AdjustedPredictor

    samples = _samples(rng, int(rng.integers(2, 9)))
    kind: Kind = "logits"
    if rng.random() < 0.5:
        kind = "probabilities"
    name = str(rng.choice(RULES[kind]))
    rule = name
    if name == "tau":
        rule = lh.rules.Tau(norms=rng.uniform(0.5, 2, size=len(samples.counts)))
    scores = samples.logits
    if kind == "probabilities":
        scores = np.exp(scores - scores.max(1, keepdims=True))
        scores = scores / scores.sum(1, keepdims=True)
    tuned = lh.tune(scores, samples.labels, samples.counts, rule=rule, kind=kind)
    predictor = AdjustedPredictor(lambda rows: rows, tuned, kind=kind)
    change = tuned.adjustment
    scale = np.ones(scores.shape[1]) if change.scale is None else np.asarray(change.scale)
    offset = np.zeros(scores.shape[1]) if change.offset is None else np.asarray(change.offset)
    values = np.log(scores) if kind == "probabilities" else scores
    wanted = scale * values + offset
    sure = _sure(wanted)
    predicted = np.asarray(predictor.predict(scores))
    if (predicted != wanted.argmax(1))[sure].any():
        return f"{name} on {kind}: other classes than scale * score + offset has"
    row = int(rng.integers(len(scores)))
    # Two numbers alone could also be two samples of a function that scores the second class.
    row_scores = scores[row] if scores.shape[1] > 2 else scores[row : row + 1]
    single = np.asarray(predictor.predict(row_scores)).ravel()
    if sure[row] and single.tolist() != [int(wanted[row].argmax())]:
        return f"{name} on {kind}: a single row is predicted as {single.tolist()}"
    return None


def _models(rng: np.random.Generator, place: Path, done: dict[str, int]) -> str | None:
    """Return what is wrong with a model that was adjusted without an example; None if nothing is."""
    import torch

    import levelhead as lh
    from levelhead.support.errors import LevelheadError

    classes = int(rng.integers(2, 7))
    counts = rng.permutation(np.maximum(3, 1000 * 0.4 ** np.arange(classes)).astype(int))
    torch.manual_seed(int(rng.integers(2**31)))
    names = list(_tails())
    tails = [str(name) for name in rng.choice(names, size=int(rng.integers(0, 3)))]
    ending = str(rng.choice(["nothing", "softmax", "log_softmax"]))
    head = str(rng.choice(["fc", "classifier", "head", "layer7"]))
    model = _net(classes, head, tails, ending, used=rng.random() > 0.1)
    x = torch.randn(64, 5)
    with torch.no_grad():
        before = model.logits(x).double().numpy()
    if rng.random() < 0.5:
        rule = lh.rules.Shift(1.0)
        wanted = before + np.log(counts.max() / counts)
    else:
        rule = lh.rules.Rescale(0.4)
        wanted = before * (counts.max() / counts) ** 0.4
    try:
        adjusted = lh.adjust_(model, rule, counts.tolist())
    except LevelheadError:
        done["refused models"] += 1
        return None
    if adjusted.checked is None:
        done["not checked"] += 1
        return None
    with torch.no_grad():
        predicted = model(x).double().numpy().argmax(1)
    if (predicted != wanted.argmax(1))[_sure(wanted)].any():
        how = " and ".join([*tails, ending])
        return f"{rule} before {how}: checked by {adjusted.checked}, and other classes come out"
    return None


def _sure(scores: np.ndarray) -> np.ndarray:
    """Return which rows have a largest score that rounding cannot overtake."""
    ordered = np.sort(scores, axis=1)
    return ordered[:, -1] - ordered[:, -2] > TIE * (1 + np.abs(ordered[:, -1]))


def _tails() -> "dict[str, Callable[[Any, Tensor], Tensor]]":
    """Return what may be done to a head's outputs before they are logits."""
    import torch

    return {
        "a temperature": lambda model, z: z / 2.5,
        "a learned temperature": lambda model, z: z * model.sharpness,
        "a scale per class": lambda model, z: z * model.gains,
        "a bias per class": lambda model, z: z + model.gains,
        "a minus": lambda model, z: -z,
        "a flip": lambda model, z: z.flip(1),
        "a ReLU": lambda model, z: z.relu(),
        "a clamp": lambda model, z: torch.nn.functional.hardtanh(z, -0.3, 0.3),
        "a square": lambda model, z: z * z.abs(),
        "dropout": lambda model, z: torch.nn.functional.dropout(z, 0.5, model.training),
        "a copy": lambda model, z: z.clone().contiguous(),
    }


def _net(classes: int, head: str, tails: list[str], ending: str, *, used: bool) -> Any:
    """Return a small network; one that does not use its head scores by prototypes."""
    import torch
    from torch import nn

    functions = [_tails()[name] for name in tails]
    endings = {
        "nothing": lambda z: z,
        "softmax": lambda z: z.softmax(-1),
        "log_softmax": lambda z: z.log_softmax(-1),
    }

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(5, 8)
            setattr(self, head, nn.Linear(8, classes))
            self.sharpness = nn.Parameter(torch.rand(()) + 0.5)
            self.gains = nn.Parameter(torch.rand(classes) + 0.5)
            if not used:
                self.prototypes = nn.Parameter(torch.randn(classes, 8))

        def logits(self, x):
            features = self.body(x).relu()
            if used:
                z = getattr(self, head)(features)
            else:
                z = features @ self.prototypes.T
            for function in functions:
                z = function(self, z)
            return z

        def forward(self, x):
            return endings[ending](self.logits(x))

    return Net().eval()


ROW = Row(
    "what was tuned is what arrives",
    "tables with shuffled columns, predictors by every rule, models in memory without an example, against plain numpy",
    f"{TARGET:,} cases of each, 0 wrong",
    check,
    lacks,
)
