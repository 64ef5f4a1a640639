"""Where `read_counts` was; it is in `per_class_file`. For one minor version."""

from typing import Any

from ..core.warnings import warn


def __getattr__(name: str) -> Any:
    if name != "read_counts":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .arrays import read_counts

    warn("levelhead.io.counts_file is now levelhead.io.per_class_file", DeprecationWarning)
    return read_counts
