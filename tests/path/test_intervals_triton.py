"""The Triton kernels in Triton's own interpreter, which runs without a GPU: what they find is what numpy does."""

import os
import subprocess
import sys

import numpy as np
import pytest

INTERVALS = """
import numpy as np, torch
from levelhead import gamma_path
from levelhead.path.intervals_triton import prepare

rng = np.random.default_rng(1)
CASES = (40, "float32", (0, 2)), (70, "bfloat16", (-1, 3)), (3, "float16", (0.5, 7))
for rule in ("shift", "rescale"):
    for classes, dtype, reach in CASES:
        x, y = 2 * rng.normal(size=(21, classes)) + 1, rng.integers(0, classes, 21)
        x[np.arange(21), y] += rng.choice([0, 2, 4], 21)
        x[:5], x[5:8], x[8:10], x[10, ::2], x[12] = np.round(x[:5]), 0, -1, 1e-40, 1
        x[11] *= 1e-30
        x[13] *= 1e3
        logits = torch.from_numpy(x).to(getattr(torch, dtype))
        logits[14, y[14]] = logits[15:17, 1] = torch.finfo(logits.dtype).min
        counts = rng.choice([1, 3, 5, 25, 125, 10**6], classes)
        path = gamma_path(logits, y, counts, rule=rule, range=reach, engine="numpy")
        logits[-1, 0] = torch.nan
        found = prepare(logits, path.labels, path.rule, path.range, block=64, approximate=False)()
        for end, ours in zip((path.lo, path.hi), (part.numpy() for part in found), strict=True):
            assert np.isnan(ours[-1])
            np.testing.assert_allclose(ours[:-1], end[:-1], rtol=2e-15, atol=1e-300)
            assert ((ours[:-1] == 0) == (end[:-1] == 0)).all()
"""
WALK = """
import numpy as np, torch
from levelhead.path import intervals_torch
from levelhead.path.envelope import compute_envelope
from levelhead.core.rules import RULES

intervals_torch.has_triton = lambda logits: True
rng = np.random.default_rng(2)
CASES = (40, "float32", (0.0, 2.0)), (9, "bfloat16", (-1.0, 3.0)), (3, "float16", (0.5, 7.0))
for rule in ("shift", "rescale"):
    for classes, dtype, reach in CASES:
        x = 2 * rng.normal(size=(40, classes)) + 1
        x[:8], x[8:10], x[10:14], x[14:18], x[18, ::2] = np.round(x[:8]), 0, -np.abs(x[10:14]), 1 + x[14:18] / 64, 1e-40
        logits = torch.from_numpy(x).to(getattr(torch, dtype))
        logits[20:24, 1] = -torch.inf
        direction = RULES[rule].direction(rng.choice([1, 3, 5, 25, 125, 10**6], classes).astype(np.float64))
        device = intervals_torch.walk_on_device(logits, direction, reach)
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
logits, direction = torch.from_numpy(sizes[None]).float(), RULES["rescale"].direction(sizes)
found = intervals_torch.walk_on_device(logits, direction, (0.0, 2.0))
assert found.gamma.tolist() == [1.0, np.nextafter(1.0, 2.0)]
assert (found.start.tolist(), found.old_class.tolist(), found.new_class.tolist()) == ([2], [2, 0], [0, 3])
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [INTERVALS, WALK], ids=["intervals", "walk"])
def test_the_kernels_give_what_numpy_does(script):
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    new = np.lib.NumpyVersion(np.__version__) >= "2.5.0"
    if new and "InterpreterError" in done.stderr and "only 0-dimensional arrays" in done.stderr:
        pytest.skip(
            "Triton's interpreter does not know numpy 2.5; on a GPU, bench/path_gpu.py compares the kernel"
        )
    assert done.returncode == 0, done.stderr
