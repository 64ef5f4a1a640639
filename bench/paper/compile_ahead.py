"""Compile the kernels of a packed training before they are needed, by as many processes as there are cores.

Triton compiles a kernel when it is first launched, one after the other. Here every process goes through a step of
training and of evaluation with tensors that hold nothing, and compiles its share of the launches. What it compiles is
kept on disk, where the training finds it.
"""

from __future__ import annotations

import multiprocessing
import os
import zlib
from collections.abc import Sequence

import torch

from levelhead_lab.fast import stacked
from levelhead_lab.fast.precision import PRECISIONS
from levelhead_lab.lab import nets


def compile_ahead(
    precisions: Sequence[str],
    runs: int,
    batches: Sequence[int],
    net: str = "resnet32",
    size: int = 32,
) -> None:
    """Compile what `runs` packed networks need for images of a size in these precisions, in batches of these sizes."""
    parts = max(1, (os.cpu_count() or 2) - 2)
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(
            target=_compile_share,
            args=(tuple(precisions), runs, tuple(batches), net, size, part, parts),
        )
        for part in range(parts)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _compile_share(
    precisions: Sequence[str],
    runs: int,
    batches: Sequence[int],
    net: str,
    size: int,
    part: int,
    parts: int,
) -> None:
    """Compile one part of the kernels: what a process does.

    Triton's launch is replaced by one that only compiles, and only what falls to this part by the
    checksum of its name and types. The tensors are on the `meta` device, which has shapes and no
    numbers, so a step takes no time and no memory.
    """
    from triton.runtime.jit import JITFunction  # type: ignore[import-not-found]

    launch = JITFunction.run
    seen = set()

    def compile_only(self, *values, grid, warmup, **options):
        kinds = [str(x.dtype) for x in values if isinstance(x, torch.Tensor)]
        what = repr((self.__name__, kinds, sorted(options.items())))
        if what not in seen and zlib.crc32(what.encode()) % parts == part:
            launch(self, *values, grid=grid, warmup=True, **options)
        seen.add(what)

    JITFunction.run = compile_only
    for name in precisions:
        nothing = torch.device("meta")
        packed = stacked.StackedNets(
            nets.build(net, 10), runs, nothing, PRECISIONS[name], kernels=True
        )
        for batch in batches:
            shape = (runs, batch, size, size, 3)
            x = torch.empty(shape, dtype=PRECISIONS[name].storage, device=nothing)
            features = packed.features(x, training=True)
            torch.autograd.grad(packed.logits(features).sum(), packed.leaves)
            packed.features(x, training=False)
