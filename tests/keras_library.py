"""Keras on torch, for every test of it: where it is missing, whoever imports this is skipped. No test by itself."""

import os

import pytest

# Before the import, which reads it.
os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="Keras is not installed: pip install keras h5py")

L = keras.layers
MARKS = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation"),  # Keras's own, of torch
]
