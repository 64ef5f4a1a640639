"""Count how often the right head is found in the models of transformers and timm. No edit may be wrong.

    python -m bench.zoo.census [--only NAME ...] [--part 1/2] [--resume] [--out results/census.json]
    python -m bench.zoo.census --places     # the table of places.py alone: every kind of place, in a minute

Every *ForSequenceClassification and *ForImageClassification class of transformers is built from a small config, and
some models of every timm family (the smallest by name), with 7 classes and random weights, offline. The head is looked
for in three ways: with counts, with counts and an example input, and with the model alone (`find_head(model)`). An edit
is right if after `rescale_` every logit is the old one times the factor of its class. Other places (files, other
libraries, what is refused on purpose) are judged by the table that tests/hosts/test_places.py tests.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import platform
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

import levelhead as lh
from levelhead.support.atomic import write

from .place import judge as judge_place
from .places import PLACES
from .small_models import K, logits, timm_cases, transformers_cases

# Their roots are whole numbers: the factors are 1, 1.4, 1.75, 2.33..., 3.5, 7 and 14.
COUNTS = [4900, 2500, 1600, 900, 400, 100, 25]
GAMMA = 0.5
FACTORS = torch.tensor([(COUNTS[0] / n) ** GAMMA for n in COUNTS], dtype=torch.float64)
ROADS = ("counts", "example", "model")  # the ways in which a head is looked for
MOST_MEMORY = 5 << 30  # bytes that a model may take; one that needs more is not built
MOST_SECONDS = 300  # of a processor, for one model


def judge(model: nn.Module, example: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return what each way does to one model: `right`, `refused` or `wrong`, with the layers or the reason."""
    model.eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():  # a head that starts at zero shows nothing
            if p.is_floating_point() and not p.any():
                p.normal_(std=0.02)
    if not torch.isfinite(logits(model, example)).all():
        raise ValueError("gives NaN or infinite logits at random weights")
    by_road: dict[str, Any] = {road: edit(model, example, road) for road in ROADS[:2]}
    proved = {tuple(entry["layers"]) for entry in by_road.values() if entry["verdict"] == "right"}
    try:
        layers = tuple(lh.find_head(model))
        # The model alone must lead to the layers that the other ways proved; without such, they are tried.
        if layers in proved:
            verdict = "right"
        elif proved:
            verdict = "wrong"
        else:
            verdict = edit(model, example, list(layers))["verdict"]
        by_road["model"] = {"verdict": verdict, "layers": list(layers)}
    except ValueError as error:
        by_road["model"] = {"verdict": "refused", "reason": str(error)}
    return by_road


def edit(
    model: nn.Module, example: dict[str, torch.Tensor], road: str | list[str]
) -> dict[str, Any]:
    """Rescale in one way, see whether each logit was scaled by its factor, and restore the model.

    Args:
        model, example: the model, and an input that it takes.
        road: one of `ROADS`, or the layers to scale.
    """
    before = logits(model, example)
    options: dict[str, Any] = {}
    if road == "example":
        options["example"] = example
    elif not isinstance(road, str):
        options["layer"] = road
    try:
        adjusted = lh.rescale_(model, COUNTS, gamma=GAMMA, **options)
    except ValueError as error:
        return {"verdict": "refused", "reason": str(error)}
    after = logits(model, example)
    expected = before * FACTORS
    adjusted.restore()
    # How far the logits are from the rule, and how much it changed at all.
    off = float((after - expected).abs().max() / expected.abs().max())
    same = float((after - before).abs().max() / expected.abs().max())
    return {
        "verdict": "right" if off < 1e-4 < same else "wrong",
        "layers": list(adjusted.layers),
        "off": off,
    }


