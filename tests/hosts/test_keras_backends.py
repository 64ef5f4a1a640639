"""The tests of Keras once more on other backends than torch, in processes of their own, as Keras keeps to one."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("keras", reason="Keras is not installed: pip install keras h5py")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HEADS, CALLBACKS = "tests/heads/test_keras.py", "tests/hosts/test_keras.py"


@pytest.mark.parametrize(
    ("backend", "files"),
    [
        ("numpy", [HEADS]),  # this one cannot fit
        ("jax", [HEADS, CALLBACKS]),
    ],
)
def test_keras_is_leveled_on_its_other_backends(backend, files):
    if find_spec("jax") is None:
        pytest.skip(
            "jax, which Keras imports for its numpy backend too, is not installed (80 MB): pip install jax"
        )
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
    ran = subprocess.run(
        words, cwd=ROOT, env=os.environ | {"KERAS_BACKEND": backend}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "skipped" not in ran.stdout
