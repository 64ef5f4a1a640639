"""Speed of training ResNet-32 on long-tailed CIFAR-10, evaluation included, and whether bfloat16 costs accuracy.

    python -m bench.paper.train --root DIR               # speed: the plain loop, the fast engine, packed, WVN's extra
    python -m bench.paper.train --root DIR --profile     # where the time of a step goes, by kernel, 16 runs packed
    python -m bench.paper.train --root DIR --parity OUT  # whole trainings: float32 by the plain loop, without TF32,
                                                         # and bfloat16 by the fast engine; its snapshots go to OUT

Needs a CUDA GPU, torchvision for the plain loop, and CIFAR-10's official files below DIR (the images that ratio 10
needs are enough). A time is per training image: the seconds of an epoch with its evaluation, divided by the images that
all runs trained on in it.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from levelhead_lab.fast import fit_many
from levelhead_lab.fast.job import Job
from levelhead_lab.fast.pack import Pack
from levelhead_lab.lab import data, load, nets, preprocess, recipe
from levelhead_lab.methods import METHODS

from . import plain_loop

# Of the largest class to the smallest.
RATIO = 100


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="folder that holds cifar-10-batches-bin")
    parser.add_argument("--out", default="results/train.json", help="where the numbers go")
    parser.add_argument("--slots", type=int, nargs="*", default=[8], help="packed sets to time")
    parser.add_argument("--epochs", type=int, default=24, help="of the fast engine, per timing")
    parser.add_argument(
        "--compiled", action="store_true", help="also time the unstacked, compiled form"
    )
    parser.add_argument(
        "--profile", action="store_true", help="only say where the time of a step goes"
    )
    parser.add_argument(
        "--parity", metavar="OUT", help="train 3 seeds in each of --dtypes; snapshots go to OUT"
    )
    parser.add_argument(
        "--dtypes",
        nargs="+",
        default=["bfloat16", "float32"],
        help="the others are kept from --out",
    )
    args = parser.parse_args()
    if args.root is None or not torch.cuda.is_available():
        print(
            "training: not measured; it needs a CUDA GPU and --root DIR, the folder of CIFAR-10's files"
        )
        return
    cifar = data.imbalance(
        load.load("cifar10", args.root, unofficial=True), "long-tail", ratio=RATIO
    )
    path = Path(args.out)
    # The file has three parts; one is measured now, and the others are kept.
    record = {}
    if path.is_file():
        record = json.loads(path.read_text())
    if args.parity:
        part = "parity"
        record[part] = parity(cifar, Path(args.parity), args.dtypes, record.get(part, {}))
    elif args.profile:
        part = "profile"
        record[part] = profile(cifar)
    else:
        part = "speed"
        record[part] = speed(cifar, args)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record[part], indent=1))


def speed(cifar: data.Data, args: argparse.Namespace) -> dict:
    """Return the microseconds per image of each way to train."""
    plain = time_plain_loop(cifar)
    baseline = METHODS["baseline"]
    rows = {"plain loop, float32, 8 workers": plain}
    print(rows, flush=True)
    rows["fast engine, one run"] = engine(cifar, [baseline], args.epochs)
    print(rows, flush=True)
    for slots in args.slots:
        rows[f"fast engine, {slots} runs"] = engine(cifar, [baseline] * slots, args.epochs)
        print(rows, flush=True)
    if args.compiled:
        rows["compiled, one run"] = engine(cifar, [baseline], args.epochs, stacked=False)
        rows["compiled, 8 runs on 8 streams"] = engine(
            cifar, [baseline] * 8, args.epochs, stacked=False
        )
    extra = [wvn_extra(cifar) for _ in range(3)]
    # No kernel can move its bytes faster than a copy does: what is left to gain, at most.
    bandwidth = copy_bandwidth()
    limit = bytes_per_image(cifar)
    best = min(value for name, value in rows.items() if "runs" in name)
    return {
        "hardware": torch.cuda.get_device_name(), "torch": torch.__version__,
        "command": "python -m bench.paper.train --root DIR",
        "training images": len(cifar.train), "test images evaluated each epoch": len(cifar.test), "batch": 128,
        "microseconds per image": {name: round(value, 2) for name, value in rows.items()},
        "times the plain loop": {name: round(plain / value, 1) for name, value in rows.items()},
        "copy bandwidth, TB/s": round(bandwidth / 1e12, 2),
        "byte limit, microseconds per image": round(limit / bandwidth * 1e6, 2),
        "share of the byte limit reached": round(limit / bandwidth * 1e6 / best, 3),
        "WVN's extra, share of a step": [round(value, 4) for value in extra],
        "WVN's extra, median": round(statistics.median(extra), 4),
    }  # fmt: skip


def engine(cifar: data.Data, methods: list, epochs: int, stacked: bool | None = None) -> float:
    """Return the microseconds per image of the fast engine, without its first epochs, in which it captures graphs.

    Args:
        cifar: the data.
        methods: of the runs, which are packed.
        epochs: of each; the first quarter, and two at least, are not counted.
        stacked: as for `fit_many`.
    """
    how = recipe.find_recipe("kim2020").stretched_to(epochs)
    jobs = [
        Job(nets.build("resnet32", 10, seed=seed), cifar, how, method, seed)
        for seed, method in enumerate(methods)
    ]
    ends: dict[int, float] = {}

    def on_epoch(position: int, record: dict) -> None:
        ends[record["epoch"]] = time.perf_counter()

    fit_many.fit_many(jobs, slots=len(jobs), stacked=stacked, on_epoch=on_epoch)
    first = max(2, epochs // 4)
    return (ends[epochs] - ends[first]) / (epochs - first) / len(cifar.train) / len(jobs) * 1e6


def wvn_extra(cifar: data.Data, times: int = 8) -> float:
    """Return how much longer a captured epoch of one run takes with WVN: medians of alternating replays."""
    splits = {
        title: fit_many.copy_to(torch.device("cuda"), part) for title, part in cifar.splits.items()
    }
    packs = {}
    took = {"baseline": [], "wvn": []}
    for name in took:
        job = Job(nets.build("resnet32", 10), cifar, recipe.find_recipe("kim2020"), METHODS[name])
        packs[name] = Pack(
            [(0, job)], splits, torch.device("cuda"), torch.bfloat16, compiled=False, stacked=True
        )
        packs[name].advance()
    for _ in range(times):
        for name, pack in packs.items():
            torch.cuda.synchronize()
            began = time.perf_counter()
            pack.run_steps()
            torch.cuda.synchronize()
            took[name].append(time.perf_counter() - began)
    return statistics.median(took["wvn"]) / statistics.median(took["baseline"]) - 1


def profile(cifar: data.Data, runs: int = 16) -> dict:
    """Return the microseconds per image of each kind of kernel in the steps of `frontier`, and by the clock.

    Kernels on the two streams overlap, so the sum is more than the clock shows.
    """
    how = recipe.find_recipe("frontier")
    device = torch.device("cuda")
    jobs = [
        Job(nets.build("resnet32", 10, seed=seed), cifar, how, METHODS["baseline"], seed)
        for seed in range(runs)
    ]
    splits = {title: fit_many.copy_to(device, part) for title, part in cifar.splits.items()}
    pack = Pack(list(enumerate(jobs)), splits, device, torch.bfloat16, compiled=False, stacked=True)
    pack.advance()
    clock = statistics.median(_seconds(pack.run_steps, pack) for _ in range(7))
    evaluation = statistics.median(_seconds(pack.eval_graph, pack) for _ in range(7))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        _seconds(pack.run_steps, pack)
    images = runs * len(cifar.train)
    kinds = collections.Counter()
    for event in found.events():
        kind = "torch's own"
        if event.name.endswith("_kernel"):  # ours are named so
            kind = event.name
        kinds[kind] += event.device_time / images
    return {
        "hardware": torch.cuda.get_device_name(),
        "command": "python -m bench.paper.train --root DIR --profile",
        "what": f"an epoch's steps of {runs} runs of the recipe frontier, packed, without evaluation",
        "microseconds per image, by the clock": round(clock / images * 1e6, 2),
        "microseconds per evaluated image": round(evaluation / runs / len(cifar.test) * 1e6, 2),
        "microseconds per image, by kernel": {
            kind: round(value, 3) for kind, value in kinds.most_common()
        },
    }


def _seconds(work: Callable[[], object], pack: Pack) -> float:
    """Return the seconds of some work on a pack's stream, until the device is done."""
    with pack._on_stream():
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - began


