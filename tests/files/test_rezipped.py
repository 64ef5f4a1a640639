"""State dicts whose zip another program wrote, or a hostile one: the archive's own directory says where the head is."""

import io
import pickle
import resource
import struct
import zipfile

import pytest
import torch
from torch import nn

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.files.state_dict import READER
from levelhead.files.undo import undo_file
from levelhead.io import arrays

COUNTS = [16, 4, 1]


def checkpoint(seed=0, hidden=8):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(hidden, hidden), nn.Linear(hidden, 3))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(4, hidden)).sum().backward()
    optimizer.step()
    return {"model": net.state_dict(), "optimizer": optimizer.state_dict()}


def stored(path, checkpoint, edit=lambda records: records, how=zipfile.ZIP_STORED):
    """Store a checkpoint with torch, then each of its records anew with Python's zipfile."""
    buffer = io.BytesIO()
    torch.save(checkpoint, buffer)
    with zipfile.ZipFile(buffer) as old:
        records = [(name, old.read(name)) for name in old.namelist()]
    with zipfile.ZipFile(path, "w", how) as new:
        for name, data in edit(records):
            new.writestr(name, data)
    return path


def replaced(name, data):
    return lambda records: [(one, data if one.endswith(name) else old) for one, old in records]


def flat(value, prefix=""):
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from (
            flat(inner, f"{prefix}{key}/")
            if isinstance(inner, dict | list)
            else [(f"{prefix}{key}", inner)]
        )


