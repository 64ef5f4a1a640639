"""An ONNX file is adjusted in little more memory than it has bytes, whatever stands beside the head."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array

WIDTH = 2**24  # of the layer before the head: 64 MB, and as much for the one behind it
SCRIPT = """
import re, sys
from pathlib import Path
import levelhead as lh
from levelhead.files.model import adjust_file
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
small, large, out = sys.argv[1:]
adjust_file(small, out, lh.rules.Shift(0.5), [900, 90, 9])  # all that is imported is there then
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = peak()
adjust_file(large, out, lh.rules.Shift(0.5), [900, 90, 9], force=True)
print(peak() - before)
"""


def save(path, width):
    tensors = {
        "A": np.ones((1, width), np.float32),
        "B": np.ones((width, 1), np.float32),
        "W": np.ones((1, 3), np.float32),
        "b": np.zeros(3, np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "A"], ["h"]),
            helper.make_node("MatMul", ["h", "B"], ["f"]),
            helper.make_node("Gemm", ["f", "W", "b"], ["y"]),
        ],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [from_array(values, name) for name, values in tensors.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says the peak")
def test_an_edit_takes_at_most_1_3_times_the_file(tmp_path):
    small, large = save(tmp_path / "small.onnx", 2), save(tmp_path / "large.onnx", WIDTH)
    words = [sys.executable, "-c", SCRIPT, small, large, tmp_path / "out.onnx"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1.3 * large.stat().st_size
