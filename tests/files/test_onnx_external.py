"""ONNX models whose numbers lie in another file: copied, changed and put back with the model, or refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.files.onnx import READER
from levelhead.files.undo import undo_file

from .test_onnx import COUNTS, FACTORS, MODELS, run, save


@pytest.fixture
def external(tmp_path):
    (tmp_path / "in").mkdir()
    nodes, tensors = MODELS["a hidden layer before it"]
    copies = [T.FromString(tensor.SerializeToString()) for tensor in tensors]
    return save(
        tmp_path / "in" / "m.onnx",
        nodes,
        copies,
        save_as_external_data=True,
        location="m.onnx.data",
        size_threshold=0,
    )


@pytest.mark.parametrize(
    ("out", "data"),
    [("in/o.onnx", "in/o.onnx.data"), ("elsewhere/o.onnx", "elsewhere/m.onnx.data")],
)
def test_external_weights_are_copied_changed_and_put_back(tmp_path, external, out, data):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "back").mkdir()
    before = {file.name: file.read_bytes() for file in external.parent.iterdir()}
    adjust_file(external, tmp_path / out, lh.rules.Rescale(0.5), COUNTS)
    assert (tmp_path / data).is_file()
    np.testing.assert_allclose(
        run(tmp_path / out)[0], run(external)[0] * FACTORS, rtol=1e-5, atol=1e-4
    )
    onnx.checker.check_model(str(tmp_path / out))
    assert {name: (external.parent / name).read_bytes() for name in before} == before
    undo_file(tmp_path / out, tmp_path / "back" / "m.onnx")
    assert {file.name: file.read_bytes() for file in (tmp_path / "back").iterdir()} == before


def test_external_weights_that_are_not_there_are_named(external):
    (external.parent / "m.onnx.data").unlink()
    with pytest.raises(
        FileNotFoundError,
        match=r"m\.onnx\.data: no such file; expected external weights of m\.onnx",
    ):
        READER.find(external)


@pytest.mark.parametrize(("key", "value"), [("offset", "-8"), ("offset", "x"), ("location", None)])
def test_external_numbers_without_a_place_are_refused(tmp_path, key, value):
    path = save(
        tmp_path / "m.onnx",
        *MODELS["Gemm, transB=1"],
        save_as_external_data=True,
        location="d",
        size_threshold=0,
    )
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        kept = {entry.key: entry.value for entry in tensor.external_data} | {key: value}
        del tensor.external_data[:]
        for name, text in kept.items():
            if text is not None:
                tensor.external_data.add(key=name, value=text)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"m\.onnx: 'W' is kept in an unknown file"):
        READER.find(path)


@pytest.mark.parametrize(("of", "to", "offset"), [("V", "W", 0), ("V", "W", -4), ("b", "W", 4)])
def test_external_bytes_that_two_tensors_have_are_tied(external, of, to, offset):
    model = onnx.load(external, load_external_data=False)
    entries = {
        tensor.name: {entry.key: entry for entry in tensor.external_data}
        for tensor in model.graph.initializer
    }
    entries[of]["offset"].value = str(int(entries[to]["offset"].value) + offset)
    external.write_bytes(model.SerializeToString())
    with pytest.raises(
        ValueError, match=rf"m\.onnx: '{to}' has the same bytes of m\.onnx\.data as '{of}'"
    ):
        READER.find(external)
