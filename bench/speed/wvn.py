"""Cost of unit-length weight vectors: with WVN's hook, with `weight_norm`, and normalized in the forward pass.

    python -m bench.speed.wvn [--rounds 25] [--out results/wvn.json]

One training step (forward, backward, SGD with momentum) of a head of iNaturalist's size, K = 8142, d = 2048, no bias,
on random features. Each round times all four kinds of step one after another, so that whatever slows the machine slows
them all. The cost of a kind is the median over rounds of its time minus that of the plain step. The spread is that of
the same ratio over resampled rounds.

Next to these stand the parts of the hook by themselves, and what bounds it: the weight is read for its norms, then read
and written for the product, and no kernel of torch does both in one pass in place. `one read` is the sum of each row,
and `one pass` the product alone, in which each number is read and written once: neither can be faster. Together they
are the roofline. How much cheaper the hook would be at it is the most that can be asked. `in blocks` is the hook on
rows that fit the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import levelhead as lh
from levelhead.hosts.torch import unit_

K = 8142
D = 2048
BATCH = 64


def plain() -> Callable[[], None]:
    """Return a step of a plain head."""
    layer, optimizer = build()
    return step(layer, optimizer)


def hook() -> Callable[[], None]:
    """Return a step after which WVN's hook makes the weight vectors unit length."""
    layer, optimizer = build()
    lh.WVN(optimizer, layer)
    return step(layer, optimizer)


def weight_norm() -> Callable[[], None]:
    """Return a step of a head whose weight is computed from direction and length, as torch has it."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(D, K, bias=False))
    return step(layer, torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9))


def in_forward() -> Callable[[], None]:
    """Return a step of a head that is normalized each time it is run, as a cosine head is."""
    layer, optimizer = build()
    return step(lambda x: F.linear(x, F.normalize(layer.weight)), optimizer)


def build() -> tuple[nn.Linear, torch.optim.Optimizer]:
    """Return a head without a bias, and SGD with momentum for it."""
    layer = nn.Linear(D, K, bias=False)
    return layer, torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)


def step(
    layer: Callable[[torch.Tensor], torch.Tensor], optimizer: torch.optim.Optimizer
) -> Callable[[], None]:
    """Return a function that takes one step on random features."""
    features = torch.randn(BATCH, D)
    labels = torch.randint(K, (BATCH,))

    def take_step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(layer(features), labels).backward()
        optimizer.step()

    return take_step


def parts() -> dict[str, Callable[[], object]]:
    """Return the hook without a training step, its two parts, and other ways to do the same."""
    weight = torch.randn(K, D)
    factors = torch.ones(K, 1)

    def in_blocks(rows: int) -> Callable[[], None]:
        def normalize_blocks() -> None:
            for block in weight.split(rows):
                unit_(block)

        return normalize_blocks

    def fused_into_another() -> None:
        weight.copy_(torch._weight_norm_interface(weight, factors, 0)[0])

    return {
        "hook": lambda: unit_(weight),
        "norms": lambda: torch.linalg.vector_norm(weight, dim=1, keepdim=True),
        "one read": lambda: weight.sum(1),
        "one pass": lambda: weight.mul_(factors),
        **{f"in blocks of {rows} rows": in_blocks(rows) for rows in (128, 1024)},
        "weight_norm's fused kernel and a copy": fused_into_another,
    }


KINDS = {
    "plain": plain,
    "hook": hook,
    "weight_norm": weight_norm,
    "in the forward pass": in_forward,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", default="results/wvn.json")
    args = parser.parse_args()
    torch.manual_seed(0)
    steps = {kind: make() for kind, make in KINDS.items()}
    for take_step in steps.values():  # the first allocate what is kept
        take_step()
        take_step()
    rounds = [[clock(take_step) for take_step in steps.values()] for _ in range(args.rounds)]
    seconds = np.array(rounds)  # [rounds, kinds]
    with torch.no_grad():
        alone = {name: [clock(part) for _ in range(args.rounds)] for name, part in parts().items()}
    middles = {name: round(1e3 * float(np.median(values)), 2) for name, values in alone.items()}
    roofline = middles["one read"] + middles["one pass"]
    extra = 1e3 * extras(seconds)
    result = {
        "what": f"one SGD step of a head, K = {K}, d = {D}, batch {BATCH}, float32",
        "milliseconds a step": named(np.median(seconds, axis=0)),
        "milliseconds extra": named(extras(seconds)),
        "cheaper than weight_norm, times": ratio(seconds, 2),
        "cheaper than in the forward pass, times": ratio(seconds, 3),
        "milliseconds alone": middles,
        "roofline, milliseconds": round(roofline, 2),
        "hook in rooflines, times": round(middles["hook"] / roofline, 2),
        "at the roofline, cheaper than weight_norm, times": round(extra[2] / roofline, 1),
        "at the roofline, cheaper than in the forward pass, times": round(extra[3] / roofline, 1),
        "gigabytes a second, one pass": round(2 * 4 * K * D / middles["one pass"] / 1e6, 1),
        "n": args.rounds,
        "about": {
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "processor": processor(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "levelhead": lh.__version__,
            "command": "python -m bench.speed.wvn",
        },
    }
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def clock(work: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def extras(seconds: np.ndarray) -> np.ndarray:
    """Return what each kind costs more than a plain step."""
    return np.median(seconds - seconds[:, :1], axis=0)


def named(seconds: np.ndarray) -> dict[str, float]:
    """Return milliseconds by the kind of step."""
    return dict(zip(KINDS, np.round(1e3 * seconds, 2).tolist(), strict=True))


def ratio(seconds: np.ndarray, kind: int) -> dict[str, float]:
    """Return how many times cheaper the hook is than another kind, and the middle 90 % over resampled rounds."""
    draw = np.random.default_rng(0)
    samples = [extras(seconds[draw.integers(len(seconds), size=len(seconds))]) for _ in range(1000)]
    low, high = np.percentile([extra[kind] / extra[1] for extra in samples], [5, 95])
    extra = extras(seconds)
    return {"ratio": round(extra[kind] / extra[1], 1), "low": round(low, 1), "high": round(high, 1)}


def processor() -> str:
    """Return the name that Linux gives the processor."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.lower().startswith(("model name", "cpu part")):  # the second, on ARM
                return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
