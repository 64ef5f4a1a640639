"""Set-up of all tests and doctests, before anything is imported."""

import gc
import os
import random
import signal
import sys
from importlib.util import find_spec

import pytest
from hypothesis import settings

# One thread per worker, here and in the processes that tests start: the workers of `make test` fill the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KERAS_BACKEND", "torch")  # its default needs TensorFlow
# Ray's thread that counts what is used outlives a test, and writes errors with their source into the log, which on
# Python 3.11 is a SystemError in the `ast.parse` of another thread.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["TERM"] = (
    "xterm-256color"  # whatever terminal the tests are started from: on a dumb one, no bar is drawn
)

# In CI hypothesis tries the same examples every time; elsewhere it looks for new ones. A busy machine fails no test.
settings.register_profile("levelhead", derandomize=bool(os.environ.get("CI")), deadline=None)
settings.load_profile("levelhead")

# A shell that runs the tests in the background makes them ignore Ctrl-C, and so would the commands that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


# What is imported to collect the tests, 700,000 objects, lives until the end: the garbage collector, which trainers
# call themselves, need not look at it again.
def pytest_collectstart() -> None:
    """Leave garbage alone while everything is imported."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests: what is left at the end is short, and no worker waits for another."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let no test depend on what others drew before it. Another LEVELHEAD_SEED shows which live by luck."""
    seed = int(os.environ.get("LEVELHEAD_SEED", 0))
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


def pytest_collection_finish() -> None:
    """Leave what there is now out of every later collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


# The kernels need Triton, which comes only with torch for CUDA; test_fit_many.py runs their checks.
collect_ignore = ["tests/fast/check_augment.py", "tests/fast/check_kernels.py"]
if not find_spec("triton"):
    collect_ignore += [
        "src/levelhead/path/walk_triton.py",
        "src/levelhead_lab/lab/augment_kernel.py",
        "src/levelhead_lab/fast/conv_norm.py",
        "src/levelhead_lab/fast/cudnn.py",
        "src/levelhead_lab/fast/kernels.py",
    ]
