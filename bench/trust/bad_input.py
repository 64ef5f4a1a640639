"""Bad input is explained: a table of mistakes on the command line and in calls, each answered in one
line.

The tables are products: every option that takes a file with every kind of bad file, every option
that takes a word with words that it should not get, every function with arrays that it should not
get. So a new option is one line, and meets all of them. A command must end with 2, say one line on
stderr that has no word of Python in it, and leave the folder as it was; a call must raise a
documented error.

Seen to fail: with `raise KeyError(path)` in `io.arrays.read` for a suffix that is not known, its
cases are listed.
"""

import contextlib
import io
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from .board import Budget, Found, Row, lacking
from .commands import COUNTS, TUNE, digests, make_inputs, preload

TARGET = 250
# What a message says when an error of numpy or Python got through to people.
PYTHON = re.compile(
    r"<U\d|codec|allow_pickle|\barray\(|np\.\w|\bNoneType\b|Errno|Traceback|object at 0x"
)
RESCALE = ["adjust", "m.safetensors", "--rule", "rescale", "--counts", "c.json"]
RESCALED = [*RESCALE, "--strength", "1", "-o", "o.safetensors"]
ADJUST = ["adjust", "m.safetensors", "--tuned", "tuned.json", "-o", "o.safetensors"]
TRAIN = ["train", "--data", "digits", "--epochs", "1"]
TUNING = ["tune", *TUNE]

