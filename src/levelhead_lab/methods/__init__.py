"""The methods of Table 1 and those users compare it with.

A method is one file and one entry in `table`. Its file opens with its card: what it changes, the
formula, its knobs and where their defaults come from, caveats, the reference. Nothing here trains:
`lab.train` and `fast` do, and they know a method only as the record `Method`. No file loads torch
when it is imported, except `trainer_loss`, so that names and cards can be listed without it.

- method: `Method` and `Retrain`, the records, and what losses share
- table: `METHODS`, `method_named`, `load`, and methods in words
- baseline, over_sample, under_sample, re_weighting, focal, class_balanced, ldam, wvn, rs: Table 1
- balanced_softmax, tau_norm, crt: beyond the paper
- trainer_loss: a method as the loss of the Hugging Face Trainer
"""

from .method import Method, Retrain
from .rs import plus_rs
from .table import METHODS, load, method_named

__all__ = ["METHODS", "Method", "Retrain", "load", "method_named", "plus_rs"]
