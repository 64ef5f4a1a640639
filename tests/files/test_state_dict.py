import json
import pickle
import re
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import levelhead as lh
from levelhead.files import checkpoint, zip
from levelhead.files.model import adjust_file
from levelhead.files.state_dict import READER
from levelhead.files.undo import undo_file

from .head_in_file import read_head, write_head

COUNTS = [16, 4, 1]
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def weights(dtype=torch.float32, classes=3, bias=True):
    torch.manual_seed(0)
    net = nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 8, 3), bn=nn.BatchNorm2d(8), fc=nn.Linear(8, classes, bias=bias)
        )
    )
    return {
        key: value.to(dtype) if key.startswith("fc") else value
        for key, value in net.state_dict().items()
    }


@settings(max_examples=15, deadline=None)
@given(dtype=st.sampled_from(DTYPES), classes=st.integers(2, 9), bias=st.booleans())
def test_read_then_write_changes_no_bit(tmp_path_factory, dtype, classes, bias):
    folder = tmp_path_factory.mktemp("noop")
    torch.save(weights(dtype, classes, bias), folder / "m.pt")
    write_head(folder / "m.pt", folder / "o.pt", read_head(folder / "m.pt"))
    assert (folder / "o.pt").read_bytes() == (folder / "m.pt").read_bytes()


@pytest.mark.parametrize("suffix", ["pt", "pth", "bin", "ckpt", "pth.tar"])
@pytest.mark.parametrize("mmap", [False, True])
def test_torch_loads_what_was_written_and_only_the_head_differs(tmp_path, suffix, mmap):
    path, out = tmp_path / f"m.{suffix}", tmp_path / f"o.{suffix}"
    torch.save(weights(), path)
    adjust_file(path, out, lh.rules.Rescale(0.5), COUNTS)
    before, after = weights(), torch.load(out, weights_only=True, mmap=mmap)
    assert {key for key in before if not torch.equal(before[key], after[key])} == {
        "fc.weight",
        "fc.bias",
    }
    for key in ("fc.weight", "fc.bias"):
        ratio = (after[key] / before[key]).reshape(3, -1)[:, 0]
        torch.testing.assert_close(ratio, torch.tensor([1.0, 2, 4]))


def test_the_zip_stays_sound_and_the_note_is_a_record_of_it(tmp_path):
    torch.save(weights(), tmp_path / "m.pt")
    adjust_file(tmp_path / "m.pt", tmp_path / "o.pt", lh.rules.Rescale(0.5), COUNTS)
    with zipfile.ZipFile(tmp_path / "m.pt") as old, zipfile.ZipFile(tmp_path / "o.pt") as new:
        assert new.testzip() is None
        assert new.namelist() == [*old.namelist(), "m/levelhead.json"]
        same = {name for name in old.namelist() if old.read(name) == new.read(name)}
    assert len(old.namelist()) - len(same) == 2


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_a_state_dict_inside_a_checkpoint_is_found_and_the_rest_kept(tmp_path, key):
    momentum = {
        "state": {0: {"exp_avg": torch.ones(3, 8)}},
        "param_groups": [{"lr": 0.1, "params": [0]}],
    }
    torch.save({key: weights(), "optimizer": momentum, "epoch": 7}, tmp_path / "m.pt")
    done = adjust_file(tmp_path / "m.pt", tmp_path / "o.pt", lh.rules.Rescale(0.5), COUNTS)
    after = torch.load(tmp_path / "o.pt", weights_only=True)
    assert done.head == (f"{key}.fc",)
    assert after["epoch"] == 7
    assert torch.equal(after["optimizer"]["state"][0]["exp_avg"], torch.ones(3, 8))
    torch.testing.assert_close(after[key]["fc.weight"][2], weights()["fc.weight"][2] * 4)


def test_of_a_model_and_its_moving_average_one_must_be_named(tmp_path):
    torch.save(
        {"state_dict": weights(), "state_dict_ema": {k: v + 1 for k, v in weights().items()}},
        tmp_path / "m.pt",
    )
    with pytest.raises(ValueError, match=r"more than one.*state_dict\.fc.*state_dict_ema\.fc"):
        READER.find(tmp_path / "m.pt")
    assert READER.find(tmp_path / "m.pt", named="state_dict_ema.fc").keys == ("state_dict_ema.fc",)


