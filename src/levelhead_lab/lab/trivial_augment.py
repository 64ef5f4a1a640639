"""TrivialAugment, wide: one of 14 operations at one of 31 magnitudes on each image of a batch.

A sample has a matrix, a blend and a curve of levels, all but one of them the identity. So a batch
takes three passes, whatever its operations are: `_move` (shear, translate, rotate), `_blend`
(brightness, color, contrast, sharpness), `_map_levels` (posterize, solarize, auto-contrast,
equalize). What an operation at a magnitude means is in the tables of `make_tables`. Shapes do not
depend on values, and nothing waits for the device: a CUDA graph can capture it.

The results are those of Pillow, to the bit, by which torchvision's TrivialAugmentWide works on
images; so its roundings are repeated here, each with a word about it. Images are [B, C, H, W] when
they come and go, and [B, H, W, C] in between.
"""

import math
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

OPERATIONS = (
    "Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast",
    "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
)  # fmt: skip
BLENDS = ("Brightness", "Color", "Contrast", "Sharpness")  # of the image and a degenerate one
MAGNITUDE_BINS = 31


def trivial_augment(images: Tensor, operations: Tensor, bins: Tensor, signs: Tensor) -> Tensor:
    """Change each image by one operation.

    Args:
        images: [B, C, H, W], uint8 with 1 or 3 channels.
        operations: [B], positions in `OPERATIONS`.
        bins: [B], magnitudes from 0 to 30. The last is a shear of 0.99, 32 pixels, 135 degrees, a
            factor of 1.99 or 0.01 (the brightness and the three after it), 2 bits or a threshold of
            0.
        signs: [B], 1 for the negative magnitude, 0 for the positive; it matters for ShearX to
            Sharpness.

    Solarize with a threshold of 0 inverts all levels:

    >>> image = torch.tensor([[[[0, 100], [200, 255]]]], dtype=torch.uint8)
    >>> solarize = torch.tensor([OPERATIONS.index("Solarize")])
    >>> trivial_augment(image, solarize, torch.tensor([30]), torch.tensor([0])).tolist()
    [[[[255, 155], [55, 0]]]]

    Pixels come from the nearest one; those from outside of the image are 0. The result is in
    channels-last memory.

    Reference: Müller and Hutter, TrivialAugment: Tuning-free Yet State-of-the-Art Data
        Augmentation, 2021.
    """
    tables = make_tables(*images.shape[2:], images.device)
    moved = _move(images, tables.matrices[operations, bins, signs])
    blended = _blend(moved, operations, tables.factors[operations, bins, signs])
    return _map_levels(blended, operations, tables.curves[operations, bins]).permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class AugmentTables:
    """What operations at a magnitude do, on one device, for images of one size.

    Where an operation does nothing of the kind, the entry is the identity.
    """

    # [14, 31, 2, 6]: operation, magnitude, sign; from a pixel to its source, in 1/65536 of a pixel,
    # as in Pillow.
    matrices: Tensor
    factors: Tensor  # [14, 31, 2], of the image against the degenerate one
    curves: Tensor  # [14, 31, 256], the new level of each


@cache  # copied once: the host would wait for a copy in every step
def make_tables(height: int, width: int, device: torch.device) -> AugmentTables:
    """Return the tables for images of a size; a translation or a rotation depends on it.

    Args:
        height, width: of the images.
        device: on which the tables are wanted.
    """
    matrices = []
    factors = []
    curves = []
    for operation, number in product(OPERATIONS, range(MAGNITUDE_BINS)):
        curves.append(_curve(operation, number))
        for sign in (1, -1):
            matrices.append(_matrix(operation, number, sign, height, width))
            factor = 1.0
            if operation in BLENDS:
                factor = 1 + sign * _magnitude(operation, number)
            factors.append(factor)
    shape = len(OPERATIONS), MAGNITUDE_BINS
    return AugmentTables(
        torch.tensor(matrices).view(*shape, 2, 6).to(device),
        torch.tensor(factors).view(*shape, 2).to(device),
        torch.tensor(curves, dtype=torch.uint8).view(*shape, 256).to(device),
    )


