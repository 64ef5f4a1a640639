"""Every method of Table 1 and the ones users compare it with: one file a method, one line in `table.py`.

`METHODS` is a plain dict; `method_named` also knows `NAME+rs` for any of them and `FILE.py:NAME` for a user's own.
"""

from .lookup import load, method_named
from .method import Method, Retrain
from .rs import plus_rs
from .table import METHODS

__all__ = ["METHODS", "Method", "Retrain", "load", "method_named", "plus_rs"]