class TooSlow(BaseException):
    """Not an Exception, so that nothing under test catches it."""


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Stop what takes more seconds of processor time, however busy the machine is."""

    def stop(*_: object) -> None:
        raise TooSlow(f"took more than {seconds} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", default=[""], help="models whose names contain one of these"
    )
    parser.add_argument(
        "--part",
        default="1/1",
        help="i/n: every n-th model, from the i-th, for n processes at once",
    )
    parser.add_argument(
        "--resume", action="store_true", help="skip models that the result has already"
    )
    parser.add_argument(
        "--out", default="results/census.json", help="models not judged now keep their rows there"
    )
    parser.add_argument("--places", action="store_true", help="judge the table of places only")
    args = parser.parse_args()
    if args.places:
        sys.exit(take_places(Path(args.out)))
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    part, parts = map(int, args.part.split("/"))
    cases = [
        case
        for case in [*transformers_cases(), *timm_cases()]
        if any(word in case[0] for word in args.only)
    ]
    done = json.loads(Path(args.out).read_text())["models"] if args.resume else {}
    result: dict[str, Any] = {"summary": {}}
    start = time.time()
    for number, (name, build) in enumerate(cases, start=1):
        if number % parts != part % parts or name in done:
            continue
        row: dict[str, Any]
        try:
            with limit(MOST_SECONDS):
                row = judge(*build())
        except (Exception, TooSlow) as error:
            reason = " ".join(str(error).split())[:600]
            row = {"unbuilt": reason or type(error).__name__}
        gc.collect()
        if "unbuilt" in row:
            said = f"not built: {row['unbuilt']}"
        else:
            said = ", ".join(row[road]["verdict"] for road in ROADS)
        progress = f"{number}/{len(cases)} {time.time() - start:.0f}s"
        print(f"{progress} {name}: {said}", file=sys.stderr, flush=True)
        result = save(Path(args.out), {name: row})
    print(json.dumps(result["summary"], indent=1))
    roads = [road for library in result["summary"].values() for road in library["roads"].values()]
    sys.exit(any("wrong" in road for road in roads))


def take_places(out: Path) -> bool:
    """Judge every place of the table, add the result to the file; return whether one is wrong."""
    rows = {}
    for place in PLACES:
        with TemporaryDirectory() as folder:
            judged = judge_place(place, Path(folder))
        rows[place.name] = {"library": place.library, "expected": place.expected, **asdict(judged)}
        print(f"{place.name}: {judged.verdict}: {judged.detail}", file=sys.stderr, flush=True)
    result = json.loads(out.read_text()) if out.exists() else {}
    counted = dict(Counter(row["verdict"] for row in rows.values()))
    places = {"summary": counted, "about": about_places(), "rows": rows}
    write(out, json.dumps(result | {"places": places}, indent=1) + "\n")
    print(json.dumps(counted))
    return any(row["verdict"] != row["expected"] for row in rows.values())


def about_places() -> dict[str, str]:
    """Return the versions that the table of places was judged with."""
    libraries = (
        "torch",
        "transformers",
        "timm",
        "torchvision",
        "peft",
        "lightning",
        "onnx",
        "skl2onnx",
        "keras",
        "h5py",
    )
    others = ("scikit-learn", "lightgbm", "xgboost-cpu")
    versions = {name: version(name) for name in (*libraries, *others)}
    command = "python -m bench.zoo.census --places"
    return {"levelhead": lh.__version__, **versions, "command": command}


def save(path: Path, rows: dict[str, Any]) -> dict[str, Any]:
    """Add rows to the result file, next to those of other processes, and update the summary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        # Several processes may judge parts of the list at once, and write to one file.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        whole = json.loads(file.read() or '{"models": {}}')
        models = whole["models"] | rows
        result: dict[str, Any] = {"summary": summary(models), "about": about()}
        if "places" in whole:  # which `take_places` wrote
            result["places"] = whole["places"]
        result["models"] = dict(sorted(models.items()))
        file.truncate(0)
        file.write(json.dumps(result, indent=1) + "\n")
    return result


def summary(rows: dict[str, Any]) -> dict[str, Any]:
    """Return how many models of each library were judged, and the verdicts of each way."""
    by_library = {}
    for library in ("transformers", "timm"):
        models = {name: row for name, row in rows.items() if name.startswith(library)}
        judged = {name: row for name, row in models.items() if "unbuilt" not in row}
        by_library[library] = {
            "models": len(models),
            "judged": len(judged),
            "not built": len(models) - len(judged),
            "families": len({name.split("/")[1] for name in judged}),
            "roads": {
                road: dict(Counter(row[road]["verdict"] for row in judged.values()))
                for road in ROADS
            },
        }
    return by_library


def about() -> dict[str, Any]:
    """Return what the models were judged with."""
    import timm
    import transformers

    return {
        "classes": K,
        "counts": COUNTS,
        "gamma": GAMMA,
        "tolerance": 1e-4,
        "levelhead": lh.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "timm": timm.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "command": "python -m bench.zoo.census",
    }


if __name__ == "__main__":
    main()
