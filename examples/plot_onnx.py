"""
An ONNX file, from export to runtime
====================================

The model is a file, and stays one: ``levelhead`` finds the head in the graph, changes its numbers
where they lie, copies every other byte, and notes what it did. Nothing of the file's code is run,
torch is not needed, and ``undo`` gives the old file back.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_digits
from torch import nn

import levelhead as lh

torch.set_num_threads(1)
scratch = tempfile.TemporaryDirectory()  # gone when the example is
folder = Path(scratch.name)


def levelhead(*words: str) -> None:
    """Run a command in the example's folder, and show it with what it prints."""
    print("$ levelhead", *words)
    done = subprocess.run(
        [sys.executable, "-m", "levelhead", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    print(done.stdout)


# %%
# First, a file: a small network trained on a long tail of scikit-learn's digits (100 images of a 0
# down to 2 of a 9) and exported. Skip this cell if you have one.

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
with warnings.catch_warnings():
    # The older exporter, which needs no further package, announces its end.
    warnings.simplefilter("ignore")
    torch.onnx.export(
        model,
        (images[:1],),
        folder / "model.onnx",
        dynamo=False,
        input_names=["images"],
        output_names=["logits"],
        dynamic_axes={"images": {0: "n"}, "logits": {0: "n"}},
    )
(folder / "counts.json").write_text(json.dumps(counts.tolist()))


def logits(file: str, rows: np.ndarray) -> np.ndarray:
    """What onnxruntime makes of some of the images."""
    session = onnxruntime.InferenceSession(folder / file)
    return session.run(["logits"], {"images": images[rows].numpy()})[0]


# %%
# What is in it
# -------------
# The layer that feeds the output, its norms against the counts, and what to beware of.

levelhead("inspect", "model.onnx", "--counts", "counts.json")

# %%
# Choose a number for each class
# ------------------------------
# on the logits of held-out images, as onnxruntime gives them.

np.save(folder / "logits.npy", logits("model.onnx", held_out))
np.save(folder / "labels.npy", digits.target[held_out])
levelhead(
    "tune",
    "--logits",
    "logits.npy",
    "--labels",
    "labels.npy",
    "--counts",
    "counts.json",
    "-o",
    "tuned.json",
)

# %%
# Write the adjusted file
# -----------------------

levelhead("adjust", "model.onnx", "--tuned", "tuned.json", "-o", "adjusted.onnx")

# %%
# In onnxruntime, on 500 test images: the logits of the new file are the old ones adjusted, so that
# what was tuned on logits holds for the file.

before, after = logits("model.onnx", test), logits("adjusted.onnx", test)
by_hand = lh.Tuned.load(folder / "tuned.json").apply(before)
print(f"largest difference from adjusted logits: {np.abs(after - by_hand).max():.1e}")
for name, values in (("model.onnx", before), ("adjusted.onnx", after)):
    print(f"{name:13} error {lh.measure.error(values, digits.target[test]):.1%}")

# %%
# And back: the very bytes that were exported.

levelhead("undo", "adjusted.onnx", "-o", "back.onnx")
sums = [
    hashlib.sha256((folder / file).read_bytes()).hexdigest()[:16]
    for file in ("model.onnx", "back.onnx")
]
print(*sums, "the same" if sums[0] == sums[1] else "different")

# %%
# The recall of each class with the two files. The rare ones gain, the frequent ones pay a
# little.

figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for i, (name, values, color) in enumerate(
    (("model.onnx", before, "#94a3b8"), ("adjusted.onnx", after, "#c2410c"))
):
    recall = 100 * lh.measure.recall(values, digits.target[test])
    axes.bar(np.arange(10) + 0.4 * i, recall, 0.38, color=color, label=name)
axes.set_xticks(np.arange(10) + 0.2, [f"{k}\n{n}" for k, n in enumerate(counts)])
axes.set(xlabel="digit, and its training images", ylabel="recall, %")
axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
plt.show()
