"""The words that parameters accept; imports nothing, so the command line can list them without loading numpy."""

from typing import Literal

BiasPolicy = Literal["scale", "keep"]
Kind = Literal["logits", "probabilities", "log-probabilities"]
Missing = Literal["error", "neutral"]
PriorMethod = Literal["em", "bbse"]
LabelTask = Literal["multiclass", "multilabel"]
