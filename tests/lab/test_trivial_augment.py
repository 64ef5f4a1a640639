"""TrivialAugment on a batch against Pillow on one image at a time.

All operations are exact, but for one rounding. Color, Contrast and Sharpness are blended in float32: where Pillow was
compiled to fused multiply-adds, as for arm64, fewer than one pixel in a thousand differs, by one level.
"""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from levelhead_lab.fast import pack
from levelhead_lab.fast.fit_many import fit_many
from levelhead_lab.fast.job import Job
from levelhead_lab.lab import data, load, nets, train
from levelhead_lab.lab.data import Data, Split
from levelhead_lab.lab.epoch_plan import draw_plan
from levelhead_lab.lab.preprocess import Preprocess
from levelhead_lab.lab.recipe import Recipe, find_recipe
from levelhead_lab.lab.trivial_augment import MAGNITUDE_BINS, OPERATIONS, trivial_augment
from levelhead_lab.methods import METHODS

SIGNED = OPERATIONS[1:10]
LARGEST = {
    "ShearX": 0.99,
    "ShearY": 0.99,
    "TranslateX": 32.0,
    "TranslateY": 32.0,
    "Rotate": 135.0,
    "Brightness": 0.99,
    "Color": 0.99,
    "Contrast": 0.99,
    "Sharpness": 0.99,
}
BLENDED = ("Color", "Contrast", "Sharpness")
SHAPES = [(3, 32, 32), (1, 32, 32), (3, 20, 36), (1, 8, 8), (3, 2, 5)]


def by_pillow(image: np.ndarray, name: str, number: int, sign: int) -> np.ndarray:
    """Return an image [C, H, W] after one operation, as torchvision's TrivialAugmentWide does it by Pillow."""
    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    size = torch.linspace(0, LARGEST.get(name, 0.0), MAGNITUDE_BINS)[number].item() * (
        -1 if sign else 1
    )

    def affine(*matrix: float) -> Image.Image:
        return picture.transform(
            picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST
        )

    tangent = math.tan(math.radians(math.degrees(math.atan(size))))
    changed = {
        "Identity": lambda: picture,
        "ShearX": lambda: affine(1, tangent, 0, 0, 1, 0),
        "ShearY": lambda: affine(1, 0, 0, tangent, 1, 0),
        "TranslateX": lambda: affine(1, 0, -int(size), 0, 1, 0),
        "TranslateY": lambda: affine(1, 0, 0, 0, 1, -int(size)),
        "Rotate": lambda: picture.rotate(size, Image.Resampling.NEAREST),
        "Brightness": lambda: ImageEnhance.Brightness(picture).enhance(1 + size),
        "Color": lambda: ImageEnhance.Color(picture).enhance(1 + size),
        "Contrast": lambda: ImageEnhance.Contrast(picture).enhance(1 + size),
        "Sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(1 + size),
        "Posterize": lambda: ImageOps.posterize(picture, 8 - round(number / 5)),
        "Solarize": lambda: ImageOps.solarize(
            picture, torch.linspace(255, 0, MAGNITUDE_BINS)[number].item()
        ),  # type: ignore
        "AutoContrast": lambda: ImageOps.autocontrast(picture),
        "Equalize": lambda: ImageOps.equalize(picture),
    }[name]()
    return np.asarray(changed).reshape(*image.shape[1:], -1).transpose(2, 0, 1)


def assert_as_pillow(changed: np.ndarray, expected: np.ndarray, *, blended: bool) -> None:
    apart = np.abs(changed.astype(int) - expected)
    assert apart.max() <= blended
    assert (apart > 0).mean() < 1e-3


def pictures(shape: tuple[int, ...], n: int) -> np.ndarray:
    """Return images that differ in range: noise over all levels or a few, steps, and images of one level."""
    random = np.random.default_rng(0)
    low = random.integers(0, 256, (n, shape[0], 1, 1))
    high = random.integers(low, 256)
    levels = random.integers(low, high + 1, (n, *shape))
    levels[::4] = random.integers(0, 256, levels[::4].shape)
    levels[1::8] = np.arange(np.prod(shape)).reshape(shape) * 7 // 16 % 256
    levels[2::16] = 200
    levels[3::8] = levels[3::8] // 60 * 60
    return levels.astype(np.uint8)


