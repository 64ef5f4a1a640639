"""`LevelSummary`, by its old name: `summary_` is a `Tuned` now. It goes with 0.2."""

from typing import Any

from ..core.warnings import warn


def __getattr__(name: str) -> Any:
    if name != "LevelSummary":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._out_of_fold import OutOfFoldTuned

    warn("LevelSummary goes with levelhead 0.2: `summary_` is a levelhead.Tuned", DeprecationWarning)
    return OutOfFoldTuned
