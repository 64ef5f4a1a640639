"""All of the augmentation as one GPU kernel in Triton: crop, flip, TrivialAugment, standardizing and cutout.

A program makes one sample. It reads the stored image where its pixels come from, and writes the
input of the network: nothing between is stored. The result is, bit for bit, that of `preprocess`
and `trivial_augment` on a CPU, where each step is explained; here they are in the same order, on
pixels in registers, and names mean the same. Two rules keep the bits: integers wherever those have
integers, and divisions and products as they are written (`div_rn`, `enable_fp_fusion=False`).
"""

# pyright: reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false
import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from torch import Tensor

from .epoch_plan import EpochPlan
from .trivial_augment import MAGNITUDE_BINS, OPERATIONS, AugmentTables

_BINS = tl.constexpr(MAGNITUDE_BINS)
_AT = {name: tl.constexpr(position) for position, name in enumerate(OPERATIONS)}
BRIGHTNESS, COLOR, CONTRAST, SHARPNESS = (
    _AT[name] for name in ("Brightness", "Color", "Contrast", "Sharpness")
)
POSTERIZE, SOLARIZE, AUTO_CONTRAST, EQUALIZE = (
    _AT[name] for name in ("Posterize", "Solarize", "AutoContrast", "Equalize")
)


def augment(
    images: Tensor, plan: EpochPlan, *, pad: int, cutout: int, mean: Tensor, std: Tensor, dtype: torch.dtype,
    tables: AugmentTables | None,
) -> Tensor:  # fmt: skip
    """Return the samples of a plan, [n, C, H, W], in channels-last memory.

    Args:
        images: [N, C, H, W], uint8 in channels-last memory, of at most `MOST_KERNEL_PIXELS` pixels.
        plan: of n samples, on the same device; `plan.indices` say which of the N images they are.
        pad: pixels of black on each side, from which the crop is taken.
        cutout: side of the square that is cut out, an even number of pixels; 0 for none.
        mean, std: [C], float32, of pixels from 0 to 1.
        dtype: of the result.
        tables: of TrivialAugment, for images of this size; None without it.
    """
    _, channels, height, width = images.shape
    out = torch.empty(len(plan), height, width, channels, dtype=dtype, device=images.device)
    unused = plan.changes  # a kernel needs some address; without tables it reads none of these
    _augment_kernel[(len(plan),)](
        images, *(x.contiguous() for x in plan.tensors), mean, std,
        *((tables.matrices, tables.factors, tables.curves) if tables is not None else (unused,) * 3), out,
        height, width, pad, cutout // 2,
        CHANNELS=channels, PIXELS=triton.next_power_of_2(height * width), CUTOUT=cutout > 0,
        TRIVIAL=tables is not None, num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out.permute(0, 3, 1, 2)


@triton.jit
def _load(
    image, row, column, inside, top, left, flip, channel, height, width, CHANNELS: tl.constexpr
):
    """Load pixels of the crop as int32; those outside of the crop, or of the image, are 0.

    row and column are places in the crop, flipped as it is; top and left are where it begins in the
    image, below 0 where it begins in the padding. `inside` masks the vector's spare places.
    """
    inside = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    # From a place in the crop to one in the stored image.
    row, column = row + top, tl.where(flip, width - 1 - column, column) + left
    inside = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return tl.load(image + (row * width + column) * CHANNELS + channel, mask=inside, other=0).to(
        tl.int32
    )


@triton.jit
def _smooth(
    image, x, i, j, inside, top, left, flip, channel, height, width, CHANNELS: tl.constexpr
):
    """Return (1 1 1, 1 5 1, 1 1 1) / 13 around each pixel of the crop, x itself on the border.

    The neighbors are loaded again: a program has no way to reach those in its own registers.
    """
    around = 4 * x
    for down in tl.static_range(-1, 2):
        for across in tl.static_range(-1, 2):
            around += _load(
                image,
                i + down,
                j + across,
                inside,
                top,
                left,
                flip,
                channel,
                height,
                width,
                CHANNELS,
            )
    border = (i == 0) | (j == 0) | (i == height - 1) | (j == width - 1)
    return tl.where(border, x, (2 * around + 13) // 26)


@triton.jit
def _blend(x, degenerate, factor):
    """Return degenerate + factor (x - degenerate), cut off at 0 and 255, and rounded down.

    x and degenerate are levels as int32, factor is float32: 1 gives x, 0 the degenerate image.
    """
    value = degenerate.to(tl.float32) + factor * (x - degenerate).to(tl.float32)
    return tl.minimum(tl.maximum(value, 0.0), 255.0).to(tl.int32)


@triton.jit
def _stretch(x, inside):
    """Return levels from the darkest to the brightest pixel stretched to 0 to 255.

    In float64, as in `trivial_augment._map_levels`. Pixels that are not `inside` are left out of
    darkest and brightest; an image of one level stays as it is.
    """
    low, high = tl.min(tl.where(inside, x, 255), 0), tl.max(tl.where(inside, x, 0), 0)
    scale = 255.0 / tl.maximum(high - low, 1).to(tl.float64)
    stretched = (x.to(tl.float64) * scale - low.to(tl.float64) * scale).to(tl.int32)
    return tl.where(high > low, tl.minimum(tl.maximum(stretched, 0), 255), x)


@triton.jit
def _equalize(x, inside):
    """Return levels as even as they can be: each is the share of pixels below it.

    x are the levels of one channel of one image, int32; pixels that are not `inside` do not count.
    """
    # As in `trivial_augment._map_levels`, with a curve that is applied as it is made.
    histogram = tl.histogram(x, 256, mask=inside)
    high = tl.max(tl.where(inside, x, 0), 0)
    step = (tl.sum(histogram, 0) - tl.sum(tl.where(inside & (x == high), 1, 0), 0)) // 255
    below = tl.gather(tl.cumsum(histogram, 0) - histogram, tl.where(inside, x, 0), 0)
    return tl.where(step > 0, tl.minimum((step // 2 + below) // tl.maximum(step, 1), 255), x)


@triton.jit
def _store(out, x, p, inside, kept, mean, std, channel, CHANNELS: tl.constexpr):
    """Standardize a channel of a sample and store it: 0 where not `kept`, in the square cut out."""
    value = tl.div_rn(
        tl.div_rn(x.to(tl.float32), 255.0) - tl.load(mean + channel), tl.load(std + channel)
    )
    tl.store(
        out + p * CHANNELS + channel,
        tl.where(kept, value, 0.0).to(out.dtype.element_ty),
        mask=inside,
    )


@triton.jit
def _augment_kernel(
    images, indices, offsets, flips, centers, changes, mean, std, matrices, factors, curves, out,
    height, width, pad, half_cut,
    CHANNELS: tl.constexpr, PIXELS: tl.constexpr, CUTOUT: tl.constexpr, TRIVIAL: tl.constexpr,
):  # fmt: skip
    """Store one sample, [H, W, C]. With one channel, green and blue are red.

    PIXELS is the power of two that holds height x width, as Triton's vectors need it; `inside`
    masks the rest. Which operation a sample has is the same for all its pixels, so that a program
    takes one branch, and only that one costs time.
    """
    n = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PIXELS)
    inside, i, j = p < height * width, p // width, p % width
    # The stored image, and where the crop begins in it.
    image = images + tl.load(indices + n) * (height * width * CHANNELS)
    top, left = (
        (tl.load(offsets + 2 * n) - pad).to(tl.int32),
        (tl.load(offsets + 2 * n + 1) - pad).to(tl.int32),
    )
    flip = tl.load(flips + n) != 0
    green: tl.constexpr = 1 if CHANNELS == 3 else 0
    blue: tl.constexpr = 2 if CHANNELS == 3 else 0
    # Where each pixel of the crop comes from: itself, or where the operation's matrix says.
    row, column, operation, place = i, j, 0, n
    if TRIVIAL:
        operation = tl.load(changes + 3 * n).to(tl.int32)
        place = tl.load(changes + 3 * n) * _BINS + tl.load(changes + 3 * n + 1)  # operation and bin
        m = matrices + (2 * place + tl.load(changes + 3 * n + 2)) * 6
        # In 1/65536 of a pixel, in 64 bits, as the tables are.
        i64, j64 = i.to(tl.int64), j.to(tl.int64)
        column = ((tl.load(m) * j64 + tl.load(m + 1) * i64 + tl.load(m + 2)) >> 16).to(tl.int32)
        row = ((tl.load(m + 3) * j64 + tl.load(m + 4) * i64 + tl.load(m + 5)) >> 16).to(tl.int32)
    r = _load(image, row, column, inside, top, left, flip, 0, height, width, CHANNELS)
    g = _load(image, row, column, inside, top, left, flip, green, height, width, CHANNELS)
    b = _load(image, row, column, inside, top, left, flip, blue, height, width, CHANNELS)
    # Then its levels change: blended with a degenerate image, by a curve, or by the image's own
    # levels.
    if TRIVIAL:
        if (operation >= BRIGHTNESS) & (operation <= SHARPNESS):
            factor = tl.load(factors + 2 * place + tl.load(changes + 3 * n + 2))
            if operation == SHARPNESS:
                r = _blend(
                    r,
                    _smooth(image, r, i, j, inside, top, left, flip, 0, height, width, CHANNELS),
                    factor,
                )
                g = _blend(
                    g,
                    _smooth(
                        image, g, i, j, inside, top, left, flip, green, height, width, CHANNELS
                    ),
                    factor,
                )
                b = _blend(
                    b,
                    _smooth(image, b, i, j, inside, top, left, flip, blue, height, width, CHANNELS),
                    factor,
                )
            else:
                # Weights that add up to 65536.
                grey = (r * 19595 + g * 38470 + b * 7471 + 32768) >> 16
                average = (2 * tl.sum(tl.where(inside, grey, 0), 0) + height * width) // (
                    2 * height * width
                )
                x0 = tl.where(operation == COLOR, grey, tl.where(operation == CONTRAST, average, 0))
                r, g, b = _blend(r, x0, factor), _blend(g, x0, factor), _blend(b, x0, factor)
        elif (operation == POSTERIZE) | (operation == SOLARIZE):
            curve = curves + 256 * place
            r, g, b = (
                tl.load(curve + r).to(tl.int32),
                tl.load(curve + g).to(tl.int32),
                tl.load(curve + b).to(tl.int32),
            )
        elif operation == AUTO_CONTRAST:
            r, g, b = _stretch(r, inside), _stretch(g, inside), _stretch(b, inside)
        elif operation == EQUALIZE:
            r, g, b = _equalize(r, inside), _equalize(g, inside), _equalize(b, inside)
    # Last the square that is cut out, which lies in the input, not in the image.
    kept = inside
    if CUTOUT:
        down = i - tl.floor(tl.load(centers + 2 * n) * height).to(tl.int32)
        across = j - tl.floor(tl.load(centers + 2 * n + 1) * width).to(tl.int32)
        kept = (down < -half_cut) | (down >= half_cut) | (across < -half_cut) | (across >= half_cut)
    out += n * (height * width * CHANNELS)
    _store(out, r, p, inside, kept, mean, std, 0, CHANNELS)
    if CHANNELS == 3:
        _store(out, g, p, inside, kept, mean, std, 1, CHANNELS)
        _store(out, b, p, inside, kept, mean, std, 2, CHANNELS)
