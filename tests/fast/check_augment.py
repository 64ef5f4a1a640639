"""The kernel of augmentation against the operations of torch on a CPU, bit for bit; run by test_fit_many.py."""

import itertools
import sys

import torch

from levelhead_lab.lab.augment_kernel import augment
from levelhead_lab.lab.epoch_plan import EpochPlan
from levelhead_lab.lab.preprocess import crop_flip, cut_out, standardize
from levelhead_lab.lab.trivial_augment import (
    MAGNITUDE_BINS,
    OPERATIONS,
    make_tables,
    trivial_augment,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LARGE = DEVICE.type == "cuda"  # the interpreter is slow


def check(channels, height, width, dtype, *, trivial, cutout):
    """Return the operations whose samples differ, of all at every magnitude (a few, under the interpreter)."""
    generator = torch.Generator().manual_seed(channels * height + width)
    draw = lambda high, *shape: torch.randint(high, shape, generator=generator)  # noqa: E731
    images = draw(256, 5, channels, height, width).to(torch.uint8)
    images[1] //= 3  # dark
    images[2] = 77  # of one level
    images[3, :, :, : width // 2] = 200
    images = images.contiguous(memory_format=torch.channels_last)
    bins = range(MAGNITUDE_BINS) if LARGE else (0, 4, 17, 30)
    changes = torch.tensor(list(itertools.product(range(len(OPERATIONS)), bins, (0, 1)))).repeat(
        len(images), 1
    )
    n = len(changes) if trivial else 20
    changes = changes[:n] if trivial else torch.zeros(n, 3, dtype=torch.int64)
    indices = torch.arange(n) * len(images) // n
    offsets, flips = draw(9, n, 2), draw(2, n).bool()
    centers = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    plan = EpochPlan(indices, offsets, flips, centers, changes)
    mean, std = torch.rand(2, channels, generator=generator) + 0.1
    expected = crop_flip(images[indices], offsets, flips, pad=4)
    expected = trivial_augment(expected, *changes.unbind(1)) if trivial else expected
    expected = cut_out(standardize(expected, mean, std, dtype), centers, side=cutout)
    tables = make_tables(height, width, DEVICE) if trivial else None
    by_kernel = augment(
        images.to(DEVICE), plan.to(DEVICE), pad=4, cutout=cutout, mean=mean.to(DEVICE), std=std.to(DEVICE),
        dtype=dtype, tables=tables,
    )  # fmt: skip
    wrong = (by_kernel.cpu() != expected).flatten(1).any(dim=1)
    return sorted({OPERATIONS[op] for op in changes[wrong, 0].tolist()})


def main():
    sizes = [(3, 9, 14), (1, 7, 6)] + ([(3, 32, 32), (1, 28, 28), (3, 64, 64)] if LARGE else [])
    formats = [(torch.float32, 0), (torch.float32, 5)]
    formats += [(torch.bfloat16, 16)] if LARGE else []  # the interpreter cuts bfloat16 off
    failed = 0
    for (channels, height, width), trivial in itertools.product(sizes, (True, False)):
        for dtype, cutout in formats:
            wrong = check(channels, height, width, dtype, trivial=trivial, cutout=cutout)
            failed += bool(wrong)
            print(
                f"{channels}x{height}x{width} {dtype} {trivial=} {cutout=}: {wrong or 'equal'}",
                flush=True,
            )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
