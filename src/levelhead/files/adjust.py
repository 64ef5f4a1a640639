"""Where `adjust_file` was; it is in `model`. For one minor version."""

from ..support.extras import moved_names

_MOVED = "levelhead.files.adjust moved to levelhead.files.model; levelhead 0.2 no longer has it"
__getattr__ = moved_names(
    __name__, _MOVED, adjust_file="files.model", check_worthwhile="files.model"
)
