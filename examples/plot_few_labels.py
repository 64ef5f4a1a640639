"""
How many labels does it take?
=============================

This example draws held-out sets of 2 to 40 images per class, tunes on each, and asks what gain was
measured, how wide its interval is, and what the choice is really worth on other images.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import levelhead as lh

# %%
# A small network on a long tail of scikit-learn's digits, 70 images of a 0 down to 2 of a 9. Of the
# rest, 50 images of each class can be drawn from to tune on, and 50 others judge the choice.

digits = load_digits()
counts = lh.counts.long_tail(70, 10, 35)
by_class = [
    np.random.default_rng(0).permutation(np.flatnonzero(digits.target == k)) for k in range(10)
]
train = np.concatenate([rows[:n] for rows, n in zip(by_class, counts, strict=True)])
pool, test = (np.array([rows[a:b] for rows in by_class]) for a, b in ((-100, -50), (-50, None)))
model = MLPClassifier(
    32, solver="sgd", learning_rate_init=0.05, max_iter=150, n_iter_no_change=150, random_state=0
)
warnings.simplefilter("ignore", ConvergenceWarning)  # 150 epochs are what we want
model.fit(digits.data[train] / 16, digits.target[train])
hidden = np.maximum(digits.data / 16 @ model.coefs_[0] + model.intercepts_[0], 0)
logits = hidden @ model.coefs_[1] + model.intercepts_[1]
test_logits, test_labels = logits[test.ravel()], digits.target[test.ravel()]
as_trained = lh.measure.error(test_logits, test_labels)
shift = lh.rules.Shift(1.0).on_head(lh.Head(np.eye(10)), counts)  # by the counts alone
by_counts = lh.measure.error(shift.scores(test_logits), test_labels)
print(
    f"test error {as_trained:.1%} as trained; {by_counts:.1%} shifted by the counts, without labels"
)

# %%
# Three draws of each size.

sizes, draws, rows = (2, 5, 10, 20, 40), 3, []
rng = np.random.default_rng(0)
for size in sizes:
    for _ in range(draws):
        drawn = np.concatenate([rng.choice(own, size, replace=False) for own in pool])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lh.warnings.LevelheadWarning)
            tuned = lh.tune(logits[drawn], digits.target[drawn], counts)
        error = lh.measure.error(tuned.apply(test_logits), test_labels)
        rows.append((size, tuned, error))

print(f"{'images per class':>16} {'measured gain':>30} {'verdict':>20} {'error on test':>15}")
for size, tuned, error in rows:
    low, high = tuned.gain_interval
    gain = f"{100 * tuned.gain:z.1f} points ({100 * low:.1f} to {100 * high:.1f})"
    print(f"{size:16} {gain:>30} {tuned.verdict:>20} {error:15.1%}")

# %%
# The *choice* is useful early, because offsets are held near what the counts ask for: even from two
# images per class it was better here than doing nothing. To *know* that takes more labels: the
# interval of the gain is wide at first, and where it contains 0, ``tuned.verdict`` says at most
# *likely better*.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for i, (size, tuned, error) in enumerate(rows):
    x = sizes.index(size) + 0.22 * (i % draws - 1)
    interval = [100 * bound for bound in tuned.gain_interval]
    first = i == 0
    axes.plot([x, x], interval, color="#94a3b8", lw=3, solid_capstyle="butt")
    axes.plot(
        x,
        100 * tuned.gain,
        "o",
        color="#c2410c",
        ms=5,
        label="measured, with 95 % interval" if first else None,
    )
    axes.plot(
        x,
        100 * (as_trained - error),
        "_",
        color="#222222",
        ms=12,
        mew=1.5,
        label="on the test images" if first else None,
    )
axes.axhline(0, color="#222222", lw=0.8)
axes.set_xticks(range(len(sizes)), map(str, sizes))
axes.set(xlabel="held-out images of each class", ylabel="gain, points")
axes.legend(frameon=False)
plt.show()
