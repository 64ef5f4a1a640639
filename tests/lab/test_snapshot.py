"""Snapshots: what is saved is what is loaded, and nothing else is taken for one."""

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

import levelhead as lh
from levelhead import Head
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file
from levelhead_lab.lab.snapshot import Snapshot

rng = np.random.default_rng(0)


def snapshot(**changes) -> Snapshot:
    parts = {
        "head": Head(
            rng.standard_normal((3, 4)).astype(np.float32),
            np.ones(3, np.float32),
            ["ant", "cat", "elk"],
        ),
        "counts": {"ant": 50, "cat": 5, "elk": 1},
        "features": {"test": rng.standard_normal((6, 4)), "held-out": rng.standard_normal((2, 4))},
        "labels": {"test": np.array([0, 1, 2, 0, 1, 2]), "held-out": np.array([1, 1])},
        "meta": {"seed": 3, "recipe": "kim2020"},
    }
    return Snapshot(**{**parts, **changes})


def test_what_is_saved_is_loaded_bit_for_bit(tmp_path):
    before = snapshot()
    before.save(tmp_path / "run.safetensors")
    after = Snapshot.load(tmp_path / "run.safetensors")
    assert after.head.weight.tobytes() == before.head.weight.tobytes()
    assert after.head.bias.tobytes() == before.head.bias.tobytes()
    assert (after.head.names, after.meta, after.counts.tolist()) == (
        ["ant", "cat", "elk"],
        before.meta,
        [50, 5, 1],
    )
    for split in ("test", "held-out"):
        assert after.features[split].tobytes() == before.features[split].tobytes()
        assert after.labels[split].tobytes() == before.labels[split].tobytes()
    assert [file.name for file in tmp_path.iterdir()] == ["run.safetensors"]


def test_a_head_without_bias_or_names_stays_so(tmp_path):
    snapshot(head=Head(np.eye(3, 4)), counts=[3, 2, 1]).save(tmp_path / "s.safetensors")
    head = Snapshot.load(tmp_path / "s.safetensors").head
    assert (head.bias, head.names) == (None, None)


def test_a_torch_head_crosses_the_border_with_its_values(tmp_path):
    weight = torch.randn(3, 4).bfloat16().requires_grad_()
    snapshot(head=Head(weight), counts=[3, 2, 1]).save(tmp_path / "s.safetensors")
    loaded = Snapshot.load(tmp_path / "s.safetensors").head.weight
    np.testing.assert_array_equal(loaded, weight.detach().float().numpy())


def test_slices_that_lie_scattered_in_memory_are_saved_as_their_values(tmp_path):
    wide = rng.standard_normal((4, 12))
    snapshot(features={"test": wide.T[::2]}, labels={"test": np.arange(12)[::2] % 3}).save(
        tmp_path / "s.safetensors"
    )
    np.testing.assert_array_equal(
        Snapshot.load(tmp_path / "s.safetensors").features["test"], wide.T[::2]
    )


def test_logits_are_those_of_the_head_asked_for():
    shot = snapshot()
    np.testing.assert_allclose(
        shot.logits("test"), shot.features["test"] @ shot.head.weight.T + shot.head.bias
    )
    other = Head(shot.head.weight * [[1], [10], [50]], shot.head.bias * [1, 10, 50])
    np.testing.assert_allclose(
        shot.logits("test", other), shot.logits("test") * [1, 10, 50], rtol=1e-5
    )
    with pytest.raises(
        ValueError, match="the snapshot has no split 'train'; it has test, held-out"
    ):
        shot.logits("train")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": [1, 2]}, "expected 3 counts, one per class, got 2"),
        ({"labels": {"test": np.zeros(6, int)}}, "expected features and labels of the same splits"),
        (
            {"features": {"test": np.ones((6, 5))}, "labels": {"test": np.zeros(6, int)}},
            r"expected test features \[6, 4\], got \[6, 5\]",
        ),
        (
            {"features": {"test": np.ones((5, 4))}, "labels": {"test": np.zeros(6, int)}},
            r"expected test features \[6, 4\], got \[5, 4\]",
        ),
        (
            {"features": {"test": np.ones((1, 4))}, "labels": {"test": np.array([3])}},
            "expected labels from 0 to 2, got 3 at position 0",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        snapshot(**changes)


def test_a_file_that_is_not_a_snapshot_is_named(tmp_path):
    save_file({"x": np.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors: expected a snapshot"):
        Snapshot.load(tmp_path / "model.safetensors")
    snapshot().save(tmp_path / "whole.safetensors")
    data = (tmp_path / "whole.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"cut\.safetensors: not a complete safetensors file"):
        Snapshot.load(tmp_path / "cut.safetensors")
    with pytest.raises(FileNotFoundError):
        Snapshot.load(tmp_path / "gone.safetensors")


@pytest.mark.parametrize(
    ("lost", "facts", "message"),
    [
        ("head.weight", None, "it has no 'head.weight'"),
        ("counts", None, "it has no 'counts'"),
        ("labels.test", None, "expected features and labels of the same splits"),
        ("none", '{"names": null}', "it has no 'meta'"),
        ("none", "[]", "list indices"),
        ("none", "{", r"not JSON \(Expecting"),
    ],
)
def test_a_snapshot_that_lacks_a_part_says_which(tmp_path, lost, facts, message):
    snapshot().save(tmp_path / "s.safetensors")
    with safe_open(tmp_path / "s.safetensors", "np") as file:
        metadata = {"levelhead.snapshot": facts or file.metadata()["levelhead.snapshot"]}
        tensors = {key: file.get_tensor(key) for key in file.keys() if key != lost}  # noqa: SIM118
    save_file(tensors, tmp_path / "s.safetensors", metadata)
    with pytest.raises(ValueError, match=rf"s\.safetensors: not a complete snapshot \({message}"):
        Snapshot.load(tmp_path / "s.safetensors")


def test_a_rescaled_snapshot_is_a_snapshot(tmp_path):
    before = snapshot()
    before.save(tmp_path / "s.safetensors")
    rule = lh.rules.Rescale(0.5)
    adjust_file(tmp_path / "s.safetensors", tmp_path / "o.safetensors", rule, before.counts)
    after = Snapshot.load(tmp_path / "o.safetensors")
    factors = np.sqrt([1, 10, 50])[:, None]
    np.testing.assert_allclose(after.head.weight, before.head.weight * factors, rtol=1e-6)
    assert (after.head.names, after.meta) == (["ant", "cat", "elk"], before.meta)
    undo_file(tmp_path / "o.safetensors", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "s.safetensors").read_bytes()


def test_a_failed_save_leaves_what_was_there(tmp_path):
    path = tmp_path / "run.safetensors"
    snapshot().save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        snapshot(meta={"net": object()}).save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1
