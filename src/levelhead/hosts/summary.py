"""`LevelSummary`, by its old name: `summary_` is a `Tuned` now. It goes with 0.2."""

from ..support.extras import moved_names

_MOVED = "LevelSummary goes with levelhead 0.2: `summary_` is a levelhead.Tuned"
__getattr__ = moved_names(__name__, _MOVED, LevelSummary="hosts._out_of_fold:OutOfFoldTuned")