def time_plain_loop(cifar: data.Data, epochs: int = 3) -> float:
    """Return the microseconds per image of the usual script: torchvision, 8 loader workers, float32, eager."""
    from torch.utils.data import DataLoader, Dataset
    from torchvision import transforms as T

    how = recipe.find_recipe("kim2020")
    tail = [T.ToTensor(), T.Normalize(how.mean, how.std)]
    moves = T.Compose(
        [T.ToPILImage(), T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), *tail]
    )
    still = T.Compose([T.ToPILImage(), *tail])

    class Images(Dataset):
        def __init__(self, part, transform):
            self.images = part.images.transpose(0, 2, 3, 1)
            self.labels = part.labels
            self.transform = transform

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, i):
            return self.transform(np.ascontiguousarray(self.images[i])), int(self.labels[i])

    options = {"num_workers": 8, "pin_memory": True, "persistent_workers": True}
    loader = DataLoader(Images(cifar.train, moves), 128, shuffle=True, **options)
    test = DataLoader(Images(cifar.test, still), 512, **options)
    net = nets.build("resnet32", 10).cuda()
    optimizer = torch.optim.SGD(
        net.parameters(), lr=how.lr, momentum=how.momentum, weight_decay=how.weight_decay
    )
    times = []
    for _ in range(epochs + 1):
        began = time.perf_counter()
        net.train()
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(
                net(x.cuda(non_blocking=True)), y.cuda(non_blocking=True)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            wrong = torch.zeros((), device="cuda")
            for x, y in test:
                wrong += (net(x.cuda(non_blocking=True)).argmax(1) != y.cuda()).sum()
            wrong.item()  # waits for the device
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:]) / len(cifar.train) * 1e6