def test_a_head_that_is_a_view_of_a_larger_storage_or_transposed(tmp_path):
    flat = torch.arange(60, dtype=torch.float32)
    torch.save(
        {
            "x.weight": flat[:32].view(4, 8),
            "fc.weight": flat[32:56].view(8, 3).t(),
            "fc.bias": flat[56:59],
        },
        tmp_path / "m.pt",
    )
    head = read_head(tmp_path / "m.pt")
    np.testing.assert_array_equal(head.weight, flat[32:56].view(8, 3).t())
    adjust_file(tmp_path / "m.pt", tmp_path / "o.pt", lh.rules.Rescale(0.5), COUNTS)
    after = torch.load(tmp_path / "o.pt", weights_only=True)
    torch.testing.assert_close(
        after["fc.weight"], flat[32:56].view(8, 3).t() * torch.tensor([[1.0], [2], [4]])
    )
    torch.testing.assert_close(after["fc.bias"], flat[56:59] * torch.tensor([1.0, 2, 4]))
    assert torch.equal(after["x.weight"], flat[:32].view(4, 8))
    with zipfile.ZipFile(tmp_path / "o.pt") as new:
        assert new.testzip() is None
    undo_file(tmp_path / "o.pt", tmp_path / "b.pt")
    assert (tmp_path / "b.pt").read_bytes() == (tmp_path / "m.pt").read_bytes()


def test_a_shard_alone_with_a_part_of_the_head_is_refused(tmp_path):
    state = weights()
    names = {key: f"pytorch_model-0000{1 + key.endswith('bias')}-of-00002.bin" for key in state}
    for name in set(names.values()):
        torch.save({key: state[key] for key in state if names[key] == name}, tmp_path / name)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": names}), encoding="utf-8")
    shard, other = sorted(set(names.values()))
    with pytest.raises(
        lh.LevelheadError, match=rf"a shard of {index.name}, and fc\.bias is in {other}"
    ):
        adjust_file(tmp_path / shard, tmp_path / "o.bin", lh.rules.Rescale(0.5), [100, 25, 4])
    index.unlink()
    adjust_file(tmp_path / shard, tmp_path / "o.bin", lh.rules.Rescale(0.5), [100, 25, 4])


def test_tied_weights_are_refused(tmp_path):
    shared = torch.randn(3, 8)
    torch.save({"fc.weight": shared, "embed.weight": shared}, tmp_path / "m.pt")
    with pytest.raises(ValueError, match=r"fc\.weight is tied to embed\.weight"):
        READER.find(tmp_path / "m.pt")


class Bomb:
    def __reduce__(self):
        return (print, ("the file's code was run",))


def write_pickle(path):
    path.write_bytes(pickle.dumps({"fc.weight": Bomb()}))


