"""
Two classes, one logit, several labels
======================================

Scaling never changes the sign of a logit, so RS cannot move a decision between two opposite scores.
An offset can: it is added to the bias. This example finds it for a binary classifier, and then
for several labels at once.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import levelhead as lh
from levelhead.hosts.sklearn import AdjustedClassifierCV

# %%
# Is it an 8? There are 20 eights among 600 training images, and 80 among the 700 that judge. (With
# stronger regularization, C=0.1, the recall of eights is 0 as trained, and the offset looks even
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
    lh.tune(pair[held_out], y[held_out], counts, rule="rescale")
print(caught[0].category.__name__, caught[0].message, sep=": ")

# %%
# The default adds a number to each score, which is the way out.

tuned = lh.tune(pair[held_out], y[held_out], counts)
shift = tuned.adjustment.offset[1] - tuned.adjustment.offset[0]
print(tuned)
print(f"add {shift:.2f} to the bias")
for name, add in (("as trained", 0.0), ("adjusted", shift)):
    guess = z[test] + add > 0
    print(
        f"{name:11} eights, recall {guess[y[test] == 1].mean():6.1%}  false alarms {guess[y[test] == 0].mean():6.1%}"
    )

# %%
# The scikit-learn twin does all of this by itself, by cross-validation on the training images
# alone, and so does without the held-out ones. With 20 eights it is a rougher choice.

twin = AdjustedClassifierCV(LogisticRegression()).fit(X[train], y[train])
guess = twin.predict(X[test])
print(
    f"by cross-validation: recall of eights {guess[y[test] == 1].mean():.1%}, "
    f"false alarms {guess[y[test] == 0].mean():.1%}"
)

# %%
# Several labels
# --------------
# With one sigmoid per label, classes do not compete: each label is a two-class problem with an
# offset of its own. Four questions about the same images, from frequent to rare:

questions = {
    "above 5": lambda digit: digit > 5,
    "3 or 5": lambda digit: (digit == 3) | (digit == 5),
    "7": lambda digit: digit == 7,
    "8": lambda digit: digit == 8,
}
truth = np.stack([question(digits.target) for question in questions.values()], axis=1).astype(int)
scores = np.stack(
    [LogisticRegression().fit(X[train], own[train]).decision_function(X) for own in truth.T], axis=1
)
positives = truth[train].sum(axis=0)
tuned = lh.tune_labels(scores[held_out], truth[held_out], names=list(questions))
print(tuned)

# %%
# Recall of the positives, and false alarms, on the test images:

decisions = {"as trained": scores[test] > 0, "adjusted": tuned.apply(scores[test]) > 0}
recall, alarms = {}, {}
for name, said in decisions.items():
    recall[name] = 100 * (said & (truth[test] == 1)).sum(axis=0) / truth[test].sum(axis=0)
    alarms[name] = 100 * (said & (truth[test] == 0)).sum(axis=0) / (1 - truth[test]).sum(axis=0)
print(
    f"{'label':9}{'positives':>10}{'recall':>9}{'adjusted':>10}{'false alarms':>14}{'adjusted':>10}"
)
for k, name in enumerate(questions):
    print(
        f"{name:9}{positives[k]:10}{recall['as trained'][k]:8.1f}%{recall['adjusted'][k]:9.1f}%"
        f"{alarms['as trained'][k]:13.1f}%{alarms['adjusted'][k]:9.1f}%"
    )

# %%
# The rarer the label, the more there is to move; the price is a few more false alarms.

figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
at = np.arange(len(questions))
axes.bar(at, recall["as trained"], 0.6, color="#94a3b8", label="as trained")
axes.plot(at, recall["adjusted"], "o", color="#c2410c", label="adjusted")
axes.plot(at, alarms["adjusted"], "x", color="#222222", label="false alarms, adjusted")
axes.set_xticks(at, [f"{name}\n{n}" for name, n in zip(questions, positives, strict=True)])
axes.set(
    xlabel="label, and its positives among 600 training images",
    ylabel="recall of positives, %",
    ylim=(0, 100),
)
axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize="small")
plt.show()