# Options that take a file, and files that do not hold what is asked for.
FILE_OPTIONS = {
    "logits": ["tune", "--labels", "Y.npy", "--counts", "c.json", "--logits"],
    "labels": ["tune", "--logits", "L.npy", "--counts", "c.json", "--labels"],
    "counts": ["tune", "--logits", "L.npy", "--labels", "Y.npy", "--counts"],
    "counts of adjust": [*RESCALE[:4], "--strength", "1", "-o", "o.safetensors", "--counts"],
    "norms": [*TUNING, "--rule", "tau", "--norms"],
    "unlabelled": [*TUNING, "--unlabelled"],
    "cost": [*TUNING, "--cost"],
    "tuned": ["adjust", "m.safetensors", "-o", "o.safetensors", "--tuned"],
    "report": ["report", "-o", "p.html", "--counts", "c.json"],
    "compare": ["compare", "--labels", "Y.npy", "--counts", "c.json", "--logits"],
    "inspect": ["inspect"],
    "undo": ["undo", "-o", "b.safetensors"],
    "grid": ["sweep"],
}
BAD_FILES = {
    "missing": "x.npy",
    "a folder": "folder",
    "empty": "empty.json",
    "garbage": "garbage.npy",
    "text": "text.txt",
    "another suffix": "x.exe",
    "a name with a null": "a\0b",
    "too long a name": "x" * 300 + ".npy",
    "no name": "",
    "latin-1": "latin.csv",
    "cut short": "cut.npy",
    "a pipe": "pipe.npy",
}
# By option: the words of a command up to its value, and the values, each of which must be refused.
BAD_WORDS = {
    "strength": (
        [*RESCALE, "-o", "o.safetensors", "--strength"],
        ["nan", "inf", "x", "", "1e400", "1000"],
    ),
    "rule": ([*RESCALED, "--rule"], ["magic", "", "Rescale", "vector"]),
    "bias": ([*RESCALED, "--bias"], ["drop", ""]),
    "head": ([*RESCALED, "--head"], ["x", "fc,fc", "", "body,fc"]),
    "names": ([*RESCALED, "--names"], ["a,b", "a,a,b,c", "", "x.txt"]),
    "out": (
        [*RESCALED[:-1]],
        ["nowhere/o.safetensors", "folder", "m.safetensors", "o.onnx", "", "/dev/null"],
    ),
    "out of tune": ([*TUNING, "-o"], ["nowhere/t.json", "L.npy", "folder"]),
    "plot": ([*TUNING, "--plot"], ["p.exe", "nowhere/p.png"]),
    "page": ([*TUNING, "--report"], ["p.txt", "nowhere/p.html"]),
    "metric": ([*TUNING, "--metric"], ["f1", "cost", ""]),
    "kind": ([*TUNING, "--kind"], ["probs"]),
    "rule of tune": ([*TUNING, "--rule"], ["magic", "tau"]),
    "task": ([*TUNING, "--task"], ["binary", "multilabel"]),
    "seed": ([*TUNING, "--seed"], ["-1", "x"]),
    "target": (
        [*TUNING, "--target"],
        ["1,1", "nan,1,1,1", "-1,1,1,1", "0,0,0,0", "a,b,c,d", "x.json"],
    ),
    "floor": ([*TUNING, "--floor"], ["2", "-1", "x", "9=0.5", "cat=0.5"]),
    "an option that is gone": ([*TUNING], ["--bootstrap", "--criterion", "--max"]),
    "metric of compare": (["compare", *TUNE, "--metric"], ["f1", ""]),
    "data": (["train", "--epochs", "1", "--data"], ["x", "folder", "cifar10", "L.npy", ""]),
    "method": ([*TRAIN, "--method"], ["magic", "x.py:METHOD", "text.txt:M", ""]),
    "ratio": ([*TRAIN, "--ratio"], ["0.5", "nan", "x", "-3", "1e9"]),
    "hold-out": ([*TRAIN, "--hold-out"], ["1", "-0.1", "nan", "2"]),
    "epochs": (["train", "--data", "digits", "--epochs"], ["0", "-1", "x"]),
    "net": ([*TRAIN, "--net"], ["x", "timm:nothing", ""]),
    "recipe": ([*TRAIN, "--recipe"], ["x", "x.toml", "latin.csv"]),
    "largest": ([*TRAIN, "--largest"], ["0", "10"]),
    "subset": ([*TRAIN, "--ratio", "10", "--subset"], ["last", "-1"]),
    "threads": ([*TRAIN, "--threads"], ["0", "-2", "x"]),
    "engine": ([*TRAIN, "--engine"], ["slow"]),
    "dtype": ([*TRAIN, "--dtype"], ["bfloat16", "int8"]),
    "table": (["reproduce"], ["table9", ""]),
    "root": (["reproduce", "table1", "--root"], ["nowhere", "c.json"]),
    "slots": (["reproduce", "table1", "--root", ".", "--slots"], ["0"]),
    "methods": (["methods"], ["magic", "", "x.py:M"]),
    "command": (
        [],
        [
            "nope",
            "--nope",
            "tune",
            "rescale",
            "apply",
            "inspect",
            "report",
            "train",
            "adjust",
            "undo",
            "compare",
        ],
    ),
    "evaluate": (["evaluate"], ["folder", "nowhere", "c.json"]),
    "choice": (
        [*ADJUST[:2], "-o", "o.safetensors", "--tuned"],
        ["c.json", "three.json", "magic.json", "nan.json"],
    ),
}


def command_cases() -> dict[str, list[str]]:
    """Return {title: words} of all mistakes on the command line."""
    cases = {}
    for (option, words), (kind, name) in product(FILE_OPTIONS.items(), BAD_FILES.items()):
        if (option, kind) not in ACCEPTED:
            cases[f"{option}: {kind}"] = [*words, name]
    for option, (words, values) in BAD_WORDS.items():
        cases |= {f"{option}: {value!r}": [*words, value] for value in values}
    return cases


# (option, kind of file) that are no mistakes after all; there are none at present.
ACCEPTED: set[tuple[str, str]] = set()


