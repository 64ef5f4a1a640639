"""The words that parameters accept.

Imports nothing, so that the command line can list them without loading numpy.
"""

from typing import Literal

# What becomes of a bias when its weight vector is scaled.
BiasPolicy = Literal["scale", "keep"]
# What scores are: before a softmax, after it, or the logarithms of what it gives.
Kind = Literal["logits", "probabilities", "log-probabilities"]
# What to do about a class without samples: refuse it, or leave it as it is.
Missing = Literal["error", "neutral"]
# How to estimate the shares of classes in deployment: expectation maximization (Saerens), or from
# the confusions (black box shift estimation, Lipton).
PriorMethod = Literal["em", "bbse"]
# What a file makes of one logit z: (-z, z), or the softmax of both.
TwoScores = Literal["scores", "probabilities"]
# Whether a sample has one label, or may have several.
LabelTask = Literal["multiclass", "multilabel"]