def copy_bandwidth(size: int = 2**32) -> float:
    """Return the bytes per second, read and written, of a large copy on the device: the median of ten."""
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty(size, dtype=torch.uint8, device="cuda")
    source.random_()
    times = []
    for _ in range(12):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * size / statistics.median(times[2:])


def bytes_per_image(cifar: data.Data) -> float:
    """Return the fewest bytes that a training image moves, with its share of evaluation, if all else were fused.

    Forward, each convolution's bfloat16 result is written once and read once. Backward, its gradient, its input and its
    result (for batch norm) are read, and the input's gradient is written. In evaluation it is written and read once.
    """
    results = [0]
    net = nets.build("resnet32", 10)
    for module in net.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(lambda module, x, y: results.append(y.numel() * 2))
    net(torch.zeros(1, 3, 32, 32))
    return sum(results) * (6 + 2 * len(cifar.test) / len(cifar.train))


def parity(cifar: data.Data, out: Path, dtypes: list[str], measured: dict, seeds: int = 3) -> dict:
    """Return the last errors of whole trainings, in float32 by the plain loop and in bfloat16 by the fast engine.

    Args:
        cifar: the data.
        out: a folder for the snapshots of the fast engine.
        dtypes: the precisions to train in now.
        measured: what was measured before, of which other precisions are kept.
        seeds: how many.
    """
    out.mkdir(parents=True, exist_ok=True)
    errors = dict(measured.get("test error, %", {}))
    seconds = dict(measured.get("seconds for all seeds", {}))
    for name in dtypes:
        began = time.perf_counter()
        if name == "float32":
            last = plain_seeds(cifar, seeds)
        else:
            last = fast_seeds(cifar, seeds, name, out)
        errors[name] = [round(error * 100, 2) for error in last]
        seconds[name] = round(time.perf_counter() - began, 1)
        print(name, errors[name], seconds[name], flush=True)
    return parity_record(errors, seconds)


def parity_record(errors: dict[str, list[float]], seconds: dict[str, float]) -> dict:
    """Return the errors of each precision and, if both are known, the difference of their means."""
    found = {
        "hardware": torch.cuda.get_device_name(),
        "command": "python -m bench.paper.train --root DIR --parity OUT",
        "bfloat16": "the fast engine",
        "float32": "the plain loop, without TF32",
        "ratio": RATIO,
        "epochs": recipe.find_recipe("kim2020").epochs,
        "seeds": list(range(len(errors["bfloat16"]))),
        "test error, %": errors,
        "seconds for all seeds": seconds,
    }
    if {"bfloat16", "float32"} <= errors.keys():
        gap = statistics.mean(errors["bfloat16"]) - statistics.mean(errors["float32"])
        standard = math.sqrt(
            sum(statistics.variance(values) / len(values) for values in errors.values())
        )
        found |= {"difference": round(gap, 3), "standard error": round(standard, 3)}
        found["within two standard errors"] = abs(gap) <= 2 * standard
    return found


def plain_seeds(cifar: data.Data, seeds: int) -> list[float]:
    """Train in float32 with contiguous images, which took 0.74 of the time of channels-last ones."""
    with plain_loop.exact():
        how = recipe.find_recipe("kim2020")
        new = [nets.build("resnet32", 10, seed=seed).cuda() for seed in range(seeds)]
        runs = [
            plain_loop.PlainRun(net, cifar, how, seed, channels_last=False)
            for seed, net in enumerate(new)
        ]
        return plain_loop.train(
            runs, lambda epoch, took: print(f"epoch {epoch}, {took:.0f} s", flush=True)
        )


def fast_seeds(cifar: data.Data, seeds: int, dtype: str, out: Path) -> list[float]:
    """Train by the fast engine, keep a snapshot of each network, and return their test errors."""
    how = recipe.find_recipe("kim2020")
    method = METHODS["baseline"]
    jobs = [
        Job(nets.build("resnet32", 10, seed=seed).cuda(), cifar, how, method, seed)
        for seed in range(seeds)
    ]
    last = {}
    fit_many.fit_many(jobs, slots=seeds, dtype=getattr(torch, dtype), on_epoch=last.__setitem__)
    for job in jobs:
        save(job, out / f"cifar10-r{RATIO}-{method.name}-{dtype}-seed{job.seed}.safetensors", dtype)
    return [last[i]["test_error"] for i in range(seeds)]


def save(job: Job, path: Path, precision: str) -> None:
    """Save a trained network's snapshot, with features in half precision."""
    meta = {
        "data": "cifar10",
        "profile": "long-tail",
        "ratio": RATIO,
        "method": job.method.name,
        "seed": job.seed,
        "recipe": job.recipe.name,
        "epochs": job.recipe.epochs,
        "net": "resnet32",
        "engine": "fast",
        "dtype": precision,
    }
    kept = preprocess.snapshot(
        job.net, job.data, preprocess.Preprocess(job.recipe, job.data), meta=meta, half=True
    )
    replace(kept, labels={title: y.astype(np.uint8) for title, y in kept.labels.items()}).save(path)


if __name__ == "__main__":
    main()
