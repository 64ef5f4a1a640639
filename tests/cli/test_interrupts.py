"""Ctrl-C at any moment, an import too, ends a command without a traceback."""

import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

INTERRUPTED = """
import os, signal, sys
awaited = sys.argv.pop()
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == awaited:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
from levelhead.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "levelhead.cli.models", "numpy"])
def test_an_interrupt_during_an_import_is_silent(tmp_path, module):
    save_file({"fc.weight": np.eye(2, dtype=np.float32)}, tmp_path / "m.safetensors")
    command = [sys.executable, "-c", INTERRUPTED, "inspect", tmp_path / "m.safetensors", module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
