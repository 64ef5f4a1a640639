"""Where `read_counts` was; it is in `per_class_file`. For one minor version."""

from ..core.extras import moved_names

_MOVED = "levelhead.io.counts_file is now levelhead.io.per_class_file"
__getattr__ = moved_names(__name__, _MOVED, read_counts="io.arrays")
