"""A training that takes no time, for the tests of runs."""

import numpy as np
import pytest

from levelhead_lab.runs.spec import Spec


@pytest.fixture
def spec(tmp_path) -> Spec:
    """Four classes of grey 8x8 pictures, 3 epochs of 6 steps."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [80, 60, 40, 24])
    images = rng.integers(0, 200, (len(labels), 8, 8)).astype(np.uint8)
    images[np.arange(len(labels)), labels] += 55
    np.savez(tmp_path / "small.npz", images=images, labels=labels)
    recipe = tmp_path / "short.toml"
    recipe.write_text("epochs = 3\nbatch = 25\nlr = 0.1\npad = 1\n")
    return Spec(
        str(tmp_path / "small.npz"), method="wvn", net="digits", hold_out=0.2, recipe=str(recipe)
    )
