"""
A model that is already trained
===============================

Nothing is trained again here: a torch module comes in, its head is found and changed in place, and
it goes out. All that is needed besides the model are some labelled images that it was not trained
on and, if they are known, the counts of its training set.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import levelhead as lh

torch.set_num_threads(1)

# %%
# First, a trained model, so that the example runs anywhere: a small network on a long tail of
# scikit-learn's digits, 100 images of a 0 down to 2 of a 9. Skip this cell if you have one.

digits = load_digits()
images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
counts = lh.counts.long_tail(100, 10, 50)
by_class = [np.flatnonzero(digits.target == k) for k in range(10)]
train = torch.tensor(np.concatenate([rows[:n] for rows, n in zip(by_class, counts, strict=True)]))
held_out, test = (
    np.concatenate([rows[a:b] for rows in by_class]) for a, b in ((-60, -50), (-50, None))
)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
for _ in range(60):
    for batch in train[torch.randperm(len(train))].split(32):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()

# %%
# Choose
# ------
# Ten images of each class were labelled for this. A number is found for each class, and ``gain`` is
# what it brought on images that the fit had not seen.

with torch.no_grad():
    logits = model(images[held_out]).numpy()
tuned = lh.tune(logits, digits.target[held_out], counts)
print(tuned.summary())

# %%
# The same as a picture.

tuned.plot()
plt.show()

# %%
# Adjust the head
# ---------------
# ``adjust_`` finds the head (or refuses, with the candidates) and adds the numbers to its bias.

with torch.no_grad():
    before = model(images[test]).numpy()
adjusted = lh.adjust_(model, tuned)
with torch.no_grad():
    after = model(images[test]).numpy()
print(adjusted)

# %%
# What it did
# -----------
# On 500 test images, 50 of each class, which neither the network nor the choice has seen:

y = digits.target[test]
for name, logits in (("before", before), ("after", after)):
    recall = lh.measure.recall(logits, y)
    print(
        f"{name:7} error {lh.measure.error(logits, y):6.1%}   recall of 0 to 4 {recall[:5].mean():6.1%}   "
        f"of 5 to 9 {recall[5:].mean():6.1%}   of the rarest, 9, {recall[9]:6.1%}"
    )

# %%
# Class by class, most frequent first. The recall of rare classes rises, and frequent ones pay a
# little for it: that is the trade. If your own test set is as long-tailed as your training set, the
# trade may not be worth it.

figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for i, (name, logits) in enumerate((("as trained", before), ("adjusted", after))):
    axes.bar(np.arange(10) + 0.4 * i, 100 * lh.measure.recall(logits, y), 0.38, label=name)
axes.set_xticks(np.arange(10) + 0.2, [f"{k}\n{n}" for k, n in enumerate(counts)])
axes.set(xlabel="digit, and its training images", ylabel="recall, %")
axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
adjusted.restore()  # puts the old head back
# sphinx_gallery_thumbnail_number = -1
plt.show()
