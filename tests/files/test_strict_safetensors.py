"""Headers that the format's own library refuses are refused here too."""

import json
import os

import numpy as np
import pytest
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from levelhead.files.safetensors import READER
from levelhead.io.safetensors_file import read_header
from levelhead.support.errors import LevelheadError

ENTRY = '"fc.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]%s}'


def whole(header, size=8):
    raw = header if isinstance(header, bytes) else header.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(8, "little") + raw + bytes(size)


def extra(text):
    return whole("{" + ENTRY % f',"x":{text}' + "}")


def tensor(dtype="F32", shape="[2,1]", offsets="[0,8]", size=8):
    return whole(
        f'{{"fc.weight":{{"dtype":{json.dumps(dtype)},"shape":{shape},"data_offsets":{offsets}}}}}',
        size,
    )


REFUSED = {
    "NaN": extra("NaN"),
    "Infinity": extra("-Infinity"),
    "a number too large": extra("1e999"),
    "a whole number too large": extra("9" * 400),
    "half a surrogate pair": extra('"\\ud800"'),
    "half a surrogate pair as a key": whole('{"\\udc00":' + ENTRY[12:] % "" + "}"),
    "half a surrogate pair in bytes": whole(
        b'{"\xed\xa0\x80":' + (ENTRY[12:] % "").encode() + b"}"
    ),
    "deep JSON": extra("[" * 150 + "]" * 150),
    "deeper JSON": extra("[" * 100_000 + "]" * 100_000),
    "deep objects": extra('{"a":' * 150 + "1" + "}" * 150),
    "an unknown type": tensor("F33"),
    "no type": tensor(None),
    "a type that is a list": tensor(["F32"]),
    "minus nothing": tensor(shape="[2,-0]", offsets="[0,0]", size=0),
    "a shape with a point": tensor(shape="[2.0,1]"),
    "a shape that is an object": tensor(shape='{"2":1}'),
    "a shape that is text": tensor(shape='""', offsets="[0,4]", size=4),
    "more numbers than can be counted": tensor(
        shape="[9223372036854775808,2,0]", offsets="[0,0]", size=0
    ),
    "three offsets": tensor(offsets="[0,8,8]"),
    "offsets that are an object": tensor(offsets='{"0":1,"8":2}'),
    "a hole": tensor(offsets="[4,12]", size=12),
    "half a byte": tensor("F4", "[3]", "[0,1]", 1),
    "a list": whole("[]", 0),
    "a byte order mark": whole("\ufeff{" + ENTRY % "" + "}"),
    "metadata that are a number": whole('{"__metadata__":{"a":1},' + ENTRY % "" + "}"),
    "metadata that are a list": whole('{"__metadata__":[],' + ENTRY % "" + "}"),
    "a repeated field": whole("{" + ENTRY % ',"dtype":"F32"' + "}"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_formats_own_library_refuses_is_refused(tmp_path, name):
    with pytest.raises(SafetensorError):
        deserialize(REFUSED[name])
    (tmp_path / "m.safetensors").write_bytes(REFUSED[name])
    with pytest.raises(LevelheadError, match=r"m\.safetensors: "):
        read_header(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "data",
    [
        extra("[" * 120 + "]" * 120),
        extra("[1.5, -0, 1e-999, 18446744073709551616, null, true]"),
        extra('"\\ud83d\\ude00"'),
        whole("{" + ENTRY % "" + "} \n\t"),
        whole(" {" + ENTRY % "" + "}"),
        whole('{"__metadata__":null,' + ENTRY % "" + "}"),
        save({"a": np.zeros((0, 3), np.float32)}),
    ],
)
def test_what_it_reads_is_read(tmp_path, data):
    deserialize(data)
    (tmp_path / "m.safetensors").write_bytes(data)
    assert read_header(tmp_path / "m.safetensors").tensors


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "m.safetensors")
    with pytest.raises(LevelheadError, match=r"m\.safetensors: a pipe"):
        READER.find(tmp_path / "m.safetensors")
    (tmp_path / "m.safetensors").unlink()
    os.mkfifo(tmp_path / "m.safetensors.index.json")
    with pytest.raises(LevelheadError, match=r"index\.json: a pipe"):
        READER.find(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ["m.safetensors.index.json"],
        ["../a.safetensors"],
        ["x" * 300],
        ["a\0b"],
        [""],
        [3],
        [None],
        ["a.safetensors/."],
    ],
    ids=str,
)
def test_an_index_of_shards_that_cannot_be_is_refused(tmp_path, names):
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {str(i): name for i, name in enumerate(names)}}))
    with pytest.raises((LevelheadError, FileNotFoundError), match="shard"):
        READER.find(index)


def test_an_index_of_deep_json_is_refused(tmp_path):
    (tmp_path / "m.safetensors.index.json").write_text('{"weight_map":' + "[" * 100_000)
    with pytest.raises(LevelheadError, match="not an index of shards"):
        READER.find(tmp_path)


def test_a_tensor_that_two_shards_have_is_refused(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.safetensors").write_bytes(
            save({"fc.weight": np.eye(2, dtype=np.float32)})
        )
    weight_map = {"fc.weight": "a.safetensors", "x": "b.safetensors"}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(LevelheadError, match=r"fc\.weight is in two of its shards"):
        READER.find(tmp_path)
