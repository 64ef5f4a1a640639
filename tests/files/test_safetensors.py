import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import levelhead as lh
from levelhead import Head
from levelhead.files.model import adjust_file
from levelhead.files.safetensors import READER
from levelhead.files.undo import undo_file
from levelhead.io.safetensors_file import read_header

from .head_in_file import read_head, write_head

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def model(dtype=torch.float32, classes=5, bias=True, **more):
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "conv.weight": torch.randn(8, 3, 3, 3, generator=generator),
        "steps": torch.arange(3),
        **more,
    }
    tensors["fc.weight"] = torch.randn(classes, 8, generator=generator).to(dtype)
    return (
        {**tensors, "fc.bias": torch.randn(classes, generator=generator).to(dtype)}
        if bias
        else tensors
    )


@settings(max_examples=25, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    classes=st.integers(2, 9),
    bias=st.booleans(),
    metadata=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    data=st.data(),
)
def test_read_then_write_changes_no_bit(tmp_path_factory, dtype, classes, bias, metadata, data):
    folder = tmp_path_factory.mktemp("noop")
    tensors = model(dtype, classes, bias)
    tensors["fc.weight"] *= data.draw(st.sampled_from([1e-30, 1e-3, 1, 300]))
    save_file(tensors, folder / "m.safetensors", metadata)
    write_head(
        folder / "m.safetensors", folder / "o.safetensors", read_head(folder / "m.safetensors")
    )
    assert (folder / "o.safetensors").read_bytes() == (folder / "m.safetensors").read_bytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_read_gives_the_values_torch_gives(tmp_path, dtype):
    save_file(model(dtype), tmp_path / "m.safetensors")
    head = read_head(tmp_path / "m.safetensors", "fc")
    assert head.weight.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    np.testing.assert_array_equal(head.weight, model(dtype)["fc.weight"].to(torch.float64))
    np.testing.assert_array_equal(head.bias, model(dtype)["fc.bias"].to(torch.float64))


@pytest.mark.parametrize(
    "metadata", [None, {"format": "pt"}, {"format": "pt", "ünder": '"__metadata__":{}'}]
)
def test_only_the_head_and_our_metadata_change(tmp_path, metadata):
    save_file(model(), tmp_path / "m.safetensors", metadata)
    adjust_file(
        tmp_path / "m.safetensors",
        tmp_path / "o.safetensors",
        lh.rules.Rescale(0.5),
        [100, 50, 20, 10, 1],
    )
    before, after = load_file(tmp_path / "m.safetensors"), load_file(tmp_path / "o.safetensors")
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed == {"fc.weight", "fc.bias"}
    with safe_open(tmp_path / "o.safetensors", "np") as file:
        kept = {
            key: value for key, value in file.metadata().items() if not key.startswith("levelhead.")
        }
    assert kept == (metadata or {})
    old, new = (read_header(tmp_path / name).text for name in ("m.safetensors", "o.safetensors"))
    tail = old[
        old.index('"conv.weight"')
        if '"steps"' not in old[: old.index('"conv.weight"')]
        else old.index('"steps"') :
    ]
    assert new.rstrip(" ").endswith(tail.rstrip(" "))
    assert read_header(tmp_path / "o.safetensors").length % 8 == 0


def test_metadata_under_our_name_that_is_not_a_note_stays(tmp_path):
    paths = {
        name: tmp_path / f"{name}.safetensors" for name in ("m", "once", "twice", "divided", "back")
    }
    metadata = {"levelhead.model": '{"net": "digits"}', "levelhead.snapshot": "not even JSON"}
    save_file(model(), paths["m"], metadata)
    adjust_file(paths["m"], paths["once"], lh.rules.Rescale(0.5), [100, 50, 20, 10, 1])
    adjust_file(
        paths["once"],
        paths["twice"],
        lh.rules.Rescale(0.5),
        [100, 50, 20, 10, 1],
        again=True,
        original=False,
    )
    undo_file(paths["twice"], paths["divided"])
    for name in ("once", "twice", "divided"):
        assert read_header(paths[name]).metadata.items() >= metadata.items()
        assert "model" not in READER.note(paths[name])
    undo_file(paths["once"], paths["back"])
    assert paths["back"].read_bytes() == paths["m"].read_bytes()
    paths["once"].with_name("once.safetensors.original").unlink()
    undo_file(paths["once"], paths["back"], force=True)
    assert read_header(paths["back"]).metadata == metadata