def call_cases() -> dict[str, Callable[[], object]]:
    """Return {title: call} of mistakes in calls of the library."""
    import torch

    import levelhead as lh

    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=60)
    good = 2 + rng.normal(size=(60, 4)) + 2 * np.eye(4)[labels]
    head, layer = lh.Head(rng.normal(size=(4, 8))), torch.nn.Linear(8, 4)
    half = lh.rules.Rescale(0.5)
    hole = np.where(np.arange(60)[:, None] == 7, np.nan, good)
    bad_logits = {
        "NaN": hole, "one class": good[:, :1], "no samples": good[:0], "3-D": good[None], "text": good.astype(str),
        "ragged": [[1.0], [2.0, 3.0]], "None": None, "complex": good + 1j, "probabilities": _softmax(good), "whole": 5,
    }  # fmt: skip
    bad_labels = {
        "short": labels[:5],
        "large": labels + 4,
        "negative": labels - 1,
        "halves": labels + 0.5,
        "2-D": good,
    }
    bad_counts = {
        "short": [1, 2], "zero": [0, 1, 2, 3], "negative": [-1, 1, 2, 3], "NaN": [np.nan, 1, 2, 3], "text": "abc",
        "names": {"cat": 1, "dog": 2, "elk": 3, "fox": 4}, "2-D": [[1, 2, 3, 4]], "empty": [],
        "infinite": [np.inf, 1, 2, 3],
    }  # fmt: skip
    # Values are bound as defaults: a lambda in a loop would see the last one only.
    cases: dict[str, Callable[[], object]] = {}
    for title, value in bad_logits.items():
        cases[f"tune, logits {title}"] = lambda v=value: lh.tune(v, labels, COUNTS)
        cases[f"gamma_path, logits {title}"] = lambda v=value: lh.gamma_path(v, labels, COUNTS)
        cases[f"compare, logits {title}"] = lambda v=value: lh.compare(v, labels, COUNTS)
        cases[f"tune_unlabelled, logits {title}"] = lambda v=value: lh.tune_unlabelled(v)
    for title, value in bad_labels.items():
        cases[f"tune, labels {title}"] = lambda v=value: lh.tune(good, v, COUNTS)
        cases[f"gamma_path, labels {title}"] = lambda v=value: lh.gamma_path(good, v, COUNTS)
        cases[f"compare, labels {title}"] = lambda v=value: lh.compare(good, v, COUNTS)
    for title, value in bad_counts.items():
        cases[f"tune, counts {title}"] = lambda v=value: lh.tune(good, labels, v)
        cases[f"adjust, counts {title}"] = lambda v=value: lh.adjust(head, half, v)
        cases[f"rescale_, counts {title}"] = lambda v=value: lh.rescale_(layer, v, gamma=0.5)
        cases[f"gamma_path, counts {title}"] = lambda v=value: lh.gamma_path(good, labels, v)
        cases[f"tune_unlabelled, counts {title}"] = lambda v=value: lh.tune_unlabelled(
            good, counts=v
        )
    for value in (np.nan, np.inf, "x", None, [1, 2], 1e6):
        cases[f"adjust, strength {value!r}"] = lambda v=value: lh.adjust(
            head, lh.rules.Rescale(v), COUNTS
        )
        cases[f"rescale_, gamma {value!r}"] = lambda v=value: lh.rescale_(layer, COUNTS, gamma=v)
        cases[f"adjust, tau {value!r}"] = lambda v=value: lh.adjust(head, lh.rules.Tau(v), COUNTS)
    for name, value in {"rule": "magic", "metric": "f1", "target": [1, 2], "kind": "probs", "chosen_on": 5,
                        "level": 2.0, "names": ["a"]}.items():  # fmt: skip
        cases[f"tune, {name} {value!r}"] = lambda n=name, v=value: lh.tune(
            good, labels, COUNTS, **{n: v}
        )
    for value in (np.ones(4), np.ones((2, 3, 4)), "x", None, [[1, 2], [3, 4]]):
        cases[f"Head of {type(value).__name__} {np.shape(value)}"] = lambda v=value: lh.Head(v)
    for name, value in {"floors": 3, "cost": [[1]], "metric": "f1"}.items():
        cases[f"Goal, {name} {value!r}"] = lambda n=name, v=value: lh.tune(
            good, labels, COUNTS, metric=lh.Goal(**{n: v})
        )
    cases["adjust of no head"] = lambda: lh.adjust(np.ones((4, 8)), half, COUNTS)  # type: ignore[arg-type]
    cases["rescale_ without a head"] = lambda: lh.rescale_(torch.nn.ReLU(), COUNTS, gamma=0.5)
    cases["adjust_ by a missing file"] = lambda: lh.adjust_(layer, "x.json")
    cases["WVN of a layer without weights"] = lambda: lh.WVN(
        torch.optim.SGD(layer.parameters(), 0.1), torch.nn.ReLU()
    )
    return cases


