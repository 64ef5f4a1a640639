"""A run that is stopped after some epochs, and how to tell whether two ended alike. No test by itself."""

import hashlib

import pytest

from levelhead_lab.runs.run import run
from levelhead_lab.runs.run_folder import Run


class Interrupted(Exception):
    pass


def weights_of(there: Run) -> str:
    return hashlib.sha256((there.path / "model.safetensors").read_bytes()).hexdigest()


def interrupt(spec, folder, *, after: int) -> Run:
    def stop(record):
        if record["epoch"] == after + 1:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(spec, folder, report=stop, save_steps=2)
    return Run.of(spec, folder)