ORDERS = {
    "as they were": lambda records: records,
    "reversed but the first": lambda records: [records[0], *records[:0:-1]],
    "by name": sorted,
    "without alignment": lambda records: [
        one for one in records if not one[0].endswith("_alignment")
    ],
    "with another alignment": replaced(".storage_alignment", b"4096"),
    "with the alignment that divides by 0": replaced(".storage_alignment", b"0"),
    "with no number as alignment": replaced(".storage_alignment", b"x" * 9),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("hidden", [3, 8, 17])
def test_a_checkpoint_stored_anew_has_its_head_scaled_and_nothing_else(tmp_path, order, hidden):
    before = checkpoint(hidden=hidden)
    path = stored(tmp_path / "m.pt", before, ORDERS[order])
    adjust_file(path, tmp_path / "o.pt", lh.rules.Rescale(0.5), COUNTS, head="model.1")
    with zipfile.ZipFile(tmp_path / "o.pt") as new:
        assert (
            new.testzip() is None
        )  # torch itself dies of an alignment of 0: it is given all other records
        with zipfile.ZipFile(tmp_path / "plain.pt", "w") as plain:
            for name in new.namelist():
                if not name.endswith(("alignment", "levelhead.json")):
                    plain.writestr(name, new.read(name))
    after = dict(flat(torch.load(tmp_path / "plain.pt", weights_only=True)))
    for key, old in flat(before):
        by = {
            "model/1.weight": torch.tensor([[1.0], [2], [4]]),
            "model/1.bias": torch.tensor([1.0, 2, 4]),
        }.get(key, 1)
        torch.testing.assert_close(after[key], old if isinstance(by, int) else old * by, msg=key)
    undo_file(tmp_path / "o.pt", tmp_path / "b.pt")
    assert (tmp_path / "b.pt").read_bytes() == path.read_bytes()


def test_what_torch_saved_is_where_it_always_was(tmp_path):
    torch.save(checkpoint(), tmp_path / "m.pt")
    for span in READER.find(tmp_path / "m.pt", named="model.1").layers[0].spans:
        tensor = torch.load(tmp_path / "m.pt", weights_only=True)["model"][
            span.key.removeprefix("model.")
        ]
        assert span.bytes() == tensor.numpy().tobytes()


def rename(old, new):
    return lambda records: [(name.replace(old, new), data) for name, data in records]


def drop(end):
    return lambda records: [one for one in records if not one[0].endswith(end)]


REFUSED = {
    "a storage is missing": (drop("data/3"), r"locating file data/3"),
    "a storage is longer": (
        replaced("data/3", bytes(16)),
        r"expected 12 bytes in its record data/3, got 16",
    ),
    "a storage is shorter": (
        replaced("data/3", bytes(8)),
        r"expected 12 bytes in its record data/3, got 8",
    ),
    "the pickle is missing": (drop("data.pkl"), r"no record data\.pkl"),
    "no folder": (
        lambda records: [(name.partition("/")[2], data) for name, data in records],
        "not in a folder",
    ),
    "big-endian": (replaced("byteorder", b"big"), "big-endian"),
    "a record that torch takes for another": (
        lambda records: [*records, (records[0][0].split("/")[0] + "/DATA/3", b"x" * 12)],
        "two records are called",
    ),
    "TorchScript": (lambda records: [*records, ("archive/constants.pkl", b"")], "TorchScript"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_archive_that_torch_would_not_have_written_is_refused(tmp_path, name):
    edit, reason = REFUSED[name]
    path = stored(tmp_path / "m.pt", checkpoint(), edit)
    with pytest.raises(ValueError, match=rf"m\.pt: .*{reason}"):
        READER.find(path, named="model.1")


def test_a_line_break_in_the_name_of_a_record_is_written_out(tmp_path):
    def edit(records):
        return [*records, *((records[0][0] + end, b"x") for end in ("\na", "\nA"))]

    path = stored(tmp_path / "m.pt", checkpoint(), edit)
    with pytest.raises(ValueError, match=r"two records are called [^\n]*\\nA") as caught:
        READER.find(path, named="model.1")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_records_that_share_a_name_or_bytes_are_refused(tmp_path):
    path = stored(tmp_path / "m.pt", checkpoint(), lambda records: [*records, records[-1]])
    with pytest.raises(ValueError, match="two records are called"):
        READER.find(path, named="model.1")
    path = stored(tmp_path / "n.pt", checkpoint())
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        first, second, *_ = [record for record in file.infolist() if "/data/" in record.filename]
    entry = data.index(b"PK\x01\x02", data.rindex(second.filename.encode()) - 60)
    data[entry + 42 : entry + 46] = struct.pack("<I", first.header_offset)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"n\.pt: .*share bytes"):
        READER.find(path, named="model.1")


def test_a_compressed_head_is_refused_and_a_compressed_neighbor_is_not_touched(tmp_path):
    path = stored(tmp_path / "m.pt", checkpoint(), how=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match=r"model\.1\.weight is not stored as plain bytes"):
        READER.find(path, named="model.1")


def test_a_pickle_that_unpacks_to_gigabytes_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("m/data.pkl", b"\x80\x02" + b"}0" * 6_000_000 + b"}.")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"m\.pt: its record data\.pkl is compressed and too long"):
        READER.find(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8_000  # kB


class Call:
    """Something whose pickle calls a function that weights_only allows."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "call",
    [
        Call(bytearray, 1 << 40),
        Call(torch.UntypedStorage, 1 << 40),
        Call(torch.FloatStorage, 1 << 38),
    ],
    ids=["bytearray", "UntypedStorage", "FloatStorage"],
)
def test_a_pickle_that_asks_for_a_terabyte_is_refused(tmp_path, call):
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as file:
        file.writestr("m/data.pkl", pickle.dumps({"fc.weight": call}, protocol=2))
    with pytest.raises(ValueError, match=r"m\.pt: .*it asks for an array without giving its bytes"):
        READER.find(tmp_path / "m.pt")


def nested(depth, wide):
    """Return a pickle of a dict whose key is a tuple in a tuple in a tuple, shared if wide."""
    inside = b"q\x00h\x00\x86" if wide else b"\x85"
    return b"\x80\x02})" + inside * depth + b"K\x01s."


def grown(codec):
    """Return a pickle of bytes encoded thirty times over."""
    encode, name = b"c_codecs\nencode\n", b"X" + struct.pack("<I", len(codec)) + codec
    start = encode + b"X\x04\x00\x00\x00aaaaX\x06\x00\x00\x00latin1\x86R"
    return b"\x80\x02" + start + (b"q\x000" + encode + b"h\x00" + name + b"\x86R") * 24 + b"."


PICKLES = {
    "tuples so deep that their hash overflows the stack": nested(200_000, wide=False),
    "tuples shared so often that their hash never ends": nested(50, wide=True),
    "bytes that double": grown(b"hex"),
    "bytes that double by another name": grown(b"!BASE-64"),
    "a dict that holds itself": b"\x80\x02}q\x00X\x05\x00\x00\x00modelh\x00s.",
    "a persistent id of another kind": b"\x80\x02K\x05Q.",
    "no pickle": b"PK",
    "a mark alone": b"(t(t",
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_that_is_not_of_a_state_dict_is_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as file:
        file.writestr("m/data.pkl", PICKLES[name])
    with pytest.raises(ValueError, match=r"m\.pt: .*save model\.state_dict"):
        READER.find(tmp_path / "m.pt")


def test_a_head_whose_numbers_are_elsewhere_in_the_checkpoint_too_is_refused(tmp_path):
    weights = checkpoint()["model"]
    places = (
        {"best": [weights["1.bias"]]},
        {"optimizer": {"state": {0: (weights["1.weight"][1:],)}}},
        {"best": {"columns": weights["1.weight"][:, ::3]}},
    )
    for other in places:
        torch.save({"model": weights, **other}, tmp_path / "m.pt")
        with pytest.raises(ValueError, match=r"model\.1\.\w+ is tied to .*(best|optimizer)"):
            READER.find(tmp_path / "m.pt", named="model.1")
    torch.save(
        {"model": weights, "best": [weights["0.bias"], weights["1.bias"].clone()]},
        tmp_path / "m.pt",
    )
    assert READER.find(tmp_path / "m.pt", named="model.1").classes == 3


@pytest.mark.parametrize("name", [name for name in PICKLES if "tuples" in name or "bytes" in name])
def test_such_a_pickle_is_refused_as_a_file_of_logits_too(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "logits.pt", "w") as file:
        file.writestr("m/data.pkl", PICKLES[name])
    with pytest.raises(ValueError, match=r"logits\.pt: "):
        arrays.read(tmp_path / "logits.pt")