def check(budget: Budget) -> Found:
    """Make every mistake; in the quick profile every third."""
    preload()
    findings = Found({"cases": 0, "on the command line": 0, "in calls": 0})
    with TemporaryDirectory() as place:
        folder = Path(place)
        _make_folder(folder)
        here = os.getcwd()
        os.chdir(folder)
        try:
            before = digests(folder)
            every = budget.size(3, 1)
            for title, words in list(command_cases().items())[::every]:
                findings.done["on the command line"] += 1
                if wrong := _command(words):
                    findings.failures.append(f"{title}: {wrong}")
                if (now := digests(folder)) != before:
                    findings.failures.append(f"{title}: files changed")
                    before = now
            for title, call in list(call_cases().items())[::every]:
                findings.done["in calls"] += 1
                if wrong := _call(call):
                    findings.failures.append(f"{title}: {wrong}")
        finally:
            os.chdir(here)
    findings.done["cases"] = findings.done["on the command line"] + findings.done["in calls"]
    findings.lacks = lacking(findings.done["cases"], TARGET, "cases")
    return findings


def _command(words: list[str]) -> str:
    """Return what is wrong with the answer to a mistake on the command line, or nothing."""
    from levelhead.cli import main

    out, err, argv, status = io.StringIO(), io.StringIO(), sys.argv, None
    sys.argv = ["levelhead", *words]
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(action="ignore"),
        ):
            main()
    except SystemExit as end:
        status = end.code
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    finally:
        sys.argv = argv
    text = err.getvalue()
    if status != 2:
        return f"status {status}: {text.strip()[:150]}"
    if out.getvalue() or text.count("\n") != 1 or not text.startswith("levelhead: "):
        return f"not one line: {out.getvalue()[:60]!r} {text[:150]!r}"
    return f"words of Python: {text[:200]}" if PYTHON.search(text) else ""


def _call(call: Callable[[], object]) -> str:
    """Return what is wrong with the answer to a mistake in a call, or nothing."""
    from levelhead import LevelheadError

    try:
        with warnings.catch_warnings(action="ignore"):
            call()
    except (LevelheadError, FileNotFoundError, FileExistsError) as error:
        text = str(error)
        if not text.strip() or "--" in text:
            return f"not for people: {text!r}"
        return (
            f"words of Python: {text[:200]}" if PYTHON.search(text.replace("NoneType", "")) else ""
        )
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    return "accepted"


def _make_folder(folder: Path) -> None:
    """Write sound inputs to a folder, and the bad files of BAD_FILES beside them."""
    make_inputs(folder)
    (folder / "folder").mkdir()
    (folder / "empty.json").touch()
    (folder / "garbage.npy").write_bytes(bytes(range(256)))
    (folder / "text.txt").write_text("hello world\n")
    (folder / "x.exe").write_bytes(b"MZ")
    (folder / "latin.csv").write_bytes(b"caf\xe9,1\n")
    (folder / "cut.npy").write_bytes((folder / "L.npy").read_bytes()[:-100])
    # Whoever opens it waits for a writer that never comes.
    os.mkfifo(folder / "pipe.npy")
    choice = json.loads((folder / "tuned.json").read_text())
    for name, entries in {
        "three": {"counts": [3, 2, 1], "classes": 3},
        "magic": {"rule": "magic"},
        "nan": {"offset": [float("nan")] * 4},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(choice | entries))


def _softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


ROW = Row(
    "bad input is explained",
    "a table over API and command line: every option that takes a file or a word, with what it should not get",
    f"{TARGET} cases, no traceback",
    check,
)
