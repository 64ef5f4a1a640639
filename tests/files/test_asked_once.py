"""What is known of a model's file and of its head is found once, and no other format is loaded for it."""

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import levelhead as lh
from levelhead.heads.place import Place

from ..heads.chosen import tuned_for

COUNTS = (400, 100, 25, 4)

# Runs the command line and writes, to the file named first, which functions of ours were called
# how often, how often each file was opened, and which modules are loaded in the end.
COUNTED = """
import json, sys
from collections import Counter
from pathlib import Path

calls, opened = Counter(), Counter()

def count_call(frame, event, argument):
    if event == "call" and "levelhead" in frame.f_code.co_filename:
        calls[frame.f_code.co_qualname] += 1

def count_open(event, arguments):
    if event == "open":
        opened[Path(str(arguments[0])).name] += 1

target = Path(sys.argv.pop(1))
from levelhead.cli import main

sys.addaudithook(count_open)
sys.setprofile(count_call)
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
sys.setprofile(None)
target.write_text(json.dumps({"calls": calls, "opened": opened, "modules": list(sys.modules)}))
"""


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """`levelhead adjust` of an ONNX model of three layers, in a process of its own."""
    folder = tmp_path_factory.mktemp("counted")
    rng = np.random.default_rng(0)
    shapes = {"w1": (6, 5), "w2": (6, 6), "w3": (4, 6), "b3": (4,)}
    model = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1"], ["h1"], transB=1),
            helper.make_node("Relu", ["h1"], ["r1"]),
            helper.make_node("Gemm", ["r1", "w2"], ["h2"], transB=1),
            helper.make_node("Relu", ["h2"], ["r2"]),
            helper.make_node("Gemm", ["r2", "w3", "b3"], ["y"], transB=1),
        ],
        "three layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
            for name, shape in shapes.items()
        ],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(model, opset_imports=[opset], ir_version=8), folder / "m.onnx")
    tuned_for("shift", 0.5, COUNTS).save(folder / "tuned.json")
    words = ["adjust", "m.onnx", "--tuned", "tuned.json", "-o", "out.onnx"]
    subprocess.run([sys.executable, "-c", COUNTED, "counted.json", *words], cwd=folder, check=True)
    return json.loads((folder / "counted.json").read_text())


def test_the_facts_of_the_head_and_the_format_of_the_file_are_found_once(counted):
    for function in ("InFile.find_facts", "format_of", "read_graph"):
        assert counted["calls"][function] == 1, function


def test_what_was_tuned_is_read_once(counted):
    assert counted["opened"]["tuned.json"] == 1


def test_neither_another_format_nor_its_library_is_loaded(counted):
    loaded = {name for name in counted["modules"] if name.startswith("levelhead.files.")}
    assert "levelhead.files.onnx" in loaded
    others = ["hdf5", "keras", "keras_weights", "keras_config", "mlx", "safetensors", "state_dict"]
    assert [name for name in others if f"levelhead.files.{name}" in loaded] == []
    assert [name for name in ("h5py", "keras", "torch") if name in counted["modules"]] == []


def test_the_facts_of_a_head_in_memory_are_found_once(monkeypatch):
    from levelhead.heads.torch import TorchModel

    calls = Counter()
    find_facts = TorchModel.find_facts

    def counting(place):
        calls["find_facts"] += 1
        return find_facts(place)

    monkeypatch.setattr(TorchModel, "find_facts", counting)
    lh.adjust_(torch.nn.Sequential(torch.nn.Linear(3, 4)), tuned_for("shift", 0.5, COUNTS))
    assert calls["find_facts"] == 1


def test_a_head_that_is_found_anew_has_facts_of_its_own():
    from levelhead.heads.torch import TorchModel

    place = TorchModel(
        torch.nn.ModuleDict({"a": torch.nn.Linear(3, 5), "b": torch.nn.Linear(3, 4)})
    )
    place.find(layer="a")
    assert place.facts.sizes == (5,)
    place.find(layer="b")
    assert place.facts.sizes == (4,)


def test_a_place_that_lacks_a_part_cannot_be_made():
    lacking = type("Lacking", (Place,), {"earlier": lambda self: None})
    with pytest.raises(TypeError, match=r"abstract.*find_facts"):
        lacking()
