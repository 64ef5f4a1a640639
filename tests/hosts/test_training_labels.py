"""Counts from the data that a trainer trains on, however it holds its labels."""

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from levelhead.hosts._training_labels import count_training_labels

Y = [0] * 7 + [1] * 3 + [2] * 2
X = torch.zeros(12, 4)


class Images(torch.utils.data.Dataset):
    """As torchvision's datasets are: `targets`, and items that take time to read."""

    targets = Y

    def __init__(self, readable=False, target_transform=None):
        self.readable, self.target_transform = readable, target_transform

    def __len__(self):
        return 12

    def __getitem__(self, i):
        assert self.readable, "an image was read"
        return X[i], Y[i] if self.target_transform is None else self.target_transform(Y[i])


def counts(data, **options):
    return count_training_labels(DataLoader(data, **options), 3).tolist()


@pytest.mark.parametrize(
    "data",
    [
        TensorDataset(X, torch.tensor(Y)),
        Images(),
        [(x, y) for x, y in zip(X, Y, strict=True)],
        [{"x": x, "label": y} for x, y in zip(X, Y, strict=True)],
        [{"x": x, "labels": torch.tensor(y)} for x, y in zip(X, Y, strict=True)],
        Subset(TensorDataset(torch.zeros(14, 1), torch.tensor([2, *Y, 2])), range(1, 13)),
        ConcatDataset([Subset(Images(), range(5)), Subset(Images(), range(5, 12))]),
        [
            {"ids": [1, 2], "labels": part}
            for part in ([-100, 0, 0, 0, 0, -100], [0, 0, 0, 1, 1], [1, 2, 2, -100])
        ],
    ],
    ids=[
        "tensors",
        "targets",
        "tuples",
        "dicts",
        "tensors-in-dicts",
        "subset",
        "concatenated",
        "tokens",
    ],
)
def test_labels_are_counted(data):
    assert counts(data) == [7, 3, 2]


def test_labels_that_a_transform_changes_are_read_item_by_item():
    assert counts(Images(readable=True, target_transform=lambda y: 2 - y)) == [2, 3, 7]


def test_column_of_a_hugging_face_dataset_is_counted():
    datasets = pytest.importorskip("datasets")
    assert counts(datasets.Dataset.from_dict({"text": ["a"] * 12, "label": Y})) == [7, 3, 2]
    tokens = datasets.Dataset.from_dict({"labels": [[0] * 7, [1, -100, 1], [1, 2, 2]]})
    assert counts(tokens) == [7, 3, 2]


def test_a_sampler_of_a_part_of_the_data_has_the_labels_of_that_part():
    part = SubsetRandomSampler([0, 1, 7, 8, 9, 11])
    assert counts(Images(), sampler=part) == [2, 3, 1]
    assert counts(Images(), batch_sampler=BatchSampler(part, 2, drop_last=False)) == [2, 3, 1]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(X[0], 0)])


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            TensorDataset(X, torch.tensor(Y)),
            {"sampler": WeightedRandomSampler([1.0] * 12, 12)},
            "by weight.*pass counts",
        ),
        (Stream(), {}, "cannot be read ahead.*pass counts"),
        ([{"x": 1, "soft": 2}], {}, "got a dict with x, soft.*pass counts"),
        ([(0, np.array([1, 0, 0])), (0, np.array([0, 1, 0]))], {}, "row of labels"),
        ([(0, np.array([0.5, 0.5, 0])), (0, np.array([0, 1.0, 0]))], {}, "row of labels"),
        ([(0, 3)], {}, "expected labels from 0 to 2, got 3"),
    ],
)
def test_labels_that_are_not_known_are_asked_for(data, options, message):
    with pytest.raises(ValueError, match=message):
        counts(data, **options)
