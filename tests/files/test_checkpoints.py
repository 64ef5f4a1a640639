"""Checkpoints of training scripts: what they hold beside tensors is data, and neither run nor needed."""

import argparse
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.files.state_dict import READER
from levelhead.files.undo import undo_file

COUNTS = [16, 4, 1]


def weights():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).state_dict()


def attribute_dict():
    data = pytest.importorskip("lightning.fabric.utilities.data")
    return data.AttributeDict(width=6, args=argparse.Namespace(lr=0.1))


BESIDE = {
    "Lightning's hyperparameters": attribute_dict,
    "argparse's arguments": lambda: argparse.Namespace(lr=0.1, layers=[3, 4], nested={"a": 1}),
    "numbers of numpy": lambda: {"best": np.float64(0.93), "epoch": np.int64(7)},
    "arrays of numpy": lambda: [np.arange(6).reshape(2, 3), np.array(["a", "b"])],
    "paths and dicts with a default": lambda: defaultdict(list, path=[Path("runs/1")]),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_checkpoint_with_data_beside_the_weights_is_adjusted_and_undone(tmp_path, name):
    path, out, back = (tmp_path / f"{part}.ckpt" for part in ("model", "out", "back"))
    beside = BESIDE[name]()
    torch.save({"state_dict": weights(), "beside": beside}, path)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    loaded = torch.load(out, weights_only=False)
    assert pickle.dumps(loaded["beside"]) == pickle.dumps(beside)
    before, after = weights(), loaded["state_dict"]
    factors = torch.tensor([[1.0], [2.0], [4.0]])
    assert torch.allclose(after["2.weight"], before["2.weight"] * factors)
    assert torch.equal(after["0.weight"], before["0.weight"])
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "key",
    ["model_state", "params", "weights", "actor_state_dict", "state_dict", "network_state_dict"],
)
def test_state_dict_under_a_usual_name_is_found(tmp_path, key):
    path, out = tmp_path / "model.pt", tmp_path / "out.pt"
    torch.save({key: weights(), "optimizer_state_dict": {"2.weight": torch.ones(3, 6)}}, path)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    after = torch.load(out)
    assert torch.allclose(after[key]["2.bias"], weights()["2.bias"] * torch.tensor([1.0, 2, 4]))
    assert torch.equal(after["optimizer_state_dict"]["2.weight"], torch.ones(3, 6))


def test_weights_that_are_also_among_the_settings_are_tied(tmp_path):
    state = weights()
    settings = argparse.Namespace(initial={"last": state["2.weight"]})
    torch.save({"state_dict": state, "args": settings}, tmp_path / "model.pt")
    with pytest.raises(lh.LevelheadError, match=r"tied to args\.initial\.last"):
        adjust_file(tmp_path / "model.pt", tmp_path / "out.pt", lh.rules.Rescale(0.5), COUNTS)


def test_tensors_under_an_unknown_name_are_named(tmp_path):
    torch.save({"my_own_net": weights(), "epoch": 3}, tmp_path / "model.pt")
    with pytest.raises(
        lh.LevelheadError, match=r"model\.pt: .*tensors.*my_own_net.*model\.state_dict"
    ):
        READER.find(tmp_path / "model.pt")


class Printed:
    def __reduce__(self):
        return (print, ("the file's code was run",))


@pytest.mark.parametrize(
    "beside", [Printed, lambda: {"args": argparse.Namespace(run=Printed())}, lambda: np.array([Printed()])]
)  # fmt: skip
def test_code_among_the_data_is_still_refused(tmp_path, capsys, beside):
    torch.save({"state_dict": weights(), "beside": beside()}, tmp_path / "model.pt")
    with pytest.raises(lh.LevelheadError, match="print to open, which would run its code"):
        READER.find(tmp_path / "model.pt")
    assert capsys.readouterr().out == ""
