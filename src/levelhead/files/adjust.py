"""Where `adjust_file` was; it is in `model`. For one minor version."""

from typing import Any

from ..core.warnings import warn


def __getattr__(name: str) -> Any:
    if name not in ("adjust_file", "check_worthwhile"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import model

    warn("levelhead.files.adjust moved to levelhead.files.model; levelhead 0.2 no longer has it", DeprecationWarning)
    return getattr(model, name)