def _magnitude(operation: str, number: int) -> float:
    """Return a magnitude by its number: from the first to the last in equal steps.

    In float32, as in torchvision: in float64 some results would be other ones.

    Args:
        operation: one of `OPERATIONS`.
        number: from 0 to 30.

    >>> _magnitude("Rotate", 0), _magnitude("Rotate", 10), _magnitude("Rotate", 30)
    (0.0, 45.0, 135.0)
    """
    first, last = {
        "TranslateX": (0, 32),
        "TranslateY": (0, 32),
        "Rotate": (0, 135),
        "Posterize": (8, 2),
        "Solarize": (255, 0),
    }.get(operation, (0, 0.99))
    return torch.linspace(first, last, MAGNITUDE_BINS)[number].item()


def _matrix(operation: str, number: int, sign: int, height: int, width: int) -> list[int]:
    """Return [a, b, c, d, e, f], which say where each pixel comes from.

    Pixel (x, y) is the one at ``(a x + b y + c, d x + e y + f)``, in units of 1/65536: Pillow, too,
    walks through an image in fixed point.

    Args:
        operation, number: which change, and its magnitude by number.
        sign: 1 or -1, of the magnitude.
        height, width: of the image.

    A translation by 32 pixels to the right, with the half pixel of its centers:

    >>> [value / 65536 for value in _matrix("TranslateX", 30, 1, height=64, width=64)]
    [1.0, 0.0, -31.5, 0.0, 1.0, 0.5]
    """
    size = sign * _magnitude(operation, number)
    # Pillow rounds them too, so that a rotation by 90 degrees is exact.
    cosine = round(math.cos(math.radians(-size)), 15)
    sine = round(math.sin(math.radians(-size)), 15)
    x = width / 2  # the center of a rotation
    y = height / 2
    a, b, c, d, e, f = {
        "ShearX": (1, size, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, size, 1, 0),
        "TranslateX": (1, 0, -int(size), 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, -int(size)),
        "Rotate": (
            cosine,
            sine,
            x - cosine * x - sine * y,
            -sine,
            cosine,
            y + sine * x - cosine * y,
        ),
    }.get(operation, (1, 0, 0, 0, 1, 0))
    # A pixel's center is at one half: (x + 1/2, y + 1/2) is mapped, and its source rounded down.
    centered = (a, b, c + a / 2 + b / 2, d, e, f + d / 2 + e / 2)
    return [math.floor(65536 * value + 0.5) for value in centered]


def _curve(operation: str, number: int) -> list[int]:
    """Return the new level of each of the 256 levels, [256].

    Of the operations for which these do not depend on the image; for all others it is the identity.

    >>> _curve("Posterize", 30)[:130:32], _curve("Rotate", 30)[:130:32]
    ([0, 0, 64, 64, 128], [0, 32, 64, 96, 128])
    """
    if operation == "Posterize":
        dropped = round(6 * number / (MAGNITUDE_BINS - 1))  # bits, the lowest
        return [level >> dropped << dropped for level in range(256)]
    if operation == "Solarize":
        threshold = _magnitude(operation, number)
        kept = [level for level in range(256) if level < threshold]
        inverted = [255 - level for level in range(256) if level >= threshold]
        return [*kept, *inverted]
    return list(range(256))


def _move(images: Tensor, matrices: Tensor) -> Tensor:
    """Return images [B, H, W, C], each pixel taken from where the matrices say; 0 from outside.

    Args:
        images: [B, C, H, W].
        matrices: [B, 6], of `AugmentTables.matrices`.
    """
    batch, _, height, width = images.shape
    across = torch.arange(width, device=images.device)
    down = torch.arange(height, device=images.device)[:, None]
    a, b, c, d, e, f = matrices[..., None, None].unbind(1)  # [B, 1, 1]
    # The source of each pixel, [B, H, W]; to shift by 16 bits rounds down, below 0 too.
    columns = (a * across + b * down + c) >> 16
    rows = (d * across + e * down + f) >> 16
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    sample = torch.arange(batch, device=images.device)[:, None, None]
    pixels = images[sample, :, rows.clamp(0, height - 1), columns.clamp(0, width - 1)]
    return pixels * inside[..., None]


