"""
Trees and boosting
==================

Gradient boosting has no head to change, and needs none: offsets are added to its scores. Through
scikit-learn's API it is one line, with ``XGBClassifier``, ``LGBMClassifier`` and
``CatBoostClassifier`` just as with the one used here. A native booster, as ``lightgbm.train`` or
``xgboost.train`` returns it, is a function of X, and ``AdjustedPredictor`` goes around it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import recall_score

import levelhead as lh
from levelhead.hosts.predictor import AdjustedPredictor
from levelhead.hosts.sklearn import AdjustedClassifierCV

# %%
# A long tail of digits: 90 images of a 0 down to 9 of a 9, 20 held-out images of each, and 60 to test with.

digits = load_digits()
counts = lh.counts.long_tail(90, 10, 10)
by_class = [np.flatnonzero(digits.target == k) for k in range(10)]
train = np.concatenate([rows[:n] for rows, n in zip(by_class, counts, strict=True)])
held_out = np.concatenate([rows[-80:-60] for rows in by_class])
test = np.concatenate([rows[-60:] for rows in by_class])
X, y = digits.data, digits.target

# %%
# By cross-validation, on the training images alone:

boosting = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=8, random_state=0)
plain = boosting.fit(X[train], y[train])
adjusted = AdjustedClassifierCV(boosting, cv=3).fit(X[train], y[train])
print(adjusted.summary_)

# %%
# As a function, on the held-out images. For a booster it is ``booster.predict`` (LightGBM) or
# ``lambda X: booster.predict(xgboost.DMatrix(X))``; for two classes, [N] of the second is enough.

predictor = AdjustedPredictor(plain.predict_proba).fit(X[held_out], y[held_out], counts=counts)
print(predictor.tuned_)

# %%
# What each of the ten digits gains, from the most frequent to the rarest:

models = {
    "as trained": plain,
    "adjusted by cross-validation": adjusted,
    "adjusted as a function": predictor,
}
fig, ax = plt.subplots(figsize=(7, 3.5))
for name, model in models.items():
    recall = recall_score(y[test], model.predict(X[test]), average=None)
    print(f"{name:30} balanced error {100 * (1 - recall.mean()):.1f} %")
    ax.plot(counts, 100 * recall, marker="o", label=name)
ax.set(xscale="log", xlabel="training images of the class", ylabel="recall (%)")
ax.invert_xaxis()
ax.legend()
fig.tight_layout()
plt.show()
