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
    "strong",
    "frontier",
    "frontier-long",
]
Profile = Literal["long-tail", "step", "given"]
Tracker = Literal["tensorboard", "mlflow", "wandb"]
TrainingDtype = Literal["float32", "float64", "tf32", "float16", "bfloat16"]
TrainingEngine = Literal["auto", "plain", "fast"]
