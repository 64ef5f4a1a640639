"""Changes of predictions followed on a device are those that the host finds."""

import numpy as np
import pytest
import torch

from levelhead.core.gamma_path import find_path_rule
from levelhead.path import engines, walk_torch
from levelhead.path.engines import find_changes
from levelhead.path.walk import compute_envelope
from levelhead.support.arrays import is_torch
from levelhead.support.errors import LevelheadError


@pytest.fixture
def device_is_cpu(monkeypatch):
    """Take a tensor in the host's memory for one on an accelerator: the same torch operations follow it."""
    monkeypatch.setattr(engines, "_is_on_accelerator", is_torch)


def cases(classes):
    rng = np.random.default_rng(classes)
    plain = rng.normal(size=(300, classes)).astype(np.float32)
    masked = np.where(rng.random(plain.shape) < 0.3, -np.inf, plain)
    masked[:, 0] = 0.5
    return {"plain": plain, "negative": -np.abs(plain), "ties": np.round(2 * plain), "zeros": plain * (plain > 1),
            "masked": masked.astype(np.float32), "huge": plain * np.float32(1e30)}  # fmt: skip


def in_order(envelope):
    """Return all of an envelope, with changes at the same gamma in the order of the samples."""
    order = np.lexsort((envelope.sample, envelope.gamma))
    fields = (
        getattr(envelope, name)[order] for name in ("gamma", "sample", "new_class", "old_class")
    )
    return [envelope.start, *fields]


@pytest.mark.parametrize("which", [*cases(2)])
@pytest.mark.parametrize("range", [(0.0, 2.0), (-1.5, 1.5)])
@pytest.mark.parametrize("rule", ["rescale", "shift"])
@pytest.mark.parametrize("classes", [2, 9, 70])
def test_the_changes_are_those_of_the_host(classes, rule, range, which, device_is_cpu):
    logits = cases(classes)[which]
    direction = find_path_rule(rule).direction(
        np.random.default_rng(1).integers(1, 1000, classes).astype(np.float64)
    )
    host = compute_envelope(logits, direction, range)
    device = find_changes(torch.from_numpy(logits), direction, range)
    assert len(host.gamma) > 0 or classes == 2 or which == "huge"
    for on_device, wanted in zip(in_order(device), in_order(host), strict=True):
        np.testing.assert_allclose(on_device, wanted, rtol=4e-15, atol=0)


def test_chunks_and_narrow_numbers_change_nothing():
    logits, direction = (
        torch.from_numpy(cases(9)["plain"]).bfloat16(),
        find_path_rule("shift").direction(np.arange(1.0, 10)),
    )
    told = []
    device = walk_torch.walk_on_device(
        logits,
        direction,
        (0.0, 2.0),
        size=9 * 32,
        progress=lambda done, of: told.append((done, of)),
    )
    host = compute_envelope(logits.float().numpy(), direction, (0.0, 2.0))
    for on_device, wanted in zip(in_order(device), in_order(host), strict=True):
        np.testing.assert_array_equal(on_device, wanted)
    assert told[0] == (32, 300)
    assert told[-1] == (300, 300)


def test_a_row_that_is_not_finite_is_named(device_is_cpu):
    logits = torch.zeros(20, 3)
    logits[17, 1] = torch.nan
    with pytest.raises(LevelheadError, match="17"):
        find_changes(
            logits, find_path_rule("shift").direction(np.array([3.0, 2.0, 1.0])), (0.0, 2.0)
        )
