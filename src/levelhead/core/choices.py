"""The words that parameters accept; imports nothing, so the command line can list them without loading numpy."""

from typing import Literal

BiasPolicy = Literal["scale", "keep"]
Criterion = Literal["guided", "balanced_error"]
Executor = Literal["local", "packed", "ray"]
Kind = Literal["logits", "probabilities"]
Metric = Literal["error", "balanced_error", "macro_f1", "mcc", "kappa", "g_mean", "worst_recall", "cost"]
Missing = Literal["error", "neutral"]
PaperTable = Literal["table1", "table2", "table3", "readings", "sources", "strong", "frontier"]
PriorMethod = Literal["em", "bbse"]
Profile = Literal["long-tail", "step", "given"]
PathRule = Literal["rescale", "tau", "shift"]  # rules of one strength, which have an exact path over it
RuleRequest = Literal["auto", "rescale", "tau", "shift", "rescale+shift", "vector", "offsets"]
LabelTask = Literal["multiclass", "multilabel"]
Tracker = Literal["tensorboard", "mlflow", "wandb"]
TrainingDtype = Literal["float32", "float64", "tf32", "float16", "bfloat16"]
TrainingEngine = Literal["auto", "plain", "fast"]
