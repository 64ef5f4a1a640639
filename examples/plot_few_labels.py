"""
Which gamma, with few labels?
=============================

How many held-out labels does the choice of gamma take? This example draws held-out sets of 1 to 40
images per class, and asks each time which gamma they would have chosen, how wide the interval of
gamma is, what gain they promise, and what that gamma is really worth on other images.
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
# rest, 50 images of each class can be drawn from to choose gamma, and 50 others judge the choice.

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
truth = lh.gamma_path(logits[test.ravel()], digits.target[test.ravel()], counts)
best = truth.best("error")
print(
    f"test error {truth.at(0.0).error:.1%} as trained; {best.error:.1%} at the best gamma on test, {best.gamma:.2f}"
)

# %%
# Three draws of each size.

sizes, draws, rows = (1, 2, 5, 10, 20, 40), 3, []
rng = np.random.default_rng(0)
for size in sizes:
    for _ in range(draws):
        drawn = np.concatenate([rng.choice(own, size, replace=False) for own in pool])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lh.warnings.LevelheadWarning)
            rows.append(
                (
                    size,
                    lh.tune(
                        logits[drawn], digits.target[drawn], counts, rule="rescale", bootstrap=500
                    ),
                )
            )

print(
    f"{'images per class':>16} {'gamma':>7} {'its interval':>16} {'promised gain':>28} {'error on test':>15}"
)
for size, tuned in rows:
    a, b = tuned.interval
    low, high = tuned.gain_interval
    print(
        f"{size:16} {tuned.gamma:7.3f} {f'{a:.2f} to {b:.2f}':>16} "
        f"{f'{100 * tuned.gain:.1f} points ({100 * low:.1f} to {100 * high:.1f})':>28} "
        f"{truth.at(tuned.gamma).error:15.1%}"
    )

# %%
# The *choice* of gamma is useful early: even from one image per class it was better here than doing
# nothing, if not by much each time, and more images bring it nearer to the best. The *promise*
# takes many more: only with some 40 images per class does the interval of the gain leave 0. Where
# it contains 0, ``tuned.verdict`` says at most *probably better*, and more labels, or unlabelled images
# (``unlabelled=``), are worth having.
#
# Beware of the interval of gamma itself for a single image per class: every resample of one image is
# that image, so the interval has no width at all. The interval of the gain allows for that, and is
# as wide as it should be.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for i, (size, tuned) in enumerate(rows):
    x = sizes.index(size) + 0.22 * (i % draws - 1)
    left.plot([x, x], tuned.interval, color="#94a3b8", lw=3, solid_capstyle="butt")
    left.plot(x, tuned.gamma, "o", color="#c2410c", ms=5)
    right.plot(
        [x, x],
        [100 * bound for bound in tuned.gain_interval],
        color="#94a3b8",
        lw=3,
        solid_capstyle="butt",
    )
    real = 100 * (truth.at(0.0).error - truth.at(tuned.gamma).error)
    right.plot(
        x,
        100 * tuned.gain,
        "o",
        color="#c2410c",
        ms=5,
        label="promised, with 95 % interval" if i == 0 else None,
    )
    right.plot(
        x,
        real,
        "_",
        color="#222222",
        ms=12,
        mew=1.5,
        label="on the test images" if i == 0 else None,
    )
left.axhspan(*best.plateau, color="#222222", alpha=0.25, lw=0, label="best on test")
right.axhline(0, color="#222222", lw=0.8)
left.set(ylabel="gamma, with 95 % interval", ylim=(0, None))
right.set(ylabel="gain, points")
for axes in (left, right):
    axes.set_xticks(range(len(sizes)), map(str, sizes))
    axes.set_xlabel("held-out images of each class")
    axes.legend(frameon=False)
plt.show()
