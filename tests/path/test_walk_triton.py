"""The Triton kernel in Triton's own interpreter, which runs without a GPU: it finds what numpy does."""

import os
import subprocess
import sys

import numpy as np
import pytest

WALK = """
import numpy as np, torch
from levelhead.path import walk_torch
from levelhead.path.walk import compute_envelope
from levelhead.core.gamma_path import find_path_rule

walk_torch.has_triton = lambda logits: True
rng = np.random.default_rng(2)
CASES = (40, "float32", (0.0, 2.0)), (9, "bfloat16", (-1.0, 3.0)), (3, "float16", (0.5, 7.0))
for rule in ("shift", "rescale"):
    for classes, dtype, reach in CASES:
        x = 2 * rng.normal(size=(40, classes)) + 1
        x[:8], x[8:10], x[10:14], x[14:18], x[18, ::2] = np.round(x[:8]), 0, -np.abs(x[10:14]), 1 + x[14:18] / 64, 1e-40
        logits = torch.from_numpy(x).to(getattr(torch, dtype))
        logits[20:24, 1] = -torch.inf
        direction = find_path_rule(rule).direction(rng.choice([1, 3, 5, 25, 125, 10**6], classes).astype(np.float64))
        device = walk_torch.walk_on_device(logits, direction, reach)
        host = compute_envelope(logits.float().numpy(), direction, reach)
        assert len(host.gamma) > 30 or classes == 3
        orders = [np.lexsort((one.gamma, one.sample)) for one in (device, host)]
        for name in ("gamma", "sample", "new_class", "old_class"):
            ours, theirs = (getattr(one, name)[order] for one, order in zip((device, host), orders, strict=True))
            np.testing.assert_allclose(ours, theirs, rtol=4e-15, atol=0)
        np.testing.assert_array_equal(device.start, host.start)
        assert (np.diff(device.gamma) >= 0).all()
# Four lines meet at 1: there the first class wins, which leads nowhere else, and from the next float on the steepest.
sizes = np.array([4.0, 2.0, 8.0, 1.0])
logits, direction = torch.from_numpy(sizes[None]).float(), find_path_rule("rescale").direction(sizes)
found = walk_torch.walk_on_device(logits, direction, (0.0, 2.0))
assert found.gamma.tolist() == [1.0, np.nextafter(1.0, 2.0)]
assert (found.start.tolist(), found.old_class.tolist(), found.new_class.tolist()) == ([2], [2, 0], [0, 3])
"""


@pytest.mark.slow
def test_the_kernel_gives_what_numpy_does():
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WALK], env=environment, capture_output=True, text=True, check=False
    )
    new = np.lib.NumpyVersion(np.__version__) >= "2.5.0"
    if new and "InterpreterError" in done.stderr and "only 0-dimensional arrays" in done.stderr:
        pytest.skip(
            "Triton's interpreter does not know numpy 2.5; on a GPU, bench/speed/path_gpu.py compares the kernel"
        )
    assert done.returncode == 0, done.stderr
