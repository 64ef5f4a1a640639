"""Options that several commands have, and what their help says."""

from pathlib import Path
from typing import Annotated

import typer

COUNTS = "Training samples per class: 4000,2000,500, or a file of them or of training labels (.json, .csv, .npy, ...)."
DATA = "in a .npy, .npz, .safetensors, .pt, .csv, .tsv or .parquet file; FILE:KEY picks one array or column of several"
LABELS = "True class of each row: an index or a name."
IN_LOGITS = "May be left out if the file of the logits holds an array of this name."

Model = Annotated[
    Path,
    typer.Argument(
        help="A .safetensors file (of a sharded model, its index or its folder), an "
        ".onnx, .keras or .weights.h5 file, or a state dict as .pt, .pth, .ckpt or .bin."
    ),
]
Out = Annotated[Path, typer.Option("-o", "--out", help="Where to write: a file, or a folder for a sharded model.")]
HeadName = Annotated[
    str | None, typer.Option("--head", help="Name of the layer, where several could be the head: classifier.")
]
Names = Annotated[
    str | None,
    typer.Option(help="Class names, in order: cat,dog,owl, or a file (.txt, .json, a config.json with id2label, ...)."),
]
LabelColumn = Annotated[
    str | None, typer.Option(help="The labels' column in a table of logits, if it is not called label, y or target.")
]
Original = Annotated[bool, typer.Option(help="Keep the old bytes in OUT.original for an exact undo.")]
Again = Annotated[bool, typer.Option("--again", help="Allow a model that was adjusted before.")]
ModelLogits = Annotated[
    Path | None, typer.Option(help="Logits of the model: count the predictions that rounding could change.")
]
Background = Annotated[
    str | None, typer.Option(help="A class to leave alone, by name or index: `no object` of a detector.")
]
ChosenOn = Annotated[str, typer.Option(help="What the samples are. Say test if they are your test set.")]
