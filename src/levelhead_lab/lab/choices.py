"""The words that options of the study accept; imports nothing, as `levelhead.support.types`."""

from typing import Literal

Executor = Literal["local", "packed", "ray"]
PaperTable = Literal[
    "table1",
    "table2",
    "table3",
    "readings",
    "sources",
    "table2-sources",
    "table2-readings",
    "strong",
    "frontier",
    "frontier-long",
]
Profile = Literal["long-tail", "step", "given"]
Tracker = Literal["tensorboard", "mlflow", "wandb"]
TrainingDtype = Literal["float32", "float64", "tf32", "float16", "bfloat16"]
TrainingEngine = Literal["auto", "plain", "fast"]
# The presets of recipes.toml.
RECIPES = (
    "kim2020",
    "kim2020-batch",
    "kim2020-64",
    "tiny",
    "strong",
    "frontier",
    "frontier-long",
    "cao2019",
    "cao2019-init",
    "cao2019-64",
    "cao2019-64-warm",
    "cao2019-64-decay",
    "cao2019-64-class",
    "cui2019",
    "cui2019-sigmoid",
    "images",
    "digits",
)
