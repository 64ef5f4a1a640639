"""
Lightning: two callbacks
========================

``WVNCallback`` keeps the head's weight vectors at unit length through ``fit``, at every real
optimizer step, with accumulated batches and mixed precision too. ``AdjustCallback`` adjusts the head
once, when ``fit`` has ended. The module itself stays as it is.
"""

import logging
import warnings

import lightning.pytorch as pl
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import levelhead as lh
from levelhead.hosts.lightning import AdjustCallback, WVNCallback

torch.set_num_threads(1)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")  # advice on workers, for 276 images in memory

# %%
# A long tail of scikit-learn's digits: 100 images of a 0 down to 2 of a 9; 10 held-out and 50 test
# images of each class.

digits = load_digits()
images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
counts = lh.counts.long_tail(100, 10, 50)
by_class = [np.flatnonzero(digits.target == k) for k in range(10)]
train = np.concatenate([rows[:n] for rows, n in zip(by_class, counts, strict=True)])
held_out, test = (
    np.concatenate([rows[a:b] for rows in by_class]) for a, b in ((-60, -50), (-50, None))
)

# %%
# An ordinary LightningModule, which knows nothing of levelhead.


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)


def fit(*callbacks: pl.Callback) -> Classifier:
    pl.seed_everything(0, verbose=False)
    model = Classifier()
    loader = DataLoader(TensorDataset(images[train], labels[train]), batch_size=32, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=40,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    return model


# %%
# Train with WVN. A head that has a usual name (``fc``, ``classifier``, ``head``) is found by
# itself; this one is named by its path, or the callback would refuse and list the candidates.

model = fit(WVNCallback("net.2"))
print("norms:", model.net[2].weight.norm(dim=1).detach().numpy().round(3))

# %%
# The offsets are chosen on held-out logits, when the training is over.

with torch.no_grad():
    as_trained = model(images[test]).numpy()
    tuned = lh.tune(model(images[held_out]).numpy(), digits.target[held_out], counts)
for title, words in tuned.facts().items():
    print(f"{title}: {words}")
tuned.plot()
plt.show()

# %%
# From now on the offsets are known, and the next training of the same kind can end with them:
# checkpoints hold the head as it was trained, so that training can go on from them, and the module in
# memory has the adjusted one. (What one training needs is a good guess for the next, no more: tune
# again if you can.)

adjusting = AdjustCallback(tuned, layer="net.2")
model = fit(WVNCallback("net.2"), adjusting)
print(adjusting.adjusted)
with torch.no_grad():
    adjusted = model(images[test]).numpy()

# %%
# On 500 test images. Both trainings began with the same seed, so that only the adjustment tells
# them apart. The interval of the gain above says how much of such a difference a hundred held-out
# images can tell.

y = digits.target[test]
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for i, (name, logits, color) in enumerate(
    (("WVN", as_trained, "#94a3b8"), ("WVN, adjusted", adjusted, "#c2410c"))
):
    error = lh.measure.error(logits, y)
    print(f"{name:12} test error {error:.1%}")
    axes.bar(
        np.arange(10) + 0.4 * i,
        100 * lh.measure.recall(logits, y),
        0.38,
        color=color,
        label=f"{name}: error {error:.1%}",
    )
axes.set_xticks(np.arange(10) + 0.2, [f"{k}\n{n}" for k, n in enumerate(counts)])
axes.set(xlabel="digit, and its training images", ylabel="recall, %")
axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
# sphinx_gallery_thumbnail_number = -1
plt.show()
