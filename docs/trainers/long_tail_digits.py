"""Handwritten digits with a long tail, as two torch datasets, and a small network: what the trainers' pages use."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import levelhead as lh

# Training samples of each digit: 120 zeros, 4 nines.
counts = lh.counts.long_tail(120, 10, ratio=30)
pixels, labels = load_digits(return_X_y=True)
shuffled = np.random.default_rng(0).permutation(len(labels))
ranks = np.empty(len(labels), dtype=int)  # of each sample among those of its digit
for digit in range(10):
    of_digit = shuffled[labels[shuffled] == digit]
    ranks[of_digit] = np.arange(len(of_digit))

images = torch.tensor(pixels / 16, dtype=torch.float32)
digits = torch.tensor(labels)
in_train = torch.tensor(ranks < counts[labels])
in_held_out = torch.tensor((ranks >= 120) & (ranks < 170))  # as many of each digit
train = TensorDataset(images[in_train], digits[in_train])
held_out = TensorDataset(images[in_held_out], digits[in_held_out])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        return self.fc(self.body(x))
