"""Segmentation in ONNX: a 1x1 convolution as the head, with a Resize after it that leaves the classes alone."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import levelhead as lh
from levelhead.files.model import adjust_file
from levelhead.files.undo import undo_file

from ..heads.chosen import own_rule

COUNTS = [100, 25, 4]
RNG = np.random.default_rng(0)
W, B = RNG.normal(size=(3, 5, 1, 1)).astype(np.float32), RNG.normal(size=3).astype(np.float32)
X = RNG.normal(size=(2, 5, 6, 6)).astype(np.float32)


def save(path, scales=None, sizes=None, **attributes):
    """Write Conv -> Resize; sizes are the shape's first two numbers and these two, as torch exports them."""
    nodes = [helper.make_node("Conv", ["x", "head.weight", "head.bias"], ["z"])]
    tensors = [numpy_helper.from_array(W, "head.weight"), numpy_helper.from_array(B, "head.bias")]
    if sizes is None:
        tensors.append(numpy_helper.from_array(np.array(scales, np.float32), "scales"))
        inputs = ["z", "", "scales"]
    else:
        numbers = {"zero": [0], "two": [2], "more": sizes}
        tensors += [
            numpy_helper.from_array(np.array(value, np.int64), name)
            for name, value in numbers.items()
        ]
        nodes += [
            helper.make_node("Shape", ["z"], ["shape"]),
            helper.make_node("Slice", ["shape", "zero", "two", "zero"], ["first"]),
            helper.make_node("Concat", ["first", "more"], ["sizes"], axis=0),
        ]
        inputs = ["z", "", "", "sizes"]
    nodes += [helper.make_node("Resize", inputs, ["y"], mode="linear", **attributes)]
    values = [
        helper.make_tensor_value_info(name, T.FLOAT, shape)
        for name, shape in (("x", ["N", 5, "H", "W"]),)
    ]
    outputs = [helper.make_tensor_value_info("y", T.FLOAT, list("ABCD"))]
    model = helper.make_model(
        helper.make_graph(nodes, "g", values, outputs, tensors),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.save(model, path)


def run(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"x": X}
    )[0]


@pytest.mark.parametrize("how", [{"scales": [1, 1, 2, 2]}, {"sizes": [9, 7]}])
@pytest.mark.parametrize("rule", ["rescale", "shift"])
def test_head_before_a_resize_is_adjusted_pixel_by_pixel(how, rule, tmp_path):
    path, out, back = (tmp_path / name for name in ("m.onnx", "out.onnx", "back.onnx"))
    save(path, **how)
    before = run(path)
    adjust_file(path, out, own_rule(rule, 0.5), COUNTS)
    by = (100 / np.array(COUNTS)) ** 0.5
    each = by.reshape(1, 3, 1, 1)
    assert np.allclose(
        run(out), before * each if rule == "rescale" else before + np.log(each), atol=1e-5
    )
    undo_file(out, back)
    assert back.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "how",
    [
        {"scales": [1, 2, 1, 1]},
        {"scales": [1, 1, 2, 2], "coordinate_transformation_mode": "tf_crop_and_resize"},
    ],
    ids=["of the classes", "with values from outside"],
)
def test_resize_that_may_mix_classes_is_refused(how, tmp_path):
    save(tmp_path / "m.onnx", **how)
    with pytest.raises(ValueError, match="Resize '' follows the head, and may mix the classes"):
        adjust_file(tmp_path / "m.onnx", tmp_path / "out.onnx", lh.rules.Rescale(0.5), COUNTS)
