"""A large head is adjusted block by block, and what is written is what a head held whole gives, byte for byte."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import levelhead as lh
from levelhead.files import edits
from levelhead.files import large as large_heads
from levelhead.files.inspect import inspect_file
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from ..heads.chosen import own_rule

K, D = 50, 7
COUNTS = np.arange(1000, 1000 - 15 * K, -15)


def model(path, dtype=torch.float32, *, bias=True, change=None):
    rng = torch.Generator().manual_seed(0)
    weight = torch.randn(K, D, generator=rng).to(dtype)
    if change is not None:
        change(weight)
    tensors = {"body.weight": torch.randn(9, 9, generator=rng), "fc.weight": weight}
    save_file(
        tensors | ({"fc.bias": torch.randn(K, generator=rng).to(dtype)} if bias else {}), path
    )
    return path


@pytest.fixture
def large(monkeypatch):
    """Take every head for a large one, and blocks of three rows."""

    def switch():
        for module in (large_heads, edits):
            monkeypatch.setattr(module, "LARGE", 100)
        monkeypatch.setattr(large_heads, "BLOCK_BYTES", 100)
        monkeypatch.setattr(edits, "BLOCK_BYTES", 64)

    return switch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("rule", "strength", "policy"),
    [
        ("rescale", 0.4, "scale"),
        ("rescale", 0.4, "keep"),
        ("rescale", 0, "scale"),
        ("tau", 0.5, "scale"),
        ("shift", 0.7, "scale"),
    ],
)
def test_what_is_written_is_the_same_to_the_bit(
    tmp_path, large, dtype, bias, rule, strength, policy
):
    bias = bias or rule == "shift"  # which a safetensors file cannot get where it has none
    path = model(tmp_path / "m.safetensors", dtype, bias=bias)
    by = own_rule(rule, strength)
    want = adjust_file(path, tmp_path / "whole.safetensors", by, COUNTS, bias=policy)
    large()
    written = adjust_file(path, tmp_path / "large.safetensors", by, COUNTS, bias=policy)
    assert (tmp_path / "large.safetensors").read_bytes() == (
        tmp_path / "whole.safetensors"
    ).read_bytes()
    kept = [(tmp_path / f"{name}.safetensors.original").read_bytes() for name in ("large", "whole")]
    assert kept[0].replace(b"large", b"whole") == kept[1]
    assert np.array_equal(written.before, want.before)
    assert np.array_equal(written.after, want.after)
    assert written.notes == want.notes
    assert undo_file(tmp_path / "large.safetensors", tmp_path / "back.safetensors").exact
    assert (tmp_path / "back.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inspect_says_the_same(tmp_path, large, dtype):
    path = model(tmp_path / "m.safetensors", dtype)
    want = inspect_file(path, counts=COUNTS)
    large()
    said = inspect_file(path, counts=COUNTS)
    assert np.allclose(said.norms, want.norms, rtol=1e-15)
    assert (said.layers, said.correlation, said.warnings) == (
        want.layers,
        want.correlation,
        want.warnings,
    )
    assert (said.bias_share, said.bias_gap) == pytest.approx((want.bias_share, want.bias_gap))


def set_nan(weight):
    weight[20, 3] = torch.nan


def set_small(weight):
    weight[0] = 6e-8


def set_big(weight):
    weight[-1] = 60000.0


@pytest.mark.parametrize(
    ("change", "dtype", "gamma"),
    [
        (set_nan, torch.float32, 0.4),
        (set_big, torch.float16, 3.0),
        (set_small, torch.float16, -30.0),
    ],
)
def test_what_cannot_be_written_is_refused_in_the_same_words(tmp_path, large, change, dtype, gamma):
    path, out = (
        model(tmp_path / "m.safetensors", dtype, change=change),
        tmp_path / "out.safetensors",
    )
    counts = COUNTS if gamma > 0 else COUNTS[::-1]
    with pytest.raises(ValueError, match="fc") as whole:
        adjust_file(path, out, lh.rules.Rescale(gamma), counts)
    large()
    with pytest.raises(ValueError, match="fc") as blockwise:
        adjust_file(path, out, lh.rules.Rescale(gamma), counts)
    assert str(blockwise.value) == str(whole.value)
    assert not out.exists()


def test_an_original_that_is_cut_short_is_refused(tmp_path, large):
    path, out = model(tmp_path / "m.safetensors"), tmp_path / "out.safetensors"
    large()
    adjust_file(path, out, lh.rules.Rescale(0.4), COUNTS)
    kept = tmp_path / "out.safetensors.original"
    kept.write_bytes(kept.read_bytes()[:-40])
    with pytest.raises(ValueError, match="cut short"):
        undo_file(out, tmp_path / "back.safetensors")
    assert not (tmp_path / "back.safetensors").exists()
