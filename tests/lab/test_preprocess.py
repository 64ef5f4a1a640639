"""Crop, flip and cutout against padding and slicing one image at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from levelhead_lab.lab.data import Data, Split
from levelhead_lab.lab.epoch_plan import draw_plan
from levelhead_lab.lab.preprocess import Preprocess, crop_flip, cut_out, standardize
from levelhead_lab.lab.recipe import Recipe, find_recipe
from levelhead_lab.methods import METHODS


def one_by_one(images, offsets, flips, pad):
    padded = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    height, width = images.shape[2:]
    out = []
    for image, (row, column), flip in zip(padded, offsets, flips, strict=True):
        crop = image[:, row : row + height, column : column + width]
        out.append(crop[:, :, ::-1] if flip else crop)
    return np.stack(out)


@pytest.mark.parametrize(
    ("shape", "pad"), [((64, 3, 32, 32), 4), ((40, 1, 8, 5), 2), ((7, 3, 6, 6), 0)]
)
def test_crop_flip_equals_padding_and_slicing_each_image(shape, pad):
    random = np.random.default_rng(0)
    images = random.integers(1, 256, shape, dtype=np.uint8)
    offsets = random.integers(0, 2 * pad + 1, (shape[0], 2))
    flips = random.random(shape[0]) < 0.5
    moved = crop_flip(torch.tensor(images), torch.tensor(offsets), torch.tensor(flips), pad=pad)
    assert moved.dtype == torch.uint8
    np.testing.assert_array_equal(moved.numpy(), one_by_one(images, offsets, flips, pad))


def test_the_center_crop_without_flip_is_the_image():
    images = torch.randint(0, 256, (5, 3, 9, 7), dtype=torch.uint8)
    center = torch.full((5, 2), 4)
    assert torch.equal(crop_flip(images, center, torch.zeros(5, dtype=torch.bool), pad=4), images)


def test_crop_flip_gives_channels_last_memory():
    images = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    moved = crop_flip(
        images, torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4, dtype=torch.bool), pad=1
    )
    assert moved.is_contiguous(memory_format=torch.channels_last)
    assert standardize(moved, [0.5] * 3, [0.2] * 3).is_contiguous(memory_format=torch.channels_last)


def test_padding_is_black_before_standardization():
    images = torch.full((1, 1, 4, 4), 255, dtype=torch.uint8)
    moved = crop_flip(images, torch.tensor([[0, 0]]), torch.tensor([False]), pad=1)
    values = standardize(moved, [0.25], [0.5])
    assert values[0, 0, 0].tolist() == [-0.5] * 4  # (0 - 0.25) / 0.5, not 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_standardize_is_the_formula(dtype):
    images = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8)
    mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2023, 0.1994, 0.2010])
    expected = (images.numpy() / 255 - mean[:, None, None]) / std[:, None, None]
    values = standardize(images, mean.tolist(), std.tolist(), dtype)
    assert values.dtype == dtype
    np.testing.assert_allclose(values.double().numpy(), expected, atol=5 * torch.finfo(dtype).eps)


def test_standardize_says_how_many_means_it_needs():
    with pytest.raises(ValueError, match="expected 3 means and stds, one per channel, got 1 and 1"):
        standardize(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), [0.5], [0.5])


@pytest.mark.parametrize("side", [2, 4, 16])
def test_cut_out_zeroes_a_square_of_each_image(side):
    random = np.random.default_rng(0)
    x, centers = random.normal(size=(50, 3, 9, 12)), random.random((50, 2))
    cut = cut_out(torch.tensor(x), torch.tensor(centers), side=side).numpy()
    rows = set()
    for image, was, (down, across) in zip(cut, x, centers, strict=True):
        row, column, half = int(down * 9), int(across * 12), side // 2
        was[:, max(0, row - half) : row + half, max(0, column - half) : column + half] = 0
        np.testing.assert_array_equal(image, was)
        rows.add(row)
    assert rows == set(range(9))  # the edge is as likely as the middle


def test_no_cutout_is_the_image():
    x = torch.randn(2, 3, 4, 4)
    assert cut_out(x, torch.zeros(2, 2), side=0) is x


def test_cutout_spares_the_images_that_are_evaluated():
    shown = np.full((6, 1, 4, 4), 255, np.uint8)
    part = Split(shown, np.arange(6) % 2)
    how = Recipe("cut", epochs=1, batch=6, lr=0.1, cutout=2, mean=(0.5,), std=(0.5,))
    preprocess = Preprocess(how, Data("white", ("a", "b"), part, part))
    drawn = draw_plan(part.labels, METHODS["baseline"], how, seed=0, epoch=0, progress=0)
    trained_on = preprocess.augmented(torch.tensor(shown), drawn)
    assert ((trained_on == 0).sum(dim=(1, 2, 3)) > 0).all()  # the mean, where white is 1
    assert (preprocess.standardized(torch.tensor(shown)) == 1).all()


@pytest.mark.parametrize(
    ("shape", "side"), [((8, 8), 4), ((8, 12), 4), ((15, 40), 6), ((16, 16), 16), ((32, 32), 16)]
)
def test_cutout_leaves_something_of_images_smaller_than_it(shape, side):
    white = np.full((60, 1, *shape), 255, np.uint8)
    part = Split(white, np.arange(60) % 2)
    how = replace(find_recipe("frontier"), augment="none", pad=0, mean=(0.5,), std=(0.5,))
    drawn = draw_plan(part.labels, METHODS["baseline"], how, seed=0, epoch=0, progress=0)
    augmented = Preprocess(how, Data("white", ("a", "b"), part, part)).augmented(
        torch.tensor(white), drawn
    )
    half = side // 2
    for image, (down, across) in zip(augmented.numpy(), drawn.centers.numpy(), strict=True):
        expected, row, column = np.ones(shape), int(down * shape[0]), int(across * shape[1])
        expected[max(0, row - half) : row + half, max(0, column - half) : column + half] = 0
        np.testing.assert_array_equal(image[0], expected)
    assert (augmented == 1).any(dim=(1, 2, 3)).float().mean() > 0.9
