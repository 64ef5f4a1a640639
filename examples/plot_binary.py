"""
Two classes, one logit, several labels
======================================

Scaling never changes the sign of a logit, so RS cannot move a decision between two opposite scores.
The additive shift can: ``gamma log(n_negative / n_positive)``, added to the bias. This example
finds it for a binary classifier, and then label by label for a multi-label one.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import levelhead as lh
from levelhead.hosts.sklearn import TunedRescaledClassifierCV

# %%
# Is it an 8? There are 20 eights among 600 training images, and 80 among the 700 that judge. (With
# stronger regularization, C=0.1, the recall of eights is 0 as trained, and the shift looks even
# better; this is scikit-learn's default.)

digits = load_digits()
rng = np.random.default_rng(0)
eights, others = (
    rng.permutation(np.flatnonzero((digits.target == 8) == is_it)) for is_it in (True, False)
)
train, held_out, test = (
    np.r_[eights[a], others[b]]
    for a, b in (
        (slice(20), slice(580)),
        (slice(20, 60), slice(580, 900)),
        (slice(60, 140), slice(900, 1520)),
    )
)
X, y = digits.data / 16, (digits.target == 8).astype(int)
counts = np.bincount(y[train])
model = LogisticRegression().fit(X[train], y[train])
z = model.decision_function(X)

# %%
# One score z stands for the two logits (-z/2, z/2). Asked to scale them, levelhead says that it
# cannot help, and how it can be helped.

pair = np.outer(z, [-0.5, 0.5])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    lh.tune(pair[held_out], y[held_out], counts, rule="rescale", bootstrap=0)
print(caught[0].category.__name__, caught[0].message, sep=": ")

# %%
# ``rule="shift"`` is the way out.

tuned = lh.tune(pair[held_out], y[held_out], counts, rule="shift")
shift = tuned.gamma * np.log(counts[0] / counts[1])
print(tuned)
print(f"add {shift:.2f} to the bias")
for name, add in (("as trained", 0.0), ("shifted", shift)):
    guess = z[test] + add > 0
    print(
        f"{name:11} eights, recall {guess[y[test] == 1].mean():6.1%}  false alarms {guess[y[test] == 0].mean():6.1%}"
    )

# %%
# The scikit-learn twin does all of this by itself, by cross-validation on the training images
# alone, and so does without the held-out ones. With 20 eights to choose by, gamma is a rougher
# choice: their recall rises, at the price of more false alarms.

twin = TunedRescaledClassifierCV(LogisticRegression()).fit(X[train], y[train])
guess = twin.predict(X[test])
print(
    f"rule {twin.rule_}, gamma {twin.best_gamma_:.2f}: recall of eights {guess[y[test] == 1].mean():.1%}, "
    f"false alarms {guess[y[test] == 0].mean():.1%}"
)

# %%
# Several labels
# --------------
# With one sigmoid per label, classes do not compete: each label is a two-class problem
# with a shift of its own. Four questions about the same images, from frequent to rare:

questions = {
    "above 5": lambda digit: digit > 5,
    "3 or 5": lambda digit: (digit == 3) | (digit == 5),
    "7": lambda digit: digit == 7,
    "8": lambda digit: digit == 8,
}
rows = []
for name, question in questions.items():
    truth = question(digits.target).astype(int)
    n = np.bincount(truth[train])
    scores = np.outer(
        LogisticRegression().fit(X[train], truth[train]).decision_function(X), [-0.5, 0.5]
    )
    found = lh.tune(scores[held_out], truth[held_out], n, rule="shift")
    path = lh.gamma_path(scores[test], truth[test], n, rule="shift")
    rows.append((name, n[1], found, path.at(0.0), path.at(found.gamma)))

print(
    f"{'label':9}{'positives':>10}{'gamma':>8}{'recall':>9}{'shifted':>9}{'balanced error':>16}{'shifted':>9}"
)
for name, n, found, before, after in rows:
    print(
        f"{name:9}{n:10}{found.gamma:8.2f}{before.class_accuracy[1]:9.1%}{after.class_accuracy[1]:9.1%}"
        f"{before.balanced_error:16.1%}{after.balanced_error:9.1%}"
    )

# %%
# The rarer the label, the more there is to shift; the price is a few more false alarms. Of a label
# that half of the images have there would be nothing to shift: ``log(n_negative / n_positive)`` is
# 0.

figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
at = np.arange(len(rows))
axes.bar(
    at, [100 * row[3].class_accuracy[1] for row in rows], 0.6, color="#94a3b8", label="as trained"
)
axes.plot(
    at, [100 * row[4].class_accuracy[1] for row in rows], "o", color="#c2410c", label="shifted"
)
axes.plot(
    at,
    [100 - 100 * row[4].class_accuracy[0] for row in rows],
    "x",
    color="#222222",
    label="false alarms, shifted",
)
axes.set_xticks(at, [f"{row[0]}\n{row[1]}" for row in rows])
axes.set(
    xlabel="label, and its positives among 600 training images",
    ylabel="recall of positives, %",
    ylim=(0, 100),
)
axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize="small")
plt.show()
