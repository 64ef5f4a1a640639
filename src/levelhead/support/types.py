"""The words that parameters accept; imports nothing, so the command line can list them without loading numpy."""

from typing import Literal

BiasPolicy = Literal["scale", "keep"]
Criterion = Literal["guided", "balanced_error"]
Kind = Literal["logits", "probabilities"]
Metric = Literal[
    "error", "balanced_error", "macro_f1", "mcc", "kappa", "g_mean", "worst_recall", "cost"
]
Missing = Literal["error", "neutral"]
PriorMethod = Literal["em", "bbse"]
PathRule = Literal[
    "rescale", "tau", "shift"
]  # rules of one strength, which have an exact path over it
RuleRequest = Literal["auto", "rescale", "tau", "shift", "rescale+shift", "vector", "offsets"]
LabelTask = Literal["multiclass", "multilabel"]
