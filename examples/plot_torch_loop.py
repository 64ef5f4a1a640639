"""
WVN in a plain torch loop
=========================

Training with weight vector normalization is one line next to the optimizer: ``lh.WVN(optimizer,
layer)`` brings every weight vector of the head to unit length after every step. This example trains
a small network on a long tail of scikit-learn's digits, plainly and with WVN, and then adjusts both
with RS.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import levelhead as lh

torch.set_num_threads(1)

# %%
# A long tail of digits: 100 images of a 0, 64 of a 1, down to 2 of a 9. The last 50 images of each
# class are the test set; the 10 before them were labelled to choose gamma on, and are never trained
# on.

digits = load_digits()
images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
counts = lh.counts.long_tail(100, 10, 50)
by_class = [np.flatnonzero(digits.target == k) for k in range(10)]
train = torch.tensor(np.concatenate([rows[:n] for rows, n in zip(by_class, counts, strict=True)]))
held_out, test = (
    np.concatenate([rows[a:b] for rows in by_class]) for a, b in ((-60, -50), (-50, None))
)
print("training images of each class:", *counts)

# %%
# The loop is the usual one. Only one line tells the two trainings apart.


def fit(wvn: bool, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Train, and return the logits of all images and the head's norms, epoch by epoch."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    if wvn:
        lh.WVN(optimizer, model[2])
    norms = []
    for _ in range(60):
        for batch in train[torch.randperm(len(train))].split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        norms.append(model[2].weight.detach().norm(dim=1).numpy())
    return model(images).detach().numpy(), norms


# %%
# Left alone, the weight vectors grow by how frequent their class is. Under WVN there is nothing to
# grow.

(plain, plain_norms), (with_wvn, wvn_norms) = fit(False, seed=0), fit(True, seed=0)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for axes, title, norms in zip(panels, ("plain", "WVN"), (plain_norms, wvn_norms), strict=True):
    for k, line in enumerate(np.array(norms).T):
        axes.plot(line, color=plt.cm.viridis(k / 9), label=f"{k} ({counts[k]})")
    axes.set(title=title, xlabel="epoch")
panels[0].set_ylabel("length of the weight vector")
figure.legend(
    *panels[0].get_legend_handles_labels(),
    loc="outside right upper",
    title="digit (images)",
    frameon=False,
)
plt.show()

# %%
# gamma is chosen on the held-out images, for each network on its own, and then judged on the test
# images. Three seeds: one run of so small a network says little.

rows = {"plain": [], "plain + RS": [], "WVN": [], "WVN + RS": []}
for seed in range(3):
    for name, wvn in (("plain", False), ("WVN", True)):
        logits, _ = fit(wvn, seed)
        gamma = lh.tune(logits[held_out], digits.target[held_out], counts, rule="rescale").strength
        path = lh.gamma_path(logits[test], digits.target[test], counts)
        rows[name].append(100 * path.at(0.0).error)
        rows[f"{name} + RS"].append(100 * path.at(gamma).error)
print("test error in %, seeds 0, 1, 2")
for name, errors in rows.items():
    print(f"{name:12} {np.mean(errors):5.1f}   ({', '.join(f'{error:.1f}' for error in errors)})")

# %%
# WVN alone does not favor rare classes: here its error is even a little higher than the plain one.
# RS is what lowers the error, to about the same for both. What WVN brings shows below: its curve
# over gamma is flatter, so a gamma that is a little off costs less.

figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
for name, logits, color in (("plain", plain, "#94a3b8"), ("WVN", with_wvn, "#c2410c")):
    path = lh.gamma_path(logits[test], digits.target[test], counts, range=(0.0, 1.5))
    axes.stairs(
        100 * path.error, np.r_[path.gammas, 1.5], baseline=None, color=color, lw=1.6, label=name
    )
axes.set(xlabel="gamma", ylabel="test error, %", title="seed 0, judged on the test images")
axes.legend(frameon=False)
# sphinx_gallery_thumbnail_number = -1
plt.show()