@pytest.mark.parametrize(
    "text",
    [
        '{"fc.weight":ENTRY}',
        '{ "__metadata__" : {"a": "b"} , "fc.weight" : ENTRY }',
        '{"fc.weight":ENTRY,"__metadata__":{}}',
    ],
)
def test_metadata_is_found_wherever_it_stands(tmp_path, text):
    header = text.replace("ENTRY", '{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}').encode()
    (tmp_path / "m.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + np.eye(2, dtype="<f4").tobytes()
    )
    adjust_file(
        tmp_path / "m.safetensors", tmp_path / "o.safetensors", lh.rules.Rescale(0.5), [4, 1]
    )
    with safe_open(tmp_path / "o.safetensors", "np") as file:
        assert file.get_tensor("fc.weight").tolist() == [[1, 0], [0, 2]]
        assert file.metadata()["levelhead.strength"] == "0.5"
        assert file.metadata().get("a") == ("b" if '"a"' in text else None)


def test_heads_that_feed_one_output_are_scaled_together(tmp_path):
    tensors = {
        "head.weight": torch.ones(3, 2),
        "head_dist.weight": torch.full((3, 2), 2.0),
        "x.weight": torch.ones(2, 2),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    done = adjust_file(
        tmp_path / "m.safetensors", tmp_path / "o.safetensors", lh.rules.Rescale(0.5), [16, 4, 1]
    )
    after = load_file(tmp_path / "o.safetensors")
    assert done.head == ("head", "head_dist")
    assert after["head.weight"][:, 0].tolist() == [1, 2, 4]
    assert after["head_dist.weight"][:, 0].tolist() == [2, 4, 8]


def test_class_names_come_from_the_config_next_to_the_file(tmp_path):
    save_file(model(classes=3), tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text(
        '{"id2label": {"0": "cat", "1": "dog", "2": "cow"}}', encoding="utf-8"
    )
    assert read_head(tmp_path / "m.safetensors").names == ("cat", "dog", "cow")
    done = adjust_file(
        tmp_path / "m.safetensors",
        tmp_path / "o.safetensors",
        lh.rules.Rescale(0.5),
        {"dog": 4, "cow": 1, "cat": 16},
    )
    assert done.scale.tolist() == [1, 2, 4]


@pytest.fixture
def sharded(tmp_path):
    """A model in three shards, its head's weight and bias in two of them."""
    folder = tmp_path / "model"
    folder.mkdir()
    shards = {
        "a.safetensors": ["conv.weight", "steps"],
        "b.safetensors": ["fc.weight"],
        "c.safetensors": ["fc.bias"],
    }
    for name, members in shards.items():
        save_file({key: model()[key] for key in members}, folder / name, {"format": "pt"})
    index = {
        "metadata": {"total_size": 1},
        "weight_map": {key: name for name, keys in shards.items() for key in keys},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("by_index", [False, True])
def test_only_the_shards_with_the_head_change(sharded, tmp_path, by_index):
    path = sharded / "model.safetensors.index.json" if by_index else sharded
    done = adjust_file(path, tmp_path / "out", lh.rules.Rescale(0.5), [16, 4, 4, 4, 1])
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    model_files = [
        "a.safetensors",
        "b.safetensors",
        "c.safetensors",
        "model.safetensors.index.json",
    ]
    assert names == [*model_files, "tokenizer.json"]
    same = {
        name
        for name in names
        if (tmp_path / "out" / name).read_bytes() == (sharded / name).read_bytes()
    }
    assert same == {"a.safetensors", "model.safetensors.index.json", "tokenizer.json"}
    assert set(done.sha256) == {"b.safetensors", "c.safetensors"}
    ratio = load_file(tmp_path / "out" / "b.safetensors")["fc.weight"] / model()["fc.weight"]
    torch.testing.assert_close(ratio[:, 0], torch.tensor([1.0, 2, 2, 2, 4]))
    torch.testing.assert_close(
        load_file(tmp_path / "out" / "c.safetensors")["fc.bias"] / model()["fc.bias"], ratio[:, 0]
    )


def test_a_private_folder_stays_private_and_so_does_what_is_kept_next_to_it(sharded, tmp_path):
    sharded.chmod(0o700)
    (sharded / "b.safetensors").chmod(0o640)
    adjust_file(sharded, tmp_path / "out", lh.rules.Rescale(0.5), [16, 4, 4, 4, 1])
    undo_file(tmp_path / "out", tmp_path / "back")
    bits = {
        name: (tmp_path / name).stat().st_mode & 0o777
        for name in (
            "out",
            "back",
            "out.original",
            "out/a.safetensors",
            "out/b.safetensors",
            "back/b.safetensors",
        )
    }
    usual = (sharded / "a.safetensors").stat().st_mode & 0o777
    assert bits == {
        "out": 0o700,
        "back": 0o700,
        "out.original": 0o600,
        "out/a.safetensors": usual,
        "out/b.safetensors": 0o640,
        "back/b.safetensors": 0o640,
    }


@pytest.mark.parametrize("left", [["a", "b", "c"], ["b"]])
@pytest.mark.parametrize("named", [None, "fc"])
def test_a_shard_alone_with_a_part_of_the_head_is_refused(sharded, tmp_path, left, named):
    for name in {"a", "b", "c"} - {*left}:
        (sharded / f"{name}.safetensors").unlink()
    shard = sharded / "b.safetensors"
    out = tmp_path / "o.safetensors"
    reason = r"b\.safetensors: a shard of model\.safetensors\.index\.json, and fc\.bias is in c\.safetensors"
    with pytest.raises(lh.LevelheadError, match=f"{reason}; give the index or the folder"):
        adjust_file(shard, out, lh.rules.Rescale(0.5), [16, 4, 4, 4, 1], head=named)
    assert not out.exists()


@pytest.mark.parametrize("left", [["a", "b"], ["b"]])
def test_a_shard_alone_with_the_whole_head_is_adjusted(tmp_path, left):
    tensors = model()
    members = {"a": ["conv.weight", "steps"], "b": ["fc.weight", "fc.bias"]}
    for name in left:
        save_file({key: tensors[key] for key in members[name]}, tmp_path / f"{name}.safetensors")
    weight_map = {key: f"{name}.safetensors" for name, keys in members.items() for key in keys}
    index = json.dumps({"weight_map": weight_map})
    (tmp_path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    done = adjust_file(
        tmp_path / "b.safetensors",
        tmp_path / "o.safetensors",
        lh.rules.Rescale(0.5),
        [16, 4, 4, 4, 1],
    )
    assert done.head == ("fc",)
    ratio = load_file(tmp_path / "o.safetensors")["fc.bias"] / tensors["fc.bias"]
    torch.testing.assert_close(ratio, torch.tensor([1.0, 2, 2, 2, 4]))


def test_a_shard_alone_is_refused_if_the_head_of_its_model_is_in_another(tmp_path):
    shards = {"a": "aux", "b": "fc"}
    for name, layer in shards.items():
        save_file(
            {f"{layer}.weight": model()["fc.weight"] + len(layer), f"{layer}.bias": torch.ones(5)},
            tmp_path / f"{name}.safetensors",
        )
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {f"{layer}.weight": f"{name}.safetensors" for name, layer in shards.items()}
    index.write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    for name in shards:
        with pytest.raises(lh.LevelheadError, match=r"more than one layer.*aux.*fc"):
            READER.find(tmp_path / f"{name}.safetensors")


def test_a_missing_shard_is_named(sharded):
    (sharded / "a.safetensors").unlink()
    with pytest.raises(
        FileNotFoundError,
        match=r"a\.safetensors: no such file; expected a shard of model\.safetens",
    ):
        READER.find(sharded)


def test_an_index_that_points_elsewhere_is_refused(sharded, tmp_path):
    index = sharded / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"fc.weight": "../other.safetensors"}}', encoding="utf-8")
    save_file(model(), tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="expected shards in the same folder"):
        READER.find(index)


def header(**entries):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
BROKEN = {
    "empty": b"",
    "seven bytes": b"1234567",
    "a length beyond the file": struct.pack("<Q", 1000) + b"{}",
    "a length beyond all bounds": struct.pack("<Q", 1 << 62) + b"{}",
    "no JSON": struct.pack("<Q", 8) + b"nonsense",
    "no object": struct.pack("<Q", 2) + b"[]",
    "no UTF-8": struct.pack("<Q", 4) + b'{"\xff"',
    "an entry without offsets": header(**{"fc.weight": {"dtype": "F32", "shape": [2, 2]}})
    + bytes(16),
    "too few bytes for the shape": header(**{"fc.weight": {**ENTRY, "data_offsets": [0, 12]}})
    + bytes(12),
    "data cut short": header(**{"fc.weight": ENTRY}) + bytes(15),
    "data too long": header(**{"fc.weight": ENTRY}) + bytes(17),
    "a hole": header(**{"fc.weight": {**ENTRY, "data_offsets": [4, 20]}}) + bytes(20),
    "an overlap": header(**{"fc.weight": ENTRY, "x": {**ENTRY, "data_offsets": [8, 24]}})
    + bytes(24),
    "a key that is there twice": struct.pack("<Q", 13) + b'{"a":1,"a":1}',
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_file_is_refused_and_named(tmp_path, data):
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(
        ValueError, match=r"m\.safetensors: (cut short|not a safetensors file|too long)"
    ):
        READER.find(tmp_path / "m.safetensors")


def test_writing_a_head_of_another_shape_is_refused(tmp_path):
    save_file(model(), tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"fc is \[5, 8\] with a bias"):
        write_head(tmp_path / "m.safetensors", tmp_path / "o.safetensors", Head(np.ones((4, 8))))
    assert not (tmp_path / "o.safetensors").exists()


def test_a_head_that_is_not_finite_is_refused_with_the_name_of_its_file(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"fc.weight": torch.eye(2), "fc.bias": torch.tensor([torch.inf, 0])}, path)
    with pytest.raises(ValueError, match=r"m\.safetensors: .*infinite bias values in class 0"):
        adjust_file(path, tmp_path / "o.safetensors", lh.rules.Rescale(0.5), [4, 1])
