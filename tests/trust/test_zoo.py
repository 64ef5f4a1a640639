"""How the zoo (bench/zoo/files.py) judges a file, on files made here: it must see a wrong edit and a wrong refusal."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array
from safetensors.numpy import save_file

from bench.zoo import files as zoo
from bench.zoo.page import PAGE, ROOT, files_table, page_blocks

K, D = 4, 8
RNG = np.random.default_rng(0)
HEAD = {"head": "W", "logits": "h", "classes": K}


def made(folder, last):
    """Write a model of a hidden layer and a head of 4 classes, with a last node."""
    tensors = {"V": (D, D), "W": (D, K), "b": (K,), "c": (K,)}
    nodes = [
        helper.make_node("MatMul", ["x", "V"], ["v"]),
        helper.make_node("Gemm", ["v", "W", "b"], ["h"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", n])
        for name, n in (("x", D), ("y", K))
    ]
    held = [
        from_array(RNG.normal(size=shape).astype(np.float32), name)
        for name, shape in tensors.items()
    ]
    graph = helper.make_graph([*nodes, last], "g", values[:1], values[1:], held)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        folder / "m.onnx",
    )
    return folder / "m.onnx"


def test_an_edit_is_right_only_if_it_is_of_the_head_that_was_read(tmp_path):
    path = made(tmp_path, helper.make_node("Softmax", ["h"], ["y"]))
    judged = zoo.judge(path, HEAD, tmp_path)
    assert (judged["verdict"], judged["seen"]) == ("right", "logits, then Softmax")
    no_head = {"refuse": "it has no head"}
    for other in ({"head": "V"}, {"head": "b"}, {"logits": "y"}, no_head, no_head | {"classes": 3}):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        assert zoo.judge(path, HEAD | other, folder)["verdict"] == "wrong", other


def test_a_refusal_is_right_only_if_that_was_read(tmp_path):
    path = made(tmp_path, helper.make_node("Mul", ["h", "c"], ["y"]))
    assert zoo.judge(path, HEAD, tmp_path)["verdict"] == "refused wrongly"
    assert (
        zoo.judge(path, HEAD | {"refuse": "scaled after"}, tmp_path)["verdict"] == "refused rightly"
    )


def test_tensors_alone_are_judged_where_nothing_runs(tmp_path):
    tensors = {
        "fc.weight": RNG.normal(size=(K, D)),
        "fc.bias": np.ones(K),
        "body.scale": np.ones(3),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    judged = zoo.judge(tmp_path / "m.safetensors", {"head": "fc.weight", "classes": K}, tmp_path)
    assert (judged["verdict"], judged["seen"]) == ("right", "tensors")
    assert (
        zoo.judge(tmp_path / "m.safetensors", {"refuse": "none", "classes": K}, tmp_path)["verdict"]
        == "wrong"
    )
    facts = {"table": "files", "expected": {"head": "fc.weight"}, **judged}
    result = {
        "models": [
            {"package": "p", "file": "m.safetensors", **facts},
            {"package": "q", "file": "x.pt", **facts},
            {"package": "r", "file": "x.npz", **facts, "table": "held_out"},
        ]
    }
    assert "2 model files of 2 packages" in files_table(result)
    assert "1 other files of 1 other packages" in files_table(result)
    assert "| safetensors | 1 | 0 | 0 | 0 |" in files_table(result)


def test_a_head_that_needs_its_name_is_right_if_the_refusal_says_which(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"a.weight": RNG.normal(size=(K, D)), "b.weight": RNG.normal(size=(K, D))}, path)
    truth = {"head": "b.weight", "classes": K, "rules": ["rescale"]}
    assert zoo.judge(path, truth, tmp_path)["verdict"] == "refused wrongly"
    named = zoo.judge(path, truth | {"named": "b"}, tmp_path)
    assert named["verdict"] == "right"
    assert "b [4, 8]" in named["without a name"]
    assert zoo.judge(path, truth | {"named": "a"}, tmp_path)["verdict"] == "wrong"


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras itself, with torch
def test_keras_computes_the_logits_of_a_file(tmp_path):
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    top = keras.layers.Dense(K, activation="softmax", name="top")
    keras.Sequential([keras.Input((D,)), top]).save(tmp_path / "m.keras")
    truth = {"head": "layers/dense/vars/0", "logits": "top", "rows": "last", "classes": K}
    judged = zoo.judge(tmp_path / "m.keras", truth, tmp_path)
    assert (judged["verdict"], judged["seen"]) == ("right", "logits, then Softmax")


def test_every_file_is_listed_once_with_what_it_is():
    listed = list(zoo.cases([""]))
    places = [(case.package["name"], case.member) for case in listed]
    assert len(set(places)) == len(places)
    for case in listed:
        truth = case.truth
        assert ("head" in truth) != ("refuse" in truth), case.member
        if case.table == "held_out":
            assert truth.get("what") or truth.get("refuse"), case.member
            assert len(case.package["sha256"]) == 64


def test_the_page_is_that_of_the_results():
    page = PAGE.read_text(encoding="utf-8")
    for name, content in page_blocks(ROOT / "results").items():
        block = f"<!-- {name} -->\n{content}\n<!-- end of {name} -->"
        assert block in page, "run python -m bench.zoo --page"