def augmented(images: np.ndarray, name: str, numbers: np.ndarray, signs: np.ndarray) -> np.ndarray:
    operations = torch.full((len(images),), OPERATIONS.index(name))
    return trivial_augment(
        torch.tensor(images), operations, torch.tensor(numbers), torch.tensor(signs)
    ).numpy()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_equals_pillow_at_every_magnitude_and_sign(name, shape):
    numbers, signs = (x.ravel() for x in np.mgrid[:MAGNITUDE_BINS, :2])
    for shift in (0, 5):  # each magnitude on several kinds of images
        images = np.roll(pictures(shape, len(numbers)), shift, axis=0)
        expected = [
            by_pillow(image, name, number, sign)
            for image, number, sign in zip(images, numbers, signs, strict=True)
        ]
        assert_as_pillow(
            augmented(images, name, numbers, signs), np.stack(expected), blended=name in BLENDED
        )


def test_operations_are_mixed_in_one_batch_and_samples_do_not_meet():
    random = np.random.default_rng(1)
    images = pictures((3, 32, 32), 300)
    drawn = random.integers(0, (len(OPERATIONS), MAGNITUDE_BINS, 2), (300, 3))
    before = torch.tensor(images)
    changed = trivial_augment(before, *torch.tensor(drawn).T)
    expected = [
        by_pillow(image, OPERATIONS[op], number, sign)
        for image, (op, number, sign) in zip(images, drawn, strict=True)
    ]
    is_blended = np.isin(drawn[:, 0], [OPERATIONS.index(name) for name in BLENDED])
    for blended in (False, True):
        rows = is_blended == blended
        assert_as_pillow(changed.numpy()[rows], np.stack(expected)[rows], blended=blended)
    assert changed.dtype == torch.uint8
    assert torch.equal(before, torch.tensor(images))  # the argument is as it was
    last = before.contiguous(memory_format=torch.channels_last)
    assert torch.equal(trivial_augment(last, *torch.tensor(drawn).T), changed)
    assert changed.is_contiguous(memory_format=torch.channels_last)


def test_identity_and_the_weakest_signed_operations_leave_images_alone():
    images = pictures((3, 16, 16), 64)
    for name in ("Identity", *SIGNED):
        numbers = np.arange(64) % MAGNITUDE_BINS if name == "Identity" else np.zeros(64, int)
        np.testing.assert_array_equal(
            augmented(images, name, numbers, np.arange(64) % 2), images, err_msg=name
        )