def write_torchscript(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("m/data.pkl", pickle.dumps({}))
        file.writestr("m/code/__torch__.py", "raise SystemExit")


REFUSED = {
    "a whole module": (
        lambda path: torch.save(nn.Linear(8, 3), path),
        r"needs torch\.nn\.modules\.linear\.Linear to open",
    ),
    "an object with code": (
        lambda path: torch.save({"fc.weight": Bomb()}, path),
        "would run its code",
    ),
    "a plain pickle": (write_pickle, "a pickle, which may hold code"),
    "TorchScript": (write_torchscript, "a TorchScript or export archive"),
    "no tensors": (lambda path: torch.save({"a": 1}, path), "holds no state dict of tensors"),
    "a list": (lambda path: torch.save([torch.ones(3, 8)], path), "holds no state dict of tensors"),
    "a name of one's own": (
        lambda path: torch.save({"best": weights()}, path),
        "has its tensors under best, which says nothing to us",
    ),
    "a name of one's own, beside a step": (
        lambda path: torch.save({"step": torch.tensor(5), "best": weights()}, path),
        "has its tensors under best, which says nothing to us",
    ),
    "cut short": (
        lambda path: path.write_bytes(b"PK\x03\x04" + bytes(100)),
        "cut short, or not a state dict",
    ),
    "empty": (lambda path: path.write_bytes(b""), "cut short, or not a state dict"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_not_a_state_dict_is_refused_and_none_of_its_code_run(
    tmp_path, capsys, name
):
    make, reason = REFUSED[name]
    make(tmp_path / "m.pt")
    with pytest.raises(ValueError, match=rf"m\.pt: .*{reason}.*save model\.state_dict\(\)"):
        READER.find(tmp_path / "m.pt")
    assert capsys.readouterr().out == ""


def test_the_old_format_of_torch_is_refused_with_the_line_that_converts_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(weights(), "m.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match=r"^m\.pt: torch's format before 1\.6") as refused:
        READER.find(Path("m.pt"))
    line = re.search(r"torch\.save\(.*\)(?= in Python)", str(refused.value))
    exec(line[0], {"torch": torch})
    assert READER.find(Path("new-m.pt")).keys == ("fc",)


def test_a_file_cut_in_its_middle_is_refused(tmp_path):
    torch.save(weights(), tmp_path / "m.pt")
    data = (tmp_path / "m.pt").read_bytes()
    (tmp_path / "m.pt").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="cut short"):
        READER.find(tmp_path / "m.pt")


@pytest.mark.parametrize(
    ("data", "how"), [(b"{}", zipfile.ZIP_DEFLATED), (b" " * 1001, zipfile.ZIP_STORED)]
)
def test_a_record_that_we_would_not_write_is_not_read(tmp_path, monkeypatch, data, how):
    monkeypatch.setattr(zip, "LONGEST_RECORD", 1000)
    torch.save(weights(), tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt", "a", how) as file:
        file.writestr("m/levelhead.json", data)
    with pytest.raises(
        ValueError, match=r"m\.pt: its record levelhead\.json is compressed or too long"
    ):
        READER.find(tmp_path / "m.pt")


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b"\xff", b"{}", b"9" * 5000, b'{"strength": 1e999']
)
def test_a_record_that_is_not_a_note_is_refused(tmp_path, data):
    torch.save(weights(), tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt", "a") as file:
        file.writestr("m/levelhead.json", data)
    with pytest.raises(ValueError, match=r"m\.pt: its record of an earlier adjustment is damaged"):
        READER.find(tmp_path / "m.pt")


def shapes_and_places(loaded):
    value, storages = loaded
    return {
        key: (
            tensor.shape,
            tensor.stride(),
            tensor.storage_offset(),
            tensor.dtype,
            storages[tensor.untyped_storage()._checkpoint_offset].filename,
        )
        for key, tensor in value.items()
    }


@pytest.mark.skipif(TORCH < (2, 11), reason="an older torch has one of the two ways only")
def test_the_way_for_an_older_torch_finds_the_same_tensors(tmp_path):
    tied = torch.arange(60, dtype=torch.float32)
    model = {
        **weights(torch.bfloat16),
        "tied": tied[6:30].reshape(3, 8),
        "turned": tied.reshape(10, 6).T,
        "parameter": nn.Parameter(torch.ones(2, 3)),
        "count": torch.tensor(3),
        "nothing": torch.zeros(0, 4),
    }
    torch.save(model, tmp_path / "m.pt")
    archive = zip.Archive(tmp_path / "m.pt")
    pickled = archive.unpack("data.pkl")
    seen = shapes_and_places(checkpoint._load_pickle(archive, pickled))
    assert seen == shapes_and_places(checkpoint._load_skeleton(archive, pickled))
    assert seen.keys() == model.keys()


def test_the_way_for_an_older_torch_runs_no_code_and_refuses_what_is_missing(tmp_path):
    for unsafe in (pickle.dumps(print, 2), pickle.dumps(pickle.loads, 2)):
        torch.save({"w": torch.ones(2)}, tmp_path / "m.pt")
        with pytest.raises(pickle.UnpicklingError):
            checkpoint._load_pickle(zip.Archive(tmp_path / "m.pt"), unsafe)
    with (
        zipfile.ZipFile(tmp_path / "m.pt") as whole,
        zipfile.ZipFile(tmp_path / "cut.pt", "w") as cut,
    ):
        for name in whole.namelist():
            if "/data/" not in name:
                cut.writestr(name, whole.read(name))
        pickled = whole.read("m/data.pkl")
    with pytest.raises(RuntimeError, match="data/0"):
        checkpoint._load_pickle(zip.Archive(tmp_path / "cut.pt"), pickled)


def test_record_that_is_marked_as_a_folder_is_refused(tmp_path):
    """torch reads nothing from it, so that an edit would change nothing."""
    torch.save({"fc.weight": torch.eye(2, 4)}, tmp_path / "m.pt")
    with (
        zipfile.ZipFile(tmp_path / "m.pt") as old,
        zipfile.ZipFile(tmp_path / "marked.pt", "w") as new,
    ):
        for record in old.infolist():
            data = old.read(record)
            record.external_attr |= 0x10 * record.filename.endswith("data/0")
            new.writestr(record, data)
    with pytest.raises(ValueError, match="data/0 is marked as a folder"):
        READER.find(tmp_path / "marked.pt")
