"""
scikit-learn classifiers
========================

``AdjustedClassifierCV`` goes around any classifier, as scikit-learn's own
``TunedThresholdClassifierCV`` does around a binary one: it cross-validates, finds a number for each
class on the out-of-fold scores, and trains once more on everything. Here it meets five classifiers of different
kinds, next to ``class_weight="balanced"``, which is what one would try first.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import levelhead as lh
from levelhead.hosts.sklearn import AdjustedClassifierCV

# %%
# A long tail of digits, 100 images of a 0 down to 5 of a 9, and 70 test images of each. Nothing is
# held out: five-fold cross-validation gives scores of images that each model was not trained on.

digits = load_digits()
counts = lh.counts.long_tail(100, 10, 20)
by_class = [np.flatnonzero(digits.target == k) for k in range(10)]
train = np.concatenate([rows[:n] for rows, n in zip(by_class, counts, strict=True)])
test = np.concatenate([rows[-70:] for rows in by_class])
X, y, X_test, y_test = (
    digits.data[train],
    digits.target[train],
    digits.data[test],
    digits.target[test],
)

# %%
# Offsets are added to scores of any kind: decision functions, or the logarithms of probabilities,
# which are all that a forest or neighbors give.

estimators = {
    "logistic regression": LogisticRegression(max_iter=1000),
    "SVC": SVC(break_ties=True),
    "discriminant analysis": LinearDiscriminantAnalysis(),
    "random forest": RandomForestClassifier(random_state=0),
    "nearest neighbors": KNeighborsClassifier(),
}
rows = []
for name, estimator in estimators.items():
    plain = estimator.fit(X, y)
    before = balanced_accuracy_score(y_test, plain.predict(X_test))
    adjusted = AdjustedClassifierCV(estimator).fit(X, y)
    after = balanced_accuracy_score(y_test, adjusted.predict(X_test))
    weighted = float("nan")
    if "class_weight" in estimator.get_params():
        weighted = balanced_accuracy_score(
            y_test,
            type(estimator)(**{**estimator.get_params(), "class_weight": "balanced"})
            .fit(X, y)
            .predict(X_test),
        )
    rows.append((name, adjusted.tuned_.verdict, before, weighted, after))

print(f"{'balanced accuracy':24}{'plain':>9}{'weighted':>10}{'adjusted':>10}   verdict")
for name, verdict, *accuracies in rows:
    plain, weighted, adjusted = (
        "-" if np.isnan(accuracy) else f"{100 * accuracy:.1f} %" for accuracy in accuracies
    )
    print(f"{name:24}{plain:>9}{weighted:>10}{adjusted:>10}   {verdict}")

# %%
# The forest leans toward frequent classes, and adjusting brings it far; class weights do little for
# it, and neighbors and discriminant analysis know none. For the SVC class weights do more. Try both;
# only adjusting can be had for a model that is already trained. With five images of the rarest class,
# one in each fold, it is a rough choice.

figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
for i, (_, _, before, weighted, after) in enumerate(reversed(rows)):
    axes.plot([100 * before, 100 * after], [i, i], color="#94a3b8", lw=1, zorder=1)
    axes.plot(100 * before, i, "o", color="#222222", mfc="white", label="plain" if i == 0 else None)
    axes.plot(
        100 * weighted,
        i,
        "|",
        color="#222222",
        ms=12,
        label='class_weight="balanced"' if i == 2 else None,
    )
    axes.plot(100 * after, i, "o", color="#c2410c", label="adjusted" if i == 0 else None)
axes.set_yticks(range(len(rows)), [row[0] for row in reversed(rows)])
axes.set(xlabel="balanced accuracy on the test images, %")
axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
plt.show()
