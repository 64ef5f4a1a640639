"""What the precision of packed training costs: WVN and the baseline, seed by seed, in each precision.

    python -m bench.paper.precision --root DIR --speed      # microseconds an image of each precision: a few epochs
    python -m bench.paper.precision --root DIR              # whole trainings, 8 seeds of each method in each precision

Needs a CUDA GPU, and CIFAR-10's official files below DIR (the images that ratio 10 needs are enough). ResNet-32 is
trained on CIFAR-10 at ratio 100 by the recipe kim2020. Networks of one seed begin with the same weights and see the
same batches, so precisions are compared in pairs. Errors are those of the last epoch on test, in %, computed in
float32: of the network alone, and by RS and the shift at the strength that is best on test.

`float16:filters` rounds filters to bfloat16 too, in a training in float16, `float16:activations` what layers give, and
`float16:gradients` the gradients of that: what does bfloat16 cost, and where? Results are added to those in the file,
group by group: what is there is not trained again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from levelhead.core.gamma_path import gamma_path
from levelhead_lab.fast import conv_norm, fit_many, stacked
from levelhead_lab.fast.job import Job
from levelhead_lab.fast.precision import PRECISIONS
from levelhead_lab.lab import data, load, nets
from levelhead_lab.lab.preprocess import Preprocess, features
from levelhead_lab.lab.recipe import Recipe, find_recipe
from levelhead_lab.methods import METHODS

from .compile_ahead import compile_ahead

RATIO = 100
TRUTH = "float32"  # what the others are compared with
COLUMNS = "alone", "RS", "shift"
# Microseconds an image, by the bytes of an activation, of what was never timed.
GUESS = {2: 7.0, 4: 25.0}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="folder that holds cifar-10-batches-bin")
    parser.add_argument(
        "-o", "--out", default="results/precision.json", help="where the numbers go, and are kept"
    )
    parser.add_argument(
        "--precisions", nargs="+", default=["float16", "bfloat16", TRUTH, "tf32"], metavar="NAME"
    )
    parser.add_argument("--methods", nargs="+", default=["wvn", "baseline"])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--speed", action="store_true", help="only time a few epochs of each precision"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no group that would end later"
    )
    args = parser.parse_args()
    began = time.monotonic()
    if args.root is None or not torch.cuda.is_available():
        print(
            "precision: not measured; it needs a CUDA GPU and --root DIR, the folder of CIFAR-10's files"
        )
        return
    torch.backends.cudnn.allow_tf32 = False  # in which errors are computed
    cifar = data.imbalance(
        load.load("cifar10", args.root, unofficial=True), "long-tail", ratio=RATIO
    )
    recipe = find_recipe("kim2020")
    if args.speed:
        recipe = recipe.stretched_to(6)
    path = Path(args.out)
    record = {"microseconds an image": {}, "runs": []}
    if path.is_file():
        record = json.loads(path.read_text())
    record |= {
        "hardware": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "command": "python -m bench.paper.precision --root DIR",
        "data": {"name": "cifar10", "profile": "long-tail", "ratio": RATIO},
        "data_sha256": {title: part.sha256 for title, part in cifar.splits.items()},
        "recipe": "kim2020",
    }
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    bases = sorted({name.split(":")[0] for name in args.precisions})
    compile_ahead(bases, args.seeds, {recipe.batch, len(cifar.train) % recipe.batch})
    print(f"compiled {', '.join(bases)} in {time.monotonic() - began:.0f} s", flush=True)
    for method, name in itertools.product(args.methods, args.precisions):
        trained = set()
        for run in record["runs"]:
            if (run["method"], run["precision"]) == (method, name):
                trained.add(run["seed"])
        missing = [seed for seed in seeds if args.speed or seed not in trained]
        if not missing:
            print(f"{method}, {name}: known", flush=True)
            continue
        # When it would end, by the time that this precision took before, with a fifth to spare.
        guess = record["microseconds an image"].get(name)
        if not guess:
            guess = GUESS[PRECISIONS[name.split(":")[0]].storage.itemsize]
        training = 1.2e-6 * guess * len(cifar.train) * recipe.epochs * len(missing)
        if time.monotonic() - began + 10 + training > 60 * args.minutes:
            print(f"{method}, {name}: left out, it would end too late", flush=True)
            continue
        jobs, took = train(cifar, recipe, method, name, missing)
        record["microseconds an image"][name] = round(took, 2)
        if not args.speed:
            for job in jobs:
                facts = {"method": method, "precision": name, "seed": job.seed}
                record["runs"].append(facts | measure(job))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(
            f"{method}, {name}, seeds {missing[0]} to {missing[-1]}: {took:.2f} us an image",
            flush=True,
        )
    print(table(record["runs"], record["microseconds an image"]))


def train(
    cifar: data.Data, recipe: Recipe, method: str, name: str, seeds: list[int]
) -> tuple[list[Job], float]:
    """Train networks; return their jobs, and the microseconds an image of epochs that are not evaluated.

    Args:
        cifar, recipe, seeds: what to train on, how, and from which weights.
        method: its name.
        name: of the precision and, after colons, the places that are rounded to bfloat16 too.
    """
    base, *places = name.split(":")
    jobs = [
        Job(nets.build("resnet32", 10, seed=seed), cifar, recipe, METHODS[method], seed)
        for seed in seeds
    ]
    ends: dict[int, float] = {}
    last: dict[int, float] = {}

    def on_epoch(position: int, record: dict) -> None:
        ends[record["epoch"]] = time.perf_counter()
        last[position] = record["loss"]

    with rounded(places):
        fit_many.fit_many(
            jobs,
            slots=len(jobs),
            dtype=PRECISIONS[base],
            stacked=True,
            evaluate_early=False,
            on_epoch=on_epoch,
        )
    print("losses", " ".join(f"{loss:.4f}" for loss in last.values()), flush=True)
    epochs = [ends[epoch + 1] - ends[epoch] for epoch in range(1, recipe.first_decay_epoch)]
    return jobs, statistics.median(epochs) / len(cifar.train) / len(jobs) * 1e6


def measure(job: Job) -> dict[str, float]:
    """Return the errors of a trained network on test, in %, with the strengths that are best there."""
    test = job.data.test
    net = job.net.cuda()
    seen = features(net, test, Preprocess(job.recipe, job.data, torch.float32), batch=2500)
    logits = nets.head_of(net).numpy().logits(seen)
    errors = {}
    for column, rule, top in (("RS", "rescale", 2.0), ("shift", "shift", 4.0)):
        path = gamma_path(logits, test.labels, job.data.counts, rule=rule, range=(0.0, top))
        best = path.best("error")
        errors["alone"] = round(100 * path.at(0.0).error, 2)
        errors |= {column: round(100 * best.error, 2), f"{column} strength": round(best.gamma, 3)}
    return errors


@contextmanager
def rounded(places: list[str]) -> Iterator[None]:
    """Let numbers in some places of a packed training be rounded to bfloat16, before they are used.

    Functions of the engine are replaced while the block runs: no option of it is needed for one study.

    Args:
        places: some of `filters`, `activations` and `gradients`.
    """
    nets_class = stacked.StackedNets
    function = conv_norm.FusedConvNorm
    refresh = nets_class.refresh
    forward = function.forward
    convolve = conv_norm.convolve
    input_gradient = conv_norm.input_gradient
    weight_gradient = conv_norm.weight_gradient

    def short(x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().to(x.dtype)

    def refresh_rounded(self: stacked.StackedNets) -> None:
        self.cast_rows.copy_(self.rows.bfloat16())

    def forward_rounded(*values):
        out = short(forward(*values)[0])
        return out, out.view_as(out)

    def convolve_rounded(*values, **options):
        y, partial = convolve(*values, **options)
        return short(y), partial

    if "filters" in places:
        nets_class.refresh = refresh_rounded
    if "activations" in places:
        function.forward = staticmethod(forward_rounded)
        conv_norm.convolve = convolve_rounded
    if "gradients" in places:
        conv_norm.input_gradient = lambda g, *values, **options: short(
            input_gradient(short(g), *values, **options)
        )
        conv_norm.weight_gradient = lambda x, g, **options: weight_gradient(x, short(g), **options)
    try:
        yield
    finally:
        nets_class.refresh = refresh
        function.forward = staticmethod(forward)
        conv_norm.convolve = convolve
        conv_norm.input_gradient = input_gradient
        conv_norm.weight_gradient = weight_gradient


def table(runs: list[dict], took: dict[str, float]) -> str:
    """Return means with standard errors, and differences to float32, seed by seed."""
    lines = [
        "| method | precision | us an image | seeds | "
        + " | ".join(COLUMNS)
        + " | minus float32: |"
    ]
    by_group: dict[tuple[str, str], dict[int, dict]] = defaultdict(dict)
    for run in runs:
        by_group[run["method"], run["precision"]][run["seed"]] = run
    for (method, name), by_seed in list(by_group.items()):
        cells = [mean_and_error([run[column] for run in by_seed.values()]) for column in COLUMNS]
        # Seed by seed: both began with the same weights and saw the same batches.
        truth = by_group[method, TRUTH]
        paired = []
        if name != TRUTH:
            paired = sorted(by_seed.keys() & truth.keys())
        for column in COLUMNS:
            differences = [by_seed[seed][column] - truth[seed][column] for seed in paired]
            cells.append(mean_and_error(differences))
        lines.append(
            f"| {method} | {name} | {took.get(name)} | {len(by_seed)} | {' | '.join(cells)} |"
        )
    lines += [f"| | {name} | {value} |" for name, value in took.items()]
    return "\n".join(lines)


def mean_and_error(values: list[float]) -> str:
    """Return the mean with its standard error.

    >>> mean_and_error([1.0, 2.0, 3.0])
    '2.00 ± 0.58'
    """
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    error = statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.2f} ± {error:.2f}"


if __name__ == "__main__":
    main()
