"""
Unlabelled data from deployment
===============================

No labels at all, but plenty of inputs from where the model is used, and you know how often each
class occurs there: ``lh.tune_unlabelled`` adds offsets until the mean of the model's own
probabilities is as it should be.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import levelhead as lh

# %%
# A small network on a long tail of scikit-learn's digits: 64 images of a 0 down to 2 of a 9. In
# deployment every digit is equally frequent. 60 images of each stand for the stream of inputs,
# without their labels; 50 others of each will judge the result, and nothing else.

digits = load_digits()
counts = lh.counts.long_tail(64, 10, 32)
by_class = [np.flatnonzero(digits.target == k) for k in range(10)]
train = np.concatenate([rows[:n] for rows, n in zip(by_class, counts, strict=True)])
stream, test = (
    np.concatenate([rows[a:b] for rows in by_class]) for a, b in ((-110, -50), (-50, None))
)

model = MLPClassifier(
    32, solver="sgd", learning_rate_init=0.05, max_iter=150, n_iter_no_change=150, random_state=0
)
warnings.simplefilter("ignore", ConvergenceWarning)  # 150 epochs are what we want
model.fit(digits.data[train] / 16, digits.target[train])


def logits(rows: np.ndarray) -> np.ndarray:
    """The last layer's output before the softmax."""
    hidden = np.maximum(digits.data[rows] / 16 @ model.coefs_[0] + model.intercepts_[0], 0)
    return hidden @ model.coefs_[1] + model.intercepts_[1]


# %%
# The network predicts frequent digits too often. Counts are not needed, but they help: offsets are
# held near what they ask for.

blind = lh.tune_unlabelled(logits(stream), counts=counts)
print(blind)

# %%
# How good is that? Beside it stands what labels of the same 600 images would have chosen.

labelled = lh.tune(logits(stream), digits.target[stream], counts)
y = digits.target[test]
scores = {
    "as trained": logits(test),
    "no labels": blind.apply(logits(test)),
    f"{len(stream)} labels": labelled.apply(logits(test)),
}
for name, values in scores.items():
    print(f"{name:13} test error {lh.measure.error(values, y):.1%}")

# %%
# No label was needed for what labels would have brought. (The test images are the last of
# the set, by other writers.)
#
# It trusts the target
# --------------------
# If the shares you give are wrong, the offsets will be, too. Suppose that deployment is long-tailed
# like the training set, and somebody assumes it is uniform, or the other way round:

tail = counts / counts.sum()
rng = np.random.default_rng(1)
streams = {
    "uniform": stream,
    "long-tailed": rng.choice(stream, 600, p=tail[digits.target[stream]] / 60),
}
shares = {"uniform": np.full(10, 0.1), "long-tailed": tail}


def error_where(values: np.ndarray, share: np.ndarray) -> float:
    """The error where classes occur with these shares."""
    return float(share @ (1 - lh.measure.recall(values, y)))


print(f"{'deployment is':>15} {'assumed to be':>15} {'error there':>12} {'as trained':>12}")
for real, rows in streams.items():
    for assumed, target in shares.items():
        tuned = lh.tune_unlabelled(logits(rows), target, counts=counts)
        after = error_where(tuned.apply(logits(test)), shares[real])
        before = error_where(logits(test), shares[real])
        print(f"{real:>15} {assumed:>15} {after:12.1%} {before:12.1%}")

# %%
# Where deployment is like training there is little to adjust, and given the right target little is
# done. Assuming equal shares there costs far more than doing nothing.

figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for i, (name, values) in enumerate(scores.items()):
    recall = 100 * lh.measure.recall(values, y)
    axes.bar(np.arange(10) + 0.27 * i, recall, 0.25, label=name)
axes.set_xticks(np.arange(10) + 0.27, [f"{k}\n{n}" for k, n in enumerate(counts)])
axes.set(xlabel="digit, and its training images", ylabel="recall on the test images, %")
axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
plt.show()
