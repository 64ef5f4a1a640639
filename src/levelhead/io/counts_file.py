"""Where `read_counts` was; it is in `arrays`. For one minor version."""

from ..support.extras import moved_names

_MOVED = "levelhead.io.counts_file is now levelhead.io.arrays"
__getattr__ = moved_names(__name__, _MOVED, read_counts="io.arrays")