def _blend(images: Tensor, operations: Tensor, factors: Tensor) -> Tensor:
    """Return ``x0 + factor (x - x0)`` of images x [B, H, W, C].

    x0 is the degenerate image: black for brightness, grey for color, of the mean level for
    contrast, smoothed for sharpness. All four are computed of every sample, and one is taken.

    Args:
        operations: [B], positions in `OPERATIONS`.
        factors: [B]; 1 leaves the image as it is.
    """
    x = images.int()
    pixels = x.shape[1] * x.shape[2]
    # Grey is the luma of ITU-R 601-2 in integers: the weights add up to 65536, and half of that
    # rounds to the nearest.
    if x.shape[3] == 3:
        weights = (19595, 38470, 7471)
    else:
        weights = (65536,)
    luma = torch.full_like(x[..., 0], 32768)
    for channel, weight in enumerate(weights):
        luma = luma + x[..., channel] * weight
    grey = luma >> 16
    # The mean level, rounded to the nearest: floor(total / pixels + 1/2).
    mean = (2 * grey.sum(dim=(1, 2)) + pixels) // (2 * pixels)

    # (1 1 1, 1 5 1, 1 1 1) / 13, rounded to the nearest; on the border the image as it is.
    smooth = x.clone()
    rows = x[:, :-2] + x[:, 1:-1] + x[:, 2:]
    around = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:] + 4 * x[:, 1:-1, 1:-1]
    smooth[:, 1:-1, 1:-1] = (2 * around + 13) // 26

    def is_operation(name: str) -> Tensor:  # [B, 1, 1, 1]
        return (operations == OPERATIONS.index(name))[:, None, None, None]

    # What each sample is blended with. Where nothing is blended the factor is 1, and this does not
    # matter.
    degenerate = torch.where(is_operation("Color"), grey[..., None], smooth)
    of_mean_level = mean.int()[:, None, None, None]
    degenerate = torch.where(is_operation("Contrast"), of_mean_level, degenerate)
    degenerate = degenerate.masked_fill(is_operation("Brightness"), 0)
    # In float32, and cut off, as in Pillow.
    blended = degenerate + factors[:, None, None, None] * (x - degenerate)
    return blended.clamp(0, 255).to(torch.uint8)


def _map_levels(images: Tensor, operations: Tensor, curves: Tensor) -> Tensor:
    """Return images [B, H, W, C] with other levels.

    AutoContrast and Equalize make a curve for each channel from the image itself; all others have
    the curve that they are given.

    Args:
        operations: [B], positions in `OPERATIONS`.
        curves: [B, 256], the new level of each.
    """
    batch, height, width, channels = images.shape
    levels = torch.arange(256, device=images.device)
    # Every channel of every sample has a curve of its own; all of them lie one behind the other.
    curve = torch.arange(batch * channels, device=images.device).view(batch, 1, 1, channels)
    places = 256 * curve + images  # of each pixel in [B, C, 256]
    low = images.amin(dim=(1, 2)).long()[..., None]  # [B, C, 1]
    high = images.amax(dim=(1, 2)).long()[..., None]

    # AutoContrast: from the darkest to the brightest level, stretched to 0 to 255; one level stays
    # as it is.
    span = (high - low).clamp(min=1).double()
    scale = torch.full_like(span, 255) / span  # 255 / span would be 255 times a rounded 1 / span
    stretched = (levels * scale - low * scale).long().clamp(0, 255)
    stretched = torch.where(high > low, stretched, levels)

    # Equalize: each level becomes the number of pixels below it, in steps that fill 0 to 255.
    histogram = torch.zeros(batch * channels * 256, dtype=torch.int32, device=images.device)
    ones = torch.ones_like(histogram[:1]).expand(places.numel())
    histogram.scatter_add_(0, places.flatten(), ones)
    histogram = histogram.view(batch, channels, 256)
    # Of all pixels but those of the highest level.
    step = (height * width - histogram.gather(2, high)) // 255
    below = histogram.cumsum(dim=2) - histogram
    even = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    equalized = torch.where(step > 0, even, levels)

    auto = (operations == OPERATIONS.index("AutoContrast"))[:, None, None]
    equal = (operations == OPERATIONS.index("Equalize"))[:, None, None]
    new_levels = torch.where(auto, stretched, torch.where(equal, equalized, curves[:, None].long()))
    return new_levels.to(torch.uint8).flatten()[places]
