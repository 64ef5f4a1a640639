"""The methods of Table 1 and those users compare it with. A method is one file and one entry in `table`.

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
