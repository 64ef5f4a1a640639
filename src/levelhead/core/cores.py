"""How many threads are worth starting."""

import os


def usable_cores() -> int:
    """Return how many cores this process may use: fewer than there are if it is bound to some of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
