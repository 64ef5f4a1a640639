"""`levelhead evaluate` of a folder that others wrote."""

import numpy as np

from levelhead.core.head import Head
from levelhead_lab.lab.snapshot import Snapshot

from ..cli.test_harmless import EVIL, RNG, check


def test_names_of_classes_that_a_terminal_would_obey_are_written_out(tmp_path, levelhead):
    split = {"test": RNG.normal(size=(6, 3))}, {"test": np.arange(6) % 2}
    Snapshot(Head(RNG.normal(size=(2, 3)), None, (EVIL, "dog")), np.array([9, 1]), *split).save(
        tmp_path / "snapshot.safetensors"
    )
    (tmp_path / "spec.json").write_text("{}")
    (tmp_path / "done.json").write_text("{}")
    check(levelhead("evaluate", tmp_path, "--strength", "0.5")[1])