class OpsOnMeta(TorchDispatchMode):
    """Collect the operations that run, and the devices of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.names, self.devices = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.names.add(func.name())
        self.devices |= {
            x.device.type
            for x in tree_leaves((args, kwargs, result))
            if isinstance(x, torch.Tensor)
        }
        return result


@pytest.mark.parametrize("channels", [1, 3])
def test_a_cuda_graph_can_capture_it(channels):
    """No value is read back, and nothing is copied from the host: `meta` tensors have no values and are not on it."""
    images = torch.zeros(7, channels, 32, 32, dtype=torch.uint8, device="meta")
    drawn = [torch.zeros(7, dtype=torch.int64, device="meta")] * 3
    trivial_augment(images, *drawn)  # fills the tables
    with OpsOnMeta() as ops:
        assert trivial_augment(images, *drawn).shape == images.shape
    assert ops.devices == {"meta"}
    assert {"aten::index.Tensor", "aten::scatter_add_"} <= ops.names


def drawn_plan(n: int, how: Recipe, seed: int = 0):
    return draw_plan(np.zeros(n, int), METHODS["baseline"], how, seed=seed, epoch=3, progress=0)


def test_the_draw_is_uniform_over_operations_bins_and_signs_and_changes_no_other():
    how = Recipe("plain", epochs=1, batch=8, lr=0.1, pad=4, flip=True, cutout=2)
    n = 14 * 31 * 2 * 40
    plain, varied = drawn_plan(n, how), drawn_plan(n, replace(how, augment="trivial"))
    assert all(
        torch.equal(x, y) for x, y in zip(plain.tensors[:4], varied.tensors[:4], strict=True)
    )
    assert not plain.changes.any()  # the identity
    cells = np.bincount(np.ravel_multi_index(varied.changes.numpy().T, (14, 31, 2)), minlength=868)
    assert len(cells) == 868
    squares = ((cells - 40) ** 2 / 40).sum()  # chi-squared with 867 degrees of freedom
    assert abs(squares - 867) < 4 * math.sqrt(2 * 867)
    assert not torch.equal(
        varied.changes, drawn_plan(n, replace(how, augment="trivial"), seed=1).changes
    )


def test_only_training_images_are_changed_after_the_crop_and_before_the_cutout():
    shown = pictures((3, 16, 16), 40)
    part = Split(shown, np.arange(40) % 2)
    how = replace(find_recipe("frontier"), mean=(0.5,) * 3, std=(0.5,) * 3, cutout=4)
    preprocess = Preprocess(how, Data("noise", ("a", "b"), part, part))
    plan = draw_plan(part.labels, METHODS["baseline"], how, seed=0, epoch=0, progress=0)
    augmented = preprocess.augmented(torch.tensor(shown), plan).numpy()
    padded = np.pad(shown, ((0, 0), (0, 0), (4, 4), (4, 4)))
    for x, i, (row, column), flip, (op, *how_much), center in zip(
        augmented,
        *(t.numpy() for t in plan.tensors[:3]),
        plan.changes.numpy(),
        plan.centers,
        strict=True,
    ):
        image = padded[i, :, row : row + 16, column : column + 16][:, :, :: -1 if flip else 1]
        image = (
            by_pillow(np.ascontiguousarray(image), OPERATIONS[op], *how_much) / 255 - 0.5
        ) / 0.5
        level = 1 / 127.5 if OPERATIONS[op] in BLENDED else 0
        down, across = (int(16 * float(c)) for c in center)
        image[:, max(0, down - 2) : down + 2, max(0, across - 2) : across + 2] = 0
        np.testing.assert_allclose(x, image, atol=level + 1e-6)
    untouched = preprocess.standardized(torch.tensor(shown)).numpy()
    np.testing.assert_allclose(untouched, (shown / 255 - 0.5) / 0.5, atol=1e-6)


def test_images_with_two_channels_are_refused():
    part = Split(np.zeros((4, 2, 8, 8), np.uint8), np.arange(4) % 2)
    with pytest.raises(
        ValueError,
        match="recipe frontier: augment: 'trivial' needs images with 1 or 3 channels, got",
    ):
        Preprocess(find_recipe("frontier"), Data("odd", ("a", "b"), part, part))


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 3])
def test_the_fast_engine_equals_the_plain_loop_under_the_recipe(slots, monkeypatch):
    monkeypatch.setattr(pack, "STEPS_PER_GRAPH", 2)
    digits = data.imbalance(load.digits(), "long-tail", ratio=20, largest=60)
    how = replace(find_recipe("frontier").stretched_to(3), batch=32, cutout=4, lr=0.02)
    names = ["baseline", "wvn", "balanced-softmax"]
    jobs = [
        Job(
            nets.build(
                "digits", 10, head=METHODS[name].head, shape=digits.shape, seed=seed
            ).double(),
            digits,
            how,
            METHODS[name],
            seed,
        )
        for seed, name in enumerate(names)
    ]
    expected = [copy.deepcopy(job.net) for job in jobs]
    for net, job in zip(expected, jobs, strict=True):
        train.fit(net, digits, how, job.method, seed=job.seed)
    states = fit_many(jobs, slots=slots, device="cpu", dtype=torch.float64, stacked=slots > 1)
    for state, net in zip(states, expected, strict=True):
        for name, weight in net.state_dict().items():
            if "num_batches" not in name:
                torch.testing.assert_close(state.weights[name], weight, rtol=0, atol=1e-12)
