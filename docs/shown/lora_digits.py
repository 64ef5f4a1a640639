"""Train a network on digits that lie on their side, and adapt it by LoRA to a long tail of upright ones."""

from collections import OrderedDict

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from torch import nn

import levelhead as lh

_ = torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images / 16, dtype=torch.float32), torch.tensor(digits.target)
counts = lh.counts.long_tail(100, 10, 20)
by_class = [np.flatnonzero(digits.target == k) for k in range(10)]
train = torch.tensor(np.concatenate([rows[:n] for rows, n in zip(by_class, counts, strict=True)]))
held_out, test = (
    np.concatenate([rows[a:b] for rows in by_class]) for a, b in ((-70, -50), (-50, None))
)
layers = OrderedDict(
    flat=nn.Flatten(),
    first=nn.Linear(64, 128),
    relu=nn.ReLU(),
    second=nn.Linear(128, 128),
    again=nn.ReLU(),
)
model = nn.Sequential(OrderedDict(**layers, classifier=nn.Linear(128, 10)))


def fit(model, x, y, rate, epochs):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()


# Trained before, on digits that lie on their side.
fit(model, images.rot90(1, (1, 2)), labels, 1e-3, 10)
model.classifier = nn.Linear(128, 10)
model = get_peft_model(
    model, LoraConfig(r=4, target_modules=["first", "second"], modules_to_save=["classifier"])
)
fit(model, images[train], labels[train], 2e-3, 20)
_ = model.eval()
with torch.no_grad():
    before = model(images[test])
