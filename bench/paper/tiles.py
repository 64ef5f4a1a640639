"""Find the fastest tiles of the training kernels: `python -m bench.paper.tiles OUT.json [PRECISION]`, on a CUDA GPU.

The kernels of each layer of ResNet-32 (16 runs, batches of 128) are timed with every tile of a set. They are compiled
first, by as many processes as there are cores, in about a minute. The fastest, with its time and that of the tile in
`conv_norm`, goes to OUT.json.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Callable

import torch
import triton  # type: ignore[import-not-found]

from levelhead_lab.fast import conv_norm
from levelhead_lab.fast.conv_norm import Tile
from levelhead_lab.fast.precision import find_precision

RUNS = 16
BATCH = 128
SIZES = {4: 32, 16: 32, 32: 16, 64: 8}  # of the images, by input channels
PRECISION = find_precision(sys.argv[2] if len(sys.argv) > 2 else "bfloat16")
# The tiles that the engine uses now, {kind of kernel: {input channels: tile}}: the very dicts that
# it looks into, so that to put another tile there is to try it.
TABLES = conv_norm._tiles(PRECISION.storage, PRECISION.products)._asdict()


def candidates(kind: str, inputs: int) -> list[Tile]:
    """Return the tiles to try."""
    spans = {4: (2,), 16: (2,), 32: (1, 2), 64: (1,)}[inputs]
    # (size, warps) of a block; `attempt` leaves out what does not fit on the chip.
    if kind == "weight":
        sizes = ((32, 4), (64, 4), (128, 4), (128, 8))
        rows = (1,)
        if inputs < 64:
            rows = (1, 3)
        options = itertools.product(sizes, spans, rows, (1, 3))
        return [
            Tile(size, span, warps, rows=rows, stages=stages)
            for (size, warps), span, rows, stages in options
        ]
    sizes = [(64, 4), (128, 4), (128, 8)]
    if inputs < 64:
        sizes.append((256, 8))
    tiles = ((1, 1), (2, 1), (4, 1), (4, 2))
    options = itertools.product(sizes, spans, tiles)
    return [
        Tile(size, span, warps, tiles=n, stages=stages)
        for (size, warps), span, (n, stages) in options
    ]


def layer(kind: str, inputs: int) -> Callable[[], object]:
    """Return a call of a kernel with the tensors of a layer."""
    size = SIZES[inputs]
    outputs = max(16, inputs)
    channels = inputs
    if inputs == 4:  # images: three colors, and nothing
        channels = 3

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda").to(PRECISION.storage)

    x = random(RUNS, BATCH, size, size, inputs)
    g = random(RUNS, BATCH, size, size, outputs)
    weight = random(RUNS, 3, 3, channels, outputs)
    how = {"stride": 1, "products": PRECISION.products}
    return {
        "forward": lambda: conv_norm.convolve(x, weight, statistics=True, **how),
        "backward": lambda: conv_norm.input_gradient(g, weight, x.shape, **how),
        "weight": lambda: conv_norm.weight_gradient(x, g, shape=weight.shape, **how),
    }[kind]


def compile_some(part: int, parts: int) -> None:
    """Compile every `parts`-th tile; one that does not compile is left out later."""
    works = {}
    for at, (kind, inputs, tile) in enumerate(all_candidates()):
        if at % parts == part:
            works[kind, inputs] = works.get((kind, inputs)) or layer(kind, inputs)
            attempt(works[kind, inputs], kind, inputs, tile)


def all_candidates() -> list[tuple[str, int, Tile]]:
    """Return (kind, input channels, tile) of everything that is tried."""
    return [
        (kind, c, tile)
        for kind, table in TABLES.items()
        for c in table
        for tile in candidates(kind, c)
    ]


def attempt(work: Callable[[], object], kind: str, inputs: int, tile: Tile) -> bool:
    """Run a kernel with another tile; return whether it compiles and runs, and say why if not."""
    TABLES[kind][inputs] = tile
    try:
        work()
        torch.cuda.synchronize()
    except Exception as error:  # no such tile: too many registers, too much shared memory
        print(f"{kind} {inputs} {tile}: {str(error).splitlines()[0][:90]}", flush=True)
        return False
    return True


def main() -> None:
    parts = max(1, (os.cpu_count() or 2) - 2)
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=compile_some, args=(part, parts)) for part in range(parts)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    fastest = {}
    for kind, table in TABLES.items():
        for inputs, now in list(table.items()):
            work = layer(kind, inputs)
            times = {}
            # The gradient of the weight is summed by so many programs at once: 2, 4 or 8 for each of
            # the 132 multiprocessors of an H200.
            parallel = (0,)
            if kind == "weight":
                parallel = (264, 528, 1056)
            for tile in candidates(kind, inputs):
                for programs in parallel:
                    if programs:
                        conv_norm.PROGRAMS[inputs] = programs
                    if attempt(work, kind, inputs, tile):
                        times[tile, programs] = triton.testing.do_bench(
                            work, warmup=2, rep=8, return_mode="median"
                        )
            best = sorted(times, key=times.__getitem__)[:3]
            table[inputs] = best[0][0]
            if best[0][1]:
                conv_norm.PROGRAMS[inputs] = best[0][1]
            fastest[f"{kind} {inputs}"] = {
                "now": [
                    *now,
                    min((t for (tile, _), t in times.items() if tile == now), default=None),
                ],
                "fastest": [
                    [*tile, programs, round(times[tile, programs], 4)] for tile, programs in best
                ],
            }
            print(kind, inputs, fastest[f"{kind} {inputs}"], flush=True)
    with open(sys.argv[1], "w") as file:
        json.dump(fastest, file, indent=1)


if __name__ == "__main__":
    main()
